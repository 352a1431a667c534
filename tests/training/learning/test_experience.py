"""A step: fair questions, groups that may be compared, both roles, and the controls
that take the credit's place.
"""

from __future__ import annotations

import random
import re
from dataclasses import replace
from typing import Any

import pytest
from policy_kit import RuleEngine, experience_of, policy_of, policy_tokenizer
from training_kit import small_episode

from environments.rewards.grounding import EvidenceTerm
from environments.rewards.terms import AnswerTerm, CompressionTerm, Weighted
from memagent.core.exchange import Role
from memagent.plugins import load
from train.credit.groups import is_flat
from train.rollouts.collect import RolloutPlan
from train.rollouts.experience import CreditPlan, Experience, Step
from train.rollouts.grading import answer_worth
from train.run.plans import Temporal
from train.settings.options import MANAGER_ROLES, ROLE_SETS
from train.techniques.d3s import D3S
from train.techniques.dars import Dars
from train.techniques.dynamic_sampling import DynamicSampling
from train.techniques.echo import Echo
from train.techniques.sampling.seele import Seele
from train.techniques.vade import Vade

ROLLOUTS = RolloutPlan(members=4, local_probability=0.7, reruns=3, seed=2)
CREDIT = CreditPlan(reward=Weighted((AnswerTerm(), 1.0), (CompressionTerm(), -0.3)))
BOTH = replace(CREDIT, roles=ROLE_SETS["both"], answer_members=4, answer_questions=2)


def _experience(
    plan: RolloutPlan = ROLLOUTS, credit: CreditPlan = CREDIT, **engine: Any
) -> Experience:
    tokenizer = policy_tokenizer()
    return experience_of(
        policy_of(RuleEngine(tokenizer, **engine), tokenizer), plan=plan, credit=credit
    )


async def _gather(experience: Experience, *, step: int = 0, sessions: int = 4) -> Step:
    episodes = [small_episode(place, sessions=sessions) for place in range(2)]
    return await experience.gather(episodes, step=step)


async def test_members_of_a_group_start_alike_and_rewards_differ() -> None:
    step = await _gather(_experience())
    branches = {group.key.branch for group in step.groups}
    assert branches == {"global", "local"}
    for group in step.groups:
        if group.key.branch == "local":
            assert {member.start for member in group.members} == {group.key.start}
            assert len(group.members) == ROLLOUTS.reruns + 1  # the anchor's own run stands in it
    assert sum(not is_flat(group) for group in step.groups) > 4
    assert any(value > 0 for value in step.credit.advantages.values())
    assert any(value < 0 for value in step.credit.advantages.values())


async def test_every_credited_response_has_its_tokens_and_its_role() -> None:
    step = await _gather(_experience(credit=BOTH))
    assert set(step.traces) == set(step.credit.advantages) == set(step.roles)
    assert set(step.roles.values()) == {Role.EXTRACTOR, Role.MANAGER, Role.ANSWERER}
    assert step.rows == len(step.credit.advantages)


async def test_groups_never_mix_roles_and_a_frozen_role_has_none() -> None:
    for roles in ("manager", "extractor", "decider", "answerer", "both"):
        step = await _gather(_experience(credit=replace(BOTH, roles=ROLE_SETS[roles])))
        assert set(step.roles.values()) <= ROLE_SETS[roles]
        assert {group.key.role for group in step.groups} == ROLE_SETS[roles] - {Role.INDEXER}
        for group in step.groups:
            said = {
                step.roles[key]
                for member in group.members
                for key in member.response_ids
                if key in step.roles
            }
            assert said <= {group.key.role}


async def test_answers_of_a_group_come_from_one_memory_to_one_question() -> None:
    step = await _gather(_experience(credit=replace(BOTH, roles=ROLE_SETS["answerer"])))
    assert {group.key.branch for group in step.groups} == {"answer"}
    assert len(step.groups) == 2 * 2
    for group in step.groups:
        assert len(group.members) == 4
        assert {member.start for member in group.members} == {group.key.start}
        assert group.key.question_id is not None


async def test_all_members_are_asked_the_same_questions_and_so_is_a_second_try() -> None:
    credit = replace(CREDIT, questions=1, rehearsal=1)
    first, again = (
        await _gather(_experience(credit=credit)),
        await _gather(_experience(credit=credit)),
    )
    assert [[member.reward for member in group.members] for group in first.groups] == [
        [member.reward for member in group.members] for group in again.groups
    ]
    assert dict(first.credit.advantages) == dict(again.credit.advantages)


async def test_terminal_credit_gives_every_session_of_a_rollout_the_same_reward() -> None:
    step = await _gather(
        _experience(replace(ROLLOUTS, local_probability=0.0), replace(CREDIT, credit="terminal"))
    )
    for episode in ("0/e0", "0/e1"):
        rewards = {
            tuple(m.reward for m in g.members) for g in step.groups if g.key.episode_id == episode
        }
        assert len(rewards) == 1


