"""Two adapters: each row's gradient goes through the adapter that spoke it, with gradient
checkpointing or without, and a run goes on from a checkpoint as if never stopped.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from adapter_kit import adapted_model, naive_gradients
from training_kit import GivenSteps, random_step, settings, tiny_tokenizer, trainer_of
from transformers import TrainerCallback

from memagent.core.exchange import Role
from train.rollouts.experience import Step
from train.settings.run import LoRASettings

LORA = LoRASettings(r=2, alpha=8, targets=("q_proj", "v_proj", "down_proj"), per_role=True)
ROLES = {0: Role.MANAGER, 1: Role.ANSWERER}


def two_role_step(tokenizer: Any, *, rows: int = 10, seed: int = 0) -> Step:
    """Rows of both roles in turn."""
    step = random_step(tokenizer, rows=rows, seed=seed)
    roles = {key: ROLES[place % 2] for place, key in enumerate(step.traces)}
    return replace(step, roles=roles)


def adapted(folder: Path) -> tuple[Any, Any, dict[Role, str]]:
    """The model with two adapters, saved once in the folder."""
    return adapted_model(folder / "base", LORA)


class _Gradients(TrainerCallback):
    """Gradients of the adapters before the first optimizer step."""

    def __init__(self) -> None:
        self.seen: dict[str, torch.Tensor] = {}

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not self.seen:
            for name, each in kwargs["model"].named_parameters():
                if each.grad is not None:
                    self.seen[name] = each.grad.clone()


def _trained(folder: Path, step: Step, **values: Any) -> dict[str, torch.Tensor]:
    model, tokenizer, adapters = adapted(folder)
    trainer = trainer_of(
        model,
        tokenizer,
        settings(folder / "run", **values),
        GivenSteps([step]),
        adapters=adapters,
    )
    gradients = _Gradients()
    trainer.add_callback(gradients)
    trainer.train()
    return gradients.seen


@pytest.mark.parametrize(
    ("checkpointing", "reentrant"),
    [(False, False), (True, False), (True, True)],
    ids=["off", "on", "reentrant"],
)
@pytest.mark.parametrize("tokens", [8_192, 30], ids=["one pass", "several passes"])
def test_each_row_pulls_at_its_own_adapter_with_checkpointing_or_without(
    tmp_path: Path, checkpointing: bool, reentrant: bool, tokens: int
) -> None:
    step = two_role_step(tiny_tokenizer())
    model, _, adapters = adapted(tmp_path)
    naive = naive_gradients(model, adapters, [step])
    seen = _trained(
        tmp_path,
        step,
        gradient_checkpointing=checkpointing,
        gradient_checkpointing_kwargs={"use_reentrant": reentrant},
        micro_batch_tokens=tokens,
    )
    assert seen.keys() == naive.keys()
    for adapter in ("manager", "answerer"):
        names = [name for name in naive if f".{adapter}." in name]
        exact = torch.cat([naive[name].flatten() for name in names])
        applied = torch.cat([seen[name].flatten() for name in names])
        assert float(exact.norm()) > 1e-3
        assert float(torch.cosine_similarity(exact, applied, dim=0)) > 0.999999
        assert float((exact - applied).abs().max()) < 1e-6


def test_a_run_with_two_adapters_goes_on_to_the_bit(tmp_path: Path) -> None:
    steps = [two_role_step(tiny_tokenizer(), seed=seed) for seed in range(4)]

    def trained(folder: Path, *, until: int, resume: str | None = None) -> tuple[Any, Any]:
        model, tokenizer, adapters = adapted(tmp_path)
        args = settings(
            folder,
            max_steps=until,
            save_strategy="steps",
            save_steps=2,
            learning_rate=0.05,
            gradient_checkpointing=True,
            beta=0.01,
        )
        trainer = trainer_of(model, tokenizer, args, _ByStep(steps), adapters=adapters)
        trainer.train(resume_from_checkpoint=resume)
        losses = [line["loss"] for line in trainer.state.log_history if "loss" in line]
        return {name: each.detach().clone() for name, each in model.named_parameters()}, losses

    whole, losses = trained(tmp_path / "whole", until=4)
    trained(tmp_path / "parts", until=2)
    again, resumed = trained(
        tmp_path / "parts", until=4, resume=str(tmp_path / "parts" / "checkpoint-2")
    )
    assert json.dumps(resumed[-2:]) == json.dumps(losses[-2:])
    assert all(torch.equal(again[name], whole[name]) for name in whole)
    start = dict(adapted(tmp_path)[0].named_parameters())
    for adapter in ("manager", "answerer"):
        assert any(
            not torch.equal(whole[name], start[name]) for name in whole if f".{adapter}." in name
        )


class _ByStep(GivenSteps):
    """Gives the step of the number asked for."""

    async def gather(self, episodes: Any, *, step: int) -> Step:
        return self.steps[step]
