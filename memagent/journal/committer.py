"""The writing connection of a database: commits, checkpoints, scrubbing, reconnection.

Erasing is more than deleting: databases leave what was deleted in their files. So after
an erasure the backend scrubs them (SQLite is rebuilt with `VACUUM`, which takes time in
proportion to its size while other appends wait) before the erasure is acknowledged. A
mark in the database survives a crash in between, and the next open scrubs. The surprise:
a connection that is lost during a commit leaves it open whether the commit happened. The
committer connects again and looks, so a caller gets a failure only where nothing was
written, or where nobody can tell (`StoreUnavailable` that says so).

In one transaction appends are decided in turn, then one statement writes all rows of a
table. An append is decided against its scope's tip as the appends before it left it. A
refusal (conflict, used key) touches nothing, so it never fails its batch mates; an error
of the database fails the transaction as a whole.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from memagent.core import crash_points
from memagent.core.errors import (
    InputError,
    StoreCorrupt,
    StoreError,
    StoreReadOnly,
    StoreUnavailable,
)
from memagent.journal.backend import (
    ERASURE_KEY,
    SCRUB_KEY,
    Backend,
    DriverConnection,
    DriverCursor,
)
from memagent.journal.rows import (
    ERASED,
    IdempotencyKeyUsed,
    PreparedEntry,
    ScopeKey,
    StoredResponse,
    Tip,
    conflict,
    first_chain,
    nameless,
    next_chain,
    scope_digest,
    vector_crc,
)

Recorded: TypeAlias = tuple[int, ...]
"""The dates of entries that were written, in microseconds since 1970; `expect` tells the place."""


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

    def outcome_of(self, request: AppendRequest) -> Recorded | StoreError:
        """Take an append in, or return why it is refused: then nothing has changed.

        A refusal is a `VersionConflict` or an `IdempotencyKeyUsed`.
        """
        tip = self.tips.get(request.scope) or self._known.get(request.scope)
        if tip is None:
            digest = scope_digest(request.scope)
            row = self._cursor.execute(self._sql.tip, (digest,)).fetchone()
            # scope id 0 when the scope has no row yet
            tip = Tip(*row) if row else Tip(0, 0, first_chain(digest), 0)
        if tip.head != request.expect:
            return conflict(request.scope, expected=request.expect, actual=tip.head)
        if request.response is not None:
            used = self._response_of(tip.scope_id, request.response.key)
            if used is not None:
                return IdempotencyKeyUsed(used)
        if tip.scope_id == 0:
            row = (scope_digest(request.scope), *request.scope, *tip[1:])
            (scope_id,) = self._cursor.execute(self._sql.new_scope, row).fetchone()
            tip = tip._replace(scope_id=scope_id)
        first_seq = tip.head + 1
        last_erasure = self._erase(request, tip) if request.erases else 0
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
        return tuple(recorded)

    def _response_of(self, scope_id: int, key: str) -> StoredResponse | None:
        staged = self._responses.get((scope_id, key))
        if staged is not None:
            return staged[0]
        row = self._cursor.execute(self._sql.response, (scope_id, key)).fetchone()
        return None if row is None else StoredResponse(key, *row)

    def _erase(self, request: AppendRequest, tip: Tip) -> int:
        """Delete what the request's last `Erased` entry erases, and rewrite what it redacts.

        Returns that entry's sequence, 0 when there is none.
        """
        numbered = enumerate(request.entries, tip.head + 1)
        last = max([seq for seq, entry in numbered if entry.kind == ERASED], default=0)
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
        self.write_rows(sql.header, self._headers)
        crash_points.reach("headers.written")
        self.write_rows(sql.payload, self._payloads)
        crash_points.reach("payloads.written")
        moves: list[tuple[Any, ...]] = []
        for scope, before in self._written.items():
            tip, names = self.tips[scope], nameless(scope) if scope in self._emptied else scope
            moves.append((*names, tip.head, tip.chain, tip.recorded_us, tip.scope_id, before))
        if self.write_rows(sql.move_head, moves) != len(moves):
            raise StaleTips
        kept = [
            (scope_id, key, response.body_digest, response.response_json, created_us)
            for (scope_id, key), (response, created_us) in self._responses.items()
        ]
        self.write_rows(sql.new_response, kept)
        crash_points.reach("heads.written")
        self._headers, self._payloads, self._responses, self._written = [], [], {}, {}

    def write_rows(self, statement: str, rows: list[tuple[Any, ...]]) -> int:
        """Run a statement of the backend's `sql` for many rows; return how many it changed."""
        if rows and self._sql.arrays:
            columns = [list(column) for column in zip(*rows, strict=True)]
            return self._cursor.execute(statement, columns).rowcount
        return self._cursor.executemany(statement, rows).rowcount if rows else 0


