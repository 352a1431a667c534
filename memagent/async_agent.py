"""The agent: a design, a model, a memory bank and tools, as one small frozen value.

Serving, evaluation and rollouts hold this same class and call the same methods;
`with_model` and `at` give copies that share what they can. `remember` stores the raw
turns before any model is asked, then runs the ingest graph chunk by chunk and picks up
where an earlier try stopped. `ask` runs the answer graph.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Unpack

from memagent.core.answers import Answer, AsOf, Question
from memagent.core.errors import ModelError
from memagent.core.exchange import Message, Role, Sampling, Usage
from memagent.core.recipes import BALANCED, Recipe
from memagent.core.records import Chunk, Session, Trust, Turn, content_id
from memagent.core.reports import ChunkReport, IngestReport
from memagent.core.snapshot import Commit, MemorySnapshot
from memagent.designs.base import MemoryDesign, Proposal
from memagent.llm.traced_model import traced
from memagent.memory import timetravel
from memagent.memory.bank import MemoryBank, system_clock
from memagent.memory.chunking import split_session
from memagent.memory.facade import Memory
from memagent.memory.hits import SearchHits
from memagent.memory.incoming import as_question
from memagent.memory.options import SearchArguments
from memagent.protocols import ChatModel, Clock, Embedder
from memagent.tracing import (
    Attributes,
    Span,
    answer_figures,
    messages_content,
    operation_span,
    usage_figures,
    within,
)

if TYPE_CHECKING:
    from memagent.events.networkx_view import FrozenEventGraph
    from memagent.graphs.state import AgentContext, Tool

_AGENT_NAME: Final = "memagent"


class Graphs:
    """The agent's two compiled LangGraph graphs.

    Both need an `AgentContext`, which `AsyncAgent.context` gives.
    """

    @property
    def ingest(self) -> Any:
        """Extract -> relate -> decide -> validate -> commit -> index, for one chunk."""
        from memagent.graphs.ingest import INGEST

        return INGEST

    @property
    def answer(self) -> Any:
        """Retrieve -> answer (<-> tools) -> cite, for one question."""
        from memagent.graphs.answer import ANSWER

        return ANSWER


@dataclass(frozen=True, kw_only=True)
class AsyncAgent:
    """An agent with a memory. Open one with `memagent.build.open_agent`."""

    design: MemoryDesign
    model: ChatModel
    bank: MemoryBank
    clock: Clock = system_clock
    tools: tuple[Tool, ...] = ()
    sampling: Mapping[Role, Sampling] = field(default_factory=dict[Role, Sampling])
    tracing: bool = False
    """Whether LangSmith may trace the graphs."""
    capture_content: bool = False
    """Whether OpenTelemetry spans may tell texts: queries, memories, prompts, answers."""
    recipe: Recipe | None = None
    """The recipe of questions and searches that name none.

    None leaves it to the design, and to `balanced` for `search`.
    """

    @property
    def memory(self) -> Memory:
        """Direct verbs on the memory."""
        return Memory(
            self.bank, recipe=self.recipe or BALANCED, capture_content=self.capture_content
        )

    @property
    def embedder(self) -> Embedder:
        """The bank's embedder."""
        return self.bank.embedder

    @property
    def graphs(self) -> Graphs:
        """The LangGraph graphs, for use as subgraphs and for streaming."""
        return Graphs()

    @property
    def event_graph(self) -> FrozenEventGraph:
        """The event graph, as last read or written, as a frozen networkx graph; O(1)."""
        from memagent.events.networkx_view import as_networkx

        return as_networkx(self.bank.state.graph)

    @property
    def context(self) -> AgentContext:
        """The context that the nodes of the graphs need at run time."""
        from memagent.graphs.state import AgentContext

        return AgentContext(
            design=self.design,
            model=traced(self.model),
            bank=self.bank,
            clock=self.clock,
            tools=self.tools,
            sampling=self.sampling,
        )

    def with_model(self, model: ChatModel) -> AsyncAgent:
        """Return the same agent with another model."""
        return replace(self, model=model)

    def at(self, snapshot: MemorySnapshot) -> AsyncAgent:
        """Return the same agent on a private memory that starts from a snapshot."""
        return replace(self, bank=self.bank.at(snapshot))

    def snapshot(self) -> MemorySnapshot:
        """Return the memory as last read or written; O(1)."""
        return self.bank.snapshot()

    async def remember(self, session: Session) -> IngestReport:
        """Store a session's turns, then let the design remember them, chunk by chunk.

        A model failure ends the run with the failure in the report: the turns are
        stored, and the next call with the same session goes on with the first chunk
        that is not done. Raises `InputError` for a session that clashes with a stored
        one.
        """
        with operation_span("upsert_memory", capture=self.capture_content) as span:
            report = await self._remember(session)
            if span.recording:
                span.put(_report_figures(report, self.design.name))
                if report.failed_chunks:
                    span.fail((report.failed_chunks[0].failure or "").partition(":")[0])
            return report

    async def _remember(self, session: Session) -> IngestReport:
        fresh = await self.bank.store_session(session)
        chunks = split_session(session, chunk_turns=self.design.chunk_turns)
        done = self.bank.state.done.get(session.id, frozenset())
        reports: list[ChunkReport] = []
        for chunk in chunks:
            if chunk.index in done:
                continue
            report = await self._remember_chunk(session, chunk)
            reports.append(report)
            if report.failure is not None:
                break
        return IngestReport(
            session_id=session.id,
            stored_turns=len(session.turns) if fresh else 0,
            skipped=not fresh and not reports,
            chunks=tuple(reports),
            usage=sum((report.usage for report in reports), Usage()),
        )

    async def _remember_chunk(self, session: Session, chunk: Chunk) -> ChunkReport:
        from memagent.graphs.state import run_graph

        try:
            state = await run_graph(
                self.graphs.ingest,
                {"session": session, "chunk": chunk},
                context=self.context,
                tracing=self.tracing,
            )
        except ModelError as failure:
            return ChunkReport(
                chunk_id=chunk.id,
                session_id=session.id,
                index=chunk.index,
                failure=f"{type(failure).__name__}: {failure}",
            )
        return _chunk_report(chunk, state)

    async def ask(self, question: Question | str, *, as_of: AsOf | None = None) -> Answer:
        """Answer a question from memory, with citations; abstain when nothing fits.

        `as_of` asks the memory of a point in time. Raises `ModelError` when the model
        fails.
        """
        from memagent.graphs.state import run_graph

        with self._answer_span() as span:
            asked = as_question(question)
            if as_of is not None:
                asked = asked.model_copy(update={"as_of": as_of})
            agent, asked = await self._placed(asked)
            graph = agent.graphs.answer
            state = await run_graph(
                graph, {"question": asked}, context=agent.context, tracing=self.tracing
            )
            answer: Answer = state["answer"]
            _describe_answer(span, asked, answer)
            return answer

    async def stream(self, question: Question | str) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Yield the answer graph's steps as they finish.

        Each is (node, its update of the state); the last is `cite` with the answer.
        """
        from memagent.graphs.state import stream_graph

        agent, asked = await self._placed(as_question(question))
        span = self._answer_span()
        steps = stream_graph(
            agent.graphs.answer, {"question": asked}, context=agent.context, tracing=self.tracing
        )
        async with aclosing(within(span, steps)) as stream:
            async for node, values in stream:
                if isinstance(answer := values.get("answer"), Answer):
                    _describe_answer(span, asked, answer)
                yield node, values

    def _answer_span(self) -> Span:
        span = operation_span("invoke_agent", capture=self.capture_content)
        if span.recording:
            span.rename(f"invoke_agent {_AGENT_NAME}")
            span.put({"gen_ai.agent.name": _AGENT_NAME, "memagent.design": self.design.name})
        return span

    async def _placed(self, asked: Question) -> tuple[AsyncAgent, Question]:
        """Return the agent at the question's point in time, and the question as asked there."""
        if asked.asked_at is None:
            asked = asked.model_copy(update={"asked_at": self.clock()})
        if asked.recipe is None and self.recipe is not None:
            asked = asked.model_copy(update={"recipe": self.recipe})
        if asked.as_of.now:
            return self, asked
        return replace(self, bank=await timetravel.as_of(self.bank, asked.as_of)), asked

    async def chat(self, text: str, *, speaker: str = "user") -> Answer:
        """Answer from memory, then remember the exchange.

        The answer's own words are stored but never read as new facts.
        """
        answer = await self.ask(text)
        await self.remember(exchange_session(text, answer, at=self.clock(), speaker=speaker))
        return answer

    async def unfinished(self) -> list[Session]:
        """Return the stored sessions with chunks that were never remembered, oldest first.

        A crash or a model failure leaves such sessions.
        """
        state = await self.bank.sync()
        return [
            session
            for session in await self.memory.sessions()
            if len(state.done.get(session.id, ()))
            < len(split_session(session, chunk_turns=self.design.chunk_turns))
        ]

    async def resume(self) -> list[IngestReport]:
        """Remember what earlier runs left unfinished."""
        return [await self.remember(session) for session in await self.unfinished()]

    async def search(self, text: str, **options: Unpack[SearchArguments]) -> SearchHits:
        """Return at most k hits for a text, best first, as `Memory.search` does."""
        return await self.memory.search(text, **options)


