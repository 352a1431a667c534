"""Access to a memory from any thread and event loop, and commits of whole items.

A bank belongs to one event loop, frameworks call from wherever they like. An `Access`
over a synchronous `Agent` sends every call to that agent's own loop; over an
`AsyncAgent` coroutines run where they are awaited, and synchronous calls are refused.

Frameworks also send each operation as a task of its own. Thousands of them would cost a
change of threads and a commit each, so a `Coalescer` carries out as one what is
submitted before the loop comes round again. The surprise: where a joint batch is
refused for bad input, each batch is carried out by itself, so nobody pays for another's
fault.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from memagent.agent import Agent
from memagent.async_agent import AsyncAgent
from memagent.core.errors import InputError, StoreError
from memagent.core.ops import MemoryOp
from memagent.core.records import MemoryItem, SourceRef
from memagent.core.snapshot import AppliedOp, Commit, Entry, GraphDelta, ItemChange
from memagent.memory.bank import MemoryBank
from memagent.protocols import Embedder
from memagent.state.adjacency import item_node
from memagent.state.fold import BankState

T = TypeVar("T")
Op = TypeVar("Op")
Result = TypeVar("Result")
MOST_OPS = 4_096
"""Operations of a joint batch; one batch that is larger stays whole."""
_Waiting = list[tuple[Sequence[Op], asyncio.Future[list[Result]]]]


class Access:
    """Access to one user's memory."""

    def __init__(self, agent: Agent | AsyncAgent) -> None:
        self.agent = agent

    def run(self, make: Callable[[AsyncAgent], Coroutine[Any, Any, T]]) -> T:
        """Wait for the coroutine and return its result.

        Raises `StoreError` over an `AsyncAgent`.
        """
        if isinstance(self.agent, AsyncAgent):
            raise StoreError(
                "this memory belongs to an AsyncAgent; await the asynchronous methods, "
                "or use an Agent"
            )
        return self.agent.run(make)

    async def arun(self, make: Callable[[AsyncAgent], Coroutine[Any, Any, T]]) -> T:
        """Return the coroutine's result, from any event loop."""
        if isinstance(self.agent, AsyncAgent):
            return await make(self.agent)
        return await asyncio.wrap_future(self.agent.submit(make))

    @property
    def embedder(self) -> Embedder:
        """The embedder of this memory."""
        return self.agent.embedder

    @property
    def user_id(self) -> str:
        """The user of this memory."""
        agent = self.agent
        return agent.bank.scope.user_id if isinstance(agent, AsyncAgent) else agent.user_id


class Coalescer(Generic[Op, Result]):
    """Joins the batches of each event loop for one function that carries them out."""

    __slots__ = ("_run", "_tasks", "_waiting")

    def __init__(self, run: Callable[[list[Op]], Awaitable[list[Result]]]) -> None:
        """Take the function that carries out operations: one result for each, in order."""
        self._run = run
        self._waiting: WeakKeyDictionary[asyncio.AbstractEventLoop, _Waiting[Op, Result]] = (
            WeakKeyDictionary()
        )
        self._tasks: set[asyncio.Task[None]] = set()

    def submit(self, ops: Sequence[Op]) -> asyncio.Future[list[Result]]:
        """Return the future results of a batch, carried out with those submitted along with it."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[Result]] = loop.create_future()
        waiting = self._waiting.get(loop)
        if waiting is None:
            waiting = self._waiting[loop] = []
            loop.call_soon(self._start, loop)
        waiting.append((ops, future))
        return future

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin the batches that wait, in groups of at most `MOST_OPS` operations."""
        group: _Waiting[Op, Result] = []
        groups, size = [group], 0
        for ops, future in self._waiting.pop(loop):
            if group and size + len(ops) > MOST_OPS:
                group, size = [], 0
                groups.append(group)
            group.append((ops, future))
            size += len(ops)
        task = loop.create_task(self._carry_out(groups))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry_out(self, groups: Sequence[_Waiting[Op, Result]]) -> None:
        for group in groups:
            await self._carry_out_group(group)

    async def _carry_out_group(self, group: _Waiting[Op, Result]) -> None:
        live = [(ops, future) for ops, future in group if not future.done()]
        try:
            results = iter(await self._run([op for ops, _ in live for op in ops]))
        except InputError as exc:
            if len(live) == 1:
                _fail(live, exc)
            else:
                await self._carry_out([[waiting] for waiting in live])
        except asyncio.CancelledError:
            for _, future in live:
                future.cancel()
            raise
        except Exception as exc:
            _fail(live, exc)
        else:
            for ops, future in live:
                own = [next(results) for _ in ops]
                if not future.done():
                    future.set_result(own)


def _fail(group: _Waiting[Op, Result], exc: Exception) -> None:
    for _, future in group:
        if not future.done():
            future.set_exception(exc)


Assignment = tuple[MemoryOp, MemoryItem, tuple[MemoryItem, ...] | None]
"""An op, the item after it, and the item's past; None pushes the present version onto it."""


async def assign(
    bank: MemoryBank, plan: Callable[[BankState, str], Sequence[Assignment]], *, actor: str = "user"
) -> Commit | None:
    """Write whole items (text, metadata, tags, expiry) in one commit, as effects of ops.

    `plan(state, commit_id)` returns the writes; it is called again when another writer
    was first. An undo takes the commit back. Returns None when there is nothing to write.
    """

    def entry(state: BankState) -> Entry | None:
        commit_id = f"c{state.seq + 1}"
        planned = plan(state, commit_id)
        if not planned:
            return None
        written = [
            (op, item.model_copy(update={"op_id": f"{commit_id}.{at}"}), past)
            for at, (op, item, past) in enumerate(planned)
        ]
        return Commit(
            id=commit_id,
            ops=tuple(
                AppliedOp(op_id=item.op_id, op=op, item_id=item.id, version=item.version)
                for op, item, _ in written
            ),
            changes=tuple(
                ItemChange(id=item.id, after=item, archive=past) for _, item, past in written
            ),
            graph=GraphDelta(nodes=tuple(item_node(item) for _, item, _ in written)),
            source=SourceRef(actor=actor),
        )

    row = await bank.append(entry)
    return row.entry if row is not None and isinstance(row.entry, Commit) else None
