"""The groups of one step: whose members are compared, and what each of them earned.

*Global* groups compare whole rollouts, session by session; *local* groups compare runs
of one session from one memory; *answer* groups compare answers to one question from one
memory. A group whose members all earned the same is *flat*; with dynamic sampling
another is run in its place.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Sequence
from typing import Any

from environments.play.group_scoring import score_group
from environments.play.rollout import ask_probe
from environments.records import Episode, Probe, ProbeScore, SessionTrace
from environments.rewards.credit import after_credit, terminal_credit
from environments.rewards.questions import (
    SessionQuestions,
    drawn,
    episode_questions,
    questions_for,
    terminal_probes,
)
from memagent.async_agent import AsyncAgent
from memagent.core.exchange import Role
from memagent.core.snapshot import MemorySnapshot
from train.credit.advantages import CreditGroup, GroupKey, Member
from train.rollouts.collect import LocalRuns, RolloutGroup, session_name
from train.rollouts.grading import MANAGER_ROLES, Grading, Made
from train.sampling.policy import BoundPolicy, Call

_Run = tuple[SessionTrace | None, tuple[Call, ...]]
"""A run of a session, None where it failed, and its calls."""


# -- memory manager --------------------------------------------------------------------


async def global_groups(grading: Grading, group: RolloutGroup) -> list[CreditGroup]:
    """A group for each role and session over the whole rollouts."""
    plan, episode = grading.plan, group.episode
    questions = episode_questions(
        (group.key,), episode, own=plan.questions, rehearsal=plan.rehearsal
    )
    whole = [one for one in group.rollouts if one.trajectory.failure is None]
    memories = [one.trajectory.end for one in whole]
    probes = terminal_probes(episode, questions)
    answered = await score_group(
        grading.answerer(f"score/{group.key}"), episode, memories, probes, scoring=grading.scoring
    )
    scores = {id(one): member for one, member in zip(whole, answered.members, strict=True)}
    groups: list[CreditGroup] = []
    for place, session in enumerate(episode.sessions):
        rewards_G: list[float | None] = []
        for one in group.rollouts:
            if id(one) not in scores:
                rewards_G.append(None)
                continue
            asked = scores[id(one)]
            if plan.credit == "session":
                if terminal_credit(questions[session.id], asked) is None:
                    rewards_G.append(None)
                    continue
                own = {probe.id for probe in questions[session.id].own}
                asked = tuple(score for score in asked if score.probe_id in own)
                reports = (one.trajectory.traces[place].report,)
            else:
                reports = tuple(trace.report for trace in one.trajectory.traces)
            rewards_G.append(grading.reward(episode, one.trajectory.end, asked, reports, "global"))
        rewards_G = grading.drawn(rewards_G, f"{group.key}/g{place}")
        for role in sorted(plan.roles & MANAGER_ROLES):
            members = tuple(
                Member(
                    reward=reward,
                    response_ids=_ids(one.calls_of(session.id), role),
                    version=group.version,
                )
                for one, reward in zip(group.rollouts, rewards_G, strict=True)
            )
            key = GroupKey(branch="global", role=role, episode_id=group.key, session=place)
            groups.append(CreditGroup(key=key, members=members))
    return list(filter(_spoke, groups))


async def local_groups(grading: Grading, group: RolloutGroup) -> Made:
    """The local groups; with dynamic sampling, others in the place of flat ones while
    there are sessions to rerun.
    """
    made = Made()
    missing = 0
    for local in group.locals:
        one = await _local_group(grading, group, local)
        made.add(one)
        missing += one.flat
    spare = _not_rerun(grading, group) if grading.plan.dynamic_sampling else []
    while missing and spare:
        chosen, spare = spare[:missing], spare[missing:]
        for place, member in chosen:
            start = group.rollouts[member].trajectory.traces[place].before
            reruns = await grading.collector.rerun(
                group, place, start, range(grading.collector.plan.reruns)
            )
            local = LocalRuns(session=place, member=member, start=start, reruns=reruns)
            one = await _local_group(grading, group, local)
            made.add(one, refill=True)
            missing -= not one.flat
    return made


def _not_rerun(grading: Grading, group: RolloutGroup) -> list[tuple[int, int]]:
    """(session, member) to begin further reruns from, in a drawn order: sessions with
    questions due that were not rerun yet.
    """
    draws = random.Random(f"{grading.collector.plan.seed}/{group.key}/refill")
    rerun = {local.session for local in group.locals}
    found: list[tuple[int, int]] = []
    for place in range(len(group.episode.sessions)):
        heard = [
            member
            for member, one in enumerate(group.rollouts)
            if len(one.trajectory.traces) > place
        ]
        if place not in rerun and heard and _questions(grading, group, place).due:
            found.append((place, draws.choice(heard)))
    draws.shuffle(found)
    return found


def _questions(grading: Grading, group: RolloutGroup, place: int) -> SessionQuestions:
    plan = grading.plan
    return questions_for(
        (group.key, place), group.episode, place, own=plan.questions, rehearsal=plan.rehearsal
    )


async def _local_group(grading: Grading, group: RolloutGroup, local: LocalRuns) -> Made:
    """A group for each role over the reruns of one session, and the anchor's own run of it."""
    plan = grading.plan
    questions = _questions(grading, group, local.session)
    session_id = group.episode.sessions[local.session].id
    runs: list[_Run] = [(one.trace, one.calls) for one in local.reruns]
    if plan.anchor_in_group:
        anchor = group.rollouts[local.member]
        traces = anchor.trajectory.traces
        ended = traces[local.session] if local.session < len(traces) else None
        kept = None if ended is None or ended.report.failed_chunks else ended
        runs.append((kept, anchor.calls_of(session_id)))
    key = f"{group.key}/s{local.session}"
    rewards_G = grading.drawn(await _after_rewards(grading, group, local, runs, questions), key)
    more = grading.collector.plan.allocator.more(
        [reward for reward in rewards_G if reward is not None]
    )
    if more:
        numbers = range(len(local.reruns), len(local.reruns) + more)
        reruns = await grading.collector.rerun(group, local.session, local.start, numbers)
        further: list[_Run] = [(one.trace, one.calls) for one in reruns]
        rewards = await _after_rewards(grading, group, local, further, questions)
        rewards_G += grading.drawn(rewards, f"{key}/more")
        runs += further
    known = [reward for reward in rewards_G if reward is not None]
    grading.collector.spread.see(local.session, known)
    grading.collector.history.see(session_name(group.episode, local.session), known)
    start = local.start.digest
    groups = [
        CreditGroup(
            key=GroupKey(
                branch="local", role=role, episode_id=group.key, session=local.session, start=start
            ),
            members=tuple(
                Member(
                    reward=reward,
                    response_ids=_ids(calls, role),
                    start=trace.before.digest if trace is not None else start,
                    version=group.version,
                )
                for reward, (trace, calls) in zip(rewards_G, runs, strict=True)
            ),
        )
        for role in sorted(plan.roles & MANAGER_ROLES)
    ]
    return Made(
        groups=list(filter(_spoke, groups)), calls=[call for _, calls in runs for call in calls]
    )


