"""Sessions of the dashboard: the local user, or an API key behind a sealed cookie.

Without any API key in the service, the rules of `access.caller_of` hold here too:
requests of this machine alone, by loopback names. With keys, the cookie stands for one:
an HMAC over the key's id, an expiry and a nonce. The key itself is in no cookie and is
looked up at every request, so a revoked one is out at once. Only the worker that served
a sign-out knows of it. Every form carries a token sealed to the session, and the browser
has to say that the form came from this service. The surprise: pages allow their own
address as a referrer, in a `meta` element. Under `no-referrer` alone a browser sends
`Origin: null` with every form, and nobody could tell ours from a stranger's.

The frame of every page: templates, links that keep the chosen memory, notes, errors, assets.

A page module makes its router with `page_router()`, takes a `Reader`
(or another viewer), and answers with `page(...)`, or after a form with `go(...)`. What
goes wrong in a page, signing in included, becomes a page as well. Templates escape
everything; they find links, icons and the small parts in `parts.html`. Nothing is inline,
so the content policy allows this service's own files and no more.

Signing in with an API key, signing out, and addresses without a page.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import shlex
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from datetime import datetime
from functools import cache, partial
from importlib.resources import files
from typing import Annotated, Any, Final
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from fastapi import APIRouter, Depends, Query
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

import memagent
from memagent.client.http import Problem, ServiceError
from memagent.core.errors import InputError, MemAgentError, MemoryNotFound
from memagent.core.records import Scope, clean_text
from memagent.pages.journal_words import op_counts, op_text, refusal_words, title_of
from memagent.service.access import (
    AgentId,
    Call,
    RunId,
    UserId,
    caller_of,
    memory_named,
    metered,
    service_of,
)
from memagent.service.data.leases import LOCAL, LOCAL_USER, Caller
from memagent.service.gate import problem_for, request_id_of, tell_failure
from memagent.service.hosting import Service

SESSION_S: Final = 12 * 3_600
_MOST_FIELDS: Final = 200
_LOCAL_SESSION: Final = "local"


class SignInNeeded(ServiceError):
    """The request belongs to no session, or to one that is over."""


class UserNeeded(ServiceError):
    """The caller may act for any user, and none is named."""


class Form(dict[str, str]):
    """The fields of a posted form; what is missing or blank reads as ""."""

    def __missing__(self, name: str) -> str:
        return ""


class Viewer(Call):
    """An allowed request for a page.

    `form` is what was posted, empty for a page that is only looked at, and `csrf` the
    token of the forms. The user is `chosen` when the request or the key names one;
    `local` is the keyless local user, and who is `free` may act for any user. A `fault` is
    why the form was not carried out: the page that is shown then says it and has its status.
    """

    __slots__ = ("chosen", "csrf", "fault", "form", "free", "local")

    def __init__(
        self, request: Request, caller: Caller, scope: Scope, *, csrf: str, form: Form, chosen: bool
    ) -> None:
        super().__init__(request, service_of(request), caller, scope, None)
        self.csrf = csrf
        self.form = form
        self.fault: MemAgentError | None = None
        self.chosen = chosen
        self.local = caller is LOCAL
        self.free = caller.user_id is None

    def may(self, *needed: str) -> bool:
        """Return whether the caller has all of these scopes."""
        return self.caller.scopes.issuperset(needed)


def require_viewer(*needed: str, about_memory: bool = True) -> Callable[..., Awaitable[Viewer]]:
    """Return the dependency of a page: the viewer must have all of these scopes.

    The form of a POST is read and its token checked. With `about_memory` a caller who may
    act for any user has to name one (`?user_id=`), or is sent to choose one
    (`UserNeeded`). Raises `ServiceError`, `MemoryNotFound` for a user that the key does
    not reach.
    """

    async def authenticated(
        request: Request, user_id: UserId = None, agent_id: AgentId = None, run_id: RunId = None
    ) -> Viewer:
        auth = auth_of(request)
        caller, session = auth.authenticate(request)
        csrf, form = auth.token(session), Form()
        if request.method == "POST":
            form = await read_form(request)
            check_origin(request)
            if not hmac.compare_digest(form["csrf"].encode(), csrf.encode()):
                raise ServiceError(
                    "the form is from another session; load the page again", code="forbidden"
                )
        if caller.user_id is not None and user_id not in (None, caller.user_id):
            raise MemoryNotFound(f"there is nothing of user {user_id!r} here")
        owner = caller.user_id or user_id
        chosen = owner is not None or caller is LOCAL
        viewer = Viewer(
            request,
            caller,
            memory_named(owner or LOCAL_USER, agent_id, run_id),
            csrf=csrf,
            form=form,
            chosen=chosen,
        )
        request.state.viewer = viewer
        viewer.require(*needed)
        if about_memory and not chosen:
            raise UserNeeded("choose a user first", code="invalid_request")
        return viewer

    return authenticated


Reader = Annotated[Viewer, Depends(require_viewer("memory:read"))]
Writer = Annotated[Viewer, Depends(require_viewer("memory:write"))]
Visitor = Annotated[Viewer, Depends(require_viewer(about_memory=False))]
"""A viewer of pages that are about no memory."""


class SessionAuth:
    """The sessions of one service; used from one event loop."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._secret = hmac.new(
            service.database.secret(), b"memagent/ui/1", hashlib.sha256
        ).digest()
        # ports of one machine share their cookies, so each service has a name of its own
        self.cookie = f"memagent_ui_{hashlib.sha256(self._secret).hexdigest()[:8]}"
        self.note_cookie = f"{self.cookie}_note"
        self._ended: dict[str, float] = {}

    def authenticate(self, request: Request) -> tuple[Caller, str]:
        """Return the caller of a request and its session.

        Raises `SignInNeeded`, `ServiceError`.
        """
        if not self._service.keys.ever:
            return caller_of(request), _LOCAL_SESSION
        session = self._session(request)
        caller = self._service.keys.holder(session.split(".")[0]) if session else None
        if caller is None:
            raise SignInNeeded("sign in with an API key", status=401, code="unauthorized")
        return metered(self._service, caller), session

    def token(self, session: str) -> str:
        """Return the token that the forms of a session carry."""
        return self._seal_of(f"form\0{session}")

    def sign_in(self, request: Request, response: Response, caller: Caller) -> None:
        """Begin a session for a key."""
        session = f"{caller.name}.{int(time.time()) + SESSION_S}.{secrets.token_urlsafe(12)}"
        sealed = f"{session}.{self._seal_of(session)}"
        self.set_cookie(request, response, self.cookie, sealed, seconds=SESSION_S)

    def sign_out(self, request: Request, response: Response) -> None:
        """End the session of a request; its cookie is of no use afterwards."""
        session = self._session(request)
        if session:
            self._ended[session] = float(session.split(".")[1])
        self._ended = {each: end for each, end in self._ended.items() if end > time.time()}
        self.set_cookie(request, response, self.cookie, "", seconds=0)

    def set_cookie(
        self, request: Request, response: Response, name: str, value: str, *, seconds: int
    ) -> None:
        """Set a cookie that only these pages send back; 0 seconds delete it."""
        https = "https" in (request.url.scheme, request.headers.get("x-forwarded-proto"))
        response.set_cookie(
            name, value, max_age=seconds, path="/ui", secure=https, httponly=True, samesite="strict"
        )

    def seal(self, text: str) -> str:
        """Return a text with its seal, for a cookie."""
        body = base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
        return f"{body}.{self._seal_of(f'note{chr(0)}{body}')}"

    def unseal(self, sealed: str) -> str | None:
        """Return the sealed text; None when the seal is not ours."""
        body, _, seal = sealed.partition(".")
        if not hmac.compare_digest(self._seal_of(f"note\0{body}").encode(), seal.encode()):
            return None
        return base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)).decode()

    def _session(self, request: Request) -> str:
        """Return the session in the cookie; "" when it is none, is over, or was ended."""
        session, _, seal = request.cookies.get(self.cookie, "").rpartition(".")
        if not hmac.compare_digest(self._seal_of(session).encode(), seal.encode()):
            return ""
        valid = float(session.split(".")[1]) > time.time() and session not in self._ended
        return session if valid else ""

    def _seal_of(self, text: str) -> str:
        digest = hmac.new(self._secret, text.encode(), hashlib.sha256).digest()
        return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def auth_of(request: Request) -> SessionAuth:
    """Return the sessions of the service that a request is made to."""
    return request.app.state.ui_auth


