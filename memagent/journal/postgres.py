"""The journal on a PostgreSQL server: its backend and the journal itself.

Any number of processes write, so nothing about the end of a log is remembered.

A transaction names its scopes (`reader`), takes one advisory lock a scope, always in
the same order, and only then reads their ends: one round trip. Whoever comes second
waits for the first one's commit and is then decided against what it wrote. Locks are
taken before anything is read, so a lock's holder never waits for another lock and
nobody deadlocks. Journals of one process share a pool of reading connections (`pool`);
with the writer's, a process holds `pool` + 1 at most.

`PostgresJournal` is one log, written by any number of processes and machines. An append
takes the advisory lock of its scope, is decided against what is there, and is
acknowledged after the server has made it durable. Every read asks for the end of the
log first, so a process sees what another one has acknowledged. While the server is away
every call raises `StoreUnavailable`, which is retryable, and the next call after its
return works. The surprise: `StoreUnavailable` may say that it is unknown whether the
entries were written, where the server was lost in the very commit and did not come
back. Repeat such a request with its idempotency key.

Statements go to the driver. The pool alone is SQLAlchemy's: it waits for a free
connection, replaces dead ones and gives up a transaction that was left open.
This is the one place that knows psycopg, and that translates its errors. A URL is
libpq's own (`postgresql://user@host:5432/database?sslmode=verify-full`); what it leaves
out comes from libpq's variables, `~/.pgpass` and service file. Passwords never show:
`label` names user, host, port and database alone. Every connection runs without
automatic transactions, waits for nothing longer than it has to, and insists on
`synchronous_commit`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Generator, Hashable, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from urllib.parse import urlsplit, urlunsplit

from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry, QueuePool

from memagent.core.errors import (
    ConfigError,
    InputError,
    MissingExtra,
    StoreCorrupt,
    StoreError,
    StoreReadOnly,
    StoreUnavailable,
)
from memagent.core.records import system_clock
from memagent.journal.backend import (
    ADVICE,
    ERASURE_KEY,
    POSTGRES,
    VECTORS_ONLY,
    WHOLE_STORE,
    Backend,
    DriverCursor,
    OpenParts,
    Statements,
)
from memagent.journal.open_database import DatabaseJournal
from memagent.journal.proof.audit import NO_SEAL, Noted, Seal
from memagent.journal.rows import (
    SCHEMA_LOCK,
    SETTING,
    ReadConnection,
    ScopeKey,
    Tip,
    first_chain,
    scope_digest,
)
from memagent.protocols import Clock

if TYPE_CHECKING:
    import psycopg


SCHEMES: Final = ("postgresql://", "postgres://", "postgresql+psycopg://")
"""The beginnings of URLs that mean a PostgreSQL server."""
_DEFAULTS: Final[Mapping[str, str]] = {
    "application_name": "memagent",
    "connect_timeout": "5",
    "keepalives_idle": "30",
    "tcp_user_timeout": "15000",
}
_SESSION: Final = (
    "SET lock_timeout = '10s'; SET idle_in_transaction_session_timeout = '60s'; SET "
    "client_encoding = 'UTF8'; "
    "SELECT set_config('synchronous_commit', 'on', false) WHERE "
    "current_setting('synchronous_commit') = 'off'"
)
# What an error of the server is for the caller, by the beginning of its SQLSTATE.
_KINDS: Final[Mapping[type[StoreError | InputError], tuple[str, ...]]] = {
    StoreCorrupt: ("XX001", "XX002", "42P01", "42703"),
    StoreReadOnly: ("25006", "42501"),
    InputError: ("22", "54"),
    StoreUnavailable: ("08", "53", "57", "58", "55P03", "40", "25P03"),
}
_LET_IN: Final = (
    "authentication failed",
    "no password supplied",
    "no pg_hba.conf entry",
    "not permitted to log in",
    "permission denied for database",
    'role ".*" does not exist',
)
# Answers of a server that will not let us in however often it is asked, and what to do.
_REFUSALS: Final = (
    ('database ".*" does not exist', "make it first:  createdb NAME"),
    (
        "|".join(_LET_IN),
        "check user and password; libpq reads the password from PGPASSWORD or ~/.pgpass",
    ),
)


def is_postgres_url(place: object) -> bool:
    """Tell whether a text names a PostgreSQL server and not a file."""
    return isinstance(place, str) and place.startswith(SCHEMES)


def psycopg_module() -> Any:
    """Return the driver. Raises `MissingExtra` when it is not installed."""
    try:
        import psycopg
    except ImportError as exc:
        raise MissingExtra("postgres", needed_for="a memory in PostgreSQL", cause=str(exc)) from exc
    return psycopg


def parameters_of(url: str) -> dict[str, Any]:
    """Read the parameters of libpq from a URL.

    Raises `ConfigError`, which does not repeat the URL, for it may hold a password.
    """
    if not is_postgres_url(url):
        raise ConfigError("a PostgresJournal takes a URL like postgresql://user@host:5432/database")
    driver = psycopg_module()
    text = "postgresql://" + url.partition("://")[2]
    try:
        return driver.conninfo.conninfo_to_dict(text)
    except driver.Error:
        raise ConfigError(
            "this is not a URL of PostgreSQL; write postgresql://user@host:5432/database, "
            "special characters as %XX"
        ) from None


def label(url: str) -> str:
    """Return the server and database of a URL, for messages and logs."""
    parts = parameters_of(url)
    host = parts.get("host", "")
    user = f"{parts['user']}@" if "user" in parts else ""
    port = f":{parts['port']}" if "port" in parts else ""
    at_socket = f"?host={host}" if host.startswith("/") else ""
    return (
        f"postgresql://{user}{'' if at_socket else host}{port}/{parts.get('dbname', '')}{at_socket}"
    )


def without_password(url: str) -> str:
    """Return the URL without a password, wherever in it that stands."""
    parts = urlsplit(url)
    login, at, host = parts.netloc.rpartition("@")
    query = "&".join(
        part
        for part in parts.query.split("&")
        if not part.startswith(("password=", "sslpassword="))
    )
    return urlunsplit(parts._replace(netloc=f"{login.partition(':')[0]}{at}{host}", query=query))


def connect(url: str) -> psycopg.Connection[Any]:
    """Open a connection whose transactions begin by statements and whose commits are durable.

    Raises `psycopg.Error`.
    """
    driver = psycopg_module()
    connection = driver.connect(**(_DEFAULTS | parameters_of(url)), autocommit=True)
    try:
        connection.execute(_SESSION)
    except BaseException:
        connection.close()
        raise
    return connection


def refuse_transaction_pooling(url: str) -> None:
    """Raise `ConfigError` where a pooler gives each transaction another session.

    Two connections that are open at once have two sessions, unless a pooler is between
    that lends its own (PgBouncer with `pool_mode = transaction`). Settings of a session,
    durable commits among them, and prepared statements would go astray there. A server
    that cannot be reached is left to whoever opens it.
    """
    driver = psycopg_module()
    ask = "SELECT pg_backend_pid()"
    try:
        with (
            driver.connect(**(_DEFAULTS | parameters_of(url)), autocommit=True) as session,
            driver.connect(**(_DEFAULTS | parameters_of(url)), autocommit=True) as other,
        ):
            first = session.execute(ask).fetchone()
            other.execute("BEGIN")
            lent = (
                first == other.execute(ask).fetchone() or first != session.execute(ask).fetchone()
            )
            other.execute("COMMIT")
    except driver.Error:
        return
    if lent:
        raise ConfigError(
            f"{label(url)} is a pooler in transaction mode, which loses the settings that make "
            "commits durable; connect to the server itself, or set pool_mode = session"
        )


def connection_was_lost(exc: Exception) -> bool:
    """Tell whether an error of the driver came with the end of the connection."""
    driver = psycopg_module()
    state: str = getattr(exc, "sqlstate", None) or ""
    return isinstance(exc, driver.OperationalError) and (
        not state or state.startswith(("08", "57P", "25P03"))
    )


def store_error(exc: Exception, place: str, doing: str) -> StoreError | InputError:
    """Translate an error of the driver or the pool for the caller."""
    from sqlalchemy.exc import DBAPIError, TimeoutError as NoConnectionFree

    cause = exc.orig if isinstance(exc, DBAPIError) and exc.orig is not None else exc
    text = f"{doing} {place} failed: {' '.join(str(cause).split())}"
    if isinstance(exc, NoConnectionFree):
        return StoreUnavailable(f"{doing} {place} failed: every connection of the pool is in use")
    driver = psycopg_module()
    if isinstance(cause, driver.DataError | UnicodeError):
        return InputError(text)
    if not isinstance(cause, driver.Error):
        return StoreError(text)
    state: str = getattr(cause, "sqlstate", None) or ""
    if state:
        kind = next((kind for kind, begin in _KINDS.items() if state.startswith(begin)), StoreError)
        return kind(f"{text}; {ADVICE}" if kind is StoreCorrupt else text)
    # Where the server refuses to let us in, which libpq reports in words alone, no try helps.
    for words, advice in _REFUSALS:
        if re.search(words, text):
            refused = StoreUnavailable(f"{text}; {advice}")
            refused.retryable = False
            return refused
    lost = isinstance(cause, driver.OperationalError)
    return StoreUnavailable(text) if lost else StoreError(text)


_WAIT_FOR_CONNECTION_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class _ReadTransaction:
    driver: Any

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> Any:
        return self.driver.execute(statement.replace("?", "%s"), parameters or None)


@dataclass(frozen=True, slots=True)
class PostgresReaders:
    """A pool of reading connections, which the last user closes."""

    backend: Hashable
    engine: Engine

    @contextmanager
    def reading(self, seen: Sequence[str]) -> Generator[_ReadTransaction]:
        """Begin a read-only transaction on one snapshot that sees these scopes alone."""
        statement = f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {naming(seen)}"
        with _ran(self.engine, statement) as (connection, _):
            yield _ReadTransaction(connection.connection.driver_connection)

    def head(self, scope: ScopeKey) -> int:
        """Ask for the end of a log, by one statement.

        So a read of any process sees what another one has acknowledged. Raises
        `psycopg.Error`.
        """
        digest = scope_digest(scope)
        statement = f"{naming([digest])}; SELECT head FROM scopes WHERE digest = '{digest}'"
        with _ran(self.engine, statement) as (_, cursor):
            rows = last_result(cursor)
        return rows[0][0] if rows else 0

    def close(self) -> None:
        """Release the pool."""
        OPEN_POOLS.release(self.backend, close_pool)


OPEN_POOLS: Final = OpenParts[Hashable, Engine]()
"""The pools of reading connections of this process, by database."""


class _Pool(QueuePool):
    """A pool that, once it was disposed of, closes each connection that comes back.

    SQLAlchemy's own leaves it to the garbage collector.
    """

    _over = False

    def dispose(self) -> None:
        self._over = True
        super().dispose()

    def _do_return_conn(self, record: ConnectionPoolEntry) -> None:
        super()._do_return_conn(record)
        if self._over:
            super().dispose()


def close_pool(engine: Engine) -> None:
    """Close the connections of a `pooled_engine`; one in use closes when it comes back."""
    engine.pool.dispose()


def pooled_engine(connect: Callable[[], Any], size: int) -> Engine:
    """Make an engine over a pool of connections to the server."""
    return create_engine(
        "postgresql+psycopg://",
        creator=connect,
        poolclass=_Pool,
        pool_size=size,
        max_overflow=0,
        pool_timeout=_WAIT_FOR_CONNECTION_S,
        pool_use_lifo=True,
        use_native_hstore=False,
    )


@contextmanager
def _ran(engine: Engine, statements: str) -> Generator[tuple[Connection, Any]]:
    """Run statements; yield the connection and their cursor.

    A transaction that they began is given up on leaving. A connection that had died in
    the pool is replaced once, and with it all the others that lie there.
    """
    connection, first = engine.connect(), True
    try:
        while True:
            driver: Any = connection.connection.driver_connection
            try:
                cursor = driver.execute(statements)
                break
            except psycopg_module().Error as exc:
                lost = connection_was_lost(exc)
                if lost:
                    connection.invalidate()
                if not lost or not first:
                    raise
            connection.close()
            engine.dispose()
            connection, first = engine.connect(), False
        yield connection, cursor
    finally:
        connection.close()


def naming(seen: Sequence[str]) -> str:
    """Make the statement that names a transaction's scopes: digests, or a sign of `backend`."""
    return f"SELECT set_config('{SETTING}', '{','.join(seen)}', true)"


