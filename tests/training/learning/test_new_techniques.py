"""Techniques that fill the slots of the trainer: each formula by hand, and each with
rewards that say nothing about what was done, from which nothing may be learned.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import pytest
import torch
from places import ROOT

from memagent.core.errors import ConfigError
from memagent.core.exchange import Role, TokenTrace
from train.credit.advantages import group_zscore, logo_advantages
from train.credit.groups import CreditGroup, GroupKey, Member, Sampled, ScoredGroup
from train.credit.objectives import LossView, Objective
from train.rollouts.allocation import SuccessHistory
from train.rollouts.slots import Replay
from train.techniques.credit.eapo import Eapo
from train.techniques.credit.gdpo import Gdpo
from train.techniques.credit.rdpo import Rdpo
from train.techniques.credit.rorecomp import RoRecomp
from train.techniques.credit.xrpo import Xrpo
from train.techniques.d3s import D3STokens
from train.techniques.dars import further_runs
from train.techniques.knapsack import Knapsack
from train.techniques.losses.bapo import Bapo, positive_share
from train.techniques.losses.lp_reg import LpReg, proxy_divergence
from train.techniques.sampling.gdro import Gdro
from train.techniques.sampling.gdro_runs import spread_runs
from train.techniques.sampling.replay import ReplayBuffer
from train.techniques.sampling.seele import Seele
from train.techniques.sampling.xrpo_runs import XrpoRuns, priority


def _trace(length: int, logp: float = -1.0, version: int = 0) -> TokenTrace:
    return TokenTrace(
        prompt_ids=(1,),
        completion_ids=(2,) * length,
        logprobs=(logp,) * length,
        policy_version=version,
    )


def _group(
    rewards: list[float],
    *,
    parts: list[dict[str, float]] | None = None,
    weights: dict[str, float] | None = None,
    traces: list[TokenTrace] | None = None,
    step: int = 0,
) -> CreditGroup:
    members = tuple(
        Member(
            reward=reward,
            response_ids=(f"r{place}",),
            parts=parts[place] if parts else {},
            weights=weights or {},
        )
        for place, reward in enumerate(rewards)
    )
    key = GroupKey(branch="global", role=Role.MANAGER, episode_id=f"{step}/e", session=0)
    said = {f"r{place}": trace for place, trace in enumerate(traces or [])}
    return CreditGroup(key=key, members=members, sampled=Sampled(traces=said))


# -- estimators and selectors ----------------------------------------------------------


def test_gdpo_standardises_each_part_by_itself() -> None:
    parts = [{"f1": 1.0, "cost": 0.2}, {"f1": 0.0, "cost": 0.0}, {"f1": 1.0, "cost": 0.1}]
    weights = {"f1": 1.0, "cost": -0.5, "noted": 0.0}
    f1, cost = group_zscore([1.0, 0.0, 1.0]), group_zscore([0.2, 0.0, 0.1])
    wanted = pytest.approx([a - 0.5 * b for a, b in zip(f1, cost, strict=True)])
    assert Gdpo()(ScoredGroup(_group([1, 0, 1], parts=parts, weights=weights))) == wanted
    chosen = Gdpo(weights={"f1": 1.0, "cost": -0.5})
    assert chosen(ScoredGroup(_group([1, 0, 1], parts=parts))) == wanted


def test_a_costly_member_never_gains_by_its_cost() -> None:
    """By default an unreadable, bloated reply has the least advantage, not the largest."""
    parts = [{"answer": 0.5, "unreadable": float(place == 2)} for place in range(3)]
    group = _group([0.5, 0.5, 0.4], parts=parts, weights={"answer": 1.0, "unreadable": -0.1})
    for estimator in (Gdpo(), Rdpo()):
        found = estimator(ScoredGroup(group))
        assert found[2] < 0 < found[0] == found[1], estimator


def test_parts_without_weights_and_weights_without_parts_are_refused() -> None:
    bare = ScoredGroup(_group([1.0, 0.0], parts=[{"a": 1.0}, {"a": 0.0}]))
    with pytest.raises(ConfigError, match="no weighed parts"):
        Gdpo()(bare)
    weighed = _group([1.0, 0.0], parts=[{"a": 1.0}, {"a": 0.0}], weights={"a": 1.0})
    with pytest.raises(ConfigError, match="no part 'cost'"):
        Gdpo(weights={"cost": 1.0})(ScoredGroup(weighed))


def test_a_part_within_the_tolerance_teaches_nothing() -> None:
    group = _group([0.5, 0.501], parts=[{"a": 0.5}, {"a": 0.501}], weights={"a": 1.0})
    for estimator in (Gdpo(), Rdpo()):
        flat = logo_advantages([group], estimator=estimator, tolerance=0.01)
        assert set(flat.advantages.values()) == {0.0}


def test_gdpo_teaches_where_the_parts_cancel_out() -> None:
    parts = [{"a": 1.0, "b": 0.0}, {"a": 0.0, "b": 1.0}]
    group = _group([1.0, 1.0], parts=parts, weights={"a": 1.0, "b": 1.0})
    assert set(logo_advantages([group]).advantages.values()) == {0.0}
    taught = logo_advantages([group], estimator=Gdpo(weights={"a": 2.0, "b": 1.0}))
    assert taught.advantages["r0"] > 0 > taught.advantages["r1"]
    assert taught.flat == {"global": 1}


def _rounds(rewards: list[float], rounds: list[int]) -> CreditGroup:
    """Runs of several calls each."""
    ids = [[f"r{place}.{at}" for at in range(count)] for place, count in enumerate(rounds)]
    members = tuple(
        Member(reward=reward, response_ids=tuple(said))
        for reward, said in zip(rewards, ids, strict=True)
    )
    traces = {key: _trace(2) for said in ids for key in said}
    key = GroupKey(branch="global", role=Role.MANAGER, episode_id="0/e")
    return CreditGroup(key=key, members=members, sampled=Sampled(traces=traces))


def test_eapo_discounts_by_the_rounds_to_come() -> None:
    credit = logo_advantages([_rounds([1.0, 1.0, 0.0], [1, 3, 2])], estimator=Eapo(gamma=0.5))
    wanted = group_zscore([1.0, 0.25, 0.5, 1.0, 0.0, 0.0])
    assert list(credit.advantages.values()) == pytest.approx(wanted)
    assert credit.advantages["r0.0"] > credit.advantages["r1.0"], "the short run begins better"
    alike = logo_advantages([_rounds([1.0, 1.0], [1, 3])], estimator=Eapo(gamma=0.5))
    assert set(alike.advantages.values()) == {0.0}, "a flat group stays flat"
    plain = logo_advantages([_rounds([1.0, 0.0], [1, 1])], estimator=Eapo(gamma=1.0))
    assert list(plain.advantages.values()) == pytest.approx(group_zscore([1.0, 0.0]))


def test_xrpo_sharpens_unlikely_successes_and_nothing_else() -> None:
    traces = [_trace(2, -2.0), _trace(2, -1.0), _trace(2, -3.0)]
    found = Xrpo(bonus=0.5, cap=0.5)(ScoredGroup(_group([1.0, 1.0, 0.0], traces=traces)))
    plain = group_zscore([1.0, 1.0, 0.0])
    assert found[0] == pytest.approx(plain[0] + min(0.5 * (1 - math.exp(0.0)), 0.5 * plain[0]))
    assert found[1:] == pytest.approx(plain[1:])  # likelier than usual, and a failure
    rare = [_trace(2, -4.0), _trace(2, -1.0), _trace(2, -1.0)]
    found = Xrpo(bonus=0.5, cap=0.5)(ScoredGroup(_group([1.0, 1.0, 0.0], traces=rare)))
    expected = plain[0] + min(0.5 * (1 - math.exp(-2.0)), 0.5 * plain[0])
    assert found[0] == pytest.approx(expected)


def test_rorecomp_keeps_short_successes_and_long_failures() -> None:
    traces = [_trace(length) for length in (4, 2, 9, 3, 8)]
    rewards = [1.0, 1.0, 1.0, 0.0, 0.0]
    selector = RoRecomp(every=4)
    assert selector.members(ScoredGroup(_group(rewards, traces=traces)), rewards) == [0, 1, 4]
    whole = ScoredGroup(_group(rewards, traces=traces, step=3))
    assert list(selector.members(whole, rewards)) == [0, 1, 2, 3, 4]


ESTIMATORS = {
    "gdpo": Gdpo(),
    "eapo": Eapo(),
    "xrpo": Xrpo(),
    "rorecomp": None,
}


def _pull(name: str, *, told: bool, seed: int) -> float:
    """Mean of advantage * (action - chance) over many groups: where an update would go."""
    draws, pulls = random.Random(seed), []
    estimator, selector = ESTIMATORS[name], RoRecomp()
    for _ in range(300):
        actions = [float(draws.random() < 0.5) for _ in range(6)]
        rewards = [a if told else float(draws.random() < 0.5) for a in actions]
        traces = [_trace(draws.randint(1, 9), -draws.random()) for _ in actions]
        parts = [{"evidence": reward} for reward in rewards]
        weights = {"evidence": 1.0}
        group = ScoredGroup(_group(rewards, parts=parts, weights=weights, traces=traces))
        given = (estimator or group_zscore)(group)
        values = [fmean(*v.values()) if isinstance(v, Mapping) else v for v in given]
        kept = selector.members(group, values) if name == "rorecomp" else range(6)
        pulls += [values[place] * (actions[place] - 0.5) for place in kept]
    return fmean(pulls)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_random_rewards_pull_nowhere_and_true_ones_towards_what_earned_them(name: str) -> None:
    noise = [_pull(name, told=False, seed=seed) for seed in range(8)]
    assert abs(fmean(noise)) < 3 * pstdev(noise) / 8**0.5 + 1e-9
    assert _pull(name, told=True, seed=0) > 10 * max(map(abs, noise))


# -- losses ----------------------------------------------------------------------------


def _view(
    ratio: list[float], advantages: list[float], logits: torch.Tensor | None = None
) -> LossView:
    logps = torch.tensor(ratio).log().unsqueeze(1)
    inputs = {
        "advantages": torch.tensor(advantages),
        "old_per_token_logps": torch.zeros_like(logps),
    }
    mask = torch.ones_like(logps)
    return LossView(
        logps=logps, entropies=torch.ones_like(logps), mask=mask, inputs=inputs, logits=logits
    )


def test_bapo_widens_the_upper_bound_and_then_raises_the_lower() -> None:
    ratio, advantages = torch.tensor([1.5, 0.7, 0.8]), torch.tensor([1.0, -1.0, -1.0])
    assert positive_share(ratio, advantages, 0.6, 1.2) == 0.0  # the good row is clipped
    assert positive_share(ratio, advantages, 0.6, 1.6) == pytest.approx(1.5 / 3.0)
    bapo = Bapo(share=0.45)
    bapo.prepare(_view([1.5, 0.7, 0.8], [1.0, -1.0, -1.0]))
    assert bapo.present == pytest.approx((0.6, 1.5))
    strict = Bapo(share=0.6)
    strict.prepare(_view([1.5, 0.7, 0.8], [1.0, -1.0, -1.0]))
    assert strict.present[1] == 3.0
    assert 0.7 < strict.present[0] <= 0.72 + 1e-9  # just past the ratio of a bad row
    assert strict.bounds(_view([1.0], [1.0])) == pytest.approx(
        (1 - strict.present[0], strict.present[1] - 1)
    )


def test_lp_reg_holds_rare_tokens_of_bad_replies_that_are_no_noise() -> None:
    chances = torch.tensor([[[0.90, 0.05, 0.045, 0.005]]])
    divergence = proxy_divergence(chances.log(), noise=0.04)
    proxy = chances[0, 0, :3] / chances[0, 0, :3].sum()
    by_hand = float((proxy * (proxy / chances[0, 0, :3]).log()).sum())
    assert float(divergence) == pytest.approx(by_hand, abs=1e-6)
    logits = torch.zeros(3, 1, 4)
    logits[:] = chances.log()
    objective = LpReg(weight=1.0, rare=0.7, noise=0.04)
    view = _view([0.05, 0.05, 0.90], [-1.0, 1.0, -1.0], logits)
    objective.prepare(view)
    assert float(objective.terms(view)["lp_reg"]) == pytest.approx(by_hand / 3, abs=1e-6)
    noise = _view([0.005, 0.005, 0.90], [-1.0, -1.0, -1.0], logits)
    objective.prepare(noise)
    assert float(objective.terms(noise)["lp_reg"]) == 0.0


def test_d3s_learns_from_the_tokens_on_which_most_hangs_and_in_the_end_from_all() -> None:
    objective = D3STokens(tokens=0.5, grow=2)
    view = LossView(
        logps=torch.zeros(2, 3),
        entropies=torch.tensor([[1.0, 0.1, 0.5], [0.2, 0.9, 9.0]]),
        mask=torch.tensor([[1, 1, 1], [1, 0, 0]]),
        inputs={"advantages": torch.tensor([1.0, -3.0])},
    )
    objective.prepare(view)  # scores 1, .1, .5 and .6
    weights = objective.weights(view)
    assert weights is not None
    assert (weights * view.mask).tolist() == [[1, 0, 0], [1, 0, 0]]
    again = D3STokens(tokens=0.5, grow=2)
    again.load(objective.state())
    assert again.share == pytest.approx(0.75)
    again.prepare(view)
    again.prepare(view)
    weights = again.weights(view)
    assert weights is not None
    assert ((weights * view.mask) == view.mask).all()


def _bandit(objective: Objective, *, told: bool, seed: int) -> float:
    """The chance of the rewarded token after 15 batches, two passes each, from 1 in 4."""
    torch.manual_seed(seed)
    logits = torch.zeros(4, requires_grad=True)
    optimizer = torch.optim.SGD([logits], lr=0.3)
    for _ in range(15):
        tokens = torch.multinomial(logits.softmax(0).detach(), 64, replacement=True)
        rewards = (tokens == 0).float() if told else torch.randint(0, 2, (64,)).float()
        advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-6)
        old = logits.detach().log_softmax(0)[tokens].unsqueeze(1)
        for _ in range(2):
            every = logits.log_softmax(0)
            logps = every[tokens].unsqueeze(1)
            inputs = {"advantages": advantages, "old_per_token_logps": old}
            entropy = -(every.exp() * every).sum().detach().expand_as(logps)
            view = LossView(
                logps=logps,
                entropies=entropy,
                mask=torch.ones_like(logps),
                inputs=inputs,
                logits=logits.expand(64, 1, 4),
            )
            objective.prepare(view)
            low, high = objective.bounds(view) or (0.2, 0.2)
            weights = objective.weights(view)
            gain = view.advantages * (1.0 if weights is None else weights)
            ratio = (logps - old).exp()
            loss = -torch.min(ratio * gain, ratio.clamp(1 - low, 1 + high) * gain).mean()
            for term in objective.terms(view).values():
                loss = loss + term
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return float(logits.softmax(0)[0].detach())


@pytest.mark.parametrize("make", [Bapo, LpReg, D3STokens])
def test_a_bandit_learns_from_true_rewards_and_not_from_random_ones(make: Any) -> None:
    assert _bandit(make(), told=True, seed=0) > 0.6
    noise = [_bandit(make(), told=False, seed=seed) for seed in range(8)]
    assert abs(fmean(noise) - 0.25) < 3 * pstdev(noise) / 8**0.5 + 0.01


# -- sampling --------------------------------------------------------------------------


@pytest.mark.parametrize("make", [Gdro])
def test_samplers_play_hard_or_open_episodes_more_and_starve_none_with_random_rewards(
    make: Any,
) -> None:
    def counts(told: bool) -> list[int]:
        sampler, draws, seen = make(), random.Random(1), [0] * 6
        for batch in range(400):
            places = sampler.choose(batch, seed=0, episodes=6, size=2)
            assert len(set(places)) == 2
            rates = {0: 1.0, 1: 1.0, 2: 0.5, 3: 0.5, 4: 0.0, 5: 0.0}
            sampler.see(
                {
                    place: [float(draws.random() < (rates[place] if told else 0.5))] * 8
                    if not told
                    else [rates[place]] * 8
                    for place in places
                }
            )
            for place in places:
                seen[place] += 1
        again = make()
        again.load(sampler.state())
        assert again.choose(7, seed=0, episodes=6, size=2) == sampler.choose(
            7, seed=0, episodes=6, size=2
        )
        return seen

    told, blind = counts(True), counts(False)
    favoured = (4, 5)
    assert min(told[place] for place in favoured) > max(told[0], told[1])
    assert min(blind) > 0.5 * max(blind)


def test_gdro_s_runs_follow_the_spread_of_success_and_keep_the_budget() -> None:
    assert spread_runs([0.5, 0.5], budget=8) == [4, 4]
    assert spread_runs([0.5, 0.1], budget=16) == [10, 6]  # 0.5 to 0.3
    assert spread_runs([1.0, 0.5], budget=8) == [2, 6]
    assert sum(spread_runs([0.0, 0.0, 0.0], budget=7)) == 7
    assert spread_runs([], budget=0) == []


def test_xrpo_s_runs_go_where_the_interval_shrinks_most() -> None:
    by_hand = 2.0 * 0.5 * (1 / 2 - 1 / math.sqrt(5)) + 0.1 * math.sqrt(math.log(1 + 9) / 4)
    assert priority(0.5, 4.0, 9.0, z=2.0, explore=0.1) == pytest.approx(by_hand)
    history = SuccessHistory(decay=1.0)
    history.see("open", [1.0, 0.0] * 4)
    history.see("settled", [1.0] * 8)
    history.see("well known", [1.0, 0.0] * 40)
    names = ["open", "settled", "well known"]
    numbers = XrpoRuns(explore=0.0).plan(names, each=6, history=history, draws=random.Random(0))
    assert sum(numbers) == 18
    assert numbers[0] > numbers[1] > numbers[2] == 2
    assert XrpoRuns().plan(["a"], each=1, history=history, draws=random.Random(0)) == [1]


def test_xrpo_s_runs_starve_no_group_and_prefer_none_with_random_rewards() -> None:
    draws, given = random.Random(3), [0, 0, 0]
    history = SuccessHistory(decay=0.9)
    for version in range(120):
        history.version = version
        names = ["a", "b", "c"]
        numbers = XrpoRuns().plan(names, each=4, history=history, draws=draws)
        assert min(numbers) >= 2
        for place, (name, number) in enumerate(zip(names, numbers, strict=True)):
            history.see(name, [float(draws.random() < 0.5) for _ in range(number)])
            given[place] += number
    assert max(given) - min(given) < 0.1 * sum(given)


@pytest.mark.parametrize("slope", [2.0, 4.0, 12.0])
def test_seele_meets_success_with_hints_whatever_the_slope(slope: float) -> None:
    seele, difficulty, draws = Seele(), 0.6, random.Random(2)
    assert seele.share("s", draws) == 0.0
    seele.see("s", [0.0, 1.0, 0.0, 0.0])
    assert seele.share("s", draws) > 0.1, "more hints after failures"
    shares: list[float] = []
    for _ in range(40):
        shares.append(seele.share("x", draws))
        rate = 1 / (1 + math.exp(-slope * (shares[-1] - difficulty)))
        seele.see("x", [float(draws.random() < rate) for _ in range(32)])
    assert abs(fmean(shares[-20:]) - difficulty) < 0.15
    assert max(shares[-20:]) - min(shares[-20:]) < 0.4, "it settles and does not swing"
    again = Seele()
    again.load(json.loads(json.dumps(seele.state())))
    again.see("x", [1.0] * 8)
    seele.see("x", [1.0] * 8)
    assert again.shares == seele.shares


def test_replay_gives_earlier_rows_with_the_log_probabilities_of_their_policy() -> None:
    buffer, draws = ReplayBuffer(capacity=8, share=0.5, age=2), random.Random(0)

    def fresh(step: int) -> Replay:
        keys = [f"{step}.{place}" for place in range(4)]
        return Replay(
            advantages={key: float(place) for place, key in enumerate(keys)},
            traces={key: _trace(2, -0.5 - step, step) for key in keys},
            roles=dict.fromkeys(keys, Role.MANAGER),
        )

    assert buffer.draw(fresh(0), (), draws).advantages == {}
    again = ReplayBuffer(capacity=8, share=0.5, age=2)
    again.load(buffer.state())
    assert again.kept == buffer.kept
    drawn = buffer.draw(fresh(1), (), draws)
    assert len(drawn.advantages) == 2
    assert all(key.startswith("0.") and drawn.advantages[key] for key in drawn.advantages)
    assert {trace.logprobs for trace in drawn.traces.values()} == {(-0.5, -0.5)}
    for step in (2, 3, 4):
        drawn = buffer.draw(fresh(step), (), draws)
    assert all(int(key[0]) >= 2 for key in drawn.advantages)  # nothing older than two steps


# -- repairs ---------------------------------------------------------------------------


def test_dars_counts_what_standardised_advantages_teach() -> None:
    """N = 8: a run teaches 2 sqrt(p (1 - p)), and one half teaches 1."""
    found = [further_runs(p, 8, standardised=True) for p in (1 / 8, 1 / 4, 3 / 8, 1 / 2)]
    assert found == [
        math.ceil((8 - 8 * s) / s) if p < 0.5 else 0
        for p in (1 / 8, 1 / 4, 3 / 8, 1 / 2)
        for s in [2 * (p * (1 - p)) ** 0.5]
    ]


def test_knapsack_leaves_a_share_to_groups_that_look_worthless() -> None:
    history = SuccessHistory()
    history.see("lost", [0.0] * 4)
    history.see("open", [0.0, 1.0, 0.0, 1.0])
    plans = {
        share: Knapsack(fallback=share).plan(
            ["lost", "open"], each=6, history=history, draws=random.Random(0)
        )
        for share in (0.0, 0.25)
    }
    assert plans == {0.0: [2, 10], 0.25: [4, 8]}


def test_a_belief_fades_with_updates_of_the_policy_even_unvisited() -> None:
    history = SuccessHistory(decay=0.5)
    history.see("p", [1.0, 1.0])
    assert history.belief("p") == (3.0, 1.0)
    history.see("p", [1.0, 1.0])
    assert history.belief("p") == (5.0, 1.0)  # the same policy: nothing fades
    history.version = 2
    assert history.belief("p") == (2.0, 1.0)


# -- the trainer names no technique ----------------------------------------------------

NAMES = (
    "echo|grpo_echo|dgg|gradient_gate|d3s|dapo|dynamic_sampling|knapsack|vade|dars|bapo|gdro|"
    "lp_reg|gdpo|xrpo|spear|eapo|rorecomp|sdar|seele|tree_advantage"
).split("|")


def test_the_trainer_s_files_name_no_technique() -> None:
    folders = ("run", "credit", "rollouts", "sampling")
    files = [path for name in folders for path in (ROOT / "train" / name).glob("*.py")]
    files.append(ROOT / "train" / "settings" / "options.py")
    assert len(files) > 30
    named = {
        f"{path.name}: {name}"
        for path in files
        for name in NAMES
        if name in path.read_text(encoding="utf-8").lower()
    }
    assert named == set()


def test_each_new_technique_is_one_short_file() -> None:
    files = [
        path
        for path in (ROOT / "train" / "techniques").glob("*/*.py")
        if path.name != "__init__.py"
    ]
    assert len(files) >= 10
    assert [path.name for path in files if len(_lines(path)) > 80] == []


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()
