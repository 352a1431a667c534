"""A report as one HTML page: plots as inline SVG and every figure as a table.

Nothing is loaded from anywhere, and there is no script.

The colours follow the reader's light or dark setting. Intervals are drawn as whiskers;
the same numbers stand in the tables below. The best value of a column is marked, unless
most have it: the highest, of what is lost the lowest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape

from environments.evaluation.figures import ArmReport, Figure, Report

STYLE = """
:root { color-scheme: light dark; --ground: #f4f5f7; --paper: #fff; --ink: #1b2028; --soft: #5d6675; --line: #e1e4e9; --grid: #e9ecf0;
  --bar: #3d5bd9; --best: #0d7a68; }
@media (prefers-color-scheme: dark) { :root { --ground: #0f1216; --paper: #171b21; --ink: #e7eaf0; --soft: #a2abb9; --line: #2a3039;
  --grid: #242a32; --bar: #8aa0ff; --best: #5fd6c2; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink);
  font: 14px/1.5 "Inter", system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 76rem; margin: 0 auto; padding: 2.2rem 1.25rem 4rem; display: grid; grid-template-columns: minmax(0, 1fr);
  gap: 1.1rem; }
h1 { font-size: 1.55rem; letter-spacing: -.02em; line-height: 1.2; margin: 0 0 .3rem; }
h2 { font-size: 1rem; margin: 0 0 .2rem; letter-spacing: -.005em; }
p { margin: 0; } .soft { color: var(--soft); }
section { background: var(--paper); border: 1px solid var(--line); border-radius: 12px; padding: 1.1rem 1.25rem; min-width: 0; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(11rem, 42%), 1fr)); gap: 1.1rem; }
.tile { background: var(--paper); border: 1px solid var(--line); border-radius: 12px; padding: .8rem 1.25rem; overflow-wrap: anywhere; }
.tile b { display: block; font-size: 1.35rem; line-height: 1.3; letter-spacing: -.02em; font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; margin: .7rem -1.25rem -.4rem; padding: 0 1.25rem .4rem; }
.wide:focus-visible, summary:focus-visible { outline: 2px solid var(--bar); outline-offset: -2px; border-radius: 8px; }
svg { display: block; width: 100%; min-width: 34rem; max-width: 56rem; height: auto; }
svg text { fill: var(--ink); font: 13px system-ui, sans-serif; }
svg text.soft { fill: var(--soft); font-size: 12px; }
.bar { fill: var(--bar); opacity: .85; } .bar.best { fill: var(--best); opacity: 1; } .track { fill: var(--grid); }
.grid { stroke: var(--grid); } .whisker { stroke: var(--ink); stroke-width: 1.5; } .dot { fill: var(--bar); stroke: var(--paper);
  stroke-width: 2; }
table { border-collapse: separate; border-spacing: 0; font-size: 13px; font-variant-numeric: tabular-nums; min-width: 100%; }
th, td { padding: .34rem .75rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--soft); font-weight: 550; font-size: 12px; } tbody tr:last-child > * { border-bottom: 0; }
tbody tr:hover > * { background: var(--ground); }
th:first-child { text-align: left; position: sticky; left: 0; background: var(--paper); padding-left: 0; color: var(--ink);
  font-size: 13px; }
td small { display: block; color: var(--soft); font-size: 11px; } td.best { color: var(--best); font-weight: 650; }
td.best small { font-weight: 400; }
summary { cursor: pointer; font-weight: 600; } summary .soft { font-weight: 400; margin-left: .5rem; }
pre { margin: .8rem 0 0; white-space: pre-wrap; overflow-wrap: anywhere; font: 12px/1.55 ui-monospace, Menlo, Consolas, monospace;
  color: var(--soft); }
