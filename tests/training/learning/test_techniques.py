"""Each published technique does what its paper's numbers or a brute-force computation say."""

from __future__ import annotations

import random
from itertools import combinations, product
from statistics import pvariance

import pytest
from training_kit import small_episode

from environments.rewards.grounding import temporal_value
from environments.rewards.terms import Outcome
from memagent.core.exchange import Role
from memagent.plugins import load
from train.credit.advantages import group_mean, logo_advantages
from train.credit.groups import CreditGroup, GroupKey, Member, ScoredGroup, is_flat, planned_rows
from train.errors import TrainFault
from train.rollouts.allocation import SuccessHistory
from train.run.config import LoGoGRPOConfig
from train.run.plans import credit_plan, evidence_ranges, rollout_plan
from train.techniques.d3s import D3S, most_varied
from train.techniques.dars import dars, dars_hardness, further_runs
from train.techniques.echo import echoed
from train.techniques.gradient_gate import LEAST, GradientGate
from train.techniques.knapsack import best_numbers, knapsack, value
from train.techniques.vade import Vade


def _group(rewards: list[float | None], *, prefix: str = "r") -> CreditGroup:
    members = tuple(
        Member(reward=reward, response_ids=(f"{prefix}{place}a", f"{prefix}{place}b"), start="d")
        for place, reward in enumerate(rewards)
    )
    key = GroupKey(branch="local", role=Role.MANAGER, episode_id="e", session=0, start="d")
    return CreditGroup(key=key, members=members)


# -- tree ------------------------------------------------------------------------------


def test_a_local_group_is_the_tree_of_depth_one() -> None:
    """V(root) is the mean of the leaves, so the name `tree` stands for `group_mean`."""
    assert load("techniques", "tree") is group_mean
    credit = logo_advantages([_group([0.0, 1.0])], estimator=group_mean)
    assert credit.advantages == pytest.approx({"r0a": -0.5, "r0b": -0.5, "r1a": 0.5, "r1b": 0.5})


# -- sample filter ---------------------------------------------------------------------


def test_the_most_varied_subset_equals_brute_force() -> None:
    draws = random.Random(0)
    for _ in range(150):
        values = [draws.choice([draws.random(), 0.0, 1.0]) for _ in range(draws.randint(1, 12))]
        keep = draws.randint(1, len(values))
        chosen = most_varied(values, keep)
        assert len(chosen) == keep
        assert list(chosen) == sorted(set(chosen))
        best = max(pvariance(some) for some in combinations(values, keep))
        assert pvariance([values[place] for place in chosen]) == pytest.approx(best, abs=1e-12)


def test_the_most_varied_of_a_mixed_group_are_its_extremes() -> None:
    values = [0, 0, 0, 1, 1, 0.5, 0.5, 0.5]
    assert sorted(values[place] for place in most_varied(values, 4)) == [0, 0, 1, 1]
    with pytest.raises(TrainFault, match="at least 1"):
        most_varied(values, 0)


def test_members_that_are_filtered_out_still_stand_in_the_comparison() -> None:
    whole = logo_advantages([_group([0.0, 0.5, 0.6, 1.0])]).advantages
    kept = logo_advantages([_group([0.0, 0.5, 0.6, 1.0])], selector=D3S(keep=2)).advantages
    assert kept == {key: whole[key] for key in ("r0a", "r0b", "r3a", "r3b")}


# -- allocation ------------------------------------------------------------------------


def test_dars_adds_what_its_tables_say() -> None:
    rates = [0, 1 / 8, 1 / 4, 3 / 8, 1 / 2]
    assert [further_runs(p, 8, cap=32) for p in rates] == [24, 11, 3, 1, 0]
    assert [further_runs(p, 8, hardness=True, cap=64) for p in rates] == [56, 24, 8, 3, 0]
    assert further_runs(0.0, 8) == 27
    assert further_runs(0.0, 8, cap=13) == 5
    assert dars.more([1.0, 0, 0, 0, 0, 0, 0, 0]) == 11
    assert dars_hardness.more([0.0] * 8) == 56
    assert dars.more([1.0, 1.0, 0.0]) == 0
    assert dars.more([]) == 0


def test_knapsack_spreads_the_budget_as_its_table_says() -> None:
    assert best_numbers([0.02, 0.3, 0.5, 0.95], budget=32) == [7, 14, 9, 2]
    with pytest.raises(TrainFault, match="do not hold"):
        best_numbers([0.5, 0.5], budget=3)


