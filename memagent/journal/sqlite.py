"""The journal in a SQLite file: its backend, the journal itself, and copies of a store.

One process writes, so it remembers ends of logs; a process that only reads looks them up
each time. The writer moves the write-ahead log along.

`SqlJournal` keeps an append-only log a scope. An append is durable before it is
acknowledged; threads share the journal, other processes read it.

One process writes (`StoreLocked` for a second one) and in it one thread
(`JournalWriter`); any number read. Opening repairs whatever a crash left: SQLite drops
the half-written group, an unfinished migration or erasure is done again. The surprise:
opening the same path twice in one process is fine and shares the writer, while a child
that is forked meanwhile can open no store.

A copy of a store is made while others write, and can be put back. SQLite copies a
database as it stands at one moment, whoever writes meanwhile. A backup is a store like
any other, with its own notes of where its logs end, so it can be opened and verified.
Erased words stay in backups made before: erase those files too.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from memagent.core.errors import ConfigError, InputError, StoreError
from memagent.core.records import Record, Text, system_clock
from memagent.journal import sqlite_engine
from memagent.journal.backend import (
    SELECT_CHAIN,
    SQLITE,
    Backend,
    DriverCursor,
    Statements,
    corrupt,
)
from memagent.journal.open_database import DatabaseJournal
from memagent.journal.proof.audit import (
    NO_SEAL,
    Seal,
    TipBook,
    compare_noted,
    count_in_files,
    files_of,
)
from memagent.journal.rows import ScopeKey, Tip, scope_digest
from memagent.journal.sqlite_engine import (
    FileLock,
    ReadPool,
    Synchronous,
    connect_for_reading,
    create_file,
    create_folder,
    database_path,
    store_error,
)
from memagent.protocols import Clock


@dataclass(frozen=True)
class SqliteBackend(Backend):
    """The database file at a path; equal for the same path, whatever else was asked for."""

    path: Path
    synchronous: Synchronous = field(default="FULL", compare=False)
    lock_timeout_s: float = field(default=0.0, compare=False)
    """How long to wait for another process to give the store up."""
    seal: Seal = field(default=NO_SEAL, compare=False, repr=False)
    """Without a file of the ends of logs, they are noted beside the database."""
    sql: Statements = field(default=SQLITE, compare=False, repr=False)
    shared = False
    page_rows = 512
    begin_schema = "BEGIN IMMEDIATE"
    table_names = (
        "SELECT name FROM sqlite_master WHERE type = 'table' AND substr(name, 1, 7) <> 'sqlite_'"
    )

    @cached_property
    def book(self) -> TipBook:
        """The ends of logs as they were last noted."""
        tips, key = self.seal
        return TipBook(tips or self.path.with_name(f"{self.path.name}.tips"), key)

    @property
    def name(self) -> str:
        """The path."""
        return str(self.path)

    @property
    def faults(self) -> tuple[type[Exception], ...]:
        """`sqlite3.Error`."""
        return (sqlite3.Error,)

    def error(self, exc: Exception, doing: str) -> StoreError | InputError:
        """Translate an error of SQLite."""
        return sqlite_engine.store_error(exc, self.path, doing)

    def worth_another_try(self, exc: Exception) -> bool:
        """Tell whether something else wrote to the file."""
        return isinstance(exc, sqlite3.IntegrityError)

    def readers(self) -> ReadPool:
        """Open a pool of its own."""
        return ReadPool(self.path)

    def take_lock(self) -> Callable[[], None]:
        """Take the lock beside the file, and make the file."""
        create_folder(self.path)
        held = FileLock(self.path.with_name(f"{self.path.name}.lock"))
        held.acquire(timeout_s=self.lock_timeout_s)
        try:
            create_file(self.path)
        except BaseException:
            held.release()
            raise
        return held.release

    def connect(self) -> sqlite3.Connection:
        """Open the writing connection, durable as asked."""
        connection = self.plain_connection()
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {self.synchronous}")
        return connection

    def plain_connection(self) -> sqlite3.Connection:
        """Open a connection that may write, and has not made the file durable yet."""
        return sqlite_engine.connect_for_writing(self.path)

    def begin(
        self, cursor: DriverCursor, scopes: Collection[ScopeKey], known: Mapping[ScopeKey, Tip]
    ) -> Mapping[ScopeKey, Tip]:
        """Take SQLite's write lock; what is remembered is still so.

        With a key, a log that nothing is remembered of has to go on from its noted end:
        what else stands there would be signed. Raises `StoreCorrupt`.
        """
        cursor.execute("BEGIN IMMEDIATE")
        if self.seal.key is None:
            return known
        for digest in [scope_digest(key) for key in scopes if key not in known]:
            noted = self.book.noted(digest)
            if noted is None:
                row = cursor.execute(SQLITE.head, (digest,)).fetchone()
                wrong = ["a log that was never noted appeared"] if row and row[0] else []
            else:
                wrong = compare_noted(cursor, noted)
            if wrong:
                raise corrupt(
                    self.path,
                    f"{wrong[0]}, as {self.book.path} shows (to sign it as it stands now, run  "
                    "memagent doctor --seal)",
                )
        return known

    def begin_about(self, seen: Sequence[str]) -> str:  # noqa: ARG002  # interface
        """Begin plainly: statements name the scope, and nothing else keeps scopes apart."""
        return "BEGIN"

    def in_transaction(self, connection: Any) -> bool:
        """Tell whether the connection is in one."""
        return connection.in_transaction

    def checkpoint(self, connection: Any, *, whole: bool) -> bool:
        """Copy the write-ahead log into the database.

        Copies all of it, waiting for readers, when asked to or when it has grown long.
        """
        long = sqlite_engine.wal_bytes(self.path) > sqlite_engine.WAL_LIMIT_BYTES
        mode = "TRUNCATE" if whole or long else "PASSIVE"
        busy, _, _ = connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        return not busy

    def scrub(self, connection: Any) -> bool:
        """Rebuild the file.

        SQLite leaves copies of moved rows in the gaps of pages, even with
        `secure_delete`.
        """
        connection.execute("VACUUM")
        return True

    def opened(self, connection: Any) -> None:
        """Refuse a file that ends before what was noted when it was last written to.

        With a `synchronous` that lets a power cut take the last commits, nothing is
        refused; `memagent doctor` still tells.
        """
        last = self.book.last()
        if last is not None and self.synchronous in ("FULL", "EXTRA"):
            row = connection.execute(SELECT_CHAIN, (last.digest, last.seq)).fetchone()
            if row is None or bytes(row[0]) != last.chain:
                raise corrupt(
                    self.path,
                    f"the last rows that were acknowledged are missing; {self.book.path} notes "
                    f"row {last.seq} of a log that ends before it or was changed (to go on "
                    "with what is there, run  memagent doctor --seal)",
                )
        super().opened(connection)


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

        backend = SqliteBackend(path, synchronous, lock_timeout_s, seal)
        super().__init__(backend, read_only=read_only, clock=clock)
        known = None if self._writer is None else self._writer.backend
        if isinstance(known, SqliteBackend) and known.synchronous != synchronous:
            self.close()
            raise ConfigError(
                f"{path} is open in this process with synchronous={known.synchronous!r}, not "
                f"{synchronous!r}; use the same"
            )

    def search_files(self, needles: Sequence[bytes]) -> dict[str, tuple[int, int]]:
        """Return (size in bytes, number of needles in it) of each file of the store. Blocks."""
        return count_in_files(files_of(self.path), needles)


def seal_store(path: Path, seal: Seal) -> int:
    """Note the ends of all logs anew, as the store has them now; return how many.

    Takes the store as it is: use it to begin with a key, or after a loss that cannot be
    mended. Raises `StoreLocked` while another process writes.
    """
    lock = FileLock(path.with_name(f"{path.name}.lock"))
    lock.acquire()
    try:
        return _note(path, seal)
    finally:
        lock.release()


_BESIDE: Final = ("-wal", "-shm")


class CopyReport(Record):
    """A copy of a store that was verified."""

    path: Text
    size_bytes: int
    sha256: Text
    memories: int
    """Users, agents and runs with a memory in it."""
    rows: int
    """Rows of all logs."""
    service: bool = False
    """Whether the service's own database (keys, jobs, snapshots) came along."""
    problems: tuple[Text, ...] = ()
    """What is wrong with it; () when every hash fits."""


