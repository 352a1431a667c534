"""The model of one request: what a client of OpenAI's API asked for beside the words.

The chat graph knows nothing of such wishes; they travel with the model that it is
handed. The surprise: further choices (`n`) are separate calls, since not every provider
draws several from one; their tokens are added up.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final, cast

from memagent.client.http import ServiceError
from memagent.core.exchange import Delta, Message, ModelRequest, ModelResponse, Role, Usage
from memagent.llm.wrappers import ModelWrapper, name_of, stream_of, takes_options
from memagent.protocols import ChatModel

Parts = tuple[dict[str, Any], ...]
"""Parts of a message beside its text, in OpenAI's chat format."""
_BY_ANY_MODEL: Final = frozenset({"tools", "response_format"})
"""Options that the request's own fields say as well."""
_FETCHED_BY_PROVIDER: Final = ("openai/", "azure/")
"""Providers that load the address of an image themselves; for others this service would."""


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """The wishes of a request to the model, in OpenAI's chat format."""

    options: dict[str, Any] = field(default_factory=dict[str, Any])
    choices: int = 1
    history: tuple[tuple[str, Parts], ...] = ()
    """Text and other parts of the messages up to the one to reply to."""
    responses: list[ModelResponse] = field(default_factory=list[ModelResponse])
    """The model's answers, one a choice, once it has answered."""

    def check(self, model: ChatModel | None) -> None:
        """Raise `ServiceError` for what the model, or its absence, cannot do."""
        parts = [part for _, parts in self.history for part in parts]
        named = sorted(self.options.keys() - _BY_ANY_MODEL) + ["messages"] * bool(parts)
        if model is None:
            named += ["response_format"] * ("response_format" in self.options)
            named += ["n"] * (self.choices > 1)
            if named:
                raise unsupported(named[0], "needs a language model, and none is set")
            return
        request = ModelRequest(role=Role.ANSWERER, messages=())
        if named and not takes_options(model, request):
            raise unsupported(named[0], "is not supported by the model that is set")
        if not name_of(model, request).startswith(_FETCHED_BY_PROVIDER):
            for part in parts:
                if _address(part).lower().startswith(("http:", "https:")):
                    raise unsupported("messages", "names an image by address; send it as data:")


def unsupported(name: str, why: str = "is not supported") -> ServiceError:
    """Return the error for a field that a request may not use."""
    return ServiceError(f"`{name}` {why}", status=400, code="unsupported_parameter")


class ClientModel(ModelWrapper):
    """Asks the model with the wishes of one request, and keeps its answers."""

    def __init__(self, model: ChatModel, wishes: Wishes) -> None:
        super().__init__(model)
        self._wishes = wishes

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Answer the request; the usage is that of all choices."""
        response: ModelResponse | None = None
        async with aclosing(stream_of(self, request)) as deltas:
            async for delta in deltas:
                response = delta.response or response
        assert response is not None
        return response

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Stream the first choice; its last piece comes when all choices are there."""
        if request.role is not Role.ANSWERER:
            async with aclosing(stream_of(self._model, request)) as deltas:
                async for delta in deltas:
                    yield delta
            return
        asked = self._with_wishes(request)
        others = [
            asyncio.ensure_future(self._model.complete(_of_choice(asked, number)))
            for number in range(1, self._wishes.choices)
        ]
        try:
            async with aclosing(stream_of(self._model, asked)) as deltas:
                async for delta in deltas:
                    yield await self._last(delta, others) if delta.response else delta
        finally:
            for other in others:
                other.cancel()
            await asyncio.gather(*others, return_exceptions=True)

    async def _last(self, delta: Delta, others: Sequence[asyncio.Future[ModelResponse]]) -> Delta:
        assert delta.response is not None
        responses = [delta.response, *await asyncio.gather(*others)]
        self._wishes.responses[:] = responses
        usage = sum((response.usage for response in responses), Usage())
        first = delta.response.model_copy(update={"usage": usage})
        return delta.model_copy(update={"response": first})

    def _with_wishes(self, request: ModelRequest) -> ModelRequest:
        messages = _with_parts(request.messages, self._wishes.history)
        return request.model_copy(update={"messages": messages, "options": self._wishes.options})


def _of_choice(request: ModelRequest, number: int) -> ModelRequest:
    """Return the request of a further choice: with a seed of its own where one is set."""
    sampling = request.sampling
    if sampling.seed is None:
        return request
    seeded = sampling.model_copy(update={"seed": sampling.seed + number})
    return request.model_copy(update={"sampling": seeded})


def _with_parts(
    messages: Sequence[Message], history: Sequence[tuple[str, Parts]]
) -> tuple[Message, ...]:
    """Return the messages with the parts of the history that they show the end of.

    The last user message is the one to reply to, whatever stands around its words.
    """
    out = list(messages)
    if not any(parts for _, parts in history):
        return tuple(out)
    place = max(at for at, message in enumerate(out) if message.role == "user")
    for number, (text, parts) in enumerate(reversed(history)):
        at = place - number
        if at < 0 or (number and _plain(out[at].content) != _plain(text)):
            break
        out[at] = out[at].model_copy(update={"parts": parts})
    return tuple(out)


def _plain(text: str) -> str:
    return " ".join(text.split())


def _address(part: dict[str, Any]) -> str:
    """Return the address that a part names, "" for none."""
    value: object = part.get(str(part.get("type")))
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        value = fields.get("url") or fields.get("file_data")
    return value if isinstance(value, str) else ""
