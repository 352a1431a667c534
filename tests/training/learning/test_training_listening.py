"""With the oracle listening, the facts are the world's and the policy only decides what
is done with them, in training as in evaluation.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from memagent.core.errors import ConfigError
from memagent.core.exchange import Role, Sampling
from train.run.models import new_model
from train.run.plans import evaluate_policy
from train.run.runs import stage_config
from train.run.task import TrainingTask, demonstrate
from train.sampling.generation import TransformersEngine
from train.sampling.policy import PolicyModel
from train.settings.run import RunSettings, checked_run


def _settings(folder: Path, listening: str, **environment: Any) -> RunSettings:
    return checked_run(
        {
            "folder": str(folder),
            "model": {"size": "200k", "context_tokens": 512},
            "environment": {"turns": 4, **environment},
            "agent": {"embedder": "hashing", "listening": listening},
            "warmup": {"episodes": 3, "sessions": 2},
            "trainer": {
                "num_generations": 2,
                "steps_per_generation": 2,
                "gradient_accumulation_steps": 2,
            },
        }
    )


def _policy(settings: RunSettings) -> PolicyModel:
    model, tokenizer = new_model(settings)
    engine = TransformersEngine(
        model, eos_ids=[tokenizer.eos_token_id], pad_id=tokenizer.pad_token_id
    )
    return PolicyModel(engine, tokenizer, sampling=Sampling(max_tokens=12), context_tokens=512)


@pytest.mark.parametrize(
    ("listening", "heard"), [("oracle", {Role.MANAGER}), ("policy", {Role.EXTRACTOR, Role.MANAGER})]
)
def test_who_listens_is_who_notes_facts(tmp_path: Path, listening: str, heard: set[Role]) -> None:
    settings = _settings(tmp_path, listening)
    task, policy = TrainingTask.of(settings, sessions=2), _policy(settings)
    episodes = task.episodes("train", 2)
    args = stage_config(settings, settings.stage[0], tmp_path)
    step: Any = asyncio.run(task.experience(args, policy, episodes).gather(episodes, step=0))
    calls = [call for group in step.rollouts for one in group.rollouts for call in one.calls]
    calls += [
        call
        for group in step.rollouts
        for local in group.locals
        for one in local.reruns
        for call in one.calls
    ]
    # A policy with random weights notes nothing that can be read, so that nothing is
    # left to decide.
    assert {call.role for call in calls} == (heard if listening == "oracle" else {Role.EXTRACTOR})
    assert {group.key.role for group in step.groups} <= heard
    demonstrated = asyncio.run(demonstrate(settings))
    assert {one.role for one in demonstrated} == heard


def test_an_evaluation_has_the_same_help_as_the_training(tmp_path: Path) -> None:
    settings = _settings(tmp_path, "oracle")
    task, policy = TrainingTask.of(settings, sessions=2), _policy(settings)
    episodes = task.episodes("validation", 2)
    found = asyncio.run(
        evaluate_policy(
            policy,
            task.agent,
            task.env,
            episodes,
            answering=task.answering(episodes, split="validation"),
            episode_model=task.episode_model(split="validation"),
        )
    )
    replies = [reply for one in found.episodes for reply in one.replies]
    assert replies and {role for role, _ in replies} == {"manager"}


def test_the_oracle_listens_to_synthetic_worlds_alone(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"agent\.listening"):
        _settings(tmp_path, "oracle", kind="locomo", path=str(tmp_path))
