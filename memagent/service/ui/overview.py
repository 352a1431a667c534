"""The first page: a question, the size of the memory, its latest changes, its charts.

The charts count the whole journal once a process and keep the figures. The first view of
a large memory does not wait for that: it shows the rest, and the next view counts.

Users: the list, choosing one, and a user's rights to an export and to erasure.
"""

from __future__ import annotations

import time
import uuid
from collections import OrderedDict
from collections.abc import Container, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Final

from fastapi import Depends, Query
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from memagent.async_agent import AsyncAgent
from memagent.client.wire import JobKind
from memagent.core.errors import InputError
from memagent.core.long_work import Slices, aside
from memagent.core.records import NodeKind, Scope
from memagent.pages.journal_words import EntryView, JournalFigures, describe_entry
from memagent.service.routes.exchange import PageRequest, page_of
from memagent.service.routes.users import reachable
from memagent.service.ui.frame import go, page, page_router
from memagent.service.ui.session_auth import Reader, Viewer, require_viewer
from memagent.state.fold import BankState

overview_router = page_router()
_LAST: Final = 5
_LOOK_BACK: Final = 16
"""Journal entries that are searched for the latest changes."""
_COUNTED_AT_ONCE: Final = 2_000
"""Memories up to which the first view counts the journal."""
_COUNTING_S: Final = 2.0
"""Seconds that one view spends on counting the journal."""
_MOST_COUNTED: Final = 32
"""Memories whose figures are kept, the ones looked at last."""


@overview_router.get("/ui")
async def overview(viewer: Reader) -> Response:
    """Show figures, charts and the latest entries of the journal."""
    with viewer.agent() as agent:
        state = await agent.bank.sync()
        active, nodes = await aside(_counts, state, agent.bank.expired)
        figures = (
            ("Memories", active),
            ("Deleted or expired", len(state.items) - active),
            ("Sessions", len(state.sessions)),
            ("Turns", len(state.turns)),
            ("Events and entities", nodes),
            ("Journal entries", state.seq),
        )
        latest = await _latest(agent, state)
        counted, fresh = _figures_of(viewer.request, viewer.scope, state.seq)
        if not fresh or len(state.items) <= _COUNTED_AT_ONCE:
            await count_journal(agent, counted, seconds=_COUNTING_S)
        degraded = agent.bank.degraded
    service = viewer.service
    counts = await run_in_threadpool(service.jobs.table.counts)
    return page(
        viewer.request,
        "overview.html",
        title="Overview",
        active="overview",
        figures=figures,
        latest=latest,
        charts=counted.charts(),
        counted=counted.seq,
        last=state.seq,
        degraded=degraded,
        has_model=service.has_model,
        design=service.design.name,
        failed_jobs=counts["failed"] if viewer.may("admin") else 0,
        empty=not state.items and not state.sessions,
    )


def _counts(state: BankState, expired: Container[str]) -> tuple[int, int]:
    """Return the number of memories, and of nodes of the graph that are none."""
    active = sum(1 for item in state.active() if item.id not in expired)
    nodes = sum(1 for node in state.graph.all_nodes() if node.kind is not NodeKind.ITEM)
    return active, nodes


async def count_journal(agent: AsyncAgent, figures: JournalFigures, *, seconds: float) -> None:
    """Count the rows that are new since the last call, for about this long."""
    over, slices = time.monotonic() + seconds, Slices()
    async for row in agent.bank.rows(after=figures.seq):
        if row.seq > figures.seq:  # another view may have counted it meanwhile
            figures.add(row)
        await slices.rest()
        if time.monotonic() > over:
            return


async def _latest(agent: AsyncAgent, state: BankState) -> list[EntryView]:
    """Describe the latest entries that changed something a reader knows, newest first."""
    rows = [row async for row in agent.bank.rows(after=max(0, state.seq - _LOOK_BACK))]
    entries = (describe_entry(row, state) for row in reversed(rows))
    return list(islice((one for one in entries if one.kind not in ("graph", "stats")), _LAST))


def _figures_of(request: Request, scope: Scope, seq: int) -> tuple[JournalFigures, bool]:
    """Return the figures of a memory, and whether they are new.

    They are new when nobody has looked yet, or when the journal has begun anew.
    """
    state = request.app.state
    kept: OrderedDict[str, JournalFigures] | None = getattr(state, "ui_figures", None)
    if kept is None:
        kept = state.ui_figures = OrderedDict[str, JournalFigures]()
    figures = kept.get(scope.key)
    fresh = figures is None or figures.seq > seq
    if figures is None or fresh:
        figures = kept[scope.key] = JournalFigures()
    kept.move_to_end(scope.key)
    while len(kept) > _MOST_COUNTED:
        kept.popitem(last=False)
    return figures, fresh


users_router = page_router()
_PAGE: Final = 50
_AnyReader = Annotated[Viewer, Depends(require_viewer("memory:read", about_memory=False))]


@dataclass(slots=True)
class User:
    """A user and its memories."""

    id: str
    narrowed: list[Scope]
    """Its memories of one agent or one run."""


@users_router.get("/ui/users")
async def list_users(
    viewer: _AnyReader,
    find: Annotated[str, Query(max_length=256)] = "",
    cursor: Annotated[str, Query(max_length=2_000)] = "",
) -> Response:
    """Show the users, and the forms about the one that is chosen."""
    return await _show(viewer, find=find, cursor=cursor)


@users_router.post("/ui/users")
async def act(viewer: Reader) -> Response:
    """Do what the field `do` names: `export`, or `erase` with the user's id typed again."""
    form, scope = viewer.form, viewer.scope
    match form["do"]:
        case "export":
            kind = JobKind.EXPORT
        case "erase":
            viewer.need("memory:delete")
            kind = JobKind.RESET if form["only"] else JobKind.ERASE
            if form["confirm"] != scope.user_id:
                fault = "This is not the user's id; nothing was erased."
                return await _show(viewer, status=422, fault=fault)
        case _:
            raise InputError("the form names nothing to do")
    job = await viewer.service.jobs.accept(scope, kind, request_key=uuid.uuid4().hex)
    note = "The export has begun." if kind is JobKind.EXPORT else "The erasure has begun."
    return go(viewer, f"/ui/jobs/{job.id}", note=note)


async def _show(
    viewer: Viewer, *, find: str = "", cursor: str = "", status: int = 200, fault: str = ""
) -> Response:
    scopes = await reachable(viewer.call)
    users = _by_user(scopes)
    letters = find.strip().casefold()
    listed, further = page_of(
        viewer.call,
        users,
        PageRequest("ui/users", cursor or None, _PAGE, letters),
        id_of=lambda user: user.id,
        visible=lambda user: letters in user.id.casefold(),
    )
    return page(
        viewer.request,
        "users.html",
        title="Users" if viewer.free else "This user",
        active="users",
        status=status,
        users=listed,
        total=len(users),
        further=further,
        find=find,
        fault=fault,
        known=any(user.id == viewer.scope.user_id for user in users),
        narrowed=viewer.scope.agent_id is not None or viewer.scope.run_id is not None,
    )


def _by_user(scopes: Iterable[Scope]) -> list[User]:
    users: dict[str, User] = {}
    for scope in scopes:
        user = users.setdefault(scope.user_id, User(scope.user_id, []))
        if scope.agent_id is not None or scope.run_id is not None:
            user.narrowed.append(scope)
    return list(users.values())
