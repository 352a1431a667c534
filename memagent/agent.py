"""`Agent`: the synchronous face of `AsyncAgent` for scripts, notebooks and command lines.

One event loop in one background thread runs the very same coroutines; there is no
second implementation. It works where a loop is running already (Jupyter), starts anew
in a forked child, passes Ctrl-C on to the running call, and drains what is pending
before the process ends.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from concurrent.futures import Future, wait
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack, overload

from memagent.async_agent import (
    AgentOptions,
    AsyncAgent,
    Graphs,
    check_options,
    new_thread,
    scope_of,
)
from memagent.config import AgentSettings
from memagent.core.answers import Reply, ReplyDelta
from memagent.core.errors import ConfigError
from memagent.core.records import Session
from memagent.core.snapshot import AgentStatus, IngestReport, MemorySnapshot, OnError
from memagent.designs.base import MemoryDesign
from memagent.memory.incoming import Said, When, as_session
from memagent.opening.open_store import build_model
from memagent.protocols import ChatModel, Embedder
from memagent.sync.live_agent import (
    Background,
    LiveAgent,
    SyncMemory as SyncMemory,
    blocking,
    blocking_stream,
)

if TYPE_CHECKING:
    from memagent.graphs.chat_run import ChatOptions

T = TypeVar("T")
_log = logging.getLogger(__name__)


class Agent:
    """An agent with a memory, for synchronous code.

    `Agent()` needs no model, no key and no server: it keeps what it is told in a SQLite
    file in the user's data directory and answers by quoting the best evidence.
    `Agent(model="openai/gpt-4o-mini")` lets a language model decide what to keep and
    how to answer. Use it as a context manager, or call `close()`.
    """

    def __init__(
        self,
        model: ChatModel | str | None = None,
        user_id: str = "default",
        path: str | Path | None = None,
        **options: Unpack[AgentOptions],
    ) -> None:
        """Open the memory at `path`.

        None is a file in the user's data directory; `":memory:"` keeps nothing on disk.
        Further keywords are those of `AgentOptions`. Raises `ConfigError`, `InputError`,
        `StoreLocked`, `StoreError`.
        """
        check_options(options)
        _register_hooks()
        self._scope, self._path = scope_of(user_id), path
        # What a forked child opens again has the same conversation and the same budget.
        self._options: AgentOptions = {**options, "thread": options.get("thread") or new_thread()}
        self._model = build_model(
            model,
            options.get("settings") or AgentSettings(),
            base_url=self._options.pop("base_url", None),
            api_key=self._options.pop("api_key", None),
        )
        self._queue = Background()
        self._opened = LiveAgent(self._open, read_only=options.get("read_only", False))
        _OPEN.add(self)

    ask = blocking(AsyncAgent.ask)
    search = blocking(AsyncAgent.search)
    stream = blocking_stream(AsyncAgent.stream)
    resume = blocking(AsyncAgent.resume)
    recall = blocking(AsyncAgent.recall)
    report = blocking(AsyncAgent.report)
    compact = blocking(AsyncAgent.compact)
    tidy = blocking(AsyncAgent.tidy)

    @overload
    def remember(
        self,
        what: Said,
        *,
        at: When | None = None,
        session_id: str | None = None,
        background: Literal[False] = False,
        on_error: OnError = "raise",
    ) -> IngestReport: ...

    @overload
    def remember(
        self,
        what: Said,
        *,
        at: When | None = None,
        session_id: str | None = None,
        background: Literal[True],
        on_error: OnError = "raise",
    ) -> Future[IngestReport]: ...

    def remember(
        self,
        what: Said,
        *,
        at: When | None = None,
        session_id: str | None = None,
        background: bool = False,
        on_error: OnError = "raise",
    ) -> IngestReport | Future[IngestReport]:
        """Store turns and let the design remember them.

        `at` is a datetime or an ISO date; it defaults to now. With `background=True`
        the call returns once the turns are stored durably; `flush()` waits for the rest
        and raises what failed. A model failure raises its `ModelError` after the turns
        are stored, and `resume()` or the same call continues; `on_error="keep"` returns
        the report with the failed chunk instead. Raises `InputError` for turns that
        cannot be stored.
        """
        agent, _ = self._opened.parts()
        session = as_session(what, at=at, session_id=session_id, now=agent.clock())
        if background:
            return self._remember_later(session)
        wait(self._background())
        return self.run(lambda agent: agent.remember(session, on_error=on_error))

    def chat(
        self, message: str, *, background: bool = True, **options: Unpack[ChatOptions]
    ) -> Reply:
        """Reply to a message of a conversation and remember the exchange.

        The message is stored before the model is asked. With `background` the exchange
        is remembered after the reply is back, and `flush()` waits for it. Raises
        `ModelError` when the model cannot reply; the message is stored then.
        """
        reply: Reply | None = None
        for delta in self.stream_chat(message, background=background, **options):
            reply = delta.reply or reply
        assert reply is not None
        return reply

    def stream_chat(
        self, message: str, *, background: bool = True, **options: Unpack[ChatOptions]
    ) -> Iterator[ReplyDelta]:
        """Yield the reply of `chat` as the model speaks; the last piece has the `Reply`."""
        remember = options.get("remember", True)
        inline: ChatOptions = {**options, "remember": remember and not background}
        for delta in self._iterate(lambda agent: agent.stream_chat(message, **inline)):
            reply = delta.reply
            if reply and not reply.approvals and remember and background:
                state = self._opened.parts()[0].bank.state
                self._remember_later(state.sessions[reply.session_id])
            yield delta

    def flush(self, *, on_error: OnError = "raise") -> list[IngestReport]:
        """Wait until everything in the background is remembered, and return the reports.

        Raises their first error at the end; `on_error="keep"` leaves it in its report.
        """
        self._background()
        return self._queue.flush(on_error=on_error)

    def status(self) -> AgentStatus:
        """Return what the agent works with, what is stored, and what was not remembered."""
        status = self.run(lambda agent: agent.status())
        last = self._queue.last_failure
        return status.model_copy(
            update={
                "path": self._opened.path,
                "pending": self._queue.waiting(),
                "failed": self._queue.failures,
                "last_error": str(last) if last is not None else None,
            }
        )

    def snapshot(self) -> MemorySnapshot:
        """Return the memory as an immutable value."""
        return self.memory.snapshot()

    def with_model(self, model: ChatModel | str | None) -> Agent:
        """Return another agent on the same memory with another model.

        Raises `ConfigError` for a memory at `":memory:"`, which no other agent can open.
        """
        if self._path == ":memory:":
            raise ConfigError(
                "a memory at ':memory:' cannot be shared between agents; "
                "give a path, or use AsyncAgent.with_model"
            )
        return Agent(model, self._scope.user_id, self._path, **self._options)

    @property
    def memory(self) -> SyncMemory:
        """Direct verbs on the memory."""
        return SyncMemory(lambda make: self.run(lambda agent: make(agent.memory)))

    @property
    def graphs(self) -> Graphs:
        """The LangGraph graphs."""
        return Graphs()

    @property
    def user_id(self) -> str:
        """The user whose memory this is."""
        return self._scope.user_id

    @property
    def embedder(self) -> Embedder:
        """The embedder of the memory."""
        return self._opened.parts()[0].embedder

    @property
    def design(self) -> MemoryDesign:
        """The memory design in use."""
        return self._opened.parts()[0].design

    def close(self) -> None:
        """Finish running and pending work, then release the store; harmless when repeated.

        Raises what `flush` raises.
        """
        if self._opened.closed:
            return
        self._opened.refuse_own()
        try:
            self.flush()
        finally:
            _OPEN.discard(self)
            self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Agent(user_id={self.user_id!r}, closed={self._opened.closed})"

    def _open(self, read_only: bool) -> AsyncAgent:
        options: AgentOptions = {**self._options, "read_only": read_only}
        return AsyncAgent(self._model, self._scope.user_id, self._path, **options)

    def run(self, make: Callable[[AsyncAgent], Coroutine[Any, Any, T]]) -> T:
        """Wait for the coroutine that `make` gives for the asynchronous agent."""
        return self._opened.run(make)

    def submit(self, make: Callable[[AsyncAgent], Coroutine[Any, Any, T]]) -> Future[T]:
        """Start the coroutine that `make` gives for the asynchronous agent."""
        agent, thread = self._opened.parts()
        return thread.submit(make(agent))

    def _iterate(self, make: Callable[[AsyncAgent], AsyncGenerator[T]]) -> Iterator[T]:
        agent, thread = self._opened.parts()
        return thread.iterate(make(agent))

    _run = run

    def _remember_later(self, session: Session) -> Future[IngestReport]:
        self.run(lambda agent: agent.bank.store_session(session))
        agent, thread = self._opened.parts()
        return self._queue.submit(thread, agent, session)

    def _background(self) -> list[Future[IngestReport]]:
        """Return the pending sessions; refused in the agent's own thread, which cannot wait."""
        self._opened.refuse_own()
        return self._queue.pending()

    def _forget(self) -> None:
        """Start anew in a forked child."""
        self._opened.forget()
        self._queue = Background()


_OPEN: weakref.WeakSet[Agent] = weakref.WeakSet()


def _close_open_agents() -> None:
    for agent in list(_OPEN):
        try:
            agent.close()
        except Exception:
            _log.exception("closing %r at the end of the process failed", agent)


def _forget_open_agents() -> None:
    for agent in list(_OPEN):
        agent._forget()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


@cache
def _register_hooks() -> None:
    """Close open agents before the process ends, and forget them in a forked child.

    `atexit` comes too late: thread pools refuse work by then, and what is pending may
    need one. Threading's hook runs, newest first, before.
    """
    import_module("concurrent.futures.thread")
    getattr(threading, "_register_atexit", atexit.register)(_close_open_agents)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_forget_open_agents)
