"""The journal in a SQL database of any kind, and its cache of vectors.

The cache holds vectors by (embedder id, text digest). It gives read-only float32
arrays. The stored bytes are little-endian, so a database moves between machines. Losing
a row costs one call of the embedder and nothing else, which is why these writes wait
for no fsync of their own.

`DatabaseJournal` appends, reads and audits, and keeps first responses and the
embedder's claim. `expect` is decided inside the transaction, so two writers never both
get a sequence, in one process or in many. How a place is named and opened is the
subclass's: `SqlJournal` for a SQLite file, `PostgresJournal` for a server.

The one writer of a store in this process: a thread that commits appends in groups.

Appends come from any thread or event loop and wait in a queue; the thread takes all
that wait, writes them in one transaction, and answers only after the commit has
returned. While one group waits for the disk the next one gathers, so throughput grows
with load and a lone append is not delayed. Vectors for the cache go along with the next
group, or alone after a moment. An erasure is acknowledged after the files were scrubbed
(`committer`).

The writers open in this process are known by their database: a second open of the same
store shares the first one's writer, and a child made by `fork` inherits none of them.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import datetime
from enum import Enum, auto
from typing import Final, NamedTuple, Self

import numpy as np

from memagent.core import crash_points
from memagent.core.errors import ConfigError, EmbeddingError, InputError, StoreError, StoreReadOnly
from memagent.core.long_work import aside, is_large
from memagent.core.records import Scope
from memagent.core.snapshot import Entry, JournalRow, Redacted
from memagent.journal.backend import Backend, OpenParts, drop_response, prune_responses, put_meta
from memagent.journal.committer import (
    AppendRequest,
    Committer,
    Outcome,
    PendingVectors,
    Recorded,
    VectorKey,
)
from memagent.journal.reader import JournalReader, make_schema
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
from memagent.protocols import Clock, Vector

_MAX_GROUP: Final = 512
_MAX_GROUP_BYTES: Final = 32 * 1024 * 1024
_CACHE_DELAY_S: Final = 0.2


class _Signal(Enum):
    PENDING = auto()
    STOP = auto()


class _Waiting(NamedTuple):
    request: AppendRequest
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Recorded]


class JournalWriter:
    """The writing thread of a database.

    The caller has prepared the schema, and hands over what frees the writer's lock.
    Methods may be called from any thread.
    """

    def __init__(self, backend: Backend, unlock: Callable[[], None]) -> None:
        self.backend, self._unlock = backend, unlock
        self.pending = PendingVectors()
        self.committer = Committer(backend, self.pending)
        self._lock = threading.Lock()
        self._closing = False
        self._queue: queue.SimpleQueue[_Waiting | _Signal] = queue.SimpleQueue()
        self._thread = threading.Thread(
            target=self._run, name=f"memagent-journal {backend.name}", daemon=True
        )
        self._thread.start()

    async def append(self, request: AppendRequest) -> Recorded:
        """Write the request; return when it is durable.

        A caller that is cancelled meanwhile may find it written all the same.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Recorded] = loop.create_future()
        self._put(_Waiting(request, loop, future))
        crash_points.reach("append.enqueued")
        return await future

    def put_vectors(self, rows: Mapping[VectorKey, bytes]) -> None:
        """Write vectors with the next group; `pending` has them at once."""
        if self.pending.put(rows) and rows:
            self._put(_Signal.PENDING)

    def close(self) -> None:
        """Write what waits, empty the write-ahead log, end the thread and free the lock."""
        self._put(_Signal.STOP)
        self._thread.join()
        self._unlock()

    def _put(self, item: _Waiting | _Signal) -> None:
        with self._lock:
            if self._closing:
                raise StoreError(f"the journal at {self.backend.name} is closed")
            self._closing = item is _Signal.STOP
            self._queue.put(item)

    # -- the writer's thread -----------------------------------------------------------

    def _run(self) -> None:
        stopping = False
        wake_at: float | None = None
        while not stopping:
            group, stopping = self._take(wake_at)
            now = time.monotonic()
            if group or stopping or (wake_at is not None and now >= wake_at):
                wake_at = None
                crash_points.reach("append.taken")
                self._commit(group)
                self.committer.checkpoint(whole=False)
            if wake_at is None and self.pending:
                wake_at = now + _CACHE_DELAY_S
            if wake_at is None and self.committer.scrub_due:
                wake_at = self.committer.scrub_at
        crash_points.reach("close.drained")
        self.committer.close()

    def _take(self, wake_at: float | None) -> tuple[list[_Waiting], bool]:
        """Wait for appends and take one group: (group, whether to stop)."""
        group, size_bytes = list[_Waiting](), 0
        timeout = None if wake_at is None else max(0.0, wake_at - time.monotonic())
        with suppress(queue.Empty):
            item = self._queue.get(timeout=timeout)
            while item is not _Signal.STOP:
                if isinstance(item, _Waiting):
                    group.append(item)
                    size_bytes += item.request.size_bytes
                if len(group) >= _MAX_GROUP or size_bytes >= _MAX_GROUP_BYTES:
                    return group, False
                item = self._queue.get_nowait()
            return group, True
        return group, False

    def _commit(self, group: list[_Waiting]) -> None:
        committer = self.committer
        outcomes = committer.commit([waiting.request for waiting in group])
        done = list(zip(group, outcomes, strict=True))
        erasing = [pair for pair in done if pair[0].request.erases]
        _answer([pair for pair in done if not pair[0].request.erases])
        if committer.scrub_due and (erasing or time.monotonic() >= committer.scrub_at):
            committer.scrub()
        _answer(erasing)


