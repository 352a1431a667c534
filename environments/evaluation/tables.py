"""A report as tables for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rich.console import Console
from rich.table import Table

from environments.evaluation.figures import ArmReport, Figure, Report

_LAYOUT = (
    ("f1", "F1"),
    ("f1_memory_r2", "F1 (R2)"),
    ("bleu1", "BLEU-1"),
    ("exact", "EM"),
    ("overwritten", "overwritten"),
    ("judge_lenient", "judge, lenient"),
    ("judge_strict", "judge, strict"),
    ("judge_agreement", "both agree"),
    ("citation_precision", "cited right"),
    ("abstention_precision", "abst. P"),
    ("abstention_recall", "abst. R"),
    ("m_fail", "M-Fail"),
    ("m_fail_content", "M-Fail text"),
)
_FIRST = ("exact", "f1", "overwritten", "abstention_recall", "m_fail")
"""Figures of a generated world that stand with their intervals."""
WIDTH = 170
"""Columns of the output where it is no terminal."""


def print_report(report: Report) -> None:
    """Write the tables to standard output, then the notes."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
    ks = report.config.ks
    layout = [
        (name, head) for name, head in _LAYOUT if any(name in arm.overall for arm in report.arms)
    ]
    if report.config.worlds is not None:
        console.print(
            _interval_table("Answers and memory", report.arms, lambda arm: arm.overall, _FIRST)
        )
    console.print(_interval_table("How episodes were played", report.arms, lambda arm: arm.playing))
    console.print(_recall_table(report.arms, ks))
    console.print(_recall_by_category(report))
    console.print(_plain_table("Answers and memory, all answerable questions", report.arms, layout))
    console.print(_category_table("f1", report))
    for episode in dict.fromkeys(name for arm in report.arms for name in arm.alone):
        console.print(_recall_by_category(report, episode=episode))
        console.print(
            _plain_table(
                f"{episode} by itself: answers and memory", report.arms, layout, episode=episode
            )
        )
    console.print(_cost_table(report.arms))
    for note in report.notes:
        console.print(note, markup=False, highlight=False)


def format_figure(figure: Figure | None, *, interval: bool = False) -> str:
    """Format a figure with three digits, with its interval if known; a dash for none."""
    if figure is None or figure.value is None:
        return "-"
    text = f"{figure.value:.3f}"
    return (
        f"{text} [{figure.low:.3f}, {figure.high:.3f}]"
        if interval and figure.low is not None
        else text
    )


def _recall_table(arms: Sequence[ArmReport], ks: Sequence[int]) -> Table:
    questions = arms[0].questions if arms else 0
    episodes = arms[0].episodes if arms else 0
    table = Table(
        title=f"Evidence recall over turns, answerable ones of {questions:,} questions, "
        f"conversations: {episodes} [95 % bootstrap interval over conversations]"
    )
    table.add_column("arm")
    for k in ks:
        table.add_column(f"recall@{k}", justify="right")
    for arm in arms:
        table.add_row(
            arm.arm, *(format_figure(arm.overall.get(f"recall@{k}"), interval=True) for k in ks)
        )
    return table


def _interval_table(
    title: str,
    arms: Sequence[ArmReport],
    figures: Callable[[ArmReport], Mapping[str, Figure]],
    names: Sequence[str] | None = None,
) -> Table:
    """Return a column for each figure that any arm has, with its interval."""
    known = dict(_LAYOUT) | {name: name.replace("_", " ") for arm in arms for name in arm.playing}
    rows = [figures(arm) for arm in arms]
    chosen = [
        name
        for name in names or (rows[0] if rows else ())
        if any((figure := row.get(name)) is not None and figure.value is not None for row in rows)
    ]
    table = Table(title=f"{title} [95 % bootstrap interval over conversations]")
    table.add_column("arm")
    for name in chosen:
        table.add_column(known[name], justify="right")
    for arm, row in zip(arms, rows, strict=True):
        table.add_row(arm.arm, *(format_figure(row.get(name), interval=True) for name in chosen))
    return table


def _plain_table(
    title: str,
    arms: Sequence[ArmReport],
    layout: Sequence[tuple[str, str]],
    *,
    episode: str | None = None,
) -> Table:
    table = Table(title=title)
    table.add_column("arm")
    for _, head in layout:
        table.add_column(head, justify="right")
    for arm in arms:
        figures: Mapping[str, Figure] = (
            arm.overall if episode is None else arm.alone.get(episode, {})
        )
        table.add_row(arm.arm, *(format_figure(figures.get(name)) for name, _ in layout))
    return table


def recall_cells(
    arm: ArmReport, ks: Sequence[int], categories: Sequence[str], episode: str | None = None
) -> list[str]:
    """Return recall at every k, joined by slashes, of each category and of all questions.

    Unanswerable questions do not count. With `episode` it is that conversation's recall.
    """
    overall = arm.overall if episode is None else arm.alone.get(episode, {})
    by_category = arm.categories if episode is None else arm.alone_categories.get(episode, {})
    groups = [*(by_category.get(category, {}) for category in categories), overall]
    return [
        " / ".join(format_figure(group.get(f"recall@{k}")).removeprefix("0") for k in ks)
        for group in groups
    ]


def _recall_by_category(report: Report, *, episode: str | None = None) -> Table:
    ks = report.config.ks
    table = Table(
        title=f"{episode + ' by itself: e' if episode else 'E'}vidence "
        f"recall@{'/'.join(map(str, ks))} by category"
    )
    table.add_column("arm")
    for category, count in report.counts.items():
        table.add_column(
            f"{category or '-'}" if episode else f"{category or '-'} (n={count})", justify="right"
        )
    table.add_column("answerable", justify="right")
    for arm in report.arms:
        table.add_row(arm.arm, *recall_cells(arm, ks, list(report.counts), episode))
    return table


def _category_table(name: str, report: Report) -> Table:
    table = Table(title=f"{name} by category")
    table.add_column("arm")
    for category, count in report.counts.items():
        table.add_column(f"{category or '-'} (n={count})", justify="right")
    for arm in report.arms:
        table.add_row(
            arm.arm,
            *(
                format_figure(arm.categories.get(category, {}).get(name))
                for category in report.counts
            ),
        )
    return table


def _cost_table(arms: Sequence[ArmReport]) -> Table:
    table = Table(title="Costs: means an episode, time a question")
    for head in (
        "arm",
        "items",
        "memory tokens",
        "dialogue tokens",
        "model calls",
        "model tokens",
        "remember s",
        "ask ms",
        "failed",
    ):
        table.add_column(head, justify="left" if head == "arm" else "right")
    for arm in arms:
        costs = arm.costs
        table.add_row(
            arm.arm,
            f"{costs.memory_items:,.0f}",
            f"{costs.memory_tokens:,.0f}",
            f"{costs.dialogue_tokens:,.0f}",
            f"{costs.calls:,.0f}",
            f"{costs.model_tokens:,.0f}",
            f"{costs.remember_s:.2f}",
            f"{costs.ask_ms:.1f}",
            str(arm.failed),
        )
    return table
