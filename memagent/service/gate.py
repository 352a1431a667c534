"""The gate every request passes: its id, limits, security headers, figures and log line.

A request is authenticated before its body is read, and counts as at work only once it
is known and whole, so that nobody without a key holds a place.

Plain ASGI around the app, so that it costs microseconds and covers whatever the app
does, failing included. A body arrives at a least rate (`timed_body`). The log line tells
method, route, status and time; never a path
as called, a query or a body.

Every error as a problem (RFC 9457): the library's, the framework's, and what nobody foresaw.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import re
import secrets
import time
import traceback
from collections.abc import Mapping
from functools import partial
from itertools import count
from typing import Any, Final

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memagent.client.http import FieldFault, Problem, plain_problem, problem_of
from memagent.core.errors import MemAgentError
from memagent.service.access import CALLER, identify
from memagent.service.data.leases import LOCAL
from memagent.service.hosting import Service
from memagent.service.metrics import PLACE, spent_in, tell
from memagent.tracing import METHODS, end_request, request_span

_log = logging.getLogger(__name__)
_BY_STATUS: Final = {
    400: "malformed",
    404: "no_such_path",
    405: "method_not_allowed",
    408: "request_timeout",
    413: "too_large",
    503: "overloaded",
}
_MOST_FAULTS: Final = 20
ADMIT: Final = "memagent.admit"
"""Key of the scope under which the gate finds the function that admits a connection."""
WHOLE: Final = "memagent.whole"
"""Key of the scope of a request that has arrived with its whole body."""
LEAST_BYTES_PER_S: Final = 16 * 1024
"""Slowest rate of a body that takes longer than its first allowance."""
LATE: Final = "the request took too long to arrive"
_OPENAI_PATHS: Final = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/models",
    "/v1/embeddings",
)
_ANTHROPIC_PATH: Final = "/v1/messages"
_OPENAI_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "invalid_request_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
}
_ANTHROPIC_TYPES: Final = _OPENAI_TYPES | {
    404: "not_found_error",
    413: "request_too_large",
    503: "overloaded_error",
}


def request_id_of(request: Request) -> str:
    """Return the id of a request, as the gate gave it."""
    return str(request.scope.get("memagent.request_id", ""))


def problem_response(
    problem: Problem, headers: dict[str, str] | None = None, *, path: str = ""
) -> Response:
    """Make a response of a problem; on OpenAI's and Anthropic's paths clients can read it too."""
    more, extra = dict(headers or {}), dict[str, Any]()
    if path.startswith(_ANTHROPIC_PATH):
        extra = {"type": "error", "error": anthropic_error(problem)}
    elif path.startswith(
        ("/v1/",) if problem.code == "no_such_path" or problem.status == 401 else _OPENAI_PATHS
    ):
        extra = {"error": openai_error(problem)}
    if extra:
        problem = problem.model_copy(update={"status": _openai_status(problem)})
    if problem.status == 401:
        more["WWW-Authenticate"] = "Bearer"
    if problem.retryable and problem.status in (429, 503):
        more.setdefault("Retry-After", "1")
    body = problem.model_dump_json(exclude_none=True).encode()
    if extra:
        body = json.dumps({**json.loads(body), **extra}).encode()
    return Response(
        body, problem.status, {**more, "Cache-Control": "no-store"}, "application/problem+json"
    )


def openai_error(problem: Problem) -> dict[str, Any]:
    """Return a problem as OpenAI's clients know errors."""
    field = problem.errors[0] if problem.errors else None
    words = [
        problem.detail or problem.title,
        *(f"{one.pointer}: {one.message}" for one in problem.errors),
    ]
    return {
        "message": "; ".join(words),
        "type": _OPENAI_TYPES.get(_openai_status(problem), "server_error"),
        "param": field.pointer.lstrip("/") if field is not None else None,
        "code": problem.code,
    }


def anthropic_error(problem: Problem) -> dict[str, Any]:
    """Return a problem as Anthropic's clients know errors."""
    return {
        "type": _ANTHROPIC_TYPES.get(_openai_status(problem), "api_error"),
        "message": openai_error(problem)["message"],
    }


def _openai_status(problem: Problem) -> int:
    if problem.code in ("model_rate_limited", "quota_exhausted"):
        return 429
    return 400 if problem.status == 422 else problem.status


def answer_errors(app: FastAPI) -> None:
    """Have an app tell every error as a problem."""
    for kind in (MemAgentError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, _answer_error)


async def _answer_error(request: Request, exc: Exception) -> Response:
    """Answer to an error; of one that nobody foresaw the log knows more, by the request's id."""
    problem = problem_for(exc, request_id=request_id_of(request))
    headers = dict(exc.headers or {}) if isinstance(exc, HTTPException) else dict[str, str]()
    if isinstance(exc, MemAgentError):
        if problem.status >= 500 and problem.code != "overloaded":  # a refusal is no failure
            tell_failure(exc, request_id=problem.request_id)
        wait_s = getattr(exc, "retry_after", None)
        if isinstance(wait_s, int | float) and math.isfinite(wait_s):
            headers["Retry-After"] = str(max(1, math.ceil(wait_s)))
    return problem_response(problem, headers, path=request.url.path)


