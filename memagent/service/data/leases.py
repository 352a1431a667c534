"""What this worker alone is at work on, among all that share a database: jobs, memories
being remembered, requests with a key.

A claim is a lease (`database.LEASE_S`). A thread renews all of them, so that a busy
event loop keeps them, and tells whoever holds one that was lost: the process had been
stopped, or the database away, for longer than the lease. A worker that dies renews
nothing, and its supervisor gives its places back at once; another machine's worker
takes over when the lease is over. What was claimed for somebody who went away before it
came here is not renewed. Where nobody shares the database every place is free, and
nothing is written.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from memagent.core.errors import MemAgentError
from memagent.service.data.database import LEASE_S, ServiceDatabase

_log = logging.getLogger(__name__)
_BEAT_S: Final = LEASE_S / 4


class Claims:
    """The claims of one worker. Used from one event loop, after `start`."""

    def __init__(self, database: ServiceDatabase, worker: str) -> None:
        self._database, self.worker = database, worker
        self._held: dict[str, Callable[[], object]] = {}
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Renew claims from now on; call it in the event loop that uses them."""
        if self._database.shared:
            arguments = (asyncio.get_running_loop(),)
            self._thread = threading.Thread(
                target=self._beat, args=arguments, name="memagent-claims", daemon=True
            )
            self._thread.start()

    async def stop(self) -> None:
        """Renew nothing any more, and give everything back."""
        self._ended.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)
            await asyncio.to_thread(self._database.release, self.worker)

    async def take(
        self, place: str, *, lost: Callable[[], object] = lambda: None, soon: bool = False
    ) -> bool:
        """Take a place unless another worker has it; `lost` is called in the event loop when it has been lost.

        Raises `StoreError`s.
        """
        if not self._database.shared:
            return True
        if not await asyncio.to_thread(self._database.claim, place, self.worker, soon=soon):
            return False
        self._held[place] = lost
        return True

    async def give_back(self, place: str) -> None:
        """Let others have the place; where the database is away they get it when the lease is over."""
        if not self._database.shared:
            return
        self._held.pop(place, None)
        try:
            await asyncio.to_thread(self._database.release, self.worker, place)
        except MemAgentError as exc:
            _log.warning("a claim was not given back: %s", type(exc).__name__)

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        renewed_at = time.monotonic()
        while not self._ended.wait(_BEAT_S):
            held, now = dict(self._held), time.monotonic()
            try:
                kept = self._database.renew(self.worker, tuple(held))
            except MemAgentError as exc:
                _log.warning("claims were not renewed: %s", type(exc).__name__)
                if now - renewed_at < LEASE_S:
                    continue
                kept = frozenset[str]()
            else:
                renewed_at = now
            gone = {place: lost for place, lost in held.items() if place not in kept}
            if gone and not loop.is_closed():
                loop.call_soon_threadsafe(self._lose, gone)

    def _lose(self, gone: dict[str, Callable[[], object]]) -> None:
        for place, lost in gone.items():
            if self._held.get(place) is lost:  # and was not given back and taken anew meanwhile
                del self._held[place]
                _log.warning("another worker may be at %s now", place.partition("/")[0])
                lost()
