"""An open `AsyncAgent` with the event loop in a thread that runs its coroutines.

A forked child inherits neither thread nor connections: it leaves them to its parent and
opens its own at the first call. While the parent writes to a SQLite file, the child
only reads; it may write once the parent has closed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from memagent.async_agent import AsyncAgent
from memagent.core.errors import StoreError, StoreLocked, StoreReadOnly
from memagent.loop_thread import CLOSED, LoopThread

T = TypeVar("T")
Opener = Callable[[bool], AsyncAgent]
"""Opens an agent with its store, for reading only or not."""
_INHERITED: list[object] = []


class LiveAgent:
    """An agent, its store and its loop's thread, opened together and closed together."""

    def __init__(self, open_: Opener, *, read_only: bool) -> None:
        self._open_agent, self._read_only = open_, read_only
        self._agent: AsyncAgent | None = None
        self._thread: LoopThread | None = None
        self._guard = threading.RLock()
        self._locked_out = False
        """Whether this is a forked child that only reads because its parent writes."""
        self.closed = False
        self._open(read_only=read_only)

    @property
    def path(self) -> str | None:
        """The file or server of the memory; None where it is kept in the process."""
        store = self._agent.store if self._agent is not None else None
        return store.path if store is not None else None

    def parts(self) -> tuple[AsyncAgent, LoopThread]:
        """Return the agent and its thread. Raises `StoreError` when closed."""
        if self.closed:
            raise StoreError(CLOSED)
        if self._thread is None:  # a forked child starts anew, and may read while its parent writes
            with self._guard:
                if self._thread is None:
                    try:
                        self._open(read_only=self._read_only)
                    except StoreLocked:
                        self._open(read_only=True)
                        self._locked_out = True
        assert self._agent is not None and self._thread is not None
        return self._agent, self._thread

    def run(self, make: Callable[[AsyncAgent], Coroutine[Any, Any, T]]) -> T:
        """Wait for the coroutine that `make` gives for the agent."""
        agent, thread = self.parts()
        try:
            return thread.run(make(agent))
        except StoreReadOnly:
            if not self._locked_out:
                raise
        with self._guard:
            if self._locked_out:
                self._open(read_only=False)  # raises StoreLocked while the parent still writes
                self._locked_out = False
        return self.run(make)

    def refuse_own(self) -> None:
        """Raise `StoreError` in the agent's own thread, where a wait never ends."""
        if self._thread is not None:
            self._thread.refuse_own()

    def close(self) -> None:
        """Let running calls finish, end the thread and release the store."""
        self.closed = True
        try:
            if self._thread is not None:
                self._thread.stop()
        finally:
            _release(self._agent)

    def forget(self) -> None:
        """Leave the thread and the connections to the parent, in a forked child.

        Closing them here would harm the parent, so a reference is kept.
        """
        _INHERITED.append((self._agent, self._thread))
        self._agent = self._thread = None
        self._guard, self._locked_out = threading.RLock(), False

    def _open(self, *, read_only: bool) -> None:
        """Open the agent, in place of one that is open."""
        old, self._agent = self._agent, self._open_agent(read_only)
        _release(old)
        if self._thread is None:
            self._thread = LoopThread()


def _release(agent: AsyncAgent | None) -> None:
    if agent is not None and agent.store is not None:
        agent.store.close()
