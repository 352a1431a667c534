"""One conversation through four faces: the agent, the graph, the endpoint, the command line."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import openai
import pytest
from command_line_kit import moved_into, run
from conversation import Clock, messages, scripted
from service_kit import serving

from memagent.build import open_store
from memagent.core.records import MemoryItem, Scope
from memagent.graphs.chat import CHAT
from memagent.testing.models import FunctionModel


def texts(items: Sequence[MemoryItem]) -> list[str]:
    return sorted(item.text for item in items if item.active)


def check(model: FunctionModel, digest: str, items: Sequence[MemoryItem]) -> str:
    """Look at what the model was shown and at what was noted, and return the digest."""
    asked = [request for request in model.requests if request.role.value == "answerer"]
    assert len(asked) == len(messages())
    last = [message.content for message in asked[-1].messages]
    assert "Ines gave me a day off." in last and last[-1].endswith("Thank you, good night!")
    assert not any("balcony" in text for text in last[1:-1]), "another thread is not shown"
    assert "The flat in Lisbon has a small balcony." in texts(items)
    assert not any(text.endswith("?") for text in texts(items))
    return digest


async def by_agent() -> str:
    clock, model = Clock(), scripted()
    with closing(open_store(path=":memory:", embedder="hashing", clock=clock)) as store:
        agent = store.agent(Scope(), model=model, design="add_only")
        for message in messages():
            clock.now = message.at
            words = [
                delta.text
                async for delta in agent.stream_chat(message.text, thread=message.thread)
                if delta.text
            ]
            assert len(words) >= 5, "the reply comes word by word"
        snapshot = agent.snapshot()
        return check(model, snapshot.digest, list(snapshot.items.values()))


async def by_graph() -> str:
    clock, model = Clock(), scripted()
    with closing(open_store(path=":memory:", embedder="hashing", clock=clock)) as store:
        agent = store.agent(Scope(), model=model, design="add_only")
        for message in messages():
            clock.now = message.at
            state = {"message": message.text, "thread": message.thread}
            await CHAT.compiled.ainvoke(state, context=agent.context)
        snapshot = agent.snapshot()
        return check(model, snapshot.digest, list(snapshot.items.values()))


def by_endpoint() -> str:
    """Send the whole history of a thread with each message, as a stock client does."""
    clock, model = Clock(), scripted()
    with serving(model=model, design="add_only", clock=clock) as running:
        with openai.OpenAI(base_url=f"{running.url}/v1", api_key="any", max_retries=0) as client:
            histories: dict[str, list[Any]] = {"home": [], "work": []}
            for message in messages():
                clock.now = message.at
                history = histories[message.thread]
                history.append({"role": "user", "content": message.text})
                answer = client.chat.completions.create(
                    model="memagent",
                    messages=history,
                    extra_headers={"X-Memagent-Thread": message.thread},
                )
                reply = answer.choices[0].message.content
                history.append({"role": "assistant", "content": reply})
                _finish(running)
        with running.http() as http:
            digest = http.post("/v1/snapshots", json={"name": "end"}).json()["digest"]
            held = http.get("/v1/memories", params={"limit": 100}).json()["items"]
        return check(model, digest, [MemoryItem.model_validate(item) for item in held])


def _finish(running: Any) -> None:
    """Wait until all jobs have ended, as somebody who reads between two messages does."""
    with running.http() as http:
        for _ in range(500):
            jobs = http.get("/v1/jobs").json()["items"]
            if all(job["state"] == "done" for job in jobs):
                return
            time.sleep(0.01)
    raise AssertionError("the jobs did not end")


def by_command_line(folder: Path, patch: pytest.MonkeyPatch) -> str:
    """Start the command anew for each message; the thread goes on across processes."""
    clock, model = Clock(), scripted()
    moved_into(folder, patch)
    for module in ("memagent.agent", "memagent.async_agent"):
        patch.setattr(f"{module}.build_model", lambda *_, **__: model)
    patch.setattr("memagent.async_agent.system_clock", clock)
    for message in messages():
        clock.now = message.at
        done = run(
            "chat",
            *("--path", "m.db", "--thread", message.thread, "--embedder", "hashing"),
            *("--design", "add_only"),
            says=f"{message.text}\n",
        )
        assert done.exit_code == 0 and "I see, that is message" in done.stdout, done.output
    with closing(open_store(path="m.db", embedder="hashing")) as store:
        bank = store.bank(Scope())
        state = asyncio.run(bank.sync())
        return check(model, state.digest(), list(state.items.values()))


def test_four_faces_leave_one_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = asyncio.run(by_agent())
    assert asyncio.run(by_graph()) == one
    assert by_endpoint() == one
    assert by_command_line(tmp_path, monkeypatch) == one
