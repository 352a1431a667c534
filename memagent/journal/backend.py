"""The interface between the journal and a database, and the journal's SQL.

A `Backend` holds what differs from one kind of database to the next. Everything else
(entries, digests, chain, grouping, pages, audit) is written once against it. A backend
names one database; it holds no connection of its own, and the writer and the readers
ask it for theirs. `shared` says the most: only where one process writes may ends of
logs be remembered, elsewhere they are asked for inside every transaction and before
every read.

The SQL is text that goes to the driver. Statements that read are the same for every
database and have `?` for each parameter. Those that write differ: where `arrays` is
set, a statement for many rows takes one array a column, so that a group of any size is
one round trip. The surprise: nothing here is built by SQLAlchemy, which only makes and
migrates the tables. Importing it took a quarter of the processor time of a command.
"""

from __future__ import annotations

import os
import sys
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Generator, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from functools import cached_property, partial
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from memagent.core.errors import InputError, StoreCorrupt, StoreError
from memagent.journal.proof.audit import Noted, Seal, TipBook
from memagent.journal.rows import ERASED, NAMELESS, REDACTED, ReadConnection, ScopeKey, Tip

SCRUB_KEY: Final = "scrub"
"""Key of the `meta` row that says that an erasure has still to be made good on disk."""
ERASURE_KEY: Final = "erasure"
"""Key of the `meta` row that holds the mark of the last erasure."""
COLUMNS: Final[Mapping[str, Mapping[str, str]]] = {
    "journal": {
        "scope_id": "integer",
        "seq": "bigint",
        "kind": "varchar",
        "recorded_us": "bigint",
        "payload_digest": "bytea",
        "chain": "bytea",
    },
    "payloads": {"scope_id": "integer", "seq": "bigint", "salt": "bytea", "body": "bytea"},
    "idempotency": {
        "scope_id": "integer",
        "key": "varchar",
        "body_digest": "varchar",
        "response_json": "text",
        "created_us": "bigint",
    },
    "embeddings": {
        "embedder": "varchar",
        "digest": "varchar",
        "dim": "integer",
        "vector": "bytea",
        "crc": "bigint",
    },
}
"""Columns of the tables that many rows are written to at once, with PostgreSQL's types."""
_SCOPES_AT_ONCE: Final = 500
_PRUNED_AT_ONCE: Final = 1_000
_MOVED: Final = {
    "user_id": "text",
    "agent_id": "text",
    "run_id": "text",
    "head": "bigint",
    "chain": "bytea",
    "recorded_us": "bigint",
}

# -- reading ---------------------------------------------------------------------------

_LOG: Final = "journal JOIN scopes ON scopes.id = journal.scope_id"
_WORDS: Final = "payloads ON payloads.scope_id = journal.scope_id AND payloads.seq = journal.seq"

SELECT_SCOPES: Final = (
    "SELECT user_id, agent_id, run_id FROM scopes "
    f"WHERE head > 0 AND substr(user_id, 1, 1) <> '{NAMELESS}'"
)
SELECT_ERASED: Final = (
    f"SELECT digest FROM scopes WHERE head > 0 AND substr(user_id, 1, 1) = '{NAMELESS}'"
)
SELECT_PAGE: Final = (
    "SELECT journal.seq, journal.recorded_us, payloads.body, scopes.head, payloads.salt, "
    f"journal.payload_digest, journal.kind, journal.chain FROM {_LOG} LEFT JOIN {_WORDS} "
    "WHERE scopes.digest = ? AND journal.seq > ? ORDER BY journal.seq LIMIT ?"
)
"""Rows after a sequence; the body is NULL where it was erased."""
SELECT_LAST_ERASURE: Final = (
    f"SELECT coalesce(max(journal.seq), 0) FROM {_LOG} "
    f"WHERE scopes.digest = ? AND journal.kind = '{ERASED}'"
)
SELECT_LAST_FORGETTING: Final = (
    f"SELECT coalesce(max(journal.seq), 0) FROM {_LOG} "
    f"WHERE scopes.digest = ? AND journal.kind IN ('{ERASED}', '{REDACTED}')"
)
"""The last entry after which nothing that was derived before may be used."""
SELECT_CHAIN: Final = (
    f"SELECT journal.chain FROM {_LOG} WHERE scopes.digest = ? AND journal.seq = ?"
)
SELECT_RESPONSE: Final = (
    "SELECT body_digest, response_json FROM idempotency "
    "JOIN scopes ON scopes.id = idempotency.scope_id "
    "WHERE scopes.digest = ? AND idempotency.key = ?"
)
SELECT_VECTORS: Final = (
    "SELECT digest, dim, vector, crc FROM embeddings WHERE embedder = ? AND digest IN ({marks})"
)
"""With a mark for each digest."""
SELECT_META: Final = "SELECT value FROM meta WHERE key = ?"


