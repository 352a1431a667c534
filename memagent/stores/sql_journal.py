"""The journal in SQL: an append-only log a scope, durable before it is acknowledged, shared by threads, read by other processes.

One process writes (`StoreLocked` for a second one) and in it one thread (`journal_writer`); any number read. `expect` is decided inside
the transaction, so two writers never both get a sequence. Opening repairs whatever a crash left: SQLite drops the half-written group, an
unfinished migration or erasure is done again.
The surprise: opening the same path twice in one process is fine and shares the writer, while a forked child has to open it anew.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from types import TracebackType
from typing import Final, Self

from memagent.core.errors import ConfigError, InputError, StoreError, StoreReadOnly
from memagent.core.records import Scope
from memagent.core.snapshot import Entry, JournalRow
from memagent.protocols import Clock, EmbeddingCache
from memagent.stores.journal_reader import JournalReader
from memagent.stores.journal_rows import (
    StoredResponse,
    dates_of,
    from_microseconds,
    prepare_entry,
    scope_key,
    system_clock,
)
from memagent.stores.journal_transaction import AppendRequest
from memagent.stores.open_writers import OPEN_WRITERS
from memagent.stores.sqlite_engine import Synchronous, database_path

_MAX_KEY_CHARS: Final = 256
_EMBEDDER_KEY: Final = "embedder"
_MAX_DIGEST_CHARS: Final = 128


class SqlJournal:
    """A `Journal` in the SQLite database at a path or `sqlite:///` URL, made when it does not exist.

    `read_only` opens need no lock and always succeed; they see what the writer commits. `lock_timeout_s` is how long to wait for another
    process to give the store up. `synchronous="FULL"` makes an acknowledged append survive a power cut.

    Opening raises `StoreLocked` (another process writes), `StoreReadOnly` (the place cannot be written), `StoreCorrupt` (damaged, or not a
    memagent store), `StoreUnavailable`, `StoreError` (written by a newer memagent) and `ConfigError`.
    """

    def __init__(
        self,
        url_or_path: str | os.PathLike[str],
        *,
        read_only: bool = False,
        synchronous: Synchronous = "FULL",
        lock_timeout_s: float = 0.0,
        clock: Clock = system_clock,
    ) -> None:
        self.path = database_path(url_or_path)
        """The database file."""
        self.read_only = read_only
        self._clock = clock
        self._pid = os.getpid()
        self._closed = False
        self._writer = None
        if read_only:
            if not self.path.exists():
                raise StoreError(f"there is no memory at {self.path}; it is made when it is first opened for writing")
        else:
            self._writer = OPEN_WRITERS.acquire(self.path, synchronous=synchronous, lock_timeout_s=lock_timeout_s)
        self._reader = JournalReader(self.path)
        try:
            self._reader.ready()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"SqlJournal({str(self.path)!r}{', read_only=True' if self.read_only else ''})"

    async def append(
        self, scope: Scope, entry: Entry, *, expect: int, idempotency: tuple[str, str, str] | None = None
    ) -> JournalRow:
        """Append durably as `expect + 1`. See `append_many`, of which this is the case of one entry."""
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

        `recorded_at` keeps the dates of an import, one an entry; a date before its predecessor's becomes the predecessor's, as time
        never runs backwards within a log. `idempotency` is (key, digest of the request's body, response as JSON), kept in the same
        transaction. An `Erased` entry deletes the scope's older payloads and responses and every cached vector, and is acknowledged
        when the bytes are gone from the files, or else `scrub_due` tells.

        Raises `VersionConflict` when the head is not `expect`, `IdempotencyKeyUsed` when the scope has seen the key, `InputError` for an
        entry that would not read back the same, and `StoreError`s; after any of them nothing was written. A caller that is
        cancelled while it waits may find its entries written.
        """
        self._check()
        if self._writer is None:
            raise StoreReadOnly(f"{self.path} was opened with read_only=True; nothing was written")
        response = _response(idempotency, entries)
        if not entries:
            return []
        dates = dates_of(entries, recorded_at, self._clock)
        prepared = tuple(map(prepare_entry, entries, dates))
        appended = await self._writer.append(AppendRequest(scope_key(scope), prepared, expect, response))
        return [
            JournalRow(seq=seq, recorded_at=from_microseconds(recorded_us), entry=entry)
            for seq, (entry, recorded_us) in enumerate(
                zip(entries, appended.recorded_us, strict=True), appended.first_seq
            )
        ]

    async def since(self, scope: Scope, seq: int) -> AsyncIterator[JournalRow]:
        """Rows after `seq` in order, a page at a time, up to what is committed when the last page is read. Erased rows are left out.

        Raises `StoreCorrupt` for a row that is missing or cannot be read.
        """
        self._check()
        key, complete = scope_key(scope), self._head(scope) <= seq
        while not complete:
            page = await asyncio.to_thread(self._reader.page, key, seq)
            for row in page.rows:
                yield row
            seq, complete = page.last_seq, page.complete

    async def head(self, scope: Scope) -> int:
        """Sequence of the last committed row, by whichever process; 0 when the scope is empty. Costs microseconds."""
        self._check()
        return self._head(scope)

    def _head(self, scope: Scope) -> int:
        key = scope_key(scope)
        head = None if self._writer is None else self._writer.head(key)
        return self._reader.head(key) if head is None else head

    async def scopes(self) -> list[Scope]:
        """Every scope that has rows, in order of key."""
        self._check()
        return await asyncio.to_thread(self._reader.scopes)

    def verify(self, scope: Scope) -> list[str]:
        """What is wrong with the scope's chain of hashes and its payloads, the first bad sequence first; [] when nothing is. Blocks."""
        self._check()
        return self._reader.verify(scope_key(scope))

    def response(self, scope: Scope, key: str) -> StoredResponse | None:
        """The first response to the request with this idempotency key; None when the scope has not seen it."""
        self._check()
        return self._reader.response(scope_key(scope), key)

    def claimed_embedder(self) -> tuple[str, int] | None:
        """(id, width) of the embedder this store's vectors come from, None when none was claimed yet."""
        self._check()
        value = (self._writer.meta(_EMBEDDER_KEY) if self._writer is not None else None) or self._reader.meta(
            _EMBEDDER_KEY
        )
        if value is None:
            return None
        dim, _, embedder_id = value.partition(" ")
        return embedder_id, int(dim)

    def claim_embedder(self, embedder_id: str, dim: int, *, force: bool = False) -> None:
        """Say whose vectors this store holds; the first claim stays unless `force` (after embedding anew) or nothing is stored yet.

        Raises `ConfigError` naming both embedders and the way out when another one was claimed.
        """
        known = self.claimed_embedder()
        if known == (embedder_id, dim):
            return
        if known is not None and not force and self._reader.scopes():
            raise ConfigError(
                f"the memory at {self.path} was embedded by {known[0]!r} ({known[1]} dimensions), but {embedder_id!r} ({dim} dimensions) "
                "is configured; their vectors cannot be compared. Configure the first one again, or embed the memory anew:  "
                "memagent reembed"
            )
        if self._writer is not None:
            self._writer.put_meta(_EMBEDDER_KEY, f"{dim} {embedder_id}")

    @property
    def cache(self) -> EmbeddingCache:
        """The embedding cache in the same database; usable until the journal is closed."""
        from memagent.stores.embedding_cache import SqlEmbeddingCache

        return SqlEmbeddingCache(self._reader, self._writer, check=self._check)

    @property
    def scrub_due(self) -> bool:
        """Whether bytes of something erased may still lie in the files, because the disk or a long reader was in the way."""
        return self._writer is not None and self._writer.scrub_due

    def close(self) -> None:
        """Wait for what has been handed in, then close. The last user of the store frees its lock. Closing again is harmless."""
        if self._closed or self._pid != os.getpid():
            return
        self._closed = True
        self._reader.close()
        if self._writer is not None:
            OPEN_WRITERS.release(self.path)

    def _check(self) -> None:
        if self._pid != os.getpid():
            raise StoreError(f"the journal at {self.path} was opened before a fork; open it anew in the child process")
        if self._closed:
            raise StoreError(f"the journal at {self.path} is closed")


def _response(idempotency: tuple[str, str, str] | None, entries: Sequence[Entry]) -> StoredResponse | None:
    if idempotency is None:
        return None
    key, body_digest, response_json = idempotency
    if not entries or not 0 < len(key) <= _MAX_KEY_CHARS or len(body_digest) > _MAX_DIGEST_CHARS:
        raise InputError(
            f"an idempotency key comes with an entry and has 1 to {_MAX_KEY_CHARS} characters, its digest at most {_MAX_DIGEST_CHARS}"
        )
    return StoredResponse(key, body_digest, response_json)
