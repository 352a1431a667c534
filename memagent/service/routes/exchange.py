"""A conversation with the agent: reply, then remember, and never lose what was said.

The message is stored, with the job that remembers it, before the model is asked; the
reply is stored before the job begins. So a model that fails, a caller who goes away or
a worker that dies costs no turn.

Responses of the routes: JSON of records, ETags, pages, and what OpenAPI says about them.

Records are written by pydantic straight to JSON text; FastAPI would validate them a
second time.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final, TypeVar, cast

from pydantic import BaseModel
from pydantic_core import to_json
from starlette.responses import Response, StreamingResponse

from memagent.client.http import Problem, ServiceError, path_of, problem_of
from memagent.client.wire import Page
from memagent.core.answers import Answer, Question, Reply, ReplyDelta, Verdict
from memagent.core.errors import MemAgentError, ModelError, boundary
from memagent.core.exchange import ModelResponse, Role
from memagent.core.records import DEFAULT_THREAD, MemoryItem, Trust
from memagent.core.snapshot import Entry, SessionStored, StatsDelta, TurnsAdded
from memagent.graphs.chat import NO_MODEL
from memagent.graphs.chat_run import ChatOptions, chat_context, last_reply, start_state, stream_chat
from memagent.llm.wrappers import stream_of
from memagent.memory.threads import Spoken, add_to_thread, store_message
from memagent.protocols import ChatModel
from memagent.service.access import Call
from memagent.service.data.idempotency import PENDING, PendingResponse, request_digest
from memagent.service.gate import request_id_of
from memagent.service.routes.chat_format import ClientModel, Wishes


@dataclass(frozen=True, kw_only=True)
class Said:
    """A message to reply to."""

    text: str
    speaker: str = "user"
    thread: str = DEFAULT_THREAD
    system: str | None = None
    min_trust: Trust | None = None
    earlier: Sequence[Spoken] = ()
    """Messages before it that the thread does not hold yet."""
    wishes: Wishes | None = None
    """What is asked of the model beside the words."""
    memory: bool = True
    """Whether anything is recalled, stored and remembered."""
    dropped: tuple[str, ...] = ()
    """Fields of the request that have no effect."""
    deliver: Callable[[Reply], None] | None = None
    """Told of the reply right before it is stored."""


def converse(call: Call, said: Said) -> AsyncGenerator[ReplyDelta]:
    """Yield the reply to a message as the model speaks; the last piece has the `Reply`.

    The first piece is empty and says that the message is stored.
    A job remembers the exchange afterwards. Raises `ModelError`; the message is stored
    and remembered then too.
    """
    return _remembered(call, said) if said.memory else _without_memory(call.service.model, said)


async def _remembered(call: Call, said: Said) -> AsyncGenerator[ReplyDelta]:
    jobs, message = call.service.jobs, Spoken(said.text, said.speaker)
    with call.agent() as agent:
        if said.earlier:
            await add_to_thread(agent.bank, said.thread, said.earlier, at=agent.clock())
        end = await store_message(agent.bank, said.thread, message, at=agent.clock())
        job = await jobs.accept_growth(call.scope, end.session)
        options: ChatOptions = {
            "thread": said.thread,
            "speaker": said.speaker,
            "system": said.system,
            "min_trust": said.min_trust,
            "remember": False,
        }
        context = replace(chat_context(agent.context, options), deliver=said.deliver)
        if said.wishes is not None:
            asked = said.wishes.request
            context = replace(
                context,
                model=ClientModel(context.model, said.wishes),
                sampling={**context.sampling, Role.ANSWERER: asked.sampling},
                client_tools=asked.tools,
                client_transcript=asked.messages,
                client_schema=asked.schema_,
            )
        state = start_state(said.text, options, thread=said.thread)
        deltas = stream_chat(state, context=context, checkpointer=None, tracing=agent.tracing)
        try:
            yield ReplyDelta()
            async with aclosing(deltas):
                async for delta in deltas:
                    if delta.reply is not None and delta.reply.tool_calls and said.deliver:
                        said.deliver(delta.reply)  # it writes no turn
                        if PENDING.get() is not None:
                            await agent.bank.append(lambda _: StatsDelta())
                    yield delta
        finally:
            jobs.start(job, call.scope)


async def _without_memory(model: ChatModel | None, said: Said) -> AsyncGenerator[ReplyDelta]:
    """Yield what the model itself says to the messages as they came."""
    assert said.wishes is not None
    yield ReplyDelta()
    response = ModelResponse(id="none", text=NO_MODEL)
    if model is None:
        yield ReplyDelta(text=NO_MODEL)
    else:
        asked = ClientModel(model, replace(said.wishes, history=()))
        with boundary(ModelError, "model"):
            async with aclosing(stream_of(asked, said.wishes.request)) as deltas:
                async for delta in deltas:
                    response = delta.response or response
                    yield ReplyDelta(text=delta.text)
    reply = Reply(
        text=response.text,
        verdict=Verdict.UNSUPPORTED,
        usage=response.usage,
        tool_calls=response.tool_calls,
        thread=said.thread,
        session_id=said.thread,
    )
    yield ReplyDelta(reply=reply)


async def reply_to(call: Call, said: Said) -> Reply:
    """Reply to a message and have a job remember the exchange. Raises `ModelError`."""
    return await last_reply(converse(call, said))


Piece = ReplyDelta | Problem | None
"""What a stream tells: None once the message is stored, words, the reply, or a problem."""


async def answer(
    call: Call,
    said: Said,
    shape: Callable[[Reply], BaseModel],
    write: Callable[[Piece], Iterable[str]] | None,
    *,
    name: str | None = None,
) -> Response:
    """Return the reply in a format: whole as `shape` makes it, or as events that `write` makes.

    The same request again gives the first response. It is stored under the key of the
    request, or under `name` where a stream or a request without a key is stored too.
    """
    replies: list[Reply] = []
    said = replace(said, deliver=replies.append)

    def keep(entry: Entry) -> Response | None:
        stored = isinstance(entry, SessionStored | TurnsAdded | StatsDelta)
        return record(shape(replies[-1])) if replies and stored else None

    async def work() -> Response:
        return record(shape(await reply_to(call, said)))

    if name is not None:
        PENDING.set(PendingResponse(name, await request_digest(call.request), keep))
    if write is not None:
        response: Response = event_stream(_events(call, said, write))
    else:
        response = await call.once(work, keep=keep)
    if said.dropped:
        response.headers["X-Memagent-Dropped"] = ", ".join(said.dropped)
    return response


async def _events(
    call: Call, said: Said, write: Callable[[Piece], Iterable[str]]
) -> AsyncGenerator[str]:
    """Yield what a format writes of the pieces of a reply, as they come."""
    try:
        async with aclosing(converse(call, said)) as deltas:
            await anext(deltas)  # the empty one: the message is stored
            for event in write(None):
                yield event
            async for delta in deltas:
                for event in write(delta):
                    yield event
    except MemAgentError as exc:
        for event in write(problem_of(exc, request_id=request_id_of(call.request))):
            yield event


def wants_stream(call: Call) -> bool:
    """Return whether the caller asked for server-sent events."""
    return "text/event-stream" in call.request.headers.get("accept", "")


def event_stream(events: AsyncIterator[str]) -> StreamingResponse:
    """Return server-sent events as a response."""
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)


def event(name: str, data: str) -> str:
    """Return one server-sent event; the data is one line of JSON."""
    return f"event: {name}\ndata: {data}\n\n"


_DONE: Final = event("done", "{}")


def reply_events(piece: Piece) -> Iterator[str]:
    """Yield the words of a reply as `delta` events, then the `answer`, or a `problem`."""
    match piece:
        case Problem():
            yield event("problem", piece.model_dump_json(exclude_none=True))
            yield _DONE
        case ReplyDelta(reply=Reply() as reply):
            yield event("answer", reply.model_dump_json())
            yield _DONE
        case ReplyDelta(text=text) if text:
            yield event("delta", ReplyDelta(text=text).model_dump_json())
        case _:
            pass


async def answer_events(call: Call, question: Question) -> AsyncGenerator[str]:
    """Yield the steps of an answer as they finish, then the answer, or a `problem`."""
    values: dict[str, Any] = {}
    try:
        with call.agent() as agent:
            async for node, update in agent.stream(question):
                values |= update
                yield event("step", f'{{"name":"{node}"}}')
        yield event("answer", cast("Answer", values["answer"]).model_dump_json())
    except MemAgentError as exc:
        problem = problem_of(exc, request_id=request_id_of(call.request))
        yield event("problem", problem.model_dump_json(exclude_none=True))
    yield _DONE


T = TypeVar("T")
_JSON: Final = "application/json"
_REFUSALS: Final = {
    400: "A cursor or body that cannot be read",
    401: "No API key, or one that is not known",
    403: "The API key does not allow it",
    404: "Not there, or somebody else's",
    409: "In conflict with what is stored, or with the same request at work",
    412: "If-Match names another version",
    413: "Too large",
    415: "A body of another type",
    421: "The Host header names another host",
    422: "A field is wrong",
    429: "Too many requests",
    500: "A fault of the service",
    501: "Something optional is not installed",
    502: "The language model failed",
    503: "Overloaded, or the store or the model cannot be reached now",
    504: "The language model did not answer in time",
}


EVENTS: Final[dict[str, Any]] = {
    "text/event-stream": {
        "schema": {
            "type": "object",
            "properties": {"event": {"type": "string"}, "data": {"type": "string"}},
            "required": ["data"],
        }
    }
}
"""The content of server-sent events in OpenAPI."""


def openapi_responses(
    model: type[BaseModel] | None,
    status: int = 200,
    description: str = "Done",
    **more: dict[str, Any],
) -> dict[int | str, dict[str, Any]]:
    """Return what OpenAPI says about a route's responses: the good one, and problems."""
    good: dict[str, Any] = {"model": model} if model is not None else {}
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    bad: dict[int | str, dict[str, Any]] = {
        code: {"description": words, "content": content} for code, words in _REFUSALS.items()
    }
    return {**bad, status: {"description": description, **good, **more}}


