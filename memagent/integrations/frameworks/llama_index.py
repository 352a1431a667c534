"""`MemagentBlock` for LlamaIndex: a block of its `Memory` kept by memagent."""

# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownParameterType=false, reportUntypedBaseClass=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeArgument=false, reportUntypedFunctionDecorator=false

from __future__ import annotations

from typing import Any
from uuid import uuid4

from pydantic import PrivateAttr

from memagent.integrations.access import (
    Access,
    Agent,
    AsyncAgent,
    Message,
    MissingExtra,
    Trust,
    recall_block,
    remember_messages,
)

try:
    from llama_index.core.base.llms.types import ChatMessage
    from llama_index.core.memory import BaseMemoryBlock
except ImportError as exc:
    raise MissingExtra("llama-index", needed_for="MemagentBlock", cause=str(exc)) from exc


class MemagentBlock(BaseMemoryBlock[str]):
    """Long-term memory behind LlamaIndex's short-term memory.

    Messages that leave the short-term memory are remembered by the agent's design;
    what fits the last user message stands in the prompt. Use it as
    `Memory.from_defaults(memory_blocks=[MemagentBlock.over(agent)])`.
    """

    k: int = 8
    """Most memories in the prompt."""
    min_trust: Trust | None = None
    """Leaves out what is trusted less, such as words of tools."""
    _access: Access = PrivateAttr()

    @classmethod
    def over(cls, agent: Agent | AsyncAgent, *, name: str = "long_term", **options: Any) -> Any:
        """Make a block over an agent; `options` are the fields of a block."""
        block = cls(name=name, **options)
        block._access = Access(agent)
        return block

    async def _aget(self, messages: list[ChatMessage] | None = None, **named: Any) -> str:
        """Recall for the last user message; `k` and `min_trust` of the call come first.

        Other keywords of `Memory.get` are for other blocks.
        """
        k, least = named.get("k", self.k), named.get("min_trust", self.min_trust)
        human = (message for message in reversed(messages or []) if message.role.value == "user")
        text = next((message.content or "" for message in human), "")
        return await self._access.arun(lambda live: recall_block(live, text, k=k, min_trust=least))

    async def _aput(self, messages: list[ChatMessage]) -> None:
        threads: dict[str, list[Message]] = {}
        for message in messages:
            if message.role.value in ("user", "assistant"):
                thread = str(message.additional_kwargs.get("session_id", "llama_index"))
                said = Message(role=message.role.value, text=message.content or "", id=str(uuid4()))
                threads.setdefault(thread, []).append(said)
        for thread, said in threads.items():
            await self._access.arun(
                lambda live, thread=thread, said=said: remember_messages(live, thread, said)
            )
