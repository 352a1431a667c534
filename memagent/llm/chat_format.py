"""Our records to the OpenAI chat format and back: pure functions over plain JSON.

Nothing that a model wrote is refused here: a nameless tool call gets a name, an unknown
finish reason becomes `other`, a missing count becomes 0. The surprise: some servers
leave `content` empty and put the answer in a reasoning field, and some put their
thoughts in `content` between `<think>` tags; `find_text` finds the answer in both
cases.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import cast

from pydantic import JsonValue

from memagent.core.exchange import (
    FinishReason,
    JsonSchema,
    Message,
    ModelRequest,
    Sampling,
    ToolCall,
    ToolSpec,
)

JsonObject = dict[str, JsonValue]

_HIDDEN_FIELDS = ("reasoning_content", "reasoning", "thinking", "thinking_blocks", "refusal")
_THOUGHT = re.compile(r"\s*<(think|thinking)>.*?</\1>", re.DOTALL)
_THOUGHT_TAGS = ("<think>", "<thinking>")
_FINISH = {
    "function_call": FinishReason.TOOL_CALLS,
    **{reason.value: reason for reason in FinishReason},
}


def chat_messages(messages: Sequence[Message]) -> list[JsonValue]:
    """Write messages in wire form; one that only asks for tools has null content."""
    return [_chat_message(message) for message in messages]


def _chat_message(message: Message) -> JsonObject:
    wire: JsonObject = {"role": message.role, "content": message.content}
    if message.parts:
        words: list[JsonValue] = [{"type": "text", "text": message.content}]
        wire["content"] = [*words, *message.parts] if message.content else [*message.parts]
    if message.tool_calls:
        wire["content"] = message.content or None
        wire["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        wire["tool_call_id"] = message.tool_call_id
    return wire


def chat_tools(tools: Sequence[ToolSpec]) -> list[JsonValue]:
    """Write tools in wire form; a tool without parameters gets an empty object schema."""
    empty: JsonObject = {"type": "object", "properties": {}}
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": cast(JsonObject, tool.parameters) or empty,
            },
        }
        for tool in tools
    ]


def chat_sampling(sampling: Sampling) -> JsonObject:
    """Write the decoding settings that were set."""
    wire: JsonObject = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_tokens": sampling.max_tokens,
        "seed": sampling.seed,
        "stop": list(sampling.stop) or None,
    }
    return {name: value for name, value in wire.items() if value is not None}


def response_format(schema: JsonSchema, *, name: str) -> JsonObject:
    """Write a `response_format` for `schema`; `strict` only where the schema allows it."""
    plain = cast(JsonObject, schema)
    safe_name = re.sub(r"[^A-Za-z0-9_-]", "_", str(plain.get("title") or name))[:64]
    return {
        "type": "json_schema",
        "json_schema": {"name": safe_name, "schema": plain, "strict": allows_strict(plain)},
    }


def allows_strict(schema: JsonValue) -> bool:
    """Say whether every object in the schema is closed and requires all its properties.

    Strict decoding demands it.
    """
    if isinstance(schema, list):
        return all(allows_strict(part) for part in schema)
    if not isinstance(schema, dict):
        return True
    properties = schema.get("properties")
    if schema.get("type") == "object" or isinstance(properties, dict):
        names: set[str] = set(properties) if isinstance(properties, dict) else set()
        required = schema.get("required")
        listed = {str(name) for name in required} if isinstance(required, list) else set[str]()
        if schema.get("additionalProperties") is not False or names != listed:
            return False
    return all(allows_strict(part) for part in schema.values())


def request_body(request: ModelRequest, *, with_schema: bool) -> JsonObject:
    """Write a request's messages, sampling, tools and, with `with_schema`, its schema.

    The request's own options come last.
    """
    body: JsonObject = {
        "messages": chat_messages(request.messages),
        **chat_sampling(request.sampling),
    }
    if request.tools:
        body["tools"] = chat_tools(request.tools)
    if with_schema and request.schema_ is not None:
        body["response_format"] = response_format(request.schema_, name=request.role.value)
    return body | (request.options or {})


def find_text(message: Mapping[str, JsonValue]) -> str:
    """Find the answer in an assistant message.

    It is the content without thoughts, or else the first reasoning field with text.
    """
    visible = without_thought(_flat_text(message.get("content")))
    if visible.strip() or message.get("tool_calls"):
        return visible
    return _hidden_text(message) or visible


def _hidden_text(message: Mapping[str, JsonValue]) -> str:
    for name in _HIDDEN_FIELDS:
        text = _flat_text(message.get(name))
        if text.strip():
            return without_thought(text)
    nested = message.get("provider_specific_fields")
    return _hidden_text(nested) if isinstance(nested, dict) else ""


def _flat_text(value: JsonValue) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(_flat_text(part) for part in value)
    if isinstance(value, dict):
        return _flat_text(value.get("text") or value.get("thinking") or value.get("content"))
    return ""


def without_thought(text: str) -> str:
    """Drop a leading `<think>...</think>` block; one that never closes stays."""
    match = _THOUGHT.match(text)
    return text[match.end() :] if match else text


class ThoughtFilter:
    """Holds back a leading `<think>` block and leading blanks of streamed text.

    The pieces add up to `find_text`.
    """

    def __init__(self) -> None:
        self._held = ""
        self._thought_over = False
        self._open = False

    def feed(self, piece: str) -> str:
        """Return the part of the stream that may be shown now; "" while undecided."""
        if self._open:
            return piece
        self._held += piece
        if not self._thought_over:
            start = self._held.lstrip()
            tagged = any(tag.startswith(start) or start.startswith(tag) for tag in _THOUGHT_TAGS)
            if tagged and (">" not in piece or not _THOUGHT.match(start)):
                return ""
            self._thought_over = True
            self._held = without_thought(self._held)
        self._open = bool(self._held.strip())
        return self._held if self._open else ""


def find_tool_calls(message: Mapping[str, JsonValue]) -> tuple[ToolCall, ...]:
    """Read the tool calls of an assistant message.

    Missing ids and names are filled in, so that each call can be answered.
    """
    calls: list[ToolCall] = []
    listed = message.get("tool_calls")
    for index, raw in enumerate(listed if isinstance(listed, list) else []):
        call = raw if isinstance(raw, dict) else {}
        function = call.get("function")
        function = function if isinstance(function, dict) else {}
        arguments = function.get("arguments")
        calls.append(
            ToolCall(
                id=str(call.get("id") or f"call_{index}")[:256],
                name=str(function.get("name") or "unnamed")[:256],
                arguments=arguments if isinstance(arguments, str) and arguments else "{}",
            )
        )
    return tuple(calls)


def find_logprobs(choice: Mapping[str, JsonValue]) -> JsonObject | None:
    """Read the log-probabilities of a choice; None where the provider sent none."""
    value = choice.get("logprobs")
    return value if isinstance(value, dict) and value.get("content") else None


def finish_reason(raw: JsonValue, *, asked_for_tools: bool) -> FinishReason:
    """Read why the model stopped; `stop` beside tool calls is read as `tool_calls`."""
    reason = _FINISH.get(raw, FinishReason.OTHER) if isinstance(raw, str) else FinishReason.OTHER
    return FinishReason.TOOL_CALLS if asked_for_tools and reason is FinishReason.STOP else reason


def count_of(block: JsonValue, name: str) -> int:
    """Read a non-negative count of a usage block; 0 when it is missing or no integer."""
    value = block.get(name) if isinstance(block, dict) else None
    return max(0, value) if isinstance(value, int) else 0
