"""The documents of an index part that pass a filter, as positions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memagent.core.answers import Filter
from memagent.core.records import TimeSpan
from memagent.search.segments import Ints, Mask, Segment
from memagent.state.matching import LISTED

_NOWHERE = np.zeros(0, np.int32)


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


def passing(part: Part, where: Filter | None) -> Ints | None:
    """Return positions of live documents that pass the filter.

    None means all documents of a segment without dead ones.
    """
    if where is None or where.empty:
        return None if part.dead is None else np.flatnonzero(~part.dead).astype(np.int32)
    segment = part.segment
    at: Ints | None = None
    for name in LISTED:
        values: frozenset[str] = getattr(where, name)
        if values:
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
    keys = [(name, value) for name in LISTED for value in getattr(where, name)]
    return keys[0] if len(keys) == 1 else None


def _bounds(span: TimeSpan) -> tuple[float, float]:
    return (
        -np.inf if span.start is None else span.start.timestamp(),
        np.inf if span.end is None else span.end.timestamp(),
    )
