"""A learned scorer of cases: which words of a case go with which words of a task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from zlib import crc32

import numpy as np

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
            for places, good in pairs:
                chance = 1 / (1 + np.exp(-self.weights[places].sum()))
                np.add.at(self.weights, places, 0.5 * (good - chance) / max(len(places), 1))

    async def score(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return the learned log odds that each text helps with the query."""
        return [float(self.weights[_features(query, text)].sum()) for text in texts]


def _features(task: str, case: str) -> list[int]:
    """Return a place for each pair of a word of the task and one of the case."""
    words = sorted(set(tokenize(case)))
    pairs = ((a, b) for a in sorted(set(tokenize(task))) for b in words)
    return [crc32(f"{a}\x1f{b}".encode()) % WIDTH for a, b in pairs]
