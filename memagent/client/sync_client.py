"""`Client`: `AsyncClient` for synchronous code, as `Agent` is `AsyncAgent` for it.

One event loop in a background thread runs the very same coroutines. The verbs on the
memory are the synchronous ones of `memagent.agent`, carried out on a `RemoteMemory`:
there is no second list of them to keep in step.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from datetime import datetime
from typing import Any, Self, TypeVar, cast

from memagent.agent import SyncMemory
from memagent.client.async_client import AsyncClient
from memagent.client.http import DEFAULT_URL
from memagent.client.remote_memory import RemoteMemory
from memagent.client.wire import Context, Job
from memagent.core.answers import Answer, AsOf, Filter, Hit, Question
from memagent.core.errors import StoreError
from memagent.core.recipes import Recipe
from memagent.core.reports import IngestReport
from memagent.loop_thread import LoopThread
from memagent.memory.facade import Memory
from memagent.memory.incoming import Said

T = TypeVar("T")


class Client:
    """A client for synchronous code; use it as a context manager or call `close()`.

    Safe to share between threads.

    Arguments are those of `AsyncClient`; `client.memory` has the verbs of
    `agent.memory`.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        api_key: str | None = None,
        user_id: str | None = None,
        agent_id: str | None = None,
        run_id: str | None = None,
        timeout_s: float = 60.0,
        attempts: int = 4,
    ) -> None:
        """Opens no connection yet. Raises `ConfigError`, `MissingExtra`."""
        self._client = AsyncClient(
            url,
            api_key=api_key,
            user_id=user_id,
            agent_id=agent_id,
            run_id=run_id,
            timeout_s=timeout_s,
            attempts=attempts,
        )
        self._thread = LoopThread()
        self._closed = False

    @property
    def memory(self) -> ClientMemory:
        """Direct verbs on the memory."""
        return ClientMemory(self, self._client.memory)

    def ask(self, question: Question | str, *, as_of: AsOf | None = None) -> Answer:
        """Answer from memory, with citations; abstains when nothing fits.

        Raises `ModelError`.
        """
        return self.run(self._client.ask(question, as_of=as_of))

    def stream(self, question: Question | str) -> Generator[tuple[str, str]]:
        """(name, JSON) of the answer's events as they come."""
        events = self._client.stream(question)
        try:
            while True:
                try:
                    yield self.run(anext(events))  # pyright: ignore[reportArgumentType]
                except StopAsyncIteration:
                    return
        finally:
            self.run(events.aclose())

    def chat(self, text: str, *, speaker: str = "user") -> Answer:
        """Answer from memory and have the exchange remembered."""
        return self.run(self._client.chat(text, speaker=speaker))

    def remember(
        self, what: Said, *, at: datetime | None = None, session_id: str | None = None
    ) -> IngestReport:
        """Store turns and wait until they are remembered. Raises `InputError`."""
        return self.run(self._client.remember(what, at=at, session_id=session_id))

    def remember_later(
        self, what: Said, *, at: datetime | None = None, session_id: str | None = None
    ) -> Job:
        """Store turns durably and leave the rest to a job."""
        return self.run(self._client.remember_later(what, at=at, session_id=session_id))

    def search(
        self,
        text: str,
        *,
        k: int = 10,
        where: Filter | None = None,
        recipe: Recipe | str | None = None,
        max_tokens: int | None = None,
    ) -> list[Hit]:
        """At most k memories for a text, best first."""
        return self.run(
            self._client.search(text, k=k, where=where, recipe=recipe, max_tokens=max_tokens)
        )

    def context(self, text: str, *, k: int = 20, max_tokens: int = 2_000) -> Context:
        """A block for a prompt, within a budget of tokens."""
        return self.run(self._client.memory.context(text, k=k, max_tokens=max_tokens))

    def job(self, job_id: str) -> Job:
        """How far a job is. Raises `MemoryNotFound`."""
        return self.run(self._client.job(job_id))

    def finish(self, job: Job) -> Job:
        """Wait for a job. Raises `ModelError` or `StoreError` when it failed."""
        return self.run(self._client.finish(job))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Carry out a coroutine of the asynchronous client."""
        if self._closed:
            work.close()
            raise StoreError("this client is closed; open another one")
        return self._thread.run(work)

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


class ClientMemory(SyncMemory):
    """The synchronous verbs, carried out by the service."""

    def __init__(self, client: Client, memory: RemoteMemory) -> None:
        self._client = client
        self._memory = memory

    def _do(self, make: Callable[[Memory], Coroutine[Any, Any, T]]) -> T:
        return self._client.run(
            make(cast("Memory", self._memory))
        )  # the same verbs under the same names

    def as_of(self, when: AsOf) -> ClientMemory:  # pyright: ignore[reportIncompatibleMethodOverride]
        """A read-only view of the memory at a point in time."""
        return ClientMemory(self._client, self._client.run(self._memory.as_of(when)))

    def fork(self) -> ClientMemory:  # pyright: ignore[reportIncompatibleMethodOverride]
        """A private copy, kept by the service; its writes never reach this one."""
        return ClientMemory(self._client, self._client.run(self._memory.fork()))
