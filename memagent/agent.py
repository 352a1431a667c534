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
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future, wait
from datetime import datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, overload

from pydantic import ValidationError

from memagent.async_agent import AsyncAgent, Graphs, exchange_session
from memagent.build import Store, open_store
from memagent.config import AgentSettings
from memagent.core.answers import Answer, AsOf, Filter, Hit, Question
from memagent.core.errors import (
    ConfigError,
    InputError,
    StoreError,
    StoreLocked,
    StoreReadOnly,
    fault_in,
)
from memagent.core.graph_document import GraphFormat
from memagent.core.recipes import Recipe
from memagent.core.records import MemoryItem, Scope, Session, TimeSpan
from memagent.core.reports import GraphStats, IngestReport
from memagent.core.snapshot import Commit, HistoryEntry, MemorySnapshot, SnapshotDiff
from memagent.designs.base import MemoryDesign
from memagent.loop_thread import CLOSED, LoopThread
from memagent.memory.facade import Memory, Scalar
from memagent.memory.graph_export import GraphExport
from memagent.memory.incoming import Said, as_question, as_session
from memagent.memory.transfer import ExportReport
from memagent.protocols import ChatModel, Embedder

if TYPE_CHECKING:
    from memagent.graphs.state import Tool

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
        *,
        design: MemoryDesign | str | None = None,
        embedder: Embedder | str | None = None,
        tools: Sequence[Tool] = (),
        read_only: bool = False,
        settings: AgentSettings | None = None,
    ) -> None:
        """`path` None is the user's data directory, `":memory:"` keeps nothing.

        Raises `ConfigError`, `StoreLocked`, `StoreError`.
        """
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
        self._pending: list[Future[IngestReport]] = []
        self._locked_out = False
        """True in a forked child that reads because its parent writes."""
        self._closed = False
        self._open(read_only=read_only)
        _OPEN.add(self)

    # -- the agent ---------------------------------------------------------------------

    def ask(self, question: Question | str, *, as_of: AsOf | None = None) -> Answer:
        """Answer from memory, with citations; abstains when nothing fits.

        Raises `ModelError`.
        """
        asked = as_question(question)
        return self._run(
            lambda agent: agent.ask(asked.model_copy(update={"as_of": as_of}) if as_of else asked)
        )

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

        With `background=True` the turns are stored durably and the rest follows while
        you go on; `flush()` waits for it. `at` defaults to now. Raises `InputError` for
        turns that cannot be stored.
        """
        agent, _ = self._live()
        session = as_session(what, at=at, session_id=session_id, now=agent.clock())
        if not background:
            wait(self._waiting())
            return self._run(lambda agent: agent.remember(session))
        return self._later(session)

    def chat(self, text: str, *, speaker: str = "user", background: bool = True) -> Answer:
        """Answer from memory and remember the exchange, by default after the answer is back."""
        agent, _ = self._live()
        answer = self.ask(text)
        session = exchange_session(text, answer, at=agent.clock(), speaker=speaker)
        if background:
            self._later(session)
        else:
            self._run(lambda agent: agent.remember(session))
        return answer

    def search(
        self,
        text: str,
        *,
        k: int = 10,
        where: Filter | None = None,
        recipe: Recipe | str | None = None,
        max_tokens: int | None = None,
    ) -> list[Hit]:
        """At most k memories for a text, best first, by a recipe (its name or a
        `Recipe`) and within a budget of tokens.
        """
        return self._run(
            lambda agent: agent.search(text, k=k, where=where, recipe=recipe, max_tokens=max_tokens)
        )

    def resume(self) -> list[IngestReport]:
        """Remember what earlier runs stored but did not finish."""
        return self._run(lambda agent: agent.resume())

    def flush(self) -> list[IngestReport]:
        """Wait for everything remembered in the background; raises what went wrong
        there, if anything did, once all is through.
        """
        pending = self._waiting()
        wait(pending)
        done = set(map(id, pending))
        with self._guard:
            self._pending = [future for future in self._pending if id(future) not in done]
        return [future.result() for future in pending]

    def snapshot(self) -> MemorySnapshot:
        """The memory as an immutable value."""
        return self.memory.snapshot()

    def with_model(self, model: ChatModel | str | None) -> Agent:
        """Another agent on the same memory with another model.

        Raises `ConfigError` for a memory that is nowhere but in this agent.
        """
        if self._open_args["path"] == ":memory:":
            raise ConfigError(
                "a memory at ':memory:' cannot be shared between agents; give a path, or use AsyncAgent.with_model"
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
        return SyncMemory(self)

    @property
    def graphs(self) -> Graphs:
        """The LangGraph graphs."""
        return Graphs()

    @property
    def user_id(self) -> str:
        """Whose memory this is."""
        return self._scope.user_id

    @property
    def design(self) -> MemoryDesign:
        """The memory design in use."""
        agent, _ = self._live()
        return agent.design

    def close(self) -> None:
        """Finish what is running and pending, then release the store; harmless when repeated.

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

    # -- inside ------------------------------------------------------------------------

    def _open(self, *, read_only: bool) -> None:
        """Open the store and make the agent, in place of those open now."""
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
        if self._thread is None:  # a forked child starts anew: it may read while its parent writes
            with self._guard:
                if self._thread is None:
                    self._open_in_child()
        assert self._agent is not None
        assert self._thread is not None
        return self._agent, self._thread

    def _open_in_child(self) -> None:
        try:
            self._open(read_only=self._read_only)
        except StoreLocked:
            self._open(read_only=True)
            self._locked_out = True

    def _run(self, make: Callable[[AsyncAgent], Coroutine[Any, Any, T]]) -> T:
        agent, thread = self._live()
        try:
            return thread.run(make(agent))
        except StoreReadOnly:
            if not self._locked_out:
                raise
        with self._guard:
            if self._locked_out:
                self._open(
                    read_only=False
                )  # raises StoreLocked as long as the other process writes
                self._locked_out = False
        return self._run(make)

    def _later(self, session: Session) -> Future[IngestReport]:
        self._run(lambda agent: agent.bank.store_session(session))
        agent, thread = self._live()
        with self._guard:
            before = self._pending[-1] if self._pending else None
            future = thread.submit(_after(before, agent, session))
            self._pending.append(future)
        return future

    def _waiting(self) -> list[Future[IngestReport]]:
        """What was remembered in the background since the last flush; refused where
        waiting for it would never end.
        """
        if self._thread is not None:
            self._thread.refuse_own()
        with self._guard:
            return list(self._pending)

    def _forget(self) -> None:
        """In a forked child: leave thread and connections to the parent, whom closing
        them here would harm.
        """
        _INHERITED.append((self._store, self._agent, self._thread))
        self._store = self._agent = self._thread = None
        self._pending, self._guard, self._locked_out = [], threading.RLock(), False


