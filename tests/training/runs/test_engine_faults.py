"""A fault of the engine stops the run with its cause; nothing is updated after it, and the
run goes on from its checkpoint. What one request cannot have costs that session alone.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from training_run_kit import entered, lines

from memagent.core.errors import ContextOverflow
from train.sampling.generation import RunningRows
from train.sampling.policy import PolicyModel

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings(
        "ignore::FutureWarning", "ignore:.*pin_memory.*:UserWarning", "ignore::DeprecationWarning"
    ),
]

CASES = int(os.environ.get("MEMAGENT_FAULT_CASES", "6"))
"""Random batches at which the engine fails."""
STEPS = 6
FAULTS: tuple[Exception, ...] = (
    torch.OutOfMemoryError("CUDA out of memory"),
    ConnectionResetError("the server is gone"),
    KeyError("a bug"),
)
CONFIG = """
folder = "{folder}"
[model]
size = "decisions"
[environment]
only = ["lives_in", "likes"]
friends = 0
turns = 3
episodes = 16
[agent]
design = "memagent.designs.learned_policy:DESIGN"
answering = "facts"
[warmup]
episodes = 1
[trainer]
num_generations = 4
steps_per_generation = 4
gradient_accumulation_steps = 4
num_iterations = 1
local_probability = 0.5
reruns = 2
learning_rate = 1e-2
beta = 0.0
max_completion_length = 1
batch_width = {width}
gradient_checkpointing = false
bf16 = false
use_cpu = true
save_steps = 1
[[stage]]
sessions = 2
steps = {steps}
[validation]
every = 3
episodes = 1
test_episodes = 0
measure = "facts"
"""


def _written(folder: Path, *, width: int = 256, steps: int = STEPS) -> Path:
    path = folder / "run.toml"
    path.write_text(CONFIG.format(folder=folder / "run", width=width, steps=steps))
    return path


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """Return the folder of the first model of a run, and the number of batches that a whole run makes."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        seen = _failing(patch, at=None, fault=KeyError())
        assert entered(patch, "run", _written(folder)) == 0
    return folder / "run" / "init", seen.count("batch")


def _failing(patch: pytest.MonkeyPatch, *, at: int | None, fault: Exception) -> list[str]:
    """Let every batch from number `at` on fail; return the batches and updates as they come."""
    advanced, step, seen = RunningRows.advance, torch.optim.AdamW.step, list[str]()

    def counted(self: Any, model: Any) -> Any:
        seen.append("batch")
        if at is not None and seen.count("batch") + seen.count("fault") >= at:
            seen[-1] = "fault"
            raise fault
        return advanced(self, model)

    def updated(self: Any, *values: Any, **options: Any) -> Any:
        seen.append("update")
        return step(self, *values, **options)

    patch.setattr(RunningRows, "advance", counted)
    patch.setattr(torch.optim.AdamW, "step", updated)
    return seen


@pytest.mark.parametrize("case", range(CASES))
def test_a_dead_engine_stops_the_run_and_the_run_goes_on_later(
    case: int,
    begun: tuple[Path, int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    init, count = begun
    shutil.copytree(init, tmp_path / "run" / "init")
    at, fault = random.Random(case).randint(1, count), FAULTS[case % len(FAULTS)]
    with monkeypatch.context() as patch:
        seen = _failing(patch, at=at, fault=fault)
        assert entered(patch, "run", _written(tmp_path)) != 0
        assert seen[-1] == "fault", "nothing is updated after it"
        assert seen.count("fault") == 1, "and the engine is not asked on"
    assert type(fault).__name__ in capsys.readouterr().err
    stage = tmp_path / "run" / "stage0"
    assert not (stage / "ended.json").exists() and not (tmp_path / "run" / "best").exists()
    gathered = lines(stage / "steps.jsonl") if (stage / "steps.jsonl").exists() else []
    assert seen.count("update") == len(gathered)
    assert all(each["figures"]["rollouts/failed"] == 0 for each in gathered)

    resumed = _written(tmp_path, width=32, steps=STEPS + 1)
    assert entered(monkeypatch, "run", resumed, "--resume") == 0
    ended = json.loads((stage / "ended.json").read_text())
    assert ended["steps"] == STEPS + 1
    steps = [each["step"] for each in lines(stage / "log.jsonl") if "loss" in each["logs"]]
    assert steps == list(range(1, STEPS + 2))


def test_a_lost_session_stands_in_the_line_of_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of the two sessions of one of four rollouts overflows: half a rollout failed."""
    sampled, lost = PolicyModel.sample, list[str]()

    async def overflowing(self: PolicyModel, request: Any, *, key: str, sampling: Any) -> Any:
        if not lost and not key.startswith("eval/"):
            lost.append(key)
            raise ContextOverflow("the prompt is too long")
        return await sampled(self, request, key=key, sampling=sampling)

    monkeypatch.setattr(PolicyModel, "sample", overflowing)
    assert entered(monkeypatch, "run", _written(tmp_path, steps=1)) == 0
    assert "stage0 step 1 of 1: failed 0.500  reward" in capsys.readouterr().err, lost
