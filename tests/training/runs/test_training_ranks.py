"""Two processes with unequal rows are one process with all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from adapter_kit import naive_gradients
from places import ROOT
from rank_workload import ADAPTER_CASES, CASES, adapted, adapter_step_of, step_of
from ranks_kit import launch
from training_kit import made_step, tiny_model, tiny_tokenizer


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which both ranks left their gradients."""
    folder = tmp_path_factory.mktemp("ranks")
    adapted(folder / "base")
    launch("rank_workload.py", folder)
    return folder


def _naive(case: str) -> dict[str, torch.Tensor]:
    """Gradient of -(1/N) sum of A * mean log pi over the rows of both ranks, one row at a time."""
    tokenizer = tiny_tokenizer()
    model = tiny_model(tokenizer)
    both = [step_of(tokenizer, case, rank) for rank in range(2)]
    step = made_step(
        {key: trace for one in both for key, trace in one.traces.items()},
        {key: value for one in both for key, value in one.credit.advantages.items()},
    )
    for key, advantage in step.credit.advantages.items():
        trace = step.traces[key]
        ids = torch.tensor([[*trace.prompt_ids, *trace.completion_ids]])
        logps = torch.log_softmax(model(input_ids=ids).logits[0, :-1].float(), dim=-1)
        said = logps.gather(1, ids[0, 1:].unsqueeze(1)).squeeze(1)[len(trace.prompt_ids) - 1 :]
        (-advantage * said.mean() / len(step.credit.advantages)).backward()
    return {
        name: torch.zeros_like(one) if one.grad is None else one.grad.clone()
        for name, one in model.named_parameters()
    }


def _saved(folder: Path, case: str, rank: int) -> dict[str, Any]:
    with np.load(folder / f"{case.replace(' ', '_')}_{rank}.npz") as file:
        return {name: file[name] for name in file.files}


@pytest.mark.parametrize("case", CASES)
def test_two_ranks_apply_the_gradient_of_all_rows(trained: Path, case: str) -> None:
    naive = _naive(case)
    for rank in range(2):
        noted = _saved(trained, case, rank)
        assert (set(naive) <= set(noted)) == (case != "none at all")
        assert _worst(noted, naive) < 1e-6
    largest = max(float(one.abs().max()) for one in naive.values())
    assert (largest > 1e-3) == (case != "none at all")


def _worst(noted: dict[str, Any], naive: dict[str, torch.Tensor]) -> float:
    """The largest difference; a gradient that a rank has not applied is zero."""
    return max(
        float((torch.from_numpy(noted[name]) - each if name in noted else each).abs().max())
        for name, each in naive.items()
    )


@pytest.mark.parametrize("case", ADAPTER_CASES)
def test_two_ranks_train_two_adapters_whichever_roles_spoke_where(
    trained: Path, tmp_path: Path, case: str
) -> None:
    """Micro-batches differ in number and adapter; checkpointing is on."""
    model, tokenizer, adapters = adapted(tmp_path / "base")
    both = [adapter_step_of(tokenizer, case, rank) for rank in range(2)]
    naive = naive_gradients(model, adapters, both)
    spoken = set("".join(ADAPTER_CASES[case]))
    for rank in range(2):
        noted = _saved(trained, case, rank)
        assert set(noted) == set(naive)
        assert _worst(noted, naive) < 1e-6
        for letter, adapter in (("m", "manager"), ("a", "answerer")):
            assert any(f".{adapter}." in name for name in noted) == (letter in spoken)


def test_two_ranks_play_different_episodes(trained: Path) -> None:
    played = [
        set(str(_saved(trained, "unequal", rank)["episodes"]).split(",")) for rank in range(2)
    ]
    assert not played[0] & played[1]
    assert len(played[0] | played[1]) == 4


def test_launch_settings_are_ones_that_accelerate_knows() -> None:
    from accelerate.commands.config.config_args import ClusterConfig

    files = sorted((ROOT / "examples" / "accelerate").glob("*.yaml"))
    assert [path.stem for path in files] == ["ddp_cpu", "ddp_gpu"]
    for path in files:
        ClusterConfig.from_yaml_file(str(path))
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert values["num_processes"] >= 2
