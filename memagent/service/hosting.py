"""What the service holds while it runs: the open store, the memories in use, keys,
jobs, limits and figures.

Made before the event loop runs, so that a store that cannot be opened is told in one
line; `start` and `stop` are the service's lifespan.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import OrderedDict
from contextlib import suppress
from contextvars import Context
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Final

from memagent.async_agent import AsyncAgent
from memagent.build import NoModel, Store, build_design, build_model
from memagent.core.errors import MemAgentError
from memagent.core.records import Scope
from memagent.journal.database import DatabaseJournal
from memagent.journal.postgres.backend import PostgresBackend
from memagent.journal.sqlite.journal import SqlJournal
from memagent.memory.bank import system_clock
from memagent.protocols import ChatModel
from memagent.service.banks import Banks
from memagent.service.data.cursors import Cursors
from memagent.service.data.database import ServiceDatabase
from memagent.service.data.idempotency import PromisingJournal, Requests
from memagent.service.data.jobs import Jobs
from memagent.service.data.keys import KeyRing
from memagent.service.data.leases import Claims
from memagent.service.metrics import Metrics
from memagent.service.model_meter import MeteredModel

_log = logging.getLogger(__name__)
_HOUSEKEEPING_S: Final = 3_600.0
_TIDYING_S: Final = 60.0
_MOST_METERS: Final = 10_000


def service_database_path(store: Path) -> Path:
    """Where the service keeps its own tables, beside a store."""
    return store.with_name(f"{store.stem}.service.db")


def service_place(store: Store) -> Path | PostgresBackend | None:
    """Where the service keeps its own tables for a store; None for memory."""
    journal = store.journal
    if isinstance(journal, SqlJournal):
        return service_database_path(journal.path)
    found = journal.backend if isinstance(journal, DatabaseJournal) else None
    return found if isinstance(found, PostgresBackend) else None


class Service:
    """One service on one store."""

    def __init__(
        self, store: Store, *, model: ChatModel | str | None = None, worker: str | None = None
    ) -> None:
        """Takes the store over and closes it in `close`.

        Raises `ConfigError`, `StoreError`.

        The service's own tables lie in a file beside a SQLite store, on the server of a
        PostgreSQL one, else in memory. `worker` names this process among all that serve
        the same store.
        """
        self.journal = PromisingJournal(store.journal)
        self.store = replace(store, journal=self.journal)
        self.settings = store.settings.service
        self.path = store.journal.path if isinstance(store.journal, SqlJournal) else None
        """The store's file; None for one that is no file."""
        self.model = build_model(model, store.settings)
        self.design = build_design(store.settings.design, has_model=self.model is not None)
        self.metrics = Metrics()
        if self.model is not None:
            self.model = MeteredModel(self.model, self.metrics.models)
        self.database = ServiceDatabase(service_place(store))
        self.keys = KeyRing(self.database)
        self.cursors = Cursors(self.database.secret())
        self.claims = Claims(self.database, worker or secrets.token_hex(8))
        self.requests = Requests(self.journal, self.database, self.claims, self.metrics)
        self.banks = Banks(self._agent, most=self.settings.max_banks, metrics=self.metrics)
        self.jobs = self._jobs()
        self.ready = False
        self.stopping = False
        self._meters: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._keepers: list[asyncio.Task[None]] = []

    def _agent(self, scope: Scope) -> AsyncAgent:
        return self.store.agent(scope, model=self.model or NoModel(), design=self.design)

    def _jobs(self) -> Jobs:
        return Jobs(
            database=self.database,
            banks=self.banks,
            journal=self.journal,
            claims=self.claims,
            replays=self.requests.replays,
            metrics=self.metrics,
            settings=self.settings,
        )

    @property
    def has_model(self) -> bool:
        """Whether a language model is configured."""
        return self.model is not None

    async def start(self) -> None:
        """Go on with jobs left from before, and keep house from now on."""
        self.claims.start()
        left = await self.jobs.resume()
        if left:
            _log.info("%d jobs go on", left)
        loop = asyncio.get_running_loop()
        for work in (self._keep_house(), self.jobs.watch(), self.keys.watch()):
            self._keepers.append(loop.create_task(work, context=Context()))
        self.ready = True

    async def stop(self) -> None:
        """Finish what runs, within the time the settings give it."""
        self.ready, self.stopping = False, True
        for keeper in self._keepers:
            keeper.cancel()
            with suppress(asyncio.CancelledError):
                await keeper
        await self.jobs.drain(self.settings.drain_s)
        with suppress(
            MemAgentError
        ):  # where the database is away, others get what was claimed when its time is over
            await self.claims.stop()

    def close(self) -> None:
        """Release the store and the database; harmless when repeated."""
        self.store.close()
        self.database.close()

    async def _keep_house(self) -> None:
        from memagent.graphs import answer, ingest

        await asyncio.to_thread(lambda: (answer.ANSWER, ingest.INGEST))
        pruned_at = float("-inf")
        while True:
            try:
                await self.requests.replays.prune()
                if time.monotonic() - pruned_at > _HOUSEKEEPING_S:
                    await self.prune()
                    pruned_at = time.monotonic()
            except (MemAgentError, OSError) as exc:
                _log.warning("housekeeping failed: %s", type(exc).__name__)
            await asyncio.sleep(_TIDYING_S)

    async def prune(self) -> int:
        """Delete what is kept for a time only and is past it; the number of responses deleted."""
        await self.jobs.prune()
        await asyncio.to_thread(self.database.prune_claims)
        inner = self.journal.inner
        if not isinstance(inner, DatabaseJournal):
            return 0
        limit = system_clock() - timedelta(days=self.settings.idempotency_days)
        return await asyncio.to_thread(inner.prune_responses, before=limit)

    def wait_s(self, caller: str) -> float:
        """Seconds that a caller has to wait before the next request; 0 when it may go
        ahead, which counts as one.
        """
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
