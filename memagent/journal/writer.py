"""The one writer of a store in this process: a thread that commits appends in groups.

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
import queue
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import Enum, auto
from typing import Final, NamedTuple

from memagent.core import crash_points
from memagent.core.errors import StoreError
from memagent.journal.backend import Backend, OpenParts
from memagent.journal.committer import (
    Appended,
    AppendRequest,
    Committer,
    Outcome,
    PendingVectors,
    VectorKey,
)
from memagent.journal.schema import make_schema

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
            group, stopping, signalled = self._take(wake_at)
            now = time.monotonic()
            if group or stopping or (wake_at is not None and now >= wake_at):
                wake_at = None
                crash_points.reach("append.taken")
                self._commit(group)
                self.committer.checkpoint(whole=False)
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
