"""Habits: what worked last counts most; a design that learns from reports.

Three pieces are its own: the value of a memory is the mean of its last reward and its
old value, a trial that went well leaves one case, and search puts valued memories first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from memagent.extend import (
    VERBATIM,
    CaseLearner,
    Hit,
    HybridRetriever,
    ItemStats,
    MemoryDesign,
    Question,
    SlotContext,
    Trial,
)


def last_counts_half(trial: Trial, stats: Mapping[str, ItemStats], /) -> Mapping[str, float]:
    """Return the mean of old value and reward for every credited memory."""
    return {share.id: (stats[share.id].q_value + share.reward) / 2 for share in trial.credit}


@dataclass(frozen=True, kw_only=True)
class ValuedFirst:
    """Orders what hybrid search finds by value, then by score."""

    inner: HybridRetriever = HybridRetriever()

    async def __call__(self, question: Question, ctx: SlotContext, /) -> list[Hit]:
        """Return the hits."""
        stats = ctx.bank.state.stats
        hits = await self.inner(question, ctx)
        worth = {hit.id: stats.get(hit.id, ItemStats()).q_value for hit in hits}
        return sorted(hits, key=lambda hit: (-worth[hit.id], -hit.score))


DESIGN: Final[MemoryDesign] = replace(
    VERBATIM,
    name="habits",
    retriever=ValuedFirst(),
    feedback=last_counts_half,
    learner=CaseLearner(only_good=True),
)
"""Habits as a filling of the slots."""
