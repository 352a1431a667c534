"""Sessions remembered in the background, one after the other.

A write that fails is logged once, counted in `failures`, and raised by the next
`flush`; its turns are stored, so nothing is lost meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from concurrent.futures import Future, wait

from memagent.async_agent import AsyncAgent
from memagent.core.errors import ModelError
from memagent.core.records import Session
from memagent.core.reports import IngestReport
from memagent.loop_thread import LoopThread
from memagent.remembering import OnError

_log = logging.getLogger(__name__)


class Background:
    """The sessions that an agent remembers in the background, in order."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._futures: list[Future[IngestReport]] = []
        self.failures = 0
        """Background writes that failed since the agent was opened."""
        self.last_failure: BaseException | None = None

    def submit(
        self, thread: LoopThread, agent: AsyncAgent, session: Session
    ) -> Future[IngestReport]:
        """Remember a session when all earlier ones have finished."""
        with self._guard:
            previous = self._futures[-1] if self._futures else None
            future = thread.submit(_remember_after(previous, agent, session))
            self._futures.append(future)
        future.add_done_callback(lambda done: self._note(done, session))
        return future

    def pending(self) -> list[Future[IngestReport]]:
        """Return the sessions submitted since the last flush."""
        with self._guard:
            return list(self._futures)

    def waiting(self) -> int:
        """Count the sessions that are not remembered yet."""
        return sum(not future.done() for future in self.pending())

    def flush(self, *, on_error: OnError = "raise") -> list[IngestReport]:
        """Wait for all sessions submitted so far; raises the first error among them.

        With `on_error="keep"` a model failure stays in its report.
        """
        pending = self.pending()
        wait(pending)
        done = set(map(id, pending))
        with self._guard:
            self._futures = [future for future in self._futures if id(future) not in done]
        return [_report(future, on_error) for future in pending]

    def _note(self, done: Future[IngestReport], session: Session) -> None:
        failure = None if done.cancelled() else done.exception()
        if failure is not None:
            self.failures, self.last_failure = self.failures + 1, failure
            _log.warning("session %s was not remembered in the background: %s", session.id, failure)


def _report(future: Future[IngestReport], on_error: OnError) -> IngestReport:
    try:
        return future.result()
    except ModelError as failure:
        if on_error == "raise" or failure.report is None:
            raise
        return failure.report


async def _remember_after(
    previous: Future[IngestReport] | None, agent: AsyncAgent, session: Session
) -> IngestReport:
    """Remember a session after the previous one has finished, even if that failed."""
    if previous is not None and not previous.done():
        await asyncio.wait([asyncio.wrap_future(previous)])
    return await agent.remember(session)
