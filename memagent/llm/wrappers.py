"""Wrappers around a `ChatModel`: retry, budget, a model for each role.

Each adds one behaviour, is itself a `StreamingChatModel`, and knows nothing of the
others; they nest in any order. A wrapped model that cannot stream is streamed as one
piece. The surprise: order carries meaning. `RetryingModel(BudgetedModel(m))` charges
every attempt, `BudgetedModel(RetryingModel(m))` charges a call once however often it
was tried.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing

from memagent.core.errors import BudgetExceeded, ConfigError, ModelUnavailable
from memagent.core.exchange import Delta, ModelRequest, ModelResponse, Role, Usage
from memagent.core.records import content_id
from memagent.llm.retries import RETRY_AFTER as RETRY_AFTER
from memagent.llm.retries import Retries
from memagent.protocols import ChatModel, NamedModel, OptionsModel, StreamingChatModel


async def aclose_stream(stream: object) -> None:
    """Close a stream now instead of when it is collected, if it has `aclose`."""
    close = getattr(stream, "aclose", None)
    if close is not None:
        await close()


async def stream_of(model: ChatModel, request: ModelRequest) -> AsyncGenerator[Delta, None]:
    """Yield the model's stream, and close it with this generator.

    A model that cannot stream yields one piece with the whole response.
    """
    if not isinstance(model, StreamingChatModel):
        response = await model.complete(request)
        yield Delta(text=response.text, response=response)
        return
    stream = model.stream(request)
    try:
        async for delta in stream:
            yield delta
    finally:
        await aclose_stream(stream)


def name_of(model: ChatModel, request: ModelRequest) -> str:
    """Return the configured name of the model that would answer; "" where it has none."""
    return model.name_for(request) if isinstance(model, NamedModel) else ""


def takes_options(model: ChatModel, request: ModelRequest) -> bool:
    """Return whether the model that would answer heeds the options of a request."""
    return isinstance(model, OptionsModel) and model.takes_options(request)


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
        first = await anext(stream, None)
        if first is None:
            raise ModelUnavailable("the stream ended before its first piece")
        return first, stream


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
