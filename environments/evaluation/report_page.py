"""Reports that are one HTML file: style inside, no script, nothing loaded.

A content policy names the digest of the style and forbids everything else. Functions take
text and escape it; parameters called `body` and values of `tiles` are markup.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Final

from memagent.pages.charts import (
    WIDTH,
    Chart,
    Figure,
    asset,
    digest_of,
    number,
    svg_of,
    tag,
    text_tag,
    ticks,
    title_tag,
)

_BAR: Final = 24


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


def bar_chart(
    title: str, bars: Sequence[tuple[str, Figure | None, bool]], *, note: str = ""
) -> Chart:
    """Draw (label, figure, best) as bars over [0, 1], with a whisker for each interval."""
    left = 12.0 + max((min(150.0, 6.4 * len(label)) for label, *_ in bars), default=0.0)
    wide, bottom = WIDTH - 44.0 - left, _BAR * len(bars)
    marks = [
        tag("line", "grid", x1=left + wide * tick, x2=left + wide * tick, y1=0, y2=bottom + 4)
        + text_tag(left + wide * tick, bottom + 17, number(tick), "middle")
        for tick in ticks(0.0, 1.0)
    ]
    for place, (label, figure, best) in enumerate(bars):
        middle = place * _BAR + _BAR / 2
        marks.append(text_tag(left - 8, middle + 4, label, "end"))
        marks.append(_bar(label, figure, "bar best" if best else "bar", (left, middle, wide)))
    return Chart(title=title, note=note, svg=svg_of(title, "".join(marks), height=bottom + 24))


def _bar(label: str, figure: Figure | None, css: str, place: tuple[float, float, float]) -> str:
    """Draw a bar at (left, middle, full width); without a figure only its empty track."""
    left, middle, wide = place
    box = {"x": left, "y": middle - 7, "height": 14, "rx": 3}
    track = tag("rect", "track", width=wide, **box)
    if figure is None:
        return track
    value, *ends = figure
    bar = tag(
        "rect", css, title_tag(f"{label}: {value:.3f}"), width=max(value, 0.004) * wide, **box
    )
    x0, x1 = (round(left + (value if end is None else end) * wide, 1) for end in ends)
    path = f"M{x0} {middle}H{x1}M{x0} {middle - 4}v8M{x1} {middle - 4}v8"
    whisker = tag("path", "whisker", d=path) if None not in ends else ""
    return track + bar + whisker + text_tag(WIDTH - 38, middle + 4, f"{value:.3f}")
