"""OpenAI's chat format: what a request may say, and what is refused.

What is named here has its effect, goes to the model as it is, or is refused by name.
What only concerns OpenAI's own service (`service_tier`, `prompt_cache_key`,
`safety_identifier`) is accepted.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Annotated, Any, Final, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, field_validator

from memagent.client.http import ServiceError
from memagent.core.exchange import (
    JsonSchema,
    Message,
    Sampling,
    ToolCall,
    ToolSpec,
)
from memagent.protocols import Matrix
from memagent.service.routes.client_model import Parts, unsupported

MODEL_NAME: Final = "memagent"
MEMORY_SWITCH: Final = "memagent.memory"
"""The key of `metadata` that turns memory `off` for one request."""
_Text = Annotated[str, Field(max_length=200_000)]
_Name = Annotated[str, Field(min_length=1, max_length=256)]
_NEUTRAL: Final[dict[str, tuple[Any, ...]]] = {
    "store": (False,),
    "modalities": (["text"],),
    "functions": ([],),
    "function_call": ("none",),
}
"""Fields that are not supported, with the values that ask for nothing."""
_ACCEPTED: Final = frozenset(
    {
        "service_tier",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "safety_identifier",
    }
)
"""Fields about OpenAI's own service, without effect here."""
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
"""Fields that go to the model as they are, with the values that ask for nothing."""
_PART_KINDS: Final = {"image_url": "[image]", "input_audio": "[audio]", "file": "[file]"}
"""Parts that go to the model, with the words that stand for a message without text."""


def refuse_unknown(extra: dict[str, Any]) -> None:
    """Raise `ServiceError` for a field that is not known or not supported."""
    for name, value in extra.items():
        asks = value is not None and value not in _NEUTRAL.get(name, ())
        if asks and name not in _ACCEPTED:
            raise unsupported(name)


def memory_wanted(metadata: dict[str, str] | None) -> bool:
    """Return whether a request's metadata leaves memory on. Raises `ServiceError`."""
    for name, value in (metadata or {}).items():
        if name.startswith("memagent.") and (name != MEMORY_SWITCH or value not in ("on", "off")):
            raise unsupported("metadata", f"may hold `{MEMORY_SWITCH}`: on or off")
    return (metadata or {}).get(MEMORY_SWITCH) != "off"


class Part(BaseModel):
    """A part of a message: text, or what goes to the model as it is."""

    model_config = ConfigDict(extra="allow")

    type: Annotated[str, Field(max_length=64)]
    text: _Text = ""


class CalledFunction(BaseModel):
    """The function that a tool call names, with arguments as JSON text."""

    name: _Name
    arguments: _Text = "{}"


class CalledTool(BaseModel):
    """A tool call in OpenAI's format."""

    id: _Name
    type: Literal["function"] = "function"
    function: CalledFunction


class ChatMessage(BaseModel):
    """A message in OpenAI's format."""

    model_config = ConfigDict(extra="ignore")

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: _Text | Annotated[list[Part], Field(max_length=100)] | None = None
    name: Annotated[str, Field(max_length=256)] | None = None
    tool_calls: Annotated[list[CalledTool], Field(max_length=128)] | None = None
    tool_call_id: _Name | None = None

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
        """Return an assistant's tool calls or a tool's result for the model."""
        calls = tuple(
            ToolCall(id=call.id, name=call.function.name, arguments=call.function.arguments)
            for call in self.tool_calls or ()
        )
        role = "tool" if self.role == "tool" else "assistant"
        return Message(
            role=role, content=self.text, tool_calls=calls, tool_call_id=self.tool_call_id
        )


class Function(BaseModel):
    """A function that the model may call."""

    model_config = ConfigDict(extra="forbid")

    name: _Name
    description: _Text | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class OfferedTool(BaseModel):
    """A tool in OpenAI's format."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["function"]
    function: Function


class StreamOptions(BaseModel):
    """Options of a stream."""

    model_config = ConfigDict(extra="ignore")

    include_usage: bool = False


class ChatCompletionRequest(BaseModel):
    """A request in OpenAI's format.

    Fields that are not named here are refused, but for those that concern OpenAI's own
    service alone.
    """

    model_config = ConfigDict(extra="allow")

    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=1_000)]
    model: Annotated[str, Field(max_length=256)] = MODEL_NAME
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    max_tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    seed: Annotated[int, Field(ge=-(2**62), le=2**62)] | None = None
    stop: Annotated[tuple[_Name, ...], Field(max_length=4)] | None = None
    tools: Annotated[list[OfferedTool], Field(max_length=128)] | None = None
    tool_choice: Literal["auto", "none", "required"] | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
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
    metadata: Annotated[dict[str, _Text], Field(max_length=16)] | None = None
    """`memagent.memory: off` recalls and remembers nothing; other keys are accepted."""
    user: Annotated[str, Field(max_length=1_000)] | None = None
    """Whose memory it is, unless the key is bound to a user."""

    @field_validator("stop", mode="before")
    @classmethod
    def _listed(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    def check(self) -> None:
        """Raise `ServiceError` for another model and for what is not supported."""
        check_model(self.model)
        refuse_unknown(self.model_extra or {})
        named = {tool.function.name for tool in self.tools or ()}
        if isinstance(choice := self.tool_choice, dict):
            function: object = choice.get("function")
            fields = cast("dict[str, object]", function if isinstance(function, dict) else {})
            name = fields.get("name")
            if choice.get("type") != "function" or name not in named:
                raise unsupported("tool_choice", "names no function of `tools`")
        elif choice == "required" and not named:
            raise unsupported("tool_choice", "is 'required', and there are no `tools`")

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
        kind = (self.response_format or {"type": "text"}).get("type")
        if kind == "text":
            return None
        if kind == "json_object":
            return {"type": "object"}
        named: object = (self.response_format or {}).get("json_schema")
        fields = cast("dict[str, object]", named if isinstance(named, dict) else {})
        schema = fields.get("schema")
        if kind != "json_schema" or not isinstance(schema, dict):
            raise unsupported("response_format", "is text, json_object or a json_schema")
        return cast("JsonSchema", schema)


def check_model(name: str) -> None:
    """Raise `ServiceError` for a model that is not listed."""
    if name != MODEL_NAME:
        raise ServiceError(
            f"the model {name[:100]!r} does not exist; there is {MODEL_NAME!r}",
            status=404,
            code="model_not_found",
        )


class EmbeddingRequest(BaseModel):
    """Texts to embed, in OpenAI's format."""

    model_config = ConfigDict(extra="ignore")

    input: _Text | Annotated[tuple[_Text, ...], Field(min_length=1, max_length=2_048)]
    model: Annotated[str, Field(max_length=256)] = MODEL_NAME
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None


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
