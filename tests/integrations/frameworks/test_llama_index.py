"""memagent as a block behind LlamaIndex's short-term memory."""

# pyright: reportMissingImports=false

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from memagent import Agent

pytest.importorskip("llama_index.core", reason="needs pip install llama-index-core")


@pytest.mark.filterwarnings("ignore")
def test_what_leaves_the_short_term_memory_is_remembered_and_recalled() -> None:
    from llama_index.core.llms import ChatMessage
    from llama_index.core.memory import Memory

    from memagent.integrations.frameworks.llama_index import MemagentBlock

    async def work(agent: Agent) -> str:
        memory: Any = Memory.from_defaults(
            session_id="s",
            token_limit=60,
            chat_history_token_ratio=0.5,
            token_flush_size=10,
            tokenizer_fn=str.split,
            memory_blocks=[MemagentBlock.over(agent)],
        )
        await memory.aput(ChatMessage(role="user", content="My dog is called Rex."))
        await memory.aput(ChatMessage(role="assistant", content="Noted."))
        for at in range(6):
            await memory.aput(ChatMessage(role="user", content=f"Filler {at} " + "word " * 8))
            await memory.aput(ChatMessage(role="assistant", content="Yes."))
        messages = await memory.aget(input="What is my dog called?")
        await memory.sql_store._async_engine.dispose()  # LlamaIndex never closes it
        return "\n".join(str(message.content) for message in messages)

    with Agent(path=":memory:", user_id="ana", embedder="hashing") as agent:
        shown = asyncio.run(work(agent))
        turns = [turn.text for one in agent.memory.sessions() for turn in one.turns]
    assert "My dog is called Rex." in turns and turns.count("Yes.") >= 2, "none is lost"
    assert "facts to use" in shown and "My dog is called Rex." in shown
