"""The journal in a SQLite file: an append-only log a scope.

An append is durable before it is acknowledged; threads share the journal, other
processes read it.

One process writes (`StoreLocked` for a second one) and in it one thread
(`journal_writer`); any number read. Opening repairs whatever a crash left: SQLite drops
the half-written group, an unfinished migration or erasure is done again. The surprise:
opening the same path twice in one process is fine and shares the writer, while a forked
child has to open it anew.
"""

from __future__ import annotations

import os

from memagent.core.errors import ConfigError, StoreError
from memagent.journal.database import DatabaseJournal
from memagent.journal.file_lock import FileLock
from memagent.journal.rows import system_clock
from memagent.journal.sqlite.backend import SqliteBackend
from memagent.journal.sqlite.engine import Synchronous, create_file, create_folder, database_path
from memagent.protocols import Clock


class SqlJournal(DatabaseJournal):
    """A `Journal` in the SQLite database at a path or `sqlite:///` URL.

    The file is made when it does not exist.

    `read_only` opens need no lock and always succeed; they see what the writer commits.
    `lock_timeout_s` is how long to wait for another process to give the store up.
    `synchronous="FULL"` makes an acknowledged append survive a power cut.

    Opening raises `StoreLocked` (another process writes), `StoreReadOnly` (the place
    cannot be written), `StoreCorrupt` (damaged, or not a memagent store),
    `StoreUnavailable`, `StoreError` (written by a newer memagent) and `ConfigError`.
    """

    def __init__(
        self,
        url_or_path: str | os.PathLike[str],
        *,
        read_only: bool = False,
        synchronous: Synchronous = "FULL",
        lock_timeout_s: float = 0.0,
        clock: Clock = system_clock,
    ) -> None:
        # The database file.
        path = self.path = database_path(url_or_path)
        if read_only and not path.exists():
            raise StoreError(
                f"there is no memory at {path}; it is made when it is first opened for writing"
            )

        def lock() -> FileLock:
            create_folder(path)
            held = FileLock(path.with_name(f"{path.name}.lock"))
            held.acquire(timeout_s=lock_timeout_s)
            try:
                create_file(path)
            except BaseException:
                held.release()
                raise
            return held

        super().__init__(
            SqliteBackend(path, synchronous), read_only=read_only, clock=clock, lock=lock
        )
        known = self._opened_as
        if isinstance(known, SqliteBackend) and known.synchronous != synchronous:
            self.close()
            raise ConfigError(
                f"{path} is open in this process with synchronous={known.synchronous!r}, not "
                f"{synchronous!r}; use the same"
            )
