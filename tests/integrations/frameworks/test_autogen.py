"""memagent as a `Memory` of AutoGen's agents."""

# pyright: reportMissingImports=false

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from memagent import Agent
from memagent.core.errors import InputError

pytest.importorskip("autogen_core", reason="needs pip install autogen-core autogen-agentchat")


@pytest.mark.filterwarnings("ignore")
def test_an_assistant_gets_what_fits_and_the_memory_takes_texts() -> None:
    from autogen_agentchat.agents import AssistantAgent
    from autogen_core.memory import MemoryContent, MemoryMimeType
    from autogen_core.models import CreateResult, RequestUsage, SystemMessage

    from memagent.integrations.frameworks.autogen import MemagentMemory

    class Fake:
        """A model client that keeps what it is asked."""

        model_info: Any = {
            "vision": False,
            "function_calling": False,
            "json_output": False,
            "family": "unknown",
            "structured_output": False,
        }
        seen: list[Any] = []

        async def create(self, messages: Any, **_: Any) -> Any:
            self.seen.extend(messages)
            usage = RequestUsage(prompt_tokens=0, completion_tokens=0)
            return CreateResult(finish_reason="stop", content="Rex.", usage=usage, cached=False)

    async def work(agent: Agent) -> None:
        memory, text = MemagentMemory(agent), MemoryMimeType.TEXT
        await memory.add(MemoryContent(content="My dog is called Rex.", mime_type=text))
        await memory.add(MemoryContent(content="My dog is called Rex.", mime_type=text))
        model: Any = Fake()
        result = await AssistantAgent("a", model_client=model, memory=[memory]).run(
            task="What is my dog called?"
        )
        assert result.messages[-1].content == "Rex."  # pyright: ignore[reportAttributeAccessIssue]
        told = [
            str(message.content) for message in model.seen if isinstance(message, SystemMessage)
        ]
        assert any("My dog is called Rex." in text for text in told)
        found = (await memory.query("dog")).results
        assert found[0].content == "My dog is called Rex." and found[0].metadata
        with pytest.raises(InputError, match="only texts"):
            await memory.add(MemoryContent(content=b"x", mime_type=MemoryMimeType.BINARY))
        await memory.clear()
        assert (await memory.query("dog")).results == []

    with Agent(path=":memory:", user_id="ana", embedder="hashing") as agent:
        asyncio.run(work(agent))
