"""Chat with memory in OpenAI's format, for programs that know `/v1/chat/completions`.

The endpoint runs the same conversation as `Agent.chat`: the last user message is replied
to, streamed as the model speaks, and remembered; the messages before it are stored once.
A thread is named by the header `X-Memagent-Thread`, or found by the messages' own
beginning. The memory is that of the key's user, or of the `user` field where the key is
bound to none. Tools, their results, images and structured output go through to the
model. Tool calls of earlier turns are not shown to it again: of those turns it sees what
was said. `metadata` turns memory off for one request.

Replies in OpenAI's chat format: choices, tool calls, tokens, and what memory lent.
"""

from __future__ import annotations

import json
import secrets
import time
import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header
from pydantic import BaseModel
from starlette.responses import Response

from memagent.client.http import problem_of
from memagent.client.wire import ModelEntry, ModelList
from memagent.core.answers import Citation, Reply, Verdict
from memagent.core.errors import InputError, MemAgentError
from memagent.core.exchange import FinishReason, ModelResponse, ToolCall
from memagent.core.long_work import LARGE_CHARS, aside
from memagent.core.snapshot import Entry, SessionStored, TurnsAdded
from memagent.graphs.chat import MarkFilter
from memagent.memory.threads import Spoken, ThreadMatch, continued, match_history, reply_of
from memagent.service.access import Call, may, may_for_body_user
from memagent.service.gate import openai_error
from memagent.service.routes import exchange
from memagent.service.routes.chat_format import (
    MODEL_NAME,
    ChatCompletionRequest,
    ChatMessage,
    EmbeddingList,
    EmbeddingRequest,
    check_model,
    memory_wanted,
)
from memagent.service.routes.client_model import Wishes, unsupported
from memagent.service.routes.exchange import EVENTS, Said, openapi_responses, record
from memagent.service.routes.talk import Talker


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


router = APIRouter(tags=["openai"])
ThreadName = Annotated[str | None, Header(alias="X-Memagent-Thread", min_length=1, max_length=256)]
"""The conversation that the messages belong to; found by the messages when left out."""
OpenAITalker = Annotated[Call, Depends(may_for_body_user("chat", "memory:write"))]


@router.get(
    "/v1/models",
    responses=openapi_responses(ModelList, description="The models"),
    dependencies=[Depends(may("chat"))],
)
async def list_models() -> Response:
    """List the one model there is: the agent."""
    return record(ModelList(data=(ModelEntry(id=MODEL_NAME),)))


@router.get(
    "/v1/models/{model}",
    responses=openapi_responses(ModelEntry, description="The model"),
    dependencies=[Depends(may("chat"))],
)
async def get_model(model: str) -> Response:
    """Show the model, if it is the one there is."""
    check_model(model)
    return record(ModelEntry(id=model))


@router.post(
    "/v1/chat/completions",
    responses=openapi_responses(ChatCompletion, description="The answer", content=EVENTS),
)
async def chat_completions(
    body: ChatCompletionRequest, call: OpenAITalker, thread: ThreadName = None
) -> Response:
    """Reply to the last user message with what is remembered, and remember the exchange.

    The messages before it are stored once, however often they are sent; what they have
    in common with a stored conversation continues it. Tools are the caller's: the reply
    names the calls, and the next request brings their results.
    """
    said = await said_of(body, call, thread)
    if body.stream:
        return exchange.event_stream(_chunks(call, said, body))
    responses: list[Response] = []

    async def work() -> Response:
        def deliver(reply: Reply) -> None:
            responses.append(record(_completion(body, said, reply)))

        reply = await exchange.reply_to(call, replace(said, deliver=deliver))
        return responses[-1] if responses else record(_completion(body, said, reply))

    def keep(entry: Entry) -> Response | None:
        stored = isinstance(entry, SessionStored | TurnsAdded)
        return responses[-1] if responses and stored else None

    return await call.once(work, keep=keep)


@router.post(
    "/v1/embeddings",
    responses=openapi_responses(EmbeddingList, description="The vectors"),
    dependencies=[Depends(may("chat"))],
)
async def embeddings(body: EmbeddingRequest, call: Talker) -> Response:
    """Embed texts as the memory embeds them: unit vectors, in the order of the texts."""
    check_model(body.model)
    texts = (body.input,) if isinstance(body.input, str) else body.input
    with call.agent() as agent:
        if body.dimensions not in (None, agent.embedder.dim):
            raise unsupported("dimensions", f"is {agent.embedder.dim} here")
        vectors = await agent.embedder.embed(texts)
    return record(EmbeddingList.of(vectors, base64=body.encoding_format == "base64"))


@dataclass(frozen=True, kw_only=True)
class Continued:
    """The conversation that a request names by its last answer."""

    thread: str
    turns: tuple[Spoken, ...] = ()
    """Turns that a new thread takes over, where the old one has gone on since."""
    known: int = 0
    """How many of the request's first messages the thread holds already."""


