"""One table between memagent's errors and the problems of the REST service (RFC 9457).

The service looks an error up by its class, most derived first, and sends status and
code; the client looks the code up and raises the same class again. What only HTTP knows
(no key, too large, too many) has codes of its own and becomes a `ServiceError`.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, Final, NamedTuple

from pydantic import ConfigDict, Field

from memagent.core import errors
from memagent.core.errors import MemAgentError
from memagent.core.records import Record


class ServiceError(MemAgentError):
    """A refused or failed request whose reason is no error of the library."""

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        code: str = "unreachable",
        retryable: bool = False,
    ):
        super().__init__(message)
        self.status = status
        """HTTP status; None when no answer came."""
        self.code = code
        self.retryable = retryable


class Fault(NamedTuple):
    """The code and the status of one class of errors."""

    kind: type[MemAgentError]
    code: str
    status: int


FAULTS: Final = (
    Fault(errors.UnknownPlugin, "unknown_plugin", 422),
    Fault(errors.MissingExtra, "missing_extra", 501),
    Fault(errors.ConfigError, "invalid_setting", 422),
    Fault(errors.InputError, "invalid_input", 422),
    Fault(errors.ModelTimeout, "model_timeout", 504),
    Fault(errors.QuotaExhausted, "quota_exhausted", 503),
    Fault(errors.ModelRateLimited, "model_rate_limited", 503),
    Fault(errors.ModelUnreachable, "model_unreachable", 503),
    Fault(errors.ModelUnavailable, "model_unavailable", 503),
    Fault(errors.ContextOverflow, "context_overflow", 422),
    Fault(errors.ModelAuthError, "model_auth", 502),
    Fault(errors.ModelNotFound, "model_not_found", 502),
    Fault(errors.RequestRefused, "request_refused", 422),
    Fault(errors.ReplyWithheld, "reply_withheld", 502),
    Fault(errors.ReplyUnreadable, "reply_unreadable", 502),
    Fault(errors.BudgetExceeded, "budget_exceeded", 503),
    Fault(errors.ModelError, "model_error", 502),
    Fault(errors.EmbeddingError, "embedding_error", 503),
    Fault(errors.StoreUnavailable, "store_unavailable", 503),
    Fault(errors.StoreCorrupt, "store_corrupt", 503),
    Fault(errors.StoreReadOnly, "read_only", 409),
    Fault(errors.VersionConflict, "version_conflict", 409),
    Fault(errors.MemoryNotFound, "not_found", 404),
    Fault(errors.SnapshotMismatch, "snapshot_mismatch", 409),
    Fault(errors.StoreLocked, "store_locked", 503),
    Fault(errors.WrongLoop, "wrong_loop", 500),
    Fault(errors.StoreError, "store_conflict", 409),
    Fault(MemAgentError, "internal", 500),
)
"""Every class of the tree, derived classes before their bases."""

HTTP_CODES: Final[dict[str, int]] = {
    "invalid_request": 422,
    "invalid_cursor": 400,
    "unsupported_parameter": 400,
    "model_not_found": 404,
    "response_not_found": 404,
    "malformed": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "no_such_path": 404,
    "method_not_allowed": 405,
    "request_in_progress": 409,
    "request_timeout": 408,
    "precondition_failed": 412,
    "too_large": 413,
    "unsupported_media_type": 415,
    "misdirected": 421,
    "key_reused": 422,
    "too_many_requests": 429,
    "headers_too_large": 431,
    "overloaded": 503,
    "internal_error": 500,
}
"""Codes of what only HTTP knows, with their status."""


class FieldFault(Record):
    """One wrong field of a request."""

    pointer: str
    """JSON Pointer into the body, or `?name` for a query parameter and `name:` for a
    header.
    """
    code: str
    message: str


class Problem(Record):
    """An error as the service tells it (RFC 9457, `application/problem+json`)."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    type: str = "about:blank"
    title: str
    status: Annotated[int, Field(ge=400, le=599)]
    detail: str = ""
    code: str
    retryable: bool = False
    errors: tuple[FieldFault, ...] = ()
    request_id: str = ""
    expected: int | None = None
    """With `version_conflict`: the version or sequence that was built on."""
    actual: int | None = None
    """With `version_conflict`: the one found."""


def problem_of(error: MemAgentError, *, request_id: str = "") -> Problem:
    """Return the problem that describes an error of the library."""
    if isinstance(error, ServiceError):
        return plain_problem(
            error.code, str(error), request_id=request_id, retryable=error.retryable
        )
    fault = next(fault for fault in FAULTS if isinstance(error, fault.kind))
    numbers: dict[str, Any] = {}
    if isinstance(error, errors.VersionConflict):
        numbers = {"expected": error.expected, "actual": error.actual}
    detail = (
        str(error) if fault.status < 500 or fault.code not in {"internal", "wrong_loop"} else ""
    )
    return Problem(
        title=HTTPStatus(fault.status).phrase,
        status=fault.status,
        detail=detail,
        code=fault.code,
        retryable=error.retryable,
        request_id=request_id,
        **numbers,
    )


def plain_problem(
    code: str,
    detail: str,
    *,
    request_id: str = "",
    retryable: bool = False,
    errors: tuple[FieldFault, ...] = (),
    status: int | None = None,
) -> Problem:
    """Return a problem with one of `HTTP_CODES`."""
    number = status or HTTP_CODES[code]
    return Problem(
        title=HTTPStatus(number).phrase,
        status=number,
        detail=detail,
        code=code,
        retryable=retryable,
        errors=errors,
        request_id=request_id,
    )


def error_of(problem: Problem) -> MemAgentError:
    """Return the error that a problem describes, of the class that the service raised."""
    message = problem.detail or problem.title
    if problem.errors:
        message += ": " + "; ".join(f"{field.pointer}: {field.message}" for field in problem.errors)
    if problem.code in {"version_conflict", "precondition_failed"}:
        return errors.VersionConflict(
            message, expected=problem.expected or 0, actual=problem.actual or 0
        )
    if problem.code in {"invalid_request", "too_large"}:
        return errors.InputError(message)
    kind = next((fault.kind for fault in FAULTS if fault.code == problem.code), None)
    if kind is None or kind in {MemAgentError, errors.WrongLoop}:
        return ServiceError(
            message, status=problem.status, code=problem.code, retryable=problem.retryable
        )
    if kind is errors.StoreLocked:
        return errors.StoreLocked(message, pid=None)
    if kind is errors.EmbeddingError:
        return errors.EmbeddingError(message, retryable=problem.retryable)
    if kind is errors.MissingExtra:
        return errors.ConfigError(message)
    error = kind(message)
    error.retryable = problem.retryable
    return error
