"""Leases: the right of one worker to work on a job, a memory or a request alone.

A lease holds for `LEASE_S` by the database's own clock. A thread renews all leases of a
worker, so that a busy event loop keeps them, and reports a lease that was lost: the
process had been stopped, or the database was away, for longer than the lease. A worker
that dies renews nothing. Its supervisor releases its leases at once; a worker on another
machine takes over when the lease ends. A lease whose caller was cancelled while it was
acquired is not renewed. Where nobody shares the database every place is free, and
nothing is written.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Collection
from typing import Final

from sqlalchemy import Connection, text

from memagent.core.errors import MemAgentError
from memagent.service.data.database import ServiceDatabase
from memagent.service.data.tables import claims

_log = logging.getLogger(__name__)
LEASE_S: Final = 10.0
"""Seconds that a lease holds unless it is renewed."""
_BEAT_S: Final = LEASE_S / 4
_ACQUIRE: Final = (
    "INSERT INTO service_claims (place, worker, until_us) VALUES (:place, :worker, {now} + :lease) "
    "ON CONFLICT (place) DO UPDATE SET worker = excluded.worker, until_us = excluded.until_us "
    "WHERE service_claims.worker = excluded.worker OR service_claims.until_us < {now}"
)


def job_place(job_id: str) -> str:
    """Return the place that the worker of a job holds."""
    return f"job/{job_id}"


class LeaseTable:
    """The rows of the leases, by place. Thread-safe; calls block."""

    def __init__(self, database: ServiceDatabase) -> None:
        self._database = database
        # Whether there are other workers at all.
        self.shared = database.shared

    def acquire(self, place: str, worker: str, *, durable: bool = True) -> bool:
        """Acquire or extend a lease; return False when another worker holds it."""
        return self._database.run(
            lambda db: self.acquire_within(db, place, worker), durable=durable
        )

    def acquire_within(self, db: Connection, place: str, worker: str) -> bool:
        """Acquire a lease as part of a running transaction."""
        values = {"place": place, "worker": worker, "lease": int(LEASE_S * 1e6)}
        return db.execute(text(_ACQUIRE.format(now=self._database.now)), values).rowcount > 0

    def renew(self, worker: str, places: Collection[str]) -> frozenset[str]:
        """Extend a worker's leases on these places; return the places it still holds."""
        if not places:
            return frozenset()
        mine = claims.update().where(claims.c.worker == worker, claims.c.place.in_(places))
        until = text(f"{self._database.now} + {int(LEASE_S * 1e6)}")
        statement = mine.values(until_us=until).returning(claims.c.place)
        return frozenset(
            self._database.run(lambda db: db.execute(statement).scalars().all(), durable=False)
        )

    def release(self, worker: str, place: str | None = None) -> None:
        """Release one lease of a worker, or all; harmless when another worker holds the place."""
        mine = claims.delete().where(claims.c.worker == worker)
        statement = mine if place is None else mine.where(claims.c.place == place)
        self._database.run(lambda db: db.execute(statement), durable=place is None)

    def prune(self) -> None:
        """Delete leases that ended more than an hour ago."""
        old = claims.delete().where(text(f"until_us < {self._database.now} - 3600000000"))
        self._database.run(lambda db: db.execute(old))


class Leases:
    """The leases of one worker. Used from one event loop, after `start`."""

    def __init__(self, table: LeaseTable, worker: str) -> None:
        self.table, self.worker = table, worker
        self._held: dict[str, Callable[[], object]] = {}
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Renew leases from now on; call it in the event loop that uses them."""
        if self.table.shared:
            self._thread = threading.Thread(
                target=self._renew_held,
                args=(asyncio.get_running_loop(),),
                name="memagent-leases",
                daemon=True,
            )
            self._thread.start()

    async def stop(self) -> None:
        """Stop renewing, and release all leases."""
        self._ended.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)
            await asyncio.to_thread(self.table.release, self.worker)

    async def acquire(
        self, place: str, *, lost: Callable[[], object] = lambda: None, durable: bool = True
    ) -> bool:
        """Acquire the lease of a place; return False when another worker holds it.

        `lost` is called in the event loop when the lease is lost. Raises `StoreError`s.
        """
        if not self.table.shared:
            return True
        if not await asyncio.to_thread(self.table.acquire, place, self.worker, durable=durable):
            return False
        self._held[place] = lost
        return True

    async def release(self, place: str) -> None:
        """Release a place; where the database is away, others get it when the lease ends."""
        if not self.table.shared:
            return
        self._held.pop(place, None)
        try:
            await asyncio.to_thread(self.table.release, self.worker, place)
        except MemAgentError as exc:
            _log.warning("a lease was not released: %s", type(exc).__name__)

    def _renew_held(self, loop: asyncio.AbstractEventLoop) -> None:
        renewed_at = time.monotonic()
        while not self._ended.wait(_BEAT_S):
            held, now = dict(self._held), time.monotonic()
            try:
                renewed = self.table.renew(self.worker, tuple(held))
            except MemAgentError as exc:
                _log.warning("leases were not renewed: %s", type(exc).__name__)
                if now - renewed_at < LEASE_S:
                    continue
                renewed = frozenset[str]()
            else:
                renewed_at = now
            gone = {place: lost for place, lost in held.items() if place not in renewed}
            if gone and not loop.is_closed():
                loop.call_soon_threadsafe(self._report_lost, gone)

    def _report_lost(self, gone: dict[str, Callable[[], object]]) -> None:
        for place, lost in gone.items():
            if self._held.get(place) is lost:  # and was not released and acquired anew meanwhile
                del self._held[place]
                _log.warning("another worker may be at %s now", place.partition("/")[0])
                lost()