def last_result(cursor: Any) -> list[tuple[Any, ...]]:
    """Return the rows of the last of several statements."""
    while cursor.nextset():
        pass
    return cursor.fetchall()


Scrub: TypeAlias = Literal["vacuum", "rewrite"]
"""After an erasure: free the space of what was deleted, or write the tables anew without
it.
"""

_WORDS: Final = "payloads, idempotency, scopes"


@dataclass(frozen=True)
class PostgresBackend(Backend):
    """The database at a URL; equal for the same URL and the same options."""

    url: str = field(repr=False)
    pool: int = 4
    scrub_by: Scrub = "vacuum"
    seal: Seal = field(default=NO_SEAL, compare=False, repr=False)
    sql: Statements = field(default=POSTGRES, init=False, compare=False, repr=False)
    shared = True
    page_rows = 128
    begin_schema = f"BEGIN; SELECT pg_advisory_xact_lock({SCHEMA_LOCK})"
    table_names = (
        "SELECT relname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace "
        "WHERE nspname = current_schema() AND relkind IN ('r', 'p')"
    )

    @property
    def name(self) -> str:
        """User, host, port and database."""
        return label(self.url)

    @property
    def faults(self) -> tuple[type[Exception], ...]:
        """The driver's errors and the pool's."""
        return (psycopg_module().Error, SQLAlchemyError)

    def error(self, exc: Exception, doing: str) -> StoreError | InputError:
        """Translate an error of the driver or the pool."""
        return store_error(exc, self.name, doing)

    def worth_another_try(self, exc: Exception) -> bool:
        """Tell whether the connection died, or another transaction was in the way."""
        state: str = getattr(exc, "sqlstate", None) or ""
        return connection_was_lost(exc) or state.startswith(("40", "23"))

    def readers(self) -> PostgresReaders:
        """Use the pool of this process, shared by all who read the same database."""
        pooled = partial(pooled_engine, self.connect, self.pool)
        return PostgresReaders(self, OPEN_POOLS.acquire(self, pooled))

    def connect(self) -> Any:
        """Open a connection whose commits are durable."""
        return connect(self.url)

    def begin(
        self,
        cursor: DriverCursor,
        scopes: Collection[ScopeKey],
        known: Mapping[ScopeKey, Tip],  # noqa: ARG002  # interface
    ) -> Mapping[ScopeKey, Tip]:
        """Name the scopes, lock them, read their ends."""
        by_digest = {scope_digest(scope): scope for scope in scopes}
        if not by_digest:
            cursor.execute(self.begin_about([VECTORS_ONLY]))
            return {}
        keys = ", ".join(str(key) for key in sorted(map(lock_key, by_digest)))
        digests = ", ".join(f"'{digest}'" for digest in by_digest)
        cursor.execute(
            f"{self.begin_about(list(by_digest))}; SELECT pg_advisory_xact_lock(k) FROM "
            f"unnest(ARRAY[{keys}]::bigint[]) k; "
            f"SELECT digest, id, head, chain, recorded_us FROM scopes WHERE digest IN ({digests})"
        )
        tips = {scope: Tip(0, 0, first_chain(digest), 0) for digest, scope in by_digest.items()}
        return tips | {by_digest[digest]: Tip(*tip) for digest, *tip in last_result(cursor)}

    def begin_about(self, seen: Sequence[str]) -> str:
        """Name the scopes, of which alone the transaction sees rows."""
        return f"BEGIN; {naming(seen)}"

    def last_erasure(self, cursor: DriverCursor) -> str:
        """Keep the cache of vectors from being emptied until the transaction ends, then look."""
        cursor.execute(
            "LOCK TABLE embeddings IN ROW EXCLUSIVE MODE; SELECT value FROM meta WHERE key = "
            f"'{ERASURE_KEY}'"
        )
        rows = last_result(cursor)
        return rows[0][0] if rows else ""

    def forget_copies(self, cursor: DriverCursor, digest: str) -> None:
        """Delete a scope's checkpoint, where there are any."""
        cursor.execute(
            "DO $$ BEGIN IF to_regclass('checkpoints') IS NOT NULL THEN "
            f"DELETE FROM checkpoint_parts WHERE digest = '{digest}'; "
            f"DELETE FROM checkpoints WHERE digest = '{digest}'; END IF; END $$"
        )

    def in_transaction(self, connection: Any) -> bool:
        """Tell whether the session is in one, or nobody knows."""
        return connection.info.transaction_status != psycopg_module().pq.TransactionStatus.IDLE

    def scrub(self, connection: Any) -> bool:
        """Vacuum the tables with text, or write them anew, which shuts others out meanwhile."""
        how = "(FULL)" if self.scrub_by == "rewrite" else "(INDEX_CLEANUP ON)"
        kept = connection.execute("SELECT to_regclass('checkpoint_parts')").fetchone()[0]
        tables = _WORDS if kept is None else f"{_WORDS}, checkpoints, checkpoint_parts"
        refusals: list[object] = []
        # a role that does not own the tables is told so by a warning only
        connection.add_notice_handler(refusals.append)
        try:
            connection.execute(f"VACUUM {how} {tables}")
        finally:
            connection.remove_notice_handler(refusals.append)
        return not refusals

    def ends(self, connection: Any) -> list[Noted]:
        """Return where all logs end now."""
        connection.execute(f"BEGIN READ ONLY; {naming([WHOLE_STORE])}")
        ends = super().ends(connection)
        connection.execute("COMMIT")
        return ends