def _spoke(group: CreditGroup) -> bool:
    """Whether the role said anything itself."""
    return any(member.response_ids for member in group.members)


async def _after_rewards(
    grading: Grading,
    group: RolloutGroup,
    local: LocalRuns,
    runs: Sequence[_Run],
    questions: SessionQuestions,
) -> list[float | None]:
    """What each run earned right after the session; None for one that failed or that
    nothing was asked of.
    """
    answered = await score_group(
        grading.answerer(f"score/{group.key}/s{local.session}"),
        group.episode,
        [trace.after for trace, _ in runs if trace is not None],
        questions.after,
        scoring=grading.scoring,
    )
    scores = iter(answered.members)
    return [_after_reward(grading, group.episode, trace, scores, questions) for trace, _ in runs]


def _after_reward(
    grading: Grading,
    episode: Episode,
    trace: SessionTrace | None,
    scores: Any,
    questions: SessionQuestions,
) -> float | None:
    if trace is None:
        return None
    asked: tuple[ProbeScore, ...] = next(scores)
    if after_credit(questions, asked) is None:
        return None
    return grading.reward(episode, trace.after, asked, (trace.report,), "local")


# -- answer agent ----------------------------------------------------------------------


async def answer_groups(grading: Grading, group: RolloutGroup) -> Made:
    """A group for each drawn question: answers from one memory, that of the first
    rollout that did not fail.
    """
    plan, episode, collector = grading.plan, group.episode, grading.collector
    made = Made()
    memory = next(
        (one.trajectory.end for one in group.rollouts if one.trajectory.failure is None), None
    )
    if memory is None:
        return made
    allocator = collector.plan.allocator
    probes = drawn((group.key, "answers"), episode.probes, plan.answer_questions * allocator.pool)
    numbers = allocator.plan(
        [f"{episode.id}/{probe.id}" for probe in probes],
        each=plan.answer_members,
        history=collector.history,
        draws=random.Random(f"{collector.plan.seed}/{group.key}/answers"),
    )
    asked = [(probe, number) for probe, number in zip(probes, numbers, strict=True) if number]
    missing = 0
    for one in await asyncio.gather(
        *(_answer_group(grading, group, probe, memory, n) for probe, n in asked)
    ):
        made.add(one)
        missing += one.flat
    spare: list[Probe] = []
    if plan.dynamic_sampling:
        spare = [probe for probe in episode.probes if probe.id not in {one.id for one in probes}]
        random.Random(f"{collector.plan.seed}/{group.key}/refill").shuffle(spare)
    while missing and spare:
        chosen, spare = spare[:missing], spare[missing:]
        for one in await asyncio.gather(
            *(_answer_group(grading, group, probe, memory, plan.answer_members) for probe in chosen)
        ):
            made.add(one, refill=True)
            missing -= not one.flat
    return made


