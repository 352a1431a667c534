"""Chat with memory in OpenAI's Responses format.

A response is stored beside the turns that it wrote, in the journal's table of first
responses: an erasure takes it along, and it is known for `idempotency_days`. What follows
on it by `previous_response_id` continues its thread, or a copy of the thread up to there
where that has gone on since.
"""

from __future__ import annotations

import json
import secrets
import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final, Literal, cast

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel
from starlette.responses import Response

from memagent.client.http import ServiceError
from memagent.core.answers import Reply, ReplyDelta
from memagent.core.snapshot import Entry, SessionStored, StatsDelta, TurnsAdded
from memagent.memory.threads import Spoken, thread_turns
from memagent.service.access import Call, may
from memagent.service.data.idempotency import PENDING, PendingResponse, request_digest
from memagent.service.routes import exchange
from memagent.service.routes.client_model import unsupported
from memagent.service.routes.exchange import EVENTS, Said, openapi_responses, record
from memagent.service.routes.openai_chat import (
    Continued,
    OpenAITalker,
    ThreadName,
    responses_of,
    said_of,
)
from memagent.service.routes.responses_format import (
    Item,
    ResponseObject,
    ResponseRequest,
    response_events,
)

router = APIRouter(tags=["openai"])
Reader = Annotated[Call, Depends(may("chat"))]
Talker = Annotated[Call, Depends(may("chat", "memory:write"))]
_OWN: Final = ("input", "context")
"""What is stored beside a response, and not shown with it."""


class ItemList(BaseModel):
    """The items of a request."""

    object: Literal["list"] = "list"
    data: list[Item]
    first_id: str | None
    last_id: str | None
    has_more: bool


class DeletedResponse(BaseModel):
    """The receipt for a deleted response."""

    id: str
    object: Literal["response"] = "response"
    deleted: Literal[True] = True


@router.post(
    "/v1/responses",
    responses=openapi_responses(ResponseObject, description="The response", content=EVENTS),
)
async def create_response(
    body: ResponseRequest, call: OpenAITalker, thread: ThreadName = None
) -> Response:
    """Reply to the input with what is remembered, and remember the exchange.

    The conversation is that of `previous_response_id`, of the header, or is found by the
    beginning of the input. Tools are the caller's: the response names the calls, and the
    next request brings their results.
    """
    if thread is not None and body.previous_response_id is not None:
        raise unsupported("previous_response_id", "and X-Memagent-Thread name two conversations")
    exchanged = await _exchanged(body, call, thread)
    if body.stream:
        pending = await _pending(call, exchanged)
        return exchange.event_stream(
            response_events(exchanged.begun, _told(call, exchanged, pending))
        )

    async def work() -> Response:
        async with aclosing(_replied(call, exchanged)) as deltas:
            async for _ in deltas:
                pass
        return exchanged.response()

    if call.key is not None:
        return _shown(await call.once(work, keep=exchanged.keep))
    PENDING.set(await _pending(call, exchanged))
    return _shown(await work())


@router.get(
    "/v1/responses/{response_id}",
    responses=openapi_responses(ResponseObject, description="The response"),
)
async def get_response(
    response_id: str,
    call: Reader,
    stream: Annotated[bool, Query(description="Not supported.")] = False,
) -> Response:
    """Return a stored response."""
    if stream:
        raise unsupported("stream", "is not supported for a stored response")
    stored = await _find(call, response_id)
    return _json({name: value for name, value in stored.items() if name not in _OWN})


@router.get(
    "/v1/responses/{response_id}/input_items",
    responses=openapi_responses(ItemList, description="The items"),
)
async def list_input_items(
    response_id: str,
    call: Reader,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    order: Literal["asc", "desc"] = "desc",
    after: Annotated[str | None, Query(max_length=256)] = None,
) -> Response:
    """List the items of the request that a stored response answers."""
    stored = await _find(call, response_id)
    items: list[Item] = stored["input"][:: 1 if order == "asc" else -1]
    start = next((at for at, item in enumerate(items, 1) if item["id"] == after), 0)
    if after is not None and not start:
        raise unsupported("after", "names no item of the response")
    page = items[start : start + limit]
    ids = [item["id"] for item in page] or [None]
    more = start + limit < len(items)
    listed = ItemList(data=page, first_id=ids[0], last_id=ids[-1], has_more=more)
    return _json(listed.model_dump(mode="json"))


@router.delete(
    "/v1/responses/{response_id}",
    responses=openapi_responses(DeletedResponse, description="Deleted"),
)
async def delete_response(response_id: str, call: Talker) -> Response:
    """Delete a stored response; what was said stays remembered."""
    await _find(call, response_id)
    await call.service.requests.drop(call.scope, _key_of(response_id))
    return record(DeletedResponse(id=response_id))


@dataclass
class Exchanged:
    """A request with its response, and what a later one needs of them."""

    said: Said
    begun: ResponseObject
    items: list[Item]
    context: list[Item]
    """The items since the last user message that came with earlier requests."""
    answered: list[ResponseObject] = field(default_factory=list[ResponseObject])

    def deliver(self, reply: Reply) -> None:
        """Take in the reply right before it is stored."""
        memory, responses = self.said.memory, responses_of(self.said)
        self.answered.append(self.begun.answered(reply, responses, memory=memory))

    def response(self) -> Response:
        """Return the response as it is stored."""
        key = self.begun.key
        own = [{"id": f"item_{key}_{at}", **item} for at, item in enumerate(self.items)]
        answered = self.answered[-1].model_dump(mode="json")
        return _json({**answered, "input": own, "context": self.context})

    def keep(self, entry: Entry) -> Response | None:
        """Return what is stored along with an entry of the journal, once there is a reply."""
        writes = isinstance(entry, SessionStored | TurnsAdded | StatsDelta)
        return self.response() if self.answered and writes else None


