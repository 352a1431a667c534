"""The reading side of a SQL journal: read-only connections, pages, and the heads of logs.

Pages end with what they read, so a reader that pauses between rows holds up neither
checkpoint nor erasure. A database without tables yet (its writer has only just begun)
reads as empty. Every read names the scope that it reads, which a backend may enforce.

The tables of the journal's database as scripts of SQL, and making them.

`journal` holds headers, `payloads` the words: erasing deletes the second and keeps the
first. `scopes` carries each log's tip (head, chain hash, time), so deciding a conflict
and opening a store of a million rows cost one row each. `idempotency` has first
responses by their key, `embeddings` vectors as little-endian float32 with a CRC-32 over
embedder, digest and vector: a cache, any row of which may vanish. Moments are
microseconds since 1970 in UTC.

`SCRIPTS` has a script for each revision, oldest first. A database is brought to the
newest one by all scripts that come after the revision in its `memagent_version`, in one
transaction, so a crash leaves the old state or the new.

Row-level security on PostgreSQL is a second wall between users, behind the scope that
every statement names. A transaction says whose rows it is about (`SET LOCAL
memagent.scopes`, digests with commas between) and sees no others; one that says nothing
sees nothing. `*` opens the names and the headers of all scopes, for listing and
auditing, and nobody's text. The wall stops a statement that forgot its WHERE. It stops
nobody who can run SQL of their own, and PostgreSQL does not apply it to superusers and
roles with BYPASSRLS: connect as an ordinary role.

A database's schema is absent, older, current, or not ours. Whatever is refused has not
been written to.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pydantic_core import ValidationError

from memagent.core import crash_points
from memagent.core.errors import StoreError
from memagent.core.records import Scope
from memagent.core.snapshot import JournalRow
from memagent.journal.backend import (
    SELECT_CHAIN,
    SELECT_ERASED,
    SELECT_LAST_ERASURE,
    SELECT_LAST_FORGETTING,
    SELECT_META,
    SELECT_PAGE,
    SELECT_RESPONSE,
    SELECT_SCOPES,
    SELECT_VECTORS,
    VECTORS_ONLY,
    WHOLE_STORE,
    Backend,
    corrupt,
)
from memagent.journal.proof.audit import Redactions, audit_erased, audit_scope, compare_tips
from memagent.journal.rows import (
    FORMAT,
    GUESTS,
    KNOWN_REVISIONS,
    NAMED,
    SCHEMA_REVISION,
    SETTING,
    TABLES,
    VERSION_TABLE,
    ReadConnection,
    ScopeKey,
    StoredResponse,
    decode_entry,
    first_chain,
    fits,
    follows,
    from_microseconds,
    scope_digest,
    vector_crc,
)

_NUMBER: Final = int(FORMAT.partition("/")[2])


class SchemaState(StrEnum):
    """The state of a database."""

    EMPTY = "empty"
    """It has no tables yet."""
    OLDER = "older"
    """It is ours, of an earlier revision."""
    CURRENT = "current"


def schema_state(connection: ReadConnection, backend: Backend) -> SchemaState:
    """Return the state of the database.

    Raises `StoreCorrupt` when it is not a memagent store and `StoreError` when it is a
    newer one.
    """
    place = backend.name
    every = [name for (name,) in connection.execute(backend.table_names).fetchall()]
    tables = [name for name in every if not name.startswith(GUESTS)]
    if not tables:
        return SchemaState.EMPTY
    if VERSION_TABLE not in tables:
        raise corrupt(place, f"not a memagent store (it holds {', '.join(sorted(tables)[:5])})")
    row = connection.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchone()
    if row is not None and row[0] not in KNOWN_REVISIONS:
        raise StoreError(
            f"{place} was written by a newer memagent (schema revision {row[0]}); this "
            f"version knows revisions up to {SCHEMA_REVISION}: "
            "install the newer version"
        )
    if row is None or row[0] != SCHEMA_REVISION:
        return SchemaState.OLDER
    missing = TABLES - set(tables)
    if missing:
        raise corrupt(place, f"tables are missing: {', '.join(sorted(missing))}")
    row = connection.execute("SELECT value FROM meta WHERE key = 'format'").fetchone()
    stored = None if row is None else row[0]
    known, _, number = str(stored).partition("/")
    if FORMAT.startswith(f"{known}/") and number.isdigit() and int(number) > _NUMBER:
        raise StoreError(
            f"{place} was written by a newer memagent (format {stored}); this version knows "
            f"{FORMAT}: install the newer version"
        )
    if stored != FORMAT:
        raise corrupt(place, f"its format is {stored!r}, not {FORMAT!r}")
    return SchemaState.CURRENT


_VERSIONS: Final = (
    f"CREATE TABLE IF NOT EXISTS {VERSION_TABLE} (version_num VARCHAR(32) NOT NULL, "
    f"CONSTRAINT {VERSION_TABLE}_pkc PRIMARY KEY (version_num))"
)
_FIRST: Final = """
CREATE TABLE meta ("key" VARCHAR(64) NOT NULL, value TEXT NOT NULL, PRIMARY KEY ("key"));
CREATE TABLE scopes (id {serial} NOT NULL, digest VARCHAR(64) NOT NULL, user_id TEXT NOT NULL,
    agent_id TEXT, run_id TEXT, head BIGINT NOT NULL, chain {bytes} NOT NULL,
    recorded_us BIGINT NOT NULL, PRIMARY KEY (id), UNIQUE (digest));
