"""Wrappers around a `ChatModel`: retry, budget, a model for each role.

Each adds one behaviour, is itself a `StreamingChatModel`, and knows nothing of the
others; they nest in any order. A wrapped model that cannot stream is streamed as one
piece. The surprise: order carries meaning. `RetryingModel(BudgetedModel(m))` charges
every attempt, `BudgetedModel(RetryingModel(m))` charges a call once however often it
was tried.

`Retries` decides which failed calls are made again, how often, and after what wait.

`RedactingModel` never shows its model personal data of a known form: addresses and
numbers become placeholders in the request, and the values again in the reply, so memory
keeps them. The surprise: what a model computes from a value, such as its last digits,
it computes from the placeholder. Images are not looked at.

`traced` makes the calls of a model spans, by the conventions for generative AI. A span
tells model, role, tokens, cost and finish. The wrapper goes around all others, so that
one span covers a call with all its retries. Prompts and answers are included only below
a span that captures content (`memagent.tracing`).
"""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from memagent.core.errors import BudgetExceeded, ConfigError, ModelError, ModelUnavailable
from memagent.core.exchange import (
    Delta,
    Message,
    ModelRequest,
    ModelResponse,
    Role,
    Usage,
)
from memagent.core.records import content_id
from memagent.protocols import (
    ChatModel,
    ChoosingModel,
    NamedModel,
    OptionsModel,
    StreamingChatModel,
)
from memagent.tracing import (
    Attributes,
    Span,
    messages_content,
    own_id,
    span,
    tracing,
    usage_figures,
    within,
)
from memagent.tracing.masking import Mask

if TYPE_CHECKING:
    from tenacity import RetryCallState


P = ParamSpec("P")
T = TypeVar("T")


