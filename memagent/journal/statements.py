"""The journal's SQL as SQLAlchemy Core statements, and the hot ones compiled once a dialect.

The statements are portable. A durable append runs four of them; through
`Connection.execute` they cost five times what the driver itself takes, more than a fast
disk's fsync, so they are compiled here and the writer hands their text to the driver.
The surprise: where `arrays` is set, a statement for many rows takes one array a column,
so that a group of any size is one round trip.
"""

from __future__ import annotations

from functools import cached_property
from importlib import import_module
from typing import Any, Final

from sqlalchemy import (
    ARRAY,
    Connection,
    Dialect,
    Engine,
    bindparam,
    delete,
    event,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.sql.base import Executable
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.dml import Insert, Update
from sqlalchemy.sql.elements import ClauseElement
from sqlalchemy.sql.schema import Column, Table
from sqlalchemy.sql.selectable import TableValuedAlias

from memagent.journal.rows import ERASED, NAMELESS, REDACTED
from memagent.journal.schema import embeddings, idempotency, journal, meta, payloads, scopes

_UPSERTING: Final = ("sqlite", "postgresql")
"""The dialects that know INSERT ... ON CONFLICT."""
SCRUB_KEY: Final = "scrub"
"""Key of the `meta` row that says that an erasure has still to be made good on disk."""
ERASURE_KEY: Final = "erasure"
"""Key of the `meta` row that holds the mark of the last erasure."""


def begin_with(engine: Engine, statement: str) -> None:
    """Begin every transaction of an engine with a statement, since its driver begins none."""

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:  # pyright: ignore[reportUnusedFunction]
        connection.exec_driver_sql(statement)


def upsert(table: Table, dialect_name: str, *, arrays: bool = False) -> Insert:
    """Make an INSERT that overwrites a row with the same primary key.

    Raises `NotImplementedError` for a dialect not thought of.
    """
    if dialect_name not in _UPSERTING:
        raise NotImplementedError(
            f"no way to overwrite existing rows is known for {dialect_name!r}"
        )
    dialect: Any = import_module(f"sqlalchemy.dialects.{dialect_name}")
    statement: sqlite.Insert = dialect.insert(table)
    if arrays:
        statement = statement.from_select(_names(table), select(_unnested(list(table.columns))))
    rest = [column.name for column in table.columns if not column.primary_key]
    return statement.on_conflict_do_update(
        index_elements=list(table.primary_key),
        set_={name: statement.excluded[name] for name in rest},
    )


SELECT_TIP: Final = select(scopes.c.id, scopes.c.head, scopes.c.chain, scopes.c.recorded_us).where(
    scopes.c.digest == bindparam("digest")
)
SELECT_HEAD: Final = select(scopes.c.head).where(scopes.c.digest == bindparam("digest"))
SELECT_SCOPES: Final = select(scopes.c.user_id, scopes.c.agent_id, scopes.c.run_id).where(
    scopes.c.head > 0, func.substr(scopes.c.user_id, 1, 1) != NAMELESS
)
SELECT_ERASED: Final = select(scopes.c.digest).where(
    scopes.c.head > 0, func.substr(scopes.c.user_id, 1, 1) == NAMELESS
)
SELECT_PAGE: Final = (
    select(
        journal.c.seq,
        journal.c.recorded_us,
        payloads.c.body,
        scopes.c.head,
        payloads.c.salt,
        journal.c.payload_digest,
        journal.c.kind,
        journal.c.chain,
    )
    .select_from(
        journal.join(scopes, scopes.c.id == journal.c.scope_id).outerjoin(
            payloads,
            (payloads.c.scope_id == journal.c.scope_id) & (payloads.c.seq == journal.c.seq),
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
SELECT_REDACTIONS: Final = (
    select(payloads.c.body, payloads.c.salt, journal.c.payload_digest)
    .select_from(
        journal.join(scopes, scopes.c.id == journal.c.scope_id).join(
            payloads,
            (payloads.c.scope_id == journal.c.scope_id) & (payloads.c.seq == journal.c.seq),
        )
    )
    .where(scopes.c.digest == bindparam("digest"), journal.c.kind == REDACTED)
    .order_by(journal.c.seq)
)
SELECT_LAST_FORGETTING: Final = (
    select(func.coalesce(func.max(journal.c.seq), 0))
    .select_from(journal.join(scopes, scopes.c.id == journal.c.scope_id))
    .where(scopes.c.digest == bindparam("digest"), journal.c.kind.in_((ERASED, REDACTED)))
)
"""The last entry after which nothing that was derived before may be used."""
SELECT_CHAIN: Final = (
    select(journal.c.chain)
    .select_from(journal.join(scopes, scopes.c.id == journal.c.scope_id))
    .where(scopes.c.digest == bindparam("digest"), journal.c.seq == bindparam("seq"))
)
SELECT_RESPONSE: Final = (
    select(idempotency.c.body_digest, idempotency.c.response_json)
    .select_from(idempotency.join(scopes, scopes.c.id == idempotency.c.scope_id))
    .where(scopes.c.digest == bindparam("digest"), idempotency.c.key == bindparam("key"))
)
SELECT_VECTORS: Final = select(
    embeddings.c.digest, embeddings.c.dim, embeddings.c.vector, embeddings.c.crc
).where(
    embeddings.c.embedder == bindparam("embedder"),
    embeddings.c.digest.in_(bindparam("digests", expanding=True)),
)


def _names(table: Table) -> list[str]:
    return [column.name for column in table.columns]


def _unnested(columns: list[Column[Any]]) -> TableValuedAlias:
    """Make rows out of one array a column, each a parameter of the column's name."""
    arrays = [bindparam(column.name, type_=ARRAY(column.type)) for column in columns]
    return (
        func.unnest(*arrays)
        .table_valued(*(column.name for column in columns), name="given")
        .render_derived()
    )


def _text(dialect: Dialect, statement: Executable, *order: str) -> str:
    """Compile a statement to text whose placeholders stand for the parameters in this order."""
    if not isinstance(statement, ClauseElement):
        raise TypeError(f"not a compilable statement: {statement!r}")
    compiled = statement.compile(dialect=dialect, column_keys=list(order))
    assert isinstance(compiled, SQLCompiler)
    positions = tuple(compiled.positiontup or ())
    assert positions == order, f"parameters stand as {positions}, not as {order}"
    return str(compiled)


class Statements:
    """The text of the writer's statements for one dialect with positional parameters.

    `arrays` as the module says. Each is compiled at first use: a reader needs two.
    """

    def __init__(self, dialect: Dialect, *, arrays: bool = False) -> None:
        self._dialect, self._arrays = dialect, arrays

    tip = cached_property[str](lambda self: self._text(SELECT_TIP, "digest"))
    head = cached_property[str](lambda self: self._text(SELECT_HEAD, "digest"))
    new_scope = cached_property[str](
        lambda self: self._text(
            insert(scopes).returning(scopes.c.id),
            *("digest", "user_id", "agent_id", "run_id", "head", "chain", "recorded_us"),
        )
    )
    # Rows of `journal`; as with the next three, for `Backend.write_rows`.
    header = cached_property[str](lambda self: self._rows(journal))
    payload = cached_property[str](lambda self: self._rows(payloads))
    new_response = cached_property[str](lambda self: self._rows(idempotency))
    vector = cached_property[str](
        lambda self: self._text(
            upsert(embeddings, self._dialect.name, arrays=self._arrays), *_names(embeddings)
        )
    )
    # Rows of (head, chain, recorded_us, scope, before).
    move_head = cached_property[str](
        lambda self: self._text(_move_heads() if self._arrays else _move_head(), *_MOVED)
    )
    response = cached_property[str](
        lambda self: self._text(
            select(idempotency.c.body_digest, idempotency.c.response_json).where(
                idempotency.c.scope_id == bindparam("scope"), idempotency.c.key == bindparam("key")
            ),
            "scope",
            "key",
        )
    )
    chain = cached_property[str](
        lambda self: self._text(
            select(journal.c.chain).where(
                journal.c.scope_id == bindparam("scope"), journal.c.seq == bindparam("sequence")
            ),
            "scope",
            "sequence",
        )
    )
    drop_payloads = cached_property[str](
        lambda self: self._text(
            delete(payloads).where(payloads.c.scope_id == bindparam("scope")), "scope"
        )
    )
    rewrite_payload = cached_property[str](
        lambda self: self._text(
            update(payloads)
            .where(payloads.c.scope_id == bindparam("scope"), payloads.c.seq == bindparam("at"))
            .values(salt=bindparam("salt"), body=bindparam("body")),
            *("salt", "body", "scope", "at"),
        )
    )
    drop_responses = cached_property[str](
        lambda self: self._text(
            delete(idempotency).where(idempotency.c.scope_id == bindparam("scope")), "scope"
        )
    )
    drop_vectors = cached_property[str](
        lambda self: (
            f"TRUNCATE {embeddings.name}" if self._arrays else self._text(delete(embeddings))
        )
    )
    put_meta = cached_property[str](
        lambda self: self._text(upsert(meta, self._dialect.name), "key", "value")
    )
    meta_value = cached_property[str](
        lambda self: self._text(select(meta.c.value).where(meta.c.key == bindparam("name")), "name")
    )
    scrub_done = cached_property[str](
        lambda self: self._text(
            delete(meta).where(meta.c.key == bindparam("name"), meta.c.value == bindparam("mark")),
            "name",
            "mark",
        )
    )

    def _text(self, statement: Executable, *order: str) -> str:
        return _text(self._dialect, statement, *order)

    def _rows(self, table: Table) -> str:
        names = _names(table)
        arrayed = select(_unnested(list(table.columns)))
        return self._text(
            insert(table).from_select(names, arrayed) if self._arrays else insert(table), *names
        )


_SET: Final = ("user_id", "agent_id", "run_id", "head", "chain", "recorded_us")
_MOVED: Final = (*_SET, "scope", "before")


def _move_head() -> Update:
    return (
        update(scopes)
        .where(scopes.c.id == bindparam("scope"), scopes.c.head == bindparam("before"))
        .values({name: bindparam(name) for name in _SET})
    )


def _move_heads() -> Update:
    types = {"scope": scopes.c.id.type, "before": scopes.c.head.type}
    moved = _unnested(
        [Column(name, types[name] if name in types else scopes.c[name].type) for name in _MOVED]
    )
    return (
        update(scopes)
        .where(scopes.c.id == moved.c.scope, scopes.c.head == moved.c.before)
        .values({name: moved.c[name] for name in _SET})
    )


SQLITE: Final = Statements(sqlite.dialect(paramstyle="qmark"))
