"""What was sampled from another distribution than the trainer's is weighed by the ratio,
or refused at the start; the difference is in the log.
"""

from __future__ import annotations

from dataclasses import replace
from math import exp
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from training_kit import (
    GivenSteps,
    random_step,
    saved_model,
    settings,
    tiny_model,
    tiny_tokenizer,
    trainer_of,
)
from transformers import TrainerCallback

from memagent.core.errors import ConfigError
from train.rollouts.experience import Step
from train.sampling.batcher import Job
from train.sampling.row_reader import sampler_mismatch
from train.sampling.vllm_engine import VLLMEngine, hand_over


def _logps(model: Any, step: Step) -> dict[str, tuple[float, ...]]:
    said: dict[str, tuple[float, ...]] = {}
    for key, trace in step.traces.items():
        ids = torch.tensor([[*trace.prompt_ids, *trace.completion_ids]])
        with torch.no_grad():
            logps = torch.log_softmax(model(input_ids=ids).logits[0, :-1].float(), -1)
        chosen = logps.gather(1, ids[0, 1:, None]).squeeze(1)[len(trace.prompt_ids) - 1 :]
        said[key] = tuple(chosen.tolist())
    return said


def _with_sampler_off_by(step: Step, model: Any, amount: float) -> Step:
    """The step as a sampler reports it that is surer of each token by `amount` nats."""
    logps = _logps(model, step)
    traces = {
        key: trace.model_copy(update={"logprobs": tuple(each + amount for each in logps[key])})
        for key, trace in step.traces.items()
    }
    return replace(step, traces=traces)


def _gradient(folder: Path, step: Step, **values: Any) -> tuple[torch.Tensor, dict[str, float]]:
    tokenizer = tiny_tokenizer()
    model = saved_model(folder / "model", tokenizer)
    args = settings(folder / "run", **values)
    trainer = trainer_of(model, tokenizer, args, GivenSteps([step]))
    seen: list[torch.Tensor] = []

    class Note(TrainerCallback):
        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            seen.append(torch.cat([each.grad.flatten() for each in kwargs["model"].parameters()]))

    trainer.add_callback(Note())
    trainer.train()
    figures = {name: value for line in trainer.state.log_history for name, value in line.items()}
    return seen[0], figures


@pytest.mark.parametrize("off", [0.0, 0.25, 0.5])
def test_rows_of_a_constrained_sampler_weigh_by_the_ratio_and_the_log_says_how_far_it_is(
    tmp_path: Path, off: float
) -> None:
    """A sampler surer by c nats on each token: the gradient is e^-c times the plain one."""
    step = random_step(tiny_tokenizer(), rows=6, seed=4)
    plain, _ = _gradient(tmp_path / "plain", step)
    lagging = _with_sampler_off_by(step, tiny_model(tiny_tokenizer()), off)
    corrected, figures = _gradient(tmp_path / "held", lagging, constrained=True)
    assert float((corrected - exp(-off) * plain).abs().max()) < 1e-6
    assert figures["sampling/logp_difference_mean"] == pytest.approx(off, abs=1e-4)
    assert figures["sampling/ratio_mean"] == pytest.approx(exp(-off), abs=1e-4)
    left, _ = _gradient(
        tmp_path / "left",
        lagging,
        constrained=True,
        vllm_importance_sampling_correction=False,
    )
    assert float((left - plain).abs().max()) < 1e-6


def test_the_ratio_by_hand() -> None:
    trained = torch.tensor([[0.0, -1.0, -2.0]])
    sampled = torch.tensor([[-1.0, -1.0, -1.0]])
    mask = torch.tensor([[1, 1, 1]])
    by_mode = {
        ("token_truncate", (None, 2.0)): [2.0, 1.0, exp(-1)],
        ("token_mask", (None, 2.0)): [0.0, 1.0, exp(-1)],
        ("token_mask", (0.5, None)): [exp(1), 1.0, 0.0],
        ("sequence_truncate", (None, 2.0)): [1.0],
        ("sequence_mask", (1.5, 2.0)): [0.0],
    }
    for (mode, bounds), expected in by_mode.items():
        ratio, _ = sampler_mismatch(trained, sampled, mask, mode=mode, bounds=bounds)
        assert ratio[0].tolist() == pytest.approx(expected), mode
    with pytest.raises(ConfigError, match="is one of token_truncate"):
        sampler_mismatch(trained, sampled, mask, mode="none", bounds=(None, None))


@pytest.mark.parametrize(
    ("name", "value"),
    [("top_p", 0.9), ("top_k", 20), ("min_p", 0.1), ("repetition_penalty", 1.1)],
)
def test_sampling_that_cuts_tokens_off_is_refused(tmp_path: Path, name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=rf"{name} must be .* another distribution"):
        settings(tmp_path, **{name: value})


def test_nobody_asks_before_all_weights_are_there() -> None:
    """A rank without jobs takes part in the hand-over too; the barrier comes after it."""
    told: list[str] = []

    class Sender:
        def serve(self, jobs: Any, more: Any) -> None:
            told.append("asked")
            more({place: ([1, 0], [-0.5, -0.5]) for place, _ in enumerate(jobs)})

    generation = SimpleNamespace(sync_weights=lambda: told.append("weights"))
    accelerator = SimpleNamespace(wait_for_everyone=lambda: told.append("barrier"))
    version = 0
    engine = VLLMEngine(
        Sender(),
        eos_ids=[0],
        version=lambda: version,
        hand_over=lambda version: hand_over(generation, accelerator, version),
    )
    engine.sync()
    assert told == ["weights", "barrier"]
    engine.generate([Job(key="a", prompt_ids=(1,), max_tokens=2)])
    version = 1
    engine.generate([Job(key="b", prompt_ids=(1,), max_tokens=2)])
    assert told == ["weights", "barrier", "asked", "weights", "barrier", "asked"]
