"""The service's own tables, and bringing a database to them.

On PostgreSQL they lie beside the journal's, in the same schema, under names of their own;
for a SQLite store they are a separate file. `service_responses` exists on PostgreSQL
alone, where workers share their responses. It is the one table with text of users, so it
stands behind row-level security like the journal's: a transaction names the users it is
about (`owner_digest`). A new database is made from this metadata and stamped
with its revision.
"""

from __future__ import annotations

import hashlib
from typing import Final

from sqlalchemy import (
    DDL,
    BigInteger,
    Column,
    Engine,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    event,
    insert,
    inspect,
    select,
)

from memagent.core.errors import StoreError
from memagent.journal.revision import NAMED, SCHEMA_LOCK
from memagent.journal.schema import row_security

REVISION: Final = "0001"
"""The revision that this metadata describes."""
VERSION_TABLE: Final = "service_version"

metadata = MetaData()
shared = MetaData()
"""Tables that only a database of many workers has."""
version = Table(
    VERSION_TABLE,
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name=f"{VERSION_TABLE}_pkc"),
)
meta = Table(
    "service_meta", metadata, Column("key", String(64), primary_key=True), Column("value", Text)
)
keys = Table(
    "service_keys",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("name", Text, nullable=False),
    Column("secret_hmac", String(64), nullable=False),
    Column("scopes", Text, nullable=False),
    Column("user_id", Text),
    Column("created_us", BigInteger, nullable=False),
    Column("revoked_us", BigInteger),
)
jobs = Table(
    "service_jobs",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("scope", Text, nullable=False, index=True),
    Column("kind", String(16), nullable=False),
    Column("state", String(16), nullable=False, index=True),
    Column("session_id", Text),
    Column("attempts", Integer, nullable=False),
    Column("error", String(64)),
    Column("result", Text),
    Column("created_us", BigInteger, nullable=False),
    Column("updated_us", BigInteger, nullable=False),
)
snapshots = Table(
    "service_snapshots",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("scope", Text, nullable=False, index=True),
    Column("name", Text, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("items", Integer, nullable=False),
    Column("created_us", BigInteger, nullable=False),
)
claims = Table(
    "service_claims",
    metadata,
    Column("place", String(160), primary_key=True),
    Column("worker", String(64), nullable=False, index=True),
    Column("until_us", BigInteger, nullable=False),
)
"""Leases: the worker that alone works on a place, and until when."""
responses = Table(
    "service_responses",
    shared,
    Column("owner", String(64), primary_key=True),
    Column("place", String(160), primary_key=True),
    Column("body_digest", String(64), nullable=False),
    Column("response_json", Text, nullable=False),
    Column("until_us", BigInteger, nullable=False, index=True),
)
"""First responses to requests that wrote nothing, for a while."""

_DUE: Final = "until_us < CAST(extract(epoch FROM statement_timestamp()) * 1000000 AS bigint)"
_SEEN: Final = f"owner = ANY ({NAMED}) OR ('*' = ANY ({NAMED}) AND {_DUE})"
for _statement in row_security("service_responses", "named_owners", _SEEN):
    event.listen(shared, "after_create", DDL(_statement).execute_if(dialect="postgresql"))


def owner_digest(user_id: str) -> str:
    """Return the name of a user for transactions about the stored responses."""
    return hashlib.sha256(f"memagent/owner\x00{user_id}".encode()).hexdigest()


def prepare_tables(engine: Engine, place: str) -> None:
    """Create the tables where there are none; other processes that do so wait.

    Raises `StoreError` for tables of a newer service.
    """
    with engine.begin() as connection:
        server = engine.dialect.name == "postgresql"
        if server:
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({SCHEMA_LOCK})")
        revision = None
        if VERSION_TABLE in inspect(connection).get_table_names():
            revision = connection.execute(select(version.c.version_num)).scalar()
        if revision is None:
            for tables in (version.metadata, metadata, *((shared,) if server else ())):
                tables.create_all(connection)
            connection.execute(insert(version).values(version_num=REVISION))
        elif revision != REVISION:
            raise StoreError(
                f"the service's tables at {place} were made by a newer memagent (schema "
                f"revision {revision}); this version knows revisions "
                f"up to {REVISION}: install the newer version"
            )
