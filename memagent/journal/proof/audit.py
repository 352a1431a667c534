"""Checking a scope's log against its own hashes: order, headers, payloads and tip.

Finds any change to a row, a row taken out or put in, and a log cut short (the tip is
kept apart). Someone who may rewrite the whole database can also recompute every hash;
against that, `compare_tips` compares it with the ends noted elsewhere (`tips`).
"""

from __future__ import annotations

import struct
from typing import Any, Final

from sqlalchemy import Column, ColumnElement, Connection, Row, func, select

from memagent.journal.proof.redactions import Redactions
from memagent.journal.proof.tips import Noted, TipBook
from memagent.journal.rows import (
    ERASED,
    NAMELESS,
    ScopeKey,
    first_chain,
    nameless,
    next_chain,
    payload_digest,
    scope_digest,
)
from memagent.journal.schema import journal, payloads, scopes

_ROWS_AT_ONCE: Final = 256
_MOST_REPORTED: Final = 20


def audit_scope(connection: Connection, scope: ScopeKey) -> list[str]:
    """Return what is wrong with the scope's log, the first bad sequence first.

    Each line names a sequence; [] when nothing is wrong.

    A scope that was never written to is in order. At most 20 lines.
    """
    digest = scope_digest(scope)
    names = (
        (scopes.c.user_id == scope[0])
        & _same(scopes.c.agent_id, scope[1])
        & _same(scopes.c.run_id, scope[2])
    )
    tips = connection.execute(
        select(scopes).where((scopes.c.digest == digest) | names).order_by(scopes.c.id)
    ).all()
    strays = _strays(connection)
    if not tips:
        return strays
    tip = tips[0]
    problems: list[str] = []
    known = (tip.user_id, tip.agent_id, tip.run_id)
    if len(tips) > 1 or tip.digest != digest or known not in (scope, nameless(scope)):
        problems.append(
            "seq 0: the scope's row does not name it "
            f"({(tip.user_id, tip.agent_id, tip.run_id)}, {tip.digest})"
        )
    problems += _audit_log(connection, tip, digest)
    return (problems + strays)[:_MOST_REPORTED]


def audit_erased(connection: Connection, digest: str) -> list[str]:
    """Return what is wrong with the log of an erased scope, known by its digest alone."""
    tip = connection.execute(select(scopes).where(scopes.c.digest == digest)).first()
    if tip is None:
        return [f"seq 0: the scope {digest[:12]} is gone"]
    problems = _audit_log(connection, tip, digest)
    if tip.user_id != f"{NAMELESS}{digest}":
        problems.insert(0, "seq 0: the scope's row has another name than its digest")
    return problems


def _audit_log(connection: Connection, tip: Row[Any], digest: str) -> list[str]:
    auditor = _Auditor(connection, tip.id, digest)
    problems = auditor.run()
    if tip.head != auditor.seq:
        problems.append(
            f"seq {min(tip.head, auditor.seq) + 1}: the log ends at {auditor.seq}, its tip says "
            f"{tip.head}"
        )
    elif tip.chain != auditor.chain or tip.recorded_us != auditor.recorded_us:
        problems.append(f"seq {tip.head}: the tip does not match the last header")
    return problems[:_MOST_REPORTED]


def _same(column: Column[Any], value: str | None) -> ColumnElement[bool]:
    return column.is_(None) if value is None else column == value


def _strays(connection: Connection) -> list[str]:
    """Report rows that belong to no scope, as a removed row of a scope leaves behind."""
    problems: list[str] = []
    for table in (journal, payloads):
        lost = table.outerjoin(scopes, scopes.c.id == table.c.scope_id)
        rows = (
            select(func.min(table.c.seq), func.count())
            .select_from(lost)
            .where(scopes.c.id.is_(None))
        )
        first, count = connection.execute(rows).one()
        if count:
            problems.append(f"seq {first}: {count} rows of {table.name} belong to no scope")
    return problems


