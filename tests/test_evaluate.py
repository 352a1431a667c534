"""`memagent-eval` plays every arm, freezes what it ran, goes on where it stopped, and never mixes two configurations."""

from __future__ import annotations

import json
import re
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

import pytest
from benchmark_files import TYPES, write_locomo, write_longmemeval
from typer.testing import CliRunner, Result

from environments.arms import TURN_ARMS, default_arms
from environments.evaluate import app
from environments.figures import Report, report_of
from environments.records import ProbeScore, Score
from environments.runs import EvalConfig, read_score, write_score
from memagent.testing import Reply, ScriptedServer

ARMS = "verbatim,bm25,bm25_window,empty,oracle"


def run(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def report(*words: object) -> Report:
    done = run(*words, "--json")
    assert done.exit_code == 0, done.output
    return Report.model_validate_json(done.stdout)


def test_the_console_script_is_installed() -> None:
    (script,) = entry_points(group="console_scripts", name="memagent-eval")
    assert script.value == "environments.evaluate:main"
    assert callable(script.load())


def test_every_arm_without_a_model_gives_figures_by_category_number(tmp_path: Path) -> None:
    found = report("locomo", write_locomo(tmp_path / "data"), "--out", tmp_path / "run")
    assert [arm.arm for arm in found.arms] == list(default_arms(model=False, embedder="static"))
    assert found.counts == {"1": 2, "2": 1, "3": 1, "4": 2, "5": 2}
    by_arm = {arm.arm: arm for arm in found.arms}
    assert all(arm.failed == 0 and set(arm.categories) == set("12345") for arm in found.arms)
    assert by_arm["oracle"].overall["recall@5"].value == 1.0
    assert by_arm["oracle"].overall["m_fail"].value == 0.0
    empty = by_arm["empty"].overall
    assert (empty["recall@30"].value, empty["f1"].value, empty["m_fail"].value) == (0.0, 0.0, 1.0)
    assert empty["abstention_recall"].value == 1.0 and empty["citation_precision"].value is None
    assert by_arm["bm25"].overall["recall@5"].value > 0.5  # pyright: ignore[reportOptionalOperand]
    assert by_arm["full_context"].overall["recall@30"].value == 1.0
    assert by_arm["verbatim"].costs.calls == 0 and by_arm["verbatim"].costs.memory_tokens > 0
    assert set(by_arm["verbatim"].alone) == {"conv-26", "conv-30"}


def test_the_table_names_arms_and_categories(tmp_path: Path) -> None:
    done = run("locomo", write_locomo(tmp_path / "data"), "--out", tmp_path / "run", "--arms", ARMS)
    assert done.exit_code == 0, done.output
    for words in (*ARMS.split(","), "recall@10", "F1 (R2)", "4 (n=2)", "conv-26 by itself", "memory tokens"):
        assert words in done.stdout
    assert "[1] conv-26: 3 sessions, 5 questions" in done.stderr
    assert (tmp_path / "run" / "report.json").exists()


def test_questions_are_kept_one_a_line(tmp_path: Path) -> None:
    report("locomo", write_locomo(tmp_path / "data"), "--out", tmp_path / "run", "--arms", "bm25")
    lines = (tmp_path / "run" / "questions" / "bm25" / "conv-26.jsonl").read_text(encoding="utf-8").splitlines()
    first = ProbeScore.model_validate_json(lines[0])
    assert (first.probe_id, first.gold) == ("conv-26:q1", ("a kitten, Pixel",))
    assert first.retrieved and first.evidence == ("D1:1", "D1:3")
    assert json.loads(lines[-1])["episode"]["episode_id"] == "conv-26"


def test_the_page_stands_alone_and_is_well_formed(tmp_path: Path) -> None:
    report("locomo", write_locomo(tmp_path / "data"), "--out", tmp_path / "run", "--arms", ARMS)
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    plots = re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL)
    assert [ElementTree.fromstring(plot).get("role") for plot in plots] == ["img", "img"]
    assert "http" not in page and "<script" not in page
    for words in (*ARMS.split(","), "conv-30 by itself", "m_fail_content"):
        assert words in page


