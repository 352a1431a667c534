"""What flows through the graphs, and the dependencies their nodes get at run time.

The compiled graphs are module constants without state of their own: everything a node
needs comes through `Runtime[AgentContext]`, so one compiled graph serves any number of
agents, and a node in your own graph may hand a context to ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypedDict

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

    @cached_property
    def toolbox(self) -> Any:
        """LangGraph's `ToolNode` over the tools."""
        from langgraph.prebuilt import ToolNode

        return ToolNode(list(self.tools), handle_tool_errors=True)

    @cached_property
    def tool_specs(self) -> tuple[ToolSpec, ...]:
        """The tools as the model is told of them."""
        if not self.tools:
            return ()
        return tuple(
            ToolSpec(
                name=tool.name,
                description=tool.description or "",
                parameters=tool.get_input_jsonschema(),
            )
            for tool in self.toolbox.tools_by_name.values()
        )

    def slot(
        self,
        *,
        session: Session | None = None,
        chunk: Chunk | None = None,
        tools: bool = False,
        transcript: tuple[Message, ...] = (),
    ) -> SlotContext:
        """The context a slot of the design gets."""
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
