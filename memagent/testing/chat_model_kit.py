"""`check_chat_model`: whether an object keeps the promises of `ChatModel`.

A model that streams must also keep those of `StreamingChatModel`. The model may say
anything; only the frame is checked. About 25 short calls are made, so mind the bill of
a hosted one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import TypeVar

from memagent.core.errors import MemAgentError
from memagent.core.exchange import (
    Delta,
    FinishReason,
    Message,
    ModelRequest,
    ModelResponse,
    Role,
    Sampling,
    StepRef,
    ToolCall,
    ToolSpec,
)
from memagent.llm.wrappers import aclose_stream
from memagent.protocols import ChatModel, StreamingChatModel

_T = TypeVar("_T")

CONCURRENT_CALLS = 16


async def check_chat_model(make: Callable[[], ChatModel], *, timeout_s: float = 60.0) -> None:
    """Check a model made by `make`, called a few times for fresh objects.

    Raises `AssertionError` naming the broken promise: an answer within `timeout_s`
    seconds, unique ids, usage that is not negative, a finish reason that fits, tool
    results taken, `CONCURRENT_CALLS` calls at once, usable after a cancelled call, and
    streamed pieces that add up to the final text. Errors of memagent's own tree (no
    key, no network) pass through.
    """
    await _check_concurrency(make(), timeout_s)
    await _check_tools(make(), timeout_s)
    await _check_cancellation(make(), timeout_s)
    model = make()
    if isinstance(model, StreamingChatModel):
        await _check_stream(model, timeout_s)


async def _check_tools(model: ChatModel, timeout_s: float) -> None:
    call = ToolCall(id="call_1", name="lookup", arguments='{"city": "Oslo"}')
    tool = ToolSpec(
        name="lookup",
        description="Weather of a city.",
        parameters={
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    )
    offered = await _answer(
        model, _request("What is the weather in Oslo?", tools=(tool,)), timeout_s
    )
    finishes = (FinishReason.TOOL_CALLS, FinishReason.LENGTH)
    assert not offered.tool_calls or offered.finish in finishes, (
        "a response that asks for tools must finish with 'tool_calls', "
        f"not {offered.finish.value!r}"
    )
    history = (
        Message(role="user", content="What is the weather in Oslo?"),
        Message(role="assistant", tool_calls=(call,)),
        Message(role="tool", content="4 degrees, rain", tool_call_id=call.id),
    )
    answered = ModelRequest(
        role=Role.ANSWERER, messages=history, tools=(tool,), sampling=Sampling(max_tokens=64)
    )
    await _answer(model, answered, timeout_s)


async def _check_concurrency(model: ChatModel, timeout_s: float) -> None:
    requests = [_request(f"Say the number {n}.", call=n) for n in range(CONCURRENT_CALLS)]
    responses = await asyncio.gather(*(_answer(model, request, timeout_s) for request in requests))
    again = await _answer(model, requests[0], timeout_s)
    ids = {again.id, *(response.id for response in responses)}
    assert len(ids) == CONCURRENT_CALLS + 1, (
        "response ids must be unique; two calls got the same id, so their credit would be mixed up"
    )


async def _check_cancellation(model: ChatModel, timeout_s: float) -> None:
    task = asyncio.ensure_future(model.complete(_request("Say something long.")))
    await asyncio.wait({task}, timeout=0.05)
    task.cancel()
    await _in_time(_settled(task), timeout_s, "a cancelled call must end")
    await _answer(model, _request("Say hello after all."), timeout_s)


async def _settled(task: asyncio.Future[ModelResponse]) -> None:
    await asyncio.wait({task})
    if not task.cancelled() and (error := task.exception()) is not None:
        raise AssertionError(
            f"a cancelled call must raise CancelledError, not {error!r}"
        ) from error


async def _check_stream(model: StreamingChatModel, timeout_s: float) -> None:
    pieces, response = await _in_time(
        _collect(model, _request("Say hello.")), timeout_s, "a stream must end"
    )
    assert response is not None, (
        "the last piece of a stream must carry the whole response; none did"
    )
    _check_response(response)
    text = "".join(pieces)
    assert text == response.text, (
        f"streamed pieces must add up to the final text: {text!r} is not {response.text!r}"
    )
    stream = model.stream(_request("Say something long."))
    await _in_time(_first_piece(stream), timeout_s, "a stream must begin")
    await _in_time(aclose_stream(stream), timeout_s, "a stream must close when it is given up")
    await _answer(model, _request("Say hello after all."), timeout_s)


async def _collect(
    model: StreamingChatModel, request: ModelRequest
) -> tuple[list[str], ModelResponse | None]:
    pieces: list[str] = []
    response: ModelResponse | None = None
    async for delta in model.stream(request):
        assert response is None, "nothing may follow the piece that carries the whole response"
        pieces.append(delta.text)
        response = delta.response
    return pieces, response


async def _first_piece(stream: AsyncIterator[Delta]) -> None:
    await anext(stream, None)


async def _answer(model: ChatModel, request: ModelRequest, timeout_s: float) -> ModelResponse:
    response = await _in_time(model.complete(request), timeout_s, "a call must end")
    _check_response(response)
    return response


async def _in_time(work: Coroutine[object, object, _T], timeout_s: float, promise: str) -> _T:
    try:
        return await asyncio.wait_for(work, timeout_s)
    except TimeoutError as error:
        raise AssertionError(f"{promise} within {timeout_s:g} s") from error
    except (MemAgentError, AssertionError):
        raise
    except Exception as error:
        raise AssertionError(f"a model may raise only ModelErrors; it raised {error!r}") from error


def _check_response(response: object) -> None:
    assert isinstance(response, ModelResponse), (
        f"a model must answer with a ModelResponse, not {type(response).__name__}"
    )
    usage = response.usage
    assert min(number for number in usage.model_dump().values() if number is not None) >= 0, (
        f"usage must not be negative: {usage}"
    )
    assert usage.calls == 1, f"the usage of one response must count 1 call, not {usage.calls}"
    assert response.finish is not FinishReason.TOOL_CALLS or response.tool_calls, (
        "finish 'tool_calls' needs tool calls; there are none"
    )
    assert len({call.id for call in response.tool_calls}) == len(response.tool_calls), (
        "tool call ids of one response must differ, or their results cannot be told apart"
    )


def _request(text: str, *, tools: tuple[ToolSpec, ...] = (), call: int = 0) -> ModelRequest:
    return ModelRequest(
        role=Role.ANSWERER,
        step=StepRef(call=call),
        messages=(Message(role="user", content=text),),
        tools=tools,
        sampling=Sampling(max_tokens=64),
    )
