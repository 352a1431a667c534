"""Every error as a problem (RFC 9457): the library's, the framework's, and what nobody foresaw."""

from __future__ import annotations

import json
import logging
import math
import traceback
from typing import Any, Final

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from memagent.client.faults import FieldFault, Problem, ServiceError, plain_problem, problem_of
from memagent.core.errors import MemAgentError

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
_OPENAI_PATHS: Final = ("/v1/chat/completions", "/v1/responses", "/v1/models", "/v1/embeddings")
_OPENAI_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "invalid_request_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
}


def request_id_of(request: Request) -> str:
    """Return the id of a request, as the gate gave it."""
    return str(request.scope.get("memagent.request_id", ""))


def problem_response(
    problem: Problem, headers: dict[str, str] | None = None, *, path: str = ""
) -> Response:
    """Make a response of a problem; on OpenAI's paths its clients can read it too."""
    more, extra = dict(headers or {}), dict[str, Any]()
    if path.startswith(_OPENAI_PATHS):
        extra = {"error": openai_error(problem)}
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


def _openai_status(problem: Problem) -> int:
    if problem.code in ("model_rate_limited", "quota_exhausted"):
        return 429
    return 400 if problem.status == 422 else problem.status


def install(app: FastAPI) -> None:
    """Have an app tell every error as a problem."""
    app.add_exception_handler(MemAgentError, library_error)
    app.add_exception_handler(RequestValidationError, _wrong_request)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _unforeseen)


async def library_error(request: Request, exc: Exception) -> Response:
    """Answer to an error of the library."""
    assert isinstance(exc, MemAgentError)
    problem = problem_of(exc, request_id=request_id_of(request))
    if problem.status >= 500 and problem.code != "overloaded":  # a refusal is no failure
        tell_failure(exc, request_id=problem.request_id)
    headers: dict[str, str] = {}
    wait_s = getattr(exc, "retry_after", None)
    if isinstance(wait_s, int | float) and math.isfinite(wait_s):
        headers["Retry-After"] = str(max(1, math.ceil(wait_s)))
    return problem_response(problem, headers, path=request.url.path)


async def _wrong_request(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, RequestValidationError)
    errors: list[dict[str, Any]] = list(exc.errors())
    faults = tuple(_field_fault(error) for error in errors[:_MOST_FAULTS])
    if any(error["type"] == "json_invalid" for error in errors):
        problem = plain_problem(
            "malformed", "the body is not JSON", request_id=request_id_of(request), errors=faults
        )
    else:
        detail = f"the request has {len(errors)} wrong field{'s' if len(errors) != 1 else ''}"
        problem = plain_problem(
            "invalid_request", detail, request_id=request_id_of(request), errors=faults
        )
    return problem_response(problem, path=request.url.path)


def _field_fault(error: dict[str, Any]) -> FieldFault:
    place, *path = [str(part) for part in error["loc"]]
    match place:
        case "body":
            pointer = "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in path)
        case "header":
            pointer = f"{'.'.join(path)}:"
        case _:
            pointer = f"?{'.'.join(path)}"
    return FieldFault(
        pointer=pointer[:500], code=str(error["type"]), message=str(error["msg"])[:500]
    )


async def _http_error(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, HTTPException)
    code = _BY_STATUS.get(
        exc.status_code, "malformed" if exc.status_code < 500 else "internal_error"
    )
    problem = plain_problem(
        code,
        str(exc.detail),
        request_id=request_id_of(request),
        status=exc.status_code,
        retryable=code == "overloaded",
    )
    return problem_response(problem, dict(exc.headers or {}), path=request.url.path)


async def _unforeseen(request: Request, exc: Exception) -> Response:  # noqa: ARG001  # interface
    return unforeseen_response(request_id_of(request))


def unforeseen_response(request_id: str) -> Response:
    """Answer to an error that nobody foresaw; the log knows more, by the request's id."""
    return problem_response(
        plain_problem(
            "internal_error", "something went wrong in the service", request_id=request_id
        )
    )


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


def precondition_failed(*, expected: int, actual: int) -> ServiceError:
    """Make the error for an `If-Match` that names another version."""
    return ServiceError(
        f"the memory has changed: it is at version {actual} now, If-Match names {expected}",
        code="precondition_failed",
    )
