"""The server's processes: checks before an address is bound, uvicorn's settings, workers.

Several workers share one listening socket, and a store that several processes may write
to. uvicorn's supervisor starts them, replaces one that has died, and stops them all; it
serves nothing itself. This one says when all of them serve, keeps their figures in one
folder, and releases the leases of a dead worker at once, so that the others take over
its jobs without waiting for leases to end. A worker whose supervisor was killed stops as
if it had been asked to.

Connections that cost nobody else anything: deadlines, sizes and a bound on the idle.

Below the framework, because a request that has not arrived is no request yet. The head
of a request has a deadline and a largest size; `gate.timed_body` gives the body a least rate.
A connection waits until its first request is admitted (`ADMIT` in the scope): with a
key, or without one as a whole request of this machine. When too many wait, the one that
waited longest is closed, so slow connections push out each other and never a caller who
is known.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import uvicorn
from prometheus_client.multiprocess import mark_process_dead  # pyright: ignore[reportUnknownVariableType]
from starlette.types import ASGIApp
from uvicorn.config import STARTUP_FAILURE
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.supervisors.multiprocess import Multiprocess

from memagent.build import open_store
from memagent.client.http import plain_problem
from memagent.config import AgentSettings, ServiceSettings, check_workers
from memagent.core.errors import ConfigError, MemAgentError, StoreUnavailable
from memagent.journal.postgres import PostgresBackend
from memagent.protocols import ChatModel
from memagent.service.access import is_loopback
from memagent.service.app import serve_app
from memagent.service.data.database import ServiceDatabase
from memagent.service.data.leases import KeyRing, LeaseTable
from memagent.service.gate import ADMIT, LATE, WHOLE
from memagent.service.hosting import Service, serving_interpreter
from memagent.service.metrics import shared_figures

_log = logging.getLogger(__name__)
_BEYOND_DRAIN_S: Final = 10.0
_PAUSE_S: Final = 5.0
_ADDRESSES: Final = 4
_HUNG_S: Final = 60
_LARGE: Final = "the headers are larger than this service takes"
# What a worker is in until it ends.
_ENTERED: Final = ExitStack()


class Waiting:
    """The connections that wait, oldest first, by the address of their peer."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._all: dict[GuardedProtocol, str] = {}
        self._by_peer: dict[str, dict[GuardedProtocol, None]] = {}

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
        size = len(self.url) + sum([len(name) + len(value) + 4 for name, value in self.headers])
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
            self.scope[WHOLE] = True  # type: ignore[literal-required]
            self._clear_deadline()
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """Go on to the next request; a body that the app left unread has little time to end."""
        super().on_response_complete()
        if self._in_request and not self.pipeline and not self.transport.is_closing():
            self._set_deadline(self._limits.body_s)

    def _set_deadline(self, seconds: float) -> None:
        self._clear_deadline()
        self._deadline = self.loop.call_later(seconds, self._refuse, "request_timeout", LATE)

    def _clear_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _refuse(self, code: str, detail: str) -> None:
        """Answer with a problem where a head was begun, and end the connection."""
        self._refused = True
        self._clear_deadline()
        at_work = bool(self.cycle) and not self.cycle.response_complete
        if self._in_head and not at_work:
            problem = plain_problem(code, detail)
            body = problem.model_dump_json(exclude_none=True).encode()
            head = (
                f"HTTP/1.1 {problem.status} {problem.title}\r\n"
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


def check_bind(host: str, keys: KeyRing) -> None:
    """Raise `ConfigError` for a bind beyond loopback without any API key."""
    if not (host == "localhost" or is_loopback(host) or keys.ever):
        raise ConfigError(
            f"listening on {host} would let others in, and there is no API key; make one first: "
            " memagent keys create --for USER"
        )


def no_address(host: str, port: int) -> StoreUnavailable:
    """Make the error for an address that cannot be bound."""
    return StoreUnavailable(
        f"nothing can listen on {host} port {port}; another program may do so already"
    )


def announce(
    address: tuple[Any, ...], say: Callable[[str], None], *, local: bool, workers: int = 1
) -> None:
    """Say where the service listens; with `local`, that it serves this machine alone."""
    name, port = address[:2]
    host = f"[{name}]" if ":" in name else name
    many = f"; {workers} workers" if workers > 1 else ""
    say(f"memagent serves http://{host}:{port}  (dashboard: /ui, documentation: /docs{many})")
    if local:
        say(
            "no API key is configured: requests of this machine are served as the local user, "
            "others are refused"
        )


def log_to_stderr() -> None:
    """Log the service to standard error, unless the program has its own logging."""
    logger = logging.getLogger("memagent")
    if not logger.handlers and not logging.getLogger().handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(levelname)s %(name)s %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)


class Server(uvicorn.Server):
    """uvicorn's server, which calls a function once it listens."""

    def __init__(self, config: uvicorn.Config, listening: Callable[[tuple[Any, ...]], None]):
        super().__init__(config)
        self._listening = listening

    async def startup(self, sockets: Any = None) -> None:
        """Start to listen."""
        await super().startup(sockets)
        if self.started:
            self._listening(self.servers[0].sockets[0].getsockname())


