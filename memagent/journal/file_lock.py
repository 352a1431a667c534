"""One writing process for a store: an exclusive lock on a file beside the database.

The file holds the process id of the holder. The kernel keeps the lock (`filelock`), so a
killed process leaves none behind, and the file itself stays. A forked child drops its
copy of the lock, and the parent keeps it.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import filelock

from memagent.core import crash_points
from memagent.core.errors import StoreError, StoreLocked, StoreReadOnly

_DENIED: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_POLL_S: Final = 0.02


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
            path, mode=0o600, thread_local=False, fallback_to_soft=False, poll_interval=_POLL_S
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
            time.sleep(_POLL_S)
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
