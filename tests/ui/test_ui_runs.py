"""Training runs on the dashboard: what a folder of runs holds, curves with axes, and
nothing that leads out of the folder.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from run_folder_kit import HOSTILE, STAGES, STEPS, write_run
from service_kit import Served, serving
from ui_pages import words

from memagent.config import ServiceSettings
from memagent.pages.charts import (
    BOTTOM,
    LEFT,
    RIGHT,
    TOP,
    Axes,
    Curve,
    line_chart,
    number,
    share,
    thinned,
    ticks,
)
from memagent.pages.run_folders import named_run, runs_in


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with runs that ended, go on and have just begun, and what is no run."""
    home = tmp_path_factory.mktemp("runs")
    write_run(home / "done")
    write_run(home / "going", ended=False)
    (home / "begun").mkdir()
    (home / "begun" / "settings.json").write_text(
        json.dumps({"stage": [{"sessions": 4, "steps": 10}]}), encoding="utf-8"
    )
    (home / "other").mkdir()
    (home / "notes.txt").write_text("not a run", encoding="utf-8")
    (home.parent / f"{home.name}-secret").mkdir()
    write_run(home.parent / f"{home.name}-secret" / "hidden")
    (home / "link").symlink_to(
        home.parent / f"{home.name}-secret" / "hidden", target_is_directory=True
    )
    return home


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[Served]:
    with serving(":memory:", settings=ServiceSettings(drain_s=1.0, runs_folder=folder)) as running:
        yield running


@pytest.fixture
def http(served: Served) -> Iterator[httpx.Client]:
    with served.http() as client:
        yield client


def test_the_runs_of_a_folder_are_read_without_their_library(folder: Path) -> None:
    found = {run.name: run for run in runs_in(folder)}
    assert set(found) == {"done", "going", "begun"}
    assert found["done"].finished and not found["going"].finished
    assert (found["done"].updates, found["begun"].updates) == (STEPS * len(STAGES), 0)
    run = named_run(folder, "done")
    assert run is not None
    assert [stage.sessions for stage in run.stages] == list(STAGES)
    assert (
        len(run.figure("reward/global"))
        == STEPS * len(STAGES)
        == run.figure("reward/global")[-1][0]
    )
    assert len(run.logged("loss")) == STEPS * len(STAGES)
    best = run.best()
    assert best is not None and best[0] == STEPS * len(STAGES)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "link", "other", "notes.txt", "../done", "/etc", "done/stage0"]
)
def test_no_name_leads_out_of_the_folder(folder: Path, http: httpx.Client, name: str) -> None:
    assert named_run(folder, name) is None
    assert http.get("/ui/runs/one", params={"name": name}).status_code in (404, 422)


def test_files_that_are_cut_off_or_of_another_shape_are_read_as_far_as_they_go(
    tmp_path: Path,
) -> None:
    home = write_run(tmp_path / "run", ended=False)
    steps = home / "stage1" / "steps.jsonl"
    steps.write_text(steps.read_text(encoding="utf-8")[:-40], encoding="utf-8")
    (home / "stage1" / "log.jsonl").write_text(
        '{"step": 1, "logs": {"loss": NaN, "kl": "x"}}\n[1]\n{"step"', encoding="utf-8"
    )
    (home / "validation.jsonl").write_text(
        '{"stage": 3}\n{"stage": "stage0", "step": 4, "episodes": 7}\n', encoding="utf-8"
    )
    (home / "versions.json").write_text("[" * 100_000, encoding="utf-8")
    run = named_run(tmp_path, "run")
    assert run is not None
    assert len(run.figure("reward/global")) == 2 * STEPS - 1 and len(run.logged("loss")) == STEPS
    assert run.validated("f1") == ([], []) and run.best() is None and run.versions == {}
    for text in ("[]", "{", '{"stage": [1, {"sessions": "x"}], "model": 3}'):
        (home / "settings.json").write_text(text, encoding="utf-8")
        assert named_run(tmp_path, "run") is not None


def test_the_list_tells_state_updates_and_best(http: httpx.Client) -> None:
    told = words(http.get("/ui/runs"))
    assert "not a run" not in told and "hidden" not in told
    assert re.search(r"done .*?finished 24 0\.\d{3} f1", told)
    assert "going" in told and "not finished" in told and "begun" in told


