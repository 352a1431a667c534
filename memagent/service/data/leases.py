"""API keys: their form, their scopes, and the caller a key stands for.

A key is `ma_<id>_<secret>`; the secret has 256 bits and only its HMAC-SHA-256 is kept,
so the database gives nobody away. A key may be bound to one user, and then reaches no
other. Without any key the service serves loopback requests alone, as the local user.

Leases: the right of one worker to work on a job, a memory or a request alone.

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
import hashlib
import hmac
import json
import logging
import re
import secrets
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, Row, func, select, text

from memagent.client.wire import Job, JobKind, JobState
from memagent.core.errors import InputError, MemAgentError, StoreUnavailable
from memagent.core.records import Scope, system_clock
from memagent.journal.rows import from_microseconds, to_microseconds
from memagent.service.data.database import ServiceDatabase, claims, jobs, keys, snapshots

SCOPES: Final = ("memory:read", "memory:write", "memory:delete", "chat", "admin")
"""The scopes of keys; `admin` reads metrics. A key that is bound to no user names any."""
LOCAL_USER: Final = "default"
_KEY = re.compile(r"ma_([a-z0-9]{12})_([A-Za-z0-9_-]{43})")
# Seconds after which a revoked key is refused at the latest.
_FRESH_S: Final = 1.0
# A read that takes longer hangs; a shorter one waits for a busy machine.
_PATIENCE_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request."""

    name: str
    """The key's id, or `local`; never a secret."""
    scopes: frozenset[str]
    user_id: str | None
    """The only user that the caller may act for; None for any."""


LOCAL: Final = Caller("local", frozenset(SCOPES), None)


@dataclass(frozen=True, slots=True)
class StoredKey:
    """An API key as it is stored."""

    id: str
    name: str
    secret_hmac: str
    scopes: frozenset[str]
    user_id: str | None
    created_at: datetime
    revoked: bool