async def test_no_local_runs_without_a_local_probability() -> None:
    step = await _gather(_experience(replace(ROLLOUTS, local_probability=0.0)))
    assert {group.key.branch for group in step.groups} == {"global"}
    assert step.metrics["rollouts/reruns"] == 0.0


# -- controls --------------------------------------------------------------------------


async def test_random_rewards_do_not_depend_on_what_was_done() -> None:
    credit = replace(BOTH, control="random_reward")
    good, bad = (
        await _gather(_experience(credit=credit, keep=1.0)),
        await _gather(_experience(credit=credit, keep=0.5)),
    )
    mine = {group.key.branch for group in good.groups}
    assert mine == {"global", "local", "answer"}

    def rewards(step: Step) -> list[list[float | None]]:
        return [
            [one.reward for one in group.members]
            for group in step.groups
            if group.key.branch == "global"
        ]

    assert rewards(good) == rewards(bad)
    assert rewards(good) != rewards(await _gather(_experience(credit=CREDIT, keep=1.0)))
    assert rewards(good) != rewards(await _gather(_experience(credit=credit, keep=1.0), step=1))
    assert all(
        0.0 <= reward <= 1.0 for group in rewards(good) for reward in group if reward is not None
    )


async def test_shuffled_advantages_are_the_same_ones_elsewhere() -> None:
    plain = (await _gather(_experience())).credit.advantages
    shuffled = (
        await _gather(_experience(credit=replace(CREDIT, control="shuffled_advantage")))
    ).credit.advantages
    again = (
        await _gather(_experience(credit=replace(CREDIT, control="shuffled_advantage")))
    ).credit.advantages
    assert sorted(plain.values()) == sorted(shuffled.values())
    assert list(plain) == list(shuffled)
    assert dict(plain) != dict(shuffled)
    assert dict(shuffled) == dict(again)


# -- techniques ------------------------------------------------------------------------


async def test_hard_groups_get_further_runs_from_the_same_start() -> None:
    plain = await _gather(_experience(credit=BOTH))
    step = await _gather(_experience(replace(ROLLOUTS, allocator=Dars()), BOTH))
    before = {group.key: group for group in plain.groups}
    grown = [group for group in step.groups if len(group.members) > len(before[group.key].members)]
    assert grown
    for group in step.groups:
        old = before[group.key]
        assert [one.reward for one in group.members][: len(old.members)] == [
            one.reward for one in old.members
        ]
        known = [one.reward for one in old.members if one.reward is not None]
        if group.key.branch != "global" and known:
            hard = sum(min(1.0, max(0.0, one)) for one in known) / len(known) < 0.5
            assert (group in grown) <= hard
        if group.key.branch != "global":
            assert {one.start for one in group.members} == {group.key.start}


async def test_vade_asks_the_questions_it_chose() -> None:
    experience = _experience(
        replace(ROLLOUTS, allocator=Vade()), replace(BOTH, roles=ROLE_SETS["answerer"])
    )
    step = await _gather(experience)
    assert len(step.groups) == 4
    assert set(experience.collector.history.rates) == {"question/"}  # these name no category
    assert experience.collector.history.runs == {"question/": 16}


async def _fresh_episodes(experience: Experience, *, steps: int) -> Step:
    """Gather steps of episodes of which none comes twice; return the last one."""
    for step in range(steps):
        episodes = [small_episode(2 * step + number, sessions=6) for number in range(2)]
        last = await experience.gather(episodes, step=step)
        experience.policy.version += 1
    return last


def _local_runs(step: Step) -> dict[tuple[str, int], int]:
    """The reruns of each session of a step."""
    return {
        (group.key, local.session): len(local.reruns)
        for group in step.rollouts
        for local in group.locals
    }


@pytest.mark.parametrize("name", ["vade", "knapsack", "gdro_runs", "xrpo_runs"])
async def test_what_earlier_episodes_taught_moves_the_runs_of_new_ones(name: str) -> None:
    """The same last step without a history spreads its runs otherwise."""
    technique = load("techniques", name)
    allocator = technique() if isinstance(technique, type) else technique
    plan = replace(ROLLOUTS, local_probability=1.0, reruns=6, allocator=allocator)
    experience = _experience(plan)
    learned = _local_runs(await _fresh_episodes(experience, steps=5))
    beliefs = experience.collector.history.beliefs
    assert set(beliefs) == {f"session {depth}/" for depth in range(4)}
    assert max(sum(belief) for belief in beliefs.values()) > 12
    forgetful = _experience(plan)
    episodes = [small_episode(place, sessions=6) for place in (8, 9)]
    forgetful.policy.version = 4
    blank = _local_runs(await forgetful.gather(episodes, step=4))
    assert learned != blank
    assert sum(learned.values()) == sum(blank.values())


