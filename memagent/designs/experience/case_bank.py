"""Case bank (AgentFly, arXiv 2508.16153): which past case helps is learned, not similar.

Claim: an agent that keeps its trials as cases and learns from their rewards which case
fits which task improves without touching its model.
Changed: the scorer is a logistic regression over pairs of words (task, case), fitted to
the credit of the trials in the journal each time it is asked, so nothing is learned
outside the memory. It has the reranker's method, `score(query, texts)`.

    Agent(design="case_bank")
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final
from zlib import crc32

import numpy as np

from memagent.core.answers import Hit, Question
from memagent.core.records import MemoryItem
from memagent.core.trials import Trial
from memagent.designs.base import MemoryDesign, SlotContext
from memagent.designs.parts.lessons import CaseLearner, KindRetriever
from memagent.designs.verbatim import DESIGN as VERBATIM
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


@dataclass(frozen=True, kw_only=True)
class CaseRetriever:
    """Searches cases widely and puts them in the order of the learned scorer."""

    pool: int = 50
    kinds: frozenset[str] = frozenset({"case"})

    async def __call__(self, question: Question, ctx: SlotContext, /) -> list[Hit]:
        """Return at most k cases, best first."""
        wide = question.model_copy(update={"k": max(self.pool, question.k)})
        hits = await KindRetriever(kinds=self.kinds)(wide, ctx)
        state = ctx.bank.state
        scorer = CaseScorer(tuple(state.trials.values()), state.items)
        scores = await scorer.score(question.text, [hit.text for hit in hits])
        order = sorted(range(len(hits)), key=lambda at: (-scores[at], at))
        return [hits[at] for at in order[: question.k]]


DESIGN: Final[MemoryDesign] = replace(
    VERBATIM, name="case_bank", retriever=CaseRetriever(), learner=CaseLearner()
)
