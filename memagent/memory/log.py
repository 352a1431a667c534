"""One scope's state and the log that it is written through.

A write is one journal append, then the fold; every read first replays what other
writers appended. Rules: one log belongs to one event loop (`WrongLoop`); its writes are
serial; an optimistic sequence number guards against other writers, and ops are checked
again against the state that they are really applied to.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from random import random

from rpds import HashTrieSet
from rpds import List as PersistentList

from memagent.core.crash_points import reach
from memagent.core.errors import (
    InputError,
    MemoryNotFound,
    StoreError,
    StoreReadOnly,
    VersionConflict,
    WrongLoop,
)
from memagent.core.ops import OpBatch
from memagent.core.records import ItemStats, MemoryItem, Relation, Scope, Session, SourceRef, Turn
from memagent.core.snapshot import (
    Commit,
    Entry,
    GraphDelta,
    JournalRow,
    SessionStored,
    StatsDelta,
    TurnsAdded,
)
from memagent.events.rules import checked_delta
from memagent.protocols import Clock, Journal
from memagent.state.adjacency import Path
from memagent.state.effects import plan_commit
from memagent.state.fold import EMPTY_STATE, BankState, apply, changed_items

_ATTEMPTS = 100
_PAUSE_S = 0.002
"""Longest first pause of a writer that came second; it doubles with each further defeat,
up to 32 times.
"""
NOTHING: HashTrieSet[str] = HashTrieSet()


def system_clock() -> datetime:
    """Return the present moment in UTC."""
    return datetime.now(UTC)


class MemoryLog:
    """A scope's state, kept level with its journal; a private log without one."""

    __slots__ = (
        "_base",
        "_clock",
        "_journal",
        "_lock",
        "_log",
        "_loop",
        "_pending",
        "_state",
        "read_only",
        "scope",
    )

    def __init__(
        self, scope: Scope, journal: Journal | None, *, clock: Clock, read_only: bool
    ) -> None:
        self.scope = scope
        self.read_only = read_only
        self._journal = journal
        self._clock = clock
        self._base = self._state = EMPTY_STATE
        self._pending = NOTHING
        """Items that changed and that no search view has caught up with yet."""
        self._log: PersistentList[JournalRow] = PersistentList()
        self._lock: asyncio.Lock | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    # -- reading -----------------------------------------------------------------------

    @property
    def state(self) -> BankState:
        """The state as last read or written; `await sync()` first for others' writes."""
        return self._state

    @property
    def base(self) -> BankState:
        """The state that this log begins from: empty, unless it is a fork's."""
        return self._base

    def now(self) -> datetime:
        """Return the present moment; in a view of the past, that moment."""
        return self._clock()

    async def sync(self) -> BankState:
        """Replay the entries appended since the last call.

        Raises `WrongLoop` from a foreign event loop.
        """
        self._own_loop()
        if self._journal is not None and await self._journal.head(self.scope) > self._state.seq:
            if not self._state.seq:
                await self._begin()
            async for row in self._journal.since(self.scope, self._state.seq):
                self._advance(row)
        return self._state

    async def get(self, item_id: str) -> MemoryItem:
        """Return the present version of an item.

        Raises `MemoryNotFound` for unknown, deleted and expired ones.
        """
        item = (await self.sync()).items.get(item_id)
        if item is None or not item.active or item.expired(self._clock()):
            raise MemoryNotFound(f"no memory {item_id!r} for user {self.scope.user_id!r}")
        return item

    def turn(self, turn_id: str) -> Turn | None:
        """Return a stored turn, or None."""
        return self._state.turn(turn_id)

    def turn_with_session(self, turn_id: str) -> tuple[Turn, Session] | None:
        """Return a stored turn with its session, or None."""
        place = self._state.turns.get(turn_id)
        if place is None:
            return None
        session = self._state.sessions[place[0]]
        return session.turns[place[1]], session

    def walk(
        self,
        seeds: Sequence[str],
        *,
        hops: int,
        relations: frozenset[Relation] | None = None,
        limit: int | None = None,
    ) -> list[tuple[str, Path]]:
        """Return graph nodes within `hops` of the seeds, nearest first, with their paths."""
        return self._state.graph.walk(seeds, hops=hops, relations=relations, limit=limit)

    def rows(self, *, after: int = 0) -> AsyncIterator[JournalRow]:
        """Return the journal rows after a sequence, oldest first.

        A fork has the rows written since it began.
        """
        if self._journal is not None:
            return self._journal.since(self.scope, after)
        return self._own_rows(after)

    async def _own_rows(self, after: int) -> AsyncIterator[JournalRow]:
        for row in reversed(list(self._log)):
            if row.seq > after:
                yield row

    async def state_at(self, seq: int) -> BankState:
        """Return the state right after journal entry `seq`.

        Raises `StoreError` for a time before a fork began.
        """
        await self.sync()
        if seq < self._base.seq:
            raise StoreError(
                f"this fork began at sequence {self._base.seq}; it cannot show sequence {seq}"
            )
        if seq >= self._state.seq:
            return self._state
        state = self._base
        async for row in self.rows(after=self._base.seq):
            if row.seq > seq:
                break
            state = apply(state, row)
        return state

    # -- writing -----------------------------------------------------------------------

    async def store_session(self, session: Session) -> bool:
        """Journal a session's raw turns; False when the same session is stored already.

        Of a stored session that begins with the same turns, only the further ones are
        journalled. Raises `InputError` on a clash of ids.
        """
        return await self.append(lambda state: _session_entry(state, session)) is not None

    async def commit(self, batch: OpBatch, *, source: SourceRef) -> Commit:
        """Carry out a batch in one journal append; `rejected` has the ops that no longer fit."""
        row = await self.append(
            lambda state: plan_commit(state, batch, source=source, commit_id=f"c{state.seq + 1}")
        )
        assert row is not None and isinstance(row.entry, Commit)
        return row.entry

    async def index(self, delta: GraphDelta) -> GraphDelta:
        """Journal a design's additions to the event graph.

        Edges that break a rule are left out, with the reason in `rejected`.
        """
        row = await self.append(lambda state: _delta_entry(state, delta))
        return row.entry if row is not None and isinstance(row.entry, GraphDelta) else GraphDelta()

    async def learn(self, updates: Sequence[tuple[str, ItemStats]]) -> None:
        """Journal item statistics; the only way they change."""
        known = tuple(
            (item_id, stats) for item_id, stats in updates if item_id in self._state.items
        )
        if known:
            await self.append(lambda _: StatsDelta(updates=known))

    async def append(self, make: Callable[[BankState], Entry | None]) -> JournalRow | None:
        """Append the entry that `make` gives for the present state; None writes nothing.

        `make` is called again when another writer was first.
        """
        self._check_writable()
        self._own_loop()
        if self._lock is None:
            self._lock = asyncio.Lock()
        async with self._lock:
            for attempt in range(1, _ATTEMPTS + 1):
                state = await self.sync()
                entry = make(state)
                if entry is None:
                    return None
                reach("bank.planned")
                try:
                    row = await self._write(entry, state.seq)
                except VersionConflict:
                    if attempt == _ATTEMPTS:
                        raise
                    # let the others through
                    await asyncio.sleep(random() * _PAUSE_S * 2 ** min(attempt - 1, 5))
                    continue
                reach("bank.appended")
                self._advance(row)
                return row
        return None

    async def replay(self, rows: Sequence[JournalRow]) -> None:
        """Append rows of an export with their dates, all or nothing.

        Raises `VersionConflict` when another writer was first.
        """
        self._check_writable()
        state = await self.sync()
        entries, dates = [row.entry for row in rows], [row.recorded_at for row in rows]
        if self._journal is not None:
            written = await self._journal.append_many(
                self.scope, entries, expect=state.seq, recorded_at=dates
            )
        else:
            written = [
                row.model_copy(update={"seq": state.seq + i}) for i, row in enumerate(rows, 1)
            ]
            for row in written:
                self._log = self._log.push_front(row)
        for row in written:
            self._advance(row)

    async def _write(self, entry: Entry, seq: int) -> JournalRow:
        if self._journal is not None:
            return await self._journal.append(self.scope, entry, expect=seq)
        row = JournalRow(seq=seq + 1, recorded_at=self._clock(), entry=entry)
        self._log = self._log.push_front(row)
        return row

    def _advance(self, row: JournalRow) -> None:
        if row.seq <= self._state.seq:
            return
        self._state = apply(self._state, row)
        if row.entry.kind == "erased":
            self._forget()
        for item_id in changed_items(row.entry):
            self._pending = self._pending.insert(item_id)

    async def _begin(self) -> None:
        """Start from something better than the empty state; for subclasses."""

    def _forget(self) -> None:
        """Drop what was derived from the entries before an erasure; for subclasses."""

    def _check_writable(self) -> None:
        if self.read_only:
            raise StoreReadOnly(
                f"the memory of user {self.scope.user_id!r} is open for reading only"
            )

    def _own_loop(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise WrongLoop(
                f"the memory of user {self.scope.user_id!r} belongs to another event loop; "
                "open one agent a loop, or use the synchronous Agent"
            )


def _delta_entry(state: BankState, delta: GraphDelta) -> GraphDelta | None:
    checked = checked_delta(state.graph, delta)
    return None if checked.empty and not checked.rejected else checked


def _session_entry(state: BankState, session: Session) -> SessionStored | TurnsAdded | None:
    known = state.sessions.get(session.id)
    if known is None:
        _refuse_taken(state, session.id, session.turns)
        return SessionStored(session=session)
    size = len(known.turns)
    if (known.at, known.turns) != (session.at, session.turns[:size]):
        raise InputError(
            f"session {session.id!r} is stored already with other content; "
            f"give the new one another id (it has {len(session.turns)} turns, "
            f"the stored one {size})"
        )
    if len(session.turns) == size:
        return None
    _refuse_taken(state, session.id, session.turns[size:])
    return TurnsAdded(session_id=session.id, turns=session.turns[size:])


def _refuse_taken(state: BankState, session_id: str, turns: Sequence[Turn]) -> None:
    """Raise `InputError` for a turn id that a stored turn has."""
    for turn in turns:
        if turn.id in state.turns:
            raise InputError(
                f"turn id {turn.id!r} of session {session_id!r} is taken by session "
                f"{state.turns[turn.id][0]!r}; turn ids must be unique"
            )
