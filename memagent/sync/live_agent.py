"""An agent for synchronous code: open, with an event loop in a thread, and its background.

`LoopThread` runs coroutines for calls from any thread. `stop` waits for those that run
and refuses later ones, so no call hangs. The surprise: a `SystemExit` or
`KeyboardInterrupt` that a coroutine raises is given to its caller *and* ends
`run_forever`, so the loop is simply run again. anyio's portal ends for good there, with
every other call in it left waiting.

`LiveAgent` is an agent, its store and its thread. A forked child inherits neither thread
nor connections: it leaves them to its parent and opens its own at the first call. While
the parent writes to a SQLite file, the child only reads; it may write once the parent
has closed.

`Background` remembers sessions one after the other. A write that fails is logged once,
counted in `failures`, and raised by the next `flush`; its turns are stored, so nothing is
lost meanwhile.

Synchronous verbs made of asynchronous ones, and the memory's verbs in that form.

`blocking` turns an asynchronous method into a synchronous one with the same name,
parameters, docstring and result, for editors as for `inspect.signature`; so no verb is
written twice. The surprise: the verb is looked up by its name on the object that the
call reaches, so one class serves a local `Memory` and the service's `RemoteMemory`.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import aclosing
from datetime import datetime
from functools import wraps
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

from memagent.core.answers import AsOf
from memagent.core.errors import ModelError, StoreError, StoreLocked, StoreReadOnly
from memagent.memory.facade import Memory

if TYPE_CHECKING:
    from memagent.async_agent import AsyncAgent
    from memagent.core.records import Session
    from memagent.core.snapshot import IngestReport, OnError


P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
CLOSED = "this agent is closed; open another one"
_WIND_UP_S = 5.0
_INHERITED: list[object] = []
_log = logging.getLogger("memagent.background")


class _End:
    """Marks the end of a stream."""


class _Workers(ThreadPoolExecutor):
    """Threads whose `StopIteration`, which no asyncio future can hold, is a `RuntimeError`."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        def call() -> T:
            try:
                return fn(*args, **kwargs)
            except StopIteration as stop:
                raise RuntimeError("a function in a thread raised StopIteration") from stop

        return super().submit(call)


class LoopThread:
    """One event loop in a daemon thread, and the calls that run in it."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.loop.set_default_executor(_Workers(thread_name_prefix="memagent-worker"))
        self._lock = threading.Lock()
        self._calls: set[Future[Any]] = set()
        self._ending = self._ended = False
        self._thread = threading.Thread(target=self._serve, name="memagent", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        while not self._ended:
            try:
                self.loop.run_forever()
            except (SystemExit, KeyboardInterrupt):
                continue  # the call that raised it has it

    def refuse_own(self) -> None:
        """Raise `StoreError` when called in the loop's own thread, where a wait never ends."""
        if threading.current_thread() is self._thread:
            raise StoreError(
                "an Agent was called from its own event loop; use AsyncAgent inside coroutines"
            )

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine. Raises `StoreError` once the thread is ending."""
        with self._lock:
            if self._ending:
                work.close()
                raise StoreError(CLOSED)
            future = asyncio.run_coroutine_threadsafe(work, self.loop)
            self._calls.add(future)
        future.add_done_callback(self._calls.discard)
        return future

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for a coroutine and return its result; Ctrl-C cancels it and is raised here."""
        try:
            self.refuse_own()
        except StoreError:
            work.close()
            raise
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def iterate(self, stream: AsyncGenerator[T]) -> Iterator[T]:
        """Yield the pieces of an asynchronous stream, which runs in one task of the loop.

        Leaving the iterator cancels the stream.
        """
        pieces: queue.SimpleQueue[T | _End] = queue.SimpleQueue()

        async def work() -> None:
            try:
                async with aclosing(stream):
                    async for piece in stream:
                        pieces.put(piece)
            finally:
                pieces.put(_End())

        self.refuse_own()
        future = self.submit(work())
        try:
            while not isinstance(piece := pieces.get(), _End):
                yield piece
            future.result()
        finally:
            future.cancel()

    def stop(self) -> None:
        """Let running calls finish, then end the loop and its thread; harmless when repeated."""
        with self._lock:
            first, self._ending = not self._ending, True
            calls = tuple(self._calls)
        wait(calls)
        if first:
            asyncio.run_coroutine_threadsafe(self._wind_up(), self.loop)
        self._thread.join(timeout=2 * _WIND_UP_S)
        if not self._thread.is_alive():
            self.loop.close()

    async def _wind_up(self) -> None:
        """Cancel the remaining tasks, then stop the loop.

        Calls that Ctrl-C ended and workers of vendors' libraries remain.
        """
        rest = {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}
        for task in rest:
            task.cancel()
        if rest:
            await asyncio.wait(rest, timeout=_WIND_UP_S)
        await self.loop.shutdown_asyncgens()
        self._ended = True
        self.loop.stop()


