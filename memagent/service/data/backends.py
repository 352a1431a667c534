"""The two kinds of database that hold the service's tables, with the same methods.

`SqliteTables` is a file of its own beside a SQLite store (`memory.service.db`), because
the memory's database has one writer that owns the connection; without a path it is
memory. `PostgresTables` lies beside the journal's tables, and any number of workers
share it. `ServiceDatabase` uses either. Both are thread-safe; `shared` says whether other
workers use the database too, `now` is SQL for its own clock in microseconds since 1970.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, Engine, Table, create_engine, event, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import StaticPool

from memagent.core.errors import InputError, StoreError, StoreUnavailable
from memagent.journal.postgres.backend import PostgresBackend
from memagent.journal.postgres.pool import pooled_engine
from memagent.journal.revision import SETTING
from memagent.service.data.tables import prepare_tables

_CONNECTIONS: Final = 3
_PRAGMAS: Final = (
    "journal_mode = WAL",
    "synchronous = FULL",
    "secure_delete = ON",
    "mmap_size = 0",
)


class SqliteTables:
    """The tables in a SQLite file, or in memory."""

    shared = False
    now = "CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER)"

    def __init__(self, path: Path | None) -> None:
        self._path, self._lock = path, threading.Lock()
        options = {"timeout": 10.0, "isolation_level": None, "check_same_thread": False}
        if path is None:
            self.engine = create_engine("sqlite://", poolclass=StaticPool, connect_args=options)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.engine = create_engine(f"sqlite:///{path}", connect_args=options)
            event.listen(self.engine, "connect", _set_pragmas)
        begin_with(self.engine, "BEGIN IMMEDIATE")

    def prepare(self) -> None:
        """Create or migrate the tables; only the owner may read the file."""
        prepare_tables(self.engine, str(self._path or "memory"))
        if self._path is not None:
            self._path.chmod(0o600)

    @contextmanager
    def transaction(
        self,
        owners: Sequence[str],  # noqa: ARG002  # interface
        *,
        durable: bool,  # noqa: ARG002  # interface
    ) -> Generator[Connection]:
        """Open a transaction, one at a time; it is always durable, and shows every owner."""
        with self._lock, self.engine.begin() as db:
            yield db

    def insert(self, table: Table) -> sqlite.Insert:
        """Start an INSERT."""
        return sqlite.insert(table)

    def error(self, exc: SQLAlchemyError, doing: str) -> StoreUnavailable:
        """Name the file and the cause."""
        place, cause = self._path or "memory", exc.__cause__ or exc
        return StoreUnavailable(f"{doing} the service's database at {place} failed: {cause}")

    def worth_another_try(self, exc: DBAPIError) -> bool:  # noqa: ARG002  # interface
        """Return False: there is no connection to lose."""
        return False

    def scrub(self) -> None:
        """Rebuild the file, and empty the write-ahead log, which keeps older pages."""
        if self._path is None:
            return
        with self._lock, self.engine.connect() as db:
            driver: Any = db.connection.driver_connection
            driver.execute("VACUUM")
            driver.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def scrub_responses(self) -> None:
        """Do nothing: responses are not stored here."""

    def close(self) -> None:
        """Close the connections, when the transaction of another thread has ended.

        A database in memory has one connection; SQLite would crash if it were closed in use.
        """
        with self._lock:
            self.engine.dispose()


class PostgresTables:
    """The tables on a PostgreSQL server."""

    shared = True
    now = "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)"

    def __init__(self, backend: PostgresBackend) -> None:
        self._backend = backend
        self.engine = pooled_engine(backend.connect, _CONNECTIONS)
        begin_with(self.engine, "BEGIN")

    def prepare(self) -> None:
        """Create or migrate the tables; other processes wait meanwhile."""
        prepare_tables(self.engine, self._backend.name)

    @contextmanager
    def transaction(self, owners: Sequence[str], *, durable: bool) -> Generator[Connection]:
        """Open a transaction that sees the responses of these owners alone."""
        with self.engine.begin() as db:
            if not durable:
                db.exec_driver_sql("SET LOCAL synchronous_commit = off")
            if owners:
                db.execute(
                    text(f"SELECT set_config('{SETTING}', :seen, true)"), {"seen": ",".join(owners)}
                )
            yield db

    def insert(self, table: Table) -> postgresql.Insert:
        """Start an INSERT."""
        return postgresql.insert(table)

    def error(self, exc: Exception, doing: str) -> StoreError | InputError:
        """Translate the error as the journal does."""
        return self._backend.error(exc, f"{doing} the service's tables at")

    def worth_another_try(self, exc: DBAPIError) -> bool:
        """Tell whether the connection died, or another transaction was in the way."""
        return isinstance(exc.orig, Exception) and self._backend.worth_another_try(exc.orig)

    def scrub(self) -> None:
        """Vacuum the tables that name users and sessions."""
        with self.engine.connect() as db:
            driver: Any = db.connection.driver_connection
            try:
                driver.execute("VACUUM (FULL) service_jobs")
                driver.execute("VACUUM (FULL) service_snapshots")
            except self._backend.driver_error as exc:
                raise self.error(exc, "scrubbing") from exc

    def scrub_responses(self) -> None:
        """Vacuum the table of responses, as the journal does with its payloads."""
        how = "FULL" if self._backend.scrub_by == "rewrite" else "INDEX_CLEANUP ON"
        with self.engine.connect() as db:
            driver: Any = db.connection.driver_connection
            try:
                driver.execute(f"VACUUM ({how}) service_responses")
            except self._backend.driver_error as exc:
                raise self.error(exc, "scrubbing") from exc

    def close(self) -> None:
        """Close the connections; one in use closes when it comes back."""
        self.engine.dispose()


def begin_with(engine: Engine, statement: str) -> None:
    """Begin every transaction of an engine with a statement, since its driver begins none."""

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:  # pyright: ignore[reportUnusedFunction]
        connection.exec_driver_sql(statement)


def _set_pragmas(connection: Any, _: object) -> None:
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")
