"""What the trainer hands to TRL's loss: nothing lost, nothing counted twice, gradients
equal to a naive computation.
"""

from __future__ import annotations

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
    tiny_model,
    tiny_tokenizer,
    trainer_of,
)

from train.credit.rows import build_rows, micro_batches, padded_count, rows_of
from train.errors import TrainFault
from train.rollouts.experience import Step


def _naive_gradient(model: Any, step: Step) -> dict[str, torch.Tensor]:
    """-(1/N) sum over rows of A * mean over tokens of log pi, one row at a time and
    unpadded: GRPO's gradient at ratio 1.
    """
    model.zero_grad()
    for key, advantage in step.credit.advantages.items():
        trace = step.traces[key]
        ids = torch.tensor([[*trace.prompt_ids, *trace.completion_ids]])
        logps = torch.log_softmax(model(input_ids=ids).logits[0, :-1].float(), dim=-1)
        said = logps.gather(1, ids[0, 1:].unsqueeze(1)).squeeze(1)[len(trace.prompt_ids) - 1 :]
        (-advantage * said.mean() / len(step.credit.advantages)).backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


def _trained_gradient(
    tmp_path: Path, step: Step, **values: Any
) -> tuple[dict[str, torch.Tensor], Any]:
    tokenizer = tiny_tokenizer()
    model = saved_model(tmp_path / "model", tokenizer)
    trainer = trainer_of(model, tokenizer, settings(tmp_path / "run", **values), GivenSteps([step]))
    noted: dict[str, torch.Tensor] = {}

    from transformers import TrainerCallback

    class Note(TrainerCallback):
        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            for name, parameter in kwargs["model"].named_parameters():
                if parameter.grad is not None:
                    noted[name] = parameter.grad.clone()

    trainer.add_callback(Note())
    trainer.train()
    return noted, trainer


@pytest.mark.parametrize("rows", [1, 5, 8, 11])
def test_gradients_of_padded_shuffled_chunked_rows_equal_a_naive_computation(
    tmp_path: Path, rows: int
) -> None:
    tokenizer = tiny_tokenizer()
    step = random_step(tokenizer, rows=rows, seed=rows)
    noted, trainer = _trained_gradient(tmp_path, step)
    naive = _naive_gradient(tiny_model(tokenizer), step)
    worst = max(float((noted[name] - naive[name]).abs().max()) for name in naive)
    assert worst < 1e-6
    assert sum(float(value.abs().sum()) for value in naive.values()) > 0
    assert trainer.last_step is step


@pytest.mark.parametrize("tokens", [1, 24, 60])
def test_micro_batches_change_neither_loss_nor_gradient(tmp_path: Path, tokens: int) -> None:
    """Clip, KL, entropy and echo included: one pass over a slice, or many over parts of it."""
    tokenizer = tiny_tokenizer()
    step = random_step(tokenizer, rows=13, seed=2)
    step = replace(step, marks={"echo": frozenset(list(step.traces)[:3])})
    values: dict[str, Any] = {
        "beta": 0.3,
        "entropy_coef": 0.2,
        "objectives": ["echo"],
        "arguments": {"echo": {"weight": 0.5}},
        "num_iterations": 2,
        "max_steps": 2,
        "epsilon": 0.02,
        "learning_rate": 0.2,
        "optim": "sgd",
    }
    whole, one = _trained_gradient(tmp_path / "one", step, micro_batch_tokens=100_000, **values)
    parts, many = _trained_gradient(tmp_path / "many", step, micro_batch_tokens=tokens, **values)
    assert max(float((whole[name] - parts[name]).abs().max()) for name in whole) < 1e-6
    for name in ("loss", "kl", "entropy", "clip_ratio/region_mean"):
        first, second = (
            [line[name] for line in trainer.state.log_history if name in line]
            for trainer in (one, many)
        )
        assert len(first) == 2
        assert second == pytest.approx(first, abs=2e-5), name


