"""The tables of the journal's database as scripts of SQL, and making them.

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

from collections.abc import Mapping
from contextlib import closing
from enum import StrEnum
from typing import Final

from memagent.core import crash_points
from memagent.core.errors import StoreError
from memagent.journal.backend import Backend, corrupt
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
