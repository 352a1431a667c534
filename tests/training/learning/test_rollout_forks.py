"""Forks on purpose: a session is said again from its most uncertain call on, with all before
it as it was, and what the branches earn is the credit of that call.
"""

from __future__ import annotations

import asyncio
import random
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from types import ModuleType
from typing import Any

import pytest
import torch
from places import ROOT
from policy_kit import RuleEngine, experience_of, policy_of, policy_tokenizer
from training_kit import small_episode

from memagent.core.errors import ConfigError
from memagent.core.exchange import ModelResponse, Role, StepRef, TokenTrace
from train.credit.advantages import logo_advantages
from train.credit.groups import CreditGroup, Sampled
from train.errors import TrainFault
from train.rollouts.anchors import fork_at
from train.rollouts.collect import RolloutPlan
from train.rollouts.experience import GroupBatch
from train.rollouts.grading import CreditPlan
from train.run.models import first_model
from train.run.probe import run_probe
from train.run.runs import task_of, train_run, trainer_of
from train.sampling.policy import Call
from train.settings.run import checked_run
from train.techniques.credit.tree_calls import tree_calls

pytestmark = [pytest.mark.torch, pytest.mark.timeout(600)]
MANAGERS = frozenset({Role.MANAGER})


def _call(key: str, *logps: float, role: Role = Role.MANAGER) -> Call:
    ids = tuple(range(1, len(logps) + 1))
    trace = TokenTrace(prompt_ids=(1,), completion_ids=ids, logprobs=logps, policy_version=0)
    return Call(role=role, step=StepRef(), response=ModelResponse(id=key, text="", tokens=trace))


def test_the_most_uncertain_call_after_a_recall_is_where_a_run_forks() -> None:
    calls = [
        _call("a", -9.0, -9.0, role=Role.EXTRACTOR),
        _call("b", -1.0, -0.5),
        _call("c", -2.0, -0.5, -0.2),
        _call("d", -0.1),
    ]
    assert fork_at(calls, None) == 2, "the mean of what the tokens cost"
    known: dict[str, list[float]] = {"a": [9.0], "b": [0.1, 0.1], "c": [0.2], "d": [0.7]}
    asked: list[Mapping[str, Role]] = []

    def read(traces: Mapping[str, TokenTrace], roles: Mapping[str, Role]) -> Any:
        asked.append(roles)
        return {key: known[key] for key in traces}

    assert fork_at(calls, read) == 3, "entropies, where they are read"
    assert asked == [{"a": Role.EXTRACTOR, **dict.fromkeys("bcd", Role.MANAGER)}]
    assert fork_at(calls[:1], read) == 0, "an extractor alone"
    assert fork_at((), read) == 0


def _decisions(folder: Path, **trainer: Any) -> Any:
    """The trainer of a run with the policy of decisions, with random weights."""
    values = tomllib.loads((ROOT / "examples/training/smoke.toml").read_text("utf-8"))
    values["folder"] = str(folder)
    del values["warmup"]
    values["trainer"] |= {
        "local_probability": 1.0,
        "estimator": "tree_calls",
        "forks": True,
        "num_generations": 2,
        "per_device_train_batch_size": 2,
        "steps_per_generation": 2,
        "gradient_accumulation_steps": 2,
        "report_to": "none",
    } | trainer
    settings = checked_run(values)
    first_model(settings, folder, say=lambda _: None)
    return trainer_of(settings, 0, task_of(settings, sessions=3))


def _entropy(model: Any, trace: TokenTrace) -> float:
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([trace.prompt_ids])).logits[0, -1].float()
    logps = logits.log_softmax(-1)
    return float(-(logps.exp() * logps).sum())


def test_decisions_fork_where_their_entropy_is_highest(tmp_path: Path) -> None:
    """In whole sessions of talk; the entropies are read once more from the model itself."""
    trainer = _decisions(tmp_path / "run")
    collector, episode = trainer.experience.collector, trainer._episodes[0]
    group = asyncio.run(collector.collect([episode], step=0))[0]
    assert len(group.locals) == 3 and any(local.given for local in group.locals)
    for local in group.locals:
        rollout = group.rollouts[local.member]
        calls = rollout.calls_of(group.episode.sessions[local.session].id)
        entropies = [_entropy(trainer.model, call.response.tokens) for call in calls]
        place = len(local.given)
        assert entropies[place] == pytest.approx(max(entropies), abs=1e-5)
        assert local.given == tuple(call.response for call in calls[:place])
        assert local.start.digest == rollout.trajectory.traces[local.session].before.digest
        said = {call.response.id for call in calls}
        for rerun in local.reruns:
            assert rerun.trace is not None and rerun.trace.before.digest == local.start.digest
            first = rerun.calls[0].response.tokens
            assert first is not None
            assert first.prompt_ids == calls[place].response.tokens.prompt_ids, "asked the same"
            assert not said & {call.response.id for call in rerun.calls}, "what is given is not its"
    again = asyncio.run(collector.collect([episode], step=0))[0]
    assert [[call.response for call in run.calls] for local in again.locals for run in local.reruns]
    for local, other in zip(group.locals, again.locals, strict=True):
        assert [[c.response.text for c in run.calls] for run in local.reruns] == [
            [c.response.text for c in run.calls] for run in other.reruns
        ]


