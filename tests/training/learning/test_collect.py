"""Whole rollouts and local reruns in one pass of the real agent."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import Any

import pytest
from policy_kit import RuleEngine, brief_agent, policy_of, policy_tokenizer
from training_kit import small_episode

from memagent.core.errors import ContextOverflow
from memagent.core.snapshot import EMPTY
from train.errors import TrainFault
from train.rollouts.allocation import SuccessHistory
from train.rollouts.anchors import draw_anchors
from train.rollouts.collect import Collector, RolloutGroup, RolloutPlan, check_shared_starts
from train.techniques.vade import Vade

PLAN = RolloutPlan(members=3, local_probability=0.7, reruns=2, seed=1)


def _collector(plan: RolloutPlan = PLAN, **engine: Any) -> Collector:
    tokenizer = policy_tokenizer()
    return Collector(
        agent=brief_agent(), policy=policy_of(RuleEngine(tokenizer, **engine), tokenizer), plan=plan
    )


def _collect(
    collector: Collector, *, episodes: int = 2, sessions: int = 4, step: int = 0
) -> list[RolloutGroup]:
    return asyncio.run(
        collector.collect(
            [small_episode(one, sessions=sessions) for one in range(episodes)], step=step
        )
    )


def _texts(group: RolloutGroup) -> list[list[str]]:
    runs = [*group.rollouts, *(one for local in group.locals for one in local.reruns)]
    return [[call.response.text for call in one.calls] for one in runs]


def test_local_reruns_start_from_the_memory_their_anchor_had() -> None:
    groups = _collect(_collector(), sessions=5)
    locals_ = [(group, local) for group in groups for local in group.locals]
    assert len(locals_) > 3
    assert any(local.start.digest != EMPTY.digest for _, local in locals_)
    for group, local in locals_:
        anchor = group.rollouts[local.member].trajectory.traces[local.session]
        assert anchor.before.digest == local.start.digest
        for rerun in local.reruns:
            assert rerun.trace is not None
            assert rerun.trace.before.digest == local.start.digest
            assert rerun.trace.session_id == group.episode.sessions[local.session].id
        assert len(local.reruns) == 2


def test_anchors_are_those_drawn_before_the_rollout() -> None:
    group = _collect(_collector(), episodes=1, sessions=6, step=4)[0]
    draws = random.Random("1/4/e0")
    anchors = draw_anchors(draws, sessions=6, members=3, probability=0.7)
    assert {local.session: local.member for local in group.locals} == anchors


def test_reruns_widen_batches_and_add_at_most_two_rounds() -> None:
    for sessions in (2, 4, 8):
        plain, local = (
            _collector(replace(PLAN, local_probability=0.0)),
            _collector(replace(PLAN, local_probability=1.0)),
        )
        _collect(plain, sessions=sessions)
        _collect(local, sessions=sessions)
        assert (
            plain.policy.stats.rounds <= local.policy.stats.rounds <= plain.policy.stats.rounds + 2
        )
        assert local.policy.stats.widest > plain.policy.stats.widest


def test_without_a_probability_there_are_no_local_runs_and_the_rollouts_are_the_same() -> None:
    with_reruns, without = (
        _collect(_collector()),
        _collect(_collector(replace(PLAN, local_probability=0.0))),
    )
    assert all(not group.locals for group in without)
    for one, other in zip(with_reruns, without, strict=True):
        assert _texts(one)[:3] == _texts(other)


def test_the_same_step_says_the_same_again_and_the_next_something_else() -> None:
    first, again, later = (
        _collect(_collector()),
        _collect(_collector()),
        _collect(_collector(), step=1),
    )
    assert [_texts(group) for group in first] == [_texts(group) for group in again]
    assert [_texts(group) for group in first] != [_texts(group) for group in later]
    assert len({str(texts) for group in first for texts in _texts(group)}) > 4


def _too_long() -> bool:
    raise ContextOverflow("the prompt is too long")


@pytest.mark.parametrize("key", ["0/e0/0#4", "0/e0/s"])
def test_a_fault_of_the_engine_stops_everything_with_its_cause(key: str) -> None:
    tokenizer = policy_tokenizer()
    engine = RuleEngine(tokenizer, spoil=lambda job, _: job.key.startswith(key))
    collector = Collector(
        agent=brief_agent(),
        policy=policy_of(engine, tokenizer),
        plan=replace(PLAN, local_probability=1.0),
    )
    with pytest.raises(TrainFault, match="RuntimeError: the engine is down") as caught:
        _collect(collector)
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_more_than_a_quarter_of_failed_rollouts_is_a_fault() -> None:
    tokenizer = policy_tokenizer()
    engine = RuleEngine(tokenizer, spoil=lambda job, _: "#" in job.key and _too_long())
    collector = Collector(
        agent=brief_agent(), policy=policy_of(engine, tokenizer, width=1), plan=PLAN
    )
    with pytest.raises(TrainFault, match=r"more than a quarter; the first: .*too long"):
        _collect(collector)


def test_a_failing_run_is_recorded_and_its_siblings_go_on() -> None:
    tokenizer = policy_tokenizer()
    engine = RuleEngine(tokenizer, spoil=lambda job, _: job.key == "0/e0/0#4" and _too_long())
    policy = policy_of(engine, tokenizer, width=1)
    collector = Collector(
        agent=brief_agent(), policy=policy, plan=replace(PLAN, local_probability=0.0)
    )
    broken, *others = _collect(collector, episodes=1)[0].rollouts
    heard = [broken.trace_of(place) is not None for place in range(4)]
    assert heard.count(False) == 1, "an overflow costs its session and nothing more"
    (failed,) = broken.trajectory.traces[heard.index(False)].report.failed_chunks
    assert "the prompt is too long" in (failed.failure or "")
    assert broken.failed == 0.25
    assert all(one.trajectory.failure is None and len(one.trajectory.traces) == 4 for one in others)


def test_a_failing_rerun_is_recorded_and_the_rollouts_are_whole() -> None:
    tokenizer = policy_tokenizer()
    engine = RuleEngine(
        tokenizer,
        spoil=lambda job, _: job.key.startswith("0/e0/s") and "/1#" in job.key and _too_long(),
    )
    policy = policy_of(engine, tokenizer, width=1)
    collector = Collector(
        agent=brief_agent(), policy=policy, plan=replace(PLAN, local_probability=1.0)
    )
    group = _collect(collector, episodes=1)[0]
    assert all(one.trajectory.failure is None for one in group.rollouts)
    for local in group.locals:
        fine, failed = local.reruns
        assert fine.trace is not None
        assert (failed.trace, failed.failure is not None) == (None, True)


def test_a_rerun_from_another_memory_is_refused() -> None:
    group = next(group for group in _collect(_collector(), sessions=5) if len(group.locals) > 1)
    first, second = group.locals[0], group.locals[-1]
    wrong = replace(group, locals=(replace(second, start=first.start),))
    if first.start.digest != second.start.digest:
        with pytest.raises(TrainFault, match="from another memory"):
            check_shared_starts(wrong)
    with pytest.raises(TrainFault, match="policy versions"):
        check_shared_starts(replace(group, version=7))


class _ByPlace(Vade):
    """Reruns of the first chosen session only, five of them."""

    def plan(self, names: Any, *, each: int, history: SuccessHistory, draws: Any) -> list[int]:
        return [5 if place == 0 else 0 for place in range(len(names))]


def test_an_allocator_decides_how_many_reruns_a_session_gets() -> None:
    group = _collect(_collector(replace(PLAN, allocator=_ByPlace())), episodes=1, sessions=6)[0]
    assert [len(local.reruns) for local in group.locals] == [5]


def test_further_reruns_go_on_with_the_numbers_of_the_first() -> None:
    collector = _collector(replace(PLAN, local_probability=1.0, reruns=4))
    whole = _collect(collector, episodes=1)[0]
    local = whole.locals[1]
    again = asyncio.run(collector.rerun(whole, local.session, local.start, range(2, 4)))
    assert [[call.response.text for call in one.calls] for one in again] == [
        [call.response.text for call in one.calls] for one in local.reruns[2:]
    ]