ul { margin: .5rem 0 0; padding-left: 1.1rem; }
@media print { body { background: none; } section, .tile { break-inside: avoid; } }
"""
_ROW, _LEFT, _WIDE = 30, 132, 600
_LESS_IS_BETTER = frozenset({"m_fail", "m_fail_content", "rejected", "unreadable"})
_NO_BEST = frozenset({"memory_share", "add", "update", "delete", "noop"})
"""Figures of which neither more nor less is better by itself."""
_COSTS = (
    ("memory_items", "memories"),
    ("memory_tokens", "memory tokens"),
    ("dialogue_tokens", "dialogue tokens"),
    ("calls", "model calls"),
    ("model_tokens", "model tokens"),
    ("remember_s", "remembering, s"),
    ("ask_ms", "a question, ms"),
)
Cells = Mapping[str, Figure]


def html_report(report: Report) -> str:
    """The page as text."""
    arms, generated = report.arms, report.config.worlds is not None
    middle = "exact" if generated else f"recall@{report.config.ks[len(report.config.ks) // 2]}"
    names = list(arms[0].overall) if arms else []
    playing = list(arms[0].playing) if arms else []
    intervals = "with 95 % intervals over conversations"
    parts = [
        _head(report),
        _tiles(report, middle),
        section(f"{middle}, all answerable questions", intervals, _bars(arms, middle)),
        *(
            [
                section(
                    "overwritten",
                    f"asked for what replaced something, {intervals}",
                    _bars(arms, "overwritten"),
                )
            ]
            * generated
        ),
        section(
            f"{middle} and the size of memory",
            "share of the dialogue's tokens that is held",
            _scatter(arms, middle),
        ),
        section(
            "All figures, answerable questions",
            "abstention: all questions",
            _table(names, arms, lambda arm: arm.overall),
        ),
        section(f"{middle} by category", "", _by_category(report, middle)),
        section(
            "How episodes were played",
            "memory over dialogue, shares of ops done and refused, replies that could not be read",
            _table(playing, arms, lambda arm: arm.playing),
        ),
    ]
    for category, count in report.counts.items():
        title = f"Category {category or '-'}"
        parts.append(
            fold(
                title,
                f"{count} questions",
                _table(names, arms, lambda arm, of=category: arm.categories.get(of, {})),
            )
        )
    for episode in dict.fromkeys(name for arm in arms for name in arm.alone):
        parts.append(
            fold(
                f"{episode} by itself",
                "",
                _table(names, arms, lambda arm, of=episode: arm.alone.get(of, {})),
            )
        )
    parts += [
        section("What it takes", "means over conversations and questions", _cost_table(arms)),
        _notes(report.notes),
    ]
    parts.append(
        fold("Configuration", "", f"<pre>{escape(report.config.model_dump_json(indent=2))}</pre>")
    )
    title = escape(f"memagent-eval: {report.config.benchmark}")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{STYLE}</style></head><body><main>{''.join(parts)}</main></body></html>\n"
    )


# -- parts of the page -----------------------------------------------------------------


def _head(report: Report) -> str:
    config = report.config
    judge = f", judged by {config.judge.model}" if config.judge is not None else ""
    model = config.model or (
        "no common language model" if config.own_models else "no language model"
    )
    said = f"memagent {config.memagent}, embedder {config.embedder}, {model}{judge}"
    if (worlds := config.worlds) is not None:
        said += f"; {worlds.level} worlds of {worlds.knobs.sessions} sessions, split {worlds.split}, seed {worlds.seed}"
    return f'<header><h1>memagent-eval: {escape(config.benchmark)}</h1><p class="soft">{escape(said)}</p></header>'


def _tiles(report: Report, middle: str) -> str:
    arms = report.arms
    told = [
        (f"{max((arm.episodes for arm in arms), default=0):,}", "conversations"),
        (f"{sum(report.counts.values()):,}", "questions"),
        (f"{len(arms)}", "arms"),
    ]
    told += [
        (_shown(arms[0].overall[name].value), f"{name}, {arms[0].arm}")
        for name in (middle, "f1")
        if arms and name in arms[0].overall
    ]
    tiles = (
        f'<div class="tile"><b>{escape(value)}</b><span class="soft">{escape(label)}</span></div>'
        for value, label in told
    )
    return f'<div class="tiles">{"".join(tiles)}</div>'


def section(title: str, note: str, body: str) -> str:
    said = f'<p class="soft">{escape(note)}</p>' if note else ""
    return f"<section><h2>{escape(title)}</h2>{said}{_scrolled(title, body)}</section>"


def fold(title: str, note: str, body: str) -> str:
    said = f'<span class="soft">{escape(note)}</span>' if note else ""
    return f"<section><details><summary>{escape(title)}{said}</summary>{_scrolled(title, body)}</details></section>"


def _scrolled(title: str, body: str) -> str:
    """A box that scrolls sideways, by keyboard too."""
    return f'<div class="wide" tabindex="0" role="group" aria-label="{escape(title)}">{body}</div>'


def _notes(notes: Sequence[str]) -> str:
    lines = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return f"<section><h2>Notes</h2><ul>{lines}</ul></section>" if notes else ""


# -- plots -----------------------------------------------------------------------------


def _bars(arms: Sequence[ArmReport], name: str) -> str:
    """A bar an arm over [0, 1], with a whisker for its interval."""
    height = _ROW * len(arms) + 30
    best = _best(name, [arm.overall.get(name) for arm in arms])
    parts = [_grid(height)]
    for row, arm in enumerate(arms):
        figure, y = arm.overall.get(name), row * _ROW + 5
        thick, mid = _ROW - 12, y + (_ROW - 12) / 2
        parts.append(
            f'<text x="{_LEFT - 10}" y="{mid + 4.5}" text-anchor="end">{escape(arm.arm)}</text>'
        )
        parts.append(
            f'<rect class="track" x="{_LEFT}" y="{y}" width="{_WIDE}" height="{thick}" rx="4"/>'
        )
        if figure is None or figure.value is None:
            continue
        mark = "bar best" if figure.value == best else "bar"
        parts.append(
            f'<rect class="{mark}" x="{_LEFT}" y="{y}" width="{max(figure.value, 0.004) * _WIDE:.1f}" height="{thick}" rx="4"/>'
        )
        if figure.low is not None and figure.high is not None:
            low, high = _x(figure.low), _x(figure.high)
            parts.append(
                f'<line class="whisker" x1="{low:.1f}" x2="{high:.1f}" y1="{mid}" y2="{mid}"/>'
            )
            parts += [
                f'<line class="whisker" x1="{x:.1f}" x2="{x:.1f}" y1="{mid - 4}" y2="{mid + 4}"/>'
                for x in (low, high)
            ]
        parts.append(f'<text x="{_x(1.0) + 12:.1f}" y="{mid + 4.5}">{figure.value:.3f}</text>')
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
    height = 280
    parts = [_grid(height)]
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = _y(share, top)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_x(1.0)}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(
            f'<text class="soft" x="{_LEFT - 10}" y="{y + 4:.1f}" text-anchor="end">{share:.0%}</text>'
        )
    free: list[tuple[float, float]] = []
    for (value, share), names in sorted(places.items()):
        label = escape(", ".join(names))
        x, y = _x(value), _y(share, top)
        parts.append(
            f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="6.5"><title>{label}</title></circle>'
        )
        line = y + 4
        while any(abs(line - other) < 15 and abs(x - near) < 230 for near, other in free):
            line += 15
        free.append((x, line))
        side = ("end", -12) if value > 0.55 else ("start", 12)
        short = escape(
            names[0]
            if len(names) == 1
            else f"{', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''}"
        )
        parts.append(
            f'<text x="{x + side[1]:.1f}" y="{line:.1f}" text-anchor="{side[0]}">{short}</text>'
        )
    return _svg(height, parts, f"{name} against the size of memory; hover over a dot for its arms")


def _x(value: float) -> float:
    return _LEFT + value * _WIDE


def _y(share: float, top: float) -> float:
    return 236.0 - 220.0 * share / top


def _grid(height: int) -> str:
    lines: list[str] = []
    for tenth in range(0, 11, 2):
        x = _x(tenth / 10)
        lines.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height - 24}"/>')
        lines.append(
            f'<text class="soft" x="{x:.1f}" y="{height - 6}" text-anchor="middle">{tenth / 10:.1f}</text>'
        )
    return "".join(lines)


def _svg(height: int, parts: Sequence[str], title: str) -> str:
    label = escape(title)
    return f'<svg viewBox="0 0 {_LEFT + _WIDE + 68} {height}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


# -- tables ----------------------------------------------------------------------------


def _table(
    names: Sequence[str], arms: Sequence[ArmReport], cells: Callable[[ArmReport], Cells]
) -> str:
    """A row an arm, a column a figure; columns that say nothing are left out."""
    found = [cells(arm) for arm in arms]
    kept = [name for name in names if any(_known(one.get(name)) for one in found)]
    best = {name: _best(name, [one.get(name) for one in found]) for name in kept}
    rows = [[_cell(one.get(name), best[name]) for name in kept] for one in found]
    return _grid_of(kept, [arm.arm for arm in arms], rows)


def _by_category(report: Report, name: str) -> str:
    heads = [f"{category or '-'} (n={count})" for category, count in report.counts.items()]
    columns = [
        [arm.categories.get(category, {}).get(name) for arm in report.arms]
        for category in report.counts
    ]
    best = [_best(name, column) for column in columns]
    rows = [
        [_cell(column[row], top) for column, top in zip(columns, best, strict=True)]
        for row in range(len(report.arms))
    ]
    return _grid_of(heads, [arm.arm for arm in report.arms], rows)


def _cost_table(arms: Sequence[ArmReport]) -> str:
    heads = [*(head for _, head in _COSTS), "failed"]
    rows = [
        [
            *(f"<td>{getattr(arm.costs, name):,.1f}</td>" for name, _ in _COSTS),
            f"<td>{arm.failed:,}</td>",
        ]
        for arm in arms
    ]
    return _grid_of(heads, [arm.arm for arm in arms], rows)


def _grid_of(heads: Sequence[str], arms: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in ("arm", *heads))
    lines = (
        f'<tr><th scope="row">{escape(arm)}</th>{"".join(cells)}</tr>'
        for arm, cells in zip(arms, rows, strict=True)
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def _known(figure: Figure | None) -> bool:
    return figure is not None and figure.value is not None


def _best(name: str, figures: Sequence[Figure | None]) -> float | None:
    """The best value of a column; None where more than half have it, or where there is
    no better and worse.
    """
    if name in _NO_BEST:
        return None
    values = [figure.value for figure in figures if figure is not None and figure.value is not None]
    best = min(values, default=None) if name in _LESS_IS_BETTER else max(values, default=None)
    return best if best is not None and 2 * values.count(best) <= len(values) else None


def _cell(figure: Figure | None, best: float | None) -> str:
    if figure is None or figure.value is None:
        return '<td class="soft">-</td>'
    mark = ' class="best"' if figure.value == best else ""
    span = (
        f"<small>{figure.low:.3f} to {figure.high:.3f}</small>"
        if figure.low is not None and figure.high is not None
        else ""
    )
    return f"<td{mark}>{figure.value:.3f}{span}</td>"


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