# -- writing ---------------------------------------------------------------------------


class Statements:
    """The text of the writer's statements, with `mark` for each parameter.

    `arrays` as the module says; it speaks PostgreSQL then.
    """

    def __init__(self, mark: str, *, arrays: bool = False) -> None:
        self._mark, self.arrays = mark, arrays
        self.tip = self._text("SELECT id, head, chain, recorded_us FROM scopes WHERE digest = ?")
        self.head = self._text("SELECT head FROM scopes WHERE digest = ?")
        self.new_scope = self._text(
            "INSERT INTO scopes (digest, user_id, agent_id, run_id, head, chain, recorded_us) "
            "VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING id"
        )
        # For many rows at once, as are the next three and `move_head`.
        self.header = self._rows("journal")
        self.payload = self._rows("payloads")
        self.new_response = self._rows("idempotency")
        self.vector = (
            f"{self._rows('embeddings')} ON CONFLICT (embedder, digest) DO UPDATE SET "
            "dim = excluded.dim, vector = excluded.vector, crc = excluded.crc"
        )
        # Rows of (user_id, agent_id, run_id, head, chain, recorded_us, scope, before).
        self.move_head = self._move_heads() if arrays else self._move_head()
        self.response = self._text(
            "SELECT body_digest, response_json FROM idempotency WHERE scope_id = ? AND key = ?"
        )
        self.chain = self._text("SELECT chain FROM journal WHERE scope_id = ? AND seq = ?")
        self.drop_payloads = self._text("DELETE FROM payloads WHERE scope_id = ?")
        self.rewrite_payload = self._text(
            "UPDATE payloads SET salt = ?, body = ? WHERE scope_id = ? AND seq = ?"
        )
        self.drop_responses = self._text("DELETE FROM idempotency WHERE scope_id = ?")
        self.drop_response = self._text(
            "DELETE FROM idempotency "
            "WHERE scope_id = (SELECT id FROM scopes WHERE digest = ?) AND key = ?"
        )
        self.prune = self._text(
            "DELETE FROM idempotency WHERE (scope_id, key) IN (SELECT scope_id, key "
            f"FROM idempotency WHERE created_us < ? LIMIT {_PRUNED_AT_ONCE})"
        )
        self.drop_vectors = "TRUNCATE embeddings" if arrays else "DELETE FROM embeddings"
        self.put_meta = self._text(
            "INSERT INTO meta (key, value) VALUES (?, ?) "
            "ON CONFLICT (key) DO UPDATE SET value = excluded.value"
        )
        self.meta_value = self._text(SELECT_META)
        self.scrub_done = self._text("DELETE FROM meta WHERE key = ? AND value = ?")

    def _text(self, statement: str) -> str:
        return statement.replace("?", self._mark)

    def _rows(self, table: str) -> str:
        columns = COLUMNS[table]
        into = f"INSERT INTO {table} ({', '.join(columns)})"
        if self.arrays:
            return f"{into} SELECT * FROM {self._unnested(columns)}"
        return f"{into} VALUES ({', '.join([self._mark] * len(columns))})"

    def _unnested(self, columns: Mapping[str, str]) -> str:
        """Make rows out of one array a column."""
        return f"unnest({', '.join(f'{self._mark}::{kind}[]' for kind in columns.values())})"

    def _move_head(self) -> str:
        changes = ", ".join(f"{name} = ?" for name in _MOVED)
        return self._text(f"UPDATE scopes SET {changes} WHERE id = ? AND head = ?")

    def _move_heads(self) -> str:
        given = _MOVED | {"scope": "integer", "before": "bigint"}
        changes = ", ".join(f"{name} = given.{name}" for name in _MOVED)
        return (
            f"UPDATE scopes SET {changes} "
            f"FROM {self._unnested(given)} AS given({', '.join(given)}) "
            "WHERE scopes.id = given.scope AND scopes.head = given.before"
        )


SQLITE: Final = Statements("?")
POSTGRES: Final = Statements("%s", arrays=True)


WHOLE_STORE: Final = "*"
"""Named instead of a scope's digest: names and headers of every scope may be read, and
nobody's words.
"""
VECTORS_ONLY: Final = "-"
"""Named where no scope is read or written: the cache of vectors, and nothing of anybody."""
ADVICE: Final = (
    "restore a backup, or save what is readable with `memagent export`; `memagent doctor` "
    "tells what is wrong"
)