def lock_key(digest: str) -> int:
    """Return the 64-bit key of a scope's advisory lock.

    Scopes that share one by chance merely wait for each other.
    """
    return int.from_bytes(bytes.fromhex(digest[:16]), signed=True)


_MOST_CONNECTIONS = 64


class PostgresJournal(DatabaseJournal):
    """A `Journal` in the database at a `postgresql://` URL; makes its tables when absent.

    `pool` is how many connections a process keeps for reading at most; one more writes.
    `scrub` says what follows an erasure: `"vacuum"` frees the space, `"rewrite"` writes
    the tables anew without what was erased and shuts others out meanwhile. `seal` names
    the file on this machine that notes the ends of logs, and the key of the notes;
    without a file nothing is noted.

    Opening raises `StoreUnavailable` (no server; not `retryable` where it will not let
    us in or has no such database), `StoreReadOnly` (a standby, or no right to make
    tables), `StoreCorrupt` (not a memagent store), `StoreError` (written by a newer
    memagent), `MissingExtra` without psycopg and `ConfigError` (also for a pooler in
    transaction mode).
    """

    def __init__(
        self,
        url: str,
        *,
        read_only: bool = False,
        pool: int = 4,
        scrub: Scrub = "vacuum",
        clock: Clock = system_clock,
        seal: Seal = NO_SEAL,
    ) -> None:
        if not 1 <= pool <= _MOST_CONNECTIONS:
            raise ConfigError(
                f"pool={pool}: a process keeps 1 to {_MOST_CONNECTIONS} connections for reading"
            )
        if seal.key is not None and seal.tips is None:
            raise ConfigError("key_file signs the notes of where logs end: name their file as tips")
        refuse_transaction_pooling(url)
        backend = PostgresBackend(url, pool, scrub, seal)
        super().__init__(backend, read_only=read_only, clock=clock)
        if read_only and not self._reader.ready():
            self.close()
            raise StoreError(
                f"there is no memory at {self.place}; it is made when it is first opened for "
                "writing"
            )

    def examine(self) -> tuple[dict[str, str], list[str]]:
        """Return facts about the server, and what is wrong with how it is used.

        Blocks; raises `StoreError`s.
        """
        self._check()
        with self.backend.translating("reading"), closing(self.backend.connect()) as connection:
            return _examined(connection)


