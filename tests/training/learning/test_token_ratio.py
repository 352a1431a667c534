"""Advantages by token under one ratio a row: the loss is GSPO's token form."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from training_kit import (
    GivenSteps,
    random_step,
    saved_model,
    settings,
    tiny_tokenizer,
    trainer_of,
)
from transformers import TrainerCallback

from train.rollouts.experience import Step

pytestmark = pytest.mark.torch


class Gradients(TrainerCallback):
    """Keeps the gradients before each optimizer step."""

    def __init__(self) -> None:
        self.kept: list[torch.Tensor] = []

    def on_pre_optimizer_step(
        self, args: object, state: object, control: object, **kw: object
    ) -> None:
        model: object = kw["model"]
        assert isinstance(model, torch.nn.Module)
        grads = [each.grad.flatten() for each in model.parameters() if each.grad is not None]
        self.kept.append(torch.cat(grads).clone())


def gradients(folder: Path, step: Step, **values: object) -> list[torch.Tensor]:
    """Train two passes over a step and return the gradient of each."""
    tokenizer = tiny_tokenizer()
    notes = Gradients()
    passes = {"num_iterations": 2, "max_steps": 2, "epsilon": 0.2} | values
    trainer = trainer_of(
        saved_model(folder / "model", tokenizer),
        tokenizer,
        settings(folder / "run", **passes),
        GivenSteps([step]),
    )
    trainer.add_callback(notes)
    trainer.train()
    return notes.kept


def with_offsets(step: Step, by: float) -> Step:
    """A step whose tokens of a row differ: more at the start, less at the end, mean the same."""
    offsets = {
        key: tuple(
            by * (len(trace.completion_ids) - 1 - 2 * at) for at in range(len(trace.completion_ids))
        )
        for key, trace in step.traces.items()
    }
    return replace(step, credit=replace(step.credit, offsets=offsets))


def test_tokens_that_do_not_differ_have_the_gradient_of_one_ratio_a_row(tmp_path: Path) -> None:
    """Both forms agree in both passes, so also where the policy has moved."""
    step = random_step(tiny_tokenizer(), rows=4)
    rows = gradients(tmp_path / "a", step)
    tokens = gradients(tmp_path / "b", with_offsets(step, 1e-12))
    for row, token in zip(rows, tokens, strict=True):
        assert float(row.abs().max()) > 0
        assert torch.allclose(row, token, atol=1e-6)


@pytest.mark.parametrize("loss_type", ["grpo", "luspo", "sapo"])
def test_each_token_acts_by_its_own_advantage(tmp_path: Path, loss_type: str) -> None:
    """With rows that earn nothing as a whole, the offsets alone make the gradient."""
    step = random_step(tiny_tokenizer(), rows=4)
    flat = replace(step, credit=replace(step.credit, advantages=dict.fromkeys(step.traces, 0.0)))
    by_row = gradients(tmp_path / "a", with_offsets(flat, 0.5), loss_type=loss_type)
    assert float(by_row[0].abs().max()) > 1e-3
    if loss_type == "grpo":
        by_token = gradients(
            tmp_path / "b", with_offsets(flat, 0.5), importance_sampling_level="token"
        )
        assert torch.allclose(by_row[0], by_token[0], atol=1e-6), "the policy has not moved yet"
