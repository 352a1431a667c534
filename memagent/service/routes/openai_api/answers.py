"""Replies in OpenAI's chat format: choices, tool calls, tokens, and what memory lent."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel

from memagent.core.answers import Citation, Reply, Verdict
from memagent.core.exchange import FinishReason, ModelResponse, ToolCall
from memagent.graphs.chat_prompt import MarkFilter


class ChatChoice(BaseModel):
    """One answer."""

    index: int = 0
    message: dict[str, Any]
    finish_reason: str
    logprobs: dict[str, Any] | None = None


class MemoryUse(BaseModel):
    """The part of memory in an answer: an addition to OpenAI's format."""

    thread: str | None = None
    """The conversation that the answer belongs to; None with memory off."""
    turn_ids: tuple[str, ...] = ()
    """Ids of the message's turn and of the answer's; none with memory off."""
    verdict: Verdict
    citations: tuple[Citation, ...] = ()

    @classmethod
    def of(cls, reply: Reply, *, memory: bool) -> MemoryUse:
        """Return what a reply rests on."""
        use = cls(verdict=reply.verdict, citations=reply.citations)
        if memory:
            use.thread, use.turn_ids = reply.thread, reply.turn_ids
        return use


class ChatCompletion(BaseModel):
    """An answer in OpenAI's format."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: dict[str, int]
    memagent: MemoryUse


def choices_of(reply: Reply, responses: list[ModelResponse]) -> list[ChatChoice]:
    """Return a reply, and the model's further answers, as choices."""
    own = reply.tool_calls
    first = ChatChoice(message=message_of(reply.text, own), finish_reason=_finish(responses, own))
    first.logprobs = responses[0].logprobs if responses else None
    marked = [hit.id for hit in reply.hits]
    choices = [first]
    for index, response in enumerate(responses[1:], 1):
        marks = MarkFilter(marked)
        text = (marks.feed(response.text) + marks.close()).strip()
        choices.append(
            ChatChoice(
                index=index,
                message=message_of(text, response.tool_calls),
                finish_reason=_finish([response], response.tool_calls),
                logprobs=response.logprobs,
            )
        )
    return choices


def _finish(responses: list[ModelResponse], calls: tuple[ToolCall, ...]) -> str:
    """Say why the model stopped, in OpenAI's words."""
    reason = responses[0].finish if responses else FinishReason.STOP
    if calls:
        return FinishReason.TOOL_CALLS.value
    cut = reason in (FinishReason.LENGTH, FinishReason.CONTENT_FILTER)
    return reason.value if cut else FinishReason.STOP.value


def message_of(text: str, calls: tuple[ToolCall, ...]) -> dict[str, Any]:
    """Return words and tool calls as an assistant's message."""
    words = {"role": "assistant", "content": text or (None if calls else "")}
    return {**words, "tool_calls": [called(call) for call in calls]} if calls else words


def called(call: ToolCall) -> dict[str, Any]:
    """Return a tool call in OpenAI's format."""
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def usage_of(reply: Reply) -> dict[str, int]:
    """Return the tokens that a reply took."""
    prompt, completion = reply.usage.prompt_tokens, reply.usage.completion_tokens
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
