"""Snapshots: list, take, compare, fork, restore.

Every form calls the REST verb of the same name.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from fastapi import Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, Response

from memagent.client.wire import Fork, NewSnapshot, SnapshotInfo
from memagent.core.errors import InputError, MemAgentError, MemoryNotFound
from memagent.core.snapshot import SnapshotDiff
from memagent.pages.document import word_diff
from memagent.service.routes import snapshots as routes
from memagent.service.ui.frame import go, page, page_router
from memagent.service.ui.session_auth import Reader, Viewer, Writer
from memagent.state.fold import BankState

router = page_router()
NOW: Final = "now"
MOST_SHOWN: Final = 100
"""Entries of each part of a comparison that a page shows at most."""
_NAME_CHARS: Final = 256
Id = Annotated[str, Query(min_length=1, max_length=256)]
Deed = Literal["", "restore", "fork"]


@router.get("/ui/snapshots")
async def snapshots(viewer: Reader) -> HTMLResponse:
    """Show the snapshots, newest first."""
    infos = await _infos(viewer)
    with viewer.agent() as agent:
        state = await agent.bank.sync()
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
async def snapshot(viewer: Reader, id: Id, deed: Deed = "") -> HTMLResponse:
    """Show one snapshot; with `deed` ask whether to do it."""
    info = await routes.find_snapshot(viewer, id)
    with viewer.agent() as agent:
        state = await agent.bank.sync()
    return page(
        viewer.request,
        "snapshots/one.html",
        title="Snapshot",
        active="snapshots",
        info=info,
        deed=deed if viewer.may("memory:write") else "",
        same=state.digest() == info.digest,
        later=state.seq - info.seq,
        items=sum(1 for _ in state.active()),
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
    with viewer.agent() as agent:
        state = await agent.bank.sync()
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
