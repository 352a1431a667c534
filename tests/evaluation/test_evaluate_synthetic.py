"""`memagent-eval synthetic` compares policies, designs and baselines on worlds whose
truth is known, in one table that can be repeated.
"""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmark_files import write_locomo
from typer.testing import CliRunner, Result

from environments.datasets.synthetic import synthetic
from environments.demonstrations.ideal import demonstrations, lines_of
from environments.evaluate import app
from environments.evaluation.arms import IDEAL, OwnModel, default_arms, read_arms, writes_notes
from environments.evaluation.config import weights_of
from environments.evaluation.figures import Report
from environments.evaluation.known_worlds import ASKS, Worlds
from environments.evaluation.play_figures import PLAY_FIGURES, episode_figures
from environments.records import ProbeScore, Score
from environments.worlds.language.loading import open_world
from environments.worlds.readers.world_reader import overwritten
from memagent.build import open_agent
from memagent.core.errors import MemAgentError
from memagent.core.exchange import Usage
from memagent.testing import FunctionModel
from train.run.plans import evaluate_policy
from train.sampling.decisions import save_model, small_model, word_tokenizer, words_of

WORLD = (
    "synthetic",
    "--level",
    "tiny",
    "--sessions",
    "3",
    "--episodes",
    "2",
    "--embedder",
    "hashing",
)


