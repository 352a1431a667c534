"""An evaluation's report as one HTML page: charts of every arm, and every figure in a table.

The same intervals are drawn as whiskers and stand in the tables below. The best value of
a column is marked, unless most have it: the highest, of what is lost the lowest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape

from environments.evaluation import tables
from environments.evaluation.arms import IDEAL
from environments.evaluation.figures import ArmReport, Figure, Report
from environments.evaluation.report_page import (
    bar_chart,
    best_of,
    figure_cells,
    figures,
    fold,
    report_page,
    section,
    table,
    tiles,
)
from memagent.pages.charts import Axes, Figure as Cell, dot_chart, share

_LESS_IS_BETTER = frozenset({"m_fail", "m_fail_content", "rejected", "unreadable"})
_NO_BEST = frozenset({"memory_share", "add", "update", "delete", "noop"})
"""Figures of which neither more nor less is better by itself."""
_KNOWING = frozenset({"oracle", IDEAL})
"""Arms that are shown the evidence or know the world: bounds, not competitors."""
_COSTS = {
    "memory_items": "memories",
    "memory_tokens": "memory tokens",
    "dialogue_tokens": "dialogue tokens",
    "calls": "model calls",
    "model_tokens": "model tokens",
    "remember_s": "remembering, s",
    "ask_ms": "a question, ms",
}
_INTERVALS = "with 95 % intervals over conversations"


def html_report(report: Report) -> str:
    """Return the page as text."""
    title = f"memagent-eval: {report.config.benchmark}"
    return report_page(title, escape(_subject(report)), _parts(report))


def _subject(report: Report) -> str:
    config = report.config
    judge = f", judged by {config.judge.model}" if config.judge is not None else ""
    model = config.model or (
        "no common language model" if config.own_models else "no language model"
    )
    words = f"memagent {config.memagent}, embedder {config.embedder}, {model}{judge}"
    if (worlds := config.worlds) is not None:
        words += f"; {worlds.level} worlds of {worlds.knobs.sessions} sessions"
        words += f", split {worlds.split}, seed {worlds.seed}"
    return words


def _parts(report: Report) -> Iterator[str]:
    """Yield the parts of the page, top to bottom."""
    arms, generated = report.arms, report.config.worlds is not None
    middle = "exact" if generated else f"recall@{report.config.ks[len(report.config.ks) // 2]}"
    yield tiles(_tiles(report, middle))
    yield section(f"{middle}, all answerable questions", _INTERVALS, _bars(arms, middle))
    if generated:
        note = f"asked for what replaced something, {_INTERVALS}"
        yield section("overwritten", note, _bars(arms, "overwritten"))
    note = "share of the dialogue's tokens that is held"
    yield section(f"{middle} and the size of memory", note, _memory_sizes(arms, middle))
    title = "All figures, answerable questions"
    body = _table(title, arms, lambda arm: arm.overall)
    yield section(title, "abstention: all questions", body)
    yield section(f"{middle} by category", "", _by_category(report, middle))
    title = "How episodes were played"
    note = "memory over dialogue, shares of ops done and refused, replies that could not be read"
    yield section(title, note, _table(title, arms, lambda arm: arm.playing))
    for category, count in report.counts.items():
        title = f"Category {category or '-'}"
        body = _table(title, arms, lambda arm, of=category: arm.categories.get(of, {}))
        yield fold(title, f"{count} questions", body)
    for episode in dict.fromkeys(name for arm in arms for name in arm.alone):
        title = f"{episode} by itself"
        body = _table(title, arms, lambda arm, of=episode: arm.alone.get(of, {}))
        yield fold(title, "", body)
    yield section("What it takes", "means over conversations and questions", _costs(arms))
    if report.notes:
        notes = "".join(f"<li>{escape(note)}</li>" for note in report.notes)
        yield section("Notes", "", f"<ul>{notes}</ul>")
    config = escape(report.config.model_dump_json(indent=2))
    yield fold("Configuration", "", f"<pre>{config}</pre>")


def _tiles(report: Report, middle: str) -> Iterator[tuple[str, str]]:
    arms = report.arms
    yield f"{max((arm.episodes for arm in arms), default=0):,}", "conversations"
    yield f"{sum(report.counts.values()):,}", "questions"
    yield f"{len(arms)}", "arms"
    for name in (middle, "f1"):
        best = _best_arm(arms, name)
        if best is not None:
            yield tables.format_figure(best.overall[name]), f"{name}, best: {best.arm}"


def _best_arm(arms: Sequence[ArmReport], name: str) -> ArmReport | None:
    """Return the arm with the highest figure, of those that do not know the answers.

    Where all of them know, it is the best of these; the first one of equals.
    """
    known = [arm for arm in arms if _cell(arm.overall.get(name)) is not None]
    playing = [arm for arm in known if arm.arm not in _KNOWING] or known
    return max(playing, key=lambda arm: arm.overall[name].value or 0.0, default=None)


# -- charts ----------------------------------------------------------------------------


def _bars(arms: Sequence[ArmReport], name: str) -> str:
    """Draw a bar for each arm, with a whisker for its interval."""
    cells = [_cell(arm.overall.get(name)) for arm in arms]
    best = best_of(cells, _pick(name))
    bars = [
        (arm.arm, cell, cell is not None and cell[0] == best)
        for arm, cell in zip(arms, cells, strict=True)
    ]
    return figures([bar_chart(f"{name} of each arm", bars)])


def _memory_sizes(arms: Sequence[ArmReport], name: str) -> str:
    """Draw a dot for each arm: its figure against the share of the dialogue it holds."""
    places: dict[tuple[float, float], list[str]] = {}
    for arm in arms:
        cell, dialogue = _cell(arm.overall.get(name)), arm.costs.dialogue_tokens
        if cell is not None and dialogue:
            spot = (round(cell[0], 3), round(arm.costs.memory_tokens / dialogue, 3))
            places.setdefault(spot, []).append(arm.arm)
    dots = [(x, y, ", ".join(names)) for (x, y), names in sorted(places.items())]
    high = max([1.0, *(y for _, y, _ in dots)])
    axes = Axes(across=name, up="memory by dialogue, in tokens", format_y=share, high=high)
    return figures([dot_chart(f"{name} against the size of memory", dots, axes)])


# -- tables ----------------------------------------------------------------------------


def _table(
    title: str, arms: Sequence[ArmReport], cells: Callable[[ArmReport], Mapping[str, Figure]]
) -> str:
    """Return a row for each arm, a column for each figure that any arm has."""
    rows = [cells(arm) for arm in arms]
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: [_cell(row.get(name)) for row in rows] for name in names}
    return _figure_table(title, arms, {name: col for name, col in columns.items() if any(col)})


def _by_category(report: Report, name: str) -> str:
    columns = {
        f"{category or '-'} (n={count})": [
            _cell(arm.categories.get(category, {}).get(name)) for arm in report.arms
        ]
        for category, count in report.counts.items()
    }
    return _figure_table(f"{name} by category", report.arms, columns, name)


def _figure_table(
    title: str,
    arms: Sequence[ArmReport],
    columns: Mapping[str, Sequence[Cell | None]],
    name: str = "",
) -> str:
    """Return a table whose columns are judged by their own names, or all by `name`."""
    cells = [figure_cells(column, _pick(name or head)) for head, column in columns.items()]
    return table(title, ["arm", *columns], [arm.arm for arm in arms], cells)


def _costs(arms: Sequence[ArmReport]) -> str:
    columns = [[f"<td>{getattr(arm.costs, name):,.1f}</td>" for arm in arms] for name in _COSTS]
    columns.append([f"<td>{arm.failed:,}</td>" for arm in arms])
    heads = ["arm", *_COSTS.values(), "failed"]
    return table("What it takes", heads, [arm.arm for arm in arms], columns)


def _cell(figure: Figure | None) -> Cell | None:
    if figure is None or figure.value is None:
        return None
    return figure.value, figure.low, figure.high


def _pick(name: str) -> Callable[[Sequence[float]], float] | None:
    """Return how the best value of a figure is picked; None where there is no better."""
    return None if name in _NO_BEST else min if name in _LESS_IS_BETTER else max
