"""Sessions of the dashboard: the local user, or an API key behind a sealed cookie.

Without any API key in the service, the rules of `access.caller_of` hold here too:
requests of this machine alone, by loopback names. With keys, the cookie stands for one:
an HMAC over the key's id, an expiry and a nonce. The key itself is in no cookie and is
looked up at every request, so a revoked one is out at once. Only the worker that served
a sign-out knows of it. Every form carries a token sealed to the session, and the browser
has to say that the form came from this service. The surprise: pages allow their own
address as a referrer, in a `meta` element. Under `no-referrer` alone a browser sends
`Origin: null` with every form, and nobody could tell ours from a stranger's.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Annotated, Final
from urllib.parse import parse_qsl, urlsplit

from fastapi import Depends
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from memagent.client.http import ServiceError
from memagent.core.errors import InputError, MemAgentError, MemoryNotFound, fault_in
from memagent.core.records import Scope, clean_text
from memagent.service.access import AgentId, Call, RunId, UserId, caller_of, metered, service_of
from memagent.service.data.keys import LOCAL, LOCAL_USER, Caller
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

    def require(self, *needed: str) -> None:
        """Raise `ServiceError` (`forbidden`) unless the caller has all of these scopes."""
        lacking = sorted(set(needed) - self.caller.scopes)
        if lacking:
            raise ServiceError(
                f"the API key lacks the scope {', '.join(lacking)}", code="forbidden"
            )


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
        try:
            scope = Scope(user_id=owner or LOCAL_USER, agent_id=agent_id, run_id=run_id)
        except ValidationError as exc:
            raise InputError(f"the memory named cannot be one: {fault_in(exc)}") from exc
        chosen = owner is not None or caller is LOCAL
        viewer = Viewer(request, caller, scope, csrf=csrf, form=form, chosen=chosen)
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
    state = request.app.state
    auth: SessionAuth | None = getattr(state, "ui_auth", None)
    if auth is None:
        auth = state.ui_auth = SessionAuth(service_of(request))
    return auth


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
        text = (await request.body()).decode()
        pairs = parse_qsl(
            text, keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="strict"
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
