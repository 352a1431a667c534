"""Benchmark of a fork with one edit, a filtered search and a two-hop walk.

It runs at 200 and at 20,000 items, beside deepcopy of the same data.

The promise: the larger costs at most three times the smaller and at most 300
microseconds. Also a full garbage collection with 2,000 forks alive.
"""

from __future__ import annotations

import asyncio
import copy
import gc
import random
import time
from statistics import median
from typing import Any

import numpy as np
from measured import report

from memagent.core.answers import Filter
from memagent.core.ops import Add, OpBatch
from memagent.core.records import Fact, SourceRef, TimeSpan
from memagent.memory.bank import MemoryBank
from memagent.search.index import Scoring
from memagent.testing.kits import unit_vectors

DIM = 384
SPEAKERS = 20  # one speaker's items are 5 % of all
DIRECT = SourceRef(actor="user")
WORDS = (
    "boat harbour tea lisbon porto dog chess piano garden winter rent flight market bridge "
    "letter window"
).split()


class DrawnEmbedder:
    """Unit vectors drawn beforehand, handed out in turn: embedding is not what is measured here."""

    id = "drawn"
    dim = DIM

    def __init__(self) -> None:
        self._drawn = unit_vectors(4_096, DIM, seed=1)
        self._next = 0

    async def embed(self, texts: Any) -> Any:
        """Vectors (N, 384) for N texts."""
        rows = np.arange(self._next, self._next + len(texts)) % len(self._drawn)
        self._next += len(texts)
        return self._drawn[rows]


async def filled(items: int) -> MemoryBank:
    """Return a bank of that many items with times and a graph, a twentieth per speaker."""
    dice = random.Random(items)
    bank = MemoryBank(embedder=DrawnEmbedder())
    day = 86_400.0
    for start in range(0, items, 2_000):
        facts = [
            Fact(
                text=f"{' '.join(dice.choices(WORDS, k=8))} {i}",
                speaker=f"speaker {i % SPEAKERS}",
                valid=TimeSpan.model_validate(
                    {"start": time_of(i * day), "end": time_of((i + 1) * day)}
                ),
            )
            for i in range(start, min(items, start + 2_000))
        ]
        await bank.commit(OpBatch(accepted=tuple(Add(fact=fact) for fact in facts)), source=DIRECT)
    await bank.refresh()
    return bank


def time_of(seconds: float) -> Any:
    """Return a moment that many seconds after the epoch."""
    from datetime import UTC, datetime, timedelta

    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)


async def one_round(bank: MemoryBank, number: int, query: Any, seed: str) -> dict[str, float]:
    """Seconds of each step."""
    clock = time.perf_counter
    a = clock()
    fork = bank.fork()
    b = clock()
    await fork.commit(
        OpBatch(accepted=(Add(fact=Fact(text=f"edit {number}", speaker="speaker 3")),)),
        source=DIRECT,
    )
    c = clock()
    await fork.refresh()
    scoring = Scoring(fork.view.index, vector=query)
    where = Filter(speakers=frozenset({"speaker 3"}))
    found = scoring.listed(scoring.cosines(k=10, where=where))
    d = clock()
    walked = fork.state.graph.walk([seed], hops=2, limit=50)
    e = clock()
    assert len(found) == 10
    assert walked
    return {"fork": b - a, "edit": c - b, "filtered search": d - c, "walk": e - d, "all": e - a}


async def main() -> None:
    """Measure and print."""
    results: dict[str, Any] = {}
    for items in (200, 20_000):
        bank = await filled(items)
        query = unit_vectors(1, DIM, seed=9)[0]
        gc.collect()
        seed = min(bank.state.items)
        rounds = [await one_round(bank, i, query, seed) for i in range(200)]
        results[str(items)] = {
            name: round(1e6 * median(one[name] for one in rounds[20:]), 1) for name in rounds[0]
        }
        plain = {
            key: (item.model_dump(), np.zeros(DIM, np.float32))
            for key, item in bank.state.items.items()
        }
        began = time.perf_counter()
        copy.deepcopy(plain)
        results[str(items)]["deepcopy of the same"] = round(1e6 * (time.perf_counter() - began), 1)
        if items == 20_000:
            forks = [bank.fork() for _ in range(2_000)]
            for number, fork in enumerate(forks):
                await fork.commit(
                    OpBatch(accepted=(Add(fact=Fact(text=f"edit {number}")),)), source=DIRECT
                )
            began = time.perf_counter()
            gc.collect()
            results["gc with 2,000 live forks, ms"] = round(1e3 * (time.perf_counter() - began), 1)
            del forks
            began = time.perf_counter()
            gc.collect()
            results["gc without them, ms"] = round(1e3 * (time.perf_counter() - began), 1)
    results["ratio 20,000 / 200"] = round(results["20000"]["all"] / results["200"]["all"], 2)
    report(
        "forks",
        results,
        promises={"ratio 20,000 / 200": 3.0, "20,000 items, us": (results["20000"]["all"], 300.0)},
    )


if __name__ == "__main__":
    asyncio.run(main())
