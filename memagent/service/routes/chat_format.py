"""OpenAI's chat format: what a request may say, and what is refused.

What is named here has its effect, goes to the model as it is, or is refused by name.
What only concerns OpenAI's own service (`service_tier`, `prompt_cache_key`,
`safety_identifier`) is accepted.

The model of one request: what a client of OpenAI's API asked for beside the words.

The chat graph knows nothing of such wishes; they travel with the model that it is
handed. The surprise: further choices (`n`) are separate calls, since not every provider
draws several from one; their tokens are added up.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from memagent.client.http import ServiceError
from memagent.core.errors import InputError, fault_in
from memagent.core.exchange import (
    Delta,
    JsonSchema,
    Message,
    ModelRequest,
    ModelResponse,
    Role,
    Sampling,
    ToolCall,
    ToolSpec,
    Usage,
)
from memagent.llm.wrappers import ModelWrapper, name_of, stream_of, takes_options
from memagent.protocols import ChatModel, Matrix
from memagent.readers.files import object_in

MODEL_NAME: Final = "memagent"
NO_MEMORY: Final = ":nomemory"
"""The end of a model's name that turns memory off for one request."""
MEMORY_SWITCH: Final = "memagent.memory"
"""The key of `metadata` that turns memory `off` for one request."""
Text = Annotated[str, Field(max_length=200_000)]
Name = Annotated[str, Field(min_length=1, max_length=256)]
Item = dict[str, Any]
# Fields that are not supported, with the values that ask for nothing.
_NEUTRAL: Final[dict[str, tuple[Any, ...]]] = {
    "modalities": (["text"],),
    "functions": ([],),
    "function_call": ("none",),
    "suffix": ("",),
    "echo": (False,),
    "best_of": (1,),
}
# Fields about OpenAI's own service, without effect here.
_ACCEPTED: Final = frozenset(
    {
        "service_tier",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "safety_identifier",
        "client_metadata",
    }
)
# Fields that go to the model as they are, with the values that ask for nothing.
_PASSED: Final[dict[str, tuple[Any, ...]]] = {
    "logprobs": (False,),
    "top_logprobs": (),
    "logit_bias": ({},),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "parallel_tool_calls": (True,),
    "reasoning_effort": (),
    "verbosity": (),
}
# Extras that only some providers know; they go to a model that takes options.
_SAMPLERS: Final = frozenset({"top_k", "min_p", "top_a", "typical_p", "repetition_penalty"})
# Fields that ask for extras alone: without effect they are dropped, and the answer says so.
_EXTRAS: Final = _SAMPLERS | {
    *("store", "include", "reasoning", "keep_alive", "think", "thinking", "usage", "num_ctx"),
    *("cache_control", "context_management"),
}
# Parts that go to the model, with the words that stand for a message without text.
_PART_KINDS: Final = {"image_url": "[image]", "input_audio": "[audio]", "file": "[file]"}


def refuse_unknown(extra: dict[str, Any]) -> None:
    """Raise `ServiceError` for a field that is not known or not supported."""
    for name, value in extra.items():
        asks = value is not None and value not in _NEUTRAL.get(name, ())
        if asks and name not in _ACCEPTED | _EXTRAS:
            raise unsupported(name)


class Part(BaseModel):
    """A part of a message: text, or what goes to the model as it is."""

    model_config = ConfigDict(extra="allow")

    type: Annotated[str, Field(max_length=64)]
    text: Text = ""


class CalledFunction(BaseModel):
    """The function that a tool call names, with arguments as JSON text."""

    name: Name
    arguments: Text = "{}"


class CalledTool(BaseModel):
    """A tool call in OpenAI's format."""

    id: Name
    type: Literal["function"] = "function"
    function: CalledFunction


