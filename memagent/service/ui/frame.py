"""The frame that every page stands in: templates, links that keep the chosen memory,
notes after a form, error pages, assets.

A page module makes its router with `page_router()`, takes `Annotated[Viewer,
Depends(viewer("memory:read"))]` from `door`, and answers with `page(...)`, or after a
form with `go(...)`. What goes wrong in a page, signing in included, becomes a page as
well. Templates escape everything; they find links, icons and the small parts in
`parts.html`. Nothing is inline, so the content policy allows this service's own files
and no more.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from functools import cache, partial
from importlib.resources import files
from typing import Any, Final
from urllib.parse import quote, urlencode

from fastapi import APIRouter
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

import memagent
from memagent.client.faults import plain_problem, problem_of
from memagent.core.errors import MemAgentError
from memagent.pages.journal_words import op_text, refusal_words
from memagent.service.problems import tell_failure
from memagent.service.ui.session_auth import SignInNeeded, UserNeeded, Viewer, door_of

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
NAVIGATION: Final = (
    ("overview", "/ui", "Overview"),
    ("memories", "/ui/memories", "Memories"),
    ("graph", "/ui/graph", "Event graph"),
    ("turns", "/ui/turns", "Turns"),
    ("snapshots", "/ui/snapshots", "Snapshots"),
    ("jobs", "/ui/jobs", "Jobs"),
    ("users", "/ui/users", "Users"),
    ("runs", "/ui/runs", "Training runs"),
    ("health", "/ui/health", "Health"),
)
"""(name for `active`, path, words) of every page in the menu."""
_TYPES: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_NOTE_CHARS: Final = 600


class PageRoute(APIRoute):
    """A route that answers with pages, also when something is wrong."""

    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The route's own handler, with its errors told as pages and the pages' headers
        on all it answers.
        """
        plain = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                response = await plain(request)
            except Exception as exc:
                response = _refused(request, exc)
            response.headers["Content-Security-Policy"] = POLICY
            return response

        return answer


def page_router() -> APIRouter:
    """A router for pages; it stays out of the API's documentation."""
    return APIRouter(include_in_schema=False, route_class=PageRoute)


router = page_router()


def page(
    request: Request, template: str, *, title: str, active: str, status: int = 200, **values: Any
) -> HTMLResponse:
    """`templates/<template>` inside the frame.

    `active` names the entry of `NAVIGATION` the page belongs to.

    A template has `viewer`, `link`, `memory_link` and what `values` gives it.
    """
    seen: Viewer | None = getattr(request.state, "viewer", None)
    note, own = _note(request)
    html = (
        _environment()
        .get_template(template)
        .render(
            title=title,
            active=active,
            navigation=NAVIGATION,
            viewer=seen,
            csrf=seen.csrf if seen is not None else "",
            link=partial(link, seen),
            memory_link=partial(memory_link, seen),
            note=note,
            version=memagent.__version__,
            **values,
        )
    )
    response = HTMLResponse(html, status)
    if own:
        door = door_of(request)
        door.keep(request, response, door.note_cookie, "", seconds=0)
    return response


def go(
    seen: Viewer, path: str, *, note: str = "", kind: str = "good", **query: Any
) -> RedirectResponse:
    """After a form: on to a page of the same memory, which shows `note` once (`kind` is
    `good`, `bad` or `plain`).
    """
    response = RedirectResponse(link(seen, path, **query), 303)
    if note:
        leave_note(seen.request, response, note, kind=kind)
    return response


def leave_note(request: Request, response: Response, note: str, *, kind: str = "good") -> None:
    """Have the next page show a note."""
    door = door_of(request)
    sealed = door.seal(json.dumps([kind, note[:_NOTE_CHARS]]))
    door.keep(request, response, door.note_cookie, sealed, seconds=60)


def link(seen: Viewer | None, path: str, **query: Any) -> str:
    """A path of these pages with a query: the chosen memory first, then `query`; None,
    "" and False are left out, True is 1.

    A path that has a query already gets the rest behind it.
    """
    pairs: list[tuple[str, str]] = []
    if seen is not None:
        user_id = seen.scope.user_id if seen.free and seen.chosen else None
        if seen.local and "user_id" not in seen.request.query_params:
            user_id = None
        chosen = {"user_id": user_id, "agent_id": seen.scope.agent_id, "run_id": seen.scope.run_id}
        pairs = [
            (name, value)
            for name, value in chosen.items()
            if value is not None and name not in query
        ]
    for name, value in query.items():
        for one in value if isinstance(value, list | tuple | set | frozenset) else (value,):  # pyright: ignore[reportUnknownVariableType]
            if one not in (None, "", False):
                pairs.append((name, "1" if one is True else str(one)))  # pyright: ignore[reportUnknownArgumentType]
    return path + (("&" if "?" in path else "?") + urlencode(pairs) if pairs else "")