# First responses by the second in which they were written.
_COUNT_RESPONSES: Final = "SELECT created_us / 1000000, count(*) FROM idempotency GROUP BY 1"


def _oldest_kept(counts: Mapping[int, int], *, before_us: int, most: int) -> int:
    """Return the moment before which responses go, so that at most `most` are left."""
    left = most
    for second in sorted(counts, reverse=True):
        left -= counts[second]
        if left < 0:
            return max(before_us, (second + 1) * 1_000_000)
    return before_us


DriverConnection: TypeAlias = Any
"""A connection of `sqlite3` or psycopg; it begins and ends transactions by statements."""
DriverCursor: TypeAlias = Any
"""A cursor of such a connection."""


class Readers(Protocol):
    """The reading connections of a journal. Thread-safe."""

    def reading(self, seen: Sequence[str]) -> AbstractContextManager[ReadConnection]:
        """Lend a connection that reads the scopes with these digests, or `WHOLE_STORE`."""
        ...

    def head(self, scope: ScopeKey) -> int:
        """Return the sequence of a scope's last committed row, 0 when it has none.

        Raises what the driver raises.
        """
        ...

    def close(self) -> None:
        """Close every connection that nobody else uses."""
        ...


class Backend(ABC):
    """One database that holds a journal.

    Hashable: equal backends share one writer within a process. `connect` and what takes
    a connection or a cursor is called from one thread; the rest from any.
    """

    shared: bool
    """Whether other processes write to it too, over a connection that may be lost."""
    sql: Statements
    """Text of the writer's statements."""
    page_rows: int
    """Most rows that are read at once."""
    begin_schema: str
    """The statement that begins a transaction which excludes other makers of the schema."""
    table_names: str
    """The statement that reads the names of all tables."""
    seal: Seal
    """The file on this machine that notes the ends of logs, and the key that signs them."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The place, for messages; never with a password."""

    @property
    @abstractmethod
    def faults(self) -> tuple[type[Exception], ...]:
        """The errors that its driver raises, and lending a connection."""

    @cached_property
    def book(self) -> TipBook | None:
        """The ends of logs as this machine noted them last; None where none are noted."""
        tips, key = self.seal
        return TipBook(tips, key, shared=self.shared) if tips is not None else None

    @abstractmethod
    def error(self, exc: Exception, doing: str) -> StoreError | InputError:
        """Translate an error for the caller, with the place and what to do."""

    @abstractmethod
    def worth_another_try(self, exc: Exception) -> bool:
        """Tell whether the same transaction may succeed when it is begun again at once."""

    @abstractmethod
    def readers(self) -> Readers:
        """Open what a journal reads with; nothing is connected yet."""

    # ---- writing

    def take_lock(self) -> Callable[[], None]:
        """Keep other processes from writing, where the database cannot; make the place ready.

        Returns what gives the lock back.
        """
        return lambda: None

    @abstractmethod
    def connect(self) -> DriverConnection:
        """Open a connection whose commits are durable."""

    def plain_connection(self) -> DriverConnection:
        """Open a connection that may write, and has changed nothing of the database yet."""
        return self.connect()

    @abstractmethod
    def begin(
        self, cursor: DriverCursor, scopes: Collection[ScopeKey], known: Mapping[ScopeKey, Tip]
    ) -> Mapping[ScopeKey, Tip]:
        """Begin a transaction that may write to these scopes alone.

        Returns their ends, as far as they are known now.
        """

    @abstractmethod
    def begin_about(self, seen: Sequence[str]) -> str:
        """Make the statement that begins a short transaction about scopes with these digests."""

    def last_erasure(self, cursor: DriverCursor) -> str:  # noqa: ARG002  # for others to use
        """Return the mark of the last erasure; "" where other processes cannot erase.

        No other erasure can happen before this transaction ends.
        """
        return ""

    def forget_copies(self, cursor: DriverCursor, digest: str) -> None:  # noqa: B027
        """Delete what the database has of a scope beside its log, in an erasure's transaction."""

    @abstractmethod
    def in_transaction(self, connection: DriverConnection) -> bool:
        """Tell whether a transaction has to be rolled back."""

    def checkpoint(self, connection: DriverConnection, *, whole: bool) -> bool:  # noqa: ARG002
        """Move the write-ahead log along where that is the writer's task.

        Returns whether nothing is left of it.
        """
        return True

    @abstractmethod
    def scrub(self, connection: DriverConnection) -> bool:
        """Take deleted rows out of the files, as far as the database allows.

        Returns whether that was done.
        """

    # ---- the noted ends of logs

    def ends(self, connection: DriverConnection) -> list[Noted]:
        """Return where all logs end now."""
        ends = connection.execute("SELECT digest, head, chain FROM scopes WHERE head > 0")
        return [Noted(digest, head, bytes(chain)) for digest, head, chain in ends.fetchall()]

    def opened(self, connection: DriverConnection) -> None:
        """Open the file of the ends; begin it with those of now where there is none.

        Raises `StoreCorrupt` when acknowledged rows are missing, and `ConfigError`.
        """
        if self.book is not None:
            self.book.open(() if self.book.path.exists() else self.ends(connection))

    # ---- faults

    @contextmanager
    def translating(self, doing: str) -> Generator[None]:
        """Translate what the driver and the lending of connections raise meanwhile."""
        try:
            yield
        except UnicodeDecodeError as exc:  # a name or a message of a damaged file
            raise corrupt(self.name, "it holds bytes that are no text") from exc
        except self.faults as exc:
            raise self.error(exc, doing) from exc


