"""The score pass: from the runs of one episode to graded comparisons.

*Global* comparisons take whole rollouts, session by session; *local* ones take runs of
one session from one memory; *answer* ones take answers to one question from one memory.
Allocators add runs to a comparison after a first look, and with a selector that refills
a comparison whose runs all earned the same is replaced by another, until the planned
number teaches or nothing is left to run. The mean then stays over the planned number of
rows, so the learning rate stays what it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from environments.play.group_scoring import score_group
from environments.play.rollout import ask_probe
from environments.records import Probe, ProbeScore, SessionTrace
from environments.rewards.questions import (
    SessionQuestions,
    after_credit,
    drawn,
    episode_questions,
    questions_for,
    terminal_credit,
    terminal_probes,
)
from memagent.core.errors import ModelError
from memagent.core.snapshot import MemorySnapshot
from train.rollouts.anchors import QuestionedEpisode
from train.rollouts.collect import LocalRuns, Rollout, RolloutGroup
from train.rollouts.grading import Comparison, GradedRun, Grading
from train.sampling.policy import Call
from train.settings.options import ANSWER_ROLES, MANAGER_ROLES

T = TypeVar("T")
SessionRun = tuple[SessionTrace | None, tuple[Call, ...]]
"""A run of one session, None where it failed, and its calls."""


async def score_runs(grading: Grading, group: RolloutGroup) -> list[Comparison]:
    """Score all comparisons of one episode that the trained roles need."""
    comparisons: list[Comparison] = []
    if grading.plan.roles & MANAGER_ROLES:
        comparisons += await global_comparisons(grading, group)
        comparisons += await local_comparisons(grading, group)
    if grading.plan.roles & ANSWER_ROLES:
        comparisons += await answer_comparisons(grading, group)
    return comparisons


async def refilled(
    grading: Grading,
    planned: Sequence[Comparison],
    spare: Sequence[T],
    run: Callable[[Sequence[T]], Awaitable[Sequence[Comparison]]],
) -> list[Comparison]:
    """Return the planned comparisons and those run in the place of flat ones.

    `run` runs some of the spare ones; as many are run at a time as are missing.
    """
    plan = grading.plan
    comparisons = list(planned)

    def teaching(some: Sequence[Comparison]) -> int:
        return sum(each.teaches(plan.roles, tolerance=plan.flat_tolerance) for each in some)

    missing = len(planned) - teaching(planned)
    while missing and spare:
        chosen, spare = spare[:missing], spare[missing:]
        fresh = [replace(comparison, refill=True) for comparison in await run(chosen)]
        comparisons += fresh
        missing -= teaching(fresh)
    return comparisons


# -- memory manager: whole rollouts ----------------------------------------------------


async def global_comparisons(grading: Grading, group: RolloutGroup) -> list[Comparison]:
    """Compare the whole rollouts, session by session, for each credit of the plan."""
    kinds = grading.plan.credits
    comparisons: list[Comparison] = []
    if kinds.keys() & {"terminal", "session"}:
        comparisons += await _at_the_end(grading, group)
    if kinds.keys() & {"asof", "gain"}:
        for place in range(len(group.episode.sessions)):
            comparisons += await _right_after(grading, group, place)
    return comparisons


async def _at_the_end(grading: Grading, group: RolloutGroup) -> list[Comparison]:
    """Compare by the memories that the rollouts ended with."""
    plan, episode = grading.plan, group.episode
    questions = episode_questions(
        (group.key,), episode, own=plan.questions, rehearsal=plan.rehearsal
    )
    whole = [rollout for rollout in group.rollouts if rollout.trajectory.failure is None]
    answered = await score_group(
        grading.answerer(f"score/{group.key}"),
        episode,
        [rollout.trajectory.end for rollout in whole],
        terminal_probes(episode, questions) if plan.asks else (),
        scoring=grading.scoring,
        recorded=ModelError,
    )
    scores = {id(rollout): member for rollout, member in zip(whole, answered.members, strict=True)}

    def graded(rollout: Rollout, kind: str, place: int, session_id: str) -> GradedRun:
        run, earned = GradedRun(calls=rollout.calls_of(session_id)), scores.get(id(rollout))
        end, traces = rollout.trajectory.end, rollout.trajectory.traces
        if earned is None or rollout.trace_of(place) is None:
            return run
        if kind == "terminal":
            return grading.grade(run, episode, end, earned, [trace.report for trace in traces])
        due = questions[session_id]
        if plan.asks and terminal_credit(due, earned) is None:
            return run
        own = {probe.id for probe in due.own}
        return grading.grade_session(
            run,
            episode,
            end,
            [score for score in earned if score.probe_id in own],
            traces[place].report,
            questions=due.own,
            terminal=True,
        )

    return [
        _compared(
            grading,
            group,
            place,
            kind,
            [graded(rollout, kind, place, session.id) for rollout in group.rollouts],
        )
        for kind in plan.credits
        if kind in ("terminal", "session")
        for place, session in enumerate(episode.sessions)
    ]


async def _right_after(grading: Grading, group: RolloutGroup, place: int) -> list[Comparison]:
    """Compare by the memories right after a session, asked about what held then.

    Only a drawn share of the sessions, and of the rollouts of each, is asked. Memories
    that are alike are asked once.
    """
    plan = grading.plan
    draws = grading.collector.draws(group.key, "asked", place)
    if draws.random() >= plan.asked_share:
        return []
    heard = {
        member: trace for member, run in enumerate(group.rollouts) if (trace := run.trace_of(place))
    }
    count = min(len(heard), max(2, round(plan.asked_share * len(heard))))
    heard = {member: heard[member] for member in sorted(draws.sample(sorted(heard), count))}
    memories = [trace.after for trace in heard.values()]
    if "gain" in plan.credits:
        memories += [trace.before for trace in heard.values()]
    asked, questions, scores = await _asked(grading, group, place, memories)
    session_id = group.episode.sessions[place].id

    def graded(member: int, kind: str) -> GradedRun:
        run, trace = GradedRun(calls=group.rollouts[member].calls_of(session_id)), heard.get(member)
        earned = () if trace is None else scores[trace.after.digest]
        if trace is None or (plan.asks and after_credit(questions, earned) is None):
            return run
        before = (trace.before, scores[trace.before.digest]) if kind == "gain" else None
        return grading.grade_session(
            run,
            asked.episode,
            trace.after,
            earned,
            trace.report,
            questions=questions.due,
            before=before,
        )

    return [
        _compared(
            grading,
            group,
            place,
            kind,
            [graded(member, kind) for member in range(len(group.rollouts))],
        )
        for kind in plan.credits
        if kind in ("asof", "gain")
    ]


def _compared(
    grading: Grading, group: RolloutGroup, place: int, kind: str, runs: Sequence[GradedRun]
) -> Comparison:
    """Return the comparison of whole rollouts for one session by one credit."""
    return Comparison(
        branch=grading.plan.credits[kind],
        episode_key=group.key,
        version=group.version,
        session=place,
        runs=tuple(grading.controlled(runs, f"{group.key}/g{place}")),
    )


async def _asked(
    grading: Grading, group: RolloutGroup, place: int, memories: Sequence[MemorySnapshot]
) -> tuple[QuestionedEpisode, SessionQuestions, dict[str, tuple[ProbeScore, ...]]]:
    """Ask memories about what held right after a session; return scores by their digests."""
    asked, questions = _questions(grading, group, place)
    distinct = {memory.digest: memory for memory in memories}
    answered = await score_group(
        asked.answering or grading.answerer(f"score/{group.key}/s{place}"),
        asked.episode,
        list(distinct.values()),
        questions.after if grading.plan.asks else (),
        scoring=grading.scoring,
        recorded=ModelError,
    )
    return asked, questions, dict(zip(distinct, answered.members, strict=True))


# -- memory manager: reruns of a session -----------------------------------------------


async def local_comparisons(grading: Grading, group: RolloutGroup) -> list[Comparison]:
    """Compare the reruns of each session that has some."""
    planned = [await _local_comparison(grading, group, local) for local in group.locals]
    spare = _not_rerun(grading, group) if grading.plan.selector.refills else []

    async def run(chosen: Sequence[tuple[int, int]]) -> list[Comparison]:
        return [await _fresh_comparison(grading, group, place, member) for place, member in chosen]

    return await refilled(grading, planned, spare, run)


def _not_rerun(grading: Grading, group: RolloutGroup) -> list[tuple[int, int]]:
    """Return (session, member) pairs to begin further reruns from, in a drawn order.

    They are sessions with questions due that were not rerun yet.
    """
    draws = grading.collector.draws(group.key, "refill")
    rerun = {local.session for local in group.locals}
    spare: list[tuple[int, int]] = []
    for place in range(len(group.episode.sessions)):
        members = [
            member
            for member, rollout in enumerate(group.rollouts)
            if rollout.trace_of(place) is not None
        ]
        if place not in rerun and members and _questions(grading, group, place)[1].due:
            spare.append((place, draws.choice(members)))
    draws.shuffle(spare)
    return spare


async def _fresh_comparison(
    grading: Grading, group: RolloutGroup, place: int, member: int
) -> Comparison:
    """Rerun a session from a member's memory and compare the reruns."""
    local = grading.collector.anchored(group, place, member)
    numbers = range(grading.collector.plan.reruns)
    reruns = await grading.collector.rerun(group, place, local.start, numbers, local.given)
    return await _local_comparison(grading, group, replace(local, reruns=reruns))


