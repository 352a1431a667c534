"""The journal's SQL as SQLAlchemy Core statements, and the hot ones compiled once.

The statements are portable. A durable append runs four of them; through `Connection.execute` they cost five times what the driver itself
takes, more than a fast disk's fsync, so the SQLite writer compiles them here and hands the text to the driver.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import bindparam, delete, func, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.base import Executable
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.dml import Insert
from sqlalchemy.sql.elements import ClauseElement
from sqlalchemy.sql.schema import Table

from memagent.stores.journal_rows import ERASED
from memagent.stores.schema import embeddings, idempotency, journal, meta, payloads, scopes

_INSERTS: Final = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}
SCRUB_KEY: Final = "scrub"
"""Key of the `meta` row that says that an erasure has still to be made good on disk."""


def upsert(table: Table, dialect_name: str) -> Insert:
    """An INSERT that overwrites a row with the same primary key. Raises `NotImplementedError` for a dialect not thought of."""
    if dialect_name not in _INSERTS:
        raise NotImplementedError(f"no way to overwrite existing rows is known for {dialect_name!r}")
    statement = _INSERTS[dialect_name](table)
    rest = [column.name for column in table.columns if not column.primary_key]
    return statement.on_conflict_do_update(
        index_elements=list(table.primary_key), set_={name: statement.excluded[name] for name in rest}
    )


SELECT_TIP: Final = select(scopes.c.id, scopes.c.head, scopes.c.chain, scopes.c.recorded_us).where(
    scopes.c.digest == bindparam("digest")
)
SELECT_HEAD: Final = select(scopes.c.head).where(scopes.c.digest == bindparam("digest"))
SELECT_SCOPES: Final = select(scopes.c.user_id, scopes.c.agent_id, scopes.c.run_id).where(scopes.c.head > 0)
SELECT_PAGE: Final = (
    select(journal.c.seq, journal.c.recorded_us, payloads.c.body)
    .select_from(
        journal.join(scopes, scopes.c.id == journal.c.scope_id).outerjoin(
            payloads, (payloads.c.scope_id == journal.c.scope_id) & (payloads.c.seq == journal.c.seq)
        )
    )
    .where(scopes.c.digest == bindparam("digest"), journal.c.seq > bindparam("after"))
    .order_by(journal.c.seq)
    .limit(bindparam("rows"))
)
"""Rows after a sequence; the body is NULL where it was erased."""
SELECT_LAST_ERASURE: Final = (
    select(func.coalesce(func.max(journal.c.seq), 0))
    .select_from(journal.join(scopes, scopes.c.id == journal.c.scope_id))
    .where(scopes.c.digest == bindparam("digest"), journal.c.kind == ERASED)
)
SELECT_RESPONSE: Final = (
    select(idempotency.c.body_digest, idempotency.c.response_json)
    .select_from(idempotency.join(scopes, scopes.c.id == idempotency.c.scope_id))
    .where(scopes.c.digest == bindparam("digest"), idempotency.c.key == bindparam("key"))
)
SELECT_VECTORS: Final = select(embeddings.c.digest, embeddings.c.dim, embeddings.c.vector, embeddings.c.crc).where(
    embeddings.c.embedder == bindparam("embedder"), embeddings.c.digest.in_(bindparam("digests", expanding=True))
)


def _text(statement: Executable, *order: str) -> str:
    """The statement as SQLite text whose question marks stand for the parameters in this order."""
    if not isinstance(statement, ClauseElement):
        raise TypeError(f"not a compilable statement: {statement!r}")
    compiled = statement.compile(dialect=sqlite.dialect(paramstyle="qmark"), column_keys=list(order))
    assert isinstance(compiled, SQLCompiler)
    positions = tuple(compiled.positiontup or ())
    assert positions == order, f"parameters stand as {positions}, not as {order}"
    return str(compiled)


class Sql:
    """SQLite text of what the writer runs; each name's comment gives its parameters."""

    tip: Final = _text(SELECT_TIP, "digest")
    head: Final = _text(SELECT_HEAD, "digest")
    new_scope: Final = _text(insert(scopes), "digest", "user_id", "agent_id", "run_id", "head", "chain", "recorded_us")
    header: Final = _text(insert(journal), "scope_id", "seq", "kind", "recorded_us", "payload_digest", "chain")
    payload: Final = _text(insert(payloads), "scope_id", "seq", "salt", "body")
    move_head: Final = _text(
        update(scopes)
        .where(scopes.c.id == bindparam("scope"), scopes.c.head == bindparam("before"))
        .values(head=bindparam("head"), chain=bindparam("chain"), recorded_us=bindparam("recorded_us")),
        "head",
        "chain",
        "recorded_us",
        "scope",
        "before",
    )
    response: Final = _text(
        select(idempotency.c.body_digest, idempotency.c.response_json).where(
            idempotency.c.scope_id == bindparam("scope"), idempotency.c.key == bindparam("key")
        ),
        "scope",
        "key",
    )
    new_response: Final = _text(insert(idempotency), "scope_id", "key", "body_digest", "response_json", "created_us")
    vector: Final = _text(upsert(embeddings, "sqlite"), "embedder", "digest", "dim", "vector", "crc")
    drop_payloads: Final = _text(delete(payloads).where(payloads.c.scope_id == bindparam("scope")), "scope")
    drop_responses: Final = _text(delete(idempotency).where(idempotency.c.scope_id == bindparam("scope")), "scope")
    drop_vectors: Final = _text(delete(embeddings))
    put_meta: Final = _text(upsert(meta, "sqlite"), "key", "value")
    ask_scrub: Final = _text(upsert(meta, "sqlite"), "key", "value")
    scrub_asked: Final = _text(select(meta.c.value).where(meta.c.key == bindparam("key")), "key")
    scrub_done: Final = _text(delete(meta).where(meta.c.key == bindparam("key")), "key")
