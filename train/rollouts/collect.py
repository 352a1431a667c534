"""One pass that plays whole rollouts and, from their memories, the local reruns.

Every rollout and every rerun is a coroutine of the real agent (`play`,
`replay_session`) with its own view of the policy. Anchors are drawn first; when the
anchor's rollout comes to its session, the reruns start from the memory it has at that
moment and run beside it, so they widen batches instead of adding rounds. A session that
nothing can be asked about is never rerun: its reruns would earn nothing. Nothing here
scores: a collected group holds trajectories, traces and token traces.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from environments.play.rollout import play, replay_session
from environments.records import Episode, Probe, SessionTrace, Trajectory
from environments.rewards.questions import questions_for
from environments.views import truncate
from memagent.async_agent import AsyncAgent
from memagent.core.errors import ModelError
from memagent.core.exchange import ModelRequest, ModelResponse
from memagent.core.long_work import rare_collections
from memagent.core.snapshot import EMPTY, MemorySnapshot
from memagent.protocols import ChatModel
from train.credit.groups import EntropyReader
from train.errors import TrainFault
from train.rollouts.allocation import Allocator, SuccessHistory, even
from train.rollouts.anchors import (
    AnchorSelector,
    AskedAfter,
    SessionSpread,
    as_played,
    draw_anchors,
    fork_at,
    uniform,
)
from train.rollouts.slots import (
    NO_HINTER,
    HintedModel,
    Hinter,
    Hints,
    TaughtModel,
    no_hints,
)
from train.sampling.policy import Call, PolicyModel

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class RolloutPlan:
    """Numbers of rollouts and reruns, and how they are spread."""

    members: int = 8
    """Whole rollouts an episode (n)."""
    local_probability: float = 0.5
    """Chance that a session is rerun locally; 0 makes no local runs at all."""
    reruns: int = 4
    """Local reruns a chosen session (m) in the mean, the anchor's own run not counted."""
    sessions: int | None = None
    """Sessions heard; None for the whole episode."""
    seed: int = 0
    selector: AnchorSelector = uniform
    allocator: Allocator = even
    """Spreads the reruns over the chosen sessions."""
    hinter: Hinter = NO_HINTER
    """Tells how much of a session's hints its runs are given."""
    teacher: bool = False
    """Whether the prompts of a teacher, the policy with all hints, are noted."""
    forks: bool = False
    """Whether reruns repeat the anchor's run up to its most uncertain call (`fork_at`)."""


@dataclass(frozen=True, kw_only=True)
class Rerun:
    """One local rerun; `trace` is None when it failed, with the reason in `failure`."""

    trace: SessionTrace | None
    calls: tuple[Call, ...]
    failure: str | None = None


@dataclass(frozen=True, kw_only=True)
class LocalRuns:
    """Reruns of one session from one memory."""

    session: int
    """Place of the session in the episode."""
    member: int
    """The rollout whose memory was shared."""
    start: MemorySnapshot
    reruns: tuple[Rerun, ...]
    given: tuple[ModelResponse, ...] = ()
    """The first replies of that rollout in the session, which every rerun repeats."""


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """One whole rollout with its calls."""

    trajectory: Trajectory
    calls: tuple[Call, ...]

    def calls_of(self, session_id: str) -> tuple[Call, ...]:
        """Return the calls made while that session was heard."""
        return tuple(call for call in self.calls if call.step.session_id == session_id)

    def trace_of(self, place: int) -> SessionTrace | None:
        """Return the trace of a session; None where it failed or was not reached."""
        traces = self.trajectory.traces
        trace = traces[place] if place < len(traces) else None
        return None if trace is None or trace.report.failed_chunks else trace

    @property
    def failed(self) -> float:
        """The share that failed: 1 if it ended early, else that of its sessions."""
        traces = self.trajectory.traces
        if self.trajectory.failure is not None:
            return 1.0
        return sum(bool(each.report.failed_chunks) for each in traces) / max(1, len(traces))


