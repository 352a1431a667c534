"""The frame of every page: templates, links that keep the chosen memory, notes, errors, assets.

A page module makes its router with `page_router()`, takes a `Reader` of `session_auth`
(or another viewer), and answers with `page(...)`, or after a form with `go(...)`. What
goes wrong in a page, signing in included, becomes a page as well. Templates escape
everything; they find links, icons and the small parts in `parts.html`. Nothing is inline,
so the content policy allows this service's own files and no more.

Signing in with an API key, signing out, and addresses without a page.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import datetime
from functools import cache, partial
from importlib.resources import files
from typing import Annotated, Any, Final
from urllib.parse import quote, unquote, urlencode

from fastapi import APIRouter, Depends, Query
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

import memagent
from memagent.client.http import Problem, plain_problem, problem_of
from memagent.core.errors import MemAgentError
from memagent.pages.document import title_of
from memagent.pages.journal_words import op_counts, op_text, refusal_words
from memagent.service.access import service_of
from memagent.service.gate import request_id_of, tell_failure
from memagent.service.ui.session_auth import (
    SignInNeeded,
    UserNeeded,
    Viewer,
    auth_of,
    check_origin,
    read_form,
    require_viewer,
)

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
NAVIGATION: Final = (
    ("ask", "/ui/ask", "Ask"),
    ("overview", "/ui", "Overview"),
    ("memories", "/ui/memories", "Memories"),
    ("review", "/ui/review", "Review"),
    ("graph", "/ui/graph", "Event graph"),
    ("turns", "/ui/turns", "Turns"),
    ("trials", "/ui/trials", "Trials"),
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
    """A route that answers with pages, also when something goes wrong."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Wrap the route's handler: errors become pages, and all pages carry the policy."""
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
    """Return a router for pages; it stays out of the API's documentation."""
    return APIRouter(include_in_schema=False, route_class=PageRoute)


router = page_router()


def page(
    request: Request, template: str, *, title: str, active: str, status: int = 0, **values: Any
) -> HTMLResponse:
    """Render `templates/<template>` inside the frame.

    `active` names the entry of `NAVIGATION` that the page belongs to. A template has
    `viewer`, `link`, `memory_link`, the sentence of the viewer's `fault`, and what `values`
    gives it. Without a `status` the page has that of the fault, or 200.
    """
    viewer: Viewer | None = getattr(request.state, "viewer", None)
    problem, fault = None, ""
    if viewer is not None and viewer.fault is not None:
        problem = _problem(request, viewer.fault)
        fault = problem.detail or problem.title
    auth = auth_of(request)
    sealed = request.cookies.get(auth.note_cookie)
    note = auth.unseal(sealed) if sealed else None
    html = (
        _environment()
        .get_template(template)
        .render(
            title=title,
            active=active,
            navigation=NAVIGATION,
            viewer=viewer,
            csrf=viewer.csrf if viewer is not None else "",
            link=partial(link, viewer),
            memory_link=partial(memory_link, viewer),
            note=json.loads(note) if note is not None else None,
            version=memagent.__version__,
            fault=fault,
            **values,
        )
    )
    response = HTMLResponse(html, status or (problem.status if problem is not None else 200))
    if sealed:
        auth.set_cookie(request, response, auth.note_cookie, "", seconds=0)
    return response


def go(
    viewer: Viewer, path: str, *, note: str = "", kind: str = "good", **query: Any
) -> RedirectResponse:
    """Go on to a page of the same memory after a form.

    That page shows `note` once; `kind` is `good`, `bad` or `plain`.
    """
    response = RedirectResponse(link(viewer, path, **query), 303)
    if note:
        leave_note(viewer.request, response, note, kind=kind)
    return response


def leave_note(request: Request, response: Response, note: str, *, kind: str = "good") -> None:
    """Have the next page show a note."""
    auth = auth_of(request)
    sealed = auth.seal(json.dumps([kind, note[:_NOTE_CHARS]]))
    auth.set_cookie(request, response, auth.note_cookie, sealed, seconds=60)


def link(viewer: Viewer | None, path: str, **query: Any) -> str:
    """Return a path of these pages with a query: the chosen memory first, then `query`.

    None, "" and False are left out; True is 1. A path that has a query already gets the
    rest behind it.
    """
    chosen: dict[str, Any] = {}
    if viewer is not None:
        scope, named = viewer.scope, not viewer.local or "user_id" in viewer.request.query_params
        user_id = scope.user_id if viewer.free and viewer.chosen and named else None
        chosen = {"user_id": user_id, "agent_id": scope.agent_id, "run_id": scope.run_id}
    values = {name: 1 if value is True else value for name, value in (chosen | query).items()}
    pairs = [(name, value) for name, value in values.items() if value not in (None, "", False)]
    return path + (("&" if "?" in path else "?") + urlencode(pairs) if pairs else "")


def memory_link(viewer: Viewer | None, memory_id: str, **query: Any) -> str:
    """Return the address of one memory's page.

    An id of dots alone would be read as a step in a path, so it goes into the query.
    """
    if not memory_id.strip("."):
        return link(viewer, "/ui/memory", id=memory_id, **query)
    return link(viewer, "/ui/memories/" + quote(memory_id, safe=""), **query)


