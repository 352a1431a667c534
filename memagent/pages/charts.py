"""SVG charts for pages without scripts: curves with bands, columns, dots and bars.

Every function returns a `Chart`, a figure that templates can show as it is. Colours are
the classes `tone0` to `tone5` of `assets/charts.css`, which reads well in light and dark.
Values that are not finite are left out. Long series are thinned to means over equal
stretches, so a picture stays small however long a run was. The picture's title says in
words what it shows, and each mark carries its value.

Axes along time have round moments: epoch seconds in UTC. A step is a number of seconds,
or of months when it is longer than four weeks: months and years differ in length.

A report is one HTML file: style inside, no script, nothing loaded. A content policy names
the digest of the style and forbids everything else. Functions take text and escape it;
parameters called `body` and values of `tiles` are markup.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
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
_BAR: Final = 24


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
    svg = _svg(f"{title}. {words}", frame.axes(axes) + marks)
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
    marks = [frame.levels(axes), _text(RIGHT, HEIGHT - 4, axes.across, "end")]
    for place, (x, *parts) in enumerate(rows):
        middle, base = frame.x(place + 0.5), 0.0
        left = middle - (thick * len(names) if grouped else thick) / 2
        if place % every == 0:
            marks.append(_text(middle, BOTTOM + 17, axes.format_x(x), "middle"))
        for (name, tone), part in zip(tones.items(), parts, strict=False):
            words = f"{name}, {axes.across} {axes.format_x(x)}: {axes.format_y(part)}"
            if part:
                marks.append(_column(frame, words, tone, (left, thick), (base, base + part)))
            left, base = (left + thick, base) if grouped else (left, base + part)
    svg = _svg(f"{title}: {', '.join(names)}", "".join(marks))
    legend = [(tone, name) for name, tone in tones.items()]
    return Chart(title=title, note=note, svg=svg, legend=legend)


def dot_chart(
    title: str,
    dots: Sequence[tuple[float, float, str]],
    axes: Axes | None = None,
    *,
    note: str = "",
) -> Chart:
    """Draw a dot for each (x, y, label); a label that is not "" stands beside its dot.

    With `axes.high` x runs from 0 to 1 and y from 0 to there. Without, both reach equally
    far to either side of zero, and dashed lines mark the zeros.
    """
    axes = axes or Axes(across="")
    dots = [dot for dot in dots if math.isfinite(dot[0] + dot[1])][-_MOST_DOTS:]
    if not dots:
        return Chart(title=title, note=note)
    edge = 1.08 * max(1.0, *(abs(value) for x, y, _ in dots for value in (x, y)))
    frame = _Frame(0.0, 1.0, 0.0, axes.high) if axes.high else _Frame(-edge, edge, -edge, edge)
    marks = [frame.axes(axes, whole=False)]
    if not axes.high:
        zero = frame.y(0.0)
        marks += [frame.border(0.0), _tag("line", "border", x1=LEFT, x2=RIGHT, y1=zero, y2=zero)]
    labels: list[Point] = []
    for x, y, label in dots:
        at, line = frame.x(x), frame.y(y) + 4
        css, radius = ("dot", 4) if label else ("speck", 3)
        marks.append(_tag("circle", f"{css} tone0", _title(label), cx=at, cy=line - 4, r=radius))
        if label:
            while any(abs(line - other) < 12 and abs(at - near) < 150 for near, other in labels):
                line += 12
            labels.append((at, line))
            beside, anchor = (at - 9, "end") if x > 0.55 else (at + 9, "start")
            marks.append(_text(beside, line, shorten(label, 36, placeholder=" …"), anchor))
    return Chart(title=title, note=note, svg=_svg(title, "".join(marks)))


def bar_chart(
    title: str, bars: Sequence[tuple[str, Figure | None, bool]], *, note: str = ""
) -> Chart:
    """Draw (label, figure, best) as bars over [0, 1], with a whisker for each interval."""
    left = 12.0 + max((min(150.0, 6.4 * len(label)) for label, *_ in bars), default=0.0)
    wide, bottom = WIDTH - 44.0 - left, _BAR * len(bars)
    marks = [
        _tag("line", "grid", x1=left + wide * tick, x2=left + wide * tick, y1=0, y2=bottom + 4)
        + _text(left + wide * tick, bottom + 17, number(tick), "middle")
        for tick in ticks(0.0, 1.0)
    ]
    for place, (label, figure, best) in enumerate(bars):
        middle = place * _BAR + _BAR / 2
        marks.append(_text(left - 8, middle + 4, label, "end"))
        marks.append(_bar(label, figure, "bar best" if best else "bar", (left, middle, wide)))
    return Chart(title=title, note=note, svg=_svg(title, "".join(marks), height=bottom + 24))


def _bar(label: str, figure: Figure | None, css: str, place: tuple[float, float, float]) -> str:
    """Draw a bar at (left, middle, full width); without a figure only its empty track."""
    left, middle, wide = place
    box = {"x": left, "y": middle - 7, "height": 14, "rx": 3}
    track = _tag("rect", "track", width=wide, **box)
    if figure is None:
        return track
    value, *ends = figure
    bar = _tag("rect", css, _title(f"{label}: {value:.3f}"), width=max(value, 0.004) * wide, **box)
    x0, x1 = (round(left + (value if end is None else end) * wide, 1) for end in ends)
    path = f"M{x0} {middle}H{x1}M{x0} {middle - 4}v8M{x1} {middle - 4}v8"
    whisker = _tag("path", "whisker", d=path) if None not in ends else ""
    return track + bar + whisker + _text(WIDTH - 38, middle + 4, f"{value:.3f}")


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
        unit = _text(RIGHT, HEIGHT - 4, axes.across, "end")
        return self.levels(axes) + self.steps(axes, whole=whole) + unit + borders

    def levels(self, axes: Axes) -> str:
        places = [(self.y(value), axes.format_y(value)) for value in ticks(self.y0, self.y1)]
        return (
            "".join(
                _tag("line", "grid", x1=LEFT, x2=RIGHT, y1=y, y2=y)
                + _text(LEFT - 6, y + 4, words, "end")
                for y, words in places
            )
            + _tag("line", "axis", x1=LEFT, x2=RIGHT, y1=BOTTOM, y2=BOTTOM)
            + _text(0, 8, axes.up)
        )

    def steps(self, axes: Axes, *, whole: bool) -> str:
        round_values = (x for x in ticks(self.x0, self.x1) if not whole or x == round(x))
        values = list(axes.places) or list(round_values)
        return "".join(
            _tag("line", "mark", x1=self.x(x), x2=self.x(x), y1=BOTTOM, y2=BOTTOM + 4)
            + _text(self.x(x), BOTTOM + 17, axes.format_x(x), "middle")
            for x in values
        )

    def border(self, x: float) -> str:
        return _tag("line", "border", x1=self.x(x), x2=self.x(x), y1=TOP, y2=BOTTOM)

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
    return _tag("polygon", f"band tone{curve.tone}", points=frame.path(upper + lower))


def _line(curve: Curve, frame: _Frame, axes: Axes) -> str:
    """Draw the line, and a dot for each point where points are few."""
    marks = [_tag("polyline", f"curve tone{curve.tone}", points=frame.path(curve.points))]
    for x, y in curve.points if len(curve.points) <= _MOST_MARKED else ():
        words = _title(f"{curve.name}, {axes.across} {axes.format_x(x)}: {axes.format_y(y)}")
        css, radius = (" ring", 4.5) if x == curve.ring else ("", 2.6)
        places = {"cx": frame.x(x), "cy": frame.y(y), "r": radius}
        marks.append(_tag("circle", f"dot tone{curve.tone}{css}", words, **places))
    return "".join(marks)


def _column(frame: _Frame, words: str, tone: int, x: Point, y: Point) -> str:
    """Draw a column at (left, width) between two values, with its words as a tooltip."""
    top, bottom = sorted(map(frame.y, y))
    places = {"x": x[0], "width": x[1], "y": top, "height": max(0.8, bottom - top)}
    return _tag("rect", f"part tone{tone}", _title(words), **places)


def _curve_words(curve: Curve, axes: Axes) -> str:
    format_x, format_y = axes.format_x, axes.format_y
    (x0, y0), (x1, y1) = curve.points[0], curve.points[-1]
    if x0 == x1:
        return f"{curve.name}: {format_y(y0)} at {axes.across} {format_x(x0)}"
    values = [y for _, y in curve.points]
    ends = f"{format_y(y0)} at {axes.across} {format_x(x0)}, {format_y(y1)} at {format_x(x1)}"
    return f"{curve.name}: {ends}, between {format_y(min(values))} and {format_y(max(values))}"


def _tag(name: str, css: str, body: str = "", /, **attributes: float | str) -> str:
    values = "".join(
        f' {key}="{value if isinstance(value, str) else round(value, 1)}"'
        for key, value in attributes.items()
    )
    return f'<{name} class="{css}"{values}>{body}</{name}>'


def _title(words: str) -> str:
    return f"<title>{escape(words)}</title>"


def _text(x: float, y: float, words: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def _svg(words: str, body: str, *, height: float = HEIGHT) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img">{_title(words)}{body}</svg>'


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


# -- reports ---------------------------------------------------------------------------


def report_page(title: str, head: str, parts: Iterable[str]) -> str:
    """Return the page: a heading with the markup `head` below it, then its parts."""
    style = asset("report.css") + asset("charts.css")
    policy = (
        f"default-src 'none'; style-src {digest_of(style)}; base-uri 'none'; form-action 'none'"
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f"<title>{escape(title)}</title><style>{style}</style></head><body><main>"
        f'<header><h1>{escape(title)}</h1><p class="soft">{head}</p></header>'
        f"{''.join(parts)}</main></body></html>\n"
    )


def asset(name: str) -> str:
    """Return the text of one of the pages' files."""
    return (files("memagent.pages") / "assets" / name).read_text(encoding="utf-8")


