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

from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal, TypeAlias

from sqlalchemy.exc import SQLAlchemyError

from memagent.core.errors import ConfigError, InputError, StoreError
from memagent.journal import postgres_engine
from memagent.journal.backend import (
    ERASURE_KEY,
    POSTGRES,
    VECTORS_ONLY,
    WHOLE_STORE,
    Backend,
    DriverCursor,
    Statements,
)
from memagent.journal.open_database import DatabaseJournal
from memagent.journal.postgres_engine import OPEN_POOLS, PostgresReaders, last_result, naming
from memagent.journal.proof.tips import NO_SEAL, Noted, Seal, ends_of
from memagent.journal.rows import (
    SCHEMA_LOCK,
    ReadConnection,
    ScopeKey,
    Tip,
    first_chain,
    scope_digest,
    system_clock,
)
from memagent.protocols import Clock

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
        return postgres_engine.label(self.url)

    @property
    def faults(self) -> tuple[type[Exception], ...]:
        """The driver's errors and the pool's."""
        return (postgres_engine.psycopg_module().Error, SQLAlchemyError)

    def error(self, exc: Exception, doing: str) -> StoreError | InputError:
        """Translate an error of the driver or the pool."""
        return postgres_engine.store_error(exc, self.name, doing)

    def worth_another_try(self, exc: Exception) -> bool:
        """Tell whether the connection died, or another transaction was in the way."""
        state: str = getattr(exc, "sqlstate", None) or ""
        return postgres_engine.connection_was_lost(exc) or state.startswith(("40", "23"))

    def readers(self) -> PostgresReaders:
        """Use the pool of this process, shared by all who read the same database."""
        pooled = partial(postgres_engine.pooled_engine, self.connect, self.pool)
        return PostgresReaders(self, OPEN_POOLS.acquire(self, pooled))

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

    def write_rows(
        self, cursor: DriverCursor, statement: str, rows: Sequence[tuple[Any, ...]]
    ) -> int:
        """Run one statement with an array a column."""
        if not rows:
            return 0
        return cursor.execute(
            statement, [list(column) for column in zip(*rows, strict=True)]
        ).rowcount

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
        return (
            connection.info.transaction_status
            != postgres_engine.psycopg_module().pq.TransactionStatus.IDLE
        )

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

    def ends(self, connection: Any) -> list[Noted]:
        """Return where all logs end now."""
        connection.execute(f"BEGIN READ ONLY; {naming([WHOLE_STORE])}")
        ends = ends_of(connection)
        connection.execute("COMMIT")
        return ends


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
        postgres_engine.refuse_transaction_pooling(url)
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
