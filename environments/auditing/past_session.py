"""A session of a memory's past, found in the journal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from environments.errors import EnvironmentFault
from environments.records import Episode
from memagent.async_agent import AsyncAgent
from memagent.core.answers import AsOf
from memagent.core.records import Session
from memagent.core.snapshot import (
    Commit,
    Erased,
    GraphDelta,
    JournalRow,
    MemorySnapshot,
    Restored,
    SessionStored,
    TurnsAdded,
)


@dataclass(frozen=True, kw_only=True)
class PastSession:
    """A session of a memory's past, with the memory right before and right after it."""

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
    """The commits of the session's chunks."""
    notes: tuple[str, ...] = ()
    """Reasons why the comparison may mislead."""

    @property
    def session(self) -> Session:
        """The session itself."""
        return self.episode.sessions[-1]

    @property
    def number(self) -> int:
        """Its number in the order heard, from 1."""
        return len(self.episode.sessions)


async def past_session(agent: AsyncAgent, which: str) -> PastSession:
    """Find the session of an id, or of a number from 1 in the order heard.

    Raises `EnvironmentFault` for a session that was never heard, or came with an import
    that does not tell how it was remembered.
    """
    rows = [row async for row in agent.bank.rows()]
    heard = _heard(rows)
    ids = [session.id for session, _ in heard]
    place = ids.index(which) if which in ids else int(which) - 1 if which.isdecimal() else -1
    if not 0 <= place < len(heard):
        first = ", ".join([*ids[:5], *(["..."] if len(ids) > 5 else [])])
        known = f"this memory has heard {len(heard)}: {first}"
        raise EnvironmentFault(
            f"no session {which!r}; {known if ids else 'this memory has heard none'}"
        )
    session, stored = heard[place]
    if stored is None:
        raise EnvironmentFault(
            f"session {session.id!r} came with a restored memory; the journal does not hold how "
            "it was remembered"
        )
    last, commits, notes = _own_rows(rows, session, stored)
    view = await agent.memory.as_of(AsOf(recorded=stored - 1))
    after = await agent.memory.as_of(AsOf(recorded=last))
    return PastSession(
        episode=Episode(
            id=f"past-{session.id}"[:256],
            sessions=tuple(session for session, _ in heard[: place + 1]),
        ),
        agent=replace(agent, bank=view.bank),
        before=await view.snapshot(),
        after=await after.snapshot(),
        seq=stored - 1,
        commits=commits,
        notes=notes,
    )


def _heard(rows: Sequence[JournalRow]) -> list[tuple[Session, int | None]]:
    """Return the sessions in the order heard, each with the sequence of its row.

    Sessions of a restored memory have None.
    """
    heard: dict[str, tuple[Session, int | None]] = {}
    for row in rows:
        if isinstance(row.entry, Erased):
            heard.clear()
        elif isinstance(row.entry, SessionStored):
            heard.setdefault(row.entry.session.id, (row.entry.session, row.seq))
        elif isinstance(row.entry, TurnsAdded) and row.entry.session_id in heard:
            session, seq = heard[row.entry.session_id]
            grown = (*session.turns, *row.entry.turns)
            heard[session.id] = (session.model_copy(update={"turns": grown}), seq)
        elif isinstance(row.entry, Restored):
            for session in row.entry.sessions:
                heard.setdefault(session.id, (session, None))
    return list(heard.values())


def _own_rows(
    rows: Sequence[JournalRow], session: Session, stored: int
) -> tuple[int, tuple[Commit, ...], tuple[str, ...]]:
    """Return the session's last sequence before anything else happened.

    With it come the session's commits until there, and notes.
    """
    last, commits, late, alone = stored, list[Commit](), 0, True
    for row in rows:
        entry = row.entry
        if row.seq <= stored:
            continue
        if not _belongs(entry, session):
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


def _belongs(entry: object, session: Session) -> bool:
    """Whether a journal entry is part of remembering the session."""
    if isinstance(entry, Commit):
        return entry.source.session_id == session.id and entry.undoes is None
    return isinstance(entry, GraphDelta | TurnsAdded) and entry.session_id == session.id
