"""The agent: a design, a model, a memory bank and tools, as one small frozen value.

Serving, evaluation and rollouts hold this same class and call the same methods;
`with_model` and `at` give copies that share what they can and own nothing. An agent over
a `bank` owns nothing either; without one it opens the memory at `path` and closes it.
`remember` stores the raw turns before any model is asked, then runs the ingest graph
chunk by chunk and picks up where an earlier try stopped. `ask` runs the answer graph.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypedDict, Unpack, cast, get_args
from uuid import uuid4

from memagent.config import AgentSettings
from memagent.core import Later
from memagent.core.answers import Answer, AsOf, Question, Reply, ReplyDelta
from memagent.core.errors import (
    ConfigError,
    check_choice,
    check_keywords,
    check_type,
    input_errors,
)
from memagent.core.exchange import Message, ModelRequest, Role, Sampling
from memagent.core.recipes import BALANCED, Recipe
from memagent.core.records import Scope, Session, Trust
from memagent.core.snapshot import AgentStatus, Commit, IngestReport, MemorySnapshot, OnError
from memagent.core.trials import Trial
from memagent.designs.base import MemoryDesign
from memagent.memory.bank import MemoryBank, system_clock
from memagent.memory.incoming import Said, When, as_question, as_session, split_session
from memagent.opening.open_store import NoModel, OpenStore, build_design, build_model
from memagent.protocols import ChatModel, Clock, Embedder
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
    from memagent.events.graph_files import FrozenEventGraph
    from memagent.experience import Learned, Recall, ReportOptions
    from memagent.graphs.chat_run import ChatOptions
    from memagent.graphs.state import AgentContext, Tool
    from memagent.llm import wrappers
    from memagent.memory import facade, timetravel
    from memagent.memory.options import SearchArguments, SearchHits
else:
    experience = Later("memagent.experience")
    wrappers = Later("memagent.llm.wrappers")
    timetravel = Later("memagent.memory.timetravel")


class AgentOptions(TypedDict, total=False):
    """The keywords of an agent; None, where allowed, leaves a choice to the settings."""

    design: MemoryDesign | str | None
    embedder: Embedder | str | None
    tools: Sequence[Tool]
    base_url: str | None
    """The address of the model's server."""
    api_key: str | None
    """Its key; without one litellm reads the provider's own environment variable."""
    read_only: bool
    settings: AgentSettings | None
    checkpointer: Any
    """One of LangGraph's; it keeps runs of `chat` that are cut off."""
    thread: str | None
    """The conversation of messages that name none; a new one for each agent unless given."""


class AsyncOptions(AgentOptions, total=False):
    """The keywords of an `AsyncAgent`: those of every agent, and what only coroutines take."""

    bank: MemoryBank | None
    """A memory that is open already, in the place of `path` and `embedder`."""
    clock: Clock
    sampling: Mapping[Role, Sampling] | None
    tracing: bool | None
    """Whether LangSmith may trace the graphs."""
    capture_content: bool | None
    """Whether OpenTelemetry spans may tell texts: queries, memories, prompts, answers."""
    recipe: Recipe | None
    """The recipe of questions and searches that name none.

    None leaves it to the design, and to `balanced` for `search`.
    """
    keep_unreadable: bool
    """Whether an unreadable reply counts as one without facts or ops, not as a failure.

    For rollouts, where what a model writes is data.
    """


_OPENING: Final = ("model", "user_id", "path")
# Whose memory it is where nobody is named.
_ANYBODY: Final = "default"


def check_options(options: AgentOptions, kind: type[Any] = AgentOptions) -> None:
    """Raise `TypeError` for a keyword that no agent has, `ConfigError` for other settings."""
    check_keywords("an agent", options, (*_OPENING, *kind.__annotations__))
    check_type("thread", options.get("thread"), str | None, "a text")
    check_type("tools", options.get("tools", ()), Iterable, "a list of functions")
    if not isinstance(cast("object", options.get("settings")), AgentSettings | None):
        raise ConfigError(
            "settings must be AgentSettings, such as memagent.config.load_settings('memagent.toml')"
        )


_default_settings = cache(AgentSettings)


