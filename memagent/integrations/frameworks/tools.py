"""The memory as plain coroutine functions, for frameworks that make tools of functions.

They are the tools of the MCP server, with the same names, schemas and trust. The agent
fixes the user, never an argument.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from typing import Any, Final

from memagent.agent import Agent
from memagent.async_agent import AsyncAgent
from memagent.core.errors import ConfigError
from memagent.integrations.access import Access
from memagent.integrations.mcp_tools import MemoryTools

Function = Callable[..., Coroutine[Any, Any, Any]]
TOOLS: Final = ("search", "add", "ask", "history", "forget", "undo", "recall", "report")
"""Every tool, by name; those chosen by default come first."""


def memory_functions(
    agent: Agent | AsyncAgent, tools: Sequence[str] = ("search", "add")
) -> list[Function]:
    """Return tools as coroutine functions with hints and docstrings.

    Over an `Agent` they run in any event loop, over an `AsyncAgent` in its own. Raises
    `ConfigError` for an unknown name.
    """
    unknown = sorted(set(tools) - set(TOOLS))
    if unknown:
        raise ConfigError(f"there is no tool {unknown[0]!r}; there are {', '.join(TOOLS)}")
    access = Access(agent)
    return [_function(access, name) for name in tools]


def _function(access: Access, name: str) -> Function:
    def bound(live: AsyncAgent) -> Function:
        return getattr(MemoryTools(lambda: live), name)

    verb = getattr(MemoryTools, name)

    @wraps(verb)
    async def call(*args: Any, **kwargs: Any) -> Any:
        return await access.arun(lambda live: bound(live)(*args, **kwargs))

    signature = inspect.signature(verb, eval_str=True)
    hints = [part for key, part in signature.parameters.items() if key != "self"]
    call.__signature__ = signature.replace(parameters=hints)  # pyright: ignore[reportAttributeAccessIssue]
    call.__annotations__ = {
        **{part.name: part.annotation for part in hints},
        "return": signature.return_annotation,
    }
    return call