def record(
    value: BaseModel, status: int = 200, headers: dict[str, str] | None = None, **dump: Any
) -> Response:
    """Return a record as JSON."""
    return Response(value.model_dump_json(by_alias=True, **dump).encode(), status, headers, _JSON)


def hits_response(hits: Iterable[tuple[MemoryItem, float]]) -> Response:
    """Write unexplained hits as `Hits` would be, without making a record of each."""
    rows = [
        {"id": item.id, "kind": "item", "score": score, "item": item, "event": None}
        for item, score in hits
    ]
    return Response(to_json({"hits": rows, "evidence": None}), 200, None, _JSON)


def etag_of(item: MemoryItem) -> str:
    """Return the item's ETag: its version, and the op, since an undone version may come again."""
    return f'"{item.version}-{item.op_id or "0"}"'


def item_response(item: MemoryItem | None, status: int = 200) -> Response:
    """Return an item with its ETag."""
    assert item is not None
    headers = {"ETag": etag_of(item)}
    if status == 201:
        headers["Location"] = path_of("memories", item.id)
    return record(item, status, headers)


def check_match(header: str | None, item: MemoryItem, version: int | None) -> int | None:
    """Return the version an edit is for, by `If-Match` or the body.

    Raises `ServiceError` (`precondition_failed`).
    """
    if header is None or header.strip() == "*":
        return version
    if etag_of(item) not in {tag.strip().removeprefix("W/") for tag in header.split(",")}:
        digits = header.strip().removeprefix("W/").strip('"').partition("-")[0]
        expected = int(digits) if digits.isdecimal() and len(digits) < 10 else 0
        if expected == item.version:
            raise ServiceError(
                f"If-Match names no ETag of this memory: it is {etag_of(item)} now",
                code="precondition_failed",
            )
        raise ServiceError(
            f"the memory has changed: it is at version {item.version} now, If-Match names "
            f"{expected}",
            code="precondition_failed",
        )
    return item.version


