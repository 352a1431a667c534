"""`Client`: `AsyncClient` for synchronous code, as `Agent` is `AsyncAgent` for it.

One event loop in a background thread runs the very same coroutines.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any, Self, TypeVar, Unpack

from memagent.blocking import SyncMemory, blocking
from memagent.client.async_client import AsyncClient, ClientArguments
from memagent.client.http import DEFAULT_URL
from memagent.core.answers import Question
from memagent.core.errors import StoreError
from memagent.loop_thread import LoopThread

T = TypeVar("T")


class Client:
    """A client for synchronous code; use it as a context manager or call `close()`.

    Threads may share it. `client.memory` has the verbs of `agent.memory`.
    """

    def __init__(self, url: str = DEFAULT_URL, **options: Unpack[ClientArguments]) -> None:
        """Make a client that opens no connection yet; the keywords are `AsyncClient`'s.

        Raises `ConfigError`, `MissingExtra`, `InputError`.
        """
        self._client = AsyncClient(url, **options)
        self._thread = LoopThread()
        self._closed = False

    ask = blocking(AsyncClient.ask)
    chat = blocking(AsyncClient.chat)
    remember = blocking(AsyncClient.remember)
    remember_later = blocking(AsyncClient.remember_later)
    search = blocking(AsyncClient.search)
    context = blocking(AsyncClient.context)
    recall = blocking(AsyncClient.recall)
    report = blocking(AsyncClient.report)
    tidy = blocking(AsyncClient.tidy)
    job = blocking(AsyncClient.job)
    finish = blocking(AsyncClient.finish)

    @property
    def memory(self) -> SyncMemory:
        """Direct verbs on the memory."""
        return SyncMemory(lambda make: self._run(lambda client: make(client.memory)))

    def stream(self, question: Question | str) -> Generator[tuple[str, str]]:
        """Yield (name, JSON) of the answer's events as they come."""
        events = self._client.stream(question)
        try:
            while True:
                try:
                    yield self.run(anext(events))  # pyright: ignore[reportArgumentType]
                except StopAsyncIteration:
                    return
        finally:
            self.run(events.aclose())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for a coroutine of the asynchronous client and return its result."""
        if self._closed:
            work.close()
            raise StoreError("this client is closed; open another one")
        return self._thread.run(work)

    def _run(self, make: Callable[[AsyncClient], Coroutine[Any, Any, T]]) -> T:
        return self.run(make(self._client))

    def close(self) -> None:
        """Close the connections; harmless when repeated."""
        if not self._closed:
            self.run(self._client.close())
            self._closed = True
            self._thread.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
