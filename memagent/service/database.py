"""What the service itself keeps: API keys, jobs, snapshots' places, and its secret. A small database beside the memory's.

No word that anybody said is in it: jobs name sessions, snapshots name sequences of the journal, keys are kept as HMACs. So erasing a user
means deleting rows here, not scrubbing pages. Every call is short and blocks; the service makes those that write in a thread.
The surprise: it is a file of its own (`memory.service.db`), because the memory's database has one writer that owns the connection.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from sqlalchemy import BigInteger, Column, Engine, Integer, MetaData, String, Table, Text, create_engine, event
from sqlalchemy.engine import Row
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.pool import StaticPool

from memagent.client.wire import Job, JobKind, JobState, SnapshotInfo
from memagent.core.errors import StoreUnavailable
from memagent.core.records import Scope

_metadata = MetaData()
_meta = Table("service_meta", _metadata, Column("key", String(64), primary_key=True), Column("value", Text))
_keys = Table(
    "api_keys",
    _metadata,
    Column("id", String(64), primary_key=True),
    Column("name", Text, nullable=False),
    Column("secret_hmac", String(64), nullable=False),
    Column("scopes", Text, nullable=False),
    Column("user_id", Text),
    Column("created_us", BigInteger, nullable=False),
    Column("revoked_us", BigInteger),
)
_jobs = Table(
    "jobs",
    _metadata,
    Column("id", String(64), primary_key=True),
    Column("scope", Text, nullable=False, index=True),
    Column("kind", String(16), nullable=False),
    Column("state", String(16), nullable=False, index=True),
    Column("session_id", Text),
    Column("attempts", Integer, nullable=False),
    Column("error", String(64)),
    Column("result", Text),
    Column("created_us", BigInteger, nullable=False),
    Column("updated_us", BigInteger, nullable=False),
)
_snapshots = Table(
    "snapshots",
    _metadata,
    Column("id", String(64), primary_key=True),
    Column("scope", Text, nullable=False, index=True),
    Column("name", Text, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("items", Integer, nullable=False),
    Column("created_us", BigInteger, nullable=False),
)
_OPEN_STATES: Final = (JobState.QUEUED.value, JobState.RUNNING.value)


def microseconds(moment: datetime) -> int:
    """Microseconds since 1970."""
    return round(moment.timestamp() * 1_000_000)


def moment_of(us: int) -> datetime:
    """The moment of so many microseconds since 1970."""
    return datetime.fromtimestamp(us / 1_000_000, UTC)


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
    """The tables, in a SQLite file, in memory (`None`), or at a SQLAlchemy URL. Thread-safe."""

    def __init__(self, place: Path | str | None) -> None:
        self._lock = threading.Lock()
        if isinstance(place, str):
            self._engine: Engine = create_engine(place)
        elif place is None:
            self._engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            self._engine = create_engine(f"sqlite:///{place}", connect_args={"timeout": 10.0})
            event.listen(self._engine, "connect", _prepare)
        try:
            _metadata.create_all(self._engine)
        except SQLAlchemyError as exc:
            self._engine.dispose()
            raise StoreUnavailable(f"the service's database at {place} cannot be used: {exc.__cause__ or exc}") from exc
        if isinstance(place, Path):
            place.chmod(0o600)

    def close(self) -> None:
        """Give up the connections."""
        self._engine.dispose()

    def secret(self) -> bytes:
        """32 random bytes, made once: what keys are hashed and cursors signed with."""
        with self._lock, self._engine.begin() as db:
            found = db.execute(_meta.select().where(_meta.c.key == "secret")).first()
            if found is not None:
                return bytes.fromhex(found.value)
            value = secrets.token_hex(32)
            try:
                with db.begin_nested():
                    db.execute(_meta.insert().values(key="secret", value=value))
            except IntegrityError:  # another process was first
                return bytes.fromhex(db.execute(_meta.select().where(_meta.c.key == "secret")).one().value)
            return bytes.fromhex(value)

    # -- keys --------------------------------------------------------------------------------------------------

    def add_key(
        self, key_id: str, *, name: str, secret_hmac: str, scopes: Sequence[str], user_id: str | None, at: datetime
    ) -> None:
        """Keep a new key."""
        values = {"id": key_id, "name": name, "secret_hmac": secret_hmac, "scopes": " ".join(scopes)}
        with self._lock, self._engine.begin() as db:
            db.execute(_keys.insert().values(**values, user_id=user_id, created_us=microseconds(at)))

    def api_keys(self) -> list[StoredKey]:
        """Every key, revoked ones too, oldest first."""
        with self._lock, self._engine.connect() as db:
            return [StoredKey(row) for row in db.execute(_keys.select().order_by(_keys.c.created_us, _keys.c.id))]

    def revoke_key(self, key_id: str, *, at: datetime) -> bool:
        """Make a key useless; False when there is none, or it was revoked before."""
        statement = _keys.update().where(_keys.c.id == key_id, _keys.c.revoked_us.is_(None))
        with self._lock, self._engine.begin() as db:
            return db.execute(statement.values(revoked_us=microseconds(at))).rowcount > 0

    # -- jobs --------------------------------------------------------------------------------------------------

    def add_job(self, job_id: str, scope: Scope, kind: JobKind, *, session_id: str | None, at: datetime) -> Job:
        """Keep a queued job; the one that is there when its id is known."""
        now = microseconds(at)
        values = {"id": job_id, "scope": scope.model_dump_json(), "kind": kind.value, "session_id": session_id}
        with self._lock, self._engine.begin() as db:
            found = db.execute(_jobs.select().where(_jobs.c.id == job_id)).first()
            if found is None:
                row = {**values, "state": JobState.QUEUED.value, "attempts": 0, "created_us": now, "updated_us": now}
                db.execute(_jobs.insert().values(**row))
                found = db.execute(_jobs.select().where(_jobs.c.id == job_id)).one()
        return _job(found)

    def job(self, job_id: str, scope: Scope) -> Job | None:
        """A job of a scope; None when there is none of that id, or it is another's."""
        with self._lock, self._engine.connect() as db:
            row = db.execute(_jobs.select().where(_jobs.c.id == job_id)).first()
        return _job(row) if row is not None and _scope(row).user_id == scope.user_id else None

    def open_jobs(self) -> list[tuple[Job, Scope]]:
        """Jobs that are not through, oldest first, with whose they are."""
        with self._lock, self._engine.connect() as db:
            rows = db.execute(_jobs.select().where(_jobs.c.state.in_(_OPEN_STATES)).order_by(_jobs.c.created_us)).all()
        return [(_job(row), _scope(row)) for row in rows]

    def scope_of_job(self, job_id: str) -> Scope | None:
        """Whose a job is."""
        with self._lock, self._engine.connect() as db:
            row = db.execute(_jobs.select().where(_jobs.c.id == job_id)).first()
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
    ) -> None:
        """Write how far a job is."""
        values: dict[str, Any] = {"state": state.value, "updated_us": microseconds(at), "error": error}
        if attempts is not None:
            values["attempts"] = attempts
        if result is not None:
            values["result"] = json.dumps(result)
        with self._lock, self._engine.begin() as db:
            db.execute(_jobs.update().where(_jobs.c.id == job_id).values(**values))

    def job_counts(self) -> dict[str, int]:
        """How many jobs are in each state."""
        from sqlalchemy import func, select

        with self._lock, self._engine.connect() as db:
            counted = select(_jobs.c.state, func.count().label("number")).group_by(_jobs.c.state)
            found = {row.state: int(row.number) for row in db.execute(counted)}
        return {state.value: found.get(state.value, 0) for state in JobState}

    # -- snapshots ---------------------------------------------------------------------------------------------

    def add_snapshot(self, scope: Scope, info: SnapshotInfo) -> SnapshotInfo:
        """Keep a snapshot's place; the one that is there when its id is known."""
        row = info.model_dump(exclude={"created_at"})
        with self._lock, self._engine.begin() as db:
            found = db.execute(_snapshots.select().where(_snapshots.c.id == info.id)).first()
            if found is not None:
                return _snapshot(found)
            values = {**row, "scope": scope.model_dump_json(), "created_us": microseconds(info.created_at)}
            db.execute(_snapshots.insert().values(**values))
        return info

    def snapshots(self, scope: Scope) -> list[SnapshotInfo]:
        """A scope's snapshots, oldest first."""
        mine = _snapshots.c.scope == scope.model_dump_json()
        order = (_snapshots.c.created_us, _snapshots.c.id)
        with self._lock, self._engine.connect() as db:
            return [_snapshot(row) for row in db.execute(_snapshots.select().where(mine).order_by(*order))]

    def forget_user(self, user_id: str, *, before: datetime, keep_job: str) -> None:
        """Delete the user's snapshots and finished jobs, but for the job that does it."""
        with self._lock, self._engine.begin() as db:
            for table in (_snapshots, _jobs):
                rows = db.execute(table.select().where(table.c.created_us <= microseconds(before))).all()
                doomed = [row.id for row in rows if _scope(row).user_id == user_id and row.id != keep_job]
                for one in doomed:
                    db.execute(table.delete().where(table.c.id == one))

    def prune_jobs(self, *, before: datetime) -> int:
        """Delete jobs that were through before a moment; their number."""
        old = _jobs.delete().where(_jobs.c.updated_us < microseconds(before), _jobs.c.state.not_in(_OPEN_STATES))
        with self._lock, self._engine.begin() as db:
            return db.execute(old).rowcount


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
        id=row.id, name=row.name, digest=row.digest, seq=row.seq, items=row.items, created_at=moment_of(row.created_us)
    )


