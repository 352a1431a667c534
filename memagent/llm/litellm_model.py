"""Any provider that litellm knows, as a `StreamingChatModel`.

Invariants: one request over the wire per call, except after a refused schema
(`RetryingModel` is the one layer of retries); every response carries tokens, price if
known, and seconds; every failure is a `ModelError` with the vendor's exception as its
cause. The surprise: where the vendor's exception repeats a credential, it is left out
of the chain instead of being kept as the cause.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Literal, cast
from uuid import uuid4

from pydantic import JsonValue

from memagent.core.errors import (
    ConfigError,
    ModelError,
    ModelUnavailable,
    ReplyWithheld,
    RequestRefused,
)
from memagent.core.exchange import Delta, ModelRequest, ModelResponse, Usage
from memagent.core.records import content_id
from memagent.llm.chat_format import (
    JsonObject,
    ThoughtFilter,
    chat_messages,
    count_of,
    find_logprobs,
    find_text,
    find_tool_calls,
    finish_reason,
    request_body,
)
from memagent.llm.litellm_errors import (
    WITHHELD,
    Dumps,
    ErrorReader,
    Vendor,
    call_options,
    check_installed,
    checked_url,
    knock,
    open_vendor,
)
from memagent.llm.wrappers import aclose_stream

_OWN_KEYS = frozenset(
    {
        "model",
        "messages",
        "stream",
        "stream_options",
        "tools",
        "response_format",
        "timeout",
        "api_base",
        "api_key",
    }
    | {"num_retries", "max_retries"}
)

# Models whose provider keeps a prompt's beginning only where the request marks its end. Others
# (OpenAI, DeepSeek, Gemini, local servers) find a common beginning by themselves.
_CACHE_MARKED = re.compile(r"claude", re.IGNORECASE)
# Has litellm mark the system message, which is the same for all calls of a prompt file.
_CACHE_POINTS: JsonObject = {
    "cache_control_injection_points": [{"location": "message", "role": "system"}]
}
_SCHEMA_REFUSED = re.compile(
    r"response_format|json_schema|structured.?output|\bschema\b", re.IGNORECASE
)

# Options that the provider may judge by itself, whatever litellm knows of the model.
_EXTRAS = ("verbosity", "reasoning_effort")
# Ends of the environment's names for a provider's address.
_ADDRESSES = ("BASE_URL", "API_BASE")
# A module through which litellm sends any call with tools, if it exists. It fails for want of
# packages that litellm does not install; the flag by which it calls itself keeps our calls out.
_TOOL_DETOUR = "litellm.responses.mcp.chat_completions_handler"


class LiteLLMModel:
    """A hosted or local model by its litellm name, such as `openai/gpt-4o-mini`.

    `timeout_s` bounds a whole call, and for streams the wait for each piece. `extra`
    goes to the provider call as it is (`reasoning_effort`, `extra_headers`,
    `input_cost_per_token`, ...); what a request sets itself comes first.
    `json_schema="auto"` sends the request's schema and, where the provider refuses it,
    asks once more without it and remembers that for this schema; `"always"` turns the
    refusal into an error; `"never"` sends none. Raises `MissingExtra` when litellm is
    not installed.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout_s: float = 60.0,
        extra: Mapping[str, JsonValue] | None = None,
        json_schema: Literal["auto", "always", "never"] = "auto",
    ) -> None:
        if not model.strip():
            raise ConfigError(
                "model must name a provider and a model, for example 'openai/gpt-4o-mini'"
            )
        if timeout_s <= 0:
            raise ConfigError(f"timeout_s must be above 0 seconds, not {timeout_s}")
        if clash := sorted(_OWN_KEYS & set(extra or {})):
            raise ConfigError(
                f"extra must not set {', '.join(clash)}: these come from the request "
                "or from LiteLLMModel's arguments"
            )
        self._use = f"the model {model!r}"
        check_installed(self._use)
        self._model = model
        # What stands before the name of every model of the same provider.
        self._prefix = model[: model.find("/") + 1]
        self._api_base = checked_url(base_url)
        self._api_key = api_key
        self._timeout_s = float(timeout_s)
        self._extra: JsonObject = dict(extra or {})
        self._errors = ErrorReader(
            model,
            timeout_s=self._timeout_s,
            settings={"api_key": api_key, **self._extra},
            base_url=self._api_base,
        )
        self._json_schema = json_schema
        self._refused_schemas: set[str] = set()

    def __repr__(self) -> str:
        return f"LiteLLMModel({self._model!r})"

    def name_for(self, request: ModelRequest) -> str:  # noqa: ARG002 - interface
        """Return the name of the model as litellm knows it."""
        return self._model

    def takes_options(self, request: ModelRequest) -> bool:  # noqa: ARG002 - interface
        """Return True: they go to the provider."""
        return True

    async def model_names(self) -> tuple[str, ...] | None:
        """Return the names of the provider's models, () where it does not tell."""
        if not self._prefix:
            return ()
        vendor = await self._open()
        provider = self._prefix.removesuffix("/")
        # Calls heed these; the list of models would be fetched from the vendor's own address.
        places = (os.environ.get(f"{provider.upper()}_{what}") for what in _ADDRESSES)
        with self._errors.translated():
            async with asyncio.timeout(self._timeout_s):
                listed = await asyncio.to_thread(
                    vendor.get_valid_models,
                    check_provider_endpoint=True,
                    custom_llm_provider=provider,
                    api_key=self._api_key,
                    api_base=self._api_base or next(filter(None, places), None),
                )
        return tuple(name.removeprefix(self._prefix) for name in listed)

    def _asked(self, request: ModelRequest) -> str:
        """Return the litellm name of the model that a request asks for."""
        chosen = (request.options or {}).get("model")
        return f"{self._prefix}{chosen}" if chosen else self._model

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Answer the request.

        Raises a `ModelError`; an empty or malformed text is an answer.
        """
        vendor = await self._open()
        started = time.perf_counter()
        answer = cast(Dumps | None, await self._call(vendor, request, stream=False))
        return self._response(vendor, request, answer, started)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Yield pieces of the answer as they come; the last one carries the whole response.

        Raises a `ModelError`.
        """
        vendor = await self._open()
        started = time.perf_counter()
        source = cast(AsyncIterator[Dumps], await self._call(vendor, request, stream=True))
        chunks: list[Dumps] = []
        sent = ""
        thoughts = ThoughtFilter()
        try:
            while (chunk := await self._next_chunk(source)) is not None:
                chunks.append(chunk)
                delta = _choice(chunk.model_dump(warnings=False)).get("delta")
                content = delta.get("content") if isinstance(delta, dict) else None
                if piece := thoughts.feed(content if isinstance(content, str) else ""):
                    sent += piece
                    yield Delta(text=piece)
        finally:
            await aclose_stream(source)
        with self._errors.translated():
            joined = vendor.stream_chunk_builder(chunks, messages=_text_messages(request))
        response = self._response(vendor, request, joined, started)
        # The vendor makes up a `stop` when a stream just ends.
        reasons = ("received_finish_reason", "intermittent_finish_reason")
        if all(getattr(source, name, None) is None for name in reasons):
            raise ModelUnavailable(f"{self._model}: the stream broke off before its end")
        if (logprobs := joined_logprobs(chunks)) is not None:
            response = response.model_copy(update={"logprobs": logprobs})
        if not response.text.startswith(sent):
            response = response.model_copy(update={"text": sent})
        yield Delta(text=response.text[len(sent) :], response=response)

    async def aclose(self) -> None:
        """Close the connections that litellm keeps open for the running event loop.

        Later calls open new ones. The vendor shares connections between models, so call
        this at the end of a loop's work, not between calls.
        """
        await _close_connections(await open_vendor(self._use))

    async def _open(self) -> Vendor:
        await knock(self._model, self._api_base)
        return await open_vendor(self._use)

    async def _call(self, vendor: Vendor, request: ModelRequest, *, stream: bool) -> object:
        digest = "" if request.schema_ is None else content_id("sch", repr(request.schema_))
        with_schema = self._json_schema != "never" and digest not in self._refused_schemas
        try:
            return await self._send(vendor, request, stream=stream, with_schema=with_schema)
        except ModelError as error:
            refused = (
                with_schema
                and digest
                and request.options is None
                and type(error) in (ModelError, RequestRefused)
                and _SCHEMA_REFUSED.search(str(error))
            )
            if self._json_schema != "auto" or not refused:
                raise
        answer = await self._send(vendor, request, stream=stream, with_schema=False)
        self._refused_schemas.add(digest)
        return answer

    async def _send(
        self, vendor: Vendor, request: ModelRequest, *, stream: bool, with_schema: bool
    ) -> object:
        body: dict[str, object] = {
            **call_options(
                self._model,
                api_base=self._api_base,
                api_key=self._api_key,
                timeout_s=self._timeout_s,
            ),
            "drop_params": request.options is None,
            **(_CACHE_POINTS if _CACHE_MARKED.search(self._model) else {}),
            **self._extra,
            **request_body(request, with_schema=with_schema),
            "model": self._asked(request),
        }
        if request.tools and importlib.util.find_spec(_TOOL_DETOUR) is not None:
            body["_skip_mcp_handler"] = True
        allowed = [name for name in _EXTRAS if name in (request.options or {})]
        if self._json_schema == "always":
            allowed.append("response_format")
        if allowed:
            body["allowed_openai_params"] = allowed
        if stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        with self._errors.translated():
            async with asyncio.timeout(self._timeout_s):
                return await vendor.acompletion(**body)

    async def _next_chunk(self, source: AsyncIterator[Dumps]) -> Dumps | None:
        with self._errors.translated():
            async with asyncio.timeout(self._timeout_s):
                return await anext(source, None)

    def _response(
        self, vendor: Vendor, request: ModelRequest, answer: Dumps | None, started: float
    ) -> ModelResponse:
        raw = answer.model_dump(warnings=False) if answer is not None else {}
        choice = _choice(raw)
        message = choice.get("message")
        if not isinstance(message, dict):
            raise ModelUnavailable(
                f"{self._model}: the server's reply holds no message; check that base_url is "
                "an OpenAI-compatible endpoint (most end in /v1)"
            )
        calls = find_tool_calls(message)
        text = find_text(message)
        if choice.get("finish_reason") == "content_filter" and not (text.strip() or calls):
            raise ReplyWithheld(f"{self._model}: {WITHHELD}")
        return ModelResponse(
            id=f"res_{uuid4().hex}",
            text=text,
            tool_calls=calls,
            finish=finish_reason(choice.get("finish_reason"), asked_for_tools=bool(calls)),
            usage=self._usage(vendor, request, answer, raw, text).model_copy(
                update={"seconds": time.perf_counter() - started}
            ),
            model=str(raw.get("model") or self._model),
            logprobs=find_logprobs(choice),
        )

    def _usage(
        self,
        vendor: Vendor,
        request: ModelRequest,
        answer: Dumps | None,
        raw: JsonObject,
        text: str,
    ) -> Usage:
        """Read tokens and price; estimate tokens the provider does not count, without a price."""
        prompt, completion = (
            count_of(raw.get("usage"), name) for name in ("prompt_tokens", "completion_tokens")
        )
        cost: float | None = None
        try:
            if prompt or completion:
                cost = vendor.completion_cost(
                    completion_response=answer, model=self._asked(request)
                )
            else:
                prompt = vendor.token_counter(model=self._model, messages=_text_messages(request))
                completion = vendor.token_counter(model=self._model, text=text)
        except Exception:  # the vendor raises its own kinds for a model without a known price
            cost = None
        return Usage(calls=1, prompt_tokens=prompt, completion_tokens=completion, cost_usd=cost)