async def _answer_group(
    grading: Grading, group: RolloutGroup, probe: Probe, memory: MemorySnapshot, count: int
) -> Made:
    key = f"{group.key}/q/{probe.id}"
    views, rewards = await _answers(grading, group, probe, memory, range(count))
    rewards_G = grading.drawn(rewards, key)
    more = grading.collector.plan.allocator.more(
        [reward for reward in rewards_G if reward is not None]
    )
    if more:
        further, rewards = await _answers(grading, group, probe, memory, range(count, count + more))
        views += further
        rewards_G += grading.drawn(rewards, f"{key}/more")
    known = [reward for reward in rewards_G if reward is not None]
    grading.parts.setdefault("answer/reward", []).extend(known)
    grading.collector.history.see(f"{group.episode.id}/{probe.id}", known)
    members = tuple(
        Member(
            reward=reward,
            response_ids=_ids(view.calls, Role.ANSWERER),
            start=memory.digest,
            version=group.version,
        )
        for reward, view in zip(rewards_G, views, strict=True)
    )
    name = GroupKey(
        branch="answer",
        role=Role.ANSWERER,
        episode_id=group.key,
        start=memory.digest,
        question_id=probe.id,
    )
    return Made(
        groups=[CreditGroup(key=name, members=members)],
        calls=[call for view in views for call in view.calls],
    )


async def _answers(
    grading: Grading,
    group: RolloutGroup,
    probe: Probe,
    memory: MemorySnapshot,
    numbers: Iterable[int],
) -> tuple[list[BoundPolicy], list[float | None]]:
    """Answers by their numbers, each by a view of its own, and what they earned."""
    at = max((session.at for session in memory.sessions.values() if session.at), default=None)
    views = [grading.policy.bound(f"{group.key}/q/{probe.id}/{number}") for number in numbers]
    agents: list[AsyncAgent] = [
        grading.collector.agent.with_model(view).at(memory) for view in views
    ]
    answers = await grading.collector.together(
        ask_probe(agent, probe, memory=memory, at=at) for agent in agents
    )
    return views, [score.reward for score in grading.scoring.score_answers(group.episode, answers)]


def _ids(calls: Sequence[Call], role: Role) -> tuple[str, ...]:
    return tuple(call.response.id for call in calls if call.role is role)
