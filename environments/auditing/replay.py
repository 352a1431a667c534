"""A past session of a real memory, remembered once more.

`replay` reruns a `PastSession` by `replay_session` on a private copy of the memory right
before it, with another model or design, or with forced ops, and compares.
"""

from __future__ import annotations

from collections.abc import Sequence

from environments.auditing.forcing import Forced, forced_agent
from environments.auditing.past_session import PastSession
from environments.errors import EnvironmentFault
from environments.play.rollout import DEFAULT_K, ask_probe, replay_session
from environments.records import Probe
from memagent.core.answers import Citation
from memagent.core.ops import Rejected
from memagent.core.records import Moment, Record, Text
from memagent.core.snapshot import Commit, MemorySnapshot, SnapshotDiff


class Reply(Record):
    """The compared parts of an answer."""

    text: Text = ""
    verdict: Text = ""
    evidence: tuple[Citation, ...] = ()
    failure: Text | None = None


class Compared(Record):
    """One question, answered by the same agent from both memories."""

    question: Text
    as_it_was: Reply
    replayed: Reply


class ReplayReport(Record):
    """The outcome of a rerun beside that of the session."""

    session_id: Text
    number: int
    """Of the session in the order heard, from 1."""
    at: Moment | None
    seq: int
    """Journal sequence of the memory that both began with."""
    design: Text
    forced: bool
    ops_as_it_was: dict[str, int]
    ops_replayed: dict[str, int]
    rejected: tuple[Rejected, ...] = ()
    """Ops of the rerun that were not carried out."""
    difference: SnapshotDiff
    """From the memory as the session left it to the memory as the rerun left it."""
    answers: tuple[Compared, ...] = ()
    failure: Text | None = None
    """The reason why the rerun ended early."""
    notes: tuple[Text, ...] = ()


async def replay(
    past: PastSession,
    *,
    forced: Forced | None = None,
    questions: Sequence[str] = (),
    k: int = DEFAULT_K,
) -> ReplayReport:
    """Remember a past session once more from the same memory, and compare.

    Nothing is written to the memory itself.

    The agent is that of `past`: its model and design may be others than those that
    heard the session first. `questions` are asked of it on both memories, at the
    session's date. Raises `EnvironmentFault` for ops given for more chunks than the
    session has, and what `remember` raises; a chunk that a model failed on is the
    report's `failure`.
    """
    agent = past.agent if forced is None else forced_agent(past.agent, past, forced)
    trace = await replay_session(agent, past.episode, session=past.number - 1, anchor=past.before)
    chunks = trace.report.chunks
    if isinstance(forced, tuple) and len(forced) > len(chunks):
        raise EnvironmentFault(
            f"ops are given for {len(forced)} chunks; design {agent.design.name!r} cuts the "
            f"session into {len(chunks)}"
        )
    probes = [
        Probe(id=f"asked-{number}", question=question)
        for number, question in enumerate(questions, start=1)
    ]
    answers = [
        Compared(
            question=probe.question,
            as_it_was=await _ask(past, probe, past.after, k),
            replayed=await _ask(past, probe, trace.after, k),
        )
        for probe in probes
    ]
    failed = trace.report.failed_chunks
    return ReplayReport(
        session_id=past.session.id,
        number=past.number,
        at=past.session.at,
        seq=past.seq,
        design=agent.design.name,
        forced=forced is not None,
        ops_as_it_was=_op_counts(past.commits),
        ops_replayed=trace.report.op_counts,
        rejected=tuple(rejected for chunk in chunks for rejected in chunk.rejected),
        difference=_separate_new(
            await past.agent.memory.diff(past.after, trace.after), past.before
        ),
        answers=tuple(answers),
        failure=failed[0].failure if failed else None,
        notes=past.notes,
    )


def _separate_new(diff: SnapshotDiff, before: MemorySnapshot) -> SnapshotDiff:
    """Return the difference with different new items of both runs as two items.

    An id goes by place, so two different texts may have the same one.
    """
    distinct = [
        pair
        for pair in diff.changed
        if pair[0].id not in before.items and pair[0].text != pair[1].text
    ]
    return diff.model_copy(
        update={
            "added": (*diff.added, *(new for _, new in distinct)),
            "removed": (*diff.removed, *(old for old, _ in distinct)),
            "changed": tuple(pair for pair in diff.changed if pair not in distinct),
        }
    )


async def _ask(past: PastSession, probe: Probe, memory: MemorySnapshot, k: int) -> Reply:
    dates = [session.at for session in past.episode.sessions if session.at is not None]
    at = max(dates, default=None)
    answered = await ask_probe(past.agent.at(memory), probe, memory=memory, at=at, k=k)
    answer = answered.answer
    if answer is None:
        return Reply(failure=answered.failure)
    return Reply(text=answer.text, verdict=answer.verdict.value, evidence=answer.citations)


def _op_counts(commits: Sequence[Commit]) -> dict[str, int]:
    counts = {"ADD": 0, "UPDATE": 0, "DELETE": 0, "NOOP": 0, "REJECTED": 0}
    for commit in commits:
        for applied in commit.ops:
            counts[applied.op.op] += 1
        counts["REJECTED"] += len(commit.rejected)
    return counts