# -- short transactions, each on a connection of its own, from any thread --------------


def put_meta(backend: Backend, key: str, value: str) -> None:
    """Write a property of the store. Raises `StoreError`s."""
    with backend.translating("writing to"), closing(backend.plain_connection()) as connection:
        _run_about(backend, connection, [VECTORS_ONLY], backend.sql.put_meta, (key, value))


def drop_response(backend: Backend, digest: str, key: str) -> bool:
    """Delete one response of the scope with a digest; return whether it was there.

    Raises `StoreError`s.
    """
    doing, dropped = "deleting responses in", backend.sql.drop_response
    with backend.translating(doing), closing(backend.plain_connection()) as connection:
        return _run_about(backend, connection, [digest], dropped, (digest, key)).rowcount > 0


def prune_responses(backend: Backend, before_us: int, most: int) -> int:
    """Delete first responses older than a moment, and the oldest beyond the newest `most`.

    Return their number. Where a transaction sees only the scopes that it names, some
    hundred are named at a time; and rows go by the thousand, so that the writer never
    waits long. Raises `StoreError`s.
    """
    doing, pruned = "deleting responses in", backend.sql.prune
    with backend.translating(doing), closing(backend.plain_connection()) as connection:
        run = partial(_run_about, backend, connection)
        parts: list[list[str]] = [[]]
        if backend.shared:
            names = run([WHOLE_STORE], "SELECT digest FROM scopes").fetchall()
            every = [digest for (digest,) in names]
            starts = range(0, len(every), _SCOPES_AT_ONCE)
            parts = [every[start : start + _SCOPES_AT_ONCE] for start in starts]
        counts = Counter[int]()
        for part in parts:
            counts.update(dict(run(part, _COUNT_RESPONSES).fetchall()))
        limit_us, total = _oldest_kept(counts, before_us=before_us, most=most), 0
        for part in parts:
            gone = _PRUNED_AT_ONCE
            while gone == _PRUNED_AT_ONCE:
                gone = run(part, pruned, (limit_us,)).rowcount
                total += gone
    return total


def _run_about(
    backend: Backend,
    connection: DriverConnection,
    seen: Sequence[str],
    statement: str,
    values: Sequence[Any] = (),
) -> DriverCursor:
    connection.execute(backend.begin_about(seen))
    cursor = connection.execute(statement, values)
    connection.execute("COMMIT")
    return cursor


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class OpenParts(Generic[K, V]):
    """The parts open in this process by key, each for as long as somebody uses it.

    A child made by `fork` inherits none of them. It keeps their connections untouched:
    using or closing one across a fork corrupts a SQLite database, and ends a session of
    the parent's elsewhere. Thread-safe.
    """

    def __init__(self) -> None:
        self._inherited: list[dict[K, tuple[V, int]]] = []
        self._reset()
        if sys.platform != "win32":
            os.register_at_fork(after_in_child=self._leave)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[K, tuple[V, int]] = {}

    def _leave(self) -> None:
        self._inherited.append(self._open)
        self._reset()

    def acquire(self, key: K, make: Callable[[], V]) -> V:
        """Return the open part of a key, made if need be. Give it back with `release`."""
        with self._lock:
            part, users = self._open[key] if key in self._open else (make(), 0)
            self._open[key] = (part, users + 1)
        return part

    def release(self, key: K, close: Callable[[V], object]) -> None:
        """Give a part back; the last one to do so closes it."""
        with self._lock:
            part, users = self._open.pop(key)
            if users > 1:
                self._open[key] = (part, users - 1)
            else:
                close(part)


def corrupt(place: object, what: str) -> StoreCorrupt:
    """Make the error for a database that is readable but damaged, or not ours."""
    return StoreCorrupt(f"{place}: {what}; {ADVICE}")