def digest_of(content: str) -> str:
    """Return the source expression by which a content policy allows a style or script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def section(title: str, note: str, body: str) -> str:
    """Return a part of the page under its own heading."""
    words = f'<p class="soft">{escape(note)}</p>' if note else ""
    return f"<section><h2>{escape(title)}</h2>{words}{body}</section>"


def fold(title: str, note: str, body: str) -> str:
    """Return a part that stays closed until it is clicked."""
    words = f'<span class="soft">{escape(note)}</span>' if note else ""
    head = f"<summary>{escape(title)}{words}</summary>"
    return f"<section><details>{head}{body}</details></section>"


def figures(charts: Iterable[Chart]) -> str:
    """Return charts side by side."""
    boxes = [chart.__html__() for chart in charts]
    css = "charts three" if len(boxes) == 3 or len(boxes) > 4 else "charts"
    return f'<div class="{css}">{"".join(boxes)}</div>'


def tiles(values: Iterable[tuple[str, str]]) -> str:
    """Return boxes of (markup of a value, words)."""
    boxes = (
        f'<div class="tile"><b>{value}</b><span class="soft">{escape(words)}</span></div>'
        for value, words in values
    )
    return f'<div class="tiles">{"".join(boxes)}</div>'


def table(
    title: str, heads: Iterable[str], labels: Iterable[str], columns: Iterable[Sequence[str]]
) -> str:
    """Return a table with a row for each label; columns are lists of `<td>` elements.

    It stands in a box that scrolls sideways, by keyboard too; `title` names the box.
    """
    words = (escape(name).replace("_", "_<wbr>") for name in heads)
    head = "".join(f'<th scope="col">{name}</th>' for name in words)
    rows = "".join(
        f'<tr><th scope="row">{escape(label)}</th>{"".join(cells)}</tr>'
        for label, *cells in zip(labels, *columns, strict=True)
    )
    return (
        f'<div class="wide" tabindex="0" role="group" aria-label="{escape(title)}"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def best_of(
    column: Iterable[Figure | None], pick: Callable[[Sequence[float]], float] | None
) -> float | None:
    """Return the value that `pick` (`min` or `max`) finds best, unless most have it."""
    values = [figure[0] for figure in column if figure is not None]
    best = pick(values) if pick is not None and values else None
    return best if best is not None and 2 * values.count(best) <= len(values) else None


def figure_cells(
    column: Sequence[Figure | None], pick: Callable[[Sequence[float]], float] | None = None
) -> list[str]:
    """Return a `<td>` for each figure, the best one marked."""
    best = best_of(column, pick)
    return [_cell(figure, best) for figure in column]


def _cell(figure: Figure | None, best: float | None) -> str:
    if figure is None:
        return '<td class="soft">-</td>'
    mean, low, high = figure
    span = f"<small>{low:.3f} to {high:.3f}</small>" if None not in (low, high) else ""
    mark = ' class="best"' if mean == best else ""
    return f"<td{mark}>{mean:.3f}{span}</td>"
