"""What the service itself keeps: API keys, jobs, snapshots' places, claims, and its secret.

For a SQLite store it is a small file beside it (`memory.service.db`), because the
memory's database has one writer that owns the connection; on PostgreSQL the tables lie
beside the journal's, and any number of workers use them. No word that anybody said is
in those written here: jobs name sessions, snapshots name sequences of the journal, keys
are kept as HMACs (`tables` tells of the one exception). A claim is a lease on a place,
by the database's own clock: who holds it says so again and again, and when nobody has
for `LEASE_S` seconds another worker may take it. Every call is short and blocks; the
service makes them in threads. All raise `StoreError`s.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Engine, Table, create_engine, event, func, select, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Row
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import QueuePool, StaticPool

from memagent.client.wire import Job, JobKind, JobState, SnapshotInfo
from memagent.core.errors import StoreUnavailable
from memagent.core.records import Scope
from memagent.journal.postgres.backend import PostgresBackend
from memagent.journal.row_security import SETTING
from memagent.service.data.tables import claims, jobs, keys, meta, prepare_tables, snapshots

T = TypeVar("T")
LEASE_S: Final = 10.0
"""How long a claim holds unless it is renewed."""
CANCELLED: Final = "cancelled"
"""The error of a job that was given up because somebody asked for it."""
_CONNECTIONS: Final = 3
_WAIT_FOR_CONNECTION_S: Final = 10.0
_OPEN_STATES: Final = (JobState.QUEUED.value, JobState.RUNNING.value)
_MOST_LEFT: Final = 500
_MOST_LISTED: Final = 10_000
_NOW: Final = {
    "postgresql": "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)",
    "sqlite": "CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER)",
}
_CLAIM: Final = (
    "INSERT INTO service_claims (place, worker, until_us) VALUES (:place, :worker, {now} + :lease) "
    "ON CONFLICT (place) DO UPDATE SET worker = excluded.worker, until_us = excluded.until_us "
    "WHERE service_claims.worker = excluded.worker OR service_claims.until_us < {now}"
)
_LEFT: Final = (
    "SELECT j.* FROM service_jobs j LEFT JOIN service_claims c ON c.place = 'job/' || j.id "
    "WHERE j.state IN ('queued', 'running') AND (c.place IS NULL OR c.until_us < {now} OR c.worker = :worker) "
    "ORDER BY j.created_us, j.id LIMIT :most"
)
_EARLIER: Final = (
    "SELECT 1 FROM service_jobs o, service_jobs j WHERE j.id = :id AND o.scope = j.scope AND o.kind = j.kind AND o.attempts = 0 "
    "AND o.state IN ('queued', 'running') AND (o.created_us < j.created_us OR (o.created_us = j.created_us AND o.id < j.id)) LIMIT 1"
)


def microseconds(moment: datetime) -> int:
    """Microseconds since 1970."""
    return round(moment.timestamp() * 1_000_000)


def moment_of(us: int) -> datetime:
    """The moment of so many microseconds since 1970."""
    return datetime.fromtimestamp(us / 1_000_000, UTC)


def job_place(job_id: str) -> str:
    """What is claimed by whoever runs a job."""
    return f"job/{job_id}"


class StoredKey:
    """An API key as it is stored."""

    __slots__ = ("created_at", "id", "name", "revoked", "scopes", "secret_hmac", "user_id")

    def __init__(self, row: Row[Any]) -> None:
        self.id: str = row.id
        self.name: str = row.name
        self.secret_hmac: str = row.secret_hmac
        self.scopes: frozenset[str] = frozenset(row.scopes.split())
        self.user_id: str | None = row.user_id
        self.created_at = moment_of(row.created_us)
        self.revoked: bool = row.revoked_us is not None


class ServiceDatabase:
    """The tables, in a SQLite file (a path), on a PostgreSQL server (its URL or backend), or in memory (None).

    Thread-safe.
    """

    def __init__(self, place: Path | str | PostgresBackend | None) -> None:
        self._backend = PostgresBackend(place) if isinstance(place, str) else place
        self._lock = threading.Lock()
        if isinstance(self._backend, PostgresBackend):
            self._engine = _server_engine(self._backend)
        else:
            self._engine = _file_engine(self._backend)
        self._now = _NOW[self._engine.dialect.name]
        try:
            with self._telling("opening"):
                if isinstance(self._backend, PostgresBackend):
                    prepare_tables(self._backend.writing_engine(), self._name)
                else:
                    prepare_tables(self._engine, self._name)
        except BaseException:
            self._engine.dispose()
            raise
        if isinstance(place, Path):
            place.chmod(0o600)

    @property
    def shared(self) -> bool:
        """Whether other workers use it too."""
        return isinstance(self._backend, PostgresBackend)

    @property
    def _name(self) -> str:
        return (
            self._backend.name
            if isinstance(self._backend, PostgresBackend)
            else str(self._backend or "memory")
        )

    def close(self) -> None:
        """Give up the connections."""
        self._engine.dispose()

    def run(
        self, work: Callable[[Connection], T], *, sees: Sequence[str] = (), soon: bool = False
    ) -> T:
        """What a function gives that works in one transaction; it is begun again, once,
        when the connection had died meanwhile.

        `sees` are the owners whom the transaction names. With `soon` the commit does
        not wait for the disk, which is good for what a crash of the server may take
        back.
        """
        with self._telling("using"):
            try:
                return self._once(work, sees, soon)
            except DBAPIError as exc:
                backend, cause = self._backend, exc.orig
                if not isinstance(backend, PostgresBackend) or not isinstance(cause, Exception):
                    raise
                if not backend.worth_another_try(cause):
                    raise
            return self._once(work, sees, soon)

    def _once(self, work: Callable[[Connection], T], sees: Sequence[str], soon: bool) -> T:
        if not self.shared:
            with self._lock, self._engine.begin() as db:
                return work(db)
        with self._engine.begin() as db:
            if soon:
                db.exec_driver_sql("SET LOCAL synchronous_commit = off")
            if sees:
                db.execute(
                    text(f"SELECT set_config('{SETTING}', :seen, true)"), {"seen": ",".join(sees)}
                )
            return work(db)

    @contextmanager
    def _telling(self, doing: str) -> Generator[None]:
        try:
            yield
        except SQLAlchemyError as exc:
            if isinstance(self._backend, PostgresBackend):
                raise self._backend.error(exc, f"{doing} the service's tables at") from exc
            cause = exc.__cause__ or exc
            raise StoreUnavailable(
                f"{doing} the service's database at {self._name} failed: {cause}"
            ) from exc

    def _insert(self, db: Connection, table: Table, row: Mapping[str, Any]) -> bool:
        """Insert a row unless there is one of its key; whether there was none."""
        kind = postgresql if self.shared else sqlite
        return db.execute(kind.insert(table).values(**row).on_conflict_do_nothing()).rowcount > 0

    def secret(self) -> bytes:
        """32 random bytes, made once: what keys are hashed and cursors signed with."""

        def work(db: Connection) -> str:
            self._insert(db, meta, {"key": "secret", "value": secrets.token_hex(32)})
            return db.execute(meta.select().where(meta.c.key == "secret")).one().value

        return bytes.fromhex(self.run(work))

    # -- keys --------------------------------------------------------------------------

    def add_key(
        self,
        key_id: str,
        *,
        name: str,
        secret_hmac: str,
        scopes: Sequence[str],
        user_id: str | None,
        at: datetime,
    ) -> None:
        """Keep a new key."""
        row = {
            "id": key_id,
            "name": name,
            "secret_hmac": secret_hmac,
            "scopes": " ".join(scopes),
            "user_id": user_id,
        }
        self.run(lambda db: db.execute(keys.insert().values(**row, created_us=microseconds(at))))

    def api_keys(self) -> list[StoredKey]:
        """Every key, revoked ones too, oldest first."""
        every = keys.select().order_by(keys.c.created_us, keys.c.id)
        return [StoredKey(row) for row in self.run(lambda db: db.execute(every).all())]

    def revoke_key(self, key_id: str, *, at: datetime) -> bool:
        """Make a key useless; False when there is none, or it was revoked before."""
        statement = keys.update().where(keys.c.id == key_id, keys.c.revoked_us.is_(None))
        return (
            self.run(lambda db: db.execute(statement.values(revoked_us=microseconds(at))).rowcount)
            > 0
        )

    # -- jobs --------------------------------------------------------------------------

    def add_job(
        self,
        job_id: str,
        scope: Scope,
        kind: JobKind,
        *,
        session_id: str | None,
        at: datetime,
        worker: str = "",
    ) -> Job:
        """Keep a queued job, claimed by a worker; the one that is there, whoever has
        it, when its id is known.
        """
        now = microseconds(at)
        row = {
            "id": job_id,
            "scope": scope.model_dump_json(),
            "kind": kind.value,
            "session_id": session_id,
        }
        row |= {"state": JobState.QUEUED.value, "attempts": 0, "created_us": now, "updated_us": now}

        def work(db: Connection) -> Row[Any]:
            if self._insert(db, jobs, row) and self.shared:
                self._claim(db, job_place(job_id), worker)
            return db.execute(jobs.select().where(jobs.c.id == job_id)).one()

        return _job(self.run(work))

    def job(self, job_id: str, scope: Scope | None = None) -> Job | None:
        """A job (of the scope's user, where one is named); None when there is none of
        that id, or it is another's.
        """
        row = self.run(lambda db: db.execute(jobs.select().where(jobs.c.id == job_id)).first())
        return (
            _job(row)
            if row is not None and (scope is None or _scope(row).user_id == scope.user_id)
            else None
        )

    def jobs_of(self, user_id: str) -> list[Job]:
        """The user's jobs, the newest first, ten thousand at most."""
        begin = (
            Scope(user_id=user_id).model_dump_json().removesuffix('"agent_id":null,"run_id":null}')
        )
        mine = jobs.select().where(func.substr(jobs.c.scope, 1, len(begin)) == begin)
        ordered = mine.order_by(jobs.c.created_us.desc(), jobs.c.id.desc()).limit(_MOST_LISTED)
        return [_job(row) for row in self.run(lambda db: db.execute(ordered).all())]

    def cancelled(self, job_ids: Collection[str]) -> frozenset[str]:
        """Those of the jobs that were given up because somebody asked for it."""
        known = select(jobs.c.id).where(jobs.c.id.in_(job_ids), jobs.c.error == CANCELLED)
        return frozenset(self.run(lambda db: db.execute(known).scalars().all()) if job_ids else ())

    def jobs_left(self, worker: str) -> list[tuple[Job, Scope]]:
        """Some jobs that are not through and that no other worker is at, oldest first,
        with whose they are.
        """
        statement = text(_LEFT.format(now=self._now))
        found = self.run(
            lambda db: db.execute(statement, {"worker": worker, "most": _MOST_LEFT}).all()
        )
        return [(_job(row), _scope(row)) for row in found]

    def has_earlier(self, job_id: str) -> bool:
        """Whether an older job of the same kind about the same memory waits for its first try."""
        return self.run(lambda db: db.execute(text(_EARLIER), {"id": job_id}).first()) is not None

    def scope_of_job(self, job_id: str) -> Scope | None:
        """Whose a job is."""
        row = self.run(lambda db: db.execute(jobs.select().where(jobs.c.id == job_id)).first())
        return _scope(row) if row is not None else None

    def move_job(
        self,
        job_id: str,
        state: JobState,
        *,
        at: datetime,
        attempts: int | None = None,
        error: str | None = None,
        result: dict[str, Any] | None = None,
        revive: bool = False,
    ) -> None:
        """Write how far a job is; one that was given up stays so, unless it is to be revived."""
        values: dict[str, Any] = {
            "state": state.value,
            "updated_us": microseconds(at),
            "error": error,
        }
        if attempts is not None:
            values["attempts"] = attempts
        if result is not None:
            values["result"] = json.dumps(result)
        statement = jobs.update().where(jobs.c.id == job_id).values(**values)
        if not revive:
            statement = statement.where(jobs.c.state != JobState.FAILED.value)
        self.run(lambda db: db.execute(statement))

    def job_counts(self) -> dict[str, int]:
        """How many jobs are in each state."""
        counted = select(jobs.c.state, func.count().label("number")).group_by(jobs.c.state)
        found = {
            row.state: int(row.number) for row in self.run(lambda db: db.execute(counted).all())
        }
        return {state.value: found.get(state.value, 0) for state in JobState}

    def prune_jobs(self, *, before: datetime) -> int:
        """Delete jobs that were through before a moment; their number."""
        old = jobs.delete().where(
            jobs.c.updated_us < microseconds(before), jobs.c.state.not_in(_OPEN_STATES)
        )
        return self.run(lambda db: db.execute(old).rowcount)

    # -- claims ------------------------------------------------------------------------

    def claim(self, place: str, worker: str, *, soon: bool = False) -> bool:
        """Take a place, or keep it, for `LEASE_S`; False when another worker has it."""
        return self.run(lambda db: self._claim(db, place, worker), soon=soon)

    def _claim(self, db: Connection, place: str, worker: str) -> bool:
        values = {"place": place, "worker": worker, "lease": int(LEASE_S * 1e6)}
        return db.execute(text(_CLAIM.format(now=self._now)), values).rowcount > 0

    def renew(self, worker: str, places: Collection[str]) -> frozenset[str]:
        """Keep a worker's places for `LEASE_S` from now; those that are its own still."""
        mine = (
            claims.update()
            .where(claims.c.worker == worker, claims.c.place.in_(places))
            .returning(claims.c.place)
        )
        statement = mine.values(until_us=text(f"{self._now} + {int(LEASE_S * 1e6)}"))
        return frozenset(
            self.run(lambda db: db.execute(statement).scalars().all(), soon=True) if places else ()
        )

    def release(self, worker: str, place: str | None = None) -> None:
        """Give a place back, or all of a worker's; harmless when it is another's."""
        which = "" if place is None else "AND place = :place"
        statement = text(f"DELETE FROM service_claims WHERE worker = :worker {which}")
        values = {"worker": worker} | ({} if place is None else {"place": place})
        self.run(lambda db: db.execute(statement, values), soon=place is not None)

    def prune_claims(self) -> None:
        """Delete claims that ended long ago."""
        self.run(
            lambda db: db.execute(
                text(f"DELETE FROM service_claims WHERE until_us < {self._now} - 3600000000")
            )
        )

    # -- snapshots ---------------------------------------------------------------------

    def add_snapshot(self, scope: Scope, info: SnapshotInfo) -> SnapshotInfo:
        """Keep a snapshot's place; the one that is there when its id is known."""
        row = info.model_dump(exclude={"created_at"})
        row |= {"scope": scope.model_dump_json(), "created_us": microseconds(info.created_at)}

        def work(db: Connection) -> SnapshotInfo:
            if self._insert(db, snapshots, row):
                return info
            return _snapshot(db.execute(snapshots.select().where(snapshots.c.id == info.id)).one())

        return self.run(work)

    def snapshots(self, scope: Scope) -> list[SnapshotInfo]:
        """A scope's snapshots, oldest first."""
        mine = snapshots.select().where(snapshots.c.scope == scope.model_dump_json())
        ordered = mine.order_by(snapshots.c.created_us, snapshots.c.id)
        return [_snapshot(row) for row in self.run(lambda db: db.execute(ordered).all())]

    def forget_user(self, user_id: str, *, before: datetime, keep_job: str) -> None:
        """Delete the user's snapshots and finished jobs, but for the job that does it."""

        def work(db: Connection) -> None:
            for table in (snapshots, jobs):
                rows = db.execute(
                    table.select().where(table.c.created_us <= microseconds(before))
                ).all()
                doomed = [
                    row.id for row in rows if _scope(row).user_id == user_id and row.id != keep_job
                ]
                for one in doomed:
                    db.execute(table.delete().where(table.c.id == one))

        self.run(work)

    def scrub_responses(self) -> None:
        """Free the space of deleted responses, as the journal does it with its words."""
        if isinstance(self._backend, PostgresBackend):
            how = "FULL" if self._backend.scrub_by == "rewrite" else "INDEX_CLEANUP ON"
            with self._telling("scrubbing"), self._engine.connect() as db:
                driver: Any = db.connection.driver_connection
                try:
                    driver.execute(f"VACUUM ({how}) service_responses")
                except self._backend.driver_error as exc:
                    raise self._backend.error(exc, "scrubbing the service's tables at") from exc


def _server_engine(backend: PostgresBackend) -> Engine:
    engine = create_engine(
        "postgresql+psycopg://",
        creator=backend.connect,
        poolclass=QueuePool,
        pool_size=_CONNECTIONS,
        max_overflow=0,
        pool_timeout=_WAIT_FOR_CONNECTION_S,
        pool_use_lifo=True,
        use_native_hstore=False,
    )

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:  # pyright: ignore[reportUnusedFunction]
        connection.exec_driver_sql("BEGIN")

    return engine


def _file_engine(path: Path | None) -> Engine:
    options = {"timeout": 10.0, "isolation_level": None, "check_same_thread": False}
    if path is None:
        engine = create_engine("sqlite://", poolclass=StaticPool, connect_args=options)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        engine = create_engine(f"sqlite:///{path}", connect_args=options)
        event.listen(engine, "connect", _prepare)

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:  # pyright: ignore[reportUnusedFunction]
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def _prepare(connection: Any, _: object) -> None:
    for pragma in (
        "journal_mode = WAL",
        "synchronous = FULL",
        "secure_delete = ON",
        "mmap_size = 0",
    ):
        connection.execute(f"PRAGMA {pragma}")


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
        created_at=moment_of(row.created_us),
        updated_at=moment_of(row.updated_us),
    )


def _snapshot(row: Row[Any]) -> SnapshotInfo:
    return SnapshotInfo(
        id=row.id,
        name=row.name,
        digest=row.digest,
        seq=row.seq,
        items=row.items,
        created_at=moment_of(row.created_us),
    )
