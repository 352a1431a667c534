"""Conversations: the thread in the prompt, memory beside it, streams, checkpoints, faults."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver

from memagent import Agent
from memagent.async_agent import AsyncAgent
from memagent.build import open_agent, open_store
from memagent.core.answers import Reply, Verdict
from memagent.core.errors import ConfigError, InputError, ModelUnavailable
from memagent.core.exchange import Delta, Message, ModelRequest, ModelResponse, Role, ToolCall
from memagent.core.records import Scope
from memagent.graphs.chat import CHAT, NO_MODEL, STORED, MarkFilter
from memagent.testing.models import FunctionModel

MONDAY = datetime(2024, 3, 4, 9, 0, tzinfo=UTC)


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = MONDAY

    def __call__(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now


def facts_of(request: ModelRequest) -> str:
    """Answer an extractor with one fact, the last line of the dialogue word for word."""
    line = request.messages[-1].content.split("<dialogue>")[-1].strip().splitlines()[0]
    turn_id, _, rest = line.removeprefix("[").partition("] ")
    text = rest.partition(": ")[2].replace('"', "")
    return f'{{"facts": [{{"text": "{text}", "subject": null, "source": "{turn_id}", "when": null, "kind": "fact"}}]}}'


def assistant(request: ModelRequest) -> str:
    return "Ok." if request.role is Role.ANSWERER else facts_of(request)


def asked(model: FunctionModel) -> tuple[Message, ...]:
    """The messages of the last request for a reply."""
    return [r for r in model.requests if r.role is Role.ANSWERER][-1].messages


def agent_of(model: Any, **more: Any) -> AsyncAgent:
    clock = Clock()
    store = open_store(path=":memory:", clock=clock)

    return replace(store.agent(Scope(), model=model, design="add_only"), thread="t", **more)


async def test_the_thread_stands_in_the_prompt_and_memory_beside_it() -> None:
    model = FunctionModel(assistant)
    agent = agent_of(model)
    await agent.chat("I moved to Lisbon with my dog Rex.", thread="old")
    await agent.chat("Hello, I am back.")
    reply = await agent.chat("What is my dog called?")
    first, *tail, last = asked(model)
    assert first.role == "system" and "Monday, 4 March 2024" in first.content
    assert "Rex" not in first.content, "memory never speaks as the application"
    assert [(message.role, message.content) for message in tail] == [
        ("user", "Hello, I am back."),
        ("assistant", "Ok."),
    ]
    assert last.role == "user" and "Rex" in last.content
    assert last.content.endswith("What is my dog called?")
    assert [hit.text for hit in reply.hits] == ["I moved to Lisbon with my dog Rex."]
    assert (reply.thread, reply.session_id) == ("t", "t@2024-03-04")
    assert reply.turn_ids == ("t@2024-03-04:3", "t@2024-03-04:4")


async def test_memory_that_the_thread_shows_already_is_not_shown_twice() -> None:
    model = FunctionModel(assistant)
    agent = agent_of(model)
    await agent.chat("I moved to Lisbon with my dog Rex.")
    reply = await agent.chat("What is my dog called?")
    assert reply.hits == () and "<memories>" not in asked(model)[-1].content
    assert reply.verdict is Verdict.UNSUPPORTED and reply.text == "Ok."


async def test_memory_that_has_nothing_to_say_is_silent() -> None:
    model = FunctionModel(assistant)
    agent = agent_of(model)
    await agent.chat("I moved to Lisbon with my dog Rex.", thread="old")
    reply = await agent.chat("Thanks, what a lovely evening it was!")
    assert reply.hits == () and "<memories>" not in asked(model)[-1].content


async def test_the_extractor_sees_the_earlier_turns_of_the_thread_and_of_the_day_before() -> None:
    model = FunctionModel(assistant)
    clock = Clock()
    agent = agent_of(model)
    agent = replace(agent, clock=clock)
    await agent.chat("I moved to Lisbon.")
    clock.now += timedelta(days=1)
    await agent.chat("It rains a lot there.")
    extraction = [r for r in model.requests if r.role is Role.EXTRACTOR][-1].messages[-1].content
    earlier, dialogue = extraction.split("<dialogue>")
    assert "I moved to Lisbon." in earlier and "It rains a lot there." in dialogue
    assert agent.bank.state.threads["t"] == ("t@2024-03-04", "t@2024-03-05")


async def test_a_question_that_refers_back_is_searched_with_what_it_refers_to() -> None:
    model = FunctionModel(assistant)
    agent = agent_of(model)
    await agent.chat("The Alfama festival begins on 12 June.", thread="old")
    await agent.chat("The red tram climbs slowly.", thread="older")
    await agent.chat("I would like to see Alfama once.")
    reply = await agent.chat("When is it?", k=1)
    assert [hit.text for hit in reply.hits] == ["The Alfama festival begins on 12 June."]


async def test_a_question_may_refer_to_a_conversation() -> None:
    async with open_agent(path=":memory:") as agent:
        await agent.remember("The Alfama festival begins on 12 June 2024.", at="2024-03-01")
        await agent.chat("I would like to see Alfama once.", thread="t", remember=False)
        answer = await agent.ask("When is it?", thread="t")
        assert "12 June 2024" in answer.text
        assert "12 June" not in (await agent.ask("When is it?")).text


async def test_a_reply_streams_word_by_word_without_the_ids_it_cites() -> None:
    ids: list[str] = []
    model = FunctionModel(
        lambda r: (
            f"It is Rex [{ids[0]}]. A fine name."
            if r.role is Role.ANSWERER and ids
            else assistant(r)
        )
    )
    agent = agent_of(model)
    await agent.chat("My dog is called Rex.", thread="old")
    ids += [item.id for item in agent.bank.state.items.values()]
    deltas = [delta async for delta in agent.stream_chat("What is my dog called?")]
    words = [delta.text for delta in deltas if delta.text]
    reply = deltas[-1].reply
    assert reply is not None and all(delta.reply is None for delta in deltas[:-1])
    assert len(words) > 3 and "".join(words) == reply.text == "It is Rex. A fine name."
    assert [citation.hit_id for citation in reply.citations] == ids
    assert reply.citations[0].quote == "My dog is called Rex."
    assert reply.verdict is Verdict.SUPPORTED


@pytest.mark.parametrize(
    ("said", "verdict"),
    [
        ("A fine day! It is Rex [{0}]. Do you walk him?", Verdict.SUPPORTED),
        ("It is Rex. [{0}] Do you walk him?", Verdict.SUPPORTED),
        ("It is Bello, a poodle [{0}].", Verdict.UNSUPPORTED),
        ("It is Rex.", Verdict.UNSUPPORTED),
    ],
)
async def test_only_the_cited_sentences_are_checked(said: str, verdict: Verdict) -> None:
    ids: list[str] = []
    model = FunctionModel(
        lambda r: said.format(*ids) if r.role is Role.ANSWERER and ids else assistant(r)
    )
    agent = agent_of(model)
    await agent.chat("My dog is called Rex.", thread="old")
    ids += [item.id for item in agent.bank.state.items.values()]
    reply = await agent.chat("What is my dog called?")
    assert reply.verdict is verdict and "mem_" not in reply.text


@pytest.mark.parametrize("size", [1, 3, 100])
@pytest.mark.parametrize(
    ("text", "shown", "cited"),
    [
        (
            "In Lisbon [mem_1]. And [x] too [mem_2, mem_1]!",
            "In Lisbon. And [x] too!",
            ["mem_1", "mem_2"],
        ),
        ("a [ b", "a [ b", []),
        ("a list[0] of [mem_9]", "a list[0] of [mem_9]", []),
        ("end [mem_1]", "end", ["mem_1"]),
        ("", "", []),
    ],
)
def test_ids_are_taken_out_however_the_text_comes(
    text: str, shown: str, cited: list[str], size: int
) -> None:
    marks = MarkFilter({"mem_1", "mem_2"})
    pieces = [marks.feed(text[at : at + size]) for at in range(0, len(text), size)]
    assert "".join(pieces) + marks.close() == shown and marks.cited == cited


async def test_the_callers_system_message_replaces_ours_and_options_are_checked() -> None:
    model = FunctionModel(assistant)
    agent = agent_of(model)
    await agent.chat("Hello there", system="You are a pirate.")
    assert asked(model)[0].content == "You are a pirate."
    for wrong in (0, 201):
        with pytest.raises(InputError, match="k is"):
            await agent.chat("Hello", k=wrong)
    with pytest.raises(InputError, match="empty"):
        await agent.chat("  ")


async def test_tools_run_and_rounds_end() -> None:
    def weather(place: str) -> str:
        """Tell the weather of a place."""
        return f"sunny in {place}"

    def speak(request: ModelRequest) -> str | ModelResponse:
        if request.role is not Role.ANSWERER:
            return assistant(request)
        if request.tools:
            call = ToolCall(id="c1", name="weather", arguments='{"place": "Porto"}')
            return ModelResponse(id=f"r{len(model.requests)}", text="", tool_calls=(call,))
        return f"It is {request.messages[-1].content}."

    model = FunctionModel(speak)
    agent = agent_of(model)
    reply = await agent.chat("How is the weather?", tools=[weather], max_tool_rounds=1)
    assert reply.text == "It is sunny in Porto."
    assert len([r for r in model.requests if r.role is Role.ANSWERER]) == 2


async def test_a_model_that_fails_leaves_the_message_stored_and_the_same_call_goes_on() -> None:
    broken = True

    def speak(request: ModelRequest) -> str:
        if broken and request.role is Role.ANSWERER:
            raise ModelUnavailable("nobody is there")
        return assistant(request)

    agent = agent_of(FunctionModel(speak))
    with pytest.raises(ModelUnavailable):
        await agent.chat("I moved to Porto.")
    assert [turn.text for turn in agent.bank.state.sessions["t@2024-03-04"].turns] == [
        "I moved to Porto."
    ]
    broken = False
    await agent.chat("I moved to Porto.")
    assert len(agent.bank.state.sessions["t@2024-03-04"].turns) == 2
    assert [item.text for item in agent.bank.state.active()] == ["I moved to Porto."]


async def test_an_exchange_that_cannot_be_remembered_is_told_and_resumed() -> None:
    broken = True

    def speak(request: ModelRequest) -> str:
        if broken and request.role is Role.EXTRACTOR:
            raise ModelUnavailable("the extractor is away")
        return assistant(request)

    agent = agent_of(FunctionModel(speak))
    reply = await agent.chat("I moved to Porto.")
    assert reply.text == "Ok." and any("not yet remembered" in note for note in reply.notes)
    broken = False
    await agent.resume()
    assert [item.text for item in agent.bank.state.active()] == ["I moved to Porto."]
    assert await agent.unfinished() == []


# -- without a model -------------------------------------------------------------------


async def test_without_a_model_it_says_so_once_and_quotes() -> None:
    async with open_agent(path=":memory:") as agent:
        first = await agent.chat("I adopted a cat called Miso.")
        assert first.text == f"{NO_MODEL}\n{STORED}" and first.verdict is Verdict.UNSUPPORTED
        second = await agent.chat("What is my cat called?")
        assert NO_MODEL not in second.text and "Miso" in second.text
        assert second.citations[0].quote == "I adopted a cat called Miso."


# -- checkpoints -----------------------------------------------------------------------


class Stuck:
    """A model that hangs at its first reply, as a process that will be killed does."""

    def __init__(self, inner: FunctionModel) -> None:
        self.inner, self.asked = inner, asyncio.Event()

    async def complete(self, request: ModelRequest) -> ModelResponse:
        if request.role is Role.ANSWERER:
            self.asked.set()
            await asyncio.sleep(60)
        return await self.inner.complete(request)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        yield Delta(response=await self.complete(request))


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_a_killed_run_goes_on_from_the_checkpointer(kind: str, tmp_path: Path) -> None:
    if kind == "memory":
        await _killed_and_continued(InMemorySaver())
        return
    with SqliteSaver.from_conn_string(str(tmp_path / "threads.db")) as saver:
        await _killed_and_continued(saver)


async def _killed_and_continued(saver: Any) -> None:
    model = FunctionModel(assistant)
    agent = agent_of(model, checkpointer=saver)
    await agent.chat("I moved to Lisbon.")
    stuck = Stuck(model)

    run = asyncio.ensure_future(replace(agent, model=stuck).chat("Does it rain there?"))
    await stuck.asked.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    model.requests.clear()
    reply = await agent.chat("Does it rain there?")
    assert reply.text == "Ok." and len(model.requests) >= 1
    assert [turn.text for turn in agent.bank.state.sessions["t@2024-03-04"].turns] == [
        "I moved to Lisbon.",
        "Ok.",
        "Does it rain there?",
        "Ok.",
    ]
    config = {"configurable": {"thread_id": "t"}}
    values = saver.get_tuple(config).checkpoint["channel_values"]
    assert [message["content"] for message in values["messages"]] == [
        "I moved to Lisbon.",
        "Ok.",
        "Does it rain there?",
        "Ok.",
    ]


# -- faces -----------------------------------------------------------------------------


async def test_the_public_graph_and_the_agent_leave_the_same_memory() -> None:
    said = ["I moved to Lisbon.", "It rains a lot there.", "My dog is called Rex."]
    first, second = agent_of(FunctionModel(assistant)), agent_of(FunctionModel(assistant))
    for message in said:
        await first.chat(message)
        state = await CHAT.compiled.ainvoke(
            {"message": message, "thread": "t"}, context=second.context
        )
        assert Reply.model_validate(state["reply"]).text == "Ok."
    assert first.snapshot().digest == second.snapshot().digest
    assert first.snapshot().items


def test_the_synchronous_agent_streams_and_remembers_in_the_background(tmp_path: Path) -> None:
    model = FunctionModel(assistant)
    with Agent(model, path=tmp_path / "m.db", design="add_only") as agent:
        reply = agent.chat("I adopted a cat named Miso")
        assert isinstance(reply, Reply) and reply.thread.startswith("chat-")
        agent.flush()
        assert [item.text for item in agent.memory.get_all()] == ["I adopted a cat named Miso"]
        words = [delta.text for delta in agent.stream_chat("And a dog named Rex", background=False)]
        assert "".join(words) == "Ok."
        assert len(agent.memory.get_all()) == 2
        unremembered = agent.chat("I like tea", remember=False, thread="other")
        agent.flush()
        assert len(agent.memory.get_all()) == 2 and len(agent.memory.sessions()) == 2
        assert unremembered.thread == "other"
        stream = agent.stream_chat("I like coffee")
        next(iter(stream))
        del stream
        with pytest.raises(ConfigError):
            agent.memory.delete_all(user_id="somebody")
