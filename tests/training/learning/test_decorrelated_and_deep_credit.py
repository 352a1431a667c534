"""Parts of the reward that are decorrelated, and trees of calls: each against another
computation of the same, and with rewards that say nothing.
"""

from __future__ import annotations

import random
from statistics import NormalDist, fmean, pstdev

import numpy as np
import pytest

from memagent.core.errors import ConfigError
from memagent.core.exchange import Role, TokenTrace
from train.credit.advantages import group_mean, group_zscore, logo_advantages
from train.credit.groups import CreditGroup, GroupKey, Member, Sampled
from train.credit.scored import ScoredGroup
from train.techniques.credit.rdpo import Rdpo
from train.techniques.credit.tree_calls import tree_calls

KEY = GroupKey(branch="global", role=Role.MANAGER, episode_id="e", session=0)


def _by_parts(parts: list[dict[str, float]]) -> ScoredGroup:
    members = tuple(
        Member(reward=sum(some.values()), response_ids=(f"r{place}",), parts=some)
        for place, some in enumerate(parts)
    )
    return ScoredGroup(CreditGroup(key=KEY, members=members))


def _by_hand(parts: list[dict[str, float]], weights: dict[str, float], shrink: float) -> np.ndarray:
    """The formula once more, with numpy: ranks by comparison, the root by SVD."""
    columns = []
    for name in weights:
        values = np.array([some[name] for some in parts])
        below = (values[:, None] > values[None, :]).sum(1)
        alike = (values[:, None] == values[None, :]).sum(1)
        quantiles = [NormalDist().inv_cdf(at) for at in (below + alike / 2) / len(values)]
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
        found = Rdpo(weights=weights, shrink=shrink)(_by_parts(parts))
        assert found == pytest.approx(_by_hand(parts, weights, shrink), abs=1e-9)


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
    assert Rdpo()(ScoredGroup(bare)) == group_zscore([0.0, 1.0])
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