def problem_for(exc: Exception, *, request_id: str) -> Problem:
    """Return the problem that describes an error of the library, the framework or of nobody."""
    about = partial(plain_problem, request_id=request_id)
    match exc:
        case MemAgentError():
            return problem_of(exc, request_id=request_id)
        case RequestValidationError():
            errors: list[dict[str, Any]] = list(exc.errors())
            faults = tuple(_field_fault(error) for error in errors[:_MOST_FAULTS])
            if any(error["type"] == "json_invalid" for error in errors):
                return about("malformed", "the body is not JSON", errors=faults)
            detail = f"the request has {len(errors)} wrong field{'s' if len(errors) != 1 else ''}"
            return about("invalid_request", detail, errors=faults)
        case HTTPException(status_code=status):
            code = _BY_STATUS.get(status, "malformed" if status < 500 else "internal_error")
            nowhere = status == 404 and exc.detail == "Not Found"
            detail = (
                "there is nothing at this path; /docs describes the API"
                if nowhere
                else str(exc.detail)
            )
            return about(code, detail, status=status, retryable=code == "overloaded")
        case _:
            return about("internal_error", "something went wrong in the service")


def _field_fault(error: dict[str, Any]) -> FieldFault:
    place, *path = [str(part) for part in error["loc"]]
    match place:
        case "body":
            pointer = "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in path)
        case "header":
            pointer = f"{'.'.join(path)}:"
        case _:
            pointer = f"?{'.'.join(path)}"
    message = str(error["msg"])[:500]
    if (pointer, error["type"]) == ("/user_id", "extra_forbidden"):
        message = "give the user in the query: ?user_id=ID"
    return FieldFault(pointer=pointer[:500], code=str(error["type"]), message=message)


def tell_failure(exc: BaseException, *, request_id: str) -> None:
    """Log where something failed, and of what kind.

    Never the message, which may hold text of users.
    """
    frames = traceback.extract_tb(exc.__traceback__)[-6:]
    where = " < ".join(
        f"{frame.name} ({frame.filename.rpartition('/')[2]}:{frame.lineno})"
        for frame in reversed(frames)
    )
    _log.error("request %s failed: %s at %s", request_id, type(exc).__name__, where)