def memory_link(seen: Viewer | None, memory_id: str, **query: Any) -> str:
    """The page of one memory.

    An id of dots alone would be read as a step in a path, so it goes into the query.
    """
    if not memory_id.strip("."):
        return link(seen, "/ui/memory", id=memory_id, **query)
    return link(seen, "/ui/memories/" + quote(memory_id, safe=""), **query)


def failure(request: Request, exc: Exception) -> tuple[int, str]:
    """(HTTP status, one sentence) of an error, for pages that show it beside what was entered.

    Raises what no input brings about.
    """
    if not isinstance(exc, MemAgentError):
        raise exc
    problem = problem_of(exc)
    if problem.status >= 500:
        tell_failure(exc, request_id=str(request.scope.get("memagent.request_id", "")))
    return problem.status, problem.detail or problem.title


@router.get("/ui/graph/files/{name}")
@router.get("/ui/assets/{name}")
async def asset(name: str, request: Request) -> Response:
    """A file of the pages: style sheets, scripts, the icon."""
    found = _assets().get(name)
    if found is None:
        raise HTTPException(404, "there is no such file")
    content, tag, kind = found
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type=kind)


@cache
def _assets() -> Mapping[str, tuple[bytes, str, str]]:
    """Read (content, ETag, type) of every asset by name, those of `memagent.pages` included."""
    folders = (files("memagent.pages") / "assets", files("memagent.service.ui") / "assets")
    contents = {file.name: file.read_bytes() for folder in folders for file in folder.iterdir()}
    return {
        name: (content, f'"{hashlib.sha256(content).hexdigest()[:20]}"', kind)
        for name, content in contents.items()
        if (kind := _TYPES.get("." + name.rpartition(".")[2])) is not None
    }


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("memagent.service.ui"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        when=when, day=day, number=number, size=size, refusal_words=refusal_words, op_text=op_text
    )  # pyright: ignore[reportUnknownMemberType]
    return made


def when(moment: datetime | None) -> str:
    """A moment to the minute, in UTC; "" for none."""
    return f"{moment:%Y-%m-%d %H:%M}" if moment is not None else ""


def day(moment: datetime | None) -> str:
    """The day of a moment in UTC; "" for none."""
    return f"{moment:%Y-%m-%d}" if moment is not None else ""


def number(value: float) -> str:
    """A number with separators: whole ones as they are, others to four significant digits."""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def size(count: int) -> str:
    """So many bytes, in words."""
    amount = float(count)
    for unit in ("bytes", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:,.0f} {unit}" if unit == "bytes" else f"{amount:,.1f} {unit}"
        amount /= 1024
    return f"{amount:,.1f} GiB"


def _note(request: Request) -> tuple[tuple[str, str] | None, bool]:
    """The note that the page before left, as (kind, text), and whether there is a
    cookie to take away.
    """
    door = door_of(request)
    sealed = request.cookies.get(door.note_cookie)
    if not sealed:
        return None, False
    text = door.unseal(sealed)
    if text is None:
        return None, True
    kind, words = json.loads(text)
    return (str(kind), str(words)), True


def _refused(request: Request, exc: Exception) -> Response:
    """The page, or the way to another one, for what went wrong."""
    request_id = str(request.scope.get("memagent.request_id", ""))
    if isinstance(exc, SignInNeeded):
        back = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        known = {"next": back} if request.method == "GET" and back != "/ui" else {}
        return RedirectResponse(link(None, "/ui/sign-in", **known), 303)
    if isinstance(exc, UserNeeded):
        return RedirectResponse("/ui/users", 303)
    if isinstance(exc, MemAgentError):
        problem = problem_of(exc, request_id=request_id)
    elif isinstance(exc, RequestValidationError):
        names = sorted({str(fault["loc"][-1]) for fault in exc.errors()})
        problem = plain_problem(
            "invalid_request", f"this cannot be read: {', '.join(names)}", request_id=request_id
        )
    elif isinstance(exc, HTTPException):
        code = "no_such_path" if exc.status_code == 404 else "malformed"
        problem = plain_problem(
            code, str(exc.detail), request_id=request_id, status=exc.status_code
        )
    else:
        problem = plain_problem(
            "internal_error", "something went wrong in the service", request_id=request_id
        )
    if problem.status >= 500:
        tell_failure(exc, request_id=request_id)
    if problem.status == 404:  # what is another's and what is not there look the same
        problem = problem.model_copy(
            update={"detail": "It is not there, or it is somebody else's."}
        )
    return page(
        request,
        "error.html",
        title=problem.title,
        active="",
        status=problem.status,
        problem=problem,
    )
