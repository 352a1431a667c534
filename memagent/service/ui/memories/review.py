"""Changes that were kept aside because of low trust: the list, and forms to settle one.

Every form calls the REST verb of the same name.
"""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Query
from starlette.responses import HTMLResponse, Response

from memagent.core.errors import InputError, MemAgentError
from memagent.core.ops import Update
from memagent.core.reports import Quarantined
from memagent.pages.word_diff import Piece, word_diff
from memagent.service.routes import care
from memagent.service.ui.explaining import quotations
from memagent.service.ui.frame import failure, go, page, page_router, steps
from memagent.service.ui.session_auth import Reader, Viewer, Writer

router = page_router()
_PAGE: Final = 20


@router.get("/ui/review")
async def review(
    viewer: Reader, start: Annotated[int, Query(ge=0, le=10_000_000)] = 0
) -> HTMLResponse:
    """Show the changes that wait, oldest first."""
    return await _list(viewer, start=start)


@router.post("/ui/review")
async def settle(viewer: Writer) -> Response:
    """Do what the field `do` names with one change: `accept` or `refuse`."""
    change_id = viewer.form["id"]
    try:
        match viewer.form["do"]:
            case "accept":
                await care.accept(change_id, viewer.call)
                note = "Accepted and carried out. It can be undone in the memory's history."
            case "refuse":
                await care.refuse(change_id, viewer.call)
                note = "Refused. The memory stays as it is."
            case _:
                raise InputError("the form names nothing to do")
    except MemAgentError as exc:
        status, fault = failure(viewer.request, exc)
        return await _list(viewer, status=status, fault=fault)
    return go(viewer, "/ui/review", note=note)


async def _list(
    viewer: Viewer, *, start: int = 0, status: int = 200, fault: str = ""
) -> HTMLResponse:
    with viewer.agent() as agent:
        waiting = await agent.memory.quarantine()
        shown = waiting[start : start + _PAGE]
        read = {turn_id for change in shown for turn_id in change.source.turn_ids}
        quoted = quotations(agent, sorted(read))
    return page(
        viewer.request,
        "review.html",
        title="Review",
        active="review",
        status=status,
        waiting=[(change, _pieces(change)) for change in shown],
        quoted=quoted,
        steps=steps(start, _PAGE, len(waiting)),
        total=len(waiting),
        fault=fault,
    )


def _pieces(change: Quarantined) -> list[Piece]:
    """Return the new text against the memory as it is now; [] unless it is an update."""
    if not isinstance(change.op, Update) or change.item is None:
        return []
    return word_diff(change.item.text, change.op.text)
