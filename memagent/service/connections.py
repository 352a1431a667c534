"""Connections that cost nobody else anything: deadlines, sizes and a bound on the idle.

Below the framework, because a request that has not arrived is no request yet. The head
of a request has a deadline and a largest size, the body a least rate. A connection
waits until its first request is admitted (`ADMIT` in the scope): with a key, or without
one as a whole request of this machine. When too many wait, the one that waited longest
is closed, so slow connections push out each other and never a caller who is known.
"""

from __future__ import annotations

import asyncio
from enum import Enum, auto
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, ClassVar, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from memagent.client.faults import plain_problem

if TYPE_CHECKING:
    from memagent.config import ServiceSettings

ADMIT: Final = "memagent.admit"
"""Key of the scope under which the gate finds the function that admits a connection."""
LEAST_BYTES_PER_S: Final = 16 * 1024
"""Slowest rate of a body that takes longer than its first allowance."""
_ADDRESSES: Final = 4


class _State(Enum):
    IDLE = auto()
    HEAD = auto()
    BODY = auto()


class Waiting:
    """The connections that wait, oldest first, by the address of their peer."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._all: dict[_Guarded, str] = {}
        self._by_peer: dict[str, dict[_Guarded, None]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def add(self, connection: _Guarded, peer: str) -> None:
        """Let a connection wait; close the oldest one where that makes too many."""
        same = self._by_peer.setdefault(peer, {})
        same[connection] = None
        self._all[connection] = peer
        if len(same) > self._most:
            next(iter(same)).abandon()
        elif len(self._all) > _ADDRESSES * self._most:
            next(iter(self._all)).abandon()

    def remove(self, connection: _Guarded) -> None:
        """Forget a connection; harmless when it does not wait."""
        peer = self._all.pop(connection, None)
        if peer is not None:
            same = self._by_peer[peer]
            del same[connection]
            if not same:
                del self._by_peer[peer]


def guarded_protocol(settings: ServiceSettings) -> type[asyncio.Protocol]:
    """Make the protocol of a server's connections under these limits."""

    class Guarded(_Guarded):
        limits = settings
        waiting = Waiting(settings.max_waiting)

    return Guarded


class _Guarded(HttpToolsProtocol):
    """uvicorn's protocol with deadlines; `guarded_protocol` sets the limits."""

    limits: ClassVar[ServiceSettings]
    waiting: ClassVar[Waiting]

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a first request."""
        super().connection_made(transport)
        self._state = _State.IDLE
        self._refused = self._asked = False
        self._head_bytes = self._body_bytes = 0
        self._deadline: asyncio.TimerHandle | None = None
        self._set_deadline(self.limits.header_s)
        self.waiting.add(self, self.client[0] if self.client else "")

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._clear_deadline()
        self.waiting.remove(self)
        super().connection_lost(exc)

    def abandon(self) -> None:
        """Close the connection at once."""
        self.waiting.remove(self)
        self._clear_deadline()
        self._refused = True
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Feed the parser, and watch the size and the pace of what arrives."""
        if self._refused:
            return
        if self._state is _State.BODY:
            self._body_bytes += len(data)
        else:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._refused or self.transport.is_closing():
            self._clear_deadline()
        elif self._state is _State.HEAD and self._head_bytes > self.limits.max_header_bytes:
            self._refuse("headers_too_large", "the headers are larger than this service takes")
        elif self._deadline is None and self._state is not _State.IDLE:
            head = self._state is _State.HEAD
            self._set_deadline(self.limits.header_s if head else self.limits.body_s)

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._state = _State.HEAD
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Let the request go to the app, unless its head is too large."""
        if self._refused:
            return
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > self.limits.max_header_bytes:
            self._refuse("headers_too_large", "the headers are larger than this service takes")
            return
        self._state, self._head_bytes, self._body_bytes = _State.BODY, 0, 0
        self._clear_deadline()
        self._asked = True
        self.scope[ADMIT] = self._admit  # type: ignore[literal-required]
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body."""
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request; the next may come when it likes."""
        if not self._refused:
            self._state, self._head_bytes = _State.IDLE, 0
            self._clear_deadline()
            super().on_message_complete()

    def _admit(self) -> None:
        self.waiting.remove(self)

    def _set_deadline(self, seconds: float) -> None:
        self._deadline = self.loop.call_later(seconds, self._late)

    def _clear_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _late(self) -> None:
        """End a connection whose request does not arrive; a body at a fair pace goes on."""
        self._deadline = None
        if self._state is _State.BODY:
            allowance = self.limits.body_s
            if self._body_bytes >= LEAST_BYTES_PER_S * allowance:
                self._body_bytes = 0
                self._set_deadline(allowance)
                return
        self._refuse("request_timeout", "the request took too long to arrive")

    def _refuse(self, code: str, detail: str) -> None:
        """Answer with a problem, unless a response has begun, and close the connection."""
        self._refused = True
        self._clear_deadline()
        begun = self._asked and self.cycle.response_started
        if not begun and self._state is not _State.IDLE:
            problem = plain_problem(code, detail)
            body = problem.model_dump_json(exclude_none=True).encode()
            head = (
                f"HTTP/1.1 {problem.status} {HTTPStatus(problem.status).phrase}\r\n"
                "content-type: application/problem+json\r\n"
                f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
            )
            self.transport.write(head.encode() + body)
        self.transport.close()
