"""Checkpoints on a PostgreSQL server, shared by all workers.

`checkpoints` has a row for each memory, `checkpoint_parts` its bytes in pieces. They are
no part of the journal's schema: they are made when the first checkpoint is, and may be
emptied at any time. Row-level security holds for them as for the journal's own tables. A
checkpoint goes by way of a file without a name, of which a killed process leaves nothing.

A new one takes its place under the lock that appends of its memory take, after a look
whether the memory was erased; and an erasure deletes it in its own transaction. So no
checkpoint outlives the words in it, whichever worker makes it.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Final

from memagent.checkpoints.file import CheckpointFile, CheckpointUnusable
from memagent.checkpoints.store import Begun, Replacing
from memagent.core.crash_points import reach
from memagent.core.errors import MemAgentError
from memagent.core.records import Scope
from memagent.journal.backend import WHOLE_STORE, Backend
from memagent.journal.postgres import lock_key, naming
from memagent.journal.rows import NAMED, SCHEMA_LOCK, scope_digest, scope_key

_PIECE_BYTES: Final = 1 << 20
_DAY_US: Final = 86_400_000_000
_SEEN: Final = f"digest = ANY ({NAMED}) OR '*' = ANY ({NAMED})"
_TABLES: Final = f"""
CREATE TABLE checkpoints (digest varchar(64) PRIMARY KEY, version bigint NOT NULL,
    seq bigint NOT NULL, bytes bigint NOT NULL, used_us bigint NOT NULL);
CREATE TABLE checkpoint_parts (digest varchar(64), version bigint, number integer,
    part bytea NOT NULL, PRIMARY KEY (digest, version, number));