async def said_of(
    body: ChatCompletionRequest,
    call: Call,
    thread: str | None,
    after: Continued | None = None,
) -> Said:
    """Return the last user message with its thread and what the thread lacks before it.

    `after` is a conversation that the messages follow on. Raises `ServiceError` for
    what is not supported, and `InputError` without a message to answer.
    """
    body.check()
    memory = memory_wanted(body.metadata)
    spoken, history, answered = _parted(body)
    wishes = Wishes(
        options=body.options,
        choices=body.n or 1,
        history=tuple((each.text, each.parts) for each in spoken),
    )
    wishes.check(call.service.model)
    said = Said(
        text=history[-1].text,
        speaker=history[-1].speaker,
        system=_system(body),
        sampling=body.sampling,
        client_tools=body.client_tools,
        client_transcript=tuple(each.as_message() for each in answered),
        schema=body.schema_wanted,
        wishes=wishes,
        memory=memory,
    )
    if not memory:
        return replace(said, thread=f"thr_{uuid.uuid4().hex}", earlier=history[:-1])
    if after is not None:
        new = history[after.known : -1]
        return replace(said, thread=after.thread, earlier=(*after.turns, *new))
    match = await _match(call, thread, history)
    known = [message._replace(recalled=True) for message in history[match.stored : match.known]]
    first = max(match.stored, match.known)
    return replace(said, thread=match.thread, earlier=(*known, *history[first:-1]))


def _parted(
    body: ChatCompletionRequest,
) -> tuple[list[ChatMessage], list[Spoken], list[ChatMessage]]:
    """Return the messages with words up to the last of the user, and what follows it.

    The second list has the words of the first. Raises `InputError` without a message.
    """
    last = max(
        (at for at, each in enumerate(body.messages) if each.role == "user" and each.text.strip()),
        default=None,
    )
    if last is None:
        raise InputError("there is no user message with text to answer")
    before = [each for each in body.messages[: last + 1] if each.role in ("user", "assistant")]
    spoken = [each for each in before if each.text.strip()]
    answered = [each for each in body.messages[last + 1 :] if each.role in ("assistant", "tool")]
    return spoken, [_spoken(each) for each in spoken], answered


async def _match(call: Call, thread: str | None, history: list[Spoken]) -> ThreadMatch:
    with call.agent() as agent:
        state = await agent.bank.sync()
    find = partial(continued, thread=thread) if thread else match_history
    large = sum(len(each.text) for each in history) >= LARGE_CHARS
    return await aside(find, state, history=history) if large else find(state, history=history)


def _system(body: ChatCompletionRequest) -> str | None:
    texts = [each.text for each in body.messages if each.role in ("system", "developer")]
    return "\n\n".join(texts) or None


def _spoken(message: ChatMessage) -> Spoken:
    if message.role == "assistant":
        return reply_of(message.text)
    return Spoken(message.text, message.name or "user")


async def _chunks(call: Call, said: Said, body: ChatCompletionRequest) -> AsyncGenerator[str]:
    head = {**_head(body), "object": "chat.completion.chunk"}
    counted = body.stream_options is not None and body.stream_options.include_usage
    head |= {"usage": None} if counted else {}

    def chunk(index: int, delta: dict[str, Any], **more: Any) -> str:
        choice = {"index": index, "delta": delta, "finish_reason": None, "logprobs": None}
        return _data(head | {"choices": [choice | more]})

    try:
        async with aclosing(exchange.converse(call, said)) as deltas:
            await anext(deltas)
            for index in range(body.n or 1):
                yield chunk(index, {"role": "assistant", "content": ""})
            reply: Reply | None = None
            async for delta in deltas:
                reply = delta.reply or reply
                if delta.text:
                    yield chunk(0, {"content": delta.text})
        assert reply is not None
        use = MemoryUse.of(reply, memory=said.memory).model_dump(mode="json")
        for choice in choices_of(reply, responses_of(said)):
            for delta in _rest(choice):
                yield chunk(choice.index, delta)
            end = {"finish_reason": choice.finish_reason, "logprobs": choice.logprobs}
            head["memagent"] = use
            yield chunk(choice.index, {}, **end)
        if counted:
            yield _data(head | {"choices": [], "usage": usage_of(reply)})
    except MemAgentError as exc:
        yield _data({"error": openai_error(problem_of(exc))})
    yield "data: [DONE]\n\n"


def _rest(choice: ChatChoice) -> list[dict[str, Any]]:
    """Return what a stream has not sent of a choice: tool calls, and words of a further one."""
    words, calls = choice.message["content"], choice.message.get("tool_calls", [])
    pieces = [{"content": words}] if choice.index and words else []
    return [*pieces, *({"tool_calls": [{"index": at, **call}]} for at, call in enumerate(calls))]


def _data(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value)}\n\n"


def _head(body: ChatCompletionRequest) -> dict[str, Any]:
    name = f"chatcmpl-{secrets.token_hex(12)}"
    return {"id": name, "created": int(time.time()), "model": body.model}


def _completion(body: ChatCompletionRequest, said: Said, reply: Reply) -> ChatCompletion:
    return ChatCompletion(
        **_head(body),
        choices=choices_of(reply, responses_of(said)),
        usage=usage_of(reply),
        memagent=MemoryUse.of(reply, memory=said.memory),
    )


def responses_of(said: Said) -> list[ModelResponse]:
    """Return the model's answers to a message, one a choice."""
    return said.wishes.responses if said.wishes is not None else []