@dataclass(frozen=True, slots=True)
class PageRequest:
    """The requested page of a listing; a cursor is good for its listing and terms only."""

    listing: str
    cursor: str | None
    limit: int
    terms: str = ""


def after_of(call: Call, request: PageRequest) -> str | None:
    """Return the id that the cursor of a page stands behind; None without a cursor.

    Raises `ServiceError` (`invalid_cursor`) for a cursor of another list.
    """
    if request.cursor is None:
        return None
    return call.service.cursors.read(
        request.cursor, listing=request.listing, scope=call.scope, terms=request.terms
    )


def page_from(
    call: Call, entries: Iterable[T], request: PageRequest, *, id_of: Callable[[T], str]
) -> tuple[list[T], str | None]:
    """Return the first entries of those that follow a cursor, and the cursor behind them."""
    items = list(islice(entries, request.limit + 1))
    if len(items) <= request.limit:
        return items, None
    items.pop()
    return items, call.service.cursors.make(
        id_of(items[-1]), listing=request.listing, scope=call.scope, terms=request.terms
    )


def page_response(model: type[Page[T]], entries: tuple[list[T], str | None]) -> Response:
    """Return a page as JSON: its entries, and the cursor behind them."""
    items, further = entries
    return record(model(items=tuple(items), next_cursor=further))


def page_of(
    call: Call,
    entries: Sequence[T],
    request: PageRequest,
    *,
    id_of: Callable[[T], str],
    visible: Callable[[T], bool] = lambda _: True,
) -> tuple[list[T], str | None]:
    """Return the visible entries behind a cursor, and the cursor behind them.

    `entries` is everything in order, what is hidden included: a cursor stands behind an
    entry even when that one is hidden meanwhile. Raises `ServiceError` (`invalid_cursor`) when the
    entry that the cursor stands behind is gone.
    """
    start, after = 0, after_of(call, request)
    if after is not None:
        places = (place for place, entry in enumerate(entries, 1) if id_of(entry) == after)
        start = next(places, 0)
        if not start:
            raise gone()
    return page_from(call, filter(visible, islice(entries, start, None)), request, id_of=id_of)


def gone() -> ServiceError:
    """Return the error for a cursor whose entry is not there any more."""
    return ServiceError(
        "the entry that the cursor stands behind is gone; begin without one",
        code="invalid_cursor",
    )
