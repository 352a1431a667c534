"""The stages of a run: what ends one, and that a run which was stopped goes on inside a
stage or between two as if it had not been.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from training_run_kit import lines, train, written

from train.run.validation import Progress

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings(
        "ignore::FutureWarning", "ignore:.*pin_memory.*:UserWarning", "ignore::DeprecationWarning"
    ),
]
VARYING = ("time/", "step_time", "tokens_per", "num_input_tokens_seen", "epoch")
Finished = tuple[Path, dict[str, Any]]
BRIEF = [("test_episodes = 2", "test_episodes = 0")]


def copied(run: Path, folder: Path) -> Path:
    """The finished run in `folder/run`, with settings that name that place; gives the
    settings file.
    """
    config = written(folder)
    shutil.copytree(run, folder / "run")
    note = folder / "run" / "settings.json"
    note.write_text(
        note.read_text(encoding="utf-8").replace(str(run), str(folder / "run")), encoding="utf-8"
    )
    return config


def warmed(init: Path, folder: Path, replace: list[tuple[str, str]]) -> list[int]:
    """Steps that the stages of a run took that begins with the finished run's warm start."""
    config = written(folder, replace=[*replace, *BRIEF])
    shutil.copytree(init, folder / "run" / "init")
    done = train("run", config)
    assert done.exit_code == 0, (done.output, done.exception)
    return [stage["steps"] for stage in json.loads(done.stdout)["stages"]]


def told(folder: Path) -> list[Any]:
    """All that a run wrote of its steps and validations, without seconds."""
    found: list[Any] = []
    for stage in ("stage0", "stage1"):
        for one in lines(folder / stage / "steps.jsonl"):
            figures = {
                name: value
                for name, value in one["figures"].items()
                if not name.startswith(VARYING)
            }
            found.append([one["step"], figures, one["groups"], one["samples"], one["anchors"]])
        for one in lines(folder / stage / "log.jsonl"):
            found.append(
                [one["step"], {name: one["logs"].get(name) for name in ("loss", "grad_norm", "kl")}]
            )
    for one in lines(folder / "validation.jsonl"):
        found.append({name: value for name, value in one.items() if name != "seconds"})
    return found


def test_inside_a_stage_the_same_steps_follow(tmp_path: Path, finished: Finished) -> None:
    """Killed after the first checkpoint of the second stage, with lines of a later step
    already written.
    """
    whole, printed = finished
    config = copied(whole, tmp_path)
    for name in ("summary.json", "stage1/ended.json"):
        (tmp_path / "run" / name).unlink()
    for name in ("best", "stage1/checkpoint-2"):
        shutil.rmtree(tmp_path / "run" / name)
    done = train("run", config, "--resume")
    assert done.exit_code == 0, (done.output, done.exception)
    assert "stage1 goes on from checkpoint-1" in done.stderr
    assert told(tmp_path / "run") == told(whole), "nothing twice, nothing else"
    again = json.loads(done.stdout)
    assert again["test"] == printed["test"]
    assert [{**one, "seconds": 0} for one in again["stages"]] == [
        {**one, "seconds": 0} for one in printed["stages"]
    ]


def test_between_two_stages_the_next_begins(tmp_path: Path, finished: Finished) -> None:
    whole, printed = finished
    config = copied(whole, tmp_path)
    (tmp_path / "run" / "summary.json").unlink()
    for name in ("best", "stage1"):
        shutil.rmtree(tmp_path / "run" / name)
    done = train("run", config, "--resume")
    assert done.exit_code == 0, (done.output, done.exception)
    assert told(tmp_path / "run") == told(whole)
    assert json.loads(done.stdout)["test"] == printed["test"]


def test_patience_and_tokens_end_a_stage(tmp_path: Path, finished: Finished) -> None:
    """The first stage cannot learn and loses patience after two validations; the second
    has used its tokens after one update.
    """
    steps = warmed(
        finished[0] / "init",
        tmp_path,
        [
            ("learning_rate = 1e-4", "learning_rate = 0.0"),
            ("sessions = 2\nsteps = 2", "sessions = 2\nsteps = 9\npatience = 2"),
            ("sessions = 3\nsteps = 2", "sessions = 2\nsteps = 9\ntokens = 1"),
        ],
    )
    assert steps == [2, 1]


def test_a_gate_that_is_passed_ends_a_stage(tmp_path: Path, finished: Finished) -> None:
    """Both gates hold already when their stages begin, so neither takes a step."""
    steps = warmed(
        finished[0] / "init",
        tmp_path,
        [
            ("sessions = 3\nsteps = 2", "sessions = 2\nsteps = 9\ngate = { lost = 1.0 }"),
            ("sessions = 2\nsteps = 2", "sessions = 2\nsteps = 9\ngate = { f1 = 0.0 }"),
        ],
    )
    assert steps == [0, 0]


def test_a_stage_goes_back_to_what_was_true_at_its_checkpoint(tmp_path: Path) -> None:
    home = tmp_path / "stage0"
    home.mkdir()
    records = [
        {"stage": "stage0", "step": step, "figures": {"f1": f1}}
        for step, f1 in enumerate((0.1, 0.3, 0.2, 0.9))
    ]
    records.append({"stage": "stage1", "step": 9, "figures": {"f1": 1.0}})
    steps = [{"step": step, "figures": {"tokens/completion": 100.0}} for step in range(4)]
    logs = [{"step": step, "logs": {"loss": 0.0}} for step in (1, 2, 3, 4)]
    for path, values in (
        (tmp_path / "validation.jsonl", records),
        (home / "steps.jsonl", steps),
        (home / "log.jsonl", logs),
    ):
        path.write_text(
            "".join(json.dumps(one) + "\n" for one in values) + '{"step": 4, "fi', encoding="utf-8"
        )
    stage = Progress.restored(home, 2, measure="f1")
    assert (stage.best, stage.waited, stage.tokens) == (0.3, 1, 200)
    assert [one["step"] for one in lines(tmp_path / "validation.jsonl")] == [0, 1, 2, 9]
    assert [one["step"] for one in lines(home / "steps.jsonl")] == [0, 1]
    assert [one["step"] for one in lines(home / "log.jsonl")] == [1, 2]

    anew = Progress.restored(home, None, measure="f1")
    assert (anew.best, anew.waited, anew.tokens) == (float("-inf"), 0, 0)
    assert [one["step"] for one in lines(tmp_path / "validation.jsonl")] == [9]
