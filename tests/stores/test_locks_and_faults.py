"""The lock file of a store, and what each kind of fault of SQLite or of the disk becomes."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from memagent.core.errors import (
    ConfigError,
    InputError,
    MemAgentError,
    StoreCorrupt,
    StoreError,
    StoreLocked,
    StoreReadOnly,
    StoreUnavailable,
)
from memagent.journal.sqlite import backup_store
from memagent.journal.sqlite_engine import (
    FileLock,
    ReadPool,
    connect_for_reading,
    connect_for_writing,
    create_file,
    create_folder,
    database_path,
    process_lives,
    store_error,
)


def test_a_lock_is_held_by_one_and_names_its_holder(tmp_path: Path) -> None:
    first, second = FileLock(tmp_path / "lock"), FileLock(tmp_path / "lock")
    assert first.holder() is None, "no file yet"
    first.acquire()
    with pytest.raises(StoreLocked, match=f"process {os.getpid()} is the writer") as refused:
        second.acquire(timeout_s=0.05)
    assert refused.value.pid == os.getpid()
    first.release()
    first.release()
    assert first.holder() is None, "a free lock names nobody"
    second.acquire()
    (tmp_path / "lock").write_text("no number", encoding="ascii")
    with pytest.raises(StoreLocked, match="another process"):
        first.acquire()
    second.release()
    first.acquire()
    first.release()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process")
def test_a_child_drops_its_copy_of_a_lock_and_the_parent_keeps_its_own(tmp_path: Path) -> None:
    held, other = FileLock(tmp_path / "lock"), FileLock(tmp_path / "lock")
    held.acquire()
    child = os.fork()
    if child == 0:
        held.release()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    with pytest.raises(StoreLocked, match=f"process {os.getpid()} is the writer"):
        other.acquire()
    held.release()
    other.acquire()
    other.release()


def test_a_lock_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"cannot make the lock file .*: Is a directory"):
        FileLock(tmp_path).acquire()


def test_only_processes_that_run_live() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    assert process_lives(os.getpid()) and process_lives(1) and not process_lives(child.pid)


def _too_big(connection: sqlite3.Connection) -> None:
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 100)
    connection.execute("SELECT ?", ("x" * 200,))


def _forbidden(connection: sqlite3.Connection) -> None:
    connection.set_authorizer(lambda *_: sqlite3.SQLITE_DENY)
    connection.execute("SELECT name FROM sqlite_master")


def _busy(connection: sqlite3.Connection) -> None:
    with closing(
        sqlite3.connect(connection.execute("PRAGMA database_list").fetchone()[2])
    ) as other:
        other.execute("BEGIN EXCLUSIVE")
        connection.execute("PRAGMA busy_timeout = 1")
        connection.execute("BEGIN IMMEDIATE")


def _damaged(connection: sqlite3.Connection) -> None:
    Path(connection.execute("PRAGMA database_list").fetchone()[2]).write_bytes(b"no database" * 99)
    connection.execute("SELECT * FROM sqlite_master")


def _closed(connection: sqlite3.Connection) -> None:
    connection.close()
    connection.execute("SELECT 1")


@pytest.mark.parametrize(
    ("harm", "kind"),
    [
        (_too_big, InputError),
        (_forbidden, StoreReadOnly),
        (_busy, StoreUnavailable),
        (_damaged, StoreCorrupt),
        (_closed, StoreError),
        (lambda connection: connection.execute("SELEKT"), StoreError),
    ],
)
def test_each_fault_of_sqlite_has_its_error(
    harm: Callable[[sqlite3.Connection], object], kind: type[MemAgentError], tmp_path: Path
) -> None:
    path = tmp_path / "m.db"
    create_file(path)
    with closing(connect_for_writing(path)) as connection, pytest.raises(sqlite3.Error) as raised:
        harm(connection)
    error = store_error(raised.value, path, "reading")
    assert type(error) is kind and f"reading {path} failed" in str(error)


def test_an_error_of_something_else_is_a_store_error(tmp_path: Path) -> None:
    assert type(store_error(OSError("gone"), tmp_path, "reading")) is StoreError


def test_places_that_hold_no_database_are_refused(tmp_path: Path) -> None:
    for place in ("sqlite://host/m.db", "sqlite:///", "mysql:///m.db", ":memory:"):
        with pytest.raises(ConfigError):
            database_path(place)
    with pytest.raises(StoreError, match="is a folder"):
        create_folder(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(StoreUnavailable, match=r"cannot make .*: Not a directory"):
        create_file(tmp_path / "file" / "m.db")
    with pytest.raises(StoreUnavailable, match=r"File exists|Not a directory"):
        create_folder(tmp_path / "file" / "m.db")


def test_a_lent_connection_that_fails_is_closed_and_no_more_than_four_wait(tmp_path: Path) -> None:
    create_file(tmp_path / "m.db")
    pool = ReadPool(tmp_path / "m.db")
    with pytest.raises(ZeroDivisionError), pool.reading(()) as failed:
        raise ZeroDivisionError
    with pytest.raises(sqlite3.ProgrammingError):
        failed.execute("SELECT 1")
    lent = [pool.reading(()) for _ in range(6)]
    connections = [one.__enter__() for one in lent]
    for one in lent:
        one.__exit__(None, None, None)
    open_ones = sum(_is_open(one) for one in connections)
    assert open_ones == 4
    pool.close()
    assert not any(_is_open(one) for one in connections)


def _is_open(connection: sqlite3.Connection) -> bool:
    try:
        connection.execute("SELECT 1")
    except sqlite3.ProgrammingError:
        return False
    return True


def test_a_file_without_its_write_ahead_log_is_read_where_nothing_can_be_made(
    tmp_path: Path,
) -> None:
    """As on a medium that may only be read: SQLite can make no index file beside it."""
    path = tmp_path / "m.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE t AS SELECT 7 AS x")
    path.with_name("m.db-shm").mkdir()
    with pytest.raises(sqlite3.Error), closing(connect_for_reading(tmp_path / "none.db")):
        pass
    with closing(connect_for_reading(path)) as connection:
        assert connection.execute("SELECT x FROM t").fetchone() == (7,)


def test_a_copy_that_cannot_be_made_leaves_nothing(tmp_path: Path) -> None:
    path, target = tmp_path / "m.db", tmp_path / "copy.db"
    path.write_bytes(b"no database" * 99)
    with pytest.raises(InputError, match=r"cannot be written: No such file"):
        backup_store(path, tmp_path / "nowhere" / "copy.db")
    with pytest.raises(StoreCorrupt, match=r"copying .* failed"):
        backup_store(path, target)
    assert not target.exists()
    target.touch()
    with pytest.raises(InputError, match=r"is there already"):
        backup_store(path, target)
