"""Nodes of LangGraph graphs with the agent bound, and tools by which a model keeps notes.

The nodes recall, remember, answer, chat, ingest and try. They run under `invoke` and
`ainvoke`, over an `Agent` or an `AsyncAgent`, and whatever the context and the
checkpointer of the graph around them are. The agent fixes the user.

The tools keep and search notes in any LangGraph store, under the names that users of
langmem know. The store or the run's configuration fix the user, never a tool's
arguments.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar, cast
from uuid import uuid4

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.config import get_config, get_store
from langgraph.store.base import BaseStore
from pydantic import BaseModel, Field, create_model

from memagent.client.wire import Recall, TrialOutcome
from memagent.integrations.access import (
    Access,
    Agent,
    AsyncAgent,
    ConfigError,
    Message,
    Question,
    Trust,
    as_question,
    as_session,
    input_errors,
    recall_block,
    remember_messages,
)

Node = Runnable[Any, dict[str, Any]]
"""A node of a graph: state -> changes of the state."""
RECALLED = "memagent_recall"
"""Id of the system message that `recall_node` puts; a later one takes its place."""
_ROLES = {"human": "user", "ai": "assistant"}


def recall_node(
    agent: Agent | AsyncAgent,
    *,
    k: int = 8,
    messages_key: str = "messages",
    min_trust: Trust | None = None,
) -> Node:
    """Make a node that searches memory for the last human message.

    It puts its hits into one system message. The message keeps its id, so the next
    recall replaces it; where nothing fits, it says so. Words from memory stand between
    tags, as data; `min_trust` leaves out what is trusted less, such as words of tools.
    """

    async def recall(
        live: AsyncAgent, state: Mapping[str, Any], _: RunnableConfig
    ) -> dict[str, Any]:
        text = last_question(_messages(state, messages_key))
        block = await recall_block(live, text, k=k, min_trust=min_trust)
        return {messages_key: [SystemMessage(block, id=RECALLED)]}

    return _node(agent, recall, name="recall")


def remember_node(agent: Agent | AsyncAgent, *, messages_key: str = "messages") -> Node:
    """Make a node that remembers the messages of a thread that are not remembered yet.

    Human messages are read for facts; answers are kept with them, marked as recalled,
    so that no answer becomes a new fact. A message is known again by its id within its
    thread (`thread_id` of the configuration). System and tool messages are left out.
    """

    async def remember(
        live: AsyncAgent, state: Mapping[str, Any], config: RunnableConfig
    ) -> dict[str, Any]:
        await remember_messages(live, thread_of(config), spoken(_messages(state, messages_key)))
        return {}

    return _node(agent, remember, name="remember")


def answer_node(
    agent: Agent | AsyncAgent, *, question_key: str = "question", answer_key: str = "answer"
) -> Node:
    """Make a node that answers the question in the state from memory, with citations.

    The question is a text, a `Question` or its JSON. The answer is the JSON of an
    `Answer`, so that any checkpointer and server can keep and send it;
    `Answer.model_validate` reads it. Where the state has no question but `messages`, the
    last human message is the question and the answer comes as an `AIMessage` too. Raises
    `InputError` where there is neither, `ModelError` when the model fails.
    """

    async def answer(
        live: AsyncAgent, state: Mapping[str, Any], _: RunnableConfig
    ) -> dict[str, Any]:
        asked: object = state.get(question_key)
        messages = _messages(state, "messages") if asked is None else ()
        given = await live.ask(_question(asked if asked is not None else last_question(messages)))
        values = {answer_key: given.model_dump(mode="json")}
        return {**values, "messages": [AIMessage(given.text)]} if messages else values

    return _node(agent, answer, name="answer")


def chat_node(
    agent: Agent | AsyncAgent, *, messages_key: str = "messages", reply_key: str = "reply"
) -> Node:
    """Make a node that replies to the last human message as `Agent.chat` does.

    The thread is the `thread_id` of the configuration. The reply comes as an `AIMessage`
    and, with its citations, as the JSON of a `Reply`. The exchange is remembered before
    the node ends. Raises `InputError` without a message, `ModelError` when the model
    fails; the message is stored then.
    """

    async def chat(
        live: AsyncAgent, state: Mapping[str, Any], config: RunnableConfig
    ) -> dict[str, Any]:
        text = last_question(_messages(state, messages_key))
        reply = await live.chat(text, thread=thread_of(config))
        return {
            messages_key: [AIMessage(reply.text)],
            reply_key: reply.model_dump(mode="json"),
        }

    return _node(agent, chat, name="chat")


def ingest_node(
    agent: Agent | AsyncAgent, *, session_key: str = "session", report_key: str = "report"
) -> Node:
    """Make a node that remembers the session in the state by the agent's design.

    The session is whatever `Agent.remember` takes: a text, a list of messages, a
    `Session`. The report is the JSON of an `IngestReport`; a chunk that the model failed
    at is named there. Raises `InputError` for a session that cannot be stored.
    """

    async def ingest(
        live: AsyncAgent, state: Mapping[str, Any], _: RunnableConfig
    ) -> dict[str, Any]:
        said: Any = state.get(session_key)
        session = as_session(said, at=None, session_id=None, now=live.clock())
        report = await live.remember(session, on_error="keep")
        return {report_key: report.model_dump(mode="json")}

    return _node(agent, ingest, name="ingest")


def trial_node(
    agent: Agent | AsyncAgent, *, task_key: str = "task", trial_key: str = "trial", k: int = 10
) -> Node:
    """Make a node that recalls memories for the task in the state and starts a trial.

    The result is the JSON of a `Recall`: the trial with what was shown, and the hits.
    Raises `InputError` where the state has no task.
    """

    async def trial(
        live: AsyncAgent, state: Mapping[str, Any], _: RunnableConfig
    ) -> dict[str, Any]:
        recalled = await live.recall(_question(state.get(task_key) or ""), k=k)
        return {trial_key: recalled.model_dump(mode="json")}

    return _node(agent, trial, name="trial")


def report_node(
    agent: Agent | AsyncAgent, *, trial_key: str = "trial", outcome_key: str = "outcome"
) -> Node:
    """Make a node that reports the outcome in the state on the trial of `trial_node`.

    The outcome is a reward, or a mapping with `reward` and perhaps `success`, `detail`,
    `steps`, `credit` and `edits`. The trial's place takes the JSON of a `Learned`. Raises
    `InputError` where the state has no trial or no outcome that can be stored.
    """

    async def report(
        live: AsyncAgent, state: Mapping[str, Any], _: RunnableConfig
    ) -> dict[str, Any]:
        begun: object = state.get(trial_key)
        given: object = state.get(outcome_key)
        fields: object = given if isinstance(given, dict) else {"reward": given}  # pyright: ignore[reportUnknownVariableType]
        with input_errors("the state holds no trial and outcome"):
            trial_id = Recall.model_validate(begun).id
            outcome = TrialOutcome.model_validate(fields)
        learned = await live.report(trial_id, outcome.reward, **outcome.arguments())
        return {trial_key: learned.model_dump(mode="json")}

    return _node(agent, report, name="report")


def last_question(messages: Sequence[BaseMessage]) -> str:
    """Return the text of the last human message; "" where there is none."""
    human = (message for message in reversed(messages) if isinstance(message, HumanMessage))
    return next((str(message.text) for message in human), "")


def spoken(messages: Sequence[BaseMessage]) -> list[Message]:
    """Return what humans and the model said, without system and tool messages."""
    return [
        Message(role=_ROLES[message.type], text=str(message.text), id=message.id, name=message.name)
        for message in messages
        if isinstance(message, HumanMessage | AIMessage)
    ]


def _node(
    agent: Agent | AsyncAgent,
    work: Callable[
        [AsyncAgent, Mapping[str, Any], RunnableConfig], Coroutine[Any, Any, dict[str, Any]]
    ],
    *,
    name: str,
) -> Node:
    """Make a node of the work, for `invoke` and `ainvoke`."""
    access = Access(agent)

    def run(state: Any, config: RunnableConfig) -> dict[str, Any]:
        return access.run(lambda live: work(live, state, config))

    async def arun(state: Any, config: RunnableConfig) -> dict[str, Any]:
        return await access.arun(lambda live: work(live, state, config))

    return RunnableLambda(run, arun, name=name)


def thread_of(config: RunnableConfig) -> str:
    """Return the `thread_id` of a run's configuration."""
    return str(config.get("configurable", {}).get("thread_id", "thread"))


