"""memagent as the memory service of Google's ADK."""

# pyright: reportMissingImports=false

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from memagent.build import open_store

pytest.importorskip("google.adk", reason="needs pip install google-adk")


@pytest.mark.filterwarnings("ignore")
def test_a_runner_preloads_what_another_session_said_and_users_stay_apart() -> None:
    from google.adk.agents import LlmAgent
    from google.adk.models import BaseLlm, LlmResponse
    from google.adk.runners import Runner
    from google.adk.sessions import InMemorySessionService
    from google.adk.tools import preload_memory
    from google.genai import types

    from memagent.integrations.frameworks.google_adk import MemagentMemoryService

    class Fake(BaseLlm):
        async def generate_content_async(
            self, llm_request: Any, stream: bool = False
        ) -> AsyncGenerator[Any]:
            seen.append(str(llm_request))
            yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text="Rex.")]))

    seen: list[str] = []

    async def work() -> None:
        store = open_store(path=":memory:", embedder="hashing")
        service = MemagentMemoryService(store)
        sessions = InMemorySessionService()
        runner = Runner(
            app_name="app",
            agent=LlmAgent(name="a", model=Fake(model="fake"), tools=[preload_memory]),
            session_service=sessions,
            memory_service=service,
        )

        async def say(user: str, session_id: str, text: str) -> None:
            await sessions.create_session(app_name="app", user_id=user, session_id=session_id)
            message = types.Content(role="user", parts=[types.Part(text=text)])
            async for _ in runner.run_async(
                user_id=user, session_id=session_id, new_message=message
            ):
                pass

        async def keep(user: str, session_id: str) -> None:
            session = await sessions.get_session(
                app_name="app", user_id=user, session_id=session_id
            )
            assert session is not None
            await service.add_session_to_memory(session)

        await say("ana", "one", "My dog is called Rex.")
        await keep("ana", "one")
        await keep("ana", "one")
        await say("ana", "two", "What is my dog called?")
        assert "My dog is called Rex." in seen[-1]
        await say("bo", "three", "What is my dog called?")
        assert "My dog is called Rex." not in seen[-1]
        found = (await service.search_memory(app_name="app", user_id="ana", query="dog")).memories
        assert [entry.content.parts[0].text for entry in found] == ["My dog is called Rex."]
        assert found[0].author == "user" and found[0].timestamp
        await service.delete_memory(app_name="app", user_id="ana", memory_id=found[0].id)
        assert not (
            await service.search_memory(app_name="app", user_id="ana", query="dog")
        ).memories
        store.close()

    asyncio.run(work())