def _answer(done: list[tuple[_Waiting, Outcome]]) -> None:
    if not done:
        return
    crash_points.reach("ack.before")
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Recorded], Outcome]]] = {}
    for waiting, outcome in done:
        by_loop.setdefault(waiting.loop, []).append((waiting.future, outcome))
    for loop, results in by_loop.items():
        with suppress(RuntimeError):  # the loop has been closed: nobody waits any more
            loop.call_soon_threadsafe(_deliver, results)


def _deliver(results: list[tuple[asyncio.Future[Recorded], Outcome]]) -> None:
    for future, outcome in results:
        if future.done():
            continue
        if isinstance(outcome, tuple):
            future.set_result(outcome)
        else:
            future.set_exception(outcome)


OPEN_WRITERS: Final = OpenParts[Backend, JournalWriter]()
"""The open writers of this process."""


def open_writer(backend: Backend) -> JournalWriter:
    """Return the writer of a database, opened if need be; `OPEN_WRITERS` takes it back.

    Raises as opening a journal does.
    """

    def make() -> JournalWriter:
        unlock = backend.take_lock()
        try:
            with backend.translating("opening"):
                make_schema(backend)
                return JournalWriter(backend, unlock)
        except BaseException:
            unlock()
            raise

    return OPEN_WRITERS.acquire(backend, make)


_EMBEDDER_KEY: Final = "embedder"


