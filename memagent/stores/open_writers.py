"""The writers open in this process, by path: a second open of the same store shares the first one's writer.

A child made by `fork` inherits none of them. It drops its copies of the lock files, keeps the connections untouched (using or closing a
SQLite connection across a fork is what corrupts databases), and has to open its stores anew.
"""

from __future__ import annotations

import os
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from memagent.core.errors import ConfigError
from memagent.stores.file_lock import FileLock
from memagent.stores.fork_gate import FORK_GATE
from memagent.stores.journal_writer import JournalWriter
from memagent.stores.schema_state import prepare_schema
from memagent.stores.sqlite_engine import Synchronous, create_file, create_folder, writing_engine


@dataclass(slots=True)
class _Open:
    writer: JournalWriter
    lock: FileLock
    users: int = 1


class OpenWriters:
    """The table of open writers. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_path: dict[Path, _Open] = {}
        self._inherited: list[_Open] = []
        self._watches_forks = False

    def acquire(self, path: Path, *, synchronous: Synchronous, lock_timeout_s: float) -> JournalWriter:
        """The writer for a path, opened if need be. Raises as `SqlJournal` does; give it back with `release`."""
        with self._lock:
            if not self._watches_forks and sys.platform != "win32":
                os.register_at_fork(after_in_child=self._forget)
                self._watches_forks = True
            shared = self._by_path.get(path)
            if shared is None:
                self._by_path[path] = shared = _open(path, synchronous, lock_timeout_s)
            elif shared.writer.synchronous != synchronous:
                raise ConfigError(
                    f"{path} is open in this process with synchronous={shared.writer.synchronous!r}, not {synchronous!r}; use the same"
                )
            else:
                shared.users += 1
            return shared.writer

    def release(self, path: Path) -> None:
        """Give a writer back; the last one to do so closes it and frees the lock."""
        with self._lock:
            shared = self._by_path[path]
            shared.users -= 1
            if shared.users == 0:
                del self._by_path[path]
                shared.writer.close()
                shared.lock.release()

    def _forget(self) -> None:
        self._lock = threading.Lock()
        for shared in self._by_path.values():
            shared.lock.forget()
            self._inherited.append(shared)
        self._by_path = {}


def _open(path: Path, synchronous: Synchronous, lock_timeout_s: float) -> _Open:
    create_folder(path)
    lock = FileLock(path.with_name(f"{path.name}.lock"))
    lock.acquire(timeout_s=lock_timeout_s)
    try:
        create_file(path)
        with FORK_GATE.inside():
            prepare_schema(writing_engine(path), path)
            return _Open(JournalWriter(path, synchronous=synchronous), lock)
    except BaseException:
        lock.release()
        raise


OPEN_WRITERS = OpenWriters()
"""Those of this process."""
