"""Slots inside a real trainer on a tiny model: techniques of others are found by their
path, change the loss as they say, and keep what they know in checkpoints.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from policy_kit import RuleEngine, experience_of, policy_of, policy_tokenizer
from training_kit import (
    GivenSteps,
    made_step,
    random_step,
    saved_model,
    settings,
    small_episode,
    tiny_tokenizer,
    trainer_of,
)
from transformers import TrainerCallback

from memagent.core.errors import ConfigError
from memagent.core.exchange import ModelResponse, Role, Sampling, StepRef
from train.credit.groups import CreditGroup, ScoredGroup
from train.credit.objectives import LossView, Objective
from train.credit.rows import RowNotes, build_rows, rows_of
from train.rollouts.collect import RolloutPlan
from train.rollouts.grading import Comparison, CreditPlan, GradedRun
from train.rollouts.slots import EpisodeSampler, GroupSource, Hinter, Replay
from train.run.runs import trainer_class
from train.run.trainer import LoGoGRPOTrainer
from train.sampling.policy import Call, SampledCall, SamplerHook
from train.settings.former import current
from train.settings.options import ROLE_SETS

HERE = "test_open_trainer"


class Counting(Objective):
    """Adds a term, halves the advantages of second tokens, and counts slices."""

    looks_ahead = needs_logits = True

    def __init__(self, *, weight: float = 0.0) -> None:
        self.weight, self.slices, self.rows, self.shapes = weight, 0, 0, set[Any]()

    def prepare(self, view: LossView, /) -> None:
        self.slices += 1
        self.rows += len(view.logps)

    def weights(self, view: LossView, /) -> torch.Tensor | None:
        weights = torch.ones_like(view.logps)
        weights[:, 1:2] = 0.5
        return weights

    def terms(self, view: LossView, /) -> Mapping[str, torch.Tensor]:
        assert view.logits is not None
        read = (
            view.logits.detach()
            .log_softmax(-1)
            .gather(2, view.inputs["completion_ids"].unsqueeze(2))
        )
        worst = float(((read.squeeze(2) - view.logps.detach()) * view.mask).abs().max())
        self.shapes.add(worst < 1e-5)
        entropy = (view.entropies * view.mask).sum(1) / view.mask.sum(1).clamp(min=1)
        return {"counting": self.weight * entropy.mean()}

    def state(self) -> Mapping[str, Any]:
        return {"slices": self.slices}

    def load(self, state: Any, /) -> None:
        self.slices = state["slices"]


class TokenEstimator:
    """Gives the n-th token of a reply its reward divided by n, and sees what it may see."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def __call__(self, group: ScoredGroup) -> list[Any]:
        self.seen.append((group.part_names, group.lengths_G, group.mean_entropies_G))
        return [
            {
                key: [reward / (place + 1) for place in range(len(group.logps[key]))]
                for key in member.response_ids
            }
            for member, reward in zip(group.members, group, strict=True)
        ]


class Hot(SamplerHook):
    """Samples managers at temperature 0.5."""

    def sampling(self, call: SampledCall, planned: Sampling, /) -> Sampling:
        return planned.model_copy(update={"temperature": 0.5})


class _Gradients(TrainerCallback):
    def __init__(self) -> None:
        self.noted: list[dict[str, torch.Tensor]] = []

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        named = kwargs["model"].named_parameters()
        self.noted.append({n: p.grad.clone() for n, p in named if p.grad is not None})


def _run(folder: Path, steps: Sequence[Any], **values: Any) -> tuple[Any, Any]:
    tokenizer, noted = tiny_tokenizer(), _Gradients()
    trainer = trainer_of(
        saved_model(folder / "model", tokenizer),
        tokenizer,
        settings(folder / "run", **values),
        GivenSteps(steps),
    )
    trainer.add_callback(noted)
    trainer.train()
    return noted.noted, trainer


