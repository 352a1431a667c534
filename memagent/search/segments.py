"""Immutable columnar blocks of indexed items, in the manner of a log-structured index.

Legend: n documents of a segment, D dimensions, m distinct terms. A document is one item
version with two fields: `own` (its text) and `context` (its source turns with their
neighbours). Vectors are rows of a shared, append-only arena; a segment holds row
numbers, so merging segments and forking banks copy no vector. Equal texts share a row,
whichever fork wrote them.

A bank and all its forks share one arena of vectors and one vocabulary; both only grow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import compress
from typing import Final, NamedTuple

import numpy as np

from memagent.core.records import MemoryItem, TimeSpan
from memagent.protocols import Matrix, Vector
from memagent.state.validation import filter_keys

NO_ROW: Final = -1
"""Row number of a text that could not be embedded."""


class Arena:
    """Vectors (rows, D) and the vocabulary shared by a bank and all its forks; both only grow."""

    __slots__ = ("_count", "_matrix", "_rows", "_terms", "dim")

    def __init__(self, dim: int) -> None:
        self.dim = dim
        self._matrix: Matrix = np.zeros((0, dim), dtype=np.float32)
        self._count = 0
        self._rows: dict[str, int] = {}
        self._terms: dict[str, int] = {}

    def __len__(self) -> int:
        return self._count

    @property
    def matrix(self) -> Matrix:
        """All rows so far (rows, D)."""
        return self._matrix[: self._count]

    def row(self, text: str) -> int:
        """Return the row of a text, `NO_ROW` when it has none yet."""
        return self._rows.get(text, NO_ROW)

    def put(self, texts: Sequence[str], vectors: Matrix) -> None:
        """Append vectors (N, D) for those texts that have no row yet."""
        need = self._count + len(texts)
        if need > len(self._matrix):
            grown = np.zeros((max(need, 2 * len(self._matrix), 64), self.dim), dtype=np.float32)
            grown[: self._count] = self._matrix[: self._count]
            self._matrix = grown
        for text, vector in zip(texts, vectors, strict=True):
            if self.row(text) == NO_ROW:
                self._matrix[self._count] = vector
                self._rows[text] = self._count
                self._count += 1

    def take(self, texts: Sequence[str], other: Arena) -> list[str]:
        """Copy the rows that another arena has of these texts; return the texts still lacking."""
        known = [text for text in texts if other.row(text) != NO_ROW]
        self.put(known, other.matrix[[other.row(text) for text in known]])
        return [text for text in texts if self.row(text) == NO_ROW]

    def texts(self) -> dict[str, int]:
        """Return a copy of the texts put in, with their rows."""
        return self._rows.copy()

    def forget(self, texts: Iterable[str]) -> None:
        """Forget the words of texts; documents that have their rows keep them."""
        for text in texts:
            self._rows.pop(text, None)

    def term(self, word: str) -> int:
        """Return the number of a term; a new term gets the next one."""
        return self._terms.setdefault(word, len(self._terms))

    def words(self) -> list[str]:
        """Return the terms in the order of their numbers."""
        return list(self._terms)

    def known_terms(self, words: Iterable[str]) -> dict[str, int]:
        """Return the numbers of those words that any document has used, in their order."""
        return {word: number for word in words if (number := self._terms.get(word)) is not None}


Ints = np.typing.NDArray[np.int32]
Floats = np.typing.NDArray[np.float64]
Mask = np.typing.NDArray[np.bool_]
Products = np.typing.NDArray[np.float32]
Gathered = tuple[Ints, Floats, np.typing.NDArray[np.int64]]
"""The documents of q terms, term by term; the frequencies; the documents of each term (q,)."""
Times = tuple[Floats, Floats]
"""Times of saying (n,) and of holding (n, 2), in epoch seconds; NaN where unknown."""
OWN: Final = 0
CONTEXT: Final = 1
FIELDS: Final = (OWN, CONTEXT)
_PIECE: Final = 256


def epoch_bounds(span: TimeSpan) -> tuple[float, float]:
    """Return the bounds of a span in epoch seconds; infinite where it is open."""
    return (
        -np.inf if span.start is None else span.start.timestamp(),
        np.inf if span.end is None else span.end.timestamp(),
    )


class Doc(NamedTuple):
    """One item as the index sees it: arena rows and term frequencies of both fields.

    A row is `NO_ROW` where the embedder failed.
    """

    item: MemoryItem
    rows: tuple[int, int]
    terms: tuple[dict[int, int], dict[int, int]]
    lengths: tuple[int, int]


def make_doc(
    item: MemoryItem,
    texts: tuple[str, str],
    words: tuple[Sequence[str], Sequence[str]],
    arena: Arena,
) -> Doc:
    """Return the index document of an item whose texts the arena has, if they were embedded."""
    terms: tuple[dict[int, int], dict[int, int]] = ({}, {})
    for counts, field in zip(terms, words, strict=True):
        for word, count in Counter(field).items():
            counts[arena.term(word)] = count
    rows = arena.row(texts[OWN]), arena.row(texts[CONTEXT])
    return Doc(item, rows, terms, lengths=(len(words[OWN]), len(words[CONTEXT])))


def ranks_of(ids: Sequence[str]) -> Ints:
    """Return the place of each id (n,) in their order; equal ids keep their own order."""
    ranks = np.empty(len(ids), np.int32)
    ranks[sorted(range(len(ids)), key=ids.__getitem__)] = np.arange(len(ids), dtype=np.int32)
    return ranks


class Postings:
    """Documents by term, compressed.

    `docs[starts[i]:starts[i+1]]` hold `terms[i]`, `tfs` times each; `lengths` (n,) are
    in tokens.
    """

    __slots__ = ("_norms", "docs", "lengths", "starts", "terms", "tfs")

    def __init__(
        self,
        terms: Ints,
        starts: np.typing.NDArray[np.int64],
        docs: Ints,
        tfs: Floats,
        lengths: Floats,
    ) -> None:
        self.terms, self.starts, self.docs, self.tfs = terms, starts, docs, tfs
        self.lengths = lengths
        self._norms: tuple[tuple[float, float, float], Floats] | None = None

    @classmethod
    def compressed(cls, terms: Ints, docs: Ints, tfs: Floats, lengths: Floats) -> Postings:
        """Compress triplets (term, document, frequency) that are ordered by document."""
        order = np.argsort(terms, kind="stable")
        each, starts = np.unique(terms[order], return_index=True)
        ends = np.append(starts, len(terms)).astype(np.int64)
        return cls(each, ends, docs[order], tfs[order], lengths)

    def norms(self, k1: float, b: float, mean: float) -> Floats:
        """Return BM25's length normalisation (n,), kept until the mean length changes."""
        key = (k1, b, mean)
        if self._norms is None or self._norms[0] != key:
            self._norms = (key, k1 * (1.0 - b + b * self.lengths / mean))
        return self._norms[1]

    def gathered(self, terms: Ints) -> Gathered:
        """Return the documents of the terms (q,)."""
        if not len(self.terms):
            return self.docs[:0], self.tfs[:0], np.zeros(len(terms), np.int64)
        at = np.minimum(self.terms.searchsorted(terms), len(self.terms) - 1)
        starts = self.starts[at]
        counts = np.where(self.terms[at] == terms, self.starts[at + 1] - starts, 0)
        docs: list[Ints] = []
        tfs: list[Floats] = []
        for start, count in zip(starts.tolist(), counts.tolist(), strict=True):
            if count:
                docs.append(self.docs[start : start + count])
                tfs.append(self.tfs[start : start + count])
        if len(docs) == 1:
            return docs[0], tfs[0], counts
        none = self.docs[:0], self.tfs[:0]
        return np.concatenate([none[0], *docs]), np.concatenate([none[1], *tfs]), counts

    def triplets(self) -> tuple[Ints, Ints, Floats]:
        """Return (term, document, frequency) of every posting."""
        return np.repeat(self.terms, np.diff(self.starts)).astype(np.int32), self.docs, self.tfs


