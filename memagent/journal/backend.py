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

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple, Protocol

from memagent.core.errors import InputError, StoreCorrupt, StoreError
from memagent.journal.rows import ERASED, NAMELESS, REDACTED, ScopeKey

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
SELECT_REDACTIONS: Final = (
    f"SELECT payloads.body, payloads.salt, journal.payload_digest FROM {_LOG} JOIN {_WORDS} "
    f"WHERE scopes.digest = ? AND journal.kind = '{REDACTED}' ORDER BY journal.seq"
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
SELECT_META: Final = "SELECT value FROM meta WHERE key = ?"


def select_vectors(count: int) -> str:
    """Make the statement that reads vectors; takes an embedder and `count` digests."""
    return (
        "SELECT digest, dim, vector, crc FROM embeddings "
        f"WHERE embedder = ? AND digest IN ({', '.join('?' * count)})"
    )


# -- writing ---------------------------------------------------------------------------


class Statements:
    """The text of the writer's statements, with `mark` for each parameter.

    `arrays` as the module says; it speaks PostgreSQL then.
    """

    def __init__(self, mark: str, *, arrays: bool = False) -> None:
        self._mark, self._arrays = mark, arrays
        self.tip = self._text("SELECT id, head, chain, recorded_us FROM scopes WHERE digest = ?")
        self.head = self._text("SELECT head FROM scopes WHERE digest = ?")
        self.new_scope = self._text(
            "INSERT INTO scopes (digest, user_id, agent_id, run_id, head, chain, recorded_us) "
            "VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING id"
        )
        # Rows of `journal`; as with the next three and `move_head`, for `Backend.write_rows`.
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
        if self._arrays:
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

COUNT_RESPONSES: Final = "SELECT created_us / 1000000, count(*) FROM idempotency GROUP BY 1"
"""First responses by the second in which they were written."""


def oldest_kept(counts: Mapping[int, int], *, before_us: int, most: int) -> int:
    """Return the moment before which responses go, so that at most `most` are left."""
    left = most
    for second in sorted(counts, reverse=True):
        left -= counts[second]
        if left < 0:
            return max(before_us, (second + 1) * 1_000_000)
    return before_us


class Tip(NamedTuple):
    """The end of a scope's log."""

    scope_id: int
    head: int
    chain: bytes
    recorded_us: int


class DriverCursor(Protocol):
    """The part of a driver's cursor that the writer needs."""

    @property
    def rowcount(self) -> int:
        """Rows that the last statement changed."""
        ...

    def execute(self, statement: Any, parameters: Any = ..., /) -> Any:
        """Run one statement; gives the cursor."""
        ...

    def executemany(self, statement: Any, rows: Any, /) -> Any:
        """Run one statement once a row."""
        ...

    def fetchone(self) -> Any:
        """Return the next row, None when there is none."""
        ...

    def close(self) -> None:
        """Give up the cursor."""
        ...


class DriverConnection(Protocol):
    """The part of a driver's connection that the writer needs.

    It begins and ends transactions by statements.
    """

    def execute(self, statement: Any, parameters: Any = ..., /) -> Any:
        """Run one statement; gives a cursor."""
        ...

    def cursor(self) -> Any:
        """Make a new `DriverCursor`."""
        ...

    def close(self) -> None:
        """End the connection."""
        ...


class Heads(Protocol):
    """Answers for the last committed sequence of scopes. Thread-safe."""

    def head(self, scope: ScopeKey) -> int:
        """Return the sequence of the scope's last row, 0 when it has none.

        Raises what the driver raises.
        """
        ...

    def close(self) -> None:
        """Give up its connection, if it has one."""
        ...


class ReadConnection(Protocol):
    """A connection that only reads."""

    def execute(self, statement: str, parameters: Sequence[Any] = ..., /) -> Any:
        """Run a statement with `?` for each parameter; gives a `DriverCursor`."""
        ...


class Readers(Protocol):
    """The reading connections of a journal. Thread-safe."""

    def reading(self, seen: Sequence[str]) -> AbstractContextManager[ReadConnection]:
        """Lend a connection that reads the scopes with these digests, or `WHOLE_STORE`."""
        ...

    def heads(self) -> Heads:
        """Make the object that answers for the ends of logs."""
        ...

    def close(self) -> None:
        """Close every connection that nobody else uses."""
        ...


class Backend(Protocol):
    """One database that holds a journal.

    Hashable: equal backends share one writer within a process.
    """

    @property
    def name(self) -> str:
        """The place, for messages; never with a password."""
        ...

    @property
    def shared(self) -> bool:
        """Whether other processes write to it too, over a connection that may be lost."""
        ...

    @property
    def sql(self) -> Statements:
        """Text of the writer's statements."""
        ...

    @property
    def page_rows(self) -> int:
        """Most rows that are read at once."""
        ...

    @property
    def driver_error(self) -> type[Exception]:
        """The base of what its driver raises."""
        ...

    @property
    def read_errors(self) -> tuple[type[Exception], ...]:
        """The errors that a lent connection raises, and lending one."""
        ...

    @property
    def table_names(self) -> str:
        """The statement that reads the names of all tables."""
        ...

    def error(self, exc: Exception, doing: str) -> StoreError | InputError:
        """Translate an error for the caller, with the place and what to do."""
        ...

    def worth_another_try(self, exc: Exception) -> bool:
        """Tell whether the same transaction may succeed when it is begun again at once."""
        ...

    # ---- writing, all from one thread

    def schema_connection(self) -> DriverConnection:
        """Open a connection to look at the schema with, before anything is made."""
        ...

    @property
    def begin_schema(self) -> str:
        """The statement that begins a transaction which excludes other makers of the schema."""
        ...

    def connect(self) -> DriverConnection:
        """Open a connection whose commits are durable."""
        ...

    def begin(
        self, cursor: DriverCursor, scopes: Collection[ScopeKey], known: Mapping[ScopeKey, Tip]
    ) -> Mapping[ScopeKey, Tip]:
        """Begin a transaction that may write to these scopes alone.

        Returns their ends, as far as they are known now.
        """
        ...

    def write_rows(
        self, cursor: DriverCursor, statement: str, rows: Sequence[tuple[Any, ...]]
    ) -> int:
        """Run a statement of `sql` for many rows; how many rows it changed."""
        ...

    def last_erasure(self, cursor: DriverCursor) -> str:
        """Return the mark of the last erasure; "" where other processes cannot erase.

        No other erasure can happen before this transaction ends.
        """
        ...

    def forget_copies(self, cursor: DriverCursor, digest: str) -> None:
        """Delete what is kept of a scope beside its log, in the transaction that erases it."""
        ...

    def in_transaction(self, connection: DriverConnection) -> bool:
        """Tell whether a transaction has to be rolled back."""
        ...

    def checkpoint(self, connection: DriverConnection, *, whole: bool) -> bool:
        """Move the write-ahead log along where that is the writer's task.

        Returns whether nothing is left of it.
        """
        ...

    def scrub(self, connection: DriverConnection) -> bool:
        """Take deleted rows out of the files, as far as the database allows.

        Returns whether that was done.
        """
        ...

    def opened(self, connection: DriverConnection) -> None:
        """Compare the ends of logs with what was noted of them, where that is kept.

        Raises `StoreCorrupt` when acknowledged rows are missing, and `ConfigError`.
        """
        ...

    def committed(self, tips: Mapping[ScopeKey, Tip]) -> None:
        """Note the ends of logs that a transaction has moved, where that is kept."""
        ...

    def closed(self) -> None:
        """Release what `opened` took."""
        ...

    def prune_responses(self, before_us: int, most: int) -> int:
        """Delete first responses older than a moment, and the oldest beyond the newest `most`.

        Return their number.
        Uses a connection of its own and short transactions; may be called from any
        thread.
        """
        ...

    def drop_response(self, digest: str, key: str) -> bool:
        """Delete one response of the scope with a digest; return whether it was there.

        Uses a connection of its own; may be called from any thread.
        """
        ...

    # ---- reading, from any thread

    def readers(self) -> Readers:
        """Open what a journal reads with; nothing is connected yet."""
        ...


def corrupt(place: object, what: str) -> StoreCorrupt:
    """Make the error for a database that is readable but damaged, or not ours."""
    return StoreCorrupt(f"{place}: {what}; {ADVICE}")
