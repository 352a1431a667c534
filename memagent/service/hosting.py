"""The service while it runs, and the settings of the interpreter that runs it.

A `Service` holds the store, open memories, keys, jobs, limits and figures. It is made
before the event loop runs, so that a store that cannot be opened is reported in one line;
`start` and `stop` are its lifespan.

`serving_interpreter` and `collect_when_idle` set the garbage collector and the threads of
the process. A collection of the oldest generation walks all open memories and stops every
request for some tenths of a second, so none is made while it serves. Reference counts
free what is dropped; the collector is only for cycles, and those of a request are young.
So the oldest generation is collected when no request and no job is at work, ten minutes
after the start and then every ten at most.

A thread that computes gives the interpreter's lock to the event loop after five
milliseconds unless told otherwise, and a request asks for the lock several times: after
each read, write and flush. One millisecond makes requests beside such a thread wait a
third as long, and costs the thread nothing that can be measured.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import secrets
import sys
import time
from collections import OrderedDict
from collections.abc import Generator
from contextlib import contextmanager, suppress
from contextvars import Context
from dataclasses import replace
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Final

from memagent.async_agent import AsyncAgent
from memagent.build import NoModel, Store, build_design, build_model
from memagent.core.errors import MemAgentError, ModelError
from memagent.core.long_work import NEVER, frozen_heap
from memagent.core.records import Scope, system_clock
from memagent.journal.open_database import DatabaseJournal
from memagent.journal.postgres import PostgresBackend
from memagent.journal.sqlite import SqlJournal, service_file
from memagent.llm.wrappers import models_of
from memagent.protocols import ChatModel
from memagent.service.data.banks import Banks, Cursors, SnapshotTable
from memagent.service.data.database import ServiceDatabase
from memagent.service.data.idempotency import (
    IdempotentJournal,
    IdempotentRequests,
    ResponseCache,
    SharedResponseCache,
)
from memagent.service.data.jobs import Jobs, JobWork
from memagent.service.data.leases import JobTable, KeyRing, Leases, LeaseTable
from memagent.service.metrics import MeteredModel, Metrics
from memagent.service.programs import table_of

_log = logging.getLogger(__name__)
_HOUSEKEEPING_S: Final = 3_600.0
_TIDYING_S: Final = 60.0
_MOST_METERS: Final = 10_000
_LISTED_S: Final = 300.0


def service_place(store: Store) -> Path | PostgresBackend | None:
    """Return the place of the service's own tables for a store; None for memory."""
    journal = store.journal
    if isinstance(journal, SqlJournal):
        return service_file(journal.path)
    backend = journal.backend if isinstance(journal, DatabaseJournal) else None
    return backend if isinstance(backend, PostgresBackend) else None


