"""A run from its settings to a model in an app: what the folder holds, and that the
trained agent says there what it said in training.
"""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
from command_line_kit import got, moved_into, run as memagent
from training_run_kit import lines

from environments.play.rollout import play
from memagent.async_agent import AsyncAgent
from memagent.core.snapshot import EMPTY
from memagent.pages.run_folders import read_run
from train.report.report import correlation, phases
from train.run.plans import evaluate_policy
from train.run.task import TrainingTask
from train.sampling.checkpoints import load_policy
from train.settings.run import RunSettings

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings(
        "ignore::FutureWarning", "ignore:.*pin_memory.*:UserWarning", "ignore::DeprecationWarning"
    ),
]


@pytest.fixture(scope="module")
def done(finished: tuple[Path, dict[str, Any]]) -> tuple[Path, dict[str, Any]]:
    return finished


def settings_of(folder: Path) -> RunSettings:
    return RunSettings.model_validate_json((folder / "settings.json").read_text(encoding="utf-8"))


def test_the_folder_holds_all_that_a_run_leaves(done: tuple[Path, dict[str, Any]]) -> None:
    folder, printed = done
    for name in ("init", "stage0/best", "stage1/best", "best"):
        assert (folder / name / "model.safetensors").is_file() and (
            folder / name / "tokenizer.json"
        ).is_file()
    assert json.loads((folder / "versions.json").read_text())["trl"].startswith("1.16")
    assert [one["steps"] for one in printed["stages"]] == [2, 2]
    assert set(printed["test"]) == {
        f"{name}@{n}" for name in ("init", "stage0/best", "stage1/best") for n in (2, 3)
    }
    for stage in ("stage0", "stage1"):
        assert [one["step"] for one in lines(folder / stage / "steps.jsonl")] == [0, 1]
        assert [
            one["step"] for one in lines(folder / stage / "log.jsonl") if "loss" in one["logs"]
        ] == [1, 2]
        assert list((folder / stage / "runs").rglob("events.out.tfevents.*")), (
            "TensorBoard has its events"
        )
    validations = lines(folder / "validation.jsonl")
    assert [(one["stage"], one["step"]) for one in validations] == [
        (f"stage{n}", k) for n in (0, 1) for k in (0, 1, 2)
    ]
    assert all(len(one["episodes"]) == 2 and one["shown"][0]["replies"] for one in validations)