def test_a_micro_batch_holds_rows_of_one_adapter_within_the_tokens() -> None:
    """The number of rows a pass depends on their length alone, not on how many there are."""
    tokenizer = tiny_tokenizer()
    for count in (40, 160):
        step = random_step(tokenizer, rows=count, seed=9)
        adapters = {key: place % 2 for place, key in enumerate(step.traces)}
        rows = rows_of(step.traces, step.credit.advantages, adapters=adapters)
        batch = build_rows(rows, size=count + 8, pad_id=tokenizer.pad_token_id)
        inputs = {
            name: getattr(batch, name)
            for name in (
                "prompt_ids",
                "prompt_mask",
                "completion_ids",
                "completion_mask",
                "advantages",
                "adapters",
            )
        }
        parts = micro_batches(inputs, tokens=64)
        assert sorted(int(row) for part in parts for row in part.rows) == list(range(count))
        assert sum(part.row_share for part in parts) == pytest.approx(count / (count + 8))
        assert sum(part.token_share for part in parts) == pytest.approx(1.0)
        for part in parts:
            size = part.inputs["prompt_ids"].numel() + part.inputs["completion_ids"].numel()
            assert size <= 64 or len(part.rows) == 1
            assert set(part.inputs["adapters"].tolist()) == {part.adapter}
            assert part.inputs["prompt_mask"][:, 0].any()
            assert part.inputs["completion_mask"][:, -1].any()
        lengths = [
            int(inputs["prompt_mask"][row].sum() + inputs["completion_mask"][row].sum())
            for part in parts
            if part.adapter == 0
            for row in part.rows
        ]
        assert lengths == sorted(lengths)
        assert len(parts) < count / 2


def test_leaving_out_rows_without_advantage_changes_no_gradient(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    step = random_step(tokenizer, rows=7, seed=3)
    advantages = {
        key: (0.0 if place % 2 else value)
        for place, (key, value) in enumerate(step.credit.advantages.items())
    }
    step = made_step(step.traces, advantages)
    kept, _ = _trained_gradient(tmp_path / "a", step)
    left, _ = _trained_gradient(tmp_path / "b", step, skip_zero_rows=True)
    assert max(float((kept[name] - left[name]).abs().max()) for name in kept) < 1e-6


def test_a_step_without_rows_changes_nothing_and_does_not_fail(tmp_path: Path) -> None:
    noted, trainer = _trained_gradient(tmp_path, made_step({}, {}))
    assert noted == {}
    start = tiny_model(tiny_tokenizer()).state_dict()
    assert all(
        torch.equal(value, start[name]) for name, value in trainer.model.state_dict().items()
    )


def test_every_row_is_built_and_padding_says_nothing() -> None:
    tokenizer = tiny_tokenizer()
    step = random_step(tokenizer, rows=5)
    rows = rows_of(step.traces, step.credit.advantages)
    batch = build_rows(rows, size=padded_count(5, multiple=4), pad_id=tokenizer.pad_token_id)
    assert batch.prompt_ids.shape[0] == 8
    assert (batch.rows, batch.counted) == (5, 5)
    assert batch.completion_mask[5:].sum() == 0
    assert batch.prompt_mask[5:].sum(1).tolist() == [1, 1, 1]
    for place, (key, advantage) in enumerate(step.credit.advantages.items()):
        trace = step.traces[key]
        said = batch.completion_ids[place][batch.completion_mask[place].bool()].tolist()
        heard = batch.prompt_ids[place][batch.prompt_mask[place].bool()].tolist()
        assert (tuple(heard), tuple(said)) == (trace.prompt_ids, trace.completion_ids)
        assert batch.advantages[place] == pytest.approx(advantage * 8 / 5, rel=1e-5)


def test_a_credited_response_without_its_tokens_is_refused() -> None:
    with pytest.raises(TrainFault, match="no token trace"):
        rows_of({}, {"lost": 1.0})


def test_two_passes_clip_against_the_policy_before_the_first(tmp_path: Path) -> None:
    """With two passes TRL needs the old log-probabilities; without them the clip would be dead."""
    tokenizer = tiny_tokenizer()
    step = random_step(tokenizer, rows=8, seed=5)
    model = saved_model(tmp_path / "model", tokenizer)
    args = settings(
        tmp_path / "run", num_iterations=2, max_steps=2, learning_rate=0.05, epsilon=0.02
    )
    source = GivenSteps([step])
    trainer = trainer_of(model, tokenizer, args, source)
    trainer.train()
    clipped = [
        entry["clip_ratio/region_mean"]
        for entry in trainer.state.log_history
        if "clip_ratio/region_mean" in entry
    ]
    assert clipped[0] == 0.0
    assert clipped[1] > 0.0
    assert len(source.asked) == 1


def test_a_kl_to_the_start_pulls_back(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    step = random_step(tokenizer, rows=8, seed=6)
    model = saved_model(tmp_path / "model", tokenizer)
    trainer = trainer_of(
        model, tokenizer, settings(tmp_path / "run", beta=0.1, max_steps=3), GivenSteps([step])
    )
    trainer.train()
    kl = [entry["kl"] for entry in trainer.state.log_history if "kl" in entry]
    assert kl[0] == pytest.approx(0.0, abs=1e-6)
    assert kl[-1] > 0.0
