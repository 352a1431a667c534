"""The one writer of a store in this process: a thread that commits appends in groups.

Appends come from any thread or event loop and wait in a queue; the thread takes all
that wait, writes them in one transaction, and answers only after the commit has
returned. While one group waits for the disk the next one gathers, so throughput grows
with load and a lone append is not delayed. Vectors for the cache go along with the next
group, or alone after a moment. An erasure is acknowledged after the files were scrubbed
(`committer`).

The writers open in this process are known by their database: a second open of the same
store shares the first one's writer.

A child made by `fork` inherits none of them. It keeps the connections untouched: using
or closing one across a fork corrupts a SQLite database, and ends a session of the
parent's elsewhere. Its lock files are dropped by `filelock`.
"""

from __future__ import annotations

import asyncio
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

from memagent.core import crash_points
from memagent.core.errors import StoreError
from memagent.journal.backend import Backend, corrupt
from memagent.journal.committer import Committer, Outcome, PendingRows, VectorKey
from memagent.journal.file_lock import FileLock
from memagent.journal.schema import make_schema
from memagent.journal.transaction import Appended, AppendRequest

_MAX_GROUP: Final = 512
_MAX_GROUP_BYTES: Final = 32 * 1024 * 1024
_CACHE_DELAY_S: Final = 0.2


class _Signal(Enum):
    PENDING = auto()
    STOP = auto()


class _Waiting(NamedTuple):
    request: AppendRequest
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Appended]


class JournalWriter:
    """The writing thread of a database.

    The caller has prepared the schema, and holds the writer's lock where there is one.
    Methods may be called from any thread.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.pending = PendingRows()
        self.committer = Committer(backend, self.pending)
        self._lock = threading.Lock()
        self._closing = False
        self._queue: queue.SimpleQueue[_Waiting | _Signal] = queue.SimpleQueue()
        self._thread = threading.Thread(
            target=self._run, name=f"memagent-journal {backend.name}", daemon=True
        )
        self._thread.start()

    async def append(self, request: AppendRequest) -> Appended:
        """Write the request; return when it is durable.

        A caller that is cancelled meanwhile may find it written all the same.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Appended] = loop.create_future()
        self._put(_Waiting(request, loop, future))
        crash_points.reach("append.enqueued")
        return await future

    def put_vectors(self, rows: Mapping[VectorKey, bytes]) -> None:
        """Write vectors with the next group; `pending` has them at once."""
        if self.pending.put_vectors(rows) and rows:
            self._put(_Signal.PENDING)

    def put_meta(self, key: str, value: str) -> None:
        """Write a property of the store with the next group; `pending` has it at once."""
        self.pending.put_meta(key, value)
        self._put(_Signal.PENDING)

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

    # -- the writer's thread -----------------------------------------------------------

    def _run(self) -> None:
        stopping = False
        wake_at: float | None = None
        while not stopping:
            group, stopping, signalled = self._take(wake_at)
            now = time.monotonic()
            if group or stopping or (wake_at is not None and now >= wake_at):
                wake_at = None
                crash_points.reach("append.taken")
                self._commit(group)
                self.committer.checkpoint_when_long()
            if wake_at is None and (signalled or self.pending):
                wake_at = now + _CACHE_DELAY_S
            if wake_at is None and self.committer.scrub_due:
                wake_at = self.committer.scrub_at
        crash_points.reach("close.drained")
        self.committer.close()

    def _take(self, wake_at: float | None) -> tuple[list[_Waiting], bool, bool]:
        """Wait for appends and take one group: (group, whether to stop, whether rows pend)."""
        group: list[_Waiting] = []
        size_bytes, signalled = 0, False
        timeout = None if wake_at is None else max(0.0, wake_at - time.monotonic())
        with suppress(queue.Empty):
            item = self._queue.get(timeout=timeout)
            while item is not _Signal.STOP:
                if isinstance(item, _Waiting):
                    group.append(item)
                    size_bytes += item.request.size_bytes
                else:
                    signalled = True
                if len(group) >= _MAX_GROUP or size_bytes >= _MAX_GROUP_BYTES:
                    return group, False, signalled
                item = self._queue.get_nowait()
            return group, True, signalled
        return group, False, signalled

    def _commit(self, group: list[_Waiting]) -> None:
        committer = self.committer
        outcomes = committer.commit([waiting.request for waiting in group])
        erasing = [waiting.request.erases for waiting in group]
        done = list(zip(group, outcomes, erasing, strict=True))
        _answer([(waiting, outcome) for waiting, outcome, erases in done if not erases])
        if committer.scrub_due and (any(erasing) or time.monotonic() >= committer.scrub_at):
            committer.scrub()
        _answer([(waiting, outcome) for waiting, outcome, erases in done if erases])


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


@dataclass(slots=True)
class _Open:
    backend: Backend
    writer: JournalWriter
    lock: FileLock | None
    users: int = 1


class OpenWriters:
    """The table of open writers. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_backend: dict[Backend, _Open] = {}
        self._inherited: list[_Open] = []
        self._watches_forks = False

    def acquire(
        self, backend: Backend, *, lock: Callable[[], FileLock] | None
    ) -> tuple[JournalWriter, Backend]:
        """Return the writer of a database, opened if need be, and the backend it was opened with.

        Give it back with `release`.

        `lock` takes the lock that keeps other processes from writing, and makes the
        place ready. Raises as opening a journal does.
        """
        with self._lock:
            if not self._watches_forks and sys.platform != "win32":
                os.register_at_fork(after_in_child=self._forget)
                self._watches_forks = True
            shared = self._by_backend.get(backend)
            if shared is None:
                self._by_backend[backend] = shared = _open(
                    backend, lock() if lock is not None else None
                )
            else:
                shared.users += 1
            return shared.writer, shared.backend

    def release(self, backend: Backend) -> None:
        """Give a writer back; the last one to do so closes it and frees the lock."""
        with self._lock:
            shared = self._by_backend[backend]
            shared.users -= 1
            if shared.users == 0:
                del self._by_backend[backend]
                shared.writer.close()
                if shared.lock is not None:
                    shared.lock.release()

    def _forget(self) -> None:
        self._lock = threading.Lock()
        for shared in self._by_backend.values():
            self._inherited.append(shared)
        self._by_backend = {}


def _open(backend: Backend, lock: FileLock | None) -> _Open:
    try:
        make_schema(backend)
        return _Open(backend, JournalWriter(backend), lock)
    except UnicodeDecodeError as exc:
        if lock is not None:
            lock.release()
        raise corrupt(backend.name, "it holds bytes that are no text") from exc
    except BaseException:
        if lock is not None:
            lock.release()
        raise


OPEN_WRITERS = OpenWriters()
"""The open writers of this process."""
