"""Responses of the routes: records as JSON without a detour, what is documented about
them, ETags and pages.

Records are written by pydantic straight to JSON text; FastAPI would validate them a
second time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

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
"""What OpenAPI says about server-sent events."""


def told(
    model: type[BaseModel] | None,
    status: int = 200,
    description: str = "Done",
    **more: dict[str, Any],
) -> dict[int | str, dict[str, Any]]:
    """What OpenAPI says about a route's responses: the good one, and problems."""
    good: dict[str, Any] = {"description": description}
    if model is not None:
        good["model"] = model
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    bad: dict[int | str, dict[str, Any]] = {
        code: {"description": words, "content": content} for code, words in _REFUSALS.items()
    }
    return {**bad, status: {**good, **more}}


def record(
    value: BaseModel, status: int = 200, headers: dict[str, str] | None = None, **dump: Any
) -> Response:
    """A record as JSON."""
    return Response(value.model_dump_json(by_alias=True, **dump).encode(), status, headers, _JSON)


def hits_response(found: Iterable[tuple[MemoryItem, float]]) -> Response:
    """Hits that need no explanation, written as `Hits` would be, without making a record of each."""
    return Response(
        to_json(
            {
                "hits": [
                    {"id": item.id, "kind": "item", "score": score, "item": item, "event": None}
                    for item, score in found
                ]
            }
        ),
        200,
        None,
        _JSON,
    )


def etag_of(item: MemoryItem) -> str:
    """The item's ETag: its version and the op that made it, since a version undone may come again."""
    return f'"{item.version}-{item.op_id or "0"}"'


def item_response(item: MemoryItem | None, status: int = 200) -> Response:
    """An item with its ETag."""
    assert item is not None
    headers = {"ETag": etag_of(item)}
    if status == 201:
        headers["Location"] = "/v1/memories/" + _quoted(item.id)
    return record(item, status, headers)


def _quoted(item_id: str) -> str:
    from urllib.parse import quote

    return quote(item_id, safe="")


def check_match(header: str | None, item: MemoryItem, version: int | None) -> int | None:
    """The version an edit is for, by `If-Match` or the body.

    Raises `ServiceError` (`precondition_failed`).
    """
    if header is None or header.strip() == "*":
        return version
    if etag_of(item) not in {one.strip().removeprefix("W/") for one in header.split(",")}:
        raise precondition_failed(expected=_version_in(header), actual=item.version)
    return item.version


def _version_in(header: str) -> int:
    digits = header.strip().removeprefix("W/").strip('"').partition("-")[0]
    return int(digits) if digits.isdecimal() and len(digits) < 10 else 0


def page(
    call: Call,
    entries: Sequence[T],
    *,
    id_of: Callable[[T], str],
    limit: int,
    cursor: str | None,
    listing: str,
    terms: str = "",
    shown: Callable[[T], bool] = lambda _: True,
) -> tuple[list[T], str | None]:
    """The entries behind a cursor and the cursor behind them; `entries` is everything
    in order, what is hidden included.

    A cursor stands behind an entry even when that one is hidden meanwhile. Raises
    `ServiceError` (`invalid_cursor`) when it is gone.
    """
    start = 0
    if cursor is not None:
        after = call.service.cursors.read(cursor, listing=listing, scope=call.scope, terms=terms)
        start = 1 + next(
            (place for place, entry in enumerate(entries) if id_of(entry) == after), -1
        )
        if not start:
            raise ServiceError(
                "the entry that the cursor stands behind is gone; begin without one",
                code="invalid_cursor",
            )
    found = list(_first(entries, start, limit + 1, shown))
    if len(found) <= limit:
        return found, None
    last = id_of(found[limit - 1])
    return found[:limit], call.service.cursors.make(
        last, listing=listing, scope=call.scope, terms=terms
    )


def _first(entries: Sequence[T], start: int, most: int, shown: Callable[[T], bool]) -> Iterable[T]:
    for entry in entries[start:]:
        if shown(entry):
            yield entry
            most -= 1
            if not most:
                return
