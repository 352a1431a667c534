"""Who looks at a page: this machine's own user, or an API key pasted at the sign-in
page and held by a sealed cookie.

Without any API key in the service, the rules of `access.caller_of` hold here too:
requests of this machine alone, by loopback names. With keys, the cookie stands for one:
an HMAC over the key's id, an expiry and a nonce. The key itself is in no cookie and is
looked up at every request, so a revoked one is out at once; that a session was left is
known to the worker that was told. Every form carries a token sealed to the session, and
the browser has to say that the form came from this service. The surprise: pages allow
their own address as a referrer, in a `meta` element. Under `no-referrer` alone a
browser sends `Origin: null` with every form, and nobody could tell ours from a
stranger's.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from memagent.async_agent import AsyncAgent
from memagent.client.faults import ServiceError
from memagent.core.errors import InputError, MemoryNotFound, fault_in
from memagent.core.records import Scope, clean_text
from memagent.service.access import AgentId, Call, RunId, UserId, caller_of, metered, service_of
from memagent.service.data.keys import LOCAL, LOCAL_USER, Caller
from memagent.service.hosting import Service

SESSION_S: Final = 12 * 3_600
"""How long a sign-in holds, in seconds."""
_MOST_FIELDS: Final = 200
_LOCAL_SESSION: Final = "local"


class SignInNeeded(ServiceError):
    """There is no session, or not any more."""

    def __init__(self) -> None:
        super().__init__("sign in with an API key", status=401, code="unauthorized")


class UserNeeded(ServiceError):
    """The caller may act for any user, and none is named."""

    def __init__(self) -> None:
        super().__init__("choose a user first", code="invalid_request")


class Form(dict[str, str]):
    """The fields of a posted form; what is missing or blank reads as ""."""

    def __missing__(self, name: str) -> str:
        return ""


class Viewer:
    """Somebody who may see a page: who it is, whose memory is shown, and the token for
    the page's forms.
    """

    __slots__ = ("call", "chosen", "csrf", "form", "request")

    def __init__(
        self, request: Request, call: Call, *, csrf: str, form: Form, chosen: bool
    ) -> None:
        self.request, self.call, self.csrf, self.form, self.chosen = (
            request,
            call,
            csrf,
            form,
            chosen,
        )

    @property
    def caller(self) -> Caller:
        """Who it is."""
        return self.call.caller

    @property
    def scope(self) -> Scope:
        """Whose memory is shown."""
        return self.call.scope

    @property
    def service(self) -> Service:
        """The service."""
        return self.call.service

    @property
    def local(self) -> bool:
        """Whether this is the keyless local user."""
        return self.caller is LOCAL

    @property
    def free(self) -> bool:
        """Whether it may act for any user."""
        return self.caller.user_id is None

    def may(self, *needed: str) -> bool:
        """Whether it has all of these scopes."""
        return self.caller.scopes.issuperset(needed)

    def need(self, *needed: str) -> None:
        """Raises `ServiceError` (`forbidden`) unless it has all of these scopes."""
        lacking = sorted(set(needed) - self.caller.scopes)
        if lacking:
            raise ServiceError(
                f"the API key lacks the scope {', '.join(lacking)}", code="forbidden"
            )

    @contextmanager
    def agent(self) -> Generator[AsyncAgent]:
        """The agent on the memory shown, kept open meanwhile."""
        with self.call.agent() as agent:
            yield agent


def viewer(*needed: str, about_memory: bool = True) -> Callable[..., Awaitable[Viewer]]:
    """The dependency of a page: the viewer must have all of these scopes; of a POST the
    form is read and its token checked.

    With `about_memory` somebody who may act for any user has to name one (`?user_id=`),
    or is sent to choose one (`UserNeeded`). Raises `ServiceError`, `MemoryNotFound` for
    a user that the key does not reach.
    """
    wanted = frozenset(needed)

    async def look(
        request: Request, user_id: UserId = None, agent_id: AgentId = None, run_id: RunId = None
    ) -> Viewer:
        door = door_of(request)
        caller, session = door.seen(request)
        csrf = door.token(session)
        form = Form()
        if request.method == "POST":
            form = await read_form(request)
            check_origin(request)
            if not hmac.compare_digest(form["csrf"].encode(), csrf.encode()):
                raise ServiceError(
                    "the form is from another session; load the page again", code="forbidden"
                )
        if caller.user_id is not None and user_id not in (None, caller.user_id):
            raise MemoryNotFound(f"there is nothing of user {user_id!r} here")
        try:
            scope = Scope(
                user_id=caller.user_id or user_id or LOCAL_USER, agent_id=agent_id, run_id=run_id
            )
        except ValidationError as exc:
            raise InputError(f"the memory named cannot be one: {fault_in(exc)}") from exc
        chosen = user_id is not None or caller.user_id is not None or caller is LOCAL
        seen = Viewer(
            request,
            Call(request, service_of(request), caller, scope, None),
            csrf=csrf,
            form=form,
            chosen=chosen,
        )
        request.state.viewer = seen
        seen.need(*wanted)
        if about_memory and not chosen:
            raise UserNeeded()
        return seen

    return look


class Door:
    """Makes sessions and knows them again. One a service; used from one event loop."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._secret = hmac.new(
            service.database.secret(), b"memagent/ui/1", hashlib.sha256
        ).digest()
        self.cookie = f"memagent_ui_{hashlib.sha256(self._secret).hexdigest()[:8]}"
        """The cookie's name: ports of one machine share their cookies, so each service has
        a name of its own.
        """
        self.note_cookie = f"{self.cookie}_note"
        self._left: dict[str, float] = {}

    def seen(self, request: Request) -> tuple[Caller, str]:
        """Who a request is from, and the session it belongs to.

        Raises `SignInNeeded`, `ServiceError`.
        """
        if not self._service.keys.ever:
            return caller_of(request), _LOCAL_SESSION
        session = self._session(request.cookies.get(self.cookie, ""))
        caller = self._service.keys.holder(session.split(".")[0]) if session else None
        if caller is None:
            raise SignInNeeded()
        return metered(self._service, caller), session

    def token(self, session: str) -> str:
        """The token that the forms of a session carry."""
        return self._sealed(f"form\0{session}")

    def let_in(self, request: Request, response: Response, caller: Caller) -> None:
        """Begin a session for a key."""
        session = f"{caller.name}.{int(time.time()) + SESSION_S}.{secrets.token_urlsafe(12)}"
        self.keep(
            request, response, self.cookie, f"{session}.{self._sealed(session)}", seconds=SESSION_S
        )

    def let_out(self, request: Request, response: Response) -> None:
        """End the session of a request; its cookie is of no use afterwards."""
        now = time.time()
        self._left = {session: ends for session, ends in self._left.items() if ends > now}
        session = self._session(request.cookies.get(self.cookie, ""))
        if session:
            self._left[session] = float(session.split(".")[1])
        self.keep(request, response, self.cookie, "", seconds=0)

    def keep(
        self, request: Request, response: Response, name: str, value: str, *, seconds: int
    ) -> None:
        """Set a cookie that only these pages send back; for 0 seconds deletes it."""
        https = (
            request.url.scheme == "https" or request.headers.get("x-forwarded-proto", "") == "https"
        )
        response.set_cookie(
            name, value, max_age=seconds, path="/ui", secure=https, httponly=True, samesite="strict"
        )

    def seal(self, text: str) -> str:
        """A text with its seal, for a cookie."""
        body = base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
        return f"{body}.{self._sealed(f'note{chr(0)}{body}')}"

    def unseal(self, sealed: str) -> str | None:
        """The text again; None when the seal is not ours."""
        body, _, seal = sealed.partition(".")
        if not hmac.compare_digest(self._sealed(f"note\0{body}").encode(), seal.encode()):
            return None
        return base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)).decode()

    def _session(self, cookie: str) -> str:
        """The session in a cookie; "" when it is none, is over, or was left."""
        session, _, seal = cookie.rpartition(".")
        if not hmac.compare_digest(self._sealed(session).encode(), seal.encode()):
            return ""
        return (
            session
            if float(session.split(".")[1]) > time.time() and session not in self._left
            else ""
        )

    def _sealed(self, text: str) -> str:
        digest = hmac.new(self._secret, text.encode(), hashlib.sha256).digest()
        return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def door_of(request: Request) -> Door:
    """The door of the service that a request is made to."""
    state = request.app.state
    found: Door | None = getattr(state, "ui_door", None)
    if found is None:
        found = state.ui_door = Door(service_of(request))
    return found


async def read_form(request: Request) -> Form:
    """The fields of a form, the last of each name.

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
    """Raises `ServiceError` for a form that a page of another origin sent, or that does
    not say where it is from.
    """
    headers = request.headers
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site not in (None, "same-origin"):
        raise ServiceError("the form was sent from another page", code="forbidden")
    hosts = {headers.get("host", ""), headers.get("x-forwarded-host", "")} - {""}
    if origin is None or urlsplit(origin).netloc not in hosts:
        raise ServiceError("the form does not come from this service", code="forbidden")
