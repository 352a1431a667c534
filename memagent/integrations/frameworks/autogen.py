"""`MemagentMemory` for AutoGen: a `Memory` of its agents."""

# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownParameterType=false, reportUntypedBaseClass=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeArgument=false, reportUntypedFunctionDecorator=false

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar, Unpack
from uuid import uuid4

from memagent.integrations.access import (
    Access,
    Agent,
    AsyncAgent,
    Hit,
    InputError,
    Message,
    MissingExtra,
    SearchArguments,
    Trust,
    recalled_block,
    recalled_text,
    remember_messages,
)

try:
    from autogen_core import CancellationToken
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


T = TypeVar("T")


class MemagentMemory(Memory):
    """The memory of one user, for `AssistantAgent(memory=[MemagentMemory(agent)])`.

    It recalls at most `k` memories, and none that is trusted less than `min_trust`.
    """

    component_type = "memory"

    def __init__(
        self, agent: Agent | AsyncAgent, *, k: int = 8, min_trust: Trust | None = None
    ) -> None:
        self._access, self._k, self._min_trust = Access(agent), k, min_trust

    async def update_context(self, model_context: Any) -> UpdateContextResult:
        """Add what fits the last user message to the context as a system message."""
        messages = reversed(await model_context.get_messages())
        asked = next((part.content for part in messages if isinstance(part, UserMessage)), "")
        parts = [asked] if isinstance(asked, str) else asked
        hits = await self._hits("\n".join(part for part in parts if isinstance(part, str)))
        if hits:
            await model_context.add_message(SystemMessage(content=recalled_block(hits)))
        return UpdateContextResult(memories=_result(hits))

    async def query(
        self,
        query: str | MemoryContent,
        cancellation_token: CancellationToken | None = None,
        **options: Unpack[SearchArguments],
    ) -> MemoryQueryResult:
        """Return the memories that fit a text, best first; `options` are those of a search."""
        text = query if isinstance(query, str) else _text(query)
        return _result(await _until(cancellation_token, self._hits(text, **options)))

    async def add(
        self, content: MemoryContent, cancellation_token: CancellationToken | None = None
    ) -> None:
        """Remember a text by the agent's design, with its metadata.

        Raises `InputError` for other content.
        """
        message = Message(role="user", text=_text(content), id=str(uuid4()))
        work = self._access.arun(
            lambda live: remember_messages(live, "autogen", [message], metadata=content.metadata)
        )
        await _until(cancellation_token, work)

    async def clear(self) -> None:
        """Delete every memory of the user; an undo brings them back."""
        user = self._access.user_id
        await self._access.arun(lambda live: live.memory.delete_all(user_id=user))

    async def close(self) -> None:
        """Leave the agent open; whoever opened it closes it."""

    async def _hits(self, text: str, **options: Unpack[SearchArguments]) -> Sequence[Hit]:
        if not text.strip():
            return []
        chosen: SearchArguments = {"k": self._k, "min_trust": self._min_trust, **options}
        return await self._access.arun(lambda live: live.search(text, **chosen))


async def _until(token: CancellationToken | None, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of the work, which the token may cancel."""
    task = asyncio.ensure_future(work)
    if token is not None:
        token.link_future(task)
    return await task


def _text(content: MemoryContent) -> str:
    kind = getattr(content.mime_type, "value", content.mime_type)
    if not str(kind).startswith("text/") or not isinstance(content.content, str):
        raise InputError("only texts can be remembered, not images, bytes or JSON")
    if not content.content.strip():
        raise InputError("the text is empty")
    return content.content


def _result(hits: Sequence[Hit]) -> MemoryQueryResult:
    contents = [
        MemoryContent(
            content=recalled_text(hit),
            mime_type=MemoryMimeType.TEXT,
            metadata={
                **(hit.item.metadata if hit.item is not None else {}),
                "id": hit.id,
                "score": hit.score,
                "trust": hit.trust,
            },
        )
        for hit in hits
    ]
    return MemoryQueryResult(results=contents)