class ChatMessage(BaseModel):
    """A message in OpenAI's format."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Text | Annotated[list[Part], Field(max_length=100)] | None = None
    name: Annotated[str, Field(max_length=256)] | None = None
    tool_calls: Annotated[list[CalledTool], Field(max_length=128)] | None = None
    tool_call_id: Name | None = None

    @property
    def text(self) -> str:
        """The text of all its parts, or words for what a message without text holds.

        Raises `ServiceError` for a part that is not supported.
        """
        if self.content is None or isinstance(self.content, str):
            return self.content or ""
        words = [part.text for part in self.content if part.type in ("text", "refusal")]
        others = [_PART_KINDS[str(part["type"])] for part in self.parts]
        return "\n".join(words) or " ".join(others)

    @property
    def parts(self) -> Parts:
        """The parts beside its text, as they came. Raises `ServiceError`."""
        if self.content is None or isinstance(self.content, str):
            return ()
        others = [part for part in self.content if part.type not in ("text", "refusal")]
        for part in others:
            if part.type not in _PART_KINDS or self.role != "user":
                raise unsupported("messages", f"holds a part of type {part.type!r}")
            if isinstance(file := (part.model_extra or {}).get("file"), dict) and (
                "file_id" in file
            ):
                raise unsupported("messages", "names a file by id; send its data")
        return tuple(part.model_dump(exclude={"text"}) for part in others)

    def as_message(self) -> Message:
        """Return the message for the model."""
        calls = tuple(
            ToolCall(id=call.id, name=call.function.name, arguments=call.function.arguments)
            for call in self.tool_calls or ()
        )
        return Message(
            role="system" if self.role == "developer" else self.role,
            content=self.text,
            tool_calls=calls,
            tool_call_id=self.tool_call_id,
            parts=self.parts,
        )


class Function(BaseModel):
    """A function that the model may call."""

    model_config = ConfigDict(extra="forbid")

    name: Name
    description: Text | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class OfferedTool(BaseModel):
    """A tool in OpenAI's format."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["function"]
    function: Function


class StreamOptions(BaseModel):
    """Options of a stream."""

    include_usage: bool = False


class Settings(BaseModel):
    """The settings that OpenAI's formats have in common, in requests and in answers."""

    model: Annotated[str, Field(max_length=256)] = MODEL_NAME
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    tool_choice: Literal["auto", "none", "required"] | dict[str, Any] | None = "auto"
    parallel_tool_calls: bool | None = True
    metadata: Annotated[dict[str, Text], Field(max_length=16)] | None = {}
    """`memagent.memory: off` recalls and remembers nothing."""
    user: Annotated[str, Field(max_length=1_000)] | None = None
    """Whose memory it is, unless the key is bound to a user."""


