"""Parts of the reward that are decorrelated, trees of calls, and a teacher that sees the
right notes: each against another computation of the same, and with rewards or teachers
that say nothing.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Mapping
from pathlib import Path
from statistics import NormalDist, fmean, pstdev

import numpy as np
import pytest
import torch
from policy_kit import RuleEngine, experience_of, policy_of, policy_tokenizer
from training_kit import (
    GivenSteps,
    random_step,
    settings,
    small_episode,
    tiny_model,
    tiny_tokenizer,
    trainer_of,
)

from memagent.core.errors import ConfigError
from memagent.core.exchange import Role, TokenTrace
from train.credit.advantages import group_mean, group_zscore, logo_advantages
from train.credit.groups import CreditGroup, GroupKey, Member, Sampled, ScoredGroup
from train.rollouts.collect import RolloutPlan
from train.rollouts.grading import CreditPlan
from train.techniques.credit.rdpo import Rdpo
from train.techniques.credit.sdar import Sdar
from train.techniques.credit.tree_calls import tree_calls

KEY = GroupKey(branch="global", role=Role.MANAGER, episode_id="e", session=0)


def _by_parts(
    parts: list[dict[str, float]], weights: dict[str, float] | None = None
) -> ScoredGroup:
    """Members whose reward is the weighed sum of its parts; every part counts 1 by default."""
    weights = weights or dict.fromkeys(parts[0], 1.0)
    members = tuple(
        Member(
            reward=sum(weights[name] * amount for name, amount in some.items()),
            response_ids=(f"r{place}",),
            parts=some,
            weights=weights,
        )
        for place, some in enumerate(parts)
    )
    return ScoredGroup(CreditGroup(key=KEY, members=members))


def _by_hand(parts: list[dict[str, float]], weights: dict[str, float], shrink: float) -> np.ndarray:
    """The formula once more, with numpy: ranks by comparison, the root by SVD."""
    columns: list[np.ndarray] = []
    for name in weights:
        values = np.array([some[name] for some in parts])
        below = (values[:, None] > values[None, :]).sum(1)
        alike = (values[:, None] == values[None, :]).sum(1)
        quantiles = np.array([NormalDist().inv_cdf(at) for at in (below + alike / 2) / len(values)])
        columns.append((quantiles - np.mean(quantiles)) / (np.std(quantiles, ddof=1) + 1e-6))
    scores = np.stack(columns, 1)
    seen = (1 - shrink) * np.cov(scores.T) + shrink * np.eye(len(weights))
    left, sizes, right = np.linalg.svd(seen)
    full = [min(1.0, (max(v) - min(v)) / 0.1) for v in ([s[n] for s in parts] for n in weights)]
    return scores @ (left / np.sqrt(sizes)) @ right @ (np.array(list(weights.values())) * full)


def test_rdpo_equals_the_formula_in_numpy() -> None:
    draws = random.Random(0)
    for _ in range(20):
        parts = [
            {
                "f1": draws.random(),
                "right": float(draws.random() < 0.5),
                "cost": draws.random() / 50,
            }
            for _ in range(8)
        ]
        parts[0]["right"], parts[1]["right"] = 0.0, 1.0
        weights, shrink = {"f1": 1.0, "right": 0.5, "cost": -0.3}, draws.uniform(0.05, 1.0)
        wanted = pytest.approx(_by_hand(parts, weights, shrink), abs=1e-9)
        assert Rdpo(shrink=shrink)(_by_parts(parts, weights)) == wanted  # the reward's own weights
        assert Rdpo(weights=weights, shrink=shrink)(_by_parts(parts)) == wanted


def test_rdpo_counts_once_what_two_parts_say_alike_and_sees_ranks_alone() -> None:
    values, other = [0.1, 0.4, 0.5, 0.9], [1.0, 0.0, 0.0, 1.0]
    once = Rdpo(shrink=1e-6)(_by_parts([{"a": v} for v in values]))
    twice = Rdpo(shrink=1e-6)(_by_parts([{"a": v, "b": v} for v in values]))
    assert twice == pytest.approx([2**0.5 * each for each in once], rel=1e-3)  # not 2
    mixed = [{"a": v, "o": o} for v, o in zip(values, other, strict=True)]
    steep = [{"a": v**3, "o": 7 * o} for v, o in zip(values, other, strict=True)]
    assert Rdpo()(_by_parts(mixed)) == pytest.approx(Rdpo()(_by_parts(steep)))
    hardly = [{"a": v, "o": o / 1000} for v, o in zip(values, other, strict=True)]
    lean = Rdpo(shrink=1.0)(_by_parts(hardly))
    assert lean == pytest.approx(once, abs=0.02)


def test_rdpo_leaves_alone_what_does_not_differ() -> None:
    flat = [{"a": 1.0, "b": 0.5}] * 3
    assert Rdpo()(_by_parts(flat)) == [0.0, 0.0, 0.0]
    assert Rdpo()(_by_parts([{"a": v, "b": 0.5} for v in (0.0, 1.0)])) == pytest.approx(
        Rdpo()(_by_parts([{"a": v} for v in (0.0, 1.0)]))
    )
    bare = CreditGroup(
        key=KEY, members=tuple(Member(reward=r, response_ids=(str(r),)) for r in (0.0, 1.0))
    )
    with pytest.raises(ConfigError, match="no weighed parts"):
        Rdpo()(ScoredGroup(bare))
    with pytest.raises(ConfigError, match="shrink"):
        Rdpo(shrink=0.0)


def test_rdpo_pulls_nowhere_with_random_rewards_and_towards_what_earned_true_ones() -> None:
    def pull(seed: int, *, told: bool) -> float:
        draws, pulls = random.Random(seed), list[float]()
        for _ in range(60):
            actions = [float(draws.random() < 0.5) for _ in range(6)]
            parts = [
                {"f1": a if told else float(draws.random() < 0.5), "x": draws.random()}
                for a in actions
            ]
            values = Rdpo()(_by_parts(parts))
            pulls += [value * (a - 0.5) for value, a in zip(values, actions, strict=True)]
        return fmean(pulls)

    noise = [pull(seed, told=False) for seed in range(8)]
    assert abs(fmean(noise)) < 3 * pstdev(noise) / 8**0.5 + 1e-9
    assert pull(0, told=True) > 4 * max(map(abs, noise))


# -- trees of calls --------------------------------------------------------------------


def _run_of(replies: list[int]) -> list[TokenTrace]:
    """Calls of a run: a prompt holds all that was said before."""
    return [
        TokenTrace(
            prompt_ids=(0, *replies[:place]),
            completion_ids=(reply, 9),
            logprobs=(-1.0, -1.0),
            policy_version=0,
        )
        for place, reply in enumerate(replies)
    ]


def _calls(runs: list[list[int]], rewards: list[float]) -> CreditGroup:
    traces = {
        f"{number}.{place}": trace
        for number, replies in enumerate(runs)
        for place, trace in enumerate(_run_of(replies))
    }
    members = tuple(
        Member(reward=reward, response_ids=tuple(f"{number}.{at}" for at in range(len(replies))))
        for number, (replies, reward) in enumerate(zip(runs, rewards, strict=True))
    )
    return CreditGroup(key=KEY, members=members, sampled=Sampled(traces=traces))


def test_a_tree_of_calls_by_hand() -> None:
    """Two runs begin alike; the first call is worth .6 there and .0 elsewhere."""
    group = _calls([[1, 5], [1, 6], [2, 5]], [1.0, 0.2, 0.0])
    first, second, third = tree_calls(ScoredGroup(group))
    assert {key: values[0] for key, values in first.items()} == pytest.approx(
        {"0.0": 0.6 - 0.4, "0.1": 1.0 - 0.6}
    )
    assert second["1.1"] == pytest.approx((0.2 - 0.6,) * 2)
    assert third["2.0"] == pytest.approx((-0.4,) * 2)
    assert third["2.1"] == (0.0, 0.0)  # nobody else came so far


def test_advantages_along_a_run_add_up_to_its_reward_less_the_mean() -> None:
    draws = random.Random(1)
    for _ in range(50):
        runs = [[draws.randrange(3) for _ in range(4)] for _ in range(8)]
        earned: dict[tuple[int, ...], float] = {}
        rewards = [earned.setdefault(tuple(run), draws.random()) for run in runs]
        for place, found in enumerate(tree_calls(ScoredGroup(_calls(runs, rewards)))):
            total = sum(values[0] for values in found.values())
            assert total == pytest.approx(rewards[place] - fmean(rewards), abs=1e-12)


def test_with_one_call_a_run_it_is_the_tree_of_depth_one_and_credits_through_the_loss() -> None:
    rewards = [0.3, 0.9, 0.0]
    group = _calls([[1], [2], [3]], rewards)
    credit = logo_advantages([group], estimator=tree_calls)
    assert list(credit.advantages.values()) == pytest.approx(group_mean(rewards))
    assert all(set(values) == {0.0} for values in credit.offsets.values())


# -- a teacher -------------------------------------------------------------------------


def _taught(rewards: list[float], own: list[float], teacher: list[float]) -> ScoredGroup:
    """Runs of one call of one token, which the teacher sees otherwise."""
    traces = {
        f"r{place}": TokenTrace(
            prompt_ids=(1,), completion_ids=(2,), logprobs=(logp,), policy_version=0
        )
        for place, logp in enumerate(own)
    }
    members = tuple(
        Member(reward=reward, response_ids=(f"r{place}",)) for place, reward in enumerate(rewards)
    )
    known = {f"r{place}": [logp] for place, logp in enumerate(teacher)}
    sampled = Sampled(traces=traces, taught=lambda: known)
    return ScoredGroup(CreditGroup(key=KEY, members=members, sampled=sampled))


def test_sdar_by_hand() -> None:
    found = Sdar(weight=0.1, sharpness=5.0)(_taught([1.0, 0.0], [-1.0, -1.0], [-0.5, -3.0]))
    likes, rejects = 1 / (1 + math.exp(-2.5)), 1 / (1 + math.exp(10.0))
    z = group_zscore([1.0, 0.0])
    assert found[0]["r0"] == pytest.approx([z[0] + 0.1 * likes])
    assert found[1]["r1"] == pytest.approx([z[1] + 0.1 * rejects])
    assert 0 <= rejects < 0.01 < likes  # what the teacher rejects hardly counts, never less than 0
    flat = Sdar(weight=0.1)(_taught([0.5, 0.505], [-1.0, -1.0], [-0.5, -3.0]))
    assert flat[0]["r0"][0] > 0.04 and 0 <= flat[1]["r1"][0] < 0.001
    far = Sdar()(_taught([0.0, 0.0], [-1.0, -1.0], [-900.0, -1.0]))
    assert far[0]["r0"] == [pytest.approx(0.0, abs=1e-9)]


def test_sdar_has_the_gradient_of_its_loss_through_the_student_alone() -> None:
    torch.manual_seed(0)
    logits = torch.randn(6, dtype=torch.float64, requires_grad=True)
    logps, teacher = logits.log_softmax(0), torch.randn(6, dtype=torch.float64).log_softmax(0)
    gate = torch.sigmoid(5.0 * (teacher - logps)).detach()
    loss = 0.3 * (gate * (teacher - logps)).sum()
    [wanted] = torch.autograd.grad(loss, logits, retain_graph=True)
    given = Sdar(weight=0.3)(_taught([0.0] * 6, logps.tolist(), teacher.tolist()))
    advantages = torch.tensor([given[token][f"r{token}"][0] for token in range(6)])
    [found] = torch.autograd.grad(-(advantages * logps).sum(), logits)
    assert torch.allclose(found, wanted, atol=1e-9)


def test_replies_without_a_teacher_are_not_pulled() -> None:
    group = _taught([0.5] * 3, [-0.3, -1.2, -2.0], [])
    assert Sdar()(group) == [{f"r{place}": [0.0]} for place in range(3)]


async def test_the_teacher_s_prompts_hold_the_hints_and_what_is_learned_from_does_not() -> None:
    tokenizer, seen = policy_tokenizer(), dict[str, str]()
    experience = experience_of(
        policy_of(RuleEngine(tokenizer), tokenizer),
        plan=RolloutPlan(members=3, local_probability=1.0, reruns=2, seed=1, teacher=True),
        credit=CreditPlan(estimator=Sdar(weight=0.5)),
    )
    experience.collector.hints = lambda episode, place: [f"ana lives in {place}"]

    def logps(traces: Mapping[str, TokenTrace], _: object) -> dict[str, list[float]]:
        seen.update({key: tokenizer.decode(trace.prompt_ids) for key, trace in traces.items()})
        return {key: [value + 1.0 for value in trace.logprobs] for key, trace in traces.items()}

    experience.read_logps = logps
    step = await experience.gather([small_episode(0)], step=0)
    assert set(seen) >= set(step.traces) and len(seen) > 6
    hint = re.compile(r"ana lives in \d")
    assert all(hint.search(prompt) for prompt in seen.values())
    shown = [tokenizer.decode(trace.prompt_ids) for trace in step.traces.values()]
    assert not any(hint.search(prompt) for prompt in shown)
    experience.read_logps = None
    alone = await experience.gather([small_episode(0)], step=0)
    pulls = [step.credit.advantages[key] - value for key, value in alone.credit.advantages.items()]
    pull = 0.5 / (1 + math.exp(-5.0))  # the gate of a token that the teacher finds e times likelier
    assert {round(each / pull, 6) for each in pulls} == {1.0, 2.0}  # in one group or in two


def test_the_trainer_reads_what_a_teacher_thinks(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    model, step = tiny_model(tokenizer), random_step(tokenizer, rows=3)
    source = GivenSteps([step])
    trainer_of(model, tokenizer, settings(tmp_path), source)
    found = source.read_logps(step.traces, step.roles)
    for key, trace in step.traces.items():
        ids = torch.tensor([[*trace.prompt_ids, *trace.completion_ids]])
        with torch.no_grad():
            logps = model(input_ids=ids).logits[0].log_softmax(-1)
        length = len(trace.completion_ids)
        wanted = [float(logps[-length - 1 + at, ids[0, -length + at]]) for at in range(length)]
        assert found[key] == pytest.approx(wanted, abs=1e-4)
