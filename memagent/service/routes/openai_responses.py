"""OpenAI's Responses format, written as the chat format, and the objects that answer it.

A request of `/v1/responses` becomes a request of `/v1/chat/completions`: items become
messages, so both have one meaning. An item of a stored response may be named by its id.

The events of a streamed response, in the order and the words of OpenAI's.

Chat with memory in OpenAI's Responses format.

A response is stored beside the turns that it wrote, in the journal's table of first
responses: an erasure takes it along, and it is known for `idempotency_days`. What follows
on it by `previous_response_id` continues its thread, or a copy of the thread up to there
where that has gone on since.
"""

from __future__ import annotations

import json
import secrets
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import Annotated, Any, Final, Literal, cast

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from memagent.client.http import Problem, ServiceError
from memagent.core.answers import Reply, ReplyDelta
from memagent.core.exchange import FinishReason, ToolCall
from memagent.memory.threads import Spoken, thread_turns
from memagent.readers.files import list_in, object_in
from memagent.service.access import Call
from memagent.service.gate import openai_error
from memagent.service.routes.chat_format import (
    ChatCompletionRequest,
    Item,
    Name,
    Settings,
    Text,
    chat_part,
    chat_request,
    refuse_unknown,
    unsupported,
)
from memagent.service.routes.exchange import (
    EVENTS,
    Piece,
    Said,
    answer,
    event,
    openapi_responses,
    record,
)
from memagent.service.routes.openai_chat import (
    Continued,
    MemoryUse,
    OpenAITalker,
    ThreadName,
    responses_of,
    said_of,
)
from memagent.service.routes.users import Asker, Talker

_LOGPROBS: Final = "message.output_text.logprobs"
_INCOMPLETE: Final = {
    FinishReason.LENGTH: "max_output_tokens",
    FinishReason.CONTENT_FILTER: "content_filter",
}


class ResponseSettings(Settings):
    """The settings that a response repeats."""

    instructions: Text | None = None
    previous_response_id: Name | None = None
    """The stored response that this one follows on: its conversation goes on."""
    max_output_tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    tools: Annotated[list[Item], Field(max_length=128)] | None = []
    text: Item | None = {"format": {"type": "text"}}
    """`format` is text, json_object or a json_schema; `verbosity`."""
    reasoning: Item | None = {"effort": None, "summary": None}
    """`effort`; other keys have no effect."""
    truncation: Literal["auto", "disabled"] | None = "disabled"
    """Either way the thread is shown from the end, as far as it fits."""


class ResponseRequest(ResponseSettings):
    """A request in OpenAI's Responses format.

    Fields that are not named here are refused, but for those that concern OpenAI's own
    service alone.
    """

    model_config = ConfigDict(extra="allow")

    input: Text | Annotated[list[Item], Field(min_length=1, max_length=1_000)]
    store: bool | None = None
    """Whether the response can be fetched and followed on; true unless memory is off."""
    stream: bool | None = False
    stream_options: dict[str, bool | None] | None = None
    include: Annotated[list[str], Field(max_length=16)] | None = None
    """`message.output_text.logprobs`; others have no effect."""
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None

    @property
    def items(self) -> list[Item]:
        """The input as items."""
        if isinstance(self.input, str):
            return [{"type": "message", "role": "user", "content": self.input}]
        return self.input

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
            "reasoning_effort": (self.reasoning or {}).get("effort"),
            "reasoning": {k: v for k, v in (self.reasoning or {}).items() if v and k != "effort"},
            "include": [name for name in self.include or () if name != _LOGPROBS],
            "logprobs": _LOGPROBS in (self.include or ()) or bool(self.top_logprobs) or None,
            "top_logprobs": self.top_logprobs,
            **_chat_text(self.text or {}),
        }
        return chat_request(fields)


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
        elif kind != "reasoning":  # the thoughts of an earlier answer
            raise unsupported("input", f"holds an item of type {str(kind)[:100]!r}")
    return messages


def _chat_content(content: object) -> object:
    """Return the parts of a content in the chat format, a text as it is."""
    parts = [chat_part(object_in(part), "input") for part in list_in(content)]
    return parts if isinstance(content, list) else content


def _chat_tool(tool: Item) -> Item:
    if tool.get("type") != "function":
        kind = str(tool.get("type"))[:100]
        raise unsupported(
            "tools", f"holds a tool of type {kind!r}; only functions that you run yourself are"
        )
    return {"type": "function", "function": {k: v for k, v in tool.items() if k != "type"}}


