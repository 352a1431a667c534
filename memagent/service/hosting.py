"""What the service holds while it runs: the open store, the memories in use, keys, jobs, limits and figures.

Made before the event loop runs, so that a store that cannot be opened is told in one line; `start` and `stop` are the service's lifespan.
"""

from __future__ import annotations

import asyncio
import logging
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
from memagent.memory.bank import system_clock
from memagent.protocols import ChatModel
from memagent.service.banks import Banks
from memagent.service.cursors import Cursors
from memagent.service.database import ServiceDatabase, prune_responses
from memagent.service.idempotency import PromisingJournal, Replays
from memagent.service.jobs import Jobs
from memagent.service.keys import KeyRing
from memagent.service.metrics import Metrics
from memagent.stores.sql_journal import SqlJournal

_log = logging.getLogger(__name__)
_HOUSEKEEPING_S: Final = 3_600.0
_MOST_METERS: Final = 10_000


def service_database_path(store: Path) -> Path:
    """Where the service keeps its own tables, beside a store."""
    return store.with_name(f"{store.stem}.service.db")


def exports_path(store: Path) -> Path:
    """Where exports wait to be fetched, beside a store."""
    return store.with_name(f"{store.stem}.exports")


class Service:
    """One service on one store."""

    def __init__(
        self, store: Store, *, model: ChatModel | str | None = None, database: Path | str | None = None
    ) -> None:
        """Takes the store over and closes it in `close`. Raises `ConfigError`, `StoreError`.

        `database` is a file or a SQLAlchemy URL for the service's own tables; by default a file beside a SQLite store, else memory.
        """
        self.journal = PromisingJournal(store.journal)
        self.store = replace(store, journal=self.journal)
        self.settings = store.settings.service
        self.path = store.journal.path if isinstance(store.journal, SqlJournal) else None
        """The store's file; None for one that is no file."""
        self.model = build_model(model, store.settings)
        self.design = build_design(store.settings.design, has_model=self.model is not None)
        self.metrics = Metrics()
        self.replays = Replays()
        beside = service_database_path(self.path) if self.path is not None else None
        self.database = ServiceDatabase(database or beside)
        self.keys = KeyRing(self.database)
        self.cursors = Cursors(self.database.secret())
        self.banks = Banks(self._agent, most=self.settings.max_banks, metrics=self.metrics)
        self.jobs = self._jobs()
        self.ready = False
        self.stopping = False
        self._meters: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._keeper: asyncio.Task[None] | None = None

    def _agent(self, scope: Scope) -> AsyncAgent:
        return self.store.agent(scope, model=self.model or NoModel(), design=self.design)

    def _jobs(self) -> Jobs:
        return Jobs(
            database=self.database,
            banks=self.banks,
            journal=self.journal,
            replays=self.replays,
            metrics=self.metrics,
            settings=self.settings,
            exports=exports_path(self.path) if self.path is not None else None,
        )

    @property
    def has_model(self) -> bool:
        """Whether a language model is configured."""
        return self.model is not None

    async def start(self) -> None:
        """Go on with jobs left from before, and keep house from now on."""
        left = await self.jobs.resume()
        if left:
            _log.info("%d jobs go on", left)
        self._keeper = asyncio.get_running_loop().create_task(self._keep_house(), context=Context())
        self.ready = True

    async def stop(self) -> None:
        """Finish what runs, within the time the settings give it."""
        self.ready, self.stopping = False, True
        if self._keeper is not None:
            self._keeper.cancel()
            with suppress(asyncio.CancelledError):
                await self._keeper
        await self.jobs.drain(self.settings.drain_s)

    def close(self) -> None:
        """Release the store and the database; harmless when repeated."""
        self.store.close()
        self.database.close()

    async def _keep_house(self) -> None:
        from memagent.graphs import answer, ingest

        await asyncio.to_thread(lambda: (answer.ANSWER, ingest.INGEST))
        while True:
            try:
                await self.prune()
            except (MemAgentError, OSError) as exc:
                _log.warning("housekeeping failed: %s", type(exc).__name__)
            await asyncio.sleep(_HOUSEKEEPING_S)

    async def prune(self) -> int:
        """Delete what is kept for a time only and is past it; the number of responses deleted."""
        await self.jobs.prune()
        if self.path is None:
            return 0
        limit = system_clock() - timedelta(days=self.settings.idempotency_days)
        return await asyncio.to_thread(prune_responses, self.path, before=limit)

    def wait_s(self, caller: str) -> float:
        """Seconds that a caller has to wait before the next request; 0 when it may go ahead, which counts as one."""
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
