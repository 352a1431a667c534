"""The journal in a SQLite file: an append-only log a scope.

An append is durable before it is acknowledged; threads share the journal, other
processes read it.

One process writes (`StoreLocked` for a second one) and in it one thread
(`journal_writer`); any number read. Opening repairs whatever a crash left: SQLite drops
the half-written group, an unfinished migration or erasure is done again. The surprise:
opening the same path twice in one process is fine and shares the writer, while a child
that is forked meanwhile can open no store.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from memagent.core.errors import ConfigError, StoreError
from memagent.journal.database import DatabaseJournal
from memagent.journal.file_lock import FileLock
from memagent.journal.proof.audit import compare_tips
from memagent.journal.proof.file_search import count_in_files, files_of
from memagent.journal.proof.tips import NO_SEAL, Seal, ends_of
from memagent.journal.rows import system_clock
from memagent.journal.sqlite.backend import SqliteBackend
from memagent.journal.sqlite.engine import (
    Synchronous,
    connect_for_reading,
    create_file,
    create_folder,
    database_path,
)
from memagent.protocols import Clock


class SqlJournal(DatabaseJournal):
    """A `Journal` in the SQLite database at a path or `sqlite:///` URL.

    The file is made when it does not exist.

    `read_only` opens need no lock and always succeed; they see what the writer commits.
    `lock_timeout_s` is how long to wait for another process to give the store up.
    `synchronous="FULL"` makes an acknowledged append survive a power cut. `seal` says
    where the ends of logs are noted, and with which key.

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
        seal: Seal = NO_SEAL,
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
            SqliteBackend(path, synchronous, tips=seal.tips, key=seal.key),
            read_only=read_only,
            clock=clock,
            lock=lock,
        )
        known = self._opened_as
        if isinstance(known, SqliteBackend) and known.synchronous != synchronous:
            self.close()
            raise ConfigError(
                f"{path} is open in this process with synchronous={known.synchronous!r}, not "
                f"{synchronous!r}; use the same"
            )

    def search_files(self, needles: Sequence[bytes]) -> dict[str, tuple[int, int]]:
        """Return (size in bytes, number of needles in it) of each file of the store. Blocks."""
        return count_in_files(files_of(self.path), needles)

    def compare_tips(self) -> list[str]:
        """Return where the store and the noted ends of its logs disagree; blocks.

        [] where nothing was noted, unless a key is set: then a missing file is told.
        """
        self._check()
        backend = self._backend
        assert isinstance(backend, SqliteBackend)
        book = backend.book
        if not book.path.exists():
            lost = f"{book.path} is missing, though the store has a key"
            return [lost] if backend.key is not None else []
        return self._reader.ask(lambda connection: compare_tips(connection, book))


def seal_store(path: Path, seal: Seal) -> int:
    """Note the ends of all logs anew, as the store has them now; return how many.

    Takes the store as it is: use it to begin with a key, or after a loss that cannot be
    mended. Raises `StoreLocked` while another process writes.
    """
    lock = FileLock(path.with_name(f"{path.name}.lock"))
    lock.acquire()
    try:
        backend = SqliteBackend(path, tips=seal.tips, key=seal.key)
        with closing(connect_for_reading(path)) as connection:
            ends = ends_of(connection)
        backend.book.rewrite(ends)
        return len(ends)
    finally:
        lock.release()