def _questions(
    grading: Grading, group: RolloutGroup, place: int
) -> tuple[QuestionedEpisode, SessionQuestions]:
    """Return the episode as it is asked after a session, and the questions drawn."""
    plan, asked = grading.plan, grading.collector.asked_after(group.episode, place)
    questions = questions_for(
        (group.key, place), asked.episode, place, own=plan.questions, rehearsal=plan.rehearsal
    )
    return asked, questions


async def _local_comparison(grading: Grading, group: RolloutGroup, local: LocalRuns) -> Comparison:
    """Compare the reruns of one session and, if planned, the anchor's own run of it."""
    runs: list[SessionRun] = [(rerun.trace, rerun.calls) for rerun in local.reruns]
    if grading.plan.anchor_in_group:
        anchor = group.rollouts[local.member]
        calls = anchor.calls_of(group.episode.sessions[local.session].id)
        runs.append((anchor.trace_of(local.session), calls[len(local.given) :]))

    async def further(count: int) -> list[GradedRun]:
        numbers = range(len(local.reruns), len(local.reruns) + count)
        reruns = await grading.collector.rerun(
            group, local.session, local.start, numbers, local.given
        )
        return await _graded_after(
            grading, group, local, [(rerun.trace, rerun.calls) for rerun in reruns]
        )

    return Comparison(
        branch="local",
        episode_key=group.key,
        version=group.version,
        session=local.session,
        start=local.start.digest,
        name=grading.collector.session_kind(group.episode, local.session),
        runs=await grading.extended(
            await _graded_after(grading, group, local, runs),
            further,
            f"{group.key}/s{local.session}",
        ),
    )