def test_rewards_of_the_branches_credit_the_call_that_was_forked_alone(tmp_path: Path) -> None:
    """Later calls have credit only where branches still agreed when they were asked."""
    trainer = _decisions(tmp_path / "run", reruns=5)
    experience = trainer.experience
    rollouts = asyncio.run(experience.collector.collect([trainer._episodes[0]], step=0))
    comparisons = asyncio.run(experience.score(rollouts))
    batch = GroupBatch.of(rollouts, comparisons, MANAGERS)
    traces = {key: own for key, call in batch.calls.items() if (own := call.response.tokens)}
    starts = {local.session: len(local.given) for local in rollouts[0].locals}
    draws, told = random.Random(1), 0
    for group in batch.all:
        if group.key.branch != "local":
            continue
        assert len(group.members) == 6, "the branches and the run that they left"
        members = tuple(replace(each, reward=draws.random()) for each in group.members)
        ready = CreditGroup(key=group.key, members=members, sampled=Sampled(traces=traces))
        credit = logo_advantages([ready], estimator=tree_calls).advantages
        firsts = [member.response_ids[0] for member in members]
        assert len({traces[key].prompt_ids for key in firsts}) == 1
        mean = fmean(member.reward or 0.0 for member in members)
        replies: dict[Any, list[float]] = {}
        for key, member in zip(firsts, members, strict=True):
            replies.setdefault(traces[key].completion_ids, []).append(member.reward or 0.0)
        for key, member in zip(firsts, members, strict=True):
            same = replies[traces[key].completion_ids]
            assert credit[key] == pytest.approx(fmean(same) - mean)
            if len(same) == 1:
                assert all(credit[later] == 0.0 for later in member.response_ids[1:])
                told += len(member.response_ids) > 1
    assert told, "some branches went on alone"
    assert any(starts.values()), "not all forks are whole reruns"


def test_a_language_model_forks_by_what_its_tokens_cost() -> None:
    """Through gathering, with text: the extractor's reply is given, the manager speaks anew."""
    tokenizer = policy_tokenizer()
    plan = RolloutPlan(members=3, local_probability=1.0, reruns=4, seed=1, forks=True)
    experience = experience_of(
        policy_of(RuleEngine(tokenizer, keep=0.5), tokenizer),
        plan=plan,
        credit=CreditPlan(estimator=tree_calls),
    )
    step = asyncio.run(experience.gather([small_episode(0)], step=0))
    (group,) = step.rollouts
    roles = {call.response.id: call.role for run in group.rollouts for call in run.calls}
    assert len(group.locals) == 3
    for local in group.locals:
        assert [roles[reply.id] for reply in local.given] == [Role.EXTRACTOR]
        assert all(call.role is Role.MANAGER for run in local.reruns for call in run.calls)
    compared = [each for each in step.groups if each.key.branch == "local"]
    assert {each.key.role for each in compared} == {Role.MANAGER}
    assert all(len(each.members) == 5 for each in compared)
    assert any(value for value in step.credit.by_branch["local"].values())
    whole = replace(experience.collector, plan=replace(plan, forks=False))
    spent = [
        sum(len(c.response.tokens.completion_ids) for local in each.locals for run in local.reruns
            for c in run.calls if c.response.tokens)
        for each in (group, asyncio.run(whole.collect([small_episode(0)], step=0))[0])
    ]  # fmt: skip
    assert spent[0] < 0.75 * spent[1], "what is given is not generated"


async def test_a_given_reply_to_another_prompt_is_refused() -> None:
    tokenizer = policy_tokenizer()
    policy = policy_of(RuleEngine(tokenizer), tokenizer)
    from memagent.core.exchange import Message, ModelRequest

    def request(text: str) -> ModelRequest:
        return ModelRequest(role=Role.MANAGER, messages=(Message(role="user", content=text),))

    first = policy.bound("a")
    given = (await first.complete(request("decide 1 ana")), await first.complete(request("note 1")))
    fork = policy.bound("b", given=given[:1])
    assert await fork.complete(request("decide 1 ana")) is given[0]
    assert (await fork.complete(request("note 1"))).id != given[1].id
    assert [call.response.id for call in fork.calls] != [given[0].id] and len(fork.calls) == 1
    with pytest.raises(TrainFault, match="no reply to this prompt"):
        await policy.bound("c", given=given).complete(request("note 1"))


