"""Responses of the routes: JSON of records, ETags, pages, and what OpenAPI says about them.

Records are written by pydantic straight to JSON text; FastAPI would validate them a
second time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, TypeVar
from urllib.parse import quote

from pydantic import BaseModel
from pydantic_core import to_json
from starlette.responses import Response

from memagent.client.faults import ServiceError
from memagent.core.records import MemoryItem
from memagent.service.access import Call
from memagent.service.problems import precondition_failed

T = TypeVar("T")
_JSON: Final = "application/json"
_REFUSALS: Final = {
    400: "A cursor or body that cannot be read",
    401: "No API key, or one that is not known",
    403: "The API key does not allow it",
    404: "Not there, or somebody else's",
    409: "In conflict with what is stored, or with the same request at work",
    412: "If-Match names another version",
    413: "Too large",
    415: "A body of another type",
    421: "The Host header names another host",
    422: "A field is wrong",
    429: "Too many requests",
    500: "A fault of the service",
    501: "Something optional is not installed",
    502: "The language model failed",
    503: "Overloaded, or the store or the model cannot be reached now",
    504: "The language model did not answer in time",
}


EVENTS: Final[dict[str, Any]] = {
    "text/event-stream": {
        "schema": {
            "type": "object",
            "properties": {"event": {"type": "string"}, "data": {"type": "string"}},
            "required": ["data"],
        }
    }
}
"""The content of server-sent events in OpenAPI."""


def openapi_responses(
    model: type[BaseModel] | None,
    status: int = 200,
    description: str = "Done",
    **more: dict[str, Any],
) -> dict[int | str, dict[str, Any]]:
    """Return what OpenAPI says about a route's responses: the good one, and problems."""
    good: dict[str, Any] = {"model": model} if model is not None else {}
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    bad: dict[int | str, dict[str, Any]] = {
        code: {"description": words, "content": content} for code, words in _REFUSALS.items()
    }
    return {**bad, status: {"description": description, **good, **more}}


def record(
    value: BaseModel, status: int = 200, headers: dict[str, str] | None = None, **dump: Any
) -> Response:
    """Return a record as JSON."""
    return Response(value.model_dump_json(by_alias=True, **dump).encode(), status, headers, _JSON)


def hits_response(hits: Iterable[tuple[MemoryItem, float]]) -> Response:
    """Write unexplained hits as `Hits` would be, without making a record of each."""
    rows = [
        {"id": item.id, "kind": "item", "score": score, "item": item, "event": None}
        for item, score in hits
    ]
    return Response(to_json({"hits": rows, "evidence": None}), 200, None, _JSON)


def etag_of(item: MemoryItem) -> str:
    """Return the item's ETag: its version, and the op, since an undone version may come again."""
    return f'"{item.version}-{item.op_id or "0"}"'


def item_response(item: MemoryItem | None, status: int = 200) -> Response:
    """Return an item with its ETag."""
    assert item is not None
    headers = {"ETag": etag_of(item)}
    if status == 201:
        headers["Location"] = "/v1/memories/" + quote(item.id, safe="")
    return record(item, status, headers)


def check_match(header: str | None, item: MemoryItem, version: int | None) -> int | None:
    """Return the version an edit is for, by `If-Match` or the body.

    Raises `ServiceError` (`precondition_failed`).
    """
    if header is None or header.strip() == "*":
        return version
    if etag_of(item) not in {tag.strip().removeprefix("W/") for tag in header.split(",")}:
        expected = _version_in(header)
        if expected == item.version:
            raise ServiceError(
                f"If-Match names no ETag of this memory: it is {etag_of(item)} now",
                code="precondition_failed",
            )
        raise precondition_failed(expected=expected, actual=item.version)
    return item.version


def _version_in(header: str) -> int:
    digits = header.strip().removeprefix("W/").strip('"').partition("-")[0]
    return int(digits) if digits.isdecimal() and len(digits) < 10 else 0


@dataclass(frozen=True, slots=True)
class PageRequest:
    """The requested page of a listing; a cursor is good for its listing and terms only."""

    listing: str
    cursor: str | None
    limit: int
    terms: str = ""


def after_of(call: Call, request: PageRequest) -> str | None:
    """Return the id that the cursor of a page stands behind; None without a cursor.

    Raises `ServiceError` (`invalid_cursor`) for a cursor of another list.
    """
    if request.cursor is None:
        return None
    return call.service.cursors.read(
        request.cursor, listing=request.listing, scope=call.scope, terms=request.terms
    )


def page_from(
    call: Call, entries: Iterable[T], request: PageRequest, *, id_of: Callable[[T], str]
) -> tuple[list[T], str | None]:
    """Return the first entries of those that follow a cursor, and the cursor behind them."""
    items = list(islice(entries, request.limit + 1))
    if len(items) <= request.limit:
        return items, None
    items.pop()
    return items, call.service.cursors.make(
        id_of(items[-1]), listing=request.listing, scope=call.scope, terms=request.terms
    )


def page_of(
    call: Call,
    entries: Sequence[T],
    request: PageRequest,
    *,
    id_of: Callable[[T], str],
    visible: Callable[[T], bool] = lambda _: True,
) -> tuple[list[T], str | None]:
    """Return the visible entries behind a cursor, and the cursor behind them.

    `entries` is everything in order, what is hidden included: a cursor stands behind an
    entry even when that one is hidden meanwhile. Raises `ServiceError` (`invalid_cursor`) when the
    entry that the cursor stands behind is gone.
    """
    start, after = 0, after_of(call, request)
    if after is not None:
        places = (place for place, entry in enumerate(entries, 1) if id_of(entry) == after)
        start = next(places, 0)
        if not start:
            raise gone()
    behind = filter(visible, islice(entries, start, None))
    return page_from(call, behind, request, id_of=id_of)


def gone() -> ServiceError:
    """Return the error for a cursor whose entry is not there any more."""
    return ServiceError(
        "the entry that the cursor stands behind is gone; begin without one",
        code="invalid_cursor",
    )
