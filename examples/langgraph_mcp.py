"""A LangGraph agent that shops, with its memory over MCP: `pip install "memagent[mcp]"`."""

import asyncio
import sys
import tempfile
from typing import Any

from langgraph.graph import StateGraph
from mcp import Client, StdioServerParameters, stdio_client
from shop_agent import choose

from environments.acting.task import open_tasks

State = dict[str, Any]
SERVER = ["-m", "memagent.cli.app", "mcp", "--design", "exp_rag", "--path"]


async def shop(mcp: Client, count: int) -> list[bool]:
    """Do tasks one after the other and return which were solved."""

    async def recall(state: State) -> State:
        shown = await mcp.call_tool("recall", {"task": state["task"].text, "k": 40})
        return {**state, **(shown.structured_content or {}), "steps": []}

    async def act(state: State) -> State:
        steps, cases = list[State](), [(case["text"], case["tags"]) for case in state["memories"]]
        seen = state["task"].reset(0)
        while not seen.done:
            action = choose(state["task"].text, steps[-1]["observation"] if steps else "", cases)
            seen = state["task"].step(action)
            steps.append({"action": action, "observation": seen.text, "reward": seen.reward})
        outcome = {"steps": steps, "reward": seen.reward, "success": seen.success}
        return {**state, "outcome": outcome}

    async def report(state: State) -> State:
        await mcp.call_tool("report", {"trial_id": state["trial_id"], **state["outcome"]})
        return state

    graph = StateGraph(dict).add_sequence([recall, act, report])
    agent = graph.add_edge("__start__", "recall").compile()
    tasks = open_tasks("tiny_shop", seed=1, count=count)
    return [(await agent.ainvoke({"task": task}))["outcome"]["success"] for task in tasks]


async def main() -> None:
    """Start `memagent mcp` on a new store, shop 20 times, and print the success."""
    with tempfile.TemporaryDirectory() as folder:
        server = StdioServerParameters(command=sys.executable, args=[*SERVER, f"{folder}/m.db"])
        async with Client(stdio_client(server)) as mcp:
            won = await shop(mcp, 20)
    sys.stdout.write(f"first 7: {sum(won[:7])} solved, last 7: {sum(won[-7:])} solved\n")


if __name__ == "__main__":
    asyncio.run(main())