Outcome: TypeAlias = Recorded | StoreError | InputError
VectorKey: TypeAlias = tuple[str, str]
"""(embedder id, text digest)."""
_SCRUB_AGAIN_S: Final = 30.0
_CHECKPOINT_BYTES: Final = 4 * 1024 * 1024
_COMMIT_BYTES: Final = 16 * 1024
_MAX_TIPS: Final = 65_536
_RECONNECT_S: Final = 5.0
_RECONNECT_PAUSE_S: Final = 0.1
# Errors that concern the whole store, not one append of a group.
_TELLING: Final = (StoreUnavailable, StoreReadOnly, StoreCorrupt)


class PendingVectors:
    """Vectors that wait for the next commit. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._vectors: dict[VectorKey, bytes] = {}

    def __bool__(self) -> bool:
        return bool(self._vectors)

    def put(self, rows: Mapping[VectorKey, bytes]) -> bool:
        """Add vectors; return whether none waited before."""
        with self._lock:
            first = not self._vectors
            self._vectors |= rows
        return first

    def waiting(self, keys: Sequence[VectorKey] | None = None) -> dict[VectorKey, bytes]:
        """Return those of the vectors that wait, or all that do."""
        with self._lock:
            vectors = self._vectors
            asked = vectors if keys is None else keys
            return {key: vectors[key] for key in asked if key in vectors}

    def drop(self, written: Mapping[VectorKey, bytes] | None = None) -> None:
        """Drop these vectors, or all, unless they were replaced meanwhile."""
        with self._lock:
            self._vectors = {
                key: blob
                for key, blob in self._vectors.items()
                if written is not None and written.get(key) is not blob
            }


class Committer:
    """Commits on one connection, which it owns. Used from the writer's thread alone.

    The caller has prepared the schema, and holds the writer's lock where there is one.
    """

    def __init__(self, backend: Backend, pending: PendingVectors) -> None:
        self._backend, self._pending = backend, pending
        # Whether erased bytes may still lie in the files.
        self.scrub_due = False
        # When to scrub again, in `time.monotonic` seconds.
        self.scrub_at = 0.0
        # The mark of the last erasure that this committer knows of.
        self._erasure = ""
        # Ends of the logs lately written to, where nobody else writes; changed only
        # after a commit.
        self._tips: dict[ScopeKey, Tip] = {}
        # Heads of the other logs that were asked for; a new table whenever tips are forgotten,
        # so that whoever is asking meanwhile fills the old one.
        self._heads: dict[ScopeKey, int] = {}
        self._written_bytes = 0
        self._connection: DriverConnection | None = None
        try:  # and finish what a crash left undone
            backend.opened(self.connected())
            self.checkpoint(whole=True)
            self.scrub_due = bool(self._meta(SCRUB_KEY))
            if self.scrub_due:
                self.scrub()
            if backend.shared:
                self._erasure = self._meta(ERASURE_KEY)
        except BaseException:
            self._disconnect()
            raise

    def head(self, scope: ScopeKey, look_up: Callable[[ScopeKey], int]) -> int:
        """Return the committed head of a scope, where nobody else writes.

        `look_up` asks the database for one that is not known. May be called from any thread.
        """
        tip, heads = self._tips.get(scope), self._heads
        if tip is not None:
            return tip.head
        if len(heads) > _MAX_TIPS:
            heads.clear()
        head = heads.get(scope)
        if head is None:
            head = heads[scope] = look_up(scope)
        return head

    def _forget(self) -> None:
        """Forget the ends of all logs; the heads first, which are older than the tips."""
        self._heads = {}
        self._tips.clear()

    def commit(self, requests: list[AppendRequest]) -> list[Outcome]:
        """Write requests in one transaction and return the outcome of each; never raises."""
        try:
            try:
                return self._transact(requests)
            # something else wrote to the database, or the connection had gone: try once more
            except Exception as exc:
                if not isinstance(exc, StaleTips) and not self._backend.worth_another_try(exc):
                    raise
                return self._transact(requests)
        except Exception as exc:
            error = exc if isinstance(exc, StoreError) else self._backend.error(exc, "writing to")
            if len(requests) <= 1 or isinstance(error, _TELLING):
                return [_like(error, exc) for _ in requests]
        # One of them cannot be written at all: find out which, so that it fails alone.
        return [outcome for request in requests for outcome in self.commit([request])]

    def checkpoint(self, *, whole: bool) -> bool:
        """Move the write-ahead log along: all of it, or what enough was written of.

        Returns whether nothing is left of the log.
        """
        if self._backend.shared:
            return True
        if not whole and self._written_bytes < _CHECKPOINT_BYTES:
            return False
        self._written_bytes = 0
        crash_points.reach("checkpoint.before")
        try:
            done = self._backend.checkpoint(self.connected(), whole=whole)
        except self._backend.faults:
            return False  # the log stays and is tried again later
        crash_points.reach("checkpoint.after")
        return done

    def scrub(self) -> None:
        """Rebuild the files without what was erased.

        Where that fails now, the mark stays and the next commit or open tries again.
        """
        crash_points.reach("erase.committed")
        self.scrub_at = time.monotonic() + _SCRUB_AGAIN_S
        try:
            connection = self.connected()
            mark = self._meta(SCRUB_KEY)
            if not self._backend.scrub(connection) or not self.checkpoint(whole=True):
                return
            if mark:  # another process may have erased meanwhile, and its mark must stay
                connection.execute(self._backend.sql.scrub_done, (SCRUB_KEY, mark))
            self.scrub_due = False
        except self._backend.faults:
            return
        crash_points.reach("erase.scrubbed")

    def close(self) -> None:
        """Empty the write-ahead log and close the connection."""
        self.checkpoint(whole=True)
        if self._backend.book is not None:
            self._backend.book.close()
        self._disconnect()

    def connected(self) -> DriverConnection:
        """Return the connection, opened if need be."""
        if self._connection is None:
            self._connection = self._backend.connect()
        return self._connection

    # -- one transaction ---------------------------------------------------------------

    def _transact(self, requests: list[AppendRequest]) -> list[Outcome]:
        vectors = self._pending.waiting() if self._pending else {}
        backend, connection = self._backend, self.connected()
        cursor = connection.cursor()
        try:
            known = backend.begin(cursor, {request.scope for request in requests}, self._tips)
            crash_points.reach("transaction.begun")
            transaction = Transaction(cursor, backend, known)
            outcomes: list[Outcome] = [transaction.outcome_of(request) for request in requests]
            transaction.flush()
            if vectors and not transaction.erased:
                before, self._erasure = self._erasure, backend.last_erasure(cursor)
                # A vector made before an erasure, by whatever process, may be of an erased text.
                if self._erasure == before:
                    rows = [
                        (*key, len(blob) // 4, blob, vector_crc(*key, blob))
                        for key, blob in sorted(vectors.items())
                    ]
                    transaction.write_rows(backend.sql.vector, rows)
                    crash_points.reach("cache.written")
            crash_points.reach("commit.before")
            self._finish(cursor, transaction)
        except BaseException:
            self._forget()
            try:
                if backend.in_transaction(connection):
                    connection.execute("ROLLBACK")
            except backend.faults:
                self._disconnect()
            raise
        finally:
            cursor.close()
            if vectors:  # written, or given up: they are only a cache
                self._pending.drop(vectors)
        crash_points.reach("commit.after")
        self._note(transaction)
        sizes = (*(request.size_bytes for request in requests), *map(len, vectors.values()))
        self._written_bytes += _COMMIT_BYTES + sum(sizes)
        return outcomes

    def _note(self, transaction: Transaction) -> None:
        """Remember what a committed transaction changed."""
        if len(self._tips) > _MAX_TIPS:
            self._forget()
        if not self._backend.shared:
            self._tips.update(transaction.tips)
        if self._backend.book is not None:
            ends = {key: tip for key, tip in transaction.tips.items() if tip.head}
            self._backend.book.note(ends)
        if transaction.erased:
            self.scrub_due = True
            self._erasure = transaction.erased if self._backend.shared else ""
            self._pending.drop()

    def _finish(self, cursor: DriverCursor, transaction: Transaction) -> None:
        """Commit; when the answer is lost with the connection, find out what happened."""
        try:
            cursor.execute("COMMIT")
        except self._backend.faults as exc:
            if (
                not self._backend.shared
                or not transaction.tips
                or self._landed(transaction) is False
            ):
                raise
            if self._connection is None:
                raise StoreUnavailable(
                    f"the connection to {self._backend.name} was lost during a commit and "
                    "cannot be made again: whether the entries "
                    "were written shows when the store is back"
                ) from exc

    def _landed(self, transaction: Transaction) -> bool | None:
        """Tell whether a commit whose answer was lost has happened.

        None, and no connection, when the database cannot be asked. The old transaction
        holds the locks of its scopes for as long as it is undecided, and beginning anew
        waits for them.
        """
        scope, tip = next(iter(transaction.tips.items()))
        give_up_at = time.monotonic() + _RECONNECT_S
        while True:
            self._disconnect()
            try:
                cursor = self.connected().cursor()
                self._backend.begin(cursor, {scope}, {})
                row = cursor.execute(self._backend.sql.chain, (tip.scope_id, tip.head)).fetchone()
                cursor.execute("ROLLBACK")
            except self._backend.faults:
                if time.monotonic() > give_up_at:
                    self._disconnect()
                    return None
                time.sleep(_RECONNECT_PAUSE_S)
            else:
                return row is not None and bytes(row[0]) == tip.chain

    def _meta(self, key: str) -> str:
        row = self.connected().execute(self._backend.sql.meta_value, (key,)).fetchone()
        return row[0] if row is not None else ""

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(*self._backend.faults):
                connection.close()


def _like(error: StoreError | InputError, cause: Exception) -> StoreError | InputError:
    """Copy an error for one caller: an exception collects the frames of whoever raises it."""
    copy = type(error)(str(error))
    copy.retryable = error.retryable
    copy.__cause__ = cause
    return copy
