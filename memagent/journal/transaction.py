"""One write transaction: appends decided in turn, then one statement for all rows of a table.

An append is decided against its scope's tip as the appends before it in this
transaction left it. A refusal (conflict, used key) touches nothing, so it never fails
its batch mates; an error of the database fails the transaction as a whole.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from memagent.core import crash_points
from memagent.journal.backend import ERASURE_KEY, SCRUB_KEY, Backend, DriverCursor, Tip
from memagent.journal.rows import (
    ERASED,
    IdempotencyKeyUsed,
    PreparedEntry,
    ScopeKey,
    StoredResponse,
    conflict,
    first_chain,
    nameless,
    next_chain,
    scope_digest,
)


@dataclass(frozen=True, slots=True)
class AppendRequest:
    """Entries to append together, or not at all, after sequence `expect`."""

    scope: ScopeKey
    entries: tuple[PreparedEntry, ...]
    expect: int
    response: StoredResponse | None = None
    """Kept under its idempotency key in the same transaction."""
    rewrites: Mapping[int, PreparedEntry] = field(default_factory=dict[int, PreparedEntry])
    """New payloads of earlier rows, by sequence."""

    erases: bool = field(init=False)
    """Whether it erases words that were written before."""
    size_bytes: int = field(init=False)
    """Length of the payloads."""

    def __post_init__(self) -> None:
        erases = bool(self.rewrites) or ERASED in [entry.kind for entry in self.entries]
        object.__setattr__(self, "erases", erases)
        object.__setattr__(self, "size_bytes", sum([len(entry.body) for entry in self.entries]))


@dataclass(frozen=True, slots=True)
class Appended:
    """The place and the dates of entries that were written, from `first_seq` on."""

    first_seq: int
    recorded_us: tuple[int, ...]


class StaleTips(Exception):
    """A remembered tip is not what the database holds: something else wrote to it.

    Forget the tips and begin again.
    """


class Transaction:
    """Appends gathered inside a running transaction of `cursor`.

    `tips` are the scopes' ends known so far and are only read.
    """

    def __init__(
        self, cursor: DriverCursor, backend: Backend, tips: Mapping[ScopeKey, Tip]
    ) -> None:
        self._cursor = cursor
        self._backend = backend
        self._sql = backend.sql
        self._known = tips
        # Heads as the database has them, of the scopes in `tips`.
        self._written: dict[ScopeKey, int] = {}
        self._headers: list[tuple[Any, ...]] = []
        self._payloads: list[tuple[Any, ...]] = []
        self._responses: dict[tuple[int, str], tuple[StoredResponse, int]] = {}
        # Ends of the scopes appended to, valid once the transaction has committed.
        self.tips: dict[ScopeKey, Tip] = {}
        # Scopes that hold nothing after an erasure; their names go too.
        self._emptied: set[ScopeKey] = set()
        # The mark of the last erasure, "" when nothing was erased.
        self.erased = ""

    def stage(self, request: AppendRequest) -> Appended:
        """Take an append in.

        Raises `VersionConflict` or `IdempotencyKeyUsed` and has then changed nothing.
        """
        tip = self._tip(request.scope)
        if tip.head != request.expect:
            raise conflict(request.scope, expected=request.expect, actual=tip.head)
        if request.response is not None:
            self._refuse_used_key(tip.scope_id, request.response.key)
        if tip.scope_id == 0:
            tip = self._new_scope(request.scope, tip)
        first_seq = tip.head + 1
        last_erasure = self._erase(request, tip)
        self._written.setdefault(request.scope, tip.head)
        recorded: list[int] = []
        for seq, entry in enumerate(request.entries, first_seq):
            recorded_us = max(
                entry.recorded_us, tip.recorded_us
            )  # time never runs backwards within a log
            chain = next_chain(
                tip.chain, seq=seq, kind=entry.kind, recorded_us=recorded_us, digest=entry.digest
            )
            tip = Tip(tip.scope_id, seq, chain, recorded_us)
            recorded.append(recorded_us)
            self._headers.append((tip.scope_id, seq, entry.kind, recorded_us, entry.digest, chain))
            (self._emptied.add if entry.kind == ERASED else self._emptied.discard)(request.scope)
            if seq >= last_erasure:
                self._payloads.append((tip.scope_id, seq, entry.salt, entry.body))
        self.tips[request.scope] = tip
        if request.response is not None:
            self._responses[tip.scope_id, request.response.key] = (
                request.response,
                tip.recorded_us,
            )
        return Appended(first_seq, tuple(recorded))

    def _tip(self, scope: ScopeKey) -> Tip:
        """Return the scope's end; scope id 0 when the scope has no row yet."""
        tip = self.tips.get(scope) or self._known.get(scope)
        if tip is None:
            digest = scope_digest(scope)
            row = self._cursor.execute(self._sql.tip, (digest,)).fetchone()
            tip = Tip(*row) if row else Tip(0, 0, first_chain(digest), 0)
        return tip

    def _refuse_used_key(self, scope_id: int, key: str) -> None:
        staged = self._responses.get((scope_id, key))
        if staged is not None:
            raise IdempotencyKeyUsed(staged[0])
        row = self._cursor.execute(self._sql.response, (scope_id, key)).fetchone()
        if row is not None:
            raise IdempotencyKeyUsed(StoredResponse(key, *row))

    def _new_scope(self, scope: ScopeKey, tip: Tip) -> Tip:
        row = (scope_digest(scope), *scope, tip.head, tip.chain, tip.recorded_us)
        (scope_id,) = self._cursor.execute(self._sql.new_scope, row).fetchone()
        return tip._replace(scope_id=scope_id)

    def _erase(self, request: AppendRequest, tip: Tip) -> int:
        """Delete what the request's last `Erased` entry erases, and rewrite what it redacts.

        Returns that entry's sequence, 0 when there is none.
        """
        if not request.erases:
            return 0
        last = max(
            (
                seq
                for seq, entry in enumerate(request.entries, tip.head + 1)
                if entry.kind == ERASED
            ),
            default=0,
        )
        self.flush()
        if last:
            self._cursor.execute(self._sql.drop_payloads, (tip.scope_id,))
        for seq, entry in request.rewrites.items():
            row = (entry.salt, entry.body, tip.scope_id, seq)
            self._cursor.execute(self._sql.rewrite_payload, row)
        self._cursor.execute(self._sql.drop_responses, (tip.scope_id,))
        self._cursor.execute(self._sql.drop_vectors)
        self._backend.forget_copies(self._cursor, scope_digest(request.scope))
        self.erased = os.urandom(8).hex()
        for key in (SCRUB_KEY, ERASURE_KEY):
            self._cursor.execute(self._sql.put_meta, (key, self.erased))
        crash_points.reach("erase.deleted")
        return last

    def flush(self) -> None:
        """Write what has been staged.

        Raises `StaleTips` when a scope's end was not what was believed.
        """
        if not self._headers:
            return
        sql = self._sql
        self._run(sql.header, self._headers)
        crash_points.reach("headers.written")
        self._run(sql.payload, self._payloads)
        crash_points.reach("payloads.written")
        moves: list[tuple[Any, ...]] = [
            (*names, tip.head, tip.chain, tip.recorded_us, tip.scope_id, before)
            for tip, names, before in self._moved()
        ]
        if self._run(sql.move_head, moves) != len(moves):
            raise StaleTips
        if self._responses:
            self._run(
                sql.new_response,
                [
                    (scope_id, key, response.body_digest, response.response_json, created_us)
                    for (scope_id, key), (response, created_us) in self._responses.items()
                ],
            )
        crash_points.reach("heads.written")
        self._headers, self._payloads, self._responses, self._written = [], [], {}, {}

    def _run(self, statement: str, rows: list[tuple[Any, ...]]) -> int:
        return self._backend.write_rows(self._cursor, statement, rows)

    def _moved(self) -> list[tuple[Tip, ScopeKey, int]]:
        return [
            (self.tips[scope], nameless(scope) if scope in self._emptied else scope, before)
            for scope, before in self._written.items()
        ]
