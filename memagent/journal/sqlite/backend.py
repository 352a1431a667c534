"""The journal's database in a SQLite file.

One process writes, so ends of logs are remembered; the writer moves the write-ahead log
along.

`Heads` asks for SQLite's `data_version`, a counter in shared memory that moves when any
other connection commits, and looks a head up only when it has moved.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from memagent.core.errors import InputError, StoreError
from memagent.journal.backend import COUNT_RESPONSES, DriverCursor, Tip, corrupt, oldest_kept
from memagent.journal.proof.audit import compare_noted
from memagent.journal.proof.tips import TipBook, ends_of
from memagent.journal.rows import ScopeKey, scope_digest
from memagent.journal.sqlite import engine as sqlite_engine
from memagent.journal.sqlite.engine import Synchronous
from memagent.journal.statements import SQLITE, Statements

_MAX_HEADS: Final = 65_536
_PRUNED_AT_ONCE: Final = 1_000
_CHAIN_AT: Final = (
    "SELECT journal.chain FROM journal JOIN scopes ON scopes.id = journal.scope_id "
    "WHERE scopes.digest = ? AND journal.seq = ?"
)
_PRUNE: Final = (
    "DELETE FROM idempotency WHERE (scope_id, key) IN "
    f"(SELECT scope_id, key FROM idempotency WHERE created_us < ? LIMIT {_PRUNED_AT_ONCE})"
)
_DROP: Final = (
    "DELETE FROM idempotency WHERE scope_id = (SELECT id FROM scopes WHERE digest = ?) AND key = ?"
)


@dataclass(frozen=True)
class SqliteBackend:
    """The database file at a path; equal for the same path, whatever else was asked for."""

    path: Path
    synchronous: Synchronous = field(default="FULL", compare=False)
    shared = False
    sql: Statements = field(default=SQLITE, compare=False, repr=False)
    page_rows = 512
    driver_error: type[Exception] = field(default=sqlite3.Error, compare=False, repr=False)
    read_errors: tuple[type[Exception], ...] = field(
        default=(sqlite3.Error,), compare=False, repr=False
    )
    begin_schema = "BEGIN IMMEDIATE"
    table_names = (
        "SELECT name FROM sqlite_master WHERE type = 'table' AND substr(name, 1, 7) <> 'sqlite_'"
    )
    tips: Path | None = field(default=None, compare=False)
    """The file of the ends of logs; None is beside the database."""
    key: bytes | None = field(default=None, compare=False, repr=False)

    @cached_property
    def book(self) -> TipBook:
        """The ends of logs as they were last noted."""
        return TipBook(self.tips or self.path.with_name(f"{self.path.name}.tips"), self.key)

    @property
    def name(self) -> str:
        """The path."""
        return str(self.path)

    def error(self, exc: Exception, doing: str) -> StoreError | InputError:
        """Translate an error of SQLite."""
        return sqlite_engine.store_error(exc, self.path, doing)

    def worth_another_try(self, exc: Exception) -> bool:
        """Tell whether something else wrote to the file."""
        return isinstance(exc, sqlite3.IntegrityError)

    def schema_connection(self) -> sqlite3.Connection:
        """Open a connection that may write, and has not made the file durable yet."""
        return sqlite_engine.connect_for_writing(self.path)

    def connect(self) -> sqlite3.Connection:
        """Open the writing connection, durable as asked."""
        connection = sqlite_engine.connect_for_writing(self.path)
        sqlite_engine.make_durable(connection, self.synchronous)
        return connection

    def begin(
        self,
        cursor: DriverCursor,
        scopes: Collection[ScopeKey],
        known: Mapping[ScopeKey, Tip],
    ) -> Mapping[ScopeKey, Tip]:
        """Take SQLite's write lock; what is remembered is still so.

        With a key, a log that nothing is remembered of has to go on from its noted end:
        what else stands there would be signed. Raises `StoreCorrupt`.
        """
        cursor.execute("BEGIN IMMEDIATE")
        if self.key is not None:
            for scope in scopes:
                if scope not in known:
                    self._compare(cursor, scope_digest(scope))
        return known

    def _compare(self, connection: Any, digest: str) -> None:
        """Refuse a log that its note does not know, or that differs from it."""
        noted = self.book.noted(digest)
        if noted is None:
            row = connection.execute(SQLITE.head, (digest,)).fetchone()
            wrong = ["a log that was never noted appeared"] if row and row[0] else []
        else:
            wrong = compare_noted(connection, noted)
        if wrong:
            raise corrupt(
                self.path,
                f"{wrong[0]}, as {self.book.path} shows (to sign it as it stands now, run  "
                "memagent doctor --seal)",
            )

    def write_rows(
        self, cursor: DriverCursor, statement: str, rows: Sequence[tuple[Any, ...]]
    ) -> int:
        """Run one `executemany`."""
        return cursor.executemany(statement, rows).rowcount

    def last_erasure(self, cursor: DriverCursor) -> str:  # noqa: ARG002  # interface
        """Return "": only this process erases, and it forgets its vectors when it does."""
        return ""

    def forget_copies(self, cursor: DriverCursor, digest: str) -> None:  # interface
        """Do nothing: copies lie in files of their own, which go before."""

    def in_transaction(self, connection: Any) -> bool:
        """Tell whether the connection is in one."""
        return connection.in_transaction

    def checkpoint(self, connection: Any, *, whole: bool) -> bool:
        """Copy the write-ahead log into the database.

        Copies all of it, waiting for readers, when asked to or when it has grown long.
        """
        mode = "TRUNCATE" if whole or sqlite_engine.wal_is_long(self.path) else "PASSIVE"
        busy, _, _ = connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        return not busy

    def scrub(self, connection: Any) -> bool:
        """Rebuild the file.

        SQLite leaves copies of moved rows in the gaps of pages, even with
        `secure_delete`.
        """
        connection.execute("VACUUM")
        return True

    def opened(self, connection: Any) -> None:
        """Refuse a file that ends before what was noted when it was last written to.

        With a `synchronous` that lets a power cut take the last commits, nothing is
        refused; `memagent doctor` still tells.
        """
        last = self.book.last()
        if last is not None and self.synchronous in ("FULL", "EXTRA"):
            row = connection.execute(_CHAIN_AT, (last.digest, last.seq)).fetchone()
            if row is None or bytes(row[0]) != last.chain:
                raise corrupt(
                    self.path,
                    f"the last rows that were acknowledged are missing; {self.book.path} notes "
                    f"row {last.seq} of a log that ends before it or was changed (to go on "
                    "with what is there, run  memagent doctor --seal)",
                )
        self.book.open(() if self.book.path.exists() else ends_of(connection))

    def committed(self, tips: Mapping[ScopeKey, Tip]) -> None:
        """Note the ends of logs beside the store."""
        self.book.note(tips)

    def closed(self) -> None:
        """Close the file of the ends."""
        self.book.close()

    def prune_responses(self, before_us: int, most: int) -> int:
        """Delete a thousand rows at a time, so that the writer never waits long."""
        total = 0
        with closing(sqlite_engine.connect_for_writing(self.path)) as connection:
            counts = dict(connection.execute(COUNT_RESPONSES).fetchall())
            limit_us = oldest_kept(counts, before_us=before_us, most=most)
            while True:
                gone = connection.execute(_PRUNE, (limit_us,)).rowcount
                total += gone
                if gone < _PRUNED_AT_ONCE:
                    return total

    def drop_response(self, digest: str, key: str) -> bool:
        """Delete one response."""
        with closing(sqlite_engine.connect_for_writing(self.path)) as connection:
            return connection.execute(_DROP, (digest, key)).rowcount > 0

    def readers(self) -> SqliteReaders:
        """Open a pool of its own."""
        return SqliteReaders(self.path)


class SqliteReaders:
    """A pool of read-only connections to a file."""

    def __init__(self, path: Path) -> None:
        self._path, self._pool = path, sqlite_engine.ReadPool(path)

    @contextmanager
    def reading(self, seen: Sequence[str]) -> Generator[sqlite3.Connection]:  # noqa: ARG002  # interface
        """Lend a connection.

        Statements name the scope that they read, and nothing else keeps scopes apart.
        """
        with self._pool.lend() as connection:
            yield connection

    def heads(self) -> WatchedHeads:
        """Make heads with a connection of their own."""
        return WatchedHeads(self._path)

    def close(self) -> None:
        """Close the pool."""
        self._pool.close()


class WatchedHeads:
    """`Heads` that are looked up again only after another connection has committed.

    A known head costs microseconds.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._watch: sqlite3.Connection | None = None
        self._version = -1
        self._heads: dict[ScopeKey, int] = {}

    def head(self, scope: ScopeKey) -> int:
        """Return the sequence of the scope's last row, 0 when it has none.

        Raises `sqlite3.Error`.
        """
        with self._lock:
            if self._watch is None:
                self._watch = sqlite_engine.connect_for_reading(self._path)
            (version,) = self._watch.execute("PRAGMA data_version").fetchone()
            if version != self._version or len(self._heads) > _MAX_HEADS:
                self._heads.clear()
                self._version = version
            head = self._heads.get(scope)
            if head is None:
                row = self._watch.execute(SQLITE.head, (scope_digest(scope),)).fetchone()
                head = self._heads[scope] = 0 if row is None else row[0]
            return head

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            if self._watch is not None:
                self._watch.close()
                self._watch = None
