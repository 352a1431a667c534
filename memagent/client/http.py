"""Requests to the service, with keys, retries, and problems turned back into errors.

Every request that writes carries an idempotency key of its own, so a retry after a lost
answer has no second effect. Lost connections are retried, and so are 429, 502 to 504
where the service calls them retryable, and `request_in_progress`.

One table maps memagent's errors to the problems of the REST service (RFC 9457) and
back. The service looks an error up by its class, most derived first, and sends status
and code; the client looks the code up and raises the same class again. What only HTTP
knows (no key, too large, too many) has codes of its own and becomes a `ServiceError`.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from copy import copy
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, TypedDict, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from memagent.client import wire
from memagent.core import errors
from memagent.core.records import Record, Scope

if TYPE_CHECKING:
    import httpx


class ServiceError(errors.MemAgentError):
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

    kind: type[errors.MemAgentError]
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
    Fault(errors.MemAgentError, "internal", 500),
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


def problem_of(error: errors.MemAgentError, *, request_id: str = "") -> Problem:
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


def error_of(problem: Problem) -> errors.MemAgentError:
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
    if kind is None or kind in {errors.MemAgentError, errors.WrongLoop}:
        return ServiceError(
            message, status=problem.status, code=problem.code, retryable=problem.retryable
        )
    if kind is errors.StoreLocked:
        return errors.StoreLocked(message, pid=None)
    if kind is errors.MissingExtra:
        return errors.ConfigError(message)
    error = kind(message)
    error.retryable = problem.retryable
    return error


M = TypeVar("M", bound=BaseModel)
DEFAULT_URL: Final = "http://127.0.0.1:8377"
_AGAIN: Final = frozenset({429, 502, 503, 504})
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 5.0


def path_of(*parts: str) -> str:
    """Return a path of the API with its variable parts quoted."""
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


class ClientArguments(TypedDict, total=False):
    """The keywords of a client.

    `user_id` names the memory where the API key is bound to no user, or where there is
    no key at all; `agent_id` and `run_id` name another memory of that user. A request
    has `timeout_s` seconds (60 by default) and is made at most `attempts` times (4).
    """

    api_key: str | None
    user_id: str | None
    agent_id: str | None
    run_id: str | None
    timeout_s: float
    attempts: int
    transport: httpx.AsyncBaseTransport | None


class Connection:
    """The connections to one service, on behalf of one memory; for one event loop.

    The memory is meant as it is, or as it was at a point in time.
    """

    def __init__(
        self,
        url: str,
        *,
        terms: Mapping[str, str],
        api_key: str | None = None,
        timeout_s: float = 60.0,
        attempts: int = 4,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        try:
            import httpx
        except ModuleNotFoundError as exc:
            raise errors.MissingExtra(
                "client", needed_for="memagent.Client", cause=str(exc)
            ) from exc
        if not url.startswith(("http://", "https://")):
            raise errors.ConfigError(
                f"url {url!r}: give the service's address, such as {DEFAULT_URL}"
            )
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._http = httpx.AsyncClient(
            base_url=url.rstrip("/"),
            headers=headers,
            timeout=timeout_s,
            transport=transport,
            trust_env=False,
        )
        self._attempts = max(1, attempts)
        self.terms = terms
        """Query parameters that name the memory."""
        self.user_id = terms.get("user_id") or (None if api_key else "default")
        """The user whose memory it is, or None where only the service knows."""
        self.as_of = wire.AsOf()

    def about(self, scope: Scope | None = None, as_of: wire.AsOf | None = None) -> Connection:
        """Return the same connections on behalf of another memory, or of another point in time."""
        other = copy(self)
        if scope is not None:
            other.terms = scope.model_dump(exclude_none=True)
        other.as_of = as_of or self.as_of
        return other

    def user_for(self, purpose: str) -> str:
        """Return the user whose memory it is. Raises `ConfigError` where nobody said."""
        if self.user_id is None:
            raise errors.ConfigError(
                f"{purpose} needs to know whose memory it is; give the client its user_id"
            )
        return self.user_id

    def check_writable(self) -> None:
        """Raise `StoreReadOnly` in a view of the past."""
        if not self.as_of.now:
            raise errors.StoreReadOnly("a view of the past is open for reading only")

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def send(self, method: str, path: str, **request: Any) -> httpx.Response:
        """Return a good response; `request` has the keywords of `_request`.

        Raises the library's errors, and `ServiceError` for anything else.
        """
        import httpx

        prepared = self._request(method, path, **request)
        pause = _FIRST_PAUSE_S
        for attempt in range(1, self._attempts + 1):
            wait_s = 0.0
            try:
                response = await self._http.send(prepared)
            except (httpx.TransportError, httpx.InvalidURL) as exc:
                error: Exception = self._unreachable(exc)
                error.__cause__ = exc
            else:
                if response.status_code < 400:
                    return response
                error, again = self._failure(response)
                if not again:
                    raise error
                asked = response.headers.get("retry-after", "")
                wait_s = min(float(asked), 60.0) if asked.isdigit() else 0.0
            if attempt == self._attempts:
                raise error
            await asyncio.sleep(max(wait_s, pause * (0.5 + random.random())))
            pause = min(2 * pause, _LONGEST_PAUSE_S)
        raise AssertionError("unreachable")

    async def read(self, model: type[M], *parts: str, method: str = "GET", **request: Any) -> M:
        """Return the record at a path; `request` has the keywords of `_request`."""
        path = path_of(*parts)
        response = await self.send(method, path, **request)
        try:
            return model.model_validate_json(response.content)
        except ValidationError as exc:
            raise ServiceError(
                f"the service's answer to {method} {path} is no {model.__name__}; "
                "it may be of another version",
                code="wrong_answer",
            ) from exc

    async def write(self, model: type[M], *parts: str, method: str = "POST", **request: Any) -> M:
        """Send a change and return the record that answers it."""
        self.check_writable()
        return await self.read(model, *parts, method=method, **request)

    async def pages(
        self,
        model: type[wire.MemoryPage | wire.SessionPage],
        path: str,
        terms: Mapping[str, Any],
        limit: int | None = None,
    ) -> AsyncGenerator[Any]:
        """Yield the entries of a list, at most `limit`, page by page."""
        cursor: str | None = None
        left = limit
        while left is None or left > 0:
            room = wire.MAX_PAGE if left is None else min(wire.MAX_PAGE, left)
            page = await self.read(model, path, params={**terms, "limit": room, "cursor": cursor})
            for entry in page.items:
                yield entry
            left = left - len(page.items) if left is not None else None
            cursor = page.next_cursor
            if cursor is None:
                return

    async def finish(self, job: wire.Job, *, poll_s: float = 0.05) -> wire.Job:
        """Wait for a job. Raises `StoreError` or `ModelError` when it failed."""
        while job.state in (wire.JobState.QUEUED, wire.JobState.RUNNING):
            await asyncio.sleep(poll_s)
            poll_s = min(2 * poll_s, 2.0)
            job = await self.read(wire.Job, "jobs", job.id)
        if job.state is wire.JobState.FAILED:
            by_model = (job.error or "").startswith(("model", "context", "budget"))
            raise (errors.ModelError if by_model else errors.StoreError)(
                f"job {job.id} ({job.kind.value}) failed after {job.attempts} tries: {job.error}"
            )
        return job

    async def events(self, path: str, body: BaseModel) -> AsyncGenerator[tuple[str, str]]:
        """Yield (name, data) of server-sent events as they come.

        Raises the error that a `problem` event describes.
        """
        import httpx

        request = self._request("POST", path, body=body, headers={"Accept": "text/event-stream"})
        try:
            async with aclosing(await self._http.send(request, stream=True)) as response:
                if response.status_code >= 400:
                    await response.aread()
                    raise self._failure(response)[0]
                name = "message"
                async for line in response.aiter_lines():
                    field, _, value = line.partition(": ")
                    if field == "event":
                        name = value
                    elif field == "data" and name == "problem":
                        raise error_of(Problem.model_validate_json(value))
                    elif field == "data":
                        yield name, value
        except httpx.TransportError as exc:
            raise self._unreachable(exc) from exc

    def _unreachable(self, exc: Exception) -> ServiceError:
        return ServiceError(
            f"the service at {self._http.base_url} cannot be reached: {exc!r}", retryable=True
        )

    def _request(
        self,
        method: str,
        path: str,
        *,
        body: BaseModel | None = None,
        content: bytes | None = None,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Request:
        sent = dict(headers or {})
        if body is not None:
            content = body.model_dump_json(by_alias=True, exclude_unset=True).encode()
            sent["Content-Type"] = "application/json"
        if method != "GET":
            sent.setdefault("Idempotency-Key", uuid.uuid4().hex)
        terms = {**self.terms, **(params or {})}
        terms = {name: value for name, value in terms.items() if value is not None}
        return self._http.build_request(method, path, params=terms, content=content, headers=sent)

    @staticmethod
    def _failure(response: httpx.Response) -> tuple[Exception, bool]:
        """Return the error that a response describes, and whether a retry may help."""
        try:
            problem = Problem.model_validate_json(response.content)
        except ValidationError:
            message = f"HTTP {response.status_code} from something that is no memagent service"
            return ServiceError(
                message, status=response.status_code, code="no_service"
            ), response.status_code in _AGAIN
        again = problem.code == "request_in_progress" or (
            problem.retryable and problem.status in _AGAIN
        )
        return error_of(problem), again
