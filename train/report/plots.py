"""Small plots as inline SVG for a page without scripts: lines with bands, stacked
columns, dots, grouped columns.

A plot is 360 by 210 units, so that its letters stay readable on a phone; colours are
the classes `c0` to `c5` of the page's style. Values that are not numbers are left out;
hovering over a mark tells its value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 360, 210
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 8, 10, 26
MOST_COLUMNS = 60
"""More columns than this are averaged together."""
Shown = Callable[[float], str]
"""A value as text."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line: points in order, and an interval around each where it is known."""

    name: str
    points: Sequence[tuple[float, float]]
    bands: Sequence[tuple[float, float, float]] = ()
    """(x, low, high)"""
    colour: int = 0
    dots: bool = False


def number(value: float) -> str:
    """Short: `0.25`, `12`, `1.2k`."""
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 10_000:
        return f"{value / 1_000:,.0f}k"
    if size >= 1_000:
        return f"{value / 1_000:.1f}k"
    if size < 0.001:
        return f"{value:.0e}"
    return f"{value:.3g}"


def share(value: float) -> str:
    """As per cent."""
    return f"{100 * value:.0f} %"


def line_plot(
    lines: Sequence[Line],
    *,
    title: str,
    low: float | None = None,
    high: float | None = None,
    shown: Shown = number,
    borders: Sequence[float] = (),
    marked: float | None = None,
) -> str:
    """Lines over steps.

    `borders` are where stages begin, `marked` is the step that a ring is put around.
    """
    lines = [_finite(line) for line in lines]
    xs = [x for line in lines for x, _ in line.points]
    ys = [y for line in lines for _, y in line.points] + [
        y for line in lines for band in line.bands for y in band[1:]
    ]
    if not xs:
        return _nothing(title)
    frame = _Frame.around(xs, ys, low=low, high=high)
    parts = [frame.axes(shown)]
    parts += [
        f'<line class="border" x1="{frame.x(x):.1f}" x2="{frame.x(x):.1f}" y1="{_TOP}" y2="{HEIGHT - _BOTTOM}"/>'
        for x in borders
    ]
    for line in lines:
        if line.bands:
            upper = [f"{frame.x(x):.1f},{frame.y(top):.1f}" for x, _, top in line.bands]
            lower = [
                f"{frame.x(x):.1f},{frame.y(bottom):.1f}" for x, bottom, _ in reversed(line.bands)
            ]
            parts.append(
                f'<polygon class="band c{line.colour}" points="{" ".join(upper + lower)}"/>'
            )
    for line in lines:
        path = " ".join(f"{frame.x(x):.1f},{frame.y(y):.1f}" for x, y in line.points)
        parts.append(f'<polyline class="line c{line.colour}" points="{path}"/>')
        if line.dots or len(line.points) == 1:
            for x, y in line.points:
                ring = " ring" if x == marked else ""
                said = escape(f"{line.name}, step {x:g}: {shown(y)}")
                parts.append(
                    f'<circle class="dot c{line.colour}{ring}" cx="{frame.x(x):.1f}" cy="{frame.y(y):.1f}" '
                    f'r="{4.5 if ring else 3}"><title>{said}</title></circle>'
                )
    return _svg(title, parts)


def stacked_plot(
    columns: Sequence[tuple[float, Sequence[float]]],
    names: Sequence[str],
    *,
    title: str,
    shown: Shown = number,
    high: float | None = None,
) -> str:
    """A column a step, its parts on top of each other; the n-th part has colour n."""
    columns = _binned(columns)
    if not columns:
        return _nothing(title)
    tops = [sum(parts) for _, parts in columns]
    frame = _Frame.around([x for x, _ in columns], [0.0, *tops], low=0.0, high=high, padded=True)
    thick = max(1.0, (WIDTH - _LEFT - _RIGHT) / len(columns) - (2 if len(columns) < 30 else 0.6))
    parts = [frame.axes(shown)]
    for place, (x, values) in enumerate(columns):
        middle = _LEFT + (place + 0.5) * (WIDTH - _LEFT - _RIGHT) / len(columns)
        base = 0.0
        for colour, value in enumerate(values):
            if value <= 0:
                continue
            top, bottom = frame.y(base + value), frame.y(base)
            said = escape(f"{names[colour]}, step {x:g}: {shown(value)}")
            parts.append(
                f'<rect class="part c{colour}" x="{middle - thick / 2:.1f}" y="{top:.1f}" width="{thick:.1f}" '
                f'height="{max(0.0, bottom - top):.1f}"><title>{said}</title></rect>'
            )
            base += value
    return _svg(title, parts)


def dot_plot(points: Sequence[tuple[float, float]], *, title: str) -> str:
    """A dot a pair, with the zero lines."""
    points = [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]
    if not points:
        return _nothing(title)
    edge = max(1.0, *(max(abs(x), abs(y)) for x, y in points)) * 1.08
    frame = _Frame(x0=-edge, x1=edge, y0=-edge, y1=edge)
    parts = [frame.axes(number)]
    parts.append(
        f'<line class="border" x1="{frame.x(0):.1f}" x2="{frame.x(0):.1f}" y1="{_TOP}" y2="{HEIGHT - _BOTTOM}"/>'
    )
    parts.append(
        f'<line class="border" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{frame.y(0):.1f}" y2="{frame.y(0):.1f}"/>'
    )
    parts += [
        f'<circle class="speck c0" cx="{frame.x(x):.1f}" cy="{frame.y(y):.1f}" r="3"/>'
        for x, y in points[-1_500:]
    ]
    return _svg(title, parts)


