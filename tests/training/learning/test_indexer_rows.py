"""The indexer is trained: rollouts and reruns credit its calls, and its rows have a gradient."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from policy_kit import RuleEngine, brief_agent, policy_of, policy_tokenizer
from training_kit import (
    GivenSteps,
    made_step,
    saved_model,
    settings,
    small_episode,
    tiny_tokenizer,
    trainer_of,
)

from memagent.core.exchange import Role, TokenTrace
from memagent.designs.parts.event_indexer import EventIndexer
from train.rollouts.collect import Collector, RolloutPlan
from train.rollouts.experience import CreditPlan, Experience

pytestmark = pytest.mark.torch


def test_rollouts_and_local_reruns_credit_the_calls_of_the_indexer() -> None:
    tokenizer = policy_tokenizer()
    agent = brief_agent()
    agent = replace(agent, design=replace(agent.design, indexer=EventIndexer(earlier=4)))
    policy = policy_of(RuleEngine(tokenizer), tokenizer)
    plan = RolloutPlan(members=3, local_probability=1.0, reruns=2, seed=1)
    experience = Experience(
        collector=Collector(agent=agent, policy=policy, plan=plan),
        plan=CreditPlan(),
        answering=brief_agent(),
    )
    step = asyncio.run(experience.gather([small_episode(0), small_episode(1)], step=0))
    own = {key for key, role in step.roles.items() if role is Role.INDEXER}
    branches = {g.key.branch for g in step.groups if g.key.role is Role.INDEXER}
    assert branches == {"global", "local"}
    assert own and any(step.credit.advantages[key] for key in own)
    assert all(step.traces[key].completion_ids for key in own)


@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_a_row_of_the_indexer_becomes_likelier_or_less_likely(
    tmp_path: Path, advantage: float
) -> None:
    tokenizer = tiny_tokenizer()
    model = saved_model(tmp_path / "model", tokenizer)
    prompt = tuple(tokenizer("where does ana live ?")["input_ids"])
    ids = tuple(tokenizer("ana lives in rome")["input_ids"])

    def log_chances() -> list[float]:
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([[*prompt, *ids]])).logits[0].log_softmax(-1)
        return [float(logits[len(prompt) - 1 + at, token]) for at, token in enumerate(ids)]

    before = log_chances()
    trace = TokenTrace(
        prompt_ids=prompt, completion_ids=ids, logprobs=tuple(before), policy_version=0
    )
    step = made_step({"row": trace}, {"row": advantage}, role=Role.INDEXER)
    args = settings(tmp_path / "run", learning_rate=1e-2, optim="sgd")
    trainer_of(model, tokenizer, args, GivenSteps([step])).train()
    moved = sum(log_chances()) - sum(before)
    assert moved * advantage > 1e-6
