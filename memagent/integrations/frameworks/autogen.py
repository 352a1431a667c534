"""`MemagentMemory` for AutoGen: a `Memory` of its agents."""

# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownParameterType=false, reportUntypedBaseClass=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeArgument=false, reportUntypedFunctionDecorator=false

from __future__ import annotations

from typing import Any
from uuid import uuid4

from memagent.agent import Agent
from memagent.async_agent import AsyncAgent
from memagent.core.answers import Hit
from memagent.core.errors import InputError, MissingExtra
from memagent.core.records import Trust
from memagent.integrations import access as conversation
from memagent.integrations.access import Access

try:
    from autogen_core.memory import (
        Memory,
        MemoryContent,
        MemoryMimeType,
        MemoryQueryResult,
        UpdateContextResult,
    )
    from autogen_core.models import SystemMessage, UserMessage
except ImportError as exc:
    raise MissingExtra("autogen", needed_for="MemagentMemory", cause=str(exc)) from exc


class MemagentMemory(Memory):
    """The memory of one user, for `AssistantAgent(memory=[MemagentMemory(agent)])`."""

    component_type = "memory"

    def __init__(
        self, agent: Agent | AsyncAgent, *, k: int = 8, min_trust: Trust | None = None
    ) -> None:
        """Recall at most `k` memories, and none that is trusted less than `min_trust`."""
        self._access, self._k, self._min_trust = Access(agent), k, min_trust

    async def update_context(self, model_context: Any) -> UpdateContextResult:
        """Add what fits the last user message to the context as a system message."""
        messages = reversed(await model_context.get_messages())
        asked = next((part.content for part in messages if isinstance(part, UserMessage)), "")
        hits = await self._hits(asked) if isinstance(asked, str) and asked.strip() else []
        if hits:
            await model_context.add_message(
                SystemMessage(content=conversation.recalled_block(hits))
            )
        return UpdateContextResult(memories=_result(hits))

    async def query(self, query: str | MemoryContent, *_: Any, **__: Any) -> MemoryQueryResult:
        """Return the memories that fit a text, best first."""
        text = query if isinstance(query, str) else str(query.content)
        return _result(await self._hits(text) if text.strip() else [])

    async def add(self, content: MemoryContent, *_: Any, **__: Any) -> None:
        """Remember a text by the agent's design. Raises `InputError` for other content."""
        if not isinstance(content.content, str) or not content.content.strip():
            raise InputError("only texts can be remembered, not images, bytes or JSON")
        message = conversation.Message(role="user", text=content.content, id=str(uuid4()))
        await self._access.arun(lambda live: conversation.remember(live, "autogen", [message]))

    async def clear(self) -> None:
        """Delete every memory of the user; an undo brings them back."""
        user = self._access.user_id
        await self._access.arun(lambda live: live.memory.delete_all(user_id=user))

    async def close(self) -> None:
        """Leave the agent open; whoever opened it closes it."""

    async def _hits(self, text: str) -> list[Hit]:
        return await self._access.arun(
            lambda live: live.search(text, k=self._k, min_trust=self._min_trust)
        )


def _result(hits: list[Hit]) -> MemoryQueryResult:
    kind = MemoryMimeType.TEXT
    rows = [
        (conversation.recalled_text(hit), {"id": hit.id, "score": hit.score, "trust": hit.trust})
        for hit in hits
    ]
    contents = [MemoryContent(content=text, mime_type=kind, metadata=row) for text, row in rows]
    return MemoryQueryResult(results=contents)
