"""SVG charts for pages without scripts: curves with bands, columns and dots.

Every function returns a `Chart`, a figure that templates can show as it is. Colours are
the classes `tone0` to `tone5` of `assets/charts.css`, which reads well in light and dark.
Values that are not finite are left out. Long series are thinned to means over equal
stretches, so a picture stays small however long a run was. The picture's title says in
words what it shows, and each mark carries its value.

Axes along time have round moments: epoch seconds in UTC. A step is a number of seconds,
or of months when it is longer than four weeks: months and years differ in length.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from html import escape
from importlib.resources import files
from itertools import count, pairwise
from statistics import fmean
from textwrap import shorten
from typing import Final, cast

Point = tuple[float, float]
Band = tuple[float, float, float]
"""(x, low, high)"""
Figure = tuple[float, float | None, float | None]
"""A value, and the ends of its interval where it has one."""
Row = tuple[float, ...]
WIDTH: Final = 360
HEIGHT: Final = 220
LEFT, RIGHT, TOP, BOTTOM = 46, WIDTH - 10, 18, HEIGHT - 40
_MOST_POINTS: Final = 240
_MOST_COLUMNS: Final = 60
_MOST_DOTS: Final = 1_500
# Points of a curve that still get a dot each.
_MOST_MARKED: Final = 16


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A line through points in order of x, with an interval around each where it is known."""

    name: str
    points: Sequence[Point]
    bands: Sequence[Band] = ()
    tone: int = 0
    ring: float | None = None
    """The x whose dot gets a ring."""


def number(value: float) -> str:
    """Format a value in few letters: `0.25`, `12`, `1.2k`, `3M`, `2e-05`."""
    size = abs(value)
    if 0 < size < 0.001:
        return f"{value:.0e}"
    for limit, sign in ((1_000_000, "M"), (1_000, "k")):
        if size >= limit:
            return f"{value / limit:.1f}".removesuffix(".0") + sign
    return f"{value:.3g}" if value else "0"


def share(value: float) -> str:
    """Format a value as per cent."""
    return f"{100 * value:.0f} %"