class LiveAgent:
    """An agent, its store and its loop's thread, opened together and closed together.

    `open_` opens an agent with its store, for reading only or not.
    """

    def __init__(self, open_: Callable[[bool], AsyncAgent], *, read_only: bool) -> None:
        self._open_agent, self._read_only = open_, read_only
        self._agent: AsyncAgent | None = None
        self._thread: LoopThread | None = None
        self._guard = threading.RLock()
        # Whether this is a forked child that only reads because its parent writes.
        self._locked_out = False
        self.closed = False
        self._open(read_only=read_only)

    @property
    def path(self) -> str | None:
        """The file or server of the memory; None where it is kept in the process."""
        store = self._agent.store if self._agent is not None else None
        return store.path if store is not None else None

    def parts(self) -> tuple[AsyncAgent, LoopThread]:
        """Return the agent and its thread. Raises `StoreError` when closed."""
        if self.closed:
            raise StoreError(CLOSED)
        if self._thread is None:  # a forked child starts anew, and may read while its parent writes
            with self._guard:
                if self._thread is None:
                    try:
                        self._open(read_only=self._read_only)
                    except StoreLocked:
                        self._open(read_only=True)
                        self._locked_out = True
        assert self._agent is not None and self._thread is not None
        return self._agent, self._thread

    def run(self, make: Callable[[AsyncAgent], Coroutine[Any, Any, T]]) -> T:
        """Wait for the coroutine that `make` gives for the agent."""
        agent, thread = self.parts()
        try:
            return thread.run(make(agent))
        except StoreReadOnly:
            if not self._locked_out:
                raise
        with self._guard:
            if self._locked_out:
                self._open(read_only=False)  # raises StoreLocked while the parent still writes
                self._locked_out = False
        return self.run(make)

    def refuse_own(self) -> None:
        """Raise `StoreError` in the agent's own thread, where a wait never ends."""
        if self._thread is not None:
            self._thread.refuse_own()

    def close(self) -> None:
        """Let running calls finish, end the thread and release the store."""
        self.closed = True
        try:
            if self._thread is not None:
                self._thread.stop()
        finally:
            _release(self._agent)

    def forget(self) -> None:
        """Leave the thread and the connections to the parent, in a forked child.

        Closing them here would harm the parent, so a reference is kept.
        """
        _INHERITED.append((self._agent, self._thread))
        self._agent = self._thread = None
        self._guard, self._locked_out = threading.RLock(), False

    def _open(self, *, read_only: bool) -> None:
        """Open the agent, in place of one that is open."""
        old, self._agent = self._agent, self._open_agent(read_only)
        _release(old)
        if self._thread is None:
            self._thread = LoopThread()


def _release(agent: AsyncAgent | None) -> None:
    if agent is not None and agent.store is not None:
        agent.store.close()


