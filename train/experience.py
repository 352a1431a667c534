"""One step of experience: rollouts, reruns and answers, scored, credited, and joined to the tokens that were said.

`Experience.gather` is what the trainer asks for; it knows the agent, the environment's questions and the credit rules, and nothing of torch
or TRL. Rewards of a session: *global*, what its questions earn on the memory that each rollout ended with (`credit="session"`) or what all
questions earn there (`credit="terminal"`, plain GRPO); *local*, what its questions and a rehearsal of earlier ones earn right after it. The
answering agent that scores is fixed for a whole step and answers greedily.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from time import perf_counter
from typing import Any, Literal

from environments.credit import after_credit, terminal_credit
from environments.group_scoring import score_group
from environments.questions import SessionQuestions, drawn, episode_questions, questions_for, terminal_probes
from environments.records import Episode, Probe, ProbeScore, SessionTrace
from environments.rewards import Term, Weighted, memory_r2_reward, outcome_of
from environments.rollout import MemoryAgent, ask_probe
from environments.scoring import Scoring
from memagent.async_agent import AsyncAgent
from memagent.core.exchange import Role, Sampling, TokenTrace
from memagent.core.snapshot import MemorySnapshot
from train.batcher import BatchStats
from train.collect import Collector, LocalRuns, RolloutGroup, session_name
from train.credit import Balance, Credit, CreditGroup, Estimator, GroupKey, Member, group_zscore, logo_advantages
from train.policy import BoundPolicy, Call, PolicyModel
from train.techniques.dynamic_sampling import is_flat, planned_rows
from train.techniques.echo import echoed

MANAGER_ROLES = frozenset({Role.EXTRACTOR, Role.MANAGER})
"""Who speaks while a session is remembered."""
GREEDY = Sampling(temperature=0.0, max_tokens=64)
"""How the answering agent that scores decodes."""
EpisodeTerms = Callable[[Episode], Sequence[tuple[Term, float]]]
"""Terms of a reward, with their weights, that know the episode."""


@dataclass(frozen=True, kw_only=True)
class CreditPlan:
    """What is asked and how it becomes credit."""

    credit: Literal["terminal", "session"] = "session"
    reward: Weighted = field(default_factory=memory_r2_reward)
    questions: int | None = None
    """Questions a session, drawn alike for the whole group; None for all."""
    rehearsal: int = 4
    """Earlier questions asked after a local rerun."""
    local_weight: float = 1.0
    estimator: Estimator = group_zscore
    balance: Balance = "rows"
    anchor_in_group: bool = True
    """Whether the anchor's own run is a member of its local group."""
    roles: frozenset[Role] = MANAGER_ROLES
    """Roles that are trained."""
    answer_members: int = 8
    """Answers a question when the answerer is trained."""
    answer_questions: int = 4
    """Questions an episode when the answerer is trained."""
    episode_terms: EpisodeTerms | None = None
    """Further terms of the reward that depend on the episode."""
    keep: int = 0
    """Members a group to learn from, those that vary most; 0 for all."""
    dynamic_sampling: bool = False
    """Whether other sessions and questions are run in the place of those whose groups turned out flat."""
    echo: bool = False
    """Whether part of a reply of a flat group of successes is repeated."""
    control: Literal["", "random_reward", "shuffled_advantage"] = ""
    """What takes the place of the credit, to see what a run does without it."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """What one step has to teach."""

    credit: Credit
    traces: Mapping[str, TokenTrace]
    """Token traces of the credited responses by id."""
    roles: Mapping[str, Role]
    """Who said each of them."""
    groups: tuple[CreditGroup, ...]
    rollouts: tuple[RolloutGroup, ...]
    metrics: Mapping[str, float]
    seconds: Mapping[str, float]
    """Time by phase: rollout (generation within), score, credit."""
    echo: frozenset[str] = frozenset()
    """Responses of which part is repeated, advantage or not."""
    counted: int | None = None
    """Rows that the mean is over, where it is not those that have an advantage."""

    @property
    def rows(self) -> int:
        """Rows that the mean is over."""
        return len(self.credit.advantages) if self.counted is None else self.counted


@dataclass(kw_only=True)
class _Made:
    """Groups with the calls of their members; refills stand in for flat groups."""

    groups: list[CreditGroup] = field(default_factory=list[CreditGroup])
    refills: list[CreditGroup] = field(default_factory=list[CreditGroup])
    calls: list[Call] = field(default_factory=list[Call])

    @property
    def flat(self) -> bool:
        """Whether no group has anything to teach."""
        return all(is_flat(group) for group in self.groups)

    def add(self, other: _Made, *, refill: bool = False) -> None:
        """Take in what another part made."""
        (self.refills if refill else self.groups).extend(other.groups)
        self.refills += other.refills
        self.calls += other.calls


_Run = tuple[SessionTrace | None, tuple[Call, ...]]
"""A run of a session, None where it failed, and its calls."""


@dataclass(kw_only=True)
class Experience:
    """Gathers steps. `answering` scores the memories; None lets the policy itself answer, greedily."""

    collector: Collector
    plan: CreditPlan
    answering: MemoryAgent | None = None
    scoring: Scoring = field(default_factory=Scoring)

    @property
    def policy(self) -> PolicyModel:
        """Who is trained."""
        return self.collector.policy

    async def gather(self, episodes: Sequence[Episode], *, step: int) -> Step:
        """Play, score and credit the episodes of one step."""
        began, before = perf_counter(), replace(self.policy.stats)
        rollouts = await self.collector.collect(episodes, step=step)
        played = perf_counter()
        made = _Made()
        parts: dict[str, list[float]] = {}
        for rollout in rollouts:
            if self.plan.roles & MANAGER_ROLES:
                said = [call for one in rollout.rollouts for call in one.calls]
                made.add(_Made(groups=await self._global_groups(rollout, parts), calls=said))
                made.add(await self._local_groups(rollout, parts))
            if Role.ANSWERER in self.plan.roles:
                made.add(await self._answer_groups(rollout, parts))
        scored = perf_counter()
        groups, calls = [*made.groups, *made.refills], list({call.response.id: call for call in made.calls}.values())
        credit, echo = self._credit(groups, step)
        by_id = {call.response.id: call for call in calls if call.response.id in credit.advantages}
        done = perf_counter()
        return Step(
            credit=credit,
            traces={key: call.response.tokens for key, call in by_id.items() if call.response.tokens is not None},
            roles={key: call.role for key, call in by_id.items()},
            groups=tuple(groups),
            rollouts=tuple(rollouts),
            metrics=_metrics(rollouts, groups, credit, parts, calls)
            | _widths(before, self.policy.stats)
            | {"groups/refilled": float(len(made.refills))},
            echo=echo,
            counted=planned_rows(made.groups) if self.plan.dynamic_sampling else None,
            seconds={"rollout": played - began, "score": scored - played, "credit": done - scored},
        )

    def _credit(self, groups: Sequence[CreditGroup], step: int) -> tuple[Credit, frozenset[str]]:
        """Advantages, and the responses to be repeated."""
        plan, seed = self.plan, f"{self.collector.plan.seed}/{step}"
        credit = logo_advantages(
            groups, local_weight=plan.local_weight, estimator=plan.estimator, balance=plan.balance, keep=plan.keep
        )
        echo = echoed(groups, seed=f"{seed}/echo") if plan.echo else frozenset[str]()
        advantages = dict(credit.advantages)
        if plan.control == "shuffled_advantage":
            values = list(advantages.values())
            random.Random(f"{seed}/shuffled_advantage").shuffle(values)
            advantages = dict(zip(advantages, values, strict=True))
        if plan.dynamic_sampling:
            lively = {
                key for group in groups if not is_flat(group) for one in group.members for key in one.response_ids
            }
            advantages = {key: value for key, value in advantages.items() if key in lively or key in echo}
        advantages |= {key: 0.0 for key in sorted(echo) if key not in advantages}
        return replace(credit, advantages=advantages), echo

    def answerer(self, key: str) -> MemoryAgent:
        """Who answers when memories are scored."""
        if self.answering is not None:
            return self.answering
        return self.collector.agent.with_model(self.policy.bound(key, sampling=GREEDY))

    # -- memory manager --------------------------------------------------------------------------------------------

    async def _global_groups(self, group: RolloutGroup, parts: dict[str, list[float]]) -> list[CreditGroup]:
        """A group for each role and session over the whole rollouts."""
        plan, episode = self.plan, group.episode
        questions = episode_questions((group.key,), episode, own=plan.questions, rehearsal=plan.rehearsal)
        whole = [one for one in group.rollouts if one.trajectory.failure is None]
        memories = [one.trajectory.end for one in whole]
        probes = terminal_probes(episode, questions)
        answered = await score_group(
            self.answerer(f"score/{group.key}"), episode, memories, probes, scoring=self.scoring
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
                rewards_G.append(self._reward(episode, one.trajectory.end, asked, reports, "global", parts))
            rewards_G = self._drawn(rewards_G, f"{group.key}/g{place}")
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
        return groups

    async def _local_groups(self, group: RolloutGroup, parts: dict[str, list[float]]) -> _Made:
        """The local groups; with dynamic sampling, others in the place of flat ones while there are sessions to rerun."""
        made = _Made()
        missing = 0
        for local in group.locals:
            one = await self._local_group(group, local, parts)
            made.add(one)
            missing += one.flat
        spare = self._not_rerun(group) if self.plan.dynamic_sampling else []
        while missing and spare:
            chosen, spare = spare[:missing], spare[missing:]
            for place, member in chosen:
                start = group.rollouts[member].trajectory.traces[place].before
                reruns = await self.collector.rerun(group, place, start, range(self.collector.plan.reruns))
                local = LocalRuns(session=place, member=member, start=start, reruns=reruns)
                one = await self._local_group(group, local, parts)
                made.add(one, refill=True)
                missing -= not one.flat
        return made

    def _not_rerun(self, group: RolloutGroup) -> list[tuple[int, int]]:
        """(session, member) to begin further reruns from, in a drawn order: sessions with questions due that were not rerun yet."""
        draws = random.Random(f"{self.collector.plan.seed}/{group.key}/refill")
        rerun = {local.session for local in group.locals}
        found: list[tuple[int, int]] = []
        for place in range(len(group.episode.sessions)):
            heard = [member for member, one in enumerate(group.rollouts) if len(one.trajectory.traces) > place]
            if place not in rerun and heard and self._questions(group, place).due:
                found.append((place, draws.choice(heard)))
        draws.shuffle(found)
        return found

    def _questions(self, group: RolloutGroup, place: int) -> SessionQuestions:
        plan = self.plan
        return questions_for((group.key, place), group.episode, place, own=plan.questions, rehearsal=plan.rehearsal)

    async def _local_group(self, group: RolloutGroup, local: LocalRuns, parts: dict[str, list[float]]) -> _Made:
        """A group for each role over the reruns of one session, and the anchor's own run of it."""
        plan = self.plan
        questions = self._questions(group, local.session)
        session_id = group.episode.sessions[local.session].id
        runs: list[_Run] = [(one.trace, one.calls) for one in local.reruns]
        if plan.anchor_in_group:
            anchor = group.rollouts[local.member]
            traces = anchor.trajectory.traces
            ended = traces[local.session] if local.session < len(traces) else None
            kept = None if ended is None or ended.report.failed_chunks else ended
            runs.append((kept, anchor.calls_of(session_id)))
        key = f"{group.key}/s{local.session}"
        rewards_G = self._drawn(await self._after_rewards(group, local, runs, questions, parts), key)
        more = self.collector.plan.allocator.more([reward for reward in rewards_G if reward is not None])
        if more:
            numbers = range(len(local.reruns), len(local.reruns) + more)
            reruns = await self.collector.rerun(group, local.session, local.start, numbers)
            further: list[_Run] = [(one.trace, one.calls) for one in reruns]
            rewards = await self._after_rewards(group, local, further, questions, parts)
            rewards_G += self._drawn(rewards, f"{key}/more")
            runs += further
        known = [reward for reward in rewards_G if reward is not None]
        self.collector.spread.see(local.session, known)
        self.collector.history.see(session_name(group.episode, local.session), known)
        start = local.start.digest
        groups = [
            CreditGroup(
                key=GroupKey(branch="local", role=role, episode_id=group.key, session=local.session, start=start),
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
        return _Made(groups=groups, calls=[call for _, calls in runs for call in calls])

    async def _after_rewards(
        self,
        group: RolloutGroup,
        local: LocalRuns,
        runs: Sequence[_Run],
        questions: SessionQuestions,
        parts: dict[str, list[float]],
    ) -> list[float | None]:
        """What each run earned right after the session; None for one that failed or that nothing was asked of."""
        answered = await score_group(
            self.answerer(f"score/{group.key}/s{local.session}"),
            group.episode,
            [trace.after for trace, _ in runs if trace is not None],
            questions.after,
            scoring=self.scoring,
        )
        scores = iter(answered.members)
        return [self._after_reward(group.episode, trace, scores, questions, parts) for trace, _ in runs]

    def _drawn(self, rewards_G: Sequence[float | None], key: str) -> list[float | None]:
        """The rewards, or, in the control, draws in [0, 1] in their place."""
        if self.plan.control != "random_reward":
            return list(rewards_G)
        draws = random.Random(f"{self.collector.plan.seed}/{key}/random_reward")
        return [None if reward is None else draws.random() for reward in rewards_G]

    def _after_reward(
        self,
        episode: Episode,
        trace: SessionTrace | None,
        scores: Any,
        questions: SessionQuestions,
        parts: dict[str, list[float]],
    ) -> float | None:
        if trace is None:
            return None
        asked: tuple[ProbeScore, ...] = next(scores)
        if after_credit(questions, asked) is None:
            return None
        return self._reward(episode, trace.after, asked, (trace.report,), "local", parts)

    def _reward(
        self,
        episode: Episode,
        memory: MemorySnapshot,
        scores: Sequence[ProbeScore],
        reports: Sequence[Any],
        branch: str,
        parts: dict[str, list[float]],
    ) -> float | None:
        weighted, more = self.plan.reward, self.plan.episode_terms
        if more is not None:
            weighted = Weighted(*weighted.terms, *more(episode))
        reward = weighted(outcome_of(episode, memory, scores=scores, reports=reports))
        for name, amount in reward.parts.items():
            if amount is not None:
                parts.setdefault(f"{branch}/{name}", []).append(amount)
        return reward.total

    # -- answer agent ----------------------------------------------------------------------------------------------

    async def _answer_groups(self, group: RolloutGroup, parts: dict[str, list[float]]) -> _Made:
        """A group for each drawn question: answers from one memory, that of the first rollout that did not fail."""
        plan, episode, collector = self.plan, group.episode, self.collector
        made = _Made()
        memory = next((one.trajectory.end for one in group.rollouts if one.trajectory.failure is None), None)
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
        for one in await asyncio.gather(*(self._answer_group(group, probe, memory, n, parts) for probe, n in asked)):
            made.add(one)
            missing += one.flat
        spare: list[Probe] = []
        if plan.dynamic_sampling:
            spare = [probe for probe in episode.probes if probe.id not in {one.id for one in probes}]
            random.Random(f"{collector.plan.seed}/{group.key}/refill").shuffle(spare)
        while missing and spare:
            chosen, spare = spare[:missing], spare[missing:]
            for one in await asyncio.gather(
                *(self._answer_group(group, probe, memory, plan.answer_members, parts) for probe in chosen)
            ):
                made.add(one, refill=True)
                missing -= not one.flat
        return made

    async def _answer_group(
        self, group: RolloutGroup, probe: Probe, memory: MemorySnapshot, count: int, parts: dict[str, list[float]]
    ) -> _Made:
        key = f"{group.key}/q/{probe.id}"
        views, rewards = await self._answers(group, probe, memory, range(count))
        rewards_G = self._drawn(rewards, key)
        more = self.collector.plan.allocator.more([reward for reward in rewards_G if reward is not None])
        if more:
            further, rewards = await self._answers(group, probe, memory, range(count, count + more))
            views += further
            rewards_G += self._drawn(rewards, f"{key}/more")
        known = [reward for reward in rewards_G if reward is not None]
        parts.setdefault("answer/reward", []).extend(known)
        self.collector.history.see(f"{group.episode.id}/{probe.id}", known)
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
        return _Made(
            groups=[CreditGroup(key=name, members=members)], calls=[call for view in views for call in view.calls]
        )

    async def _answers(
        self, group: RolloutGroup, probe: Probe, memory: MemorySnapshot, numbers: Iterable[int]
    ) -> tuple[list[BoundPolicy], list[float | None]]:
        """Answers by their numbers, each by a view of its own, and what they earned."""
        at = max((session.at for session in memory.sessions.values() if session.at), default=None)
        views = [self.policy.bound(f"{group.key}/q/{probe.id}/{number}") for number in numbers]
        agents: list[AsyncAgent] = [self.collector.agent.with_model(view).at(memory) for view in views]
        answers = await self.collector.together(ask_probe(agent, probe, memory=memory, at=at) for agent in agents)
        return views, [score.reward for score in self.scoring.score_answers(group.episode, answers)]


def _ids(calls: Sequence[Call], role: Role) -> tuple[str, ...]:
    return tuple(call.response.id for call in calls if call.role is role)


def _metrics(
    rollouts: Sequence[RolloutGroup],
    groups: Sequence[CreditGroup],
    credit: Credit,
    parts: Mapping[str, Sequence[float]],
    calls: Sequence[Call],
) -> dict[str, float]:
    """Flat figures of a step for the log."""
    found = {f"reward/{name}": fmean(values) for name, values in parts.items() if values}
    for branch in ("global", "local", "answer"):
        rewards = [
            member.reward
            for group in groups
            if group.key.branch == branch
            for member in group.members
            if member.reward is not None
        ]
        if rewards:
            found[f"reward/{branch}"] = fmean(rewards)
    for branch, count in credit.groups.items():
        found[f"groups/{branch}"] = float(count)
        found[f"groups/{branch}_flat"] = credit.flat.get(branch, 0) / count
        found[f"groups/{branch}_spread"] = credit.spread.get(branch, 0.0)
    found["groups/unscored"] = float(credit.unscored)
    reports = [trace.report for group in rollouts for one in group.rollouts for trace in one.trajectory.traces]
    mix: dict[str, int] = {}
    for report in reports:
        for kind, count in report.op_counts.items():
            mix[kind] = mix.get(kind, 0) + count
    total = sum(mix.values()) or 1
    found |= {f"ops/{kind.lower()}": count / total for kind, count in mix.items()}
    found["ops/session"] = total / max(1, len(reports))
    found["rollouts/failed"] = float(
        sum(one.trajectory.failure is not None for group in rollouts for one in group.rollouts)
    )
    found["rollouts/reruns"] = float(sum(len(local.reruns) for group in rollouts for local in group.locals))
    found["tokens/completion"] = float(sum(call.response.usage.completion_tokens for call in calls))
    found["tokens/cut"] = fmean([call.response.finish == "length" for call in calls] or [0.0])
    return found


def _widths(before: BatchStats, after: BatchStats) -> dict[str, float]:
    """How a step's model calls were batched: rounds one after the other, and calls a batch."""
    batches = after.batches - before.batches
    return {
        "batches/rounds": float(after.rounds - before.rounds),
        "batches/width": (after.jobs - before.jobs) / max(1, batches),
    }
