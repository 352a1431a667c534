"""Scores of a group's members on the same questions.

A question that failed for any member counts for none.

A call that fails is tried again; if it keeps failing the question leaves the whole
group, because a score over other questions is not comparable. It never counts as a
wrong answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypedDict, Unpack, runtime_checkable

from environments.errors import EnvironmentFault
from environments.play.rollout import DEFAULT_K, MemoryAgent, ask_probe
from environments.records import Episode, Probe, ProbeAnswer, ProbeScore
from environments.rewards.scoring import Scoring
from memagent.core.answers import Answer, Question
from memagent.core.errors import MemAgentError
from memagent.core.snapshot import MemorySnapshot


@dataclass(frozen=True, kw_only=True)
class GroupScore:
    """G members' scores over the same Q questions."""

    members: tuple[tuple[ProbeScore, ...], ...]
    """(G, Q): members in the order given, each over the same probes in the same order."""
    excluded: Mapping[str, str]
    """The reason why a question is left out, by probe id."""


class GroupOptions(TypedDict, total=False):
    """Options of `score_group`."""

    scoring: Scoring | None
    """The default scoring when None."""
    attempts: int
    """Most attempts of a call that fails; 2 by default."""
    k: int
    """Hits shown to the answerer; `DEFAULT_K` by default."""
    recorded: type[MemAgentError]
    """Errors that fail a question; others are raised. All of memagent's by default."""


async def score_group(
    agent: MemoryAgent,
    episode: Episode,
    memories: Sequence[MemorySnapshot],
    probes: Sequence[Probe],
    **options: Unpack[GroupOptions],
) -> GroupScore:
    """Ask the probes of every memory through one answering agent and score the answers.

    Each is asked on a fork, at its own date or that of the last session any of them has
    heard. An agent with `ask_many` answers all questions to a memory at once. Give one
    from `with_answer_cache` to pay once for what several memories show alike, and wrap
    its model to bound how many calls run together. Raises `EnvironmentFault` for a probe
    of another episode.
    """
    known = {probe.id for probe in episode.probes}
    if foreign := [probe.id for probe in probes if probe.id not in known]:
        raise EnvironmentFault(f"episode {episode.id!r} has no probe {', '.join(foreign)}")
    heard = {session.id: session.at for memory in memories for session in memory.sessions.values()}
    at = max((date for date in heard.values() if date is not None), default=None)
    rows = await asyncio.gather(
        *(_answers(agent, probes, memory, at, options) for memory in memories)
    )
    answers = [answer for row in rows for answer in row]
    failed: dict[str, str] = {}
    for answer in answers:
        if answer.failure is not None:
            failed.setdefault(answer.probe_id, answer.failure)
    scoring = options.get("scoring") or Scoring()
    return GroupScore(
        members=tuple(
            scoring.score_answers(
                episode, [answer for answer in row if answer.probe_id not in failed]
            )
            for row in rows
        ),
        excluded=failed,
    )


@runtime_checkable
class BatchAnswerer(Protocol):
    """An agent that answers several questions with one search of its memory."""

    async def ask_many(self, questions: Sequence[Question], /) -> list[Answer]:
        """Return the answers in order."""
        ...


async def _answers(
    agent: MemoryAgent,
    probes: Sequence[Probe],
    memory: MemorySnapshot,
    at: datetime | None,
    options: GroupOptions,
) -> Sequence[ProbeAnswer]:
    """Return a memory's answers to the probes, from one search if the agent can."""
    fork = agent.at(memory)
    if not isinstance(fork, BatchAnswerer):
        return await asyncio.gather(*(_ask(agent, probe, memory, at, options) for probe in probes))
    k = options.get("k", DEFAULT_K)
    answers = await fork.ask_many([probe.as_question(at=at, k=k) for probe in probes])
    return [
        ProbeAnswer(probe_id=probe.id, memory=memory, answer=answer)
        for probe, answer in zip(probes, answers, strict=True)
    ]


async def _ask(
    agent: MemoryAgent,
    probe: Probe,
    memory: MemorySnapshot,
    at: datetime | None,
    options: GroupOptions,
) -> ProbeAnswer:
    async def answer_now() -> ProbeAnswer:
        k, recorded = options.get("k", DEFAULT_K), options.get("recorded", MemAgentError)
        return await ask_probe(
            agent.at(memory), probe, memory=memory, at=at, k=k, recorded=recorded
        )

    answer = await answer_now()
    for _ in range(options.get("attempts", 2) - 1):
        if answer.failure is None:
            break
        answer = await answer_now()
    return answer
