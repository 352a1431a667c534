"""Connections that cost nobody else anything: deadlines, sizes and a bound on the idle.

Below the framework, because a request that has not arrived is no request yet. The head
of a request has a deadline and a largest size; `timed_body` gives the body a least rate.
A connection waits until its first request is admitted (`ADMIT` in the scope): with a
key, or without one as a whole request of this machine. When too many wait, the one that
waited longest is closed, so slow connections push out each other and never a caller who
is known.

The interpreter of a process that serves: its garbage collector and its threads.

A collection of the oldest generation walks all open memories and stops every request for
some tenths of a second, so none is made while it serves. Reference counts free what is
dropped; the collector is only for cycles, and those of a request are young. So the oldest
generation is collected when no request and no job is at work, ten minutes after the start
and then every ten at most.

A thread that computes gives the interpreter's lock to the event loop after five
milliseconds unless told otherwise, and a request asks for the lock several times: after
each read, write and flush. One millisecond makes requests beside such a thread wait a
third as long, and costs the thread nothing that can be measured.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from typing import Any, Final

import uvicorn
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from memagent.client.http import plain_problem
from memagent.config import ServiceSettings
from memagent.core.long_work import NEVER, frozen_heap

ADMIT: Final = "memagent.admit"
"""Key of the scope under which the gate finds the function that admits a connection."""
LEAST_BYTES_PER_S: Final = 16 * 1024
"""Slowest rate of a body that takes longer than its first allowance."""
_ADDRESSES: Final = 4
_HUNG_S: Final = 60
_LATE: Final = "the request took too long to arrive"
_LARGE: Final = "the headers are larger than this service takes"


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
            raise HTTPException(408, _LATE, {"Connection": "close"}) from None
        arrived = len(message.get("body", b"")) / LEAST_BYTES_PER_S
        left = min(2 * allowance, left - (loop.time() - began) + arrived)
        return message

    return timed


class Waiting:
    """The connections that wait, oldest first, by the address of their peer."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._all: dict[GuardedProtocol, str] = {}
        self._by_peer: dict[str, dict[GuardedProtocol, None]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def add(self, connection: GuardedProtocol, peer: str) -> None:
        """Let a connection wait; close the oldest one where that makes too many."""
        same = self._by_peer.setdefault(peer, {})
        same[connection] = None
        self._all[connection] = peer
        if len(same) > self._most:
            next(iter(same)).abandon()
        elif len(self._all) > _ADDRESSES * self._most:
            next(iter(self._all)).abandon()

    def remove(self, connection: GuardedProtocol) -> None:
        """Forget a connection; harmless when it does not wait."""
        peer = self._all.pop(connection, None)
        if peer is not None:
            same = self._by_peer[peer]
            del same[connection]
            if not same:
                del self._by_peer[peer]


class GuardedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with deadlines, under the limits of its `ServerConfig`."""

    config: ServerConfig

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a first request."""
        super().connection_made(transport)
        self._limits, self._waiting = self.config.limits, self.config.guarded
        # Whether a head has begun and not ended; whether a request has and not ended.
        self._in_head = self._in_request = self._refused = False
        self._head_bytes = 0
        self._deadline: asyncio.TimerHandle | None = None
        self._set_deadline(self._limits.header_s)
        self._waiting.add(self, self.client[0] if self.client else "")

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._clear_deadline()
        self._waiting.remove(self)
        super().connection_lost(exc)

    def abandon(self) -> None:
        """Close the connection at once."""
        self._waiting.remove(self)
        self._clear_deadline()
        self._refused = True
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Feed the parser, and watch the size and the pace of a head."""
        if self._refused:
            return
        if self._in_head or not self._in_request:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._refused or self.transport.is_closing():
            self._clear_deadline()
        elif self._in_head and self._head_bytes > self._limits.max_header_bytes:
            self._refuse("headers_too_large", _LARGE)
        elif self._in_head and self._deadline is None:
            self._set_deadline(self._limits.header_s)

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._in_head = self._in_request = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Let the request go to the app, unless its head is too large."""
        if self._refused:
            return
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > self._limits.max_header_bytes:
            self._refuse("headers_too_large", _LARGE)
            return
        self._in_head, self._head_bytes = False, 0
        self._clear_deadline()
        self.scope[ADMIT] = partial(self._waiting.remove, self)  # type: ignore[literal-required]
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body."""
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request; the next may come when it likes."""
        if not self._refused:
            self._in_request = False
            self._clear_deadline()
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """Go on to the next request; a body that the app left unread has little time to end."""
        super().on_response_complete()
        if self._in_request and not self.pipeline and not self.transport.is_closing():
            self._set_deadline(self._limits.body_s)

    def _set_deadline(self, seconds: float) -> None:
        self._clear_deadline()
        self._deadline = self.loop.call_later(seconds, self._late)

    def _clear_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _late(self) -> None:
        """End a connection whose request does not arrive."""
        self._refuse("request_timeout", _LATE)

    def _refuse(self, code: str, detail: str) -> None:
        """Answer with a problem where a head was begun, and close the connection."""
        self._refused = True
        self._clear_deadline()
        at_work = bool(self.cycle) and not self.cycle.response_complete
        if self._in_head and not at_work:
            problem = plain_problem(code, detail)
            body = problem.model_dump_json(exclude_none=True).encode()
            head = (
                f"HTTP/1.1 {problem.status} {HTTPStatus(problem.status).phrase}\r\n"
                "content-type: application/problem+json\r\n"
                f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
            )
            self.transport.write(head.encode() + body)
        self.transport.close()


class ServerConfig(uvicorn.Config):
    """uvicorn's settings, with the limits of `GuardedProtocol`."""

    def __init__(self, app: Any, limits: ServiceSettings, **more: Any) -> None:
        super().__init__(
            app,
            http=GuardedProtocol,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            lifespan="on",
            timeout_graceful_shutdown=max(1, round(limits.drain_s)),
            timeout_keep_alive=30,
            timeout_worker_healthcheck=_HUNG_S,
            **more,
        )
        self.limits, self.guarded = limits, Waiting(limits.max_waiting)


# Objects and collections between collections of each generation: a few milliseconds each.
_YOUNG: Final = (5_000, 5, NEVER)
_BETWEEN_S: Final = 600.0
_SWITCH_S: Final = 0.001
# When all garbage was collected last, by the monotonic clock.
_last: float = 0.0


@contextmanager
def serving_interpreter() -> Generator[None]:
    """Collect only young garbage meanwhile, and let threads take short turns.

    What was there before is collected no more at all.
    """
    global _last
    before, switch_s = gc.get_threshold(), sys.getswitchinterval()
    gc.collect()
    _last = time.monotonic()
    gc.set_threshold(*_YOUNG)
    sys.setswitchinterval(min(switch_s, _SWITCH_S))
    try:
        with frozen_heap():
            yield
    finally:
        sys.setswitchinterval(switch_s)
        gc.set_threshold(*before)


def collect_when_idle(*, at_work: int) -> bool:
    """Collect all garbage if nothing is at work, and if it is time; return whether it was."""
    global _last
    now = time.monotonic()
    if gc.get_threshold()[2] != NEVER or at_work or now - _last < _BETWEEN_S:
        return False
    _last = now
    gc.collect()
    return True
