"""The page about a training run in a real browser: a silent console, no request, every
part, no overflow, hostile text shown as text.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser_kit import WIDTHS, chromium, colour_behind, opened, overflow
from places import ROOT
from run_folder_kit import EVERY, HOSTILE, STAGES, STEPS, write_run

from memagent.core.errors import ConfigError
from memagent.pages.charts import Curve, column_chart, line_chart, ticks
from memagent.pages.run_folders import Run, read_run
from train.report.report import phases, write_report


def run_of(page: Path) -> Run:
    run = read_run(page.parent)
    assert run is not None
    return run


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_run(tmp_path_factory.mktemp("training") / "run")
    return write_report(folder, folder / "report.html")


@pytest.fixture(scope="module")
def browser(page: Path) -> Iterator[Any]:
    with chromium() as found:
        yield found


def test_every_part_is_there(browser: Any, page: Path) -> None:
    with opened(browser, page) as tab:
        heads = tab.page.locator("section h2").all_inner_texts()
        assert heads == [
            "Validation",
            "Test",
            "Reward and ops",
            "Groups and credit",
            "Time",
            "The update",
            "Before and after",
        ]
        plots = tab.page.locator("svg[role=img]")
        assert plots.count() == 4 + 3 + 3 + 3 + 6, "a figure that was never logged has no plot"
        assert all(plots.nth(at).bounding_box()["height"] > 100 for at in range(plots.count()))
        validations = len(STAGES) * (STEPS // EVERY + 1)
        assert (
            plots.first.locator(".dot").count() == validations
            and plots.first.locator(".ring").count() == 1
        )
        assert (
            plots.first.locator(".band").count() == 1
            and plots.first.locator(".border").count() == 1
        )
        text = tab.page.inner_text("main")
        assert "finished" in text and "r = 0." in text and "is neither generation nor loss" in text
        rows = tab.page.locator("tbody tr").all_inner_texts()
        policies = ["the start", "best of stage0", "best of stage1", "last of stage1"]
        assert [row.partition("\t")[0] for row in rows] == [
            name for name in policies for _ in STAGES
        ]
        assert "with words and names of their own" in text


def test_a_control_stands_beside_the_run_on_the_same_scale(browser: Any, tmp_path: Path) -> None:
    folder, control = write_run(tmp_path / "run"), write_run(tmp_path / "shuffled")
    lines = (control / "validation.jsonl").read_text(encoding="utf-8")
    halved = re.sub(r'"f1": ([0-9.]+)', lambda f1: f'"f1": {float(f1[1]) / 2}', lines)
    assert halved != lines
    (control / "validation.jsonl").write_text(halved, encoding="utf-8")
    page = write_report(folder, tmp_path / "page.html", control=control)
    with opened(browser, page) as tab:
        charts = tab.page.locator("section").first.locator("figure")
        assert charts.count() == 4
        for place in range(4):
            chart = charts.nth(place)
            assert chart.locator("polyline").count() == 2
            assert chart.locator(".ring").count() == 1, "the run's best, not the control's"
            assert chart.locator(".legend").inner_text().endswith("control: shuffled")
        ends = charts.first.locator("polyline").evaluate_all(
            "lines => lines.map(it => +it.getAttribute('points').split(',').at(-1))"
        )
        assert 160 < ends[1] + (180 - ends[0]) / 2 < 200 and ends[1] > ends[0]
        assert "local advantage" in tab.page.inner_text("main")


def test_phases_add_up(page: Path) -> None:
    run = run_of(page)
    times = dict(run.logged("step_time"))
    rows = phases(run)
    assert len(rows) == len(STAGES) * STEPS == len(times)
    for step, *parts in rows:
        assert sum(parts) == pytest.approx(times[step])
        assert parts[:3] == [1.2, 0.5, 0.3] and parts[4] == pytest.approx(0.1)


def test_the_share_told_is_that_of_the_phases(browser: Any, page: Path) -> None:
    rows = phases(run_of(page))
    whole = sum(sum(parts) for _, *parts in rows)
    rest = sum(parts[1] + parts[2] + parts[4] for _, *parts in rows)
    assert f"{100 * rest / whole:.0f} % is neither" in page.read_text(encoding="utf-8")


def test_what_was_said_is_text(browser: Any, page: Path) -> None:
    with opened(browser, page) as tab:
        tab.page.evaluate(
            "document.querySelectorAll('details').forEach(one => { one.open = true; })"
        )
        assert HOSTILE in tab.page.inner_text(
            ".pair"
        ) and f"{HOSTILE} said at 23" in tab.page.inner_text("main")
        assert tab.page.locator("script").count() == 0
        assert tab.page.locator(".pair h3").count() == 4, "memory and replies, before and after"
        assert tab.page.locator(".memory").first.locator("li").last.inner_text() == "and 3 more"


@pytest.mark.parametrize("width", WIDTHS)
def test_it_fits_every_width(browser: Any, page: Path, width: int) -> None:
    with opened(browser, page, width=width) as tab:
        tab.page.evaluate(
            "document.querySelectorAll('details').forEach(one => { one.open = true; })"
        )
        assert overflow(tab.page) <= 0


def test_tables_are_whole_on_a_notebook(browser: Any, tmp_path: Path) -> None:
    zipfile.ZipFile(ROOT / "docs/research/results/smoke_run.zip").extractall(tmp_path)
    report = write_report(tmp_path / "smoke", tmp_path / "report.html")
    with opened(browser, report, width=1280) as tab:
        boxes = tab.page.locator(".wide:visible").all()
        assert boxes
        assert [box.evaluate("box => box.scrollWidth - box.clientWidth") for box in boxes] == [
            0
        ] * len(boxes)


def test_it_follows_the_readers_theme(browser: Any, page: Path) -> None:
    grounds: set[str] = set()
    for scheme in ("light", "dark"):
        with opened(browser, page, scheme=scheme) as tab:
            grounds.add(colour_behind(tab.page))
    assert len(grounds) == 2


def test_a_run_that_goes_on_has_a_page(browser: Any, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", ended=False)
    with (folder / "stage1" / "steps.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"step": 12, "fig')  # a line that is being written
    with opened(browser, write_report(folder, tmp_path / "out" / "page.html")) as tab:
        assert (
            "not finished" in tab.page.inner_text("header")
            and tab.page.locator("tbody").count() == 0
        )


def test_a_run_that_only_began_has_a_page(browser: Any, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    for file in [*folder.rglob("*.jsonl"), folder / "summary.json", folder / "versions.json"]:
        file.unlink()
    with opened(browser, write_report(folder, tmp_path / "page.html")) as tab:
        assert tab.page.locator("svg").count() == 0 and "No figures yet" in tab.page.inner_text(
            "main"
        )


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no training run"):
        write_report(tmp_path, tmp_path / "page.html")


def test_writing_the_page_needs_no_torch(page: Path) -> None:
    code = f"""