def _messages(state: Mapping[str, Any], key: str) -> Sequence[BaseMessage]:
    return cast("Sequence[BaseMessage]", state.get(key) or ())


def _question(asked: object) -> Question:
    if isinstance(asked, Question | str):
        return as_question(asked)
    with input_errors("the state holds no question"):
        return Question.model_validate(asked)


T = TypeVar("T")
Action = Literal["create", "update", "delete"]
Namespace = tuple[str, ...] | str
_SLOT = re.compile(r"\{(\w+)\}")

# -- tools -----------------------------------------------------------------------------

Steps = Generator[tuple[str, tuple[Any, ...], dict[str, Any]], Any, T]
"""Calls of a store's methods, each yielded as (name, arguments, keywords) for its result."""


def _tool(
    steps_of_call: Callable[..., Steps[Any]], store: BaseStore | None, **options: Any
) -> BaseTool:
    """Make a tool that carries the calls out and returns the result of the steps."""

    def run(*given: Any, **named: Any) -> Any:
        steps, result = steps_of_call(*given, **named), None
        while True:
            try:
                name, arguments, keywords = steps.send(result)
            except StopIteration as end:
                return end.value
            result = getattr(store or get_store(), name)(*arguments, **keywords)

    async def arun(*given: Any, **named: Any) -> Any:
        steps, result = steps_of_call(*given, **named), None
        while True:
            try:
                name, arguments, keywords = steps.send(result)
            except StopIteration as end:
                return end.value
            result = await getattr(store or get_store(), f"a{name}")(*arguments, **keywords)

    return StructuredTool.from_function(run, arun, **options)


