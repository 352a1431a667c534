"""Chat with memory in Anthropic's Messages format.

A request of `/v1/messages` becomes one of `/v1/chat/completions`, so both have one
meaning: blocks become parts, tool calls and tool results. Thoughts of earlier answers
are left out. Tools that Anthropic runs itself are refused.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any, Final, Literal, cast

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from memagent.client.http import Problem
from memagent.core.answers import Reply, ReplyDelta
from memagent.core.exchange import ToolCall
from memagent.readers.files import list_in, object_in
from memagent.search.cuts import token_estimate
from memagent.service.gate import anthropic_error
from memagent.service.routes.chat_format import (
    MODEL_NAME,
    ChatCompletionRequest,
    Item,
    Text,
    chat_part,
    chat_request,
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
    Completer,
    MemoryUse,
    OpenAITalker,
    ThreadName,
    choices_of,
    said_of,
)

router = APIRouter(tags=["anthropic"])
_STOP_REASONS: Final = {
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}
_TOOL_CHOICES: Final = {"auto": "auto", "any": "required", "none": "none"}


class AnthropicMessage(BaseModel):
    """A message in Anthropic's format: a text, or blocks as they came."""

    role: Literal["user", "assistant", "system"]
    content: Text | Annotated[list[Item], Field(max_length=1_000)] = ""


class MessagesRequest(BaseModel):
    """A request in Anthropic's format; what is not named here is treated as in OpenAI's."""

    model_config = ConfigDict(extra="allow")

    messages: Annotated[list[AnthropicMessage], Field(min_length=1, max_length=1_000)]
    model: Annotated[str, Field(max_length=256)] = MODEL_NAME
    system: Text | list[Item] | None = None
    stream: bool = False
    tools: Annotated[list[Item], Field(max_length=128)] = []
    tool_choice: Item = {"type": "auto"}
    stop_sequences: list[str] | None = None
    metadata: Item | None = None
    """`user_id` says whose memory it is, unless the key is bound to a user."""
    output_config: Item | None = None
    """`effort` has no effect."""

    def as_chat(self) -> ChatCompletionRequest:
        """Return the request in OpenAI's format.

        Raises `ServiceError` for what is not supported, `InputError` for what is wrong.
        """
        if self.output_config and self.output_config.keys() - {"effort"}:
            raise unsupported("output_config", "may hold `effort` only")
        system = [{"role": "system", "content": self.system}] if self.system else []
        told = [each for message in self.messages for each in _chat_messages(message)]
        kind = self.tool_choice.get("type")
        choice = {"type": "function", "function": {"name": self.tool_choice.get("name")}}
        several = not self.tool_choice.get("disable_parallel_tool_use")
        fields = {
            "model": self.model,
            "messages": [*system, *told],
            "stream": self.stream,
            "stop": self.stop_sequences,
            "tools": [_chat_tool(tool) for tool in self.tools] or None,
            "tool_choice": choice if kind == "tool" else _TOOL_CHOICES.get(str(kind), str(kind)),
            "parallel_tool_calls": None if several else False,
            "reasoning": self.output_config,
        }
        return chat_request({**(self.model_extra or {}), **fields})


def _chat_messages(message: AnthropicMessage) -> list[Item]:
    """Return a message in OpenAI's format, behind the tool results that it brings.

    What a tool shows beside words stands in the message: OpenAI's results are words alone.
    """
    results: list[Item] = []
    parts: list[Item] = []
    calls: list[Item] = []
    for block in _blocks(message.content):
        match block.get("type"):
            case "thinking" | "redacted_thinking":
                continue
            case "tool_use":
                given = {"name": block.get("name"), "arguments": json.dumps(block.get("input", {}))}
                calls.append({"id": block.get("id"), "type": "function", "function": given})
            case "tool_result":
                told = [chat_part(each, "messages") for each in _blocks(block.get("content"))]
                words = [part for part in told if part["type"] == "text"]
                parts += [part for part in told if part["type"] != "text"]
                results.append(
                    {"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": words}
                )
            case _:
                parts.append(chat_part(block, "messages"))
    own: Item = {"role": message.role, "content": parts, "tool_calls": calls or None}
    return [*results, *([own] if parts or calls or not results else ())]


def _blocks(content: object) -> list[Item]:
    """Return blocks as they came, and a text as one block."""
    texts = [{"type": "text", "text": content}] if isinstance(content, str) and content else []
    return [object_in(block) for block in (*texts, *list_in(content))]


