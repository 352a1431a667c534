"""The event graph: its open events, what is around a node, its figures, and the whole
of it as a file.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from memagent.client.wire import MAX_PAGE, EventPage, Neighbour, Neighbours
from memagent.core.answers import AsOf, Filter
from memagent.core.errors import MemoryNotFound
from memagent.core.graph_document import GraphFormat
from memagent.core.records import Id, NodeKind
from memagent.core.reports import GraphStats
from memagent.events.visibility import OutOfSight, events_in_sight
from memagent.service.routes.memories import Reader, as_of_query
from memagent.service.routes.responses import page, record, told

router = APIRouter(tags=["event graph"])
_TYPES = {
    "html": "text/html; charset=utf-8",
    "json": "application/json",
    "graphml": "application/xml",
}
_GRAPH_PAGE_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'"
"""The page is one self-contained file with its script inside; it may load nothing."""


@router.get("/v1/events", responses=told(EventPage, description="A page of events"))
async def list_events(
    call: Reader,
    cursor: Annotated[str | None, Query(max_length=2_000)] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100,
) -> Response:
    """Open events, by id."""
    with call.agent() as agent:
        state = await agent.bank.sync()
        events = list(events_in_sight(state, expired=agent.bank.expired).values())
    items, further = page(
        call, events, id_of=lambda event: event.id, limit=limit, cursor=cursor, listing="events"
    )
    return record(EventPage(items=tuple(items), next_cursor=further))


@router.get(
    "/v1/events/{event_id:path}/neighbors",
    responses=told(Neighbours, description="The node and its edges"),
)
async def neighbors(event_id: Id, call: Reader) -> Response:
    """A node of the graph (event, memory, person or topic) and what is one edge away;
    what is out of sight is left out.
    """
    with call.agent() as agent:
        state = await agent.bank.sync()
        hidden = OutOfSight(state, Filter(), agent.bank.expired)
    node = state.graph.node(event_id)
    if node is None or node.closed or event_id in hidden:
        raise MemoryNotFound(f"no event {event_id!r} for user {call.scope.user_id!r}")
    found = [
        Neighbour(edge=edge, outgoing=outgoing, node=other)
        for other_id, edge, outgoing in state.graph.edges_of(event_id)
        if (other := state.graph.node(other_id)) is not None
        and not other.closed
        and other_id not in hidden
    ]
    found.sort(key=lambda one: (one.node.kind is not NodeKind.EVENT, one.node.id, one.edge.key))
    return record(Neighbours(node=node, neighbours=tuple(found)))


@router.get("/v1/graph/stats", responses=told(GraphStats, description="Figures"))
async def graph_stats(call: Reader) -> Response:
    """Figures of the event graph."""
    with call.agent() as agent:
        return record(await agent.memory.graph_stats())


@router.get(
    "/v1/graph",
    response_class=Response,
    responses=told(
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
    """The event graph with the turns it rests on, as a page, node-link JSON or GraphML."""
    with call.agent() as agent:
        made = await agent.memory.export_graph(
            format=format, as_of=as_of, include_hidden=include_hidden
        )
    figures = {"nodes": made.nodes, "edges": made.edges, "turns": made.turns, "digest": made.digest}
    headers = {f"X-Graph-{name.capitalize()}": str(figure) for name, figure in figures.items()}
    if format == "html":
        headers["Content-Security-Policy"] = _GRAPH_PAGE_POLICY
    return Response(made.text.encode(), headers=headers, media_type=_TYPES[format])