def _chat_choice(choice: str | Item | None) -> str | Item | None:
    if not isinstance(choice, dict):
        return choice
    return {"type": choice.get("type"), "function": {"name": choice.get("name")}}


def _chat_text(text: Item) -> Item:
    """Return what the field `text` asks for in the chat format. Raises `ServiceError`."""
    for name, value in text.items():
        if value is not None and name not in ("format", "verbosity"):
            raise unsupported("text", f"may not hold {name[:100]!r}")
    given: object = text.get("format")
    shape = cast("Item", given) if isinstance(given, dict) else {"type": given or "text"}
    if shape.get("type") == "json_schema":
        named = {name: value for name, value in shape.items() if name != "type"}
        shape = {"type": "json_schema", "json_schema": named}
    return {"response_format": shape, "verbosity": text.get("verbosity")}


# -- answers ---------------------------------------------------------------------------


class ResponseObject(ResponseSettings):
    """A response in OpenAI's format."""

    id: str
    object: Literal["response"] = "response"
    created_at: int = Field(default_factory=lambda: int(time.time()))
    status: Literal["completed", "incomplete", "in_progress", "failed"] = "in_progress"
    error: Item | None = None
    incomplete_details: Item | None = None
    output: list[Item] = []
    store: bool = True
    usage: Item | None = None
    memagent: MemoryUse | None = None

    @classmethod
    def begun(cls, body: ResponseRequest, key: str, *, stored: bool) -> ResponseObject:
        """Return the response to a request before there is an answer."""
        same = body.model_dump(include=set(ResponseSettings.model_fields), exclude_none=True)
        return cls(id=f"resp_{key}", store=stored, **same)

    @property
    def key(self) -> str:
        """The part of its id that its items share."""
        return self.id.removeprefix("resp_")

    def answered(self, reply: Reply, said: Said) -> ResponseObject:
        """Return the response with its answer."""
        responses = responses_of(said)
        reason = _INCOMPLETE.get(responses[0].finish) if responses else None
        first = (responses[0].logprobs or {}) if responses else {}
        logprobs: list[Any] = first.get("content", [])
        words = [message_item(self.key, [text_part(reply.text, logprobs)])]
        calls = [call_item(self.key, at, call) for at, call in enumerate(reply.tool_calls)]
        return self.model_copy(
            update={
                "status": "incomplete" if reason else "completed",
                "incomplete_details": {"reason": reason} if reason else None,
                "output": [*(words if reply.text or not calls else ()), *calls],
                "usage": _usage(reply),
                "memagent": MemoryUse.of(reply, said),
            }
        )


def message_item(key: str, parts: list[Item], status: str = "completed") -> Item:
    """Return the words of an answer as an item."""
    return {
        "type": "message",
        "id": f"msg_{key}",
        "status": status,
        "role": "assistant",
        "content": parts,
    }


def listed_item(item: Item) -> Item:
    """Return an item of a request as it is listed: whole, and a message's text as a part."""
    text, kind = item.get("content"), item.get("type") or "message"
    if kind == "message" and isinstance(text, str):
        part = text_part(text) if item.get("role") == "assistant" else {"type": "input_text"}
        item = {**item, "content": [{**part, "text": text}]}
    return {"status": "completed", **item, "type": kind}


