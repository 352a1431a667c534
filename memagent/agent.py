"""`Agent`: the synchronous face of `AsyncAgent` for scripts, notebooks and command lines.

One event loop in one background thread runs the very same coroutines; there is no
second implementation. It works where a loop is running already (Jupyter), starts anew
in a forked child, passes Ctrl-C on to the running call, and drains what is pending
before the process ends.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future, wait
from datetime import datetime
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack, overload

from pydantic import ValidationError

from memagent.async_agent import AsyncAgent, Graphs
from memagent.blocking import SyncMemory as SyncMemory
from memagent.blocking import blocking
from memagent.build import Store, open_store
from memagent.config import AgentSettings
from memagent.core.answers import Reply, ReplyDelta
from memagent.core.errors import (
    ConfigError,
    InputError,
    StoreError,
    StoreLocked,
    StoreReadOnly,
    fault_in,
)
from memagent.core.records import Scope, Session
from memagent.core.reports import IngestReport
from memagent.core.snapshot import MemorySnapshot
from memagent.designs.base import MemoryDesign
from memagent.loop_thread import CLOSED, LoopThread
from memagent.memory.incoming import Said, as_session
from memagent.protocols import ChatModel, Embedder

if TYPE_CHECKING:
    from memagent.graphs.chat_run import ChatOptions
    from memagent.graphs.state import Tool

T = TypeVar("T")
_log = logging.getLogger(__name__)


class _Queue:
    """The sessions that an agent remembers in the background, one after the other."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._futures: list[Future[IngestReport]] = []

    def submit(
        self, thread: LoopThread, agent: AsyncAgent, session: Session
    ) -> Future[IngestReport]:
        """Remember a session when all earlier ones have finished."""
        with self._guard:
            previous = self._futures[-1] if self._futures else None
            future = thread.submit(_remember_after(previous, agent, session))
            self._futures.append(future)
        return future

    def pending(self) -> list[Future[IngestReport]]:
        """Return the sessions submitted since the last flush."""
        with self._guard:
            return list(self._futures)

    def flush(self) -> list[IngestReport]:
        """Wait for all sessions submitted so far; raises the first error among them."""
        pending = self.pending()
        wait(pending)
        done = set(map(id, pending))
        with self._guard:
            self._futures = [future for future in self._futures if id(future) not in done]
        return [future.result() for future in pending]


