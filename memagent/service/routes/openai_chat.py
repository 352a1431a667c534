"""Chat with memory in OpenAI's format, for programs that know `/v1/chat/completions`.

The endpoint runs the same conversation as `Agent.chat`: the last user message is replied
to, streamed as the model speaks, and remembered; the messages before it are stored once.
A thread is named by the header `X-Memagent-Thread`, or found by the messages' own
beginning. The memory is that of the key's user, or of the `user` field where the key is
bound to none. Tools, their results, images and structured output go through to the
model. Tool calls of earlier turns are not shown to it again: of those turns it sees what
was said. The model's name, a header or `metadata` turns memory off for one request, and
so does a prompt that a program wrote: the provider then gets the messages as they came.

Replies in OpenAI's chat format: choices, tool calls, tokens, and what memory lent.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Depends, Header
from pydantic import BaseModel
from starlette.responses import Response

from memagent.client.http import Problem
from memagent.client.wire import ModelEntry, ModelList
from memagent.core.answers import Citation, Reply, ReplyDelta, Verdict
from memagent.core.errors import InputError
from memagent.core.exchange import (
    FinishReason,
    Message,
    ModelRequest,
    ModelResponse,
    Role,
    ToolCall,
)
from memagent.core.long_work import LARGE_CHARS, aside
from memagent.graphs.chat import MarkFilter
from memagent.llm.chat_format import chat_messages
from memagent.llm.litellm_errors import text_of
from memagent.llm.wrappers import takes_options
from memagent.memory.threads import Spoken, ThreadMatch, continued, match_history, reply_of
from memagent.service.access import Call, may
from memagent.service.gate import openai_error
from memagent.service.routes.chat_format import (
    ANSWERING,
    MEMORY_SWITCH,
    MODEL_NAME,
    NO_MEMORY,
    ChatCompletionRequest,
    ChatMessage,
    CompletionRequest,
    EmbeddingList,
    EmbeddingRequest,
    Part,
    Wishes,
    chosen_model,
    unsupported,
)
from memagent.service.routes.exchange import (
    EVENTS,
    Piece,
    Said,
    answer,
    openapi_responses,
    record,
)


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
    def of(cls, reply: Reply, said: Said) -> MemoryUse:
        """Return what a reply rests on."""
        kept = {"thread": reply.thread, "turn_ids": reply.turn_ids} if said.memory else {}
        return cls.model_validate({**kept, "verdict": reply.verdict, "citations": reply.citations})


class _Completion(BaseModel):
    id: str
    created: int
    model: str
    usage: dict[str, int]


class TextCompletion(_Completion):
    """A text that goes on, in OpenAI's oldest format."""

    object: Literal["text_completion"] = "text_completion"
    choices: list[dict[str, Any]]


class ChatCompletion(_Completion):
    """An answer in OpenAI's format."""

    object: Literal["chat.completion"] = "chat.completion"
    choices: list[ChatChoice]
    memagent: MemoryUse


def choices_of(reply: Reply, said: Said) -> list[ChatChoice]:
    """Return a reply, and the model's further answers, as choices."""
    responses = responses_of(said)
    choices = [_choice(0, reply.text, reply.tool_calls, responses[0] if responses else None)]
    for index, response in enumerate(responses[1:], 1):
        marks = MarkFilter([hit.id for hit in reply.hits])
        text = (marks.feed(response.text) + marks.close()).strip()
        choices.append(_choice(index, text, response.tool_calls, response))
    return choices


def _choice(
    index: int, text: str, calls: tuple[ToolCall, ...], response: ModelResponse | None
) -> ChatChoice:
    """Return an answer as a choice that says why the model stopped, in OpenAI's words."""
    [message] = chat_messages((Message(role="assistant", content=text, tool_calls=calls),))
    ended = FinishReason.TOOL_CALLS if calls else FinishReason.STOP
    if response is not None and response.finish in _CUT and not calls:
        ended = response.finish
    logprobs = response.logprobs if response is not None else None
    return ChatChoice.model_validate(
        {"index": index, "message": message, "finish_reason": ended, "logprobs": logprobs}
    )


def usage_of(reply: Reply) -> dict[str, int]:
    """Return the tokens that a reply took."""
    return {
        "prompt_tokens": reply.usage.prompt_tokens,
        "completion_tokens": reply.usage.completion_tokens,
        "total_tokens": reply.usage.prompt_tokens + reply.usage.completion_tokens,
    }


router = APIRouter(tags=["openai"])
MEMORY_HEADER: Final = "X-Memagent-Memory"
_DONE: Final = "data: [DONE]\n\n"
_CUT: Final = (FinishReason.LENGTH, FinishReason.CONTENT_FILTER)
ThreadName = Annotated[str | None, Header(alias="X-Memagent-Thread", min_length=1, max_length=256)]
"""The conversation that the messages belong to; found by the messages when left out."""
OpenAITalker = Annotated[Call, Depends(may("chat", "memory:write", for_programs=True))]
Userless = Annotated[Call, Depends(may("chat", userless=True))]
Completer = Annotated[Call, Depends(may("chat", for_programs=True, userless=True))]


