"""OpenAI's Responses format, written as the chat format, and the objects that answer it.

A request of `/v1/responses` becomes a request of `/v1/chat/completions`: items become
messages, so both have one meaning. An item of a stored response may be named by its id.

The events of a streamed response, in the order and the words of OpenAI's.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import aclosing
from typing import Annotated, Any, Final, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from memagent.client.http import problem_of
from memagent.core.answers import Reply, ReplyDelta
from memagent.core.errors import InputError, MemAgentError, fault_in
from memagent.core.exchange import FinishReason, ModelResponse, ToolCall
from memagent.service.gate import openai_error
from memagent.service.routes.chat_format import (
    MODEL_NAME,
    ChatCompletionRequest,
    memory_wanted,
    refuse_unknown,
)
from memagent.service.routes.client_model import unsupported
from memagent.service.routes.openai_chat import MemoryUse

Item = dict[str, Any]
_Text = Annotated[str, Field(max_length=200_000)]
_Id = Annotated[str, Field(min_length=1, max_length=256)]
_LOGPROBS: Final = "message.output_text.logprobs"
_WORDS: Final = ("input_text", "output_text", "text")
_INCOMPLETE: Final = {
    FinishReason.LENGTH: "max_output_tokens",
    FinishReason.CONTENT_FILTER: "content_filter",
}


class ResponseRequest(BaseModel):
    """A request in OpenAI's Responses format.

    Fields that are not named here are refused, but for those that concern OpenAI's own
    service alone.
    """

    model_config = ConfigDict(extra="allow")

    input: _Text | Annotated[list[Item], Field(min_length=1, max_length=1_000)]
    model: Annotated[str, Field(max_length=256)] = MODEL_NAME
    instructions: _Text | None = None
    previous_response_id: _Id | None = None
    """The stored response that this one follows on: its conversation goes on."""
    store: bool | None = None
    """Whether the response can be fetched and followed on; true unless memory is off."""
    stream: bool | None = False
    stream_options: dict[str, bool | None] | None = None
    tools: Annotated[list[Item], Field(max_length=128)] | None = None
    tool_choice: Literal["auto", "none", "required"] | Item | None = None
    parallel_tool_calls: bool | None = None
    text: Item | None = None
    """`format` is text, json_object or a json_schema; `verbosity`."""
    reasoning: Item | None = None
    """`effort`."""
    include: Annotated[list[str], Field(max_length=16)] | None = None
    """Only `message.output_text.logprobs`."""
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    max_output_tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    """Either way the thread is shown from the end, as far as it fits."""
    metadata: Annotated[dict[str, _Text], Field(max_length=16)] | None = None
    """`memagent.memory: off` recalls and remembers nothing; other keys come back."""
    user: Annotated[str, Field(max_length=1_000)] | None = None
    """Whose memory it is, unless the key is bound to a user."""

    @property
    def items(self) -> list[Item]:
        """The input as items."""
        if isinstance(self.input, str):
            return [{"type": "message", "role": "user", "content": self.input}]
        return self.input

    @property
    def stored(self) -> bool:
        """Whether the response is stored. Raises `ServiceError` where it cannot be."""
        memory = memory_wanted(self.metadata)
        if not memory and (self.store or self.previous_response_id):
            name = "store" if self.store else "previous_response_id"
            raise unsupported(name, "needs memory, which `metadata` turns off")
        return memory and self.store is not False

    def as_chat(self, items: Sequence[Item]) -> ChatCompletionRequest:
        """Return the request in the chat format, with these items as its messages.

        Raises `ServiceError` for what is not supported, `InputError` for what is wrong.
        """
        refuse_unknown(
            {name: value for name, value in (self.model_extra or {}).items() if value is not False}
        )
        if any((self.stream_options or {}).values()):
            raise unsupported("stream_options")
        told = [{"role": "system", "content": self.instructions}] if self.instructions else []
        fields = {
            "model": self.model,
            "messages": [*told, *messages_of(items)],
            "temperature": self.temperature,
            "top_p": self.top_p,
            "max_completion_tokens": self.max_output_tokens,
            "tools": [_chat_tool(tool) for tool in self.tools or ()] or None,
            "tool_choice": _chat_choice(self.tool_choice),
            "parallel_tool_calls": self.parallel_tool_calls,
            "metadata": self.metadata,
            **self._logprobs(),
            **_chat_text(self.text or {}),
            **_only("reasoning", self.reasoning or {}, {"effort": "reasoning_effort"}),
        }
        try:
            return ChatCompletionRequest.model_validate(fields)
        except ValidationError as exc:
            raise InputError(fault_in(exc)) from exc

    def _logprobs(self) -> Item:
        if others := sorted(set(self.include or ()) - {_LOGPROBS}):
            raise unsupported("include", f"may not hold {others[0][:100]!r}")
        wanted = _LOGPROBS in (self.include or ()) or bool(self.top_logprobs)
        return {"logprobs": True, "top_logprobs": self.top_logprobs} if wanted else {}


def messages_of(items: Sequence[Item]) -> list[Item]:
    """Return items as messages of the chat format; calls made together are one message."""
    messages: list[Item] = []
    for item in items:
        kind = item.get("type") or "message"
        if kind == "function_call":
            function = {"name": item.get("name"), "arguments": item.get("arguments") or "{}"}
            call = {"id": item.get("call_id"), "type": "function", "function": function}
            if not messages or messages[-1]["role"] != "assistant":
                messages.append({"role": "assistant", "content": None})
            messages[-1].setdefault("tool_calls", []).append(call)
        elif kind == "function_call_output":
            content = _chat_content(item.get("output"))
            messages.append(
                {"role": "tool", "tool_call_id": item.get("call_id"), "content": content}
            )
        elif kind == "message":
            content = _chat_content(item.get("content"))
            messages.append({"role": item.get("role"), "content": content})
        else:
            raise unsupported("input", f"holds an item of type {str(kind)[:100]!r}")
    return messages


def _chat_content(content: Any) -> Any:
    if not isinstance(content, list):
        return content
    parts = cast("list[Any]", content)
    return [_chat_part(cast("Item", part)) if isinstance(part, dict) else part for part in parts]


def _chat_part(part: Item) -> Item:
    kind = part.get("type")
    if kind in _WORDS:
        return {"type": "text", "text": part.get("text")}
    if kind == "refusal":
        return {"type": "text", "text": part.get("refusal")}
    if kind == "input_image" and part.get("image_url"):
        image = {"url": part["image_url"], "detail": part.get("detail") or "auto"}
        return {"type": "image_url", "image_url": image}
    if kind == "input_file" and part.get("file_data"):
        file = {"filename": part.get("filename"), "file_data": part["file_data"]}
        return {"type": "file", "file": file}
    raise unsupported("input", f"holds a part of type {str(kind)[:100]!r} that cannot be read")


def _chat_tool(tool: Item) -> Item:
    if tool.get("type") != "function":
        raise unsupported("tools", f"holds a {str(tool.get('type'))[:100]!r}; only functions are")
    return {"type": "function", "function": {k: v for k, v in tool.items() if k != "type"}}


def _chat_choice(choice: str | Item | None) -> str | Item | None:
    if not isinstance(choice, dict):
        return choice
    return {"type": choice.get("type"), "function": {"name": choice.get("name")}}


def _chat_text(text: Item) -> Item:
    given: object = text.get("format")
    shape = cast("Item", given) if isinstance(given, dict) else {"type": given or "text"}
    more = _only("text", {k: v for k, v in text.items() if k != "format"}, {"verbosity": ""})
    if shape.get("type") != "json_schema":
        return {**more, "response_format": shape}
    named = {k: v for k, v in shape.items() if k != "type"}
    return {**more, "response_format": {"type": "json_schema", "json_schema": named}}


def _only(field: str, given: Item, known: dict[str, str]) -> Item:
    """Return the known keys of a field under their names in the chat format."""
    for name, value in given.items():
        if value is not None and name not in known:
            raise unsupported(field, f"may not hold {name[:100]!r}")
    return {known[name] or name: value for name, value in given.items() if value is not None}


# -- answers ---------------------------------------------------------------------------


class ResponseObject(BaseModel):
    """A response in OpenAI's format."""

    id: str
    object: Literal["response"] = "response"
    created_at: int = Field(default_factory=lambda: int(time.time()))
    status: Literal["completed", "incomplete", "in_progress", "failed"] = "in_progress"
    error: Item | None = None
    incomplete_details: Item | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    metadata: dict[str, str] = {}
    model: str = MODEL_NAME
    output: list[Item] = []
    parallel_tool_calls: bool = True
    previous_response_id: str | None = None
    reasoning: Item = {"effort": None, "summary": None}
    store: bool = True
    temperature: float | None = None
    text: Item = {"format": {"type": "text"}}
    tool_choice: str | Item = "auto"
    tools: list[Item] = []
    top_p: float | None = None
    truncation: str = "disabled"
    usage: Item | None = None
    user: str | None = None
    memagent: MemoryUse | None = None

    @classmethod
    def begun(cls, body: ResponseRequest, key: str, *, stored: bool) -> ResponseObject:
        """Return the response to a request before there is an answer."""
        same = {
            "instructions", "max_output_tokens", "metadata", "model", "parallel_tool_calls",
            "previous_response_id", "reasoning", "temperature", "text", "tool_choice", "tools",
            "top_p", "truncation", "user",
        }  # fmt: skip
        return cls(
            id=f"resp_{key}", store=stored, **body.model_dump(include=same, exclude_none=True)
        )

    @property
    def key(self) -> str:
        """The part of its id that its items share."""
        return self.id.removeprefix("resp_")

    def answered(
        self, reply: Reply, responses: list[ModelResponse], *, memory: bool
    ) -> ResponseObject:
        """Return the response with its answer."""
        finish = responses[0].finish if responses else FinishReason.STOP
        reason = _INCOMPLETE.get(finish)
        first = (responses[0].logprobs or {}) if responses else {}
        logprobs: list[Any] = first.get("content", [])
        words = [message_item(self.key, reply.text, logprobs)]
        calls = [call_item(self.key, at, call) for at, call in enumerate(reply.tool_calls)]
        return self.model_copy(
            update={
                "status": "incomplete" if reason else "completed",
                "incomplete_details": {"reason": reason} if reason else None,
                "output": [*(words if reply.text or not calls else ()), *calls],
                "usage": _usage(reply),
                "memagent": MemoryUse.of(reply, memory=memory),
            }
        )


