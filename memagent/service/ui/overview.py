"""The first page: how much the memory holds, what changed last, and what needs a look."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Depends
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from memagent.core.records import NodeKind
from memagent.core.snapshot import (
    Commit,
    Erased,
    GraphDelta,
    JournalRow,
    Restored,
    SessionStored,
    StatsDelta,
)
from memagent.service.ui.frame import page, page_router
from memagent.service.ui.session_auth import Viewer, viewer

router = page_router()
_LAST: Final = 8
_LOOK_BACK: Final = 60
"""Entries of the journal in which the last changes are looked for."""


@router.get("/ui")
async def overview(seen: Annotated[Viewer, Depends(viewer("memory:read"))]) -> Response:
    """Figures and the latest entries of the journal."""
    with seen.agent() as agent:
        state = await agent.bank.sync()
        active = sum(1 for item in state.active() if item.id not in agent.bank.expired)
        nodes = sum(1 for node in state.graph.all_nodes() if node.kind is not NodeKind.ITEM)
        figures = (
            ("Memories", active),
            ("Deleted or expired", len(state.items) - active),
            ("Sessions", len(state.sessions)),
            ("Turns", len(state.turns)),
            ("Events and entities", nodes),
            ("Journal entries", state.seq),
        )
        rows = [row async for row in agent.bank.rows(after=max(0, state.seq - _LOOK_BACK))]
        degraded = agent.bank.degraded
    latest = [(row, told) for row in reversed(rows) if (told := _told(row)) is not None][:_LAST]
    service = seen.service
    counts = await run_in_threadpool(service.jobs.table.counts)
    return page(
        seen.request,
        "overview.html",
        title="Overview",
        active="overview",
        figures=figures,
        latest=latest,
        degraded=degraded,
        has_model=service.has_model,
        design=service.design.name,
        failed_jobs=counts["failed"] if seen.may("admin") else 0,
        empty=state.seq == 0,
    )


def _told(row: JournalRow) -> tuple[str, list[tuple[str, str, str]]] | None:
    """What an entry did, as (words, [(op, memory id, text)]); None for what nobody looks for here."""
    match row.entry:
        case SessionStored(session=session):
            count = len(session.turns)
            return f"Stored the session {session.id}, {count} turn{'s' if count != 1 else ''}", []
        case Commit() as commit:
            return _commit_told(commit)
        case Restored():
            return "Put back to a snapshot", []
        case Erased():
            return "Erased everything before", []
        case GraphDelta() | StatsDelta():
            return None


def _commit_told(commit: Commit) -> tuple[str, list[tuple[str, str, str]]] | None:
    made: list[tuple[str, str, str]] = []
    for applied in commit.ops:
        if applied.version is None:
            continue
        after = next(
            (change.after for change in commit.changes if change.id == applied.item_id), None
        )
        made.append((applied.op.op, applied.item_id or "", after.text if after is not None else ""))
    if commit.undoes is not None:
        return "Took a change back", made
    if not made and not commit.rejected:
        return None
    by = {"agent": "by the agent", "user": "by hand", "import": "by an import"}.get(
        commit.source.actor, ""
    )
    words = f"{len(made)} change{'s' if len(made) != 1 else ''} {by}".strip()
    return words + (f", {len(commit.rejected)} refused" if commit.rejected else ""), made
