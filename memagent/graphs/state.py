"""The states of the graphs, the dependencies of their nodes, and a run of a graph.

The compiled graphs are module constants without state of their own: everything a node
needs comes through `Runtime[AgentContext]`, so one compiled graph serves any number of
agents, and a node in your own graph may hand a context to ours. A run turns LangSmith
tracing off unless the agent asks for it: a set `LANGSMITH_TRACING` variable would
otherwise post users' text to a server.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pydantic_core import CoreSchema, core_schema
from typing_extensions import TypedDict

from memagent.core.answers import Answer, Hit, Question
from memagent.core.exchange import Message, Role, Sampling, ToolSpec, Usage
from memagent.core.ops import MemoryOp, OpBatch
from memagent.core.records import Chunk, Fact, Session
from memagent.core.snapshot import Commit, GraphDelta
from memagent.designs.base import MemoryDesign, Proposal, Related, SlotContext
from memagent.memory.bank import MemoryBank
from memagent.protocols import ChatModel, Clock

Tool = Callable[..., Any]
"""A plain function with type hints and a docstring, or a LangChain tool."""


class IngestState(TypedDict, total=False):
    """State of one ingest run; `session` and `chunk` go in, everything else comes out."""

    session: Session
    chunk: Chunk
    facts: Proposal[Fact]
    related: tuple[Related, ...]
    proposal: Proposal[MemoryOp]
    batch: OpBatch
    commit: Commit
    graph: GraphDelta
    usage: Usage
    """What the indexer's calls cost."""


class AnswerState(TypedDict, total=False):
    """State of one answer run; `question` goes in, `answer` comes out."""

    question: Question
    hits: list[Hit]
    transcript: tuple[Message, ...]
    pending: Message | None
    """The model's request for tools, until they have run."""
    rounds: int
    usage: Usage
    """What the calls so far cost, the answerer's last one left out."""
    notes: tuple[str, ...]
    """What the retriever has to tell."""
    response_ids: tuple[str, ...]
    """The retriever's model calls in order."""
    answer: Answer


@dataclass(frozen=True)
class AgentContext:
    """Dependencies of the nodes."""

    design: MemoryDesign
    model: ChatModel
    bank: MemoryBank
    clock: Clock
    tools: tuple[Tool, ...] = ()
    sampling: Mapping[Role, Sampling] = field(default_factory=dict[Role, Sampling])
    tool_rounds: int = 4
    """Most rounds of tool calls before an answer is demanded."""

    @classmethod
    def __get_pydantic_core_schema__(cls, *_: object) -> CoreSchema:
        """Accept instances only: LangGraph's tools ask for a schema of every context."""
        return core_schema.is_instance_schema(cls)

    @classmethod
    def __get_pydantic_json_schema__(cls, *_: object) -> dict[str, Any]:
        """Describe the context as an object that no JSON can make."""
        return {
            "title": cls.__name__,
            "type": "object",
            "properties": {},
            "description": "Made in the process by AsyncAgent.context; answer_node(agent) and "
            "ingest_node(agent) bring their own.",
        }

    @cached_property
    def toolbox(self) -> Any:
        """LangGraph's `ToolNode` over the tools."""
        from langgraph.prebuilt import ToolNode

        return ToolNode(list(self.tools), handle_tool_errors=True)

    @cached_property
    def tool_specs(self) -> tuple[ToolSpec, ...]:
        """The tools as the model sees them."""
        tools = self.toolbox.tools_by_name.values() if self.tools else ()
        return tuple(
            ToolSpec(
                name=tool.name,
                description=tool.description or "",
                parameters=tool.get_input_jsonschema(),
            )
            for tool in tools
        )

    def slot(
        self,
        *,
        session: Session | None = None,
        chunk: Chunk | None = None,
        tools: bool = False,
        transcript: tuple[Message, ...] = (),
    ) -> SlotContext:
        """Return the context that a slot of the design gets."""
        return SlotContext(
            model=self.model,
            bank=self.bank,
            clock=self.clock,
            session=session,
            chunk=chunk,
            tools=self.tool_specs if tools else (),
            transcript=transcript,
            sampling=self.sampling,
        )


async def run_graph(
    graph: Any, state: dict[str, Any], *, context: AgentContext, tracing: bool
) -> dict[str, Any]:
    """Run a graph and return its final state.

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
    """Run a graph and yield (node, its update of the state) as each node finishes."""
    from langsmith import tracing_context  # pyright: ignore[reportUnknownVariableType]

    with tracing_context(enabled=tracing):
        async for update in graph.astream(state, context=context, stream_mode="updates"):
            for node, values in update.items():
                yield str(node), dict(values or {})