class Retries:
    """Makes calls again after retryable `ModelError`s and raises the last one in the end.

    Waits grow exponentially with jitter; a provider's `retry_after` lengthens them. No
    attempt begins later than `deadline_s` seconds after the first began, or than the
    error's own `patience_s`: a server that is not there is given up soon.
    """

    def __init__(
        self,
        *,
        attempts: int = 4,
        deadline_s: float = 120.0,
        first_wait_s: float = 0.5,
        longest_wait_s: float = 30.0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        if attempts < 1:
            raise ConfigError(f"attempts must be at least 1, not {attempts}")
        self._attempts = attempts
        self._deadline_s = deadline_s
        self._first_wait_s = first_wait_s
        self._longest_wait_s = longest_wait_s
        self._sleep = sleep

    async def call(self, make: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the first result that comes."""
        from tenacity import AsyncRetrying, retry_if_exception

        retrying = AsyncRetrying(
            retry=retry_if_exception(
                lambda error: isinstance(error, ModelError) and error.retryable
            ),
            wait=self._wait_s,
            stop=self._give_up,
            sleep=self._sleep,
            reraise=True,
        )
        return await retrying(make, *args, **kwargs)

    def _wait_s(self, state: RetryCallState) -> float:
        failure = state.outcome.exception() if state.outcome is not None else None
        asked_s = failure.retry_after if isinstance(failure, ModelError) else None
        backoff_s = self._first_wait_s * (2.0 ** (state.attempt_number - 1) + random.random())
        return max(min(backoff_s, self._longest_wait_s), asked_s or 0.0)

    def _give_up(self, state: RetryCallState) -> bool:
        spent_s = max(state.seconds_since_start or 0.0, state.idle_for)
        failure = state.outcome.exception() if state.outcome is not None else None
        patience_s = failure.patience_s if isinstance(failure, ModelError) else None
        deadline_s = self._deadline_s if patience_s is None else min(patience_s, self._deadline_s)
        return state.attempt_number >= self._attempts or spent_s + state.upcoming_sleep > deadline_s


async def aclose_stream(stream: object) -> None:
    """Close a stream now instead of when it is collected, if it has `aclose`."""
    close = getattr(stream, "aclose", None)
    if close is not None:
        await close()


async def stream_of(model: ChatModel, request: ModelRequest) -> AsyncGenerator[Delta, None]:
    """Yield the model's stream, and close it with this generator.

    A model that cannot stream yields one piece with the whole response. The pieces together
    are the response's text. Raises `ModelUnavailable` for a stream without a response.
    """
    if not isinstance(model, StreamingChatModel):
        response = await model.complete(request)
        yield Delta(text=response.text, response=response)
        return
    stream, seen, ended = model.stream(request), "", False
    try:
        async for delta in stream:
            seen += delta.text
            ended = ended or delta.response is not None
            if delta.response is not None and delta.response.text.startswith(seen):
                delta = delta.model_copy(
                    update={"text": delta.text + delta.response.text[len(seen) :]}
                )
            yield delta
    finally:
        await aclose_stream(stream)
    if not ended:
        raise ModelUnavailable("the model's stream ended without a response")


def name_of(model: ChatModel, request: ModelRequest) -> str:
    """Return the configured name of the model that would answer; "" where it has none."""
    return model.name_for(request) if isinstance(model, NamedModel) else ""


def takes_options(model: ChatModel, request: ModelRequest) -> bool:
    """Return whether the model that would answer heeds the options of a request."""
    return isinstance(model, OptionsModel) and model.takes_options(request)


async def models_of(model: ChatModel) -> tuple[str, ...] | None:
    """Return the names that `ModelRequest.options` may choose a model by; None where none may."""
    return await model.model_names() if isinstance(model, ChoosingModel) else None


def request_digest(request: ModelRequest) -> str:
    """Digest the parts of a request that decide an answer.

    These are role, messages, schema, tools and sampling; not the step or the prompt's
    file.
    """
    plain = request.model_dump(mode="json", by_alias=True, exclude={"step", "prompt_digest"})
    return content_id("req", json.dumps(plain, sort_keys=True, separators=(",", ":")))


class ModelWrapper:
    """Base of the wrappers: passes everything on to the wrapped model."""

    def __init__(self, model: ChatModel) -> None:
        self._model = model

    def _model_for(self, request: ModelRequest) -> ChatModel:  # noqa: ARG002 - overridden
        return self._model

    def name_for(self, request: ModelRequest) -> str:
        """Return the name of the model that would answer."""
        return name_of(self._model_for(request), request)

    def takes_options(self, request: ModelRequest) -> bool:
        """Return whether the model that would answer heeds the options of a request."""
        return takes_options(self._model_for(request), request)

    async def model_names(self) -> tuple[str, ...] | None:
        """Return the names of the models beside the one that would answer."""
        return await models_of(self._model_for(ModelRequest(role=Role.ANSWERER, messages=())))

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Answer the request."""
        return await self._model_for(request).complete(request)

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Stream the answer."""
        return stream_of(self._model_for(request), request)


class RoutedModel(ModelWrapper):
    """Sends each request to the model of its role, and to `default` where a role has none."""

    def __init__(self, models: Mapping[Role, ChatModel], *, default: ChatModel) -> None:
        super().__init__(default)
        self._models = dict(models)

    def _model_for(self, request: ModelRequest) -> ChatModel:
        return self._models.get(request.role, self._model)


class RetryingModel(ModelWrapper):
    """Tries again after retryable `ModelError`s, as `Retries` does.

    A stream is tried again only before its first piece. `sleep` is for tests.
    """

    def __init__(
        self,
        model: ChatModel,
        *,
        attempts: int = 4,
        deadline_s: float = 120.0,
        first_wait_s: float = 0.5,
        longest_wait_s: float = 30.0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        super().__init__(model)
        self._retries = Retries(
            attempts=attempts,
            deadline_s=deadline_s,
            first_wait_s=first_wait_s,
            longest_wait_s=longest_wait_s,
            sleep=sleep,
        )

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Return the first answer that comes."""
        return await self._retries.call(self._model.complete, request)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Yield the first stream that starts."""
        first, rest = await self._retries.call(self._start, request)
        async with aclosing(rest):
            yield first
            async for delta in rest:
                yield delta

    async def _start(self, request: ModelRequest) -> tuple[Delta, AsyncGenerator[Delta, None]]:
        stream = stream_of(self._model, request)
        return await anext(stream), stream


class BudgetedModel(ModelWrapper):
    """Refuses calls once a cap on calls, tokens (prompt and completion) or US dollars is spent.

    Calls are counted when they begin, so that cap holds exactly under concurrency.
    Tokens and money are known only afterwards: calls already in flight when a cap is
    reached still finish. A stream that is given up is charged by its length, four
    characters a token. A cap in dollars also refuses once an answer of unknown price
    was paid for.
    """

    def __init__(
        self,
        model: ChatModel,
        *,
        max_calls: int | None = None,
        max_tokens: int | None = None,
        max_usd: float | None = None,
    ) -> None:
        if max_calls is None and max_tokens is None and max_usd is None:
            raise ConfigError("a budget needs at least one of max_calls, max_tokens, max_usd")
        super().__init__(model)
        self._max_calls = max_calls
        self._max_tokens = max_tokens
        self._max_usd = max_usd
        self._spent = Usage()
        self._lock = threading.Lock()

    @property
    def spent(self) -> Usage:
        """Calls begun so far, and the tokens, dollars and seconds of those that ended."""
        return self._spent

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Answer within the budget. Raises `BudgetExceeded` before the call."""
        self._begin()
        response = await self._model.complete(request)
        self._charge(response.usage)
        return response

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Stream within the budget. Raises `BudgetExceeded` before the call."""
        self._begin()
        characters = 0
        usage: Usage | None = None
        try:
            async with aclosing(stream_of(self._model, request)) as deltas:
                async for delta in deltas:
                    characters += len(delta.text)
                    usage = delta.response.usage if delta.response is not None else None
                    yield delta
        finally:
            if usage is None and characters:
                prompt = sum(len(message.content) for message in request.messages)
                usage = Usage(prompt_tokens=prompt // 4 + 1, completion_tokens=characters // 4 + 1)
            self._charge(usage or Usage())

    def _begin(self) -> None:
        with self._lock:
            if refusal := self._refusal(self._spent):
                raise BudgetExceeded(f"the budget of {refusal}")
            self._spent = self._spent + Usage(calls=1)

    def _refusal(self, spent: Usage) -> str:
        """Return the cap that is spent, in words, or ""."""
        tokens = spent.prompt_tokens + spent.completion_tokens
        if self._max_calls is not None and spent.calls >= self._max_calls:
            return f"{self._max_calls} calls is spent"
        if self._max_tokens is not None and tokens >= self._max_tokens:
            return f"{self._max_tokens} tokens is spent: {tokens} used"
        if self._max_usd is not None and spent.cost_usd is None:
            return (
                f"{self._max_usd} US dollars cannot be kept: the provider's price is unknown; "
                "cap max_calls or max_tokens instead"
            )
        if self._max_usd is not None and (spent.cost_usd or 0.0) >= self._max_usd:
            return f"{self._max_usd} US dollars is spent: {spent.cost_usd:.4f} used"
        return ""

    def _charge(self, usage: Usage) -> None:
        with self._lock:
            self._spent = self._spent + usage.model_copy(update={"calls": 0})


class RedactingModel(ModelWrapper):
    """Puts placeholders for personal data into requests and takes them out of replies."""

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Answer as the model does to the masked request."""
        mask = Mask()
        return _restored(await self._model.complete(_masked(request, mask)), mask)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Stream as the model does; a placeholder comes in one piece."""
        mask, held = Mask(), ""
        async with aclosing(stream_of(self._model, _masked(request, mask))) as deltas:
            async for delta in deltas:
                held += delta.text
                end = len(held) if delta.response is not None else mask.finished(held)
                text, held = held[:end], held[end:]
                response = delta.response and _restored(delta.response, mask)
                if text or response is not None:
                    yield Delta(text=mask.unmasked(text), response=response)
        if held:
            yield Delta(text=mask.unmasked(held))


def _masked(request: ModelRequest, mask: Mask) -> ModelRequest:
    messages = tuple(
        message.model_copy(
            update={
                "content": mask.masked(message.content),
                "tool_calls": tuple(
                    call.model_copy(update={"arguments": mask.masked(call.arguments)})
                    for call in message.tool_calls
                ),
            }
        )
        for message in request.messages
    )
    return request.model_copy(update={"messages": messages})


def _restored(response: ModelResponse, mask: Mask) -> ModelResponse:
    calls = tuple(
        call.model_copy(update={"arguments": mask.unmasked(call.arguments)})
        for call in response.tool_calls
    )
    return response.model_copy(update={"text": mask.unmasked(response.text), "tool_calls": calls})


_PROVIDERS: Final = {
    "azure": "azure.ai.openai",
    "azure_ai": "azure.ai.inference",
    "bedrock": "aws.bedrock",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "moonshot": "moonshot_ai",
    "vertex_ai": "gcp.vertex_ai",
    "watsonx": "ibm.watsonx.ai",
    "xai": "x_ai",
}


class TracedModel(ModelWrapper):
    """Puts every call into a span; the answers are the model's own."""

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Answer as the model does."""
        with self._span(request) as call_span:
            response = await self._model.complete(request)
            _put_response(call_span, request, response)
            return response

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Stream as the model does; the span ends with the stream."""
        call_span = self._span(request)
        call_span.put({"gen_ai.request.stream": True})
        async with aclosing(within(call_span, stream_of(self._model, request))) as deltas:
            async for delta in deltas:
                if delta.response is not None:
                    _put_response(call_span, request, delta.response)
                yield delta

    def _span(self, request: ModelRequest) -> Span:
        model = self.name_for(request)
        provider, slash, bare = model.partition("/")
        sampling = request.sampling
        optional = {
            "gen_ai.request.model": (bare if slash else model) or None,
            "gen_ai.request.temperature": sampling.temperature,
            "gen_ai.request.top_p": sampling.top_p,
            "gen_ai.request.max_tokens": sampling.max_tokens,
            "gen_ai.request.seed": sampling.seed,
            "gen_ai.output.type": "json" if request.schema_ is not None else None,
            "memagent.prompt.digest": request.prompt_digest or None,
            "memagent.chunk.index": request.step.chunk_index,
        }
        known: Attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": _PROVIDERS.get(provider, provider) if slash else "custom",
            "memagent.role": request.role.value,
            **own_id("gen_ai.conversation.id", request.step.session_id),
            **{key: value for key, value in optional.items() if value is not None},
        }
        name = f"chat {model.rpartition('/')[2]}".rstrip()
        return span(name, kind="client", attributes=known)


def traced(model: ChatModel) -> ChatModel:
    """Give the model a span for each call, where the program traces."""
    return TracedModel(model) if tracing() else model


def _put_response(call_span: Span, request: ModelRequest, response: ModelResponse) -> None:
    if call_span.recording:
        answer = Message(role="assistant", content=response.text)
        call_span.put(
            {
                **usage_figures(response.usage),
                **({"gen_ai.response.model": response.model} if response.model else {}),
                **own_id("gen_ai.response.id", response.id),
                "gen_ai.response.finish_reasons": (response.finish.value,),
            }
        )
        call_span.content(
            lambda: {
                **messages_content("gen_ai.input.messages", request.messages),
                **messages_content("gen_ai.output.messages", [answer]),
            }
        )
