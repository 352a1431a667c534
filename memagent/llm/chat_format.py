"""Our records to the OpenAI chat format and back: pure functions over plain JSON, no
vendor in sight.

What a model wrote is never refused here: a nameless tool call gets a name, an unknown
finish reason becomes `other`, a missing count becomes 0. The surprise: some servers
leave `content` empty and put the answer in a reasoning field, and some put their
thoughts in `content` between `<think>` tags; `find_text` gives the answer in both
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
    """Messages in wire form; an assistant message that only asks for tools has null content."""
    wire: list[JsonValue] = []
    for message in messages:
        one: JsonObject = {"role": message.role, "content": message.content}
        if message.tool_calls:
            one["content"] = message.content or None
            one["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in message.tool_calls
            ]
        if message.tool_call_id is not None:
            one["tool_call_id"] = message.tool_call_id
        wire.append(one)
    return wire


def chat_tools(tools: Sequence[ToolSpec]) -> list[JsonValue]:
    """Tools in wire form; a tool without parameters gets an empty object schema."""
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
    """The decoding settings that were set."""
    wire: JsonObject = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_tokens": sampling.max_tokens,
        "seed": sampling.seed,
        "stop": list(sampling.stop) or None,
    }
    return {name: value for name, value in wire.items() if value is not None}


def response_format(schema: JsonSchema, *, name: str) -> JsonObject:
    """The `response_format` that asks for text following `schema`; `strict` is set only
    when the schema allows it.
    """
    plain = cast(JsonObject, schema)
    safe_name = re.sub(r"[^A-Za-z0-9_-]", "_", str(plain.get("title") or name))[:64]
    return {
        "type": "json_schema",
        "json_schema": {"name": safe_name, "schema": plain, "strict": allows_strict(plain)},
    }


def allows_strict(schema: JsonValue) -> bool:
    """Whether every object in the schema is closed and requires all its properties,
    which strict decoding demands.
    """
    if isinstance(schema, list):
        return all(allows_strict(part) for part in schema)
    if not isinstance(schema, dict):
        return True
    properties = schema.get("properties")
    if schema.get("type") == "object" or isinstance(properties, dict):
        names: set[str] = set(properties) if isinstance(properties, dict) else set()
        required = schema.get("required")
        listed = {str(one) for one in required} if isinstance(required, list) else set[str]()
        if schema.get("additionalProperties") is not False or names != listed:
            return False
    return all(allows_strict(part) for part in schema.values())


def request_body(request: ModelRequest, *, with_schema: bool) -> JsonObject:
    """Everything of the request that goes over the wire: messages, sampling, tools and,
    if wanted, the schema.
    """
    body: JsonObject = {
        "messages": chat_messages(request.messages),
        **chat_sampling(request.sampling),
    }
    if request.tools:
        body["tools"] = chat_tools(request.tools)
    if with_schema and request.schema_ is not None:
        body["response_format"] = response_format(request.schema_, name=request.role.value)
    return body


def find_text(message: Mapping[str, JsonValue]) -> str:
    """The answer in an assistant message: its content without thoughts, else the first
    reasoning field that holds text.
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
    """The text after a leading `<think>...</think>` block; unchanged when there is none
    or it never closes.
    """
    match = _THOUGHT.match(text)
    return text[match.end() :] if match else text


class ThoughtFilter:
    """Holds back a leading `<think>` block and leading blanks of streamed text, so that
    pieces add up to `find_text`.
    """

    def __init__(self) -> None:
        self._held = ""
        self._thought_over = False
        self._open = False

    def feed(self, piece: str) -> str:
        """The part of the stream that may be shown now; "" while that is undecided."""
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
    """Tool calls of an assistant message; missing ids and names are filled so that each
    call can be answered.
    """
    calls: list[ToolCall] = []
    listed = message.get("tool_calls")
    for index, raw in enumerate(listed if isinstance(listed, list) else []):
        call = raw if isinstance(raw, dict) else {}
        function = call.get("function")
        spoken = function if isinstance(function, dict) else {}
        arguments = spoken.get("arguments")
        calls.append(
            ToolCall(
                id=str(call.get("id") or f"call_{index}")[:256],
                name=str(spoken.get("name") or "unnamed")[:256],
                arguments=arguments if isinstance(arguments, str) and arguments else "{}",
            )
        )
    return tuple(calls)


def finish_reason(raw: JsonValue, *, asked_for_tools: bool) -> FinishReason:
    """Why the model stopped.

    Servers that say `stop` while asking for tools are read as `tool_calls`.
    """
    reason = _FINISH.get(raw, FinishReason.OTHER) if isinstance(raw, str) else FinishReason.OTHER
    return FinishReason.TOOL_CALLS if asked_for_tools and reason is FinishReason.STOP else reason


def count_of(block: JsonValue, name: str) -> int:
    """A non-negative count out of a usage block; 0 when it is missing or no integer."""
    value = block.get(name) if isinstance(block, dict) else None
    return max(0, value) if isinstance(value, int) else 0