def test_steps_say_what_was_compared_and_where_time_went(done: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = done
    steps = lines(folder / "stage0" / "steps.jsonl")
    for step in steps:
        figures = step["figures"]
        assert (
            figures["rows/real"] >= 4
            and figures["batches/width"] >= 1
            and figures["batches/rounds"] >= 2
        )
        assert figures["time/generation"] > 0
        assert {group["branch"] for group in step["groups"]} == {"global", "local"}
        assert all(len(pair) == 2 for pair in step["anchors"])
    run = read_run(folder)
    assert run is not None and len(phases(run)) == 4
    for _, *parts in phases(run):
        assert len(parts) == 5 and all(part >= 0 for part in parts)


def test_tensorboard_has_the_figures(done: tuple[Path, dict[str, Any]]) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder, _ = done
    (file,) = (folder / "stage0" / "runs").rglob("events.out.tfevents.*")
    events = EventAccumulator(str(file))
    events.Reload()
    tags = set(events.Tags()["scalars"])
    assert {"train/loss", "train/reward/global", "train/ops/add"} <= tags
    assert [one.step for one in events.Scalars("train/loss")] == [1, 2]


def test_the_best_of_the_run_is_the_best_stage(done: tuple[Path, dict[str, Any]]) -> None:
    folder, printed = done
    values = [stage["best"] for stage in printed["stages"]]
    chosen = values.index(max(values))
    weights = [
        (folder / name / "model.safetensors").read_bytes()
        for name in (f"stage{chosen}/best", "best")
    ]
    assert weights[0] == weights[1]


async def test_the_trained_agent_decides_in_an_app_as_in_its_evaluation(
    done: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    """Evaluated, loaded as a policy, and opened by name in an agent of its own: the
    same replies, ops and memory.
    """
    folder, printed = done
    settings = settings_of(folder)
    place = TrainingTask.of(settings, sessions=3)
    episode = place.episodes("validation", 1)[0]
    values = [stage["best"] for stage in printed["stages"]]
    validated = TrainingTask.of(
        settings, sessions=settings.stage[values.index(max(values))].sessions
    )
    policy = load_policy(str(folder / "best"))
    again = await evaluate_policy(
        policy,
        validated.agent,
        validated.env,
        validated.episodes("validation", 2),
        answering=validated.answering(validated.episodes("validation", 2), split="validation"),
    )
    figures = {name: round(value, 6) for name, value in again.figures.items()}
    assert figures == {name: round(value, 6) for name, value in _note(folder)["figures"].items()}
    assert (
        _note(folder)["constrained"] is False
        and _note(folder)["max_tokens"] == settings.trainer["max_completion_length"]
    )

    for constrained in (False, True):  # a model of seconds keeps to JSON when it is held to it
        opened = _held(folder / "best", tmp_path / f"{constrained}" / "best", constrained)
        view = load_policy(str(folder / "best"), constrained=constrained).bound("any")
        evaluated = (await play(place.agent.at(EMPTY).with_model(view), episode, ask=False)).end
        # Replies that nobody can read are data in an evaluation, so they are here.
        async with AsyncAgent(
            f"hf:{opened}",
            path=":memory:",
            design="memory_r2_brief",
            embedder=settings.agent.embedder,
            keep_unreadable=True,
        ) as agent:
            reports = [await agent.remember(session) for session in episode.sessions]
            assert agent.snapshot().digest == evaluated.digest
            assert (await agent.ask(episode.probes[0].question)).text is not None
        assert sum(sum(report.op_counts.values()) for report in reports) > 0
        assert not any(report.failed_chunks for report in reports)
    assert any(item.active for item in evaluated.items.values()), "constrained, it keeps something"


def _held(source: Path, copy: Path, constrained: bool) -> Path:
    """A copy of the model whose note says whether it is held to the JSON Schemas."""
    shutil.copytree(source, copy)
    note = _note(source.parent) | {"constrained": constrained}
    (copy / "memagent.json").write_text(json.dumps(note), encoding="utf-8")
    return copy


def _note(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "best" / "memagent.json").read_text(encoding="utf-8"))


def test_the_trained_model_answers_through_the_command_line(
    done: tuple[Path, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = done
    moved_into(tmp_path, monkeypatch)
    model = f"hf:{folder / 'best'}"
    (tmp_path / "chat.txt").write_text(
        "# 7 May 2023, 1:56 pm\nIvy: I work as a guard.\n", encoding="utf-8"
    )
    assert (
        memagent(
            "init", "--path", "store.db", "--model", model, "--design", "memory_r2_brief"
        ).exit_code
        == 0
    )
    ingested = memagent("ingest", "chat.txt", "--json")
    assert ingested.exit_code == 0  # a model of seconds often rambles on: the rules keep the turn
    stats = got(memagent("stats", "--json"))
    assert stats["sessions"] == 1, stats
    answer = got(memagent("ask", "what does Ivy work as?", "--json"))
    assert answer["text"] and answer["verdict"]


def test_correlation_is_pearsons() -> None:
    assert correlation([(0, 0), (1, 2), (2, 4)]) == pytest.approx(1.0)
    assert correlation([(0, 1), (1, 0), (2, 1), (3, 0)]) == pytest.approx(-1 / math.sqrt(5))
    assert correlation([(0, 1), (1, 1), (2, 1)]) is None and correlation([(0, 1)]) is None
