"""Opening SQLite and translating its errors: the one place with PRAGMAs and URIs.

The writing connection: WAL, `synchronous` as asked, `secure_delete`, no automatic
checkpoints (the writer makes them), no mmap. Reading connections are opened `mode=ro`
and stay out of transactions, so each statement sees the last commit and holds up
nobody. The surprise: a database file must never be opened by other means while a
connection of this process is open. Closing any descriptor of it drops every POSIX lock
of the process, SQLite's among them. So even the check whether a file is a database goes
through SQLite.

One process writes: it has an exclusive lock on a file beside the database, which holds
its process id. The kernel keeps the lock (`filelock`), so a killed process leaves none
behind, and the file itself stays. A forked child drops its copy of the lock, and the
parent keeps it.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import sys
import time
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Literal, TypeAlias
from urllib.parse import quote
from weakref import WeakSet

import filelock

from memagent.core import crash_points
from memagent.core.errors import (
    ConfigError,
    InputError,
    StoreCorrupt,
    StoreError,
    StoreLocked,
    StoreReadOnly,
    StoreUnavailable,
)
from memagent.journal.backend import ADVICE, SQLITE
from memagent.journal.rows import ScopeKey, scope_digest

Synchronous: TypeAlias = Literal["FULL", "EXTRA", "NORMAL", "OFF"]
"""The durability of a commit: FULL and EXTRA survive a power cut, NORMAL and OFF only the
death of the process.
"""

_BUSY_S: Final = 5.0
WAL_LIMIT_BYTES: Final = 64 * 1024 * 1024
_READ_CONNECTIONS: Final = 4
_LOCK_POLL_S: Final = 0.02
_DENIED: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
# What an error of SQLite is for the caller, by its code.
_KINDS: Final[Mapping[int, type[StoreError | InputError]]] = {
    sqlite3.SQLITE_CORRUPT: StoreCorrupt,
    sqlite3.SQLITE_NOTADB: StoreCorrupt,
    sqlite3.SQLITE_READONLY: StoreReadOnly,
    sqlite3.SQLITE_PERM: StoreReadOnly,
    sqlite3.SQLITE_AUTH: StoreReadOnly,
    sqlite3.SQLITE_BUSY: StoreUnavailable,
    sqlite3.SQLITE_CANTOPEN: StoreUnavailable,
    sqlite3.SQLITE_FULL: StoreUnavailable,
    sqlite3.SQLITE_INTERRUPT: StoreUnavailable,
    sqlite3.SQLITE_IOERR: StoreUnavailable,
    sqlite3.SQLITE_LOCKED: StoreUnavailable,
    sqlite3.SQLITE_NOLFS: StoreUnavailable,
    sqlite3.SQLITE_NOMEM: StoreUnavailable,
    sqlite3.SQLITE_PROTOCOL: StoreUnavailable,
    sqlite3.SQLITE_TOOBIG: InputError,
}


def database_path(url_or_path: str | os.PathLike[str]) -> Path:
    """Return the database file of a path or an `sqlite:///` URL, with links resolved.

    Raises `ConfigError` for anything else.
    """
    text = os.fspath(url_or_path)
    if "://" in text:
        scheme, _, rest = text.partition("://")
        kind = scheme.partition("+")[0]
        if kind != "sqlite":
            raise ConfigError(f"a SqlJournal is kept in SQLite, not in {kind!r}")
        host, slash, name = rest.partition("?")[0].partition("/")
        if host:
            raise ConfigError(f"{text!r} is not a database URL; write a path or sqlite:///path")
        text = name if slash else ""
    if text in ("", ":memory:"):
        raise ConfigError(
            "a SqlJournal needs a file; use MemoryJournal for a memory that is not kept"
        )
    return Path(os.path.realpath(text))


def _uri(path: Path, mode: Literal["ro", "rw"], *, immutable: bool = False) -> str:
    return f"file:{quote(os.fsencode(path))}?mode={mode}{'&immutable=1' if immutable else ''}"


def _connect(uri: str) -> sqlite3.Connection:
    if _forked:
        raise StoreError(
            "a store was open in the process that this one was forked from, and SQLite may "
            "hang or damage files after that: open stores after the fork, or start the "
            "process anew (multiprocessing: the method 'spawn' or 'forkserver')"
        )
    return sqlite3.connect(
        uri,
        uri=True,
        timeout=_BUSY_S,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )


def create_folder(path: Path) -> None:
    """Make the folder that the database is to lie in. Raises `StoreError`s."""
    if path.is_dir():
        raise StoreError(f"{path} is a folder; name a file in it")
    with _making(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)


def create_file(path: Path) -> None:
    """Make an empty database file that only its owner may read, unless there is one.

    Raises `StoreError`s.
    """
    with _making(path), suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    if not os.access(
        path, os.W_OK
    ):  # SQLite would fall back to reading and complain only at the first write
        raise StoreReadOnly(f"{path} may not be written; open the store with read_only=True")


@contextmanager
def _making(path: Path) -> Generator[None]:
    try:
        yield
    except OSError as exc:
        kind = StoreReadOnly if exc.errno in _DENIED else StoreUnavailable
        raise kind(f"cannot make {path}: {exc.strerror}") from exc


def connect_for_writing(path: Path) -> sqlite3.Connection:
    """Open a connection that may write. Connecting writes nothing."""
    connection = _connect(_uri(path, "rw"))
    try:
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("PRAGMA mmap_size = 0")
        connection.execute(f"PRAGMA journal_size_limit = {WAL_LIMIT_BYTES}")
    except BaseException:
        connection.close()
        raise
    return connection


def connect_for_reading(path: Path) -> sqlite3.Connection:
    """Open a read-only connection.

    It goes to an immutable view of a database at rest where SQLite cannot share it.
    """
    connection = _connect(_uri(path, "ro"))
    try:
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
    except sqlite3.Error as exc:
        # WAL needs its index file beside the database. Where it can neither be found
        # nor made there is no writer either.
        connection.close()
        if exc.sqlite_errorcode & 0xFF not in (
            sqlite3.SQLITE_CANTOPEN,
            sqlite3.SQLITE_READONLY,
        ) or wal_bytes(path):
            raise
        connection = _connect(_uri(path, "ro", immutable=True))
    return connection


# The pools that are open: each open store has one.
_POOLS: Final[WeakSet[ReadPool]] = WeakSet()
# Whether a store was open when this process was forked.
_forked = False


def _after_fork() -> None:
    global _forked  # a fact about the process
    _forked = _forked or bool(_POOLS)


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_after_fork)


class ReadPool:
    """Read-only connections that stay out of transactions; each is lent to one thread.

    The one given back last is lent first. At most four stay open for the next.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._free: deque[sqlite3.Connection] = deque()
        self._closed = False
        _POOLS.add(self)

    @contextmanager
    def reading(self, seen: Sequence[str]) -> Generator[sqlite3.Connection]:  # noqa: ARG002  # interface
        """Lend a connection; one whose use failed is closed.

        Statements name the scope that they read, and nothing else keeps scopes apart.
        """
        try:
            connection = self._free.pop()
        except IndexError:
            connection = connect_for_reading(self._path)
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        if self._closed or len(self._free) >= _READ_CONNECTIONS:
            connection.close()
        else:
            self._free.append(connection)

    def head(self, scope: ScopeKey) -> int:
        """Return the sequence of a scope's last row, 0 when it has none.

        Raises `sqlite3.Error`.
        """
        digest = scope_digest(scope)
        with self.reading([digest]) as connection:
            row = connection.execute(SQLITE.head, (digest,)).fetchone()
        return 0 if row is None else row[0]

    def close(self) -> None:
        """Close the connections; one that is lent is closed when it comes back."""
        self._closed = True
        _POOLS.discard(self)
        while self._free:
            self._free.pop().close()


