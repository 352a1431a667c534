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
from memagent.search.index import IndexView, Part, only_key, passing
from memagent.search.segments import OWN, Floats, Gathered, Ints, Products

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

    def best(self, k: int, view: IndexView) -> Ranking:
        """Return the k best, best first, ties by id."""
        order = np.lexsort((view.order_of(self.places), -self.scores))[:k]
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
        "_bm25", "_gathered", "_idfs", "_k1_b", "_known", "_passing", "_products", "_same",
        "_terms", "_vector", "_view",
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
        self._view, self._vector = view, vector
        self._terms, self._k1_b = np.asarray(terms, np.int32), (k1, b)
        self._same = all(part.segment.same_fields for part in view.pieces)
        self._products: dict[tuple[int, int], Products] = {}
        self._bm25: dict[int, list[Floats]] = {}
        self._idfs: dict[int, tuple[list[float], float]] = {}
        self._passing: dict[int, tuple[Filter | None, dict[int, Ints | None]]] = {}
        self._gathered: dict[tuple[int, int], Gathered] = {}
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
        for part in view.pieces if known and len(known) == len(several) else ():
            rows = part.segment.rows[OWN]
            if rows.scans and len(part.segment) > _MARGIN:
                products = rows.products_of(view.arena.matrix, np.stack(known))
                for scoring, own in zip(several, products, strict=True):
                    scoring._products[rows.reach] = own  # noqa: SLF001 (made here)
        return several

    # -- columns -----------------------------------------------------------------------

    def cosines(self, *, k: int, field: int = OWN, where: Filter | None = None) -> Ranking:
        """Return the k documents of highest cosine in a field; none without a vector."""
        return self._once(True, k, OWN if self._same else field, where)

    def words(self, *, k: int, field: int = OWN, where: Filter | None = None) -> Ranking:
        """Return the k documents of highest BM25 score in a field, above 0."""
        return self._once(False, k, OWN if self._same else field, where)

    def _once(self, dense: bool, k: int, field: int, where: Filter | None) -> Ranking:
        key = (dense, k, field, id(where))
        known = self._known.get(key)
        if known is None:
            ranking = self._cosines(k, field, where) if dense else self._words(k, field, where)
            # the filter is held, so that no other one gets its identity
            known = self._known[key] = (where, ranking)
        return known[1]

    def _cosines(self, k: int, field: int, where: Filter | None) -> Ranking:
        vector, view = self._vector, self._view
        if vector is None:
            return _NOTHING
        matrix = view.arena.matrix
        places: list[Ints] = []
        nearest: list[Ints] = []
        for part, offset in zip(view.pieces, view.offsets, strict=True):
            positions = self._nearest_of(part, field, where, k + _MARGIN)
            places.append(positions + offset)
            nearest.append(part.segment.rows[field].rows[positions])
        rows = np.concatenate(nearest) if nearest else _NOWHERE
        if not len(rows):
            return _NOTHING
        exact = np.vecdot(matrix[rows].astype(np.float64), vector.astype(np.float64))
        at = np.concatenate(places).astype(np.int64)
        return Ranking(at, rounded(exact, DECIMALS)).best(k, view)

    def _nearest_of(self, part: Part, field: int, where: Filter | None, count: int) -> Ints:
        """Return positions of a part's `count` nearest documents, in single precision."""
        assert self._vector is not None
        matrix, vector = self._view.arena.matrix, self._vector
        segment, rows = part.segment, part.segment.rows[field]
        at = self._positions(part, where)
        if rows.complete and (len(segment) if at is None else len(at)) <= count:
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

    def _words(self, k: int, field: int, where: Filter | None) -> Ranking:
        view = self._view
        if not len(view) or not len(self._terms):
            return _NOTHING
        if field not in self._bm25:
            idf, mean = self.idf(field)
            self._bm25[field] = [self._bm25_of(part, field, idf, mean) for part in view.pieces]
        places: list[Ints] = []
        raw: list[Floats] = []
        for part, offset, scores in zip(view.pieces, view.offsets, self._bm25[field], strict=True):
            ranks = part.segment.ranks
            at = self._positions(part, where) if where is not None else None
            best = top(
                scores if at is None else scores[at],
                ranks if at is None else ranks[at],
                k,
                floor=0.0,
            )
            positions: Ints = best if at is None else at[best]
            places.append(positions + offset)
            raw.append(scores[positions])
        at, scores = np.concatenate(places).astype(np.int64), np.concatenate(raw)
        return Ranking(at, rounded(scores, DECIMALS)).best(k, view)

    # -- lists -------------------------------------------------------------------------

    def nearest(self, *, k: int, field: int = OWN, where: Filter | None = None) -> list[Scored]:
        """Return the k items of highest cosine in a field; [] without a vector."""
        return self.listed(self.cosines(k=k, field=field, where=where))

    def lexical(self, *, k: int, field: int = OWN, where: Filter | None = None) -> list[Scored]:
        """Return the k items of highest BM25 score in a field, above 0; [] without terms."""
        return self.listed(self.words(k=k, field=field, where=where))

    def listed(self, ranking: Ranking) -> list[Scored]:
        """Return a ranking as items with their scores."""
        return list(zip(self._view.items_at(ranking.places), ranking.scores.tolist(), strict=True))

    def lexical_most(self, *, unknown: int = 0, field: int = OWN) -> float:
        """Return a BM25 score that no document reaches: that of endless repetition.

        `unknown` terms, in no document, count as the rarest.
        """
        idf = self.idf(field)[0] if len(self._view) and len(self._terms) else []
        return (self._k1_b[0] + 1.0) * (
            sum(idf) + unknown * log(1.0 + (len(self._view) + 0.5) / 0.5)
        )

    def _positions(self, part: Part, where: Filter | None) -> Ints | None:
        """Return the `passing` positions, computed once for a filter."""
        _, known = self._passing.setdefault(id(where), (where, {}))
        if id(part) not in known:
            known[id(part)] = passing(part, where)
        return known[id(part)]

    def idf(self, field: int) -> tuple[list[float], float]:
        """Return the weight of each term, and the mean length of a document."""
        field = OWN if self._same else field
        known = self._idfs.get(field)
        if known is not None:
            return known
        view, count = self._view, len(self._view)
        counts = [_frequencies(part, self._postings_of(part, field)) for part in view.pieces]
        idf = [
            log(1.0 + (count - df + 0.5) / (df + 0.5)) for df in map(sum, zip(*counts, strict=True))
        ]
        self._idfs[field] = idf, max(view.totals[field] / count, 1e-9)
        return self._idfs[field]

    def _postings_of(self, part: Part, field: int) -> Gathered:
        """Return the places of the terms in a segment, looked up once."""
        key = (id(part), field)
        known = self._gathered.get(key)
        if known is None:
            known = self._gathered[key] = part.segment.postings[field].gathered(self._terms)
        return known

    def _bm25_of(self, part: Part, field: int, idf: Sequence[float], mean: float) -> Floats:
        """Return the scores (n,) of a segment's documents; dead ones have 0."""
        k1, b = self._k1_b
        postings = part.segment.postings[field]
        docs, tfs, counts = self._postings_of(part, field)
        if not len(docs):
            return np.zeros(len(part.segment))
        weights = (np.asarray(idf) * (k1 + 1.0)).repeat(counts)
        shares = weights * tfs / (tfs + postings.norms(k1, b, mean)[docs])
        scores = np.bincount(docs, weights=shares, minlength=len(part.segment)).astype(
            np.float64, copy=False
        )
        if part.dead is not None:
            scores[part.dead] = 0.0
        return scores


def _frequencies(part: Part, gathered: Gathered) -> list[int]:
    """Count the live documents of a part that hold each term."""
    docs, _, counts = gathered
    if part.dead is None:
        found: list[int] = counts.tolist()
        return found
    alive = np.concatenate([[0], np.cumsum(~part.dead[docs])])
    ends = np.cumsum(counts)
    living: list[int] = (alive[ends] - alive[ends - counts]).tolist()
    return living


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
