"""Leases: the right of one worker to work on a job, a memory or a request alone.

A lease holds for `LEASE_S` by the database's own clock. A thread renews all leases of a
worker, so that a busy event loop keeps them, and reports a lease that was lost: the
process had been stopped, or the database was away, for longer than the lease. A worker
that dies renews nothing. Its supervisor releases its leases at once; a worker on another
machine takes over when the lease ends. A lease whose caller was cancelled while it was
acquired is not renewed. Where nobody shares the database every place is free, and
nothing is written.

The rows of the jobs: what is to be done, how far it is, and which job comes next.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import Callable, Collection
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, Row, func, select, text

from memagent.client.wire import Job, JobKind, JobState
from memagent.core.errors import MemAgentError
from memagent.core.records import Scope, system_clock
from memagent.journal.rows import from_microseconds, to_microseconds
from memagent.service.data.database import ServiceDatabase, claims, jobs, snapshots

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


CANCELLED: Final = "cancelled"
"""The error code of a job that a caller cancelled."""
_OPEN_STATES: Final = (JobState.QUEUED.value, JobState.RUNNING.value)
_MOST_LEFT: Final = 500
_MOST_LISTED: Final = 10_000
_LEFT: Final = (
    "SELECT j.* FROM service_jobs j LEFT JOIN service_claims c ON c.place = 'job/' || j.id "
    "WHERE j.state IN ('queued', 'running') AND (c.place IS NULL OR c.until_us < {now} OR "
    "c.worker = :worker) "
    "ORDER BY j.created_us, j.id LIMIT :most"
)
_EARLIER: Final = (
    "SELECT 1 FROM service_jobs o, service_jobs j WHERE j.id = :id AND o.scope = j.scope AND "
    "o.kind = j.kind AND o.attempts = 0 "
    "AND o.state IN ('queued', 'running') AND (o.created_us < j.created_us OR (o.created_us = "
    "j.created_us AND o.id < j.id)) LIMIT 1"
)


class JobTable:
    """The jobs of all users. Thread-safe; calls block."""

    def __init__(self, database: ServiceDatabase, leases: LeaseTable) -> None:
        self._database, self._leases = database, leases

    def add(
        self,
        job_id: str,
        scope: Scope,
        kind: JobKind,
        *,
        session_id: str | None = None,
        worker: str = "",
    ) -> Job:
        """Store a queued job, with a lease for the worker.

        Returns the stored job, whoever holds it, when the id is known.
        """
        now = to_microseconds(system_clock())
        row = {
            "id": job_id,
            "scope": scope.model_dump_json(),
            "kind": kind.value,
            "session_id": session_id,
            "state": JobState.QUEUED.value,
            "attempts": 0,
            "created_us": now,
            "updated_us": now,
        }

        def work(db: Connection) -> Row[Any]:
            if self._database.insert(db, jobs, row) and self._database.shared:
                self._leases.acquire_within(db, job_place(job_id), worker)
            return db.execute(jobs.select().where(jobs.c.id == job_id)).one()

        return _job(self._database.run(work))

    def find(self, job_id: str) -> tuple[Job, Scope] | None:
        """Return a job and its memory; None when the id is unknown."""
        rows = self._database.rows(jobs.select().where(jobs.c.id == job_id))
        return (_job(rows[0]), _scope(rows[0])) if rows else None

    def of_user(self, user_id: str) -> list[Job]:
        """Return the user's jobs, the newest first, ten thousand at most."""
        begin = (
            Scope(user_id=user_id).model_dump_json().removesuffix('"agent_id":null,"run_id":null}')
        )
        mine = jobs.select().where(func.substr(jobs.c.scope, 1, len(begin)) == begin)
        ordered = mine.order_by(jobs.c.created_us.desc(), jobs.c.id.desc()).limit(_MOST_LISTED)
        return [_job(row) for row in self._database.rows(ordered)]

    def cancelled(self, job_ids: Collection[str]) -> frozenset[str]:
        """Return those of the jobs that a caller cancelled."""
        known = select(jobs.c.id).where(jobs.c.id.in_(job_ids), jobs.c.error == CANCELLED)
        return frozenset(row.id for row in self._database.rows(known)) if job_ids else frozenset()

    def left(self, worker: str) -> list[tuple[Job, Scope]]:
        """Return unfinished jobs, oldest first, that no other worker holds, with their memories."""
        statement = text(_LEFT.format(now=self._database.now))
        values = {"worker": worker, "most": _MOST_LEFT}
        rows = self._database.run(lambda db: db.execute(statement, values).all())
        return [(_job(row), _scope(row)) for row in rows]

    def has_earlier(self, job_id: str) -> bool:
        """Tell whether an older job of the same kind and memory waits for its first try."""
        earlier = text(_EARLIER)
        return (
            self._database.run(lambda db: db.execute(earlier, {"id": job_id}).first()) is not None
        )

    def move(
        self,
        job_id: str,
        state: JobState,
        *,
        attempts: int | None = None,
        error: str | None = None,
        result: dict[str, Any] | None = None,
        revive: bool = False,
    ) -> None:
        """Write the state of a job; a failed job stays failed unless `revive` is set."""
        values: dict[str, Any] = {
            "state": state.value,
            "updated_us": to_microseconds(system_clock()),
            "error": error,
        }
        if attempts is not None:
            values["attempts"] = attempts
        if result is not None:
            values["result"] = json.dumps(result)
        statement = jobs.update().where(jobs.c.id == job_id).values(**values)
        if not revive:
            statement = statement.where(jobs.c.state != JobState.FAILED.value)
        self._database.run(lambda db: db.execute(statement))

    def counts(self) -> dict[str, int]:
        """Return the number of jobs in each state."""
        counted = select(jobs.c.state, func.count().label("number")).group_by(jobs.c.state)
        numbers = {row.state: int(row.number) for row in self._database.rows(counted)}
        return {state.value: numbers.get(state.value, 0) for state in JobState}

    def prune(self, *, before: datetime) -> int:
        """Delete jobs that ended before a moment; return their number."""
        old = jobs.delete().where(
            jobs.c.updated_us < to_microseconds(before), jobs.c.state.not_in(_OPEN_STATES)
        )
        return self._database.run(lambda db: db.execute(old).rowcount)

    def forget_session(self, scope: Scope, session_id: str) -> None:
        """Delete the jobs that name a session of a memory."""
        mine = jobs.delete().where(
            jobs.c.scope == scope.model_dump_json(), jobs.c.session_id == session_id
        )
        self._database.run(lambda db: db.execute(mine))

    def scrub(self) -> None:
        """Take deleted rows out of the service's files."""
        self._database.scrub()

    def forget_user(self, user_id: str, *, before: datetime, keep_job: str) -> None:
        """Delete the snapshots and jobs that a user had before a moment, but for one job."""

        def work(db: Connection) -> None:
            for table in (snapshots, jobs):
                earlier = table.select().where(table.c.created_us <= to_microseconds(before))
                for row in db.execute(earlier).all():
                    if _scope(row).user_id == user_id and row.id != keep_job:
                        db.execute(table.delete().where(table.c.id == row.id))

        self._database.run(work)


def _scope(row: Row[Any]) -> Scope:
    return Scope.model_validate_json(row.scope)


def _job(row: Row[Any]) -> Job:
    return Job(
        id=row.id,
        kind=JobKind(row.kind),
        state=JobState(row.state),
        user_id=_scope(row).user_id,
        session_id=row.session_id,
        attempts=row.attempts,
        error=row.error,
        result=json.loads(row.result) if row.result else None,
        created_at=from_microseconds(row.created_us),
        updated_at=from_microseconds(row.updated_us),
    )
