"""The search view in a checkpoint: one segment with its arrays, the vectors, the vocabulary.

Legend: n documents, D dimensions, m terms. Documents refer to the table of items, so
an item is decoded when it is a hit. Vectors lie in the order of the documents, own
texts first, and texts are known by a digest of 16 bytes. Arrays are used where they lie
in the file that was read; what is added later goes to ordinary memory, in segments above.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from memagent.checkpoints.file import CheckpointFile, CheckpointUnusable, SectionWriter
from memagent.checkpoints.tables import (
    ABSENT,
    KeyTable,
    LayeredMap,
    Pause,
    RecordTable,
    check_fit,
    encoded,
    put_keys,
    put_records,
)
from memagent.core.records import MemoryItem
from memagent.protocols import Matrix
from memagent.search.fusion import ITEM_RULES
from memagent.search.index import IndexView, Part
from memagent.search.segments import (
    FIELDS,
    NO_ROW,
    OWN,
    Arena,
    Ints,
    Mask,
    Postings,
    Segment,
    merged_filed,
    merged_postings,
    ranks_of,
)

_DIGEST_BYTES: Final = 16
_BETWEEN: Final = "\x1f"
_NAMES: Final = ("own", "context")
# The arrays of postings, each a section, with the type of its numbers.
_POSTINGS: Final = {"terms": "i4", "starts": "i8", "docs": "i4", "tfs": "u2", "lengths": "f8"}


def _text_digest(text: str) -> bytes:
    return hashlib.blake2b(encoded(text), digest_size=_DIGEST_BYTES).digest()


# -- reading ---------------------------------------------------------------------------


class StoredArena(Arena):
    """An arena whose first rows and terms are those of a checkpoint."""

    __slots__ = ("_digests", "_next_term", "_stored_terms")

    def __init__(self, file: CheckpointFile, dim: int) -> None:
        super().__init__(dim)
        vectors = file.numbers("vectors", "f4")
        if dim <= 0 or len(vectors) % dim:
            raise CheckpointUnusable(f"its vectors are not {dim} wide")
        self._matrix = vectors.reshape(-1, dim)
        self._count = len(self._matrix)
        self._digests = KeyTable(file, "texts_embedded")
        self._stored_terms = KeyTable(file, "terms")
        self._next_term = len(self._stored_terms)
        if len(self._digests) != self._count:
            raise CheckpointUnusable("its vectors do not fit its texts")

    def row(self, text: str) -> int:
        """Return the row of a text, `NO_ROW` when it has none yet."""
        row = self._rows.get(text, NO_ROW)
        return row if row != NO_ROW else self._digests.find_bytes(_text_digest(text))

    def term(self, word: str) -> int:
        """Return the number of a term; a new term gets the next one."""
        number = self._terms.get(word)
        if number is None:
            number = self._stored_terms.find(word)
            if number == ABSENT:
                number = self._next_term
                self._next_term += 1
            self._terms[word] = number
        return number

    def known_terms(self, words: Iterable[str]) -> dict[str, int]:
        """Return the numbers of those words that any document has used, in their order."""
        terms, stored = self._terms, self._stored_terms
        numbers = {word: terms[word] if word in terms else stored.find(word) for word in words}
        return {word: number for word, number in numbers.items() if number != ABSENT}

    def words(self) -> list[str]:
        """Return the terms in the order of their numbers."""
        stored = self._stored_terms
        new = [word for word, number in list(self._terms.items()) if number >= len(stored)]
        return [*(stored.key(at) for at in range(len(stored))), *new]

    def digests(self) -> dict[int, bytes]:
        """Return the digest of every row's text."""
        return {at: self._digests.raw_key(at) for at in range(len(self._digests))}


class _StoredItems(Sequence[MemoryItem]):
    """The documents' items, decoded when touched."""

    __slots__ = ("_at", "table")

    def __init__(self, table: RecordTable[MemoryItem], at: Ints) -> None:
        self.table = table
        self._at = at

    def __len__(self) -> int:
        return len(self._at)

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return [self.table.value(place) for place in self._at[at].tolist()]
        return self.table.value(int(self._at[at]))

    def __iter__(self) -> Iterator[MemoryItem]:
        return map(self.table.value, self._at.tolist())

    def keys(self) -> list[bytes]:
        """Return the items' ids."""
        return [self.table.raw_key(place) for place in self._at.tolist()]


