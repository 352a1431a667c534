"""Running one job to its end: its lease, its tries, and the pauses between them."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from memagent.client.faults import FAULTS
from memagent.client.wire import Job, JobKind, JobState
from memagent.core.errors import MemAgentError
from memagent.core.records import Scope
from memagent.service.data.job_table import JobTable
from memagent.service.data.job_work import JobFailed, JobWork
from memagent.service.data.leases import Leases, job_place
from memagent.service.metrics import Metrics
from memagent.service.model_meter import job_line
from memagent.tracing import span

_log = logging.getLogger(__name__)
FIRST_PAUSE_S: Final = 0.5
"""Seconds before the second try of a job; every further pause is twice as long."""
_LONGEST_PAUSE_S: Final = 60.0


class JobRunner:
    """Runs single jobs. Used from one event loop."""

    def __init__(
        self, work: JobWork, table: JobTable, leases: Leases, metrics: Metrics, *, attempts: int
    ) -> None:
        """Give a job up after so many `attempts`."""
        self._work, self._table, self._leases = work, table, leases
        self._metrics, self._attempts = metrics, attempts
        # Set when the service stops: no job is tried again then.
        self.stopping = False

    async def run(self, job: Job, scope: Scope, *, pause_s: float) -> None:
        """Run a job after a pause, unless another worker holds it or has finished it."""
        await asyncio.sleep(pause_s)
        task = asyncio.current_task()
        assert task is not None
        if not await self._leases.acquire(job_place(job.id), lost=task.cancel):
            return
        try:
            stored = await asyncio.to_thread(self._table.find, job.id)
            if stored is not None and stored[0].state in (JobState.QUEUED, JobState.RUNNING):
                await self._try_until_done(stored[0], scope)
        finally:
            await self._leases.release(job_place(job.id))

    async def _try_until_done(self, job: Job, scope: Scope) -> None:
        attempts, pause = job.attempts, FIRST_PAUSE_S
        while True:
            attempts += 1
            try:
                result = await self._try(job, scope, attempts)
                await self._move(job, JobState.DONE, attempts, result=result)
                self._metrics.count("jobs_done")
                return
            except JobFailed as exc:
                code, retryable = exc.code, exc.retryable
            except MemAgentError as exc:
                code, retryable = error_code(exc), exc.retryable
            except Exception as exc:
                _log.error("job %s (%s) failed: %s", job.id, job.kind.value, type(exc).__name__)
                code, retryable = "internal_error", False
            if not retryable or attempts >= self._attempts:
                self._metrics.count("jobs_failed")
                await self._move(job, JobState.FAILED, attempts, error=code)
                return
            self._metrics.count("jobs_retried")
            await self._move(job, JobState.QUEUED, attempts, error=code)
            if self.stopping:
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    async def _try(self, job: Job, scope: Scope, attempts: int) -> dict[str, Any]:
        with (
            span("memagent.job") as job_span,
            job_line(job.id, job.kind.value, attempts) as line,
        ):
            if job_span.recording:
                names = {"memagent.job.kind": job.kind.value, "memagent.job.attempt": attempts}
                job_span.put(names)
            result = await self._work.run(job, scope, attempts)
            if job.kind is JobKind.INGEST:
                line.update(result)
            return result

    async def _move(self, job: Job, state: JobState, attempts: int, **more: Any) -> None:
        await asyncio.to_thread(self._table.move, job.id, state, attempts=attempts, **more)


def error_code(error: MemAgentError) -> str:
    """Return the code under which an error is reported to callers."""
    return next(fault.code for fault in FAULTS if isinstance(error, fault.kind))
