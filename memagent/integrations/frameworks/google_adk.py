"""`MemagentMemoryService` for Google's Agent Development Kit.

Each user of each app has a memory of its own. Sessions are remembered by the design,
so one that is added again costs nothing.
"""

# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownParameterType=false, reportUntypedBaseClass=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeArgument=false, reportUntypedFunctionDecorator=false

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from memagent.build import Store
from memagent.integrations.access import (
    AsyncAgent,
    InputError,
    Message,
    MissingExtra,
    Scope,
    Trust,
    recalled_text,
    remember_messages,
)
from memagent.sync.live_agent import LoopThread

try:
    from google.adk.memory.base_memory_service import BaseMemoryService, SearchMemoryResponse
    from google.adk.memory.memory_entry import MemoryEntry
    from google.genai import types
except ImportError as exc:
    raise MissingExtra("google-adk", needed_for="MemagentMemoryService", cause=str(exc)) from exc


T = TypeVar("T")


class MemagentMemoryService(BaseMemoryService):
    """A memory service over a store, for `Runner(memory_service=...)`.

    `MemagentMemoryService(open_store())` returns at most `k` memories for a search, none
    trusted less than `min_trust`; `options` are those of `Store.agent`: model, design.
    Calls come from any event loop, such as the one that each `Runner.run` opens. When the
    runner is done, close the service, then the store.
    """

    def __init__(
        self, store: Store, *, k: int = 10, min_trust: Trust | None = None, **options: Any
    ) -> None:
        self._store, self._k, self._options = store, k, options
        self._min_trust = min_trust
        self._agents: dict[Scope, AsyncAgent] = {}
        self._thread = LoopThread()

    async def add_session_to_memory(self, session: Any) -> None:
        """Remember what was said in a session and is not remembered yet."""
        await self._remember(session.app_name, session.user_id, session.id, session.events)

    async def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: Sequence[Any],
        session_id: str | None = None,
        custom_metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Remember what was said in some events; what comes of it gets the metadata."""
        thread = session_id or "adk"
        await self._remember(app_name, user_id, thread, events, metadata=custom_metadata)

    async def search_memory(self, *, app_name: str, user_id: str, query: str) -> Any:
        """Return the memories that fit a text, best first."""
        if not query.strip():
            return SearchMemoryResponse()
        hits = await self._run(
            app_name,
            user_id,
            lambda agent: agent.search(query, k=self._k, min_trust=self._min_trust),
        )
        return SearchMemoryResponse(memories=[_entry(hit) for hit in hits])

    async def delete_memory(self, *, app_name: str, user_id: str, memory_id: Any = None) -> None:
        """Delete a memory that a search returned; memagent's `undo` brings it back.

        Raises `InputError` without an id.
        """
        if memory_id is None:
            raise InputError("memory_id is missing; a search returns it as the entry's id")
        await self._run(app_name, user_id, lambda agent: agent.memory.delete(memory_id))

    def close(self) -> None:
        """Let running calls finish and end the service's thread; the store stays open."""
        self._thread.stop()

    async def _remember(
        self, app: str, user: str, session_id: str, events: Sequence[Any], **options: Any
    ) -> None:
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
        await self._run(
            app, user, lambda agent: remember_messages(agent, session_id, said, **options)
        )

    async def _run(
        self, app_name: str, user_id: str, make: Callable[[AsyncAgent], Coroutine[Any, Any, T]]
    ) -> T:
        """Return what a coroutine over a user's agent gives, from the service's own loop."""

        async def work() -> T:
            scope = Scope(user_id=user_id, agent_id=app_name)
            if scope not in self._agents:
                self._agents[scope] = self._store.agent(scope, **self._options)
            return await make(self._agents[scope])

        return await asyncio.wrap_future(self._thread.submit(work()))


def _entry(hit: Any) -> MemoryEntry:
    item, part = hit.item, types.Part(text=recalled_text(hit))
    said_at = item.said_at if item is not None else None
    return MemoryEntry(
        id=hit.id,
        content=types.Content(parts=[part]),
        custom_metadata=dict(item.metadata) if item is not None else {},
        author=item.speaker if item is not None else None,
        timestamp=said_at.isoformat() if said_at is not None else None,
    )
