"""Benchmark of opening a memory to its first answer, by replay and from a checkpoint.

For each size a store of sessions, items, people and a timeline is written once, with a
checkpoint, and opened in fresh processes: from the checkpoint, with a tail of 1,000
further entries, and by replaying the whole journal (up to `--replay-up-to`). Seconds are
processor time of the whole process from opening the store to the first hits; imports,
the same for all, are left out and told apart. RSS is what the process grew by meanwhile,
less what the same work takes with a store of one item: the tables of embedder and
database do not grow with the memory.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

from measured import report

PER_SESSION = 50
TAIL = 1_000
BUDGET_S = {10_000: 0.2, 100_000: 1.0, 300_000: 3.0}
BUDGET_KB = 3.0
WORDS = [
    first + last
    for first in "ba ke li mo nu ra se ti vo zu da fe gi ho ju".split()
    for last in "la rin sto ver nak pel dom tis gar fon mar lek".split()
]
QUESTION = "what did Ana say about balaver"


def words(rng: random.Random, count: int) -> str:
    """Return a text of so many words."""
    return " ".join(rng.choices(WORDS, k=count)).capitalize()


async def build(path: Path | str, items: int) -> dict[str, float]:
    """Write a store with so many items and its checkpoint; return the seconds of both."""
    from memagent.core.ops import Add, OpBatch
    from memagent.core.records import Fact, Scope, Session, SourceRef, TimeSpan, Turn
    from memagent.opening.open_store import OpenStore

    rng, day = random.Random(1), datetime(2020, 1, 1, tzinfo=UTC)
    store = OpenStore.open(path=path)
    bank = store.bank(Scope(user_id="ana"))
    began = time.process_time()
    for number in range(max(1, items // PER_SESSION)):
        at = day + timedelta(hours=6 * number)
        turns = tuple(
            Turn(id=f"D{number}:{i}", speaker=("Ana", "Bo")[i % 2], text=words(rng, 12).lower())
            for i in range(min(items, PER_SESSION))
        )
        await bank.store_session(Session(id=f"s{number}", at=at, turns=turns))
        span = TimeSpan(start=at, end=at + timedelta(days=1))
        facts = [
            Fact(
                text=words(rng, 10),
                subject=rng.choice(["Ana", "Bo", "Cleo", "Dan"]),
                speaker=turn.speaker,
                source_turn_ids=(turn.id,),
                valid=None if i % 10 else span,
            )
            for i, turn in enumerate(turns)
        ]
        ops = tuple(Add(fact=fact) for fact in facts)
        source = SourceRef(session_id=f"s{number}", chunk_index=0)
        await bank.commit(OpBatch(accepted=ops), source=source)
        if number % 20 == 19:
            await bank.refresh()
    await bank.refresh()
    written = time.process_time()
    assert store.checkpoints is not None
    store.checkpoints.save(bank)
    saved = time.process_time()
    store.close()
    return {
        "write_s": round(written - began, 2),
        "checkpoint_s": round(saved - written, 2),
    }


async def add_tail(path: Path | str, entries: int = TAIL) -> None:
    """Add further entries that no checkpoint has."""
    from memagent.checkpoints import store as policy
    from memagent.core.ops import Add, OpBatch
    from memagent.core.records import Fact, Scope, SourceRef
    from memagent.opening.open_store import OpenStore

    rng = random.Random(2)
    policy.__dict__.update(FEWEST_ENTRIES=1 << 40)
    store = OpenStore.open(path=path)
    bank = store.bank(Scope(user_id="ana"))
    for number in range(entries):
        fact = Fact(text=f"{words(rng, 10)} {number}", subject=rng.choice(["Ana", "Bo"]))
        await bank.commit(OpBatch(accepted=(Add(fact=fact),)), source=SourceRef(actor="user"))
    store.close()


async def measure(path: Path | str, *, replay: bool) -> dict[str, Any]:
    """Open a store and search once; return processor seconds, growth of RSS and the hits."""
    from memagent.core.answers import Query
    from memagent.core.records import Scope
    from memagent.memory.bank import MemoryBank
    from memagent.opening.open_store import OpenStore

    kind = "postgres" if str(path).startswith("postgres") else "sqlite"
    for name in ("checkpoints.store", "embed.static", f"journal.{kind}"):
        import_module(f"memagent.{name}")
    imports_s, before_mb = time.process_time(), _rss_mb()
    store = OpenStore.open(path=path, read_only=True)
    scope = Scope(user_id="ana")
    bank = store.bank(scope)
    if replay:
        bank = MemoryBank(embedder=store.embedder, scope=scope, journal=store.journal)
    hits = await bank.search(Query(text=QUESTION), k=10)
    opened_s, rss_mb = time.process_time() - imports_s, _rss_mb() - before_mb
    began = time.process_time()
    await bank.search(Query(text="which harbour did Bo like"), k=10)
    second_s = time.process_time() - began
    result = {
        "open_s": opened_s,
        "second_query_ms": second_s * 1e3,
        "imports_s": imports_s,
        "rss_mb": rss_mb,
        "items": len(bank.state.items),
        "digest": bank.state.digest(),
        "hits": [(hit.id, hit.score) for hit in hits],
        "lazy": type(bank.state.items).__name__ == "LayeredMap",
    }
    store.close()
    return result


def _rss_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def in_process(*arguments: str) -> Any:
    """Run a part of this script in a fresh process; return what it says."""
    done = subprocess.run(
        [sys.executable, __file__, *arguments],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    return json.loads(done.stdout.splitlines()[-1])


def opened(path: Path | str, *, runs: int, base_mb: float, replay: bool = False) -> dict[str, Any]:
    """Return the medians of several openings; `base_mb` is the RSS of an empty store."""
    mode = "replay" if replay else "open"
    results = [in_process("--part", mode, "--path", str(path)) for _ in range(runs)]
    assert all(result["lazy"] != replay for result in results)
    items = results[0]["items"]
    rss_mb = median(result["rss_mb"] for result in results) - base_mb
    return {
        "items": items,
        "open_s": round(median(result["open_s"] for result in results), 3),
        "second_query_ms": round(median(r["second_query_ms"] for r in results), 1),
        "imports_s": round(median(result["imports_s"] for result in results), 2),
        "rss_kb_per_item": round(1e3 * rss_mb / items, 2),
        "answer": (results[0]["digest"], results[0]["hits"]),
    }


def measure_size(folder: Path, items: int, *, runs: int, base_mb: float, replays: bool) -> Any:
    """Return all figures of one size."""
    path = folder / str(items) / "memory.db"
    made = path.with_name("built.json")
    if not made.exists():
        shutil.rmtree(path.parent, ignore_errors=True)
        path.parent.mkdir(parents=True)
        made.write_text(
            json.dumps(in_process("--part", "build", "--path", str(path), "--items", str(items)))
        )
    files = {"checkpoint_mb": Path(f"{path}.checkpoints").rglob("*.ckpt"), "journal_mb": [path]}
    sizes = {
        name: round(sum(file.stat().st_size for file in some) / 1e6, 1)
        for name, some in files.items()
    }
    figures: dict[str, Any] = {"built": {**json.loads(made.read_text()), **sizes}}
    figures["checkpoint"] = opened(path, runs=runs, base_mb=base_mb)
    if replays:
        figures["replay"] = opened(path, runs=1, base_mb=base_mb, replay=True)
        assert figures["replay"].pop("answer") == figures["checkpoint"]["answer"]
        ratio = figures["replay"]["open_s"] / figures["checkpoint"]["open_s"]
        figures["times_faster"] = round(ratio, 1)
    with_tail = path.parent / "tail" / "memory.db"
    if not with_tail.parent.exists():
        with_tail.parent.mkdir()
        shutil.copy(path, with_tail)
        shutil.copytree(f"{path}.checkpoints", f"{with_tail}.checkpoints")
        in_process("--part", "tail", "--path", str(with_tail))
    figures["tail"] = opened(with_tail, runs=runs, base_mb=base_mb)
    for part in ("checkpoint", "tail"):
        del figures[part]["answer"]
    return figures


def measure_server(url: str, items: int, *, runs: int, base_mb: float) -> Any:
    """Return the figures of an empty database on a PostgreSQL server."""
    figures: dict[str, Any] = {
        "built": in_process("--part", "build", "--path", url, "--items", str(items)),
        "checkpoint": opened(url, runs=runs, base_mb=base_mb),
        "replay": opened(url, runs=1, base_mb=base_mb, replay=True),
    }
    assert figures["replay"].pop("answer") == figures["checkpoint"].pop("answer")
    ratio = figures["replay"]["open_s"] / figures["checkpoint"]["open_s"]
    return figures | {"times_faster": round(ratio, 1)}


def promises_of(results: dict[str, Any]) -> dict[str, tuple[float, float]]:
    """Return value and bound of everything promised."""
    promises: dict[str, tuple[float, float]] = {}
    for items, bound_s in BUDGET_S.items():
        figures = results.get(str(items))
        if figures is None:
            continue
        for part, times in (("checkpoint", 1), ("tail", 2)):
            promises[f"{items} items, {part}, open_s"] = (figures[part]["open_s"], times * bound_s)
            promises[f"{items} items, {part}, kB of RSS an item"] = (
                figures[part]["rss_kb_per_item"],
                times * BUDGET_KB,
            )
    return promises


def main() -> None:
    """Run the benchmark, or with `--part` one part of it in this process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/memagent-opening"))
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--replay-up-to", type=int, default=10_000)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--part", choices=["build", "tail", "open", "replay"])
    parser.add_argument("--path")
    parser.add_argument("--url", help="an empty PostgreSQL database, measured as well")
    parser.add_argument("--items", type=int)
    asked = parser.parse_args()
    if asked.part is not None:
        sys.stdout.write(json.dumps(_part(asked)) + "\n")
        return
    empty = asked.folder / "1" / "memory.db"
    if not empty.exists():
        empty.parent.mkdir(parents=True)
        in_process("--part", "build", "--path", str(empty), "--items", "1")
    base_mb = median(in_process("--part", "open", "--path", str(empty))["rss_mb"] for _ in range(3))
    results: dict[str, Any] = {"base_rss_mb": round(base_mb, 1)}
    for items in asked.sizes:
        replays = items <= asked.replay_up_to
        results[str(items)] = measure_size(
            asked.folder, items, runs=asked.runs, base_mb=base_mb, replays=replays
        )
    if asked.url is not None:
        results["server"] = measure_server(
            asked.url, asked.sizes[0], runs=asked.runs, base_mb=base_mb
        )
    if asked.out is not None:
        asked.out.write_text(json.dumps(results, indent=1) + "\n")
    report("opening", results, promises=promises_of(results))


def _part(asked: argparse.Namespace) -> Any:
    match asked.part:
        case "build":
            return asyncio.run(build(asked.path, asked.items))
        case "tail":
            return asyncio.run(add_tail(asked.path))
        case part:
            return asyncio.run(measure(asked.path, replay=part == "replay"))


if __name__ == "__main__":
    main()
