"""Connections to a PostgreSQL server, in SQLAlchemy's pool, and the server's errors.

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
from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit, urlunsplit

from sqlalchemy import Connection, Engine, create_engine
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
from memagent.journal.backend import ADVICE, OpenParts
from memagent.journal.rows import SETTING, ScopeKey, scope_digest

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

    A transaction that they began is given up on leaving.

    A connection that had died in the pool is replaced once, and with it all the others
    that lie there.
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
