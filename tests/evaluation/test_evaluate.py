"""`memagent-eval` plays every arm, freezes what it ran, goes on where it stopped, and
never mixes two configurations.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
from importlib.metadata import entry_points
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from time import monotonic, sleep
from xml.etree import ElementTree

import pytest
from benchmark_files import TYPES, write_locomo, write_longmemeval
from rich.console import Console
from scripted_server import Reply, ScriptedServer
from typer.testing import CliRunner, Result

from environments.datasets.locomo import LoCoMo
from environments.evaluate import VERBS, app
from environments.evaluation.arms import (
    TURN_ARMS,
    ArmContext,
    default_arms,
    open_arm,
    shelf_for,
)
from environments.evaluation.config import EvalConfig, prompts_of, settings_digest
from environments.evaluation.figures import Report, report_of
from environments.evaluation.runs import Progress, read_score, write_score
from environments.play.rollout import play
from environments.records import Probe, ProbeAnswer, ProbeScore, Score
from environments.rewards.scoring import Scoring
from memagent.build import AgentSettings, open_store
from memagent.core.answers import Answer, Hit
from memagent.core.records import MemoryItem
from memagent.core.snapshot import EMPTY

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
    found = report(
        "locomo",
        write_locomo(tmp_path / "data"),
        "--embedder",
        "hashing",
        "--out",
        tmp_path / "run",
    )
    assert [arm.arm for arm in found.arms] == list(default_arms(model=False, second_embedder=True))
    assert {
        "verbatim",
        "compass_rules",
        "add_only",
        "rag",
        "bm25",
        "bm25_window",
        "dense",
        "rrf",
        "four_way",
        "five_way",
    } <= {arm.arm for arm in found.arms}
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
    for words in (
        *ARMS.split(","),
        "recall@10",
        "F1 (R2)",
        "4 (n=2)",
        "conv-26 by itself",
        "memory tokens",
    ):
        assert words in done.stdout
    assert "2 conversations, 8 questions, 5 arms" in done.stderr
    assert (
        "Evidence recall@5/10/30 by category" in done.stdout
        and "1.000 / 1.000 / 1.000" in done.stdout
    )
    assert (tmp_path / "run" / "report.json").exists()


def test_questions_are_kept_one_a_line(tmp_path: Path) -> None:
    report("locomo", write_locomo(tmp_path / "data"), "--out", tmp_path / "run", "--arms", "bm25")
    lines = (
        (tmp_path / "run" / "questions" / "bm25" / "conv-26.jsonl")
        .read_text(encoding="utf-8")
        .splitlines()
    )
    first = ProbeScore.model_validate_json(lines[0])
    assert (first.probe_id, first.gold) == ("conv-26:q1", ("a kitten, Pixel",))
    assert first.retrieved and first.evidence == ("D1:1", "D1:3")
    assert json.loads(lines[-1])["episode"]["episode_id"] == "conv-26"


def test_the_page_stands_alone_and_is_well_formed(tmp_path: Path) -> None:
    report("locomo", write_locomo(tmp_path / "data"), "--out", tmp_path / "run", "--arms", ARMS)
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    plots = re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL)
    assert [ElementTree.fromstring(plot).get("role") for plot in plots] == ["img", "img"]
    assert "http" not in page.replace("http-equiv", "") and "<script" not in page
    for words in (*ARMS.split(","), "conv-30 by itself", "m_fail_content"):
        assert words in page.replace("<wbr>", "")


def test_a_second_run_plays_only_what_is_missing_and_ends_equal(tmp_path: Path) -> None:
    words = (
        "locomo",
        write_locomo(tmp_path / "data"),
        "--out",
        tmp_path / "run",
        "--arms",
        "bm25,empty",
    )
    first = report(*words)
    kept, lost = (
        tmp_path / "run" / "questions" / "bm25" / f"{name}.jsonl" for name in ("conv-26", "conv-30")
    )
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
    again = report(
        "locomo", data, "--config", tmp_path / "one" / "config.json", "--out", tmp_path / "two"
    )
    assert first.counts == {"1": 1, "4": 1} and first.arms[0].episodes == 1
    assert again.config == first.config
    assert [arm.overall for arm in again.arms] == [arm.overall for arm in first.arms]
    (data / "conv-30.json").unlink()
    done = run(
        "locomo", data, "--config", tmp_path / "one" / "config.json", "--out", tmp_path / "three"
    )
    assert "is of other data" in str(done.exception)


def test_two_processes_give_what_one_gives(tmp_path: Path) -> None:
    data = write_locomo(tmp_path / "data")
    one = report("locomo", data, "--out", tmp_path / "one", "--arms", "bm25,empty")
    two = report("locomo", data, "--out", tmp_path / "two", "--arms", "bm25,empty", "--workers", 2)
    assert [arm.overall for arm in one.arms] == [arm.overall for arm in two.arms]


def test_longmemeval_reports_the_six_types_and_abstention(tmp_path: Path) -> None:
    found = report(
        "longmemeval",
        write_longmemeval(tmp_path),
        "--out",
        tmp_path / "run",
        "--arms",
        "bm25,empty",
    )
    assert set(found.counts) == {*TYPES, "multi-session_abs"}
    bm25 = found.arms[0]
    assert bm25.overall["recall@5"].value == 1.0
    assert bm25.categories["multi-session_abs"]["recall@5"].value is None
    assert found.arms[1].overall["abstention_precision"].value == pytest.approx(1 / 7)


def test_abstention_items_of_longmemeval_are_in_no_recall_even_where_turns_are_marked(
    tmp_path: Path,
) -> None:
    file = write_longmemeval(tmp_path)
    told = json.loads(file.read_text(encoding="utf-8"))
    told[-1]["haystack_sessions"][1][0]["has_answer"] = True
    told[-1]["answer_session_ids"] = [told[-1]["haystack_session_ids"][1]]
    file.write_text(json.dumps(told), encoding="utf-8")
    (empty,) = report("longmemeval", file, "--out", tmp_path / "run", "--arms", "empty").arms
    assert {kind: empty.categories[kind]["recall@5"].value for kind in TYPES} == dict.fromkeys(
        TYPES, 0.0
    )
    assert empty.categories["multi-session_abs"]["recall@5"].value is None
    assert empty.categories["multi-session_abs"]["m_fail"].value is None
    assert empty.categories["multi-session_abs"]["abstention_recall"].value == 1.0


def test_wrong_words_are_refused_in_one_line(tmp_path: Path) -> None:
    data = write_locomo(tmp_path / "data")
    done = run("locomo", data, "--out", tmp_path / "run", "--arms", "no_such_design")
    assert done.exit_code == 1 and "no_such_design" in str(done.exception)
    done = run("locomo", tmp_path / "absent", "--out", tmp_path / "run3")
    assert "snap-research/locomo" in str(done.exception)


def test_five_way_fuses_a_second_embedder(tmp_path: Path) -> None:
    words = ("--arms", "five_way,four_way", "--embedder", "hashing", "--limit", 1)
    found = report("locomo", write_locomo(tmp_path / "data"), "--out", tmp_path / "run", *words)
    assert all((arm.overall["recall@5"].value or 0.0) > 0.5 for arm in found.arms)
    assert found.config.second_embedder == "static"


def test_five_way_without_a_second_embedder_is_left_out_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("environments.evaluation.arms.find_spec", lambda name: None)
    data = write_locomo(tmp_path / "data")
    found = report("locomo", data, "--out", tmp_path / "run", "--limit", 1)
    assert "five_way" not in {arm.arm for arm in found.arms} and set(TURN_ARMS) >= {"five_way"}
    assert any(
        "five_way is left out" in note and "memagent[minilm]" in note for note in found.notes
    )
    done = run("locomo", data, "--out", tmp_path / "other", "--arms", "five_way")
    assert "needs a second embedder" in str(done.exception)


def test_designs_that_ask_a_model_run_model_free_without_one_and_the_table_says_so(
    tmp_path: Path,
) -> None:
    words = ("--arms", "compass_mem,compass_rules,add_only,append_turns")
    done = run("locomo", write_locomo(tmp_path / "data"), "--out", tmp_path / "run", *words)
    assert "compass_mem ran model-free, as compass_rules: no --model was given." in done.stdout
    assert "add_only ran model-free, as append_turns" in done.stdout
    found = Report.model_validate_json((tmp_path / "run" / "report.json").read_bytes())
    by_arm = {arm.arm: arm.overall for arm in found.arms}
    assert (
        by_arm["compass_mem"] == by_arm["compass_rules"]
        and by_arm["add_only"] == by_arm["append_turns"]
    )


def test_evidence_ids_are_split_and_those_of_no_turn_are_counted(tmp_path: Path) -> None:
    data = write_locomo(tmp_path / "data")
    file = data / "conv-26.json"
    told = json.loads(file.read_text(encoding="utf-8"))
    told["qa"][0]["evidence"] = ["D1:1; D1:3", "D9:17 D"]
    told["qa"][2]["evidence"] = ["D"]
    file.write_text(json.dumps(told), encoding="utf-8")
    done = run("locomo", data, "--out", tmp_path / "run", "--arms", "oracle")
    assert (
        "Evidence ids of the data that name no turn: 3, in 2 questions; they are left out."
        in done.stdout
    )
    assert "Answerable questions without evidence, in no recall: 1." in done.stdout
    (arm,) = Report.model_validate_json((tmp_path / "run" / "report.json").read_bytes()).arms
    assert arm.overall["recall@5"].value == 1.0, "what names no turn is no evidence"


def test_recall_is_given_by_category_at_every_k_and_for_single_conversations(
    tmp_path: Path,
) -> None:
    found = report(
        "locomo", write_locomo(tmp_path / "data"), "--out", tmp_path / "run", "--arms", "bm25"
    )
    (arm,) = found.arms
    assert all(
        {"recall@5", "recall@10", "recall@30"} <= set(figures)
        for figures in arm.categories.values()
    )
    assert set(arm.alone_categories["conv-26"]) == set("12345") and set(
        arm.alone_categories["conv-30"]
    ) == set("145")
    done = run("locomo", tmp_path / "data", "--out", tmp_path / "run", "--arms", "bm25")
    assert "conv-30 by itself: evidence recall@5/10/30 by category" in done.stdout


SETTINGS = """
design = "verbatim"
[embedder]
type = "hashing"
dim = 64
[model]
model = "openai/scripted"
api_base = "{url}"
api_key = "sk-very-secret-000"
[roles.judge]
model = "openai/other"
api_base = "{url}"
api_key = "sk-judge-secret-000"
[sampling.answerer]
temperature = 0.25
"""


def test_an_agents_settings_are_used_and_their_keys_are_written_nowhere(tmp_path: Path) -> None:
    if find_spec("litellm") is None:
        pytest.skip('needs the extra: pip install "memagent[llm]"')
    data, toml = write_locomo(tmp_path / "data"), tmp_path / "agent.toml"
    with ScriptedServer(
        lambda body, at: json.dumps({"answer": "Oslo", "citations": [], "abstain": False})
    ) as server:
        toml.write_text(SETTINGS.format(url=server.url), encoding="utf-8")
        words = ("locomo", data, "--settings", toml, "--arms", "bm25", "--categories", "4", "--out")
        found = report(*words, tmp_path / "run")
        heard = server.requests
    assert found.config.embedder == "settings" and found.config.embedder_id.startswith("hash-64")
    assert found.config.model == "openai/scripted" and len(found.config.settings_digest or "") == 64
    assert (
        found.config.prompts == prompts_of(["bm25"], model=True)
        and "answer" in found.config.prompts["memory_r2"]
    )
    assert heard and all(body["temperature"] == 0.25 for body in heard)
    written = b"".join(
        path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()
    )
    assert written and b"secret" not in written and server.url.encode() not in written
    frozen = tmp_path / "run" / "config.json"
    done = run("locomo", data, "--config", frozen, "--out", tmp_path / "again")
    assert "give the same --settings" in str(done.exception)
    toml.write_text(SETTINGS.format(url="http://127.0.0.1:1"), encoding="utf-8")
    done = run("locomo", data, "--config", frozen, "--settings", toml, "--out", tmp_path / "again")
    assert "other agent settings" in str(done.exception)


def test_the_prompts_of_every_design_at_work_are_named_by_digest() -> None:
    found = prompts_of(["bm25", "add_only", "compass_mem", "verbatim"], model=True)
    assert set(found) == {"add_only", "compass_mem", "memory_r2"}, (
        "turn arms answer by memory_r2, verbatim has no prompt"
    )
    assert all(len(digest) == 64 for digests in found.values() for digest in digests.values())
    assert prompts_of(["bm25", "add_only", "compass_mem"], model=False) == {}


def test_another_key_is_no_other_configuration() -> None:
    one, two = (
        AgentSettings.model_validate({"model": {"model": "m", "api_key": key, "api_base": base}})
        for key, base in (("a", "x"), ("b", "x"))
    )
    assert settings_digest(one) == settings_digest(two)
    assert settings_digest(one) != settings_digest(AgentSettings())


@pytest.mark.parametrize("workers", [1, 2])
def test_a_killed_run_goes_on_where_it_stopped(workers: int, tmp_path: Path) -> None:
    data = write_locomo(tmp_path / "data")
    words = [
        "locomo",
        str(data),
        "--arms",
        "verbatim,bm25,bm25_window,dense,rrf,four_way,empty,oracle",
    ]
    outcomes: list[int] = []
    for attempt in range(3):  # on a busy machine a run may be over before its first file is seen
        out = tmp_path / f"run{attempt}"
        command = [
            sys.executable,
            "-m",
            "environments.evaluate",
            *words,
            "--out",
            str(out),
            "--workers",
            str(workers),
        ]
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as child:
            until = monotonic() + 60
            while not any(out.rglob("*.jsonl")) and monotonic() < until and child.poll() is None:
                sleep(0.005)
            child.send_signal(signal.SIGKILL)
        outcomes.append(child.returncode)
        if not (out / "report.json").exists():
            break
    assert outcomes[-1] == -signal.SIGKILL, "it was killed in the middle"
    sleep(0.2)  # until its processes have seen that they are alone
    left = list(out.rglob("*.jsonl"))
    assert left
    stamps = {path: path.stat().st_mtime_ns for path in left}
    resumed, whole = report(*words, "--out", out), report(*words, "--out", tmp_path / "whole")
    assert {path: path.stat().st_mtime_ns for path in left} == stamps, (
        "what was finished is not played again"
    )
    assert [arm.overall for arm in resumed.arms] == [arm.overall for arm in whole.arms]


def test_no_process_outlives_a_killed_run(tmp_path: Path) -> None:
    code = (
        "from concurrent.futures import ProcessPoolExecutor\n"
        "from multiprocessing import get_context\n"
        "import os, time\n"
        "from environments.evaluation.runs import die_with_parent\n"
        "if __name__ == '__main__':\n"
        "    pool = ProcessPoolExecutor(1, mp_context=get_context('spawn'), initializer=die_with_parent)\n"
        "    print(pool.submit(os.getpid).result(), flush=True)\n"
        "    time.sleep(60)\n"
    )
    (tmp_path / "parent.py").write_text(code, encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, str(tmp_path / "parent.py")], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
    until = monotonic() + 20
    while _alive(child) and monotonic() < until:
        sleep(0.02)
    assert not _alive(child)


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_progress_tells_how_long_the_rest_takes() -> None:
    now = [0.0]
    console = Console(file=StringIO(), width=200)
    progress = Progress(100, console=console, clock=lambda: now[0])
    progress.skip(20)
    assert progress.line() == "20 of 100 questions asked of arms, 0:00 gone"
    now[0] = 30.0
    progress.advance(20)
    assert progress.line() == "40 of 100 questions asked of arms, 0:30 gone, about 1:30 left"
    now[0] = 4_000.0
    progress.advance(60)
    assert progress.line() == "100 of 100 questions asked of arms, 1:06:40 gone"


def test_a_verb_of_another_module_is_a_function_in_the_table() -> None:
    assert set(VERBS) >= {"locomo", "longmemeval"}
    for name, verb in VERBS.items():
        assert verb.__doc__
        done = run(name, "--help")
        assert done.exit_code == 0 and verb.__doc__.split()[0] in done.stdout


def test_a_model_answers_every_arm_and_its_calls_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_recall_goes_by_rank_even_where_the_answerer_lists_hits_by_time() -> None:
    hits = tuple(
        Hit(
            id=f"mem_{at}",
            score=score,
            item=MemoryItem(id=f"mem_{at}", text="x", source_turn_ids=(f"t{at}",)),
        )
        for at, score in ((1, 0.2), (2, 0.9), (3, 0.5))
    )
    probe = Probe(id="p", question="?", evidence_turn_ids=("t2",))
    asked = ProbeAnswer(probe_id="p", memory=EMPTY, answer=Answer(text="a", hits=hits))
    found = Scoring(ks=(1, 2)).score_probe(probe, asked)
    assert found.retrieved == ("t2", "t3", "t1") and found.recall == {1: 1.0, 2: 1.0}


def test_figures_leave_failures_and_unanswerable_questions_out() -> None:
    config = EvalConfig(benchmark="locomo", data_digest="x", arms=("a",), ks=(5,))
    probes = (
        ProbeScore(
            probe_id="1",
            category="4",
            evidence=("t",),
            recall={5: 1.0},
            f1=0.5,
            cited=("t", "u"),
            lost=0,
        ),
        ProbeScore(
            probe_id="2",
            category="4",
            evidence=("t",),
            recall={5: 0.0},
            f1=0.0,
            abstained=True,
            lost=1,
        ),
        ProbeScore(probe_id="3", category="4", evidence=("t",), failure="down"),
        ProbeScore(
            probe_id="4",
            category="5",
            evidence=("t",),
            recall={5: 1.0},
            unanswerable=True,
            abstained=True,
        ),
    )
    found = report_of(config, {"a": [Score(episode_id="e", probes=probes)]}).arms[0]
    values = {
        name: figure.value for name, figure in found.overall.items() if figure.value is not None
    }
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


def test_real_locomo_ranks_better_than_nothing_and_worse_than_the_oracle(
    locomo_dir: Path, tmp_path: Path
) -> None:
    words = ("--arms", "bm25_window,empty,oracle", "--categories", "2,4", "--limit", 1)
    found = report("locomo", locomo_dir, "--out", tmp_path / "run", *words)
    recall = {arm.arm: arm.overall["recall@10"].value or 0.0 for arm in found.arms}
    assert 0.0 == recall["empty"] < 0.6 < recall["bm25_window"] < recall["oracle"] == 1.0


def test_hits_of_turn_arms_carry_the_cosine_that_answerers_decide_by(tmp_path: Path) -> None:
    (episode, _) = list(LoCoMo(write_locomo(tmp_path / "data")).episodes())

    async def answers() -> list[Answer]:
        store = open_store(path=":memory:", embedder="static")
        shelf = shelf_for(episode, store, second=None, context_tokens=1_000)
        played = []
        for arm in ("oracle", "bm25"):
            agent = open_arm(arm, ArmContext(store=store, shelf=shelf), None)
            played += [one.answer for one in (await play(agent, episode)).answers]
        store.close()
        return [answer for answer in played if answer is not None]

    hits = [hit for answer in asyncio.run(answers()) for hit in answer.hits]
    assert hits and all(-1.0 <= hit.why.arms["dense"] <= 1.0 for hit in hits)
    assert max(hit.why.arms["dense"] for hit in hits) > 0.4
