"""The two players: `play` runs an episode, `replay_session` reruns one session.

A rerun starts from a recorded memory.

Both start from what they are given: `play` from the agent's own memory (give it
`agent.at(EMPTY)` for a fresh private one), a replay from a fork of the anchor, so that
any number of replays share one starting point. What fails is recorded on the
trajectory; nothing is raised to those who run beside it, except cancellation.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from time import perf_counter
from typing import Protocol

from environments.errors import EnvironmentFault
from environments.records import Episode, Probe, ProbeAnswer, SessionTrace, Trajectory
from memagent.core.answers import Answer, Question
from memagent.core.errors import MemAgentError, ModelError, boundary
from memagent.core.records import Session
from memagent.core.snapshot import IngestReport, MemorySnapshot

DEFAULT_K = 30
"""Hits a probe asks for."""


class MemoryAgent(Protocol):
    """An agent that can be played.

    It is an `AsyncAgent`, or anything that remembers, answers and can be forked.
    """

    async def remember(self, session: Session, /) -> IngestReport:
        """Hear a session."""
        ...

    async def ask(self, question: Question, /) -> Answer:
        """Answer a question."""
        ...

    def snapshot(self) -> MemorySnapshot:
        """Return the memory as it is."""
        ...

    def at(self, snapshot: MemorySnapshot, /) -> MemoryAgent:
        """Return the same agent on a private memory that starts from a snapshot."""
        ...


async def play(
    agent: MemoryAgent,
    episode: Episode,
    *,
    ask: bool = True,
    k: int = DEFAULT_K,
    before_session: Callable[[int, MemorySnapshot], None] | None = None,
    by_request: bool = False,
) -> Trajectory:
    """Let the agent hear the sessions and, with `ask`, answer each probe when it is due.

    `truncate` makes an episode of fewer sessions.

    A session that fails, or of which a chunk could not be processed, ends the rollout
    with its `failure`; a probe that fails is one failed answer and the others go on.
    With `by_request` a failed chunk does not end the rollout: the report of its session
    tells. Errors other than those of a model are raised then.
    `before_session` is told each session's place and the memory it begins with, right
    before it is heard, so that replays from that memory can start while this rollout
    goes on.
    """
    start = agent.snapshot()
    traces: list[SessionTrace] = []
    answers: list[ProbeAnswer] = []
    failure: str | None = None
    recorded = ModelError if by_request else MemAgentError
    for number, session in enumerate(episode.sessions, start=1):
        if before_session is not None:
            before_session(number - 1, agent.snapshot())
        try:
            trace = await _hear(agent, session)
        except recorded as error:
            failure = f"session {session.id}: {type(error).__name__}: {error}"
            break
        traces.append(trace)
        if trace.report.failed_chunks and not by_request:
            failure = f"session {session.id}: {trace.report.failed_chunks[0].failure}"
            break
        if ask:
            answers += await _ask_due(
                agent, episode, session, last=number == len(episode.sessions), k=k
            )
    return Trajectory(
        episode_id=episode.id,
        start=start,
        traces=tuple(traces),
        answers=tuple(answers),
        failure=failure,
    )


async def replay_session(
    agent: MemoryAgent, episode: Episode, *, session: int, anchor: MemorySnapshot
) -> SessionTrace:
    """Remember session number `session` (from 0) once more.

    The private memory starts as the anchor. Raises `EnvironmentFault` for an anchor
    that has heard this session already or lacks one before it, and what `remember`
    raises.
    """
    if not 0 <= session < len(episode.sessions):
        raise EnvironmentFault(
            f"episode {episode.id!r} has sessions 0 to {len(episode.sessions) - 1}, not {session}"
        )
    chosen = episode.sessions[session]
    if chosen.id in anchor.sessions:
        raise EnvironmentFault(
            f"the anchor has heard session {chosen.id!r} already; give the memory from before it"
        )
    if lost := [
        earlier.id for earlier in episode.sessions[:session] if earlier.id not in anchor.sessions
    ]:
        raise EnvironmentFault(
            f"the anchor has not heard {', '.join(lost)}, which come before session {chosen.id!r}"
        )
    return await _hear(agent.at(anchor), chosen)


async def answer_probes(
    agent: MemoryAgent, episode: Episode, trajectory: Trajectory, *, k: int = DEFAULT_K
) -> tuple[ProbeAnswer, ...]:
    """Ask the probes of a trajectory that was played without asking.

    Each is asked on a fork of the memory that was there when it was due.
    """
    answers: list[ProbeAnswer] = []
    heard = {trace.session_id: trace for trace in trajectory.traces}
    played = [session for session in episode.sessions if session.id in heard]
    for number, session in enumerate(played, start=1):
        fork = agent.at(heard[session.id].after)
        answers += await _ask_due(fork, episode, session, last=number == len(played), k=k)
    return tuple(answers)


async def ask_probe(
    agent: MemoryAgent,
    probe: Probe,
    *,
    memory: MemorySnapshot,
    at: datetime | None,
    k: int = DEFAULT_K,
    recorded: type[MemAgentError] = MemAgentError,
) -> ProbeAnswer:
    """Return the answer to one probe from what the agent remembers, which is `memory`.

    A failure of the `recorded` kind is noted in the answer. `at` dates a probe without a
    date.
    """
    began = perf_counter()
    try:
        with boundary(EnvironmentFault, f"answering probe {probe.id!r}"):
            answer = await agent.ask(probe.as_question(at=at, k=k))
    except recorded as error:
        failure = f"{type(error).__name__}: {error}"
        return ProbeAnswer(
            probe_id=probe.id, memory=memory, failure=failure, seconds=perf_counter() - began
        )
    return ProbeAnswer(
        probe_id=probe.id, memory=memory, answer=answer, seconds=perf_counter() - began
    )


async def _hear(agent: MemoryAgent, session: Session) -> SessionTrace:
    before, began = agent.snapshot(), perf_counter()
    with boundary(EnvironmentFault, f"remembering session {session.id!r}"):
        try:
            report = await agent.remember(session)
        except ModelError as error:
            if error.report is None:
                raise
            report = error.report
    return SessionTrace(
        session_id=session.id,
        report=report,
        before=before,
        after=agent.snapshot(),
        seconds=perf_counter() - began,
    )


async def _ask_due(
    agent: MemoryAgent, episode: Episode, session: Session, *, last: bool, k: int
) -> list[ProbeAnswer]:
    """Return answers to the probes due after this session.

    Probes without a session of their own are due after the last.
    """
    at = max(
        (heard.at for heard in episode.sessions[: _place(episode, session) + 1] if heard.at),
        default=None,
    )
    memory = agent.snapshot()
    return [
        await ask_probe(agent, probe, memory=memory, at=at, k=k)
        for probe in episode.probes
        if probe.after_session == session.id or (last and probe.after_session is None)
    ]


def _place(episode: Episode, session: Session) -> int:
    return next(place for place, other in enumerate(episode.sessions) if other.id == session.id)