def note_ends(journal: PostgresJournal) -> int:
    """Note the ends of all logs anew, as the server has them now; return how many.

    Raises `InputError` where the settings name no `tips`.
    """
    backend = journal.backend
    if backend.book is None:
        raise InputError("name a file as `tips` of the store's settings to note ends there")
    with closing(backend.connect()) as connection:
        ends = backend.ends(connection)
    backend.book.rewrite(ends)
    return len(ends)


def _examined(connection: ReadConnection) -> tuple[dict[str, str], list[str]]:
    version, role, unbound, size, used, most = connection.execute(
        "SELECT current_setting('server_version'), current_user, r.rolsuper OR r.rolbypassrls, "
        "pg_database_size(current_database()), "
        "(SELECT count(*) FROM pg_stat_activity), current_setting('max_connections')::int FROM "
        "pg_roles r WHERE r.rolname = current_user"
    ).fetchone()
    facts = {
        "version": version,
        "role": role,
        "database_bytes": str(size),
        "connections": f"{used} of {most}",
    }
    free = f"role {role} is not bound by row-level security; connect as an ordinary role"
    wrong = [free] if unbound else []
    wrong += [
        f"the server runs with {name} off: a power cut may lose or tear what was acknowledged"
        for name in ("fsync", "full_page_writes")
        if connection.execute(f"SHOW {name}").fetchone() != ("on",)
    ]
    return facts, wrong
