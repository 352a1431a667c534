"""Benchmark of durable writes on SQLite, single and in one batch, beside raw SQLite.

Both run at the same synchronous level.

The promises: single adds at least 0.3 of raw SQLite's, batched adds at least 20 times
single ones.
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
import tempfile
import time
from pathlib import Path
from typing import Any

from measured import report

from memagent.build import open_store
from memagent.core.ops import Add, OpBatch
from memagent.core.records import Fact, Scope, SourceRef

DIRECT = SourceRef(actor="user")


def raw_adds(path: Path, count: int) -> float:
    """Single inserts a second of plain sqlite3, WAL, synchronous FULL, one commit each."""
    connection = sqlite3.connect(path)
    connection.execute("pragma journal_mode=wal")
    connection.execute("pragma synchronous=full")
    connection.execute("create table items (id integer primary key, body text)")
    began = time.perf_counter()
    for i in range(count):
        connection.execute(
            "insert into items values (?, ?)",
            (i, f'{{"text": "Ana likes tea number {i}", "subject": "Ana"}}'),
        )
        connection.commit()
    seconds = time.perf_counter() - began
    connection.close()
    return count / seconds


def add(i: int) -> Add:
    """One new fact."""
    return Add(fact=Fact(text=f"Ana likes tea number {i}", subject="Ana"))


async def our_adds(path: Path, count: int, batch: int) -> dict[str, float]:
    """Measure adds per second: one by one, by 16 users at once (group commit), in one batch."""
    store = open_store(path=path)
    try:
        bank = store.bank(Scope(user_id="single"))
        await bank.commit(OpBatch(accepted=(add(-1),)), source=DIRECT)
        began = time.perf_counter()
        for i in range(count):
            await bank.commit(OpBatch(accepted=(add(i),)), source=DIRECT)
        single = count / (time.perf_counter() - began)

        banks = [store.bank(Scope(user_id=f"user {n}")) for n in range(16)]

        async def work(n: int) -> None:
            for i in range(count // 16):
                await banks[n].commit(OpBatch(accepted=(add(i),)), source=DIRECT)

        began = time.perf_counter()
        await asyncio.gather(*(work(n) for n in range(16)))
        grouped = (count // 16 * 16) / (time.perf_counter() - began)

        ops = tuple(add(i) for i in range(batch))
        many = store.bank(Scope(user_id="batch"))
        began = time.perf_counter()
        await many.commit(OpBatch(accepted=ops), source=DIRECT)
        batched = batch / (time.perf_counter() - began)
    finally:
        store.close()
    return {"single": single, "16 users at once": grouped, "one batch": batched}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000)
    parser.add_argument("--batch", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    rounds: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        for i in range(arguments.rounds):
            raw = raw_adds(Path(folder) / f"raw{i}.db", arguments.count)
            ours = asyncio.run(
                our_adds(Path(folder) / f"ours{i}.db", arguments.count, arguments.batch)
            )
            rounds.append({"raw sqlite": raw, **ours})
    middle = {name: sorted(one[name] for one in rounds)[len(rounds) // 2] for name in rounds[0]}
    results: dict[str, Any] = {f"{name}, adds/s": round(value) for name, value in middle.items()}
    single, batched = (
        middle["single"] / middle["raw sqlite"],
        middle["one batch"] / middle["single"],
    )
    results |= {"single / raw sqlite": round(single, 2), "one batch / single": round(batched, 1)}
    report(
        "writes",
        results,
        promises={
            "raw sqlite / single": (1 / single, 1 / 0.3),
            "20 singles / one batch": (20 / batched, 1.0),
        },
    )


if __name__ == "__main__":
    main()
