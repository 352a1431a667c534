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
from dataclasses import replace
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel
from starlette.responses import Response

from memagent.client.http import ServiceError
from memagent.core.answers import Reply
from memagent.memory.threads import Spoken, thread_turns
from memagent.readers.files import object_in
from memagent.service.access import Call, may
from memagent.service.routes import exchange
from memagent.service.routes.chat_format import unsupported
from memagent.service.routes.exchange import EVENTS, openapi_responses, record
from memagent.service.routes.openai_chat import Continued, OpenAITalker, ThreadName, said_of
from memagent.service.routes.responses_format import (
    Item,
    ResponseEvents,
    ResponseObject,
    ResponseRequest,
    listed_item,
)

router = APIRouter(tags=["openai"])
Reader = Annotated[Call, Depends(may("chat"))]
Talker = Annotated[Call, Depends(may("chat", "memory:write"))]
# What is stored beside a response, and not shown with it.
_OWN: Final = ("input", "context")


class StoredResponse(ResponseObject):
    """A response with what is stored beside it, for the requests that follow on it."""

    input: list[Item]
    context: list[Item]
    """The items since the last user message that came with earlier requests."""


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
    items = [await _resolved(call, item) for item in body.items]
    context, after = await _followed(body, call)
    said = await said_of(body.as_chat([*context, *items]), call, thread, after)
    if not said.memory and (body.previous_response_id or (body.store and not call.asker.task)):
        name = "store" if body.store else "previous_response_id"
        raise unsupported(name, "needs memory, which is turned off")
    stored = said.memory and body.store is not False
    repeatable = call.key is not None and not body.stream
    key = call.journal_key if repeatable else secrets.token_hex(16)
    begun = ResponseObject.begun(body, key, stored=stored)

    def shape(reply: Reply) -> StoredResponse:
        own = [{"id": f"item_{key}_{at}", **listed_item(item)} for at, item in enumerate(items)]
        answered = begun.answered(reply, said).model_dump()
        return StoredResponse(**answered, input=own, context=context)

    write = ResponseEvents(begun, said).write if body.stream else None
    name = key if stored and not repeatable else None
    response = await exchange.answer(call, said, shape, write, name=name)
    if write is None:
        response.body = _shown(json.loads(bytes(response.body)))
        response.headers["Content-Length"] = str(len(response.body))
    return response


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
    return Response(_shown(await _find(call, response_id)), media_type="application/json")


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
    return record(ItemList(data=page, first_id=ids[0], last_id=ids[-1], has_more=more))


@router.delete(
    "/v1/responses/{response_id}",
    responses=openapi_responses(DeletedResponse, description="Deleted"),
)
async def delete_response(response_id: str, call: Talker) -> Response:
    """Delete a stored response; what was said stays remembered."""
    await _find(call, response_id)
    await call.service.requests.drop(call.scope, response_id.removeprefix("resp_"))
    return record(DeletedResponse(id=response_id))


async def _followed(body: ResponseRequest, call: Call) -> tuple[list[Item], Continued | None]:
    """Return the conversation that a request follows on, and what it left open.

    That is the items since its last user message, where it waits for results of tools.
    """
    if body.previous_response_id is None:
        return [], None
    before = await _find(call, body.previous_response_id)
    after = await _continued(call, before)
    if not any(item["type"] == "function_call" for item in before["output"]):
        return [], after
    context = [*before["context"], *before["input"], *before["output"]]
    users = [at for at, item in enumerate(context) if item.get("role") == "user"]
    return context[max(users, default=0) :], replace(after, known=1)


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


async def _find(call: Call, response_id: str) -> Item:
    """Return a stored response with what is stored beside it. Raises `ServiceError`."""
    stored = await call.service.requests.find(call.scope, response_id.removeprefix("resp_"))
    body: Item = object_in(json.loads(stored.body)) if stored is not None and stored.body else {}
    if body.get("object") != "response" or not body["store"]:
        raise _not_there(response_id)
    return body


def _not_there(name: str) -> ServiceError:
    return ServiceError(f"{name[:100]!r} is not stored", status=404, code="response_not_found")


def _shown(stored: Item) -> bytes:
    """Write a response without what is stored beside it."""
    return json.dumps({name: stored[name] for name in stored if name not in _OWN}).encode()
