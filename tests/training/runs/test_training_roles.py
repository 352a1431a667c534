"""Roles with LoRA adapters of their own: each learns from its rows, and one that is not
trained stays what it is.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from policy_kit import experience_of, policy_tokenizer
from training_kit import GivenSteps, random_step, saved_model, settings, trainer_of
from transformers import TrainerCallback

from memagent.core.errors import ConfigError
from memagent.core.exchange import Role
from train.run.plans import credit_plan, rollout_plan
from train.sampling.batcher import Job
from train.sampling.checkpoints import load_for_training, save_adapters
from train.settings.options import ROLE_SETS
from train.settings.run import LoRASettings

LORA = LoRASettings(r=2, alpha=4, targets=("q_proj", "v_proj"), per_role=True)


class _Norms(TrainerCallback):
    """Largest gradient norm of each adapter over all steps."""

    def __init__(self) -> None:
        self.largest = {"manager": 0.0, "answerer": 0.0}

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        for name, parameter in kwargs["model"].named_parameters():
            for adapter in self.largest:
                if f".{adapter}." in name and parameter.grad is not None:
                    self.largest[adapter] = max(self.largest[adapter], float(parameter.grad.norm()))


def _base(folder: Path) -> Path:
    saved_model(folder / "base", policy_tokenizer())
    return folder / "base"


def _trained(
    folder: Path, source: Path, base: Path, *, roles: str, **values: Any
) -> tuple[Any, _Norms]:
    """A trainer of the real agent after two steps, with the rewards of the control: a
    model that knows nothing earns nothing.
    """
    model, tokenizer, adapters = load_for_training(source, base, lora=LORA)
    args = settings(
        folder,
        roles=roles,
        control="random_reward",
        max_steps=2,
        learning_rate=1e-2,
        answer_members=3,
        **values,
    )
    trainer = trainer_of(
        model,
        tokenizer,
        args,
        lambda policy: experience_of(policy, plan=rollout_plan(args), credit=credit_plan(args)),
        adapters=adapters,
    )
    if "answerer" in roles or roles == "both":
        _with_memories(trainer)
    norms = _Norms()
    trainer.add_callback(norms)
    trainer.train()
    return trainer, norms


def _with_memories(trainer: Any) -> None:
    """Rows of the answerer come in as well: a policy that writes nothing leaves nothing
    to be asked about.
    """
    gather, tokenizer = trainer.experience.gather, trainer.policy.tokenizer

    async def gathered(episodes: Any, *, step: int) -> Any:
        made = await gather(episodes, step=step)
        more = random_step(tokenizer, rows=3, seed=50 + step)
        credit = replace(
            made.credit, advantages=dict(made.credit.advantages) | dict(more.credit.advantages)
        )
        roles = dict(made.roles) | dict.fromkeys(more.traces, Role.ANSWERER)
        return replace(
            made, credit=credit, traces=dict(made.traces) | dict(more.traces), roles=roles
        )

    trainer.experience.gather = gathered


def _weights(model: Any, adapter: str) -> dict[str, torch.Tensor]:
    return {
        name: one.detach().clone()
        for name, one in model.named_parameters()
        if f".{adapter}." in name
    }


def _said(trainer: Any, adapter: str) -> list[tuple[int, ...]]:
    jobs = [
        Job(key=str(place), prompt_ids=(6, 7, 8 + place), max_tokens=8, seed=place, adapter=adapter)
        for place in range(6)
    ]
    return [one.completion_ids for one in trainer.policy._engine.generate(jobs)]


def test_an_adapter_that_a_folder_names_but_does_not_hold_is_missed(tmp_path: Path) -> None:
    base = _base(tmp_path)
    (base / "memagent.json").write_text(
        '{"adapters": {"manager": "manager", "answerer": "answerer"}}'
    )
    with pytest.raises(ConfigError, match="adapter 'manager'"):
        load_for_training(base, base, lora=LORA)


def _same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_with_both_roles_each_adapter_has_a_gradient(tmp_path: Path) -> None:
    base = _base(tmp_path)
    trainer, norms = _trained(tmp_path / "run", base, base, roles="both")
    assert norms.largest["manager"] > 0.0
    assert norms.largest["answerer"] > 0.0
    assert {Role.EXTRACTOR, Role.ANSWERER} <= set(trainer.last_step.roles.values())


def test_a_frozen_role_contributes_no_rows_and_says_what_it_said(tmp_path: Path) -> None:
    base = _base(tmp_path)
    model, tokenizer, adapters = load_for_training(base, base, lora=LORA)
    step = random_step(tokenizer, rows=6, seed=1)
    trainer = trainer_of(
        model,
        tokenizer,
        settings(tmp_path / "run", max_steps=3, learning_rate=0.05),
        GivenSteps([step]),
        adapters=adapters,
    )
    before, frozen, moved = (
        _said(trainer, "answerer"),
        _weights(model, "answerer"),
        _weights(model, "manager"),
    )
    spoken = _said(trainer, "manager")
    norms = _Norms()
    trainer.add_callback(norms)
    trainer.train()
    assert norms.largest["answerer"] == 0.0
    assert norms.largest["manager"] > 0.0
    assert _same(_weights(model, "answerer"), frozen)
    assert not _same(_weights(model, "manager"), moved)
    assert _said(trainer, "answerer") == before
    assert _said(trainer, "manager") != spoken


@pytest.mark.parametrize("roles", ["manager", "answerer"])
def test_only_rows_of_the_trained_roles_are_built(tmp_path: Path, roles: str) -> None:
    base = _base(tmp_path)
    model, tokenizer, adapters = load_for_training(base, base, lora=LORA)
    args = settings(tmp_path / "run", roles=roles, control="random_reward")
    trainer = trainer_of(
        model,
        tokenizer,
        args,
        lambda policy: experience_of(policy, plan=rollout_plan(args), credit=credit_plan(args)),
        adapters=adapters,
    )
    trainer.train()
    step = trainer.last_step
    assert step is not None
    assert set(step.roles.values()) <= ROLE_SETS[roles]


def test_an_alternating_run_trains_one_adapter_a_stage(tmp_path: Path) -> None:
    base = _base(tmp_path)
    first, norms = _trained(tmp_path / "stage0", base, base, roles="manager")
    assert norms.largest["manager"] > 0.0 == norms.largest["answerer"]
    manager = _weights(first.accelerator.unwrap_model(first.model), "manager")
    save_adapters(first.accelerator.unwrap_model(first.model), tmp_path / "stage0" / "best")
    second, norms = _trained(
        tmp_path / "stage1", tmp_path / "stage0" / "best", base, roles="answerer"
    )
    assert norms.largest["answerer"] > 0.0 == norms.largest["manager"]
    model = second.accelerator.unwrap_model(second.model)
    assert _same(_weights(model, "manager"), manager)
    assert not _same(
        _weights(model, "answerer"),
        _weights(first.accelerator.unwrap_model(first.model), "answerer"),
    )
