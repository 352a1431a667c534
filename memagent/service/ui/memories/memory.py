"""One memory: its text, its sources, its versions as word diffs, and the forms that change it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from memagent.async_agent import AsyncAgent
from memagent.core.errors import InputError, MemAgentError, MemoryNotFound
from memagent.core.records import Granularity, MemoryItem, Session, TimeSpan, Turn
from memagent.core.snapshot import Commit, HistoryEntry
from memagent.pages.word_diff import Piece, word_diff
from memagent.service.routes.responses import check_match, etag_of
from memagent.service.ui.explaining import quotations
from memagent.service.ui.frame import day, failure, go, memory_link, page, page_router, when
from memagent.service.ui.session_auth import Form, Reader, Viewer

router = page_router()
_FIELDS = ("Status", "Time", "Kind", "About", "Tags", "Trust", "Said", "Expires")
_UNCHANGED = "Nothing was changed."
_OPS = {"ADD": "Added", "UPDATE": "Changed", "DELETE": "Deleted", "NOOP": "Looked at"}


MemoryId = Annotated[str, Query(max_length=1_000)]


@dataclass(frozen=True, slots=True)
class Change:
    """One entry of the history, ready to show."""

    entry: HistoryEntry
    words: str
    pieces: list[Piece]
    """The text against the version before; [] when it stayed."""
    fields: list[tuple[str, str, str]]
    """(field, before, after) of the other changes."""


# an id of dots alone cannot stand in a path
@router.get("/ui/memory")
async def memory_by_query(viewer: Reader, id: MemoryId) -> Response:
    """Show the memory that the query names."""
    return await _show(viewer, id)


@router.post("/ui/memory")
async def change_by_query(viewer: Reader, id: MemoryId) -> Response:
    """Change the memory that the query names, as `change_memory` does."""
    return await _change(viewer, id)


@router.get("/ui/memories/{memory_id:path}")
async def memory(memory_id: str, viewer: Reader) -> Response:
    """Show a memory."""
    return await _show(viewer, memory_id)


@router.post("/ui/memories/{memory_id:path}")
async def change_memory(memory_id: str, viewer: Reader) -> Response:
    """Do what the field `do` names: `edit`, `delete`, `restore` or `undo`."""
    return await _change(viewer, memory_id)


async def _change(viewer: Viewer, memory_id: str) -> Response:
    form = viewer.form
    viewer.need("memory:delete" if form["do"] == "delete" else "memory:write")
    try:
        with viewer.agent() as agent:
            await agent.memory.history(memory_id)  # of the viewer's own, or it is not there
            match form["do"]:
                case "edit":
                    note = await _edit(viewer, agent, memory_id)
                case "delete":
                    item = await agent.memory.get(memory_id)
                    version = check_match(form["etag"] or None, item, None)
                    await agent.memory.delete(memory_id, version=version)
                    note = "Deleted. It can be brought back here."
                case "restore":
                    await agent.memory.restore(memory_id)
                    note = "Brought back."
                case "undo":
                    await agent.memory.undo(form["commit"] or None)
                    note = "Taken back."
                case _:
                    raise InputError("the form names nothing to do")
    except MemoryNotFound:
        raise
    except MemAgentError as exc:
        status, fault = failure(viewer.request, exc)
        return await _show(viewer, memory_id, status=status, fault=fault, form=form)
    kind = "plain" if note == _UNCHANGED else "good"
    return go(viewer, memory_link(None, memory_id), note=note, kind=kind)


async def _edit(viewer: Viewer, agent: AsyncAgent, memory_id: str) -> str:
    """Save the form as a new version, and return the note about it."""
    form, item = viewer.form, await agent.memory.get(memory_id)
    version = check_match(form["etag"] or None, item, None)
    valid = _span(form, item)
    if form["text"] == item.text and valid is None:
        return _UNCHANGED
    await agent.memory.update(memory_id, form["text"], version=version, valid=valid)
    return "Saved as a new version."


def _span(form: Form, item: MemoryItem) -> TimeSpan | None:
    """Return the time that the form gives; None when it is the item's own."""
    start, end = (_moment(form[name]) for name in ("start", "end"))
    own = item.valid or TimeSpan()
    if (day(start), day(end)) == (day(own.start), day(own.end)):
        return None
    if start is not None and end is not None and end <= start:
        raise InputError("the time has to end after it begins")
    return TimeSpan(start=start, end=end, granularity=Granularity.RANGE)


