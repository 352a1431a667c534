"""A learned scorer of cases: which words of a case go with which words of a task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final
from zlib import crc32

import numpy as np
import numpy.typing as npt

from memagent.core.records import MemoryItem
from memagent.core.trials import Trial
from memagent.state.tokens import tokenize

WIDTH: Final = 4_096


class CaseScorer:
    """A reranker fitted to the rewards of trials: pairs of words, logistic loss."""

    id = "case-scorer/1"

    def __init__(self, trials: Sequence[Trial], items: Mapping[str, MemoryItem]) -> None:
        self.weights = np.zeros(WIDTH)
        pairs = [
            (_features(trial.task, items[credit.id].text), float(credit.reward > 0))
            for trial in sorted(trials, key=lambda trial: trial.id)
            for credit in trial.credit
            if credit.id in items
        ]
        for _ in range(10):
            for (places, counts), good in pairs:
                chance = 1 / (1 + np.exp(-(self.weights[places] @ counts)))
                self.weights[places] += counts * (0.5 * (good - chance) / max(counts.sum(), 1.0))

    async def score(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return the learned log odds that each text helps with the query."""
        found = (_features(query, text) for text in texts)
        return [float(self.weights[places] @ counts) for places, counts in found]


@lru_cache(maxsize=4_096)
def _features(task: str, case: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Return the places of pairs of a word of the task and one of the case, with counts."""
    words = sorted(set(tokenize(case)))
    pairs = ((a, b) for a in sorted(set(tokenize(task))) for b in words)
    hashed = [crc32(f"{a}\x1f{b}".encode()) % WIDTH for a, b in pairs]
    places, counts = np.unique(np.array(hashed, dtype=np.int64), return_counts=True)
    return places, counts.astype(np.float64)
