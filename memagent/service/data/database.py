"""The service's own tables: API keys, jobs, snapshots, leases, and the service's secret.

They lie in a small file beside a SQLite store and beside the journal's tables on
PostgreSQL (`backends`). The tables hold no text of any user: jobs name sessions,
snapshots name sequences of the journal, keys are kept as HMACs (`tables` tells of the
one exception). Each table has its own class (`JobTable`, `KeyRing`, `LeaseTable`,
`SnapshotTable`) over `ServiceDatabase.run`. Every call is short and blocks; the service
makes them in threads. All raise `StoreError`s.

The service's own tables, and bringing a database to them.

On PostgreSQL they lie beside the journal's, in the same schema, under names of their own;
for a SQLite store they are a separate file. `service_responses` exists on PostgreSQL
alone, where workers share their responses. It is the one table with text of users, so it
stands behind row-level security like the journal's: a transaction names the users it is
about (`owner_digest`). A new database is made from this metadata and stamped
with its revision.

The two kinds of database that hold the service's tables, with the same methods.

`SqliteTables` is a file of its own beside a SQLite store (`memory.service.db`), because
the memory's database has one writer that owns the connection; without a path it is
memory. `PostgresTables` lies beside the journal's tables, and any number of workers
share it. `ServiceDatabase` uses either. Both are thread-safe; `shared` says whether other
workers use the database too, `now` is SQL for its own clock in microseconds since 1970.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from sqlalchemy import (
    DDL,
    BigInteger,
    Column,
    Connection,
    Engine,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Row,
    Select,
    String,
    Table,
    Text,
    create_engine,
    event,
    insert,
    inspect,
    select,
    text,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import StaticPool

from memagent.core.errors import InputError, StoreError, StoreUnavailable
from memagent.journal.postgres import PostgresBackend, close_pool, pooled_engine
from memagent.journal.reader import row_security
from memagent.journal.rows import NAMED, SCHEMA_LOCK, SETTING

REVISION: Final = "0001"
"""The revision that this metadata describes."""
VERSION_TABLE: Final = "service_version"

metadata = MetaData()
shared = MetaData()
"""Tables that only a database of many workers has."""
version = Table(
    VERSION_TABLE,
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name=f"{VERSION_TABLE}_pkc"),
)
meta = Table(
    "service_meta", metadata, Column("key", String(64), primary_key=True), Column("value", Text)
)
keys = Table(
    "service_keys",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("name", Text, nullable=False),
    Column("secret_hmac", String(64), nullable=False),
    Column("scopes", Text, nullable=False),
    Column("user_id", Text),
    Column("created_us", BigInteger, nullable=False),
    Column("revoked_us", BigInteger),
)
jobs = Table(
    "service_jobs",
    metadata,
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
snapshots = Table(
    "service_snapshots",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("scope", Text, nullable=False, index=True),
    Column("name", Text, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("items", Integer, nullable=False),
    Column("created_us", BigInteger, nullable=False),
)
claims = Table(
    "service_claims",
    metadata,
    Column("place", String(160), primary_key=True),
    Column("worker", String(64), nullable=False, index=True),
    Column("until_us", BigInteger, nullable=False),
)
"""Leases: the worker that alone works on a place, and until when."""
responses = Table(
    "service_responses",
    shared,
    Column("owner", String(64), primary_key=True),
    Column("place", String(160), primary_key=True),
    Column("body_digest", String(64), nullable=False),
    Column("response_json", Text, nullable=False),
    Column("until_us", BigInteger, nullable=False, index=True),
)
"""First responses to requests that wrote nothing, for a while."""

DUE: Final = "until_us < CAST(extract(epoch FROM statement_timestamp()) * 1000000 AS bigint)"
"""Of `service_responses` on a server: whether a row is past its time."""
_SEEN: Final = f"owner = ANY ({NAMED}) OR ('*' = ANY ({NAMED}) AND {DUE})"
for _statement in row_security("service_responses", "named_owners", _SEEN):
    event.listen(shared, "after_create", DDL(_statement).execute_if(dialect="postgresql"))


def owner_digest(user_id: str) -> str:
    """Return the name of a user for transactions about the stored responses."""
    return hashlib.sha256(f"memagent/owner\x00{user_id}".encode()).hexdigest()


def prepare_tables(engine: Engine, place: str) -> None:
    """Create the tables where there are none; other processes that do so wait.

    Raises `StoreError` for tables of a newer service.
    """
    with engine.begin() as connection:
        server = engine.dialect.name == "postgresql"
        if server:
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({SCHEMA_LOCK})")
        revision = None
        if VERSION_TABLE in inspect(connection).get_table_names():
            revision = connection.execute(select(version.c.version_num)).scalar()
        if revision is None:
            for tables in (version.metadata, metadata, *((shared,) if server else ())):
                tables.create_all(connection)
            connection.execute(insert(version).values(version_num=REVISION))
        elif revision != REVISION:
            raise StoreError(
                f"the service's tables at {place} were made by a newer memagent (schema "
                f"revision {revision}); this version knows revisions "
                f"up to {REVISION}: install the newer version"
            )


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
    faults = (SQLAlchemyError,)
    insert = staticmethod(sqlite.insert)
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

    def error(self, exc: Exception, doing: str) -> StoreUnavailable:
        """Name the file and the cause."""
        place, cause = self._path or "memory", exc.__cause__ or exc
        return StoreUnavailable(f"{doing} the service's database at {place} failed: {cause}")

    def worth_another_try(self, exc: DBAPIError) -> bool:  # noqa: ARG002  # interface
        """Return False: there is no connection to lose."""
        return False

    def scrub(self, *, responses: bool) -> None:  # noqa: ARG002  # none are stored here
        """Rebuild the file, and empty the write-ahead log, which keeps older pages."""
        if self._path is None:
            return
        with self._lock, self.engine.connect() as db:
            driver: Any = db.connection.driver_connection
            driver.execute("VACUUM")
            driver.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        """Close the connections, when the transaction of another thread has ended.

        A database in memory has one connection; SQLite would crash if it were closed in use.
        """
        with self._lock:
            self.engine.dispose()


class PostgresTables:
    """The tables on a PostgreSQL server."""

    shared = True
    insert = staticmethod(postgresql.insert)
    now = "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)"

    def __init__(self, backend: PostgresBackend) -> None:
        self._backend = backend
        self.faults = (SQLAlchemyError, *backend.faults)
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

    def error(self, exc: Exception, doing: str) -> StoreError | InputError:
        """Translate the error as the journal does."""
        return self._backend.error(exc, f"{doing} the service's tables at")

    def worth_another_try(self, exc: DBAPIError) -> bool:
        """Tell whether the connection died, or another transaction was in the way."""
        return isinstance(exc.orig, Exception) and self._backend.worth_another_try(exc.orig)

    def scrub(self, *, responses: bool) -> None:
        """Vacuum the tables that name users and sessions, or that of the responses.

        The responses are vacuumed as the journal does with its payloads.
        """
        if responses:
            rewrites = self._backend.scrub_by == "rewrite"
            self._vacuum("FULL" if rewrites else "INDEX_CLEANUP ON", "service_responses")
        else:
            self._vacuum("FULL", "service_jobs", "service_snapshots")

    def _vacuum(self, how: str, *tables: str) -> None:
        with self.engine.connect() as db:
            driver: Any = db.connection.driver_connection
            for table in tables:
                driver.execute(f"VACUUM ({how}) {table}")

    def close(self) -> None:
        """Close the connections; one in use closes when it comes back."""
        close_pool(self.engine)


def begin_with(engine: Engine, statement: str) -> None:
    """Begin every transaction of an engine with a statement, since its driver begins none."""

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:  # pyright: ignore[reportUnusedFunction]
        connection.exec_driver_sql(statement)


def _set_pragmas(connection: Any, _: object) -> None:
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")


T = TypeVar("T")


class ServiceDatabase:
    """The database of the service. Thread-safe.

    A SQLite file (a path), a PostgreSQL server (its URL or backend), or memory (None).
    """

    def __init__(self, place: Path | str | PostgresBackend | None) -> None:
        server = PostgresBackend(place) if isinstance(place, str) else place
        self._backend = (
            PostgresTables(server) if isinstance(server, PostgresBackend) else SqliteTables(server)
        )
        # Whether other workers use the database too.
        self.shared = self._backend.shared
        # SQL for the database's own clock, in microseconds since 1970.
        self.now = self._backend.now
        try:
            with self._translated("opening"):
                self._backend.prepare()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connections; a transaction of another thread ends first."""
        self._backend.close()

    def run(
        self, work: Callable[[Connection], T], *, owners: Sequence[str] = (), durable: bool = True
    ) -> T:
        """Run a function in one transaction and return its result.

        The transaction is begun again, once, when its connection had died. It sees the
        stored responses of `owners` alone. Without `durable` the commit does not wait
        for the disk: use that for what a crash of the server may take back.
        """
        with self._translated("using"):
            try:
                with self._backend.transaction(owners, durable=durable) as db:
                    return work(db)
            except DBAPIError as exc:
                if not self._backend.worth_another_try(exc):
                    raise
            with self._backend.transaction(owners, durable=durable) as db:
                return work(db)

    def rows(self, query: Select[*tuple[Any, ...]]) -> Sequence[Row[*tuple[Any, ...]]]:
        """Return all rows of a query."""
        return self.run(lambda db: db.execute(query).all())

    def insert(self, db: Connection, table: Table, row: Mapping[str, Any]) -> bool:
        """Insert a row unless its key exists; return whether it was inserted."""
        statement = self._backend.insert(table).values(**row).on_conflict_do_nothing()
        return db.execute(statement).rowcount > 0

    def secret(self) -> bytes:
        """Return the 32 bytes that keys are hashed and cursors signed with; made once."""

        def work(db: Connection) -> str:
            self.insert(db, meta, {"key": "secret", "value": secrets.token_hex(32)})
            return db.execute(meta.select().where(meta.c.key == "secret")).one().value

        return bytes.fromhex(self.run(work))

    def scrub(self, *, responses: bool = False) -> None:
        """Take deleted rows out of the files, the write-ahead log included.

        With `responses` it frees the space of deleted responses instead.
        """
        with self._translated("scrubbing"):
            self._backend.scrub(responses=responses)

    @contextmanager
    def _translated(self, doing: str) -> Generator[None]:
        try:
            yield
        except self._backend.faults as exc:
            raise self._backend.error(exc, doing) from exc