async def _graded_after(
    grading: Grading, group: RolloutGroup, local: LocalRuns, runs: Sequence[SessionRun]
) -> list[GradedRun]:
    """Grade each run by the memory right after the session.

    A run that failed, or of which nothing was asked, has no reward.
    """
    memories = [trace.after for trace, _ in runs if trace is not None]
    asked, questions, scores = await _asked(grading, group, local.session, memories)

    def graded(trace: SessionTrace | None, calls: tuple[Call, ...]) -> GradedRun:
        if trace is None:
            return GradedRun(calls=calls, start=local.start.digest)
        run = GradedRun(calls=calls, start=trace.before.digest)
        earned = scores[trace.after.digest]
        if grading.plan.asks and after_credit(questions, earned) is None:
            return run
        return grading.grade_session(
            run, asked.episode, trace.after, earned, trace.report, questions=questions.due
        )

    return [graded(trace, calls) for trace, calls in runs]


# -- answer agent ----------------------------------------------------------------------


async def answer_comparisons(grading: Grading, group: RolloutGroup) -> list[Comparison]:
    """Compare answers to drawn questions.

    They come from one memory, that of the first rollout that did not fail.
    """
    whole = (run.trajectory for run in group.rollouts if run.trajectory.failure is None)
    memory = next((trajectory.end for trajectory in whole), None)
    if memory is None:
        return []
    plan, episode, collector = grading.plan, group.episode, grading.collector
    allocator = collector.plan.allocator
    probes = drawn((group.key, "answers"), episode.probes, plan.answer_questions * allocator.pool)
    numbers = allocator.plan(
        [f"question/{probe.category}" for probe in probes],
        each=plan.answer_members,
        history=collector.history,
        draws=collector.draws(group.key, "answers"),
    )

    async def compare(probes: Sequence[Probe], numbers: Sequence[int]) -> list[Comparison]:
        return await asyncio.gather(
            *(
                _answer_comparison(grading, group, probe, memory, number)
                for probe, number in zip(probes, numbers, strict=True)
                if number
            )
        )

    planned = await compare(probes, numbers)
    spare: list[Probe] = []
    if plan.selector.refills:
        asked = {probe.id for probe in probes}
        spare = [probe for probe in episode.probes if probe.id not in asked]
        collector.draws(group.key, "refill").shuffle(spare)
    return await refilled(
        grading,
        planned,
        spare,
        lambda chosen: compare(chosen, [plan.answer_members] * len(chosen)),
    )


async def _answer_comparison(
    grading: Grading, group: RolloutGroup, probe: Probe, memory: MemorySnapshot, count: int
) -> Comparison:
    async def further(more: int) -> list[GradedRun]:
        return await _graded_answers(grading, group, probe, memory, range(count, count + more))

    return Comparison(
        branch="answer",
        episode_key=group.key,
        version=group.version,
        start=memory.digest,
        question_id=probe.id,
        name=f"question/{probe.category}",
        runs=await grading.extended(
            await _graded_answers(grading, group, probe, memory, range(count)),
            further,
            f"{group.key}/q/{probe.id}",
        ),
    )


async def _graded_answers(
    grading: Grading,
    group: RolloutGroup,
    probe: Probe,
    memory: MemorySnapshot,
    numbers: range,
) -> list[GradedRun]:
    """Answer a question by each number, with a view of the policy for each, and grade it."""
    collector = grading.collector
    at = max((session.at for session in memory.sessions.values() if session.at), default=None)
    views = [collector.policy.bound(f"{group.key}/q/{probe.id}/{number}") for number in numbers]
    answers = await collector.together(
        ask_probe(
            collector.agent.with_model(view).at(memory),
            probe,
            memory=memory,
            at=at,
            recorded=ModelError,
        )
        for view in views
    )
    scores = grading.scoring.score_answers(group.episode, answers)
    return [
        grading.grade_answer(
            GradedRun(calls=tuple(view.calls), start=memory.digest), group.episode, memory, score
        )
        for view, score in zip(views, scores, strict=True)
    ]
