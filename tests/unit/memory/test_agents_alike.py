"""`Agent` and `AsyncAgent` open alike and take the same input."""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from memagent import Agent, AsyncAgent, ConfigError
from memagent.async_agent import AgentOptions, AsyncOptions
from memagent.config import LiteLLMEmbedderSettings
from memagent.core.errors import InputError, ModelUnavailable, StoreError, StoreReadOnly
from memagent.core.records import Trust
from memagent.core.snapshot import EMPTY
from memagent.designs.verbatim import DESIGN as VERBATIM
from memagent.opening.open_store import build_embedder, embedder_settings
from memagent.testing import FunctionModel, ScriptedModel

MAY = datetime(2024, 5, 1, tzinfo=UTC)


class Message:
    """A message as LangChain's are seen from outside."""

    def __init__(self, type: str, content: Any, **more: Any) -> None:
        self.type, self.content = type, content
        for name, value in more.items():
            setattr(self, name, value)


def heard(what: Any, **options: Any) -> list[tuple[str, str, Trust]]:
    """Return speaker, text and trust of the turns that both agents store for an input."""

    async def other() -> list[tuple[str, str, Trust]]:
        async with AsyncAgent(path=":memory:", embedder="hashing") as agent:
            await agent.remember(what, **options)
            return turns(await agent.memory.sessions())

    with Agent(path=":memory:", embedder="hashing") as agent:
        agent.remember(what, **options)
        stored = turns(agent.memory.sessions())
    assert stored == asyncio.run(other())
    return stored


def turns(sessions: Any) -> list[tuple[str, str, Trust]]:
    return [(turn.speaker, turn.text, turn.trust) for one in sessions for turn in one.turns]


async def test_an_async_agent_opens_a_file_keeps_it_and_gives_it_back(tmp_path: Path) -> None:
    async with AsyncAgent(path=tmp_path / "m.db", user_id="ana", embedder="hashing") as agent:
        report = await agent.remember("I moved to Porto.", at="2024-05-01")
        assert report.stored_turns == 1
    agent = AsyncAgent(path=tmp_path / "m.db", user_id="ana", embedder="hashing")
    assert [item.said_at for item in await agent.memory.get_all()] == [MAY]
    await agent.aclose()
    await agent.aclose()
    with pytest.raises(StoreError):
        await agent.remember("I moved on.")
    async with AsyncAgent(path=tmp_path / "m.db", embedder="hashing", read_only=True) as reader:
        with pytest.raises(StoreReadOnly):
            await reader.remember("I moved on.")


async def test_what_cannot_be_opened_leaves_no_lock(tmp_path: Path) -> None:
    for wrong in ({"design": "memory_r2"}, {"user_id": ""}, {"base_url": "http://h/v1"}):
        with pytest.raises((ConfigError, InputError)):
            AsyncAgent(path=tmp_path / "m.db", **wrong)  # type: ignore[arg-type]
    async with AsyncAgent(path=tmp_path / "m.db") as agent:
        assert agent.design.name == "learned"


async def test_an_agent_over_a_bank_is_a_value_that_owns_nothing(tmp_path: Path) -> None:
    async with AsyncAgent(path=tmp_path / "m.db", embedder="hashing") as opened:
        await opened.remember("I moved to Porto.")
        model = FunctionModel(lambda _: "")
        value = AsyncAgent(design=VERBATIM, model=model, bank=opened.bank)
        assert value == replace(value)
        fork = value.at(EMPTY).with_model(ScriptedModel([]))
        assert fork.snapshot().digest == EMPTY.digest
        for copy in (value, fork, opened.with_model(model)):
            await copy.aclose()
        assert len(await opened.memory.get_all()) == 1
        with pytest.raises(ConfigError, match="a `bank` has its own path"):
            AsyncAgent(bank=opened.bank, path="other.db")
        with pytest.raises(AttributeError):
            opened.design = VERBATIM  # type: ignore[misc]


def test_both_agents_name_the_same_options() -> None:
    assert {"design", "embedder", "tools", "base_url"} <= AgentOptions.__annotations__.keys()
    assert AgentOptions.__annotations__.keys() < AsyncOptions.__annotations__.keys()
    for kind, options in ((Agent, "AgentOptions"), (AsyncAgent, "AsyncOptions")):
        parameters = inspect.signature(kind).parameters
        assert {"model", "user_id", "path"} <= set(parameters)
        assert parameters["options"].annotation == f"Unpack[{options}]"
        with pytest.raises(TypeError, match="unexpected keyword argument 'modell'"):
            kind(path=":memory:", modell="x")  # type: ignore[call-arg]
    for verb in ("ask", "stream"):
        for kind in (Agent, AsyncAgent):
            assert {"k", "as_of", "recipe"} <= set(
                inspect.signature(getattr(kind, verb)).parameters
            )


def test_texts_chat_messages_and_langchain_messages_are_stored_alike() -> None:
    assert heard("I moved to Porto.") == [("user", "I moved to Porto.", Trust.USER)]
    assert heard({"role": "user", "content": "Hello there"}) == [
        ("user", "Hello there", Trust.USER)
    ]
    talk = [
        Message("system", "You are kind."),
        Message("human", "I moved to Porto.", name="Ana"),
        Message("ai", "", tool_calls=[{"name": "look", "args": {}, "id": "1"}]),
        Message("tool", "18 degrees"),
        Message("ai", [{"type": "text", "text": "It is warm there."}], tool_calls=[]),
        Message("chat", "Hm.", role="captain"),
    ]
    assert heard(talk) == [
        ("system", "You are kind.", Trust.SYSTEM),
        ("Ana", "I moved to Porto.", Trust.USER),
        ("tool", "18 degrees", Trust.TOOL),
        ("assistant", "It is warm there.", Trust.ASSISTANT),
        ("captain", "Hm.", Trust.UNTRUSTED),
    ]
    assert heard(talk[1]) == [("Ana", "I moved to Porto.", Trust.USER)]


