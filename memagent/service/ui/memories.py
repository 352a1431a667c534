"""The list of memories: pages of it, filters, search with what every score is made of,
and a form to add one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Any, Final, Literal

from fastapi import Depends, Query
from starlette.responses import Response

from memagent.core.answers import MAX_QUESTION_CHARS, AsOf, Filter, Hit
from memagent.core.errors import MemAgentError
from memagent.core.records import MemoryItem, content_id
from memagent.service.routes.responses import page as cut
from memagent.service.ui.frame import failure, go, memory_link, page, page_router
from memagent.service.ui.session_auth import Form, Viewer, viewer

router = page_router()
_PAGE: Final = 50
_K: Final = 30
_MOST_CHOICES: Final = 200
Reader = Annotated[Viewer, Depends(viewer("memory:read"))]
_Word = Annotated[str, Query(max_length=256)]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a list shows: everything from the address."""

    q: Annotated[str, Query(max_length=MAX_QUESTION_CHARS)] = ""
    recipe: Literal["", "fast", "balanced", "deep"] = ""
    speaker: _Word = ""
    subject: _Word = ""
    kind: _Word = ""
    tag: _Word = ""
    session_id: _Word = ""
    known: Annotated[str, Query(max_length=10)] = ""
    """As the memory was recorded at the end of this day."""
    holds: Annotated[str, Query(max_length=10)] = ""
    """What held on this day."""
    deleted: bool = False
    order: Literal["", "new", "old"] = ""
    """By the last change, or by when it was said, the latest or the oldest first."""
    cursor: Annotated[str, Query(max_length=2_000)] = ""
    add: bool = False

    @property
    def where(self) -> Filter:
        """The filter."""

        def one(word: str) -> frozenset[str]:
            return frozenset((word,)) if word else frozenset()

        return Filter(
            speakers=one(self.speaker),
            subjects=one(self.subject),
            kinds=one(self.kind),
            session_ids=one(self.session_id),
            tags=one(self.tag),
        )

    @property
    def as_of(self) -> AsOf:
        """The point in time; dates that are none count as not given."""
        known, holds = _day(self.known), _day(self.holds)
        return AsOf(recorded=known + timedelta(days=1) if known else None, valid=holds)

    @property
    def filtered(self) -> bool:
        """Whether anything narrows the list, the search itself left out."""
        return not (self.where.empty and self.as_of.now) or self.deleted

    @property
    def terms(self) -> dict[str, Any]:
        """What a link to another page of the same list carries."""
        names = (
            "q",
            "recipe",
            "speaker",
            "subject",
            "kind",
            "tag",
            "session_id",
            "known",
            "holds",
            "deleted",
            "order",
        )
        return {name: getattr(self, name) for name in names}


@router.get("/ui/memories")
async def list_memories(seen: Reader, wanted: Annotated[Wanted, Depends()]) -> Response:
    """The list, or with `q` what a search found."""
    return await _list(seen, wanted)


@router.post("/ui/memories")
async def add_memory(seen: Reader) -> Response:
    """Remember a text as it is."""
    seen.need("memory:write")
    form = seen.form
    try:
        with seen.agent() as agent:
            tags = [tag for part in form["tags"].split(",") if (tag := part.strip())]
            item = await agent.memory.add(
                form["text"],
                subject=form["subject"].strip() or None,
                speaker=form["speaker"].strip() or None,
                tags=tags,
            )
    except MemAgentError as exc:
        status, fault = failure(seen.request, exc)
        return await _list(seen, Wanted(add=True), status=status, fault=fault, form=form)
    return go(seen, memory_link(None, item.id), note="Remembered.")


async def _list(
    seen: Viewer, wanted: Wanted, *, status: int = 200, fault: str = "", form: Form | None = None
) -> Response:
    hits: list[Hit] = []
    items: list[MemoryItem] = []
    further: str | None = None
    with seen.agent() as agent:
        memory = agent.memory if wanted.as_of.now else await agent.memory.as_of(wanted.as_of)
        everything = await memory.get_all(include_deleted=True)
        expired = agent.bank.expired
        if wanted.q.strip():
            hits = await memory.search(
                wanted.q, k=_K, where=wanted.where, recipe=wanted.recipe or None
            )
        else:
            passing = {
                item.id
                for item in await memory.get_all(where=wanted.where, include_deleted=wanted.deleted)
            }
            items, further = cut(
                seen.call,
                _ordered(everything, wanted.order, (await memory.bank.sync()).touched),
                id_of=lambda item: item.id,
                limit=_PAGE,
                cursor=wanted.cursor or None,
                listing="ui/memories",
                terms=content_id("t", repr(sorted(wanted.terms.items()))),
                shown=lambda item: item.id in passing,
            )
    best = max((hit.score for hit in hits), default=0.0)
    return page(
        seen.request,
        "memories.html",
        title="Memories",
        active="memories",
        status=status,
        wanted=wanted,
        hits=[(hit, _share(hit.score, best)) for hit in hits],
        items=items,
        further=further,
        total=len(everything),
        expired=expired,
        choices=_choices(everything),
        fault=fault,
        form=form if form is not None else Form(),
    )


def _ordered(
    items: list[MemoryItem], order: str, touched: Mapping[str, Sequence[int]]
) -> list[MemoryItem]:
    """The items, which come oldest said first; `touched` has the journal entries that changed each."""
    match order:
        case "old":
            return items
        case "new":
            return items[::-1]
        case _:
            return sorted(
                items,
                key=lambda item: touched[item.id][-1] if touched.get(item.id) else 0,
                reverse=True,
            )


def _share(score: float, best: float) -> float:
    """A hit's score as a share of the best one's."""
    return max(0.0, score / best) if best > 0 else 0.0


def _choices(items: Sequence[MemoryItem]) -> dict[str, list[str]]:
    """What there is to filter by, for each field, in order."""

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
        found = date.fromisoformat(text)
    except ValueError:
        return None
    return datetime.combine(found, time(), UTC) if found < date.max else None
