"""Filtered and unfiltered exact search at 10,000 items, beside bare numpy on the same rows.

The promise: within four times numpy.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
from forks import DIM, SPEAKERS, filled
from measured import report

from memagent.core.answers import Filter
from memagent.search.index import Scoring
from memagent.testing.kits import unit_vectors

ITEMS = 10_000


def median_us(work: Callable[[], object], *, rounds: int = 300) -> float:
    """Median microseconds of a call."""
    times: list[float] = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return 1e6 * median(times[rounds // 10 :])


async def main() -> None:
    """Measure and print."""
    bank = await filled(ITEMS)
    view = bank.view.index
    query = unit_vectors(1, DIM, seed=4)[0]
    matrix = unit_vectors(ITEMS, DIM, seed=5)
    kept = np.arange(3, ITEMS, SPEAKERS)
    ids = np.array([f"mem_{i:05d}" for i in range(ITEMS)])

    def numpy_filtered() -> object:
        scores = matrix[kept] @ query
        best = np.argpartition(-scores, 10)[:10]
        return ids[kept[best[np.argsort(-scores[best])]]]

    def numpy_all() -> object:
        scores = matrix @ query
        best = np.argpartition(-scores, 10)[:10]
        return ids[best[np.argsort(-scores[best])]]

    def nearest(where: Filter | None) -> object:
        scoring = Scoring(view, vector=query)
        return scoring.listed(scoring.cosines(k=10, where=where))

    where = Filter(speakers=frozenset({"speaker 3"}))
    found = {
        "numpy, 5 % kept, us": median_us(numpy_filtered),
        "memagent, 5 % kept, us": median_us(lambda: nearest(where)),
        "numpy, all, us": median_us(numpy_all),
        "memagent, all, us": median_us(lambda: nearest(None)),
    }
    filtered = found["memagent, 5 % kept, us"] / found["numpy, 5 % kept, us"]
    everything = found["memagent, all, us"] / found["numpy, all, us"]
    results: dict[str, Any] = {name: round(value, 1) for name, value in found.items()}
    results |= {"filtered, ratio": round(filtered, 2), "all, ratio": round(everything, 2)}
    report("search", results, promises={"filtered, ratio": 4.0})


if __name__ == "__main__":
    asyncio.run(main())
