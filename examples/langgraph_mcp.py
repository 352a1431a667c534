"""A LangGraph agent that shops, with its memory over MCP: `pip install "memagent[mcp]"`."""

import asyncio
import sys
import tempfile
from typing import Any, TypedDict

from langgraph.graph import StateGraph
from mcp import Client, StdioServerParameters, stdio_client
from shop_agent import choose

from environments.acting.task import ActingTask, open_tasks


class State(TypedDict):
    task: ActingTask
    recalled: dict[str, Any]
    outcome: dict[str, Any]


SERVER = ["-m", "memagent.cli.app", "mcp", "--design", "exp_rag", "--path"]


async def shop(mcp: Client, count: int) -> list[bool]:
    async def recall(state: State) -> dict[str, Any]:
        shown = await mcp.call_tool("recall", {"task": state["task"].text, "k": 40})
        return {"recalled": shown.structured_content or {}}

    async def act(state: State) -> dict[str, Any]:
        task, memories, steps = state["task"], state["recalled"]["memories"], list[Any]()
        cases, seen = [(case["text"], case["tags"]) for case in memories], task.reset(0)
        while not seen.done:
            action = choose(task.text, seen.text if steps else "", cases)
            seen = task.step(action)
            steps.append({"action": action, "observation": seen.text, "reward": seen.reward})
        return {"outcome": {"steps": steps, "reward": seen.reward, "success": seen.success}}

    async def report(state: State) -> None:
        trial_id = state["recalled"]["trial_id"]
        await mcp.call_tool("report", {"trial_id": trial_id, **state["outcome"]})

    graph = StateGraph(State).add_sequence([recall, act, report]).set_entry_point("recall")
    agent = graph.compile()
    tasks = open_tasks("tiny_shop", seed=1, count=count)
    ends = [await agent.ainvoke(State(task=task, recalled={}, outcome={})) for task in tasks]
    return [end["outcome"]["success"] for end in ends]


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        server = StdioServerParameters(command=sys.executable, args=[*SERVER, f"{folder}/m.db"])
        async with Client(stdio_client(server)) as mcp:
            won = await shop(mcp, 20)
    sys.stdout.write(f"first 7: {sum(won[:7])} solved, last 7: {sum(won[-7:])} solved\n")


if __name__ == "__main__":
    asyncio.run(main())