class Rows:
    """Arena rows (n,) of one field, with the fastest exact way to score them.

    Gathering scattered rows costs several times the product with them, so rows are
    gathered in pieces that stay in the processor's cache, and those of a filter that
    comes again are kept as a block. Blocks never hold more rows than the field itself.
    `vecdot` and not `@`: on a busy machine the threads that a matrix product starts
    wait for each other, up to twenty times its own time.
    """

    __slots__ = ("_blocks", "_room", "complete", "reach", "rows", "scans")

    def __init__(self, rows: Ints, *, beside: Ints | None = None) -> None:
        """Take the rows of one field; `beside` are the other field's of the same documents.

        Where both lie close together they are scanned as one.
        """
        self.rows = rows
        self.complete = complete = bool(len(rows)) and bool((rows != NO_ROW).all())
        """Whether every document has a vector."""
        first, last = (int(rows.min()), int(rows.max()) + 1) if complete else (0, 0)
        if complete and beside is not None and bool((beside != NO_ROW).all()):
            together = min(first, int(beside.min())), max(last, int(beside.max()) + 1)
            if last - first > len(rows) and together[1] - together[0] <= 2 * len(rows) + _PIECE:
                first, last = together
        self.reach = (first, last)
        """First and last + 1 of the arena's rows that a scan goes through."""
        self.scans = complete and last - first <= 2 * len(rows) + _PIECE
        self._blocks: dict[tuple[str, str], Matrix] = {}
        self._room = len(rows)

    def products(self, matrix: Matrix, vector: Vector) -> Products:
        """Return the products of the vector (D,) with every row in reach."""
        return np.vecdot(matrix[self.reach[0] : self.reach[1]], vector)

    def products_of(self, matrix: Matrix, vectors: Matrix) -> Matrix:
        """Return the products (F, r) of many vectors (F, D) with every row in reach.

        The rows go through the processor's cache once for all vectors.
        """
        first, last = self.reach
        products = np.empty((len(vectors), last - first), dtype=np.float32)
        for start in range(first, last, _PIECE):
            some = matrix[start : min(start + _PIECE, last)]
            at = slice(start - first, start - first + len(some))
            np.vecdot(some[None], vectors[:, None], out=products[:, at])
        return products

    def scores(
        self, matrix: Matrix, vector: Vector, at: Ints | None, products: Products | None = None
    ) -> Products:
        """Return cosines with the vector (D,) of all n documents, or of those `at` positions.

        Missing rows score -inf. `products` are those of `self.products`, where known.
        """
        rows = self.rows if at is None else self.rows[at]
        if products is not None and self.scans:
            return products[rows - self.reach[0]]
        if not len(matrix):
            return np.full(len(rows), -np.inf, dtype=np.float32)
        scores = np.empty(len(rows), dtype=np.float32)
        piece = np.empty((min(_PIECE, len(rows)), matrix.shape[1]), dtype=np.float32)
        for start in range(0, len(rows), _PIECE):
            some = rows[start : start + _PIECE]
            gathered = piece[: len(some)]
            np.take(matrix, some, axis=0, out=gathered, mode="clip")
            np.vecdot(gathered, vector, out=scores[start : start + len(some)])
        scores[rows == NO_ROW] = -np.inf
        return scores

    def filed_scores(
        self, matrix: Matrix, vector: Vector, key: tuple[str, str], at: Ints
    ) -> Products:
        """Return the scores of the positions filed under a key.

        A block is kept for the key where there is room.
        """
        block = self._blocks.get(key)
        if block is None:
            rows = self.rows[at]
            if len(rows) > self._room or not len(matrix) or (rows == NO_ROW).any():
                return self.scores(matrix, vector, at)
            block = self._blocks[key] = matrix[rows]
            self._room -= len(rows)
        return np.vecdot(block, vector)