class _Auditor:
    """Walks one log.

    `seq`, `chain` and `recorded_us` are those of the last header seen.
    """

    def __init__(self, connection: Connection, scope_id: int, digest: str) -> None:
        self._connection = connection
        self._scope_id = scope_id
        self._redactions = Redactions(connection, digest)
        self.seq, self.chain, self.recorded_us = 0, first_chain(digest), 0
        last = select(func.coalesce(func.max(journal.c.seq), 0)).where(
            journal.c.scope_id == scope_id, journal.c.kind == ERASED
        )
        self._erased_before: int = connection.execute(last).scalar_one()

    def run(self) -> list[str]:
        problems = self._headless_payloads()
        after = -(1 << 62)
        while len(problems) < _MOST_REPORTED:
            rows = self._rows(after)
            for row in rows:
                problems += [f"seq {row.seq}: {what}" for what in self._check(row)]
                self.seq, self.chain, self.recorded_us = row.seq, row.chain, row.recorded_us
            if len(rows) < _ROWS_AT_ONCE:
                break
            after = rows[-1].seq
        return problems

    def _rows(self, after: int) -> list[Row[Any]]:
        joined = journal.outerjoin(
            payloads,
            (payloads.c.scope_id == journal.c.scope_id) & (payloads.c.seq == journal.c.seq),
        )
        return list(
            self._connection.execute(
                select(journal, payloads.c.salt, payloads.c.body)
                .select_from(joined)
                .where(journal.c.scope_id == self._scope_id, journal.c.seq > after)
                .order_by(journal.c.seq)
                .limit(_ROWS_AT_ONCE)
            )
        )

    def _headless_payloads(self) -> list[str]:
        joined = payloads.outerjoin(
            journal, (payloads.c.scope_id == journal.c.scope_id) & (payloads.c.seq == journal.c.seq)
        )
        rows = self._connection.execute(
            select(payloads.c.seq)
            .select_from(joined)
            .where(payloads.c.scope_id == self._scope_id, journal.c.seq.is_(None))
            .order_by(payloads.c.seq)
            .limit(_MOST_REPORTED)
        )
        return [f"seq {row.seq}: a payload without a header" for row in rows]

    def _check(self, row: Row[Any]) -> list[str]:
        problems: list[str] = []
        if row.seq != self.seq + 1:
            problems.append(f"expected {self.seq + 1} here: the log has a gap")
        if not self._follows(row):
            problems.append("the header does not follow from the one before")
        if row.recorded_us < self.recorded_us:
            problems.append("it was recorded before the row before it")
        erased = row.seq < self._erased_before
        if row.body is None and not erased:
            problems.append("its payload is missing")
        elif row.body is not None and erased:
            problems.append("its payload should have been erased")
        elif row.body is not None and not self._fits(row):
            problems.append("its payload is not the one that was written")
        return problems

    def _follows(self, row: Row[Any]) -> bool:
        try:
            chain = next_chain(
                self.chain,
                seq=row.seq,
                kind=row.kind,
                recorded_us=row.recorded_us,
                digest=row.payload_digest,
            )
        except (
            AttributeError,
            TypeError,
            struct.error,
        ):  # a value of another type, which SQLite lets through
            return False
        return chain == row.chain

    def _fits(self, row: Row[Any]) -> bool:
        try:
            own = payload_digest(row.salt, row.body)
        except TypeError:
            return False
        return own == row.payload_digest or own == self._redactions.digest(row.seq)


def compare_tips(connection: Connection, book: TipBook) -> list[str]:
    """Return where a store and the noted ends of its logs disagree; at most 20 lines.

    A log may have grown since its end was noted; it may not be shorter, missing, or have
    another chain hash at that place.
    """
    noted, bad = book.read()
    problems = [f"{bad} records of {book.path} are damaged or not signed by the key"] if bad else []
    for end in noted.values():
        problems += _compared(connection, end)
        if len(problems) >= _MOST_REPORTED:
            break
    if book.keyed:
        known = {digest for (digest,) in connection.execute(select(scopes.c.digest))}
        problems += [
            f"a log that was never noted appeared (scope {digest[:12]})"
            for digest in sorted(known - noted.keys())
        ]
    return problems[:_MOST_REPORTED]


def _compared(connection: Connection, end: Noted) -> list[str]:
    at = (journal.c.scope_id == scopes.c.id) & (journal.c.seq == end.seq)
    row = connection.execute(
        select(scopes.c.user_id, scopes.c.head, journal.c.chain)
        .select_from(scopes.outerjoin(journal, at))
        .where(scopes.c.digest == end.digest)
    ).first()
    if row is None:
        return [f"a whole log of {end.seq} rows is missing (scope {end.digest[:12]})"]
    who = repr(row.user_id) if row.user_id[:1] != NAMELESS else f"scope {end.digest[:12]}"
    if row.head < end.seq:
        return [f"the log of {who} ends at {row.head}; {end.seq} rows were written"]
    if row.chain is None or bytes(row.chain) != end.chain:
        return [f"the log of {who} was written anew: row {end.seq} has another chain"]
    return []