class Service:
    """A service on one store."""

    def __init__(
        self, store: Store, *, model: ChatModel | str | None = None, worker: str | None = None
    ) -> None:
        """Take the store over; `close` closes it.

        The service's own tables lie in a file beside a SQLite store, on the server of a
        PostgreSQL one, else in memory. `worker` names this process among all that serve
        the same store. Raises `ConfigError`, `StoreError`.
        """
        self.journal = IdempotentJournal(store.journal)
        self.store = replace(store, journal=self.journal)
        self.settings = store.settings.service
        self.path = store.journal.path if isinstance(store.journal, SqlJournal) else None
        self.model = build_model(model, store.settings)
        self.design = build_design(store.settings.design, has_model=self.model is not None)
        self.metrics = Metrics()
        if self.model is not None:
            self.model = MeteredModel(self.model, self.metrics.models)
        self.database = ServiceDatabase(service_place(store))
        self.keys = KeyRing(self.database)
        self.programs = table_of(self.settings.programs)
        self._listed: tuple[float, tuple[str, ...] | None] = (float("-inf"), None)
        self.cursors = Cursors(self.database.secret())
        self.snapshots = SnapshotTable(self.database)
        self.leases = Leases(LeaseTable(self.database), worker or secrets.token_hex(8))
        self.responses = (
            SharedResponseCache(self.database) if self.database.shared else ResponseCache()
        )
        self.requests = IdempotentRequests(self.journal, self.responses, self.leases, self.metrics)
        self.banks = Banks(self._agent, most=self.settings.max_banks, metrics=self.metrics)
        table = JobTable(self.database, self.leases.table)
        work = JobWork(table, self.leases, self.banks, self.requests, self.metrics, self.settings)
        self.jobs = Jobs(table, work, self.leases, self.banks, most=self.settings.max_jobs)
        self.ready = False
        self.stopping = False
        self._meters: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._keepers: list[asyncio.Task[None]] = []

    def _agent(self, scope: Scope) -> AsyncAgent:
        return self.store.agent(scope, model=self.model or NoModel(), design=self.design)

    async def provider_models(self) -> tuple[str, ...] | None:
        """Return the names that a request may ask the provider for, () where it names none.

        None where there is no model, or one that has no others beside it.
        """
        asked_at, listed = self._listed
        if self.model is not None and time.monotonic() - asked_at > _LISTED_S:
            try:
                listed = await models_of(self.model)
            except ModelError:  # the chat itself says what is wrong
                listed = ()
            self._listed = (time.monotonic(), listed)
        return listed

    async def start(self) -> None:
        """Resume the jobs of before, and begin the housekeeping."""
        self.leases.start()
        try:
            left = await self.jobs.resume()
            if left:
                _log.info("%d jobs go on", left)
        except MemAgentError as exc:
            _log.warning("jobs were not looked for: %s", type(exc).__name__)
        loop = asyncio.get_running_loop()
        for work in (self._keep_house(), self.jobs.watch(), self.keys.watch()):
            self._keepers.append(loop.create_task(work, context=Context()))
        self.ready = True
        self.metrics.ready.set(1)

    async def stop(self) -> None:
        """Finish what runs, within the time the settings give it."""
        self.ready, self.stopping = False, True
        self.metrics.ready.set(0)
        for keeper in self._keepers:
            keeper.cancel()
            with suppress(asyncio.CancelledError):
                await keeper
        await self.jobs.drain(self.settings.drain_s)
        with suppress(MemAgentError):  # where the database is away, the leases end by themselves
            await self.leases.stop()

    def close(self) -> None:
        """Release the store and the database; harmless when repeated."""
        self.store.close()
        self.database.close()

    async def _keep_house(self) -> None:
        for flow in ("ingest", "answer"):  # not while somebody waits for an answer
            await asyncio.to_thread(import_module, f"memagent.graphs.{flow}")
        pruned_at = float("-inf")
        while True:
            try:
                await self.responses.prune()
                if time.monotonic() - pruned_at > _HOUSEKEEPING_S:
                    await self.prune()
                    pruned_at = time.monotonic()
            except (MemAgentError, OSError) as exc:
                _log.warning("housekeeping failed: %s", type(exc).__name__)
            collect_when_idle(at_work=self.metrics.in_flight + self.jobs.at_work)
            await asyncio.sleep(_TIDYING_S)

    async def prune(self) -> int:
        """Delete jobs, leases and responses past their time; return the number of responses."""
        oldest_job = system_clock() - timedelta(days=self.settings.job_days)
        await asyncio.to_thread(self.jobs.table.prune, before=oldest_job)
        await asyncio.to_thread(self.leases.table.prune)
        inner = self.journal.inner
        if not isinstance(inner, DatabaseJournal):
            return 0
        limit = system_clock() - timedelta(days=self.settings.idempotency_days)
        return await asyncio.to_thread(
            inner.prune_responses, before=limit, most=self.settings.idempotency_most
        )

    def wait_s(self, caller: str) -> float:
        """Return the seconds a caller has to wait; 0 lets the request go ahead and counts it."""
        most = self.settings.requests_per_minute
        if most is None:
            return 0.0
        now = time.monotonic()
        room, since = self._meters.pop(caller, (float(most), now))
        room = min(float(most), room + (now - since) * most / 60.0)
        allowed = room >= 1.0
        self._meters[caller] = (room - 1.0 if allowed else room, now)
        if len(self._meters) > _MOST_METERS:
            self._meters.popitem(last=False)
        return 0.0 if allowed else (1.0 - room) * 60.0 / most


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
