"""The writing connection of a database: commits, checkpoints, scrubbing, reconnection.

Erasing is more than deleting: databases leave what was deleted in their files. So after
an erasure the backend scrubs them (SQLite is rebuilt with `VACUUM`, which takes time in
proportion to its size while other appends wait) before the erasure is acknowledged. A
mark in the database survives a crash in between, and the next open scrubs. The surprise:
a connection that is lost during a commit leaves it open whether the commit happened. The
committer connects again and looks, so a caller gets a failure only where nothing was
written, or where nobody can tell (`StoreUnavailable` that says so).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final, TypeAlias

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
    Tip,
)
from memagent.journal.rows import ScopeKey, vector_crc
from memagent.journal.transaction import Appended, AppendRequest, StaleTips, Transaction

Outcome: TypeAlias = Appended | StoreError | InputError
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


class PendingRows:
    """Vectors and properties of the store that wait for the next commit. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._vectors: dict[VectorKey, bytes] = {}
        self._meta: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self._vectors or self._meta)

    def put_vectors(self, rows: Mapping[VectorKey, bytes]) -> bool:
        """Add vectors; return whether none waited before."""
        with self._lock:
            first = not self._vectors
            self._vectors |= rows
        return first

    def put_meta(self, key: str, value: str) -> None:
        """Add a property of the store."""
        with self._lock:
            self._meta[key] = value

    def meta(self, key: str) -> str | None:
        """Return a property that waits."""
        with self._lock:
            return self._meta.get(key)

    def vectors(self, keys: Sequence[VectorKey]) -> dict[VectorKey, bytes]:
        """Return those of the vectors that wait."""
        with self._lock:
            waiting = self._vectors
            return {key: waiting[key] for key in keys if key in waiting} if waiting else {}

    def copies(self) -> tuple[dict[VectorKey, bytes], dict[str, str]]:
        """Return all that waits: (vectors, properties)."""
        with self._lock:
            return dict(self._vectors), dict(self._meta)

    def drop_vectors(self, written: Mapping[VectorKey, bytes] | None = None) -> None:
        """Drop these vectors, or all, unless they were replaced meanwhile."""
        with self._lock:
            self._vectors = {
                key: blob
                for key, blob in self._vectors.items()
                if written is not None and written.get(key) is not blob
            }

    def drop_meta(self, written: Mapping[str, str]) -> None:
        """Drop these properties unless they were replaced meanwhile."""
        with self._lock:
            self._meta = {
                key: value for key, value in self._meta.items() if written.get(key) != value
            }


