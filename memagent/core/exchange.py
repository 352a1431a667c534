"""Requests to a model and its responses.

The same two records serve a hosted provider, a scripted fake and a policy whose token
ids are recorded: only the model object differs. `tokens` is None unless the model kept
the sampler's ids.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field

from memagent.core.records import Id, Record, Text, is_empty, is_none

JsonSchema = dict[str, Any]


class Role(StrEnum):
    """The part of the agent that speaks; model routing, credit and budgets go by it."""

    EXTRACTOR = "extractor"
    MANAGER = "manager"
    INDEXER = "indexer"
    PLANNER = "planner"
    EXPLORER = "explorer"
    ANSWERER = "answerer"
    JUDGE = "judge"


class StepRef(Record):
    """The place of a model call in a run: session, chunk, ordinal within the role."""

    session_id: Text | None = None
    chunk_index: int | None = None
    question_id: Text | None = None
    call: int = 0


class ToolCall(Record):
    """A tool invocation that a model asks for; `arguments` is JSON as the model wrote it."""

    id: Id
    name: Id
    arguments: Text = "{}"


class ToolSpec(Record):
    """A tool offered to a model."""

    name: Id
    description: Text = ""
    parameters: JsonSchema = Field(default_factory=dict[str, Any])


class Message(Record):
    """One chat message.

    `tool_call_id` is set on tool results, `tool_calls` on assistant messages that ask
    for tools.
    """

    role: Literal["system", "user", "assistant", "tool"]
    content: Text = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: Text | None = None
    parts: Annotated[tuple[JsonSchema, ...], Field(exclude_if=is_empty)] = ()
    """Parts beside the text, such as images, in OpenAI's chat format."""


class Sampling(Record):
    """Decoding settings; None leaves the provider's default."""

    temperature: Annotated[float, Field(ge=0.0)] | None = None
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()


class ModelRequest(Record):
    """One call to a model."""

    role: Role
    step: StepRef = StepRef()
    messages: tuple[Message, ...]
    schema_: JsonSchema | None = Field(default=None, alias="schema")
    """JSON Schema the text should follow, where the provider can enforce one."""
    tools: tuple[ToolSpec, ...] = ()
    sampling: Sampling = Sampling()
    prompt_digest: str = ""
    """Digest of the prompt file the messages were made from, for traces."""
    options: Annotated[dict[str, Any] | None, Field(exclude_if=is_none)] = None
    """Fields of OpenAI's chat format that go to the provider as they are.

    What the provider cannot do is then an error (`RequestRefused`); with None it is
    left out.
    """

    model_config = {"populate_by_name": True}


class FinishReason(StrEnum):
    """The reason why the model stopped."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"
    CONTENT_FILTER = "content_filter"
    OTHER = "other"


class Usage(Record):
    """Tokens, money and time of one call or of many added up.

    `cost_usd` is None when the price is unknown.
    """

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float | None = 0.0
    seconds: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        known = self.cost_usd is not None and other.cost_usd is not None
        return Usage(
            calls=self.calls + other.calls,
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            cost_usd=(self.cost_usd or 0.0) + (other.cost_usd or 0.0) if known else None,
            seconds=self.seconds + other.seconds,
        )


class TokenTrace(Record):
    """The sampler's own ids, never re-tokenised, and log-probabilities in nats.

    Shapes: prompt (P,), completion (C,), log-probabilities (C,).
    """

    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    policy_version: int


class ModelResponse(Record):
    """One response of a model."""

    id: Id
    text: Text = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish: FinishReason = FinishReason.STOP
    usage: Usage = Usage()
    model: Text = ""
    """Name of the model as the provider reports it."""
    tokens: TokenTrace | None = Field(default=None, repr=False)
    logprobs: Annotated[JsonSchema | None, Field(exclude_if=is_none, repr=False)] = None
    """Log-probabilities as the provider sent them, where the request asked for them."""


class Delta(Record):
    """A piece of streamed text; the last one carries the whole response."""

    text: Text = ""
    response: ModelResponse | None = None
