"""`memory_toolset` for PydanticAI: the memory as a toolset."""

# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownParameterType=false, reportUntypedBaseClass=false, reportUnknownArgumentType=false
# pyright: reportCallIssue=false, reportIndexIssue=false
# pyright: reportMissingTypeArgument=false, reportUntypedFunctionDecorator=false

from __future__ import annotations

from collections.abc import Sequence
from functools import wraps
from typing import Any

from memagent.agent import Agent
from memagent.async_agent import AsyncAgent
from memagent.core.errors import MemAgentError, MissingExtra
from memagent.core.records import Trust
from memagent.integrations import access as conversation
from memagent.integrations.access import Access
from memagent.integrations.frameworks.tools import Function, memory_functions

try:
    from pydantic_ai import FunctionToolset, ModelRetry, RunContext
except ImportError as exc:
    raise MissingExtra("pydantic-ai", needed_for="memory_toolset", cause=str(exc)) from exc


def memory_toolset(
    agent: Agent | AsyncAgent,
    tools: Sequence[str] = ("search", "add"),
    *,
    recall: bool = True,
    min_trust: Trust | None = None,
) -> Any:
    """Return tools of the memory for `Agent(toolsets=[...])`; see `memory_functions`.

    With `recall` the instructions of each request hold what fits the user's prompt,
    without what is trusted less than `min_trust`. A call that cannot be carried out is
    told to the model, which may try again.
    """
    functions = [_with_retry(tool) for tool in memory_functions(agent, tools)]
    return FunctionToolset(functions, instructions=_recalling(agent, min_trust) if recall else None)


def _recalling(agent: Agent | AsyncAgent, min_trust: Trust | None) -> Function:
    access = Access(agent)

    async def recalled(ctx: RunContext[Any]) -> str:
        prompt = ctx.prompt if isinstance(ctx.prompt, str) else ""
        return await access.arun(
            lambda live: conversation.recall(live, prompt, min_trust=min_trust)
        )

    return recalled


def _with_retry(tool: Function) -> Function:
    @wraps(tool)
    async def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return await tool(*args, **kwargs)
        except MemAgentError as exc:
            raise ModelRetry(str(exc)) from exc

    return call
