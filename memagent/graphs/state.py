"""The states of the graphs, the dependencies of their nodes, and `Flow`, which runs them.

The graphs are module constants without state of their own: everything a node needs
comes through `NodeRuntime.context` (an `AgentContext`), so one compiled graph serves any
number of agents, and a node in your own graph may hand a context to ours.

A `Flow` is a graph as one table of nodes, which LangGraph and a plain loop both run.
`Flow.compiled` is the public LangGraph graph, made when it is first asked for. `Flow.run`
needs LangGraph only where its runner does more than keep the order: a traced run, a run
inside somebody's graph (whose callbacks and streams see each node), and tools, which
`ToolNode` runs. All other runs are a loop over the same functions in the same order,
with the same state, without importing LangGraph.

The surprise: a plain run still turns LangSmith's tracing off where the process could
trace, because a slot may call a LangChain model, which would post users' text.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import Any, cast

from pydantic_core import CoreSchema, core_schema
from typing_extensions import TypedDict

from memagent.core.answers import Answer, Filter, Hit, Question, Reply
from memagent.core.errors import ConfigError
from memagent.core.exchange import (
    JsonSchema,
    Message,
    Role,
    Sampling,
    ToolCall,
    ToolSpec,
    Usage,
)
from memagent.core.ops import MemoryOp, OpBatch
from memagent.core.records import Chunk, Fact, Session
from memagent.core.snapshot import Commit, GraphDelta, IngestReport
from memagent.designs.base import MemoryDesign, Proposal, Related, SlotContext
from memagent.memory.bank import MemoryBank
from memagent.protocols import ChatModel, Clock
from memagent.tracing import span, step as traced_step

Tool = Callable[..., Any]
"""A plain function with type hints and a docstring, or a LangChain tool."""


class IngestState(TypedDict, total=False):
    """State of one ingest run; `session`, `chunk` and `earlier` go in, the rest comes out."""

    session: Session
    chunk: Chunk
    earlier: tuple[Commit, ...]
    """Commits of the session's earlier chunks; the journal has those that are not given."""
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


class ChatState(TypedDict, total=False):
    """State of one chat run, in plain JSON, so that any checkpointer keeps it.

    `message` goes in, `reply` comes out.
    """

    message: str
    thread: str
    speaker: str
    system: str | None
    """Replaces the system message of the shipped prompt."""
    remember: bool
    """Whether the run remembers the exchange itself; the default."""
    session_id: str
    turn_ids: list[str]
    messages: list[dict[str, Any]]
    """The visible end of the thread, as chat messages."""
    visible: list[str]
    """Ids of the turns in it."""
    hits: list[dict[str, Any]]
    """The memories recalled for the message."""
    transcript: list[dict[str, Any]]
    """Tool calls and their results so far."""
    pending: dict[str, Any] | None
    """The model's request for tools, until they have run."""
    rounds: int
    said: str
    """The model's words so far, ids of memories included."""
    notes: list[str]
    usage: dict[str, Any]
    response_ids: list[str]
    reply: dict[str, Any] | None


