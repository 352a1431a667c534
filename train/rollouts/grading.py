"""Grading: who answers for a memory, and what a memory earns.

Rewards of a session: *global*, what its questions earn on the memory that each rollout
ended with (`session`), what all questions earn there (`terminal`, plain GRPO), what
questions about the state right after it earn then (`asof`), or that less what they
earned on the memory before it (`gain`); *local*, as `asof`, of reruns from one memory.
What is asked after a session costs no token of experience. The answering agent that
scores is fixed for a whole step and answers greedily.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, cast

from environments.play.rollout import MemoryAgent
from environments.records import Episode, Probe, ProbeScore
from environments.rewards.scoring import Scoring
from environments.rewards.terms import (
    AnswerTerm,
    Measure,
    Term,
    Weighted,
    memory_r2_reward,
    outcome_of,
)
from memagent.core.exchange import Role, Sampling
from memagent.core.records import Session
from memagent.core.snapshot import IngestReport, MemorySnapshot
from memagent.memory.incoming import split_session
from train.credit.advantages import EVERYTHING, Balance, group_zscore
from train.credit.groups import Branch, CreditGroup, Estimator, GroupKey, Member, Selector, is_flat
from train.credit.objectives import Objective
from train.rollouts.collect import Collector
from train.rollouts.slots import NO_SOURCE, GroupSource
from train.sampling.policy import Call
from train.settings.options import ANSWER_ROLES, MANAGER_ROLES

# Comparisons: graded runs that began alike, before they are split by role.
#
# A comparison becomes one credit group for each trained role, so the roles of a run share
# its reward.
#
# Shapes: G runs of a comparison.

# Credit by chunk and by call, along the lineage of what a question asks for.
#
# A question names the turns of its evidence, a turn lies in one chunk of its session, and a
# fact names the turn that it was taken from. So a question about a chunk's turns says
# something about the calls of that chunk, and nothing about those of another one. And a
# manager that was not handed the evidence, since the extractor left it out, is not to
# blame for its absence.
#
# Rehearsed questions about earlier sessions count for every chunk: any of them may have
# spoilt a memory. A chunk that no question is about has its session's reward.

CreditUnit = Literal["session", "chunk", "call"]
"""All calls of a session share its reward; or those of a chunk; or those of a chunk, but
for a manager's call that was not handed the evidence.
"""
Grade = Callable[[Sequence[ProbeScore], IngestReport], float | None]
"""Gives the reward of these scores, and of the part of a session that a report is about."""


@dataclass(frozen=True, kw_only=True)
class ChunkRun:
    """A chunk's part of one run."""

    calls: tuple[Call, ...]
    reward: float | None
    handed: bool = True
    """Whether the facts of the chunk cite a turn that one of its questions needs."""


def turns_by_chunk(session: Session, *, chunk_turns: int) -> list[frozenset[str]]:
    """Return the ids of the turns in each chunk of a session, cut as a design cuts it."""
    return [frozenset(chunk.turn_ids) for chunk in split_session(session, chunk_turns=chunk_turns)]


def chunk_runs(
    whole: ChunkRun,
    *,
    turns: Sequence[frozenset[str]],
    probes: Sequence[Probe],
    scores: Sequence[ProbeScore],
    report: IngestReport,
    grade: Grade,
) -> tuple[ChunkRun, ...]:
    """Return the parts of a session's run, which is given as one, by chunk.

    `turns` are those of each chunk, `probes` the session's own questions among all that
    were scored.
    """
    parts: list[ChunkRun] = []
    for index, heard in enumerate(turns):
        spoken = tuple(call for call in whole.calls if call.step.chunk_index == index)
        part = ChunkRun(calls=spoken, reward=whole.reward)
        own = [probe for probe in probes if heard & set(probe.evidence_turn_ids)]
        if own:
            others = {probe.id for probe in probes} - {probe.id for probe in own}
            chunks = tuple(chunk for chunk in report.chunks if chunk.index == index)
            facts = [fact for chunk in chunks for fact in chunk.facts]
            cited = {turn for fact in facts for turn in fact.source_turn_ids}
            part = replace(
                part,
                reward=grade(
                    [score for score in scores if score.probe_id not in others],
                    report.model_copy(update={"chunks": chunks}),
                ),
                handed=any(heard & cited & set(probe.evidence_turn_ids) for probe in own),
            )
        parts.append(part)
    return tuple(parts)


