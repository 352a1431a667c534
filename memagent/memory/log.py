"""The log of one scope's memory: its state, replayed from the journal and written through it.

Every read first replays what other writers appended; where words that were read have
been erased since, reading begins again. A write is one journal append, then the fold.
Rules: one log belongs to one event loop (`WrongLoop`); its writes are serial; an
optimistic sequence number guards against other writers, and ops are checked again
against the state that they are really applied to. A `View` hears of every state.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from functools import partial
from random import random
from typing import Final

from rpds import List as PersistentList

from memagent.core.crash_points import reach
from memagent.core.errors import StoreError, StoreReadOnly, VersionConflict, WrongLoop
from memagent.core.long_work import Slices, aside, is_large, let_go, rare_collections
from memagent.core.records import Scope
from memagent.core.snapshot import Entry, JournalRow, Redacted
from memagent.memory.view import View
from memagent.protocols import Clock, Journal
from memagent.state.fold import EMPTY_STATE, BankState, apply, changed_items

# Most passes over the journal in one `sync`; a further one follows an erasure of words.
_PASSES: Final = 8
# Further entries that every task replays for itself.
_FIRST_ROWS: Final = 8
# Entries from which on the garbage collector rests while they are replayed.
_REST: Final = 256
# Recent states of a large memory that are kept, for a look at the past and for undo.
_KEPT: Final = 16
_ATTEMPTS: Final = 100
# Longest first pause of a writer that came second; it doubles with each further defeat, up to
# 32 times.
_PAUSE_S: Final = 0.002


system_clock: Final = partial(datetime.now, UTC)
"""Returns the present moment in UTC."""


class _PrivateRows:
    """The rows of a log without a journal, newest first."""

    __slots__ = ("_base", "_clock", "_rows")

    def __init__(self, base: int, clock: Clock) -> None:
        self._base, self._clock = base, clock
        self._rows: PersistentList[JournalRow] = PersistentList()

    async def head(self, _: Scope) -> int:
        return next(iter(self._rows)).seq if self._rows else self._base

    async def since(self, _: Scope, seq: int) -> AsyncIterator[JournalRow]:
        for row in reversed(list(self._rows)):
            if row.seq > seq:
                yield row

    async def append(self, _: Scope, entry: Entry, *, expect: int) -> JournalRow:
        row = JournalRow(seq=expect + 1, recorded_at=self._clock(), entry=entry)
        self._rows = self._rows.push_front(row)
        return row

    async def append_many(
        self, _: Scope, entries: Sequence[Entry], *, expect: int, recorded_at: Sequence[datetime]
    ) -> list[JournalRow]:
        rows = [
            JournalRow(seq=seq, recorded_at=date, entry=entry)
            for seq, (entry, date) in enumerate(zip(entries, recorded_at, strict=True), expect + 1)
        ]
        for row in rows:
            self._rows = self._rows.push_front(row)
        return rows

    async def redact(
        self, scope: Scope, rewritten: Mapping[int, Entry], *, expect: int, reason: str
    ) -> JournalRow:
        self._rows = PersistentList(
            [
                row.model_copy(update={"entry": rewritten.get(row.seq, row.entry)})
                for row in self._rows
            ]
        )
        names = tuple((seq, "") for seq in sorted(rewritten))
        return await self.append(scope, Redacted(rewritten=names, reason=reason), expect=expect)


class Log:
    """One scope's state, kept level with its journal; a private log without one."""

    __slots__ = (
        "_follower", "_kept", "_lock", "_loop", "_origin", "_reading", "_rows", "base", "clock",
        "journal", "read_only", "scope", "state",
    )  # fmt: skip

    def __init__(
        self,
        scope: Scope,
        journal: Journal | None,
        follower: View,
        *,
        clock: Clock = system_clock,
        read_only: bool = False,
        base: BankState = EMPTY_STATE,
    ) -> None:
        """Make a log that begins from `base`: empty, unless it is a fork's."""
        self.scope, self.journal, self.clock, self.read_only = scope, journal, clock, read_only
        self.base = self._origin = self.state = base
        self._follower = follower
        self._rows = journal if journal is not None else _PrivateRows(base.seq, clock)
        self._kept: tuple[BankState, ...] = ()
        """States right before recent entries, where replaying all would take long."""
        self._lock: asyncio.Lock | None = None
        self._reading: asyncio.Lock | None = None
        """Held by the one task that replays many entries; the others wait for its work."""
        self._loop: asyncio.AbstractEventLoop | None = None

    # -- reading -----------------------------------------------------------------------

    async def sync(self) -> BankState:
        """Replay the entries appended since the last call.

        Raises `WrongLoop` from a foreign event loop.
        """
        if self._loop is not asyncio.get_running_loop():
            self._own_loop()
        head = await self._rows.head(self.scope)
        if head <= self.state.seq:
            return self.state
        if head <= self.state.seq + _FIRST_ROWS:
            await self._replay(head)
            return self.state
        if self._reading is None:
            self._reading = asyncio.Lock()
        async with self._reading:
            await self._replay(head)
        return self.state

    async def head(self) -> int:
        """Return the sequence of the last entry, read here or not."""
        return await self._rows.head(self.scope)

    async def _replay(self, head: int) -> None:
        """Replay what the journal has up to `head` at least."""
        for attempt in range(_PASSES):
            if head <= self.state.seq:
                return
            if not self.state.seq and not attempt:
                content = await self._follower.load(self.scope)
                if content is not None and not self.state.seq:
                    self._origin = self.state = content.state
                    self._follower.start(content)
            await self._catch_up(head)
            head = await self._rows.head(self.scope)

    async def _catch_up(self, head: int) -> None:
        """Replay what is new; begin again where words that were read are erased by now."""
        start, slices = self.state.seq, Slices()
        with rare_collections() if head > start + _REST else nullcontext():
            async for row in self._rows.since(self.scope, start):
                if isinstance(row.entry, Redacted) and _is_behind(row.entry, row.seq, start, head):
                    self._begin_again()
                    return
                await self._follow(row, keep=row.seq > head - _KEPT)
                await slices.rest()

    def rows(self, *, after: int = 0) -> AsyncIterator[JournalRow]:
        """Return the journal rows after a sequence, oldest first.

        A fork has the rows written since it began.
        """
        return self._rows.since(self.scope, after)

    async def state_at(self, seq: int) -> BankState:
        """Return the state right after journal entry `seq`.

        Raises `StoreError` for a time before a fork began.
        """
        await self.sync()
        if seq < self.base.seq:
            raise StoreError(
                f"this fork began at sequence {self.base.seq}; it cannot show sequence {seq}"
            )
        if seq >= self.state.seq:
            return self.state
        state = max(
            (kept for kept in (self.base, self._origin, *self._kept) if kept.seq <= seq),
            key=lambda kept: kept.seq,
        )
        slices = Slices()
        async for row in self.rows(after=state.seq) if state.seq < seq else no_rows():
            if row.seq > seq:
                break
            state = await aside(apply, state, row) if is_large((row.entry,)) else apply(state, row)
            await slices.rest()
        return state

    async def _follow(self, row: JournalRow, *, keep: bool = True) -> None:
        """Advance by a row, and keep the state before it; a large one is applied in a thread.

        A row that another reader applied meanwhile, or that belongs behind one that is
        not known, is passed over.
        """
        large = is_large((row.entry,))
        while True:
            state = self.state
            following = row.seq == state.seq + 1
            if not following and (row.seq <= state.seq or row.entry.kind != "erased"):
                return
            large &= following
            after = await aside(apply, state, row) if large else apply(state, row)
            if self.state is state:
                break
        if keep and (state.seq >= _REST or len(state.items) >= _REST):
            self._kept = (*self._kept[1 - _KEPT :], state)
        self.state = after
        if row.entry.kind == "erased":
            self._drop(state)
        self._follower.changed(after, changed_items(row.entry))

    def _begin_again(self) -> None:
        """Drop everything read so far, because words in it were erased."""
        before, self.state = self.state, self.base
        self._drop(before)

    def _drop(self, before: BankState) -> None:
        """Drop earlier states and what was derived from them; they may say what is erased."""
        if len(before.items) >= _REST:
            let_go(before)
        self._kept, self._origin = (), self.base
        self._follower.forget(self.state)

    def _own_loop(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise WrongLoop(
                f"the memory of user {self.scope.user_id!r} belongs to another event loop; "
                "open one agent a loop, or use the synchronous Agent"
            )

    # -- writing -----------------------------------------------------------------------

    async def append(
        self, make: Callable[[BankState], Entry | None], *, large: bool = False
    ) -> JournalRow | None:
        """Append the entry that `make` gives for the present state; None writes nothing.

        `make` is called again when another writer was first; in a thread where it takes
        long (`large`).
        """
        async with self._writing():
            for attempt in range(1, _ATTEMPTS + 1):
                state = await self.sync()
                entry = await aside(make, state) if large else make(state)
                if entry is None:
                    return None
                reach("bank.planned")
                try:
                    row = await self._rows.append(self.scope, entry, expect=state.seq)
                except VersionConflict:
                    if attempt == _ATTEMPTS:
                        raise
                    # let the others through
                    await asyncio.sleep(random() * _PAUSE_S * 2 ** min(attempt - 1, 5))
                    continue
                reach("bank.appended")
                await self._follow(row)
                return row
        return None

    async def redact(
        self,
        make: Callable[[BankState, Sequence[JournalRow]], Mapping[int, Entry]],
        *,
        reason: str,
    ) -> JournalRow:
        """Rewrite earlier entries, as `make` says for the present state and all rows.

        `make` is called again when another writer was first. Raises `StoreError` in a
        fork, which shares what came before it.
        """
        if self.base.seq and not self.read_only:
            raise StoreError("this is a fork; erase in the memory that it was made from")
        async with self._writing():
            for _ in range(_ATTEMPTS):
                state = await self.sync()
                rows = [row async for row in self.rows()]
                rewritten = await aside(make, state, rows)
                let_go(rows)
                del rows
                try:
                    row = await self._rows.redact(
                        self.scope, rewritten, expect=state.seq, reason=reason
                    )
                except VersionConflict:
                    continue
                del state
                self._begin_again()
                await self.sync()
                return row
        raise StoreError("other writers were first each time; try again")

    async def replay(self, rows: Sequence[JournalRow]) -> None:
        """Append rows of an export with their dates, all or nothing.

        Raises `VersionConflict` when another writer was first.
        """
        self._writing()
        state = await self.sync()
        written = await self._rows.append_many(
            self.scope,
            [row.entry for row in rows],
            expect=state.seq,
            recorded_at=[row.recorded_at for row in rows],
        )
        slices = Slices()
        for row in written:
            await self._follow(row)
            await slices.rest()

    def _writing(self) -> asyncio.Lock:
        """Return the lock of the writers. Raises `StoreReadOnly`."""
        if self.read_only:
            raise StoreReadOnly(
                f"the memory of user {self.scope.user_id!r} is open for reading only"
            )
        if self._loop is not asyncio.get_running_loop():
            self._own_loop()
        if self._lock is None:
            self._lock = asyncio.Lock()
        return self._lock


async def no_rows() -> AsyncIterator[JournalRow]:
    """Yield nothing."""
    return
    yield


def _is_behind(redacted: Redacted, seq: int, start: int, head: int) -> bool:
    """Tell whether rows read before a redaction say what it erased.

    `start` is the last row that was known when reading began, `head` the last there was.
    """
    return seq > head or min((at for at, _ in redacted.rewritten), default=seq) <= start
