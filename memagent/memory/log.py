"""The log that one scope's memory is written through.

A write is one journal append, then the fold; every read first replays what other
writers appended. Rules: one log belongs to one event loop (`WrongLoop`); its writes are
serial; an optimistic sequence number guards against other writers, and ops are checked
again against the state that they are really applied to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from random import random

from rpds import List as PersistentList

from memagent.core.crash_points import reach
from memagent.core.errors import (
    StoreError,
    StoreReadOnly,
    VersionConflict,
)
from memagent.core.long_work import LARGE, Slices, aside, let_go
from memagent.core.ops import OpBatch
from memagent.core.records import ItemStats, Session, SourceRef
from memagent.core.snapshot import (
    Commit,
    Entry,
    GraphDelta,
    JournalRow,
    Redacted,
    StatsDelta,
)
from memagent.events.rules import checked_delta
from memagent.memory.chunking import session_entry
from memagent.memory.log_reader import LogReader
from memagent.protocols import Journal
from memagent.state.effects import plan_commit
from memagent.state.fold import BankState

_ATTEMPTS = 100
_PAUSE_S = 0.002
"""Longest first pause of a writer that came second; it doubles with each further defeat,
up to 32 times.
"""


class MemoryLog(LogReader):
    """The log as it is written: every change is one entry of the journal."""

    __slots__ = ()

    async def store_session(self, session: Session) -> bool:
        """Journal a session's raw turns; False when the same session is stored already.

        Of a stored session that begins with the same turns, only the further ones are
        journalled. Raises `InputError` on a clash of ids.
        """
        return await self.append(lambda state: session_entry(state, session)) is not None

    async def commit(self, batch: OpBatch, *, source: SourceRef) -> Commit:
        """Carry out a batch in one journal append; `rejected` has the ops that no longer fit."""
        row = await self.append(
            lambda state: plan_commit(state, batch, source=source, commit_id=f"c{state.seq + 1}"),
            large=len(batch.accepted) >= LARGE,
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

    async def append(
        self, make: Callable[[BankState], Entry | None], *, large: bool = False
    ) -> JournalRow | None:
        """Append the entry that `make` gives for the present state; None writes nothing.

        `make` is called again when another writer was first; in a thread where it takes
        long (`large`).
        """
        self._check_writable()
        self._own_loop()
        if self._lock is None:
            self._lock = asyncio.Lock()
        async with self._lock:
            for attempt in range(1, _ATTEMPTS + 1):
                state = await self.sync()
                entry = await aside(make, state) if large else make(state)
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
        self._check_writable()
        if self._base.seq:
            raise StoreError("this is a fork; erase in the memory that it was made from")
        if self._lock is None:
            self._lock = asyncio.Lock()
        async with self._lock:
            for _ in range(_ATTEMPTS):
                state = await self.sync()
                rows = [row async for row in self.rows()]
                rewritten = await aside(make, state, rows)
                let_go(rows)
                del rows
                try:
                    row = await self._rewrite(rewritten, state.seq, reason)
                except VersionConflict:
                    continue
                del state
                self._begin_again()
                await self.sync()
                return row
        raise StoreError("other writers were first each time; try again")

    async def _rewrite(self, rewritten: Mapping[int, Entry], seq: int, reason: str) -> JournalRow:
        if self._journal is not None:
            return await self._journal.redact(self.scope, rewritten, expect=seq, reason=reason)
        entry = Redacted(rewritten=tuple((seq, "") for seq in sorted(rewritten)), reason=reason)
        row = JournalRow(seq=seq + 1, recorded_at=self._clock(), entry=entry)
        old = [
            known.model_copy(update={"entry": rewritten.get(known.seq, known.entry)})
            for known in reversed(list(self._log))
        ]
        self._log = PersistentList([row, *reversed(old)])
        return row

    @property
    def scrub_due(self) -> bool:
        """Whether erased bytes may still lie in files of the journal."""
        return self._journal is not None and self._journal.scrub_due

    @property
    def journal(self) -> Journal | None:
        """The journal of this memory; None for a private one."""
        return self._journal

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
        slices = Slices()
        for row in written:
            await self._follow(row)
            await slices.rest()

    async def _write(self, entry: Entry, seq: int) -> JournalRow:
        if self._journal is not None:
            return await self._journal.append(self.scope, entry, expect=seq)
        row = JournalRow(seq=seq + 1, recorded_at=self._clock(), entry=entry)
        self._log = self._log.push_front(row)
        return row

    def _check_writable(self) -> None:
        if self.read_only:
            raise StoreReadOnly(
                f"the memory of user {self.scope.user_id!r} is open for reading only"
            )


def _delta_entry(state: BankState, delta: GraphDelta) -> GraphDelta | None:
    checked = checked_delta(state.graph, delta)
    return None if checked.empty and not checked.rejected else checked
