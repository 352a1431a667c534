"""Chat with memory in OpenAI's format, for programs that know `/v1/chat/completions`.

The last user message is the question that is answered and remembered. With a language
model, the recalled memories go before the conversation as one system message and the
model answers, streamed as it speaks; without one, the answer quotes the best evidence.
The memory is that of the key's user: the `user` field is accepted and names nobody.
"""

from __future__ import annotations

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
from memagent.llm.traced_model import traced
from memagent.llm.wrappers import stream_of
from memagent.service.access import Call, may
from memagent.service.routes import exchange
from memagent.service.routes.memories import context_of
from memagent.service.routes.responses import EVENTS, openapi_responses, record
from memagent.service.routes.talk import Talker

router = APIRouter(tags=["openai"])
MODEL_NAME = "memagent"
_RECALLED = 20
_RECALLED_TOKENS = 2_000
_MOST_CHARS = 20_000
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
async def chat_completions(body: ChatCompletionRequest, call: Talker) -> Response:
    """Answer the last user message with what is remembered, and remember the exchange."""
    question = next((each for each in reversed(body.messages) if each.role == "user"), None)
    if question is None or not question.text.strip():
        raise InputError("there is no user message with text to answer")
    speaker = question.name or "user"
    if body.stream:
        first = _completion(body, "", {})
        return exchange.event_stream(_chunks(body, call, question.text, speaker, first))
    responses: list[Response] = []

    async def work() -> Response:
        usage: dict[str, int] = {}
        async with exchange.question_kept(call, question.text, speaker=speaker):
            with call.agent() as agent:
                pieces = [piece async for piece in _answer(agent, call, body, question.text, usage)]
        text = "".join(pieces)
        responses.append(record(_completion(body, text, usage)))
        await exchange.store_exchange(call, question.text, text or "-", speaker=speaker)
        return responses[0]

    def keep(entry: Entry) -> Response | None:
        return responses[0] if responses and isinstance(entry, SessionStored) else None

    return await call.once(work, keep=keep)


async def _answer(
    agent: AsyncAgent, call: Call, body: ChatCompletionRequest, text: str, usage: dict[str, int]
) -> AsyncGenerator[str]:
    """Yield the answer piece by piece; `usage` is filled at its end."""
    if not call.service.has_model:
        yield (await agent.ask(text[:_MOST_CHARS])).text
        return
    hits = await agent.search(text[:_MOST_CHARS], k=_RECALLED, max_tokens=_RECALLED_TOKENS)
    block = context_of(hits).text
    messages = [Message(role="system", content=block)] if block else []
    messages += [Message(role=_ROLES[each.role], content=each.text) for each in body.messages]
    request = ModelRequest(role=Role.ANSWERER, messages=tuple(messages), sampling=body.sampling)
    streamed = False
    async for delta in stream_of(traced(agent.model), request):
        if delta.text:
            streamed = True
            yield delta.text
        if delta.response is not None:
            usage |= delta.response.usage.model_dump(include={"prompt_tokens", "completion_tokens"})
            if not streamed and delta.response.text:
                yield delta.response.text


_ROLES: dict[str, Literal["system", "user", "assistant"]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}


async def _chunks(
    body: ChatCompletionRequest, call: Call, text: str, speaker: str, first: ChatCompletion
) -> AsyncGenerator[str]:
    head = first.model_dump(include={"id", "object", "created", "model"})

    def chunk(delta: dict[str, str], finish: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return _data(head | {"object": "chat.completion.chunk", "choices": [choice]})

    pieces: list[str] = []
    try:
        async with exchange.question_kept(call, text, speaker=speaker):
            yield chunk({"role": "assistant", "content": ""})
            with call.agent() as agent:
                async for piece in _answer(agent, call, body, text, {}):
                    pieces.append(piece)
                    yield chunk({"content": piece})
            await exchange.store_exchange(call, text, "".join(pieces) or "-", speaker=speaker)
        yield chunk({}, "stop")
    except MemAgentError as exc:
        problem = problem_of(exc)
        words = problem.detail or problem.title
        yield _data({"error": {"message": words, "type": "server_error", "code": problem.code}})
    yield "data: [DONE]\n\n"


def _data(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value)}\n\n"


def _completion(body: ChatCompletionRequest, text: str, usage: dict[str, int]) -> ChatCompletion:
    spent = {"prompt_tokens": 0, "completion_tokens": 0} | usage
    return ChatCompletion(
        id=f"chatcmpl-{secrets.token_hex(12)}",
        created=int(time.time()),
        model=body.model,
        choices=[ChatChoice(message={"role": "assistant", "content": text}, finish_reason="stop")],
        usage={**spent, "total_tokens": sum(spent.values())},
    )
