"""A past session of a real memory, heard once more: from the memory right before it,
with another model or design, or forced ops.

`past_session` finds in the journal what the memory was before and after a session;
`replay` reruns it by `replay_session`, on a private copy, and compares. A forced rerun
is the same agent with two other fillings of its design: an extractor that gives the
facts which the journal recorded for that session, and a manager that proposes what it
was told to. So it asks no model for what it remembers, and its ops pass the same
validation as any. The surprise: what can be forced is what the agent may do; an op that
validation refuses is reported, not carried out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, Protocol

from environments.errors import EnvironmentFault
from environments.play.rollout import DEFAULT_K, ask_probe, replay_session
from environments.records import Episode, Probe, ProbeAnswer
from memagent.async_agent import AsyncAgent, Proposal
from memagent.core.answers import AsOf, Citation
from memagent.core.ops import Add, MemoryOp, Noop, OpLimits, Rejected, Update
from memagent.core.records import Chunk, Fact, Moment, Record, Session, Text
from memagent.core.snapshot import (
    Commit,
    Erased,
    GraphDelta,
    JournalRow,
    MemorySnapshot,
    Restored,
    SessionStored,
    SnapshotDiff,
)

Forced = Literal["NOOP", "ADD"] | tuple[tuple[MemoryOp, ...], ...]
"""What every decision becomes, or the ops of each chunk in order (none for chunks beyond
the last).
"""


@dataclass(frozen=True, kw_only=True)
class PastSession:
    """A session of a memory's past, with the memory right before it and as it left it."""

    episode: Episode
    """All sessions up to this one, in the order heard; no probes."""
    agent: AsyncAgent
    """The agent on a read-only view of the memory before the session, its clock standing
    still there.
    """
    before: MemorySnapshot
    after: MemorySnapshot
    seq: int
    """Journal sequence of `before`."""
    commits: tuple[Commit, ...]
    """What the session's chunks did."""
    notes: tuple[str, ...] = ()
    """Why the comparison may mislead."""

    @property
    def session(self) -> Session:
        """The session itself."""
        return self.episode.sessions[-1]

    @property
    def number(self) -> int:
        """Its number in the order heard, from 1."""
        return len(self.episode.sessions)


class Reply(Record):
    """An answer, shortened to what is compared."""

    text: Text = ""
    verdict: Text = ""
    evidence: tuple[Citation, ...] = ()
    failure: Text | None = None


class Compared(Record):
    """One question, answered from the memory as it was left and as the rerun left it,
    by the same agent.
    """

    question: Text
    as_it_was: Reply
    replayed: Reply


class ReplayReport(Record):
    """What came of a rerun beside what came of the session."""

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
    """Why the rerun ended early."""
    notes: tuple[Text, ...] = ()


# -- finding the session ---------------------------------------------------------------


async def past_session(agent: AsyncAgent, which: str) -> PastSession:
    """The session of an id, or of a number from 1 in the order heard, in the agent's memory.

    Raises `EnvironmentFault` for a session that was never heard, or came with an import
    that does not tell how it was remembered.
    """
    rows = [row async for row in agent.bank.rows()]
    heard = _heard(rows)
    ids = [session.id for session, _ in heard]
    place = ids.index(which) if which in ids else int(which) - 1 if which.isdecimal() else -1
    if not 0 <= place < len(heard):
        known = f"this memory has heard {len(heard)}: {', '.join(ids[:5])}{', ...' if len(ids) > 5 else ''}"
        raise EnvironmentFault(
            f"no session {which!r}; {known if ids else 'this memory has heard none'}"
        )
    session, stored = heard[place]
    if stored is None:
        raise EnvironmentFault(
            f"session {session.id!r} came with a restored memory; the journal does not hold how it was remembered"
        )
    last, commits, notes = _own_rows(rows, session, stored)
    view = await agent.memory.as_of(AsOf(recorded=stored - 1))
    after = await agent.memory.as_of(AsOf(recorded=last))
    return PastSession(
        episode=Episode(
            id=f"past-{session.id}"[:256], sessions=tuple(one for one, _ in heard[: place + 1])
        ),
        agent=replace(agent, bank=view.bank),
        before=await view.snapshot(),
        after=await after.snapshot(),
        seq=stored - 1,
        commits=commits,
        notes=notes,
    )


def _heard(rows: Sequence[JournalRow]) -> list[tuple[Session, int | None]]:
    """Sessions in the order heard, each with the sequence of its row; None for those
    that a restored memory brought.
    """
    heard: dict[str, tuple[Session, int | None]] = {}
    for row in rows:
        if isinstance(row.entry, Erased):
            heard.clear()
        elif isinstance(row.entry, SessionStored):
            heard.setdefault(row.entry.session.id, (row.entry.session, row.seq))
        elif isinstance(row.entry, Restored):
            for session in row.entry.sessions:
                heard.setdefault(session.id, (session, None))
    return list(heard.values())


def _own_rows(
    rows: Sequence[JournalRow], session: Session, stored: int
) -> tuple[int, tuple[Commit, ...], tuple[str, ...]]:
    """The sequence of the last row that belongs to the session before anything else
    happened, its commits there, and notes.
    """
    last, commits, late, alone = stored, list[Commit](), 0, True
    for row in rows:
        entry = row.entry
        if row.seq <= stored:
            continue
        mine = (
            isinstance(entry, Commit)
            and entry.source.session_id == session.id
            and entry.undoes is None
        ) or (isinstance(entry, GraphDelta) and entry.session_id == session.id)
        if not mine:
            alone = False
        elif alone:
            last = row.seq
            commits += [entry] if isinstance(entry, Commit) else []
        elif isinstance(entry, Commit):
            late += 1
    notes = (
        [f"{late} chunks of the session were remembered after something else and are not compared"]
        if late
        else []
    )
    if not commits and not late:
        notes.append("nothing was ever remembered of the session but its turns")
    return last, tuple(commits), tuple(notes)