def message_item(
    key: str, text: str, logprobs: Sequence[Any] = (), *, status: str = "completed"
) -> Item:
    """Return the words of an answer as an item; without any text its content is empty."""
    part = text_part(text, logprobs)
    content = [part] if status == "completed" else []
    item = {"type": "message", "id": f"msg_{key}", "status": status, "role": "assistant"}
    return {**item, "content": content}


def text_part(text: str, logprobs: Sequence[Any] = ()) -> Item:
    """Return words as a part of an item."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": [*logprobs]}


def call_item(key: str, number: int, call: ToolCall, *, status: str = "completed") -> Item:
    """Return a tool call as an item; one in progress has no arguments yet."""
    named = {"id": f"fc_{key}_{number}", "call_id": call.id, "name": call.name}
    arguments = call.arguments if status == "completed" else ""
    return {"type": "function_call", **named, "arguments": arguments, "status": status}


def _usage(reply: Reply) -> Item:
    prompt, completion = reply.usage.prompt_tokens, reply.usage.completion_tokens
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": completion,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": prompt + completion,
    }


_CODES = {"rate_limit_error": "rate_limit_exceeded", "invalid_request_error": "invalid_prompt"}
Event = tuple[str, Item]


async def response_events(
    begun: ResponseObject, told: AsyncGenerator[ReplyDelta | ResponseObject]
) -> AsyncGenerator[str]:
    """Yield the events of a response, of which `told` yields the words and at last itself."""
    number = 0

    def written(event: Event) -> str:
        nonlocal number
        name, more = event
        data = {"type": name, "sequence_number": number, **more}
        number += 1
        return f"event: {name}\ndata: {json.dumps(data)}\n\n"

    speaking = False
    try:
        async with aclosing(told) as pieces:
            await anext(pieces)
            for name in ("response.created", "response.in_progress"):
                yield written((name, {"response": _plain(begun)}))
            async for piece in pieces:
                if isinstance(piece, ResponseObject):
                    for event in _end(piece, speaking=speaking):
                        yield written(event)
                elif piece.text:
                    for event in () if speaking else _opened(begun.key):
                        yield written(event)
                    speaking = True
                    delta: Item = {"delta": piece.text, "logprobs": []}
                    yield written(("response.output_text.delta", _place(begun.key) | delta))
    except MemAgentError as exc:
        error = openai_error(problem_of(exc))
        code = _CODES.get(error["type"], "server_error")
        failed = begun.model_copy(
            update={"status": "failed", "error": {"code": code, "message": error["message"]}}
        )
        yield written(("response.failed", {"response": _plain(failed)}))


def _place(key: str) -> Item:
    return {"item_id": f"msg_{key}", "output_index": 0, "content_index": 0}


def _opened(key: str) -> Generator[Event]:
    item = message_item(key, "", status="in_progress")
    yield "response.output_item.added", {"output_index": 0, "item": item}
    yield "response.content_part.added", _place(key) | {"part": text_part("")}


def _end(response: ResponseObject, *, speaking: bool) -> Generator[Event]:
    for index, item in enumerate(response.output):
        if item["type"] == "message":
            if not speaking:
                yield from _opened(response.key)
            yield from _spoken(response.key, item)
        else:
            yield from _called(index, item)
        yield "response.output_item.done", {"output_index": index, "item": item}
    yield f"response.{response.status}", {"response": _plain(response)}


def _spoken(key: str, item: Item) -> Generator[Event]:
    part = item["content"][0]
    words = {"text": part["text"], "logprobs": part["logprobs"]}
    yield "response.output_text.done", _place(key) | words
    yield "response.content_part.done", _place(key) | {"part": part}


def _called(index: int, item: Item) -> Generator[Event]:
    place = {"item_id": item["id"], "output_index": index}
    begun = {**item, "arguments": "", "status": "in_progress"}
    yield "response.output_item.added", {"output_index": index, "item": begun}
    arguments = item["arguments"]
    yield "response.function_call_arguments.delta", place | {"delta": arguments}
    done = {"name": item["name"], "arguments": arguments}
    yield "response.function_call_arguments.done", place | done


def _plain(response: ResponseObject) -> dict[str, Any]:
    return response.model_dump(mode="json")
