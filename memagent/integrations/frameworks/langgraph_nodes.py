"""Nodes of LangGraph graphs with the agent bound: recall, remember, answer, ingest.

They run under `invoke` and `ainvoke`, over an `Agent` or an `AsyncAgent`, and whatever
the context and the checkpointer of the graph around them are. The agent fixes the user.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, cast

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from pydantic import ValidationError

from memagent.client.wire import TrialOutcome
from memagent.core.answers import Question
from memagent.core.errors import fault_in
from memagent.experience import Recall
from memagent.integrations.access import (
    Access,
    Agent,
    AsyncAgent,
    InputError,
    Message,
    Trust,
    recall_block,
    remember_messages,
)
from memagent.memory.incoming import as_question, as_session

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
        try:
            trial_id = Recall.model_validate(begun).id
            outcome = TrialOutcome.model_validate(fields)
        except ValidationError as exc:
            raise InputError(f"the state holds no trial and outcome: {fault_in(exc)}") from exc
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
    try:
        return Question.model_validate(asked)
    except ValidationError as exc:
        raise InputError(f"the state holds no question: {fault_in(exc)}") from exc
