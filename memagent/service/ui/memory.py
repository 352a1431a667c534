"""One memory: what it says, where it comes from, every version of it as a word diff,
and the forms that change it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from typing import Annotated

from fastapi import Depends, Query
from starlette.responses import Response

from memagent.async_agent import AsyncAgent
from memagent.core.errors import InputError, MemAgentError, MemoryNotFound
from memagent.core.records import Granularity, MemoryItem, Session, TimeSpan, Turn
from memagent.core.snapshot import Commit, HistoryEntry
from memagent.pages.word_diff import Piece, word_diff
from memagent.service.routes.responses import check_match, etag_of
from memagent.service.ui.frame import failure, go, memory_link, page, page_router
from memagent.service.ui.session_auth import Form, Viewer, viewer

router = page_router()
Reader = Annotated[Viewer, Depends(viewer("memory:read"))]
_OP_WORDS = {"ADD": "Added", "UPDATE": "Changed", "DELETE": "Deleted", "NOOP": "Looked at"}


@dataclass(frozen=True, slots=True)
class Change:
    """One entry of the history, ready to show."""

    entry: HistoryEntry
    words: str
    pieces: list[Piece]
    """The text against the version before; empty when it stayed."""
    fields: list[tuple[str, str, str]]
    """(field, before, after) of what else changed."""


@router.get("/ui/memory")
async def memory_by_query(seen: Reader, id: Annotated[str, Query(max_length=1_000)]) -> Response:
    """A memory whose id cannot stand in a path."""
    return await _show(seen, id)


@router.post("/ui/memory")
async def change_by_query(seen: Reader, id: Annotated[str, Query(max_length=1_000)]) -> Response:
    """As `change_memory`."""
    return await _change(seen, id)


@router.get("/ui/memories/{memory_id:path}")
async def memory(memory_id: str, seen: Reader) -> Response:
    """The page of a memory."""
    return await _show(seen, memory_id)


@router.post("/ui/memories/{memory_id:path}")
async def change_memory(memory_id: str, seen: Reader) -> Response:
    """What the field `do` names: `edit`, `delete`, `restore` or `undo`."""
    return await _change(seen, memory_id)


async def _change(seen: Viewer, memory_id: str) -> Response:
    form = seen.form
    seen.need("memory:delete" if form["do"] == "delete" else "memory:write")
    onward = memory_link(None, memory_id)
    try:
        with seen.agent() as agent:
            await agent.memory.history(memory_id)  # of the viewer's own, or it is not there
            match form["do"]:
                case "edit":
                    return await _edit(seen, agent, memory_id, onward)
                case "delete":
                    version = check_match(
                        form["etag"] or None, await agent.memory.get(memory_id), None
                    )
                    await agent.memory.delete(memory_id, version=version)
                    return go(seen, onward, note="Deleted. It can be brought back here.")
                case "restore":
                    await agent.memory.restore(memory_id)
                    return go(seen, onward, note="Brought back.")
                case "undo":
                    await agent.memory.undo(form["commit"] or None)
                    return go(seen, onward, note="Taken back.")
                case _:
                    raise InputError("the form names nothing to do")
    except MemoryNotFound:
        raise
    except MemAgentError as exc:
        status, fault = failure(seen.request, exc)
        return await _show(seen, memory_id, status=status, fault=fault, form=form)


async def _edit(seen: Viewer, agent: AsyncAgent, memory_id: str, onward: str) -> Response:
    form, item = seen.form, await agent.memory.get(memory_id)
    version = check_match(form["etag"] or None, item, None)
    valid = _span(form, item)
    if form["text"] == item.text and valid is None:
        return go(seen, onward, note="Nothing was changed.", kind="plain")
    await agent.memory.update(memory_id, form["text"], version=version, valid=valid)
    return go(seen, onward, note="Saved as a new version.")


def _span(form: Form, item: MemoryItem) -> TimeSpan | None:
    """The time that the form gives; None when it is the item's own."""
    start, end = (_moment(form[name]) for name in ("start", "end"))
    own = item.valid or TimeSpan()
    if (start and start.date()) == (own.start and own.start.date()) and (end and end.date()) == (
        own.end and own.end.date()
    ):
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
    seen: Viewer, memory_id: str, *, status: int = 200, fault: str = "", form: Form | None = None
) -> Response:
    with seen.agent() as agent:
        history = await agent.memory.history(memory_id)
        item = (await agent.bank.sync()).items.get(memory_id)
        shown = item or next(
            (entry.item for entry in reversed(history) if entry.item is not None), None
        )
        if shown is None:
            raise MemoryNotFound(f"no memory {memory_id!r}")
        sources = [
            found
            for turn in shown.source_turn_ids
            if (found := agent.bank.turn_with_session(turn)) is not None
        ]
        expired = shown.expired(agent.bank.now())
        others = await _others(agent, history[-1])
        stats = (await agent.bank.sync()).stats.get(memory_id)
    changes = _changes(history)
    return page(
        seen.request,
        "memory.html",
        title="Memory",
        active="memories",
        status=status,
        id=memory_id,
        item=item,
        shown=shown,
        etag=etag_of(item) if item is not None else "",
        expired=expired,
        sources=_by_session(sources),
        lost=len(shown.source_turn_ids) - len(sources),
        changes=changes[::-1],
        others=others,
        stats=stats,
        fault=fault,
        form=form if form is not None and form["do"] == "edit" else None,
        conflict=word_diff(shown.text, form["text"])
        if status in (409, 412) and form and form["do"] == "edit"
        else [],
    )


