"""Several worker processes on one address.

They share the listening socket, and a store that several processes may write to.

The supervisor binds the address, starts the workers, says so once all of them serve,
replaces one that has died, and stops them all. It serves nothing itself. It releases the
leases of a dead worker at once, so that the others take over its jobs without waiting
for leases to end. A worker whose supervisor was killed stops as if it had been asked to.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import secrets
import signal
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from socket import socket
from types import FrameType
from typing import Final

from memagent.build import open_store
from memagent.config import AgentSettings
from memagent.core.errors import ConfigError, MemAgentError, StoreUnavailable
from memagent.journal.postgres.backend import PostgresBackend
from memagent.protocols import ChatModel
from memagent.service.binding import (
    announce,
    check_bind,
    check_workers,
    ignore_signals,
    log_to_stderr,
    no_address,
    server_class,
    server_config,
)
from memagent.service.collector import serving_interpreter
from memagent.service.data.database import ServiceDatabase
from memagent.service.data.keys import KeyRing
from memagent.service.data.leases import LeaseTable

_log = logging.getLogger(__name__)
_LOOK_S: Final = 0.5
_ASK_AGAIN_S: Final = 1.0
_BEYOND_DRAIN_S: Final = 10.0
_LONGEST_PAUSE_S: Final = 30.0
_SPAWN: Final = multiprocessing.get_context("spawn")


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


def serve_by_workers(plan: Plan, *, host: str, port: int, say: Callable[[str], None]) -> None:
    """Serve by several processes until SIGINT or SIGTERM, then have them drain.

    Raises as `serving.serve` does.
    """
    log_to_stderr()
    with closing(ServiceDatabase(plan.url)) as database:
        keys = KeyRing(database)
        check_bind(host, keys)
        local = not keys.ever
        config = server_config(None, plan.settings.service, host=host, port=port)
        try:
            listening = config.bind_socket()
        except SystemExit as exc:
            raise no_address(host, port) from exc
        with listening:
            address = listening.getsockname()
            Supervisor(plan, listening, LeaseTable(database)).run(
                lambda: announce(address, say, local=local, workers=plan.workers)
            )


@dataclass(slots=True, eq=False)
class _Worker:
    process: BaseProcess
    signal: Connection
    """Becomes readable when the worker serves."""
    ready: bool = False


class Supervisor:
    """Keeps the workers of a plan running."""

    def __init__(self, plan: Plan, listening: socket, leases: LeaseTable) -> None:
        self._plan, self._listening, self._leases = plan, listening, leases
        self._workers: list[_Worker] = []
        # Times at which to replace dead workers.
        self._due: list[float] = []
        self._failures = 0
        self._stopping = False

    def run(self, ready: Callable[[], None]) -> None:
        """Run until SIGINT or SIGTERM.

        Calls `ready` once, when all workers serve. Raises `StoreUnavailable` when the
        first ones cannot.
        """
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._stop)
        started = False
        try:
            for _ in range(self._plan.workers):
                self._start()
            while not self._stopping:
                self._look()
                if (
                    not started
                    and sum(worker.ready for worker in self._workers) == self._plan.workers
                ):
                    ready()
                    started = True
                if not started and self._failures:
                    raise StoreUnavailable("the workers could not start; the lines above say why")
        finally:
            self._end()

    def _stop(self, _: int, __: FrameType | None) -> None:
        self._stopping = True

    def _start(self) -> None:
        receiver, sender = _SPAWN.Pipe(duplex=False)
        process = _SPAWN.Process(
            target=_work, args=(self._plan, self._listening, sender), name="memagent-worker"
        )
        process.start()
        sender.close()
        self._workers.append(_Worker(process, receiver))

    def _look(self) -> None:
        """Wait a moment for a worker to start or to end, and replace dead ones."""
        starting = [worker.signal for worker in self._workers if not worker.ready]
        wait([*starting, *(worker.process.sentinel for worker in self._workers)], timeout=_LOOK_S)
        for worker in list(self._workers):
            with suppress(EOFError, OSError):
                if not worker.ready and worker.signal.poll():
                    worker.signal.recv()
                    worker.ready, self._failures = True, 0
            if not worker.process.is_alive():
                self._bury(worker)
        now = time.monotonic()
        for due in [due for due in self._due if due <= now]:
            self._due.remove(due)
            self._start()

    def _bury(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        worker.signal.close()
        if self._stopping:
            return
        self._failures += not worker.ready
        pause = 0.0 if worker.ready else min(2.0 ** (self._failures - 1), _LONGEST_PAUSE_S)
        pid = worker.process.pid
        _log.warning("worker %s ended (%s); starting another", pid, worker.process.exitcode)
        self._due.append(time.monotonic() + pause)
        threading.Thread(target=self._release_leases, args=(pid,), daemon=True).start()

    def _release_leases(self, pid: int | None) -> None:
        try:
            self._leases.release(self._plan.worker(pid))
        except MemAgentError as exc:
            _log.warning(
                "the jobs of worker %s wait for their leases to end: %s", pid, type(exc).__name__
            )

    def _end(self) -> None:
        """Ask the workers to stop until they do; kill those that have not in time."""
        until = time.monotonic() + self._plan.settings.service.drain_s + _BEYOND_DRAIN_S
        while self._workers and time.monotonic() < until:
            for worker in self._workers:
                worker.process.terminate()
            wait([worker.process.sentinel for worker in self._workers], timeout=_ASK_AGAIN_S)
            self._workers = [worker for worker in self._workers if worker.process.is_alive()]
        for worker in self._workers:
            worker.process.kill()
            worker.process.join()


def _work(plan: Plan, listening: socket, sender: Connection) -> None:
    """Serve in a worker's process."""
    import uvicorn

    from memagent.service.app import serve_app
    from memagent.service.hosting import Service

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's; the supervisor passes it on
    threading.Thread(target=_end_with_supervisor, daemon=True).start()
    log_to_stderr()
    try:
        store = open_store(plan.settings, path=plan.url, embedder=plan.embedder)
        service = Service(store, model=plan.model, worker=plan.worker(os.getpid()))
    except MemAgentError as exc:
        _log.error("a worker could not start: %s", exc)
        raise SystemExit(3) from None
    with closing(service):
        config = server_config(serve_app(service), service.settings, host="", port=0)
        server = server_class(uvicorn.Server, lambda _: sender.send(True))(config)
        ignore_signals()
        with serving_interpreter():
            server.run(sockets=[listening])


def _end_with_supervisor() -> None:
    supervisor = multiprocessing.parent_process()
    if supervisor is not None:
        supervisor.join()
        os.kill(os.getpid(), signal.SIGTERM)
