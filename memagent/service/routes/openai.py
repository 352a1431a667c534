"""Chat in OpenAI's format, with memory: what programs that know `/v1/chat/completions`
need to have one.

The last user message is what is asked and remembered. With a language model, the
recalled memories go before the conversation as one system message and the model
answers, streamed as it speaks; without one, the answer quotes the best evidence. The
memory is the key's user's: the `user` field is accepted and names nobody.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncGenerator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from memagent.async_agent import AsyncAgent
from memagent.client.faults import problem_of
from memagent.client.wire import ModelEntry, ModelList
from memagent.core.errors import InputError, MemAgentError
from memagent.core.exchange import Message, ModelRequest, Role, Sampling
from memagent.core.snapshot import Entry, SessionStored
from memagent.designs.parts.lines import hit_line
from memagent.llm.traced_model import traced
from memagent.llm.wrappers import stream_of
from memagent.service.access import Call, may
from memagent.service.routes import exchange as talking
from memagent.service.routes.memories import context_of
from memagent.service.routes.responses import EVENTS, record, told
from memagent.service.routes.talk import Talker

router = APIRouter(tags=["openai"])
MODEL_NAME = "memagent"
_RECALLED = 20
_RECALLED_TOKENS = 2_000
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
        """What it says."""
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
        """How the model is to decode."""
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


@router.get("/v1/models", responses=told(ModelList, description="The models"))
async def list_models(call: Annotated[Call, Depends(may("chat"))]) -> Response:
    """The one model there is: the agent."""
    return record(ModelList(data=(ModelEntry(id=MODEL_NAME),)))


@router.post(
    "/v1/chat/completions",
    responses=told(ChatCompletion, description="The answer", content=EVENTS),
)
async def chat_completions(body: ChatCompletionRequest, call: Talker) -> Response:
    """Answer the last user message with what is remembered, and remember the exchange."""
    asked = next((message for message in reversed(body.messages) if message.role == "user"), None)
    if asked is None or not asked.text.strip():
        raise InputError("there is no user message with text to answer")
    speaker = asked.name or "user"
    if body.stream:
        first = _completion(body, "", {})
        return talking.event_stream(_chunks(body, call, asked.text, speaker, first))
    made: list[Response] = []

    async def work() -> Response:
        pieces: list[str] = []
        usage: dict[str, int] = {}
        try:
            with call.agent() as agent:
                async for piece in _answer(agent, call, body, asked.text, usage):
                    pieces.append(piece)
        except asyncio.CancelledError:
            talking.keep_said(call, asked.text, speaker=speaker)
            raise
        except MemAgentError:
            await talking.remember_said(call, asked.text, speaker=speaker)
            raise
        made.append(record(_completion(body, "".join(pieces), usage)))
        await talking.remember_exchange(call, asked.text, "".join(pieces) or "-", speaker=speaker)
        return made[0]

    def keep(entry: Entry) -> Response | None:
        return made[0] if made and isinstance(entry, SessionStored) else None

    return await call.once(work, keep=keep)


async def _answer(
    agent: AsyncAgent, call: Call, body: ChatCompletionRequest, asked: str, usage: dict[str, int]
) -> AsyncGenerator[str]:
    """The answer piece by piece; `usage` is filled at its end."""
    if not call.service.has_model:
        answer = await agent.ask(asked[:20_000])
        usage.update(prompt_tokens=0, completion_tokens=0)
        yield answer.text
        return
    hits = await agent.search(asked[:20_000], k=_RECALLED, max_tokens=_RECALLED_TOKENS)
    block = context_of(
        [hit_line(hit, version=False) for hit in hits], [hit.id for hit in hits]
    ).text
    said = tuple(
        Message(role=_ROLES[message.role], content=message.text) for message in body.messages
    )
    recalled = (Message(role="system", content=block),) if block else ()
    request = ModelRequest(role=Role.ANSWERER, messages=(*recalled, *said), sampling=body.sampling)
    whole = ""
    async for delta in stream_of(traced(agent.model), request):
        if delta.text:
            whole += delta.text
            yield delta.text
        if delta.response is not None:
            spent = delta.response.usage
            usage.update(
                prompt_tokens=spent.prompt_tokens, completion_tokens=spent.completion_tokens
            )
            if not whole and delta.response.text:
                yield delta.response.text


_ROLES: dict[str, Literal["system", "user", "assistant"]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}


async def _chunks(
    body: ChatCompletionRequest, call: Call, asked: str, speaker: str, first: ChatCompletion
) -> AsyncGenerator[str]:
    head = {
        "id": first.id,
        "object": "chat.completion.chunk",
        "created": first.created,
        "model": first.model,
    }

    def chunk(delta: dict[str, str], finish: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return f"data: {json.dumps({**head, 'choices': [choice]})}\n\n"

    pieces: list[str] = []
    settled = False
    try:
        yield chunk({"role": "assistant", "content": ""})
        with call.agent() as agent:
            async for piece in _answer(agent, call, body, asked, {}):
                pieces.append(piece)
                yield chunk({"content": piece})
        await talking.remember_exchange(call, asked, "".join(pieces) or "-", speaker=speaker)
        settled = True
        yield chunk({}, "stop")
    except MemAgentError as exc:
        settled = True
        await talking.remember_said(call, asked, speaker=speaker)
        problem = problem_of(exc)
        error = {
            "message": problem.detail or problem.title,
            "type": "server_error",
            "code": problem.code,
        }
        yield f"data: {json.dumps({'error': error})}\n\n"
    finally:
        if not settled:
            talking.keep_said(call, asked, speaker=speaker)
    yield "data: [DONE]\n\n"


def _completion(body: ChatCompletionRequest, text: str, usage: dict[str, int]) -> ChatCompletion:
    spent = {
        "prompt_tokens": usage.get("prompt_tokens", 0),
        "completion_tokens": usage.get("completion_tokens", 0),
    }
    return ChatCompletion(
        id=f"chatcmpl-{secrets.token_hex(12)}",
        created=int(time.time()),
        model=body.model,
        choices=[ChatChoice(message={"role": "assistant", "content": text}, finish_reason="stop")],
        usage={**spent, "total_tokens": sum(spent.values())},
    )
