"""The memory as a toolset of PydanticAI."""

# pyright: reportMissingImports=false

from __future__ import annotations

from typing import Any

import pytest

from memagent import Agent

pydantic_ai: Any = pytest.importorskip("pydantic_ai", reason="needs pip install pydantic-ai-slim")


def test_a_model_searches_adds_and_is_told_of_its_faults() -> None:
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    from memagent.integrations.frameworks.pydantic_ai import memory_toolset

    seen: list[Any] = []
    replies = [
        ToolCallPart("add", {"text": "   "}),
        ToolCallPart("add", {"text": "Ana drinks green tea"}),
        ToolCallPart("search", {"query": "tea"}),
        TextPart("Green tea."),
    ]

    def model(messages: list[Any], info: Any) -> Any:
        seen.append((messages[-1].parts[-1], info))
        return ModelResponse(parts=[replies[len(seen) - 1]])

    with Agent(path=":memory:", user_id="ana", embedder="hashing") as agent:
        agent.remember("My dog is called Rex.")
        asked = pydantic_ai.Agent(FunctionModel(model), toolsets=[memory_toolset(agent)])
        result = asked.run_sync("What is my dog called, and what do I drink?")
        assert result.output == "Green tea."
        assert {tool.name for tool in seen[0][1].function_tools} == {"search", "add"}
        assert "query" in seen[0][1].function_tools[0].parameters_json_schema["properties"]
        assert "My dog is called Rex." in seen[0][1].instructions
        assert "the text is empty" in str(seen[1][0].content), "the run goes on"
        assert "Ana drinks green tea" in str(seen[3][0].content)
        assert any(item.text == "Ana drinks green tea" for item in agent.memory.get_all())
