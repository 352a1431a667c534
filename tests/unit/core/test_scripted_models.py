"""What the fakes promise: scripted order, recorded requests, stable ids, clear
failures, and passing the model checker.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

import memagent.testing
from memagent.core.errors import ConfigError, ModelError, ModelTimeout
from memagent.core.exchange import (
    Delta,
    FinishReason,
    Message,
    ModelRequest,
    ModelResponse,
    Role,
    Usage,
)
from memagent.protocols import ChatModel, StreamingChatModel
from memagent.testing.models import FunctionModel, ScriptedModel, check_chat_model


def ask(text: str = "hello", role: Role = Role.ANSWERER) -> ModelRequest:
    return ModelRequest(role=role, messages=(Message(role="user", content=text),))


async def test_answers_come_in_script_order_and_requests_are_kept() -> None:
    model = ScriptedModel(["one", ModelResponse(id="mine", text="two")])

    async def run() -> list[str]:
        return [(await model.complete(ask(text))).text for text in ("a", "b")]

    assert await run() == ["one", "two"]
    assert [request.messages[0].content for request in model.requests] == ["a", "b"]
    assert model.remaining == 0


async def test_each_role_has_its_own_script() -> None:
    model = ScriptedModel({Role.EXTRACTOR: ["facts"], Role.ANSWERER: ["answer", "again"]})

    async def run() -> list[str]:
        roles = (Role.ANSWERER, Role.EXTRACTOR, Role.ANSWERER)
        return [(await model.complete(ask(role=role))).text for role in roles]

    assert await run() == ["answer", "facts", "again"]


async def test_a_scripted_exception_is_raised_in_its_turn() -> None:
    model = ScriptedModel([ModelTimeout("too slow"), "then this"])

    async def run() -> str:
        with pytest.raises(ModelTimeout, match="too slow"):
            await model.complete(ask())
        return (await model.complete(ask())).text

    assert await run() == "then this"


async def test_an_exhausted_script_names_the_request() -> None:
    model = ScriptedModel({Role.ANSWERER: ["only one"]})
    await model.complete(ask())
    with pytest.raises(
        AssertionError,
        match=r"role 'answerer' is exhausted at request 2 .*ending in 'where is Anna\?'",
    ):
        await model.complete(ask("where is Anna?"))
    with pytest.raises(AssertionError, match="role 'judge'"):
        await model.complete(ask(role=Role.JUDGE))


def test_one_text_instead_of_a_list_is_refused() -> None:
    with pytest.raises(ConfigError, match="list of answers"):
        ScriptedModel("hello")


async def test_ids_are_the_same_in_every_run_and_differ_between_calls() -> None:
    async def run() -> list[str]:
        model = FunctionModel(lambda request: "same")
        return [(await model.complete(ask())).id for _ in range(3)]

    first, second = await run(), await run()
    assert first == second
    assert len(set(first)) == 3


async def test_a_function_may_be_async_and_may_give_a_whole_response() -> None:
    async def answer(request: ModelRequest) -> ModelResponse:
        await asyncio.sleep(0)
        return ModelResponse(id="whole", text=request.messages[-1].content.upper())

    assert (await FunctionModel(answer).complete(ask("hi"))).text == "HI"


async def test_words_are_counted_as_tokens_at_no_price() -> None:
    usage = (await ScriptedModel(["three short words"]).complete(ask("two words"))).usage
    assert usage == Usage(calls=1, prompt_tokens=2, completion_tokens=3, cost_usd=0.0)


@pytest.mark.parametrize("text", ["", " ", "one", "  two\n\nwords  ", "many words in one answer\n"])
async def test_streamed_words_add_up_to_the_text(text: str) -> None:
    async def run() -> list[Delta]:
        return [delta async for delta in ScriptedModel([text]).stream(ask())]

    deltas = await run()
    assert "".join(delta.text for delta in deltas) == text
    assert deltas[-1].response is not None
    assert deltas[-1].response.text == text


async def test_the_fakes_pass_the_model_checker() -> None:
    await check_chat_model(
        lambda: FunctionModel(lambda request: f"you said {request.messages[-1].content}")
    )
    await check_chat_model(lambda: ScriptedModel([f"answer {n}" for n in range(40)]))


class Broken:
    """A model that streams and breaks one promise, by name."""

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.calls = 0

    async def complete(self, request: ModelRequest) -> ModelResponse:
        self.calls += 1
        number = self.calls
        if self.fault == "wrong exception":
            raise KeyError("choices")
        if self.fault == "hangs":
            await asyncio.sleep(60)
        if self.fault == "swallows cancellation":
            try:
                await asyncio.sleep(0.08)
            except asyncio.CancelledError:
                raise ValueError("cancelled") from None
        one_id = self.fault == "same id"
        usage = Usage(calls=1, prompt_tokens=-1 if self.fault == "negative usage" else 1)
        finish = FinishReason.TOOL_CALLS if self.fault == "wrong finish" else FinishReason.STOP
        return ModelResponse(
            id="one" if one_id else f"r{number}", text="hello there", usage=usage, finish=finish
        )

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        response = await self.complete(request)
        yield Delta(text="hello" if self.fault == "lost piece" else "hello ")
        yield Delta(text="there", response=None if self.fault == "no response" else response)
        if self.fault == "trailing piece":
            yield Delta(text="")


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("wrong exception", "only ModelErrors"),
        ("hangs", "within 0.2 s"),
        ("swallows cancellation", "must raise CancelledError"),
        ("same id", "ids must be unique"),
        ("negative usage", "must not be negative"),
        ("wrong finish", "needs tool calls"),
        ("lost piece", "add up"),
        ("no response", "must carry the whole response"),
        ("trailing piece", "nothing may follow"),
    ],
)
async def test_the_checker_names_a_broken_promise(fault: str, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        await check_chat_model(lambda: Broken(fault), timeout_s=0.2)


async def test_a_sound_model_of_ones_own_passes_and_its_model_errors_pass_through() -> None:
    await check_chat_model(lambda: Broken(""))

    def refuse(request: ModelRequest) -> str:
        raise ModelError("no such model")

    with pytest.raises(ModelError, match="no such model"):
        await check_chat_model(lambda: FunctionModel(refuse))


def test_the_fakes_fit_the_protocols() -> None:
    model: StreamingChatModel = ScriptedModel([])
    assert isinstance(model, ChatModel)
    assert isinstance(FunctionModel(lambda request: ""), StreamingChatModel)


def test_the_package_names_its_fakes_and_checkers_in_order() -> None:
    assert memagent.testing.__all__ == sorted(memagent.testing.__all__)
    assert memagent.testing.ScriptedModel is ScriptedModel
    assert dir(memagent.testing) == memagent.testing.__all__
    with pytest.raises(AttributeError, match="no_such_name"):
        memagent.testing.no_such_name  # noqa: B018  # pyright: ignore[reportAttributeAccessIssue]