def text_part(text: str, logprobs: Sequence[Any] = ()) -> Item:
    """Return words as a part of an item."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": [*logprobs]}


def call_item(key: str, number: int, call: ToolCall) -> Item:
    """Return a tool call as an item."""
    return {
        "type": "function_call",
        "id": f"fc_{key}_{number}",
        "call_id": call.id,
        "name": call.name,
        "arguments": call.arguments,
        "status": "completed",
    }


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


class ResponseEvents:
    """Writes a streamed response, event by event in OpenAI's order."""

    def __init__(self, begun: ResponseObject, said: Said) -> None:
        self._begun, self._said = begun, said
        self._numbers, self._speaking = count(), False
        self._place = {"item_id": f"msg_{begun.key}", "output_index": 0, "content_index": 0}

    def write(self, piece: Piece) -> Iterator[str]:
        """Yield the events of a piece of the reply."""
        match piece:
            case None:
                for name in ("response.created", "response.in_progress"):
                    yield self._event(name, response=self._begun.model_dump(mode="json"))
            case Problem():
                error = openai_error(piece)
                code = _CODES.get(error["type"], "server_error")
                told = {"status": "failed", "error": {"code": code, "message": error["message"]}}
                failed = self._begun.model_copy(update=told)
                yield self._event("response.failed", response=failed.model_dump(mode="json"))
            case ReplyDelta(reply=Reply() as reply):
                response = self._begun.answered(reply, self._said)
                for index, item in enumerate(response.output):
                    yield from self._item(index, item)
                whole = response.model_dump(mode="json")
                yield self._event(f"response.{response.status}", response=whole)
            case ReplyDelta():
                if piece.text:
                    yield from self._opened()
                    yield self._event(
                        "response.output_text.delta", **self._place, delta=piece.text, logprobs=[]
                    )

    def _event(self, name: str, /, **more: Any) -> str:
        data = {"type": name, "sequence_number": next(self._numbers), **more}
        return event(name, json.dumps(data))

    def _opened(self) -> Iterator[str]:
        """Begin the words of the answer, once."""
        if not self._speaking:
            self._speaking = True
            item = message_item(self._begun.key, [], "in_progress")
            yield self._event("response.output_item.added", output_index=0, item=item)
            yield self._event("response.content_part.added", **self._place, part=text_part(""))

    def _item(self, index: int, item: Item) -> Iterator[str]:
        """Yield what is left to tell of a finished item."""
        if item["type"] == "message":
            yield from self._opened()
            [part] = item["content"]
            yield self._event(
                "response.output_text.done",
                **self._place,
                text=part["text"],
                logprobs=part["logprobs"],
            )
            yield self._event("response.content_part.done", **self._place, part=part)
        else:
            place, arguments = {"item_id": item["id"], "output_index": index}, item["arguments"]
            begun = {**item, "arguments": "", "status": "in_progress"}
            yield self._event("response.output_item.added", output_index=index, item=begun)
            called = "response.function_call_arguments"
            yield self._event(f"{called}.delta", **place, delta=arguments)
            yield self._event(f"{called}.done", **place, name=item["name"], arguments=arguments)
        yield self._event("response.output_item.done", output_index=index, item=item)


router = APIRouter(tags=["openai"])
# What is stored beside a response, and not shown with it.
_OWN: Final = ("input", "context")


class StoredResponse(ResponseObject):
    """A response with what is stored beside it, for the requests that follow on it."""

    input: list[Item]
    context: list[Item]
    """The items since the last user message that came with earlier requests."""


class ItemList(BaseModel):
    """The items of a request."""

    object: Literal["list"] = "list"
    data: list[Item]
    first_id: str | None
    last_id: str | None
    has_more: bool


class DeletedResponse(BaseModel):
    """The receipt for a deleted response."""

    id: str
    object: Literal["response"] = "response"
    deleted: Literal[True] = True


@router.post(
    "/v1/responses",
    responses=openapi_responses(ResponseObject, description="The response", content=EVENTS),
)
async def create_response(
    body: ResponseRequest, call: OpenAITalker, thread: ThreadName = None
) -> Response:
    """Reply to the input with what is remembered, and remember the exchange.

    The conversation is that of `previous_response_id`, of the header, or is found by the
    beginning of the input. Tools are the caller's: the response names the calls, and the
    next request brings their results.
    """
    if thread is not None and body.previous_response_id is not None:
        raise unsupported("previous_response_id", "and X-Memagent-Thread name two conversations")
    items = [await _resolved(call, item) for item in body.items]
    context, after = await _followed(body, call)
    said = await said_of(body.as_chat([*context, *items]), call, thread, after)
    if not said.memory and (body.previous_response_id or (body.store and not call.asker.task)):
        name = "store" if body.store else "previous_response_id"
        raise unsupported(name, "needs memory, which is turned off")
    stored = said.memory and body.store is not False
    repeatable = call.key is not None and not body.stream
    key = call.journal_key if repeatable else secrets.token_hex(16)
    begun = ResponseObject.begun(body, key, stored=stored)

    def shape(reply: Reply) -> StoredResponse:
        own = [{"id": f"item_{key}_{at}", **listed_item(item)} for at, item in enumerate(items)]
        answered = begun.answered(reply, said).model_dump()
        return StoredResponse(**answered, input=own, context=context)

    write = ResponseEvents(begun, said).write if body.stream else None
    name = key if stored and not repeatable else None
    response = await answer(call, said, shape, write, name=name)
    if write is None:
        response.body = _shown(json.loads(bytes(response.body)))
        response.headers["Content-Length"] = str(len(response.body))
    return response


