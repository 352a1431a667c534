"""`MemagentMemoryService` for Google's Agent Development Kit.

Each user of each app has a memory of its own. Sessions are remembered by the design,
so one that is added again costs nothing.
"""

# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownParameterType=false, reportUntypedBaseClass=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeArgument=false, reportUntypedFunctionDecorator=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memagent.async_agent import AsyncAgent
from memagent.build import Store
from memagent.core.errors import MissingExtra
from memagent.core.records import Scope, Trust
from memagent.integrations import access as conversation
from memagent.integrations.access import Message

try:
    from google.adk.memory.base_memory_service import BaseMemoryService, SearchMemoryResponse
    from google.adk.memory.memory_entry import MemoryEntry
    from google.genai import types
except ImportError as exc:
    raise MissingExtra("google-adk", needed_for="MemagentMemoryService", cause=str(exc)) from exc


class MemagentMemoryService(BaseMemoryService):
    """A memory service over a store, for `Runner(memory_service=...)`.

    `MemagentMemoryService(open_store())`; `options` are those of `Store.agent`: model,
    design. Close the store when the runner is done.
    """

    def __init__(
        self, store: Store, *, k: int = 10, min_trust: Trust | None = None, **options: Any
    ) -> None:
        """Return at most `k` memories for a search, none trusted less than `min_trust`."""
        self._store, self._k, self._options = store, k, options
        self._min_trust = min_trust
        self._agents: dict[Scope, AsyncAgent] = {}

    async def add_session_to_memory(self, session: Any) -> None:
        """Remember what was said in a session and is not remembered yet."""
        await self._remember(session.app_name, session.user_id, session.id, session.events)

    async def add_events_to_memory(self, **delta: Any) -> None:
        """Remember what was said in some events of a session."""
        session_id = delta.get("session_id") or "adk"
        await self._remember(delta["app_name"], delta["user_id"], session_id, delta["events"])

    async def search_memory(self, *, app_name: str, user_id: str, query: str) -> Any:
        """Return the memories that fit a text, best first."""
        agent = self._agent(app_name, user_id)
        asked = query.strip()
        hits = await agent.search(query, k=self._k, min_trust=self._min_trust) if asked else []
        return SearchMemoryResponse(memories=[_entry(hit) for hit in hits])

    async def delete_memory(self, *, app_name: str, user_id: str, memory_id: Any = None) -> None:
        """Delete a memory that a search returned; memagent's `undo` brings it back."""
        if memory_id is not None:
            await self._agent(app_name, user_id).memory.delete(memory_id)

    async def _remember(self, app: str, user: str, session_id: str, events: Sequence[Any]) -> None:
        said = [
            Message(
                role="user" if event.author == "user" else "assistant",
                text="\n".join(part.text for part in event.content.parts if part.text),
                id=event.id,
                name=event.author,
            )
            for event in events
            if event.content is not None and event.content.parts
        ]
        await conversation.remember(self._agent(app, user), session_id, said)

    def _agent(self, app_name: str, user_id: str) -> AsyncAgent:
        scope = Scope(user_id=user_id, agent_id=app_name)
        if scope not in self._agents:
            self._agents[scope] = self._store.agent(scope, **self._options)
        return self._agents[scope]


def _entry(hit: Any) -> MemoryEntry:
    item, part = hit.item, types.Part(text=conversation.recalled_text(hit))
    entry = MemoryEntry(id=hit.id, content=types.Content(parts=[part]))
    if item is None or item.said_at is None:
        return entry
    return entry.model_copy(update={"author": item.speaker, "timestamp": item.said_at.isoformat()})