class ChatCompletionRequest(Settings):
    """A request in OpenAI's format.

    Fields that are not named here are refused, but for those that concern OpenAI's own
    service alone.
    """

    model_config = ConfigDict(extra="allow")

    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=1_000)]
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    seed: Annotated[int, Field(ge=-(2**62), le=2**62)] | None = None
    stop: Annotated[tuple[Name, ...], Field(max_length=4)] | None = None
    tools: Annotated[list[OfferedTool], Field(max_length=128)] | None = None
    response_format: dict[str, Any] | None = None
    n: Annotated[int, Field(ge=1, le=16)] | None = None
    """Choices; the first one is remembered."""
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    logit_bias: dict[str, float] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    reasoning_effort: Annotated[str, Field(max_length=32)] | None = None
    verbosity: Annotated[str, Field(max_length=32)] | None = None

    @field_validator("stop", mode="before")
    @classmethod
    def _listed(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    def check(self) -> None:
        """Raise `ServiceError` for what is not supported."""
        refuse_unknown(self.model_extra or {})
        named = {tool.function.name for tool in self.tools or ()}
        match self.tool_choice:
            case {"type": "function", "function": {"name": str(name)}} if name in named:
                pass
            case dict():
                raise unsupported("tool_choice", "names no function of `tools`")
            case "required" if not named:
                raise unsupported("tool_choice", "is 'required', and there are no `tools`")
            case _:
                pass

    def extras(self, *, sampling: bool) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Return the extras for the model, where it takes `sampling`, and names of the others."""
        asked = {
            name: value
            for name, value in (self.model_extra or {}).items()
            if name in _EXTRAS and value not in (None, False, [], {})
        }
        sent = {name: asked[name] for name in asked if sampling and name in _SAMPLERS}
        return sent, tuple(sorted(asked.keys() - sent.keys()))

    @property
    def options(self) -> dict[str, Any]:
        """The fields that go to the model as they are."""
        sent = self.model_dump(include=set(_PASSED), exclude_none=True)
        options = {name: value for name, value in sent.items() if value not in _PASSED[name]}
        if self.client_tools:
            options["tools"] = [tool.model_dump(exclude_none=True) for tool in self.tools or ()]
            if self.tool_choice not in (None, "auto"):
                options["tool_choice"] = self.tool_choice
        else:
            options.pop("parallel_tool_calls", None)
        if self.schema_wanted is not None:
            options["response_format"] = self.response_format
        return options

    @property
    def sampling(self) -> Sampling:
        """The settings by which the model decodes."""
        return Sampling(
            temperature=self.temperature,
            top_p=self.top_p,
            max_tokens=self.max_completion_tokens or self.max_tokens,
            seed=self.seed,
            stop=self.stop or (),
        )

    @property
    def client_tools(self) -> tuple[ToolSpec, ...]:
        """The tools that the caller runs."""
        if self.tool_choice == "none":
            return ()
        return tuple(
            ToolSpec(
                name=tool.function.name,
                description=tool.function.description or "",
                parameters=tool.function.parameters or {"type": "object", "properties": {}},
            )
            for tool in self.tools or ()
        )

    @property
    def schema_wanted(self) -> JsonSchema | None:
        """The JSON Schema that the answer has to follow. Raises `ServiceError`."""
        match self.response_format or {"type": "text"}:
            case {"type": "text"}:
                return None
            case {"type": "json_object"}:
                return {"type": "object"}
            case {"type": "json_schema", "json_schema": {"schema": {**schema}}}:
                return cast("JsonSchema", schema)
            case _:
                raise unsupported("response_format", "is text, json_object or a json_schema")


def chat_request(fields: dict[str, Any]) -> ChatCompletionRequest:
    """Return the request with these fields. Raises `InputError` for what is wrong."""
    try:
        return ChatCompletionRequest.model_validate(fields)
    except ValidationError as exc:
        raise InputError(fault_in(exc)) from exc


def chat_part(part: dict[str, Any], field: str) -> dict[str, Any]:
    """Return a part of another format, which stands in a `field`, as one of this format.

    Raises `ServiceError` for one that cannot be read.
    """
    match part:
        case {"type": "text" | "input_text" | "output_text"}:
            return {"type": "text", "text": part.get("text")}
        case {"type": "refusal"}:
            return {"type": "text", "text": part.get("refusal")}
        case {"type": "document", "source": {"type": "text", "data": str(text)}}:
            return {"type": "text", "text": text}
        case {"type": "input_image", "image_url": str(url)}:
            image = {"url": url, "detail": part.get("detail") or "auto"}
            return {"type": "image_url", "image_url": image}
        case {"type": "image", "source": {"type": "url", "url": str(url)}}:
            return {"type": "image_url", "image_url": {"url": url}}
        case {
            "type": "image",
            "source": {"type": "base64", "media_type": str(kind), "data": str(data)},
        }:
            return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{data}"}}
        case {"type": "input_file", "file_data": str(data)}:
            return {"type": "file", "file": {"filename": part.get("filename"), "file_data": data}}
        case {
            "type": "document",
            "source": {"type": "base64", "media_type": str(kind), "data": str(data)},
        }:
            return {"type": "file", "file": {"file_data": f"data:{kind};base64,{data}"}}
        case _:
            kind = str(part.get("type"))[:100]
            raise unsupported(field, f"holds a part of type {kind!r} that cannot be read")


def chosen_model(name: str, listed: Sequence[str] | None) -> dict[str, str]:
    """Return the option that asks for a model of the provider, {} for the agent's own.

    Raises `ServiceError` for a model that is not listed.
    """
    plain = name.removesuffix(NO_MEMORY)
    if plain == MODEL_NAME:
        return {}
    if listed is None or (listed and plain not in listed):
        raise ServiceError(
            f"the model {name[:100]!r} does not exist; there is {MODEL_NAME!r}",
            status=404,
            code="model_not_found",
        )
    return {"model": plain}


class CompletionRequest(BaseModel):
    """A text to go on with, in OpenAI's oldest format; other fields are those of chat."""

    model_config = ConfigDict(extra="allow")

    prompt: Text | Annotated[list[Text], Field(min_length=1, max_length=1)]
    model: Annotated[str, Field(max_length=256)] = MODEL_NAME
    stream: bool | None = False
    logprobs: int | None = None

    def as_chat(self) -> ChatCompletionRequest:
        """Return the request in the chat format. Raises `ServiceError`, `InputError`."""
        if self.logprobs:
            raise unsupported("logprobs")
        text = self.prompt if isinstance(self.prompt, str) else self.prompt[0]
        fields = {
            "model": self.model,
            "messages": [{"role": "user", "content": text}],
            "stream": self.stream,
            "metadata": {MEMORY_SWITCH: "off"},
        }
        return chat_request({**(self.model_extra or {}), **fields})


_Tokens = Annotated[tuple[int, ...], Field(min_length=1, max_length=8_192)]


class EmbeddingRequest(BaseModel):
    """Texts to embed, in OpenAI's format."""

    input: (
        Text
        | _Tokens
        | Annotated[tuple[Text, ...] | tuple[_Tokens, ...], Field(min_length=1, max_length=2_048)]
    )
    """Texts, or token ids of OpenAI's `cl100k_base`."""
    model: Annotated[str, Field(max_length=256)] = MODEL_NAME
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None

    @property
    def texts(self) -> Sequence[str | Sequence[int]]:
        """The texts, or their token ids."""
        one = isinstance(self.input, str) or isinstance(self.input[0], int)
        return cast("Sequence[str | Sequence[int]]", (self.input,) if one else self.input)


class Embedding(BaseModel):
    """One vector, as numbers or as base64 of little-endian float32."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class EmbeddingList(BaseModel):
    """Vectors in OpenAI's format; tokens are not counted."""

    object: Literal["list"] = "list"
    model: str = MODEL_NAME
    data: list[Embedding]
    usage: dict[str, int]

    @classmethod
    def of(cls, vectors: Matrix, *, base64: bool) -> EmbeddingList:
        """Return the rows of a matrix (N, D) as a list."""
        rows = vectors.astype("<f4")
        shown = [b64encode(row.tobytes()).decode() if base64 else row.tolist() for row in rows]
        data = [Embedding(index=at, embedding=vector) for at, vector in enumerate(shown)]
        return cls(data=data, usage={"prompt_tokens": 0, "total_tokens": 0})


Parts = tuple[dict[str, Any], ...]
"""Parts of a message beside its text, in OpenAI's chat format."""
# Options that the request's own fields say as well.
_BY_ANY_MODEL: Final = frozenset({"tools", "response_format"})
ANSWERING: Final = ModelRequest(role=Role.ANSWERER, messages=())
"""What a model is asked about its abilities with."""
# Providers that load the address of an image themselves; for others this service would.
_FETCHED_BY_PROVIDER: Final = ("openai/", "azure/")


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """The wishes of a request to the model, in OpenAI's chat format."""

    request: ModelRequest
    """Its sampling, schema, options and tools, with the messages after the one to reply to,
    or with all of them where memory is off.
    """
    choices: int = 1
    history: tuple[tuple[str, Parts], ...] = ()
    """Text and other parts of the messages up to the one to reply to."""
    responses: list[ModelResponse] = field(default_factory=list[ModelResponse])
    """The model's answers, one a choice, once it has answered."""

    def check(self, model: ChatModel | None) -> None:
        """Raise `ServiceError` for what the model, or its absence, cannot do."""
        parts = [part for _, parts in self.history for part in parts]
        options = self.request.options or {}
        named = sorted(options.keys() - _BY_ANY_MODEL) + ["messages"] * bool(parts)
        if model is None:
            named += sorted(_BY_ANY_MODEL & options.keys()) + ["n"] * (self.choices > 1)
            if named:
                raise unsupported(named[0], "needs a language model, and none is set")
            return
        if named and not takes_options(model, ANSWERING):
            raise unsupported(named[0], "is not supported by the model that is set")
        if not name_of(model, ANSWERING).startswith(_FETCHED_BY_PROVIDER):
            for part in parts:
                if _address(part).lower().startswith(("http:", "https:")):
                    raise unsupported("messages", "names an image by address; send it as data:")


def unsupported(name: str, why: str = "is not supported") -> ServiceError:
    """Return the error for a field that a request may not use."""
    return ServiceError(f"`{name}` {why}", status=400, code="unsupported_parameter")


class ClientModel(ModelWrapper):
    """Asks the model with the wishes of one request, and keeps its answers.

    They go with what is streamed to the person who answers; other calls pass as they are.
    """

    def __init__(self, model: ChatModel, wishes: Wishes) -> None:
        super().__init__(model)
        self._wishes = wishes

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Stream the first choice; its last piece comes when all choices are there."""
        if request.role is not Role.ANSWERER:
            async with aclosing(stream_of(self._model, request)) as deltas:
                async for delta in deltas:
                    yield delta
            return
        messages = _with_parts(request.messages, self._wishes.history)
        wished = {"messages": messages, "options": self._wishes.request.options}
        asked = request.model_copy(update=wished)
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


def _of_choice(request: ModelRequest, number: int) -> ModelRequest:
    """Return the request of a further choice: with a seed of its own where one is set."""
    seed = request.sampling.seed
    seeded = {"seed": seed + number if seed is not None else None}
    return request.model_copy(update={"sampling": request.sampling.model_copy(update=seeded)})


def _with_parts(
    messages: Sequence[Message], history: Sequence[tuple[str, Parts]]
) -> tuple[Message, ...]:
    """Return the messages with the parts of the history that they show the end of.

    The last user message is the one to reply to, whatever stands around its words.
    """
    out = list(messages)
    place = max((at for at, message in enumerate(out) if message.role == "user"), default=-1)
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
    address = object_in(value).get("url") or object_in(value).get("file_data") or value
    return address if isinstance(address, str) else ""