def _chat_tool(tool: Item) -> Item:
    if tool.get("type", "custom") != "custom":
        raise unsupported("tools", f"holds a {str(tool['type'])[:100]!r}; only your own are")
    function = {
        "name": tool.get("name"),
        "description": tool.get("description"),
        "parameters": tool.get("input_schema"),
    }
    return {"type": "function", "function": function}


class MessageObject(BaseModel):
    """An answer in Anthropic's format."""

    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    model: str
    content: list[Item] = []
    stop_reason: str | None = None
    stop_sequence: str | None = None
    usage: dict[str, int] = {"input_tokens": 0, "output_tokens": 0}
    memagent: MemoryUse | None = None

    def answered(self, said: Said, reply: Reply) -> MessageObject:
        """Return the message with the words and tool calls of a reply."""
        finish = choices_of(reply, said)[0].finish_reason
        text = [{"type": "text", "text": reply.text}] if reply.text else []
        return self.model_copy(
            update={
                "content": [*text, *map(_tool_use, reply.tool_calls)],
                "stop_reason": _STOP_REASONS.get(finish, "end_turn"),
                "usage": {
                    "input_tokens": reply.usage.prompt_tokens,
                    "output_tokens": reply.usage.completion_tokens,
                },
                "memagent": MemoryUse.of(reply, said),
            }
        )


def _tool_use(call: ToolCall) -> Item:
    try:
        given: object = json.loads(call.arguments or "{}")
    except ValueError:  # the model wrote no JSON: the caller sees what it wrote
        given = call.arguments
    shown = cast("Item", given) if isinstance(given, dict) else {"arguments": given}
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": shown}


@router.post(
    "/v1/messages",
    responses=openapi_responses(MessageObject, description="The answer", content=EVENTS),
)
async def create_message(
    body: MessagesRequest, call: OpenAITalker, thread: ThreadName = None
) -> Response:
    """Reply to the last user message with what is remembered, and remember the exchange."""
    said = await said_of(body.as_chat(), call, thread)
    begun = MessageObject(id=f"msg_{secrets.token_hex(12)}", model=body.model)
    write = MessageEvents(begun, said).write if body.stream else None
    return await answer(call, said, partial(begun.answered, said), write)


class TokenCount(BaseModel):
    """The estimated tokens of a request."""

    input_tokens: int


@router.post(
    "/v1/messages/count_tokens", responses=openapi_responses(TokenCount, description="The count")
)
async def count_tokens(body: MessagesRequest, call: Completer) -> Response:  # noqa: ARG001 # access
    """Estimate the tokens of a request, without what memory lends to it."""
    chat = body.as_chat()
    texts = [each.text for each in chat.messages] + [json.dumps(tool) for tool in body.tools]
    return record(TokenCount(input_tokens=sum(map(token_estimate, texts))))


class MessageEvents:
    """Writes a streamed answer in the order of Anthropic's events."""

    def __init__(self, begun: MessageObject, said: Said) -> None:
        self._begun, self._said, self._speaking = begun, said, False

    def write(self, piece: Piece) -> Iterator[str]:
        """Yield the events of a piece of the reply."""
        match piece:
            case None:
                yield _event("message_start", message=self._begun.model_dump(mode="json"))
                yield _event("ping")
            case Problem():
                yield _event("error", error=anthropic_error(piece))
            case ReplyDelta(reply=Reply() as reply):
                ended = self._begun.answered(self._said, reply)
                if not self._speaking:
                    yield from self._told(reply.text)
                for index, block in enumerate(ended.content):
                    yield from _ended(index, block)
                end = ended.model_dump(mode="json", include={"stop_reason", "stop_sequence"})
                use = ended.model_dump(mode="json", include={"usage", "memagent"})
                yield _event("message_delta", delta=end, **use)
                yield _event("message_stop")
            case ReplyDelta():
                yield from self._told(piece.text)

    def _told(self, text: str) -> Iterator[str]:
        """Yield the events of words, and before the first ones the beginning of their block."""
        if text and not self._speaking:
            self._speaking = True
            yield _event("content_block_start", index=0, content_block={"type": "text", "text": ""})
        if text:
            yield _event("content_block_delta", index=0, delta={"type": "text_delta", "text": text})


def _ended(index: int, block: Item) -> Iterator[str]:
    """Yield what is left to tell of a finished block."""
    if block["type"] == "tool_use":
        yield _event("content_block_start", index=index, content_block={**block, "input": {}})
        given = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        yield _event("content_block_delta", index=index, delta=given)
    yield _event("content_block_stop", index=index)


def _event(name: str, **data: Any) -> str:
    return event(name, json.dumps({"type": name, **data}))
