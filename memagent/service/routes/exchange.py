"""A conversation with the agent: reply, then remember, and never lose what was said.

The message is stored, with the job that remembers it, before the model is asked; the
reply is stored before the job begins. So a model that fails, a caller who goes away or
a worker that dies costs no turn.

Responses of the routes: JSON of records, ETags, pages, and what OpenAPI says about them.

Records are written by pydantic straight to JSON text; FastAPI would validate them a
second time.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final, TypeVar
from urllib.parse import quote

from pydantic import BaseModel
from pydantic_core import to_json
from starlette.responses import Response, StreamingResponse

from memagent.client.http import ServiceError, problem_of
from memagent.core.answers import Answer, Question, Reply, ReplyDelta
from memagent.core.errors import MemAgentError
from memagent.core.exchange import JsonSchema, Message, Role, Sampling, ToolSpec
from memagent.core.records import DEFAULT_THREAD, MemoryItem, Trust
from memagent.graphs.chat_run import ChatOptions, chat_context, last_reply, start_state, stream_chat
from memagent.memory.bank import MemoryBank
from memagent.memory.threads import Spoken, add_to_thread, store_message
from memagent.service.access import Call
from memagent.service.gate import precondition_failed, request_id_of
from memagent.service.routes.client_model import ClientModel, Wishes

_WHOLE_THREAD: Final = 1_000_000_000
"""Tokens of a thread that is shown whole, where no memory stands in for its beginning."""


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
    sampling: Sampling | None = None
    client_tools: tuple[ToolSpec, ...] = ()
    """Tools that the caller runs."""
    client_transcript: tuple[Message, ...] = ()
    """The calls of such tools after the message, and their results."""
    schema: JsonSchema | None = None
    """The JSON Schema that the reply has to follow."""
    wishes: Wishes | None = None
    """What else is asked of the model."""
    memory: bool = True
    """Whether anything is recalled, stored and remembered."""
    deliver: Callable[[Reply], None] | None = None
    """Told of the reply right before it is stored."""


async def converse(call: Call, said: Said) -> AsyncGenerator[ReplyDelta]:
    """Yield the reply to a message as the model speaks; the last piece has the `Reply`.

    The first piece is empty and says that the message is stored.
    A job remembers the exchange afterwards. Raises `ModelError`; the message is stored
    and remembered then too.
    """
    jobs, message = call.service.jobs, Spoken(said.text, said.speaker)
    with call.agent() as agent:
        if not said.memory:
            blank = MemoryBank(embedder=agent.embedder, clock=agent.clock)
            agent = replace(agent, bank=blank)
        if said.earlier:
            await add_to_thread(agent.bank, said.thread, said.earlier, at=agent.clock())
        end = await store_message(agent.bank, said.thread, message, at=agent.clock())
        job = await jobs.accept_growth(call.scope, end.session) if said.memory else None
        options: ChatOptions = {
            "thread": said.thread,
            "speaker": said.speaker,
            "system": said.system,
            "min_trust": said.min_trust,
            "remember": False,
        }
        context = replace(
            chat_context(agent.context, options),
            deliver=said.deliver,
            client_tools=said.client_tools,
            client_transcript=said.client_transcript,
            client_schema=said.schema,
        )
        if said.wishes is not None:
            context = replace(context, model=ClientModel(context.model, said.wishes))
        if not said.memory:
            limits = replace(context.chat, thread_tokens=_WHOLE_THREAD)
            context = replace(context, chat=limits)
        if said.sampling is not None:
            sampling = {**context.sampling, Role.ANSWERER: said.sampling}
            context = replace(context, sampling=sampling)
        state = start_state(said.text, options, thread=said.thread)
        deltas = stream_chat(state, context=context, checkpointer=None, tracing=agent.tracing)
        try:
            yield ReplyDelta()
            async with aclosing(deltas):
                async for delta in deltas:
                    yield delta
        finally:
            if job is not None:
                jobs.start(job, call.scope)


async def reply_to(call: Call, said: Said) -> Reply:
    """Reply to a message and have a job remember the exchange. Raises `ModelError`."""
    return await last_reply(converse(call, said))


def wants_stream(call: Call) -> bool:
    """Return whether the caller asked for server-sent events."""
    return "text/event-stream" in call.request.headers.get("accept", "")


def event_stream(events: AsyncIterator[str]) -> StreamingResponse:
    """Return server-sent events as a response."""
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)


async def reply_events(call: Call, said: Said) -> AsyncGenerator[str]:
    """Yield the words of a reply as `delta` events, then the `answer`, or a `problem`."""
    try:
        async with aclosing(converse(call, said)) as deltas:
            async for delta in deltas:
                if delta.text:
                    yield _event("delta", ReplyDelta(text=delta.text).model_dump_json())
                if delta.reply is not None:
                    yield _event("answer", delta.reply.model_dump_json())
    except MemAgentError as exc:
        yield _problem(call, exc)
    yield _event("done", "{}")


async def answer_events(call: Call, question: Question) -> AsyncGenerator[str]:
    """Yield the steps of an answer as they finish, then the answer, or a `problem`."""
    values: dict[str, Any] = {}
    try:
        with call.agent() as agent:
            async for node, update in agent.stream(question):
                values |= update
                yield _event("step", f'{{"name":"{node}"}}')
        answer: Answer = values["answer"]
        yield _event("answer", answer.model_dump_json())
    except MemAgentError as exc:
        yield _problem(call, exc)
    yield _event("done", "{}")


def _problem(call: Call, exc: MemAgentError) -> str:
    problem = problem_of(exc, request_id=request_id_of(call.request))
    return _event("problem", problem.model_dump_json(exclude_none=True))


def _event(name: str, data: str) -> str:
    """Return one server-sent event; the data is one line of JSON."""
    return f"event: {name}\ndata: {data}\n\n"


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
        headers["Location"] = "/v1/memories/" + quote(item.id, safe="")
    return record(item, status, headers)


def check_match(header: str | None, item: MemoryItem, version: int | None) -> int | None:
    """Return the version an edit is for, by `If-Match` or the body.

    Raises `ServiceError` (`precondition_failed`).
    """
    if header is None or header.strip() == "*":
        return version
    if etag_of(item) not in {tag.strip().removeprefix("W/") for tag in header.split(",")}:
        expected = _version_in(header)
        if expected == item.version:
            raise ServiceError(
                f"If-Match names no ETag of this memory: it is {etag_of(item)} now",
                code="precondition_failed",
            )
        raise precondition_failed(expected=expected, actual=item.version)
    return item.version


def _version_in(header: str) -> int:
    digits = header.strip().removeprefix("W/").strip('"').partition("-")[0]
    return int(digits) if digits.isdecimal() and len(digits) < 10 else 0


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
    behind = filter(visible, islice(entries, start, None))
    return page_from(call, behind, request, id_of=id_of)


def gone() -> ServiceError:
    """Return the error for a cursor whose entry is not there any more."""
    return ServiceError(
        "the entry that the cursor stands behind is gone; begin without one",
        code="invalid_cursor",
    )
