"""The exact search index: an immutable view over shared segments.

A view is a value: a few segments, marks for their dead documents, and a short tail of
documents not yet sealed. Adding, replacing and removing give a new view that shares
everything else, so a fork costs nothing and is searchable at once. Sealed segments
merge when the newer is at least a quarter of the older, which keeps their number
logarithmic. A search sees the tail as one more segment, made when the view is first
searched; and of a small view's parts it makes one. A document's place is its number in
the segments one after the other.

A scoring is one query over one view: cosines and BM25 scores as columns, and as lists of
items. Scores do not depend on how documents are spread over segments: BM25 uses exact
counts over live documents, and the best cosines are recomputed row by row in float64
before they are ordered. Scores are rounded to six decimals; equal ones go by id. The
surprise: results for one filter or field serve the next. The products of the vector
with a segment's rows and the BM25 scores of a field do not depend on the filter, and
where every document is indexed by one text alone both fields are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from math import log
from operator import attrgetter
from typing import Final, NamedTuple

import numpy as np
from rpds import HashTrieMap

from memagent.core.answers import Filter, Hit, Relevance
from memagent.core.errors import EmbeddingError
from memagent.core.records import MemoryItem
from memagent.protocols import Vector
from memagent.search.segments import (
    CONTEXT,
    NO_ROW,
    OWN,
    Arena,
    Doc,
    Floats,
    Gathered,
    Ints,
    Mask,
    Products,
    Segment,
    epoch_bounds,
    ranks_of,
)
from memagent.state.adjacency import pairs
from memagent.state.effects import K1, B
from memagent.state.validation import allowed_values

_TAIL: Final = 32
# Merging so many documents takes less time than a few searches of their parts.
_FEW: Final = 256
_NOWHERE: Final = np.zeros(0, dtype=np.int32)
_id_of: Final[Callable[[Doc], str]] = attrgetter("item.id")


@dataclass(frozen=True, slots=True)
class Part:
    """A segment of a view, with marks for its dead documents."""

    segment: Segment
    dead: Mask | None = None
    dead_count: int = 0

    @property
    def live(self) -> int:
        """Documents that are not dead."""
        return len(self.segment) - self.dead_count


@dataclass(frozen=True, slots=True)
class Pieces:
    """The parts of a view that are searched, with the place of each one's first document."""

    parts: tuple[Part, ...]
    offsets: Sequence[int]
    size: int
    """One more than the highest place: documents, dead ones included."""
    same_fields: bool
    """Whether every document has one text only, so that both fields score the same."""
    idf: dict[int, float] = field(default_factory=dict[int, float])
    """The weights in own texts of those terms that were asked for."""

    def items_at(self, places: np.typing.NDArray[np.int64]) -> list[MemoryItem]:
        """Return the items at places (m,)."""
        parts, at = self.parts, places.tolist()
        if len(parts) == 1:
            items = parts[0].segment.items
            return [items[place] for place in at]
        offsets = self.offsets
        which: list[int] = (np.searchsorted(offsets, places, side="right") - 1).tolist()
        return [
            parts[i].segment.items[place - offsets[i]] for i, place in zip(which, at, strict=True)
        ]


@dataclass(slots=True)
class _Lazy:
    """The pieces of a view, made when it is first searched."""

    pieces: Pieces | None = None


