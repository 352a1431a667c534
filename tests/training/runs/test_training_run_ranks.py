"""Whole runs on two processes: a fresh start, ends by gate, patience and tokens, a resume,
adapters, a warm start. Both processes decide alike and one writes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ranks_kit import STEPS, launch, rank_settings
from training_run_kit import lines

from memagent.core.errors import ConfigError
from train.run.runs import stage_config
from train.settings.run import checked_run

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def outcomes(folder: Path) -> dict[str, Any]:
    """What each of the two ranks says became of the runs."""
    adapters = {"lora": {"r": 2, "alpha": 4, "targets": "all-linear", "per_role": True}}
    both = {
        "roles": "both",
        "answer_members": 2,
        "answer_questions": 1,
        "gradient_checkpointing": True,
    }
    plan = {
        "fresh": {"settings": rank_settings(folder / "fresh")},
        "patience": {"settings": rank_settings(folder / "patience", stage={"patience": 1})},
        "gate": {"settings": rank_settings(folder / "gate", stage={"gate": {"f1": 0.0}})},
        "tokens": {"settings": rank_settings(folder / "tokens", stage={"tokens": 1})},
        "stopped": {"settings": rank_settings(folder / "stopped"), "stop_at": 2},
        "adapters": {
            "settings": rank_settings(
                folder / "adapters", model=adapters, trainer=both, stage={"steps": 2}
            )
        },
        "warm": {
            "settings": rank_settings(
                folder / "warm",
                warmup={"episodes": 4, "sessions": 1, "epochs": 1, "batch_rows": 4},
                stage={"steps": 1},
            )
        },
    }
    (folder / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    printed = [
        json.loads(line.partition(" ")[2])
        for out in launch("run_workload.py", folder / "plan.json")
        for line in out.splitlines()
        if line.startswith("@outcomes ")
    ]
    first, second = (each["outcomes"] for each in printed)
    assert first == second, "the ranks disagree"
    return first


def test_two_processes_complete_a_fresh_run_and_one_writes_it(
    outcomes: dict[str, Any], folder: Path
) -> None:
    (stage,) = outcomes["fresh"]["stages"]
    assert stage["steps"] == STEPS
    steps = lines(folder / "fresh" / "stage0" / "steps.jsonl")
    assert [step["step"] for step in steps] == list(range(STEPS))
    records = lines(folder / "fresh" / "validation.jsonl")
    assert [record["step"] for record in records] == list(range(STEPS + 1))
    assert all(len(record["episodes"]) == 3 for record in records)
    assert stage["tokens"] == sum(step["figures"]["tokens/completion"] for step in steps)
    assert (folder / "fresh" / "best" / "model.safetensors").is_file()
    assert outcomes["fresh"]["test"].keys() == {"init@1", "stage0/best@1", "stage0/last@1"}


def test_the_first_step_is_that_of_one_process_with_both_shares(
    outcomes: dict[str, Any], folder: Path
) -> None:
    del outcomes
    from train.run.runs import train_run

    alone = rank_settings(folder / "alone", trainer={"per_device_train_batch_size": 2})
    alone["stage"][0]["steps"] = 1
    train_run(checked_run(alone), say=lambda _: None)
    (one,) = lines(folder / "alone" / "stage0" / "steps.jsonl")
    two = lines(folder / "fresh" / "stage0" / "steps.jsonl")[0]
    for name in ("tokens/completion", "rows/real", "rollouts/reruns"):
        assert two["figures"][name] == one["figures"][name] > 0, name
    starts = [
        lines(folder / name / "validation.jsonl")[0]["figures"] for name in ("alone", "fresh")
    ]
    assert starts[0] == pytest.approx(starts[1])


def test_processes_end_a_stage_together(outcomes: dict[str, Any], folder: Path) -> None:
    for name, steps in (("patience", 1), ("gate", 0), ("tokens", 1)):
        (stage,) = outcomes[name]["stages"]
        assert stage["steps"] == steps, name
        assert len(lines(folder / name / "validation.jsonl")) == steps + 1


def test_a_stopped_run_of_two_goes_on_to_the_bit(outcomes: dict[str, Any]) -> None:
    assert outcomes["stopped"]["weights"] == outcomes["fresh"]["weights"] != {}


def test_two_processes_train_two_adapters(outcomes: dict[str, Any], folder: Path) -> None:
    assert outcomes["adapters"]["stages"][0]["steps"] == 2
    for adapter in ("manager", "answerer"):
        assert (folder / "adapters" / "stage0" / "last" / adapter).is_dir()


def test_two_processes_warm_up_together(outcomes: dict[str, Any], folder: Path) -> None:
    assert outcomes["warm"]["stages"][0]["steps"] == 1
    note = json.loads((folder / "warm" / "init" / "memagent.json").read_text())
    assert note["warm_up"]["loss"] > 0


@pytest.mark.parametrize("flag", ["ACCELERATE_USE_DEEPSPEED", "ACCELERATE_USE_FSDP"])
def test_split_weights_are_refused_before_anything_is_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flag: str
) -> None:
    settings = checked_run(rank_settings(tmp_path / "run"))
    monkeypatch.setenv(flag, "true")
    with pytest.raises(ConfigError, match="is not supported: processes play different"):
        stage_config(settings, settings.stage[0], tmp_path)
