"""Fusion: named arms added up by score, each as a share of the most it could give.

Reciprocal ranks forget by how much one hit is better than the next, and let five turns
around one good sentence stand before a second good sentence elsewhere. The surprise: an
item that a full arm does not list may still be just below its last one, so it gets that
one's score; without this floor recall at 10 falls by .03 (three LoCoMo conversations,
each left out in turn; ranks .742, this .760). Scores stay in columns until the end:
only what comes back becomes a `Candidate`.

Weights of a hit (time, age, importance, names, questions, shortness) multiply its score,
so 1.0 changes nothing and the order in which they apply does not matter. An unknown (an
item without a date, a question without a time) never weighs anything down.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import product
from math import isfinite, log1p
from typing import Final

import numpy as np

from memagent.core.answers import Hit, Relevance
from memagent.core.records import ItemStats, MemoryItem, NodeKind, TimeSpan
from memagent.search.index import Pieces, Ranking, rounded
from memagent.search.segments import Floats
from memagent.state.adjacency import Path
from memagent.state.fold import folded

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


@dataclass(slots=True, eq=False)
class Candidate:
    """An item on its way to being a hit, with the reasons that `Relevance` describes.

    `row` is its row in the pool that it comes from.
    """

    item: MemoryItem
    score: float
    row: int
    arms: dict[str, float]
    ranks: dict[str, int]
    factors: dict[str, float]
    """Those other than 1."""
    fused: float = 0.0
    via: Path = ()
    expanded_from: str | None = None
    collapsed: tuple[str, ...] = ()
    rerank: float | None = None
    tokens: int | None = None

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
            reasons = {
                "arms": candidate.arms,
                "ranks": candidate.ranks,
                "via": candidate.via,
                "fused": candidate.fused,
                "factors": candidate.factors,
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
        self._listings: list[tuple[str, np.typing.NDArray[np.int64], Sequence[float] | Floats]] = []
        for name, (at, scores) in arms.items():
            weight = ARM_WEIGHTS[name] / max(most.get(name, 1.0), 1e-9)
            floor = max(float(scores[size - 1]), 0.0) if len(scores) >= size else 0.0
            self.base += weight * floor
            fused[at] += weight * np.maximum(scores - floor, 0.0)
            self._listings.append((name, row_at[at], scores))
        self._pieces, self._places = pieces, places
        self._items: list[MemoryItem] | None = None
        self.scores: list[float] = (fused[places] + self.base).tolist()
        """The fused score of each row."""
        self.factors: dict[str, Floats] = {}
        """The weights of each row, by name."""
        self.paths: dict[int, Path] = {}
        """The path in the event graph that led to a row."""
        self.origins: dict[int, str] = {}
        """The id of the hit that a row was added for."""

    @property
    def items(self) -> list[MemoryItem]:
        """The item of each row, all of them read."""
        if self._items is None:
            self._items = self._pieces.items_at(self._places)
        return self._items

    def __contains__(self, item: MemoryItem) -> bool:
        return item.id in self._rows

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {item.id: row for row, item in enumerate(self.items)}

    def row(self, item: MemoryItem, *, score: float | None = None) -> int:
        """Return an item's row; a new one has `score`, or that of an item no arm lists."""
        row = self._rows.setdefault(item.id, len(self.items))
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

    def columns(
        self,
        rules: Mapping[str, Callable[[MemoryItem], float]],
        *,
        names: Collection[str] = (),
        named: float = 1.0,
    ) -> dict[str, Floats]:
        """Return what pure rules of an item give for each row, by the rules' names.

        What is by or about somebody of these `names` has the weight `named`.
        """
        found: dict[str, tuple[Floats, Callable[[MemoryItem], float]]] = {}
        if names:
            about: Floats = np.ones(self._pieces.size)
            for part, offset in zip(self._pieces.parts, self._pieces.offsets, strict=True):
                filed = part.segment.filed
                for key in product(("speakers", "subjects"), names):
                    if (at := filed.get(key)) is not None:
                        about[at + offset] = named
            found["names"] = (
                about,
                lambda item: named if item.speaker in names or item.subject in names else 1.0,
            )
        for name, rule in rules.items():
            kept = [part.segment.column(rule) for part in self._pieces.parts]
            column = kept[0] if len(kept) == 1 else np.concatenate([np.zeros(0), *kept])
            found[name] = (column, rule)
        columns: dict[str, Floats] = {}
        added = self._items[len(self._places) :] if self._items else []
        for name, (column, rule) in found.items():
            listed = column[self._places]
            columns[name] = np.append(listed, list(map(rule, added))) if added else listed
        return columns

    def weigh(self, factors: Mapping[str, Iterable[float] | Floats]) -> Floats:
        """Keep the weights of each row by name, and return the scores times all of them."""
        count = len(self.scores)
        weights: Floats = np.ones(count)
        for name, column in factors.items():
            self.factors[name] = (
                column if isinstance(column, np.ndarray) else np.fromiter(column, float, count)
            )
            weights = weights * self.factors[name]
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
        keys: list[float] = (-values[kept]).tolist()
        if self._items is None:  # those of a checkpoint are read one by one
            self._read = dict(zip(kept, self._pieces.items_at(self._places[kept]), strict=True))
        else:
            self._read = {row: self._items[row] for row in kept}
        ids = [item.id for item in self._read.values()]
        order = dict(zip(kept, zip(keys, ids, strict=True), strict=True))
        return sorted(kept, key=order.__getitem__)[:count]

    def candidates(self, rows: Sequence[int], scores: Sequence[float] | Floats) -> list[Candidate]:
        """Return rows that `best` just gave as candidates with these scores (one a row)."""
        return [Candidate(self._read[row], float(scores[row]), row, {}, {}, {}) for row in rows]

    def explain(self, candidates: Sequence[Candidate]) -> None:
        """Write down how candidates got their scores."""
        at = np.full(len(self.scores), -1)
        for number, candidate in enumerate(candidates):
            row = candidate.row
            at[row] = number
            candidate.fused = self.scores[row]
            for name, column in self.factors.items():
                if (factor := float(column[row])) != 1.0:
                    candidate.factors[name] = factor
            candidate.via = self.paths.get(row, ())
            candidate.expanded_from = self.origins.get(row)
        for name, rows, scores in self._listings:
            numbers = at[rows]
            for rank in (numbers >= 0).nonzero()[0].tolist():
                candidate = candidates[int(numbers[rank])]
                candidate.arms[name] = float(scores[rank])
                candidate.ranks[name] = rank + 1