@dataclass(frozen=True, slots=True)
class IndexView:
    """An immutable set of indexed items.

    `totals` are the summed lengths of both fields in tokens.
    """

    arena: Arena
    parts: tuple[Part, ...] = ()
    tail: HashTrieMap[str, Doc] = HashTrieMap()
    places: HashTrieMap[str, tuple[int, int]] = HashTrieMap()
    """Item id to (identity of its segment, position)."""
    totals: tuple[int, int] = (0, 0)
    _lazy: _Lazy = field(default_factory=_Lazy, init=False, compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.places) + len(self.tail)

    def __contains__(self, item_id: object) -> bool:
        return item_id in self.places or item_id in self.tail

    def put(self, docs: Sequence[Doc], *, gone: Iterable[str] = ()) -> IndexView:
        """Return the view with documents added or replaced, by item id, and without the `gone`."""
        view = self.drop([*gone, *map(_id_of, docs)])
        own, context = view.totals
        for doc in docs:
            own += doc.lengths[OWN]
            context += doc.lengths[CONTEXT]
        totals = own, context
        if len(view.tail) + len(docs) < _TAIL:
            tail = view.tail
            for doc in docs:
                tail = tail.insert(doc.item.id, doc)
            return replace(view, tail=tail, totals=totals)
        sealed = Segment.of(sorted([*view.added(), *docs], key=_id_of))
        parts, places = _with_segment(view.parts, sealed, view.places)
        return replace(view, parts=parts, tail=HashTrieMap(), places=places, totals=totals)

    def drop(self, ids: Iterable[str]) -> IndexView:
        """Return the view without these items; unknown ids are ignored."""
        tail, places = self.tail, self.places
        parts = {id(part.segment): part for part in self.parts}
        own, context = self.totals
        marked: dict[int, Mask] = {}
        for item_id in ids:
            doc = tail.get(item_id)
            if doc is not None:
                tail = tail.remove(item_id)
                own, context = own - doc.lengths[0], context - doc.lengths[1]
                continue
            place = places.get(item_id)
            if place is None:
                continue
            places = places.remove(item_id)
            key, at = place
            segment = parts[key].segment
            if key not in marked:
                old = parts[key].dead
                marked[key] = np.zeros(len(segment), bool) if old is None else old.copy()
            marked[key][at] = True
            own -= int(segment.postings[0].lengths[at])
            context -= int(segment.postings[1].lengths[at])
        for key, dead in marked.items():
            parts[key] = Part(parts[key].segment, dead, int(dead.sum()))
        return replace(
            self, parts=tuple(parts.values()), tail=tail, places=places, totals=(own, context)
        )

    # -- looking up --------------------------------------------------------------------

    def added(self) -> list[Doc]:
        """Return the documents that are not sealed yet, in no particular order."""
        return [doc for _, doc in pairs(self.tail)]

    def of_session(self, session_id: str) -> list[MemoryItem]:
        """Return the items of a session, in no particular order."""
        items = [doc.item for doc in self.added() if doc.item.session_id == session_id]
        for part in self.parts:
            at = part.segment.filed.get(("session_ids", session_id), _NOWHERE)
            live = at if part.dead is None else at[~part.dead[at]]
            items += [part.segment.items[place] for place in live.tolist()]
        return items

    def row_of(self, item_id: str) -> int:
        """Return the arena row of an item's own text, `NO_ROW` without a vector or item."""
        if (doc := self.tail.get(item_id)) is not None:
            return doc.rows[OWN]
        place = self.places.get(item_id)
        if place is None:
            return NO_ROW
        segment = next(part.segment for part in self.parts if id(part.segment) == place[0])
        return int(segment.rows[OWN].rows[place[1]])

    # -- scoring -----------------------------------------------------------------------

    @property
    def pieces(self) -> Pieces:
        """The parts that are searched, the tail as the last; a small view is one part."""
        if self._lazy.pieces is None:
            parts = self.parts
            if len(self.tail):
                parts = (*parts, Part(Segment.of(sorted(self.added(), key=_id_of))))
            if len(parts) > 1 and len(self) <= _FEW:
                parts = (Part(Segment.merged([(part.segment, part.dead) for part in parts])),)
            *offsets, size = accumulate((len(part.segment) for part in parts), initial=0)
            same_fields = all(part.segment.same_fields for part in parts)
            self._lazy.pieces = Pieces(parts, offsets, size, same_fields)
        return self._lazy.pieces

    def rarity(self, words: Iterable[str]) -> dict[str, float]:
        """Return the weights in own texts of those words that any document has used."""
        known = self.arena.known_terms(words) if len(self) else {}
        idf = self.pieces.idf
        if not idf.keys() >= set(known.values()):
            Scoring(self, words=list(known)).terms_in(OWN)
        return {word: idf[number] for word, number in known.items()}


def _with_segment(
    parts: Sequence[Part], fresh: Segment, places: HashTrieMap[str, tuple[int, int]]
) -> tuple[tuple[Part, ...], HashTrieMap[str, tuple[int, int]]]:
    """Return the parts and the places of a view with one more segment, merged with older ones."""
    merged = [*parts, Part(fresh)]
    while len(merged) > 1 and 4 * merged[-1].live >= merged[-2].live:
        newer, older = merged.pop(), merged.pop()
        both = [(older.segment, older.dead), (newer.segment, newer.dead)]
        merged.append(Part(Segment.merged(both)))
    last = merged[-1].segment
    for at, item in enumerate(last.items):
        places = places.insert(item.id, (id(last), at))
    return tuple(merged), places


