"""The exact numpy index: an immutable view over shared segments, and the `VectorIndex` adapter around one.

A view is a value: a few segments, marks for their dead documents, and a short tail of documents not yet sealed. Adding, replacing and
removing give a new view that shares everything else, so a fork costs nothing and is searchable at once. Sealed segments merge when the
newer is at least a quarter of the older, which keeps their number logarithmic.
Scores do not depend on how documents are spread over segments: BM25 uses exact counts over live documents, and the best cosines are
recomputed row by row in float64 before they are ordered, ties by id.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import log
from typing import Final

import numpy as np
import numpy.typing as npt
from rpds import HashTrieMap

from memagent.core.answers import Filter, Hit, Relevance
from memagent.core.errors import EmbeddingError
from memagent.core.records import MemoryItem, TimeSpan
from memagent.protocols import IndexRow, Matrix, Vector
from memagent.stores.segments import NO_ROW, OWN, Arena, Doc, Ints, Mask, Products, Segment, filter_keys, make_doc

_TAIL: Final = 32
_MARGIN: Final = 16
_DECIMALS: Final = 6
Scored = tuple[MemoryItem, float]
_NOWHERE: Final = np.zeros(0, dtype=np.int32)
_LISTED: Final = ("speakers", "subjects", "kinds", "session_ids", "tags")


@dataclass(frozen=True, slots=True)
class _Part:
    segment: Segment
    dead: Mask | None = None
    dead_count: int = 0


@dataclass(frozen=True, slots=True)
class IndexView:
    """An immutable set of indexed items. `totals` are the summed lengths of both fields in tokens."""

    arena: Arena
    parts: tuple[_Part, ...] = ()
    tail: HashTrieMap[str, Doc] = HashTrieMap()
    places: HashTrieMap[str, tuple[int, int]] = HashTrieMap()
    """Item id to (identity of its segment, position)."""
    totals: tuple[int, int] = (0, 0)

    def __len__(self) -> int:
        return len(self.places) + len(self.tail)

    def __contains__(self, item_id: object) -> bool:
        return item_id in self.places or item_id in self.tail

    def put(self, docs: Sequence[Doc]) -> IndexView:
        """The view with these documents added or replaced, by item id."""
        view = self.drop([doc.item.id for doc in docs])
        totals = (
            view.totals[0] + sum(doc.lengths[0] for doc in docs),
            view.totals[1] + sum(doc.lengths[1] for doc in docs),
        )
        if len(view.tail) + len(docs) < _TAIL:
            tail = view.tail
            for doc in docs:
                tail = tail.insert(doc.item.id, doc)
            return replace(view, tail=tail, totals=totals)
        sealed = Segment.of(sorted([*view.tail.values(), *docs], key=lambda doc: doc.item.id))
        return replace(view, tail=HashTrieMap(), totals=totals)._with_segment(sealed)

    def drop(self, ids: Iterable[str]) -> IndexView:
        """The view without these items; unknown ids are ignored."""
        tail, places, parts = self.tail, self.places, {id(part.segment): part for part in self.parts}
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
            parts[key] = _Part(parts[key].segment, dead, int(dead.sum()))
        return replace(self, parts=tuple(parts.values()), tail=tail, places=places, totals=(own, context))

    def _with_segment(self, fresh: Segment) -> IndexView:
        parts = [*self.parts, _Part(fresh)]
        while len(parts) > 1 and 4 * _live(parts[-1]) >= _live(parts[-2]):
            newer, older = parts.pop(), parts.pop()
            parts.append(_Part(Segment.merged([(older.segment, older.dead), (newer.segment, newer.dead)])))
        places = self.places
        last = parts[-1].segment
        for at, item in enumerate(last.items):
            places = places.insert(item.id, (id(last), at))
        return replace(self, parts=tuple(parts), places=places)

    # -- looking up ------------------------------------------------------------------------------------------------

    def names(self) -> list[frozenset[str]]:
        """Speakers and subjects, a set for each part of the index; a set may hold names that only removed items bore."""
        tail = frozenset(name for doc in self.tail.values() for name in (doc.item.speaker, doc.item.subject) if name)
        return [*(part.segment.names for part in self.parts), *([tail] if tail else [])]

    def of_session(self, session_id: str) -> list[MemoryItem]:
        """The items of a session, in no particular order."""
        found = [doc.item for doc in self.tail.values() if doc.item.session_id == session_id]
        for part in self.parts:
            places: list[int] = part.segment.filed.get(("session_ids", session_id), _NOWHERE).tolist()
            for at in places:
                if part.dead is None or not part.dead[at]:
                    found.append(part.segment.items[at])
        return found

    def row_of(self, item_id: str, *, field: int = OWN) -> int:
        """Arena row of an item's text, `NO_ROW` when it has no vector or is not here."""
        if (doc := self.tail.get(item_id)) is not None:
            return doc.rows[field]
        place = self.places.get(item_id)
        if place is None:
            return NO_ROW
        segment = next(part.segment for part in self.parts if id(part.segment) == place[0])
        return int(segment.rows[field].rows[place[1]])

    # -- scoring ---------------------------------------------------------------------------------------------------

    def nearest(self, vector: Vector, *, k: int, field: int = OWN, where: Filter | None = None) -> list[Scored]:
        """The k items of highest cosine in a field, best first, ties by id. Raises `EmbeddingError` on a wrong width."""
        return Scoring(self, vector=vector).nearest(k=k, field=field, where=where)

    def lexical(
        self, terms: Sequence[int], *, k: int, field: int = OWN, where: Filter | None = None, k1: float, b: float
    ) -> list[Scored]:
        """The k items of highest BM25 score in a field for the query terms, best first, ties by id; only scores above 0."""
        return Scoring(self, terms=terms, k1=k1, b=b).lexical(k=k, field=field, where=where)


