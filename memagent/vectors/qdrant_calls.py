"""Calls to a Qdrant server: bounded tries, pauses with jitter, errors of our own tree.

Every call of the index assigns or reads, so a call that may have been carried out is
simply made again. What the server says about a wrong request is told at once; what may
pass (429, 5xx, no answer, a lost connection, an answer of another shape) is tried again
within a time that is bounded as a whole. The surprise: no message repeats what the
server answered, since Qdrant quotes the request, which holds words.
"""

from __future__ import annotations

import asyncio
import importlib
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary

from memagent.core.errors import (
    ConfigError,
    MemAgentError,
    MissingExtra,
    StoreError,
    StoreUnavailable,
)

if TYPE_CHECKING:
    from qdrant_client import AsyncQdrantClient

T = TypeVar("T")
_Clients = dict[tuple[str, str | None, float], "AsyncQdrantClient"]
_CLIENTS: WeakKeyDictionary[asyncio.AbstractEventLoop, _Clients] = WeakKeyDictionary()


class CollectionGone(StoreUnavailable):
    """The collection that was there is not there any more; the next write makes it anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """The time that a call may take."""

    tries: int = 4
    timeout_s: float = 5.0
    """Of one try."""
    total_s: float = 12.0
    """Of all tries with the pauses between them; a server that asks for more has failed."""
    first_pause_s: float = 0.1
    """Of which half is left to chance; it doubles with every try."""
    longest_pause_s: float = 2.0


class Calls:
    """A client, and how patiently it is asked."""

    def __init__(
        self,
        client: Callable[[], AsyncQdrantClient],
        patience: Patience | None = None,
        *,
        exact: bool = False,
    ) -> None:
        """Call `client` at every try, inside the event loop that makes the call.

        `exact` says that it can only search exactly.
        """
        self._client = client
        self._patience = patience or Patience()
        self.exact = exact
        # Tries that were not the first.
        self.retried = 0

    @classmethod
    def to(cls, url: str, *, api_key: str | None = None, patience: Patience | None = None) -> Calls:
        """Make calls to a server. Raises `MissingExtra` without qdrant-client."""
        try:
            importlib.import_module("qdrant_client")
        except ImportError as exc:
            raise MissingExtra("qdrant", needed_for="the Qdrant index") from exc
        patience = patience or Patience()
        return cls(lambda: shared_client(url, api_key, patience.timeout_s), patience)

    @classmethod
    def over(cls, client: AsyncQdrantClient) -> Calls:
        """Make calls through a client; its local mode searches exactly."""
        options = client.init_options
        return cls(
            lambda: client,
            exact=options.get("location") == ":memory:" or options.get("path") is not None,
        )

    async def ask(self, doing: str, call: Callable[[AsyncQdrantClient], Awaitable[T]]) -> T:
        """Return the result of `call`, tried again as far as patience goes.

        Raises `StoreUnavailable` (retryable), `ConfigError` for a refused key,
        `StoreError` for a request that the server finds wrong.
        """
        patience, began, tried = self._patience, time.monotonic(), 0
        while True:
            left = patience.total_s - (time.monotonic() - began)
            try:
                async with asyncio.timeout(max(min(patience.timeout_s, left), 0.001)):
                    return await call(self._client())
            except MemAgentError:
                raise
            except Exception as exc:
                fault = _fault(exc)
                tried += 1
                pause = min(patience.first_pause_s * 2 ** (tried - 1), patience.longest_pause_s)
                pause = (
                    fault.wait_s if fault.wait_s is not None else pause * random.uniform(0.5, 1.0)
                )
                left = patience.total_s - (time.monotonic() - began)
                if fault.final is not None or tried >= patience.tries or pause >= left:
                    raise _error(fault, doing, tried) from exc
                self.retried += 1
                await asyncio.sleep(pause)


@dataclass(frozen=True, slots=True)
class _Fault:
    reason: str
    wait_s: float | None = None
    """Seconds that the server asked to wait."""
    final: type[MemAgentError] | None = None
    """The error of a fault that another try does not mend."""


def _error(fault: _Fault, doing: str, tried: int) -> MemAgentError:
    if fault.final is not None:
        return fault.final(f"Qdrant, {doing}: {fault.reason}")
    pause = f"; it asks to wait {fault.wait_s:g} s" if fault.wait_s else ""
    return StoreUnavailable(
        f"Qdrant, {doing}: {fault.reason} ({tried} {'try' if tried == 1 else 'tries'}){pause}"
    )


def _fault(exc: Exception) -> _Fault:
    from httpx import TransportError
    from qdrant_client.common.client_exceptions import ResourceExhaustedResponse
    from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

    match exc:
        case ResourceExhaustedResponse():
            return _Fault("it asks for fewer requests (429)", float(exc.retry_after_s))
        case UnexpectedResponse():
            return _status_fault(exc.status_code or 0, exc.headers.get("Retry-After"))
        case TimeoutError():
            return _Fault("no answer in time")
        case ResponseHandlingException() if isinstance(exc.source, TransportError):
            return _Fault(f"no connection, or a lost one ({type(exc.source).__name__})")
        case _:
            return _Fault(f"an answer of another shape ({type(exc).__name__})")


def _status_fault(status: int, retry_after: str | None) -> _Fault:
    wait_s = float(retry_after) if retry_after is not None and retry_after.isdigit() else None
    if status == 404:
        return _Fault("the collection is gone", final=CollectionGone)
    if status in (401, 403):
        return _Fault(
            f"the key was refused ({status}); set index.api_key to one that may write",
            final=ConfigError,
        )
    if status in (408, 429) or status >= 500:
        return _Fault(f"status {status}", wait_s)
    return _Fault(f"the request was refused with status {status}", final=StoreError)


def shared_client(url: str, api_key: str | None, timeout_s: float) -> AsyncQdrantClient:
    """Return the client of the running event loop for a server.

    All users of a process share its connections.
    """
    from qdrant_client import AsyncQdrantClient

    clients = _CLIENTS.setdefault(asyncio.get_running_loop(), {})
    key = (url, api_key, timeout_s)
    if key not in clients:
        clients[key] = AsyncQdrantClient(
            url=url, api_key=api_key, timeout=ceil(timeout_s), check_compatibility=False
        )
    return clients[key]