@dataclass(frozen=True, kw_only=True)
class GradedRun:
    """One run with its calls and its reward."""

    calls: tuple[Call, ...]
    start: str | None = None
    """Digest of the snapshot that it began from; None for a whole rollout."""
    reward: float | None = None
    """None for a run that failed or could not be scored."""
    parts: Mapping[str, float] = field(default_factory=dict[str, float])
    """Amounts of the reward's terms by name."""
    weights: Mapping[str, float] = field(default_factory=dict[str, float])
    """Weights of these terms in the reward."""
    chunks: tuple[ChunkRun, ...] = ()
    """Its parts by chunk, where they have credit of their own."""
    by_call: bool = False
    """Whether a manager's call that was not handed the evidence has no credit."""

    def part(self, role: Role, chunk: int | None) -> tuple[float | None, tuple[Call, ...]]:
        """Return the reward and the calls of a chunk; None for what lies in no chunk."""
        if chunk is None:
            inside = {call.response.id for part in self.chunks for call in part.calls}
            return self.reward, tuple(c for c in self.calls if c.response.id not in inside)
        if chunk >= len(self.chunks):
            return None, ()
        part = self.chunks[chunk]
        masked = self.by_call and role is Role.MANAGER and not part.handed
        return None if masked else part.reward, part.calls


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Runs of one episode that began alike and answered the same questions."""

    branch: Branch
    episode_key: str
    """Step and episode; `RolloutGroup.key`."""
    version: int
    """Version of the policy that spoke."""
    runs: tuple[GradedRun, ...]
    session: int | None = None
    start: str | None = None
    question_id: str | None = None
    name: str | None = None
    """Name of its kind in the history of successes; None for whole rollouts, which have none."""
    refill: bool = False
    """Whether it was run in the place of a flat one."""

    @property
    def rewards_G(self) -> list[float]:
        """Rewards of the runs that were scored, in their order."""
        return [run.reward for run in self.runs if run.reward is not None]

    def groups(self, roles: Collection[Role]) -> list[CreditGroup]:
        """Return a group for each trained role, or for each of its chunks.

        Roles other than the answerer that said nothing have none.
        """
        manager = self.branch != "answer"
        chunks = max((len(run.chunks) for run in self.runs), default=0)
        groups = [
            self._group(role, chunk)
            for role in sorted(MANAGER_ROLES if manager else ANSWER_ROLES)
            for chunk in (None, *range(chunks))
            if role in roles
        ]
        return [
            group
            for group in groups
            if group.key.role is Role.ANSWERER or any(m.response_ids for m in group.members)
        ]

    def teaches(self, roles: Collection[Role], *, tolerance: float = 0.0) -> bool:
        """Tell whether any trained role has a group with different rewards."""
        return not all(is_flat(group, tolerance=tolerance) for group in self.groups(roles))

    def _group(self, role: Role, chunk: int | None) -> CreditGroup:
        members: list[Member] = []
        for run in self.runs:
            reward, calls = run.part(role, chunk)
            members.append(
                Member(
                    reward=reward,
                    response_ids=tuple(call.response.id for call in calls if call.role is role),
                    start=run.start,
                    version=self.version,
                    parts=run.parts,
                    weights=run.weights,
                )
            )
        key = GroupKey(
            branch=self.branch,
            role=role,
            episode_id=self.episode_key,
            session=self.session,
            start=self.start,
            question_id=self.question_id,
            chunk=chunk,
        )
        return CreditGroup(key=key, members=tuple(members))


_DRAWN: Final = {"drawn": 1.0}
GREEDY = Sampling(temperature=0.0, max_tokens=64)
"""Sampling of the answering agent that scores."""


def answer_worth(
    weight: float = 1.0, *further: tuple[Term, float], measure: Measure = "f1"
) -> Weighted:
    """Return the reward of an answer: its own worth, and further weighted terms."""
    return Weighted((AnswerTerm(measure=measure, name="worth"), weight), *further)


EpisodeTerms = Callable[[Episode], Sequence[tuple[Term, float]]]
"""Gives the terms of a reward, with their weights, that know the episode."""


@dataclass(frozen=True, kw_only=True)
class CreditPlan:
    """The questions to ask, and the way from their scores to credit."""

    credit: str | Mapping[str, float] = "session"
    """Credit of whole rollouts: `terminal`, `session`, `asof` or `gain`, or several with
    their weights.
    """
    asks: bool = True
    """Whether the reward has a term about answers; otherwise nothing is asked."""
    asked_share: float = 1.0
    """Share of the sessions, and of the rollouts of each, that are asked right after it."""
    reward: Weighted = field(default_factory=memory_r2_reward)
    questions: int | None = None
    """Questions a session, drawn alike for the whole group; None for all."""
    rehearsal: int = 8
    """Earlier questions asked after a local rerun."""
    local_weight: float = 1.0
    unit: CreditUnit = "session"
    """What is credited by itself in global credit by session and in local groups."""
    estimator: Estimator = group_zscore
    balance: Balance = "rows"
    flat_tolerance: float = 0.0
    """Largest difference of the rewards of a group that counts as none."""
    anchor_in_group: bool = True
    """Whether the anchor's own run is a member of its local group."""
    roles: frozenset[Role] = MANAGER_ROLES
    """Roles that are trained."""
    answer_reward: Weighted = field(default_factory=answer_worth)
    """Reward of an answer, when the answerer is trained."""
    answer_members: int = 8
    """Answers a question when the answerer is trained."""
    answer_questions: int = 4
    """Questions an episode when the answerer is trained."""
    episode_terms: EpisodeTerms | None = None
    """Further terms of the reward that depend on the episode."""
    selector: Selector = EVERYTHING
    """Chooses the groups, and their members, that are learned from."""
    objectives: Mapping[str, Objective] = field(default_factory=dict[str, Objective])
    """By name what changes the loss; here for the responses that they mark."""
    source: GroupSource = NO_SOURCE
    """Gives rows of earlier steps to learn from once more."""
    control: Literal["", "random_reward", "shuffled_advantage"] = ""
    """Replacement of the credit, to see what a run does without it."""

    @property
    def credits(self) -> Mapping[str, Branch]:
        """The branch of each credit of whole rollouts: `global` where it is the only one."""
        if isinstance(self.credit, str):
            return {self.credit: "global"}
        alone = len(self.credit) == 1
        return {name: "global" if alone else cast(Branch, name) for name in self.credit}

    @property
    def branches(self) -> Mapping[Branch, float]:
        """The weights of the credits by their branch."""
        if isinstance(self.credit, str):
            return {}
        return {branch: self.credit[name] for name, branch in self.credits.items()}