def test_an_objective_by_its_path_changes_the_loss_alike_for_all_micro_batches(
    tmp_path: Path,
) -> None:
    step, name = random_step(tiny_tokenizer(), rows=9, seed=4), f"{HERE}:Counting"
    found = [
        _run(
            tmp_path / str(tokens),
            [step],
            objectives=[name],
            arguments={name: {"weight": 0.3}},
            micro_batch_tokens=tokens,
        )
        for tokens in (24, 100_000)
    ]
    for one, other in zip(found[0][0], found[1][0], strict=True):
        assert max(float((one[key] - other[key]).abs().max()) for key in one) < 1e-6
    plain, _ = _run(tmp_path / "plain", [step])
    assert any(not torch.allclose(plain[0][key], found[0][0][0][key]) for key in plain[0])
    for _, trainer in found:
        objective = trainer.args.plugins.objectives.parts["Counting"]
        assert objective.slices == 4
        assert objective.rows == 12  # three padding rows
        assert objective.shapes == {True}  # its logits are those that the loss was made of
        assert any("counting" in line for line in trainer.state.log_history)


def test_techniques_keep_what_they_know_in_checkpoints(tmp_path: Path) -> None:
    step, name = random_step(tiny_tokenizer(), rows=4), f"{HERE}:Counting"
    values: dict[str, Any] = {
        "objectives": [name],
        "save_strategy": "steps",
        "save_steps": 1,
        "max_steps": 2,
        "episode_sampler": "train.techniques.sampling.gdro:Gdro",
        "group_source": "train.techniques.sampling.replay:ReplayBuffer",
    }
    _, trainer = _run(tmp_path, [step], **values)
    tokenizer = tiny_tokenizer()
    again = trainer_of(
        saved_model(tmp_path / "model", tokenizer),
        tokenizer,
        settings(tmp_path / "run", **(values | {"max_steps": 3})),
        GivenSteps([step]),
    )
    again.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-2"))
    for run, slices in ((trainer, 8), (again, 12)):
        counting = run.args.plugins.objectives.parts["Counting"]
        assert isinstance(counting, Counting)
        assert counting.slices == slices


def test_an_estimator_may_weigh_single_tokens(tmp_path: Path) -> None:
    """The gradient of rows whose tokens differ equals the one computed token by token."""
    tokenizer = tiny_tokenizer()
    step = random_step(tokenizer, rows=5, seed=7)
    offsets = {
        key: tuple(0.1 * place for place in range(len(trace.completion_ids)))
        for key, trace in step.traces.items()
    }
    offsets.pop(next(iter(offsets)))  # one row without
    weighed = replace(step, credit=replace(step.credit, offsets=offsets))
    noted, _ = _run(tmp_path, [weighed], importance_sampling_level="token")
    model = saved_model(tmp_path / "naive", tokenizer)
    total = torch.zeros(())
    for key, trace in step.traces.items():
        ids = torch.tensor([[*trace.prompt_ids, *trace.completion_ids]])
        logps = model(ids).logits.log_softmax(-1)[0, len(trace.prompt_ids) - 1 : -1]
        said = logps.gather(1, torch.tensor(trace.completion_ids).unsqueeze(1)).squeeze(1)
        extra = torch.tensor(offsets.get(key, (0.0,) * len(said)))
        total = total - ((step.credit.advantages[key] + extra) * said).mean() / len(step.traces)
    total.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        assert float((parameter.grad - noted[0][name]).abs().max()) < 1e-6


def test_rows_without_token_weights_stay_one_number_each() -> None:
    step = random_step(tiny_tokenizer(), rows=3)
    rows = rows_of(step.traces, step.credit.advantages, notes=RowNotes(marks={"x": ["none"]}))
    assert build_rows(rows, size=4, pad_id=0).advantages.shape == (4,)


