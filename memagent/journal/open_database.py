"""The journal in a SQL database of any kind, and its cache of vectors.

The cache holds vectors by (embedder id, text digest). It gives read-only float32
arrays. The stored bytes are little-endian, so a database moves between machines. Losing
a row costs one call of the embedder and nothing else, which is why these writes wait
for no fsync of their own.

`DatabaseJournal` appends, reads and audits, and keeps first responses and the
embedder's claim. `expect` is decided inside the transaction, so two writers never both
get a sequence, in one process or in many. How a place is named and opened is the
subclass's: `SqlJournal` for a SQLite file, `PostgresJournal` for a server.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from types import TracebackType
from typing import Final, Self, TypeVar

import numpy as np

from memagent.core.errors import ConfigError, EmbeddingError, InputError, StoreError, StoreReadOnly
from memagent.core.long_work import aside, is_large
from memagent.core.records import Scope
from memagent.core.snapshot import Entry, JournalRow, Redacted
from memagent.journal.backend import Backend
from memagent.journal.file_lock import FileLock
from memagent.journal.reader import JournalReader
from memagent.journal.rows import (
    PreparedEntry,
    StoredResponse,
    dates_of,
    from_microseconds,
    prepare_entry,
    scope_digest,
    scope_key,
    to_microseconds,
)
from memagent.journal.transaction import AppendRequest
from memagent.journal.writer import OPEN_WRITERS, JournalWriter
from memagent.protocols import Clock, EmbeddingCache, Vector


def _to_bytes(digest: str, vector: Vector) -> bytes:
    array = np.asarray(vector, dtype="<f4")
    if array.ndim != 1 or not array.size or not np.isfinite(array).all():
        raise EmbeddingError(
            f"the vector for text digest {digest!r} is not a finite one-dimensional array "
            f"(shape {array.shape})"
        )
    return array.tobytes()


class SqlEmbeddingCache:
    """Vectors in a journal's database, written by the journal's writer and gone with any erasure.

    Thread-safe.

    Made by `SqlJournal.cache`. Without a writer (a journal opened for reading)
    `put_many` keeps nothing.
    """

    def __init__(
        self, reader: JournalReader, writer: JournalWriter | None, *, check: Callable[[], None]
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._check = check

    def get_many(self, embedder_id: str, digests: Sequence[str]) -> dict[str, Vector]:
        """Return known vectors (D,) by digest; unknown digests are left out.

        Raises `StoreError`s.
        """
        self._check()
        waiting: dict[str, bytes] = {}
        if self._writer is not None:
            keys = [(embedder_id, digest) for digest in digests]
            pending = self._writer.pending.vectors(keys)
            waiting = {digest: blob for (_, digest), blob in pending.items()}
        missing = [digest for digest in dict.fromkeys(digests) if digest not in waiting]
        known = self._reader.vectors(embedder_id, missing) | waiting
        return {
            digest: np.frombuffer(known[digest], dtype="<f4").astype(np.float32, copy=False)
            for digest in digests
            if digest in known
        }

    def put_many(self, embedder_id: str, rows: Mapping[str, Vector]) -> None:
        """Keep vectors (D,), in place of those kept before.

        Raises `EmbeddingError` for what is not a finite vector.
        """
        self._check()
        fresh = {
            (embedder_id, digest): _to_bytes(digest, vector) for digest, vector in rows.items()
        }
        if self._writer is not None and fresh:
            self._writer.put_vectors(fresh)


T = TypeVar("T")
_EMBEDDER_KEY: Final = "embedder"


class OpenDatabase:
    """A database opened as a journal; what reads and writes entries is a subclass.

    Thread-safe; those of the same database share a writer within a process.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        read_only: bool,
        clock: Clock,
        lock: Callable[[], FileLock] | None = None,
    ) -> None:
        self._backend = backend
        # The place of the journal, for messages; never with a password.
        self.place = backend.name
        self.read_only = read_only
        self._clock = clock
        # Entered around an erasure by whoever keeps copies of a scope outside of the journal.
        self.erasing: Callable[[Scope], AbstractContextManager[object]] = lambda _: nullcontext()
        self._pid = os.getpid()
        self._closed = False
        self._reader = JournalReader(backend)
        self._writer, self._opened_as = None, backend
        try:
            if not read_only:
                self._writer, self._opened_as = OPEN_WRITERS.acquire(backend, lock=lock)
            self._reader.ready()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.place!r}{', read_only=True' if self.read_only else ''})"
        )

    async def scopes(self) -> list[Scope]:
        """Return every scope that holds something, in order of key; erased ones are nameless."""
        self._check()
        return await asyncio.to_thread(self._reader.scopes)

    def verify(self, scope: Scope) -> list[str]:
        """Return what is wrong with the scope's log, the first bad sequence first; [] is well.

        Blocks.
        """
        self._check()
        return self._reader.verify(scope_key(scope))

    def chain_at(self, scope: Scope, seq: int) -> bytes | None:
        """Return a row's chain hash; None where there is none or an erasure came later. Blocks."""
        self._check()
        return self._reader.chain_at(scope_key(scope), seq)

    def response(self, scope: Scope, key: str) -> StoredResponse | None:
        """Return the first response to the request with this idempotency key.

        None when the scope has not seen the key.
        """
        self._check()
        return self._reader.response(scope_key(scope), key)

    def drop_response(self, scope: Scope, key: str) -> bool:
        """Delete the response of an idempotency key; return whether it was there. Blocks."""
        self._check()
        digest = scope_digest(scope_key(scope))
        return _deleted(self._backend, lambda: self._backend.drop_response(digest, key))

    def prune_responses(self, *, before: datetime, most: int) -> int:
        """Delete first responses older than a moment, and the oldest beyond the newest `most`.

        Return their number. Blocks.
        """
        self._check()
        limit_us = to_microseconds(before)
        return _deleted(self._backend, lambda: self._backend.prune_responses(limit_us, most))

    def verify_erased(self) -> list[str]:
        """Return what is wrong with the logs of erased scopes, as `verify` does. Blocks."""
        self._check()
        return self._reader.verify_erased()

    def claimed_embedder(self) -> tuple[str, int] | None:
        """Return (id, width) of the embedder that this store's vectors come from.

        None when no embedder was claimed yet.
        """
        self._check()
        value = (
            self._writer.pending.meta(_EMBEDDER_KEY) if self._writer is not None else None
        ) or self._reader.meta(_EMBEDDER_KEY)
        if value is None:
            return None
        dim, _, embedder_id = value.partition(" ")
        return embedder_id, int(dim)

    def claim_embedder(self, embedder_id: str, dim: int, *, force: bool = False) -> None:
        """Claim the store's vectors for an embedder.

        The first claim stays unless `force` is set (after embedding anew) or nothing is
        stored yet.

        Raises `ConfigError` naming both embedders and the way out when another one was
        claimed.
        """
        known = self.claimed_embedder()
        if known == (embedder_id, dim):
            return
        if known is not None and not force and self._reader.scopes():
            raise ConfigError(
                f"the memory at {self.place} was embedded by {known[0]!r} ({known[1]} "
                f"dimensions), but {embedder_id!r} ({dim} dimensions) "
                "is configured; their vectors cannot be compared. Configure the first one "
                "again, or embed the memory anew:  "
                "memagent reembed"
            )
        if self._writer is not None:
            self._writer.put_meta(_EMBEDDER_KEY, f"{dim} {embedder_id}")

    @property
    def backend(self) -> Backend:
        """The database, for what else is kept in it."""
        return self._backend

    @property
    def cache(self) -> EmbeddingCache:
        """The embedding cache in the same database; usable until the journal is closed."""
        return SqlEmbeddingCache(self._reader, self._writer, check=self._check)

    @property
    def scrub_due(self) -> bool:
        """Whether erased bytes may still lie in the files.

        The disk or a long reader was in the way.
        """
        return self._writer is not None and self._writer.committer.scrub_due

    def close(self) -> None:
        """Wait for what has been handed in, then close.

        The last user of the store frees its lock. Closing again is harmless.
        """
        if self._closed or self._pid != os.getpid():
            return
        self._closed = True
        self._reader.close()
        if self._writer is not None:
            OPEN_WRITERS.release(self._backend)

    def _check(self) -> None:
        if self._pid != os.getpid():
            raise StoreError(
                f"the journal at {self.place} was opened before a fork; open stores after it, "
                "or start the child process anew ('spawn')"
            )
        if self._closed:
            raise StoreError(f"the journal at {self.place} is closed")


def _deleted(backend: Backend, delete: Callable[[], T]) -> T:
    """Return what a deletion of responses returns; translate its errors."""
    try:
        return delete()
    except backend.driver_error as exc:
        raise backend.error(exc, "deleting responses in") from exc


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
            seq, complete = page.last_seq, page.complete
            rows = list(reversed(page.rows))
            del page  # each row is freed with its use, not all of them with the last
            while rows:
                yield rows.pop()

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
