"""The two LangGraph graphs: node order, composition, streaming, tools, and silence
towards tracing servers.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import textwrap
from typing import Any, TypedDict, cast

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime

from memagent.async_agent import AsyncAgent
from memagent.core.answers import Question, Verdict
from memagent.core.errors import ConfigError
from memagent.core.exchange import FinishReason, ModelRequest, ModelResponse, Role, ToolCall
from memagent.core.records import Chunk, Session
from memagent.core.snapshot import EMPTY
from memagent.designs.memory_r2 import DESIGN as MEMORY_R2
from memagent.embed.static import HashEmbedder
from memagent.graphs.answer import ANSWER
from memagent.graphs.ingest import INGEST
from memagent.graphs.state import AgentContext
from memagent.memory.bank import MemoryBank
from memagent.memory.incoming import split_session
from memagent.memory.judging.evidence import NOT_CARRIED
from memagent.testing import FunctionModel, ScriptedModel
from memagent.testing.kits import small_conversation

NEWS = {"1": "she moved to Lisbon", "2": "Rex is allergic", "3": "she lives in Porto"}


def reply(request: ModelRequest) -> str:
    """A manager that keeps the first turn of every chunk and an answerer that cites the
    first item it is shown.
    """
    if request.role is Role.EXTRACTOR:
        number = request.step.session_id[-1] if request.step.session_id else "1"
        return json.dumps(
            {
                "facts": [
                    {
                        "text": f"Ana's news number {number}: {NEWS[number]}",
                        "subject": "Ana",
                        "speaker": "Ana",
                        "source": f"D{number}:1",
                    }
                ]
            }
        )
    if request.role is Role.MANAGER:
        return json.dumps({"ops": [{"op": "ADD", "fact": 0}]})
    shown = re.search(r"mem_\d+", request.messages[-1].content)
    assert shown is not None
    return json.dumps({"answer": "Porto", "citations": [shown[0]]})


def new_agent(model: Any = None, **changes: Any) -> AsyncAgent:
    return AsyncAgent(
        design=MEMORY_R2,
        model=model or FunctionModel(reply),
        bank=MemoryBank(embedder=HashEmbedder(dim=64)),
        **changes,
    )


async def test_the_ingest_graph_runs_its_nodes_in_order() -> None:
    agent = new_agent()
    session = small_conversation()[0]
    await agent.bank.store_session(session)
    (chunk,) = split_session(session)
    ran = [
        name
        async for update in INGEST.compiled.astream(
            {"session": session, "chunk": chunk}, context=agent.context, stream_mode="updates"
        )
        for name in update
    ]
    assert (
        tuple(ran)
        == tuple(INGEST.steps)
        == ("extract", "relate", "decide", "validate", "commit", "index")
    )


async def test_the_answer_graph_runs_its_nodes_in_order() -> None:
    agent = new_agent()
    await agent.remember(small_conversation()[0])
    ran = [name async for name, _ in agent.stream("Where is Ana?")]
    assert ran == ["retrieve", "answer", "cite"]


async def test_remember_and_ask_cite_what_was_shown() -> None:
    agent = new_agent()
    reports = [await agent.remember(session) for session in small_conversation()]
    assert [report.op_counts["ADD"] for report in reports] == [1, 1, 1]
    assert all(chunk.usage.calls == 2 for report in reports for chunk in report.chunks)
    answer = await agent.ask("Where is Ana?")
    assert answer.verdict is Verdict.UNSUPPORTED and NOT_CARRIED in answer.notes
    assert answer.probability is not None
    (citation,) = answer.citations
    assert citation.turn_id in {"D1:1", "D2:1", "D3:1"}
    assert citation.quote
    assert citation.speaker == "Ana"
    assert answer.usage.calls == 1


class Diary(TypedDict, total=False):
    """A user's own state, which shares the keys of the ingest graph."""

    session: Session
    chunk: Chunk
    commit: Any
    note: str


async def test_the_graphs_run_inside_a_users_graph() -> None:
    async def story() -> None:
        agent = new_agent()
        session = small_conversation()[0]
        await agent.bank.store_session(session)

        def prepare(_: Diary) -> Diary:
            return {"session": session, "chunk": split_session(session)[0]}

        def report(state: Diary, runtime: Runtime[AgentContext]) -> Diary:
            return {"note": f"{len(state['commit'].ops)} op for {runtime.context.design.name}"}  # type: ignore[typeddict-item]

        graph = StateGraph(Diary, context_schema=AgentContext)
        graph.add_node("prepare", cast("Any", prepare))
        graph.add_node("memory", agent.graphs.ingest)
        graph.add_node("report", report)
        graph.add_edge(START, "prepare")
        graph.add_edge("prepare", "memory")
        graph.add_edge("memory", "report")
        graph.add_edge("report", END)
        out = await graph.compile().ainvoke({}, context=agent.context)
        assert out["note"] == "1 op for memory_r2"
        assert len(agent.bank.state.items) == 1

    await story()


