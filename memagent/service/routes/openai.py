"""Chat with memory in OpenAI's format, for programs that know `/v1/chat/completions`.

The endpoint runs the same conversation as `Agent.chat`: the last user message is replied
to, streamed as the model speaks, and remembered; the messages before it are stored once.
A thread is named by the header `X-Memagent-Thread`, or found by the messages' own
beginning. The memory is that of the key's user: the `user` field is accepted and names
nobody.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from memagent.client.faults import problem_of
from memagent.client.wire import ModelEntry, ModelList
from memagent.core.answers import Reply
from memagent.core.errors import InputError, MemAgentError
from memagent.core.exchange import Sampling, Usage
from memagent.core.snapshot import Entry, SessionStored, TurnsAdded
from memagent.memory.threads import Spoken, continued, match_history, reply_of
from memagent.service.access import Call, may
from memagent.service.routes import exchange
from memagent.service.routes.exchange import Said
from memagent.service.routes.responses import EVENTS, openapi_responses, record
from memagent.service.routes.talk import Talker

router = APIRouter(tags=["openai"])
MODEL_NAME = "memagent"
ThreadName = Annotated[str | None, Header(alias="X-Memagent-Thread", min_length=1, max_length=256)]
"""The conversation that the messages belong to; found by the messages when left out."""
_Text = Annotated[str, Field(max_length=200_000)]


class Part(BaseModel):
    """A part of a message; only text is read."""

    type: Literal["text"]
    text: _Text


class ChatMessage(BaseModel):
    """A message in OpenAI's format."""

    model_config = ConfigDict(extra="ignore")

    role: Literal["system", "developer", "user", "assistant"]
    content: _Text | Annotated[list[Part], Field(max_length=100)]
    name: Annotated[str, Field(max_length=256)] | None = None

    @property
    def text(self) -> str:
        """The text of all its parts."""
        return (
            self.content
            if isinstance(self.content, str)
            else "\n".join(part.text for part in self.content)
        )


class ChatCompletionRequest(BaseModel):
    """A request in OpenAI's format.

    Fields that are not named here are accepted and have no effect.
    """

    model_config = ConfigDict(extra="ignore")

    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=1_000)]
    model: Annotated[str, Field(max_length=256)] = MODEL_NAME
    stream: bool = False
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    max_tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    seed: Annotated[int, Field(ge=-(2**62), le=2**62)] | None = None
    user: Annotated[str, Field(max_length=1_000)] | None = None
    """Accepted for compatibility; whose memory it is, is said by the key."""

    @property
    def sampling(self) -> Sampling:
        """The settings by which the model decodes."""
        most = self.max_completion_tokens or self.max_tokens
        return Sampling(
            temperature=self.temperature, top_p=self.top_p, max_tokens=most, seed=self.seed
        )


class ChatChoice(BaseModel):
    """One answer."""

    index: int = 0
    message: dict[str, Any]
    finish_reason: str


class ChatCompletion(BaseModel):
    """An answer in OpenAI's format."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: dict[str, int]


@router.get(
    "/v1/models",
    responses=openapi_responses(ModelList, description="The models"),
    dependencies=[Depends(may("chat"))],
)
async def list_models() -> Response:
    """List the one model there is: the agent."""
    return record(ModelList(data=(ModelEntry(id=MODEL_NAME),)))


@router.post(
    "/v1/chat/completions",
    responses=openapi_responses(ChatCompletion, description="The answer", content=EVENTS),
)
async def chat_completions(
    body: ChatCompletionRequest, call: Talker, thread: ThreadName = None
) -> Response:
    """Reply to the last user message with what is remembered, and remember the exchange.

    The messages before it are stored once, however often they are sent; what they have
    in common with a stored conversation continues it.
    """
    said = await _said(body, call, thread)
    if body.stream:
        first = _completion(body, None)
        return exchange.event_stream(_chunks(call, said, first))
    responses: list[Response] = []

    async def work() -> Response:
        def deliver(reply: Reply) -> None:
            responses.append(record(_completion(body, reply)))

        await exchange.reply_to(call, replace(said, deliver=deliver))
        return responses[-1]

    def keep(entry: Entry) -> Response | None:
        stored = isinstance(entry, SessionStored | TurnsAdded)
        return responses[-1] if responses and stored else None

    return await call.once(work, keep=keep)


async def _said(body: ChatCompletionRequest, call: Call, thread: str | None) -> Said:
    """Return the last user message with its thread and what the thread lacks before it."""
    spoken = [each for each in body.messages if each.role in ("user", "assistant")]
    while spoken and spoken[-1].role != "user":
        spoken.pop()
    if not spoken or not spoken[-1].text.strip():
        raise InputError("there is no user message with text to answer")
    history = [_spoken(each) for each in spoken if each.text.strip()]
    with call.agent() as agent:
        state = await agent.bank.sync()
    match = continued(state, thread, history) if thread else match_history(state, history)
    known = [message._replace(recalled=True) for message in history[match.stored : match.known]]
    first = max(match.stored, match.known)
    system = [each.text for each in body.messages if each.role in ("system", "developer")]
    return Said(
        text=history[-1].text,
        speaker=history[-1].speaker,
        thread=match.thread,
        system="\n\n".join(system) or None,
        earlier=(*known, *history[first:-1]),
        sampling=body.sampling,
    )


def _spoken(message: ChatMessage) -> Spoken:
    if message.role == "assistant":
        return reply_of(message.text)
    return Spoken(message.text, message.name or "user")


async def _chunks(call: Call, said: Said, first: ChatCompletion) -> AsyncGenerator[str]:
    head = first.model_dump(include={"id", "object", "created", "model"})

    def chunk(delta: dict[str, str], finish: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return _data(head | {"object": "chat.completion.chunk", "choices": [choice]})

    try:
        async with aclosing(exchange.converse(call, said)) as deltas:
            await anext(deltas)
            yield chunk({"role": "assistant", "content": ""})
            async for delta in deltas:
                if delta.text:
                    yield chunk({"content": delta.text})
        yield chunk({}, "stop")
    except MemAgentError as exc:
        problem = problem_of(exc)
        words = problem.detail or problem.title
        yield _data({"error": {"message": words, "type": "server_error", "code": problem.code}})
    yield "data: [DONE]\n\n"


def _data(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value)}\n\n"


def _completion(body: ChatCompletionRequest, reply: Reply | None) -> ChatCompletion:
    usage = reply.usage if reply is not None else Usage()
    spent = usage.model_dump(include={"prompt_tokens", "completion_tokens"})
    content = reply.text if reply is not None else ""
    return ChatCompletion(
        id=f"chatcmpl-{secrets.token_hex(12)}",
        created=int(time.time()),
        model=body.model,
        choices=[
            ChatChoice(message={"role": "assistant", "content": content}, finish_reason="stop")
        ],
        usage={**spent, "total_tokens": sum(spent.values())},
    )
