"""Several worker processes on one address: they share the listening socket, and a store
that several processes may write to.

The supervisor binds the address, starts the workers, tells once all of them serve,
starts one anew that has died, and stops them all. It serves nothing itself. Of a worker
that has died it gives back the claims at once, so that the others take over its jobs
without waiting for leases to end. A worker whose supervisor was killed stops as if it
had been asked to.
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
from memagent.service.data.database import ServiceDatabase
from memagent.service.data.keys import KeyRing
from memagent.service.serving import (
    check_bind,
    check_workers,
    log_to_stderr,
    no_address,
    say_where,
    server_class,
    server_config,
    take_signals,
)

_log = logging.getLogger(__name__)
_LOOK_S: Final = 0.5
_ASK_AGAIN_S: Final = 1.0
_BEYOND_DRAIN_S: Final = 10.0
_LONGEST_PAUSE_S: Final = 30.0
_SPAWN: Final = multiprocessing.get_context("spawn")


@dataclass(frozen=True)
class Plan:
    """What every worker opens; it travels to their processes."""

    settings: AgentSettings
    url: str
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
        workers: int,
        model: ChatModel | str | None,
        embedder: str | None,
    ) -> Plan:
        """The plan for a store at a place.

        Raises `ConfigError` where several workers cannot open it.
        """
        check_workers(workers, shared=isinstance(place, PostgresBackend))
        if not isinstance(place, PostgresBackend) or not (model is None or isinstance(model, str)):
            raise ConfigError(
                "several workers open the model by its name; an object cannot be handed to them"
            )
        return cls(settings, place.url, model, embedder, secrets.token_hex(6))

    def worker(self, pid: int | None) -> str:
        """The name under which a process claims what it works on."""
        return f"{self.group}-{pid}"


def serve_by_workers(
    plan: Plan, *, host: str, port: int, workers: int, say: Callable[[str], None]
) -> None:
    """Serve by several processes until SIGINT or SIGTERM, then have them drain.

    Raises as `serving.serve` does.
    """
    log_to_stderr()
    with closing(ServiceDatabase(plan.url)) as database:
        keys = KeyRing(database)
        check_bind(host, keys)
        local = not keys.ever
        try:
            listening = server_config(
                None, plan.settings.service, host=host, port=port
            ).bind_socket()
        except SystemExit as exc:
            raise no_address(host, port) from exc
        with listening:
            supervisor = Supervisor(plan, listening, database)
            supervisor.run(
                workers,
                lambda: say_where(listening.getsockname(), say, local=local, workers=workers),
            )


class _Worker:
    __slots__ = ("process", "ready", "told")

    def __init__(self, process: BaseProcess, told: Connection) -> None:
        self.process, self.told, self.ready = process, told, False


class Supervisor:
    """Keeps a number of workers running."""

    def __init__(self, plan: Plan, listening: socket, database: ServiceDatabase) -> None:
        self._plan, self._listening, self._database = plan, listening, database
        self._workers: list[_Worker] = []
        self._due: list[float] = []
        """When to start workers in place of dead ones."""
        self._failures = 0
        self._stopping = False

    def run(self, number: int, ready: Callable[[], None]) -> None:
        """Run until SIGINT or SIGTERM.

        `ready` is called once, when all serve. Raises `StoreUnavailable` when the first
        ones cannot.
        """
        for one in (signal.SIGINT, signal.SIGTERM):
            signal.signal(one, self._stop)
        told = False
        try:
            for _ in range(number):
                self._start()
            while not self._stopping:
                self._look()
                if not told and sum(worker.ready for worker in self._workers) == number:
                    ready()
                    told = True
                if not told and self._failures:
                    raise StoreUnavailable("the workers could not start; the lines above say why")
        finally:
            self._end()

    def _stop(self, _: int, __: FrameType | None) -> None:
        self._stopping = True

    def _start(self) -> None:
        told, tell = _SPAWN.Pipe(duplex=False)
        process = _SPAWN.Process(
            target=_work, args=(self._plan, self._listening, tell), name="memagent-worker"
        )
        process.start()
        tell.close()
        self._workers.append(_Worker(process, told))

    def _look(self) -> None:
        """Wait a moment for something to happen to a worker, and see to it."""
        starting = [worker.told for worker in self._workers if not worker.ready]
        wait([*starting, *(worker.process.sentinel for worker in self._workers)], timeout=_LOOK_S)
        for worker in list(self._workers):
            with suppress(EOFError, OSError):
                if not worker.ready and worker.told.poll():
                    worker.told.recv()
                    worker.ready, self._failures = True, 0
            if not worker.process.is_alive():
                self._bury(worker)
        now = time.monotonic()
        for due in [one for one in self._due if one <= now]:
            self._due.remove(due)
            self._start()

    def _bury(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        worker.told.close()
        if self._stopping:
            return
        self._failures += not worker.ready
        pause = 0.0 if worker.ready else min(2.0 ** (self._failures - 1), _LONGEST_PAUSE_S)
        _log.warning(
            "worker %s ended (%s); starting another", worker.process.pid, worker.process.exitcode
        )
        self._due.append(time.monotonic() + pause)
        threading.Thread(target=self._give_back, args=(worker.process.pid,), daemon=True).start()

    def _give_back(self, pid: int | None) -> None:
        try:
            self._database.release(self._plan.worker(pid))
        except MemAgentError as exc:
            _log.warning(
                "what worker %s was at waits for its lease to end: %s", pid, type(exc).__name__
            )

    def _end(self) -> None:
        """Ask the workers to stop, again and again in case one had not listened yet;
        kill those that do not.
        """
        until = time.monotonic() + self._plan.settings.service.drain_s + _BEYOND_DRAIN_S
        while self._workers and time.monotonic() < until:
            for worker in self._workers:
                worker.process.terminate()
            wait([worker.process.sentinel for worker in self._workers], timeout=_ASK_AGAIN_S)
            self._workers = [worker for worker in self._workers if worker.process.is_alive()]
        for worker in self._workers:
            worker.process.kill()
            worker.process.join()


def _work(plan: Plan, listening: socket, tell: Connection) -> None:
    """A worker's process."""
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
        server = server_class(uvicorn.Server, lambda _: tell.send(True))(config)
        take_signals()
        server.run(sockets=[listening])


def _end_with_supervisor() -> None:
    supervisor = multiprocessing.parent_process()
    if supervisor is not None:
        supervisor.join()
        os.kill(os.getpid(), signal.SIGTERM)
