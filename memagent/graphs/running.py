"""Running a compiled graph without telling anyone: LangSmith tracing is off unless the
agent was told otherwise.

A set `LANGSMITH_TRACING` variable would otherwise post users' text to a server.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from memagent.graphs.state import AgentContext


async def run_graph(
    graph: Any, state: dict[str, Any], *, context: AgentContext, tracing: bool
) -> dict[str, Any]:
    """The graph's final state.

    Streaming its values and keeping the last is `ainvoke` without a second stream for
    interrupts.
    """
    from langsmith import tracing_context  # pyright: ignore[reportUnknownVariableType]

    last: dict[str, Any] = {}
    with tracing_context(enabled=tracing):
        async for values in graph.astream(state, context=context, stream_mode="values"):
            last = values
    return dict(last)


async def stream_graph(
    graph: Any, state: dict[str, Any], *, context: AgentContext, tracing: bool
) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    """(node, its update of the state) as each node finishes."""
    from langsmith import tracing_context  # pyright: ignore[reportUnknownVariableType]

    with tracing_context(enabled=tracing):
        async for update in graph.astream(state, context=context, stream_mode="updates"):
            for node, values in update.items():
                yield str(node), dict(values or {})
