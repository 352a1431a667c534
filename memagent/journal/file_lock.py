"""One writing process for a store: an exclusive lock on a file beside the database.

The file holds the process id of the holder.

The kernel keeps the lock, so a killed process leaves none behind, and the file itself
may stay. The lock belongs to the open file: a forked child drops its copy with
`forget()` and the parent keeps the lock.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from memagent.core import crash_points
from memagent.core.errors import StoreError, StoreLocked, StoreReadOnly

if sys.platform == "win32":
    import msvcrt

    _FAR: Final = (
        1 << 30
        # Windows locks forbid reading the locked bytes, so one is locked that the process
        # id never reaches
    )

    def _try_lock(fd: int) -> None:
        os.lseek(fd, _FAR, os.SEEK_SET)
        msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _try_lock(fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


_HELD: Final = frozenset({errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES, errno.EDEADLK})
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
        self._fd: int | None = None

    def acquire(self, *, timeout_s: float = 0.0) -> None:
        """Take the lock, trying for `timeout_s`.

        Raises `StoreLocked` with the holder's process id, `StoreReadOnly` when the file
        cannot be made there, and `StoreError` when the file system knows no locks.
        """
        try:
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as exc:
            if exc.errno in _DENIED:
                raise StoreReadOnly(
                    f"cannot write {self.path}: {exc.strerror}; open the store with read_only=True"
                ) from exc
            raise StoreError(f"cannot make the lock file {self.path}: {exc.strerror}") from exc
        try:
            self._wait(fd, time.monotonic() + timeout_s)
            os.ftruncate(fd, 0)
            os.lseek(fd, 0, os.SEEK_SET)
            os.write(fd, b"%d\n" % os.getpid())
        except BaseException:
            os.close(fd)
            raise
        self._fd = fd
        crash_points.reach("lock.acquired")

    def _wait(self, fd: int, deadline: float) -> None:
        while True:
            try:
                _try_lock(fd)
                return
            except OSError as exc:
                if exc.errno not in _HELD:
                    raise StoreError(
                        f"cannot lock {self.path}: {exc.strerror}; put the store on a file "
                        "system that knows file locks"
                    ) from exc
            if time.monotonic() >= deadline:
                pid = self.holder()
                who = "another process" if pid is None else f"process {pid}"
                raise StoreLocked(
                    f"{who} is the writer of this store (lock file {self.path}); use that "
                    "process, close it, or open with read_only=True",
                    pid=pid,
                )
            time.sleep(_POLL_S)

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
        if self._fd is None:
            return
        crash_points.reach("lock.releasing")
        with suppress(OSError):  # a stale process id in a free lock file misleads nobody
            os.ftruncate(self._fd, 0)
        os.close(self._fd)
        self._fd = None

    def forget(self) -> None:
        """Close the copy that a forked child inherited; the parent keeps its lock."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