# -- weights --------------------------------------------------------------------------

DAY_S = 86_400.0
OPEN_SPAN_DAYS = 30.0
"""Assumed length of an open span ("since 2016") when the distance from its bound counts."""
MAX_NAME_WORDS = 4
_AROUND = ".,;:!?()[]{}\"“”«»…¿¡-–—/'’‘"
ASKING = 0.85
"""Weight of a text that ends in a question mark."""
TOLD_CHARS = 250
"""Length in characters from which a text counts fully."""
_TOLD = tuple((log1p(length) / log1p(TOLD_CHARS)) ** 0.7 for length in range(TOLD_CHARS + 1))
_ASKS = ("?", "？", "؟")


def recency(said_at: datetime | None, *, now: datetime, half_life_days: float) -> float:
    """Return 0.5 for an item said one half-life ago, 1.0 for an undated or future one."""
    if said_at is None:
        return 1.0
    age_days = (now - said_at).total_seconds() / DAY_S
    return 1.0 if age_days <= 0 else float(0.5 ** (age_days / half_life_days))


def nearness(asked: TimeSpan) -> Callable[[MemoryItem], float]:
    """Return how near an item is to a span, as a function that computes each moment once.

    It gives 1.0 for an item that holds or was said in the span, less for a distant one: it
    halves with each length of the span (at least a day) that lies between, and is 0.0 for
    an undated item. The nearer of the two axes counts.
    """
    spans: dict[tuple[datetime | None, datetime | None], float] = {}
    moments: dict[datetime, float] = {}

    def near(item: MemoryItem) -> float:
        best, valid, said = 0.0, item.valid, item.said_at
        if valid is not None:
            bounds = (valid.start, valid.end)
            if bounds not in spans:
                spans[bounds] = _near(_gap_days(*bounds, asked), asked)
            best = spans[bounds]
        if best < 1.0 and said is not None:
            if said not in moments:
                moments[said] = _near(_gap_days(said, None, asked, moment=True), asked)
            best = max(best, moments[said])
        return best

    return near