def passing(part: Part, where: Filter | None) -> Ints | None:
    """Return positions of live documents that pass the filter.

    None means all documents of a segment without dead ones.
    """
    if where is None or where.empty:
        return None if part.dead is None else np.flatnonzero(~part.dead).astype(np.int32)
    segment = part.segment
    at: Ints | None = None
    for name, values in allowed_values(where).items():
        lists = [segment.filed.get((name, value), _NOWHERE) for value in values]
        some = np.unique(np.concatenate(lists)) if len(lists) > 1 else lists[0]
        at = some if at is None else np.intersect1d(at, some, assume_unique=True)
    masks: list[Mask] = [] if part.dead is None else [~part.dead]
    if where.valid is not None:
        lo, hi = epoch_bounds(where.valid)
        masks.append((segment.valid[:, 0] < hi) & (segment.valid[:, 1] > lo))
    if where.said is not None:
        lo, hi = epoch_bounds(where.said)
        masks.append((segment.said >= lo) & (segment.said < hi))
    at = segment.everything if at is None else at
    for mask in masks:
        at = at[mask[at]]
    if where.ids:
        at = at[np.fromiter((segment.items[int(i)].id in where.ids for i in at), bool, len(at))]
    return at


def only_key(where: Filter | None) -> tuple[str, str] | None:
    """Return the (field, value) that a filter asks for, if it asks for nothing else."""
    if where is None or where.ids or where.valid is not None or where.said is not None:
        return None
    keys = [(name, value) for name, values in allowed_values(where).items() for value in values]
    return keys[0] if len(keys) == 1 else None


# -- scoring --------------------------------------------------------------------------


_MARGIN: Final = 16
DECIMALS: Final = 6
Scored = tuple[MemoryItem, float]
_NEARLY_HALF: Final = 0.5 - 1e-5


class Ranking(NamedTuple):
    """Documents by their places in a view, with scores rounded to six decimals.

    Best first, ties by id; `extended` puts others behind.
    """

    places: np.typing.NDArray[np.int64]
    """(m,)"""
    scores: Floats
    """(m,)"""

    def extended(self, more: Ranking) -> Ranking:
        """Return this ranking with the documents of another that it lacks behind."""
        fresh = ~np.isin(more.places, self.places)
        return Ranking(
            np.concatenate([self.places, more.places[fresh]]),
            np.concatenate([self.scores, more.scores[fresh]]),
        )

    def best(self, k: int, pieces: Pieces) -> Ranking:
        """Return the k best, best first, ties by id."""
        if len(pieces.parts) == 1:
            ranks = pieces.parts[0].segment.ranks[self.places]
        else:
            ranks = ranks_of([item.id for item in pieces.items_at(self.places)])
        order = np.lexsort((ranks, -self.scores))[:k]
        return Ranking(self.places[order], self.scores[order])


_NOTHING: Final = Ranking(np.zeros(0, np.int64), np.zeros(0))


def rounded(values: Floats, decimals: int) -> Floats:
    """Round each value (m,) as Python's `round` does.

    numpy's own is off by one in the last decimal where a half is not exact.
    """
    scale = 10.0**decimals
    scaled = values * scale
    whole = np.rint(scaled)
    result: Floats = whole / scale
    scaled -= whole
    np.abs(scaled, scaled)
    if len(scaled) and scaled.max() > _NEARLY_HALF:
        for at in (scaled > _NEARLY_HALF).nonzero()[0].tolist():
            result[at] = round(float(values[at]), decimals)
    return result