access_log = logging.getLogger("memagent.service.access")
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:-]{1,100}")
_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), microphone=(), geolocation=()"),
)
_DEFAULTS: Final = (
    (
        b"content-security-policy",
        b"default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    ),
    (b"cache-control", b"no-store"),
)


def timed_body(receive: Receive, allowance: float) -> Receive:
    """Make a `receive` that waits for a body so many seconds, and on for what arrives at a rate.

    It counts the time in which nothing is there, so a slow app costs the caller nothing. What
    arrives faster counts for later, up to twice the allowance.
    Raises `HTTPException` (408).
    """
    loop, left = asyncio.get_running_loop(), allowance

    async def timed() -> Message:
        nonlocal left
        began = loop.time()
        try:
            async with asyncio.timeout(left):
                message = await receive()
        except TimeoutError:
            raise HTTPException(408, LATE, {"Connection": "close"}) from None
        arrived = len(message.get("body", b"")) / LEAST_BYTES_PER_S
        left = min(2 * allowance, left - (loop.time() - began) + arrived)
        return message

    return timed


class Gate:
    """An ASGI app around another."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app, self._service = app, service
        # Ids of requests only have to differ: some chance for every process, then a
        # count.
        self._ids, self._count = secrets.token_hex(4).encode(), count()
        self._turn = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        request_trace = request_span(scope["headers"])
        PLACE.set(scope)
        headers, own = dict(scope["headers"]), next(self._count)
        given = headers.get(b"x-request-id", b"")
        request_id = given if _REQUEST_ID.fullmatch(given) else self._ids + b"%08x" % own
        scope["memagent.request_id"] = request_id.decode()
        status = 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = _secured(message["headers"], request_id)
            await send(message)

        place = _Place(self._service, scope, headers)
        try:
            problem = self._refusal(scope) or place.admit()
            if problem is not None:
                problem = problem.model_copy(update={"request_id": request_id.decode()})
                await problem_response(problem, _CLOSE, path=scope["path"])(scope, receive, answer)
            else:
                unknown = CALLER not in scope and scope["path"] not in _ALWAYS
                if unknown and self._service.keys.ever:
                    # Callers with a key go first: of the others one begins in a round of the loop.
                    async with self._turn:
                        await asyncio.sleep(0)
                await self._app(scope, self._limited(scope, receive, place), answer)
        except ClientDisconnect:
            pass
        except Exception as exc:
            failed = _response_to(exc, request_id.decode())
            if not status:
                await failed(scope, receive, answer)
        finally:
            place.leave()
            seconds = time.perf_counter() - began
            # a template, never a path as called; routers nested in others have the outer's
            route = getattr(scope.get("route"), "path", "unmatched")
            self._service.metrics.observe(scope["method"], route, status or 499, seconds)
            if access_log.isEnabledFor(logging.INFO):
                line = {"route": route, "status": status or 499, "ms": round(1_000 * seconds, 1)}
                method = scope["method"] if scope["method"] in METHODS else "OTHER"
                tell(access_log, None, scope, {"method": method, **line, **spent_in(scope)})
            end_request(
                request_trace,
                method=scope["method"],
                route=route,
                status=status or 499,
                request_id=request_id.decode(),
            )

    def _refusal(self, scope: Scope) -> Problem | None:
        """Return why the headers alone refuse a request."""
        if scope["path"].startswith(_FOR_CALLERS):
            try:
                scope[CALLER] = identify(HTTPConnection(scope), self._service)
            except MemAgentError as refused:
                return problem_of(refused)
        for name, value in scope["headers"]:
            if name == b"content-length" and (
                not value.isdigit() or int(value) > self._most_bytes(scope)
            ):
                self._service.metrics.refuse("too_large")
                return plain_problem("too_large", _WHY["too_large"])
        return None

    def _most_bytes(self, scope: Scope) -> int:
        settings = self._service.settings
        if CALLER not in scope:
            return min(_UNKNOWN_BYTES, settings.max_body_bytes)
        return (
            settings.max_import_bytes
            if scope["path"].endswith("/import")
            else settings.max_body_bytes
        )

    def _limited(self, scope: Scope, receive: Receive, place: _Place) -> Receive:
        """Make a `receive` that counts: it cuts off a body that grows too large.

        With the end of the body the request takes its place among those at work.
        """
        if not place.has_body:
            return receive
        most, seen = self._most_bytes(scope), 0
        if WHOLE not in scope:
            receive = timed_body(receive, self._service.settings.body_s)

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            if message["type"] == "http.request":
                seen += len(message.get("body", b""))
                if seen > most:
                    self._service.metrics.refuse("too_large")
                    raise HTTPException(413, _WHY["too_large"])
                if not message.get("more_body", False) and place.take() is not None:
                    raise HTTPException(503, _WHY["overloaded"], {"Retry-After": "1"})
            return message

        return counted


class _Place:
    """The place of one request among those at work."""

    def __init__(self, service: Service, scope: Scope, headers: Mapping[bytes, bytes]) -> None:
        self._service, self._scope = service, scope
        self._admit = scope.get(ADMIT, lambda: None)
        self._taken = False
        self.has_body: Final = (
            b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0"
        )

    def admit(self) -> Problem | None:
        """Admit a known caller's connection; take the place of a request without a body."""
        if self._scope.get(CALLER, LOCAL) is not LOCAL:
            self._admit()
        return None if self.has_body else self.take()

    def take(self) -> Problem | None:
        """Take the place, or return why there is none."""
        self._admit()
        metrics = self._service.metrics
        full = metrics.in_flight >= self._service.settings.max_in_flight
        if not self._taken and full and self._scope["path"] not in _ALWAYS:
            metrics.refuse("overloaded")
            return plain_problem("overloaded", _WHY["overloaded"], retryable=True)
        metrics.work(not self._taken)
        self._taken = True
        return None

    def leave(self) -> None:
        """Give the place back."""
        self._service.metrics.work(-self._taken)
        self._taken = False


def _response_to(exc: Exception, request_id: str) -> Response:
    """Return what is answered to an error that the app let through."""
    if not isinstance(exc, MemAgentError):
        tell_failure(exc, request_id=request_id)
    return problem_response(problem_for(exc, request_id=request_id))


# Largest body of a request that names no caller, such as the form to sign in.
_UNKNOWN_BYTES: Final = 64 * 1024
# Paths that are answered however many requests are at work.
_ALWAYS: Final = frozenset({"/healthz", "/readyz"})
# Paths that only a known caller may use; the dashboard signs its visitors in itself.
_FOR_CALLERS: Final = ("/v1/", "/mcp", "/metrics")
_CLOSE: Final = {"Connection": "close"}
_WHY: Final = {
    "overloaded": "the service is at work on as many requests as it may be; come back in a second",
    "too_large": "the body is larger than this service takes",
}


def _secured(headers: Any, request_id: bytes) -> list[tuple[bytes, bytes]]:
    names = {name for name, _ in headers}
    defaults = [default for default in _DEFAULTS if default[0] not in names]
    return [*headers, *_HEADERS, (b"x-request-id", request_id), *defaults]