def steps(start: int, count: int, total: int) -> tuple[int | None, int | None]:
    """Return the starts of the page before and after, of a list of `count` a page."""
    before = max(0, start - count) if start else None
    return before, start + count if start + count < total else None


def constants(columns: Mapping[str, Iterable[object]]) -> dict[str, str]:
    """Return (name, words) of the columns of a table that say the same in each of its rows.

    A table of one row has none.
    """
    values = {name: [str(value) for value in column] for name, column in columns.items()}
    return {
        name: column[0]
        for name, column in values.items()
        if len(column) > 1 and len(set(column)) == 1
    }


@router.get("/ui/graph/files/{name}")
@router.get("/ui/assets/{name}")
async def asset(name: str, request: Request) -> Response:
    """Serve a file of the pages: style sheets, scripts, the icon."""
    if name not in _assets():
        raise HTTPException(404, "there is no such file")
    content, tag, kind = _assets()[name]
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
    environment = Environment(
        loader=PackageLoader("memagent.service.ui"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = (when, day, number, refusal_words, op_counts, op_text, title_of, shlex.quote)
    environment.filters.update({each.__name__: each for each in filters})  # pyright: ignore[reportUnknownMemberType]
    return environment


def when(moment: datetime | None) -> str:
    """Format a moment to the minute, in UTC; "" for none."""
    return f"{moment:%Y-%m-%d %H:%M}" if moment is not None else ""


def day(moment: datetime | None) -> str:
    """Format the day of a moment in UTC; "" for none."""
    return f"{moment:%Y-%m-%d}" if moment is not None else ""


def number(value: float) -> str:
    """Format a number with separators, a float to four significant digits."""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def _refused(request: Request, exc: Exception) -> Response:
    """Return the page, or the way to another one, for what went wrong."""
    if isinstance(exc, SignInNeeded):
        back = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        onward = back if request.method == "GET" and back != "/ui" else ""
        return RedirectResponse(link(None, "/ui/sign-in", next=onward), 303)
    if isinstance(exc, UserNeeded):
        return RedirectResponse("/ui/users", 303)
    problem = _problem(request, exc)
    if problem.status == 404:  # what is another's and what is not there look the same
        words = "It is not there, or it is somebody else's."
        problem = problem.model_copy(update={"detail": words})
    return page(
        request,
        "error.html",
        title=problem.title,
        active="",
        status=problem.status,
        problem=problem,
    )


def _problem(request: Request, exc: Exception) -> Problem:
    """Return what went wrong as a problem, and log what is no fault of the caller."""
    about = partial(plain_problem, request_id=request_id_of(request))
    if isinstance(exc, MemAgentError):
        problem = problem_of(exc, request_id=request_id_of(request))
    elif isinstance(exc, RequestValidationError):
        names = sorted({str(fault["loc"][-1]) for fault in exc.errors()})
        problem = about("invalid_request", f"this cannot be read: {', '.join(names)}")
    elif isinstance(exc, HTTPException):
        code = "no_such_path" if exc.status_code == 404 else "malformed"
        problem = about(code, str(exc.detail), status=exc.status_code)
    else:
        problem = about("internal_error", "something went wrong in the service")
    if problem.status >= 500:
        tell_failure(exc, request_id=problem.request_id)
    return problem


sign_in_router = page_router()
_SIGNED_IN = [Depends(require_viewer(about_memory=False))]


@sign_in_router.api_route("/ui/sign-in", methods=["GET", "POST"])
async def sign_in(request: Request, next: Annotated[str, Query(max_length=4_000)] = "") -> Response:
    """Show the form that takes a key, and begin a session when the posted key is known."""
    refused = False
    if request.method == "POST":
        form = await read_form(request)
        check_origin(request)
        next = form["next"]
        caller = service_of(request).keys.caller(form["key"].strip())
        if caller is not None:
            response = RedirectResponse(_own_page(next), 303)
            auth_of(request).sign_in(request, response, caller)
            return response
        refused = True
    elif not service_of(request).keys.ever:
        return RedirectResponse("/ui", 303)
    return page(
        request,
        "sign_in.html",
        title="Sign in",
        active="",
        status=401 if refused else 200,
        refused=refused,
        next=_own_page(next),
    )


@sign_in_router.post("/ui/sign-out", dependencies=_SIGNED_IN)
async def sign_out(request: Request) -> Response:
    """End the session."""
    response = RedirectResponse("/ui/sign-in", 303)
    auth_of(request).sign_out(request, response)
    leave_note(request, response, "You are signed out.", kind="plain")
    return response


@sign_in_router.get("/ui/{rest:path}", dependencies=_SIGNED_IN)
async def no_page(rest: str) -> Response:
    """Refuse an address where there is no page."""
    if not rest:
        return RedirectResponse("/ui", 303)
    raise HTTPException(404, "there is no such page")


def _own_page(path: str) -> str:
    """Return a path to go on to: one of these pages, or the first of them."""
    inside = path == "/ui" or path.startswith(("/ui/", "/ui?"))
    steps = {".", ".."} & set(unquote(path.partition("?")[0]).split("/"))
    return path if inside and not steps and path.isprintable() and "\\" not in path else "/ui"