ALTER TABLE checkpoint_parts ALTER part SET STORAGE EXTERNAL;
ALTER TABLE checkpoints ENABLE ROW LEVEL SECURITY;
ALTER TABLE checkpoints FORCE ROW LEVEL SECURITY;
ALTER TABLE checkpoint_parts ENABLE ROW LEVEL SECURITY;
ALTER TABLE checkpoint_parts FORCE ROW LEVEL SECURITY;
CREATE POLICY named_scopes ON checkpoints USING ({_SEEN});
CREATE POLICY named_scopes ON checkpoint_parts USING ({_SEEN});
"""
_UNERASED: Final = (
    "SELECT journal.chain FROM journal JOIN scopes ON scopes.id = journal.scope_id "
    "WHERE digest = %(digest)s AND seq = %(seq)s AND NOT EXISTS (SELECT 1 FROM journal later "
    "WHERE later.scope_id = scopes.id AND later.seq > %(seq)s "
    "AND later.kind IN ('erased', 'redacted'))"
)


class ServerPlace:
    """Rows of two tables beside the journal's."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._made = False
        self.key = backend.seal.key

    def path_of(self, scope: Scope) -> Path:
        """Return a name of a memory's rows, for messages."""
        return Path(f"{self._backend.name}/checkpoints/{_digest(scope)}")

    def open(self, scope: Scope) -> CheckpointFile:
        """Read a memory's rows into a file without a name, and that into memory; check it."""
        with self._transaction(scope) as connection, TemporaryFile() as file:
            if _exists(connection):
                with connection.cursor(name="parts", binary=True) as cursor:
                    cursor.itersize = 8
                    cursor.execute(
                        "SELECT part FROM checkpoint_parts JOIN checkpoints "
                        "USING (digest, version) WHERE digest = %s ORDER BY number",
                        (_digest(scope),),
                    )
                    for (part,) in cursor:
                        file.write(part)
            if not file.tell():
                raise FileNotFoundError(self.path_of(scope))
            file.flush()
            return CheckpointFile.read(file, self.key)

    def size_of(self, scope: Scope) -> int | None:
        """Return the bytes of a memory's checkpoint."""
        return self._of(scope, "bytes")

    def _of(self, scope: Scope, column: str) -> int | None:
        with self._transaction(scope) as connection:
            if not _exists(connection):
                return None
            asked = f"SELECT {column} FROM checkpoints WHERE digest = %s"
            row = connection.execute(asked, (_digest(scope),)).fetchone()
        return None if row is None else int(row[0])

    def used(self, scope: Scope) -> None:
        """Note the time, once a day."""
        with self._transaction(scope) as connection:
            connection.execute(
                "UPDATE checkpoints SET used_us = %s WHERE digest = %s AND used_us < %s",
                (_now_us(), _digest(scope), _now_us() - _DAY_US),
            )

    def put(self, begun: Begun, replacing: Replacing) -> None:
        """Make the file, send its pieces, and let them take the place of the old ones."""
        known = self._of(begun.scope, "seq")
        if known is not None and known >= begun.seq:
            raise CheckpointUnusable("another worker has made one")
        with TemporaryFile() as file:
            begun.write(file)
            with replacing():  # not meanwhile: an erasure in this process would wait
                pass
            self._send(begun, file)

    def _send(self, begun: Begun, file: IO[bytes]) -> None:
        digest, version = _digest(begun.scope), secrets.randbits(62)
        self._make_tables()
        file.seek(0)
        with self._transaction(begun.scope) as connection:
            number = 0
            while part := file.read(_PIECE_BYTES):
                connection.execute(
                    "INSERT INTO checkpoint_parts VALUES (%s, %s, %s, %b)",
                    (digest, version, number, part),
                )
                number += 1
            reach("ckpt.sent")
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (lock_key(digest),))
            place = {"digest": digest, "seq": begun.seq}
            row = connection.execute(_UNERASED, place).fetchone()
            if row is None or bytes(row[0]) != begun.chain:
                raise CheckpointUnusable("the memory was erased meanwhile")
            taken = connection.execute(
                "INSERT INTO checkpoints VALUES (%s, %s, %s, %s, %s) ON CONFLICT (digest) DO "
                "UPDATE SET version = excluded.version, seq = excluded.seq, "
                "bytes = excluded.bytes, used_us = excluded.used_us "
                "WHERE checkpoints.seq < excluded.seq",
                (digest, version, begun.seq, file.tell(), _now_us()),
            ).rowcount
            if not taken:
                raise CheckpointUnusable("another worker has made one")
            connection.execute(
                "DELETE FROM checkpoint_parts WHERE digest = %s AND version <> %s",
                (digest, version),
            )
            reach("ckpt.replaced")
        reach("ckpt.committed")

    def trim(self, most_bytes: int) -> None:
        """Delete the checkpoints used longest ago."""
        with self._transaction() as connection:
            if not _exists(connection):
                return
            connection.execute(
                "WITH kept AS (SELECT digest, sum(bytes) OVER (ORDER BY used_us DESC, digest) "
                "AS total FROM checkpoints), gone AS (DELETE FROM checkpoints USING kept WHERE "
                "kept.digest = checkpoints.digest AND total > %s RETURNING checkpoints.digest) "
                "DELETE FROM checkpoint_parts USING gone "
                "WHERE gone.digest = checkpoint_parts.digest",
                (most_bytes,),
            )

    def drop(self, scope: Scope) -> None:
        """Delete a memory's rows."""
        with self._transaction(scope) as connection:
            if _exists(connection):
                digest = _digest(scope)
                for table in ("checkpoint_parts", "checkpoints"):
                    connection.execute(f"DELETE FROM {table} WHERE digest = %s", (digest,))

    def erase(self, scope: Scope) -> None:
        """Do nothing: the transaction of the erasure deletes the rows."""

    def _make_tables(self) -> None:
        if self._made:
            return
        with self._transaction() as connection:
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (SCHEMA_LOCK,))
            if not _exists(connection):
                connection.execute(_TABLES)
        self._made = True

    @contextmanager
    def _transaction(self, *scopes: Scope) -> Generator[Any]:
        """Open a transaction that sees these memories' rows, without any those of all.

        Raises `OSError` when the server is away or refuses.
        """
        seen = [_digest(scope) for scope in scopes] or [WHOLE_STORE]
        try:
            with closing(self._backend.connect()) as connection, connection.transaction():
                connection.execute(naming(seen))
                yield connection
        except (*self._backend.faults, MemAgentError) as exc:
            raise OSError(f"the server at {self._backend.name}: {exc}") from exc


def _exists(connection: Any) -> bool:
    return connection.execute("SELECT to_regclass('checkpoints')").fetchone()[0] is not None


def _digest(scope: Scope) -> str:
    return scope_digest(scope_key(scope))


def _now_us() -> int:
    return time.time_ns() // 1_000