import sys
from pathlib import Path
from train.report.report import write_report
write_report(Path({str(page.parent)!r}), Path({str(page.with_name("again.html"))!r}))
assert not {{"torch", "transformers", "trl"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert page.with_name("again.html").read_text(encoding="utf-8") == page.read_text(
        encoding="utf-8"
    )


def test_charts_hold_what_is_not_a_number_out() -> None:
    points = [(0, 1.0), (1, float("nan")), (2, 3.0)]
    svg = line_chart("x", [Curve(name="x", points=points, bands=[(0, 0.5, float("inf"))])]).svg
    assert "nan" not in svg and "inf" not in svg
    assert svg.count("<circle") == 2 and "<polygon" not in svg
    assert not line_chart("x & y", []).svg and "x &amp; y" in line_chart("x & y", []).__html__()
    single = line_chart("x", [Curve(name="x", points=[(4, 0.0)])]).svg
    assert single.count("<circle") == 1, "one point is a dot"


def test_many_columns_are_averaged() -> None:
    columns = [(float(at), 1.0, 2.0) for at in range(1_000)]
    svg = column_chart("x", columns, ("a", "b")).svg
    assert 100 <= svg.count("<rect") <= 120
    assert json.loads(json.dumps(ticks(0, 1))) == [0, 0.25, 0.5, 0.75, 1.0]
    assert ticks(5, 5) == [5] and len(ticks(-3, 1234.5)) in (3, 4, 5, 6)
