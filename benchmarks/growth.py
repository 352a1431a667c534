"""Benchmark of every verb of a memory by the number of its items.

Each figure is the least processor time of some calls, in ms, on a memory in the process
with the hashing embedder. `TTL add and search` is one item with an expiry and the
search behind it, where as many others will expire. Promises: at the largest size a TTL
add with its search takes at most 2 ms more than a plain one, a page of a list and the
history of an item at most 5 ms, and nothing but what reads everything (`LINEAR`) takes
more than 3 times what it takes at the smallest (5 times where that is a hundredth).

    python benchmarks/growth.py [--sizes 1000 10000 100000] [--baseline CHECKOUT] [--folder KEPT]

`--baseline` measures another checkout of this repository as well, in turn with this
one, and prints how many times faster this one is. A run with `--folder` goes on after the
last size that was finished.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, Final

from measured import report

from memagent.core.answers import AsOf
from memagent.core.records import Session, Turn
from memagent.core.snapshot import SourceFilter
from memagent.embed.static import HashEmbedder
from memagent.memory.bank import MemoryBank
from memagent.memory.facade import Memory

WORDS: Final = (
    "boat harbour tea Lisbon Porto dog chess piano garden winter rent flight market bridge letter "
    "window river stone paper candle forest engine violin basket mirror ladder copper silver"
).split()
LINEAR: Final = frozenset(
    {
        "search",
        "add and search",
        "TTL add and search",
        "export",
        "graph_stats",
        "export_graph",
        "import_",
        "restore (a snapshot)",
        "diff",
        "erase",
        "erase_session",
        "delete_all",
        "reset",
    }
)
"""Verbs that scan all vectors, read all of a memory or of two, or write its journal anew."""
START: Final = datetime(2024, 5, 1, tzinfo=UTC)
_AT_ONCE: Final = 500
_RECENT: Final = 20
_MOST_EXPIRING: Final = 16_000
"""Items that expire, at most: they are added one by one."""


async def filled(size: int, *, expiring: bool = False) -> Memory:
    """Return a memory of items said on different days, in commits of 500."""
    dice, bank = Random(1), MemoryBank(embedder=HashEmbedder(dim=64), clock=lambda: START)
    memory = Memory(bank)
    if expiring:
        for number in range(size):
            hours = timedelta(hours=1 + number % 999)
            await memory.add(f"{dice.choice(WORDS)} {number}", ttl=hours)
        return memory
    for first in range(0, size, _AT_ONCE):
        texts = [f"{' '.join(dice.choices(WORDS, k=6))} {first + n}" for n in range(_AT_ONCE)]
        await memory.add_many(texts[: size - first])
    for number in range(_RECENT):  # the kept states of large commits are freed by later ones
        await memory.add(f"a note {number}")
    return memory


async def least_ms(make: Callable[[int], Awaitable[object]], *, calls: int) -> float:
    """Return the least processor time of a call, after one that fills caches.

    With `calls=0` there is one call, and it is timed: what takes everything away, and what
    is long at any size.
    """
    best = float("inf")
    for number in range(calls + 1):
        began = time.process_time()
        await make(number)
        took = time.process_time() - began
        if number or not calls:
            best = min(best, took)
    return round(1e3 * best, 3)


async def measured(size: int) -> dict[str, float]:
    """Return the processor time of each verb at a size, in ms; tell each when it is known."""
    memory = await filled(size)
    items = await memory.get_all()
    await memory.search("boat harbour")
    middle = len(items) // 2
    row: dict[str, float] = {}

    async def run(name: str, make: Callable[[int], Awaitable[object]], calls: int = 7) -> None:
        row[name] = await least_ms(make, calls=calls)
        sys.stderr.write(f"{size:>9,} {name:<32} {row[name]}\n")

    async def add_and_search(number: int) -> None:
        await memory.add(f"a fresh boat {number}")
        await memory.search("fresh boat", k=5)

    await run("search", lambda _: memory.search("boat harbour", k=10))
    await run("get", lambda n: memory.get(items[middle + n].id))
    await run("get_all (first 50)", lambda _: memory.get_all(limit=50))
    if "after" in Memory.get_all.__annotations__:
        halfway = str(items[middle].id)
        await run("get_all (50 from the middle)", lambda _: memory.get_all(limit=50, after=halfway))
    await run("add", lambda n: memory.add(f"one more {n}", said_at=START))
    await run("add and search", add_and_search)
    await run("update", lambda n: memory.update(items[middle + 20 + n].id, f"changed {n}"))
    await run("delete", lambda n: memory.delete(items[middle + 40 + n].id))
    await run("restore (an item)", lambda n: memory.restore(items[middle + 40 + n].id))
    await run("history", lambda n: memory.history(items[middle + 40 + n].id))
    await run("undo", lambda _: memory.undo(), 3)
    await run("snapshot", lambda _: memory.snapshot())
    await run("fork", lambda _: memory.fork())
    await run("graph_stats", lambda _: memory.graph_stats(), 2)
    await run("as_of (said)", lambda _: memory.as_of(AsOf(said=START)), 2)
    with tempfile.TemporaryDirectory() as folder:
        await run("export", lambda n: memory.export(Path(folder) / f"{n}.json"), 0)
        last = Path(folder) / "0.json"

        async def import_again(_: int) -> None:
            await Memory(MemoryBank(embedder=HashEmbedder(dim=64))).import_(last)

        await run("import_", import_again, 0)
    await _care(memory, run)
    ending = await filled(min(size, _MOST_EXPIRING), expiring=True)

    async def add_ending_and_search(number: int) -> None:
        await ending.add(f"a fresh boat {number}", ttl=timedelta(days=99))
        await ending.search("fresh boat", k=5)

    await ending.search("boat")  # what is new is indexed before anything is timed
    row["TTL add and search"] = await least_ms(add_ending_and_search, calls=7)
    return row


async def _care(memory: Memory, run: Callable[..., Awaitable[None]]) -> None:
    """Measure what goes by sources, and what takes memories away; the memory is empty then."""
    turns = [Turn(id=f"t{n}", speaker="Ana", text=f"A boat, {n}.") for n in range(20)]
    for number in range(2):
        own = [turn.model_copy(update={"id": f"{number}{turn.id}"}) for turn in turns]
        await memory.bank.store_session(Session(id=f"ses_{number}", turns=tuple(own)))
        for turn in own:
            await memory.add(turn.text, source_turn_ids=[turn.id])
    items = await memory.get_all()
    before = await memory.snapshot()
    await run("add_many (50)", lambda n: memory.add_many([f"{n} and {i}" for i in range(50)]), 3)
    await run("sessions", lambda _: memory.sessions())
    await run("touched_by", lambda _: memory.touched_by(SourceFilter(turn_ids=frozenset({"0t1"}))))
    await run("diff", lambda _: memory.diff(before), 2)
    await run("restore (a snapshot)", lambda _: memory.restore(before), 0)
    await run("quarantine", lambda _: memory.quarantine(), 1)
    await run("exclude", lambda n: memory.exclude(SourceFilter(turn_ids=frozenset({f"0t{n}"}))), 1)
    await run(
        "roll_back", lambda n: memory.roll_back(SourceFilter(turn_ids=frozenset({f"1t{n}"}))), 1
    )
    await run("export_graph", lambda _: memory.export_graph(format="json"), 0)
    await run("erase", lambda n: memory.erase(items[n].id), 0)
    await run("erase_session", lambda n: memory.erase_session(f"ses_{n}"), 0)
    fork = await memory.fork()
    await run("delete_all", lambda _: fork.delete_all(user_id=fork.bank.scope.user_id), 0)
    await run("reset", lambda _: memory.reset(user_id=memory.bank.scope.user_id), 0)


def elsewhere(folder: Path, size: int) -> dict[str, float]:
    """Return the figures of another checkout at a size."""
    paths = os.pathsep.join([str(folder), str(Path(__file__).parent)])
    out = subprocess.run(
        [sys.executable, __file__, "--one", str(size)],
        env={**os.environ, "PYTHONPATH": paths},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(out.stdout)


def kept(folder: Path | None, size: int) -> dict[str, float]:
    """Return the figures at a size, from a folder where an earlier run left them."""
    file = None if folder is None else folder / f"{size}.json"
    if file is not None and file.exists():
        return json.loads(file.read_text())
    row = elsewhere(Path(__file__).parents[1], size)
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(row) + "\n")
    return row


def main(sizes: list[int], baseline: Path | None, folder: Path | None) -> None:
    """Measure, print and compare."""
    rows = {size: kept(folder, size) for size in sizes}
    small, large = rows[sizes[0]], rows[sizes[-1]]
    results: dict[str, Any] = {
        name: {f"{size:,}, ms": rows[size].get(name) for size in sizes} for name in small
    }
    growth = [large[name] / max(small[name], 0.05) for name in small.keys() - LINEAR]
    most = 3.0 if sizes[-1] <= 10 * sizes[0] else 5.0  # larger memories miss the processor's caches
    promises: dict[str, tuple[float, float]] = {
        "growth of the other verbs": (round(max(growth), 2), most),
        "TTL add and search over a plain one, ms": (
            round(large["TTL add and search"] - large["add and search"], 2),
            2.0,
        ),
        "history, ms": (large["history"], 5.0),
        "a page of a list, ms": (large["get_all (first 50)"], 5.0),
    }
    if baseline is not None:
        for size in sizes:
            for name, before in elsewhere(baseline, size).items():
                results[name][f"{size:,}, before"] = before
                results[name][f"{size:,}, times faster"] = round(
                    before / max(rows[size][name], 1e-3), 2
                )
    report("growth", results, promises=promises)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--baseline", type=Path)
    parser.add_argument("--folder", type=Path, help="where finished sizes are kept")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        sys.stdout.write(json.dumps(asyncio.run(measured(options.one))) + "\n")
    else:
        main(options.sizes, options.baseline, options.folder)