async def read_form(request: Request) -> Form:
    """Read the fields of a form, the last of each name.

    Raises `ServiceError`, `InputError`.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise ServiceError(
            "send the form as application/x-www-form-urlencoded", code="unsupported_media_type"
        )
    try:
        pairs = parse_qsl(
            (await request.body()).decode(),
            keep_blank_values=True,
            max_num_fields=_MOST_FIELDS,
            errors="strict",
        )
    except ValueError as exc:
        raise InputError("the form cannot be read") from exc
    return Form((name, clean_text(value).replace("\r\n", "\n")) for name, value in pairs)


def check_origin(request: Request) -> None:
    """Raise `ServiceError` unless a page of this service sent the form and says so."""
    headers = request.headers
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site not in (None, "same-origin"):
        raise ServiceError("the form was sent from another page", code="forbidden")
    hosts = {headers.get("host", ""), headers.get("x-forwarded-host", "")} - {""}
    if origin is None or urlsplit(origin).netloc not in hosts:
        raise ServiceError("the form does not come from this service", code="forbidden")


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
    auth.set_cookie(
        request,
        response,
        auth.note_cookie,
        auth.seal(json.dumps([kind, note[:_NOTE_CHARS]])),
        seconds=60,
    )


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


def _problem(request: Request, exc: Exception) -> Problem:
    """Return what went wrong as a problem, and log what is no fault of the caller."""
    problem = problem_for(exc, request_id=request_id_of(request))
    if isinstance(exc, RequestValidationError):
        names = ", ".join(sorted({str(fault["loc"][-1]) for fault in exc.errors()}))
        problem = problem.model_copy(update={"detail": f"this cannot be read: {names}"})
    if problem.status >= 500:
        tell_failure(exc, request_id=problem.request_id)
    return problem


sign_in_router = page_router()
_SIGNED_IN = [Depends(require_viewer(about_memory=False))]


@sign_in_router.api_route("/ui/sign-in", methods=["GET", "POST"])
async def sign_in(request: Request, next: Annotated[str, Query(max_length=4_000)] = "") -> Response:
    """Show the form that takes a key, and begin a session when the posted key is known."""
    posted = request.method == "POST"
    if posted:
        form = await read_form(request)
        check_origin(request)
        next = form["next"]
        caller = service_of(request).keys.caller(form["key"].strip())
        if caller is not None:
            response = RedirectResponse(_own_page(next), 303)
            auth_of(request).sign_in(request, response, caller)
            return response
    elif not service_of(request).keys.ever:
        return RedirectResponse("/ui", 303)
    return page(
        request,
        "sign_in.html",
        title="Sign in",
        active="",
        status=401 if posted else 200,
        refused=posted,
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
