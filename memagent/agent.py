"""`Agent`: the synchronous face of `AsyncAgent` for scripts, notebooks and command lines.

One event loop in one background thread runs the very same coroutines; there is no second implementation. It works where a loop is running
already (Jupyter), starts anew in a forked child, passes Ctrl-C on to the running call, and drains what is pending before the process ends.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import weakref
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from memagent.async_agent import AsyncAgent, Graphs, exchange_session
from memagent.build import Store, open_store
from memagent.config import AgentSettings
from memagent.core.answers import Answer, AsOf, Filter, Hit, Question
from memagent.core.errors import InputError, StoreError
from memagent.core.records import MemoryItem, Scope, Session, TimeSpan, Trust, Turn, content_id
from memagent.core.reports import IngestReport
from memagent.core.snapshot import Commit, HistoryEntry, MemorySnapshot, SnapshotDiff
from memagent.designs.base import MemoryDesign
from memagent.memory.facade import Memory, Scalar
from memagent.memory.transfer import ExportReport
from memagent.protocols import ChatModel, Embedder

if TYPE_CHECKING:
    from memagent.graphs.state import Tool

T = TypeVar("T")
Said = Session | str | Sequence[Turn | Mapping[str, Any]]
"""What can be remembered: a session, one utterance, or a list of turns or chat messages."""
_TRUST = {"user": Trust.USER, "assistant": Trust.ASSISTANT, "tool": Trust.TOOL, "system": Trust.SYSTEM}


class _LoopThread:
    """One event loop in a daemon thread."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="memagent", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result; Ctrl-C cancels it and is raised here."""
        if threading.current_thread() is self._thread:
            work.close()
            raise StoreError("an Agent was called from its own event loop; use AsyncAgent inside coroutines")
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        """End the loop and its thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(timeout=5)
        if not self._thread.is_alive():
            self.loop.close()


class Agent:
    """An agent with a memory, for synchronous code.

    `Agent()` needs no model, no key and no server: it keeps what it is told in a SQLite file in the user's data directory and answers by
    quoting the best evidence. `Agent(model="openai/gpt-4o-mini")` lets a language model decide what to keep and how to answer. Use it as a
    context manager, or call `close()`.
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
        """`path` None is the user's data directory, `":memory:"` keeps nothing. Raises `ConfigError`, `StoreLocked`, `StoreError`."""
        self._scope = Scope(user_id=user_id)
        self._model, self._design, self._tools = model, design, tuple(tools)
        self._open_args: dict[str, Any] = {"path": path, "embedder": embedder, "read_only": read_only}
        self._settings = settings
        self._store: Store | None = None
        self._thread: _LoopThread | None = None
        self._agent: AsyncAgent | None = None
        self._pending: list[Future[IngestReport]] = []
        self._closed = False
        self._start()
        _OPEN.add(self)

    # -- the agent -------------------------------------------------------------------------------------------------

    def ask(self, question: Question | str, *, as_of: AsOf | None = None) -> Answer:
        """Answer from memory, with citations; abstains when nothing fits. Raises `ModelError`."""
        asked = Question(text=question) if isinstance(question, str) else question
        return self._run(lambda agent: agent.ask(asked.model_copy(update={"as_of": as_of}) if as_of else asked))

    def remember(
        self,
        what: Said,
        *,
        at: datetime | None = None,
        session_id: str | None = None,
        background: bool = False,
    ) -> IngestReport | Future[IngestReport]:
        """Store turns and let the design remember them.

        With `background=True` the turns are stored durably and the rest follows while you go on; `flush()` waits for it. `at` defaults
        to now. Raises `InputError` for turns that cannot be stored.
        """
        session = as_session(what, at=at, session_id=session_id, now=self._live().clock())
        if not background:
            self.flush()
            return self._run(lambda agent: agent.remember(session))
        return self._later(session)

    def chat(self, text: str, *, speaker: str = "user", background: bool = True) -> Answer:
        """Answer from memory and remember the exchange, by default after the answer is back."""
        agent = self._live()
        answer = self.ask(text)
        session = exchange_session(text, answer, at=agent.clock(), speaker=speaker)
        if background:
            self._later(session)
        else:
            self._run(lambda agent: agent.remember(session))
        return answer

    def search(self, text: str, *, k: int = 10, where: Filter | None = None) -> list[Hit]:
        """The k best memories for a text, best first."""
        return self._run(lambda agent: agent.search(text, k=k, where=where))

    def resume(self) -> list[IngestReport]:
        """Remember what earlier runs stored but did not finish."""
        return self._run(lambda agent: agent.resume())

    def flush(self) -> list[IngestReport]:
        """Wait for everything remembered in the background; raises what went wrong there, if anything did."""
        pending, self._pending = self._pending, []
        return [future.result() for future in pending]

    def snapshot(self) -> MemorySnapshot:
        """The memory as an immutable value."""
        return self.memory.snapshot()

    def with_model(self, model: ChatModel | str | None) -> Agent:
        """Another agent on the same memory with another model."""
        return Agent(
            model,
            self._scope.user_id,
            design=self._design,
            tools=self._tools,
            settings=self._settings,
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
        return self._live().design

    def close(self) -> None:
        """Finish what is pending and release the store; harmless when repeated."""
        if self._closed:
            return
        try:
            if self._thread is not None and self._thread.pid == os.getpid():
                self.flush()
        finally:
            self._closed = True
            _OPEN.discard(self)
            if self._thread is not None and self._thread.pid == os.getpid():
                self._thread.stop()
            if self._store is not None:
                self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Agent(user_id={self.user_id!r}, closed={self._closed})"

    # -- inside ----------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        self._store = open_store(self._settings, **self._open_args)
        try:
            self._agent = self._store.agent(self._scope, model=self._model, design=self._design, tools=self._tools)
        except BaseException:
            self._store.close()
            raise
        self._thread = _LoopThread()

    def _live(self) -> AsyncAgent:
        if self._closed:
            raise StoreError("this agent is closed; open another one")
        if self._thread is None or self._thread.pid != os.getpid():  # a forked child starts anew
            self._pending = []
            self._start()
        assert self._agent is not None
        return self._agent

    def _run(self, make: _Call[T]) -> T:
        agent = self._live()
        assert self._thread is not None
        return self._thread.run(make(agent))

    def _later(self, session: Session) -> Future[IngestReport]:
        agent = self._live()
        assert self._thread is not None
        self._thread.run(agent.bank.store_session(session))
        before = self._pending[-1] if self._pending else None
        future = asyncio.run_coroutine_threadsafe(_after(before, agent, session), self._thread.loop)
        self._pending.append(future)
        return future


if TYPE_CHECKING:
    from collections.abc import Callable

    _Call = Callable[[AsyncAgent], Coroutine[Any, Any, T]]


async def _after(before: Future[IngestReport] | None, agent: AsyncAgent, session: Session) -> IngestReport:
    """Remember a session once the one before it is through, whatever became of that."""
    if before is not None and not before.done():
        await asyncio.wait([asyncio.wrap_future(before)])
    return await agent.remember(session)


class SyncMemory:
    """The verbs of `memagent.memory.facade.Memory` for synchronous code."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def _do(self, make: _MemoryCall[T]) -> T:
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
    ) -> MemoryItem:
        """Remember a text as it is. Raises `InputError`."""
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
            )
        )

    def add_many(self, texts: Sequence[str], *, kind: str = "fact", subject: str | None = None) -> list[MemoryItem]:
        """Remember many texts in one durable write."""
        return self._do(lambda memory: memory.add_many(texts, kind=kind, subject=subject))

    def search(self, text: str, *, k: int = 10, where: Filter | None = None, as_of: AsOf | None = None) -> list[Hit]:
        """The k best items for a text, now or at a point in time."""
        return self._do(lambda memory: memory.search(text, k=k, where=where, as_of=as_of))

    def get(self, item_id: str) -> MemoryItem:
        """An item. Raises `MemoryNotFound`."""
        return self._do(lambda memory: memory.get(item_id))

    def get_all(
        self, *, where: Filter | None = None, include_deleted: bool = False, limit: int | None = None
    ) -> list[MemoryItem]:
        """Items that pass the filter, oldest said first."""
        return self._do(lambda memory: memory.get_all(where=where, include_deleted=include_deleted, limit=limit))

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

    def import_(self, path: str | Path) -> ExportReport:
        """Read an export into this memory, which must be empty."""
        return self._do(lambda memory: memory.import_(path))


class PastMemory(SyncMemory):
    """The same verbs on a fork, or on a view of the past (where writes raise `StoreReadOnly`)."""

    def __init__(self, agent: Agent, memory: Memory) -> None:
        super().__init__(agent)
        self._memory = memory

    def _do(self, make: _MemoryCall[T]) -> T:
        return self._agent._run(lambda _: make(self._memory))  # pyright: ignore[reportPrivateUsage]


if TYPE_CHECKING:
    _MemoryCall = Callable[[Memory], Coroutine[Any, Any, T]]


def as_session(what: Said, *, at: datetime | None, session_id: str | None, now: datetime) -> Session:
    """A session from what a caller handed over. Raises `InputError` naming the turn that cannot be used."""
    if isinstance(what, Session):
        return what
    moment = at or now
    given: Sequence[Turn | Mapping[str, Any]] = [{"role": "user", "content": what}] if isinstance(what, str) else what
    if not given:
        raise InputError("there are no turns to remember")
    name = session_id or content_id("ses", moment.isoformat(), *(str(turn) for turn in given))
    turns = tuple(turn if isinstance(turn, Turn) else _turn(turn, f"{name}:{n}", n) for n, turn in enumerate(given, 1))
    try:
        return Session(id=name, at=moment, turns=turns)
    except ValueError as exc:
        raise InputError(f"session {name!r} cannot be stored: {exc}") from exc


def _turn(message: Mapping[str, Any], turn_id: str, number: int) -> Turn:
    role = str(message.get("role", "user"))
    text = message.get("content", message.get("text"))
    if not isinstance(text, str) or not text.strip():
        raise InputError(f"turn {number} has no text: give it as `content`, a string that is not empty")
    try:
        return Turn(
            id=str(message.get("id", turn_id)),
            speaker=str(message.get("name") or message.get("speaker") or role),
            text=text,
            at=message.get("at"),
            trust=_TRUST.get(role, Trust.UNTRUSTED),
            recalled=bool(message.get("recalled", False)),
        )
    except ValueError as exc:
        raise InputError(f"turn {number} cannot be stored: {exc}") from exc


_OPEN: weakref.WeakSet[Agent] = weakref.WeakSet()


@atexit.register
def _close_open_agents() -> None:
    for agent in list(_OPEN):
        agent.close()