@router.get("/v1/models", responses=openapi_responses(ModelList, description="The models"))
async def list_models(call: Userless) -> Response:
    """List the agent, and the models of its provider, which answer with the same memory."""
    names = await call.service.provider_models() or ()
    others = (ModelEntry(id=name, owned_by="provider") for name in names)
    return record(ModelList(data=(ModelEntry(id=MODEL_NAME), *others)))


@router.get(
    "/v1/models/{model:path}", responses=openapi_responses(ModelEntry, description="The model")
)
async def get_model(model: str, call: Userless) -> Response:
    """Show a model that is listed."""
    chosen_model(model, await call.service.provider_models())
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
    said, head = await said_of(body, call, thread), _head(body, "chatcmpl")
    write = ChatEvents(body, said, head).write if body.stream else None
    return await answer(call, said, partial(_completion, said, head), write)


@router.post(
    "/v1/completions",
    responses=openapi_responses(TextCompletion, description="The text", content=EVENTS),
)
async def completions(body: CompletionRequest, call: Completer) -> Response:
    """Go on with a text as the provider's model does; memory has no part in it."""
    if call.service.model is None:
        raise unsupported("prompt", "needs a language model, and none is set")
    chat = body.as_chat()
    said = await said_of(chat, call, None)
    head = {**_head(chat, "cmpl"), "object": "text_completion"}
    write = TextEvents(chat, said, head).write if body.stream else None
    return await answer(call, said, partial(_text, said, head), write)


@router.post(
    "/v1/embeddings", responses=openapi_responses(EmbeddingList, description="The vectors")
)
async def embeddings(
    body: EmbeddingRequest,
    call: Annotated[Call, Depends(may("chat", "memory:write", userless=True))],
) -> Response:
    """Embed texts as the memory embeds them: unit vectors, in the order of the texts."""
    chosen_model(body.model, None)
    texts = [each if isinstance(each, str) else await text_of(each) for each in body.texts]
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
    model, own = call.service.model, body.model.removesuffix(NO_MEMORY) == MODEL_NAME
    chosen = chosen_model(body.model, None if own else await call.service.provider_models())
    memory = _memory_wanted(body, call) and not call.asker.task
    messages, notes = _separated(body.messages, call)
    spoken, history, answered = _parted(messages)
    told = [each.text for each in messages if each.role in ("system", "developer")]
    extras, dropped = body.extras(sampling=model is not None and takes_options(model, ANSWERING))
    told_model = answered if memory else body.messages
    wishes = Wishes(
        request=ModelRequest(
            role=Role.ANSWERER,
            messages=tuple(each.as_message() for each in told_model),
            schema=body.schema_wanted,
            tools=body.client_tools,
            sampling=body.sampling,
            options={**body.options, **extras, **chosen},
        ),
        choices=body.n or 1,
        history=tuple((each.text, each.parts) for each in spoken),
    )
    wishes.check(model)
    said = Said(
        text=history[-1].text,
        speaker=history[-1].speaker,
        system="\n\n".join((*told, *notes)) or None,
        wishes=wishes,
        memory=memory,
        dropped=dropped,
    )
    if not memory:
        return said
    if after is not None:
        return replace(
            said, thread=after.thread, earlier=(*after.turns, *history[after.known : -1])
        )
    match = await _match(call, thread or call.asker.thread, history)
    known = [message._replace(recalled=True) for message in history[match.stored : match.known]]
    first = max(match.stored, match.known)
    return replace(said, thread=match.thread, earlier=(*known, *history[first:-1]))


def _memory_wanted(body: ChatCompletionRequest, call: Call) -> bool:
    """Return whether the model's name, a header and the metadata all leave memory on.

    Raises `ServiceError`.
    """
    given = body.metadata or {}
    switches = call.request.headers.get(MEMORY_HEADER, "on"), given.get(MEMORY_SWITCH, "on")
    unknown = [name for name in given if name.startswith("memagent.") and name != MEMORY_SWITCH]
    for field, value in zip((MEMORY_HEADER, "metadata"), switches, strict=True):
        if value not in ("on", "off") or (unknown and field == "metadata"):
            raise unsupported(field, f"may say on or off, in metadata as `{MEMORY_SWITCH}`")
    return "off" not in switches and not body.model.endswith(NO_MEMORY)


def _separated(messages: list[ChatMessage], call: Call) -> tuple[list[ChatMessage], list[str]]:
    """Return the messages with users' own words, and what programs wrote around them."""
    own: list[ChatMessage] = []
    notes: list[str] = []
    for message in messages:
        if message.role == "user":
            content = message.content or ""
            parts = [Part(type="text", text=content)] if isinstance(content, str) else content
            split = [(part, *call.asker.parted(part.text)) for part in parts]
            notes += [note for _, _, note in split if note]
            kept = [
                part.model_copy(update={"text": text})
                for part, text, _ in split
                if text or part.type != "text"
            ]
            message = message.model_copy(update={"content": kept})
        own.append(message)
    return own, list(dict.fromkeys(notes))


