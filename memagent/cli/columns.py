"""A table without lines, laid out for terminals of any width.

Rich lays tables out as well, but asks every cell several times for its width, which
took a third of `memagent list`. Here a cell is measured once, and only what does not
fit is wrapped. Columns that may wrap give way first, the widest one before the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import repeat, zip_longest

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.text import Text

_GAP = 2
"""Blanks between columns."""
_Line = tuple[Sequence[Segment], int]
"""A line of a cell: its segments, and the terminal cells that they fill."""


class Columns:
    """A header and rows of cells, to be printed by a rich console."""

    def __init__(
        self,
        columns: Sequence[str],
        rows: Iterable[Sequence[Text]],
        *,
        fixed: Collection[str] = (),
        header: bool = True,
    ) -> None:
        """Take the names of the columns, the cells, and the columns that never wrap."""
        names = [[Text(name, "bold") for name in columns]] if header else []
        self._wraps = [name not in fixed for name in columns]
        self._rows = [*names, *(list(row) for row in rows)]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        widths = self._widths(options.max_width)
        for row in self._rows:
            cells = [
                _lines(cell, width, console, wrap=wraps)
                for cell, width, wraps in zip(row, widths, self._wraps, strict=True)
            ]
            for parts in zip_longest(*cells, fillvalue=((), 0)):
                yield from _joined(parts, widths)

    def _widths(self, most: int) -> list[int]:
        """Return the width of each column, without the gaps."""
        widths = [
            max(max(map(cell_len, cell.plain.split("\n")), default=0) for cell in column)
            for column in zip(*self._rows, strict=True)
        ]
        most -= _GAP * (len(widths) - 1)
        for wraps in (self._wraps, [True] * len(widths)):
            may_shrink = [place for place, wrapped in enumerate(wraps) if wrapped]
            for _ in range(max(0, sum(widths) - most)):
                widest = max(may_shrink, key=lambda place: (widths[place], place), default=None)
                if widest is None or widths[widest] <= 1:
                    break
                widths[widest] -= 1
        return widths


def _lines(cell: Text, width: int, console: Console, *, wrap: bool) -> list[_Line]:
    """Return the lines of a cell that is at most so wide."""
    if "\n" not in cell.plain and not cell.spans and (size := cell_len(cell.plain)) <= width:
        style = console.get_style(cell.style) if cell.style else None
        return [([Segment(cell.plain, style)], size)]
    if wrap:
        lines = cell.wrap(console, width, overflow="fold")
    else:
        lines = cell.split(allow_blank=True)
        for line in lines:
            line.truncate(width, overflow="ellipsis")
    return [(list(line.render(console)), line.cell_len) for line in lines]


def _joined(parts: Sequence[_Line], widths: Sequence[int]) -> Iterator[Segment]:
    """Yield the segments of one printed line."""
    gaps = (*repeat(_GAP, len(widths) - 1), 0)
    for (segments, size), width, gap in zip(parts, widths, gaps, strict=True):
        yield from segments
        if gap:
            yield Segment(" " * (width - size + gap))
    yield Segment.line()