@pytest.mark.parametrize(
    "trainer",
    [
        {"estimator": "zscore"},
        {"local_probability": 0.0},
        {"credit": {"terminal": 1.0, "local": 0.0}},
        {"credit_unit": "chunk"},
        {"roles": "extractor"},
    ],
)
def test_forks_that_could_do_nothing_are_refused(tmp_path: Path, trainer: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="forks must be false unless estimator"):
        _decisions(tmp_path / "run", **trainer)


def test_tasks_that_are_acted_in_refuse_forks() -> None:
    values = {"environment": {"kind": "tiny_shop"}, "trainer": {"forks": True}}
    values |= {"agent": {"design": "mem_act"}, "validation": {"measure": "success"}}
    with pytest.raises(ConfigError, match=r"trainer\.forks: means nothing"):
        checked_run(values)


# -- chains of tasks -------------------------------------------------------------------


@pytest.fixture
def chains() -> ModuleType:
    """The world of chains."""
    folder = str(ROOT / "examples" / "experiments")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    import chain_credit as module

    return module


def _chains(folder: Path, **trainer: Any) -> dict[str, Any]:
    values = tomllib.loads((ROOT / "examples/training/chains.toml").read_text("utf-8"))
    values["folder"] = str(folder)
    values["environment"]["options"] = {"selects": True}
    values["trainer"] |= {"estimator": "tree_calls", "forks": True, "local_probability": 1.0}
    values["trainer"] |= trainer
    values["stage"][0] |= {"steps": 1, "sessions": 4}
    values["validation"] |= {"every": 1, "episodes": 1, "test_episodes": 0}
    return values


def test_a_chain_s_task_forks_right_after_its_recall_or_at_its_lesson(
    chains: ModuleType, tmp_path: Path
) -> None:
    """The run file trains with forks, and each fork repeats what its anchor said before."""
    values = _chains(tmp_path / "run")
    train_run(checked_run(values), say=lambda _: None)
    settings = checked_run(values | {"folder": str(tmp_path / "again")})
    first_model(settings, tmp_path / "again", say=lambda _: None)
    trainer = trainer_of(settings, 0, task_of(settings, sessions=4))
    with trainer.policy.faults_raised():
        source: Any = trainer.experience
        played = asyncio.run(source.group("train0x1", 0))
    local = [group for group in played.groups if group.key.branch == "local"]
    assert len(local) == 4 and all(len(group.members) == 5 for group in local)
    forked = [played.roles[group.members[0].response_ids[0]] for group in local]
    assert set(forked) <= {Role.PLANNER, Role.MANAGER}
    for group, role in zip(local, forked, strict=True):
        prompts = {
            played.said[member.response_ids[0]].tokens.prompt_ids for member in group.members
        }
        assert len(prompts) == 1, "all part at one call"
        anchor = group.members[-1].response_ids
        [link] = [
            link
            for links in played.chains
            for link in links
            if anchor[0] in {reply.id for reply in link.responses}
        ]
        doubts = [_entropy(trainer.model, reply.tokens) for reply in link.responses]
        assert [call.role for call in link.calls] == [Role.PLANNER, Role.MANAGER]
        assert (role is Role.MANAGER) == (doubts[1] > doubts[0])


def test_chains_in_which_a_task_has_one_call_refuse_forks(tmp_path: Path) -> None:
    values = _chains(tmp_path / "run")
    values["environment"]["options"] = {}
    with pytest.raises(ConfigError, match=r"set environment\.options\.selects"):
        train_run(checked_run(values), say=lambda _: None)


def test_the_probe_reads_forks_beside_whole_reruns(chains: ModuleType, tmp_path: Path) -> None:
    del chains
    tokens: dict[bool, float] = {}
    for forks in (True, False):
        settings = checked_run(_chains(tmp_path / str(forks), forks=forks))
        found = run_probe(settings, episodes=3, sessions=3, policy=None, say=lambda _: None)
        told = {row["credit"]: row for row in found["credits"]}
        assert told["local"]["snr"][0] != 0.0, "the estimator sees the tokens"
        tokens[forks] = told["local"]["tokens"]
    assert tokens[True] <= tokens[False]