def test_knapsack_equals_brute_force_on_200_cases() -> None:
    draws = random.Random(1)
    for _ in range(200):
        rates = [draws.random() for _ in range(draws.randint(1, 4))]
        budget = 2 * len(rates) + draws.randint(0, 8)
        numbers = best_numbers(rates, budget=budget)
        assert sum(numbers) == budget
        assert min(numbers) >= 2
        every = (
            some for some in product(range(2, budget + 1), repeat=len(rates)) if sum(some) == budget
        )
        best = max(sum(value(n, p) for n, p in zip(some, rates, strict=True)) for some in every)
        assert sum(value(n, p) for n, p in zip(numbers, rates, strict=True)) == pytest.approx(
            best, abs=1e-12
        )


def test_knapsack_looks_at_the_last_visit_and_keeps_the_sum() -> None:
    history = SuccessHistory()
    history.see("easy", [1.0, 1.0, 1.0, 0.9])
    history.see("hard", [0.0, 0.0, 1.0, 0.0])
    numbers = knapsack.plan(
        ["easy", "hard", "new"], each=4, history=history, draws=random.Random(0)
    )
    assert sum(numbers) == 12
    assert numbers[1] > numbers[0]
    assert history.last("new") == 0.5


def test_the_belief_about_a_rate_is_near_it_after_twenty_visits() -> None:
    for rate in (0.1, 0.5, 0.8):
        draws, history = random.Random(2), SuccessHistory(decay=0.9)
        for _ in range(20):
            history.see("p", [float(draws.random() < rate) for _ in range(8)])
        assert abs(history.mean("p") - rate) < 0.1


def test_a_step_drift_is_tracked_within_thirty_visits_only_with_decay() -> None:
    def error(decay: float) -> float:
        draws, history = random.Random(3), SuccessHistory(decay=decay)
        for visit in range(130):
            rate = 0.1 if visit < 100 else 0.8
            history.version = visit
            history.see("p", [float(draws.random() < rate) for _ in range(8)])
        return abs(history.mean("p") - 0.8)

    assert error(0.9) < 0.1
    assert error(1.0) > 0.3


def test_vade_runs_the_groups_whose_outcome_is_least_sure() -> None:
    history = SuccessHistory()
    for _ in range(20):
        history.see("sure", [1.0] * 8)
        history.see("never", [0.0] * 8)
        history.see("open", [0.0, 1.0] * 4)
        history.see("even", [1.0, 0.0] * 4)
    names = ["sure", "open", "never", "even"]
    assert Vade().plan(names, each=3, history=history, draws=random.Random(0)) == [0, 3, 0, 3]


def test_a_history_is_saved_and_loaded_whole() -> None:
    history, again = SuccessHistory(), SuccessHistory()
    history.see("p", [1.0, 0.25])
    again.load(history.state())
    assert (again.beliefs, again.rates) == (history.beliefs, history.rates)
    history.version = again.version = 3
    assert again.belief("p") == history.belief("p") != history.beliefs["p"]


