"""One memory: its text, its sources, its versions as word diffs, and the forms that change it.

The list of memories: its pages, filters, a search with scores, and a form to add one.

Changes that were kept aside because of low trust: the list, and forms to settle one.

Every form calls the REST verb of the same name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, time, timedelta
from itertools import islice
from typing import Annotated, Any, Final, Literal

from fastapi import Depends, Query
from starlette.responses import HTMLResponse, Response

from memagent.async_agent import AsyncAgent
from memagent.client.http import problem_of
from memagent.core.answers import MAX_QUESTION_CHARS, AsOf, Filter, Hit
from memagent.core.errors import InputError, MemAgentError, MemoryNotFound
from memagent.core.long_work import aside
from memagent.core.ops import Update
from memagent.core.records import Granularity, MemoryItem, Session, TimeSpan, Turn, content_id
from memagent.core.snapshot import Commit, HistoryEntry
from memagent.memory.facade import Listing
from memagent.pages.journal_words import Piece, word_diff
from memagent.service.routes import users as care
from memagent.service.routes.exchange import (
    PageRequest,
    after_of,
    check_match,
    etag_of,
    gone,
    page_from,
)
from memagent.service.ui.frame import (
    Form,
    Reader,
    Viewer,
    Writer,
    constants,
    day,
    go,
    memory_link,
    page,
    page_router,
    steps,
    when,
)
from memagent.service.ui.turns import quotations, score_share

router = page_router()
_UNCHANGED = "Nothing was changed."
_OPS = {"ADD": "Added", "UPDATE": "Changed", "DELETE": "Deleted", "NOOP": "Looked at"}


MemoryId = Annotated[str, Query(max_length=1_000)]
Change = tuple[HistoryEntry, str, list[Piece], list[tuple[str, str, str]]]
"""An entry of the history with its words, the pieces of its text against the version before
([] when it stayed), and (field, before, after) of the other changes."""


# an id of dots alone cannot stand in a path
@router.get("/ui/memory")
async def memory_by_query(viewer: Reader, id: MemoryId) -> Response:
    """Show the memory that the query names."""
    return await memory(id, viewer)


@router.post("/ui/memory")
async def change_by_query(viewer: Reader, id: MemoryId) -> Response:
    """Change the memory that the query names, as `change_memory` does."""
    return await change_memory(id, viewer)


@router.get("/ui/memories/{memory_id:path}")
async def memory(memory_id: str, viewer: Reader) -> Response:
    """Show a memory; a form that was not carried out stands there as it was filled in."""
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
    edited = viewer.form if viewer.form["do"] == "edit" else None
    conflict = viewer.fault is not None and problem_of(viewer.fault).status in (409, 412)
    return page(
        viewer.request,
        "memory.html",
        title="Memory",
        active="memories",
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
        form=edited,
        conflict=word_diff(latest.text, edited["text"]) if edited and conflict else [],
    )


@router.post("/ui/memories/{memory_id:path}")
async def change_memory(memory_id: str, viewer: Reader) -> Response:
    """Do what the field `do` names: `edit`, `delete`, `restore` or `undo`."""
    form = viewer.form
    viewer.require("memory:delete" if form["do"] == "delete" else "memory:write")
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
        viewer.fault = exc
        return await memory(memory_id, viewer)
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


async def _others(agent: AsyncAgent, last: HistoryEntry) -> int:
    """Count the other memories of this one's last change, which undoing takes back too."""
    async for row in agent.bank.rows(after=last.seq - 1):
        entry = row.entry
        return (entry.cleared or len(entry.changes)) - 1 if isinstance(entry, Commit) else 0
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
        changes.append((entry, _words(entry, before), pieces, fields))
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
    old, new = _values(before), _values(after)
    changed = (name for name in new if old[name] != new[name])
    return [(name, old[name] or "none", new[name] or "none") for name in changed]


def _values(item: MemoryItem) -> dict[str, str]:
    """Return what a person may see of an item beside its text."""
    valid = item.valid
    return {
        "Status": item.status.value,
        "Time": f"{when(valid.start) or 'open'} to {when(valid.end) or 'open'}" if valid else "",
        "Kind": item.kind,
        "About": item.subject or "",
        "Tags": ", ".join(item.tags),
        "Trust": item.trust.value,
        "Said": when(item.said_at),
        "Expires": when(item.expires_at),
    }


_PAGE: Final = 50
_K: Final = 30
_MOST_CHOICES: Final = 200
# Filters offer the words of so many memories, the last changed ones.
_LATEST: Final = 1_000
_NOT_KEPT: Final = ("cursor", "add")
_Word = Annotated[str, Query(max_length=256)]


@dataclass(frozen=True, slots=True)
class ListQuery:
    """The query of a list, all from the address."""

    q: Annotated[str, Query(max_length=MAX_QUESTION_CHARS)] = ""
    recipe: Literal["", "fast", "balanced", "deep"] = ""
    speaker: _Word = ""
    subject: _Word = ""
    kind: _Word = ""
    tag: _Word = ""
    session_id: _Word = ""
    known: Annotated[str, Query(max_length=10)] = ""
    """The day at whose end the memory is read, as it was recorded."""
    holds: Annotated[str, Query(max_length=10)] = ""
    """The day of which facts are shown."""
    deleted: bool = False
    order: Literal["", "new", "old"] = ""
    """By the last change, or by when it was said, the latest or the oldest first."""
    cursor: Annotated[str, Query(max_length=2_000)] = ""
    add: bool = False

    @property
    def where(self) -> Filter:
        """The filter."""
        names = ("speaker", "subject", "kind", "tag", "session_id")
        return Filter.model_validate({f"{name}s": {getattr(self, name)} - {""} for name in names})

    @property
    def as_of(self) -> AsOf:
        """The point in time, without the dates that cannot be read."""
        known, holds = _day(self.known), _day(self.holds)
        return AsOf(recorded=known + timedelta(days=1) if known else None, valid=holds)

    @property
    def filtered(self) -> bool:
        """Whether anything narrows the list, the search itself left out."""
        return not (self.where.empty and self.as_of.now) or self.deleted

    @property
    def terms(self) -> dict[str, Any]:
        """The query that a link to another page of the same list keeps."""
        return {name: value for name, value in asdict(self).items() if name not in _NOT_KEPT}