class _StoredFiled(Mapping[tuple[str, str], Ints]):
    """Filter lists by field and value, read when asked for."""

    __slots__ = ("_table",)

    def __init__(self, table: RecordTable[Ints]) -> None:
        self._table = table

    def __len__(self) -> int:
        return len(self._table)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        keys = (key.partition(_BETWEEN) for key, _ in self._table.entries())
        return ((field, value) for field, _, value in keys)

    def __getitem__(self, key: tuple[str, str]) -> Ints:
        at = self._table.find(_BETWEEN.join(key))
        if at == ABSENT:
            raise KeyError(key)
        return self._table.value(at)


def _read_segment(file: CheckpointFile, items: _StoredItems) -> Segment:
    """Return the documents of a checkpoint, none of their items decoded."""
    postings: list[Postings] = []
    for name in _NAMES[: 1 if file.facts["one_text"] else 2]:
        arrays = [file.numbers(f"{name}.{part}", kind) for part, kind in _POSTINGS.items()]
        postings.append(Postings(*arrays))
        terms, starts, docs = arrays[:3]
        check_fit(len(starts) == len(terms) + 1 and starts[-1] == len(docs), name)
    own, context = (file.numbers(f"{name}.rows", "i4") for name in _NAMES)
    segment = Segment(
        items,
        (own, context),
        (postings[OWN], postings[-1]),
        _StoredFiled(RecordTable(file, "filed", partial(np.frombuffer, dtype="<i4"))),
        (file.numbers("said", "f8"), file.numbers("valid", "f8").reshape(-1, 2)),
        file.numbers("ranks", "i4"),
    )
    for name, rule in ITEM_RULES.items():
        segment.columns[rule] = file.numbers(f"column.{name}", "f8")
    columns = (own, context, segment.ranks, segment.said, segment.valid, *segment.columns.values())
    if {len(column) for column in columns} != {len(items)}:
        raise CheckpointUnusable("the columns of its documents differ in length")
    return segment


class _Places:
    """Item ids and the places of their documents."""

    __slots__ = ("_at", "_count", "_items", "_of", "_segment")

    def __init__(self, items: RecordTable[MemoryItem], at: Ints, segment: Segment) -> None:
        self._items, self._segment = items, id(segment)
        self._at, self._count = at, len(at)
        self._of = np.full(len(items), ABSENT, np.int32)
        self._of[at] = np.arange(len(at), dtype=np.int32)

    def __len__(self) -> int:
        return self._count

    def find(self, key: str) -> int:
        at = self._items.find(key)
        return ABSENT if at == ABSENT else int(self._of[at])

    def value(self, at: int) -> tuple[int, int]:
        return self._segment, at

    def entries(self) -> Iterator[tuple[str, int]]:
        return ((self._items.key(item), at) for at, item in enumerate(self._at.tolist()))


def read_view(file: CheckpointFile, items: Any, dim: int) -> IndexView:
    """Return the view of a checkpoint over its map of items."""
    arena, at = StoredArena(file, dim), file.numbers("documents", "i4")
    if not len(at):
        return IndexView(arena)
    table: RecordTable[MemoryItem] = items.base
    if at.min() < 0 or at.max() >= len(table):
        raise CheckpointUnusable("its documents do not fit its items")
    segment = _read_segment(file, _StoredItems(table, at))
    if max(int(rows.rows.max()) for rows in segment.rows) >= len(arena):
        raise CheckpointUnusable("its documents do not fit its vectors")
    places: Any = LayeredMap(_Places(table, at, segment))
    lengths = [int(postings.lengths.sum()) for postings in segment.postings]
    return IndexView(arena, (Part(segment),), places=places, totals=(lengths[0], lengths[1]))


# -- writing ---------------------------------------------------------------------------