class Scoring:
    """One query over one view: what was worked out for one filter serves the next.

    The products of the vector with a segment's rows, and the BM25 scores of a field, do not depend on the filter.
    """

    __slots__ = ("_bm25", "_idfs", "_k1_b", "_kept", "_products", "_terms", "_vector", "_view")

    def __init__(
        self,
        view: IndexView,
        *,
        vector: Vector | None = None,
        terms: Sequence[int] = (),
        k1: float = 0.0,
        b: float = 0.0,
    ) -> None:
        """`vector` (D,) and `terms` are the query's; `k1` and `b` BM25's. Raises `EmbeddingError` on a wrong width."""
        if vector is not None and vector.shape != (view.arena.dim,):
            raise EmbeddingError(
                f"the query vector has shape {vector.shape}, this index holds vectors of width {view.arena.dim}"
            )
        self._view, self._vector, self._terms, self._k1_b = view, vector, terms, (k1, b)
        self._products: dict[tuple[int, int], Products] = {}
        self._bm25: dict[int, list[npt.NDArray[np.float64]]] = {}
        self._idfs: dict[int, tuple[list[float], float]] = {}
        self._kept: dict[int, tuple[Filter | None, dict[int, Ints | None]]] = {}

    def nearest(self, *, k: int, field: int = OWN, where: Filter | None = None) -> list[Scored]:
        """The k items of highest cosine in a field, best first, ties by id; [] without a vector."""
        vector, view = self._vector, self._view
        if vector is None:
            return []
        matrix = view.arena.matrix
        items: list[MemoryItem] = []
        found: list[int] = []
        for part in view.parts:
            segment, rows = part.segment, part.segment.rows[field]
            key = _only_key(where)
            products = self._products.get(rows.reach)
            if key is not None and products is None:
                at = segment.filed.get(key, _NOWHERE)
                scores = rows.filed_scores(matrix, vector, key, at)
                if part.dead is not None:
                    scores[part.dead[at]] = -np.inf
            else:
                at = self._positions(part, where)
                if at is None and products is None and rows.scans:
                    products = self._products[rows.reach] = rows.products(matrix, vector)
                scores = rows.scores(matrix, vector, at, products)
            best = _top(scores, segment.ranks if at is None else segment.ranks[at], k + _MARGIN)
            positions: Ints = best if at is None else at[best]
            items += [segment.items[i] for i in positions.tolist()]
            found += rows.rows[positions].tolist()
        for doc in view.tail.values():
            if doc.rows[field] != NO_ROW and (where is None or matches(doc.item, where)):
                items.append(doc.item)
                found.append(doc.rows[field])
        return _exact(items, matrix[np.asarray(found, dtype=np.int64)] if found else matrix[:0], vector, k)

    def lexical_most(self, *, unknown: int = 0, field: int = OWN) -> float:
        """The BM25 score that no document reaches: each term without end; `unknown` terms, in no document, count as the rarest."""
        idf = self._idf(field)[0] if len(self._view) and self._terms else []
        return (self._k1_b[0] + 1.0) * (sum(idf) + unknown * log(1.0 + (len(self._view) + 0.5) / 0.5))

    def lexical(self, *, k: int, field: int = OWN, where: Filter | None = None) -> list[Scored]:
        """The k items of highest BM25 score in a field, best first, ties by id; only scores above 0, [] without terms."""
        view = self._view
        if not len(view) or not self._terms:
            return []
        idf, mean = self._idf(field)
        if field not in self._bm25:
            self._bm25[field] = [self._bm25_of(part, field, idf, mean) for part in view.parts]
        best: list[Scored] = []
        for part, scores in zip(view.parts, self._bm25[field], strict=True):
            segment = part.segment
            at = self._positions(part, where) if where is not None else None
            chosen = scores if at is None else scores[at]
            top = _top(chosen, segment.ranks if at is None else segment.ranks[at], k, floor=0.0)
            positions: Ints = top if at is None else at[top]
            raw: list[float] = scores[positions].tolist()
            found = [segment.items[int(i)] for i in positions]
            best += zip(found, raw, strict=True)
        k1, b = self._k1_b
        weights = dict(zip(self._terms, idf, strict=True))
        for doc in view.tail.values():
            held = doc.terms[field]
            if held.keys().isdisjoint(weights):
                continue
            norm, score = k1 * (1.0 - b + b * doc.lengths[field] / mean), 0.0
            for term, weight in weights.items():
                if tf := held.get(term):
                    score += weight * tf * (k1 + 1.0) / (tf + norm)
            if score > 0 and (where is None or matches(doc.item, where)):
                best.append((doc.item, score))
        return ordered(best, k)

    def _positions(self, part: _Part, where: Filter | None) -> Ints | None:
        """`_kept`, worked out once for a filter: the arms of a search come with the same one."""
        _, known = self._kept.setdefault(id(where), (where, {}))
        if id(part) not in known:
            known[id(part)] = _kept(part, where)
        return known[id(part)]

    def _idf(self, field: int) -> tuple[list[float], float]:
        """Weight of each term, from exact counts over live documents, and the mean length of a document."""
        known = self._idfs.get(field)
        if known is not None:
            return known
        view, count = self._view, len(self._view)
        found = dict.fromkeys(self._terms, 0)
        for doc in view.tail.values():
            for term in found.keys() & doc.terms[field].keys():
                found[term] += 1
        idf: list[float] = []
        for term in self._terms:
            df = found[term] + sum(_frequency(part, field, term) for part in view.parts)
            idf.append(log(1.0 + (count - df + 0.5) / (df + 0.5)))
        self._idfs[field] = idf, max(view.totals[field] / count, 1e-9)
        return self._idfs[field]

    def _bm25_of(self, part: _Part, field: int, idf: Sequence[float], mean: float) -> npt.NDArray[np.float64]:
        """Scores (n,) of a segment's documents; dead ones have 0."""
        k1, b = self._k1_b
        scores = np.zeros(len(part.segment))
        postings = part.segment.postings[field]
        norms = postings.norms(k1, b, mean)
        for weight, term in zip(idf, self._terms, strict=True):
            docs, tfs = postings.of(term)
            if len(docs):
                scores[docs] += (weight * (k1 + 1.0)) * tfs / (tfs + norms[docs])
        if part.dead is not None:
            scores[part.dead] = 0.0
        return scores


