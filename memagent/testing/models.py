"""Chat models without a provider, and the kit that checks any chat model.

They answer from a script, or by a function of the request. Both record every request,
stream word by word, count words as tokens at a price of 0, and give ids made from the
request, the answer and the call's ordinal, so the same run gives the same ids and two
calls never share one.

`check_chat_model` tells whether an object keeps the promises of `ChatModel`. A model
that streams must also keep those of `StreamingChatModel`. The model may say anything;
only the frame is checked. About 25 short calls are made, so mind the bill of a hosted
one.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from memagent.core.errors import ConfigError, MemAgentError
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
    Usage,
)
from memagent.core.records import content_id
from memagent.llm.wrappers import aclose_stream, request_digest
from memagent.protocols import ChatModel, StreamingChatModel

ScriptedAnswer = str | ModelResponse | Exception


class FunctionModel:
    """Answers by a function: a text or a whole `ModelResponse`, plain or awaitable."""

    def __init__(
        self, answer: Callable[[ModelRequest], str | ModelResponse | Awaitable[str | ModelResponse]]
    ) -> None:
        self._answer = answer
        self.requests: list[ModelRequest] = []

    def takes_options(self, request: ModelRequest) -> bool:  # noqa: ARG002 - interface
        """Return True: the function sees them."""
        return True

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Answer the request; whatever the function raises passes through."""
        ordinal = len(self.requests)
        self.requests.append(request)
        answer = self._answer(request)
        answer = await answer if inspect.isawaitable(answer) else answer
        return answer if isinstance(answer, ModelResponse) else _response(request, answer, ordinal)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Stream the answer word by word; the last piece carries the whole response."""
        response = await self.complete(request)
        for piece in re.findall(r"\s*\S+\s*|\s+", response.text):
            yield Delta(text=piece)
        yield Delta(response=response)


class ScriptedModel(FunctionModel):
    """Answers from a list in order, or from one list for each role.

    An exception in a list is raised when its place is reached. Asking more often than
    the script has answers raises an `AssertionError` that names the request.
    """

    def __init__(
        self, answers: Sequence[ScriptedAnswer] | Mapping[Role, Sequence[ScriptedAnswer]]
    ) -> None:
        if isinstance(answers, str):
            raise ConfigError(
                "a script is a list of answers, not one text: write ScriptedModel([text])"
            )
        super().__init__(self._next)
        scripts = answers if isinstance(answers, Mapping) else {None: answers}
        self._scripts = {role: list(script) for role, script in scripts.items()}

    @property
    def remaining(self) -> int:
        """The number of scripted answers not asked for yet."""
        return sum(map(len, self._scripts.values()))

    def _next(self, request: ModelRequest) -> str | ModelResponse:
        script = self._scripts.get(None if None in self._scripts else request.role)
        if not script:
            role = request.role.value
            name = "the script" if None in self._scripts else f"the script of role {role!r}"
            last = request.messages[-1].content if request.messages else ""
            raise AssertionError(
                f"{name} is exhausted at request {len(self.requests)} "
                f"(role {role}, step {request.step}): "
                f"{len(request.messages)} messages, the last one ending in {last[-200:]!r}"
            )
        answer = script.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def _response(request: ModelRequest, text: str, ordinal: int) -> ModelResponse:
    prompt_words = sum(len(message.content.split()) for message in request.messages)
    return ModelResponse(
        id=content_id("res", request_digest(request), text, str(ordinal)),
        text=text,
        usage=Usage(calls=1, prompt_tokens=prompt_words, completion_tokens=len(text.split())),
        model="scripted",
    )


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
    await _in_time(anext(stream, None), timeout_s, "a stream must begin")
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


async def _answer(model: ChatModel, request: ModelRequest, timeout_s: float) -> ModelResponse:
    response = await _in_time(model.complete(request), timeout_s, "a call must end")
    _check_response(response)
    return response


async def _in_time(work: Awaitable[_T], timeout_s: float, promise: str) -> _T:
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