async def test_an_estimator_sees_parts_lengths_and_entropies() -> None:
    tokenizer, estimator = policy_tokenizer(), TokenEstimator()
    experience = experience_of(
        policy_of(RuleEngine(tokenizer), tokenizer),
        plan=RolloutPlan(members=3, local_probability=0.0, seed=1),
        credit=CreditPlan(estimator=estimator),
    )
    asked = []

    def entropies(traces: Mapping[str, Any], roles: Mapping[str, Role]) -> dict[str, list[float]]:
        asked.append(len(traces))
        return {key: [0.25] * len(trace.completion_ids) for key, trace in traces.items()}

    experience.collector.read_entropies = entropies
    step = await experience.gather([small_episode(0)], step=0)
    assert estimator.seen
    for names, lengths, mean in estimator.seen:
        assert "answers" in names
        assert max(lengths) > 0
        assert mean == [0.25 if length else 0.0 for length in lengths]
    assert len(asked) == 1  # one reading for all groups
    assert step.credit.offsets
    for key, offsets in step.credit.offsets.items():
        assert sum(offsets) == pytest.approx(0.0, abs=1e-9)
        assert len(offsets) == len(step.traces[key].completion_ids)


class Memory(GroupSource):
    """Gives the rows of the step before once more."""

    def __init__(self) -> None:
        self.last = Replay()

    def draw(self, fresh: Replay, groups: Sequence[CreditGroup], draws: random.Random, /) -> Replay:
        before, self.last = self.last, fresh
        return before


async def test_a_group_source_adds_earlier_rows_with_their_credit() -> None:
    tokenizer = policy_tokenizer()
    experience = experience_of(
        policy_of(RuleEngine(tokenizer), tokenizer),
        plan=RolloutPlan(members=3, local_probability=0.0, seed=1),
        credit=CreditPlan(source=Memory()),
    )
    first = await experience.gather([small_episode(0)], step=0)
    experience.policy.version = 1
    second = await experience.gather([small_episode(1)], step=1)
    assert not first.replayed
    assert second.replayed == set(first.credit.advantages)
    for key in second.replayed:
        assert second.credit.advantages[key] == first.credit.advantages[key]
        assert second.traces[key] == first.traces[key]
    assert second.rows == len(second.credit.advantages)


def test_replayed_rows_are_compared_with_the_policy_that_said_them(tmp_path: Path) -> None:
    step = random_step(tiny_tokenizer(), rows=4)
    replayed = replace(step, replayed=frozenset(list(step.traces)[:1]))
    tokenizer, seen = tiny_tokenizer(), []
    trainer = trainer_of(
        saved_model(tmp_path / "model", tokenizer),
        tokenizer,
        settings(tmp_path / "run"),
        GivenSteps([replayed]),
    )
    loss = trainer._with_logps
    trainer._with_logps = lambda batch: seen.append(loss(batch)) or seen[-1]  # type: ignore[method-assign]
    trainer.train()
    old, mask = seen[0]["old_per_token_logps"], seen[0]["completion_mask"].bool()
    assert set(old[0][mask[0]].tolist()) == {-1.0}  # as stored
    assert -1.0 not in old[1][mask[1]].tolist()  # as the policy says now


class Told(Hinter):
    """Shows all hints and notes what was earned."""

    def __init__(self) -> None:
        self.seen: dict[str, Sequence[float]] = {}

    def share(self, name: str, draws: random.Random, /) -> float:
        return 1.0

    def see(self, name: str, rewards: Sequence[float], /) -> None:
        self.seen[name] = rewards


async def test_a_hinter_shows_right_notes_to_all_runs_of_a_session() -> None:
    tokenizer, hinter = policy_tokenizer(), Told()
    engine = RuleEngine(tokenizer)
    experience = experience_of(
        policy_of(engine, tokenizer),
        plan=RolloutPlan(members=3, local_probability=1.0, reruns=2, seed=1, hinter=hinter),
        credit=CreditPlan(),
    )
    experience.collector.hints = lambda episode, place: [f"ana lives in {place}"]
    step = await experience.gather([small_episode(0)], step=0)
    assert set(hinter.seen) == {f"session {depth}/" for depth in range(3)}
    prompts = [tokenizer.decode(trace.prompt_ids) for trace in step.traces.values()]
    assert len(prompts) > 6
    assert all(re.search(r"ana lives in \d", prompt) for prompt in prompts)