def new_thread() -> str:
    """Return the id of a conversation that belongs to one agent of this process."""
    return f"chat-{uuid4().hex[:12]}"


def scope_of(user_id: str) -> Scope:
    """Return the scope of a user. Raises `InputError` for a text that is no user id."""
    with input_errors(f"{str(user_id)[:40]!r} cannot be a user id"):
        return Scope(user_id=user_id)


def _opened(
    model: ChatModel | str | None, user_id: str, path: str | Path | None, options: AsyncOptions
) -> dict[str, Any]:
    """Return the parts of an agent, with the memory opened unless one is given."""
    check_options(options, AsyncOptions)
    settings, embedder = options.get("settings"), options.get("embedder")
    defaults = settings or _default_settings()
    chat = build_model(
        model, defaults, base_url=options.get("base_url"), api_key=options.get("api_key")
    )
    design = build_design(options.get("design") or defaults.design, has_model=chat is not None)
    bank, clock = options.get("bank"), options.get("clock", system_clock)
    store: OpenStore | None = None
    if bank is None:
        scope = scope_of(user_id)
        store = OpenStore.open(
            settings,
            path=path,
            embedder=embedder,
            read_only=options.get("read_only", False),
            clock=clock,
        )
        bank = store.bank(scope)
    elif path is not None or embedder is not None or options.get("read_only") is not None:
        raise ConfigError("a `bank` has its own path, embedder and mode; give one or the other")
    elif user_id not in (_ANYBODY, bank.scope.user_id):
        raise ConfigError(f"the `bank` is that of {bank.scope.user_id!r}, not of {user_id!r}")
    names = ("sampling", "tracing", "capture_content", "recipe")
    given = {name: options.get(name) for name in names if options.get(name) is not None}
    return {
        **{name: getattr(defaults, name) for name in names},
        **given,
        "design": design,
        "model": chat or NoModel(),
        "bank": bank,
        "clock": clock,
        "tools": tuple(options.get("tools", ())),
        "keep_unreadable": options.get("keep_unreadable", False),
        "checkpointer": options.get("checkpointer"),
        "thread": options.get("thread") or new_thread(),
        "store": store,
    }


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


@dataclass(frozen=True, init=False)
class AgentParts:
    """A design, a model, a memory bank and tools, and the store behind the bank if it is own."""

    design: MemoryDesign
    model: ChatModel
    bank: MemoryBank
    clock: Clock
    tools: tuple[Tool, ...]
    sampling: Mapping[Role, Sampling]
    tracing: bool
    capture_content: bool
    recipe: Recipe | None
    keep_unreadable: bool
    checkpointer: Any
    thread: str
    store: OpenStore | None = field(init=False, repr=False, compare=False)
    """The store that this agent opened and closes."""

    def __init__(
        self,
        model: ChatModel | str | None = None,
        user_id: str = _ANYBODY,
        path: str | Path | None = None,
        **options: Unpack[AsyncOptions],
    ) -> None:
        """Open the memory of a user at `path`, or take one that is open as `bank`.

        Further keywords are those of `AsyncOptions`; what is None comes from the
        settings. Raises `ConfigError`, `InputError`, `StoreLocked`, `StoreError`.
        """
        vars(self).update(_opened(model, user_id, path, options))

    async def aclose(self) -> None:
        """Release the memory that this agent opened; harmless when repeated."""
        if self.store is not None:
            self.store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    @property
    def memory(self) -> facade.Memory:
        """Direct verbs on the memory."""
        from memagent.memory.facade import Memory

        return Memory(
            self.bank, recipe=self.recipe or BALANCED, capture_content=self.capture_content
        )

    @property
    def embedder(self) -> Embedder:
        """The bank's embedder."""
        return self.bank.embedder

    @property
    def event_graph(self) -> FrozenEventGraph:
        """The event graph, as last read or written, as a frozen networkx graph; O(1)."""
        from memagent.events.graph_files import FrozenEventGraph

        return FrozenEventGraph(self.bank.state.graph)

    def with_model(self, model: ChatModel) -> Self:
        """Return the same agent with another model."""
        return replace(self, model=model)

    def at(self, snapshot: MemorySnapshot) -> Self:
        """Return the same agent on a private memory that starts from a snapshot."""
        return replace(self, bank=self.bank.at(snapshot))

    def snapshot(self) -> MemorySnapshot:
        """Return the memory as last read or written; O(1)."""
        return self.bank.snapshot()

    @property
    def graphs(self) -> Graphs:
        """The LangGraph graphs, for use as subgraphs and for streaming."""
        return Graphs()


