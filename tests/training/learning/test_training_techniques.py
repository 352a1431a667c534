"""Techniques inside a real trainer on a tiny model: what is off changes nothing, what
is on does what it says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from training_kit import (
    GivenSteps,
    made_step,
    random_step,
    saved_model,
    settings,
    tiny_tokenizer,
    trainer_of,
)
from transformers import TrainerCallback

from train.rollouts.experience import Step
from train.techniques.echo import clip_mask, echo_loss, step_means


class _Notes(TrainerCallback):
    """Gradients before each optimizer step; weights and optimizer state after it."""

    def __init__(self) -> None:
        self.gradients: list[dict[str, torch.Tensor]] = []
        self.weights: list[dict[str, torch.Tensor]] = []
        self.optimizer: list[list[torch.Tensor]] = []

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        named = kwargs["model"].named_parameters()
        self.gradients.append(
            {name: one.grad.clone() for name, one in named if one.grad is not None}
        )

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.weights.append(
            {name: one.detach().clone() for name, one in kwargs["model"].named_parameters()}
        )
        states = kwargs["optimizer"].state_dict()["state"]
        self.optimizer.append([value.clone() for one in states.values() for value in one.values()])


def _run(folder: Path, steps: Sequence[Step], **values: Any) -> tuple[_Notes, Any]:
    tokenizer = tiny_tokenizer()
    notes = _Notes()
    trainer = trainer_of(
        saved_model(folder / "model", tokenizer),
        tokenizer,
        settings(folder / "run", **values),
        GivenSteps(steps),
    )
    trainer.add_callback(notes)
    trainer.train()
    return notes, trainer


def _with(step: Step, **values: Any) -> Step:
    credit = replace(step.credit, advantages=values.pop("advantages", step.credit.advantages))
    return replace(step, credit=credit, **values)


def _largest(gradients: dict[str, torch.Tensor]) -> float:
    return max((float(one.abs().max()) for one in gradients.values()), default=0.0)


ECHO: dict[str, Any] = {"objectives": ["echo"], "arguments": {"echo": {"weight": 0.5}}}

# -- echo ------------------------------------------------------------------------------


def test_the_clip_ends_with_the_entropy_peak() -> None:
    entropies = torch.tensor([[0.1, 0.9, 0.3, 9.0], [0.5, 0.1, 0.1, 0.1]])
    mask = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]])
    assert clip_mask(entropies, mask).tolist() == [[1, 1, 0, 0], [1, 0, 0, 0]]


def test_the_clip_ends_with_the_step_of_the_highest_mean_entropy() -> None:
    entropies = torch.tensor([[0.1, 0.9, 0.5, 0.6, 0.2], [0.9, 0.9, 0.1, 0.2, 0.1]])
    ends = torch.tensor([[0, 1, 0, 1, 0], [0, 1, 0, 0, 0]]).bool()
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 1, 0]])
    means = step_means(entropies, mask, ends)
    assert means[0].tolist() == pytest.approx([0.5, 0.5, 0.55, 0.55, 0.2])
    assert means[1, :4].tolist() == pytest.approx([0.9, 0.9, 0.15, 0.15])
    assert clip_mask(entropies, mask, ends).tolist() == [[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]]
    whole = clip_mask(entropies, mask, torch.zeros_like(ends))
    assert whole.tolist() == mask.tolist()  # a reply without an end is one step


def test_only_tokens_of_the_clip_get_a_gradient_from_the_echo() -> None:
    logps = torch.tensor([[-1.0, -2.0, -3.0], [-1.0, -1.0, -1.0]], requires_grad=True)
    entropies, mask = torch.tensor([[0.1, 0.9, 0.3], [0.1, 0.2, 0.3]]), torch.ones(2, 3)
    loss = echo_loss(logps, clip_mask(entropies, mask), torch.tensor([1.0, 0.0]))
    loss.backward()
    assert float(loss.detach()) == pytest.approx((1.0 + 2.0) / 2 / 2)
    assert logps.grad is not None
    assert logps.grad.tolist() == [[-0.25, -0.25, 0.0], [0.0, 0.0, 0.0]]


def test_a_degenerate_group_teaches_by_its_echo_alone(tmp_path: Path) -> None:
    step = random_step(tiny_tokenizer(), rows=6, seed=1)
    flat = _with(step, advantages=dict.fromkeys(step.traces, 0.0))
    echo = _with(flat, marks={"echo": frozenset([next(iter(step.traces))])})
    policy, _ = _run(tmp_path / "policy", [flat])
    repeated, _ = _run(tmp_path / "echo", [echo], skip_zero_rows=True, **ECHO)
    unweighted, _ = _run(tmp_path / "off", [echo])
    assert _largest(policy.gradients[0]) == 0.0
    assert _largest(unweighted.gradients[0]) == 0.0
    assert _largest(repeated.gradients[0]) > 1e-4


def test_mixed_groups_learn_the_same_with_the_echo_on(tmp_path: Path) -> None:
    step = random_step(tiny_tokenizer(), rows=6, seed=2)
    plain, _ = _run(tmp_path / "plain", [step])
    ready, _ = _run(tmp_path / "ready", [step], **ECHO)
    for name, gradient in plain.gradients[0].items():
        assert torch.equal(gradient, ready.gradients[0][name])


# -- gradient gate ---------------------------------------------------------------------


class _Harm:
    """Makes the advantages of one reuse a hundred times as large, in the rows already built."""

    def __init__(self, trainer: Any, *, micro_step: int) -> None:
        self._prepare, self._trainer, self._at = trainer._prepare_inputs, trainer, micro_step
        trainer._prepare_inputs = self

    def __call__(self, batch: Any) -> Any:
        inputs = self._prepare(batch)
        if self._trainer._step == self._at:
            return inputs | {"advantages": inputs["advantages"] * -100.0}
        return inputs


def _reused(folder: Path, *, gate: float, harm: bool) -> tuple[_Notes, Any]:
    tokenizer = tiny_tokenizer()
    notes = _Notes()
    steps = [random_step(tokenizer, rows=8, seed=seed) for seed in range(3)]
    args = settings(
        folder / "run",
        per_device_train_batch_size=4,
        steps_per_generation=2,
        gradient_accumulation_steps=1,
        num_iterations=4,
        max_steps=24,
        learning_rate=1e-3,
        objectives=["gradient_gate"] if gate else [],
        arguments={"gradient_gate": {"k": gate}} if gate else {},
        epsilon=10.0,
        delta=None,
    )
    trainer = trainer_of(
        saved_model(folder / "model", tokenizer), tokenizer, args, GivenSteps(steps)
    )
    trainer.add_callback(notes)
    if harm:
        _Harm(trainer, micro_step=20)
    trainer.train()
    return notes, trainer


def test_a_refused_step_changes_neither_weights_nor_optimizer_by_a_bit(tmp_path: Path) -> None:
    notes, trainer = _reused(tmp_path, gate=50.0, harm=True)
    gate = trainer.args.plugins.objectives.parts["gradient_gate"]
    assert gate.refused == 4  # the harmful step and the three that were left of its batch
    for step in range(20, 24):
        assert all(
            torch.equal(notes.weights[19][name], one) for name, one in notes.weights[step].items()
        )
        assert all(
            torch.equal(*both)
            for both in zip(notes.optimizer[19], notes.optimizer[step], strict=True)
        )
    assert not all(
        torch.equal(notes.weights[18][name], one) for name, one in notes.weights[19].items()
    )
    assert len(gate.usual) == 6  # two optimizer steps of a first use in each of three batches


def test_a_gated_run_stays_where_an_ungated_one_is_thrown_off(tmp_path: Path) -> None:
    def away(notes: _Notes) -> float:
        return max(
            float((one - notes.weights[19][name]).abs().max())
            for name, one in notes.weights[-1].items()
        )

    gated, _ = _reused(tmp_path / "gated", gate=50.0, harm=True)
    ungated, _ = _reused(tmp_path / "ungated", gate=0.0, harm=True)
    assert away(gated) == 0.0
    assert away(ungated) > 0.0


def test_a_gate_that_never_refuses_changes_nothing(tmp_path: Path) -> None:
    gated, _ = _reused(tmp_path / "gated", gate=1e9, harm=False)
    plain, _ = _reused(tmp_path / "plain", gate=0.0, harm=False)
    assert all(torch.equal(one, plain.weights[-1][name]) for name, one in gated.weights[-1].items())


# -- luspo -----------------------------------------------------------------------------


def test_luspo_s_gradient_of_a_token_does_not_depend_on_the_length_of_its_row(
    tmp_path: Path,
) -> None:
    """Twice the same reply, once with a tail: with `grpo` a token of the longer row
    counts less, with `luspo` the same.
    """
    tokenizer = tiny_tokenizer()
    short, long = _length_step(3), _length_step(6)

    def shares(loss_type: str) -> tuple[float, float]:
        found: list[float] = []
        for name, step in (("short", short), ("long", long)):
            weights = _token_gradient(tmp_path / loss_type / name, tokenizer, step, loss_type)
            found.append(weights)
        return found[0], found[1]

    one, other = shares("luspo")
    assert one == pytest.approx(other, rel=1e-6)
    one, other = shares("grpo")
    assert one == pytest.approx(2 * other, rel=1e-6)


def _length_step(length: int) -> Step:
    from memagent.core.exchange import TokenTrace

    trace = TokenTrace(
        prompt_ids=(6, 7, 8),
        completion_ids=(9, 10, 11, 12, 13, 14)[:length],
        logprobs=(-1.0,) * length,
        policy_version=0,
    )
    return made_step({"r": trace}, {"r": 1.0})


def _token_gradient(folder: Path, tokenizer: Any, step: Step, loss_type: str) -> float:
    """d loss / d log pi of the first completion token, on the ratio-1 policy."""
    args = settings(
        folder / "run", loss_type=loss_type, steps_per_generation=2, gradient_accumulation_steps=2
    )
    trainer = trainer_of(
        saved_model(folder / "model", tokenizer), tokenizer, args, GivenSteps([step])
    )
    noted: list[float] = []
    read = trainer._get_per_token_logps_and_entropies

    def watched(*values: Any, **options: Any) -> Any:
        logps, entropies, aux = read(*values, **options)
        if logps.requires_grad:
            logps.register_hook(lambda grad: noted.append(float(grad.abs().max(1).values.max())))
        return logps, entropies, aux

    trainer._get_per_token_logps_and_entropies = watched  # type: ignore[method-assign]
    trainer.train()
    return max(noted)
