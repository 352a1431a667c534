"""The evaluation's HTML report in a real browser: a silent console, no request, its
plots and figures, no overflow.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmark_files import write_locomo
from browser_kit import WIDTHS, chromium, colour_behind, opened, overflow
from typer.testing import CliRunner

from environments.evaluate import app
from environments.evaluation.figures import Report
from environments.evaluation.html_report import html_report

ARMS = ("oracle", "verbatim", "bm25", "empty")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Report]:
    """The page of a small evaluation and its report."""
    folder = tmp_path_factory.mktemp("evaluation")
    words = (
        "locomo",
        write_locomo(folder / "data"),
        "--out",
        folder / "run",
        "--arms",
        ",".join(ARMS),
    )
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    report = Report.model_validate_json(
        (folder / "run" / "report.json").read_text(encoding="utf-8")
    )
    return folder / "run" / "report.html", report


@pytest.fixture(scope="module")
def browser(run: object) -> Iterator[Any]:
    """Started once the evaluation is over: a running browser holds this thread's event loop."""
    with chromium() as found:
        yield found


def test_every_figure_and_both_plots_are_there(browser: Any, run: tuple[Path, Report]) -> None:
    file, report = run
    with opened(browser, file) as tab:
        plots = tab.page.locator("svg[role=img]")
        assert plots.count() == 2
        assert all(plots.nth(at).bounding_box()["height"] > 60 for at in range(2))
        assert (
            plots.first.locator(".bar").count() == len(ARMS)
            and plots.last.locator(".dot").count() >= 2
        )
        for fold in tab.page.locator("details").all():
            fold.evaluate("fold => { fold.open = true; }")
        text = tab.page.inner_text("main")
        for arm in report.arms:
            for figure in (*arm.overall.values(), *arm.playing.values()):
                assert figure.value is None or f"{figure.value:.3f}" in text
        assert all(note in text for note in report.notes)
        assert tab.page.locator("table").count() == 4 + len(report.counts) + len(
            report.arms[0].alone
        )


def test_best_values_are_marked(browser: Any, run: tuple[Path, Report]) -> None:
    file, report = run
    by_arm = {arm.arm: arm.overall["m_fail"].value for arm in report.arms}
    with opened(browser, file) as tab:
        table = tab.page.locator("table").first
        column = table.locator("thead th").all_inner_texts().index("m_fail") - 1
        marked = table.locator(f"tbody tr td:nth-of-type({column + 1})").evaluate_all(
            "cells => cells.map(one => one.className)"
        )
        assert (marked[ARMS.index("empty")], by_arm["empty"]) == ("", 1.0)


def test_tiles_show_the_best_arm_that_does_not_know_the_answers(
    browser: Any, run: tuple[Path, Report]
) -> None:
    file, report = run
    with opened(browser, file) as tab:
        tiles = tab.page.locator(".tile").all_inner_texts()
    for tile, name in zip(tiles[-2:], ("recall@", "f1"), strict=True):
        figure = next(key for key in tile.split("\n")[1].split(", ")[:1] if key.startswith(name))
        figures = {arm.arm: arm.overall[figure].value or 0.0 for arm in report.arms}
        best = max(figures[arm] for arm in ARMS[1:])
        value, words = tile.split("\n")
        arm = words.rpartition("best: ")[2]
        assert arm != "oracle" and figures[arm] == best and value == f"{best:.3f}"


def test_an_oracle_alone_is_the_best_there_is(run: tuple[Path, Report]) -> None:
    _, report = run
    alone = report.model_copy(update={"arms": report.arms[:1]})
    assert "best: oracle" in html_report(alone)


def test_wide_tables_scroll_within_their_box_on_a_phone(
    browser: Any, run: tuple[Path, Report]
) -> None:
    with opened(browser, run[0], width=390) as tab:
        boxes = tab.page.locator(".wide")
        wider = [at for at in range(boxes.count()) if scrolled(boxes.nth(at)) > 0]
        assert len(wider) >= 4 and overflow(tab.page) <= 0
        first = boxes.nth(wider[0])
        name = first.locator("tbody th").first
        before = name.bounding_box()["x"]
        first.evaluate("box => { box.scrollLeft = 300; }")
        assert first.evaluate("box => box.scrollLeft") == 300
        assert abs(name.bounding_box()["x"] - before) <= 20
        assert overflow(tab.page) <= 0


def test_tables_are_whole_on_a_notebook_and_axes_have_names(
    browser: Any, run: tuple[Path, Report]
) -> None:
    with opened(browser, run[0], width=1280) as tab:
        boxes = tab.page.locator(".wide:visible")
        assert [scrolled(boxes.nth(at)) for at in range(boxes.count())] == [0] * boxes.count()
        texts = tab.page.locator("figure").last.locator("text").all_text_contents()
        assert {"recall@10", "memory by dialogue, in tokens"} <= set(texts)


def scrolled(box: Any) -> int:
    """Pixels of a box that its width hides."""
    return box.evaluate("box => box.scrollWidth - box.clientWidth")


@pytest.mark.parametrize("width", WIDTHS)
def test_it_fits_every_width(browser: Any, run: tuple[Path, Report], width: int) -> None:
    with opened(browser, run[0], width=width) as tab:
        tab.page.evaluate(
            "document.querySelectorAll('details').forEach(one => { one.open = true; })"
        )
        assert overflow(tab.page) <= 0


def test_it_follows_the_readers_theme(browser: Any, run: tuple[Path, Report]) -> None:
    grounds: set[str] = set()
    for scheme in ("light", "dark"):
        with opened(browser, run[0], scheme=scheme) as tab:
            grounds.add(colour_behind(tab.page))
    assert len(grounds) == 2
