"""The agent: a design, a model, a memory bank and tools, as one small frozen value.

Serving, evaluation and rollouts hold this same class and call the same methods;
`with_model` and `at` give copies that share what they can. `remember` stores the raw
turns before any model is asked, then runs the ingest graph chunk by chunk and picks up
where an earlier try stopped. `ask` runs the answer graph.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from memagent.agent_parts import AgentParts
from memagent.core import Later
from memagent.core.answers import Answer, AsOf, Question, Reply, ReplyDelta
from memagent.core.exchange import Message, ModelRequest, Role
from memagent.core.recipes import Recipe
from memagent.core.records import Session, Trust
from memagent.core.reports import AgentStatus, IngestReport
from memagent.core.snapshot import Commit
from memagent.core.trials import Trial
from memagent.memory.incoming import Said, When, as_question, as_session, split_session
from memagent.parts import NoModel
from memagent.remembering import OnError, remember_session
from memagent.tracing import (
    Attributes,
    Span,
    agent_span,
    answer_figures,
    messages_content,
    operation_span,
    tracing,
    usage_figures,
    within,
)

if TYPE_CHECKING:
    from memagent import experience
    from memagent.designs.parts import guarded, reading
    from memagent.experience import Learned, Recall, ReportOptions
    from memagent.graphs.chat_run import ChatOptions
    from memagent.graphs.state import AgentContext
    from memagent.llm import wrappers, wrappers as traced_model
    from memagent.memory import threads, timetravel
    from memagent.memory.options import SearchArguments, SearchHits
else:
    guarded = Later("memagent.designs.parts.guarded")
    reading = Later("memagent.designs.parts.reading")
    experience = Later("memagent.experience")
    traced_model = Later("memagent.llm.wrappers")
    wrappers = Later("memagent.llm.wrappers")
    timetravel = Later("memagent.memory.timetravel")
    threads = Later("memagent.memory.threads")


class Graphs:
    """The agent's compiled LangGraph graphs.

    All need an `AgentContext`, which `AsyncAgent.context` gives.
    """

    @property
    def ingest(self) -> Any:
        """Extract -> relate -> decide -> validate -> commit -> index, for one chunk."""
        from memagent.graphs.ingest import INGEST

        return INGEST.compiled

    @property
    def chat(self) -> Any:
        """Load -> recall -> respond (<-> tools) -> deliver -> remember, for one message."""
        from memagent.graphs.chat import CHAT

        return CHAT.compiled

    @property
    def answer(self) -> Any:
        """Retrieve -> answer (<-> tools) -> cite, for one question."""
        from memagent.graphs.answer import ANSWER

        return ANSWER.compiled


class AsyncAgent(AgentParts):
    """An agent with a memory, for coroutines: a small frozen value.

    `async with AsyncAgent(model="openai/gpt-4o-mini", path="memory.db") as agent` opens
    a memory and closes it. Over a `bank` that is open already, the agent owns nothing.
    """

    @property
    def graphs(self) -> Graphs:
        """The LangGraph graphs, for use as subgraphs and for streaming."""
        return Graphs()

    @property
    def context(self) -> AgentContext:
        """The context that the nodes of the graphs need at run time."""
        from memagent.graphs.state import AgentContext

        return AgentContext(
            design=self.design,
            model=traced_model.traced(self.model) if tracing() else self.model,
            bank=self.bank,
            clock=self.clock,
            tools=self.tools,
            sampling=self.sampling,
            capture_content=self.capture_content,
            has_model=not isinstance(self.model, NoModel),
            remember=partial(self.remember, on_error="keep"),
        )

    async def remember(
        self,
        what: Said,
        *,
        at: When | None = None,
        session_id: str | None = None,
        on_error: OnError = "raise",
    ) -> IngestReport:
        """Store turns, then let the design remember them, chunk by chunk.

        `what` is a text, chat messages or a `Session`; `at` defaults to now. A model
        failure ends the run and raises its `ModelError`: the turns are stored, and the
        next call with the same session, or `resume`, goes on with the first chunk that
        is not done. `on_error="keep"` returns the report with the failed chunk instead.
        Raises `InputError` for turns that cannot be stored.
        """
        session = as_session(what, at=at, session_id=session_id, now=self.clock())
        context = self.context
        if not self.keep_unreadable and self.design.needs_model:
            own = guarded.guarded(context.design, pair=reading.backed_by_reader)
            context = replace(context, design=own)
        with operation_span("upsert_memory", capture=self.capture_content) as span:
            report, failure = await remember_session(session, context=context, tracing=self.tracing)
            if span.recording:
                span.put(_report_figures(report, self.design.name))
                if failure is not None:
                    span.fail(type(failure).__name__)
        if failure is not None and on_error == "raise":
            raise failure
        return report

    async def ask(
        self,
        question: Question | str,
        *,
        k: int | None = None,
        as_of: AsOf | When | None = None,
        recipe: Recipe | str | None = None,
        thread: str | None = None,
        min_trust: Trust | str | None = None,
    ) -> Answer:
        """Answer a question from memory, with citations; abstain when nothing fits.

        `k` is the most hits, `recipe` how to search, and `as_of` asks the memory of a
        point in time: an `AsOf`, or a moment or ISO date for what had been said by
        then. `thread` is a conversation whose last turns tell what "there" or "he"
        means. `min_trust` leaves out what is trusted less, such as the words of tools.
        Raises `InputError`, and `ModelError` when the model fails.
        """
        from memagent.graphs.answer import ANSWER

        with agent_span(self.design.name, capture=self.capture_content) as span:
            asked = as_question(question, k=k, as_of=as_of, recipe=recipe, min_trust=min_trust)
            if thread is not None:
                asked = await self._in_thread(asked, thread)
            agent, asked = await self._placed(asked)
            state = await ANSWER.run(
                {"question": asked}, context=agent.context, tracing=self.tracing
            )
            answer: Answer = state["answer"]
            _describe_answer(span, asked, answer)
            return answer

    async def stream(
        self,
        question: Question | str,
        *,
        k: int | None = None,
        as_of: AsOf | When | None = None,
        recipe: Recipe | str | None = None,
    ) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Yield the answer graph's steps as they finish.

        Each is (node, its update of the state); the last is `cite` with the answer.
        """
        from memagent.graphs.answer import ANSWER

        agent, asked = await self._placed(as_question(question, k=k, as_of=as_of, recipe=recipe))
        span = agent_span(self.design.name, capture=self.capture_content)
        steps = ANSWER.stream({"question": asked}, context=agent.context, tracing=self.tracing)
        async with aclosing(within(span, steps)) as stream:
            async for node, values in stream:
                if isinstance(answer := values.get("answer"), Answer):
                    _describe_answer(span, asked, answer)
                yield node, values

    async def _in_thread(self, asked: Question, thread: str) -> Question:
        """Return the question with the words of the thread that it refers to."""
        from memagent.graphs.chat import memory_query

        turns = threads.thread_turns(await self.bank.sync(), thread)
        return asked.model_copy(update={"text": memory_query(asked.text, turns)})

    async def _placed(self, asked: Question) -> tuple[AsyncAgent, Question]:
        """Return the agent at the question's point in time, and the question as asked there."""
        if asked.asked_at is None:
            asked = asked.model_copy(update={"asked_at": self.clock()})
        if asked.recipe is None and self.recipe is not None:
            asked = asked.model_copy(update={"recipe": self.recipe})
        if asked.as_of.now:
            return self, asked
        return replace(self, bank=await timetravel.as_of(self.bank, asked.as_of)), asked

    async def chat(self, message: str, **options: Unpack[ChatOptions]) -> Reply:
        """Reply to a message of a conversation, then remember the exchange.

        The message is stored before the model is asked. The reply's own words are
        stored but never read as new facts. Raises `ModelError` when the model cannot
        reply; one that cannot remember leaves a note in the reply, and `resume()`
        continues.
        """
        from memagent.graphs.chat_run import last_reply

        return await last_reply(self.stream_chat(message, **options))

    async def stream_chat(
        self, message: str, **options: Unpack[ChatOptions]
    ) -> AsyncGenerator[ReplyDelta]:
        """Yield the reply of `chat` as the model speaks; the last piece has the `Reply`."""
        from memagent.graphs.chat_run import chat_context, start_state, stream_chat

        deltas = stream_chat(
            start_state(message, options, thread=self.thread),
            context=chat_context(self.context, options),
            checkpointer=self.checkpointer,
            tracing=self.tracing,
        )
        async with aclosing(deltas):
            async for delta in deltas:
                yield delta

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

    async def status(self) -> AgentStatus:
        """Return what the agent works with, what is stored, and what is unfinished."""
        unfinished = await self.unfinished()
        state = self.bank.state
        request = ModelRequest(role=Role.ANSWERER, messages=())
        name = None if isinstance(self.model, NoModel) else wrappers.name_of(self.model, request)
        return AgentStatus(
            user_id=self.bank.scope.user_id,
            design=self.design.name,
            model=type(self.model).__name__ if name == "" else name,
            memories=sum(item.active for item in state.items.values()),
            sessions=len(state.sessions),
            unfinished=len(unfinished),
        )

    async def resume(self, *, on_error: OnError = "raise") -> list[IngestReport]:
        """Remember what earlier runs left unfinished, and take lessons not taken yet.

        Raises as `remember` does.
        """
        left = await self.unfinished()
        reports = [await self.remember(session, on_error=on_error) for session in left]
        if not self.bank.log.read_only:
            await experience.learn_pending(self.context)
        return reports

    async def recall(
        self,
        task: Question | str,
        *,
        k: int = 10,
        recipe: Recipe | str | None = None,
        trust: Trust = Trust.USER,
    ) -> Recall:
        """Retrieve memories for a task and start a trial, which `report` ends.

        `trust` is that of the task's words: lessons that rest on them have no higher one.

        Raises `InputError`, and `ModelError` when the design's retriever fails.
        """
        _, asked = await self._placed(as_question(task, k=k, as_of=None, recipe=recipe))
        return await experience.recall(asked, self.context, trust=trust)

    async def report(
        self,
        what: Recall | Trial | Answer | str,
        reward: float,
        **options: Unpack[ReportOptions],
    ) -> Learned:
        """Report what came of a trial, given as itself, its id, a recall or an answer.

        The use of the items it credits is counted in one entry with the outcome; then
        the design's learner takes its lesson. The same report again changes nothing.
        Keywords are those of `ReportOptions`. Raises `InputError` for another outcome,
        `MemoryNotFound`, and `ModelError` when the learner fails: the report stands
        then, and `resume()` takes the lesson.
        """
        return await experience.report(what, reward, self.context, **options)

    async def compact(self, trial: Trial) -> Trial:
        """Return a trial under way with its workspace edited by the design, if it wants to.

        Report the trial that comes back, so that the edits are kept with the steps.
        Raises `ModelError` when the design's compactor fails.
        """
        return await experience.compact(trial, self.context)

    async def tidy(self, budget: int | None = None) -> Commit | None:
        """Let the design's keeper prune, merge or rewrite memories; None if nothing was to do.

        `budget` is the most memories afterwards. `memory.undo()` takes it back.
        """
        return await experience.tidy(budget, self.context)

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
