"""The list of memories: its pages, filters, a search with scores, and a form to add one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, time, timedelta
from itertools import islice
from typing import Annotated, Any, Final, Literal

from fastapi import Depends, Query
from starlette.responses import Response

from memagent.core.answers import MAX_QUESTION_CHARS, AsOf, Filter, Hit
from memagent.core.errors import MemAgentError, MemoryNotFound
from memagent.core.records import MemoryItem, content_id
from memagent.service.routes.responses import PageRequest, after_of, gone, page_from
from memagent.service.ui.explaining import score_share
from memagent.service.ui.frame import (
    constants,
    failure,
    go,
    memory_link,
    page,
    page_router,
    when,
)
from memagent.service.ui.session_auth import Form, Reader, Viewer
from memagent.state.listing import Listing

router = page_router()
_PAGE: Final = 50
_K: Final = 30
_MOST_CHOICES: Final = 200
_LATEST: Final = 1_000
"""Filters offer the words of so many memories, the last changed ones."""
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
        words = {f"{name}s": {getattr(self, name)} - {""} for name in names}
        return Filter.model_validate(words)

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
    return await _list(viewer, query)


@router.post("/ui/memories")
async def add_memory(viewer: Reader) -> Response:
    """Remember a text as it is."""
    viewer.need("memory:write")
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
        status, fault = failure(viewer.request, exc)
        return await _list(viewer, ListQuery(add=True), status=status, fault=fault, form=form)
    return go(viewer, memory_link(None, item.id), note="Remembered.")


async def _list(
    viewer: Viewer,
    query: ListQuery,
    *,
    status: int = 200,
    fault: str = "",
    form: Form | None = None,
) -> Response:
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
                after=after_of(viewer.call, request),
            )
            try:
                listed = listing.of(state, memory.bank.now())
            except MemoryNotFound as exc:
                raise gone() from exc
            items, further = page_from(viewer.call, listed, request, id_of=lambda item: item.id)
        latest = islice(
            Listing(order="changed", include_deleted=True).of(state, agent.clock()), _LATEST
        )
    best = max((hit.score for hit in hits), default=0.0)
    return page(
        viewer.request,
        "memories.html",
        title="Memories",
        active="memories",
        status=status,
        query=query,
        hits=[(hit, score_share(hit.score, best)) for hit in hits],
        items=items,
        same=_constants(items),
        further=further,
        total=len(state.items),
        expired=expired,
        choices=_choices(list(latest)),
        fault=fault,
        form=form if form is not None else Form(),
    )


def _constants(items: Sequence[MemoryItem]) -> dict[str, str]:
    """Return what all rows of the list have in common."""
    return constants(
        {
            "about": [_about(item) for item in items],
            "kind": [item.kind for item in items],
            "said": [when(item.said_at) for item in items],
            "version": [item.version for item in items],
        }
    )


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
