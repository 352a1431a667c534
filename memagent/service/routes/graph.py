"""The event graph: its open events, the surroundings of a node, figures, and export."""

from __future__ import annotations

from collections.abc import Container
from itertools import islice
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from memagent.client.wire import MAX_PAGE, EventPage, Neighbour, Neighbours
from memagent.core.answers import AsOf, Filter
from memagent.core.errors import MemoryNotFound
from memagent.core.graph_document import GraphFormat
from memagent.core.long_work import aside
from memagent.core.records import Event, EventEdge, Id, NodeKind
from memagent.core.reports import GraphStats
from memagent.events.visibility import OutOfSight, events_behind
from memagent.service.routes.memories import Reader, as_of_query
from memagent.service.routes.responses import (
    PageRequest,
    after_of,
    openapi_responses,
    page_from,
    record,
)
from memagent.state.fold import BankState

router = APIRouter(tags=["event graph"])
_TYPES = {
    "html": "text/html; charset=utf-8",
    "json": "application/json",
    "graphml": "application/xml",
}
_GRAPH_PAGE_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; "
    "frame-ancestors 'none'"
)
"""The page is one self-contained file with its script inside; it may load nothing."""


@router.get("/v1/events", responses=openapi_responses(EventPage, description="A page of events"))
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
        events = await aside(_events, state, after, limit + 1, agent.bank.expired)
    items, further = page_from(call, events, request, id_of=lambda event: event.id)
    return record(EventPage(items=tuple(items), next_cursor=further))


@router.get(
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


def _events(
    state: BankState, after: str | None, count: int, expired: Container[str]
) -> list[Event]:
    return list(islice(events_behind(state, after, expired=expired), count))


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


@router.get("/v1/graph/stats", responses=openapi_responses(GraphStats, description="Figures"))
async def graph_stats(call: Reader) -> Response:
    """Return figures of the event graph."""
    with call.agent() as agent:
        return record(await agent.memory.graph_stats())


@router.get(
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
    figures = {
        "nodes": export.nodes,
        "edges": export.edges,
        "turns": export.turns,
        "digest": export.digest,
    }
    headers = {f"X-Graph-{name.capitalize()}": str(figure) for name, figure in figures.items()}
    if format == "html":
        headers["Content-Security-Policy"] = _GRAPH_PAGE_POLICY
    return Response(await aside(export.text.encode), headers=headers, media_type=_TYPES[format])