@dataclass(frozen=True, kw_only=True)
class Axes:
    """The axes of a picture; without `low` and `high` the values themselves bound it."""

    across: str = "update"
    """The name of the x-axis."""
    up: str = ""
    """The name of the y-axis, where the title does not say it."""
    low: float | None = None
    high: float | None = None
    format_y: Callable[[float], str] = number
    """The text of a y."""
    borders: Sequence[float] = ()
    """Each x at which a dashed line stands."""
    format_x: Callable[[float], str] = number
    """The text of an x."""
    places: Sequence[float] = ()
    """Each x with a label below the axis; () for round numbers."""


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A figure: a picture with its title, and a legend where there are several series."""

    title: str
    note: str = ""
    svg: str = ""
    """The picture; "" when there is nothing to draw."""
    legend: Sequence[tuple[int, str]] = ()
    """(tone, name) of each series."""

    def __html__(self) -> str:
        """Return the figure as markup, which Jinja does not escape again."""
        note = f' <span class="soft small">{escape(self.note)}</span>' if self.note else ""
        names = "".join(f'<li class="tone{tone}">{escape(name)}</li>' for tone, name in self.legend)
        legend = f'<ul class="legend">{names}</ul>' if len(self.legend) > 1 else ""
        picture = self.svg or '<p class="soft small none">No figures yet.</p>'
        return (
            f'<figure class="chart"><figcaption><strong>{escape(self.title)}</strong>{note}'
            f"</figcaption>{picture}{legend}</figure>"
        )


# -- charts ----------------------------------------------------------------------------


def line_chart(
    title: str, curves: Sequence[Curve], axes: Axes | None = None, *, note: str = ""
) -> Chart:
    """Draw curves into one picture; those without a finite value are left out."""
    axes = axes or Axes()
    curves = [curve for curve in map(_finite, curves) if curve.points]
    if not curves:
        return Chart(title=title, note=note)
    ys = [y for curve in curves for _, *values in (*curve.points, *curve.bands) for y in values]
    frame = _Frame.around([x for curve in curves for x, _ in curve.points], ys, axes)
    words = "; ".join(_curve_words(curve, axes) for curve in curves)
    marks = "".join(_band(curve, frame) for curve in curves if len(curve.bands) > 1)
    marks += "".join(_line(curve, frame, axes) for curve in curves)
    svg = svg_of(f"{title}. {words}", frame.axes(axes) + marks)
    return Chart(
        title=title, note=note, svg=svg, legend=[(curve.tone, curve.name) for curve in curves]
    )


def column_chart(
    title: str,
    rows: Sequence[Row],
    names: Sequence[str] | Mapping[str, int],
    axes: Axes | None = None,
    *,
    grouped: bool = False,
    note: str = "",
) -> Chart:
    """Draw the parts of each (x, part, ...) as columns, in the n-th tone the n-th.

    They stand on top of each other, or with `grouped` side by side. A mapping of names
    gives each its tone.
    """
    axes = axes or Axes()
    tones = names if isinstance(names, Mapping) else dict(zip(names, count()))
    rows = [tuple(value if math.isfinite(value) else 0.0 for value in row) for row in rows]
    rows = thinned(rows, most=_MOST_COLUMNS)
    if not any(any(parts) for _, *parts in rows):
        return Chart(title=title, note=note)
    ys = [y for _, *parts in rows for y in (parts if grouped else (sum(parts),))]
    frame = _Frame.around([0.0, float(len(rows))], [0.0, *ys], axes)
    room, every = frame.x(0.9) - frame.x(0.0), _label_step([axes.format_x(x) for x, *_ in rows])
    thick = min(22.0, room / len(names)) if grouped else room
    marks = [frame.levels(axes), text_tag(RIGHT, HEIGHT - 4, axes.across, "end")]
    for place, (x, *parts) in enumerate(rows):
        middle, base = frame.x(place + 0.5), 0.0
        left = middle - (thick * len(names) if grouped else thick) / 2
        if place % every == 0:
            marks.append(text_tag(middle, BOTTOM + 17, axes.format_x(x), "middle"))
        for (name, tone), part in zip(tones.items(), parts, strict=False):
            words = f"{name}, {axes.across} {axes.format_x(x)}: {axes.format_y(part)}"
            if part:
                marks.append(_column(frame, words, tone, (left, thick), (base, base + part)))
            left, base = (left + thick, base) if grouped else (left, base + part)
    svg = svg_of(f"{title}: {', '.join(names)}", "".join(marks))
    legend = [(tone, name) for name, tone in tones.items()]
    return Chart(title=title, note=note, svg=svg, legend=legend)


def dot_chart(
    title: str,
    dots: Sequence[tuple[float, float, str]],
    axes: Axes,
    *,
    note: str = "",
) -> Chart:
    """Draw a dot for each (x, y, label); a label that is not "" stands beside its dot.

    With `axes.high` x runs from 0 to 1 and y from 0 to there. Without, both reach equally
    far to either side of zero, and dashed lines mark the zeros.
    """
    dots = [dot for dot in dots if math.isfinite(dot[0] + dot[1])][-_MOST_DOTS:]
    if not dots:
        return Chart(title=title, note=note)
    edge = 1.08 * max(1.0, *(abs(value) for x, y, _ in dots for value in (x, y)))
    frame = _Frame(0.0, 1.0, 0.0, axes.high) if axes.high else _Frame(-edge, edge, -edge, edge)
    marks = [frame.axes(axes, whole=False)]
    if not axes.high:
        zero = frame.y(0.0)
        marks += [frame.border(0.0), tag("line", "border", x1=LEFT, x2=RIGHT, y1=zero, y2=zero)]
    labels: list[Point] = []
    for x, y, label in dots:
        at, line = frame.x(x), frame.y(y) + 4
        css, radius = ("dot", 4) if label else ("speck", 3)
        marks.append(tag("circle", f"{css} tone0", title_tag(label), cx=at, cy=line - 4, r=radius))
        if label:
            while any(abs(line - other) < 12 and abs(at - near) < 150 for near, other in labels):
                line += 12
            labels.append((at, line))
            beside, anchor = (at - 9, "end") if x > 0.55 else (at + 9, "start")
            marks.append(text_tag(beside, line, shorten(label, 36, placeholder=" …"), anchor))
    return Chart(title=title, note=note, svg=svg_of(title, "".join(marks)))


def ticks(low: float, high: float) -> list[float]:
    """Return about four round values from `low` to `high`; `low` alone without room between."""
    if not high > low:
        return [low]
    rough = (high - low) / 4
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(
        factor * unit for factor in (1.0, 2.0, 2.5, 5.0, 10.0) if factor * unit >= rough * 0.999
    )
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(at * step, 12) + 0.0 for at in range(first, last + 1)]


def thinned(rows: Sequence[Row], *, most: int = _MOST_POINTS) -> Sequence[Row]:
    """Return at most `most` rows: means, column by column, over equal stretches."""
    if len(rows) <= most:
        return rows
    cuts = [round(at * len(rows) / most) for at in range(most + 1)]
    parts = [rows[start:end] for start, end in pairwise(cuts)]
    return [tuple(map(fmean, zip(*part, strict=True))) for part in parts]


def _label_step(labels: Sequence[str]) -> int:
    """Return how many columns apart labels stand so that they do not touch."""
    widest = 6.4 * max(map(len, labels)) + 8
    return max(-(-len(labels) // 8), math.ceil(len(labels) * widest / (RIGHT - LEFT)))


# -- places and marks ------------------------------------------------------------------


@dataclass(frozen=True)
class _Frame:
    """The values at the edges of the drawing area."""

    x0: float
    x1: float
    y0: float
    y1: float

    @classmethod
    def around(cls, xs: Sequence[float], ys: Sequence[float], axes: Axes) -> _Frame:
        y0, y1 = min(ys), max(ys)
        room = (y1 - y0) * 0.06 or abs(y1) * 0.1 or 0.5
        bottom = min(axes.low, y0) if axes.low is not None else y0 - room if y0 else 0.0
        return cls(min(xs), max(xs), bottom, y1 + room if axes.high is None else max(axes.high, y1))

    def x(self, value: float) -> float:
        if self.x1 == self.x0:
            return (LEFT + RIGHT) / 2
        return LEFT + (RIGHT - LEFT) * (value - self.x0) / (self.x1 - self.x0)

    def y(self, value: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * (value - self.y0) / (self.y1 - self.y0)

    def axes(self, axes: Axes, *, whole: bool = True) -> str:
        borders = "".join(map(self.border, (x for x in axes.borders if self.x0 < x < self.x1)))
        unit = text_tag(RIGHT, HEIGHT - 4, axes.across, "end")
        return self.levels(axes) + self.steps(axes, whole=whole) + unit + borders

    def levels(self, axes: Axes) -> str:
        places = [(self.y(value), axes.format_y(value)) for value in ticks(self.y0, self.y1)]
        return (
            "".join(
                tag("line", "grid", x1=LEFT, x2=RIGHT, y1=y, y2=y)
                + text_tag(LEFT - 6, y + 4, words, "end")
                for y, words in places
            )
            + tag("line", "axis", x1=LEFT, x2=RIGHT, y1=BOTTOM, y2=BOTTOM)
            + text_tag(0, 8, axes.up)
        )

    def steps(self, axes: Axes, *, whole: bool) -> str:
        round_values = (x for x in ticks(self.x0, self.x1) if not whole or x == round(x))
        values = list(axes.places) or list(round_values)
        return "".join(
            tag("line", "mark", x1=self.x(x), x2=self.x(x), y1=BOTTOM, y2=BOTTOM + 4)
            + text_tag(self.x(x), BOTTOM + 17, axes.format_x(x), "middle")
            for x in values
        )

    def border(self, x: float) -> str:
        return tag("line", "border", x1=self.x(x), x2=self.x(x), y1=TOP, y2=BOTTOM)

    def path(self, points: Sequence[Point]) -> str:
        return " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points)


def _finite(curve: Curve) -> Curve:
    points = [point for point in curve.points if all(map(math.isfinite, point))]
    bands = [band for band in curve.bands if all(map(math.isfinite, band))]
    return replace(
        curve,
        points=cast("Sequence[Point]", thinned(points)),
        bands=cast("Sequence[Band]", thinned(bands)),
    )


def _band(curve: Curve, frame: _Frame) -> str:
    upper = [(x, high) for x, _, high in curve.bands]
    lower = [(x, low) for x, low, _ in reversed(curve.bands)]
    return tag("polygon", f"band tone{curve.tone}", points=frame.path(upper + lower))


def _line(curve: Curve, frame: _Frame, axes: Axes) -> str:
    """Draw the line, and a dot for each point where points are few."""
    marks = [tag("polyline", f"curve tone{curve.tone}", points=frame.path(curve.points))]
    for x, y in curve.points if len(curve.points) <= _MOST_MARKED else ():
        words = title_tag(f"{curve.name}, {axes.across} {axes.format_x(x)}: {axes.format_y(y)}")
        css, radius = (" ring", 4.5) if x == curve.ring else ("", 2.6)
        places = {"cx": frame.x(x), "cy": frame.y(y), "r": radius}
        marks.append(tag("circle", f"dot tone{curve.tone}{css}", words, **places))
    return "".join(marks)


def _column(frame: _Frame, words: str, tone: int, x: Point, y: Point) -> str:
    """Draw a column at (left, width) between two values, with its words as a tooltip."""
    top, bottom = sorted(map(frame.y, y))
    places = {"x": x[0], "width": x[1], "y": top, "height": max(0.8, bottom - top)}
    return tag("rect", f"part tone{tone}", title_tag(words), **places)


def _curve_words(curve: Curve, axes: Axes) -> str:
    format_x, format_y = axes.format_x, axes.format_y
    (x0, y0), (x1, y1) = curve.points[0], curve.points[-1]
    if x0 == x1:
        return f"{curve.name}: {format_y(y0)} at {axes.across} {format_x(x0)}"
    values = [y for _, y in curve.points]
    ends = f"{format_y(y0)} at {axes.across} {format_x(x0)}, {format_y(y1)} at {format_x(x1)}"
    return f"{curve.name}: {ends}, between {format_y(min(values))} and {format_y(max(values))}"


def tag(name: str, css: str, body: str = "", /, **attributes: float | str) -> str:
    """Return an element of a class, with numbers rounded to a tenth."""
    values = "".join(
        f' {key}="{value if isinstance(value, str) else round(value, 1)}"'
        for key, value in attributes.items()
    )
    return f'<{name} class="{css}"{values}>{body}</{name}>'


def title_tag(words: str) -> str:
    """Return what a mark or a picture says in words."""
    return f"<title>{escape(words)}</title>"


def text_tag(x: float, y: float, words: str, anchor: str = "start") -> str:
    """Return a text at a place."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def svg_of(words: str, body: str, *, height: float = HEIGHT) -> str:
    """Return a picture with its title."""
    return f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img">{title_tag(words)}{body}</svg>'


