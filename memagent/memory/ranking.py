"""Putting rankings together: reciprocal-rank fusion (Cormack, Clarke and Buettcher 2009) over named arms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from memagent.core.answers import Hit, Relevance
from memagent.core.records import MemoryItem

RRF_K = 60
"""Rank offset of the fusion; larger flattens the difference between first and tenth."""


def fuse(
    arms: Mapping[str, Sequence[tuple[MemoryItem, float]]], *, k: int, weights: Mapping[str, float] | None = None
) -> list[Hit]:
    """The k items with the highest sum of weight / (60 + rank) over the arms, best first, ties by id.

    Each arm is a ranking of (item, raw score), best first; an item missing from an arm gets nothing there. Every hit carries its raw
    score and rank per arm.
    """
    scores: dict[str, float] = {}
    items: dict[str, MemoryItem] = {}
    raw: dict[str, dict[str, float]] = {}
    ranks: dict[str, dict[str, int]] = {}
    for name, ranking in arms.items():
        weight = 1.0 if weights is None else weights.get(name, 1.0)
        for rank, (item, score) in enumerate(ranking, 1):
            scores[item.id] = scores.get(item.id, 0.0) + weight / (RRF_K + rank)
            items[item.id] = item
            raw.setdefault(item.id, {})[name] = score
            ranks.setdefault(item.id, {})[name] = rank
    best = sorted(scores, key=lambda item_id: (-round(scores[item_id], 9), item_id))[:k]
    return [
        Hit(
            id=item_id,
            score=scores[item_id],
            item=items[item_id],
            why=Relevance(arms=raw[item_id], ranks=ranks[item_id]),
        )
        for item_id in best
    ]
