"""The exact search index: an immutable view over shared segments.

A view is a value: a few segments, marks for their dead documents, and a short tail of
documents not yet sealed. Adding, replacing and removing give a new view that shares
everything else, so a fork costs nothing and is searchable at once. Sealed segments
merge when the newer is at least a quarter of the older, which keeps their number
logarithmic. A search sees the tail as one more segment, made when the view is first
searched; and of a small view's parts it makes one. A document's place is its number in
the segments one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Final

import numpy as np
import numpy.typing as npt
from rpds import HashTrieMap

from memagent.core.answers import Filter
from memagent.core.records import MemoryItem, TimeSpan
from memagent.search.segments import NO_ROW, OWN, Arena, Doc, Ints, Mask, Segment
from memagent.state.validation import allowed_values

_TAIL: Final = 32
_FEW: Final = 256
"""Merging so many documents takes less time than a few searches of their parts."""
_NOWHERE: Final = np.zeros(0, dtype=np.int32)


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

    def items_at(self, places: npt.NDArray[np.int64]) -> list[MemoryItem]:
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

    def columns_at(
        self,
        rules: Mapping[str, Callable[[MemoryItem], float]],
        places: npt.NDArray[np.int64],
    ) -> dict[str, npt.NDArray[np.float64]]:
        """Return what pure rules give for the documents at places (m,), by the rules' names."""
        found: dict[str, npt.NDArray[np.float64]] = {}
        for name, rule in rules.items():
            columns = [part.segment.column(rule) for part in self.parts]
            found[name] = (columns[0] if len(columns) == 1 else np.concatenate(columns))[places]
        return found


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

    def put(self, docs: Sequence[Doc]) -> IndexView:
        """Return the view with these documents added or replaced, by item id."""
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

    def prepare(self, rules: Collection[Callable[[MemoryItem], float]]) -> None:
        """Make what the first search of this view would make, with the columns of the rules."""
        for part in self.pieces.parts:
            for rule in rules:
                part.segment.column(rule)

    # -- looking up --------------------------------------------------------------------

    def of_session(self, session_id: str) -> list[MemoryItem]:
        """Return the items of a session, in no particular order."""
        items = [doc.item for doc in self.tail.values() if doc.item.session_id == session_id]
        for part in self.parts:
            at = part.segment.filed.get(("session_ids", session_id), _NOWHERE)
            live = at if part.dead is None else at[~part.dead[at]]
            items += [part.segment.items[place] for place in live.tolist()]
        return items

    def row_of(self, item_id: str, *, field: int = OWN) -> int:
        """Return the arena row of an item's text, `NO_ROW` without a vector or item."""
        if (doc := self.tail.get(item_id)) is not None:
            return doc.rows[field]
        place = self.places.get(item_id)
        if place is None:
            return NO_ROW
        segment = next(part.segment for part in self.parts if id(part.segment) == place[0])
        return int(segment.rows[field].rows[place[1]])

    # -- scoring -----------------------------------------------------------------------

    @property
    def pieces(self) -> Pieces:
        """The parts that are searched, the tail as the last; a small view is one part."""
        if self._lazy.pieces is None:
            parts = self.parts
            if len(self.tail):
                parts = (
                    *parts,
                    Part(Segment.of(sorted(self.tail.values(), key=lambda doc: doc.item.id))),
                )
            if len(parts) > 1 and len(self) <= _FEW:
                parts = (Part(Segment.merged([(part.segment, part.dead) for part in parts])),)
            *offsets, size = accumulate((len(part.segment) for part in parts), initial=0)
            self._lazy.pieces = Pieces(parts, offsets, size)
        return self._lazy.pieces


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
        lo, hi = _bounds(where.valid)
        masks.append((segment.valid[:, 0] < hi) & (segment.valid[:, 1] > lo))
    if where.said is not None:
        lo, hi = _bounds(where.said)
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


def _bounds(span: TimeSpan) -> tuple[float, float]:
    return (
        -np.inf if span.start is None else span.start.timestamp(),
        np.inf if span.end is None else span.end.timestamp(),
    )