def test_a_run_has_curves_with_axes_labels_and_words(http: httpx.Client) -> None:
    page = http.get("/ui/runs/one?name=done")
    told = words(page)
    for title in ("F1", "Overwritten facts", "Reward", "Ops", "Loss", "Entropy"):
        assert title in told
    charts = re.findall(r"(?s)<svg viewBox=\"0 0 360 220\".*?</svg>", page.text)
    assert len(charts) == 14
    assert sum("<polyline" in chart for chart in charts) == 13
    for chart in charts:
        assert ">update</text>" in chart and chart.count('class="grid"') >= 2
        if "<polyline" in chart:
            assert chart.count('class="mark"') >= 1 and "at update" in chart
        else:
            assert "<title>Ops: add, update" in chart and chart.count("<rect") == 5 * 24
    assert "best of stage1" in told and "last of stage1" in told and "Held-out episodes" in told
    going = words(http.get("/ui/runs/one?name=going"))
    assert "not finished" in going and "Held-out episodes" not in going
    begun = words(http.get("/ui/runs/one?name=begun"))
    assert "its first update is still to come" in begun


@pytest.fixture
def hostile(folder: Path) -> Iterator[Path]:
    """A run with markup in its name, gone after the test: others count the folder's runs."""
    place = folder / "<b>x"
    write_run(place)
    yield place
    shutil.rmtree(place)


def test_stored_words_stay_words(hostile: Path, http: httpx.Client) -> None:
    (hostile / "versions.json").write_text(json.dumps({HOSTILE: HOSTILE}), encoding="utf-8")
    page = http.get("/ui/runs/one", params={"name": "<b>x"})
    assert page.status_code == 200 and HOSTILE in words(page)
    for answer in (page, http.get("/ui/runs")):
        assert "<b>x" not in answer.text and '<script>alert("x")' not in answer.text


def test_runs_are_for_who_runs_the_service(folder: Path) -> None:
    with serving(":memory:", settings=ServiceSettings(drain_s=1.0, runs_folder=folder)) as running:
        keys = {
            200: running.key(None, "admin", "memory:read"),
            404: running.key("ana", "admin", "memory:read"),
            403: running.key(None, "memory:read"),
        }
        for status, key in keys.items():
            with running.http() as http:
                assert (
                    http.post(
                        "/ui/sign-in", data={"key": key}, headers={"Origin": running.url}
                    ).status_code
                    == 303
                )
                assert http.get("/ui/runs").status_code == status
                assert http.get("/ui/runs/one?name=done").status_code == status


def test_without_a_folder_the_page_says_how_to_name_one() -> None:
    with serving(":memory:") as running, running.http() as http:
        assert "runs_folder" in words(http.get("/ui/runs"))
        assert http.get("/ui/runs/one?name=done").status_code == 404


# -- charts ----------------------------------------------------------------------------


def test_places_are_inside_the_picture_and_ticks_are_round() -> None:
    points = [(1, 0.5), (2, float("nan")), (50, -2.0)]
    axes = Axes(borders=[25.0, 400.0])
    svg = line_chart("Loss", [Curve(name="loss", points=points)], axes).svg
    (path,) = re.findall(r'<polyline [^>]*points="([^"]*)"', svg)
    for pair in path.split():
        x, y = map(float, pair.split(","))
        assert LEFT <= x <= RIGHT and TOP <= y <= BOTTOM
    assert len(path.split()) == 2 and svg.count('class="border"') == 1
    assert re.findall(r'text-anchor="end">(-?\d)</text>', svg) == ["-2", "-1", "0"]
    assert "Loss. loss: 0.5 at update 1, -2 at 50, between -2 and 0.5" in svg


def test_no_figures_one_figure_and_equal_figures_have_a_picture_too() -> None:
    chart = line_chart("Loss", [Curve(name="loss", points=[(1, float("inf"))])])
    assert not chart.svg and "No figures yet" in chart.__html__()
    for points in ([(3.0, 2.0)], [(1.0, 2.0), (2.0, 2.0)], [(1.0, 0.0), (2.0, 0.0)]):
        svg = line_chart("Loss", [Curve(name="loss", points=points)]).svg
        assert svg.count('class="grid"') >= 2


def test_long_curves_are_thinned_to_means() -> None:
    points = [(float(x), float(x % 2)) for x in range(10_000)]
    few = thinned(points)
    assert len(few) == 240 and all(abs(y - 0.5) < 0.02 for _, y in few)
    assert few == sorted(few) and thinned(points[:100]) == points[:100]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (0.0, "0"),
        (0.25, "0.25"),
        (1_000.0, "1k"),
        (1_234.0, "1.2k"),
        (2e-5, "2e-05"),
        (3e6, "3M"),
        (-12.0, "-12"),
    ],
)
def test_numbers_are_short(value: float, told: str) -> None:
    assert number(value) == told


def test_ticks_are_round_numbers_inside() -> None:
    assert ticks(0, 1) == [0, 0.25, 0.5, 0.75, 1] and ticks(3, 3) == [3]
    assert [share(value) for value in ticks(0, 0.5)] == ["0 %", "20 %", "40 %"]
