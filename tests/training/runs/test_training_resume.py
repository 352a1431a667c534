"""A run that is killed goes on as if nothing had happened: the next step's rows, losses
and weights are the same to the bit.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from crash_child import CrashServer, Death
from resume_workload import KILLED_AT, STEPS
from training_kit import (
    GivenSteps,
    random_step,
    saved_model,
    settings,
    tiny_tokenizer,
    trainer_of,
)

from train.errors import TrainFault
from train.rollouts.slots import EpisodeSampler
from train.sampling.checkpoints import STATE_FILE, last_checkpoint


@pytest.fixture(scope="module")
def server() -> Iterator[CrashServer]:
    with CrashServer("resume_workload") as running:
        yield running


@pytest.fixture(scope="module")
def whole(server: CrashServer, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Any]:
    """Steps of a run that nobody disturbed."""
    ended = server.run("resume_workload:train", folder=str(tmp_path_factory.mktemp("whole")))
    assert ended.trace == ""
    rows = [line.split() for line in ended.said if line.startswith("@rows")]
    assert all(int(count) > 4 and float(pull) > 0 for _, count, pull in rows)
    return _steps(ended)


def _steps(death: Death) -> dict[int, Any]:
    found = [json.loads(line.partition(" ")[2]) for line in death.said if line.startswith("@step ")]
    return {one.pop("step"): one for one in found}


def test_an_undisturbed_run_learns_something_different_in_each_step(whole: dict[int, Any]) -> None:
    assert sorted(whole) == list(range(1, STEPS + 1))
    assert len({one["rows"] for one in whole.values()}) == STEPS
    assert len({one["weights"] for one in whole.values()}) == STEPS


@pytest.mark.parametrize(
    ("die", "goes_on_from"),
    [("rollout", 2), ("loss", 2), ("save", 2), ("mark", 2)],
    ids=lambda value: str(value),
)
def test_a_killed_run_goes_on_to_the_bit(
    server: CrashServer, whole: dict[int, Any], tmp_path: Path, die: str, goes_on_from: int
) -> None:
    killed = server.run("resume_workload:train", folder=str(tmp_path), die=die)
    assert (killed.killed, killed.trace) == (True, "")
    assert _steps(killed) == {step: whole[step] for step in _steps(killed)}
    assert len(_steps(killed)) == KILLED_AT + (die in ("save", "mark"))
    resumed = server.run("resume_workload:train", folder=str(tmp_path))
    assert resumed.trace == ""
    assert f"@from checkpoint-{goes_on_from}" in resumed.said
    assert _steps(resumed) == {step: whole[step] for step in range(goes_on_from + 1, STEPS + 1)}


def test_a_checkpoint_cut_off_while_it_was_saved_does_not_count(tmp_path: Path) -> None:
    for number in (2, 10, 11):
        (tmp_path / f"checkpoint-{number}").mkdir()
        if number < 11:
            (tmp_path / f"checkpoint-{number}" / STATE_FILE).write_text("{}")
    assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-10"
    assert last_checkpoint(tmp_path / "none") is None
    tokenizer = tiny_tokenizer()
    trainer = trainer_of(
        saved_model(tmp_path / "model", tokenizer),
        tokenizer,
        settings(tmp_path / "run"),
        GivenSteps([random_step(tokenizer, rows=4)]),
    )
    with pytest.raises(TrainFault, match="not saved to its end"):
        trainer._load_from_checkpoint(str(tmp_path / "checkpoint-11"))


def test_which_episodes_a_step_plays_is_a_function_of_seed_and_step() -> None:
    passes = [
        [
            EpisodeSampler().choose(batch, seed=1, episodes=7, size=2)
            for batch in range(3 * n, 3 * n + 3)
        ]
        for n in (0, 1)
    ]
    for batches in passes:
        played = [place for batch in batches for place in batch]
        assert len(set(played)) == len(played) == 6  # the seventh is left out of this pass
    assert passes[0] != passes[1]
    assert EpisodeSampler().choose(4, seed=1, episodes=7, size=2) == passes[1][1]
    assert [
        EpisodeSampler().choose(batch, seed=2, episodes=7, size=2) for batch in range(3)
    ] != passes[0]
    with pytest.raises(TrainFault, match="plays 3 episodes, and there are 2"):
        EpisodeSampler().choose(0, seed=1, episodes=2, size=3)
