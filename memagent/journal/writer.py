"""The one writer of a store in this process: a thread that owns the writing connection,
commits in groups, and makes SQLite's checkpoints.

Appends come from any thread or event loop and wait in a queue; the thread takes all
that wait, writes them in one transaction, and answers only after the commit has
returned. While one group waits for the disk the next one gathers, so throughput grows
with load and a lone append is not delayed. Vectors for the cache ride along with the
next group, or go alone after a moment. Erasing is more than deleting: databases leave
what was deleted in their files. So after an erasure the backend scrubs them (SQLite is
rebuilt with `VACUUM`, which takes time in proportion to its size while other appends
wait) before the erasure is acknowledged. A mark in the database survives a crash in
between and has it done on the next open. The surprise: a connection that is lost during
a commit leaves it open whether the commit happened. The writer connects again and
looks, so a caller hears of a failure only where nothing was written, or where nobody
can tell (`StoreUnavailable` that says so).
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from enum import Enum, auto
from typing import Final, NamedTuple, TypeAlias

from memagent.core import crash_points
from memagent.core.errors import (
    InputError,
    StoreCorrupt,
    StoreError,
    StoreReadOnly,
    StoreUnavailable,
)
from memagent.journal.backend import Backend, DriverConnection, DriverCursor, Tip
from memagent.journal.rows import ScopeKey, vector_crc
from memagent.journal.statements import ERASURE_KEY, SCRUB_KEY
from memagent.journal.transaction import Appended, AppendRequest, StaleTips, Transaction

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
_RECONNECT_S: Final = 5.0
_RECONNECT_PAUSE_S: Final = 0.1


class _Signal(Enum):
    VECTORS = auto()
    STOP = auto()


class _Waiting(NamedTuple):
    request: AppendRequest
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Appended]


class JournalWriter:
    """Owns the writing connection to a database; the caller has prepared the schema,
    and holds the writer's lock where there is one.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.scrub_due = False
        """Whether erased bytes may still lie in the files."""
        self._scrub_at = 0.0
        self._erasure = ""
        """The mark of the last erasure that this writer knows of."""
        self._tips: dict[ScopeKey, Tip] = {}
        """Ends of the logs lately written to, where nobody else writes; changed only by
        the thread, and only after a commit.
        """
        self._lock = threading.Lock()
        self._closing = False
        self._vectors: dict[VectorKey, bytes] = {}
        self._meta: dict[str, str] = {}
        self._written_bytes = 0
        self._queue: queue.SimpleQueue[_Waiting | _Signal] = queue.SimpleQueue()
        self._connection: DriverConnection | None = None
        try:
            self._recover(self._connected())
        except backend.driver_error as exc:
            self._disconnect()
            raise backend.error(exc, "opening") from exc
        self._thread = threading.Thread(
            target=self._run, name=f"memagent-journal {backend.name}", daemon=True
        )
        self._thread.start()

    # ---- called from any thread

    async def append(self, request: AppendRequest) -> Appended:
        """Have the request written; returns when it is durable.

        A caller that is cancelled meanwhile may find it written all the same.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Appended] = loop.create_future()
        self._put(_Waiting(request, loop, future))
        crash_points.reach("append.enqueued")
        return await future

    def head(self, scope: ScopeKey) -> int | None:
        """The committed head of a scope written to lately; None means that the database
        has to be asked.
        """
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
                raise StoreError(f"the journal at {self._backend.name} is closed")
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
                with self._backend.guard():
                    self._commit(group)
                    if self._written_bytes >= _CHECKPOINT_BYTES:
                        self._checkpoint(whole=False)
            if wake_at is None and (vectors_came or self._vectors or self._meta):
                wake_at = now + _CACHE_DELAY_S
            if wake_at is None and self.scrub_due:
                wake_at = self._scrub_at
        crash_points.reach("close.drained")
        with self._backend.guard():
            self._checkpoint(whole=True)
            self._disconnect()

    def _take(self, wake_at: float | None) -> tuple[list[_Waiting], bool, bool]:
        """All that waits, at most one group of it; whether to stop; whether vectors came.

        Waits for something to come.
        """
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
            # something else wrote to the database, or the connection had gone: look
            # again, once
            except Exception as exc:
                if not isinstance(exc, StaleTips) and not self._backend.worth_another_try(exc):
                    raise
                return self._transact(requests)
        except Exception as exc:
            error = exc if isinstance(exc, StoreError) else self._backend.error(exc, "writing to")
            if len(requests) <= 1 or isinstance(
                error, StoreUnavailable | StoreReadOnly | StoreCorrupt
            ):
                return [_like(error, exc) for _ in requests]
        # One of them cannot be written at all: find out which, so that it fails alone.
        return [outcome for request in requests for outcome in self._outcomes([request])]

    def _transact(self, requests: list[AppendRequest]) -> list[Outcome]:
        with self._lock:
            vectors, meta = dict(self._vectors), dict(self._meta)
        backend, connection = self._backend, self._connected()
        cursor = connection.cursor()
        try:
            known = backend.begin(cursor, {request.scope for request in requests}, self._tips)
            crash_points.reach("transaction.begun")
            transaction = Transaction(cursor, backend, known)
            outcomes = [_stage(transaction, request) for request in requests]
            transaction.flush()
            if vectors and not transaction.erased and self._still_wanted(cursor):
                rows = [
                    (*key, len(blob) // 4, blob, vector_crc(*key, blob))
                    for key, blob in sorted(vectors.items())
                ]
                backend.write_rows(cursor, backend.sql.vector, rows)
                crash_points.reach("cache.written")
            for item in meta.items():
                cursor.execute(backend.sql.put_meta, item)
            crash_points.reach("commit.before")
            self._finish(cursor, transaction)
        except BaseException:
            self._roll_back(connection)
            raise
        finally:
            cursor.close()
            with self._lock:  # written, or given up: they are only a cache
                self._vectors = {
                    key: blob for key, blob in self._vectors.items() if vectors.get(key) is not blob
                }
        crash_points.reach("commit.after")
        if meta:
            with self._lock:
                self._meta = {
                    key: value for key, value in self._meta.items() if meta.get(key) != value
                }
        if len(self._tips) > _MAX_TIPS:
            self._tips.clear()
        if not backend.shared:
            self._tips.update(transaction.tips)
        self._written_bytes += _COMMIT_BYTES + sum(request.size_bytes for request in requests)
        self._written_bytes += sum(map(len, vectors.values()))
        if transaction.erased:
            self.scrub_due = True
            self._erasure = transaction.erased if backend.shared else ""
            with self._lock:
                self._vectors = {}
        return outcomes

    def _finish(self, cursor: DriverCursor, transaction: Transaction) -> None:
        """Commit. An answer that was lost with the connection is found out."""
        try:
            cursor.execute("COMMIT")
        except self._backend.driver_error as exc:
            if (
                not self._backend.shared
                or not transaction.tips
                or self._landed(transaction) is False
            ):
                raise
            if self._connection is None:
                raise StoreUnavailable(
                    f"the connection to {self._backend.name} was lost during a commit and cannot be made again: whether the entries "
                    "were written shows when the store is back"
                ) from exc

    def _landed(self, transaction: Transaction) -> bool | None:
        """Whether a commit whose answer was lost has happened; None, and no connection,
        when the database cannot be asked.

        The old transaction holds the locks of its scopes for as long as it is
        undecided, and beginning anew waits for them.
        """
        scope, tip = next(iter(transaction.tips.items()))
        give_up_at = time.monotonic() + _RECONNECT_S
        while True:
            self._disconnect()
            try:
                cursor = self._connected().cursor()
                self._backend.begin(cursor, {scope}, {})
                found = cursor.execute(self._backend.sql.chain, (tip.scope_id, tip.head)).fetchone()
                cursor.execute("ROLLBACK")
            except self._backend.driver_error:
                if time.monotonic() > give_up_at:
                    self._disconnect()
                    return None
                time.sleep(_RECONNECT_PAUSE_S)
            else:
                return found is not None and bytes(found[0]) == tip.chain

    def _still_wanted(self, cursor: DriverCursor) -> bool:
        """Whether no other process has erased anything since the last look; what was
        embedded before may be of erased words.
        """
        before, self._erasure = self._erasure, self._backend.last_erasure(cursor)
        return self._erasure == before

    def _roll_back(self, connection: DriverConnection) -> None:
        self._tips.clear()
        try:
            if self._backend.in_transaction(connection):
                connection.execute("ROLLBACK")
        except self._backend.driver_error:
            self._disconnect()

    def _checkpoint(self, *, whole: bool) -> bool:
        """Move the write-ahead log along where that is ours to do; whether nothing is left of it."""
        self._written_bytes = 0
        if self._backend.shared:
            return True
        crash_points.reach("checkpoint.before")
        try:
            done = self._backend.checkpoint(self._connected(), whole=whole)
        except self._backend.driver_error:
            return False  # the log stays and is tried again later
        crash_points.reach("checkpoint.after")
        return done

    def _scrub(self) -> None:
        """Rebuild the files without what was erased.

        Where that fails now, the mark stays and the next commit or open tries again.
        """
        crash_points.reach("erase.committed")
        self._scrub_at = time.monotonic() + _SCRUB_AGAIN_S
        try:
            connection = self._connected()
            asked = connection.execute(self._backend.sql.meta_value, (SCRUB_KEY,)).fetchone()
            if not self._backend.scrub(connection) or not self._checkpoint(whole=True):
                return
            if (
                asked is not None
            ):  # another process may have erased meanwhile, and its mark must stay
                connection.execute(self._backend.sql.scrub_done, (SCRUB_KEY, asked[0]))
            self.scrub_due = False
        except self._backend.driver_error:
            return
        crash_points.reach("erase.scrubbed")

    def _recover(self, connection: DriverConnection) -> None:
        self._checkpoint(whole=True)
        self.scrub_due = (
            connection.execute(self._backend.sql.meta_value, (SCRUB_KEY,)).fetchone() is not None
        )
        if self.scrub_due:
            self._scrub()
        if self._backend.shared:
            erased = connection.execute(self._backend.sql.meta_value, (ERASURE_KEY,)).fetchone()
            self._erasure = erased[0] if erased is not None else ""

    def _connected(self) -> DriverConnection:
        if self._connection is None:
            self._connection = self._backend.connect()
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(self._backend.driver_error):
                connection.close()


def _stage(transaction: Transaction, request: AppendRequest) -> Outcome:
    try:
        return transaction.stage(request)
    except StoreError as refused:
        return refused


def _like(error: StoreError | InputError, cause: Exception) -> StoreError | InputError:
    """Its own error for each caller, since an exception collects the frames of whoever raises it."""
    copy = type(error)(str(error))
    copy.retryable = error.retryable
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