def _moment(text: str) -> datetime | None:
    if not text:
        return None
    try:
        return datetime.combine(date.fromisoformat(text), time(), UTC)
    except ValueError as exc:
        raise InputError(f"{text[:40]!r} is no date; write it like 2024-05-08") from exc


async def _show(
    viewer: Viewer, memory_id: str, *, status: int = 200, fault: str = "", form: Form | None = None
) -> Response:
    with viewer.agent() as agent:
        history = await agent.memory.history(memory_id)
        state = await agent.bank.sync()
        item = state.items.get(memory_id)
        items = (entry.item for entry in reversed(history) if entry.item is not None)
        latest = item or next(items, None)
        if latest is None:
            raise MemoryNotFound(f"no memory {memory_id!r}")
        sources = quotations(agent, latest.source_turn_ids)
        expired = latest.expired(agent.bank.now())
        others = await _others(agent, history[-1])
    edited = form if form is not None and form["do"] == "edit" else None
    conflict = edited is not None and status in (409, 412)
    return page(
        viewer.request,
        "memory.html",
        title="Memory",
        active="memories",
        status=status,
        id=memory_id,
        item=item,
        latest=latest,
        etag=etag_of(item) if item is not None else "",
        expired=expired,
        sources=_by_session(sources.values()),
        lost=len(latest.source_turn_ids) - len(sources),
        changes=_changes(history)[::-1],
        others=others,
        stats=state.stats.get(memory_id),
        fault=fault,
        form=edited,
        conflict=word_diff(latest.text, edited["text"]) if edited and conflict else [],
    )


async def _others(agent: AsyncAgent, last: HistoryEntry) -> int:
    """Count the other memories of this one's last change, which undoing takes back too."""
    async for row in agent.bank.rows(after=last.seq - 1):
        return len(row.entry.changes) - 1 if isinstance(row.entry, Commit) else 0
    return 0


def _by_session(sources: Iterable[tuple[Turn, Session]]) -> list[tuple[Session, list[Turn]]]:
    groups: dict[str, tuple[Session, list[Turn]]] = {}
    for turn, session in sources:
        groups.setdefault(session.id, (session, []))[1].append(turn)
    return list(groups.values())


def _changes(history: Sequence[HistoryEntry]) -> list[Change]:
    """Return the history, oldest first, each entry against the one before."""
    before: MemoryItem | None = None
    changes: list[Change] = []
    for entry in history:
        after, old = entry.item, before.text if before is not None else ""
        pieces = word_diff(old, after.text) if after is not None and after.text != old else []
        fields = _fields(before, after) if before is not None and after is not None else []
        changes.append(Change(entry, _words(entry, before), pieces, fields))
        before = after
    return changes


def _words(entry: HistoryEntry, before: MemoryItem | None) -> str:
    if entry.undoes is not None:
        return "Change taken back"
    if entry.op is not None:
        return _OPS[entry.op.op]
    if entry.item is None:
        return "Taken out"
    back = before is not None and not before.active
    return "Brought back" if back else "Put back with a snapshot or an import"


def _fields(before: MemoryItem, after: MemoryItem) -> list[tuple[str, str, str]]:
    pairs = zip(_FIELDS, _values(before), _values(after), strict=True)
    return [(name, old or "none", new or "none") for name, old, new in pairs if old != new]


def _values(item: MemoryItem) -> tuple[str, ...]:
    """Return the item's `_FIELDS` as text."""
    valid = item.valid
    span = f"{when(valid.start) or 'open'} to {when(valid.end) or 'open'}" if valid else ""
    return (
        item.status.value,
        span,
        item.kind,
        item.subject or "",
        ", ".join(item.tags),
        item.trust.value,
        when(item.said_at),
        when(item.expires_at),
    )