async def _close_connections(vendor: Vendor) -> None:
    """Close what the vendor keeps open for the running event loop."""
    cache = vendor.in_memory_llm_clients_cache
    ending = f"-{id(asyncio.get_running_loop())}"
    for key in [key for key in cache.cache_dict if key.endswith(ending)]:
        client = cache.cache_dict[key]
        cache.delete_cache(key)
        close: object = getattr(client, "close", None)
        if callable(close):
            closing = cast(Callable[[], object], close)()
            if isinstance(closing, Awaitable):
                await closing
    await asyncio.sleep(0)


def _text_messages(request: ModelRequest) -> list[JsonValue]:
    """Write messages without images: to count their tokens, the vendor would fetch them."""
    return chat_messages([message.model_copy(update={"parts": ()}) for message in request.messages])


def joined_logprobs(chunks: Sequence[Dumps]) -> JsonObject | None:
    """Join the log-probabilities of a stream's chunks; None where there are none."""
    tokens: list[JsonValue] = []
    for chunk in chunks:
        content = (find_logprobs(_choice(chunk.model_dump(warnings=False))) or {}).get("content")
        tokens += content if isinstance(content, list) else []
    return {"content": tokens} if tokens else None


def _choice(answer: JsonObject) -> JsonObject:
    """Return the first choice of an answer or a chunk, {} where there is none."""
    choices = answer.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    return choice if isinstance(choice, dict) else {}
