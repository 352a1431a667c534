"""Flows: one table of nodes, run by a plain loop and by LangGraph to the same end."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, TypedDict

from langchain_core.runnables.config import var_child_runnable_config
from langgraph.graph import START, StateGraph

from memagent.async_agent import AsyncAgent
from memagent.core.answers import Question
from memagent.embed.static import HashEmbedder
from memagent.graphs.answer import ANSWER
from memagent.graphs.ingest import INGEST
from memagent.graphs.state import AgentContext, Flow, Node, NodeRuntime, Step
from memagent.memory.bank import MemoryBank
from memagent.memory.incoming import split_session
from memagent.testing.kits import small_conversation


def new_agent() -> AsyncAgent:
    return AsyncAgent(design="verbatim", bank=MemoryBank(embedder=HashEmbedder(dim=64)))


def recording(flow: Flow, seen: list[str]) -> Flow:
    """Return a flow with the same table whose nodes note their names as they run."""

    def noted(name: str, node: Node) -> Node:
        async def run(state: Any, runtime: NodeRuntime) -> Mapping[str, Any]:
            seen.append(name)
            return await node(state, runtime)

        return run

    steps = {name: Step(noted(name, step.node), step.then) for name, step in flow.steps.items()}
    return replace(flow, steps=steps)


async def test_the_plain_loop_and_langgraph_run_one_table_to_the_same_state() -> None:
    plain, compiled = new_agent(), new_agent()
    for session in small_conversation():
        chunk = split_session(session)[0]
        states: list[dict[str, Any]] = []
        orders: list[list[str]] = [[], []]
        for agent, seen in zip((plain, compiled), orders, strict=True):
            await agent.bank.store_session(session)
            given, flow = {"session": session, "chunk": chunk}, recording(INGEST, seen)
            if agent is plain:
                states.append(await flow.run(given, context=agent.context, tracing=False))
            else:
                states.append(await flow.compiled.ainvoke(given, context=agent.context))
        assert orders[0] == orders[1] == list(INGEST.steps)
        assert states[0] == states[1]
        assert plain.snapshot().digest == compiled.snapshot().digest

    question = {"question": Question(text="Where is Ana?", asked_at=small_conversation()[-1].at)}
    orders = [[], []]
    flow = recording(ANSWER, orders[0])
    first = await flow.run(question, context=plain.context, tracing=False)
    second = await recording(ANSWER, orders[1]).compiled.ainvoke(question, context=plain.context)
    assert orders[0] == orders[1] == ["retrieve", "answer", "cite"]
    assert first == second


class Count(TypedDict, total=False):
    """The state of a loop."""

    left: int
    seen: str


async def test_a_choice_and_a_loop_run_alike() -> None:
    async def turn(state: Count, runtime: NodeRuntime) -> Count:
        return {"left": state.get("left", 0) - 1, "seen": state.get("seen", "") + "t"}

    async def rest(state: Count, runtime: NodeRuntime) -> Count:
        return {"seen": state.get("seen", "") + "r"} if state.get("left") else {}

    def after(state: Count, runtime: NodeRuntime) -> Literal["rest", "done"]:
        return "rest" if state.get("left", 0) > 0 else "done"

    async def done(state: Count, runtime: NodeRuntime) -> Count:
        return {"seen": state.get("seen", "") + "d"}

    steps = {"turn": Step(turn, after), "rest": Step(rest, "turn"), "done": Step(done)}
    flow, context = Flow("count", Count, steps), new_agent().context
    loop = await flow.run({"left": 3}, context=context, tracing=False)
    assert loop == {"left": 0, "seen": "trtrtd"}
    assert loop == await flow.compiled.ainvoke({"left": 3}, context=context)


async def test_langgraph_runs_what_is_traced_or_inside_a_graph_or_has_tools() -> None:
    async def node(state: Count, runtime: NodeRuntime) -> Count:
        return {"seen": "pregel" if get_config_or_none() else "loop"}

    flow, context = Flow("where", Count, {"node": Step(node)}), new_agent().context

    def tool(text: str) -> str:
        """Return the text."""
        return text

    async def ran(context: AgentContext = context, *, tracing: bool = False) -> str:
        return (await flow.run({}, context=context, tracing=tracing))["seen"]

    assert await ran() == "loop"
    assert await ran(replace(context, tools=(tool,))) == "pregel"

    async def outer(state: Count) -> Count:
        return {"seen": await ran()}

    graph = StateGraph(Count)
    graph.add_node("outer", outer)
    graph.add_edge(START, "outer")
    assert (await graph.compile().ainvoke({}))["seen"] == "pregel"


def get_config_or_none() -> Any:
    """Return the configuration of the LangGraph run that this code is in, or None."""
    return var_child_runnable_config.get()


UNTRACED = """
    import asyncio, sys
    from memagent import Agent
    from memagent.testing.kits import small_conversation
    with Agent(path=":memory:", design="verbatim") as agent:
        for session in small_conversation():
            agent.remember(session)
        agent.ask("Where does Ana live?")
        agent.memory.search("Lisbon")
        agent.memory.get_all()
    heavy = ("langgraph", "langchain_core", "langsmith", "litellm", "dateparser", "sqlalchemy.orm")
    print([name for name in heavy if name in sys.modules])
"""


def test_an_agent_without_model_and_tools_never_imports_langgraph() -> None:
    out = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(UNTRACED)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={k: v for k, v in os.environ.items() if not k.startswith(("LANGSMITH", "LANGCHAIN"))},
    )
    assert out.returncode == 0, out.stderr
    assert out.stdout.strip() == "[]"
