"""Conversations in threads, for processes that get killed."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from memagent import Agent
from memagent.core.exchange import ModelRequest, Role
from memagent.testing import FunctionModel

Say = Callable[[str], None]
_TOLD = re.compile(r"\[([^\]\s]+)\][^\n]*?(The key of locker [^\n.]+\.)")


def words(thread: int, number: int) -> str:
    """Message `number` of a thread: a fact that no other message tells."""
    return f"The key of locker {thread}x{number} hangs on hook {number * 31 + thread}."


async def slow(request: ModelRequest) -> str:
    """Answer after a while, and longest where a session is remembered: one fact a turn."""
    chats = request.schema_ is None
    await asyncio.sleep(0.002 if chats else 0.02)
    if chats:
        return "Noted."
    if request.role is Role.MANAGER:
        return json.dumps({"operations": []})
    told = _TOLD.findall(request.messages[-1].content)
    return json.dumps({"facts": [{"text": text, "source": name} for name, text in told]})


def talk(say: Say, path: str, begin: Mapping[str, int], messages: int, threads: int) -> None:
    """Send what is left of every thread's messages, all threads at once; say what is stored.

    At the end everything in the background is remembered, and nothing has failed.
    """
    with Agent(FunctionModel(slow), user_id="ana", path=path, embedder="hashing") as agent:

        def conversation(thread: int) -> None:
            for number in range(begin.get(str(thread), 0), messages):
                agent.chat(words(thread, number), thread=f"t{thread}")
                say(f"{thread} {number}")

        with ThreadPoolExecutor(threads) as pool:
            for _ in pool.map(conversation, range(threads)):
                pass
        agent.flush()
        say(f"@failed {agent.status().failed}")
