"""A gate between forks and SQLite.

SQLite guards its own state with mutexes. A process forked while some thread is inside
SQLite inherits them locked, by a thread that it does not have, and hangs at its first
connection. So every use of SQLite is announced here, and a fork waits until nobody is
inside; who comes meanwhile waits for the fork.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

_PATIENCE_S: Final = 10.0


class ForkGate:
    """Counts the threads inside. Re-entrant; costs about two microseconds."""

    def __init__(self) -> None:
        self._mine = threading.local()
        self._reset()
        if sys.platform != "win32":
            os.register_at_fork(
                before=self._close, after_in_parent=self._open, after_in_child=self._reset
            )

    def _reset(self) -> None:
        self._condition = threading.Condition(threading.Lock())
        self._inside, self._forking = 0, False

    @contextmanager
    def inside(self) -> Generator[None]:
        """Run a block that no fork cuts."""
        depth: int = getattr(self._mine, "depth", 0)
        if depth == 0:
            with self._condition:
                self._condition.wait_for(lambda: not self._forking)
                self._inside += 1
        self._mine.depth = depth + 1
        try:
            yield
        finally:
            self._mine.depth = depth
            if depth == 0:
                with self._condition:
                    self._inside -= 1
                    self._condition.notify_all()

    def _close(self) -> None:
        own = 1 if getattr(self._mine, "depth", 0) else 0
        self._condition.acquire()
        self._condition.wait_for(lambda: not self._forking, timeout=_PATIENCE_S)
        self._forking = True
        self._condition.wait_for(lambda: self._inside <= own, timeout=_PATIENCE_S)

    def _open(self) -> None:
        self._forking = False
        self._condition.notify_all()
        self._condition.release()


FORK_GATE: Final = ForkGate()
"""The gate of this process."""
