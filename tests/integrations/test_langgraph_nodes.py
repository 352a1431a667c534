"""The public graphs and the nodes with an agent bound, inside graphs that know nothing of us."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from memagent import Agent
from memagent.async_agent import AsyncAgent
from memagent.build import open_store
from memagent.core.answers import Answer
from memagent.core.errors import InputError, StoreError
from memagent.core.records import Scope
from memagent.core.snapshot import IngestReport
from memagent.graphs.answer import ANSWER
from memagent.graphs.chat import CHAT
from memagent.graphs.ingest import INGEST
from memagent.graphs.state import AgentContext
from memagent.integrations.langgraph_tools import answer_node, chat_node, ingest_node


class Stranger(TypedDict):
    """The context of a graph that is not ours."""

    tenant: str


class Asking(TypedDict, total=False):
    session: Any
    report: dict[str, Any]
    question: Any
    answer: dict[str, Any]


@pytest.fixture
def agent() -> Iterator[Agent]:
    with Agent(path=":memory:", user_id="ana") as opened:
        yield opened


@pytest.fixture
async def async_agent() -> AsyncIterator[AsyncAgent]:
    store = open_store(path=":memory:")
    try:
        yield store.agent(Scope(user_id="ana"))
    finally:
        store.close()


def ask_after_ingest(agent: Agent | AsyncAgent, **compiled: Any) -> Any:
    builder: Any = StateGraph(Asking, context_schema=Stranger)
    builder.add_node("ingest", ingest_node(agent))
    builder.add_node("answer", answer_node(agent))
    builder.add_edge(START, "ingest")
    builder.add_edge("ingest", "answer")
    builder.add_edge("answer", END)
    return builder.compile(**compiled)


INPUT: dict[str, Any] = {
    "session": [{"role": "user", "content": "My dog is called Rex."}],
    "question": "What is my dog called?",
}


@pytest.mark.parametrize(
    "graph", [ANSWER.compiled, INGEST.compiled, CHAT.compiled], ids=["answer", "ingest", "chat"]
)
def test_tools_of_langgraph_get_every_schema_of_the_public_graphs(graph: Any) -> None:
    for schema in (graph.get_input_jsonschema(), graph.get_output_jsonschema()):
        assert {"question", "chunk", "message"} & schema["properties"].keys() and json.dumps(schema)
    assert graph.get_context_jsonschema()["title"] == "AgentContext"
    with pytest.raises(ValidationError):
        TypeAdapter(AgentContext).validate_python({})


def test_bound_nodes_run_synchronously_under_a_context_of_another_graph(agent: Agent) -> None:
    state = ask_after_ingest(agent).invoke(INPUT, context={"tenant": "acme"})
    assert IngestReport.model_validate(state["report"]).stored_turns == 1
    answer = Answer.model_validate(state["answer"])
    assert "Rex" in answer.text and answer.citations[0].quote == "My dog is called Rex."


async def test_bound_nodes_run_in_coroutines_over_both_agents(async_agent: AsyncAgent) -> None:
    state = await ask_after_ingest(async_agent).ainvoke(INPUT, context={"tenant": "acme"})
    assert "Rex" in state["answer"]["text"]
    with Agent(path=":memory:", user_id="bo") as agent:
        state = await ask_after_ingest(agent).ainvoke(INPUT, context={"tenant": "acme"})
        assert "Rex" in state["answer"]["text"]


def test_an_asynchronous_agent_refuses_invoke_with_the_reason() -> None:
    store = open_store(path=":memory:")
    try:
        with pytest.raises(StoreError, match="use an Agent"):
            answer_node(store.agent(Scope(user_id="ana"))).invoke({"question": "Who?"})
    finally:
        store.close()


def test_states_of_the_memory_stay_out_of_the_checkpoints_of_the_graph_around(
    agent: Agent,
) -> None:
    saver = InMemorySaver()
    config: Any = {"configurable": {"thread_id": "t"}}
    ask_after_ingest(agent, checkpointer=saver).invoke(INPUT, config, context={"tenant": "acme"})
    assert list(saver.storage["t"]) == [""], "only the outer graph is checkpointed"
    kept = [value for _, value in saver.blobs.values()] + [
        value for writes in saver.writes.values() for _, _, (_, value), _ in writes.values()
    ]
    assert kept and not any(b"memagent" in value for value in kept), "nothing but plain JSON"


def test_the_last_human_message_is_the_question_where_there_is_no_other(agent: Agent) -> None:
    builder = StateGraph(MessagesState)
    builder.add_node("answer", answer_node(agent))
    builder.add_edge(START, "answer")
    agent.remember("My dog is called Rex.")
    said = builder.compile().invoke({"messages": [HumanMessage("What is my dog called?")]})
    assert "Rex" in said["messages"][-1].text


def test_a_chat_node_goes_on_with_the_thread_of_the_configuration(agent: Agent) -> None:
    builder = StateGraph(MessagesState)
    builder.add_node("chat", chat_node(agent))
    builder.add_edge(START, "chat")
    graph = builder.compile(checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "home"}}
    graph.invoke({"messages": [HumanMessage("My dog is called Rex.")]}, config)
    said = graph.invoke({"messages": [HumanMessage("What is my dog called?")]}, config)
    assert "Rex" in said["messages"][-1].text and len(said["messages"]) == 4
    (session,) = agent.memory.sessions()
    assert session.thread == "home" and len(session.turns) == 4
    assert [item.text for item in agent.memory.get_all()] == ["My dog is called Rex."]


@pytest.mark.parametrize("question", [None, " ", {"text": ["no"]}, 7])
def test_a_state_without_a_question_is_refused_with_the_reason(
    agent: Agent, question: object
) -> None:
    with pytest.raises(InputError, match="question"):
        answer_node(agent).invoke({"question": question})
    assert answer_node(agent).invoke({"question": {"text": "Who?"}})["answer"]["text"]
