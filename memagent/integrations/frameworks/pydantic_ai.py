"""`memory_toolset` for PydanticAI: the memory as a toolset."""

# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownParameterType=false, reportUntypedBaseClass=false, reportUnknownArgumentType=false
# pyright: reportCallIssue=false, reportIndexIssue=false
# pyright: reportMissingTypeArgument=false, reportUntypedFunctionDecorator=false

from __future__ import annotations

from collections.abc import Sequence
from functools import wraps
from typing import Any

from memagent.integrations.access import (
    Access,
    Agent,
    AsyncAgent,
    MemAgentError,
    MissingExtra,
    Trust,
    recall_block,
)
from memagent.integrations.mcp_tools import Tool, memory_functions

try:
    from pydantic_ai import FunctionToolset, ModelRetry, RunContext
except ImportError as exc:
    raise MissingExtra("pydantic-ai", needed_for="memory_toolset", cause=str(exc)) from exc


def memory_toolset(
    agent: Agent | AsyncAgent,
    tools: Sequence[str] = ("search", "add"),
    *,
    recall: bool = True,
    k: int = 8,
    min_trust: Trust | None = None,
    **options: Any,
) -> Any:
    """Return tools of the memory for `Agent(toolsets=[...])`; see `memory_functions`.

    With `recall` the instructions of each request hold at most `k` memories that fit
    the texts of the user's prompt, none trusted less than `min_trust`. A call that
    cannot be carried out is told to the model, which may try again. `options` are
    PydanticAI's for a toolset: `id`, `max_retries`, `timeout` and the others.
    """
    access = Access(agent)

    async def recalled(ctx: RunContext[Any]) -> str:
        parts = [ctx.prompt] if isinstance(ctx.prompt, str) else ctx.prompt or ()
        prompt = "\n".join(part for part in parts if isinstance(part, str))
        return await access.arun(lambda live: recall_block(live, prompt, k=k, min_trust=min_trust))

    functions = [_with_retry(tool) for tool in memory_functions(agent, tools)]
    return FunctionToolset(functions, instructions=recalled if recall else None, **options)


def _with_retry(tool: Tool) -> Tool:
    @wraps(tool)
    async def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return await tool(*args, **kwargs)
        except MemAgentError as exc:
            raise ModelRetry(str(exc)) from exc

    return call