def run(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def report(*words: object) -> Report:
    done = run(*words, "--json")
    assert done.exit_code == 0, (done.output, done.exception)
    return Report.model_validate_json(done.stdout)


def values(found: Report, arm: str) -> dict[str, float | None]:
    one = next(one for one in found.arms if one.arm == arm)
    return {name: figure.value for name, figure in (one.overall | one.playing).items()}


def lines(folder: Path) -> dict[str, list[Any]]:
    """What a run kept of each pair, without how long it took."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: plain(one) for name, one in value.items() if name != "seconds"}  # pyright: ignore[reportUnknownVariableType]
        return value

    return {
        str(path.relative_to(folder)): [
            plain(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()
        ]
        for path in sorted(folder.rglob("*.jsonl"))
    }


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two folders with models of 200k parameters that have learned nothing."""
    torch.set_num_threads(1)

    async def shown() -> list[str]:
        async with open_agent(
            path=":memory:",
            design="memory_r2_brief",
            embedder="hashing",
            model=FunctionModel(lambda request: ""),
        ) as agent:
            return list(
                lines_of(
                    await demonstrations(synthetic("tiny", sessions=3), agent, indexes=range(3))
                )
            )

    tokenizer = word_tokenizer(words_of(asyncio.run(shown())))
    folder = tmp_path_factory.mktemp("policies")
    places = folder / "trained", folder / "warm"
    for seed, place in enumerate(places):
        save_model(
            small_model(tokenizer, size="200k", seed=seed),
            tokenizer,
            place,
            note={"max_tokens": 12},
        )
    return places


@pytest.fixture(scope="module")
def table(
    policies: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Report]:
    """A run of everything that one would compare."""
    trained, warm = policies
    arms = f"trained=memory_r2_brief@hf:{trained},warm=memory_r2_brief@hf:{warm},ideal,verbatim,add_only,oracle,empty"
    out = tmp_path_factory.mktemp("run") / "out"
    return out, report(*WORLD, "--answering", "reader", "--arms", arms, "--out", out)


def test_one_table_compares_policies_designs_and_baselines(table: tuple[Path, Report]) -> None:
    _, found = table
    assert [arm.arm for arm in found.arms] == [
        "trained",
        "warm",
        "ideal",
        "verbatim",
        "add_only",
        "oracle",
        "empty",
    ]
    assert all(arm.failed == 0 and arm.episodes == 2 for arm in found.arms)
    trained, ideal, empty = (values(found, name) for name in ("trained", "ideal", "empty"))
    assert trained["unreadable"] == 1.0 and trained["memory_share"] == 0.0, "it has learned nothing"
    assert (ideal["unreadable"], ideal["rejected"], ideal["abstention_recall"]) == (0.0, 0.0, 1.0)
    assert 0.1 < (ideal["memory_share"] or 0.0) < 0.9 and (ideal["exact"] or 0.0) > 0.5
    assert ideal["add"] and ideal["update"] and ideal["noop"] is not None
    assert sum(
        ideal[name] or 0.0 for name in ("add", "update", "delete", "noop", "rejected")
    ) == pytest.approx(1.0)
    assert (empty["memory_share"], empty["add"], empty["m_fail"], empty["exact"]) == (
        0.0,
        None,
        1.0,
        0.0,
    )
    assert values(found, "oracle")["recall@5"] == 1.0
    assert (values(found, "add_only")["memory_share"] or 0.0) > 0.99
    assert found.arms[0].playing["memory_share"].low is not None


def test_an_arm_with_its_own_model_may_bear_a_baselines_name(
    policies: tuple[Path, Path], tmp_path: Path
) -> None:
    arms = f"add_only=add_only_brief@hf:{policies[0]},empty"
    found = report(*WORLD, "--answering", "reader", "--arms", arms, "--out", tmp_path / "out")
    told = " ".join(found.notes)
    assert (
        "add_only is add_only_brief with hf:" in told
        and "Answers of add_only are read off their notes" in told
    )
    assert "model-free" not in told
    assert values(found, "add_only")["memory_share"] == 0.0, (
        "this policy cannot write notes, and keeps no turns either"
    )


def test_what_was_compared_is_frozen_and_told(
    table: tuple[Path, Report], policies: tuple[Path, Path]
) -> None:
    out, found = table
    config = found.config
    assert config.own_models["warm"] == OwnModel(
        design="memory_r2_brief", model=f"hf:{policies[1]}"
    )
    assert (
        config.weights == weights_of([f"hf:{place}" for place in policies])
        and len(set(config.weights.values())) == 2
    )
    assert "extract_brief" in config.prompts["memory_r2_brief"] and config.model is None
    assert (
        config.worlds is not None
        and config.worlds.knobs.sessions == 3
        and len(config.data_digest) == 64
    )
    told = " ".join(found.notes)
    assert "Answers of trained, warm, ideal are read off their notes" in told
    assert "Answers of verbatim, add_only, oracle, empty are their own" in told
    assert f"trained is memory_r2_brief with hf:{policies[0]} (files " in told
    page = (out / "report.html").read_text(encoding="utf-8")
    assert (
        len(re.findall("<svg", page)) == 3
        and "How episodes were played" in page
        and "3 sessions" in page
    )


def test_the_same_command_plays_nothing_again_and_prints_the_same(
    table: tuple[Path, Report], policies: tuple[Path, Path], tmp_path: Path
) -> None:
    out, found = table
    lost = out / "questions" / "trained" / "synthetic-tiny-0-test-1.jsonl"
    before = lines(out)
    lost.unlink()
    done = run("synthetic", "--config", out / "config.json", "--out", out)
    assert done.exit_code == 0, done.output
    assert "test-0: done before" in done.stderr and "test-1: 1 arms" in done.stderr
    assert lines(out) == before
    for words in (
        "memory share",
        "overwritten",
        "unreadable",
        "trained",
        "Answers and memory",
        "95 % bootstrap",
    ):
        assert words in done.stdout
    weights = policies[0] / "note.txt"
    weights.write_text("trained some more", encoding="utf-8")
    refused = run("synthetic", "--config", out / "config.json", "--out", out)
    weights.unlink()
    assert "another weights" in str(refused.exception), (
        "a policy that was trained on is another policy"
    )
    assert found.config == Report.model_validate_json((out / "report.json").read_bytes()).config


def test_equal_words_give_equal_lines_in_any_number_of_processes(tmp_path: Path) -> None:
    words = (*WORLD, "--arms", "ideal,verbatim,bm25", "--seed", 5)
    one, two = (
        report(*words, "--out", tmp_path / "one"),
        report(*words, "--out", tmp_path / "two", "--workers", 2),
    )
    assert lines(tmp_path / "one") == lines(tmp_path / "two")
    assert [(arm.overall, arm.playing) for arm in one.arms] == [
        (arm.overall, arm.playing) for arm in two.arms
    ]
    assert one.config == two.config
    other = report(*words[:-1], 6, "--out", tmp_path / "other")
    assert other.config.data_digest != one.config.data_digest


def test_the_ideal_arm_is_the_ceiling_whoever_answers(tmp_path: Path) -> None:
    words = (
        "--sessions",
        4,
        "--episodes",
        4,
        "--overwrite",
        0.7,
        "--asks",
        "now",
        "--arms",
        "ideal,empty",
    )
    chosen = ("--categories", "single_hop,update,preference")
    for answering in ("agent", "reader"):
        found = report(
            *WORLD, *words, *chosen, "--answering", answering, "--out", tmp_path / answering
        )
        ideal, empty = values(found, "ideal"), values(found, "empty")
        assert (ideal["exact"], ideal["overwritten"], empty["overwritten"]) == (1.0, 1.0, 0.0)
        assert found.arms[0].costs.calls > 6 or answering == "reader"
        assert set(found.counts) <= {"single_hop", "update", "preference"}


def test_overwritten_is_over_the_questions_whose_answer_replaced_another(tmp_path: Path) -> None:
    found = report(*WORLD, "--arms", "ideal,empty", "--overwrite", "0.7", "--out", tmp_path / "run")
    worlds = found.config.worlds
    assert worlds is not None
    env = worlds.environment()
    for episode in worlds.played():
        kept = [
            ProbeScore.model_validate(one)
            for one in lines(tmp_path / "run")[f"questions/ideal/{episode.id}.jsonl"][:-1]
        ]
        assert {one.probe_id for one in kept if one.overwritten} == overwritten(env.truth(episode))
    assert any(
        note
        == f"Questions that ask for a value which replaced another: {_marked(tmp_path / 'run')}."
        for note in found.notes
    )


def _marked(folder: Path) -> int:
    first = [found for name, found in lines(folder).items() if name.startswith("questions/ideal")]
    return sum(bool(one.get("overwritten")) for found in first for one in found)


def test_training_and_evaluation_figure_alike(tmp_path: Path) -> None:
    """The same memory, played by the trainer's evaluation and by the command, has the same figures."""
    found = report(*WORLD, "--arms", "verbatim", "--out", tmp_path / "run")
    worlds = found.config.worlds
    assert worlds is not None

    async def evaluated() -> dict[str, float]:
        async with open_agent(path=":memory:", design="verbatim", embedder="hashing") as agent:
            return (
                await evaluate_policy(None, agent, worlds.environment(), list(worlds.played()))
            ).figures

    trained, arm = asyncio.run(evaluated()), values(found, "verbatim")
    episodes = [
        Score.model_validate({**told[-1]["episode"], "probes": told[:-1]})
        for told in lines(tmp_path / "run").values()
    ]
    figures = [episode_figures(score) for score in episodes]
    for name in ("exact", "f1", "overwritten", "lost", "memory_share", "add", "noop", "failed"):
        own = [one[name] for one in figures if name in one]
        assert trained[name] == pytest.approx(sum(own) / len(own)), name
    shares = [(score.memory_tokens, score.dialogue_tokens) for score in episodes]
    assert arm["memory_share"] == pytest.approx(
        sum(a for a, _ in shares) / sum(b for _, b in shares)
    )


def test_figures_of_an_episode_count_what_was_done_and_what_could_not_be_read() -> None:
    probes = (
        ProbeScore(probe_id="a", exact=1.0, f1=1.0, overwritten=True, evidence=("t", "u"), lost=1),
        ProbeScore(
            probe_id="b", exact=0.0, f1=0.5, usage=Usage(calls=1), unreadable=True, abstained=True
        ),
        ProbeScore(probe_id="c", unanswerable=True, overwritten=True, abstained=True),
    )
    score = Score(
        episode_id="e",
        probes=probes,
        ops={"ADD": 3, "NOOP": 0, "REJECTED": 1},
        replies=3,
        unread=1,
        memory_tokens=5,
        dialogue_tokens=20,
    )
    found = episode_figures(score)
    assert found == {
        "f1": 0.75,
        "exact": 0.5,
        "reward": pytest.approx(2.5 / 3),
        "overwritten": 1.0,
        "lost": 0.5,
        "memory_share": 0.25,
        "add": 0.75,
        "update": 0.0,
        "delete": 0.0,
        "noop": 0.0,
        "rejected": 0.25,
        "unreadable": 0.5,
        "failed": 0.0,
    }
    assert PLAY_FIGURES["add"](Score(episode_id="e")) == (0.0, 0.0)


def test_arms_that_name_no_arms_play_the_ideal_beside_the_others(tmp_path: Path) -> None:
    found = report(*WORLD, "--episodes", 1, "--probes", 2, "--out", tmp_path / "run")
    assert [arm.arm for arm in found.arms] == [
        IDEAL,
        *default_arms(model=False, second_embedder=True),
    ]
    assert all(arm.failed == 0 for arm in found.arms)


def test_the_knobs_reach_the_worlds_and_the_asks_the_questions(tmp_path: Path) -> None:
    chosen = (
        "--turns",
        4,
        "--facts",
        2,
        "--interference",
        0,
        "--distractors",
        0,
        "--friends",
        0,
        "--probes",
        5,
    )
    known = _relations()
    only = ",".join(known[:3])
    found = report(
        *WORLD,
        *chosen,
        "--only",
        only,
        "--asks",
        "now,count",
        "--arms",
        "empty",
        "--out",
        tmp_path / "run",
    )
    worlds = found.config.worlds
    assert worlds is not None
    knobs = worlds.knobs
    assert (knobs.turns, knobs.facts, knobs.interference, knobs.distractors, knobs.friends) == (
        4,
        2.0,
        0.0,
        0.0,
        0,
    )
    assert (knobs.only, knobs.probes, worlds.asks) == (tuple(known[:3]), 5, ("now", "count"))
    truths = [worlds.environment().truth(episode) for episode in worlds.played()]
    assert {telling.relation for truth in truths for telling in truth.tellings} <= set(known[:3])
    asked = {probe.id for episode in worlds.played() for probe in episode.probes}
    assert {one.ask for truth in truths for one in truth.probes if one.probe_id in asked} <= {
        "now",
        "count",
    }
    assert sum(found.counts.values()) == len(asked) <= 10


def _relations() -> list[str]:
    with pytest.raises(MemAgentError) as refused:
        synthetic("tiny", only=("nothing",))
    return str(refused.value).partition("there are ")[2].split(", ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--only", "lives_in,levitates"), "no relation"),
        (("--asks", "now,how"), "no question asks for 'how'; there are now, then"),
        (("--overwrite", "1.5"), "overwrite is a share from 0 to 1"),
        (
            ("--arms", "trained=memory_r2_brief"),
            "write the name of an arm or design, or LABEL=DESIGN@MODEL",
        ),
        (("--arms", "memory_r2_brief@hf:runs"), "LABEL=DESIGN@MODEL"),
        (("--arms", "a=@hf:x"), "LABEL=DESIGN@MODEL"),
        (("--arms", "oracle=memory_r2@hf:x/y"), "calls itself 'oracle', which is an arm already"),
        (("--arms", "a=memory_r2@m/n,a=memory_r2@m/o"), "two arms are called 'a'"),
        (("--arms", "a=memory_r9@m/n"), "memory_r9"),
        (
            ("--arms", "a=memory_r2_brief@hf:runs/nowhere/best"),
            "there is no folder runs/nowhere/best",
        ),
        (("--arms", "a=memory_r2_brief@hf:./best"), "there is no folder ./best"),
        (
            ("--model", "hf:runs/nowhere/best", "--arms", "memory_r2"),
            "there is no folder runs/nowhere/best",
        ),
        (("--arms", "memory_r2_brief"), "needs a language model"),
        (("--categories", "none_such", "--arms", "empty"), "no question is asked"),
        (("--arms", "gold"), "turn arms: append_turns, rag,"),
        (("--arms", "gold"), "designs: ace, add_only,"),
        (("--arms", "verbatm"), "(did you mean verbatim?)"),
        (("--arms", "mine=bm25@x"), "no design is named 'bm25'; designs: ace, add_only"),
    ],
)
def test_wrong_words_are_refused_before_anything_is_played(
    words: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    done = run(*WORLD, *words, "--out", tmp_path / "run")
    assert done.exit_code == 1 and isinstance(done.exception, MemAgentError)
    assert said in str(done.exception) and "\n" not in str(done.exception)
    assert not list(tmp_path.rglob("*.jsonl"))


def test_a_folder_that_is_no_model_is_refused_before_anything_is_played(tmp_path: Path) -> None:
    (tmp_path / "best").mkdir()
    done = run(
        *WORLD,
        "--arms",
        f"empty,a=memory_r2_brief@hf:{tmp_path / 'best'}",
        "--out",
        tmp_path / "run",
    )
    assert "no model can be loaded from" in str(done.exception)
    assert not list(tmp_path.rglob("*.jsonl"))


def test_a_configuration_is_of_its_worlds_only(tmp_path: Path) -> None:
    report(*WORLD, "--arms", "empty", "--out", tmp_path / "run")
    config = tmp_path / "run" / "config.json"
    done = run("synthetic", "--config", config, "--sessions", 4, "--out", tmp_path / "other")
    assert "the configuration is of other data than the worlds that the options name" in str(
        done.exception
    )
    done = run(*WORLD, "--facts", 2, "--arms", "empty", "--out", tmp_path / "run")
    assert "another data_digest, worlds" in str(done.exception)
    data = write_locomo(tmp_path / "data")
    done = run("locomo", data, "--config", config, "--out", tmp_path / "other")
    assert "is of other data" in str(done.exception)
    report("locomo", data, "--arms", "empty", "--limit", 1, "--out", tmp_path / "locomo")
    done = run(
        "synthetic", "--config", tmp_path / "locomo" / "config.json", "--out", tmp_path / "other"
    )
    assert "the configuration is of locomo, not of generated worlds" in str(done.exception)
    done = run("locomo", data, "--arms", "ideal", "--out", tmp_path / "other")
    assert "needs a world whose truth is known" in str(done.exception)


def test_arms_are_read_as_they_are_written() -> None:
    names, own = read_arms(
        ("verbatim", "a.b-1=memory_r2@openai/gpt@v=1", "my.designs:DESIGN", "r=pkg.mod:D@hf:x")
    )
    assert names == ("verbatim", "a.b-1", "my.designs:DESIGN", "r")
    assert own == {
        "a.b-1": OwnModel(design="memory_r2", model="openai/gpt@v=1"),
        "r": OwnModel(design="pkg.mod:D", model="hf:x"),
    }


def test_only_designs_that_write_notes_are_read_by_the_reader() -> None:
    notes = [
        name
        for name in (
            "memory_r1",
            "memory_r2",
            "memory_r2_brief",
            "add_only",
            "add_only_brief",
            IDEAL,
        )
        if writes_notes(name, model=True)
    ]
    assert notes == [
        "memory_r1",
        "memory_r2",
        "memory_r2_brief",
        "add_only",
        "add_only_brief",
        IDEAL,
    ]
    turns = (
        "verbatim",
        "compass_rules",
        "compass_mem",
        "memory_t1",
        "bm25",
        "oracle",
        "empty",
        "append_turns",
    )
    assert not any(writes_notes(name, model=True) for name in turns)
    assert not writes_notes("add_only", model=False), "without a model it keeps turns"
    assert writes_notes(
        "add_only", model=False, own={"add_only": OwnModel(design="add_only", model="m")}
    )


def test_worlds_are_plain_data() -> None:
    worlds = Worlds(
        level="tiny",
        split="test",
        seed=1,
        episodes=2,
        knobs=open_world("tiny").config,
        asks=ASKS[:2],
    )
    again = Worlds.model_validate_json(worlds.model_dump_json())
    assert again == worlds and list(again.played()) == list(worlds.played())