def _live(part: _Part) -> int:
    return len(part.segment) - part.dead_count


def _frequency(part: _Part, field: int, term: int) -> int:
    """How many live documents of a part hold a term."""
    docs, _ = part.segment.postings[field].of(term)
    return len(docs) if part.dead is None or not len(docs) else int((~part.dead[docs]).sum())


def _kept(part: _Part, where: Filter | None) -> Ints | None:
    """Positions of live documents that pass the filter; None means all of an undamaged segment."""
    if where is None or where.empty:
        return None if part.dead is None else np.flatnonzero(~part.dead).astype(np.int32)
    segment = part.segment
    at: Ints | None = None
    for name in _LISTED:
        wanted: frozenset[str] = getattr(where, name)
        if wanted:
            lists = [segment.filed[key] for value in wanted if (key := (name, value)) in segment.filed]
            some = np.unique(np.concatenate(lists)) if len(lists) > 1 else lists[0] if lists else np.zeros(0, np.int32)
            at = some if at is None else np.intersect1d(at, some, assume_unique=True)
    masks: list[Mask] = [] if part.dead is None else [~part.dead]
    if where.valid is not None:
        lo, hi = _bounds(where.valid)
        masks.append((segment.valid[:, 0] < hi) & (segment.valid[:, 1] > lo))
    if where.said is not None:
        lo, hi = _bounds(where.said)
        masks.append((segment.said >= lo) & (segment.said < hi))
    if at is None:
        at = (
            np.flatnonzero(np.logical_and.reduce(masks)).astype(np.int32)
            if masks
            else np.arange(len(segment), dtype=np.int32)
        )
    else:
        for mask in masks:
            at = at[mask[at]]
    if where.ids:
        at = at[np.fromiter((segment.items[int(i)].id in where.ids for i in at), bool, len(at))]
    return at


