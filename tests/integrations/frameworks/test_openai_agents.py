"""`MemorySession` and the tools of the memory under the OpenAI Agents SDK."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from memagent import Agent

os.environ.setdefault("OPENAI_AGENTS_DISABLE_TRACING", "1")
agents: Any = pytest.importorskip("agents", reason="needs pip install openai-agents")


class Fake(agents.Model):
    """Answers from a list of output items; keeps what it was asked."""

    def __init__(self, outputs: list[Any]) -> None:
        self.outputs, self.inputs = outputs, []

    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> Any:
        self.inputs.append(input)
        return agents.ModelResponse(
            output=[self.outputs.pop(0)], usage=agents.Usage(), response_id=None
        )

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


def said(text: str) -> Any:
    from openai.types.responses import ResponseOutputMessage

    content: Any = [{"type": "output_text", "text": text, "annotations": []}]
    fields: Any = {"id": "m", "type": "message", "role": "assistant", "status": "completed"}
    return ResponseOutputMessage(**fields, content=content)


def called(name: str, arguments: str) -> Any:
    from openai.types.responses import ResponseFunctionToolCall

    return ResponseFunctionToolCall(
        name=name, arguments=arguments, call_id="c", type="function_call", id="f"
    )


def test_a_session_lasts_and_another_one_finds_what_was_said(tmp_path: Path) -> None:
    from memagent.integrations.frameworks.openai_agents import MemorySession, memory_tools

    async def run(agent: Agent, model: Fake, session: str, text: str) -> Any:
        assistant = agents.Agent(name="a", model=model, tools=memory_tools(agent))
        return await agents.Runner.run(assistant, text, session=MemorySession(session, agent))

    path = str(tmp_path / "m.db")
    with Agent(path=path, user_id="ana", embedder="hashing") as agent:
        asyncio.run(run(agent, Fake([said("Noted.")]), "one", "My dog is called Rex."))
    with Agent(path=path, user_id="ana", embedder="hashing") as agent:
        model = Fake([said("Rex.")])
        asyncio.run(run(agent, model, "one", "What did I say?"))
        texts = [item["content"] for item in model.inputs[0]]
        assert texts[0] == "My dog is called Rex." and texts[2] == "What did I say?"
        assert texts[1][0]["text"] == "Noted."
        model = Fake([called("search", '{"query": "dog"}'), said("Rex!")])
        result = asyncio.run(run(agent, model, "two", "What is my dog called?"))
        assert result.final_output == "Rex!"
        outputs = [item for item in model.inputs[1] if item.get("type") == "function_call_output"]
        assert "My dog is called Rex." in outputs[0]["output"]
        assert not any(
            "Noted" in item.text for item in agent.memory.get_all() if item.kind != "document"
        )


def test_the_session_keeps_pops_limits_and_clears_items() -> None:
    from memagent.integrations.frameworks.openai_agents import MemorySession

    async def work(agent: Agent) -> None:
        session = MemorySession("s", agent)
        items: list[Any] = [{"role": "user", "content": f"number {at}"} for at in range(12)]
        await session.add_items(items[:5])
        await session.add_items(items[5:])
        assert await session.get_items() == items
        assert await session.get_items(limit=3) == items[-3:] and await session.get_items(0) == []
        assert await session.pop_item() == items[-1]
        again: Any = {"role": "user", "content": "another"}
        await session.add_items([again])
        assert await session.get_items(1) == [again]
        await session.clear_session()
        assert await session.get_items() == [] and await session.pop_item() is None

    with Agent(path=":memory:", user_id="ana", embedder="hashing") as agent:
        asyncio.run(work(agent))
        turns = {turn.text for one in agent.memory.sessions() for turn in one.turns}
        assert {"number 11", "another"} <= turns, "what was said stays remembered"
