"""An event loop in a thread of its own, for synchronous code that calls coroutines.

Calls come from any thread. `stop` waits for those that run and refuses later ones, so
no call hangs. The surprise: a `SystemExit` or `KeyboardInterrupt` that a coroutine
raises is given to its caller *and* ends `run_forever`, so the loop is simply run again.
anyio's portal ends for good there, with every other call in it left waiting.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import aclosing
from typing import Any, ParamSpec, TypeVar

from memagent.core.errors import StoreError

P = ParamSpec("P")
T = TypeVar("T")
CLOSED = "this agent is closed; open another one"
_WIND_UP_S = 5.0


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
