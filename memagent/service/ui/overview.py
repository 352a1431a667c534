"""The first page: the size of the memory, its latest changes, and what needs a look."""

from __future__ import annotations

from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from memagent.core.records import NodeKind
from memagent.pages.journal_words import describe_entry
from memagent.service.ui.frame import page, page_router
from memagent.service.ui.session_auth import Reader

router = page_router()
_LAST: Final = 8
_LOOK_BACK: Final = 60
"""Journal entries that are searched for the latest changes."""


@router.get("/ui")
async def overview(viewer: Reader) -> Response:
    """Show figures and the latest entries of the journal."""
    with viewer.agent() as agent:
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
    entries = (describe_entry(row, state) for row in reversed(rows))
    latest = [entry for entry in entries if entry.kind not in ("graph", "stats")][:_LAST]
    service = viewer.service
    counts = await run_in_threadpool(service.jobs.table.counts)
    return page(
        viewer.request,
        "overview.html",
        title="Overview",
        active="overview",
        figures=figures,
        latest=latest,
        degraded=degraded,
        has_model=service.has_model,
        design=service.design.name,
        failed_jobs=counts["failed"] if viewer.may("admin") else 0,
        empty=state.seq == 0,
    )