async def _after(
    before: Future[IngestReport] | None, agent: AsyncAgent, session: Session
) -> IngestReport:
    """Remember a session once the one before it is through, whatever became of that."""
    if before is not None and not before.done():
        await asyncio.wait([asyncio.wrap_future(before)])
    return await agent.remember(session)


class SyncMemory:
    """The verbs of `memagent.memory.facade.Memory` for synchronous code."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def _do(self, make: Callable[[Memory], Coroutine[Any, Any, T]]) -> T:
        return self._agent._run(lambda agent: make(agent.memory))  # pyright: ignore[reportPrivateUsage]

    def add(
        self,
        text: str,
        *,
        id: str | None = None,
        kind: str = "fact",
        subject: str | None = None,
        speaker: str | None = None,
        valid: TimeSpan | None = None,
        said_at: datetime | None = None,
        tags: Sequence[str] = (),
        metadata: Mapping[str, Scalar] | None = None,
        ttl: timedelta | None = None,
        expires_at: datetime | None = None,
    ) -> MemoryItem:
        """Remember a text as it is, for good or until it expires.

        Raises `InputError`.
        """
        return self._do(
            lambda memory: memory.add(
                text,
                id=id,
                kind=kind,
                subject=subject,
                speaker=speaker,
                valid=valid,
                said_at=said_at,
                tags=tags,
                metadata=metadata,
                ttl=ttl,
                expires_at=expires_at,
            )
        )

    def add_many(
        self, texts: Sequence[str], *, kind: str = "fact", subject: str | None = None
    ) -> list[MemoryItem]:
        """Remember many texts in one durable write."""
        return self._do(lambda memory: memory.add_many(texts, kind=kind, subject=subject))

    def search(
        self,
        text: str,
        *,
        k: int = 10,
        where: Filter | None = None,
        as_of: AsOf | None = None,
        recipe: Recipe | str | None = None,
        max_tokens: int | None = None,
    ) -> list[Hit]:
        """At most k items for a text, now or at a point in time, by a recipe and within
        a budget of tokens.
        """
        return self._do(
            lambda memory: memory.search(
                text, k=k, where=where, as_of=as_of, recipe=recipe, max_tokens=max_tokens
            )
        )

    def get(self, item_id: str) -> MemoryItem:
        """An item. Raises `MemoryNotFound`."""
        return self._do(lambda memory: memory.get(item_id))

    def get_all(
        self,
        *,
        where: Filter | None = None,
        include_deleted: bool = False,
        limit: int | None = None,
    ) -> list[MemoryItem]:
        """Items that pass the filter, oldest said first."""
        return self._do(
            lambda memory: memory.get_all(where=where, include_deleted=include_deleted, limit=limit)
        )

    def sessions(self) -> list[Session]:
        """Stored sessions with their raw turns, oldest first."""
        return self._do(lambda memory: memory.sessions())

    def update(
        self, item_id: str, text: str, *, version: int | None = None, valid: TimeSpan | None = None
    ) -> MemoryItem:
        """Write a new version. Raises `MemoryNotFound`, `VersionConflict`."""
        return self._do(lambda memory: memory.update(item_id, text, version=version, valid=valid))

    def delete(self, item_id: str, *, version: int | None = None) -> None:
        """Take an item out; restorable. Raises `MemoryNotFound`, `VersionConflict`."""
        self._do(lambda memory: memory.delete(item_id, version=version))

    def delete_all(self, *, user_id: str) -> int:
        """Delete every item of this memory; `user_id` must name it."""
        return self._do(lambda memory: memory.delete_all(user_id=user_id))

    def reset(self, *, user_id: str) -> None:
        """Erase this memory beyond recovery; `user_id` must name it."""
        self._do(lambda memory: memory.reset(user_id=user_id))

    def history(self, item_id: str) -> tuple[HistoryEntry, ...]:
        """Every change of an item, oldest first."""
        return self._do(lambda memory: memory.history(item_id))

    def undo(self, commit_id: str | None = None) -> Commit:
        """Take back a commit, by default the last."""
        return self._do(lambda memory: memory.undo(commit_id))

    def as_of(self, when: AsOf) -> PastMemory:
        """A read-only view of the memory at a point in time."""
        return PastMemory(self._agent, self._do(lambda memory: memory.as_of(when)))

    def graph_stats(self) -> GraphStats:
        """Figures of the event graph as it stands."""
        return self._do(lambda memory: memory.graph_stats())

    def snapshot(self) -> MemorySnapshot:
        """The memory as an immutable value."""
        return self._do(lambda memory: memory.snapshot())

    def fork(self) -> PastMemory:
        """A private copy in memory; its writes never reach this one."""
        return PastMemory(self._agent, self._do(lambda memory: memory.fork()))

    def restore(self, what: MemorySnapshot | str) -> None:
        """Put the memory back to a snapshot, or bring back one deleted item by its id."""
        self._do(lambda memory: memory.restore(what))

    def diff(self, before: MemorySnapshot, after: MemorySnapshot | None = None) -> SnapshotDiff:
        """What changed between two snapshots; `after` defaults to now."""
        return self._do(lambda memory: memory.diff(before, after))

    def export(self, path: str | Path) -> ExportReport:
        """Write everything, history included, to one portable file."""
        return self._do(lambda memory: memory.export(path))

    def export_graph(
        self,
        path: str | Path | None = None,
        format: GraphFormat = "html",
        *,
        as_of: AsOf | None = None,
        include_hidden: bool = True,
    ) -> GraphExport:
        """The event graph as a self-contained page, node-link JSON or GraphML; also
        written to `path`.
        """
        return self._do(
            lambda memory: memory.export_graph(
                path, format, as_of=as_of, include_hidden=include_hidden
            )
        )

    def import_(self, path: str | Path) -> ExportReport:
        """Read an export into this memory, which must be empty."""
        return self._do(lambda memory: memory.import_(path))


class PastMemory(SyncMemory):
    """The same verbs on a fork, or on a view of the past (where writes raise `StoreReadOnly`)."""

    def __init__(self, agent: Agent, memory: Memory) -> None:
        super().__init__(agent)
        self._memory = memory

    def _do(self, make: Callable[[Memory], Coroutine[Any, Any, T]]) -> T:
        return self._agent._run(lambda _: make(self._memory))  # pyright: ignore[reportPrivateUsage]


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
        agent._forget()  # pyright: ignore[reportPrivateUsage]


# `atexit` comes too late: thread pools refuse work by then, and what is pending may
# need one. Threading's hook runs, newest first, before.
import_module("concurrent.futures.thread")
getattr(threading, "_register_atexit", atexit.register)(_close_open_agents)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_open_agents)
