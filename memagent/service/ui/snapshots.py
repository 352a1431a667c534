"""Snapshots: list, take, compare, fork, restore.

Every form calls the REST verb of the same name.

The event graph: drawn on a canvas, as a list, along time, and one node with its edges.

Drawing reuses the files of the graph's own page (`memagent.pages`); its data is fetched
once the page stands, since places are computed for it. It begins with the best connected
nodes; more of them, or those around one node, come when they are asked for. The list, the
time line and the page of a node need no script and no layout.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence
from datetime import datetime
from itertools import groupby
from typing import Annotated, Any, Final, Literal

from fastapi import Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, Response

from memagent.client.wire import AsOf, Filter, Fork, NewSnapshot, SnapshotInfo
from memagent.core.errors import InputError, MemAgentError, MemoryNotFound
from memagent.core.long_work import aside
from memagent.core.records import Event, EventEdge, NodeKind, Relation
from memagent.core.snapshot import SnapshotDiff
from memagent.events.merge import story_key
from memagent.events.visibility import OutOfSight
from memagent.memory.graph_export import graph_document
from memagent.pages.graph_page import SCRIPTS, moment_of, page_data, safe_json
from memagent.pages.journal_words import word_diff
from memagent.service.routes import snapshots as routes
from memagent.service.ui.frame import (
    Reader,
    Viewer,
    Writer,
    constants,
    go,
    page,
    page_router,
    steps,
)
from memagent.service.ui.turns import quotations
from memagent.state.fold import BankState, folded

router = page_router()
NOW: Final = "now"
MOST_SHOWN: Final = 100
"""Entries of each part of a comparison that a page shows at most."""
_NAME_CHARS: Final = 256


@router.get("/ui/snapshots")
async def snapshots(viewer: Reader) -> HTMLResponse:
    """Show the snapshots, newest first."""
    infos, state = await _infos(viewer), await viewer.state()
    return page(
        viewer.request,
        "snapshots/list.html",
        title="Snapshots",
        active="snapshots",
        infos=infos[::-1],
        digest=state.digest(),
        name=viewer.form["name"].strip(),
    )


@router.post("/ui/snapshots")
async def take(viewer: Writer) -> Response:
    """Remember this point of the memory."""
    name = viewer.form["name"].strip()
    if len(name) > _NAME_CHARS:
        viewer.fault = InputError(f"a name has at most {_NAME_CHARS} characters")
        return await snapshots(viewer)
    response = await routes.take_snapshot(NewSnapshot(name=name), viewer)
    info = SnapshotInfo.model_validate_json(bytes(response.body))
    return go(viewer, "/ui/snapshots", note=f"Taken: {_title(info)}, {info.items:,} memories.")


@router.get("/ui/snapshots/one")
async def snapshot(
    viewer: Reader,
    id: Annotated[str, Query(min_length=1, max_length=256)],
    deed: Literal["", "restore", "fork"] = "",
) -> HTMLResponse:
    """Show one snapshot; with `deed` ask whether to do it."""
    info, state = await routes.find_snapshot(viewer, id), await viewer.state()
    return page(
        viewer.request,
        "snapshots/one.html",
        title="Snapshot",
        active="snapshots",
        info=info,
        deed=deed if viewer.may("memory:write") else "",
        same=state.digest() == info.digest,
        later=state.seq - info.seq,
        items=state.live,
    )


@router.post("/ui/snapshots/{deed}")
async def act(viewer: Writer, deed: Literal["restore", "fork"]) -> Response:
    """Make a new memory that starts from a snapshot, or put the memory back to it.

    Restoring needs the word `restore`, typed to confirm.
    """
    snapshot_id = viewer.form["id"]
    info = await routes.find_snapshot(viewer, snapshot_id)
    try:
        if deed == "fork":
            response = await routes.fork_snapshot(snapshot_id, viewer)
            run_id = Fork.model_validate_json(bytes(response.body)).run_id
            note = f"This is the fork; its run_id is {run_id}."
            return go(viewer, "/ui", run_id=run_id, note=note)
        if viewer.form["confirm"] != "restore":
            raise InputError("type the word restore to confirm")
        await routes.restore_snapshot(snapshot_id, viewer)
    except MemAgentError as exc:
        viewer.fault = exc
        return await snapshot(viewer, snapshot_id, deed)
    note = f"The memory is at {_title(info)} again; the journal has one entry more."
    return go(viewer, "/ui/snapshots/one", id=snapshot_id, note=note)


@router.get("/ui/snapshots/diff")
async def diff(
    viewer: Reader,
    before: Annotated[str, Query(max_length=256)] = "",
    after: Annotated[str, Query(max_length=256)] = NOW,
) -> HTMLResponse:
    """Show what changed from one snapshot to another, or until now."""
    infos = await _infos(viewer)
    comparison = None
    try:
        comparison = await _compared(viewer, before, after) if before else None
    except MemoryNotFound:
        raise
    except MemAgentError as exc:
        viewer.fault = exc
    return page(
        viewer.request,
        "snapshots/diff.html",
        title="Compare snapshots",
        active="snapshots",
        infos=infos,
        before=before,
        after=after,
        comparison=comparison,
    )


# -- reading ---------------------------------------------------------------------------


async def _infos(viewer: Viewer) -> list[SnapshotInfo]:
    return await run_in_threadpool(viewer.service.snapshots.of, viewer.scope)


async def _compared(viewer: Viewer, before: str, after: str) -> dict[str, Any]:
    """Return the parts of a comparison, cut to what a page shows.

    Raises `SnapshotMismatch` when the content was erased since.
    """
    if before == after:
        raise InputError("choose two different points")
    response = await routes.diff(before, viewer, None if after == NOW else after)
    diff = SnapshotDiff.model_validate_json(bytes(response.body))
    state = await viewer.state()
    changed = [
        (old, new, word_diff(old.text, new.text) if old.text != new.text else ())
        for old, new in diff.changed
    ]
    edges = [("added", edge) for edge in diff.edges_added] + [
        ("removed", edge) for edge in diff.edges_removed
    ]
    return {
        "empty": diff.empty,
        "counts": {
            "added": len(diff.added),
            "removed": len(diff.removed),
            "changed": len(diff.changed),
            "edges": len(edges),
        },
        "added": diff.added[:MOST_SHOWN],
        "removed": diff.removed[:MOST_SHOWN],
        "changed": changed[:MOST_SHOWN],
        "edges": [
            (what, edge, _end(state, edge.source), _end(state, edge.target))
            for what, edge in edges[:MOST_SHOWN]
        ],
        "most": MOST_SHOWN,
    }


def _end(state: BankState, node_id: str) -> str:
    """Return the text at an end of an edge, as far as the memory still knows it."""
    item = state.items.get(node_id)
    node = state.graph.node(node_id)
    return item.text if item is not None else (node.summary if node is not None else "") or node_id


def _title(info: SnapshotInfo) -> str:
    return f"“{info.name}”" if info.name else f"the snapshot of {info.created_at:%Y-%m-%d %H:%M}"


_PAGE: Final = 60
_MOST_TURNS: Final = 20
# (name in addresses, words for several, words for one) of what is shown as a node.
_KINDS: Final = {
    NodeKind.EVENT: ("event", "Events", "Event"),
    NodeKind.ITEM: ("item", "Memories", "Memory"),
    NodeKind.ENTITY: ("entity", "People and things", "Person or thing"),
}
FIRST_DRAWN: Final = 30
"""Nodes that the drawing begins with."""
_DRAWN: Final = (FIRST_DRAWN, 100, 300)
Most = Annotated[int, Query(ge=0, le=100_000)]
NodeId = Annotated[str, Query(max_length=300)]
Kind = Literal["", "event", "item", "entity"]
Start = Annotated[int, Query(ge=0, le=10_000_000)]
# The words for an edge, from its source and from its target.
_RELATIONS: Final = {
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


@router.get("/ui/graph")
async def graph(viewer: Reader, most: Most = FIRST_DRAWN, around: NodeId = "") -> HTMLResponse:
    """Show the graph on a canvas: the best connected nodes, or those around one."""
    with viewer.agent() as agent:
        figures = await agent.memory.graph_stats()
        node = agent.bank.state.graph.node(around) if around else None
        around_text = _text(agent.bank.state, node) if node is not None else around
    total = sum(figures.nodes.values())
    return _page(
        viewer,
        "drawing",
        figures=figures,
        scripts=SCRIPTS,
        most=most,
        around=around,
        around_text=around_text,
        total=total,
        choices=[count for count in _DRAWN if count < total] + [0],
    )


@router.get("/ui/graph/data")
async def data(viewer: Reader, most: Most = FIRST_DRAWN, around: NodeId = "") -> Response:
    """Return what the canvas draws, places included; `most` 0 is the whole graph."""
    with viewer.agent() as agent:
        document = await graph_document(
            agent.bank, as_of=AsOf(), most=most or None, around=around if most else ""
        )
    content = await aside(lambda: safe_json(page_data(document)).encode())
    return Response(content, media_type="application/json")


@router.get("/ui/graph/list")
async def listing(
    viewer: Reader,
    kind: Kind = "",
    q: Annotated[str, Query(max_length=500)] = "",
    start: Start = 0,
) -> HTMLResponse:
    """Show the nodes in sight, the best connected first."""
    state, nodes = await _in_sight(viewer)
    counts = Counter(node.kind for node in nodes)
    hits = await aside(_ranked, state, nodes, kind, folded(q).split())
    return _page(
        viewer,
        "list",
        rows=[(node, _text(state, node), degree) for node, degree in hits[start : start + _PAGE]],
        counts={name: counts[of] for of, (name, *_) in _KINDS.items()},
        kinds=[names[:2] for of, names in _KINDS.items() if counts[of]],
        kind=kind,
        q=q,
        same=constants(
            {
                "kind": [node.kind.value for node, _ in hits[start : start + _PAGE]],
                "edges": [degree for _, degree in hits[start : start + _PAGE]],
            }
        ),
        total=len(hits),
        steps=steps(start, _PAGE, len(hits)),
    )


@router.get("/ui/graph/timeline")
async def timeline(viewer: Reader, kind: Kind = "", start: Start = 0) -> HTMLResponse:
    """Show what happened, month by month: events where the memory has them, else its items."""
    state, nodes = await _in_sight(viewer)
    kinds = {node.kind for node in nodes}
    usual = NodeKind.EVENT if NodeKind.EVENT in kinds else NodeKind.ITEM
    chosen = NodeKind(kind) if kind else usual
    same = [node for node in nodes if node.kind is chosen]
    dated = await aside(_dated, same)
    months = groupby(dated[start : start + _PAGE], key=lambda pair: f"{pair[0]:%B %Y}")
    return _page(
        viewer,
        "timeline",
        months=[
            (month, [(moment, node, _text(state, node)) for moment, node in pairs])
            for month, pairs in months
        ],
        kind=chosen.value,
        kinds=[
            names[:2] for of, names in _KINDS.items() if of in kinds and of is not NodeKind.ENTITY
        ],
        undated=len(same) - len(dated),
        steps=steps(start, _PAGE, len(dated)),
    )


@router.get("/ui/graph/node")
async def node(
    viewer: Reader, id: Annotated[str, Query(min_length=1, max_length=300)]
) -> HTMLResponse:
    """Show one node with its edges, and the turns it rests on."""
    with viewer.agent() as agent:
        state = await agent.bank.sync()
        view = routes.neighbourhood(state, id, agent.bank.expired)
        if view is None:
            raise MemoryNotFound(f"no event {id!r} for user {viewer.scope.user_id!r}")
        turn_ids = view[0].source_turn_ids
        quoted = quotations(agent, turn_ids[-_MOST_TURNS:])
    node, edges = view
    near = sorted(
        (
            (_relation(edge, outgoing), edge, other, _text(state, other))
            for edge, outgoing, other in edges
        ),
        key=lambda row: (row[0], row[2].kind is not NodeKind.EVENT, story_key(row[2])),
    )
    groups = groupby(near, key=lambda row: row[0])
    return _page(
        viewer,
        "node",
        title=_KINDS[node.kind][2] if node.kind in _KINDS else "Topic",
        node=node,
        text=_text(state, node),
        item=state.items.get(id),
        groups=[(words, list(rows)) for words, rows in groups],
        edges=len(near),
        quoted=quoted.values(),
        unquoted=max(0, len(turn_ids) - _MOST_TURNS),
    )


# -- reading ---------------------------------------------------------------------------


def _page(viewer: Viewer, name: str, title: str = "Event graph", **values: Any) -> HTMLResponse:
    return page(viewer.request, f"graph/{name}.html", title=title, active="graph", **values)


async def _in_sight(viewer: Viewer) -> tuple[BankState, list[Event]]:
    with viewer.agent() as agent:
        state = await agent.bank.sync()
        return state, await aside(_seen, state, agent.bank.expired)


def _seen(state: BankState, expired: Container[str]) -> list[Event]:
    hidden = OutOfSight(state, Filter(), expired)
    return [
        node
        for node in state.graph.all_nodes()
        if node.kind in _KINDS and not node.closed and node.id not in hidden
    ]


def _ranked(
    state: BankState, nodes: Sequence[Event], kind: str, words: Sequence[str]
) -> list[tuple[Event, int]]:
    """Return the nodes of a kind that hold all words, with their edges, best connected first."""
    hits = [
        (node, sum(1 for _ in state.graph.edges_of(node.id)))
        for node in nodes
        if (not kind or node.kind == kind)
        and all(word in folded(_words(state, node)) for word in words)
    ]
    return sorted(hits, key=lambda hit: (-hit[1], story_key(hit[0])))


def _dated(nodes: Sequence[Event]) -> list[tuple[datetime, Event]]:
    """Return the nodes that have a time, in order."""
    dated = [(moment, node) for node in nodes if (moment := moment_of(node)) is not None]
    return sorted(dated, key=lambda pair: (pair[0], pair[1].order, pair[1].id))


def _text(state: BankState, node: Event) -> str:
    """Return an item's whole text, of other nodes the summary."""
    item = state.items.get(node.id) if node.kind is NodeKind.ITEM else None
    return item.text if item is not None else node.summary or node.id


def _words(state: BankState, node: Event) -> str:
    return "\n".join((_text(state, node), *node.people, *node.aliases))


def _relation(edge: EventEdge, outgoing: bool) -> str:
    words = _RELATIONS[edge.relation][0 if outgoing else 1]
    return f"{words}: {edge.label}" if edge.label else words
