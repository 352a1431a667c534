"""`MemorySession` for the OpenAI Agents SDK: history that lasts, and is remembered.

Items come back exactly as the SDK gave them. What the user and the assistant say in
them is remembered by the agent's design too, so that other sessions of the same user
find it with the tools of `memory_tools`.
"""

# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownParameterType=false, reportUntypedBaseClass=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeArgument=false, reportUntypedFunctionDecorator=false

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, cast

from langgraph.store.base import PutOp, SearchOp

from memagent.integrations.access import (
    Access,
    Agent,
    AsyncAgent,
    MemoryBank,
    Message,
    MissingExtra,
    Trust,
    remember_messages,
)
from memagent.integrations.documents import DocumentBank
from memagent.integrations.mcp_tools import memory_functions

try:
    from agents import function_tool
    from agents.memory import SessionABC, SessionSettings
    from agents.memory.session_settings import resolve_session_limit
except ImportError as exc:
    raise MissingExtra("openai-agents", needed_for="MemorySession", cause=str(exc)) from exc


def memory_tools(agent: Agent | AsyncAgent, tools: Sequence[str] = ("search", "add")) -> list[Any]:
    """Return tools of the memory for `Agent(tools=...)`; see `memory_functions`."""
    return [function_tool(tool) for tool in memory_functions(agent, tools)]


class MemorySession(SessionABC):
    """A session of the SDK of one user, for `Runner.run(..., session=...)`.

    The history stands in a memory of its own beside the user's (run `openai_agents`),
    so its items are never recalled. Erasing the user erases it too. `session_settings` may
    limit how many items a run is shown.
    """

    def __init__(
        self,
        session_id: str,
        agent: Agent | AsyncAgent,
        session_settings: SessionSettings | None = None,
    ) -> None:
        self.session_id, self.session_settings = session_id, session_settings
        self._access, self._bank = Access(agent), None
        self._documents = DocumentBank(fields=(), recipe=None, trust=Trust.ASSISTANT)
        self._place = ("openai_agents", session_id)

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """Return the items, oldest first; with `limit` the latest ones."""
        most = resolve_session_limit(limit, self.session_settings)
        return [row.value["item"] for row in await self._rows(most)]

    async def add_items(self, items: list[Any]) -> None:
        """Add items to the history, and remember what was said in them."""
        first = time.time_ns()
        named = [(f"{first + at:020}", item) for at, item in enumerate(items)]
        await self._run([PutOp(self._place, key, {"item": item}, False) for key, item in named])
        said = [message for key, item in named if (message := _message(item, key))]
        await self._access.arun(lambda live: remember_messages(live, self.session_id, said))

    async def pop_item(self) -> Any | None:
        """Take the latest item out of the history; what was remembered stays."""
        rows = await self._rows(1)
        await self._run([PutOp(self._place, row.key, None) for row in rows])
        return rows[-1].value["item"] if rows else None

    async def clear_session(self) -> None:
        """Empty the history; what was remembered stays."""
        await self._run([PutOp(self._place, row.key, None) for row in await self._rows()])

    async def _rows(self, most: int | None = None) -> list[Any]:
        """Return the latest rows, oldest first."""
        [rows] = await self._run([SearchOp(self._place, limit=1_000_000 if most is None else most)])
        return sorted(cast("list[Any]", rows), key=lambda row: row.key)

    async def _run(self, ops: list[PutOp | SearchOp]) -> list[Any]:
        async def work(live: AsyncAgent) -> list[Any]:
            log = live.bank.log
            if self._bank is None or self._bank.log.journal is not log.journal:
                own = log.scope.model_copy(update={"run_id": "openai_agents"})
                self._bank = MemoryBank(
                    embedder=live.embedder,
                    scope=own,
                    journal=log.journal,
                    clock=log.clock,
                    read_only=log.read_only,
                )
                old: Any = await self._documents.run(
                    live.bank, [SearchOp(self._place, limit=1_000_000)]
                )
                moved = [PutOp(row.namespace, row.key, row.value, False) for row in old[0]]
                await self._documents.run(self._bank, moved)
                gone = [PutOp(op.namespace, op.key, None) for op in moved]
                await self._documents.run(live.bank, gone)
            return await self._documents.run(self._bank, ops)

        return await self._access.arun(work)


def _message(item: Any, key: str) -> Message | None:
    if item.get("role") not in ("user", "assistant"):
        return None
    content: Any = item.get("content") or ()
    parts = [content] if isinstance(content, str) else [part.get("text") or "" for part in content]
    text = "\n".join(parts)
    return Message(role=item["role"], text=text, id=f"{key}:{text}")