class Background:
    """The sessions that an agent remembers in the background, in order."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._futures: list[Future[IngestReport]] = []
        self.failures = 0
        """Background writes that failed since the agent was opened."""
        self.last_failure: BaseException | None = None

    def submit(
        self, thread: LoopThread, agent: AsyncAgent, session: Session
    ) -> Future[IngestReport]:
        """Remember a session when all earlier ones have finished, even if they failed."""

        async def work(previous: Future[IngestReport] | None) -> IngestReport:
            if previous is not None and not previous.done():
                await asyncio.wait([asyncio.wrap_future(previous)])
            return await agent.remember(session)

        with self._guard:
            future = thread.submit(work(self._futures[-1] if self._futures else None))
            self._futures.append(future)
        future.add_done_callback(lambda done: self._note(done, session))
        return future

    def pending(self) -> list[Future[IngestReport]]:
        """Return the sessions submitted since the last flush."""
        with self._guard:
            return list(self._futures)

    def waiting(self) -> int:
        """Count the sessions that are not remembered yet."""
        return sum(not future.done() for future in self.pending())

    def flush(self, *, on_error: OnError = "raise") -> list[IngestReport]:
        """Wait for all sessions submitted so far; raises the first error among them.

        With `on_error="keep"` a model failure stays in its report.
        """
        pending = self.pending()
        wait(pending)
        done = set(map(id, pending))
        with self._guard:
            self._futures = [future for future in self._futures if id(future) not in done]
        return [_report(future, on_error) for future in pending]

    def _note(self, done: Future[IngestReport], session: Session) -> None:
        failure = None if done.cancelled() else done.exception()
        if failure is not None:
            self.failures, self.last_failure = self.failures + 1, failure
            _log.warning("session %s was not remembered in the background: %s", session.id, failure)


def _report(future: Future[IngestReport], on_error: OnError) -> IngestReport:
    try:
        return future.result()
    except ModelError as failure:
        if on_error != "keep" or failure.report is None:
            raise
        return failure.report


Run = Callable[[Callable[[Any], Coroutine[Any, Any, Any]]], Any]
"""Waits for the coroutine that a function makes of the asynchronous object."""


class Blocking(Protocol[P, T_co]):
    """A synchronous method, as type checkers see it."""

    def __get__(self, instance: Any, owner: type | None = None) -> Callable[P, T_co]:
        """Bind the method to an object."""
        ...


def blocking(verb: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Blocking[P, T]:
    """Make a method that waits for an asynchronous one.

    The class that gets it has a method `_run(make)`, which waits for the coroutine that
    `make` gives for the asynchronous object.
    """
    name = getattr(verb, "__name__", "")

    @wraps(verb)
    def wait(self: Any, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._run(methodcaller(name, *args, **kwargs))

    return cast("Blocking[P, T]", wait)


def blocking_stream(
    verb: Callable[Concatenate[Any, P], AsyncIterator[T]],
) -> Blocking[P, Iterator[T]]:
    """Make a generator of an asynchronous one.

    The class that gets it has a method `_iterate(make)`, which yields the pieces of the
    stream that `make` gives for the asynchronous object.
    """
    name = getattr(verb, "__name__", "")

    @wraps(verb)
    def iterate(self: Any, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        yield from self._iterate(methodcaller(name, *args, **kwargs))

    return cast("Blocking[P, Iterator[T]]", iterate)


class SyncMemory:
    """The verbs of `memagent.memory.facade.Memory` for synchronous code.

    Forks and views of the past are memories of the same kind; in a view of the past
    writes raise `StoreReadOnly`.
    """

    def __init__(self, run: Run) -> None:
        self._run = run

    add = blocking(Memory.add)
    add_many = blocking(Memory.add_many)
    search = blocking(Memory.search)
    get = blocking(Memory.get)
    get_all = blocking(Memory.get_all)
    sessions = blocking(Memory.sessions)
    update = blocking(Memory.update)
    delete = blocking(Memory.delete)
    delete_all = blocking(Memory.delete_all)
    reset = blocking(Memory.reset)
    history = blocking(Memory.history)
    undo = blocking(Memory.undo)
    graph_stats = blocking(Memory.graph_stats)
    snapshot = blocking(Memory.snapshot)
    restore = blocking(Memory.restore)
    diff = blocking(Memory.diff)
    export = blocking(Memory.export)
    export_graph = blocking(Memory.export_graph)
    import_ = blocking(Memory.import_)
    quarantine = blocking(Memory.quarantine)
    accept = blocking(Memory.accept)
    refuse = blocking(Memory.refuse)
    touched_by = blocking(Memory.touched_by)
    exclude = blocking(Memory.exclude)
    roll_back = blocking(Memory.roll_back)
    erase = blocking(Memory.erase)
    erase_session = blocking(Memory.erase_session)

    def as_of(self, when: AsOf | datetime | str) -> SyncMemory:
        """Return a read-only view of the memory at a point in time."""
        return self._over(self._run(lambda memory: memory.as_of(when)))

    def fork(self) -> SyncMemory:
        """Return a private copy; its writes never reach this memory."""
        return self._over(self._run(lambda memory: memory.fork()))

    def _over(self, memory: object) -> SyncMemory:
        return SyncMemory(lambda make: self._run(lambda _: make(memory)))