class Scoring:
    """The scores of a query; made for one search."""

    __slots__ = (
        "_count", "_known", "_matrix", "_passing", "_pieces", "_products", "_terms",
        "_terms_in", "_totals", "_unknown", "vector",
    )  # fmt: skip

    def __init__(
        self,
        view: IndexView,
        *,
        vector: Vector | None = None,
        words: Sequence[str] = (),
    ) -> None:
        """Take a query as its `vector` (D,) and its distinct index terms, the `words`.

        Raises `EmbeddingError` on a wrong width.
        """
        if vector is not None and vector.shape != (view.arena.dim,):
            raise EmbeddingError(
                f"the query vector has shape {vector.shape}, "
                f"this index holds vectors of width {view.arena.dim}"
            )
        self._pieces, self._count, self._totals = view.pieces, len(view), view.totals
        self._matrix = view.arena.matrix
        self.vector = vector
        """The vector (D,) of the query, if it has one."""
        known = view.arena.known_terms(words)
        self._terms = np.fromiter(known.values(), np.int32, len(known))
        self._unknown = len(words) - len(known)
        self._products: dict[tuple[int, int], Products] = {}
        self._terms_in: dict[int, tuple[list[float], list[Floats]]] = {}
        self._passing: dict[tuple[int, int], tuple[Filter | None, Ints | None]] = {}
        self._known: dict[tuple[bool, int, int, int], tuple[Filter | None, Ranking]] = {}

    @staticmethod
    def of_many(
        view: IndexView,
        vectors: Sequence[Vector | None],
        words: Sequence[Sequence[str]],
    ) -> list[Scoring]:
        """Return a scoring for each of many queries: F vectors (D,) and their index terms.

        Their products with the texts' own vectors are made in one pass over the rows,
        if each has a vector.
        """
        several = [
            Scoring(view, vector=vector, words=some)
            for vector, some in zip(vectors, words, strict=True)
        ]
        known = [vector for vector in vectors if vector is not None]
        for part in view.pieces.parts if known and len(known) == len(several) else ():
            rows = part.segment.rows[OWN]
            if rows.scans and len(rows.rows) > _MARGIN:
                products = rows.products_of(view.arena.matrix, np.stack(known))
                for scoring, own in zip(several, products, strict=True):
                    scoring._products[rows.reach] = own  # noqa: SLF001 (made here)
        return several

    # -- columns -----------------------------------------------------------------------

    def cosines(self, *, k: int, field: int = OWN, where: Filter | None = None) -> Ranking:
        """Return the k documents of highest cosine in a field; none without a vector."""
        vector, field = self.vector, OWN if self._pieces.same_fields else field
        if vector is None or not self._pieces.parts:
            return _NOTHING
        # the filter is held, so that no other one gets its identity
        key = (True, k, field, id(where))
        if key in self._known:
            return self._known[key][1]
        places: list[Ints] = []
        nearest: list[Ints] = []
        for part, offset in zip(self._pieces.parts, self._pieces.offsets, strict=True):
            positions = self._nearest_of(part, field, where, k + _MARGIN)
            places.append(positions + offset)
            nearest.append(part.segment.rows[field].rows[positions])
        rows, ranking = np.concatenate(nearest), _NOTHING
        if len(rows):
            exact = np.vecdot(self._matrix[rows].astype(np.float64), vector.astype(np.float64))
            at = np.concatenate(places).astype(np.int64)
            ranking = Ranking(at, rounded(exact, DECIMALS)).best(k, self._pieces)
        self._known[key] = (where, ranking)
        return ranking

    def _nearest_of(self, part: Part, field: int, where: Filter | None, count: int) -> Ints:
        """Return positions of a part's `count` nearest documents, in single precision."""
        assert self.vector is not None
        matrix, vector = self._matrix, self.vector
        segment, rows = part.segment, part.segment.rows[field]
        at = None if where is None and part.dead is None else self._positions(part, where)
        if rows.complete and len(segment.everything if at is None else at) <= count:
            return segment.everything if at is None else at
        key = only_key(where)
        products = self._products.get(rows.reach)
        if key is not None and products is None:
            at = segment.filed.get(key, _NOWHERE)
            scores = rows.filed_scores(matrix, vector, key, at)
            if part.dead is not None:
                scores[part.dead[at]] = -np.inf
        else:
            if at is None and products is None and rows.scans:
                products = self._products[rows.reach] = rows.products(matrix, vector)
            scores = rows.scores(matrix, vector, at, products)
        best = top(scores, segment.ranks if at is None else segment.ranks[at], count)
        return best if at is None else at[best]

    def words(self, *, k: int, field: int = OWN, where: Filter | None = None) -> Ranking:
        """Return the k documents of highest BM25 score in a field, above 0."""
        field = OWN if self._pieces.same_fields else field
        if not self._count or not len(self._terms):
            return _NOTHING
        key = (False, k, field, id(where))
        if key in self._known:
            return self._known[key][1]
        places: list[Ints] = []
        raw: list[Floats] = []
        pieces, (_, columns) = self._pieces, self.terms_in(field)
        for part, offset, scores in zip(pieces.parts, pieces.offsets, columns, strict=True):
            ranks = part.segment.ranks
            at = None if where is None else self._positions(part, where)
            if at is None:
                best = top(scores, ranks, k, floor=0.0)
            else:
                best = at[top(scores[at], ranks[at], k, floor=0.0)]
            places.append(best + offset)
            raw.append(scores[best])
        at, scores = np.concatenate(places).astype(np.int64), np.concatenate(raw)
        ranking = Ranking(at, rounded(scores, DECIMALS)).best(k, pieces)
        self._known[key] = (where, ranking)
        return ranking

    # -- lists -------------------------------------------------------------------------

    def listed(self, ranking: Ranking) -> list[Scored]:
        """Return a ranking as items with their scores."""
        items = self._pieces.items_at(ranking.places)
        return list(zip(items, ranking.scores.tolist(), strict=True))

    def lexical_most(self, *, field: int = OWN) -> float:
        """Return a BM25 score that no document reaches: that of endless repetition.

        Words in no document count as the rarest.
        """
        idf = self.terms_in(field)[0] if self._count and len(self._terms) else []
        return (K1 + 1.0) * (sum(idf) + self._unknown * log(1.0 + (self._count + 0.5) / 0.5))

    def _positions(self, part: Part, where: Filter | None) -> Ints | None:
        """Return the `passing` positions, computed once for a filter, which is held."""
        key = (id(where), id(part))
        if key not in self._passing:
            self._passing[key] = (where, passing(part, where))
        return self._passing[key][1]

    def terms_in(self, field: int) -> tuple[list[float], list[Floats]]:
        """Return the weight of each term in a field, and the scores (n,) of each part's documents.

        They are made once; dead documents have 0. The view must not be empty. Weights in
        own texts are noted with the view's pieces.
        """
        field = OWN if self._pieces.same_fields else field
        if field in self._terms_in:
            return self._terms_in[field]
        parts, count = self._pieces.parts, self._count
        mean = max(self._totals[field] / count, 1e-9)
        held = np.zeros(len(self._terms), np.int64)
        found: list[tuple[Gathered, Floats]] = []
        for part in parts:
            postings = part.segment.postings[field]
            gathered = docs, _, counts = postings.gathered(self._terms)
            found.append((gathered, postings.norms(K1, B, mean)[docs]))
            if part.dead is None:
                held += counts
            else:
                alive = np.concatenate([[0], np.cumsum(~part.dead[docs])])
                ends = np.cumsum(counts)
                held += alive[ends] - alive[ends - counts]
        idf = [log(1.0 + (count - df + 0.5) / (df + 0.5)) for df in held.tolist()]
        if field == OWN:
            self._pieces.idf.update(zip(self._terms.tolist(), idf, strict=True))
        columns: list[Floats] = []
        for part, ((docs, tfs, counts), norms) in zip(parts, found, strict=True):
            weights = (np.asarray(idf) * (K1 + 1.0)).repeat(counts)
            scores = np.bincount(
                docs, weights=weights * tfs / (tfs + norms), minlength=len(part.segment.ranks)
            ).astype(np.float64, copy=False)
            if part.dead is not None:
                scores[part.dead] = 0.0
            columns.append(scores)
        self._terms_in[field] = idf, columns
        return idf, columns


