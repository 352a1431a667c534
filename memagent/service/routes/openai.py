"""Chat with memory in OpenAI's format, for programs that know `/v1/chat/completions`.

The endpoint runs the same conversation as `Agent.chat`: the last user message is replied
to, streamed as the model speaks, and remembered; the messages before it are stored once.
A thread is named by the header `X-Memagent-Thread`, or found by the messages' own
beginning. The memory is that of the key's user: the `user` field is accepted and names
nobody. Tools, their results and structured output go through to the model. Tool calls
of earlier turns are not shown to it again: of those turns it sees what was said.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header
from starlette.responses import Response

from memagent.client.faults import problem_of
from memagent.client.wire import ModelEntry, ModelList
from memagent.core.answers import Reply
from memagent.core.errors import InputError, MemAgentError
from memagent.core.snapshot import Entry, SessionStored, TurnsAdded
from memagent.memory.threads import Spoken, continued, match_history, reply_of
from memagent.service.access import Call, may
from memagent.service.problems import openai_error
from memagent.service.routes import exchange
from memagent.service.routes.exchange import Said
from memagent.service.routes.openai_format import (
    MODEL_NAME,
    ChatChoice,
    ChatCompletion,
    ChatCompletionRequest,
    ChatMessage,
    EmbeddingList,
    EmbeddingRequest,
    check_model,
    message_of,
    tool_calls_of,
    unsupported,
    usage_of,
)
from memagent.service.routes.responses import EVENTS, openapi_responses, record
from memagent.service.routes.talk import Talker

router = APIRouter(tags=["openai"])
ThreadName = Annotated[str | None, Header(alias="X-Memagent-Thread", min_length=1, max_length=256)]
"""The conversation that the messages belong to; found by the messages when left out."""


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
    body: ChatCompletionRequest, call: Talker, thread: ThreadName = None
) -> Response:
    """Reply to the last user message with what is remembered, and remember the exchange.

    The messages before it are stored once, however often they are sent; what they have
    in common with a stored conversation continues it. Tools are the caller's: the reply
    names the calls, and the next request brings their results.
    """
    body.check()
    said = await _said(body, call, thread)
    if body.stream:
        return exchange.event_stream(_chunks(call, said, body))
    responses: list[Response] = []

    async def work() -> Response:
        def deliver(reply: Reply) -> None:
            responses.append(record(_completion(body, reply)))

        reply = await exchange.reply_to(call, replace(said, deliver=deliver))
        return responses[-1] if responses else record(_completion(body, reply))

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


async def _said(body: ChatCompletionRequest, call: Call, thread: str | None) -> Said:
    """Return the last user message with its thread and what the thread lacks before it."""
    last = max(
        (at for at, each in enumerate(body.messages) if each.role == "user" and each.text.strip()),
        default=None,
    )
    if last is None:
        raise InputError("there is no user message with text to answer")
    spoken = [each for each in body.messages[: last + 1] if each.role in ("user", "assistant")]
    history = [_spoken(each) for each in spoken if each.text.strip()]
    with call.agent() as agent:
        state = await agent.bank.sync()
    match = continued(state, thread, history) if thread else match_history(state, history)
    known = [message._replace(recalled=True) for message in history[match.stored : match.known]]
    first = max(match.stored, match.known)
    system = [each.text for each in body.messages if each.role in ("system", "developer")]
    answered = [each for each in body.messages[last + 1 :] if each.role in ("assistant", "tool")]
    return Said(
        text=history[-1].text,
        speaker=history[-1].speaker,
        thread=match.thread,
        system="\n\n".join(system) or None,
        earlier=(*known, *history[first:-1]),
        sampling=body.sampling,
        client_tools=body.client_tools,
        client_transcript=tuple(each.as_message() for each in answered),
        schema=body.schema_wanted,
    )


def _spoken(message: ChatMessage) -> Spoken:
    if message.role == "assistant":
        return reply_of(message.text)
    return Spoken(message.text, message.name or "user")


async def _chunks(call: Call, said: Said, body: ChatCompletionRequest) -> AsyncGenerator[str]:
    first = _completion(body, None)
    head = first.model_dump(include={"id", "created", "model"})
    head["object"] = "chat.completion.chunk"
    counted = body.stream_options is not None and body.stream_options.include_usage

    def chunk(delta: dict[str, Any], finish: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return _data(head | {"choices": [choice]} | ({"usage": None} if counted else {}))

    reply: Reply | None = None
    try:
        async with aclosing(exchange.converse(call, said)) as deltas:
            await anext(deltas)
            yield chunk({"role": "assistant", "content": ""})
            async for delta in deltas:
                reply = delta.reply or reply
                if delta.text:
                    yield chunk({"content": delta.text})
        calls = tool_calls_of(reply) if reply is not None else []
        for at, asked in enumerate(calls):
            yield chunk({"tool_calls": [{"index": at, **asked}]})
        yield chunk({}, "tool_calls" if calls else "stop")
        if counted:
            yield _data(head | {"choices": [], "usage": usage_of(reply)})
    except MemAgentError as exc:
        yield _data({"error": openai_error(problem_of(exc))})
    yield "data: [DONE]\n\n"


def _data(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value)}\n\n"


def _completion(body: ChatCompletionRequest, reply: Reply | None) -> ChatCompletion:
    message = message_of(reply) if reply is not None else {"role": "assistant", "content": ""}
    finish = "tool_calls" if "tool_calls" in message else "stop"
    return ChatCompletion(
        id=f"chatcmpl-{secrets.token_hex(12)}",
        created=int(time.time()),
        model=body.model,
        choices=[ChatChoice(message=message, finish_reason=finish)],
        usage=usage_of(reply),
    )
