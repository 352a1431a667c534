"""Benchmark of edits of a whole memory: what they cost where little changed.

On a durable SQLite store: a diff and a restore where ten items differ, the figures of the
graph, one added memory, one that is erased, and the deletion of everything. Each row is
the processor time of the process, the median of several runs but for the deletion, and
has a bound of its own.

`--against` names an older checkout. It measures a store of its own in the same run, and
no row may take more than 1.3 times as long here as there.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from measured import report

BOUNDS_MS = {"diff": 10.0, "restore": 10.0, "delete_all": 10.0, "add": 5.0}
"""Processor time of a row, at any size."""
BOUNDS_ADDS = {"graph_stats": 0.02, "erase": 0.1}
"""Processor time of a row for each item, in adds of the same run."""
SLOWER = 1.3
"""How many times as long as in the older checkout a row may take."""
_SMALL_MS = 2.0
"""Rows below this in both checkouts are not compared: they are noise."""
_DIFFERENT = 10
_RUNS = 5
_ROOT = Path(__file__).parents[1]


async def spent(work: Callable[[], Awaitable[Any]]) -> float:
    """Return the processor time of a piece of work, in milliseconds."""
    began = time.process_time()
    await work()
    return (time.process_time() - began) * 1e3


async def measured(path: Path, items: int) -> dict[str, float]:
    """Fill a store and measure each edit, in milliseconds."""
    from memagent import Scope
    from memagent.build import open_store
    from memagent.core.ops import Add, OpBatch
    from memagent.core.records import Fact, SourceRef
    from memagent.memory.facade import Memory

    store = open_store(path=path)
    bank = store.bank(Scope(user_id="ana"))
    memory = Memory(bank)
    for first in range(0, items, 1_000):
        facts = (Fact(text=f"Ana likes tea number {at}") for at in range(first, first + 1_000))
        ops = tuple(Add(fact=fact) for fact in facts)
        await bank.commit(OpBatch(accepted=ops), source=SourceRef(actor="user"))
    rows: dict[str, list[float]] = {name: [] for name in ("add", "diff", "restore", "graph_stats")}
    for run in range(_RUNS):
        before = await memory.snapshot()
        for at in range(_DIFFERENT):
            text = f"Ana keeps book {at} of shelf {run}"
            rows["add"].append(await spent(lambda text=text: memory.add(text)))
        after = await memory.snapshot()
        assert len((await memory.diff(before, after)).added) == _DIFFERENT
        rows["diff"].append(await spent(lambda b=before, a=after: memory.diff(b, a)))
        rows["restore"].append(await spent(lambda b=before: memory.restore(b)))
        assert (await memory.snapshot()).digest == before.digest
        rows["graph_stats"].append(await spent(memory.graph_stats))
    result = {name: statistics.median(values) for name, values in rows.items()}
    gone = await memory.add("Ana keeps a green parrot called Max")
    await memory.search("parrot")
    result["erase"] = await spent(lambda: memory.erase(gone.id))
    await asyncio.sleep(1)  # what the erasure does in the background is not of the next row
    result["delete_all"] = await spent(lambda: memory.delete_all(user_id="ana"))
    assert not await memory.get_all(limit=1)
    store.close()
    return result


def measured_in(source: Path, items: int) -> dict[str, float]:
    """Measure a checkout in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-P", __file__, "--inside", folder, "--items", str(items)]
        environment = {**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{Path(__file__).parent}"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the measurement of {source} failed:\n{done.stderr[-2_000:]}")
    return json.loads(done.stdout)


def main() -> None:
    """Measure this checkout, and an older one where it is given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--against", type=Path, help="an older checkout, measured in the same run")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        rows = asyncio.run(measured(arguments.inside / "memory.db", arguments.items))
        sys.stdout.write(json.dumps(rows))
        return
    today = measured_in(_ROOT, arguments.items)
    results: dict[str, Any] = {"items": arguments.items, "ms": today}
    promises = {name: (today[name], most) for name, most in BOUNDS_MS.items()}
    for name, most in BOUNDS_ADDS.items():
        ratio = today[name] / arguments.items / today["add"]
        promises[f"{name} of an item, in adds"] = (ratio, most)
    if arguments.against:
        older = measured_in(arguments.against.resolve(), arguments.items)
        # by turns and the better of two, for others use the machine too
        for source, rows in ((_ROOT, today), (arguments.against.resolve(), older)):
            again = measured_in(source, arguments.items)
            rows.update({name: min(rows[name], again[name]) for name in rows})
        results["older, ms"] = older
        results["times the older"] = ratios = {name: today[name] / older[name] for name in today}
        for name, ratio in ratios.items():
            if max(today[name], older[name]) >= _SMALL_MS:
                promises[f"{name}, times the older"] = (ratio, SLOWER)
    report("edits", results, promises=promises)
    if any(value > most for value, most in promises.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