class Segment:
    """n documents, immutable: items, rows and postings per field, filter lists, times."""

    __slots__ = (
        "columns", "everything", "filed", "items", "names", "postings", "ranks", "rows", "said",
        "same_fields", "valid",
    )  # fmt: skip

    def __init__(
        self,
        items: Sequence[MemoryItem],
        rows: tuple[Ints, Ints],
        postings: tuple[Postings, Postings],
        filed: Mapping[tuple[str, str], Ints],
        times: Times,
        ranks: Ints | None = None,
    ) -> None:
        """Take the columns of n documents.

        `filed` leads from a field and a value to the positions that have it, ascending.
        """
        self.items = items
        self.same_fields = postings[OWN] is postings[CONTEXT]
        """Whether every document has one text only, so that both fields score the same."""
        own = Rows(rows[OWN], beside=None if self.same_fields else rows[CONTEXT])
        self.rows = (own, own if self.same_fields else Rows(rows[CONTEXT], beside=rows[OWN]))
        self.postings = postings
        self.everything = np.arange(len(items), dtype=np.int32)
        """The position of every document (n,)."""
        self.ranks = ranks_of([item.id for item in items]) if ranks is None else ranks
        """Place of each document in the order of ids (n,)."""
        self.filed = filed
        self.said, self.valid = times
        self.names = frozenset(value for field, value in filed if field in ("speakers", "subjects"))
        """Speakers and subjects of the documents."""
        self.columns: dict[Callable[[MemoryItem], float], Floats] = {}
        """Those columns that were computed; see `column`."""

    def __len__(self) -> int:
        return len(self.items)

    def column(self, rule: Callable[[MemoryItem], float]) -> Floats:
        """Return a number for every document (n,) by a pure rule; each rule is computed once."""
        if rule not in self.columns:
            self.columns[rule] = np.fromiter(map(rule, self.items), np.float64, len(self.items))
        return self.columns[rule]

    @classmethod
    def of(cls, docs: Sequence[Doc]) -> Segment:
        """Return a segment of these documents, which come in the order of their ids."""
        said, valid = np.full(len(docs), np.nan), np.full((len(docs), 2), np.nan)
        filed: dict[tuple[str, str], list[int]] = {}
        one_text = True
        for at, (item, rows, terms, _) in enumerate(docs):
            one_text = one_text and terms[OWN] == terms[CONTEXT] and rows[OWN] == rows[CONTEXT]
            for key in filter_keys(item):
                filed.setdefault(key, []).append(at)
            if item.said_at is not None:
                said[at] = item.said_at.timestamp()
            if item.valid is not None:
                valid[at, 0], valid[at, 1] = epoch_bounds(item.valid)
        own_rows = np.array([doc.rows[OWN] for doc in docs], np.int32)
        context_rows = np.array([doc.rows[CONTEXT] for doc in docs], np.int32)
        own = _postings_of(docs, OWN)
        return cls(
            [doc.item for doc in docs],
            (own_rows, context_rows),
            (own, own if one_text else _postings_of(docs, CONTEXT)),
            {key: np.asarray(places, np.int32) for key, places in filed.items()},
            (said, valid),
            np.arange(len(docs), dtype=np.int32),
        )

    @classmethod
    def merged(cls, parts: Sequence[tuple[Segment, Mask | None]]) -> Segment:
        """Return one segment of the live documents of several, in order.

        The second of each pair marks dead documents.
        """
        keeps = [np.ones(len(part), bool) if dead is None else ~dead for part, dead in parts]
        kept = [(part, keep) for (part, _), keep in zip(parts, keeps, strict=True)]
        items = [item for part, keep in kept for item in compress(part.items, keep.tolist())]
        rows = [
            np.concatenate([part.rows[field].rows[keep] for part, keep in kept]) for field in FIELDS
        ]
        own = merged_postings(kept, OWN)
        postings = (
            own if all(part.same_fields for part, _ in parts) else merged_postings(kept, CONTEXT)
        )
        times = (
            np.concatenate([part.said[keep] for part, keep in kept]),
            np.concatenate([part.valid[keep] for part, keep in kept]),
        )
        return cls(items, (rows[OWN], rows[CONTEXT]), (own, postings), merged_filed(kept), times)


