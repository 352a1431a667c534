"""Benchmark of durable writes and reads on PostgreSQL beside SQLite on the same disk.

It reports rates, the 95th percentile and the ratio of one run.

Without `--url` a server of its own is started in a temporary folder (fsync on, one
socket) and ended again. The promises bound how many times slower PostgreSQL may be:
every append is four round trips, which SQLite does not have, and the wait for the disk
is the same.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any

from measured import report

from memagent.build import open_store
from memagent.core.answers import Query
from memagent.core.ops import Add, OpBatch
from memagent.core.records import Fact, Scope, SourceRef

DIRECT = SourceRef(actor="user")
USERS = 16
MOST_TIMES_SLOWER = {"single": 8.0, "16 users at once": 10.0, "one batch": 4.0}


def add(i: int) -> OpBatch:
    """Return a batch of one new fact."""
    return OpBatch(accepted=(Add(fact=Fact(text=f"Ana likes tea number {i}", subject="Ana")),))


def p95_ms(seconds: list[float]) -> float:
    """Return the 95th percentile in milliseconds."""
    return round(sorted(seconds)[int(len(seconds) * 0.95)] * 1e3, 2)


async def measure(place: str, count: int, batch: int) -> dict[str, float]:
    """Measure adds per second and the p95 of an add and of a search.

    Adds go one by one, by 16 users at once (group commit) and in one batch.
    """
    store = open_store(path=place)
    try:
        bank = store.bank(Scope(user_id="single"))
        await bank.commit(add(-1), source=DIRECT)
        waits: list[float] = []
        for i in range(count):
            began = time.perf_counter()
            await bank.commit(add(i), source=DIRECT)
            waits.append(time.perf_counter() - began)
        banks = [store.bank(Scope(user_id=f"user {n}")) for n in range(USERS)]

        async def work(n: int) -> None:
            for i in range(count // USERS):
                await banks[n].commit(add(i), source=DIRECT)

        began = time.perf_counter()
        await asyncio.gather(*(work(n) for n in range(USERS)))
        grouped = count // USERS * USERS / (time.perf_counter() - began)

        facts = tuple(op for i in range(batch) for op in add(i).accepted)
        many = store.bank(Scope(user_id="batch"))
        began = time.perf_counter()
        await many.commit(OpBatch(accepted=facts), source=DIRECT)
        batched = batch / (time.perf_counter() - began)

        await bank.search(Query(text="tea"), k=10)
        asked: list[float] = []
        for i in range(100):
            began = time.perf_counter()
            await bank.search(Query(text=f"tea number {i}"), k=10)
            asked.append(time.perf_counter() - began)
    finally:
        store.close()
    return {
        "single, adds/s": count / sum(waits),
        "16 users at once, adds/s": grouped,
        "one batch, adds/s": batched,
        "single add p95, ms": p95_ms(waits),
        "search p95, ms": p95_ms(asked),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", help="an empty schema of a server; by default one is started")
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--batch", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    rounds: list[dict[str, dict[str, float]]] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if arguments.url is None:
            sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
            server = stack.enter_context(import_module("postgres_kit").running_postgres())
        for number in range(1 if arguments.url else arguments.rounds):
            place = arguments.url or stack.enter_context(server.schema())
            rounds.append(
                {
                    "sqlite": asyncio.run(
                        measure(str(folder / f"{number}.db"), arguments.count, arguments.batch)
                    ),
                    "postgres": asyncio.run(measure(place, arguments.count, arguments.batch)),
                }
            )
    names = list(rounds[0]["sqlite"])
    middle = {
        kind: {name: sorted(one[kind][name] for one in rounds)[len(rounds) // 2] for name in names}
        for kind in ("sqlite", "postgres")
    }
    slower = {
        name: round(middle["sqlite"][f"{name}, adds/s"] / middle["postgres"][f"{name}, adds/s"], 2)
        for name in MOST_TIMES_SLOWER
    }
    results: dict[str, Any] = {
        kind: {name: round(value, 2 if "ms" in name else 0) for name, value in figures.items()}
        for kind, figures in middle.items()
    }
    results["sqlite / postgres"] = slower
    promises = {
        f"{name}: sqlite / postgres": (slower[name], most)
        for name, most in MOST_TIMES_SLOWER.items()
    }
    report("postgres", results, promises=promises)


if __name__ == "__main__":
    main()
