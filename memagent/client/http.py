"""Requests to the service, with keys, retries, and problems turned back into errors.

Every request that writes carries an idempotency key of its own, so a retry after a lost
answer has no second effect. Lost connections are retried, and so are 429, 502 to 504
where the service calls them retryable, and `request_in_progress`.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import AsyncGenerator, Mapping
from copy import copy
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ValidationError

from memagent.client.faults import Problem, ServiceError, error_of
from memagent.core.errors import ConfigError, MissingExtra
from memagent.core.records import Scope

if TYPE_CHECKING:
    import httpx

M = TypeVar("M", bound=BaseModel)
DEFAULT_URL: Final = "http://127.0.0.1:8377"
_AGAIN: Final = frozenset({429, 502, 503, 504})
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 5.0


def path_of(*parts: str) -> str:
    """Return a path of the API with its variable parts quoted."""
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


class Connection:
    """The connections to one service, on behalf of one memory; for one event loop."""

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
            raise MissingExtra("client", needed_for="memagent.Client", cause=str(exc)) from exc
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"url {url!r}: give the service's address, such as {DEFAULT_URL}")
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

    def about(self, scope: Scope) -> Connection:
        """Return the same connections on behalf of another memory."""
        other = copy(self)
        other.terms = scope.model_dump(exclude_none=True)
        return other

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
            wait_s: float | None = None
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
                wait_s = _seconds(response.headers.get("retry-after"))
            if attempt == self._attempts:
                raise error
            await asyncio.sleep(max(wait_s or 0.0, pause * (0.5 + random.random())))
            pause = min(2 * pause, _LONGEST_PAUSE_S)
        raise AssertionError("unreachable")

    async def read(self, model: type[M], method: str, path: str, **request: Any) -> M:
        """Return the record that a response holds."""
        response = await self.send(method, path, **request)
        try:
            return model.model_validate_json(response.content)
        except ValidationError as exc:
            raise ServiceError(
                f"the service's answer to {method} {path} is no {model.__name__}; "
                "it may be of another version",
                code="wrong_answer",
            ) from exc

    async def events(self, path: str, body: BaseModel) -> AsyncGenerator[tuple[str, str]]:
        """Yield (name, data) of server-sent events as they come.

        Raises the error that a `problem` event describes.
        """
        import httpx

        request = self._request("POST", path, body=body, headers={"Accept": "text/event-stream"})
        try:
            response = await self._http.send(request, stream=True)
            try:
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
            finally:
                await response.aclose()
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


def _seconds(value: str | None) -> float | None:
    return min(float(value), 60.0) if value is not None and value.isdigit() else None