def _postings_of(docs: Sequence[Doc], field: int) -> Postings:
    terms: list[int] = []
    tfs: list[int] = []
    for doc in docs:
        terms += doc.terms[field]
        tfs += doc.terms[field].values()
    counts = [len(doc.terms[field]) for doc in docs]
    lengths = np.array([doc.lengths[field] for doc in docs], np.float64)
    places = np.arange(len(docs), dtype=np.int32).repeat(counts)
    return Postings.compressed(
        np.array(terms, np.int32), places, np.array(tfs, np.float64), lengths
    )


def merged_filed(kept: Sequence[tuple[Segment, Mask]]) -> dict[tuple[str, str], Ints]:
    """Return the filter lists of the kept documents of several segments, in order."""
    found: dict[tuple[str, str], list[Ints]] = {}
    offset = 0
    for part, keep in kept:
        alive = int(keep.sum())
        moved = None if alive == len(keep) else np.cumsum(keep, dtype=np.int32) - np.int32(1)
        for key, at in part.filed.items():
            left = at if moved is None else moved[at[keep[at]]]
            if len(left):
                found.setdefault(key, []).append(left + np.int32(offset))
        offset += alive
    return {key: some[0] if len(some) == 1 else np.concatenate(some) for key, some in found.items()}


def merged_postings(kept: Sequence[tuple[Segment, Mask]], field: int) -> Postings:
    """Return a field's postings of the kept documents of several segments, in order."""
    columns: list[tuple[Ints, Ints, Floats]] = []
    offset = 0
    for part, keep in kept:
        terms, docs, tfs = part.postings[field].triplets()
        moved = np.cumsum(keep, dtype=np.int32) - 1 + np.int32(offset)
        alive = keep[docs]
        columns.append((terms[alive], moved[docs[alive]], tfs[alive]))
        offset += int(keep.sum())
    lengths = np.concatenate([part.postings[field].lengths[keep] for part, keep in kept])
    terms = np.concatenate([column[0] for column in columns])
    docs = np.concatenate([column[1] for column in columns])
    tfs = np.concatenate([column[2] for column in columns])
    return Postings.compressed(terms, docs, tfs, lengths)