def serve_here(service: Service, *, host: str, port: int, say: Callable[[str], None]) -> None:
    """Serve in this process until SIGINT or SIGTERM. Raises as `service.serve` does."""
    check_bind(host, service.keys)
    local = not service.keys.ever
    log_to_stderr()
    config = ServerConfig(serve_app(service), service.settings, host=host, port=port)
    server = Server(config, partial(announce, say=say, local=local))
    if threading.current_thread() is threading.main_thread():
        # uvicorn raises the signal that stopped it once more; the process shall end by returning
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda _, __: None)
    try:
        with serving_interpreter():
            server.run()
    except SystemExit as exc:  # uvicorn exits when it cannot bind
        raise no_address(host, port) from exc
    if not server.started:
        raise no_address(host, port)


@dataclass(frozen=True)
class Plan:
    """The store and model that every worker opens; it is sent to their processes."""

    settings: AgentSettings
    url: str
    workers: int
    model: str | None
    embedder: str | None
    group: str
    """Names the workers of one supervisor; a worker is named by this and its process id."""
    again: bool = False
    """Whether the workers served before: one that cannot start now is started again."""

    @classmethod
    def of(
        cls,
        settings: AgentSettings,
        place: Path | PostgresBackend | None,
        *,
        workers: int = 1,
        model: ChatModel | str | None = None,
        embedder: str | None = None,
    ) -> Plan:
        """Make the plan for a store at a place.

        Raises `ConfigError` where several workers cannot open it.
        """
        check_workers(workers, shared=isinstance(place, PostgresBackend))
        if not isinstance(place, PostgresBackend) or not (model is None or isinstance(model, str)):
            raise ConfigError(
                "several workers open the model by its name; an object cannot be handed to them"
            )
        return cls(settings, place.url, workers, model, embedder, secrets.token_hex(6))

    def worker(self, pid: int | None) -> str:
        """Return the name under which a process holds its leases."""
        return f"{self.group}-{pid}"

    def app(self) -> ASGIApp:
        """Open the store in a worker's process, and make the app on it."""
        threading.Thread(target=_end_with_supervisor, daemon=True).start()
        log_to_stderr()
        try:
            store = open_store(self.settings, path=self.url, embedder=self.embedder)
            service = Service(store, model=self.model, worker=self.worker(os.getpid()))
        except MemAgentError as exc:
            _log.error("a worker could not start: %s", exc)
            time.sleep(_PAUSE_S if self.again else 0.0)
            raise SystemExit(1 if self.again else STARTUP_FAILURE) from None
        _ENTERED.enter_context(serving_interpreter())
        return serve_app(service)


def serve_by_workers(plan: Plan, *, host: str, port: int, say: Callable[[str], None]) -> None:
    """Serve by several processes until SIGINT or SIGTERM, then have them drain.

    Raises as `service.serve` does.
    """
    log_to_stderr()
    with closing(ServiceDatabase(plan.url)) as database, shared_figures() as figures:
        keys = KeyRing(database)
        check_bind(host, keys)
        config = ServerConfig(
            plan.app,
            plan.settings.service,
            factory=True,
            workers=plan.workers,
            host=host,
            port=port,
        )
        try:
            listening = config.bind_socket()
        except SystemExit as exc:
            raise no_address(host, port) from exc
        with listening:
            say_so = partial(announce, listening.getsockname(), say, local=not keys.ever)
            Supervisor(config, [listening]).serve(plan, LeaseTable(database), figures, say_so)


class Supervisor(Multiprocess):
    """uvicorn's supervisor of workers on one store."""

    def serve(
        self, plan: Plan, leases: LeaseTable, figures: Path, ready: Callable[..., None]
    ) -> None:
        """Run until SIGINT or SIGTERM; call `ready` once, when all workers serve.

        Raises `StoreUnavailable` when the first ones cannot.
        """
        self._plan, self._leases, self._figures, self._ready = plan, leases, figures, ready
        self._known: set[int | None] = set()
        self._serves = False
        self.run()
        if not self._serves and not self._asked:
            raise StoreUnavailable("the workers could not start; the lines above say why")

    _asked = False

    def handle_signals(self) -> None:
        """Note that a signal came, and do what it asks for."""
        self._asked = self._asked or bool({signal.SIGINT, signal.SIGTERM} & {*self.signal_queue})
        super().handle_signals()

    def keep_subprocess_alive(self) -> None:
        """Replace dead workers; release what they held."""
        super().keep_subprocess_alive()
        if self.should_exit.is_set():
            return
        workers = {process.pid for process in self.processes}
        for pid in self._known - workers:
            _log.warning("worker %s ended; another one starts", pid)
            # its gauges go; what it counted stays in the sums
            mark_process_dead(pid or 0, str(self._figures))
            threading.Thread(target=self._release_leases, args=(pid,), daemon=True).start()
        if not self._serves:
            if self._known - workers:
                self.should_exit.set()
            elif all(process.is_ready(timeout=1) for process in self.processes):
                self._serves = True
                self.config.app = replace(self._plan, again=True).app
                self._ready(workers=len(workers))
        self._known = workers

    def join_all(self) -> None:
        """Wait for the workers to end; kill those that have not in time."""
        until = time.monotonic() + self._plan.settings.service.drain_s + _BEYOND_DRAIN_S
        for process in self.processes:
            process.process.join(max(0.0, until - time.monotonic()))
            if process.process.is_alive():
                process.kill()
                process.join()

    def _release_leases(self, pid: int | None) -> None:
        try:
            self._leases.release(self._plan.worker(pid))
        except MemAgentError as exc:
            _log.warning(
                "the jobs of worker %s wait for their leases to end: %s", pid, type(exc).__name__
            )


def _end_with_supervisor() -> None:
    supervisor = multiprocessing.parent_process()
    if supervisor is not None:
        supervisor.join()
        os.kill(os.getpid(), signal.SIGTERM)
