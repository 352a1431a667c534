"""`MemoryMiddleware` for LangChain's `create_agent`: recall before, remember after.

What is recalled stands in the system message of each model call and never in the
state, so it reaches neither the checkpoints nor the memory again.
"""

# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownParameterType=false, reportUntypedBaseClass=false, reportUnknownArgumentType=false

from __future__ import annotations

from functools import partial
from typing import Any

from langchain_core.messages import SystemMessage
from langgraph.config import get_config

from memagent.integrations.access import (
    Access,
    Agent,
    AsyncAgent,
    MissingExtra,
    Trust,
    recall_block,
    remember_messages,
)
from memagent.integrations.langgraph_tools import last_question, spoken, thread_of

try:
    from langchain.agents.middleware import AgentMiddleware
except ImportError as exc:
    raise MissingExtra("langchain", needed_for="MemoryMiddleware", cause=str(exc)) from exc


class MemoryMiddleware(AgentMiddleware):
    """Give the agent what fits the last human message, and remember each run.

    `MemoryMiddleware(agent)` over an `Agent` serves `invoke` and `ainvoke`; over an
    `AsyncAgent` it serves `ainvoke` in that agent's event loop. The agent fixes the user,
    `thread_id` of the configuration the thread. At most `k` memories are recalled a call;
    `remember=False` only reads; `min_trust` leaves out what is trusted less, such as words
    of tools.
    """

    def __init__(
        self,
        agent: Agent | AsyncAgent,
        *,
        k: int = 8,
        remember: bool = True,
        min_trust: Trust | None = None,
    ) -> None:
        super().__init__()
        self._access, self._remembers = Access(agent), remember
        self._recalled: Any = partial(recall_block, k=k, min_trust=min_trust)

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        """Call the model with what fits the last human message."""
        text = last_question(request.messages)
        return handler(_with(request, self._access.run(lambda live: self._recalled(live, text))))

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        """Call the model with what fits the last human message."""
        text = last_question(request.messages)
        block = await self._access.arun(lambda live: self._recalled(live, text))
        return await handler(_with(request, block))

    def after_agent(self, state: Any, runtime: Any) -> None:  # noqa: ARG002
        """Remember the messages of the run."""
        if self._remembers:
            thread, messages = thread_of(get_config()), spoken(state["messages"])
            self._access.run(lambda live: remember_messages(live, thread, messages))

    async def aafter_agent(self, state: Any, runtime: Any) -> None:  # noqa: ARG002
        """Remember the messages of the run."""
        if self._remembers:
            thread, messages = thread_of(get_config()), spoken(state["messages"])
            await self._access.arun(lambda live: remember_messages(live, thread, messages))


def _with(request: Any, block: str) -> Any:
    """Return the request with a block at the end of its system message."""
    said = request.system_message.content_blocks if request.system_message is not None else ()
    blocks: Any = [*said, {"type": "text", "text": f"\n\n{block}" if said else block}]
    return request.override(system_message=SystemMessage(content_blocks=blocks))
