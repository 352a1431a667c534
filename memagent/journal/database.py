"""The journal in a SQL database, of whichever kind.

It appends, reads and audits, and keeps first responses, the cache of vectors and the
embedder's claim.

`expect` is decided inside the transaction, so two writers never both get a sequence, in
one process or in many. How a place is named and opened is the subclass's: `SqlJournal`
for a SQLite file, `PostgresJournal` for a server.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime
from typing import Final, TypeVar

from memagent.core.errors import InputError, StoreReadOnly
from memagent.core.long_work import aside, is_large
from memagent.core.records import Scope
from memagent.core.snapshot import Entry, JournalRow, Redacted
from memagent.journal.open_database import OpenDatabase
from memagent.journal.rows import (
    PreparedEntry,
    StoredResponse,
    dates_of,
    from_microseconds,
    prepare_entry,
    scope_key,
)
from memagent.journal.transaction import AppendRequest

T = TypeVar("T")
_MAX_KEY_CHARS: Final = 256
_FIRST_ROWS: Final = 8
_MAX_DIGEST_CHARS: Final = 128


class DatabaseJournal(OpenDatabase):
    """A `Journal` over a backend."""

    async def append(
        self,
        scope: Scope,
        entry: Entry,
        *,
        expect: int,
        idempotency: tuple[str, str, str] | None = None,
    ) -> JournalRow:
        """Append durably as `expect + 1`; `append_many` of one entry."""
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
        """Append all entries durably as `expect + 1` and on, or none of them.

        `recorded_at` keeps the dates of an import, one an entry; a date before its
        predecessor's becomes the predecessor's, as time never runs backwards within a
        log. `idempotency` is (key, digest of the request's body, response as JSON),
        kept in the same transaction. An `Erased` entry deletes the scope's older
        payloads and responses and every cached vector, and is acknowledged when the
        bytes are gone from the files, or else `scrub_due` tells.

        Raises `VersionConflict` when the head is not `expect`, `IdempotencyKeyUsed`
        when the scope has seen the key, `InputError` for an entry that would not read
        back the same, and `StoreError`s; after any of them nothing was written. A
        caller that is cancelled while it waits may find its entries written.
        """
        self._check()
        if self._writer is None:
            raise StoreReadOnly(f"{self.place} was opened with read_only=True; nothing was written")
        response = _response(idempotency, entries)
        if not entries:
            return []
        dates = dates_of(entries, recorded_at, self._clock)
        if is_large(entries):
            prepared = await aside(_prepared, entries, dates)
        else:
            prepared = _prepared(entries, dates)
        request = AppendRequest(scope_key(scope), prepared, expect, response)
        with self.erasing(scope) if request.erases else nullcontext():
            appended = await self._writer.append(request)
        return [
            JournalRow(seq=seq, recorded_at=from_microseconds(recorded_us), entry=entry)
            for seq, (entry, recorded_us) in enumerate(
                zip(entries, appended.recorded_us, strict=True), appended.first_seq
            )
        ]

    async def redact(
        self, scope: Scope, rewritten: Mapping[int, Entry], *, expect: int, reason: str = ""
    ) -> JournalRow:
        """Replace earlier entries durably, and append a `Redacted` that names them.

        The headers and their chain stay; the new entry, itself in the chain, vouches for
        the new payloads. Responses of the scope and every cached vector go too, as with
        an `Erased`, and it is acknowledged when the old bytes are gone from the files, or
        else `scrub_due` tells. Raises as `append_many`.
        """
        self._check()
        if self._writer is None:
            raise StoreReadOnly(f"{self.place} was opened with read_only=True; nothing was written")
        now = dates_of((Redacted(),), None, self._clock)[0]
        order = sorted(rewritten)
        entries = [rewritten[seq] for seq in order]
        prepared = await aside(_prepared, entries, [now] * len(entries))
        payloads = dict(zip(order, prepared, strict=True))
        digests = tuple((seq, payload.digest.hex()) for seq, payload in payloads.items())
        entry = Redacted(rewritten=digests, reason=reason)
        request = AppendRequest(
            scope_key(scope), (prepare_entry(entry, now),), expect, rewrites=payloads
        )
        with self.erasing(scope):
            appended = await self._writer.append(request)
        recorded_at = from_microseconds(appended.recorded_us[0])
        return JournalRow(seq=appended.first_seq, recorded_at=recorded_at, entry=entry)

    async def since(self, scope: Scope, seq: int) -> AsyncIterator[JournalRow]:
        """Yield the rows after `seq` in order, a page at a time, without erased ones.

        The first page is small: who looks for one row stops there. The last page goes
        up to what is committed when it is read. Erased rows are left out.
        Raises `StoreCorrupt` for a row that is missing or cannot be read.
        """
        self._check()
        key, complete = scope_key(scope), not self._backend.shared and self._head(scope) <= seq
        most: int | None = _FIRST_ROWS
        while not complete:
            page = await asyncio.to_thread(self._reader.page, key, seq, rows=most)
            most = None
            for row in page.rows:
                yield row
            seq, complete = page.last_seq, page.complete

    async def head(self, scope: Scope) -> int:
        """Return the sequence of the last committed row; 0 when the scope is empty.

        Any process may have committed it. Costs microseconds where one process writes,
        and one round trip to a server.
        """
        self._check()
        return (
            await asyncio.to_thread(self._head, scope)
            if self._backend.shared
            else self._head(scope)
        )

    def _head(self, scope: Scope) -> int:
        key = scope_key(scope)
        head = None if self._writer is None else self._writer.committer.head(key)
        return self._reader.head(key) if head is None else head


def _prepared(entries: Sequence[Entry], dates: Sequence[datetime]) -> tuple[PreparedEntry, ...]:
    return tuple(map(prepare_entry, entries, dates))


def _response(
    idempotency: tuple[str, str, str] | None, entries: Sequence[Entry]
) -> StoredResponse | None:
    if idempotency is None:
        return None
    key, body_digest, response_json = idempotency
    if not entries or not 0 < len(key) <= _MAX_KEY_CHARS or len(body_digest) > _MAX_DIGEST_CHARS:
        raise InputError(
            f"an idempotency key comes with an entry and has 1 to {_MAX_KEY_CHARS} characters, "
            f"its digest at most {_MAX_DIGEST_CHARS}"
        )
    return StoredResponse(key, body_digest, response_json)