@router.get("/ui/memories")
async def list_memories(viewer: Reader, query: Annotated[ListQuery, Depends()]) -> Response:
    """Show the list, or with `q` the hits of a search."""
    hits: list[Hit] = []
    items: list[MemoryItem] = []
    further: str | None = None
    with viewer.agent() as agent:
        memory = agent.memory if query.as_of.now else await agent.memory.as_of(query.as_of)
        state, expired = await memory.bank.sync(), agent.bank.expired
        if query.q.strip():
            hits = await memory.search(
                query.q, k=_K, where=query.where, recipe=query.recipe or None
            )
        else:
            terms = content_id("t", repr(sorted(query.terms.items())))
            request = PageRequest("ui/memories", query.cursor or None, _PAGE, terms)
            listing = Listing(
                where=query.where,
                include_deleted=query.deleted,
                order=query.order or "changed",
                after=after_of(viewer, request),
            )
            try:
                listed = await aside(listing.of, state, memory.bank.now())
            except MemoryNotFound as exc:
                raise gone() from exc
            items, further = page_from(viewer, listed, request, id_of=lambda item: item.id)
        changed = Listing(order="changed", include_deleted=True)
        latest = islice(await aside(changed.of, state, agent.clock()), _LATEST)
    best = max((hit.score for hit in hits), default=0.0)
    return page(
        viewer.request,
        "memories.html",
        title="Memories",
        active="memories",
        query=query,
        hits=[(hit, score_share(hit.score, best)) for hit in hits],
        items=items,
        same=constants(
            {
                "about": [_about(item) for item in items],
                "kind": [item.kind for item in items],
                "said": [when(item.said_at) for item in items],
                "version": [item.version for item in items],
            }
        ),
        further=further,
        total=len(state.items),
        expired=expired,
        choices=_choices(list(latest)),
        form=viewer.form,
    )


@router.post("/ui/memories")
async def add_memory(viewer: Reader) -> Response:
    """Remember a text as it is."""
    viewer.require("memory:write")
    form = viewer.form
    try:
        with viewer.agent() as agent:
            item = await agent.memory.add(
                form["text"],
                subject=form["subject"].strip() or None,
                speaker=form["speaker"].strip() or None,
                tags=[tag for part in form["tags"].split(",") if (tag := part.strip())],
            )
    except MemAgentError as exc:
        viewer.fault = exc
        return await list_memories(viewer, ListQuery(add=True))
    return go(viewer, memory_link(None, item.id), note="Remembered.")


def _about(item: MemoryItem) -> str:
    """Return whom a memory is about, and who said it where that is somebody else."""
    about = item.subject or item.speaker or ""
    speaker = item.speaker or about
    return about if speaker == about else f"{about}, said by {speaker}"


def _choices(items: Sequence[MemoryItem]) -> dict[str, list[str]]:
    """Return the values of each field that a filter offers, in order: those of these items."""

    def some(words: Iterable[str | None]) -> list[str]:
        return sorted({word for word in words if word})[:_MOST_CHOICES]

    return {
        "speaker": some(item.speaker for item in items),
        "subject": some(item.subject for item in items),
        "kind": some(item.kind for item in items),
        "tag": some(tag for item in items for tag in item.tags),
        "session_id": some(item.session_id for item in items),
    }


def _day(text: str) -> datetime | None:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return None
    return datetime.combine(day, time(), UTC) if day < date.max else None


_REVIEW_PAGE: Final = 20


@router.get("/ui/review")
async def review(
    viewer: Reader, start: Annotated[int, Query(ge=0, le=10_000_000)] = 0
) -> HTMLResponse:
    """Show the changes that wait, oldest first, an update against the memory as it is now."""
    with viewer.agent() as agent:
        waiting = await agent.memory.quarantine()
        shown = waiting[start : start + _REVIEW_PAGE]
        read = {turn_id for change in shown for turn_id in change.source.turn_ids}
        quoted = quotations(agent, sorted(read))
    return page(
        viewer.request,
        "review.html",
        title="Review",
        active="review",
        waiting=[
            (change, word_diff(change.item.text, change.op.text))
            if isinstance(change.op, Update) and change.item is not None
            else (change, [])
            for change in shown
        ],
        quoted=quoted,
        steps=steps(start, _REVIEW_PAGE, len(waiting)),
        total=len(waiting),
    )


@router.post("/ui/review")
async def settle(viewer: Writer) -> Response:
    """Do what the field `do` names with one change: `accept` or `refuse`."""
    change_id = viewer.form["id"]
    try:
        match viewer.form["do"]:
            case "accept":
                await care.accept(change_id, viewer)
                note = "Accepted and carried out. It can be undone in the memory's history."
            case "refuse":
                await care.refuse(change_id, viewer)
                note = "Refused. The memory stays as it is."
            case _:
                raise InputError("the form names nothing to do")
    except MemAgentError as exc:
        viewer.fault = exc
        return await review(viewer)
    return go(viewer, "/ui/review", note=note)