@router.get(
    "/v1/responses/{response_id}",
    responses=openapi_responses(ResponseObject, description="The response"),
)
async def get_response(
    response_id: str,
    call: Asker,
    stream: Annotated[bool, Query(description="Not supported.")] = False,
) -> Response:
    """Return a stored response."""
    if stream:
        raise unsupported("stream", "is not supported for a stored response")
    return Response(_shown(await _find(call, response_id)), media_type="application/json")


@router.get(
    "/v1/responses/{response_id}/input_items",
    responses=openapi_responses(ItemList, description="The items"),
)
async def list_input_items(
    response_id: str,
    call: Asker,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    order: Literal["asc", "desc"] = "desc",
    after: Annotated[str | None, Query(max_length=256)] = None,
) -> Response:
    """List the items of the request that a stored response answers."""
    stored = await _find(call, response_id)
    items: list[Item] = stored["input"][:: 1 if order == "asc" else -1]
    start = next((at for at, item in enumerate(items, 1) if item["id"] == after), 0)
    if after is not None and not start:
        raise unsupported("after", "names no item of the response")
    page = items[start : start + limit]
    ids = [item["id"] for item in page] or [None]
    more = start + limit < len(items)
    return record(ItemList(data=page, first_id=ids[0], last_id=ids[-1], has_more=more))


@router.delete(
    "/v1/responses/{response_id}",
    responses=openapi_responses(DeletedResponse, description="Deleted"),
)
async def delete_response(response_id: str, call: Talker) -> Response:
    """Delete a stored response; what was said stays remembered."""
    await _find(call, response_id)
    await call.service.requests.drop(call.scope, response_id.removeprefix("resp_"))
    return record(DeletedResponse(id=response_id))


async def _followed(body: ResponseRequest, call: Call) -> tuple[list[Item], Continued | None]:
    """Return the conversation that a request follows on, and what it left open.

    That is the items since its last user message, where it waits for results of tools.
    """
    if body.previous_response_id is None:
        return [], None
    before = await _find(call, body.previous_response_id)
    after = await _continued(call, before)
    if not any(item["type"] == "function_call" for item in before["output"]):
        return [], after
    context = [*before["context"], *before["input"], *before["output"]]
    users = [at for at, item in enumerate(context) if item.get("role") == "user"]
    return context[max(users, default=0) :], replace(after, known=1)


async def _resolved(call: Call, item: Item) -> Item:
    """Return the item, or that of a stored response which it names."""
    if item.get("type") != "item_reference":
        return item
    name = str(item.get("id"))
    stored = await _find(call, f"resp_{name.partition('_')[2].partition('_')[0]}")
    named = [each for each in (*stored["output"], *stored["input"]) if each["id"] == name]
    if not named:
        raise _not_there(name)
    return named[0]


async def _continued(call: Call, before: Item) -> Continued:
    """Return the conversation of a stored response, up to it."""
    use = before["memagent"]
    turns = thread_turns(await call.state(), use["thread"])
    last = next((at for at, turn in enumerate(turns, 1) if turn.id == use["turn_ids"][-1]), 0)
    if not last:
        raise _not_there(before["id"])
    if last == len(turns):
        return Continued(thread=use["thread"])
    spoken = (Spoken(turn.text, turn.speaker, turn.trust, recalled=True) for turn in turns[:last])
    return Continued(thread=f"thr_{uuid.uuid4().hex}", turns=tuple(spoken))


async def _find(call: Call, response_id: str) -> Item:
    """Return a stored response with what is stored beside it. Raises `ServiceError`."""
    known = await call.service.requests.find(call.scope, response_id.removeprefix("resp_"))
    text = known[1].body if known is not None else ""
    body: Item = object_in(json.loads(text)) if text else {}
    if body.get("object") != "response" or not body["store"]:
        raise _not_there(response_id)
    return body


def _not_there(name: str) -> ServiceError:
    return ServiceError(f"{name[:100]!r} is not stored", status=404, code="response_not_found")


def _shown(stored: Item) -> bytes:
    """Write a response without what is stored beside it."""
    return json.dumps({name: stored[name] for name in stored if name not in _OWN}).encode()