def _parted(
    messages: list[ChatMessage],
) -> tuple[list[ChatMessage], list[Spoken], list[ChatMessage]]:
    """Return the messages with words up to the last of the user, and what follows it.

    The second list has the words of the first. Raises `InputError` without a message.
    """
    last = max(
        (at for at, each in enumerate(messages) if each.role == "user" and each.text.strip()),
        default=None,
    )
    if last is None:
        raise InputError("there is no user message with text to answer")
    spoken = [
        each
        for each in messages[: last + 1]
        if each.role in ("user", "assistant") and each.text.strip()
    ]
    answered = [each for each in messages[last + 1 :] if each.role in ("assistant", "tool")]
    words = [
        reply_of(each.text) if each.role == "assistant" else Spoken(each.text, each.name or "user")
        for each in spoken
    ]
    return spoken, words, answered


async def _match(call: Call, thread: str | None, history: list[Spoken]) -> ThreadMatch:
    state = await call.state()
    find = partial(continued, thread=thread) if thread else match_history
    large = sum(len(each.text) for each in history) >= LARGE_CHARS
    return await aside(find, state, history=history) if large else find(state, history=history)


class ChatEvents:
    """Writes a streamed answer, chunk by chunk."""

    def __init__(self, body: ChatCompletionRequest, said: Said, head: dict[str, Any]) -> None:
        self._said, self._choices = said, body.n or 1
        self._counted = body.stream_options is not None and body.stream_options.include_usage
        self._head = {"object": "chat.completion.chunk", **head}
        self._head |= {"usage": None} if self._counted else {}

    def write(self, piece: Piece) -> Iterator[str]:
        """Yield the chunks of a piece of the reply."""
        match piece:
            case None:
                for index in range(self._choices):
                    yield self._chunk(index, {"role": "assistant", "content": ""})
            case Problem():
                yield _data({"error": openai_error(piece)})
                yield _DONE
            case ReplyDelta(reply=Reply() as reply):
                self._head["memagent"] = MemoryUse.of(reply, self._said).model_dump(mode="json")
                for choice in choices_of(reply, self._said):
                    for delta in _rest(choice):
                        yield self._chunk(choice.index, delta)
                    end = choice.model_dump(include={"finish_reason", "logprobs"})
                    yield self._chunk(choice.index, {}, **end)
                if self._counted:
                    yield _data(self._head | {"choices": [], "usage": usage_of(reply)})
                yield _DONE
            case ReplyDelta():
                if piece.text:
                    yield self._chunk(0, {"content": piece.text})

    def _chunk(self, index: int, delta: dict[str, Any], **end: Any) -> str:
        choice = {"index": index, "finish_reason": None, "logprobs": None, **end}
        return _data(self._head | {"choices": [choice | self._words(delta)]})

    def _words(self, delta: dict[str, Any]) -> dict[str, Any]:
        return {"delta": delta}


class TextEvents(ChatEvents):
    """Writes a streamed text, chunk by chunk."""

    def _words(self, delta: dict[str, Any]) -> dict[str, Any]:
        return {"text": delta.get("content") or ""}


def _rest(choice: ChatChoice) -> list[dict[str, Any]]:
    """Return what a stream has not sent of a choice: tool calls, and words of a further one."""
    words, calls = choice.message["content"], choice.message.get("tool_calls", [])
    pieces = [{"content": words}] if choice.index and words else []
    return [*pieces, *({"tool_calls": [{"index": at, **call}]} for at, call in enumerate(calls))]


def _data(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value)}\n\n"


def _head(body: ChatCompletionRequest, kind: str) -> dict[str, Any]:
    return {
        "id": f"{kind}-{secrets.token_hex(12)}",
        "created": int(time.time()),
        "model": body.model,
    }


def _completion(said: Said, head: dict[str, Any], reply: Reply) -> ChatCompletion:
    return ChatCompletion(
        **head,
        choices=choices_of(reply, said),
        usage=usage_of(reply),
        memagent=MemoryUse.of(reply, said),
    )


def _text(said: Said, head: dict[str, Any], reply: Reply) -> TextCompletion:
    return TextCompletion(
        **head,
        choices=[
            {
                "index": choice.index,
                "text": choice.message["content"] or "",
                "logprobs": None,
                "finish_reason": choice.finish_reason,
            }
            for choice in choices_of(reply, said)
        ],
        usage=usage_of(reply),
    )


def responses_of(said: Said) -> list[ModelResponse]:
    """Return the model's answers to a message, one a choice."""
    return said.wishes.responses if said.wishes is not None else []
