"""Rewriting earlier entries of a log for an erasure, and replaying those of an export."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from rpds import HashTrieSet
from rpds import List as PersistentList

from memagent.core.errors import StoreError, VersionConflict
from memagent.core.records import Scope
from memagent.core.snapshot import Entry, JournalRow, Redacted
from memagent.protocols import Clock, Journal
from memagent.state.fold import BankState

_ATTEMPTS = 100
NOTHING: HashTrieSet[str] = HashTrieSet()


class RewritableLog:
    """The part of a log that writes rows of before: `MemoryLog` is the rest."""

    __slots__ = ()
    scope: Scope
    _journal: Journal | None
    _clock: Clock
    _base: BankState
    _state: BankState
    _pending: HashTrieSet[str]
    _log: PersistentList[JournalRow]
    _lock: asyncio.Lock | None

    async def sync(self) -> BankState:
        """Replay the entries appended since the last call."""
        raise NotImplementedError

    def rows(self, *, after: int = 0) -> AsyncIterator[JournalRow]:
        """Return the journal rows after a sequence, oldest first."""
        raise NotImplementedError

    def _check_writable(self) -> None:
        raise NotImplementedError

    def _advance(self, row: JournalRow) -> None:
        raise NotImplementedError

    def _forget(self) -> None:
        raise NotImplementedError

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
                rewritten = make(state, rows)
                try:
                    row = await self._rewrite(rewritten, state.seq, reason)
                except VersionConflict:
                    continue
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

    def search_files(self, needles: Sequence[bytes]) -> dict[str, tuple[int, int]]:
        """Search the files of the journal; see `Journal.search_files`."""
        return self._journal.search_files(needles) if self._journal is not None else {}

    def _behind(self) -> bool:
        return next(iter(self._log)).seq > self._state.seq

    def _begin_again(self) -> None:
        """Drop everything read so far, because words in it were erased."""
        self._state = self._base
        self._pending = NOTHING
        self._forget()

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