class Committer:
    """Commits on one connection, which it owns. Used from the writer's thread alone.

    The caller has prepared the schema, and holds the writer's lock where there is one.
    """

    def __init__(self, backend: Backend, pending: PendingRows) -> None:
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
        self._written_bytes = 0
        self._connection: DriverConnection | None = None
        try:
            self._recover()
        except backend.driver_error as exc:
            self._disconnect()
            raise backend.error(exc, "opening") from exc
        except BaseException:
            self._disconnect()
            raise

    def head(self, scope: ScopeKey) -> int | None:
        """Return the committed head of a scope written to lately.

        None means that the database has to be asked. May be called from any thread.
        """
        tip = self._tips.get(scope)
        return None if tip is None else tip.head

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
        """Move the write-ahead log along where that is the writer's task.

        Returns whether nothing is left of the log.
        """
        self._written_bytes = 0
        if self._backend.shared:
            return True
        crash_points.reach("checkpoint.before")
        try:
            done = self._backend.checkpoint(self.connected(), whole=whole)
        except self._backend.driver_error:
            return False  # the log stays and is tried again later
        crash_points.reach("checkpoint.after")
        return done

    def checkpoint_when_long(self) -> None:
        """Make a checkpoint when enough was written since the last one."""
        if self._written_bytes >= _CHECKPOINT_BYTES:
            self.checkpoint(whole=False)

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
        except self._backend.driver_error:
            return
        crash_points.reach("erase.scrubbed")

    def close(self) -> None:
        """Empty the write-ahead log and close the connection."""
        self.checkpoint(whole=True)
        self._backend.closed()
        self._disconnect()

    def connected(self) -> DriverConnection:
        """Return the connection, opened if need be."""
        if self._connection is None:
            self._connection = self._backend.connect()
        return self._connection

    # -- one transaction ---------------------------------------------------------------

    def _transact(self, requests: list[AppendRequest]) -> list[Outcome]:
        vectors, meta = self._pending.copies()
        backend, connection = self._backend, self.connected()
        cursor = connection.cursor()
        try:
            known = backend.begin(cursor, {request.scope for request in requests}, self._tips)
            crash_points.reach("transaction.begun")
            transaction = Transaction(cursor, backend, known)
            outcomes = [_stage(transaction, request) for request in requests]
            transaction.flush()
            if vectors and not transaction.erased and self._nothing_erased(cursor):
                rows = [
                    (*key, len(blob) // 4, blob, vector_crc(*key, blob))
                    for key, blob in sorted(vectors.items())
                ]
                backend.write_rows(cursor, backend.sql.vector, rows)
                crash_points.reach("cache.written")
            for item in meta.items():
                cursor.execute(backend.sql.put_meta, item)
            crash_points.reach("commit.before")
            self._finish(cursor, transaction)
        except BaseException:
            self._roll_back(connection)
            raise
        finally:
            cursor.close()
            self._pending.drop_vectors(vectors)  # written, or given up: they are only a cache
        crash_points.reach("commit.after")
        self._pending.drop_meta(meta)
        self._note(transaction)
        self._written_bytes += _COMMIT_BYTES + sum(request.size_bytes for request in requests)
        self._written_bytes += sum(map(len, vectors.values()))
        return outcomes

    def _note(self, transaction: Transaction) -> None:
        """Remember what a committed transaction changed."""
        if len(self._tips) > _MAX_TIPS:
            self._tips.clear()
        if not self._backend.shared:
            self._tips.update(transaction.tips)
        self._backend.committed(transaction.tips)
        if transaction.erased:
            self.scrub_due = True
            self._erasure = transaction.erased if self._backend.shared else ""
            self._pending.drop_vectors()

    def _finish(self, cursor: DriverCursor, transaction: Transaction) -> None:
        """Commit; when the answer is lost with the connection, find out what happened."""
        try:
            cursor.execute("COMMIT")
        except self._backend.driver_error as exc:
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
            except self._backend.driver_error:
                if time.monotonic() > give_up_at:
                    self._disconnect()
                    return None
                time.sleep(_RECONNECT_PAUSE_S)
            else:
                return row is not None and bytes(row[0]) == tip.chain

    def _nothing_erased(self, cursor: DriverCursor) -> bool:
        """Tell whether no other process has erased anything since the last look.

        A vector made before an erasure may be of an erased text.
        """
        before, self._erasure = self._erasure, self._backend.last_erasure(cursor)
        return self._erasure == before

    def _roll_back(self, connection: DriverConnection) -> None:
        self._tips.clear()
        try:
            if self._backend.in_transaction(connection):
                connection.execute("ROLLBACK")
        except self._backend.driver_error:
            self._disconnect()

    def _recover(self) -> None:
        """Finish what a crash left undone."""
        self._backend.opened(self.connected())
        self.checkpoint(whole=True)
        self.scrub_due = bool(self._meta(SCRUB_KEY))
        if self.scrub_due:
            self.scrub()
        if self._backend.shared:
            self._erasure = self._meta(ERASURE_KEY)

    def _meta(self, key: str) -> str:
        row = self.connected().execute(self._backend.sql.meta_value, (key,)).fetchone()
        return row[0] if row is not None else ""

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(self._backend.driver_error):
                connection.close()


def _stage(transaction: Transaction, request: AppendRequest) -> Outcome:
    try:
        return transaction.stage(request)
    except StoreError as refused:
        return refused


def _like(error: StoreError | InputError, cause: Exception) -> StoreError | InputError:
    """Copy an error for one caller: an exception collects the frames of whoever raises it."""
    copy = type(error)(str(error))
    copy.retryable = error.retryable
    copy.__cause__ = cause
    return copy
