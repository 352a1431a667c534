"""A graph as one table of nodes, which LangGraph and a plain loop both run.

`Flow.compiled` is the public LangGraph graph, made when it is first asked for. `run`
needs LangGraph only where its runner does more than keep the order: a traced run, a run
inside somebody's graph (whose callbacks and streams see each node), and tools, which
`ToolNode` runs. All other runs are a loop over the same functions in the same order,
with the same state, without importing LangGraph.

The surprise: a plain run still turns LangSmith's tracing off where the process could
trace, because a slot may call a LangChain model, which would post users' text.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from memagent.graphs.state import AgentContext, NodeRuntime

Node = Callable[[Any, NodeRuntime], Awaitable[Mapping[str, Any]]]
"""Takes the state and the runtime, and returns its update of the state."""
Choice = Callable[[Any, NodeRuntime], str]
"""Names the next node by the state."""
_TRACING_VARIABLES = (
    "LANGSMITH_TRACING",
    "LANGSMITH_TRACING_V2",
    "LANGCHAIN_TRACING",
    "LANGCHAIN_TRACING_V2",
)


@dataclass(frozen=True, slots=True)
class Step:
    """One node of a flow and what follows it: a node, a choice, or None for the end."""

    node: Node
    then: str | Choice | None = None


@dataclass(frozen=True)
class Flow:
    """A graph of nodes over one kind of state; the first step is where it starts."""

    name: str
    state: type
    steps: Mapping[str, Step]

    @cached_property
    def compiled(self) -> Any:
        """The compiled LangGraph graph, with `AgentContext` as its context.

        Inside a graph of yours, texts of the memory stay out of that graph's checkpoints.
        """
        return self.compile(checkpointer=False)

    def compile(self, *, checkpointer: Any) -> Any:
        """Compile the LangGraph graph with a checkpointer; False for none, ever."""
        from langgraph.graph import (  # pyright: ignore[reportMissingTypeStubs]
            END,
            START,
            StateGraph,
        )

        make: Any = StateGraph
        graph: Any = make(self.state, context_schema=AgentContext)
        for name, step in self.steps.items():
            graph.add_node(name, step.node)
        graph.add_edge(START, next(iter(self.steps)))
        for name, step in self.steps.items():
            if callable(step.then):
                graph.add_conditional_edges(name, step.then)
            else:
                graph.add_edge(name, step.then or END)
        return graph.compile(name=self.name, checkpointer=checkpointer)

    async def run(
        self, state: Mapping[str, Any], *, context: AgentContext, tracing: bool
    ) -> dict[str, Any]:
        """Run the nodes in order and return the final state."""
        if tracing or context.tools or _inside_a_graph():
            return await self._run_compiled(state, context=context, tracing=tracing)
        values, runtime = dict(state), NodeRuntime(context)
        name: str | None = next(iter(self.steps))
        with langsmith_tracing(enabled=False):
            while name is not None:
                step = self.steps[name]
                values.update(await step.node(values, runtime))
                name = step.then(values, runtime) if callable(step.then) else step.then
        return values

    async def stream(
        self, state: Mapping[str, Any], *, context: AgentContext, tracing: bool
    ) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Run the graph and yield (node, its update of the state) as each node finishes."""
        with langsmith_tracing(enabled=tracing):
            steps = self.compiled.astream(state, context=context, stream_mode="updates")
            async for update in steps:
                for node, values in update.items():
                    yield str(node), dict(values or {})

    async def _run_compiled(
        self, state: Mapping[str, Any], *, context: AgentContext, tracing: bool
    ) -> dict[str, Any]:
        """Run the compiled graph and return its final state.

        Streaming its values and keeping the last is `ainvoke` without a second stream for
        interrupts.
        """
        last: dict[str, Any] = {}
        with langsmith_tracing(enabled=tracing):
            async for values in self.compiled.astream(state, context=context, stream_mode="values"):
                last = values
        return dict(last)


def langsmith_tracing(*, enabled: bool) -> AbstractContextManager[object]:
    """Turn LangSmith's tracing on, or off where the process could trace at all.

    A process could trace when the SDK is loaded or one of its variables is set.
    """
    could = "langsmith" in sys.modules or any(name in os.environ for name in _TRACING_VARIABLES)
    if not enabled and not could:
        return nullcontext()
    from langsmith import tracing_context  # pyright: ignore[reportUnknownVariableType]

    return tracing_context(enabled=enabled)


def _inside_a_graph() -> bool:
    """Tell whether this code runs inside a LangChain runnable, such as a node of a graph."""
    config = getattr(
        sys.modules.get("langchain_core.runnables.config"), "var_child_runnable_config", None
    )
    return config is not None and config.get() is not None