async def test_a_sampler_hook_changes_the_sampling_and_rows_are_corrected(tmp_path: Path) -> None:
    tokenizer = policy_tokenizer()
    engine = RuleEngine(tokenizer)
    policy = policy_of(engine, tokenizer)
    seen: list[float] = []
    generate = engine.generate
    engine.generate = lambda jobs: seen.extend(j.temperature for j in jobs) or generate(jobs)  # type: ignore[method-assign]
    policy.hook = Hot()
    experience = experience_of(
        policy, plan=RolloutPlan(members=2, local_probability=0.0), credit=CreditPlan()
    )
    await experience.gather([small_episode(0)], step=0)
    assert set(seen) == {0.5}
    assert settings(tmp_path, sampler_hook=f"{HERE}:Hot").corrects_sampler
    assert not settings(tmp_path).corrects_sampler


def test_the_main_episode_sampler_is_the_shuffled_one() -> None:
    sampler = EpisodeSampler()
    passed = [
        place for batch in range(3) for place in sampler.choose(batch, seed=1, episodes=6, size=2)
    ]
    assert sorted(passed) == list(range(6))


def test_former_settings_are_read_as_techniques() -> None:
    former = {"echo_weight": 0.5, "keep_members": 4, "gradient_gate": 0, "dynamic_sampling": True}
    assert current(former | {"reruns": 3}) == {
        "reruns": 3,
        "objectives": ["echo"],
        "selectors": ["dynamic_sampling", "d3s"],
        "arguments": {"d3s": {"keep": 4}, "echo": {"weight": 0.5}},
    }
    with pytest.raises(ConfigError, match="say it once"):
        current({"echo_weight": 0.5, "objectives": ["echo"]})


def test_a_wrong_slot_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is no Hinter"):
        settings(tmp_path, hinter=f"{HERE}:Hot")
    assert made_step({}, {}).replayed == frozenset()


class Mine(LoGoGRPOTrainer):
    """A trainer of someone else's."""


def test_the_trainer_is_chosen_by_its_path(tmp_path: Path) -> None:
    assert trainer_class(settings(tmp_path)) is LoGoGRPOTrainer
    assert trainer_class(settings(tmp_path, trainer_class=f"{HERE}:Mine")).__name__ == "Mine"
    with pytest.raises(ConfigError, match="is no LoGoGRPOTrainer"):
        trainer_class(settings(tmp_path, trainer_class=f"{HERE}:Hot"))


def test_planner_and_explorer_learn_from_the_answer_s_reward() -> None:
    def call(role: Role, name: str) -> Call:
        response = ModelResponse(id=name, text="")
        return Call(role=role, step=StepRef(), response=response)

    runs = tuple(
        GradedRun(
            calls=(call(Role.PLANNER, f"p{n}"), call(Role.ANSWERER, f"a{n}")),
            start="d",
            reward=float(n),
        )
        for n in range(2)
    )
    comparison = Comparison(branch="answer", episode_key="0/e", version=0, runs=runs, start="d")
    groups = {group.key.role: group for group in comparison.groups(ROLE_SETS["readers"])}
    assert set(groups) == {Role.PLANNER, Role.ANSWERER}  # no explorer spoke
    assert groups[Role.PLANNER].members[1].response_ids == ("p1",)
    assert groups[Role.PLANNER].rewards_G == [0.0, 1.0]
    assert [group.key.role for group in comparison.groups(ROLE_SETS["answerer"])] == [Role.ANSWERER]


def test_micro_batches_follow_accumulation_when_no_steps_per_generation_are_given(
    tmp_path: Path,
) -> None:
    step = random_step(tiny_tokenizer(), rows=5)
    found, trainer = _run(tmp_path / "left_out", [step], steps_per_generation=None)
    said, _ = _run(tmp_path / "given", [step], steps_per_generation=4)
    assert trainer.args.micro_batches == 4
    for name, gradient in said[0].items():
        assert torch.equal(gradient, found[0][name])