async def _exchanged(body: ResponseRequest, call: Call, thread: str | None) -> Exchanged:
    """Read the request. Raises `ServiceError` for what is not supported or not there."""
    stored = body.stored
    items = [await _resolved(call, item) for item in body.items]
    context: list[Item] = []
    after: Continued | None = None
    if body.previous_response_id is not None:
        before = await _find(call, body.previous_response_id)
        after = await _continued(call, before)
        if any(item["type"] == "function_call" for item in before["output"]):
            context = [*before["context"], *before["input"], *before["output"]]
            context = context[_last_user(context) :]
            after = replace(after, known=1)
    chat = body.as_chat([*context, *items])
    said = await said_of(chat, call, thread, after)
    repeatable = call.key is not None and not body.stream
    key = call.journal_key if repeatable else secrets.token_hex(16)
    begun = ResponseObject.begun(body, key, stored=stored)
    exchanged = Exchanged(said=said, begun=begun, items=items, context=context)
    exchanged.said = replace(said, deliver=exchanged.deliver)
    return exchanged


def _last_user(items: list[Item]) -> int:
    """Return the place of the last message of the user."""
    return max((at for at, item in enumerate(items) if item.get("role") == "user"), default=0)


async def _resolved(call: Call, item: Item) -> Item:
    """Return the item, or that of a stored response which it names."""
    if item.get("type") != "item_reference":
        return item
    name = str(item.get("id"))
    stored = await _find(call, f"resp_{name.partition('_')[2].partition('_')[0]}")
    named = [each for each in (*stored["output"], *stored["input"]) if each["id"] == name]
    if not named:
        raise _not_there(name)
    return named[0]


async def _continued(call: Call, before: Item) -> Continued:
    """Return the conversation of a stored response, up to it."""
    use = before["memagent"]
    with call.agent() as agent:
        turns = thread_turns(await agent.bank.sync(), use["thread"])
    last = next((at for at, turn in enumerate(turns, 1) if turn.id == use["turn_ids"][-1]), 0)
    if not last:
        raise _not_there(before["id"])
    if last == len(turns):
        return Continued(thread=use["thread"])
    spoken = (Spoken(turn.text, turn.speaker, turn.trust, recalled=True) for turn in turns[:last])
    return Continued(thread=f"thr_{uuid.uuid4().hex}", turns=tuple(spoken))


async def _replied(call: Call, exchanged: Exchanged) -> AsyncGenerator[ReplyDelta]:
    """Yield the reply; one that calls tools writes no turn, and is stored by itself."""
    said = exchanged.said
    async with aclosing(exchange.converse(call, said)) as deltas:
        async for delta in deltas:
            if delta.reply is not None and not exchanged.answered:
                exchanged.deliver(delta.reply)
                if said.memory and PENDING.get() is not None:
                    with call.agent() as agent:
                        await agent.bank.append(lambda _: StatsDelta())
            yield delta


async def _told(
    call: Call, exchanged: Exchanged, pending: PendingResponse | None
) -> AsyncGenerator[ReplyDelta | ResponseObject]:
    """Yield the reply, and at last the response, which is stored by then."""
    PENDING.set(pending)
    async with aclosing(_replied(call, exchanged)) as deltas:
        async for delta in deltas:
            yield delta
    yield exchanged.answered[-1]


async def _pending(call: Call, exchanged: Exchanged) -> PendingResponse | None:
    """Return what stores the response; None for one that is not stored."""
    if not exchanged.begun.store:
        return None
    digest = await request_digest(call.request)
    return PendingResponse(exchanged.begun.key, digest, exchanged.keep)


async def _find(call: Call, response_id: str) -> Item:
    """Return a stored response with what is stored beside it. Raises `ServiceError`."""
    stored = await call.service.requests.find(call.scope, _key_of(response_id))
    body = _response_in(stored.body) if stored is not None else None
    if body is None or not body["store"]:
        raise _not_there(response_id)
    return body


def _response_in(text: str | bytes) -> Item | None:
    """Read a response with what is stored beside it; None for anything else."""
    value: Any = json.loads(text) if text else None
    body = cast("Item", value) if isinstance(value, dict) else {}
    return body if body.get("object") == "response" else None


def _key_of(response_id: str) -> str:
    return response_id.removeprefix("resp_")


def _not_there(name: str) -> ServiceError:
    return ServiceError(f"{name[:100]!r} is not stored", status=404, code="response_not_found")


def _shown(response: Response) -> Response:
    """Return a response without what is stored beside it."""
    body = _response_in(bytes(response.body))
    if body is None:
        return response
    shown = _json({name: value for name, value in body.items() if name not in _OWN})
    if replayed := response.headers.get("Idempotent-Replayed"):
        shown.headers["Idempotent-Replayed"] = replayed
    return shown


def _json(value: Item) -> Response:
    return Response(json.dumps(value).encode(), media_type="application/json")
