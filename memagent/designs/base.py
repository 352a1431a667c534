"""The slots of a memory design, as protocols, and the design itself, as a value.

A design is a filling of seven slots; a new paper is a new filling, never a new branch.
Slots are plain async callables: they get records and a `SlotContext`, and give records
back. They never write: only the bank commits, after `validate_ops`. Called once a
chunk: extractor, then manager. Called once a session after its last chunk: indexer.
Called once a question: retriever, then answerer. An empty proposal is a legal answer
("nothing worth keeping").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from memagent.core.answers import Answer, Hit, Question
from memagent.core.errors import ModelError, boundary
from memagent.core.exchange import (
    JsonSchema,
    Message,
    ModelRequest,
    ModelResponse,
    Role,
    Sampling,
    StepRef,
    ToolSpec,
    Usage,
)
from memagent.core.ops import MemoryOp, OpLimits, ParseStatus, Rejected
from memagent.core.records import Chunk, Fact, ItemStats, Record, Session
from memagent.core.snapshot import Commit, GraphDelta
from memagent.designs.prompting import prompts_of
from memagent.memory.bank import MemoryBank
from memagent.protocols import ChatModel, Clock

T = TypeVar("T")


class Proposal(Record, Generic[T]):
    """What a slot proposes: values in order, entries that could not be read, and the
    model calls behind them.
    """

    values: tuple[T, ...] = ()
    rejected: tuple[Rejected, ...] = ()
    parse: tuple[ParseStatus, ...] = ()
    """Parse status of each model call; empty for a slot that asked no model."""
    responses: tuple[ModelResponse, ...] = ()


class ToolsWanted(Exception):
    """Not a failure: the answerer's model asks for tools before it answers."""

    def __init__(self, response: ModelResponse) -> None:
        super().__init__(", ".join(call.name for call in response.tool_calls))
        self.response = response


class Related(Record):
    """What memory already holds that bears on one fact: vector and lexical hits, then
    their one-hop graph neighbours.
    """

    fact: Fact
    hits: tuple[Hit, ...] = ()


@dataclass(slots=True)
class Trail:
    """What a slot leaves behind besides its result; the graphs put it into reports and answers."""

    responses: list[ModelResponse] = field(default_factory=list[ModelResponse])
    """Every model call made through the context, in order of completion."""
    notes: list[str] = field(default_factory=list[str])
    """What the reader of the answer should know."""

    @property
    def usage(self) -> Usage:
        """What the calls cost."""
        return sum((response.usage for response in self.responses), Usage())


@dataclass(frozen=True, kw_only=True)
class SlotContext:
    """What a slot may use."""

    model: ChatModel
    bank: MemoryBank
    clock: Clock
    session: Session | None = None
    chunk: Chunk | None = None
    tools: tuple[ToolSpec, ...] = ()
    """Tools the answerer's calls may ask for."""
    transcript: tuple[Message, ...] = ()
    """Tool calls and their results so far, for the answerer."""
    sampling: Mapping[Role, Sampling] = field(default_factory=dict[Role, Sampling])
    """Decoding settings by role; a role that is absent uses the provider's defaults."""
    trail: Trail = field(default_factory=Trail, compare=False)

    async def call(
        self,
        role: Role,
        messages: Sequence[Message],
        *,
        schema: JsonSchema | None = None,
        question_id: str | None = None,
        call: int = 0,
        prompt_digest: str = "",
    ) -> ModelResponse:
        """Ask the model in a role; the step names session, chunk and `call` (0 for the
        first call of a role in a chunk).

        The answerer's calls carry the context's tools and transcript; when the model
        asks for tools, `ToolsWanted` hands them to the answer graph, which runs them
        and calls the answerer again.
        """
        answering = role is Role.ANSWERER
        step = StepRef(
            session_id=self.chunk.session_id
            if self.chunk
            else (self.session.id if self.session else None),
            chunk_index=self.chunk.index if self.chunk else None,
            question_id=question_id,
            call=call,
        )
        with boundary(ModelError, role.value):
            response = await self.model.complete(
                ModelRequest(
                    role=role,
                    step=step,
                    messages=(*messages, *(self.transcript if answering else ())),
                    schema=schema,
                    tools=self.tools if answering else (),
                    sampling=self.sampling.get(role, Sampling()),
                    prompt_digest=prompt_digest,
                )
            )
        self.trail.responses.append(response)
        if answering and self.tools and response.tool_calls:
            raise ToolsWanted(response)
        return response


class Extractor(Protocol):
    """Chunk to facts."""

    async def __call__(self, chunk: Chunk, ctx: SlotContext, /) -> Proposal[Fact]: ...


class Manager(Protocol):
    """Facts, with what memory holds about each, to ops."""

    async def __call__(
        self, related: Sequence[Related], ctx: SlotContext, /
    ) -> Proposal[MemoryOp]: ...


class Indexer(Protocol):
    """A session's commits to what its own calls add to the event graph; called once,
    after the last chunk.
    """

    async def __call__(self, commits: Sequence[Commit], ctx: SlotContext, /) -> GraphDelta: ...


class Retriever(Protocol):
    """Question to hits, best first; [] when nothing fits."""

    async def __call__(self, question: Question, ctx: SlotContext, /) -> list[Hit]: ...


class Answerer(Protocol):
    """Question and hits to an answer.

    Citations to hits that were not given are dropped by the `cite` step.
    """

    async def __call__(
        self, question: Question, hits: Sequence[Hit], ctx: SlotContext, /
    ) -> Answer: ...


class Feedback(Protocol):
    """Hits used for an answer and its reward to new item statistics; () for designs
    that do not learn from use.
    """

    def __call__(
        self, hits: Sequence[Hit], reward: float, stats: Mapping[str, ItemStats], /
    ) -> tuple[tuple[str, ItemStats], ...]: ...


@dataclass(frozen=True, kw_only=True)
class RelateSettings:
    """What the manager is shown for each fact."""

    k: int = 5
    """Items a fact by vector and by keyword, each."""
    min_cosine: float = 0.1
    same_subject: bool = True
    """Only items of the same speaker or subject, when the fact has one."""
    cap: int = 25
    """Items shown a chunk."""
    graph: bool = True
    """Whether one-hop graph neighbours of the hits are shown too."""
    graph_cap: int = 10
    """Neighbours shown a chunk."""


@dataclass(frozen=True, kw_only=True)
class MemoryDesign:
    """A memory design: the fillings of its slots and their limits."""

    name: str
    extractor: Extractor
    manager: Manager
    indexer: Indexer
    retriever: Retriever
    answerer: Answerer
    feedback: Feedback
    limits: OpLimits = OpLimits()
    relate: RelateSettings = RelateSettings()
    chunk_turns: int = 8
    """Most turns a chunk; sessions are cut into balanced chunks of at most this many."""
    needs_model: bool = True
    """Whether any slot asks a model."""

    @property
    def prompt_digests(self) -> dict[str, str]:
        """SHA-256 (64 hex digits) of every prompt file the slots use, by prompt name in
        order; {} when none asks a model.
        """
        slots = (
            self.extractor,
            self.manager,
            self.indexer,
            self.retriever,
            self.answerer,
            self.feedback,
        )
        return dict(sorted((prompt.name, prompt.digest) for prompt in prompts_of(*slots)))