async def test_failures_of_earlier_episodes_bring_hints_to_new_ones() -> None:
    tokenizer, hinter = policy_tokenizer(), Seele()
    plan = replace(ROLLOUTS, local_probability=1.0, hinter=hinter)
    policy = policy_of(RuleEngine(tokenizer, keep=0.1), tokenizer)
    experience = experience_of(policy, plan=plan, credit=CREDIT)
    experience.collector.hints = lambda episode, place: [f"ana lives in {place}"] * 4

    def hinted(step: Step) -> int:
        prompts = [tokenizer.decode(trace.prompt_ids) for trace in step.traces.values()]
        return sum(re.search(r"ana lives in \d", prompt) is not None for prompt in prompts)

    assert hinted(await _fresh_episodes(experience, steps=1)) == 0
    assert hinted(await _fresh_episodes(experience, steps=4)) > 0
    assert set(hinter.shares) == {f"session {depth}/" for depth in range(4)}


def test_seele_pairs_a_success_with_the_share_that_was_shown() -> None:
    """Sessions of one kind that one step played were all shown the same share."""
    seele = Seele(start=0.25)
    seele.share("kind", random.Random(0))
    for _ in range(3):
        seele.see("kind", [0.0, 0.0])
    assert seele.seen["kind"] == [(0.25, 0.0)] * 3


async def test_flat_groups_are_replaced_and_the_mean_stays_over_the_planned_rows() -> None:
    quiet = replace(ROLLOUTS, local_probability=0.3)
    plain = await _gather(_experience(quiet, keep=0.85), sessions=6)
    step = await _gather(
        _experience(quiet, replace(CREDIT, selector=DynamicSampling()), keep=0.85), sessions=6
    )
    flat = [group for group in plain.groups if is_flat(group)]
    assert flat
    assert step.metrics["groups/refilled"] > 0
    assert step.rows == plain.rows
    lively = {
        key
        for group in step.groups
        if not is_flat(group)
        for one in group.members
        for key in one.response_ids
    }
    assert set(step.credit.advantages) <= lively
    drawn = {
        (group.key.episode_id, group.key.session)
        for group in plain.groups
        if group.key.branch == "local"
    }
    fresh = [group for group in step.groups if group.key.branch == "local"][
        len(drawn) * len(MANAGER_ROLES - {Role.INDEXER}) :
    ]
    assert fresh
    assert all((group.key.episode_id, group.key.session) not in drawn for group in fresh)


async def test_a_group_of_successes_is_echoed_with_advantage_zero() -> None:
    sure = replace(CREDIT, objectives={"echo": Echo()}, reward=Weighted((AnswerTerm(), 1.0)))
    step = await _gather(_experience(credit=sure, keep=1.0))
    assert step.marks["echo"]
    assert all(
        step.credit.advantages[key] == 0.0 and key in step.traces for key in step.marks["echo"]
    )
    plain = await _gather(_experience(credit=replace(sure, objectives={}), keep=1.0))
    assert plain.marks == {}


async def test_fewer_members_are_kept_by_their_spread() -> None:
    plain, kept = (
        await _gather(_experience()),
        await _gather(_experience(credit=replace(CREDIT, selector=D3S(keep=2)))),
    )
    assert set(kept.credit.advantages) < set(plain.credit.advantages)
    assert kept.rows < plain.rows


async def test_terms_that_know_the_episode_join_the_reward() -> None:
    plain, timed = (
        await _gather(_experience()),
        await _gather(_experience(credit=replace(CREDIT, episode_terms=Temporal(0.5)))),
    )
    assert "reward/global/temporal" in timed.metrics
    assert timed.metrics["reward/global"] == pytest.approx(
        plain.metrics["reward/global"] + 0.5 * timed.metrics["reward/global/temporal"]
    )


async def test_an_answer_earns_its_weighted_terms_besides_its_worth() -> None:
    """Right answers and wrong ones from one memory: the sum of the parts by hand."""
    weights = {"worth": 1.0, "evidence": 0.5, "temporal": 0.25}
    credit = replace(
        BOTH,
        roles=ROLE_SETS["answerer"],
        answer_reward=answer_worth(1.0, (EvidenceTerm(), weights["evidence"])),
        episode_terms=Temporal(weights["temporal"]),
    )
    tokenizer = policy_tokenizer()
    experience = experience_of(
        policy_of(RuleEngine(tokenizer, keep=1.0), tokenizer),
        plan=RolloutPlan(members=1, local_probability=0.0, seed=2),
        credit=credit,
    )
    episodes = [small_episode(place, sessions=2) for place in range(2)]
    rollouts = await experience.collector.collect(episodes, step=0)
    comparisons = await experience.score(rollouts)
    runs = [run for comparison in comparisons for run in comparison.runs]
    assert {comparison.branch for comparison in comparisons} == {"answer"}
    assert {run.parts["worth"] for run in runs} == {0.0, 1.0}
    for run in runs:
        right = run.parts["worth"] == 1.0
        assert run.parts["evidence"] in ((1.0, 0.0) if right else (-1.0,))
        expected = sum(weights[name] * amount for name, amount in run.parts.items())
        assert run.reward == pytest.approx(expected)
        assert set(run.parts) == set(weights)