@dataclass(frozen=True)
class ChatLimits:
    """Bounds of a chat prompt; tokens are estimated by characters."""

    thread_tokens: int = 3_000
    """Most tokens of the thread's earlier turns."""
    memory_tokens: int = 1_500
    """Most tokens of recalled memories."""
    memories: int = 20
    """Most recalled memories."""
    where: Filter = Filter()
    """Which memories may be recalled."""


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
    client_tools: tuple[ToolSpec, ...] = ()
    """Tools that a chat may ask for and that its caller runs."""
    client_transcript: tuple[Message, ...] = ()
    """The calls of such tools after a chat's message, and their results."""
    client_schema: JsonSchema | None = None
    """The JSON Schema that a chat's reply has to follow."""
    chat: ChatLimits = ChatLimits()
    capture_content: bool = False
    """Whether spans may tell texts."""
    has_model: bool = True
    """Whether a language model is configured."""
    approve: bool | None = None
    """The answer to calls of tools that act; None asks where a checkpointer keeps the run,
    and else refuses them.
    """
    can_ask: bool = False
    """Whether a run may stop to ask for approval."""
    deliver: Callable[[Reply], None] | None = None
    """Told of a chat's reply right before it is journalled."""
    remember: Callable[[Session], Awaitable[IngestReport]] | None = None
    """Remembers a stored session; None leaves it to the caller."""

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

    async def run_tools(self, request: Message, held: Sequence[ToolCall] = ()) -> list[Message]:
        """Run the tools that a message asks for and return their results.

        The result of a tool that fails is the text of its error; a call in `held` is not
        run, and says so.
        """
        if held:
            from memagent.graphs import approval

            allowed = approval.without(request, held)
            results = await self.run_tools(allowed) if allowed.tool_calls else []
            return [*results, *approval.refusals(held)]
        from langchain_core.messages import AIMessage, ToolMessage

        calls = [
            {
                "name": call.name,
                "args": _arguments(call.arguments),
                "id": call.id,
                "type": "tool_call",
            }
            for call in request.tool_calls
        ]
        asked = AIMessage(content=request.content, tool_calls=calls)
        out: dict[str, list[ToolMessage]] = await self.toolbox.ainvoke({"messages": [asked]})
        return [
            Message(
                role="tool", content=str(message.content), tool_call_id=str(message.tool_call_id)
            )
            for message in out["messages"]
        ]

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
            tools=self.tool_specs if tools and self.tools else (),
            transcript=transcript,
            sampling=self.sampling,
        )


@dataclass(frozen=True, slots=True)
class NodeRuntime:
    """The part of LangGraph's `Runtime` that nodes read; there it stands in its place."""

    context: AgentContext
    stream_writer: Callable[[Any], None] = lambda _: None
    """Sends a value to whoever streams the run."""


def _arguments(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text or "{}")
    except ValueError:
        return {"_unparsed": text}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {"_unparsed": text}


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


def _with_agent(node: Node) -> Node:
    """Have a node say what is missing where its graph runs without the context of an agent."""

    @wraps(node)
    async def checked(state: Any, runtime: NodeRuntime) -> Mapping[str, Any]:
        if runtime.context is None:  # pyright: ignore[reportUnnecessaryComparison]
            raise ConfigError(
                "this graph has no agent: invoke it with context=agent.context of an AsyncAgent, "
                "or serve a graph of answer_node(agent), ingest_node(agent) or chat_node(agent) "
                "from memagent.integrations.langgraph_tools, which bring their own"
            )
        return await node(state, runtime)

    return checked


@dataclass(frozen=True, slots=True)
class Step:
    """One node of a flow and what follows it: a node, a choice, or None for the end."""

    node: Node
    then: str | Choice | None = None
    traced: bool = True
    """Whether it has a span of its own, with its name."""


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
        first = next(iter(self.steps))
        for name, step in self.steps.items():
            node = traced_step(step.node) if step.traced else step.node
            graph.add_node(name, _with_agent(node) if name == first else node)
        graph.add_edge(START, first)
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
            # Its values streamed, the last kept: `ainvoke` without a second stream for interrupts.
            last: Mapping[str, Any] = {}
            with langsmith_tracing(enabled=tracing):
                steps = self.compiled.astream(state, context=context, stream_mode="values")
                async for values in steps:
                    last = values
            return dict(last)
        runtime, reached = NodeRuntime(context), dict(state)
        name: str | None = next(iter(self.steps))
        with langsmith_tracing(enabled=False):
            while name is not None:
                step = self.steps[name]
                attributes = {"memagent.step": name}
                with span(name, attributes=attributes) if step.traced else nullcontext():
                    reached.update(await step.node(reached, runtime))
                name = step.then(reached, runtime) if callable(step.then) else step.then
        return reached

    async def stream(
        self, state: Mapping[str, Any], *, context: AgentContext, tracing: bool
    ) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Run the graph and yield (node, its update of the state) as each node finishes."""
        with langsmith_tracing(enabled=tracing):
            steps = self.compiled.astream(state, context=context, stream_mode="updates")
            async for update in steps:
                for node, values in update.items():
                    yield str(node), dict(values or {})


def langsmith_tracing(*, enabled: bool) -> AbstractContextManager[object]:
    """Turn LangSmith's tracing on, or off where the process could trace at all.

    A process could trace when the SDK is loaded or one of its variables is set.
    """
    could = "langsmith" in sys.modules or any(map(os.environ.__contains__, _TRACING_VARIABLES))
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