def _only_key(where: Filter | None) -> tuple[str, str] | None:
    """The single (field, value) a filter asks for, when it asks for nothing else."""
    if where is None or where.ids or where.valid is not None or where.said is not None:
        return None
    wanted = [(name, value) for name in _LISTED for value in getattr(where, name)]
    return wanted[0] if len(wanted) == 1 else None


def _bounds(span: TimeSpan) -> tuple[float, float]:
    return (
        -np.inf if span.start is None else span.start.timestamp(),
        np.inf if span.end is None else span.end.timestamp(),
    )


def matches(item: MemoryItem, where: Filter) -> bool:
    """Whether an item passes a filter."""
    keys = filter_keys(item)
    for name in _LISTED:
        wanted: frozenset[str] = getattr(where, name)
        if wanted and not any(field == name and value in wanted for field, value in keys):
            return False
    if where.ids and item.id not in where.ids:
        return False
    if where.valid is not None and (item.valid is None or not item.valid.overlaps(where.valid)):
        return False
    return where.said is None or (item.said_at is not None and where.said.contains(item.said_at))


def _top(scores: npt.NDArray[np.floating], ranks: Ints, k: int, floor: float = -np.inf) -> Ints:
    """Positions of the k highest scores above the floor; among equals at the cut, those of the lowest rank."""
    if len(scores) <= k:
        return np.flatnonzero(scores > floor).astype(np.int32)
    cut = np.partition(scores, len(scores) - k)[len(scores) - k]
    above = np.flatnonzero(scores > max(cut, floor))
    if not cut > floor:
        return above.astype(np.int32)
    tied = np.flatnonzero(scores == cut)
    room = k - len(above)
    if len(tied) > room:
        tied = tied[np.argpartition(ranks[tied], room - 1)[:room]]
    return np.concatenate([above, tied]).astype(np.int32)


def _exact(items: Sequence[MemoryItem], rows: Matrix, vector: Vector, k: int) -> list[Scored]:
    if not items:
        return []
    scores: list[float] = np.vecdot(rows.astype(np.float64), vector.astype(np.float64)).tolist()
    return ordered(list(zip(items, scores, strict=True)), k)


def ordered(scored: Sequence[Scored], k: int) -> list[Scored]:
    """The k best of scored items, scores rounded to six decimals, ties by id."""
    rounded = sorted([(-round(score, _DECIMALS), item.id, item) for item, score in scored])
    return [(item, -score) for score, _, item in rounded[:k]]


class NumpyIndex:
    """`VectorIndex` in memory: exact cosine over all rows that pass the filter."""

    def __init__(self, dim: int) -> None:
        self._view = IndexView(Arena(dim))
        self._serial = 0

    async def upsert(self, rows: Sequence[IndexRow]) -> None:
        """Write rows; a row of the same item replaces the older one."""
        docs: list[Doc] = []
        for row in rows:
            if row.vector.shape != (self._view.arena.dim,):
                raise EmbeddingError(
                    f"item {row.item.id} has a vector of shape {row.vector.shape}, "
                    f"this index holds vectors of width {self._view.arena.dim}; "
                    "embed the store again with `memagent reembed`"
                )
            self._serial += 1
            key = f"{row.item.id}\x1f{self._serial}"
            self._view.arena.put([key], row.vector[None, :])
            docs.append(make_doc(row.item, (key, ""), ((), ()), self._view.arena))
        self._view = self._view.put(list({doc.item.id: doc for doc in docs}.values()))

    async def remove(self, ids: Sequence[str]) -> None:
        """Take items out; unknown ids are ignored."""
        self._view = self._view.drop(ids)

    async def search(self, vector: Vector, *, k: int, where: Filter | None = None) -> list[Hit]:
        """The k best by cosine, ties by id."""
        return cosine_hits(self._view.nearest(vector, k=k, where=where))


def cosine_hits(scored: Sequence[Scored]) -> list[Hit]:
    """Hits of a single dense search, with rank and score in `why`."""
    return [
        Hit(id=item.id, score=score, item=item, why=Relevance(arms={"dense": score}, ranks={"dense": rank}))
        for rank, (item, score) in enumerate(scored, 1)
    ]