async def test_a_graph_without_an_agent_says_what_is_missing() -> None:
    with pytest.raises(ConfigError, match=r"answer_node\(agent\)"):
        await ANSWER.compiled.ainvoke({"question": Question(text="Where does Ana live?")})


async def test_one_compiled_graph_serves_agents_at_the_same_time() -> None:
    agents = [new_agent() for _ in range(16)]
    sessions = small_conversation()
    await asyncio.gather(*(agent.remember(sessions[i % 3]) for i, agent in enumerate(agents)))
    digests = {agent.snapshot().digest for agent in agents}
    assert len(digests) == 3


def weather(city: str) -> str:
    """Tell the weather in a city."""
    if city == "Atlantis":
        raise ValueError("no such city")
    return f"sunny in {city}"


def asking(*arguments: str) -> ModelResponse:
    calls = tuple(
        ToolCall(id=f"call_{i}", name="weather", arguments=one) for i, one in enumerate(arguments)
    )
    return ModelResponse(id="res_tools", tool_calls=calls, finish=FinishReason.TOOL_CALLS)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ('{"city": "Porto"}', "sunny in Porto"),
        ('{"city": "Atlantis"}', "no such city"),
        ("{not json", "city"),
        ('{"town": 1}', "city"),
    ],
)
async def test_the_answerer_may_call_tools_and_learns_what_they_said(
    arguments: str, told: str
) -> None:
    model = ScriptedModel([asking(arguments), json.dumps({"answer": "Sunny.", "citations": []})])
    agent = new_agent(model, tools=(weather,))
    steps = [name async for name, _ in agent.stream("How is the weather?")]
    assert steps == ["retrieve", "answer", "tools", "answer", "cite"]
    assert [spec.name for spec in model.requests[0].tools] == ["weather"]
    assert "city" in json.dumps(model.requests[0].tools[0].parameters)
    last = model.requests[1].messages[-1]
    assert last.role == "tool"
    assert told in last.content


async def test_tool_rounds_end() -> None:
    async def story() -> None:
        asked = asking('{"city": "Porto"}')

        def always(request: ModelRequest) -> ModelResponse | str:
            return asked if request.tools else json.dumps({"answer": "Sunny.", "citations": []})

        agent = new_agent(FunctionModel(always), tools=(weather,))
        answer = await agent.ask("How is the weather?")
        assert answer.text == "Sunny."
        assert answer.verdict is Verdict.UNSUPPORTED

    await story()


async def test_a_rollout_from_a_snapshot_leaves_the_agent_alone() -> None:
    agent = new_agent()
    first, second, _ = small_conversation()
    await agent.remember(first)
    anchor = agent.snapshot()
    one, two = agent.at(anchor), agent.at(anchor).with_model(FunctionModel(reply))
    await one.remember(second)
    await two.remember(second)
    assert one.snapshot() == two.snapshot() != anchor
    assert agent.snapshot() == anchor
    assert agent.at(EMPTY).snapshot() == EMPTY


async def test_asking_in_the_past_uses_the_memory_of_then() -> None:
    agent = new_agent()
    for session in small_conversation():
        await agent.remember(session)
    asked = Question.model_validate({"text": "Ana's news?", "as_of": {"said": "2024-04-01"}})
    answer = await agent.ask(asked)
    assert {hit.item.source_turn_ids[0] for hit in answer.hits if hit.item} == {"D1:1", "D2:1"}


TRACED = """
    import asyncio, os, socket
    os.environ.update(LANGSMITH_TRACING="true", LANGCHAIN_TRACING_V2="true", LANGSMITH_API_KEY="x", LANGSMITH_ENDPOINT="http://127.0.0.1:9")
    opened = []
    real = socket.socket.connect
    def watched(self, address):
        opened.append(address)
        return real(self, address)
    socket.socket.connect = watched
    from memagent.agent import Agent
    from memagent.testing.kits import small_conversation
    with Agent(path=":memory:", design="verbatim") as agent:
        for session in small_conversation():
            agent.remember(session)
        print(agent.ask("Where does Ana live?").text)
    print("OPENED", len(opened))
"""


def test_nothing_is_sent_when_tracing_variables_are_set() -> None:
    out = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(TRACED)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert out.returncode == 0, out.stderr
    assert out.stdout.splitlines()[-1] == "OPENED 0"


def test_the_compiled_graphs_are_shared_constants() -> None:
    agent = new_agent()
    assert agent.graphs.ingest is INGEST.compiled
    assert agent.graphs.answer is ANSWER.compiled