class SqlEmbeddingCache:
    """Vectors in a journal's database, written by the journal's writer and gone with any erasure.

    Thread-safe.

    The `cache` of a journal; it also knows which embedder the store's vectors come from.
    Without a writer (a journal opened for reading) `put_many` keeps nothing.
    """

    def __init__(self, reader: JournalReader, writer: JournalWriter | None) -> None:
        self._reader, self._writer = reader, writer

    def get_many(self, embedder_id: str, digests: Sequence[str]) -> dict[str, Vector]:
        """Return known vectors (D,) by digest; unknown digests are left out.

        Raises `StoreError`s.
        """
        self._reader.ready()
        pending = self._writer.pending if self._writer is not None else PendingVectors()
        waiting = pending.waiting([(embedder_id, digest) for digest in digests])
        known = {digest: blob for (_, digest), blob in waiting.items()}
        missing = [digest for digest in dict.fromkeys(digests) if digest not in known]
        known |= self._reader.vectors(embedder_id, missing)
        return {
            digest: np.frombuffer(known[digest], dtype="<f4").astype(np.float32, copy=False)
            for digest in digests
            if digest in known
        }

    def put_many(self, embedder_id: str, rows: Mapping[str, Vector]) -> None:
        """Keep vectors (D,), in place of those kept before.

        Raises `EmbeddingError` for what is not a finite vector, `StoreError`s.
        """
        self._reader.ready()
        fresh: dict[VectorKey, bytes] = {}
        for digest, vector in rows.items():
            array = np.asarray(vector, dtype="<f4")
            if array.ndim != 1 or not array.size or not np.isfinite(array).all():
                raise EmbeddingError(
                    f"the vector for text digest {digest!r} is not a finite one-dimensional "
                    f"array (shape {array.shape})"
                )
            fresh[embedder_id, digest] = array.tobytes()
        if self._writer is not None:
            self._writer.put_vectors(fresh)

    def claimed(self) -> tuple[str, int] | None:
        """Return (id, width) of the embedder that this store's vectors come from.

        None when no embedder was claimed yet.
        """
        value = self._reader.meta(_EMBEDDER_KEY)
        if value is None:
            return None
        dim, _, embedder_id = value.partition(" ")
        return embedder_id, int(dim)

    def claim(self, embedder_id: str, dim: int, *, force: bool = False) -> None:
        """Claim the store's vectors for an embedder.

        The first claim stays unless `force` is set (after embedding anew) or nothing is
        stored yet.

        Raises `ConfigError` naming both embedders and the way out when another one was
        claimed.
        """
        known = self.claimed()
        if known == (embedder_id, dim):
            return
        if known is not None and not force and self._reader.scopes():
            raise ConfigError(
                f"the memory at {self._reader.place} was embedded by {known[0]!r} ({known[1]} "
                f"dimensions), but {embedder_id!r} ({dim} dimensions) "
                "is configured; their vectors cannot be compared. Configure the first one "
                "again, or embed the memory anew:  "
                "memagent reembed"
            )
        if self._writer is not None:
            put_meta(self._writer.backend, _EMBEDDER_KEY, f"{dim} {embedder_id}")


_MAX_KEY_CHARS: Final = 256
_FIRST_ROWS: Final = 8
_MAX_DIGEST_CHARS: Final = 128