@dataclass(frozen=True, kw_only=True)
class Grading:
    """The values that the scoring of one step shares."""

    collector: Collector
    plan: CreditPlan
    answering: MemoryAgent | None
    """Agent that answers when memories are scored; None for the policy itself, greedily."""
    scoring: Scoring

    def answerer(self, key: str) -> MemoryAgent:
        """Return the agent that answers when memories are scored."""
        if self.answering is not None:
            return self.answering
        return self.collector.agent.with_model(self.collector.policy.bound(key, sampling=GREEDY))

    def grade(
        self,
        run: GradedRun,
        episode: Episode,
        memory: MemorySnapshot,
        scores: Sequence[ProbeScore],
        reports: Sequence[Any],
        within: Session | None = None,
    ) -> GradedRun:
        """Return the run with the reward of its memory and the parts of that reward.

        It is about the whole memory, or about one session `within` the episode.
        """
        weighted, more = self.plan.reward, self.plan.episode_terms
        if more is not None:
            weighted = Weighted(*weighted.terms, *more(episode))
        reward = weighted(
            outcome_of(episode, memory, scores=scores, reports=reports, within=within)
        )
        parts = {name: amount for name, amount in reward.parts.items() if amount is not None}
        weights = {term.name: weight for term, weight in weighted.terms}
        return replace(run, reward=reward.total, parts=parts, weights=weights)

    def grade_session(  # noqa: PLR0913 (what a session's credit rests on)
        self,
        run: GradedRun,
        episode: Episode,
        memory: MemorySnapshot,
        scores: Sequence[ProbeScore],
        report: IngestReport,
        *,
        questions: Sequence[Probe],
        before: tuple[MemorySnapshot, Sequence[ProbeScore]] | None = None,
        terminal: bool = False,
    ) -> GradedRun:
        """Return the run of one session with its reward and, if planned, those of its chunks.

        `questions` are those about the session itself among all that were scored. With
        `before`, the memory that the session began with and its scores on the same
        questions, the reward is the gain over it. `terminal` tells that the memory is
        the last one, of which only the session's part counts.
        """
        session = next(each for each in episode.sessions if each.id == report.session_id)

        def graded_by(own: Sequence[ProbeScore], part: IngestReport) -> GradedRun:
            within = session if terminal else None
            after = self.grade(run, episode, memory, own, (part,), within)
            if before is None or after.reward is None:
                return after
            ids, (start, earlier) = {score.probe_id for score in own}, before
            scored = [score for score in earlier if score.probe_id in ids]
            base = self.grade(run, episode, start, scored, ()).reward
            return replace(after, reward=None if base is None else after.reward - base)

        graded = graded_by(scores, report)
        if self.plan.unit == "session":
            return graded
        parts = chunk_runs(
            ChunkRun(calls=run.calls, reward=graded.reward),
            turns=turns_by_chunk(session, chunk_turns=self.collector.agent.design.chunk_turns),
            probes=questions,
            scores=scores,
            report=report,
            grade=lambda own, part: graded_by(own, part).reward,
        )
        return replace(graded, chunks=parts, by_call=self.plan.unit == "call")

    def grade_answer(
        self, run: GradedRun, episode: Episode, memory: MemorySnapshot, score: ProbeScore
    ) -> GradedRun:
        """Return the run of one answer with its reward and the parts of that reward.

        It is the sum of the weighted terms. A term that does not apply to the question
        counts as 0. An answer whose call failed has no reward.
        """
        if score.failure is not None:
            return run
        more = self.plan.episode_terms
        terms = [*self.plan.answer_reward.terms, *(more(episode) if more is not None else ())]
        outcome = outcome_of(episode, memory, scores=(score,))
        amounts = [(term.name, term(outcome), weight) for term, weight in terms]
        parts = {name: amount for name, amount, _ in amounts if amount is not None}
        reward = sum(weight * (amount or 0.0) for _, amount, weight in amounts)
        weights = {name: weight for name, _, weight in amounts}
        return replace(run, reward=reward, parts=parts, weights=weights)

    def controlled(self, runs: Sequence[GradedRun], key: str) -> list[GradedRun]:
        """Return the runs, in the control with draws in [0, 1] for their rewards."""
        if self.plan.control != "random_reward":
            return list(runs)
        draws = self.collector.draws(key, "random_reward")
        return [run if run.reward is None else _drawn(run, draws) for run in runs]

    async def extended(
        self,
        runs: Sequence[GradedRun],
        further: Callable[[int], Awaitable[Sequence[GradedRun]]],
        key: str,
    ) -> tuple[GradedRun, ...]:
        """Return the runs with those that the allocator adds after a look at their rewards.

        `further(count)` makes and grades that many more.
        """
        first = self.controlled(runs, key)
        rewards_G = [run.reward for run in first if run.reward is not None]
        count = self.collector.plan.allocator.more(rewards_G)
        if not count:
            return tuple(first)
        return (*first, *self.controlled(await further(count), f"{key}/more"))


def _drawn(run: GradedRun, draws: random.Random) -> GradedRun:
    """Return the run with draws in [0, 1] for its reward and those of its chunks.

    The draw is the only part with a weight, so no estimator by parts learns from others.
    """
    reward = draws.random()
    chunks = tuple(replace(part, reward=draws.random()) for part in run.chunks)
    parts = {**run.parts, "drawn": reward}
    return replace(run, reward=reward, chunks=chunks, parts=parts, weights=_DRAWN)