# -- forced ops ------------------------------------------------------------------------


class _About(Protocol):
    @property
    def fact(self) -> Fact: ...


class _Where(Protocol):
    @property
    def chunk(self) -> Chunk | None: ...


@dataclass(frozen=True, kw_only=True)
class RecordedFacts:
    """An extractor that asks nobody: the given facts, each in the chunk that holds the
    last turn it rests on.

    With `probe_only` it gives no fact of its own but the chunk's first words, to look
    memory up by where the ops are given anyway.
    """

    facts: tuple[Fact, ...]
    probe_only: bool = False

    async def __call__(self, chunk: Chunk, ctx: _Where, /) -> Proposal[Fact]:
        """Facts in their order."""
        if self.probe_only:
            said = [turn for turn in chunk.turns if turn.said.strip()][:1]
            return Proposal(
                values=tuple(
                    Fact(text=turn.said[:2_000], source_turn_ids=(turn.id,)) for turn in said
                )
            )
        return Proposal(
            values=tuple(
                one for one in self.facts if {*one.source_turn_ids[-1:]} & {*chunk.turn_ids}
            )
        )


@dataclass(frozen=True, kw_only=True)
class ForcedManager:
    """A manager that proposes what it was told to: one kind of op for every fact, or
    the ops of each chunk.
    """

    forced: Forced

    async def __call__(self, related: Sequence[_About], ctx: _Where, /) -> Proposal[MemoryOp]:
        """Ops in order of the facts, or as given."""
        if self.forced == "NOOP":
            return Proposal(
                values=tuple(Noop(fact=entry.fact, reason="forced") for entry in related)
            )
        if self.forced == "ADD":
            return Proposal(
                values=tuple(Add(fact=entry.fact, reason="forced") for entry in related)
            )
        place = ctx.chunk.index if ctx.chunk is not None else 0
        return Proposal(values=self.forced[place] if place < len(self.forced) else ())


def forced_agent(agent: AsyncAgent, past: PastSession, forced: Forced) -> AsyncAgent:
    """The agent with an extractor and a manager that make it decide as told in that session.

    For ops given one by one the whole memory counts as shown and every kind of op is
    allowed, so that any item may be changed.
    """
    design = agent.design
    given = isinstance(forced, tuple)
    if given:
        everything = len(past.before.items) + 64 * len(past.session.turns)
        relate = replace(
            design.relate, k=everything, min_cosine=-1.0, same_subject=False, cap=everything
        )
        design = replace(
            design,
            relate=relate,
            limits=design.limits.model_copy(update={"allow": OpLimits().allow}),
        )
    return replace(
        agent,
        design=replace(
            design,
            extractor=RecordedFacts(facts=recorded_facts(past), probe_only=given),
            manager=ForcedManager(forced=forced),
        ),
    )


def recorded_facts(past: PastSession) -> tuple[Fact, ...]:
    """The facts that the session's ops were about, in order; of an UPDATE the new text,
    of a DELETE nothing is recorded.
    """
    turns = {turn.id for turn in past.session.turns}
    facts: list[Fact] = []
    for op in (applied.op for commit in past.commits for applied in commit.ops):
        if isinstance(op, Add | Noop) and op.fact is not None:
            facts.append(op.fact)
        elif isinstance(op, Update):
            sources = tuple(one for one in op.source_turn_ids if one in turns)
            facts.append(Fact(text=op.text, source_turn_ids=sources, valid=op.valid))
    return tuple(facts)


# -- rerunning -------------------------------------------------------------------------


async def replay(
    past: PastSession,
    *,
    forced: Forced | None = None,
    questions: Sequence[str] = (),
    k: int = DEFAULT_K,
) -> ReplayReport:
    """Hear a past session once more from the same memory, and compare; nothing is ever
    written to the memory itself.

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
            f"ops are given for {len(forced)} chunks; design {agent.design.name!r} cuts the session into {len(chunks)}"
        )
    at = max((one.at for one in past.episode.sessions if one.at is not None), default=None)
    answers = [
        await _compared(past, question, number, trace.after, at, k)
        for number, question in enumerate(questions)
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
        rejected=tuple(one for chunk in chunks for one in chunk.rejected),
        difference=_untangled(await past.agent.memory.diff(past.after, trace.after), past.before),
        answers=tuple(answers),
        failure=failed[0].failure if failed else None,
        notes=past.notes,
    )


def _untangled(found: SnapshotDiff, before: MemorySnapshot) -> SnapshotDiff:
    """The difference with items that both runs made anew told apart: an id goes by
    place, so two different texts may bear the same.
    """
    other = [
        pair
        for pair in found.changed
        if pair[0].id not in before.items and pair[0].text != pair[1].text
    ]
    return found.model_copy(
        update={
            "added": (*found.added, *(new for _, new in other)),
            "removed": (*found.removed, *(old for old, _ in other)),
            "changed": tuple(pair for pair in found.changed if pair not in other),
        }
    )


async def _compared(
    past: PastSession,
    question: str,
    number: int,
    replayed: MemorySnapshot,
    at: datetime | None,
    k: int,
) -> Compared:
    probe = Probe(id=f"asked-{number + 1}", question=question)
    found = [
        _reply(await ask_probe(past.agent.at(memory), probe, memory=memory, at=at, k=k))
        for memory in (past.after, replayed)
    ]
    return Compared(question=question, as_it_was=found[0], replayed=found[1])


def _reply(answered: ProbeAnswer) -> Reply:
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
