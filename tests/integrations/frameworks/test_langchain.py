"""`MemoryMiddleware` in LangChain's `create_agent`, with tools and a checkpointer."""

# pyright: reportMissingImports=false

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver

from memagent import Agent

pytest.importorskip("langchain", reason='needs pip install "memagent[langchain]"')


class Fake(GenericFakeChatModel):
    seen: list[str] = []

    def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        self.seen.append(messages[0].text)
        assert [message.type for message in messages].count("system") == 1
        return super()._generate(messages, *args, **kwargs)

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self


def weather(city: str) -> str:
    """Tell the weather."""
    return f"sunny in {city}"


def test_create_agent_recalls_in_the_system_message_and_remembers_each_turn_once() -> None:
    from langchain.agents import create_agent

    from memagent.integrations.frameworks.langchain_middleware import MemoryMiddleware

    call = {"name": "weather", "args": {"city": "Lisbon"}, "id": "1"}
    model = Fake(
        messages=iter(
            [
                AIMessage("Nice."),
                AIMessage("", tool_calls=[call]),
                AIMessage("It is sunny."),
                AIMessage("Bye."),
            ]
        )
    )
    with Agent(path=":memory:", user_id="ana") as agent:
        graph: Any = create_agent(
            model,
            tools=[weather],
            system_prompt="Be nice.",
            middleware=[MemoryMiddleware(agent)],
            checkpointer=InMemorySaver(),
        )

        def config(thread: str) -> Any:
            return {"configurable": {"thread_id": thread}}

        graph.invoke({"messages": [("user", "I live in Lisbon.")]}, config("a"))
        said = graph.invoke({"messages": [("user", "Weather where I live?")]}, config("b"))
        asyncio.run(graph.ainvoke({"messages": [("user", "Bye")]}, config("b")))
        assert [message.type for message in said["messages"]] == ["human", "ai", "tool", "ai"]
        assert all(text.startswith("Be nice.\n\n<memory>") for text in model.seen)
        assert "Nothing fitting" in model.seen[0] and "I live in Lisbon." in model.seen[1]
        turns = [turn.text for session in agent.memory.sessions() for turn in session.turns]
        assert turns == [
            "I live in Lisbon.",
            "Nice.",
            "Weather where I live?",
            "It is sunny.",
            "Bye",
            "Bye.",
        ]
        assert not any("sunny" in item.text for item in agent.memory.get_all())