class Agent:
    """An agent with a memory, for synchronous code.

    `Agent()` needs no model, no key and no server: it keeps what it is told in a SQLite
    file in the user's data directory and answers by quoting the best evidence.
    `Agent(model="openai/gpt-4o-mini")` lets a language model decide what to keep and
    how to answer. Use it as a context manager, or call `close()`.
    """

    def __init__(  # noqa: PLR0913 (the front door names its options)
        self,
        model: ChatModel | str | None = None,
        user_id: str = "default",
        path: str | Path | None = None,
        *,
        design: MemoryDesign | str | None = None,
        embedder: Embedder | str | None = None,
        tools: Sequence[Tool] = (),
        read_only: bool = False,
        settings: AgentSettings | None = None,
    ) -> None:
        """Open the memory at `path`.

        None is a file in the user's data directory; `":memory:"` keeps nothing on disk.
        Raises `ConfigError`, `StoreLocked`, `StoreError`.
        """
        _register_hooks()
        try:
            self._scope = Scope(user_id=user_id)
        except ValidationError as exc:
            raise InputError(f"{str(user_id)[:40]!r} cannot be a user id: {fault_in(exc)}") from exc
        self._model, self._design, self._tools = model, design, tuple(tools)
        self._open_args: dict[str, Any] = {"path": path, "embedder": embedder}
        self._read_only = read_only
        self._settings = settings
        self._store: Store | None = None
        self._thread: LoopThread | None = None
        self._agent: AsyncAgent | None = None
        self._guard = threading.RLock()
        self._queue = _Queue()
        self._locked_out = False
        """Whether this is a forked child that only reads because its parent writes."""
        self._closed = False
        self._open(read_only=read_only)
        _OPEN.add(self)

    ask = blocking(AsyncAgent.ask)
    search = blocking(AsyncAgent.search)
    resume = blocking(AsyncAgent.resume)

    @overload
    def remember(
        self,
        what: Said,
        *,
        at: datetime | None = None,
        session_id: str | None = None,
        background: Literal[False] = False,
    ) -> IngestReport: ...

    @overload
    def remember(
        self,
        what: Said,
        *,
        at: datetime | None = None,
        session_id: str | None = None,
        background: Literal[True],
    ) -> Future[IngestReport]: ...

    def remember(
        self,
        what: Said,
        *,
        at: datetime | None = None,
        session_id: str | None = None,
        background: bool = False,
    ) -> IngestReport | Future[IngestReport]:
        """Store turns and let the design remember them.

        With `background=True` the call returns once the turns are stored durably;
        `flush()` waits for the rest. `at` defaults to now. Raises `InputError` for turns
        that cannot be stored.
        """
        agent, _ = self._live()
        session = as_session(what, at=at, session_id=session_id, now=agent.clock())
        if background:
            return self._remember_later(session)
        wait(self._background())
        return self._run(lambda agent: agent.remember(session))

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
        agent, thread = self._live()
        for delta in thread.iterate(agent.stream_chat(message, **inline)):
            if delta.reply is not None and remember and background:
                self._remember_later(agent.bank.state.sessions[delta.reply.session_id])
            yield delta

    def flush(self) -> list[IngestReport]:
        """Wait until everything in the background is remembered, and return the reports.

        When all of it has ended, raises the first error that occurred there.
        """
        self._background()
        return self._queue.flush()

    def snapshot(self) -> MemorySnapshot:
        """Return the memory as an immutable value."""
        return self.memory.snapshot()

    def with_model(self, model: ChatModel | str | None) -> Agent:
        """Return another agent on the same memory with another model.

        Raises `ConfigError` for a memory at `":memory:"`, which no other agent can open.
        """
        if self._open_args["path"] == ":memory:":
            raise ConfigError(
                "a memory at ':memory:' cannot be shared between agents; "
                "give a path, or use AsyncAgent.with_model"
            )
        return Agent(
            model,
            self._scope.user_id,
            design=self._design,
            tools=self._tools,
            settings=self._settings,
            read_only=self._read_only,
            **self._open_args,
        )

    @property
    def memory(self) -> SyncMemory:
        """Direct verbs on the memory."""
        return SyncMemory(lambda make: self._run(lambda agent: make(agent.memory)))

    @property
    def graphs(self) -> Graphs:
        """The LangGraph graphs."""
        return Graphs()

    @property
    def user_id(self) -> str:
        """The user whose memory this is."""
        return self._scope.user_id

    @property
    def design(self) -> MemoryDesign:
        """The memory design in use."""
        return self._live()[0].design

    def close(self) -> None:
        """Finish running and pending work, then release the store; harmless when repeated.

        Raises what `flush` raises.
        """
        if self._closed:
            return
        thread, store = self._thread, self._store
        if thread is not None:
            thread.refuse_own()
        try:
            self.flush()
        finally:
            self._closed = True
            _OPEN.discard(self)
            try:
                if thread is not None:
                    thread.stop()
            finally:
                if store is not None:
                    store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Agent(user_id={self.user_id!r}, closed={self._closed})"

    def _open(self, *, read_only: bool) -> None:
        """Open the store and make the agent, in place of those that are open."""
        store = open_store(self._settings, **self._open_args, read_only=read_only)
        try:
            self._agent = store.agent(
                self._scope, model=self._model, design=self._design, tools=self._tools
            )
        except BaseException:
            store.close()
            raise
        old, self._store = self._store, store
        if old is not None:
            old.close()
        if self._thread is None:
            self._thread = LoopThread()

    def _live(self) -> tuple[AsyncAgent, LoopThread]:
        if self._closed:
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

    def _run(self, make: Callable[[AsyncAgent], Coroutine[Any, Any, T]]) -> T:
        agent, thread = self._live()
        try:
            return thread.run(make(agent))
        except StoreReadOnly:
            if not self._locked_out:
                raise
        with self._guard:
            if self._locked_out:
                self._open(read_only=False)  # raises StoreLocked while the parent still writes
                self._locked_out = False
        return self._run(make)

    def _remember_later(self, session: Session) -> Future[IngestReport]:
        self._run(lambda agent: agent.bank.store_session(session))
        agent, thread = self._live()
        return self._queue.submit(thread, agent, session)

    def _background(self) -> list[Future[IngestReport]]:
        """Return the pending sessions; refused in the agent's own thread, which cannot wait."""
        if self._thread is not None:
            self._thread.refuse_own()
        return self._queue.pending()

    def _forget(self) -> None:
        """Leave the thread and the connections to the parent, in a forked child.

        Closing them here would harm the parent, so a reference is kept.
        """
        _INHERITED.append((self._store, self._agent, self._thread))
        self._store = self._agent = self._thread = None
        self._queue, self._guard, self._locked_out = _Queue(), threading.RLock(), False


async def _remember_after(
    previous: Future[IngestReport] | None, agent: AsyncAgent, session: Session
) -> IngestReport:
    """Remember a session after the previous one has finished, even if that failed."""
    if previous is not None and not previous.done():
        await asyncio.wait([asyncio.wrap_future(previous)])
    return await agent.remember(session)


_OPEN: weakref.WeakSet[Agent] = weakref.WeakSet()
_INHERITED: list[object] = []


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
