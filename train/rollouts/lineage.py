"""Credit by chunk and by call, along the lineage of what a question asks for.

A question names the turns of its evidence, a turn lies in one chunk of its session, and a
fact names the turn that it was taken from. So a question about a chunk's turns says
something about the calls of that chunk, and nothing about those of another one. And a
manager that was not handed the evidence, since the extractor left it out, is not to
blame for its absence.

Rehearsed questions about earlier sessions count for every chunk: any of them may have
spoilt a memory. A chunk that no question is about has its session's reward.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from environments.records import Probe, ProbeScore
from memagent.core.records import Session
from memagent.core.reports import IngestReport
from memagent.memory.incoming import split_session
from train.sampling.policy import Call

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