# -- axes along time -------------------------------------------------------------------

_MINUTE: Final = 60
_HOUR: Final = 3_600
_DAY: Final = 86_400
_MONTH_S: Final = 30.4 * _DAY
_STEPS: Final = (
    *(1, 5, 15, 30),
    *(count * _MINUTE for count in (1, 5, 15, 30)),
    *(count * _HOUR for count in (1, 3, 6, 12)),
    *(count * _DAY for count in (1, 2, 7, 14)),
)
_MONTHS: Final = (1, 3, 6, 12, 24, 60, 120, 240, 600, 1_200)


def moments(first: float, last: float, *, most: int) -> list[float]:
    """Return the starts of at most `most` equal stretches that cover first to last.

    They begin at round moments: at full minutes, at midnight, on the first of a month.
    """
    for step in _STEPS:
        start = first // step * step
        if (last - start) // step + 1 <= most:
            return [start + place * step for place in range(int((last - start) // step) + 1)]
    ends = (datetime.fromtimestamp(moment, UTC) for moment in (first, last))
    begin, end = (at.year * 12 + at.month - 1 for at in ends)
    for months in _MONTHS:
        places = range(begin // months * months, end + 1, months)
        if len(places) <= most:
            dates = (datetime(max(at // 12, 1), at % 12 + 1, 1, tzinfo=UTC) for at in places)
            return [date.timestamp() for date in dates]
    return [first]


def time_axes(first: float, last: float, axes: Axes | None = None) -> Axes:
    """Return axes whose x are moments from first to last, labelled at round moments."""
    places = _labels(first, last)
    step = places[1] - places[0] if len(places) > 1 else max(last - first, 1.0)
    same_day = first // _DAY == last // _DAY
    pattern = _pattern(step, same_day=same_day)
    across = f"{_in_words(first, '%d %b %Y')}, UTC" if same_day else "UTC"
    format_x = partial(_in_words, pattern=pattern)
    return replace(axes or Axes(), across=across, places=places, format_x=format_x)


def _labels(first: float, last: float) -> list[float]:
    """Return at least two round moments from first to last, where there are so many."""
    for most in (5, 8, 12):
        places = [place for place in moments(first, last, most=most) if place >= first]
        if len(places) > 1:
            return places
    return [first]


def _in_words(moment: float, pattern: str) -> str:
    words = f"{datetime.fromtimestamp(moment, UTC):{pattern}}"
    return words.removeprefix("0") if pattern.startswith("%d") else words


def _pattern(step: float, *, same_day: bool) -> str:
    if step >= 12 * _MONTH_S:
        return "%Y"
    if step >= _MONTH_S * 0.9:
        return "%b %Y"
    if step >= _DAY:
        return "%d %b"
    clock = "%H:%M:%S" if step < _MINUTE else "%H:%M"
    return clock if same_day else f"%d %b {clock}"


# -- files -----------------------------------------------------------------------------


def asset(name: str) -> str:
    """Return the text of one of the pages' files."""
    return (files("memagent.pages") / "assets" / name).read_text(encoding="utf-8")


def digest_of(content: str) -> str:
    """Return the source expression by which a content policy allows a style or script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
