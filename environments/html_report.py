"""A report as one HTML page: two plots as inline SVG and every figure as a table. Nothing is loaded from anywhere.

The colours follow the reader's light or dark setting. Intervals are drawn as whiskers; the same numbers stand in the tables below.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from environments.figures import ArmReport, Figure, Report

_STYLE = """
:root { color-scheme: light dark; --ink: #1c1c1c; --soft: #777; --paper: #fff; --bar: #3b6ea5; --line: #ddd; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e6e6; --soft: #999; --paper: #16181c; --bar: #6fa3db; --line: #333; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); }
body { max-width: 64rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; display: block; overflow-x: auto; }
th, td { padding: .2rem .7rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
svg { width: 100%; height: auto; } svg text { fill: var(--ink); font: 13px system-ui, sans-serif; }
.bar { fill: var(--bar); } .grid { stroke: var(--line); } .whisker { stroke: var(--ink); stroke-width: 1.5; }
.dot { fill: var(--bar); } .soft, svg text.soft { color: var(--soft); fill: var(--soft); }
"""
_ROW, _LEFT, _WIDE = 26, 130, 620


def html_report(report: Report) -> str:
    """The page as text."""
    middle = f"recall@{report.config.ks[len(report.config.ks) // 2]}"
    names = list(report.arms[0].overall) if report.arms else []
    sections = [
        f"<h2>{middle}, all answerable questions</h2>",
        _bars(report.arms, middle),
        f"<h2>{middle} and the size of memory</h2>",
        _scatter(report.arms, middle),
        "<h2>All figures, answerable questions</h2>",
        _table(names, [(arm.arm, [arm.overall.get(name) for name in names]) for arm in report.arms]),
    ]
    for category, count in report.counts.items():
        rows = [(arm.arm, [arm.categories.get(category, {}).get(name) for name in names]) for arm in report.arms]
        sections += [f"<h2>Category {escape(category or '-')}, {count} questions</h2>", _table(names, rows)]
    for episode in dict.fromkeys(name for arm in report.arms for name in arm.alone):
        rows = [(arm.arm, [arm.alone.get(episode, {}).get(name) for name in names]) for arm in report.arms]
        sections += [f"<h2>{escape(episode)} by itself</h2>", _table(names, rows)]
    title = f"memagent-eval: {report.config.benchmark}"
    config = escape(report.config.model_dump_json(indent=2))
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{title}</title><style>{_STYLE}</style><h1>{title}</h1>{''.join(sections)}<h2>Configuration</h2><pre>{config}</pre></html>\n"
    )


def _bars(arms: Sequence[ArmReport], name: str) -> str:
    """A bar an arm over [0, 1], with a whisker for its interval."""
    height = _ROW * len(arms) + 30
    parts = [_grid(height)]
    for row, arm in enumerate(arms):
        figure, y = arm.overall.get(name), row * _ROW + 4
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 14}" text-anchor="end">{escape(arm.arm)}</text>')
        if figure is None or figure.value is None:
            continue
        parts.append(f'<rect class="bar" x="{_LEFT}" y="{y}" width="{figure.value * _WIDE:.1f}" height="{_ROW - 8}"/>')
        if figure.low is not None and figure.high is not None:
            low, high, mid = _x(figure.low), _x(figure.high), y + (_ROW - 8) / 2
            parts.append(f'<line class="whisker" x1="{low:.1f}" x2="{high:.1f}" y1="{mid}" y2="{mid}"/>')
        end = _x(max(figure.value, figure.high or 0.0)) + 6
        parts.append(f'<text x="{end:.1f}" y="{y + 14}">{figure.value:.3f}</text>')
    return _svg(height, parts, f"{name} of each arm")


def _scatter(arms: Sequence[ArmReport], name: str) -> str:
    """A dot an arm: its figure against the share of the dialogue that it holds as memory."""
    places: dict[tuple[float, float], list[str]] = {}
    for arm in arms:
        figure, whole = arm.overall.get(name), arm.costs.dialogue_tokens
        if figure is not None and figure.value is not None and whole:
            spot = (round(figure.value, 3), round(arm.costs.memory_tokens / whole, 3))
            places.setdefault(spot, []).append(arm.arm)
    top = max([1.0, *(share for _, share in places)])
    height = 260
    parts = [_grid(height), '<text class="soft" x="4" y="20">memory / dialogue</text>']
    for share in (0.0, 0.5, 1.0):
        parts.append(
            f'<text class="soft" x="{_LEFT - 8}" y="{_y(share, top):.1f}" text-anchor="end">{share:.1f}</text>'
        )
    for (value, share), names in places.items():
        label = escape(", ".join(names))
        parts.append(
            f'<circle class="dot" cx="{_x(value):.1f}" cy="{_y(share, top):.1f}" r="5"><title>{label}</title></circle>'
        )
        if share < 0.95:
            parts.append(f'<text x="{_x(value) + 8:.1f}" y="{_y(share, top) + 4:.1f}">{label}</text>')
    return _svg(height, parts, f"{name} against the size of memory; hover over a dot for its arms")


def _x(value: float) -> float:
    return _LEFT + value * _WIDE


def _y(share: float, top: float) -> float:
    return 220.0 - 190.0 * share / top


def _grid(height: int) -> str:
    lines: list[str] = []
    for tenth in range(0, 11, 2):
        x = _x(tenth / 10)
        lines.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height - 22}"/>')
        lines.append(f'<text class="soft" x="{x:.1f}" y="{height - 6}" text-anchor="middle">{tenth / 10:.1f}</text>')
    return "".join(lines)


def _svg(height: int, parts: Sequence[str], title: str) -> str:
    label = escape(title)
    return f'<svg viewBox="0 0 {_LEFT + _WIDE + 80} {height}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def _table(names: Sequence[str], rows: Sequence[tuple[str, Sequence[Figure | None]]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in ("arm", *names))
    body = "".join(
        f"<tr><td>{escape(arm)}</td>{''.join(f'<td>{_cell(figure)}</td>' for figure in figures)}</tr>"
        for arm, figures in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def _cell(figure: Figure | None) -> str:
    if figure is None or figure.value is None:
        return "-"
    if figure.low is None or figure.high is None:
        return f"{figure.value:.3f}"
    return f'{figure.value:.3f} <span class="soft">[{figure.low:.3f}, {figure.high:.3f}]</span>'
