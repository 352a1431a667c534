"""A chunk's calls are credited by the questions about its turns, and a manager's call only
for evidence that it was handed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from policy_kit import RuleEngine, brief_agent, policy_of, policy_tokenizer
from training_kit import small_episode

from environments.records import Episode, Probe
from environments.rewards.terms import AnswerTerm, Weighted
from memagent.core.errors import ConfigError
from memagent.core.exchange import Role
from memagent.core.records import Turn
from train.credit.advantages import logo_advantages
from train.credit.groups import CreditGroup
from train.rollouts.collect import Collector, RolloutPlan
from train.rollouts.experience import CreditPlan, Experience
from train.rollouts.grading import Comparison, CreditUnit, turns_by_chunk

ROLES = frozenset({Role.EXTRACTOR, Role.MANAGER})


def _episode() -> Episode:
    """One session of ten turns, which are two chunks: Ana lives in Rome is said in both,
    and each has a question of its own.
    """
    whole = small_episode(0, sessions=1)
    (session,) = whole.sessions
    turns = tuple(
        Turn(id=f"t{place}", speaker="ana", text="ana lives in rome") for place in range(10)
    )
    probes = tuple(
        Probe(
            id=name,
            question="where does ana live ?",
            answers=("rome",),
            evidence_turn_ids=(turn,),
        )
        for name, turn in (("first", "t0"), ("second", "t9"))
    )
    session = session.model_copy(update={"turns": turns})
    return whole.model_copy(update={"sessions": (session,), "probes": probes})


async def _groups(unit: CreditUnit, *, control: Any = "") -> tuple[list[CreditGroup], Any]:
    tokenizer = policy_tokenizer()
    plan = CreditPlan(reward=Weighted((AnswerTerm(), 1.0)), unit=unit, roles=ROLES, control=control)
    collector = Collector(
        agent=brief_agent(),
        policy=policy_of(RuleEngine(tokenizer, keep=0.4), tokenizer),
        plan=RolloutPlan(members=6, local_probability=1.0, reruns=5, seed=4),
    )
    experience = Experience(collector=collector, plan=plan, answering=brief_agent())
    step = await experience.gather([_episode()], step=0)
    return list(step.groups), step


async def test_each_call_stands_in_the_group_of_its_chunk() -> None:
    groups, step = await _groups("chunk")
    (rollout, *_) = step.rollouts
    chunk_of = {
        call.response.id: call.step.chunk_index
        for run in (*rollout.rollouts, *(r for local in rollout.locals for r in local.reruns))
        for call in run.calls
    }
    assert {group.key.chunk for group in groups} == {0, 1}
    for group in groups:
        places = {chunk_of[key] for member in group.members for key in member.response_ids}
        assert places == {group.key.chunk}
    whole, _ = await _groups("session")
    assert {group.key.chunk for group in whole} == {None}
    assert len(groups) == 2 * len(whole)
    assert set(logo_advantages(groups).advantages) == set(logo_advantages(whole).advantages)


async def test_a_chunk_s_reward_is_that_of_its_own_questions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first question is answered rightly by every second member, the second one by the
    others: as sessions all earned alike, chunk by chunk they did not.
    """
    from train.rollouts import scoring

    real = scoring.score_group

    async def scored(*values: Any, **options: Any) -> Any:
        answered = await real(*values, **options)
        members = [
            tuple(
                score.model_copy(update={"f1": float((place + (score.probe_id == "first")) % 2)})
                for score in member
            )
            for place, member in enumerate(answered.members)
        ]
        return replace(answered, members=tuple(members))

    monkeypatch.setattr(scoring, "score_group", scored)
    whole, _ = await _groups("session")
    by_chunk, _ = await _groups("chunk")
    assert all(set(group.rewards_G) == {0.5} for group in whole)
    first, second = (
        next(g for g in by_chunk if g.key.branch == "global" and g.key.chunk == chunk)
        for chunk in (0, 1)
    )
    assert first.rewards_G == [1.0, 0.0] * 3
    assert second.rewards_G == [0.0, 1.0] * 3
    assert not any(logo_advantages(whole).advantages.values())
    assert any(logo_advantages(by_chunk).advantages.values())


async def test_a_manager_that_was_not_handed_the_evidence_has_no_credit() -> None:
    groups, step = await _groups("call")
    (rollout,) = step.rollouts
    noted = [
        {
            turn
            for chunk in run.trajectory.traces[0].report.chunks
            for fact in chunk.facts
            for turn in fact.source_turn_ids
        }
        for run in rollout.rollouts
    ]
    for chunk, turn in ((0, "t0"), (1, "t9")):
        manager, extractor = (
            next(
                g
                for g in groups
                if (g.key.branch, g.key.role, g.key.chunk) == ("global", role, chunk)
            )
            for role in (Role.MANAGER, Role.EXTRACTOR)
        )
        handed = [member.reward is not None for member in manager.members]
        assert handed == [turn in cited for cited in noted]
        assert all(member.reward is not None for member in extractor.members)
        assert True in handed
        assert False in handed


async def test_random_rewards_replace_those_of_chunks_too() -> None:
    groups, _ = await _groups("chunk", control="random_reward")
    rewards = [reward for group in groups for reward in group.rewards_G]
    assert len(set(rewards)) > len(rewards) / 3
    assert not set(rewards) <= {0.0, 0.5, 1.0}


def test_chunks_are_cut_as_the_design_cuts_them() -> None:
    (session,) = _episode().sessions
    chunks = turns_by_chunk(session, chunk_turns=8)
    assert [len(chunk) for chunk in chunks] == [5, 5]
    assert frozenset().union(*chunks) == {turn.id for turn in session.turns}


def test_a_comparison_without_chunks_has_one_group_a_role() -> None:
    comparison = Comparison(branch="global", episode_key="0/e", version=0, runs=())
    assert comparison.groups(ROLES) == []


def test_a_unit_that_is_none_is_named(tmp_path: Any) -> None:
    from training_kit import settings

    with pytest.raises(ConfigError, match="credit_unit must be"):
        settings(tmp_path, credit_unit="word")
