"""The writers open in this process, by database.

A second open of the same store shares the first one's writer.

A child made by `fork` inherits none of them. It keeps the connections untouched: using
or closing one across a fork corrupts a SQLite database, and ends a session of the
parent's elsewhere. Its lock files are dropped by `filelock`.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass

from memagent.journal.backend import Backend, corrupt
from memagent.journal.file_lock import FileLock
from memagent.journal.schema import make_schema
from memagent.journal.writer import JournalWriter


@dataclass(slots=True)
class _Open:
    backend: Backend
    writer: JournalWriter
    lock: FileLock | None
    users: int = 1


class OpenWriters:
    """The table of open writers. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_backend: dict[Backend, _Open] = {}
        self._inherited: list[_Open] = []
        self._watches_forks = False

    def acquire(
        self, backend: Backend, *, lock: Callable[[], FileLock] | None
    ) -> tuple[JournalWriter, Backend]:
        """Return the writer of a database, opened if need be, and the backend it was opened with.

        Give it back with `release`.

        `lock` takes the lock that keeps other processes from writing, and makes the
        place ready. Raises as opening a journal does.
        """
        with self._lock:
            if not self._watches_forks and sys.platform != "win32":
                os.register_at_fork(after_in_child=self._forget)
                self._watches_forks = True
            shared = self._by_backend.get(backend)
            if shared is None:
                self._by_backend[backend] = shared = _open(
                    backend, lock() if lock is not None else None
                )
            else:
                shared.users += 1
            return shared.writer, shared.backend

    def release(self, backend: Backend) -> None:
        """Give a writer back; the last one to do so closes it and frees the lock."""
        with self._lock:
            shared = self._by_backend[backend]
            shared.users -= 1
            if shared.users == 0:
                del self._by_backend[backend]
                shared.writer.close()
                if shared.lock is not None:
                    shared.lock.release()

    def _forget(self) -> None:
        self._lock = threading.Lock()
        for shared in self._by_backend.values():
            self._inherited.append(shared)
        self._by_backend = {}


def _open(backend: Backend, lock: FileLock | None) -> _Open:
    try:
        make_schema(backend)
        return _Open(backend, JournalWriter(backend), lock)
    except UnicodeDecodeError as exc:
        if lock is not None:
            lock.release()
        raise corrupt(backend.name, "it holds bytes that are no text") from exc
    except BaseException:
        if lock is not None:
            lock.release()
        raise


OPEN_WRITERS = OpenWriters()
"""The open writers of this process."""