def backup_store(path: Path, target: Path, *, seal: Seal = NO_SEAL) -> CopyReport:
    """Copy a store to a file that does not exist, as it stands at one moment.

    Works beside a running writer. Raises `InputError` for a target that exists, and
    `StoreError`s.
    """
    if target.exists():
        raise InputError(f"{target} is there already; name a new file")
    _copy(path, target)
    services = service_file(path), service_file(target)
    if services[0].exists():
        _copy(*services)
    _note(target, Seal(key=seal.key))
    return verify_store(target, seal=Seal(key=seal.key))


def verify_store(path: Path, *, seal: Seal = NO_SEAL) -> CopyReport:
    """Check every hash of a store and its noted ends; writes nothing."""
    problems: list[str] = []
    with SqlJournal(path, read_only=True, seal=seal) as journal:
        problems += journal.compare_tips()
        with closing(connect_for_reading(path)) as connection:
            names = "SELECT user_id, agent_id, run_id, head FROM scopes WHERE head > 0"
            ends = connection.execute(names).fetchall()
        for scope in asyncio.run(journal.scopes()):
            problems += [f"{scope.user_id}: {fault}" for fault in journal.verify(scope)]
        problems += journal.verify_erased()
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return CopyReport(
        path=str(path),
        size_bytes=path.stat().st_size,
        sha256=digest,
        memories=len(ends),
        rows=sum(end[3] for end in ends),
        service=service_file(path).exists(),
        problems=tuple(problems),
    )


