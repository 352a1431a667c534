"""Fusion: named arms added up by score, each as a share of the most it could give.

Reciprocal ranks forget by how much one hit is better than the next, and let five turns
around one good sentence stand before a second good sentence elsewhere. The surprise: an
item that a full arm does not list may still be just below its last one, so it gets that
one's score; without this floor recall at 10 falls by .03 (three LoCoMo conversations,
each left out in turn; ranks .742, this .760). Scores stay in columns until the end:
only what comes back becomes a `Candidate`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from memagent.core.answers import Hit, Relevance
from memagent.core.records import MemoryItem, NodeKind
from memagent.search.index import Pieces
from memagent.search.scoring import Ranking, rounded
from memagent.search.segments import Floats
from memagent.state.adjacency import Path

ARM_WEIGHTS = {
    "dense": 0.5,
    "dense_context": 0.5,
    "lexical": 0.4,
    "lexical_context": 1.0,
    "session": 0.05,
    "graph": 0.05,
}
"""Weights in the fusion: words in context find most, the other arms settle the rest."""
ORDER_DECIMALS: Final = 9
_NO_REASONS: Final = Relevance()


class Candidate:
    """An item on its way to being a hit, with the reasons that `Relevance` describes.

    `row` is its row in the pool that it comes from.
    """

    __slots__ = (
        "arms", "collapsed", "expanded_from", "factors", "fused", "item", "ranks", "rerank",
        "row", "score", "tokens", "via",
    )  # fmt: skip

    def __init__(self, item: MemoryItem, *, score: float, row: int) -> None:
        self.item = item
        self.score = self.fused = score
        self.row = row
        self.arms: dict[str, float] = {}
        self.ranks: dict[str, int] = {}
        self.factors: dict[str, float] = {}
        self.via: Path = ()
        self.expanded_from: str | None = None
        self.collapsed: tuple[str, ...] = ()
        self.rerank: float | None = None
        self.tokens: int | None = None

    @property
    def id(self) -> str:
        """The item's id."""
        return self.item.id


def hits_of(candidates: Iterable[Candidate], *, explain: bool = True) -> list[Hit]:
    """Return candidates as hits, without their reasons unless `explain` asks for them.

    What our own search made is not checked again.
    """
    hits: list[Hit] = []
    for candidate in candidates:
        item, why = candidate.item, _NO_REASONS
        if explain:
            factors = candidate.factors.items()
            reasons = {
                "arms": candidate.arms,
                "ranks": candidate.ranks,
                "via": candidate.via,
                "fused": candidate.fused,
                "factors": {name: factor for name, factor in factors if factor != 1.0},
                "expanded_from": candidate.expanded_from,
                "collapsed": candidate.collapsed,
                "rerank": candidate.rerank,
                "trust": None,  # of events; an item tells its own
                "tokens": candidate.tokens,
            }
            why = Relevance.trusted(reasons)
        parts = {"id": item.id, "kind": NodeKind.ITEM, "score": candidate.score, "item": item}
        hits.append(Hit.trusted({**parts, "event": None, "why": why}))
    return hits


def item_hit(item: MemoryItem, score: float, why: Relevance) -> Hit:
    """Return an item of the memory as a hit, without a check of what was checked before."""
    kind = NodeKind.ITEM
    parts = {"id": item.id, "kind": kind, "score": score, "item": item, "event": None, "why": why}
    return Hit.trusted(parts)


