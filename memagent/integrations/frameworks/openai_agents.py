"""`MemorySession` for the OpenAI Agents SDK: history that lasts, and is remembered.

Items come back exactly as the SDK gave them. What the user and the assistant say in
them is remembered by the agent's design too, so that other sessions of the same user
find it with the tools of `memory_tools`.
"""

# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownParameterType=false, reportUntypedBaseClass=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeArgument=false, reportUntypedFunctionDecorator=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from langgraph.store.base import PutOp, SearchOp

from memagent.agent import Agent
from memagent.async_agent import AsyncAgent
from memagent.core.errors import MissingExtra
from memagent.integrations import access as conversation
from memagent.integrations.access import Access, Message
from memagent.integrations.frameworks.tools import memory_functions
from memagent.integrations.langgraph_store import MemoryStore

try:
    from agents import function_tool
    from agents.memory import SessionABC
except ImportError as exc:
    raise MissingExtra("openai-agents", needed_for="MemorySession", cause=str(exc)) from exc


def memory_tools(agent: Agent | AsyncAgent, tools: Sequence[str] = ("search", "add")) -> list[Any]:
    """Return tools of the memory for `Agent(tools=...)`; see `memory_functions`."""
    return [function_tool(tool) for tool in memory_functions(agent, tools)]


class MemorySession(SessionABC):
    """A session of the SDK in the memory of one user, for `Runner.run(..., session=...)`."""

    def __init__(self, session_id: str, agent: Agent | AsyncAgent) -> None:
        self.session_id, self.session_settings = session_id, None
        self._access, self._store = Access(agent), MemoryStore(agent)
        self._place = ("openai_agents", session_id)

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """Return the items, oldest first; with `limit` the latest ones."""
        items = [row.value["item"] for row in await self._rows()]
        return items if limit is None else items[len(items) - min(limit, len(items)) :]

    async def add_items(self, items: list[Any]) -> None:
        """Add items to the history, and remember what was said in them."""
        rows = await self._rows()
        first = int(rows[-1].key) + 1 if rows else 0
        named = [(f"{first + at:012}", item) for at, item in enumerate(items)]
        puts = [PutOp(self._place, key, {"item": item}, False) for key, item in named]
        await self._store.abatch(puts)
        said = [message for key, item in named if (message := _message(item, key))]
        await self._access.arun(lambda live: conversation.remember(live, self.session_id, said))

    async def pop_item(self) -> Any | None:
        """Take the latest item out of the history; what was remembered stays."""
        rows = await self._rows()
        if not rows:
            return None
        await self._store.adelete(self._place, rows[-1].key)
        return rows[-1].value["item"]

    async def clear_session(self) -> None:
        """Empty the history; what was remembered stays."""
        await self._store.abatch([PutOp(self._place, row.key, None) for row in await self._rows()])

    async def _rows(self) -> list[Any]:
        [rows] = await self._store.abatch([SearchOp(self._place, limit=1_000_000)])
        return sorted(cast("list[Any]", rows), key=lambda row: row.key)


def _message(item: Any, key: str) -> Message | None:
    if item.get("role") not in ("user", "assistant"):
        return None
    content: Any = item.get("content") or ()
    parts = [content] if isinstance(content, str) else [part.get("text") or "" for part in content]
    text = "\n".join(parts)
    return Message(role=item["role"], text=text, id=f"{key}:{text}")
