"""The tables of the journal's database, in portable SQLAlchemy Core.

`journal` holds headers, `payloads` the words: erasing deletes the second and keeps the
first. `scopes` carries each log's tip (head, chain hash, time), so deciding a conflict
and opening a store of a million rows cost one row each. Moments are microseconds since
1970 in UTC. Nothing here is of one database alone: what SQLite wants beyond it
(`WITHOUT ROWID`) is a hint that others ignore, and on PostgreSQL row-level
security adds policies. A new database is made from this metadata and stamped with
`SCHEMA_REVISION`; Alembic is loaded only for one that stands elsewhere. What reads and
writes rows is text (`statements`) and loads neither.

Row-level security on PostgreSQL is a second wall between users, behind the scope that
every statement names. A transaction says whose rows it is about (`SET LOCAL
memagent.scopes`, digests with commas between) and sees no others; one that says nothing
sees nothing. `*` opens the names and the headers of all scopes, for listing and auditing,
and nobody's text. The wall stops a statement that forgot its WHERE. It stops nobody who
can run SQL of their own, and PostgreSQL does not apply it to superusers and roles with
BYPASSRLS: connect as an ordinary role.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    DDL,
    BigInteger,
    Column,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    event,
)

from memagent.journal.revision import NAMED, SETTING, VERSION_TABLE

metadata = MetaData()


def version_table(name: str) -> Table:
    """Make the table of Alembic's revisions, as Alembic would make it.

    It is apart from the metadata of the other tables, which Alembic compares.
    """
    return Table(
        name,
        MetaData(),
        Column("version_num", String(32), nullable=False),
        PrimaryKeyConstraint("version_num", name=f"{name}_pkc"),
    )


version = version_table(VERSION_TABLE)

meta = Table(
    "meta",
    metadata,
    Column("key", String(64), primary_key=True),
    Column("value", Text, nullable=False),
)

scopes = Table(
    "scopes",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("digest", String(64), nullable=False, unique=True),
    Column("user_id", Text, nullable=False),
    Column("agent_id", Text),
    Column("run_id", Text),
    Column("head", BigInteger, nullable=False),
    Column("chain", LargeBinary(32), nullable=False),
    Column("recorded_us", BigInteger, nullable=False),
)
"""One row a scope, with the tip of its log."""

journal = Table(
    "journal",
    metadata,
    Column("scope_id", Integer, primary_key=True, autoincrement=False),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", String(16), nullable=False),
    Column("recorded_us", BigInteger, nullable=False),
    Column("payload_digest", LargeBinary(32), nullable=False),
    Column("chain", LargeBinary(32), nullable=False),
    sqlite_with_rowid=False,
)
"""Headers; they outlive an erasure."""

payloads = Table(
    "payloads",
    metadata,
    Column("scope_id", Integer, primary_key=True, autoincrement=False),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("salt", LargeBinary(16), nullable=False),
    Column("body", LargeBinary, nullable=False),
)
"""Entries as JSON; deleted by an erasure together with their salt."""

idempotency = Table(
    "idempotency",
    metadata,
    Column("scope_id", Integer, primary_key=True, autoincrement=False),
    Column("key", String(256), primary_key=True),
    Column("body_digest", String(128), nullable=False),
    Column("response_json", Text, nullable=False),
    Column("created_us", BigInteger, nullable=False),
)
"""First responses by idempotency key, written with the append that they answer for."""

embeddings = Table(
    "embeddings",
    metadata,
    Column("embedder", String(256), primary_key=True),
    Column("digest", String(128), primary_key=True),
    Column("dim", Integer, nullable=False),
    Column("vector", LargeBinary, nullable=False),
    Column("crc", BigInteger, nullable=False),
)
"""Vectors as little-endian float32, by embedder and text digest, with a CRC-32 over all
three. A cache: any row may vanish.
"""

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
ROW_SECURITY: Final = tuple(
    statement
    for table, seen in SEEN.items()
    for statement in (
        f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY",
        f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY",
        f"CREATE POLICY named_scopes ON {table} USING ({seen})",
    )
)
"""Statements that put the wall up; `FORCE` holds the owner of the tables to it too."""

for _statement in ROW_SECURITY:
    event.listen(metadata, "after_create", DDL(_statement).execute_if(dialect="postgresql"))