def test_a_second_run_plays_only_what_is_missing_and_ends_equal(tmp_path: Path) -> None:
    words = ("locomo", write_locomo(tmp_path / "data"), "--out", tmp_path / "run", "--arms", "bm25,empty")
    first = report(*words)
    kept, lost = (tmp_path / "run" / "questions" / "bm25" / f"{name}.jsonl" for name in ("conv-26", "conv-30"))
    stamp = kept.stat().st_mtime_ns
    lost.unlink()
    done = run(*words, "--json")
    assert "conv-26: done before" in done.stderr and "conv-30: 1 arms, 3 questions" in done.stderr
    assert kept.stat().st_mtime_ns == stamp and lost.exists()
    again = Report.model_validate_json(done.stdout)
    assert [arm.overall for arm in again.arms] == [arm.overall for arm in first.arms]


def test_a_failed_question_is_played_again(tmp_path: Path) -> None:
    score = Score(episode_id="e", probes=(ProbeScore(probe_id="p", failure="the server was down"),))
    write_score(tmp_path, "bm25", score)
    assert read_score(tmp_path, "bm25", "e") is None
    assert read_score(tmp_path, "bm25", "e", failures=True) == score


@pytest.mark.parametrize("name", ["../up", "a/b", "C:\\x", "ü" * 200])
def test_odd_episode_names_stay_inside_the_folder(name: str, tmp_path: Path) -> None:
    score = Score(episode_id=name)
    write_score(tmp_path / "run", "bm25", score)
    assert read_score(tmp_path / "run", "bm25", name) == score
    (written,) = tmp_path.rglob("*.jsonl")
    assert written.parent == tmp_path / "run" / "questions" / "bm25"


def test_a_folder_refuses_another_configuration(tmp_path: Path) -> None:
    data = write_locomo(tmp_path / "data")
    report("locomo", data, "--out", tmp_path / "run", "--arms", "bm25")
    done = run("locomo", data, "--out", tmp_path / "run", "--arms", "bm25", "--categories", "1,4")
    assert done.exit_code == 1
    assert "another categories" in str(done.exception)
    (data / "conv-30.json").unlink()
    done = run("locomo", data, "--out", tmp_path / "run", "--arms", "bm25")
    assert "another data_digest" in str(done.exception)


def test_a_frozen_configuration_repeats_a_run(tmp_path: Path) -> None:
    data = write_locomo(tmp_path / "data")
    words = ("locomo", data, "--arms", "bm25,oracle", "--categories", "1,4", "--limit", 1)
    first = report(*words, "--out", tmp_path / "one")
    again = report("locomo", data, "--config", tmp_path / "one" / "config.json", "--out", tmp_path / "two")
    assert first.counts == {"1": 1, "4": 1} and first.arms[0].episodes == 1
    assert again.config == first.config
    assert [arm.overall for arm in again.arms] == [arm.overall for arm in first.arms]
    (data / "conv-30.json").unlink()
    done = run("locomo", data, "--config", tmp_path / "one" / "config.json", "--out", tmp_path / "three")
    assert "is of other data" in str(done.exception)


def test_two_processes_give_what_one_gives(tmp_path: Path) -> None:
    data = write_locomo(tmp_path / "data")
    one = report("locomo", data, "--out", tmp_path / "one", "--arms", "bm25,empty")
    two = report("locomo", data, "--out", tmp_path / "two", "--arms", "bm25,empty", "--workers", 2)
    assert [arm.overall for arm in one.arms] == [arm.overall for arm in two.arms]


def test_longmemeval_reports_the_six_types_and_abstention(tmp_path: Path) -> None:
    found = report("longmemeval", write_longmemeval(tmp_path), "--out", tmp_path / "run", "--arms", "bm25,empty")
    assert set(found.counts) == {*TYPES, "multi-session_abs"}
    bm25 = found.arms[0]
    assert bm25.overall["recall@5"].value == 1.0
    assert bm25.categories["multi-session_abs"]["recall@5"].value is None
    assert found.arms[1].overall["abstention_precision"].value == pytest.approx(1 / 7)


