"""Putting rankings together: named arms added up by score, each as a share of what it
could give at most.

Reciprocal ranks forget by how much one hit is better than the next, and let five turns
around one good sentence stand before a second good sentence elsewhere. The surprise: an
item that a full arm does not list may still be just below its last one, so it gets that
one's score; without this floor recall at 10 falls by .03 (three LoCoMo conversations,
each left out in turn; ranks .742, this .760).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from memagent.core.answers import Hit, Relevance
from memagent.core.records import MemoryItem
from memagent.state.adjacency import Path

ARM_WEIGHTS = {
    "dense": 0.5,
    "dense_context": 0.5,
    "lexical": 0.4,
    "lexical_context": 1.0,
    "session": 0.05,
    "graph": 0.05,
}
"""Weights in the fusion: words in context find most, the other arms settle what they leave
open.
"""
ORDER_DECIMALS: Final = 9
_NO_MOST: Mapping[str, float] = {}


class Candidate:
    """An item on its way to being a hit, with everything that will explain it (see
    `Relevance` for the fields).
    """

    __slots__ = (
        "arms", "collapsed", "expanded_from", "factors", "fused", "item", "ranks", "rerank", "score", "tokens", "via",
    )  # fmt: skip

    def __init__(
        self, item: MemoryItem, *, fused: float = 0.0, expanded_from: str | None = None
    ) -> None:
        self.item = item
        self.score = self.fused = fused
        self.arms: dict[str, float] = {}
        self.ranks: dict[str, int] = {}
        self.factors: dict[str, float] = {}
        self.via: Path = ()
        self.expanded_from = expanded_from
        self.collapsed: tuple[str, ...] = ()
        self.rerank: float | None = None
        self.tokens: int | None = None

    @property
    def id(self) -> str:
        """The item's id."""
        return self.item.id

    def hit(self) -> Hit:
        """The candidate as a hit."""
        return Hit(
            id=self.item.id,
            score=self.score,
            item=self.item,
            why=Relevance(
                arms=self.arms,
                ranks=self.ranks,
                via=self.via,
                fused=self.fused,
                factors={name: factor for name, factor in self.factors.items() if factor != 1.0},
                expanded_from=self.expanded_from,
                collapsed=self.collapsed,
                rerank=self.rerank,
                tokens=self.tokens,
            ),
        )


class Fusion:
    """Candidates by item id, in the order in which the arms gave them."""

    __slots__ = ("base", "found")

    def __init__(self) -> None:
        self.found: dict[str, Candidate] = {}
        self.base = 0.0
        """What a candidate has that no arm lists: the floors of all full arms."""

    def add(
        self,
        arms: Mapping[str, Sequence[tuple[MemoryItem, float]]],
        *,
        weights: Mapping[str, float],
        most: Mapping[str, float] = _NO_MOST,
        pool: int | None = None,
    ) -> None:
        """Give every candidate the weighted sum over the arms of its share of the
        highest score, as `fused` and `score`.

        Each arm is a ranking of (item, raw score), best first; an arm without a weight
        counts 1, and `most` is 1 where it is not given (a cosine's). What is not among
        the first `pool` of an arm counts as much as the last of those; what later calls
        bring, too. After the first `pool` others may follow in any order.
        """
        found, base, floors = self.found, self.base, 0.0
        for name, ranking in arms.items():
            weight = weights.get(name, 1.0) / max(most.get(name, 1.0), 1e-9)
            floor = (
                max(ranking[pool - 1][1], 0.0) if pool is not None and len(ranking) >= pool else 0.0
            )
            floors += weight * floor
            for rank, (item, raw) in enumerate(ranking, 1):
                one = found.get(item.id)
                if one is None:
                    one = found[item.id] = Candidate(item, fused=base)
                if raw > floor:
                    one.fused += weight * (raw - floor)
                one.arms[name] = raw
                one.ranks[name] = rank
        self.base += floors
        for one in found.values():
            one.fused += floors
            one.score = one.fused


def in_order(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Best first; scores that agree in nine decimals are ties, which go by id."""
    return sorted(candidates, key=_place)


def _place(one: Candidate) -> tuple[float, str]:
    return -round(one.score, ORDER_DECIMALS), one.item.id