def create_manage_memory_tool(
    namespace: Namespace,
    *,
    instructions: str = "Call it when the user says something worth keeping, "
    "asks to remember it, or corrects it.",
    actions_permitted: Sequence[Action] = ("create", "update", "delete"),
    store: BaseStore | None = None,
    name: str = "manage_memory",
) -> BaseTool:
    """Make a tool by which a model keeps notes: `content`, `action` and the `id` of a note.

    Labels such as `{user_id}` in the namespace are filled from the run's configuration.
    `store` None is the store of the running graph. Raises `ConfigError` for no action
    or an unknown one.
    """
    allowed = tuple(actions_permitted)
    if not allowed or not set(allowed) <= {"create", "update", "delete"}:
        raise ConfigError(f"actions_permitted is {allowed}; permit some of create, update, delete")

    def steps(
        action: str = allowed[0], content: str | None = None, id: str | None = None
    ) -> Steps[str]:
        fault = _fault_in(action, content, id, allowed)
        if fault is not None:
            return fault
        place = (_filled(namespace), id or str(uuid4()))
        if action != "create" and (yield "get", place, {}) is None:
            return f"there is no memory {place[1]!r}; search_memory tells the ids"
        if action == "delete":
            yield "delete", place, {}
        else:
            yield "put", (*place, {"content": content}), {}
        return f"{action}d memory {place[1]}"

    return _tool(
        steps,
        store,
        name=name,
        description=f"Keep a long-term memory ({', '.join(allowed)}). {instructions}",
        args_schema=create_model(
            "ManageMemory",
            action=(Annotated[str, Field(json_schema_extra={"enum": list(allowed)})], allowed[0]),
            content=(
                Annotated[str | None, Field(description="One self-contained statement.")],
                None,
            ),
            id=(
                Annotated[str | None, Field(description="Id of the memory to update or delete.")],
                None,
            ),
        ),
    )


def _fault_in(
    action: str, content: str | None, id: str | None, allowed: Sequence[str]
) -> str | None:
    """Describe for the model what is wrong with its call, if anything is."""
    if action not in allowed:
        return f"{action!r} is not permitted; permitted: {', '.join(allowed)}"
    if action == "create" and id is not None:
        return "a new memory gets its id here; leave `id` out"
    if action != "create" and not id:
        return f"to {action} a memory, give its `id`"
    if action != "delete" and not (content and content.strip()):
        return "there is no `content` to remember"
    return None


class _SearchMemory(BaseModel):
    query: Annotated[str, Field(description="What to look for.")]
    limit: int = 10
    offset: int = 0
    filter: Annotated[
        dict[str, Any] | None,
        Field(description='Fields that must match, such as {"kind": "plan"}.'),
    ] = None


def create_search_memory_tool(
    namespace: Namespace,
    *,
    instructions: str = "",
    store: BaseStore | None = None,
    response_format: Literal["content", "content_and_artifact"] = "content",
    name: str = "search_memory",
) -> BaseTool:
    """Make a tool by which a model searches its notes: `query`, `limit`, `offset`, `filter`.

    The answer is JSON, a list of documents; with `content_and_artifact` the store's
    items come along. Namespace and store are as in `create_manage_memory_tool`.
    """

    def steps(
        query: str, limit: int = 10, offset: int = 0, filter: dict[str, Any] | None = None
    ) -> Steps[Any]:
        page = {"limit": max(1, min(int(limit), 100)), "offset": max(0, int(offset))}
        items = yield "search", (_filled(namespace),), {"query": query, "filter": filter, **page}
        text = json.dumps([item.dict() for item in items], ensure_ascii=False)
        return text if response_format == "content" else (text, list(items))

    about = "Search your long-term memories for what fits the current talk."
    return _tool(
        steps,
        store,
        name=name,
        description=f"{about} {instructions}".strip(),
        response_format=response_format,
        args_schema=_SearchMemory,
    )


def _filled(namespace: Namespace) -> tuple[str, ...]:
    """Fill the `{slots}` of a namespace from the configuration of the run.

    Raises `ConfigError` for one that is not set.
    """
    labels = (namespace,) if isinstance(namespace, str) else tuple(namespace)
    if not any(_SLOT.search(label) for label in labels):
        return labels
    configured = get_config().get("configurable", {})

    def value(match: re.Match[str]) -> str:
        setting = configured.get(match[1])
        if not setting:
            raise ConfigError(
                f"the namespace needs {match[1]!r}; invoke the graph with "
                f"config={{'configurable': {{{match[1]!r}: ...}}}}"
            )
        return str(setting)

    return tuple(_SLOT.sub(value, label) for label in labels)