def _gap_days(
    start: datetime | None, end: datetime | None, asked: TimeSpan, *, moment: bool = False
) -> float:
    """Return the days between a span (or a moment, given as its start) and the one asked about.

    0.0 when they share a moment.
    """
    if asked.end is not None and start is not None and start >= asked.end:
        return max((start - asked.end).total_seconds() / DAY_S, 1e-6)
    last = start if moment else end
    if (
        asked.start is None
        or last is None
        or last > asked.start
        or (moment and last == asked.start)
    ):
        return 0.0
    return max((asked.start - last).total_seconds() / DAY_S, 1e-6)


def _near(gap_days: float, asked: TimeSpan) -> float:
    if asked.start is not None and asked.end is not None:
        length = max((asked.end - asked.start).total_seconds() / DAY_S, 1.0)
    else:
        length = OPEN_SPAN_DAYS
    return float(0.5 ** min(gap_days / length, 1_000.0))


def importance(item: MemoryItem, stats: ItemStats | None) -> float:
    """Return `metadata["importance"]`, else the item's learned value, else 0.0; cut to 0 .. 1."""
    value = stats.q_value if stats is not None else 0.0
    stated = item.metadata.get("importance")
    if isinstance(stated, int | float):
        value = float(stated)
    return min(max(value, 0.0), 1.0) if isfinite(value) else 0.0


def utility(stats: ItemStats | None) -> float:
    """Return the value learned from outcomes, cut to -1 .. 1; 0.0 for an item never used."""
    return min(max(stats.q_value, -1.0), 1.0) if stats is not None else 0.0


def length(text: str) -> float:
    """Return below 1.0 for a text shorter than `TOLD_CHARS`, which seldom says anything."""
    return _TOLD[min(len(text), TOLD_CHARS)]


def asking(text: str) -> float:
    """Return `ASKING` for a text that ends in a question mark, else 1.0."""
    return ASKING if text.endswith(_ASKS) else 1.0


ITEM_RULES: Final[Mapping[str, Callable[[MemoryItem], float]]] = {
    "asking": lambda item: asking(item.text),
    "length": lambda item: length(item.text),
}
"""Weights that follow from an item alone, so that an index may keep them."""


def named_in(text: str, *known: Mapping[str, Iterable[str]]) -> frozenset[str]:
    """Return the names that a text contains; each of `known` leads from a form to its names.

    Any run of one to four words could be one, folded and without possessive endings.
    """
    words: list[str] = []
    for word in folded(text).split():
        bare = word.strip(_AROUND).removesuffix("'s").removesuffix("’s")
        if bare:
            words.append(bare)
    names: set[str] = set()
    begins = [at for forms in known for at, word in enumerate(words) if word in forms]
    for start in begins:
        for end in range(start + 1, min(start + MAX_NAME_WORDS, len(words)) + 1):
            phrase = " ".join(words[start:end])
            for forms in known:
                names.update(forms.get(phrase, ()))
    return frozenset(names)


def calls(names: Sequence[str]) -> dict[str, list[str]]:
    """Return the names that each form may mean: all of a name and its first word, folded.

    One letter alone is no name; it means nobody.
    """
    meant: dict[str, list[str]] = {}
    for name in names:
        whole = folded(name)
        for form in dict.fromkeys((whole, *whole.split()[:1])):
            mean = meant.setdefault(form, [])
            if len(form) > 1:
                mean.append(name)
    return meant