def top(
    scores: np.typing.NDArray[np.floating], ranks: Ints, k: int, floor: float = -np.inf
) -> Ints:
    """Return positions of the k highest scores above the floor.

    Among equals at the cut those of the lowest rank count.
    """
    if len(scores) <= k:
        return (scores > floor).nonzero()[0].astype(np.int32)
    cut = np.partition(scores, len(scores) - k)[len(scores) - k]
    above = np.flatnonzero(scores > max(cut, floor))
    if not cut > floor:
        return above.astype(np.int32)
    tied = np.flatnonzero(scores == cut)
    room = k - len(above)
    if len(tied) > room:
        tied = tied[np.argpartition(ranks[tied], room - 1)[:room]]
    return np.concatenate([above, tied]).astype(np.int32)


def ordered(scored: Sequence[Scored], k: int) -> list[Scored]:
    """Return the k best of scored items, scores rounded to six decimals, ties by id."""
    best = sorted([(-round(score, DECIMALS), item.id, item) for item, score in scored])
    return [(item, -score) for score, _, item in best[:k]]


def cosine_hits(scored: Sequence[Scored]) -> list[Hit]:
    """Return the hits of a single dense search, with rank and score in `why`."""
    return [
        Hit(
            id=item.id,
            score=score,
            item=item,
            why=Relevance(arms={"dense": score}, ranks={"dense": rank}),
        )
        for rank, (item, score) in enumerate(scored, 1)
    ]
