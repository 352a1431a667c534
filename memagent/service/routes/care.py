"""The care of a memory: review of changes kept aside, traces of a source, erasure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from memagent.client.care_wire import QuarantineList, TakenBack, TouchedList
from memagent.core.ops import Delete
from memagent.core.records import Id, Record
from memagent.core.reports import ErasureReceipt, SourceFilter
from memagent.core.snapshot import Commit
from memagent.memory.facade import Memory
from memagent.service.access import Call, may
from memagent.service.routes.memories import Reader, Writer
from memagent.service.routes.responses import openapi_responses, record

router = APIRouter(tags=["care"])
Eraser = Annotated[Call, Depends(may("memory:delete"))]


@router.get(
    "/v1/quarantine",
    responses=openapi_responses(QuarantineList, description="The changes kept aside"),
)
async def quarantine(call: Reader) -> Response:
    """List the changes that were kept aside, because what they rest on is trusted too little."""
    with call.agent() as agent:
        return record(QuarantineList(items=tuple(await agent.memory.quarantine())))


async def _once(call: Call, work: Callable[[Memory], Awaitable[Record]]) -> Response:
    """Return the record that the work on the memory gives, or the response stored for it."""

    async def answer() -> Response:
        with call.agent() as agent:
            return record(await work(agent.memory))

    return await call.once(answer)


@router.post(
    "/v1/quarantine/{change_id}/accept",
    responses=openapi_responses(Commit, description="The commit that carries it out"),
)
async def accept(change_id: Id, call: Writer) -> Response:
    """Carry out a change that was kept aside.

    Where that takes a memory away, the key needs the scope memory:delete too.
    """

    async def work(memory: Memory) -> Commit:
        if "memory:delete" not in call.caller.scopes:
            await _refuse_deletion(call, memory, change_id)
        return await memory.accept(change_id)

    return await _once(call, work)


async def _refuse_deletion(call: Call, memory: Memory, change_id: str) -> None:
    for waiting in await memory.quarantine():
        if waiting.id == change_id and isinstance(waiting.op, Delete):
            call.need("memory:delete", "takes a memory away")


@router.post(
    "/v1/quarantine/{change_id}/refuse",
    responses=openapi_responses(Commit, description="The commit that settles it"),
)
async def refuse(change_id: Id, call: Writer) -> Response:
    """Settle a change that was kept aside without carrying it out."""
    return await _once(call, lambda memory: memory.refuse(change_id))


@router.post(
    "/v1/sources/touched",
    responses=openapi_responses(TouchedList, description="What rests on the source"),
)
async def touched(body: SourceFilter, call: Reader) -> Response:
    """List every memory that rests on a session, turn, speaker, tool or trust."""
    with call.agent() as agent:
        return record(TouchedList(items=tuple(await agent.memory.touched_by(body))))


@router.post(
    "/v1/sources/exclude",
    responses=openapi_responses(TakenBack, description="The commit that deletes"),
)
async def exclude(body: SourceFilter, call: Eraser) -> Response:
    """Delete every memory that rests on a source, in one commit that can be undone."""

    async def work(memory: Memory) -> TakenBack:
        return TakenBack(commit=await memory.exclude(body))

    return await _once(call, work)


@router.post(
    "/v1/sources/roll-back",
    responses=openapi_responses(TakenBack, description="The commit that sets back"),
)
async def roll_back(body: SourceFilter, call: Eraser) -> Response:
    """Set every memory that rests on a source back to before the source touched it."""

    async def work(memory: Memory) -> TakenBack:
        return TakenBack(commit=await memory.roll_back(body))

    return await _once(call, work)


@router.post(
    "/v1/memories/{memory_id:path}/erase",
    responses=openapi_responses(ErasureReceipt, description="What was erased and searched"),
)
async def erase_memory(
    memory_id: Id,
    call: Eraser,
    keep_turns: Annotated[
        bool, Query(description="Leave the words of the turns that it rests on.")
    ] = False,
) -> Response:
    """Erase one memory beyond recovery, with the words of the turns it rests on."""
    with call.agent() as agent:
        receipt = await agent.memory.erase(memory_id, keep_turns=keep_turns)
    await call.service.jobs.work.forget(call.scope)
    return record(receipt)


@router.post(
    "/v1/sessions/{session_id}/erase",
    responses=openapi_responses(ErasureReceipt, description="What was erased and searched"),
)
async def erase_session(session_id: Id, call: Eraser) -> Response:
    """Erase a session beyond recovery, with every memory that rests on it."""
    with call.agent() as agent:
        receipt = await agent.memory.erase_session(session_id)
    await call.service.jobs.work.forget(call.scope, session_id=session_id)
    return record(receipt)