def _prepare(connection: Any, _: object) -> None:
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "secure_delete = ON", "mmap_size = 0"):
        connection.execute(f"PRAGMA {pragma}")


def prune_responses(path: Path, *, before: datetime) -> int:
    """Delete first responses kept in the journal's database for idempotency keys that are older than a moment; their number.

    A short transaction of its own, a thousand rows at a time, so that the journal's writer never waits long.
    """
    engine = create_engine(f"sqlite:///{path}", connect_args={"timeout": 10.0})
    event.listen(engine, "connect", _prepare_guest)
    statement = (
        "DELETE FROM idempotency WHERE (scope_id, key) IN "
        "(SELECT scope_id, key FROM idempotency WHERE created_us < ? LIMIT 1000)"
    )
    total = 0
    try:
        while True:
            with engine.begin() as db:
                gone = db.exec_driver_sql(statement, (microseconds(before),)).rowcount
            total += gone
            if gone < 1000:
                return total
    except SQLAlchemyError as exc:
        raise StoreUnavailable(f"old responses could not be deleted: {exc.__cause__ or exc}") from exc
    finally:
        engine.dispose()


def _prepare_guest(connection: Any, _: object) -> None:
    for pragma in ("secure_delete = ON", "wal_autocheckpoint = 0", "mmap_size = 0"):
        connection.execute(f"PRAGMA {pragma}")
