"""`MemagentProvider` for Microsoft's Agent Framework, the successor of AutoGen.

What fits stands in the instructions of a run and never in its history, so it is not
remembered again.
"""

# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownParameterType=false, reportUntypedBaseClass=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeArgument=false, reportUntypedFunctionDecorator=false

from __future__ import annotations

from typing import Any
from uuid import uuid4

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
    from agent_framework import ContextProvider
except ImportError as exc:
    raise MissingExtra("agent-framework", needed_for="MemagentProvider", cause=str(exc)) from exc


class MemagentProvider(ContextProvider):
    """The memory of one user, for `Agent(context_providers=[MemagentProvider(agent)])`.

    It recalls at most `k` memories, none trusted less than `min_trust`. `source_id` marks
    what the provider adds; `remember=False` only reads.
    """

    def __init__(
        self,
        agent: Agent | AsyncAgent,
        source_id: str = "memagent",
        *,
        k: int = 8,
        remember: bool = True,
        min_trust: Trust | None = None,
    ) -> None:
        super().__init__(source_id)
        self._access, self._remembers = Access(agent), remember
        self._k, self._min_trust = k, min_trust

    async def before_run(self, *, agent: Any, session: Any, context: Any, state: Any) -> None:  # noqa: ARG002
        """Put what fits the last user message into the instructions of the run."""
        spoken = [part.text for part in context.input_messages if part.role == "user"]
        text = spoken[-1] if spoken else ""
        block = await self._access.arun(
            lambda live: recall_block(live, text, k=self._k, min_trust=self._min_trust)
        )
        context.extend_instructions(self.source_id, block)

    async def after_run(self, *, agent: Any, session: Any, context: Any, state: Any) -> None:  # noqa: ARG002
        """Remember what the user and the agent said, in the session's thread."""
        if not self._remembers:
            return
        answered = context.response.messages if context.response is not None else ()
        said = [
            Message(
                role=part.role,
                text=part.text,
                id=part.message_id or str(uuid4()),
                name=part.author_name,
            )
            for part in (*context.input_messages, *answered)
            if part.role in ("user", "assistant")
        ]
        await self._access.arun(lambda live: remember_messages(live, session.session_id, said))
