"""OpenAI's chat format: what a request may say, what is refused, and the chunks of a stream.

What is named here has its effect, what would change the answer and is not supported is
refused by name, and what only concerns OpenAI's own service (`store`, `metadata`,
`service_tier`, `user`) is accepted.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Annotated, Any, Final, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, field_validator

from memagent.client.faults import ServiceError
from memagent.core.answers import Reply
from memagent.core.exchange import JsonSchema, Message, Sampling, ToolCall, ToolSpec
from memagent.protocols import Matrix

MODEL_NAME: Final = "memagent"
_Text = Annotated[str, Field(max_length=200_000)]
_Name = Annotated[str, Field(min_length=1, max_length=256)]
_REFUSED: Final[dict[str, tuple[Any, ...]]] = {
    "n": (1,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "logit_bias": ({},),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "parallel_tool_calls": (True,),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "functions": ([],),
    "function_call": ("none",),
    "web_search_options": (),
    "reasoning_effort": (),
    "verbosity": (),
}
"""Fields that are not supported, with the values that ask for nothing."""


def unsupported(name: str, why: str = "is not supported") -> ServiceError:
    """Return the error for a field that a request may not use."""
    return ServiceError(f"`{name}` {why}", status=400, code="unsupported_parameter")


class Part(BaseModel):
    """A part of a message; only text can be read."""

    model_config = ConfigDict(extra="ignore")

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
        """The text of all its parts. Raises `ServiceError` for a part that is no text."""
        if self.content is None or isinstance(self.content, str):
            return self.content or ""
        for part in self.content:
            if part.type != "text":
                raise unsupported("messages", f"holds a part of type {part.type!r}; only text is")
        return "\n".join(part.text for part in self.content)

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

    model_config = ConfigDict(extra="ignore")

    name: _Name
    description: _Text | None = None
    parameters: dict[str, Any] | None = None


class OfferedTool(BaseModel):
    """A tool in OpenAI's format."""

    type: Literal["function"]
    function: Function


class StreamOptions(BaseModel):
    """Options of a stream."""

    model_config = ConfigDict(extra="ignore")

    include_usage: bool = False


class ChatCompletionRequest(BaseModel):
    """A request in OpenAI's format.

    `n`, `logprobs` and others that are not supported are refused; other fields that are
    not named here are accepted and have no effect.
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
    tool_choice: str | dict[str, Any] | None = None
    """`auto` or `none`."""
    response_format: dict[str, Any] | None = None
    user: Annotated[str, Field(max_length=1_000)] | None = None
    """Accepted for compatibility; whose memory it is, is said by the key."""

    @field_validator("stop", mode="before")
    @classmethod
    def _listed(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    def check(self) -> None:
        """Raise `ServiceError` for another model and for what is not supported."""
        check_model(self.model)
        for name, value in (self.model_extra or {}).items():
            if name in _REFUSED and value is not None and value not in _REFUSED[name]:
                raise unsupported(name)
        if self.tool_choice not in (None, "auto", "none"):
            raise unsupported("tool_choice", "can be 'auto' or 'none' here")

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


class ChatChoice(BaseModel):
    """One answer."""

    index: int = 0
    message: dict[str, Any]
    finish_reason: str
    logprobs: None = None


class ChatCompletion(BaseModel):
    """An answer in OpenAI's format."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: dict[str, int]


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


def message_of(reply: Reply) -> dict[str, Any]:
    """Return a reply as an assistant's message."""
    calls = tool_calls_of(reply)
    words = {"role": "assistant", "content": reply.text or (None if calls else "")}
    return {**words, "tool_calls": calls} if calls else words


def tool_calls_of(reply: Reply) -> list[dict[str, Any]]:
    """Return the calls of the caller's tools that a reply asks for."""
    return [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for call in reply.tool_calls
    ]


def usage_of(reply: Reply | None) -> dict[str, int]:
    """Return the tokens that a reply took."""
    prompt = reply.usage.prompt_tokens if reply is not None else 0
    completion = reply.usage.completion_tokens if reply is not None else 0
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