def wal_bytes(path: Path) -> int:
    """Return the size of the write-ahead log, which grows while readers keep it from restarting."""
    try:
        return os.stat(f"{path}-wal").st_size
    except OSError:
        return 0


def store_error(exc: Exception, path: Path, doing: str) -> StoreError | InputError:
    """Translate an error of the database for the caller, with the path and what to do."""
    if path.is_dir():
        return StoreError(f"{path} is a folder; name a file in it")
    text = f"{doing} {path} failed: {exc}"
    code = getattr(exc, "sqlite_errorcode", -1) & 0xFF  # the driver's own errors have none
    kind = _KINDS.get(code, StoreError)
    return kind(f"{text}; {ADVICE}" if kind is StoreCorrupt else text)


def process_lives(pid: int) -> bool:
    """Tell whether a process runs; True where that cannot be asked without doing it harm."""
    if sys.platform == "win32":
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


class FileLock:
    """An exclusive lock held by this process from `acquire` to `release`.

    Not re-entrant.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = filelock.FileLock(
            path, mode=0o600, thread_local=False, fallback_to_soft=False, poll_interval=_LOCK_POLL_S
        )

    def acquire(self, *, timeout_s: float = 0.0) -> None:
        """Take the lock, trying for `timeout_s`.

        Raises `StoreLocked` with the holder's process id, `StoreReadOnly` when the file
        cannot be made there, and `StoreError` when the file system knows no locks.
        """
        try:
            self._lock.acquire(timeout=timeout_s)
        except filelock.Timeout:
            pid = self.holder()
            who = "another process" if pid is None else f"process {pid}"
            raise StoreLocked(
                f"{who} is the writer of this store (lock file {self.path}); use that "
                "process, close it, or open with read_only=True",
                pid=pid,
            ) from None
        except OSError as exc:
            if exc.errno in _DENIED:
                raise StoreReadOnly(
                    f"cannot write {self.path}: {exc.strerror}; open the store with read_only=True"
                ) from exc
            raise StoreError(
                f"cannot make the lock file {self.path}: {exc.strerror}; put the store on a "
                "file system that knows file locks"
            ) from exc
        self._write(f"{os.getpid()}\n")
        crash_points.reach("lock.acquired")

    def holder(self) -> int | None:
        """Return the process id written by the last holder; None when there is none."""
        for _ in range(3):  # a new holder writes its id just after it takes the lock
            try:
                written = self.path.read_text(encoding="ascii", errors="replace").strip()
            except OSError:
                return None
            if written.isdigit():
                return int(written)
            time.sleep(_LOCK_POLL_S)
        return None

    def release(self) -> None:
        """Give the lock back; harmless when it is not held."""
        if self._lock.is_locked:
            crash_points.reach("lock.releasing")
            self._write("")
            self._lock.release()

    def _write(self, text: str) -> None:
        # A stale process id in a free lock file misleads nobody.
        with suppress(OSError):
            self.path.write_text(text, encoding="ascii")