@dataclass(frozen=True, kw_only=True)
class RolloutGroup:
    """All runs of one episode in one step."""

    episode: Episode
    """The episode as it was played, shortened if the plan says so."""
    step: int
    version: int
    rollouts: tuple[Rollout, ...]
    locals: tuple[LocalRuns, ...] = ()

    @property
    def key(self) -> str:
        """Name of the group in draws that all its members share."""
        return f"{self.step}/{self.episode.id}"


EpisodeModel = Callable[[Episode, ChatModel], ChatModel]
"""Makes the model that plays an episode from the policy's view of it: the view itself, or
a model that leaves some roles to another.
"""


def policy_only(_: Episode, policy: ChatModel) -> ChatModel:
    """Let the policy speak in every role."""
    return policy


@dataclass(kw_only=True)
class Collector:
    """Plays episodes with one agent whose model is the policy."""

    agent: AsyncAgent
    policy: PolicyModel
    plan: RolloutPlan
    episode_model: EpisodeModel = policy_only
    spread: SessionSpread = field(default_factory=SessionSpread)
    """Reward variance of sessions in earlier steps, for anchor selectors."""
    history: SuccessHistory = field(default_factory=SuccessHistory)
    """Success of kinds of sessions and questions in earlier steps, for allocators."""
    asked_after: AskedAfter = as_played
    """Gives the questions by which reruns of a session are compared."""
    hints: Hints = no_hints
    """Gives the right notes of a session, of which the plan's hinter shows a share."""
    taught: dict[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    """The teacher's prompt tokens by response id, of the present step."""
    read_entropies: EntropyReader | None = None
    """Reads the entropies of calls, for forks; set by the trainer."""

    async def collect(self, episodes: Sequence[Episode], *, step: int) -> list[RolloutGroup]:
        """Play all episodes at once and return one group for each.

        Failures of single requests are recorded where they happened; siblings go on.
        Raises `TrainFault` for a fault of the engine, and when more than a quarter of
        the rollouts failed.
        """
        self.history.version = self.policy.version
        self.taught.clear()
        with rare_collections(), self.policy.faults_raised():
            runs = (self._group(episode, step) for episode in episodes)
            groups = list(await asyncio.gather(*runs))
        check_failures(groups)
        return groups

    def draws(self, *names: object) -> random.Random:
        """Return a stream of draws that depends on the plan's seed and the names alone.

        A resumed run therefore draws the same.
        """
        return random.Random("/".join(map(str, (self.plan.seed, *names))))

    def due(self, episode: Episode, place: int) -> tuple[Probe, ...]:
        """Return the questions that can be asked right after a session."""
        asked = self.asked_after(episode, place).episode
        return questions_for(("due",), asked, place, rehearsal=0).due

    def session_kind(self, episode: Episode, place: int) -> str:
        """Return the name in the history that a session shares with its like.

        It tells how far into the talk the session is, in doublings, and the category that
        most of its questions have. Generated episodes never come twice, so what was learned
        about one of them alone would never be asked for again.
        """
        categories = sorted(probe.category for probe in self.due(episode, place))
        most = max(dict.fromkeys(categories), key=categories.count, default="")
        return f"session {place.bit_length()}/{most}"

    async def rerun(
        self,
        group: RolloutGroup,
        place: int,
        memory: MemorySnapshot,
        numbers: Iterable[int],
        given: Sequence[ModelResponse] = (),
    ) -> tuple[Rerun, ...]:
        """Rerun a session after the rollouts; each repeats the replies that are given.

        A rerun of a number says the same here as it would have said beside the
        rollouts.
        """
        keys = [f"{group.key}/s{place}/{number}" for number in numbers]
        return tuple(
            await self.together(
                self._rerun(group.episode, place, memory, key, given) for key in keys
            )
        )

    def anchored(self, group: RolloutGroup, place: int, member: int) -> LocalRuns:
        """Return where reruns of a session begin: at a member's memory and, as forks, later."""
        rollout = group.rollouts[member]
        calls = rollout.calls_of(group.episode.sessions[place].id) if self.plan.forks else ()
        return LocalRuns(
            session=place,
            member=member,
            start=rollout.trajectory.traces[place].before,
            reruns=(),
            given=tuple(call.response for call in calls[: fork_at(calls, self.read_entropies)]),
        )

    async def together(self, runs: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
        """Return the results of the runs; their model calls form common batches."""
        return list(await asyncio.gather(*[self._start(run) for run in runs]))

    async def _group(self, episode: Episode, step: int) -> RolloutGroup:
        plan = self.plan
        if plan.sessions is not None:
            episode = truncate(episode, plan.sessions)
        anchors = draw_anchors(
            self.draws(step, episode.id),
            sessions=len(episode.sessions),
            members=plan.members,
            probability=min(1.0, plan.local_probability * plan.allocator.pool),
            selector=plan.selector,
            spread=self.spread,
        )
        anchors = {
            place: member
            for place, member in anchors.items()
            if self.due(episode, place)  # else a rerun could earn nothing
        }
        places = sorted(anchors)
        numbers = self.plan.allocator.plan(
            [self.session_kind(episode, place) for place in places],
            each=self.plan.reruns,
            history=self.history,
            draws=self.draws(step, episode.id, "reruns"),
        )
        counts = {place: number for place, number in zip(places, numbers, strict=True) if number}
        begun: dict[int, tuple[MemorySnapshot, list[asyncio.Task[Rerun]]]] = {}

        def begin_reruns(member: int, place: int, memory: MemorySnapshot) -> None:
            if not plan.forks and place in counts and anchors[place] == member:
                keys = [f"{step}/{episode.id}/s{place}/{number}" for number in range(counts[place])]
                begun[place] = (
                    memory,
                    [self._start(self._rerun(episode, place, memory, key)) for key in keys],
                )

        rollouts = await self.together(
            self._rollout(episode, f"{step}/{episode.id}/{member}", member, begin_reruns)
            for member in range(plan.members)
        )
        local = [
            LocalRuns(
                session=place,
                member=anchors[place],
                start=memory,
                reruns=tuple(await asyncio.gather(*tasks)),
            )
            for place, (memory, tasks) in sorted(begun.items())
        ]
        group = RolloutGroup(
            episode=episode,
            step=step,
            version=self.policy.version,
            rollouts=tuple(rollouts),
            locals=tuple(local),
        )
        if plan.forks:
            group = await self._forked(group, anchors, counts)
        check_shared_starts(group)
        return group

    async def _forked(
        self, group: RolloutGroup, anchors: Mapping[int, int], counts: Mapping[int, int]
    ) -> RolloutGroup:
        """Return the group with forks of the anchors' sessions, which have to end first."""
        begun = [
            self.anchored(group, place, anchors[place])
            for place in sorted(counts)
            if group.rollouts[anchors[place]].trace_of(place) is not None
        ]
        runs = (
            self.rerun(group, each.session, each.start, range(counts[each.session]), each.given)
            for each in begun
        )
        reruns = zip(begun, await asyncio.gather(*runs), strict=True)
        return replace(group, locals=tuple(replace(each, reruns=own) for each, own in reruns))

    def _model(self, episode: Episode, policy: ChatModel, key: str) -> ChatModel:
        """Return the model of a run, which is shown hints if the plan has a hinter."""
        model, step = self.episode_model(episode, policy), key.partition("/")[0]

        def hinted(hinter: Hinter) -> HintedModel:
            return HintedModel(
                model=model,
                episode=episode,
                hinter=hinter,
                hints=self.hints,
                kind=partial(self.session_kind, episode),
                draws=lambda place: self.draws(step, episode.id, "hints", place),
            )

        shown = model if self.plan.hinter is NO_HINTER else hinted(self.plan.hinter)
        if not self.plan.teacher:
            return shown
        return TaughtModel(model=shown, teacher=hinted(Hinter(always=1.0)), note=self._note)

    def _note(self, response_id: str, request: ModelRequest) -> None:
        self.taught[response_id] = self.policy.prompt_ids(request)

    def _start(self, run: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start the run as a task that is a participant of batches from this moment on.

        No batch leaves without it.
        """
        participant = self.policy.participant()
        participant.__enter__()

        async def taking_part() -> T:
            try:
                return await run
            finally:
                participant.__exit__(None, None, None)

        task = asyncio.get_running_loop().create_task(taking_part())
        # Nobody awaits the reruns of a rollout that stopped: look at what they raised.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task

    async def _rollout(
        self,
        episode: Episode,
        key: str,
        member: int,
        begin_reruns: Callable[[int, int, MemorySnapshot], None],
    ) -> Rollout:
        policy = self.policy.bound(key)
        agent = self.agent.at(EMPTY).with_model(self._model(episode, policy, key))
        trajectory = await play(
            agent,
            episode,
            ask=False,
            before_session=lambda place, memory: begin_reruns(member, place, memory),
            by_request=True,
        )
        return Rollout(trajectory=trajectory, calls=tuple(policy.calls))

    async def _rerun(
        self,
        episode: Episode,
        place: int,
        memory: MemorySnapshot,
        key: str,
        given: Sequence[ModelResponse] = (),
    ) -> Rerun:
        policy = self.policy.bound(key, given=given)
        try:
            agent = self.agent.with_model(self._model(episode, policy, key))
            trace = await replay_session(agent, episode, session=place, anchor=memory)
        except ModelError as error:
            return Rerun(
                trace=None, calls=tuple(policy.calls), failure=f"{type(error).__name__}: {error}"
            )
        failed = trace.report.failed_chunks
        failure = failed[0].failure if failed else None
        return Rerun(trace=None if failed else trace, calls=tuple(policy.calls), failure=failure)


def check_failures(groups: Sequence[RolloutGroup]) -> None:
    """Raise `TrainFault` when more than a quarter of the rollouts failed."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    failed = sum(rollout.failed for rollout in rollouts)
    if 4 * failed > len(rollouts):
        chunks = (
            chunk
            for run in rollouts
            for trace in run.trajectory.traces
            for chunk in trace.report.failed_chunks
        )
        reasons = [run.trajectory.failure for run in rollouts if run.trajectory.failure]
        reasons += [chunk.failure for chunk in chunks]
        raise TrainFault(
            f"{failed:g} of {len(rollouts)} rollouts failed, which is more than a quarter; "
            f"the first: {reasons[0]}"
        )


def check_shared_starts(group: RolloutGroup) -> None:
    """Check that every rerun began from its anchor's memory, with the group's policy.

    Raises `TrainFault` when a memory or a policy version differs.
    """
    for local in group.locals:
        trajectory = group.rollouts[local.member].trajectory
        if local.session < len(trajectory.traces):
            before = trajectory.traces[local.session].before
            if before.digest != local.start.digest:
                raise TrainFault(
                    f"session {local.session} of {group.episode.id!r} was rerun from another "
                    f"memory than member {local.member} had"
                )
        for rerun in local.reruns:
            if rerun.trace is not None and rerun.trace.before.digest != local.start.digest:
                raise TrainFault(
                    f"a rerun of session {local.session} of {group.episode.id!r} began from a "
                    "changed memory"
                )
    runs = (*group.rollouts, *(rerun for local in group.locals for rerun in local.reruns))
    versions = {
        call.response.tokens.policy_version
        for run in runs
        for call in run.calls
        if call.response.tokens is not None
    }
    if versions - {group.version}:
        raise TrainFault(
            f"episode {group.episode.id!r} was played by policy versions "
            f"{sorted(versions | {group.version})}"
        )
