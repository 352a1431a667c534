"""The event graph: drawn on a canvas, as a list, along time, and one node with what is
one edge away.

Drawing reuses the files of the graph's own page (`memagent.pages`); its data is fetched
once the page stands, since places are computed for it. The list, the time line and the
page of a node need no script and no layout.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import groupby
from typing import Annotated, Final, Literal

from fastapi import Depends, Query
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from memagent.core.answers import AsOf, Filter
from memagent.core.errors import MemoryNotFound
from memagent.core.graph_document import GraphDocument
from memagent.core.records import Event, EventEdge, NodeKind, Relation, Session, Turn
from memagent.events.merge import story_key
from memagent.events.visibility import OutOfSight
from memagent.memory.graph_export import graph_document
from memagent.pages.graph_page import SCRIPTS, page_data, safe_json
from memagent.service.ui.frame import page, page_router
from memagent.service.ui.session_auth import Viewer, viewer
from memagent.state.fold import BankState, folded

router = page_router()
Reader = Annotated[Viewer, Depends(viewer("memory:read"))]
_PAGE: Final = 60
_MOST_TURNS: Final = 20
_KINDS: Final = {
    NodeKind.EVENT: ("event", "Events"),
    NodeKind.ITEM: ("item", "Memories"),
    NodeKind.ENTITY: ("entity", "People and things"),
}
Kind = Literal["", "event", "item", "entity"]
Start = Annotated[int, Query(ge=0, le=10_000_000)]
_SAID: Final = {
    Relation.CAUSES: ("causes", "caused by"),
    Relation.MOTIVATES: ("motivates", "motivated by"),
    Relation.ENABLES: ("enables", "enabled by"),
    Relation.FOLLOWS: ("follows", "followed by"),
    Relation.BEFORE: ("before", "after"),
    Relation.AFTER: ("after", "before"),
    Relation.CONTRASTS: ("contrasts with", "contrasts with"),
    Relation.PART_OF: ("part of", "has part"),
    Relation.PARALLEL: ("parallel to", "parallel to"),
    Relation.ELABORATES: ("elaborates", "elaborated by"),
    Relation.SAME_AS: ("same as", "same as"),
    Relation.SUPERSEDES: ("replaces", "replaced by"),
    Relation.CONTAINS: ("contains", "belongs to"),
    Relation.MENTIONS: ("mentions", "mentioned by"),
    Relation.RELATED: ("related to", "related to"),
}
"""What an edge says, from its source and from its target."""


@router.get("/ui/graph")
async def graph(request: Request, seen: Reader) -> HTMLResponse:
    """The graph on a canvas."""
    with seen.agent() as agent:
        figures = await agent.memory.graph_stats()
    return page(
        request, "graph.html", title="Event graph", active="graph", figures=figures, scripts=SCRIPTS
    )


@router.get("/ui/graph/data")
async def data(seen: Reader) -> Response:
    """What the canvas draws, places included."""
    with seen.agent() as agent:
        document = await graph_document(agent.bank, as_of=AsOf())
    return Response(await run_in_threadpool(_written, document), media_type="application/json")


@router.get("/ui/graph/list")
async def listing(
    request: Request,
    seen: Reader,
    kind: Kind = "",
    q: Annotated[str, Query(max_length=500)] = "",
    start: Start = 0,
) -> HTMLResponse:
    """Nodes in sight, the best connected first."""
    with seen.agent() as agent:
        state = await agent.bank.sync()
        nodes = _in_sight(state, agent.bank.expired)
    counts = {name: sum(node.kind is of for node in nodes) for of, (name, _) in _KINDS.items()}
    words = folded(q).split()
    found = [
        node
        for node in nodes
        if (not kind or node.kind == kind)
        and all(word in folded(_words(state, node)) for word in words)
    ]
    degrees = {node.id: sum(1 for _ in state.graph.edges_of(node.id)) for node in found}
    found.sort(key=lambda node: (-degrees[node.id], story_key(node)))
    shown = [(node, _full(state, node), degrees[node.id]) for node in found[start : start + _PAGE]]
    return page(
        request,
        "graph_list.html",
        title="Event graph",
        active="graph",
        shown=shown,
        counts=counts,
        kinds=[(name, words) for name, words in _KINDS.values() if counts[name]],
        kind=kind,
        q=q,
        total=len(found),
        start=start,
        further=start + _PAGE if start + _PAGE < len(found) else None,
        nearer=max(0, start - _PAGE) if start else None,
    )


@router.get("/ui/graph/timeline")
async def timeline(
    request: Request, seen: Reader, kind: Kind = "", start: Start = 0
) -> HTMLResponse:
    """What happened, month by month; events where the memory has them, else its items."""
    with seen.agent() as agent:
        state = await agent.bank.sync()
        nodes = _in_sight(state, agent.bank.expired)
    has = {node.kind for node in nodes}
    chosen = NodeKind(kind) if kind else NodeKind.EVENT if NodeKind.EVENT in has else NodeKind.ITEM
    wanted = [node for node in nodes if node.kind is chosen]
    dated = sorted(
        ((moment, node) for node in wanted if (moment := moment_of(node)) is not None),
        key=lambda pair: (pair[0], pair[1].order, pair[1].id),
    )
    part = dated[start : start + _PAGE]
    months = [
        (month, [(moment, node, _full(state, node)) for moment, node in each])
        for month, each in groupby(part, key=lambda pair: f"{pair[0]:%B %Y}")
    ]
    return page(
        request,
        "graph_timeline.html",
        title="Event graph",
        active="graph",
        months=months,
        kind=chosen.value,
        kinds=[
            (name, words)
            for of, (name, words) in _KINDS.items()
            if of in has and of is not NodeKind.ENTITY
        ],
        undated=len(wanted) - len(dated),
        total=len(dated),
        start=start,
        further=start + _PAGE if start + _PAGE < len(dated) else None,
        nearer=max(0, start - _PAGE) if start else None,
    )


@router.get("/ui/graph/node")
async def node(
    request: Request, seen: Reader, id: Annotated[str, Query(min_length=1, max_length=300)]
) -> HTMLResponse:
    """One node with what is one edge away, and the turns it rests on."""
    with seen.agent() as agent:
        state = await agent.bank.sync()
        hidden = OutOfSight(state, Filter(), agent.bank.expired)
    found = state.graph.node(id)
    if found is None or found.closed or id in hidden:
        raise MemoryNotFound(f"no event {id!r} for user {seen.scope.user_id!r}")
    near = sorted(
        (
            (_relation(edge, outgoing), edge, other, _full(state, other))
            for other_id, edge, outgoing in state.graph.edges_of(id)
            if (other := state.graph.node(other_id)) is not None
            and not other.closed
            and other_id not in hidden
        ),
        key=lambda one: (one[0], one[2].kind is not NodeKind.EVENT, story_key(one[2])),
    )
    groups = [(words, list(each)) for words, each in groupby(near, key=lambda one: one[0])]
    return page(
        request,
        "graph_node.html",
        title={
            NodeKind.EVENT: "Event",
            NodeKind.ITEM: "Memory",
            NodeKind.ENTITY: "Person or thing",
        }.get(found.kind, "Topic"),
        active="graph",
        node=found,
        text=_full(state, found),
        item=state.items.get(id),
        groups=groups,
        edges=len(near),
        quoted=_quoted(state, found.source_turn_ids[-_MOST_TURNS:]),
        unquoted=max(0, len(found.source_turn_ids) - _MOST_TURNS),
    )


def moment_of(node: Event) -> datetime | None:
    """When a node stands on the line of time: when it happened, or else when it was told."""
    span = node.valid
    return (span.start or span.end if span is not None else None) or node.said_at


# -- reading ---------------------------------------------------------------------------


def _in_sight(state: BankState, expired: frozenset[str]) -> list[Event]:
    hidden = OutOfSight(state, Filter(), expired)
    return [
        node
        for node in state.graph.all_nodes()
        if node.kind in _KINDS and not node.closed and node.id not in hidden
    ]


def _full(state: BankState, node: Event) -> str:
    """What a node says: an item's whole text, else the summary."""
    item = state.items.get(node.id) if node.kind is NodeKind.ITEM else None
    return item.text if item is not None else node.summary or node.id


def _words(state: BankState, node: Event) -> str:
    return "\n".join((_full(state, node), *node.people, *node.aliases))


def _relation(edge: EventEdge, outgoing: bool) -> str:
    said = _SAID[edge.relation][0 if outgoing else 1]
    return f"{said}: {edge.label}" if edge.label else said


def _quoted(state: BankState, turn_ids: Iterable[str]) -> Sequence[tuple[Turn, Session]]:
    found: list[tuple[Turn, Session]] = []
    for turn_id in turn_ids:
        place = state.turns.get(turn_id)
        if place is not None:
            of = state.sessions[place[0]]
            found.append((of.turns[place[1]], of))
    return found


def _written(document: GraphDocument) -> bytes:
    return safe_json(page_data(document)).encode()