class AsyncAgent(AgentParts):
    """An agent with a memory, for coroutines: a small frozen value.

    `async with AsyncAgent(model="openai/gpt-4o-mini", path="memory.db") as agent` opens
    a memory and closes it. Over a `bank` that is open already, the agent owns nothing.
    """

    @property
    def context(self) -> AgentContext:
        """The context that the nodes of the graphs need at run time."""
        from memagent.graphs.state import AgentContext

        return AgentContext(
            design=self.design,
            model=wrappers.traced(self.model) if tracing() else self.model,
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
        next call with the same session, or `resume`, goes on with the first chunk not
        done. `on_error="keep"` returns the report with that chunk. Raises `InputError`.
        """
        from memagent.graphs.ingest import remember_session

        check_choice("on_error", on_error, get_args(OnError))
        session = as_session(what, at=at, session_id=session_id, now=self.clock())
        with operation_span("upsert_memory", capture=self.capture_content) as span:
            report, failure = await remember_session(
                session, self.context, tracing=self.tracing, guarded=not self.keep_unreadable
            )
            if span.recording:
                span.put(_report_figures(report, self.design.name))
                if failure is not None:
                    span.fail(type(failure).__name__)
        if failure is not None and on_error != "keep":
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
                asked = await _in_thread(self.bank, asked, thread)
            agent, asked = await _placed(self, asked)
            start = {"question": asked}
            state = await ANSWER.run(start, context=agent.context, tracing=self.tracing)
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

        agent, asked = await _placed(self, as_question(question, k=k, as_of=as_of, recipe=recipe))
        span = agent_span(self.design.name, capture=self.capture_content)
        steps = ANSWER.stream({"question": asked}, context=agent.context, tracing=self.tracing)
        async with aclosing(within(span, steps)) as stream:
            async for node, values in stream:
                if isinstance(answer := values.get("answer"), Answer):
                    _describe_answer(span, asked, answer)
                yield node, values

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
        """Return the sessions that a crash or a failure left half remembered, oldest first."""
        chunks = partial(split_session, chunk_turns=self.design.chunk_turns)
        sessions = await self.memory.sessions()
        done = self.bank.state.done
        return [each for each in sessions if len(done.get(each.id, ())) < len(chunks(each))]

    async def status(self) -> AgentStatus:
        """Return what the agent works with, what is stored, and what is unfinished."""
        unfinished = await self.unfinished()
        state, name = self.bank.state, None
        if not isinstance(self.model, NoModel):
            name = wrappers.name_of(self.model, ModelRequest(role=Role.ANSWERER, messages=()))
        return AgentStatus(
            user_id=self.bank.scope.user_id,
            design=self.design.name,
            model=type(self.model).__name__ if name == "" else name,
            memories=state.live,
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
        _, asked = await _placed(self, as_question(task, k=k, as_of=None, recipe=recipe))
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


async def _in_thread(bank: MemoryBank, asked: Question, thread: str) -> Question:
    """Return the question with the words of the thread that it refers to."""
    from memagent.graphs.chat import memory_query
    from memagent.memory.threads import thread_turns

    check_type("thread", thread, str, "a text")
    turns = thread_turns(await bank.sync(), thread)
    return asked.model_copy(update={"text": memory_query(asked.text, turns)})


async def _placed(agent: AsyncAgent, asked: Question) -> tuple[AsyncAgent, Question]:
    """Return the agent at the question's point in time, and the question as asked there."""
    if asked.asked_at is None:
        asked = asked.model_copy(update={"asked_at": agent.clock()})
    if asked.recipe is None and agent.recipe is not None:
        asked = asked.model_copy(update={"recipe": agent.recipe})
    if asked.as_of.now:
        return agent, asked
    return replace(agent, bank=await timetravel.as_of(agent.bank, asked.as_of)), asked


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