def _report_figures(report: IngestReport, design: str) -> Attributes:
    counts = report.op_counts
    return {
        **usage_figures(report.usage),
        "memagent.design": design,
        "memagent.turns": report.stored_turns,
        "memagent.chunks": len(report.chunks),
        "memagent.ops.rejected": counts.pop("REJECTED"),
        "gen_ai.memory.record.count": sum(counts.values()) - counts["NOOP"],
    }


def _describe_answer(span: Span, question: Question, answer: Answer) -> None:
    if span.recording:
        span.put(answer_figures(answer))
        asked = Message(role="user", content=question.text)
        replied = Message(role="assistant", content=answer.text)
        span.content(
            lambda: {
                **messages_content("gen_ai.input.messages", [asked]),
                **messages_content("gen_ai.output.messages", [replied]),
            }
        )


def exchange_session(text: str, answer: Answer, *, at: datetime, speaker: str = "user") -> Session:
    """Return a question and its answer as a session of two turns, the second one recalled."""
    session_id = content_id("ses", at.isoformat(), speaker, text)
    said = Turn(id=f"{session_id}:1", speaker=speaker, text=text)
    replied = Turn(
        id=f"{session_id}:2",
        speaker="assistant",
        text=answer.text,
        trust=Trust.ASSISTANT,
        recalled=True,
    )
    return Session(id=session_id, at=at, turns=(said, replied))


def _chunk_report(chunk: Chunk, state: Mapping[str, Any]) -> ChunkReport:
    commit: Commit = state["commit"]
    parts: Sequence[Proposal[Any]] = [
        part for name in ("facts", "proposal") if (part := state.get(name)) is not None
    ]
    responses = tuple(response for part in parts for response in part.responses)
    facts: Proposal[Any] | None = state.get("facts")
    spent: Usage = state.get("usage", Usage())
    return ChunkReport(
        chunk_id=chunk.id,
        session_id=chunk.session_id,
        index=chunk.index,
        facts=facts.values if facts is not None else (),
        shown_ids=tuple(
            dict.fromkeys(hit.id for related in state.get("related", ()) for hit in related.hits)
        ),
        applied=commit.ops,
        rejected=commit.rejected,
        parse=tuple(status for part in parts for status in part.parse),
        responses=responses,
        commit_id=commit.id,
        usage=sum((response.usage for response in responses), spent),
    )
