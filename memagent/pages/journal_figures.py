"""Figures of a journal over time: how many memories there were, and what was decided.

Rows are counted once, oldest first; later rows are added to the same figures. Whatever
the length of a journal, at most `_MOST_POINTS` points are kept: neighbours merge. Ids
are kept as hashes, so that the figures hold no word of a memory.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Final

from memagent.core.snapshot import Commit, Erased, JournalRow, Restored
from memagent.pages.charts import Axes, Chart, Curve, column_chart, line_chart, number
from memagent.pages.time_axis import moments, time_axes

OPS: Final = ("ADD", "UPDATE", "DELETE", "NOOP")
DECISIONS: Final = ("added", "changed", "deleted", "left as it was", "refused")
"""The words for `OPS`, and for ops that were refused."""
_MOST_POINTS: Final = 2_048
_MOST_COLUMNS: Final = 24


@dataclass(slots=True)
class Point:
    """The state after some rows: when, memories then, and decisions since the point before."""

    at: float
    """Epoch seconds of the last of the rows."""
    memories: int
    decisions: list[int]
    """Counts in the order of `DECISIONS`."""


@dataclass(slots=True)
class JournalFigures:
    """Figures of the rows counted so far, in their order."""

    seq: int = 0
    """The sequence of the last row that was counted."""
    points: list[Point] = field(default_factory=list[Point])
    _active: set[int] = field(default_factory=set[int])

    def add(self, row: JournalRow) -> None:
        """Count one further row."""
        self.seq, entry = row.seq, row.entry
        decisions = [0] * len(DECISIONS)
        match entry:
            case Commit():
                ops = Counter(result.op.op for result in entry.ops)
                decisions = [*(ops[name] for name in OPS), len(entry.rejected)]
            case Erased():
                self._active.clear()
            case _:
                pass
        for change in entry.changes if isinstance(entry, Commit | Restored) else ():
            there = change.after is not None and change.after.active
            (self._active.add if there else self._active.discard)(hash(change.id))
        self.points.append(Point(row.recorded_at.timestamp(), len(self._active), decisions))
        if len(self.points) > _MOST_POINTS:
            self.points = [
                _merged(*pair) for pair in zip_longest(self.points[::2], self.points[1::2])
            ]

    def charts(self) -> list[Chart]:
        """Return the charts: memories over time, and decisions over time."""
        return [self._memories(), self._decisions()]

    @property
    def _span(self) -> tuple[float, float]:
        return (self.points[0].at, self.points[-1].at) if self.points else (0.0, 0.0)

    def _memories(self) -> Chart:
        curve = Curve(
            name="memories", points=[(point.at, float(point.memories)) for point in self.points]
        )
        axes = time_axes(*self._span, Axes(low=0.0, format_y=whole_number))
        return line_chart("Memories over time", [curve], axes)

    def _decisions(self) -> Chart:
        starts = moments(*self._span, most=_MOST_COLUMNS)
        counts = [[0.0] * len(DECISIONS) for _ in starts]
        for point in self.points:
            column = counts[max(0, bisect_right(starts, point.at) - 1)]
            for place, count in enumerate(point.decisions):
                column[place] += count
        rows = [(start, *parts) for start, parts in zip(starts, counts, strict=True)]
        axes = time_axes(*self._span, Axes(low=0.0, format_y=whole_number))
        return column_chart("What was decided", rows, DECISIONS, axes)


def whole_number(value: float) -> str:
    """Format a count; "" for a value between two counts."""
    return number(value) if value == round(value) else ""


def _merged(first: Point, second: Point | None) -> Point:
    if second is None:
        return first
    counts: Sequence[int] = [a + b for a, b in zip(first.decisions, second.decisions, strict=True)]
    return Point(second.at, second.memories, list(counts))