@pytest.mark.parametrize("name", ["even", "dars", "dars_hardness", "knapsack", "vade"])
def test_every_allocator_keeps_the_slot_s_promise(name: str) -> None:
    allocator = load("techniques", name)
    history = SuccessHistory()
    for groups in (0, 1, 3, 8):
        names = [str(place) for place in range(groups)]
        numbers = allocator.plan(names, each=4, history=history, draws=random.Random(0))  # type: ignore[attr-defined]
        assert len(numbers) == groups
        assert min(numbers, default=0) >= 0
        assert sum(numbers) <= 4 * -(-groups // allocator.pool)  # type: ignore[attr-defined]


# -- flat groups -----------------------------------------------------------------------


def test_flat_groups_are_told_from_mixed_ones() -> None:
    assert is_flat(_group([1.0, 1.0]))
    assert is_flat(_group([1.0, None]))
    assert not is_flat(_group([1.0, 0.0]))
    assert (
        planned_rows([_group([1.0, None, 0.0]), _group([1.0], prefix="q"), _group([0.0, 0.0])]) == 8
    )


def test_echo_takes_one_success_of_a_group_in_which_all_succeeded() -> None:
    won, lost, mixed = _group([0.9, 0.9, 0.9]), _group([0.1, 0.1]), _group([0.0, 1.0])
    found = echoed([won], "s")
    assert found in [{f"r{place}a", f"r{place}b"} for place in range(3)]
    assert echoed([won], "s") == found
    assert echoed([lost, mixed, _group([1.0])], "s") == frozenset()


# -- gate ------------------------------------------------------------------------------


def test_the_gate_refuses_an_unusual_reuse_and_the_rest_of_that_batch() -> None:
    gate = GradientGate(k=3.0)
    for norm in (1.0, 1.1, 0.9, 1.0):
        assert gate.passes(norm, first_use=True)
    assert gate.bound() == pytest.approx(1.0 + 3 * 0.05)
    assert gate.passes(1.1, first_use=False)
    assert not gate.passes(5.0, first_use=False)
    assert not gate.passes(1.0, first_use=False)
    assert gate.passes(9.0, first_use=True)
    assert gate.refused == 2
    again = GradientGate(k=3.0)
    again.load(gate.state())
    assert (again.usual, again.closed, again.refused) == (gate.usual, gate.closed, gate.refused)


def test_a_gradient_that_is_no_number_does_not_pass_and_little_knowledge_refuses_nothing() -> None:
    gate = GradientGate(k=3.0)
    assert gate.passes(1e9, first_use=False)
    for _ in range(LEAST):
        gate.passes(1.0, first_use=True)
    assert not gate.passes(float("nan"), first_use=False)


# -- by configuration ------------------------------------------------------------------


def _args(tmp_path, **values) -> LoGoGRPOConfig:
    return LoGoGRPOConfig(
        output_dir=str(tmp_path), use_cpu=True, bf16=False, report_to=[], **values
    )


def test_techniques_are_off_by_default_and_chosen_by_name(tmp_path) -> None:
    plain, chosen = (
        _args(tmp_path),
        _args(
            tmp_path,
            allocation="knapsack",
            estimator="tree",
            evidence=0.2,
            temporal=0.5,
            selectors=["d3s"],
            arguments={"d3s": {"keep": 4}},
        ),
    )
    credit = credit_plan(plain)
    assert rollout_plan(plain).allocator is load("techniques", "even")
    assert (credit.selector.refills, credit.objectives, credit.control) == (False, {}, "")
    assert credit.episode_terms is None
    assert "evidence" not in [term.name for term, _ in credit.reward.terms]
    credit = credit_plan(chosen)
    assert rollout_plan(chosen).allocator is knapsack
    assert credit.estimator is group_mean
    group = ScoredGroup(_group([0.0, 1.0, 2.0, 3.0, 4.0]))
    assert len(credit.selector.members(group, group)) == 4
    assert ("evidence", 0.2) in [(term.name, weight) for term, weight in credit.reward.terms]
    assert credit.episode_terms is not None
    assert [(term.name, weight) for term, weight in credit.episode_terms(small_episode(0))] == [
        ("temporal", 0.5)
    ]


def test_the_range_in_question_is_where_the_evidence_lies() -> None:
    episode = small_episode(0, sessions=3)
    span = evidence_ranges(episode)["p0.1"]
    at = episode.sessions[1].at
    assert at is not None
    assert span.contains(at)
    assert not span.contains(episode.sessions[0].at)  # type: ignore[arg-type]
    assert credit_plan(_args_none()).reward(Outcome()).total is None


def _args_none() -> LoGoGRPOConfig:
    return LoGoGRPOConfig(output_dir="unused", use_cpu=True, bf16=False, report_to=[])


def test_memory_t1_weighs_accuracy_grounding_and_time() -> None:
    assert temporal_value(accuracy=1.0, grounding=0.5, time=-0.5) == pytest.approx(0.6)
    assert temporal_value(accuracy=1.0, grounding=1.0, time=1.0, readable=False) == -1.0


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"control": "both"}, "control must be"),
        ({"selectors": ["d3s"], "arguments": {"d3s": {"keep": 1}}}, "keeps at least 2"),
        ({"objectives": ["gradient_gate"], "num_iterations": 1}, "gradient_gate must be"),
        ({"objectives": ["d3s"], "arguments": {"d3s": {"keep": 2}}}, "is no Objective"),
        ({"arguments": {"echo": {"weight": 1.0}}}, "arguments.echo: no slot"),
        ({"objectives": ["echo"], "arguments": {"echo": {"wait": 1.0}}}, "arguments.echo"),
        ({"estimator": "mean", "arguments": {"mean": {"a": 1}}}, "takes no arguments"),
        (
            {"loss_type": "luspo", "importance_sampling_level": "token"},
            "importance_sampling_level must be",
        ),
        (
            {"objectives": ["echo"], "arguments": {"echo": {"weight": -1.0}}},
            "weight is at least 0",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused_by_name(tmp_path, values, message: str) -> None:
    with pytest.raises(Exception, match=message):
        _args(tmp_path, **values)
