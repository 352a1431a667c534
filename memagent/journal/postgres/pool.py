"""Reading connections to a PostgreSQL server, in SQLAlchemy's pool.

Statements go to the driver. The pool alone is SQLAlchemy's: it waits for a free
connection, replaces dead ones and gives up a transaction that was left open.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Generator, Hashable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.pool import QueuePool

from memagent.journal.postgres import engine as postgres_engine
from memagent.journal.revision import SETTING
from memagent.journal.rows import ScopeKey, scope_digest

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

    def heads(self) -> AskedHeads:
        """Make heads that are asked for every time."""
        return AskedHeads(self.engine)

    def close(self) -> None:
        """Release the pool."""
        OPEN_POOLS.release(self.backend, self.engine)


class AskedHeads:
    """`Heads` by one statement each.

    The next read of any process sees what another one has acknowledged.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def head(self, scope: ScopeKey) -> int:
        """Return the sequence of the scope's last row, 0 when it has none.

        Raises `psycopg.Error`.
        """
        digest = scope_digest(scope)
        statement = f"{naming([digest])}; SELECT head FROM scopes WHERE digest = '{digest}'"
        with _ran(self._engine, statement) as (_, cursor):
            rows = last_result(cursor)
        return rows[0][0] if rows else 0

    def close(self) -> None:
        """Do nothing: there is no connection to close."""


class _OpenPools:
    """Pools of reading connections by database and process.

    A pool is open for as long as somebody uses it. Thread-safe.
    """

    def __init__(self) -> None:
        self._reset()
        if sys.platform != "win32":
            os.register_at_fork(after_in_child=self._leave)
        self._inherited: list[dict[Hashable, tuple[Engine, int]]] = []

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[Hashable, tuple[Engine, int]] = {}

    def _leave(self) -> None:
        self._inherited.append(
            self._open
        )  # a connection dropped by a child would end its parent's session
        self._reset()

    def acquire(self, backend: Hashable, connect: Callable[[], Any], size: int) -> Engine:
        with self._lock:
            engine, users = self._open.get(backend) or (pooled_engine(connect, size), 0)
            self._open[backend] = (engine, users + 1)
        return engine

    def release(self, backend: Hashable, engine: Engine) -> None:
        with self._lock:
            known, users = self._open.get(backend, (None, 0))
            if known is not engine:
                return
            if users > 1:
                self._open[backend] = (engine, users - 1)
                return
            del self._open[backend]
        engine.dispose()


OPEN_POOLS: Final = _OpenPools()
"""The pools of this process."""


def pooled_engine(connect: Callable[[], Any], size: int) -> Engine:
    """Make an engine over a pool of connections to the server."""
    return create_engine(
        "postgresql+psycopg://",
        creator=connect,
        poolclass=QueuePool,
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
    connection, cursor = _first(engine, statements, again=True)
    try:
        yield connection, cursor
    finally:
        connection.close()


def _first(engine: Engine, statements: str, *, again: bool) -> tuple[Connection, Any]:
    connection = engine.connect()
    driver: Any = connection.connection.driver_connection
    try:
        return connection, driver.execute(statements)
    except postgres_engine.psycopg_module().Error as exc:
        lost = postgres_engine.connection_was_lost(exc)
        if lost:
            connection.invalidate()
        connection.close()
        if not lost or not again:
            raise
    engine.dispose()
    return _first(engine, statements, again=False)


def naming(seen: Sequence[str]) -> str:
    """Make the statement that names a transaction's scopes: digests, or a sign of `backend`."""
    return f"SELECT set_config('{SETTING}', '{','.join(seen)}', true)"


def last_result(cursor: Any) -> list[tuple[Any, ...]]:
    """Return the rows of the last of several statements."""
    while cursor.nextset():
        pass
    return cursor.fetchall()
