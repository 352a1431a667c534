"""Snapshots: list, take, compare, fork, restore; every form does what the REST verb of
the same name does, by calling it.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from fastapi import Depends, Query
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from memagent.client.wire import Fork, NewSnapshot, SnapshotInfo
from memagent.core.errors import InputError, MemAgentError, MemoryNotFound
from memagent.core.snapshot import SnapshotDiff
from memagent.pages.word_diff import word_diff
from memagent.service.routes import snapshots as routes_snapshots
from memagent.service.ui.frame import failure, go, page, page_router
from memagent.service.ui.session_auth import Viewer, viewer
from memagent.state.fold import BankState

router = page_router()
Reader = Annotated[Viewer, Depends(viewer("memory:read"))]
Writer = Annotated[Viewer, Depends(viewer("memory:write"))]
NOW: Final = "now"
MOST_SHOWN: Final = 100
"""Most entries of each part of a comparison on one page."""
_NAME_CHARS: Final = 256
Id = Annotated[str, Query(min_length=1, max_length=256)]
Deed = Literal["", "restore", "fork"]


@router.get("/ui/snapshots")
async def snapshots(request: Request, seen: Reader) -> HTMLResponse:
    """Snapshots, newest first."""
    return await _list(request, seen)


@router.post("/ui/snapshots")
async def take(request: Request, seen: Writer) -> Response:
    """Remember this point of the memory."""
    name = seen.form["name"].strip()
    if len(name) > _NAME_CHARS:
        return await _list(
            request, seen, fault=f"a name has at most {_NAME_CHARS} characters", name=name
        )
    made = await routes_snapshots.take_snapshot(NewSnapshot(name=name), seen.call)
    info = SnapshotInfo.model_validate_json(bytes(made.body))
    return go(seen, "/ui/snapshots", note=f"Taken: {_title(info)}, {info.items:,} memories.")


@router.get("/ui/snapshots/one")
async def snapshot(request: Request, seen: Reader, id: Id, deed: Deed = "") -> HTMLResponse:
    """One snapshot; with `deed` the question whether to do it."""
    return await _one(request, seen, id, deed=deed)


@router.post("/ui/snapshots/restore")
async def restore(request: Request, seen: Writer) -> Response:
    """Put the memory back to a snapshot, when its number of memories was typed in as a
    confirmation.
    """
    info = await _info(seen, seen.form["id"])
    if seen.form["confirm"] != "restore":
        return await _one(
            request, seen, info.id, deed="restore", fault="type the word restore to confirm"
        )
    try:
        await routes_snapshots.restore_snapshot(info.id, seen.call)
    except MemAgentError as exc:
        status, words = failure(request, exc)
        return await _one(request, seen, info.id, deed="restore", fault=words, status=status)
    return go(
        seen,
        "/ui/snapshots/one",
        id=info.id,
        note=f"The memory is at {_title(info)} again; the journal has one entry more.",
    )


@router.post("/ui/snapshots/fork")
async def fork(request: Request, seen: Writer) -> Response:
    """A new memory that starts from a snapshot."""
    info = await _info(seen, seen.form["id"])
    try:
        made = await routes_snapshots.fork_snapshot(info.id, seen.call)
    except MemAgentError as exc:
        status, words = failure(request, exc)
        return await _one(request, seen, info.id, deed="fork", fault=words, status=status)
    new = Fork.model_validate_json(bytes(made.body))
    return go(seen, "/ui", run_id=new.run_id, note=f"This is the fork; its run_id is {new.run_id}.")


@router.get("/ui/snapshots/diff")
async def diff(
    request: Request,
    seen: Reader,
    before: Annotated[str, Query(max_length=256)] = "",
    after: Annotated[str, Query(max_length=256)] = NOW,
) -> HTMLResponse:
    """What changed from one snapshot to another, or until now."""
    infos = await _infos(seen)
    values: dict[str, Any] = {
        "infos": infos,
        "before": before,
        "after": after,
        "found": None,
        "fault": "",
    }
    status = 200
    if before:
        try:
            values["found"] = await _compared(seen, before, after)
        except MemAgentError as exc:
            if isinstance(exc, MemoryNotFound):
                raise
            status, values["fault"] = failure(request, exc)
    return page(
        request,
        "snapshots_diff.html",
        title="Compare snapshots",
        active="snapshots",
        status=status,
        **values,
    )


# -- reading ---------------------------------------------------------------------------


async def _list(request: Request, seen: Viewer, *, fault: str = "", name: str = "") -> HTMLResponse:
    infos = await _infos(seen)
    with seen.agent() as agent:
        state = await agent.bank.sync()
    return page(
        request,
        "snapshots.html",
        title="Snapshots",
        active="snapshots",
        status=422 if fault else 200,
        infos=list(reversed(infos)),
        digest=state.digest(),
        seq=state.seq,
        fault=fault,
        name=name,
    )


async def _one(
    request: Request,
    seen: Viewer,
    snapshot_id: str,
    *,
    deed: Deed,
    fault: str = "",
    status: int = 200,
) -> HTMLResponse:
    info = await _info(seen, snapshot_id)
    with seen.agent() as agent:
        state = await agent.bank.sync()
    return page(
        request,
        "snapshots_one.html",
        title="Snapshot",
        active="snapshots",
        status=422 if fault and status == 200 else status,
        info=info,
        deed=deed if seen.may("memory:write") else "",
        same=state.digest() == info.digest,
        later=state.seq - info.seq,
        items=sum(1 for _ in state.active()),
        fault=fault,
    )


async def _infos(seen: Viewer) -> list[SnapshotInfo]:
    return await run_in_threadpool(seen.service.snapshots.of, seen.scope)


async def _info(seen: Viewer, snapshot_id: str) -> SnapshotInfo:
    found = next((info for info in await _infos(seen) if info.id == snapshot_id), None)
    if found is None:
        raise MemoryNotFound(f"no snapshot {snapshot_id!r} for user {seen.scope.user_id!r}")
    return found


async def _compared(seen: Viewer, before: str, after: str) -> dict[str, Any]:
    """The parts of a comparison, cut to what a page shows.

    Raises `SnapshotMismatch` when the content was erased since.
    """
    if before == after:
        raise InputError("choose two different points")
    response = await routes_snapshots.diff(before, seen.call, None if after == NOW else after)
    found = SnapshotDiff.model_validate_json(bytes(response.body))
    with seen.agent() as agent:
        state = await agent.bank.sync()
    changed = [
        (old, new, word_diff(old.text, new.text) if old.text != new.text else ())
        for old, new in found.changed
    ]
    edges = [("added", edge) for edge in found.edges_added] + [
        ("removed", edge) for edge in found.edges_removed
    ]
    return {
        "empty": found.empty,
        "counts": {
            "added": len(found.added),
            "removed": len(found.removed),
            "changed": len(found.changed),
            "edges": len(edges),
        },
        "added": found.added[:MOST_SHOWN],
        "removed": found.removed[:MOST_SHOWN],
        "changed": changed[:MOST_SHOWN],
        "edges": [
            (what, edge, _end(state, edge.source), _end(state, edge.target))
            for what, edge in edges[:MOST_SHOWN]
        ],
        "most": MOST_SHOWN,
    }


def _end(state: BankState, node_id: str) -> str:
    """What stands at an end of an edge, as far as the memory still knows it."""
    item = state.items.get(node_id)
    node = state.graph.node(node_id)
    return item.text if item is not None else (node.summary if node is not None else "") or node_id


def _title(info: SnapshotInfo) -> str:
    return f"“{info.name}”" if info.name else f"the snapshot of {info.created_at:%Y-%m-%d %H:%M}"
