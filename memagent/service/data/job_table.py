"""The rows of the jobs: what is to be done, how far it is, and which job comes next."""

from __future__ import annotations

import json
from collections.abc import Collection
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, Row, func, select, text

from memagent.client.wire import Job, JobKind, JobState
from memagent.core.records import Scope
from memagent.journal.rows import from_microseconds, system_clock, to_microseconds
from memagent.service.data.database import ServiceDatabase
from memagent.service.data.leases import LeaseTable, job_place
from memagent.service.data.tables import jobs, snapshots

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
