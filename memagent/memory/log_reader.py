"""One scope's state, replayed from its log.

Every read first replays what other writers appended. Where words that were read have
been erased since, reading begins again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Final

from rpds import HashTrieSet
from rpds import List as PersistentList

from memagent.core.errors import (
    MemoryNotFound,
    StoreError,
    WrongLoop,
)
from memagent.core.long_work import Slices, aside, is_large, let_go, rare_collections
from memagent.core.records import MemoryItem, Relation, Scope, Session, Turn
from memagent.core.snapshot import Entry, JournalRow, Redacted
from memagent.protocols import Clock, Journal
from memagent.state.adjacency import Path
from memagent.state.fold import EMPTY_STATE, BankState, apply, changed_items

_PASSES = 8
"""Most passes over the journal in one `sync`; a further one follows an erasure of words."""
_FIRST_ROWS: Final = 8
"""Further entries that every task replays for itself."""
_REST: Final = 256
"""Entries from which on the garbage collector rests while they are replayed."""
_KEPT: Final = 16
"""Recent states of a large memory that are kept, for a look at the past and for undo."""
NOTHING: HashTrieSet[str] = HashTrieSet()


def system_clock() -> datetime:
    """Return the present moment in UTC."""
    return datetime.now(UTC)


class LogReader:
    """A scope's state, kept level with its journal; a private log without one."""

    __slots__ = (
        "_base",
        "_clock",
        "_journal",
        "_kept",
        "_lock",
        "_log",
        "_loop",
        "_origin",
        "_pending",
        "_reading",
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
        self._base = self._origin = self._state = EMPTY_STATE
        self._pending = NOTHING
        """Items that changed and that no search view has caught up with yet."""
        self._log: PersistentList[JournalRow] = PersistentList()
        self._kept: tuple[BankState, ...] = ()
        """States right before recent entries, where replaying all would take long."""
        self._lock: asyncio.Lock | None = None
        self._reading: asyncio.Lock | None = None
        """Held by the one task that replays many entries; the others wait for its work."""
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
        journal = self._journal
        if journal is None:
            for row in reversed(list(self._log)) if self._log and self._behind() else ():
                self._advance(row)
            return self._state
        head = await journal.head(self.scope)
        if head <= self._state.seq:
            return self._state
        if head <= self._state.seq + _FIRST_ROWS:
            await self._replay(journal, head)
            return self._state
        if self._reading is None:
            self._reading = asyncio.Lock()
        async with self._reading:
            await self._replay(journal, head)
        return self._state

    async def _replay(self, journal: Journal, head: int) -> None:
        """Replay what the journal has up to `head` at least."""
        for attempt in range(_PASSES):
            if head <= self._state.seq:
                return
            if not self._state.seq and not attempt:
                await self._begin()
            await self._catch_up(journal, head)
            head = await journal.head(self.scope)

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
        state = max(
            (kept for kept in (self._base, self._origin, *self._kept) if kept.seq <= seq),
            key=lambda kept: kept.seq,
        )
        slices = Slices()
        async for row in self.rows(after=state.seq) if state.seq < seq else no_rows():
            if row.seq > seq:
                break
            state = await applied(state, row)
            await slices.rest()
        return state

    # -- replaying ---------------------------------------------------------------------

    def _advance(self, row: JournalRow, *, keep: bool = True) -> None:
        known = self._state.seq
        if row.seq <= known or (row.seq != known + 1 and row.entry.kind != "erased"):
            return  # another reader was first, or began again
        self._take(apply(self._state, row), row.entry, keep=keep)

    async def _follow(self, row: JournalRow, *, keep: bool = True) -> None:
        """Advance by a row, and keep the state before it; a large one is applied in a thread."""
        while is_large((row.entry,)):
            state = self._state
            if row.seq != state.seq + 1:
                break
            after = await aside(apply, state, row)
            if self._state is state:
                self._take(after, row.entry, keep=keep)
                return
        self._advance(row, keep=keep)

    def _take(self, after: BankState, entry: Entry, *, keep: bool) -> None:
        """Go on from the state after an entry."""
        if keep and (self._state.seq >= _REST or len(self._state.items) >= _REST):
            self._kept = (*self._kept[1 - _KEPT :], self._state)
        before, self._state = self._state, after
        if entry.kind == "erased":
            self._drop(before)
        for item_id in changed_items(entry):
            self._pending = self._pending.insert(item_id)

    async def _catch_up(self, journal: Journal, head: int) -> None:
        """Replay what is new; begin again where words that were read are erased by now."""
        start, slices = self._state.seq, Slices()
        with rare_collections() if head > start + _REST else nullcontext():
            async for row in journal.since(self.scope, start):
                if isinstance(row.entry, Redacted) and _is_behind(row, start, head):
                    self._begin_again()
                    return
                await self._follow(row, keep=row.seq > head - _KEPT)
                await slices.rest()

    def _behind(self) -> bool:
        return next(iter(self._log)).seq > self._state.seq

    def _begin_again(self) -> None:
        """Drop everything read so far, because words in it were erased."""
        before, self._state = self._state, self._base
        self._pending = NOTHING
        self._drop(before)

    def _drop(self, before: BankState) -> None:
        """Drop earlier states and what was derived from them; they may say what is erased."""
        if len(before.items) >= _REST:
            let_go(before)
        self._kept = ()
        self._origin = self._base
        self._forget()

    async def _begin(self) -> None:
        """Start from something better than the empty state; for subclasses."""

    def _forget(self) -> None:
        """Drop what was derived from the entries before an erasure; for subclasses."""

    def _own_loop(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise WrongLoop(
                f"the memory of user {self.scope.user_id!r} belongs to another event loop; "
                "open one agent a loop, or use the synchronous Agent"
            )


async def applied(state: BankState, row: JournalRow) -> BankState:
    """Return the state after a row; a large one is applied in a thread."""
    return await aside(apply, state, row) if is_large((row.entry,)) else apply(state, row)


async def no_rows() -> AsyncIterator[JournalRow]:
    """Yield nothing."""
    return
    yield


def _is_behind(redacted: JournalRow, start: int, head: int) -> bool:
    """Tell whether rows read before a redaction say what it erased.

    `start` is the last row that was known when reading began, `head` the last there was.
    """
    assert isinstance(redacted.entry, Redacted)
    first = min((seq for seq, _ in redacted.entry.rewritten), default=redacted.seq)
    return redacted.seq > head or first <= start
