"""One query over one view: cosines and BM25 scores as columns, and as lists of items.

Scores do not depend on how documents are spread over segments: BM25 uses exact counts
over live documents, and the best cosines are recomputed row by row in float64 before
they are ordered. Scores are rounded to six decimals; equal ones go by id. The surprise:
results for one filter or field serve the next. The products of the vector with a
segment's rows and the BM25 scores of a field do not depend on the filter, and where
every document is indexed by one text alone both fields are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from memagent.core.answers import Filter, Hit, Relevance
from memagent.core.errors import EmbeddingError
from memagent.core.records import MemoryItem
from memagent.protocols import Vector
from memagent.search.index import IndexView, Part, Pieces, only_key, passing
from memagent.search.segments import OWN, Floats, Gathered, Ints, Products, ranks_of

_MARGIN: Final = 16
DECIMALS: Final = 6
Scored = tuple[MemoryItem, float]
_NOWHERE: Final = np.zeros(0, dtype=np.int32)
_NEARLY_HALF: Final = 0.5 - 1e-5


class Ranking(NamedTuple):
    """Documents by their places in a view, with scores rounded to six decimals.

    Best first, ties by id; `extended` puts others behind.
    """

    places: npt.NDArray[np.int64]
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


class FieldTerms(NamedTuple):
    """The terms of a query in one field of a view."""

    found: list[Gathered]
    """Their documents, part by part."""
    idf: list[float]
    """The weight of each term."""
    mean: float
    """The mean length of a document, in tokens."""


class Scoring:
    """The scores of a query; made for one search."""

    __slots__ = (
        "_bm25", "_count", "_k1_b", "_known", "_matrix", "_passing", "_pieces", "_products",
        "_same", "_terms", "_terms_in", "_totals", "_vector",
    )  # fmt: skip

    def __init__(
        self,
        view: IndexView,
        *,
        vector: Vector | None = None,
        terms: Sequence[int] = (),
        k1: float = 0.0,
        b: float = 0.0,
    ) -> None:
        """Take a query as its `vector` (D,) and its distinct `terms`; `k1` and `b` are BM25's.

        Raises `EmbeddingError` on a wrong width.
        """
        if vector is not None and vector.shape != (view.arena.dim,):
            raise EmbeddingError(
                f"the query vector has shape {vector.shape}, "
                f"this index holds vectors of width {view.arena.dim}"
            )
        self._pieces, self._count, self._totals = view.pieces, len(view), view.totals
        self._matrix = view.arena.matrix
        self._vector, self._terms, self._k1_b = vector, np.asarray(terms, np.int32), (k1, b)
        self._same = all(part.segment.same_fields for part in self._pieces.parts)
        self._products: dict[tuple[int, int], Products] = {}
        self._bm25: dict[int, list[Floats]] = {}
        self._terms_in: dict[int, FieldTerms] = {}
        self._passing: dict[tuple[int, int], tuple[Filter | None, Ints | None]] = {}
        self._known: dict[tuple[bool, int, int, int], tuple[Filter | None, Ranking]] = {}

    @staticmethod
    def of_many(
        view: IndexView,
        vectors: Sequence[Vector | None],
        terms: Sequence[Sequence[int]],
        *,
        k1: float,
        b: float,
    ) -> list[Scoring]:
        """Return a scoring for each of many queries: F vectors (D,) and their terms.

        Their products with the texts' own vectors are made in one pass over the rows,
        if each has a vector.
        """
        several = [
            Scoring(view, vector=vector, terms=some, k1=k1, b=b)
            for vector, some in zip(vectors, terms, strict=True)
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
        vector, field = self._vector, OWN if self._same else field
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
        assert self._vector is not None
        matrix, vector = self._matrix, self._vector
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
        field = OWN if self._same else field
        if not self._count or not len(self._terms):
            return _NOTHING
        key = (False, k, field, id(where))
        if key in self._known:
            return self._known[key][1]
        if field not in self._bm25:
            self._bm25[field] = self._bm25_in(field)
        places: list[Ints] = []
        raw: list[Floats] = []
        pieces = self._pieces
        for part, offset, scores in zip(
            pieces.parts, pieces.offsets, self._bm25[field], strict=True
        ):
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

    def nearest(self, *, k: int, field: int = OWN, where: Filter | None = None) -> list[Scored]:
        """Return the k items of highest cosine in a field; [] without a vector."""
        return self._listed(self.cosines(k=k, field=field, where=where))

    def lexical(self, *, k: int, field: int = OWN, where: Filter | None = None) -> list[Scored]:
        """Return the k items of highest BM25 score in a field, above 0; [] without terms."""
        return self._listed(self.words(k=k, field=field, where=where))

    def _listed(self, ranking: Ranking) -> list[Scored]:
        """Return a ranking as items with their scores."""
        items = self._pieces.items_at(ranking.places)
        return list(zip(items, ranking.scores.tolist(), strict=True))

    def lexical_most(self, *, unknown: int = 0, field: int = OWN) -> float:
        """Return a BM25 score that no document reaches: that of endless repetition.

        `unknown` terms, in no document, count as the rarest.
        """
        idf = self.terms_in(field).idf if self._count and len(self._terms) else []
        return (self._k1_b[0] + 1.0) * (sum(idf) + unknown * log(1.0 + (self._count + 0.5) / 0.5))

    def _positions(self, part: Part, where: Filter | None) -> Ints | None:
        """Return the `passing` positions, computed once for a filter, which is held."""
        key = (id(where), id(part))
        if key not in self._passing:
            self._passing[key] = (where, passing(part, where))
        return self._passing[key][1]

    def terms_in(self, field: int) -> FieldTerms:
        """Return the places and the weights of the terms in a field, looked up once.

        The view must not be empty.
        """
        field = OWN if self._same else field
        if field in self._terms_in:
            return self._terms_in[field]
        parts, count = self._pieces.parts, self._count
        found = [part.segment.postings[field].gathered(self._terms) for part in parts]
        held = np.zeros(len(self._terms), np.int64)
        for part, (docs, _, counts) in zip(parts, found, strict=True):
            if part.dead is None:
                held += counts
            else:
                alive = np.concatenate([[0], np.cumsum(~part.dead[docs])])
                ends = np.cumsum(counts)
                held += alive[ends] - alive[ends - counts]
        idf = [log(1.0 + (count - df + 0.5) / (df + 0.5)) for df in held.tolist()]
        terms = FieldTerms(found, idf, max(self._totals[field] / count, 1e-9))
        self._terms_in[field] = terms
        return terms

    def _bm25_in(self, field: int) -> list[Floats]:
        """Return the scores (n,) of each part's documents in a field; dead ones have 0."""
        (k1, b), terms = self._k1_b, self.terms_in(field)
        found: list[Floats] = []
        for part, (docs, tfs, counts) in zip(self._pieces.parts, terms.found, strict=True):
            scores = np.zeros(len(part.segment.ranks))
            if len(docs):
                weights = (np.asarray(terms.idf) * (k1 + 1.0)).repeat(counts)
                norms = part.segment.postings[field].norms(k1, b, terms.mean)
                shares = weights * tfs / (tfs + norms[docs])
                scores = np.bincount(docs, weights=shares, minlength=len(scores)).astype(
                    np.float64, copy=False
                )
            if part.dead is not None:
                scores[part.dead] = 0.0
            found.append(scores)
        return found


def top(scores: npt.NDArray[np.floating], ranks: Ints, k: int, floor: float = -np.inf) -> Ints:
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