async def _others(agent: AsyncAgent, last: HistoryEntry) -> int:
    """How many other memories the last change of this one touched too, which undoing
    takes back with it.
    """
    async for row in agent.bank.rows(after=last.seq - 1):
        return len(row.entry.changes) - 1 if isinstance(row.entry, Commit) else 0
    return 0


def _by_session(sources: list[tuple[Turn, Session]]) -> list[tuple[Session, list[Turn]]]:
    found: dict[str, tuple[Session, list[Turn]]] = {}
    for turn, session in sources:
        found.setdefault(session.id, (session, []))[1].append(turn)
    return list(found.values())


def _changes(history: tuple[HistoryEntry, ...]) -> list[Change]:
    """The history, oldest first, each entry against the one before."""
    before: MemoryItem | None = None
    found: list[Change] = []
    for entry in history:
        after = entry.item
        pieces: list[Piece] = []
        if after is not None and (before is None or before.text != after.text):
            pieces = word_diff(before.text if before is not None else "", after.text)
        fields = _fields(before, after) if before is not None and after is not None else []
        found.append(Change(entry, _words(entry, before), pieces, fields))
        before = after
    return found


def _words(entry: HistoryEntry, before: MemoryItem | None) -> str:
    if entry.undoes is not None:
        return "Change taken back"
    if entry.op is not None:
        return _OP_WORDS[entry.op.op]
    if entry.item is None:
        return "Taken out"
    return (
        "Brought back"
        if before is not None and not before.active
        else "Put back with a snapshot or an import"
    )


def _fields(before: MemoryItem, after: MemoryItem) -> list[tuple[str, str, str]]:
    pairs = (
        ("Status", before.status.value, after.status.value),
        ("Time", _time(before.valid), _time(after.valid)),
        ("Kind", before.kind, after.kind),
        ("About", before.subject or "", after.subject or ""),
        ("Tags", ", ".join(before.tags), ", ".join(after.tags)),
        ("Trust", before.trust.value, after.trust.value),
        ("Said", _stamp(before.said_at), _stamp(after.said_at)),
        ("Expires", _stamp(before.expires_at), _stamp(after.expires_at)),
    )
    return [(name, old or "none", new or "none") for name, old, new in pairs if old != new]


def _time(valid: TimeSpan | None) -> str:
    if valid is None:
        return ""
    return f"{_stamp(valid.start) or 'open'} to {_stamp(valid.end) or 'open'}"


def _stamp(moment: datetime | None) -> str:
    return f"{moment:%Y-%m-%d %H:%M}" if moment is not None else ""