def test_real_langchain_messages_are_read() -> None:
    messages = pytest.importorskip("langchain_core.messages")
    talk = [messages.HumanMessage("I moved to Porto."), messages.AIMessage("Nice!")]
    assert heard(talk) == [
        ("user", "I moved to Porto.", Trust.USER),
        ("assistant", "Nice!", Trust.ASSISTANT),
    ]


def test_content_parts_are_joined_and_pictures_leave_a_placeholder() -> None:
    parts = [
        {"type": "text", "text": "Look at this:"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        {"type": "image_url", "image_url": {"url": "http://x/cat.png"}, "alt": "my cat Tom"},
        {"type": "input_text", "text": "Is he not sweet?"},
    ]
    ((_, text, _),) = heard([{"role": "user", "content": parts}])
    assert text == "Look at this:\n[image]\n[image: my cat Tom]\nIs he not sweet?"
    with pytest.raises(InputError, match="turn 1 has no text"):
        heard([{"role": "user", "content": []}])
    with pytest.raises(InputError, match="there are no turns"):
        heard([{"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}])


def test_dates_may_be_iso_texts() -> None:
    with Agent(path=":memory:", embedder="hashing") as agent:
        agent.remember("I live in Rome.", at="2024-05-01")
        agent.remember("I live in Porto.", at=datetime(2024, 6, 1, tzinfo=UTC))
        assert agent.memory.sessions()[0].at == MAY
        then = agent.ask("Where do I live?", as_of="2024-05-01", k=5, recipe="fast")
        assert {hit.text for hit in then.hits} == {"I live in Rome."}
        assert then.question is not None
        assert then.question.k == 5
        with pytest.raises(InputError, match="`as_of` is 'in May', which is no ISO date"):
            agent.ask("Where do I live?", as_of="in May")
        with pytest.raises(InputError, match="k: "):
            agent.ask("Where do I live?", k=0)


def test_an_agent_streams_the_steps_and_may_be_left_early() -> None:
    with Agent(path=":memory:", embedder="hashing") as agent:
        agent.remember("I live in Rome.")
        steps = list(agent.stream("Where do I live?", k=3))
        assert [node for node, _ in steps] == ["retrieve", "answer", "cite"]
        assert "Rome" in steps[-1][1]["answer"].text
        early = agent.stream("Where do I live?")
        assert next(early)[0] == "retrieve"
        cast("Any", early).close()
        with pytest.raises(InputError):
            next(agent.stream(" "))
        assert agent.ask("Where do I live?").citations


def test_status_tells_what_waits_and_what_failed() -> None:
    def fail(_: Any) -> str:
        raise ModelUnavailable("the provider is down")

    with Agent(path=":memory:", embedder="hashing") as agent:
        agent.remember("I live in Rome.")
        status = agent.status()
        assert (status.model, status.design, status.path) == (None, "learned", None)
        assert (status.memories, status.sessions, status.failed) == (1, 1, 0)
    failing = Agent(FunctionModel(fail), path=":memory:", embedder="hashing")
    failing.remember("I live in Rome.", background=True)
    reports = failing.flush(on_error="keep")
    assert [len(report.failed_chunks) for report in reports] == [1]
    status = failing.status()
    assert (status.pending, status.failed, status.unfinished) == (0, 1, 1)
    assert status.last_error is not None
    assert status.last_error.startswith("the provider is down. Your 1 turn is stored")
    failing.close()


def test_an_embedder_says_what_it_lacks() -> None:
    class NoId:
        dim = 3

        async def embed(self, texts: Any) -> Any:
            return np.eye(3, dtype=np.float32)[: len(texts)]

    with pytest.raises(ConfigError, match=r"^NoId has no id: add `id`, a stable name"):
        Agent(embedder=NoId(), path=":memory:")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="int is no embedder; an embedder has id, dim and"):
        build_embedder(3)  # type: ignore[arg-type]


def test_a_name_with_a_provider_is_an_embedder_of_litellm() -> None:
    hosted = embedder_settings("openai/text-embedding-3-small")
    assert hosted == LiteLLMEmbedderSettings(model="openai/text-embedding-3-small")
    assert embedder_settings("hashing").type == "hashing"
    assert embedder_settings("my.package:Embedder").type == "plugin"


def test_base_url_and_key_belong_to_a_model_by_name() -> None:
    with pytest.raises(ConfigError, match="belong to a model given by name"):
        Agent(FunctionModel(lambda _: ""), path=":memory:", base_url="http://h/v1")
    with pytest.raises(ConfigError, match="need a model"):
        Agent(path=":memory:", api_key="k")


def test_an_answer_prints_as_its_text_and_shows_as_one_line() -> None:
    with Agent(path=":memory:", embedder="hashing") as agent:
        agent.remember("I live in Rome.\nIt is warm there.")
        answer = agent.ask("Where do I live?")
    assert f"{answer}" == str(answer) == answer.text
    assert "\n" not in repr(answer)
    assert len(repr(answer)) < 150