def restore_store(
    source: Path, path: Path, *, seal: Seal = NO_SEAL, force: bool = False
) -> CopyReport:
    """Put a backup in the place of a store, after it was verified.

    What stood there is replaced with `force` only. Raises `StoreLocked` while another
    process writes there, `InputError` when something stands there, `StoreError` for a
    backup that is damaged.
    """
    report = verify_store(source, seal=Seal(key=seal.key))
    if report.problems:
        raise StoreError(f"{source} is damaged, and nothing was restored: {report.problems[0]}")
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path.with_name(f"{path.name}.lock"))
    lock.acquire()
    try:
        if path.exists() and not force:
            raise InputError(f"{path} is there already; --force replaces it")
        pairs = [(source, path)]
        if service_file(source).exists():
            pairs.append((service_file(source), service_file(path)))
        for old, new in pairs:
            fresh = new.with_name(f"{new.name}.restored")
            fresh.unlink(missing_ok=True)
            _copy(old, fresh)
            _settle(new)
            fresh.replace(new)
        _note(path, seal)
    finally:
        lock.release()
    return report.model_copy(update={"path": str(path)})


def service_file(path: Path) -> Path:
    """Return the file of the service's own database beside a store."""
    return path.with_name(f"{path.stem}.service.db")


def _settle(path: Path) -> None:
    """Leave nothing beside a database that is about to be replaced.

    Its write-ahead log goes into it first: whatever stops the replacement then, the old
    store stands whole. Only of a file that SQLite cannot read is the log deleted.
    """
    with suppress(sqlite3.Error), closing(sqlite3.connect(path)) as old:
        old.execute("PRAGMA journal_mode = DELETE")
    for ending in _BESIDE:
        path.with_name(f"{path.name}{ending}").unlink(missing_ok=True)


def _copy(source: Path, target: Path) -> None:
    try:
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        with closing(connect_for_reading(source)) as old, closing(sqlite3.connect(target)) as new:
            old.backup(new)
            new.execute("PRAGMA journal_mode = DELETE")
        with target.open("rb") as file:
            os.fsync(file.fileno())
    except OSError as exc:
        raise InputError(f"{target} cannot be written: {exc.strerror}") from exc
    except sqlite3.Error as exc:
        with suppress(OSError):
            target.unlink()
        raise store_error(exc, source, "copying") from exc


def _note(path: Path, seal: Seal) -> int:
    """Note the ends of all logs of a store; return how many."""
    backend = SqliteBackend(path, seal=seal)
    with closing(connect_for_reading(path)) as connection:
        ends = backend.ends(connection)
    backend.book.rewrite(ends)
    return len(ends)
