"""Conversations that grow while earlier messages of theirs wait for a slow model."""

from __future__ import annotations

import asyncio

from memagent import Agent
from memagent.core.exchange import ModelRequest, Role
from memagent.testing import FunctionModel

MESSAGES, THREADS = 240, 20


async def answer(request: ModelRequest) -> str:
    if request.role is not Role.EXTRACTOR:
        return "Fine."
    await asyncio.sleep(0.05)
    return '{"facts": []}'


def test_ordinary_chat_with_a_slow_model_is_remembered_without_a_failure() -> None:
    with Agent(FunctionModel(answer), path=":memory:", embedder="hashing") as agent:
        for number in range(MESSAGES):
            agent.chat(f"Message {number}", thread=f"t{number % THREADS}")
        assert agent.status().pending > 0, "the model is slower than the messages"
        reports = agent.flush()
        assert len(reports) == MESSAGES
        assert all(chunk.failure is None for report in reports for chunk in report.chunks)
        status = agent.status()
        assert (status.failed, status.unfinished, status.pending) == (0, 0, 0)
        assert sum(len(session.turns) for session in agent.memory.sessions()) == 2 * MESSAGES