CREATE TABLE journal (scope_id INTEGER NOT NULL, seq BIGINT NOT NULL, kind VARCHAR(16) NOT NULL,
    recorded_us BIGINT NOT NULL, payload_digest {bytes} NOT NULL, chain {bytes} NOT NULL,
    PRIMARY KEY (scope_id, seq)) {by_key};
CREATE TABLE payloads (scope_id INTEGER NOT NULL, seq BIGINT NOT NULL, salt {bytes} NOT NULL,
    body {bytes} NOT NULL, PRIMARY KEY (scope_id, seq));
CREATE TABLE idempotency (scope_id INTEGER NOT NULL, "key" VARCHAR(256) NOT NULL,
    body_digest VARCHAR(128) NOT NULL, response_json TEXT NOT NULL, created_us BIGINT NOT NULL,
    PRIMARY KEY (scope_id, "key"));
CREATE TABLE embeddings (embedder VARCHAR(256) NOT NULL, digest VARCHAR(128) NOT NULL,
    dim INTEGER NOT NULL, vector {bytes} NOT NULL, crc BIGINT NOT NULL,
    PRIMARY KEY (embedder, digest));
"""
SCRIPTS: Final[Mapping[str, str]] = {
    SCHEMA_REVISION: f"{_FIRST}INSERT INTO meta VALUES ('format', '{FORMAT}')"
}
"""The script of each revision, with the names of types that differ in braces."""
_OWN: Final = f"scope_id = ANY (ARRAY(SELECT s.id FROM scopes s WHERE s.digest = ANY ({NAMED})))"
SEEN: Final = {
    "scopes": f"digest = ANY ({NAMED}) OR '*' = ANY ({NAMED})",
    "journal": f"{_OWN} OR '*' = ANY ({NAMED})",
    "payloads": _OWN,
    "idempotency": _OWN,
    "embeddings": f"coalesce(current_setting('{SETTING}', true), '') <> ''",
}
"""The rows of each table that a transaction may read and write. The cache of vectors
belongs to no scope.
"""


def row_security(table: str, policy: str, seen: str) -> tuple[str, ...]:
    """Return the statements that put up the wall for a table.

    `FORCE` holds the owner of the table to it too.
    """
    return (
        f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY",
        f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY",
        f"CREATE POLICY {policy} ON {table} USING ({seen})",
    )


def statements_after(revision: str | None, *, server: bool) -> list[str]:
    """Return the statements that bring tables of a revision to the newest; None is none yet."""
    known = KNOWN_REVISIONS.index(revision) + 1 if revision is not None else 0
    types = (
        {"serial": "SERIAL", "bytes": "BYTEA", "by_key": ""}
        if server
        else {"serial": "INTEGER", "bytes": "BLOB", "by_key": "WITHOUT ROWID"}
    )
    made = [
        statement
        for name in KNOWN_REVISIONS[known:]
        for statement in SCRIPTS[name].format(**types).split(";")
    ]
    if server and not known:
        made += [
            part for pair in SEEN.items() for part in row_security(pair[0], "named_scopes", pair[1])
        ]
    return made


def make_schema(backend: Backend) -> None:
    """Create or migrate the tables where needed, in one transaction.

    The caller holds the writer's lock where there is one. Raises as `schema_state` does,
    and what the driver raises.
    """
    with closing(backend.plain_connection()) as connection:
        if schema_state(connection, backend) is SchemaState.CURRENT:
            return
        # From here on no other process makes or migrates; one may have done so just now.
        connection.execute(backend.begin_schema)
        state = schema_state(connection, backend)
        if state is not SchemaState.CURRENT:
            connection.execute(_VERSIONS)
            row = connection.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchone()
            for statement in statements_after(row and row[0], server=backend.shared):
                connection.execute(statement)
            connection.execute(f"DELETE FROM {VERSION_TABLE}")
            connection.execute(f"INSERT INTO {VERSION_TABLE} VALUES ('{SCHEMA_REVISION}')")
            if state is SchemaState.EMPTY:
                crash_points.reach("schema.created")
            else:
                crash_points.reach("schema.migrated")
        connection.execute("COMMIT")


_PAGE_BYTES: Final = 4 * 1024 * 1024
_VECTORS_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True)
class Page:
    """A run of rows of one scope."""

    rows: tuple[JournalRow, ...]
    last_seq: int
    """The place where the next page begins, erased rows counted."""
    complete: bool
    """Whether the log ended with this page."""


class JournalReader:
    """Reads a database; thread-safe.

    Raises `StoreError`s; a database of another schema is refused on first use. `check`
    raises when it must not be read any more.
    """

    def __init__(self, backend: Backend, check: Callable[[], None]) -> None:
        self._backend, self._check = backend, check
        self.place = backend.name
        self._readers = backend.readers()
        self._ready = False

    def close(self) -> None:
        """Close every connection that nobody else uses."""
        self._readers.close()

    @contextmanager
    def _connected(self, *seen: str) -> Generator[ReadConnection]:
        with self._backend.translating("reading"), self._readers.reading(seen) as connection:
            yield connection

    def ready(self) -> bool:
        """Tell whether there are tables to read.

        Raises `StoreCorrupt` or `StoreError` for a database that cannot be read by this
        version.
        """
        self._check()
        if not self._ready:
            with self._connected() as connection:
                state = schema_state(connection, self._backend)
            if state is SchemaState.OLDER:
                raise StoreError(
                    f"{self.place} has an older schema than revision {SCHEMA_REVISION}; open "
                    "it once for writing to bring it up to date"
                )
            self._ready = state is SchemaState.CURRENT
        return self._ready

    def head(self, scope: ScopeKey) -> int:
        """Return the sequence of the scope's last row; 0 when it has none."""
        if not self.ready():
            return 0
        with self._backend.translating("reading"):
            return self._readers.head(scope)

    def page(
        self,
        scope: ScopeKey,
        after: int,
        *,
        rows: int | None = None,
        named: Callable[[bytes], bool] | None = None,
    ) -> Page:
        """Read the rows after a sequence, at most `rows` or else a page of them.

        All are checked; those whose encoded entry `named` says no to are left out.
        Raises `StoreCorrupt` for a row that is missing or cannot be read.
        """
        if not self.ready():
            return Page((), after, complete=True)
        digest, most = scope_digest(scope), rows or self._backend.page_rows
        read: list[tuple[int, int, bytes]] = []
        last_seq, size_bytes, complete = after, 0, True
        chain = first_chain(digest) if after == 0 else None
        with self._connected(digest) as connection:
            redactions = Redactions(connection, digest)
            result = connection.execute(SELECT_PAGE, (digest, after, most))
            head = after
            for seq, recorded_us, body, tip, salt, payload, kind, own in result:
                head, complete = tip, False
                if body is None:
                    erasure: int = connection.execute(SELECT_LAST_ERASURE, (digest,)).fetchone()[0]
                    if seq >= erasure:
                        raise corrupt(
                            self.place, f"the payload of row {seq} of scope {scope} is missing"
                        )
                    last_seq = erasure - 1
                    break
                if seq != last_seq + 1:
                    raise corrupt(self.place, f"row {last_seq + 1} of scope {scope} is missing")
                if not fits(salt, body, payload, seq, redactions.digest) or not (
                    chain is None
                    or follows(
                        chain, own, seq=seq, kind=kind, recorded_us=recorded_us, digest=payload
                    )
                ):
                    raise corrupt(
                        self.place, f"row {seq} of scope {scope} is not the one that was written"
                    )
                chain = own
                if named is None or named(body):
                    read.append((seq, recorded_us, body))
                last_seq = seq
                size_bytes += len(body)
                if size_bytes >= _PAGE_BYTES:
                    break
            else:
                complete = last_seq - after < most
                if complete and last_seq != head:
                    raise corrupt(
                        self.place,
                        f"the log of scope {scope} ends at row {last_seq}, its tip says {head}",
                    )
            result.close()
        return Page(tuple(self._row(scope, *row) for row in read), last_seq, complete)

    def _row(self, scope: ScopeKey, seq: int, recorded_us: int, body: bytes) -> JournalRow:
        try:
            return JournalRow(
                seq=seq, recorded_at=from_microseconds(recorded_us), entry=decode_entry(body)
            )
        except (ValidationError, OverflowError, TypeError) as exc:
            # The row is the one that was written, so what is unknown in it is not damage.
            if isinstance(exc, ValidationError) and _of_newer_release(exc):
                raise StoreError(
                    f"row {seq} of scope {scope} in {self.place} was written by a newer "
                    "memagent: install the newer version"
                ) from exc
            raise corrupt(
                self.place,
                f"the payload of row {seq} of scope {scope} is not a journal entry ({exc})",
            ) from exc

    def chain_at(self, scope: ScopeKey, seq: int) -> bytes | None:
        """Return the chain hash of a row (32 bytes).

        None where there is no such row, or where something was erased after it.
        """
        if not self.ready():
            return None
        digest = scope_digest(scope)
        with self._connected(digest) as connection:
            row = connection.execute(SELECT_CHAIN, (digest, seq)).fetchone()
            (erased,) = connection.execute(SELECT_LAST_FORGETTING, (digest,)).fetchone()
        return None if row is None or erased > seq else bytes(row[0])

    def scopes(self) -> list[Scope]:
        """Return every scope that holds something, in order of key; erased ones are nameless."""
        if not self.ready():
            return []
        with self._connected(WHOLE_STORE) as connection:
            rows = connection.execute(SELECT_SCOPES).fetchall()
        scopes = (Scope(user_id=user, agent_id=agent, run_id=run) for user, agent, run in rows)
        return sorted(scopes, key=lambda scope: scope.key)

    def response(self, scope: ScopeKey, key: str) -> StoredResponse | None:
        """Return the first response kept under an idempotency key."""
        if not self.ready():
            return None
        digest = scope_digest(scope)
        with self._connected(digest) as connection:
            row = connection.execute(SELECT_RESPONSE, (digest, key)).fetchone()
        return None if row is None else StoredResponse(key, *row)

    def meta(self, key: str) -> str | None:
        """Return a property of the store, None when it was never set."""
        if not self.ready():
            return None
        with self._connected() as connection:
            row = connection.execute(SELECT_META, (key,)).fetchone()
        return None if row is None else row[0]

    def vectors(self, embedder_id: str, digests: Sequence[str]) -> dict[str, bytes]:
        """Return known vectors as little-endian float32; damaged rows are left out."""
        known: dict[str, bytes] = {}
        if not digests or not self.ready():
            return known
        with self._connected(VECTORS_ONLY) as connection:
            for start in range(0, len(digests), _VECTORS_AT_ONCE):
                part = digests[start : start + _VECTORS_AT_ONCE]
                statement = SELECT_VECTORS.format(marks=", ".join("?" * len(part)))
                result = connection.execute(statement, (embedder_id, *part))
                known |= {
                    digest: blob
                    for digest, dim, blob, crc in result
                    if len(blob) == 4 * dim and vector_crc(embedder_id, digest, blob) == crc
                }
        return known

    def verify(self, scope: ScopeKey) -> list[str]:
        """Return what is wrong with the scope's log; see `audit_scope`."""
        if not self.ready():
            return []
        with self._connected(scope_digest(scope), WHOLE_STORE) as connection:
            return audit_scope(connection, scope)

    def compare_tips(self) -> list[str]:
        """Return where the noted ends and the logs disagree; see `audit.compare_tips`.

        [] where nothing was noted, unless a key or the settings ask for it: then a
        missing file is told.
        """
        self.ready()
        book = self._backend.book
        if book is None:
            return []
        if not book.path.exists():
            why = "the settings name it" if book.shared else "the store has a key"
            return [f"{book.path} is missing, though {why}"] if book.shared or book.keyed else []
        with self._connected(WHOLE_STORE) as connection:
            return compare_tips(connection, book)

    def verify_erased(self) -> list[str]:
        """Return what is wrong with the logs of erased scopes; see `audit_erased`."""
        if not self.ready():
            return []
        with self._connected(WHOLE_STORE) as connection:
            digests = [digest for (digest,) in connection.execute(SELECT_ERASED).fetchall()]
        problems: list[str] = []
        for digest in sorted(digests):
            with self._connected(digest, WHOLE_STORE) as connection:
                faults = audit_erased(connection, digest)
            problems += [f"erased scope {digest[:12]}: {fault}" for fault in faults]
        return problems


def _of_newer_release(exc: ValidationError) -> bool:
    """Tell whether nothing is wrong with an entry but kinds and fields that are not known."""
    kinds = {error["type"] for error in exc.errors(include_url=False, include_input=False)}
    return kinds <= {"union_tag_invalid", "extra_forbidden"}