def put_view(
    writer: SectionWriter,
    view: IndexView,
    *,
    places: Mapping[bytes, int],
    stale: Container[bytes],
    pause: Pause,
) -> tuple[bool, list[bytes]]:
    """Write a view whose documents' items have these places in their table.

    A document without a vector, whose words were erased meanwhile, or whose item is
    `stale`, is left out. Returns whether every document has one text only, and the ids
    left out.
    """
    arena = view.arena
    texts = {row: text for text, row in arena.texts().items()}
    digests = arena.digests() if isinstance(arena, StoredArena) else {}
    named = np.array([*digests, *texts], np.int32)
    kept: list[tuple[Segment, Mask]] = []
    ids: list[bytes] = []
    left_out: list[bytes] = []
    for part in view.pieces.parts:
        segment, items = part.segment, part.segment.items
        stored = isinstance(items, _StoredItems)
        keys = items.keys() if stored else [encoded(item.id) for item in items]
        keep = np.ones(len(segment), bool) if part.dead is None else ~part.dead
        good = keep & np.fromiter((key not in stale and key in places for key in keys), bool)
        for field in FIELDS:
            good &= np.isin(segment.rows[field].rows, named)
        left_out += [keys[at] for at in np.flatnonzero(keep & ~good).tolist()]
        if good.any():
            ids += [keys[at] for at in np.flatnonzero(good).tolist()]
            kept.append((segment, good))
        pause()
    writer.put_array("documents", np.fromiter((places[key] for key in ids), np.int32, len(ids)))
    one_text = all(segment.same_fields for segment, _ in kept)
    rows = [_joined(segment.rows[field].rows[keep] for segment, keep in kept) for field in FIELDS]
    used: list[Ints] = []
    if ids:
        _put_columns(writer, kept, ids)
        for field in FIELDS[: 1 if one_text else 2]:
            pause()
            whole = len(kept) == 1 and kept[0][1].all()
            postings = kept[0][0].postings[field] if whole else merged_postings(kept, field)
            used.append(postings.terms)
            for name, kind in _POSTINGS.items():
                array: np.typing.NDArray[Any] = getattr(postings, name)
                writer.put_array(f"{_NAMES[field]}.{name}", array.astype(kind))
    wanted = texts.keys() & set(_joined(rows).tolist())
    digests |= {row: _text_digest(texts[row]) for row in wanted}
    _put_arena(writer, arena, rows, _joined(used), digests)
    return one_text, left_out


def _joined(arrays: Iterable[np.typing.NDArray[Any]]) -> np.typing.NDArray[Any]:
    some = list(arrays)
    return np.concatenate(some) if some else np.zeros(0, np.int32)


def _put_columns(
    writer: SectionWriter, kept: Sequence[tuple[Segment, Mask]], ids: Sequence[bytes]
) -> None:
    writer.put_array("ranks", ranks_of([key.decode("utf-8", "surrogatepass") for key in ids]))
    writer.put_array("said", _joined(segment.said[keep] for segment, keep in kept))
    writer.put_array("valid", _joined(segment.valid[keep] for segment, keep in kept))
    for name, rule in ITEM_RULES.items():
        column = _joined(segment.column(rule)[keep] for segment, keep in kept)
        writer.put_array(f"column.{name}", column)
    lists = ((key, at.astype("<i4").tobytes()) for key, at in merged_filed(kept).items())
    put_records(writer, "filed", [(encoded(_BETWEEN.join(key)), raw) for key, raw in lists])


def _put_arena(
    writer: SectionWriter,
    arena: Arena,
    rows: Sequence[Ints],
    terms: Ints,
    digests: Mapping[int, bytes],
) -> None:
    """Write the rows in use, in the order of the documents, and each field's new numbers.

    `digests` has that of each row's text. Only the words of these terms are written;
    others may have been erased.
    """
    used, first = np.unique(np.concatenate(rows), return_index=True)
    order = used[np.argsort(first, kind="stable")]
    moved = np.zeros(int(used.max(initial=-1)) + 1, np.int32)
    moved[order] = np.arange(len(order), dtype=np.int32)
    for name, field in zip(_NAMES, rows, strict=True):
        writer.put_array(f"{name}.rows", moved[field].astype(np.int32))
    put_keys(writer, "texts_embedded", [digests[row] for row in order.tolist()])
    in_use = set(terms.tolist())
    words = enumerate(arena.words())
    kept = [word if number in in_use else f"\x00{number}" for number, word in words]
    put_keys(writer, "terms", [encoded(word) for word in kept])
    matrix: Matrix = arena.matrix
    pieces = (matrix[order[at : at + 1024]] for at in range(0, len(order), 1024))
    writer.put("vectors", (piece.reshape(-1).view(np.uint8).data for piece in pieces))