def test_wrong_words_are_refused_in_one_line(tmp_path: Path) -> None:
    data = write_locomo(tmp_path / "data")
    done = run("locomo", data, "--out", tmp_path / "run", "--arms", "no_such_design")
    assert done.exit_code == 1 and "no_such_design" in str(done.exception)
    done = run("locomo", data, "--out", tmp_path / "run2", "--arms", "five_way")
    assert "embedder besides the static table" in str(done.exception)
    done = run("locomo", tmp_path / "absent", "--out", tmp_path / "run3")
    assert "snap-research/locomo" in str(done.exception)


def test_five_way_fuses_a_second_embedder(tmp_path: Path) -> None:
    words = ("--arms", "five_way,four_way", "--embedder", "hashing", "--limit", 1)
    found = report("locomo", write_locomo(tmp_path / "data"), "--out", tmp_path / "run", *words)
    assert all((arm.overall["recall@5"].value or 0.0) > 0.5 for arm in found.arms)
    assert "five_way" in default_arms(model=False, embedder="minilm") and set(TURN_ARMS) >= {"five_way"}


def test_a_model_answers_every_arm_and_its_calls_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if find_spec("litellm") is None:
        pytest.skip('needs the extra: pip install "memagent[llm]"')

    def answering(body: object, ordinal: int) -> Reply:
        return Reply(text=json.dumps({"answer": "Oslo", "citations": [], "abstain": False}))

    with ScriptedServer(answering) as server:
        monkeypatch.setenv("OPENAI_API_BASE", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "test")
        words = ("--arms", "bm25", "--model", "openai/scripted", "--categories", "4")
        found = report("locomo", write_locomo(tmp_path / "data"), "--out", tmp_path / "run", *words)
    (arm,) = found.arms
    assert arm.failed == 0
    assert arm.overall["f1"].value == 0.5, "right for Leo, wrong for the cello"
    assert (arm.costs.calls, arm.costs.model_tokens) == (1.0, 18.0)


def test_figures_leave_failures_and_unanswerable_questions_out() -> None:
    config = EvalConfig(benchmark="locomo", data_digest="x", arms=("a",), ks=(5,))
    probes = (
        ProbeScore(probe_id="1", category="4", evidence=("t",), recall={5: 1.0}, f1=0.5, cited=("t", "u"), lost=0),
        ProbeScore(probe_id="2", category="4", evidence=("t",), recall={5: 0.0}, f1=0.0, abstained=True, lost=1),
        ProbeScore(probe_id="3", category="4", evidence=("t",), failure="down"),
        ProbeScore(probe_id="4", category="5", evidence=("t",), recall={5: 1.0}, unanswerable=True, abstained=True),
    )
    found = report_of(config, {"a": [Score(episode_id="e", probes=probes)]}).arms[0]
    values = {name: figure.value for name, figure in found.overall.items() if figure.value is not None}
    assert values == {
        "recall@5": 0.5,
        "f1": 0.25,
        "citation_precision": 0.5,
        "abstention_precision": 0.5,
        "abstention_recall": 1.0,
        "m_fail": 0.5,
        "m_fail_content": 0.0,
    }
    assert (found.failed, found.questions) == (1, 4)
    assert found.overall["f1"].low is None, "one conversation has no interval"


def test_real_locomo_ranks_better_than_nothing_and_worse_than_the_oracle(locomo_dir: Path, tmp_path: Path) -> None:
    words = ("--arms", "bm25_window,empty,oracle", "--categories", "2,4", "--limit", 1)
    found = report("locomo", locomo_dir, "--out", tmp_path / "run", *words)
    recall = {arm.arm: arm.overall["recall@10"].value or 0.0 for arm in found.arms}
    assert 0.0 == recall["empty"] < 0.6 < recall["bm25_window"] < recall["oracle"] == 1.0
