"""The interface between the journal and a database.

One value holds what differs from one kind of database to the next.

Everything else (entries, digests, chain, grouping, pages, audit) is written once
against it. A backend names one database; it holds no connection of its own, and the
writer and the readers ask it for theirs. `shared` says the most: only where one process
writes may ends of logs be remembered, elsewhere they are asked for inside every
transaction and before every read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from memagent.core.errors import InputError, StoreCorrupt, StoreError
from memagent.journal.rows import ScopeKey

if TYPE_CHECKING:
    from memagent.journal.statements import Statements

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
