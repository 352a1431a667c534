"""The journal in memory: the same laws as the SQL one without the disk.

It serves forks, rollouts and tests. Entries are kept as they are: nothing is encoded,
hashed or copied, so an append costs about a microsecond.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import accumulate
from typing import Final

from memagent.core.long_work import let_go
from memagent.core.records import Scope, system_clock
from memagent.core.snapshot import Entry, Erased, JournalRow, Redacted
from memagent.journal.rows import (
    IdempotencyKeyUsed,
    ScopeKey,
    StoredResponse,
    conflict,
    dates_of,
    scope_key,
)
from memagent.protocols import Clock

_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(slots=True)
class _Log:
    scope: Scope
    erased_rows: int = 0
    """The number of rows gone at the beginning; `rows` holds the rest."""
    rows: list[JournalRow] = field(default_factory=list[JournalRow])
    responses: dict[str, StoredResponse] = field(default_factory=dict[str, StoredResponse])

    @property
    def head(self) -> int:
        return self.erased_rows + len(self.rows)


class MemoryJournal:
    """A `Journal` that lives and dies with the process.

    Thread-safe; usable from any event loop.
    """

    def __init__(self, *, clock: Clock = system_clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._logs: dict[ScopeKey, _Log] = {}

    async def append(
        self,
        scope: Scope,
        entry: Entry,
        *,
        expect: int,
        idempotency: tuple[str, str, str] | None = None,
    ) -> JournalRow:
        """Append as `expect + 1`.

        See `append_many`, of which this is the case of one entry.
        """
        rows = await self.append_many(scope, (entry,), expect=expect, idempotency=idempotency)
        return rows[0]

    async def append_many(
        self,
        scope: Scope,
        entries: Sequence[Entry],
        *,
        expect: int,
        recorded_at: Sequence[datetime] | None = None,
        idempotency: tuple[str, str, str] | None = None,
    ) -> list[JournalRow]:
        """Append all entries as `expect + 1` and on, or none of them.

        `recorded_at` keeps the dates of an import, one an entry; none is earlier than
        its predecessor's, as in `SqlJournal`. Raises `VersionConflict` when the head is
        not `expect`, `IdempotencyKeyUsed` when the scope has seen the key.
        """
        key, dates = scope_key(scope), dates_of(entries, recorded_at, self._clock)
        with self._lock:
            log = self._logs.get(key) or _Log(scope)
            if log.head != expect:
                raise conflict(key, expected=expect, actual=log.head)
            if idempotency is not None and idempotency[0] in log.responses:
                raise IdempotencyKeyUsed(log.responses[idempotency[0]])
            earliest = log.rows[-1].recorded_at if log.rows else _LONG_AGO
            dates = list(accumulate((max(date, earliest) for date in dates), max))
            rows = [
                JournalRow(seq=seq, recorded_at=date, entry=entry)
                for seq, (entry, date) in enumerate(zip(entries, dates, strict=True), expect + 1)
            ]
            for row in rows:
                if isinstance(row.entry, Erased):
                    log.erased_rows = row.seq - 1
                    let_go(log.rows)
                    log.rows, log.responses = [], {}
                log.rows.append(row)
            if idempotency is not None:
                log.responses[idempotency[0]] = StoredResponse(*idempotency)
            if rows:
                self._logs[key] = log
        return rows

    async def redact(
        self, scope: Scope, rewritten: Mapping[int, Entry], *, expect: int, reason: str = ""
    ) -> JournalRow:
        """Replace earlier entries, and append a `Redacted` that names them."""
        key, now = scope_key(scope), dates_of((Redacted(),), None, self._clock)[0]
        pairs = tuple((seq, "") for seq in sorted(rewritten))
        with self._lock:
            log = self._logs.get(key) or _Log(scope)
            if log.head != expect:
                raise conflict(key, expected=expect, actual=log.head)
            last = log.rows[-1].recorded_at if log.rows else _LONG_AGO
            row = JournalRow(
                seq=expect + 1,
                recorded_at=max(now, last),
                entry=Redacted(rewritten=pairs, reason=reason),
            )
            log.rows = [
                old.model_copy(update={"entry": rewritten[old.seq]})
                if old.seq in rewritten
                else old
                for old in log.rows
            ] + [row]
            log.responses = {}
            self._logs[key] = log
        return row

    scrub_due = False

    async def since(self, scope: Scope, seq: int) -> AsyncIterator[JournalRow]:
        """Yield the rows after `seq` in order, those committed when it began.

        Erased rows are left out.
        """
        with self._lock:
            log = self._logs.get(scope_key(scope))
            rows = [] if log is None else log.rows[max(0, seq - log.erased_rows) :]
        for row in rows:
            yield row

    async def head(self, scope: Scope) -> int:
        """Return the sequence of the last row, 0 when the scope is empty."""
        log = self._logs.get(scope_key(scope))
        return 0 if log is None else log.head

    async def scopes(self) -> list[Scope]:
        """Return every scope that holds something, in order of key; erased ones are nameless."""
        with self._lock:
            known = [
                log.scope
                for log in self._logs.values()
                if log.rows and not isinstance(log.rows[-1].entry, Erased)
            ]
            return sorted(known, key=lambda scope: scope.key)

    def response(self, scope: Scope, key: str) -> StoredResponse | None:
        """Return the first response to the request with this idempotency key.

        None when the scope has not seen the key.
        """
        log = self._logs.get(scope_key(scope))
        return None if log is None else log.responses.get(key)

    def drop_response(self, scope: Scope, key: str) -> bool:
        """Delete the response of an idempotency key; return whether it was there."""
        with self._lock:
            log = self._logs.get(scope_key(scope))
            return log is not None and log.responses.pop(key, None) is not None
