"""Retrieval in two phases: what is similar enough, then by similarity and learned value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev

from memagent.core.answers import Hit, Question
from memagent.core.records import ItemStats
from memagent.core.trials import FAILED, SUCCEEDED
from memagent.designs.base import SlotContext
from memagent.designs.parts.retrieval.hybrid import query_for


@dataclass(frozen=True, kw_only=True)
class ValueRetriever:
    """Keeps hits of a share of the best similarity, and ranks them by similarity and value."""

    pool: int = 50
    threshold: float = 0.5
    """Least share of the best hit's score."""
    weight: float = 0.5
    """Weight of the value; 0 is similarity alone."""
    prior: float = 0.3
    """Value of a case that was not used yet, by the outcome of its own trial."""

    async def __call__(self, question: Question, ctx: SlotContext, /) -> list[Hit]:
        """Return at most k hits, best first."""
        hits = await ctx.bank.search(query_for(question), k=max(self.pool, question.k))
        near = [hit for hit in hits if hit.score >= self.threshold * hits[0].score]
        values = _standardised([self.value(hit, ctx) for hit in near])
        likeness = _standardised([hit.score for hit in near])
        ranked = [
            hit.model_copy(update={"score": (1 - self.weight) * like + self.weight * value})
            for hit, like, value in zip(near, likeness, values, strict=True)
        ]
        return sorted(ranked, key=lambda hit: (-hit.score, hit.id))[: question.k]

    def value(self, hit: Hit, ctx: SlotContext) -> float:
        """Return what a hit is worth: its value, or its trial's outcome until it is used."""
        stats = ctx.bank.state.stats.get(hit.id, ItemStats())
        tags = hit.item.tags if hit.item is not None and not stats.uses else ()
        return stats.q_value + self.prior * ((SUCCEEDED in tags) - (FAILED in tags))


def _standardised(values: Sequence[float]) -> list[float]:
    spread = pstdev(values) if len(values) > 1 else 0.0
    return [(value - fmean(values)) / spread if spread > 1e-12 else 0.0 for value in values]
