"""Copies of a store: a backup while others write, and putting one back.

SQLite copies a database as it stands at one moment, whoever writes meanwhile. A backup
is a store like any other, with its own notes of where its logs end, so it can be opened
and verified. Erased words stay in backups made before: erase those files too.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from memagent.core.errors import InputError, StoreError
from memagent.core.records import Record, Text
from memagent.journal.file_lock import FileLock
from memagent.journal.proof.tips import NO_SEAL, Seal, TipBook, ends_of
from memagent.journal.sqlite.engine import connect_for_reading, store_error
from memagent.journal.sqlite.journal import SqlJournal

_BESIDE: Final = ("-wal", "-shm")
_PIECE: Final = 1 << 20


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
    return CopyReport(
        path=str(path),
        size_bytes=path.stat().st_size,
        sha256=_sha256(path),
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


def _note(path: Path, seal: Seal) -> None:
    with closing(connect_for_reading(path)) as connection:
        ends = ends_of(connection)
    TipBook(seal.tips or path.with_name(f"{path.name}.tips"), seal.key).rewrite(ends)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()
