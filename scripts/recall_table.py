"""Print the evidence recall of a `memagent-eval` report as Markdown.

It shows every arm by category, then the single conversations.

A cell holds recall at each k of the report, joined by slashes. With `--into` the tables
replace what stands between the page's two marks `<!-- recall NAME -->` and `<!--
/recall NAME -->`, so that a page is renewed by one command.

    python scripts/recall_table.py runs/static/report.json \
        --into docs/research/measurements.md --name static
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from environments.evaluation.figures import Report
from environments.evaluation.tables import recall_cells


def recall_tables(report: Report) -> str:
    """All tables of a report, each under a line that says what it is of."""
    apart = list(dict.fromkeys(name for arm in report.arms for name in arm.alone))
    config, conversations = report.config, max(arm.episodes for arm in report.arms)
    by_model = f"model {config.model}" if config.model else "no model"
    second = (
        f", second of `five_way`: {config.second_embedder}" if "five_way" in config.arms else ""
    )
    head = (
        f"{config.benchmark}, {conversations} conversations, {by_model}, embedder "
        f"{config.embedder_id}{second}."
    )
    parts = [head, _table(report)]
    for name in apart:
        parts += [f"{name} by itself:", _table(report, episode=name)]
    notes = [note for note in report.notes if "turn" in note or "ran" in note]
    return "\n\n".join([*parts, *notes]) + "\n"


def replaced(page: str, name: str, tables: str) -> str:
    """Return the page with new tables between the marks of this name.

    Raises `ValueError` unless they are there exactly once.
    """
    marks = re.compile(
        rf"(<!-- recall {re.escape(name)} -->\n).*?(<!-- /recall {re.escape(name)} -->)", re.DOTALL
    )
    if len(marks.findall(page)) != 1:
        raise ValueError(
            f"the page needs <!-- recall {name} --> and <!-- /recall {name} --> once, on lines of "
            "their own"
        )
    return marks.sub(lambda found: f"{found[1]}{tables}{found[2]}", page)


def _table(report: Report, *, episode: str | None = None) -> str:
    ks, categories = report.config.ks, list(report.counts)
    counts = [name if episode else f"{name} (n={count})" for name, count in report.counts.items()]
    lines = [
        _row([f"@{'/'.join(map(str, ks))}", *counts, "answerable"]),
        _row(["---"] * (len(counts) + 2)),
    ]
    lines += [
        _row([f"`{arm.arm}`", *recall_cells(arm, ks, categories, episode)]) for arm in report.arms
    ]
    return "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> int:
    """Print the tables, or put them into a page."""
    parser = argparse.ArgumentParser(description="Recall tables of a report as Markdown.")
    parser.add_argument("report", type=Path, help="report.json of a run")
    parser.add_argument(
        "--into", type=Path, metavar="PAGE", help="replace the tables of a page instead of printing"
    )
    parser.add_argument("--name", default="static", help="which marks of the page")
    chosen = parser.parse_args()
    tables = recall_tables(Report.model_validate_json(chosen.report.read_bytes()))
    if chosen.into is None:
        print(tables, end="")
    else:
        page = chosen.into.read_text(encoding="utf-8")
        chosen.into.write_text(replaced(page, chosen.name, tables), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
