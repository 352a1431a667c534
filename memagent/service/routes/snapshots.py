"""Snapshots: places in the journal with a name and a digest.

Taking one writes no words; restoring appends, so it can be undone.

The event graph: its open events, the surroundings of a node, figures, and export.
"""

from __future__ import annotations

from collections.abc import Container
from itertools import islice
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from memagent.client.wire import (
    MAX_PAGE,
    EventPage,
    Fork,
    GraphStats,
    Neighbour,
    Neighbours,
    NewSnapshot,
    SnapshotInfo,
    SnapshotPage,
)
from memagent.core.answers import AsOf, Filter, GraphFormat
from memagent.core.errors import MemoryNotFound, SnapshotMismatch
from memagent.core.long_work import aside
from memagent.core.records import Event, EventEdge, Id, NodeKind, Scope, content_id
from memagent.core.snapshot import Entry, MemorySnapshot, Restored, SnapshotDiff
from memagent.events.visibility import OutOfSight, events_behind
from memagent.memory import timetravel
from memagent.memory.bank import MemoryBank, system_clock
from memagent.service.access import Call, once
from memagent.service.routes.exchange import (
    PageRequest,
    after_of,
    openapi_responses,
    page_from,
    page_of,
    page_response,
    record,
)
from memagent.service.routes.memories import Reader, Writer, as_of_query
from memagent.state.fold import BankState

router = APIRouter(tags=["snapshots"])


@router.post(
    "/v1/snapshots", status_code=201, responses=openapi_responses(SnapshotInfo, 201, "The snapshot")
)
@once()
async def take_snapshot(body: NewSnapshot, call: Writer) -> Response:
    """Remember this point of the memory."""
    state = await call.state()
    info = SnapshotInfo(
        id=content_id("snp", call.scope.key, call.journal_key),
        name=body.name,
        digest=state.digest(),
        seq=state.seq,
        items=state.live,
        created_at=system_clock(),
    )
    return record(await run_in_threadpool(call.service.snapshots.add, call.scope, info), 201)


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
    return page_response(
        SnapshotPage,
        page_of(call, infos, PageRequest("snapshots", cursor, limit), id_of=lambda info: info.id),
    )


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
    info = await find_snapshot(call, snapshot_id)

    async def work() -> Response:
        with call.agent() as agent:
            snapshot = await _snapshot(info, agent.bank)
            if "memory:delete" not in call.caller.scopes and (
                (await agent.memory.diff(snapshot)).added
            ):
                call.need("memory:delete", "takes away memories that came after it")
            await agent.memory.restore(snapshot)
        return record(info)

    def keep(entry: Entry) -> Response | None:
        return record(info) if isinstance(entry, Restored) else None

    return await call.once(work, keep=keep)


@router.post(
    "/v1/snapshots/{snapshot_id}/fork",
    status_code=201,
    responses=openapi_responses(Fork, 201, "The new memory"),
)
@once()
async def fork_snapshot(snapshot_id: Id, call: Writer) -> Response:
    """Make a new memory of the same user from a snapshot; use it by its `run_id`."""
    info = await find_snapshot(call, snapshot_id)
    run_id = content_id("frk", call.scope.key, snapshot_id, call.journal_key)
    scope = Scope(user_id=call.scope.user_id, agent_id=call.scope.agent_id, run_id=run_id)
    with call.agent() as agent, call.service.banks.agent(scope) as copy:
        snapshot = await _snapshot(info, agent.bank)
        if (await copy.bank.sync()).seq == 0:
            await copy.memory.restore(snapshot)
    fork = Fork(user_id=scope.user_id, agent_id=scope.agent_id, run_id=run_id, digest=info.digest)
    return record(fork, 201)


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
    for info in await run_in_threadpool(call.service.snapshots.of, call.scope):
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


graph_router = APIRouter(tags=["event graph"])
_TYPES = {
    "html": "text/html; charset=utf-8",
    "json": "application/json",
    "graphml": "application/xml",
}
# The page is one self-contained file with its script inside; it may load nothing.
_GRAPH_PAGE_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; "
    "frame-ancestors 'none'"
)


@graph_router.get(
    "/v1/events", responses=openapi_responses(EventPage, description="A page of events")
)
async def list_events(
    call: Reader,
    cursor: Annotated[str | None, Query(max_length=2_000)] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100,
) -> Response:
    """List the open events, by id."""
    request = PageRequest("events", cursor, limit)
    after = after_of(call, request)
    with call.agent() as agent:
        state = await agent.bank.sync()
        behind = events_behind(state, after, expired=agent.bank.expired)
        events = await aside(list[Event], islice(behind, limit + 1))
    return page_response(EventPage, page_from(call, events, request, id_of=lambda event: event.id))


@graph_router.get(
    "/v1/events/{event_id:path}/neighbors",
    responses=openapi_responses(Neighbours, description="The node and its edges"),
)
async def neighbors(event_id: Id, call: Reader) -> Response:
    """Return a node of the graph and its neighbours in sight.

    A node is an event, a memory, a person or a topic.
    """
    with call.agent() as agent:
        state = await agent.bank.sync()
        view = await aside(neighbourhood, state, event_id, agent.bank.expired)
    if view is None:
        raise MemoryNotFound(f"no event {event_id!r} for user {call.scope.user_id!r}")
    near = [
        Neighbour(edge=edge, outgoing=outgoing, node=other) for edge, outgoing, other in view[1]
    ]
    near.sort(key=lambda each: (each.node.kind is not NodeKind.EVENT, each.node.id, each.edge.key))
    return record(Neighbours(node=view[0], neighbours=tuple(near)))


def neighbourhood(
    state: BankState, node_id: str, expired: Container[str]
) -> tuple[Event, list[tuple[EventEdge, bool, Event]]] | None:
    """Return a node in sight and its (edge, outgoing, other node) in sight, else None."""
    node, hidden = state.graph.node(node_id), OutOfSight(state, Filter(), expired)
    if node is None or node.closed or node_id in hidden:
        return None
    return node, [
        (edge, outgoing, other)
        for other_id, edge, outgoing in state.graph.edges_of(node_id)
        if (other := state.graph.node(other_id)) is not None
        and not other.closed
        and other_id not in hidden
    ]


@graph_router.get("/v1/graph/stats", responses=openapi_responses(GraphStats, description="Figures"))
async def graph_stats(call: Reader) -> Response:
    """Return figures of the event graph."""
    with call.agent() as agent:
        return record(await agent.memory.graph_stats())


@graph_router.get(
    "/v1/graph",
    response_class=Response,
    responses=openapi_responses(
        None,
        description="The graph",
        content={kind.partition(";")[0]: {} for kind in _TYPES.values()},
    ),
)
async def graph(
    call: Reader,
    as_of: Annotated[AsOf, Depends(as_of_query)],
    format: GraphFormat = "json",
    include_hidden: bool = True,
) -> Response:
    """Export the event graph with its turns, as a page, node-link JSON or GraphML."""
    with call.agent() as agent:
        export = await agent.memory.export_graph(
            format=format, as_of=as_of, include_hidden=include_hidden
        )
    headers = {
        "X-Graph-Nodes": str(export.nodes),
        "X-Graph-Edges": str(export.edges),
        "X-Graph-Turns": str(export.turns),
        "X-Graph-Digest": export.digest,
    }
    if format == "html":
        headers["Content-Security-Policy"] = _GRAPH_PAGE_POLICY
    return Response(await aside(export.text.encode), headers=headers, media_type=_TYPES[format])
