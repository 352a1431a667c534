"""Opening SQLite and translating its errors: the one place with PRAGMAs and URIs.

The writing connection: WAL, `synchronous` as asked, `secure_delete`, no automatic
checkpoints (the writer makes them), no mmap. Reading connections are opened `mode=ro`
and stay out of transactions, so each statement sees the last commit and holds up
nobody. The surprise: a database file must never be opened by other means while a
connection of this process is open. Closing any descriptor of it drops every POSIX lock
of the process, SQLite's among them. So even the check whether a file is a database goes
through SQLite.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import sys
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Literal, TypeAlias
from urllib.parse import quote
from weakref import WeakSet

from memagent.core.errors import (
    ConfigError,
    InputError,
    StoreCorrupt,
    StoreError,
    StoreReadOnly,
    StoreUnavailable,
)
from memagent.journal.backend import ADVICE

Synchronous: TypeAlias = Literal["FULL", "EXTRA", "NORMAL", "OFF"]
"""The durability of a commit: FULL and EXTRA survive a power cut, NORMAL and OFF only the
death of the process.
"""

_BUSY_S: Final = 5.0
_WAL_LIMIT_BYTES: Final = 64 * 1024 * 1024
_READ_CONNECTIONS: Final = 4
_UNAVAILABLE: Final = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOLFS,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_PROTOCOL,
    }
)


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
        kind = (
            StoreReadOnly
            if exc.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
            else StoreUnavailable
        )
        raise kind(f"cannot make {path}: {exc.strerror}") from exc


def connect_for_writing(path: Path) -> sqlite3.Connection:
    """Open a connection that may write. Connecting writes nothing."""
    connection = _connect(_uri(path, "rw"))
    try:
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("PRAGMA mmap_size = 0")
        connection.execute(f"PRAGMA journal_size_limit = {_WAL_LIMIT_BYTES}")
    except BaseException:
        connection.close()
        raise
    return connection


def make_durable(connection: sqlite3.Connection, synchronous: Synchronous) -> None:
    """Put a database of ours, and only of ours, into WAL mode and set what a commit waits for."""
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {synchronous}")


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
        ) or _wal_bytes(path):
            raise
        connection = _connect(_uri(path, "ro", immutable=True))
    return connection


_POOLS: Final[WeakSet[ReadPool]] = WeakSet()
"""The pools that are open: each open store has one."""
_forked = False
"""Whether a store was open when this process was forked."""


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
    def lend(self) -> Generator[sqlite3.Connection]:
        """Lend a connection; one whose use failed is closed."""
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

    def close(self) -> None:
        """Close the connections; one that is lent is closed when it comes back."""
        self._closed = True
        _POOLS.discard(self)
        while self._free:
            self._free.pop().close()


def _wal_bytes(path: Path) -> int:
    try:
        return os.stat(f"{path}-wal").st_size
    except OSError:
        return 0


def wal_is_long(path: Path) -> bool:
    """Tell whether the write-ahead log has outgrown its limit.

    It does when readers keep it from starting over.
    """
    return _wal_bytes(path) > _WAL_LIMIT_BYTES


def store_error(exc: Exception, path: Path, doing: str) -> StoreError | InputError:
    """Translate an error of the database for the caller, with the path and what to do."""
    text = f"{doing} {path} failed: {exc}"
    if not isinstance(exc, sqlite3.Error):
        return StoreError(text)
    try:
        code = exc.sqlite_errorcode & 0xFF
    except AttributeError:  # raised by the driver, not by SQLite
        return StoreError(text)
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreCorrupt(f"{text}; {ADVICE}")
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
        return StoreReadOnly(text)
    if code in _UNAVAILABLE:
        return StoreUnavailable(text)
    if code == sqlite3.SQLITE_TOOBIG:
        return InputError(text)
    return StoreError(text)
