"""The journal on a PostgreSQL server: its backend and the journal itself.

Any number of processes write, so nothing about the end of a log is remembered.

A transaction names its scopes (`schema`), takes one advisory lock a scope, always in
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
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from sqlalchemy.exc import SQLAlchemyError

from memagent.core.errors import ConfigError, InputError, StoreError
from memagent.journal import postgres_engine
from memagent.journal.backend import (
    COUNT_RESPONSES,
    ERASURE_KEY,
    POSTGRES,
    VECTORS_ONLY,
    WHOLE_STORE,
    DriverCursor,
    ReadConnection,
    Statements,
    Tip,
    oldest_kept,
)
from memagent.journal.open_database import DatabaseJournal
from memagent.journal.postgres_engine import (
    OPEN_POOLS,
    PostgresReaders,
    last_result,
    naming,
    refuse_transaction_pooling,
)
from memagent.journal.proof.tips import NO_SEAL, Noted, Seal, TipBook, ends_of
from memagent.journal.rows import SCHEMA_LOCK, ScopeKey, first_chain, scope_digest, system_clock
from memagent.protocols import Clock

Scrub: TypeAlias = Literal["vacuum", "rewrite"]
"""After an erasure: free the space of what was deleted, or write the tables anew without
it.
"""

_WORDS: Final = "payloads, idempotency, scopes"
_WAIT_FOR_CONNECTION_S: Final = 10.0
_PRUNED_AT_ONCE: Final = 500


@dataclass(frozen=True)
class PostgresBackend:
    """The database at a URL; equal for the same URL and the same options."""

    url: str = field(repr=False)
    pool: int = 4
    scrub_by: Scrub = "vacuum"
    shared = True
    tips: Path | None = field(default=None, compare=False)
    """The file on this machine that notes the ends of logs; None notes nothing."""
    key: bytes | None = field(default=None, compare=False, repr=False)
    sql: Statements = field(default=POSTGRES, init=False, compare=False, repr=False)
    page_rows = 128
    begin_schema = f"BEGIN; SELECT pg_advisory_xact_lock({SCHEMA_LOCK})"
    table_names = (
        "SELECT relname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace "
        "WHERE nspname = current_schema() AND relkind IN ('r', 'p')"
    )

    @cached_property
    def book(self) -> TipBook | None:
        """The ends of logs as this machine noted them last."""
        return TipBook(self.tips, self.key, shared=True) if self.tips is not None else None

    def ends(self, connection: Any) -> list[Noted]:
        """Return where all logs end now."""
        connection.execute(f"BEGIN READ ONLY; {naming([WHOLE_STORE])}")
        ends = ends_of(connection)
        connection.execute("COMMIT")
        return ends

    @property
    def name(self) -> str:
        """User, host, port and database."""
        return postgres_engine.label(self.url)

    @property
    def driver_error(self) -> type[Exception]:
        """`psycopg.Error`."""
        return postgres_engine.psycopg_module().Error

    @property
    def read_errors(self) -> tuple[type[Exception], ...]:
        """The driver's errors and the pool's."""
        return (self.driver_error, SQLAlchemyError)

    def error(self, exc: Exception, doing: str) -> StoreError | InputError:
        """Translate an error of the driver or the pool."""
        return postgres_engine.store_error(exc, self.name, doing)

    def worth_another_try(self, exc: Exception) -> bool:
        """Tell whether the connection died, or another transaction was in the way."""
        return postgres_engine.worth_another_try(exc)

    def schema_connection(self) -> Any:
        """Open a connection; see `connect`."""
        return self.connect()

    def connect(self) -> Any:
        """Open a connection; see `postgres_engine.connect`."""
        return postgres_engine.connect(self.url)

    def begin(
        self,
        cursor: DriverCursor,
        scopes: Collection[ScopeKey],
        known: Mapping[ScopeKey, Tip],  # noqa: ARG002  # interface
    ) -> Mapping[ScopeKey, Tip]:
        """Name the scopes, lock them, read their ends."""
        by_digest = {scope_digest(scope): scope for scope in scopes}
        if not by_digest:
            cursor.execute(f"BEGIN; {naming([VECTORS_ONLY])}")
            return {}
        keys = ", ".join(str(key) for key in sorted(map(lock_key, by_digest)))
        digests = ", ".join(f"'{digest}'" for digest in by_digest)
        cursor.execute(
            f"BEGIN; {naming(list(by_digest))}; SELECT pg_advisory_xact_lock(k) FROM "
            f"unnest(ARRAY[{keys}]::bigint[]) k; "
            f"SELECT digest, id, head, chain, recorded_us FROM scopes WHERE digest IN ({digests})"
        )
        tips = {scope: Tip(0, 0, first_chain(digest), 0) for digest, scope in by_digest.items()}
        return tips | {by_digest[digest]: Tip(*tip) for digest, *tip in last_result(cursor)}

    def write_rows(
        self, cursor: DriverCursor, statement: str, rows: Sequence[tuple[Any, ...]]
    ) -> int:
        """Run one statement with an array a column."""
        if not rows:
            return 0
        return cursor.execute(
            statement, [list(column) for column in zip(*rows, strict=True)]
        ).rowcount

    def last_erasure(self, cursor: Any) -> str:
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
        return (
            connection.info.transaction_status
            != postgres_engine.psycopg_module().pq.TransactionStatus.IDLE
        )

    def checkpoint(self, connection: Any, *, whole: bool) -> bool:  # noqa: ARG002  # interface
        """Do nothing: the server makes its checkpoints itself."""
        return True

    def scrub(self, connection: Any) -> bool:
        """Vacuum the tables with text, or write them anew, which shuts others out meanwhile."""
        how = "(FULL)" if self.scrub_by == "rewrite" else "(INDEX_CLEANUP ON)"
        kept = connection.execute("SELECT to_regclass('checkpoint_parts')").fetchone()[0]
        tables = _WORDS if kept is None else f"{_WORDS}, checkpoints, checkpoint_parts"
        refusals: list[object] = []
        connection.add_notice_handler(
            refusals.append
        )  # a role that does not own the tables is told so by a warning only
        try:
            connection.execute(f"VACUUM {how} {tables}")
        finally:
            connection.remove_notice_handler(refusals.append)
        return not refusals

    def opened(self, connection: Any) -> None:
        """Open the file of the ends; the server keeps its own log, and checks it."""
        if self.book is not None:
            self.book.open(() if self.book.path.exists() else self.ends(connection))

    def committed(self, tips: Mapping[ScopeKey, Tip]) -> None:
        """Note the ends of logs on this machine, where the settings say so."""
        if self.book is not None:
            self.book.note({key: tip for key, tip in tips.items() if tip.head})

    def closed(self) -> None:
        """Close the file of the ends."""
        if self.book is not None:
            self.book.close()

    def prune_responses(self, before_us: int, most: int) -> int:
        """Delete old responses of some hundred scopes at a time.

        Each scope is named, since a transaction sees no responses of other scopes.
        """
        total = 0
        with closing(self.connect()) as connection:
            connection.execute(f"BEGIN READ ONLY; {naming([WHOLE_STORE])}")
            every = [
                digest for (digest,) in connection.execute("SELECT digest FROM scopes").fetchall()
            ]
            connection.execute("COMMIT")
            parts = [
                every[start : start + _PRUNED_AT_ONCE]
                for start in range(0, len(every), _PRUNED_AT_ONCE)
            ]
            counts = Counter[int]()
            for part in parts:
                connection.execute(f"BEGIN READ ONLY; {naming(part)}")
                counts.update(dict(connection.execute(COUNT_RESPONSES).fetchall()))
                connection.execute("COMMIT")
            limit_us = oldest_kept(counts, before_us=before_us, most=most)
            for part in parts:
                connection.execute(f"BEGIN; {naming(part)}")
                total += connection.execute(
                    "DELETE FROM idempotency WHERE created_us < %s", (limit_us,)
                ).rowcount
                connection.execute("COMMIT")
        return total

    def drop_response(self, digest: str, key: str) -> bool:
        """Delete one response."""
        with closing(self.connect()) as connection:
            connection.execute(f"BEGIN; {naming([digest])}")
            gone = connection.execute("DELETE FROM idempotency WHERE key = %s", (key,)).rowcount
            connection.execute("COMMIT")
        return gone > 0

    def readers(self) -> PostgresReaders:
        """Use the pool of this process, shared by all who read the same database."""
        return PostgresReaders(self, OPEN_POOLS.acquire(self, self.connect, self.pool))


def lock_key(digest: str) -> int:
    """Return the 64-bit key of a scope's advisory lock.

    Scopes that share one by chance merely wait for each other.
    """
    return int.from_bytes(bytes.fromhex(digest[:16]), signed=True)


_MOST_CONNECTIONS = 64


class PostgresJournal(DatabaseJournal):
    """A `Journal` in the database at a `postgresql://` URL.

    Its tables are made when they do not exist.

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
        backend = PostgresBackend(url, pool, scrub, tips=seal.tips, key=seal.key)
        super().__init__(backend, read_only=read_only, clock=clock)
        if read_only and not self._reader.ready():
            self.close()
            raise StoreError(
                f"there is no memory at {self.place}; it is made when it is first opened for "
                "writing"
            )

    def compare_tips(self) -> list[str]:
        """Return where the server and the ends noted on this machine disagree; blocks.

        [] where the settings name no `tips`. A log that other machines wrote alone is not
        noted here, and not told.
        """
        self._check()
        backend = self._backend
        assert isinstance(backend, PostgresBackend)
        book = backend.book
        if book is None:
            return []
        if not book.path.exists():
            return [f"{book.path} is missing, though the settings name it"]
        return self._reader.compare_tips(book)

    def note_ends(self) -> int:
        """Note the ends of all logs anew, as the server has them now; return how many.

        Raises `InputError` where the settings name no `tips`.
        """
        self._check()
        backend = self._backend
        assert isinstance(backend, PostgresBackend)
        if backend.book is None:
            raise InputError("name a file as `tips` of the store's settings to note ends there")
        with closing(backend.connect()) as connection:
            ends = backend.ends(connection)
        backend.book.rewrite(ends)
        return len(ends)

    def examine(self) -> tuple[dict[str, str], list[str]]:
        """Return facts about the server, and what is wrong with how it is used.

        Blocks; raises `StoreError`s.
        """
        self._check()
        return self._reader.ask(_examined)


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
    wrong = (
        [f"role {role} is not bound by row-level security; connect as an ordinary role"]
        if unbound
        else []
    )
    wrong += [
        f"the server runs with {name} off: a power cut may lose or tear what was acknowledged"
        for name in ("fsync", "full_page_writes")
        if connection.execute(f"SHOW {name}").fetchone() != ("on",)
    ]
    return facts, wrong
