"""Access to a memory from any thread and event loop, and commits of whole items.

A bank belongs to one event loop, frameworks call from wherever they like. An `Access`
over a synchronous `Agent` sends every call to that agent's own loop; over an
`AsyncAgent` coroutines run where they are awaited, and synchronous calls are refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from memagent.agent import Agent
from memagent.async_agent import AsyncAgent
from memagent.core.errors import StoreError
from memagent.core.ops import MemoryOp
from memagent.core.records import MemoryItem, SourceRef
from memagent.core.snapshot import AppliedOp, Commit, Entry, GraphDelta, ItemChange
from memagent.memory.bank import MemoryBank
from memagent.state.adjacency import item_node
from memagent.state.fold import BankState

T = TypeVar("T")


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
        return self.agent._run(make)  # noqa: SLF001 (the one way into its loop)  # pyright: ignore[reportPrivateUsage]

    async def arun(self, make: Callable[[AsyncAgent], Coroutine[Any, Any, T]]) -> T:
        """Return the coroutine's result, from any event loop."""
        if isinstance(self.agent, AsyncAgent):
            return await make(self.agent)
        live, thread = self.agent._live()  # noqa: SLF001 (as above)  # pyright: ignore[reportPrivateUsage]
        return await asyncio.wrap_future(thread.submit(make(live)))

    @property
    def user_id(self) -> str:
        """The user of this memory."""
        agent = self.agent
        return agent.bank.scope.user_id if isinstance(agent, AsyncAgent) else agent.user_id


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
