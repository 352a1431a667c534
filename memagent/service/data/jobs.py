"""Work that goes on after the answer: remembering sessions, exports, erasures.

A job is a durable row before it is acknowledged, and so are the turns it is about; a
restart finds both and goes on with the first chunk that is not done. A model that fails
costs a try, never a turn. A worker holds a lease on the job it runs and on the memory
that the job is about; jobs of a dead worker are found by the others.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from typing import Any, Final

from memagent.client.faults import ServiceError
from memagent.client.wire import Job, JobKind, JobState
from memagent.core.errors import InputError, MemAgentError
from memagent.core.records import Scope, Session, content_id
from memagent.core.reports import IngestReport
from memagent.service.banks import Banks
from memagent.service.data.idempotency import PENDING
from memagent.service.data.job_runner import FIRST_PAUSE_S, JobRunner, error_code
from memagent.service.data.job_table import CANCELLED, JobTable
from memagent.service.data.job_work import JobFailed, JobWork, counts_of
from memagent.service.data.leases import Leases, job_place
from memagent.tracing import trace_context

_log = logging.getLogger(__name__)
# Seconds between two looks for jobs that another worker left.
_LOOK_S: Final = 1.0
# Seconds after which a job that was accepted and not started is started all the same.
_FORGOTTEN_S: Final = 5.0
_ENDED: Final = (JobState.DONE, JobState.FAILED)


class Jobs:
    """Accepts jobs, starts them, and finds those that were left. Used from one event loop."""

    def __init__(
        self,
        table: JobTable,
        work: JobWork,
        runner: JobRunner,
        leases: Leases,
        banks: Banks,
        *,
        most: int,
    ) -> None:
        """Take no further sessions while `most` jobs wait or run here."""
        self._most = most
        self.table, self.work = table, work
        self._runner, self._leases, self._banks = runner, leases, banks
        self._tasks: dict[str, asyncio.Task[None]] = {}
        # Jobs accepted and not started yet, since when.
        self._accepted: dict[str, float] = {}

    @property
    def at_work(self) -> int:
        """The number of jobs that run or wait here."""
        return len(self._tasks)

    async def accept_session(
        self, scope: Scope, session: Session, *, opened: Callable[[Job], object] = bool
    ) -> tuple[Job, bool]:
        """Store a session's turns and the job to remember them; both are durable on return.

        Returns the job and whether the session is new. `opened` is given the job before
        the turns are stored. Raises `InputError` for a known session id with other turns
        and `ServiceError` (`overloaded`) for a new one while too many jobs wait.
        """
        job_id = content_id("job", JobKind.INGEST.value, scope.key, session.id)
        try:
            with self._banks.agent(scope) as agent:
                known = session.id in (await agent.bank.sync()).sessions
                if known:
                    await agent.bank.store_session(session)  # refuses other turns
                elif len(self._tasks) >= self._most:
                    raise _full()
                job = await self._add(job_id, scope, JobKind.INGEST, session_id=session.id)
                # of a session that was refused or erased since, it begins again
                if job.state is JobState.FAILED or (job.state is JobState.DONE and not known):
                    job = await self._requeued(job)
                opened(job)
                if known:
                    return job, False
                try:
                    return job, await agent.bank.store_session(session)
                except MemAgentError as exc:
                    await self._move(job_id, JobState.FAILED, error=error_code(exc))
                    await self._leases.release(job_place(job_id))
                    raise
        finally:
            self._accepted[job_id] = time.monotonic()

    async def accept_growth(self, scope: Scope, session: Session) -> Job:
        """Make the job that remembers what a stored session has grown by; durable on return."""
        kind, size = JobKind.INGEST, len(session.turns)
        job_id = content_id("job", kind.value, scope.key, session.id, str(size))
        try:
            job = await self._add(job_id, scope, kind, session_id=session.id)
            return await self._requeued(job) if job.state is JobState.FAILED else job
        finally:
            self._accepted[job_id] = time.monotonic()

    async def accept(self, scope: Scope, kind: JobKind, *, request_key: str) -> Job:
        """Start an export or erasure; a repeated request gets the job of the first."""
        job_id = content_id("job", kind.value, scope.key, request_key)
        try:
            job = await self._add(job_id, scope, kind)
        finally:
            self._accepted[job_id] = time.monotonic()
        self.start(job, scope)
        return job

    async def find(self, job_id: str, scope: Scope) -> Job | None:
        """Return a job of the scope's user."""
        stored = await asyncio.to_thread(self.table.find, job_id)
        return stored[0] if stored is not None and stored[0].user_id == scope.user_id else None

    def start(self, job: Job, scope: Scope, *, pause_s: float = 0.0) -> None:
        """Start a job unless it is running or finished, here or in another worker."""
        self._accepted.pop(job.id, None)
        if self._runner.stopping or job.id in self._tasks or job.state in _ENDED:
            return
        task = asyncio.get_running_loop().create_task(
            self._runner.run(job, scope, pause_s=pause_s), context=trace_context()
        )
        self._tasks[job.id] = task
        task.add_done_callback(lambda _: self._ended(job.id, task))

    async def retry(self, job: Job, scope: Scope) -> Job:
        """Start a failed job again from the beginning."""
        if job.state is JobState.FAILED:
            job = await self._requeued(job)
            stored = await asyncio.to_thread(self.table.find, job.id)
            self.start(job, stored[1] if stored is not None else scope)
        return job

    async def cancel(self, job: Job, scope: Scope) -> Job:
        """Give up an unfinished job; another worker that runs it stops within two seconds."""
        if job.state in _ENDED:
            return job
        await self._move(job.id, JobState.FAILED, error=CANCELLED)
        self._stop(job.id)
        return await self.find(job.id, scope) or job

    async def remember_now(self, job: Job, scope: Scope) -> IngestReport:
        """Remember the job's session and wait for it; chunks that fail are tried again later.

        Raises `InputError` when the session was erased.
        """
        self._accepted[job.id] = math.inf
        token = PENDING.set(None)
        try:
            report = await self.work.remember(job, scope)
            if not report.failed_chunks:
                result = counts_of(report)
                await self._move(job.id, JobState.DONE, attempts=job.attempts + 1, result=result)
                await self._leases.release(job_place(job.id))
        except JobFailed:
            raise InputError(f"session {job.session_id!r} is not stored (any more)") from None
        finally:
            PENDING.reset(token)
            self._accepted.pop(job.id, None)
        if report.failed_chunks:
            queued = job.model_copy(update={"state": JobState.QUEUED})
            self.start(queued, scope, pause_s=FIRST_PAUSE_S)
        return report

    async def resume(self) -> int:
        """Start the jobs that an earlier run or a dead worker left; return their number."""
        now, number = time.monotonic(), 0
        self._accepted = {
            job_id: since for job_id, since in self._accepted.items() if now - since < _FORGOTTEN_S
        }
        for job, scope in await asyncio.to_thread(self.table.left, self._leases.worker):
            if job.id not in self._tasks and job.id not in self._accepted:
                self.start(job, scope)
                number += 1
        return number

    async def watch(self) -> None:
        """Look for jobs that a worker left and for cancelled ones, until this task is cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S if self._leases.table.shared else _FORGOTTEN_S)
            try:
                await self.resume()
                for job_id in await asyncio.to_thread(self.table.cancelled, tuple(self._tasks)):
                    self._stop(job_id)
            except MemAgentError as exc:
                _log.warning("jobs were not looked for: %s", type(exc).__name__)

    async def drain(self, seconds: float) -> None:
        """Let running jobs finish, then stop the others; those stay queued for the next start."""
        self._runner.stopping = True
        tasks = list(self._tasks.values())
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=seconds)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)

    async def _add(
        self, job_id: str, scope: Scope, kind: JobKind, *, session_id: str | None = None
    ) -> Job:
        self._accepted[job_id] = math.inf
        worker = self._leases.worker
        return await asyncio.to_thread(
            self.table.add, job_id, scope, kind, session_id=session_id, worker=worker
        )

    async def _move(self, job_id: str, state: JobState, **more: Any) -> None:
        await asyncio.to_thread(self.table.move, job_id, state, **more)

    async def _requeued(self, job: Job) -> Job:
        """Hold the lease of a job and put it back to its beginning."""
        await self._leases.acquire(job_place(job.id))
        await self._move(job.id, JobState.QUEUED, attempts=0, revive=True)
        return job.model_copy(update={"state": JobState.QUEUED, "attempts": 0, "error": None})

    def _stop(self, job_id: str) -> None:
        if task := self._tasks.get(job_id):
            task.cancel()

    def _ended(self, job_id: str, task: asyncio.Task[None]) -> None:
        self._tasks.pop(job_id, None)
        error = None if task.cancelled() else task.exception()
        if error is not None:  # the database is away; `resume` finds the job when it is back
            _log.warning("job %s waits: %s", job_id, type(error).__name__)


def _full() -> ServiceError:
    return ServiceError(
        "as many sessions wait to be remembered as may; nothing of this one was stored, "
        "send it again in a second",
        code="overloaded",
        retryable=True,
    )
