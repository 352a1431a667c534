"""One pass that plays whole rollouts and, from their memories, the local reruns.

Every rollout and every rerun is a coroutine of the real agent (`play`,
`replay_session`) with its own view of the policy. Anchors are drawn first; when the
anchor's rollout comes to its session, the reruns start from the memory it has at that
moment and run beside it, so they widen batches instead of adding rounds. Nothing here
scores: a collected group holds trajectories, traces and token traces.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from environments.play.gc_pause import rare_collections
from environments.play.rollout import play, replay_session
from environments.records import Episode, SessionTrace, Trajectory
from environments.views import truncate
from memagent.async_agent import AsyncAgent
from memagent.core.errors import MemAgentError
from memagent.core.snapshot import EMPTY, MemorySnapshot
from memagent.protocols import ChatModel
from train.errors import TrainFault
from train.rollouts.allocation import Allocator, SuccessHistory, even
from train.rollouts.anchors import AnchorSelector, SessionSpread, draw_anchors, uniform
from train.sampling.policy import Call, PolicyModel

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class RolloutPlan:
    """How many runs of what."""

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
    """How the reruns are spread over the chosen sessions."""


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
    """Whose memory was shared."""
    start: MemorySnapshot
    reruns: tuple[Rerun, ...]


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """One whole rollout with its calls."""

    trajectory: Trajectory
    calls: tuple[Call, ...]

    def calls_of(self, session_id: str) -> tuple[Call, ...]:
        """The calls made while that session was heard."""
        return tuple(call for call in self.calls if call.step.session_id == session_id)


@dataclass(frozen=True, kw_only=True)
class RolloutGroup:
    """What one episode gave in one step."""

    episode: Episode
    """As it was played, shortened if the plan says so."""
    step: int
    version: int
    rollouts: tuple[Rollout, ...]
    locals: tuple[LocalRuns, ...] = ()

    @property
    def key(self) -> str:
        """Names the group in draws that all its members share."""
        return f"{self.step}/{self.episode.id}"


Helped = Callable[[Episode, ChatModel], ChatModel]
"""An episode's model made of the policy's view of it: the view itself, or one that leaves
some roles to somebody else.
"""


def alone(_: Episode, policy: ChatModel) -> ChatModel:
    """The policy speaks in every role."""
    return policy


@dataclass(kw_only=True)
class Collector:
    """Plays episodes with one agent whose model is the policy."""

    agent: AsyncAgent
    policy: PolicyModel
    plan: RolloutPlan
    helped: Helped = alone
    """Who speaks for the policy where it does not speak itself."""
    spread: SessionSpread = field(default_factory=SessionSpread)
    history: SuccessHistory = field(default_factory=SuccessHistory)
    """Success of sessions and questions in earlier steps; what allocators may look at."""

    async def collect(self, episodes: Sequence[Episode], *, step: int) -> list[RolloutGroup]:
        """One group an episode, all at once.

        Failures are recorded where they happened; siblings go on.
        """
        with rare_collections():
            return list(await asyncio.gather(*(self._group(episode, step) for episode in episodes)))

    async def _group(self, episode: Episode, step: int) -> RolloutGroup:
        plan = self.plan
        if plan.sessions is not None:
            episode = truncate(episode, plan.sessions)
        anchors = draw_anchors(
            seed=plan.seed,
            step=step,
            episode_id=episode.id,
            sessions=len(episode.sessions),
            members=plan.members,
            probability=min(1.0, plan.local_probability * plan.allocator.pool),
            selector=plan.selector,
            spread=self.spread,
        )
        places = sorted(anchors)
        numbers = plan.allocator.plan(
            [session_name(episode, place) for place in places],
            each=plan.reruns,
            history=self.history,
            draws=random.Random(f"{plan.seed}/{step}/{episode.id}/reruns"),
        )
        counts = {place: number for place, number in zip(places, numbers, strict=True) if number}
        begun: dict[int, tuple[MemorySnapshot, list[asyncio.Task[Rerun]]]] = {}

        def rerun_from(member: int, place: int, memory: MemorySnapshot) -> None:
            if place in counts and anchors[place] == member:
                keys = [f"{step}/{episode.id}/s{place}/{number}" for number in range(counts[place])]
                begun[place] = (
                    memory,
                    [self._start(self._rerun(episode, place, memory, key)) for key in keys],
                )

        rollouts = await asyncio.gather(
            *(
                self._start(
                    self._rollout(episode, f"{step}/{episode.id}/{member}", member, rerun_from)
                )
                for member in range(plan.members)
            )
        )
        local: list[LocalRuns] = []
        for place, (memory, tasks) in sorted(begun.items()):
            reruns = tuple(await asyncio.gather(*tasks))
            local.append(
                LocalRuns(session=place, member=anchors[place], start=memory, reruns=reruns)
            )
        group = RolloutGroup(
            episode=episode,
            step=step,
            version=self.policy.version,
            rollouts=tuple(rollouts),
            locals=tuple(local),
        )
        check_shared_starts(group)
        return group

    async def rerun(
        self, group: RolloutGroup, place: int, memory: MemorySnapshot, numbers: Iterable[int]
    ) -> tuple[Rerun, ...]:
        """Reruns of a session by their numbers, after the rollouts; a number says what
        it would have said beside them.
        """
        keys = [f"{group.key}/s{place}/{number}" for number in numbers]
        return tuple(
            await self.together(self._rerun(group.episode, place, memory, key) for key in keys)
        )

    async def together(self, runs: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
        """What the runs give; their model calls form common batches."""
        return list(await asyncio.gather(*[self._start(run) for run in runs]))

    def _start(self, run: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """The run as a task that takes part in batches from this moment on, so that no
        batch leaves without it.
        """
        party = self.policy.party()
        party.__enter__()

        async def taking_part() -> T:
            try:
                return await run
            finally:
                party.__exit__(None, None, None)

        return asyncio.get_running_loop().create_task(taking_part())

    async def _rollout(self, episode: Episode, key: str, member: int, rerun_from: Any) -> Rollout:
        policy = self.policy.bound(key)
        agent = self.agent.at(EMPTY).with_model(self.helped(episode, policy))
        trajectory = await play(
            agent,
            episode,
            ask=False,
            before_session=lambda place, memory: rerun_from(member, place, memory),
        )
        return Rollout(trajectory=trajectory, calls=tuple(policy.calls))

    async def _rerun(self, episode: Episode, place: int, memory: MemorySnapshot, key: str) -> Rerun:
        policy = self.policy.bound(key)
        try:
            agent = self.agent.with_model(self.helped(episode, policy))
            trace = await replay_session(agent, episode, session=place, anchor=memory)
        except MemAgentError as error:
            return Rerun(
                trace=None, calls=tuple(policy.calls), failure=f"{type(error).__name__}: {error}"
            )
        failed = trace.report.failed_chunks
        failure = failed[0].failure if failed else None
        return Rerun(trace=None if failed else trace, calls=tuple(policy.calls), failure=failure)


def check_shared_starts(group: RolloutGroup) -> None:
    """Raise `TrainFault` unless every rerun began from its anchor's memory at that
    session, with the group's policy version.
    """
    for local in group.locals:
        trajectory = group.rollouts[local.member].trajectory
        if local.session < len(trajectory.traces):
            before = trajectory.traces[local.session].before
            if before.digest != local.start.digest:
                raise TrainFault(
                    f"session {local.session} of {group.episode.id!r} was rerun from another memory than member {local.member} had"
                )
        for rerun in local.reruns:
            if rerun.trace is not None and rerun.trace.before.digest != local.start.digest:
                raise TrainFault(
                    f"a rerun of session {local.session} of {group.episode.id!r} began from a changed memory"
                )
    calls = [call for rollout in group.rollouts for call in rollout.calls]
    calls += [call for local in group.locals for rerun in local.reruns for call in rerun.calls]
    versions = {
        call.response.tokens.policy_version for call in calls if call.response.tokens is not None
    }
    if versions - {group.version}:
        raise TrainFault(
            f"episode {group.episode.id!r} was played by policy versions {sorted(versions | {group.version})}"
        )


def session_name(episode: Episode, place: int) -> str:
    """What a session is called in the history."""
    return f"{episode.id}/{place}"