class Pool:
    """The items that the arms of one search list, in rows, with their fused scores.

    A row's score is the weighted sum over the arms of its share of the most the arm can
    give (`most`; 1, as of a cosine, where it is not named). What is not among the first
    `size` of an arm that lists so many counts as much as the last of those.
    """

    __slots__ = (
        "_listings", "_pieces", "_places", "_rows", "base", "factors", "items", "origins",
        "paths", "scores",
    )  # fmt: skip

    def __init__(
        self,
        arms: Mapping[str, Ranking],
        *,
        most: Mapping[str, float],
        size: int,
        pieces: Pieces,
    ) -> None:
        """Fuse rankings of places in a view's pieces."""
        fused: Floats = np.zeros(pieces.size)
        listed = np.zeros(pieces.size, bool)
        for at, _ in arms.values():
            listed[at] = True
        places = listed.nonzero()[0]
        row_at = np.empty(pieces.size, np.int64)
        row_at[places] = np.arange(len(places))
        self.base = 0.0
        """The score of an item that no arm lists: the floors of all full arms."""
        self._listings: list[tuple[str, npt.NDArray[np.int64], Sequence[float] | Floats]] = []
        for name, (at, scores) in arms.items():
            weight = ARM_WEIGHTS[name] / max(most.get(name, 1.0), 1e-9)
            floor = max(float(scores[size - 1]), 0.0) if len(scores) >= size else 0.0
            self.base += weight * floor
            fused[at] += weight * np.maximum(scores - floor, 0.0)
            self._listings.append((name, row_at[at], scores))
        self._pieces, self._places = pieces, places
        self.items = pieces.items_at(places)
        self.scores: list[float] = (fused[places] + self.base).tolist()
        """The fused score of each row."""
        self.factors: dict[str, Floats] = {}
        """The weights of each row, by name."""
        self.paths: dict[int, Path] = {}
        """The path in the event graph that led to a row."""
        self.origins: dict[int, str] = {}
        """The id of the hit that a row was added for."""
        self._rows: dict[str, int] | None = None

    def __contains__(self, item: MemoryItem) -> bool:
        return item.id in self._row_of()

    def _row_of(self) -> dict[str, int]:
        if self._rows is None:
            self._rows = {item.id: row for row, item in enumerate(self.items)}
        return self._rows

    def row(self, item: MemoryItem, *, score: float | None = None) -> int:
        """Return an item's row; a new one has `score`, or that of an item no arm lists."""
        row = self._row_of().setdefault(item.id, len(self.items))
        if row == len(self.items):
            self.items.append(item)
            self.scores.append(self.base if score is None else score)
        return row

    def add(self, name: str, scored: Sequence[tuple[MemoryItem, float]], *, most: float) -> None:
        """Add one more ranking of items, best first, to the scores."""
        weight = ARM_WEIGHTS[name] / max(most, 1e-9)
        rows = [self.row(item) for item, _ in scored]
        for row, (_, score) in zip(rows, scored, strict=True):
            self.scores[row] += weight * max(score, 0.0)
        self._listings.append((name, np.asarray(rows, np.int64), [score for _, score in scored]))

    def columns(self, rules: Mapping[str, Callable[[MemoryItem], float]]) -> dict[str, Floats]:
        """Return what pure rules of an item give for each row, by the rules' names."""
        if not len(self._places):
            columns = dict.fromkeys(rules, np.zeros(0))
        else:
            columns = self._pieces.columns_at(rules, self._places)
        if added := self.items[len(self._places) :]:
            for name, rule in rules.items():
                columns[name] = np.concatenate([columns[name], [rule(item) for item in added]])
        return columns

    def weigh(self, factors: Mapping[str, Iterable[float] | Floats]) -> Floats:
        """Keep the weights of each row by name, and return the scores times all of them."""
        count = len(self.items)
        self.factors = {
            name: column if isinstance(column, np.ndarray) else np.fromiter(column, float, count)
            for name, column in factors.items()
        }
        weights: Floats = np.ones(count)
        for column in self.factors.values():
            weights = weights * column
        return np.asarray(self.scores) * weights

    def best(self, scores: Sequence[float] | Floats, count: int | None = None) -> list[int]:
        """Return at most `count` rows, best first.

        Scores that agree in nine decimals are ties, which go by id.
        """
        values = rounded(np.asarray(scores, float), ORDER_DECIMALS)
        kept: list[int] = list(range(len(values)))
        if count is not None and len(values) > count:
            cut = np.partition(values, len(values) - count)[len(values) - count]
            kept = (values >= cut).nonzero()[0].tolist()
        keys: list[float] = (-values).tolist()
        return sorted(kept, key=lambda row: (keys[row], self.items[row].id))[:count]

    def candidates(self, rows: Sequence[int], scores: Sequence[float] | Floats) -> list[Candidate]:
        """Return rows as candidates with these scores (one a row of the pool)."""
        return [Candidate(self.items[row], score=float(scores[row]), row=row) for row in rows]

    def explain(self, candidates: Sequence[Candidate]) -> None:
        """Write down how candidates got their scores."""
        at = np.full(len(self.items), -1)
        at[[candidate.row for candidate in candidates]] = np.arange(len(candidates))
        for name, rows, scores in self._listings:
            numbers = at[rows]
            for rank in (numbers >= 0).nonzero()[0].tolist():
                candidate = candidates[int(numbers[rank])]
                candidate.arms[name] = float(scores[rank])
                candidate.ranks[name] = rank + 1
        for candidate in candidates:
            row = candidate.row
            candidate.fused = self.scores[row]
            candidate.factors = {name: float(self.factors[name][row]) for name in self.factors}
            candidate.via = self.paths.get(row, ())
            candidate.expanded_from = self.origins.get(row)
