"""The one writer of a store: a thread that owns the writing connection, commits in groups and makes every checkpoint.

Appends come from any thread or event loop and wait in a queue; the thread takes all that wait, writes them in one transaction, and answers
only after the commit has returned. While one group waits for the disk the next one gathers, so throughput grows with load and a lone append
is not delayed. Vectors for the cache ride along with the next group, or go alone after a moment.
Erasing is more than deleting: SQLite leaves copies of moved rows in the gaps of pages, even with `secure_delete`. So after an erasure
the database is rebuilt (`VACUUM`, which takes time in proportion to its size while other appends wait) and the write-ahead log emptied
before the erasure is acknowledged. A mark in the database survives a crash in between and has it done on the next open.
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from enum import Enum, auto
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from memagent.core.errors import InputError, StoreCorrupt, StoreError, StoreReadOnly, StoreUnavailable
from memagent.stores import crash_points
from memagent.stores.fork_gate import FORK_GATE
from memagent.stores.journal_rows import ScopeKey, vector_crc
from memagent.stores.journal_statements import SCRUB_KEY, Sql
from memagent.stores.journal_transaction import Appended, AppendRequest, StaleTips, Tip, Transaction
from memagent.stores.sqlite_engine import Synchronous, connect_for_writing, make_durable, store_error, wal_is_long

Outcome: TypeAlias = Appended | StoreError | InputError
VectorKey: TypeAlias = tuple[str, str]
"""(embedder id, text digest)."""

_MAX_GROUP: Final = 512
_MAX_GROUP_BYTES: Final = 32 * 1024 * 1024
_CACHE_DELAY_S: Final = 0.2
_SCRUB_AGAIN_S: Final = 30.0
_CHECKPOINT_BYTES: Final = 4 * 1024 * 1024
_COMMIT_BYTES: Final = 16 * 1024
_MAX_TIPS: Final = 65_536


class _Signal(Enum):
    VECTORS = auto()
    STOP = auto()


class _Waiting(NamedTuple):
    request: AppendRequest
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Appended]


class JournalWriter:
    """Owns the writing connection of the database at `path`; the caller holds the writer's lock and has prepared the schema."""

    def __init__(self, path: Path, *, synchronous: Synchronous) -> None:
        self.path = path
        self.synchronous: Synchronous = synchronous
        self.scrub_due = False
        """Whether erased bytes may still lie in the files."""
        self._scrub_at = 0.0
        self._tips: dict[ScopeKey, Tip] = {}
        """Ends of the logs lately written to; changed only by the thread, and only after a commit."""
        self._lock = threading.Lock()
        self._closing = False
        self._vectors: dict[VectorKey, bytes] = {}
        self._meta: dict[str, str] = {}
        self._written_bytes = 0
        self._queue: queue.SimpleQueue[_Waiting | _Signal] = queue.SimpleQueue()
        self._connection: sqlite3.Connection | None = None
        try:
            self._recover(self._connected())
        except sqlite3.Error as exc:
            self._disconnect()
            raise store_error(exc, path, "opening") from exc
        self._thread = threading.Thread(target=self._run, name=f"memagent-journal {path.name}", daemon=True)
        self._thread.start()

    # ---- called from any thread

    async def append(self, request: AppendRequest) -> Appended:
        """Have the request written; returns when it is durable. A caller that is cancelled meanwhile may find it written all the same."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Appended] = loop.create_future()
        self._put(_Waiting(request, loop, future))
        crash_points.reach("append.enqueued")
        return await future

    def head(self, scope: ScopeKey) -> int | None:
        """The committed head of a scope written to lately; None means that the database has to be asked."""
        tip = self._tips.get(scope)
        return None if tip is None else tip.head

    def put_vectors(self, rows: Mapping[VectorKey, bytes]) -> None:
        """Have vectors written with the next group; they can be read at once from `vectors()`."""
        with self._lock:
            first = not self._vectors
            self._vectors |= rows
        if rows and first:
            self._put(_Signal.VECTORS)

    def put_meta(self, key: str, value: str) -> None:
        """Have a property of the store written with the next group; `meta()` shows it at once."""
        with self._lock:
            self._meta[key] = value
        self._put(_Signal.VECTORS)

    def meta(self, key: str) -> str | None:
        """A property of the store that is not written yet."""
        with self._lock:
            return self._meta.get(key)

    def vectors(self, keys: Sequence[VectorKey]) -> dict[VectorKey, bytes]:
        """Those of the vectors that are not written yet."""
        with self._lock:
            waiting = self._vectors
            return {key: waiting[key] for key in keys if key in waiting} if waiting else {}

    def close(self) -> None:
        """Write what waits, empty the write-ahead log and end the thread."""
        self._put(_Signal.STOP)
        self._thread.join()

    def _put(self, item: _Waiting | _Signal) -> None:
        with self._lock:
            if self._closing:
                raise StoreError(f"the journal at {self.path} is closed")
            self._closing = item is _Signal.STOP
            self._queue.put(item)

    # ---- the writer's thread

    def _run(self) -> None:
        stopping = False
        wake_at: float | None = None
        while not stopping:
            group, stopping, vectors_came = self._take(wake_at)
            now = time.monotonic()
            if group or stopping or (wake_at is not None and now >= wake_at):
                wake_at = None
                crash_points.reach("append.taken")
                with FORK_GATE.inside():
                    self._commit(group)
                    if self._written_bytes >= _CHECKPOINT_BYTES:
                        self._checkpoint("TRUNCATE" if wal_is_long(self.path) else "PASSIVE")
            if wake_at is None and (vectors_came or self._vectors or self._meta):
                wake_at = now + _CACHE_DELAY_S
            if wake_at is None and self.scrub_due:
                wake_at = self._scrub_at
        crash_points.reach("close.drained")
        with FORK_GATE.inside():
            self._checkpoint("TRUNCATE")
            self._disconnect()

    def _take(self, wake_at: float | None) -> tuple[list[_Waiting], bool, bool]:
        """All that waits, at most one group of it; whether to stop; whether vectors came. Waits for something to come."""
        group: list[_Waiting] = []
        size_bytes, vectors_came = 0, False
        timeout = None if wake_at is None else max(0.0, wake_at - time.monotonic())
        try:
            item = self._queue.get(timeout=timeout)
            while True:
                if item is _Signal.STOP:
                    return group, True, vectors_came
                if isinstance(item, _Waiting):
                    group.append(item)
                    size_bytes += item.request.size_bytes
                else:
                    vectors_came = True
                if len(group) >= _MAX_GROUP or size_bytes >= _MAX_GROUP_BYTES:
                    break
                item = self._queue.get_nowait()
        except queue.Empty:
            pass
        return group, False, vectors_came

    def _commit(self, group: list[_Waiting]) -> None:
        outcomes = self._outcomes([waiting.request for waiting in group])
        erasing = [waiting.request.erases for waiting in group]
        done = list(zip(group, outcomes, erasing, strict=True))
        _answer([(waiting, outcome) for waiting, outcome, erases in done if not erases])
        if self.scrub_due and (any(erasing) or time.monotonic() >= self._scrub_at):
            self._scrub()
        _answer([(waiting, outcome) for waiting, outcome, erases in done if erases])

    def _outcomes(self, requests: list[AppendRequest]) -> list[Outcome]:
        """What became of each request; never raises."""
        try:
            try:
                return self._transact(requests)
            except (StaleTips, sqlite3.IntegrityError):  # something else wrote to the file: look at it again, once
                return self._transact(requests)
        except Exception as exc:
            error = store_error(exc, self.path, "writing to")
            if len(requests) <= 1 or isinstance(error, StoreUnavailable | StoreReadOnly | StoreCorrupt):
                return [_like(error, exc) for _ in requests]
        # One of them cannot be written at all: find out which, so that it fails alone.
        return [outcome for request in requests for outcome in self._outcomes([request])]

    def _transact(self, requests: list[AppendRequest]) -> list[Outcome]:
        with self._lock:
            vectors, meta = dict(self._vectors), dict(self._meta)
        connection = self._connected()
        cursor = connection.cursor()
        try:
            cursor.execute("BEGIN IMMEDIATE")
            crash_points.reach("transaction.begun")
            transaction = Transaction(cursor, self._tips)
            outcomes = [_stage(transaction, request) for request in requests]
            transaction.flush()
            if vectors and not transaction.erased:
                cursor.executemany(
                    Sql.vector, [(*key, len(blob) // 4, blob, vector_crc(*key, blob)) for key, blob in vectors.items()]
                )
                crash_points.reach("cache.written")
            if meta:
                cursor.executemany(Sql.put_meta, list(meta.items()))
            crash_points.reach("commit.before")
            cursor.execute("COMMIT")
        except BaseException:
            self._roll_back(connection)
            raise
        finally:
            cursor.close()
            with self._lock:  # written, or given up: they are only a cache
                self._vectors = {key: blob for key, blob in self._vectors.items() if vectors.get(key) is not blob}
        crash_points.reach("commit.after")
        if meta:
            with self._lock:
                self._meta = {key: value for key, value in self._meta.items() if meta.get(key) != value}
        if len(self._tips) > _MAX_TIPS:
            self._tips.clear()
        self._tips.update(transaction.tips)
        self._written_bytes += _COMMIT_BYTES + sum(request.size_bytes for request in requests)
        self._written_bytes += sum(map(len, vectors.values()))
        if transaction.erased:
            self.scrub_due = True
            with self._lock:
                self._vectors = {}
        return outcomes

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        self._tips.clear()
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            self._disconnect()

    def _checkpoint(self, mode: str) -> bool:
        """Move the write-ahead log into the database; whether all of it went."""
        self._written_bytes = 0
        crash_points.reach("checkpoint.before")
        try:
            busy, _, _ = self._connected().execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        except sqlite3.Error:
            return False  # the log stays and is tried again later
        crash_points.reach("checkpoint.after")
        return not busy

    def _scrub(self) -> None:
        """Rebuild the files without what was erased. Where that fails now, the mark stays and the next commit or open tries again."""
        crash_points.reach("erase.committed")
        self._scrub_at = time.monotonic() + _SCRUB_AGAIN_S
        try:
            connection = self._connected()
            connection.execute("VACUUM")
            if self._checkpoint("TRUNCATE"):
                connection.execute(Sql.scrub_done, (SCRUB_KEY,))
                self.scrub_due = False
        except sqlite3.Error:
            return
        crash_points.reach("erase.scrubbed")

    def _recover(self, connection: sqlite3.Connection) -> None:
        self._checkpoint("TRUNCATE")
        self.scrub_due = connection.execute(Sql.scrub_asked, (SCRUB_KEY,)).fetchone() is not None
        if self.scrub_due:
            self._scrub()

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = connect_for_writing(self.path)
            make_durable(self._connection, self.synchronous)
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()


def _stage(transaction: Transaction, request: AppendRequest) -> Outcome:
    try:
        return transaction.stage(request)
    except StoreError as refused:
        return refused


def _like(error: StoreError | InputError, cause: Exception) -> StoreError | InputError:
    """Its own error for each caller, since an exception collects the frames of whoever raises it."""
    copy = type(error)(str(error))
    copy.__cause__ = cause
    return copy


def _answer(done: list[tuple[_Waiting, Outcome]]) -> None:
    if not done:
        return
    crash_points.reach("ack.before")
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Appended], Outcome]]] = {}
    for waiting, outcome in done:
        by_loop.setdefault(waiting.loop, []).append((waiting.future, outcome))
    for loop, results in by_loop.items():
        with suppress(RuntimeError):  # the loop has been closed: nobody waits any more
            loop.call_soon_threadsafe(_deliver, results)


def _deliver(results: list[tuple[asyncio.Future[Appended], Outcome]]) -> None:
    for future, outcome in results:
        if future.done():
            continue
        if isinstance(outcome, Appended):
            future.set_result(outcome)
        else:
            future.set_exception(outcome)