def grouped_plot(
    labels: Sequence[str],
    groups: Sequence[Sequence[float | None]],
    names: Sequence[str],
    *,
    title: str,
) -> str:
    """Columns side by side at each label: one a name, the n-th in colour n."""
    values = [
        value for group in groups for value in group if value is not None and math.isfinite(value)
    ]
    if not values:
        return _nothing(title)
    frame = _Frame.around([0.0, 1.0], [0.0, *values])
    wide = (WIDTH - _LEFT - _RIGHT) / len(labels)
    thick = min(22.0, wide * 0.8 / max(1, len(names)))
    every = max(1, -(-len(labels) // 12))
    parts = [frame.axes(number, below=False)]
    for place, (label, group) in enumerate(zip(labels, groups, strict=True)):
        middle = _LEFT + (place + 0.5) * wide
        if place % every == 0:
            parts.append(
                f'<text class="soft" x="{middle:.1f}" y="{HEIGHT - 9}" text-anchor="middle">{escape(label)}</text>'
            )
        for colour, value in enumerate(group):
            if value is None or not math.isfinite(value):
                continue
            x = middle + (colour - len(group) / 2) * thick
            top, bottom = sorted((frame.y(value), frame.y(0.0)))
            said = escape(f"{names[colour]}, {label}: {number(value)}")
            parts.append(
                f'<rect class="part c{colour}" x="{x + 0.5:.1f}" y="{top:.1f}" width="{thick - 1:.1f}" '
                f'height="{max(0.8, bottom - top):.1f}" rx="1.5"><title>{said}</title></rect>'
            )
    return _svg(title, parts)


def legend(names: Sequence[str], *, colours: Sequence[int] | None = None) -> str:
    """What the colours mean."""
    places = colours or range(len(names))
    items = "".join(
        f'<li class="c{at}">{escape(name)}</li>' for at, name in zip(places, names, strict=True)
    )
    return f'<ul class="legend">{items}</ul>'


def ticks(low: float, high: float, *, wanted: int = 4) -> list[float]:
    """Round values from `low` to `high`, about `wanted` of them."""
    if not high > low:
        return [low]
    rough = (high - low) / wanted
    unit = 10.0 ** math.floor(math.log10(rough))
    step = unit * next(factor for factor in (1, 2, 2.5, 5, 10) if factor * unit >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [
        round(place * step, 12) + 0.0 for place in range(first, math.floor(high / step + 1e-9) + 1)
    ]


@dataclass(frozen=True, kw_only=True)
class _Frame:
    """Where values lie in the picture."""

    x0: float
    x1: float
    y0: float
    y1: float
    padded: bool = False
    """Whether the ends of x are centres of columns."""

    @classmethod
    def around(
        cls,
        xs: Sequence[float],
        ys: Sequence[float],
        *,
        low: float | None = None,
        high: float | None = None,
        padded: bool = False,
    ) -> _Frame:
        y0, y1 = min(ys), max(ys)
        room = (y1 - y0) * 0.06 or abs(y1) * 0.1 or 0.5
        y0 = y0 - room if low is None and y0 != 0 else (y0 if low is None else min(low, y0))
        y1 = y1 + room if high is None else max(high, y1)
        return cls(x0=min(xs), x1=max(xs), y0=y0, y1=y1, padded=padded)

    def x(self, value: float) -> float:
        """Place of an x."""
        wide = WIDTH - _LEFT - _RIGHT
        if self.x1 == self.x0:
            return _LEFT + wide / 2
        return _LEFT + wide * (value - self.x0) / (self.x1 - self.x0)

    def y(self, value: float) -> float:
        """Place of a y; larger ones are higher."""
        return (
            HEIGHT - _BOTTOM - (HEIGHT - _BOTTOM - _TOP) * (value - self.y0) / (self.y1 - self.y0)
        )

    def axes(self, shown: Shown, *, below: bool = True) -> str:
        """Grid lines with their values, and steps below."""
        parts: list[str] = []
        for value in ticks(self.y0, self.y1):
            y = self.y(value)
            parts.append(
                f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            )
            parts.append(
                f'<text class="soft" x="{_LEFT - 6}" y="{y + 3.5:.1f}" text-anchor="end">{escape(shown(value))}</text>'
            )
        for value in ticks(self.x0, self.x1, wanted=5) if below else ():
            x = self.x(value)
            if self.padded:
                x = min(max(x, _LEFT + 8.0), WIDTH - _RIGHT - 8.0)
            anchor = "end" if x > WIDTH - _RIGHT - 14 else "middle"
            parts.append(
                f'<text class="soft" x="{x:.1f}" y="{HEIGHT - 9}" text-anchor="{anchor}">{escape(number(value))}</text>'
            )
        return "".join(parts)


def _finite(line: Line) -> Line:
    points = [(x, y) for x, y in line.points if math.isfinite(x) and math.isfinite(y)]
    bands = [band for band in line.bands if all(map(math.isfinite, band))]
    return Line(name=line.name, points=points, bands=bands, colour=line.colour, dots=line.dots)


def _binned(
    columns: Sequence[tuple[float, Sequence[float]]],
) -> list[tuple[float, Sequence[float]]]:
    """At most `MOST_COLUMNS` columns: neighbours are averaged."""
    size = -(-len(columns) // MOST_COLUMNS) if columns else 1
    found: list[tuple[float, Sequence[float]]] = []
    for start in range(0, len(columns), size):
        part = columns[start : start + size]
        means = [
            sum(values) / len(part) for values in zip(*(values for _, values in part), strict=True)
        ]
        found.append((part[0][0], means))
    return found


def _svg(title: str, parts: Sequence[str]) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">{"".join(parts)}</svg>'


def _nothing(title: str) -> str:
    return f'<p class="soft none">nothing recorded for “{escape(title)}”</p>'