class KeyRing:
    """Makes keys and recognises them."""

    def __init__(self, database: ServiceDatabase) -> None:
        self._database = database
        self._secret = hmac.new(database.secret(), b"memagent/keys/1", hashlib.sha256).digest()
        self._known: dict[str, StoredKey] = {}
        self._read_at = float("-inf")
        # Since when `watch` has waited for the database.
        self._waiting_since: float | None = None
        self._failing = False
        self._idle = threading.Event()
        self._idle.set()

    def create(
        self, *, name: str, scopes: Sequence[str], user_id: str | None, at: datetime
    ) -> tuple[str, str]:
        """Make a key: (its id, the key itself, which is never seen again).

        Raises `InputError` for an unknown scope.
        """
        unknown = sorted(set(scopes) - set(SCOPES))
        if unknown or not scopes:
            raise InputError(
                f"scope {', '.join(unknown) or 'missing'}: a key has one or more of "
                f"{', '.join(SCOPES)}"
            )
        if user_id is not None and not 0 < len(user_id) <= 256:
            raise InputError("a user id has 1 to 256 characters")
        key_id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
        row = keys.insert().values(
            id=key_id,
            name=name[:200],
            secret_hmac=self._hmac(secret),
            scopes=" ".join(sorted(set(scopes))),
            user_id=user_id,
            created_us=to_microseconds(at),
        )
        self._database.run(lambda db: db.execute(row))
        self.read()
        return key_id, f"ma_{key_id}_{secret}"

    def revoke(self, key_id: str, *, at: datetime) -> bool:
        """Make a key useless; return False when it is unknown or was revoked before."""
        statement = (
            keys.update()
            .where(keys.c.id == key_id, keys.c.revoked_us.is_(None))
            .values(revoked_us=to_microseconds(at))
        )
        return self._database.run(lambda db: db.execute(statement).rowcount) > 0

    def stored(self) -> list[StoredKey]:
        """Read every key, revoked ones too, oldest first."""
        rows = self._database.rows(keys.select().order_by(keys.c.created_us, keys.c.id))
        return [
            StoredKey(
                id=row.id,
                name=row.name,
                secret_hmac=row.secret_hmac,
                scopes=frozenset(row.scopes.split()),
                user_id=row.user_id,
                created_at=from_microseconds(row.created_us),
                revoked=row.revoked_us is not None,
            )
            for row in rows
        ]

    def caller(self, key: str) -> Caller | None:
        """Return the caller of a key; None when it is unknown or was revoked."""
        match = _KEY.fullmatch(key)
        if match is None:
            return None
        stored = self._keys().get(match[1])
        expected = stored.secret_hmac if stored is not None else "0" * 64
        return (
            self.holder(match[1]) if hmac.compare_digest(expected, self._hmac(match[2])) else None
        )

    def holder(self, key_id: str) -> Caller | None:
        """Return the caller of the key with an id, for a session that was opened with it.

        None when it is unknown or was revoked.
        """
        stored = self._keys().get(key_id)
        if stored is None or stored.revoked:
            return None
        return Caller(stored.id, stored.scopes, stored.user_id)

    @property
    def ever(self) -> bool:
        """Whether there ever was a key: revoking the last one does not open the service."""
        return bool(self._keys())

    def read(self) -> None:
        """Read the keys anew; blocks. Raises `StoreError`s.

        Of two threads that read at once the one that began last knows best.
        """
        now, known = time.monotonic(), {key.id: key for key in self.stored()}
        if now >= self._read_at:
            self._known, self._read_at = known, now

    async def watch(self) -> None:
        """Read the keys twice a second, so that no request waits for it, until cancelled."""
        try:
            while True:
                with suppress(MemAgentError):
                    await asyncio.to_thread(self._read_watched)
                await asyncio.sleep(_FRESH_S / 2)
        finally:
            self._waiting_since = None

    def _read_watched(self) -> None:
        self._waiting_since = self._waiting_since or time.monotonic()
        self._idle.clear()
        try:
            self.read()
            self._waiting_since = None
        finally:
            self._failing = self._waiting_since is not None
            self._idle.set()

    def _keys(self) -> dict[str, StoredKey]:
        now, began = time.monotonic(), self._waiting_since
        if now - self._read_at > _FRESH_S:
            if began is None or now - began <= _FRESH_S:
                self.read()
            elif (
                self._failing
                or not self._idle.wait(max(0.0, began + _PATIENCE_S - now))
                or self._failing
            ):
                raise StoreUnavailable("the API keys cannot be read now; come back in a second")
        return self._known

    def _hmac(self, secret: str) -> str:
        return hmac.new(self._secret, secret.encode(), hashlib.sha256).hexdigest()


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
        statement = (
            claims.update()
            .where(claims.c.worker == worker, claims.c.place.in_(places))
            .values(until_us=text(f"{self._database.now} + {int(LEASE_S * 1e6)}"))
            .returning(claims.c.place)
        )
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
        self.database, self._leases = database, leases

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
            if self.database.insert(db, jobs, row) and self.database.shared:
                self._leases.acquire_within(db, job_place(job_id), worker)
            return db.execute(jobs.select().where(jobs.c.id == job_id)).one()

        return _job(self.database.run(work))

    def find(self, job_id: str) -> tuple[Job, Scope] | None:
        """Return a job and its memory; None when the id is unknown."""
        rows = self.database.rows(jobs.select().where(jobs.c.id == job_id))
        return (_job(rows[0]), _scope(rows[0])) if rows else None

    def of_user(self, user_id: str) -> list[Job]:
        """Return the user's jobs, the newest first, ten thousand at most."""
        begin = (
            Scope(user_id=user_id).model_dump_json().removesuffix('"agent_id":null,"run_id":null}')
        )
        mine = (
            jobs.select()
            .where(func.substr(jobs.c.scope, 1, len(begin)) == begin)
            .order_by(jobs.c.created_us.desc(), jobs.c.id.desc())
            .limit(_MOST_LISTED)
        )
        return [_job(row) for row in self.database.rows(mine)]

    def cancelled(self, job_ids: Collection[str]) -> frozenset[str]:
        """Return those of the jobs that a caller cancelled."""
        known = select(jobs.c.id).where(jobs.c.id.in_(job_ids), jobs.c.error == CANCELLED)
        return frozenset(row.id for row in self.database.rows(known)) if job_ids else frozenset()

    def left(self, worker: str) -> list[tuple[Job, Scope]]:
        """Return unfinished jobs, oldest first, that no other worker holds, with their memories."""
        statement = text(_LEFT.format(now=self.database.now))
        rows = self.database.run(
            lambda db: db.execute(statement, {"worker": worker, "most": _MOST_LEFT}).all()
        )
        return [(_job(row), _scope(row)) for row in rows]

    def has_earlier(self, job_id: str) -> bool:
        """Tell whether an older job of the same kind and memory waits for its first try."""
        return self.database.run(
            lambda db: db.execute(text(_EARLIER), {"id": job_id}).first() is not None
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
        self.database.run(lambda db: db.execute(statement))

    def counts(self) -> dict[str, int]:
        """Return the number of jobs in each state."""
        counted = select(jobs.c.state, func.count().label("number")).group_by(jobs.c.state)
        numbers = {row.state: int(row.number) for row in self.database.rows(counted)}
        return {state.value: numbers.get(state.value, 0) for state in JobState}

    def prune(self, *, before: datetime) -> int:
        """Delete jobs that ended before a moment; return their number."""
        old = jobs.delete().where(
            jobs.c.updated_us < to_microseconds(before), jobs.c.state.not_in(_OPEN_STATES)
        )
        return self.database.run(lambda db: db.execute(old).rowcount)

    def forget_session(self, scope: Scope, session_id: str) -> None:
        """Delete the jobs that name a session of a memory."""
        mine = jobs.delete().where(
            jobs.c.scope == scope.model_dump_json(), jobs.c.session_id == session_id
        )
        self.database.run(lambda db: db.execute(mine))

    def forget_user(self, user_id: str, *, before: datetime, keep_job: str) -> None:
        """Delete the snapshots and jobs that a user had before a moment, but for one job."""

        def work(db: Connection) -> None:
            for table in (snapshots, jobs):
                earlier = table.select().where(table.c.created_us <= to_microseconds(before))
                for row in db.execute(earlier).all():
                    if _scope(row).user_id == user_id and row.id != keep_job:
                        db.execute(table.delete().where(table.c.id == row.id))

        self.database.run(work)


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