class DatabaseJournal:
    """A `Journal` over a backend.

    Thread-safe; those of the same database share a writer within a process.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        read_only: bool,
        clock: Clock,
    ) -> None:
        # The database, for what else is kept in it.
        self.backend = backend
        # The place of the journal, for messages; never with a password.
        self.place = backend.name
        self.read_only = read_only
        self._clock = clock
        # Entered around an erasure by whoever keeps copies of a scope outside of the journal.
        self.erasing: Callable[[Scope], AbstractContextManager[object]] = lambda _: nullcontext()
        self._pid = os.getpid()
        self._closed = False
        self._reader = JournalReader(backend, self._check)
        self._writer: JournalWriter | None = None
        try:
            if not read_only:
                self._writer = open_writer(backend)
            self._reader.ready()
        except BaseException:
            self.close()
            raise
        # The embedding cache in the same database; usable until the journal is closed.
        self.cache = SqlEmbeddingCache(self._reader, self._writer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.place!r}{', read_only=True' if self.read_only else ''})"
        )

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
        response = None if idempotency is None else _response(idempotency, entries)
        if not entries:
            return []
        dates = dates_of(entries, recorded_at, self._clock)
        prepared = (
            await aside(_prepared, entries, dates)
            if is_large(entries)
            else _prepared(entries, dates)
        )
        request = AppendRequest(scope_key(scope), prepared, expect, response)
        with self.erasing(scope) if request.erases else nullcontext():
            recorded = await self._writer.append(request)
        return [
            JournalRow(seq=seq, recorded_at=from_microseconds(recorded_us), entry=entry)
            for seq, (entry, recorded_us) in enumerate(
                zip(entries, recorded, strict=True), expect + 1
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
            recorded = await self._writer.append(request)
        return JournalRow(seq=expect + 1, recorded_at=from_microseconds(recorded[0]), entry=entry)

    def naming(self, scope: Scope, named: Callable[[bytes], bool]) -> AsyncIterator[JournalRow]:
        """Yield the rows whose encoded entries `named` says yes to; the others are only checked.

        Raises `StoreCorrupt` as `since` does.
        """
        return self.since(scope, 0, named=named)

    async def since(
        self, scope: Scope, seq: int, *, named: Callable[[bytes], bool] | None = None
    ) -> AsyncIterator[JournalRow]:
        """Yield the rows after `seq` in order, a page at a time, without erased ones.

        The first page is small: who looks for one row stops there. The last page goes
        up to what is committed when it is read. Erased rows are left out.
        Raises `StoreCorrupt` for a row that is missing or cannot be read.
        """
        self._check()
        key = scope_key(scope)
        complete = not self.backend.shared and await self.head(scope) <= seq
        most: int | None = _FIRST_ROWS
        while not complete:
            page = await asyncio.to_thread(self._reader.page, key, seq, rows=most, named=named)
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
        if self.backend.shared:
            return await asyncio.to_thread(self._reader.head, scope_key(scope))
        if self._writer is None:
            return self._reader.head(scope_key(scope))
        return self._writer.committer.head(scope_key(scope), self._reader.head)

    async def scopes(self) -> list[Scope]:
        """Return every scope that holds something, in order of key; erased ones are nameless."""
        return await asyncio.to_thread(self._reader.scopes)

    def verify(self, scope: Scope) -> list[str]:
        """Return what is wrong with the scope's log, the first bad sequence first; [] is well.

        Blocks.
        """
        return self._reader.verify(scope_key(scope))

    def verify_erased(self) -> list[str]:
        """Return what is wrong with the logs of erased scopes, as `verify` does. Blocks."""
        return self._reader.verify_erased()

    def compare_tips(self) -> list[str]:
        """Return where the database and the noted ends of its logs disagree; blocks.

        A log that other machines wrote alone is not noted here, and not told. [] where
        nothing was noted, unless a key or the settings ask for it: then a missing file is
        told.
        """
        return self._reader.compare_tips()

    def chain_at(self, scope: Scope, seq: int) -> bytes | None:
        """Return a row's chain hash; None where there is none or an erasure came later. Blocks."""
        return self._reader.chain_at(scope_key(scope), seq)

    def response(self, scope: Scope, key: str) -> StoredResponse | None:
        """Return the first response to the request with this idempotency key.

        None when the scope has not seen the key.
        """
        return self._reader.response(scope_key(scope), key)

    def drop_response(self, scope: Scope, key: str) -> bool:
        """Delete the response of an idempotency key; return whether it was there. Blocks."""
        self._check()
        return drop_response(self.backend, scope_digest(scope_key(scope)), key)

    def prune_responses(self, *, before: datetime, most: int) -> int:
        """Delete first responses older than a moment, and the oldest beyond the newest `most`.

        Return their number. Blocks.
        """
        self._check()
        return prune_responses(self.backend, to_microseconds(before), most)

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
            OPEN_WRITERS.release(self.backend, JournalWriter.close)

    def _check(self) -> None:
        if self._pid != os.getpid():
            raise StoreError(
                f"the journal at {self.place} was opened before a fork; open stores after it, "
                "or start the child process anew ('spawn')"
            )
        if self._closed:
            raise StoreError(f"the journal at {self.place} is closed")


def _prepared(entries: Sequence[Entry], dates: Sequence[datetime]) -> tuple[PreparedEntry, ...]:
    return tuple(map(prepare_entry, entries, dates))


def _response(idempotency: tuple[str, str, str], entries: Sequence[Entry]) -> StoredResponse:
    key, body_digest, response_json = idempotency
    if not entries or not 0 < len(key) <= _MAX_KEY_CHARS or len(body_digest) > _MAX_DIGEST_CHARS:
        raise InputError(
            f"an idempotency key comes with an entry and has 1 to {_MAX_KEY_CHARS} characters, "
            f"its digest at most {_MAX_DIGEST_CHARS}"
        )
    return StoredResponse(key, body_digest, response_json)
