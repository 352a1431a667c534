"""Snapshots: places in the journal with a name and a digest.

Taking one writes no words; restoring appends, so it can be undone.
"""

from __future__ import annotations

import uuid
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from memagent.client.wire import MAX_PAGE, Fork, NewSnapshot, SnapshotInfo, SnapshotPage
from memagent.core.answers import AsOf
from memagent.core.errors import MemoryNotFound, SnapshotMismatch
from memagent.core.records import Id, Scope, content_id
from memagent.core.snapshot import Entry, MemorySnapshot, Restored, SnapshotDiff
from memagent.memory import timetravel
from memagent.memory.bank import MemoryBank, system_clock
from memagent.service.access import Call
from memagent.service.routes.memories import Reader, Writer
from memagent.service.routes.responses import PageRequest, openapi_responses, page_of, record

router = APIRouter(tags=["snapshots"])


@router.post(
    "/v1/snapshots", status_code=201, responses=openapi_responses(SnapshotInfo, 201, "The snapshot")
)
async def take_snapshot(body: NewSnapshot, call: Writer) -> Response:
    """Remember this point of the memory."""

    async def work() -> Response:
        with call.agent() as agent:
            state = await agent.bank.sync()
        info = SnapshotInfo(
            id=content_id(
                "snp", call.scope.key, call.journal_key if call.key else uuid.uuid4().hex
            ),
            name=body.name,
            digest=state.digest(),
            seq=state.seq,
            items=sum(1 for _ in state.active()),
            created_at=system_clock(),
        )
        return record(await run_in_threadpool(call.service.snapshots.add, call.scope, info), 201)

    return await call.once(work)


@router.get(
    "/v1/snapshots", responses=openapi_responses(SnapshotPage, description="A page of snapshots")
)
async def list_snapshots(
    call: Reader,
    cursor: Annotated[str | None, Query(max_length=2_000)] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100,
) -> Response:
    """List snapshots, oldest first."""
    infos = await run_in_threadpool(call.service.snapshots.of, call.scope)
    items, further = page_of(
        call, infos, PageRequest("snapshots", cursor, limit), id_of=lambda info: info.id
    )
    return record(SnapshotPage(items=tuple(items), next_cursor=further))


@router.get(
    "/v1/snapshots/{snapshot_id}",
    responses=openapi_responses(SnapshotInfo, description="The snapshot"),
)
async def get_snapshot(snapshot_id: Id, call: Reader) -> Response:
    """Return one snapshot."""
    return record(await find_snapshot(call, snapshot_id))


@router.post(
    "/v1/snapshots/{snapshot_id}/restore",
    responses=openapi_responses(SnapshotInfo, description="The memory as it is now"),
)
async def restore_snapshot(snapshot_id: Id, call: Writer) -> Response:
    """Put the memory back to a snapshot; one entry of the journal.

    Where that takes memories away, the key needs the scope memory:delete too.
    """

    async def work() -> Response:
        info = await find_snapshot(call, snapshot_id)
        with call.agent() as agent:
            snapshot = await _snapshot(info, agent.bank)
            if "memory:delete" not in call.caller.scopes and (
                (await agent.memory.diff(snapshot)).added
            ):
                call.need("memory:delete", "takes away memories that came after it")
            await agent.memory.restore(snapshot)
        return record(info)

    infos = await run_in_threadpool(call.service.snapshots.of, call.scope)
    known = next((info for info in infos if info.id == snapshot_id), None)

    def keep(entry: Entry) -> Response | None:
        return record(known) if known is not None and isinstance(entry, Restored) else None

    return await call.once(work, keep=keep)


@router.post(
    "/v1/snapshots/{snapshot_id}/fork",
    status_code=201,
    responses=openapi_responses(Fork, 201, "The new memory"),
)
async def fork_snapshot(snapshot_id: Id, call: Writer) -> Response:
    """Make a new memory of the same user from a snapshot; use it by its `run_id`."""

    async def work() -> Response:
        info = await find_snapshot(call, snapshot_id)
        run_id = content_id(
            "frk", call.scope.key, snapshot_id, call.journal_key if call.key else uuid.uuid4().hex
        )
        scope = Scope(user_id=call.scope.user_id, agent_id=call.scope.agent_id, run_id=run_id)
        with call.agent() as agent, call.service.banks.agent(scope) as copy:
            snapshot = await _snapshot(info, agent.bank)
            if (await copy.bank.sync()).seq == 0:
                await copy.memory.restore(snapshot)
        fork = Fork(
            user_id=scope.user_id, agent_id=scope.agent_id, run_id=run_id, digest=info.digest
        )
        return record(fork, 201)

    return await call.once(work)


@router.get(
    "/v1/snapshots/{snapshot_id}/diff",
    responses=openapi_responses(SnapshotDiff, description="What changed"),
)
async def diff(
    snapshot_id: Id,
    call: Reader,
    to: Annotated[Id | None, Query(description="The later snapshot; now when left out.")] = None,
) -> Response:
    """Return what changed from a snapshot to another, or until now."""
    first = await find_snapshot(call, snapshot_id)
    last = await find_snapshot(call, to) if to is not None else None
    with call.agent() as agent:
        before = await _snapshot(first, agent.bank)
        after = await _snapshot(last, agent.bank) if last is not None else None
        return record(await agent.memory.diff(before, after))


async def find_snapshot(call: Call, snapshot_id: str) -> SnapshotInfo:
    """Return a snapshot of the call's memory. Raises `MemoryNotFound`."""
    infos = await run_in_threadpool(call.service.snapshots.of, call.scope)
    for info in infos:
        if info.id == snapshot_id:
            return info
    raise MemoryNotFound(f"no snapshot {snapshot_id!r} for user {call.scope.user_id!r}")


async def _snapshot(info: SnapshotInfo, bank: MemoryBank) -> MemorySnapshot:
    """Replay a snapshot's content from the journal.

    Raises `SnapshotMismatch` when that was erased since.
    """
    snapshot = (await timetravel.as_of(bank, AsOf(recorded=info.seq))).snapshot()
    if snapshot.digest != info.digest:
        raise SnapshotMismatch(
            f"snapshot {info.id!r} cannot be shown any more: what it held was erased"
        )
    return snapshot
