"""Work that goes on after the answer: remembering sessions, exports, erasures.

A job is a durable row before it is acknowledged, and so are the turns it is about; a
restart finds both and goes on with the first chunk that is not done. A model that fails
costs a try, never a turn. A worker holds a lease on the job it runs and on the memory
that the job is about; jobs of a dead worker are found by the others.

The three kinds of jobs: remember a session, export a user's memories, erase them.

Only one job works on a memory at a time, in whichever worker, so a user's sessions are
remembered in the order they came. The surprise: an export writes no file. Its job tells
where in the journal each file ends and what it weighs; `banks` makes the file of the
journal when it is fetched.

Running one job to its end: its lease, its tries, and the pauses between them.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from memagent.client.http import FAULTS, ServiceError
from memagent.client.wire import IngestReport, Job, JobKind, JobState
from memagent.config import ServiceSettings
from memagent.core.errors import InputError, MemAgentError
from memagent.core.records import Scope, Session, content_id, system_clock
from memagent.journal.open_database import DatabaseJournal
from memagent.journal.rows import scope_digest, scope_key
from memagent.memory.care.erasure import needles_of_all, searched
from memagent.memory.facade import Memory
from memagent.service.data.banks import Banks, describe_file, open_file
from memagent.service.data.idempotency import PENDING, IdempotentRequests
from memagent.service.data.leases import CANCELLED, JobTable, Leases, job_place
from memagent.service.metrics import Metrics, job_line
from memagent.tracing import span, trace_context

_log = logging.getLogger(__name__)
FIRST_PAUSE_S: Final = 0.5
"""Seconds before the second try of a job; every further pause is twice as long."""
_LONGEST_PAUSE_S: Final = 60.0
_FIRST_WAIT_S: Final = 0.05
_LONGEST_WAIT_S: Final = 1.0


class JobWork:
    """Does the work of jobs, as often as the settings let it try. Used from one event loop."""

    def __init__(
        self,
        table: JobTable,
        leases: Leases,
        banks: Banks,
        requests: IdempotentRequests,
        metrics: Metrics,
        settings: ServiceSettings,
    ) -> None:
        self._table, self._leases, self._banks = table, leases, banks
        self._requests, self._metrics = requests, metrics
        self._slots = asyncio.Semaphore(settings.ingest_jobs)
        self._attempts = settings.job_attempts
        # Set when the service stops: no job is tried again then.
        self.stopping = False
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

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
                attributes = {"memagent.job.kind": job.kind.value, "memagent.job.attempt": attempts}
                with (
                    span("memagent.job", attributes=attributes),
                    job_line(job.id, job.kind.value, attempts) as line,
                ):
                    result = await self._once(job, scope, attempts)
                    if job.kind is JobKind.INGEST:
                        line.update(result)
                await self.move(job.id, JobState.DONE, attempts=attempts, result=result)
                self._metrics.count("jobs_done")
                return
            except MemAgentError as exc:
                code, retryable = error_code(exc), exc.retryable
            except Exception as exc:
                _log.error("job %s (%s) failed: %s", job.id, job.kind.value, type(exc).__name__)
                code, retryable = "internal_error", False
            if not retryable or attempts >= self._attempts:
                self._metrics.count("jobs_failed")
                await self.move(job.id, JobState.FAILED, attempts=attempts, error=code)
                return
            self._metrics.count("jobs_retried")
            await self.move(job.id, JobState.QUEUED, attempts=attempts, error=code)
            if self.stopping:
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    async def move(self, job_id: str, state: JobState, **more: Any) -> None:
        """Write the state of a job; see `JobTable.move`."""
        await asyncio.to_thread(self._table.move, job_id, state, **more)

    async def _once(self, job: Job, scope: Scope, attempts: int) -> dict[str, Any]:
        """Do a job and return its result; raise what made it fail."""
        if job.kind is JobKind.INGEST:
            async with self._exclusive(scope, job), self._slots:
                await self.move(job.id, JobState.RUNNING, attempts=attempts)
                report = await self._remember(job, scope)
            if report.failed_chunks:
                raise ServiceError("chunks failed", code="model_error", retryable=True)
            return counts_of(report)
        await self.move(job.id, JobState.RUNNING, attempts=attempts)
        return await (
            self._export(scope) if job.kind is JobKind.EXPORT else self._erase(job, scope)
        )

    async def remember(self, job: Job, scope: Scope) -> IngestReport:
        """Remember the job's session at once, beside the jobs in the background.

        Raises `ServiceError` when it is not stored.
        """
        async with self._exclusive(scope, job):
            return await self._remember(job, scope)

    async def export_file(self, job: Job, number: int) -> tuple[int, AsyncGenerator[bytes]] | None:
        """Return one file of an export as (bytes, content).

        None when there is no file of that number, or when it was erased since.
        """
        files: list[dict[str, Any]] = (
            (job.result or {}).get("files", []) if job.kind is JobKind.EXPORT else []
        )
        file = next((file for file in files if file["number"] == number), None)
        content = await open_file(self._banks, file) if file is not None else None
        return None if file is None or content is None else (file["bytes"], content)

    async def _remember(self, job: Job, scope: Scope) -> IngestReport:
        with self._banks.agent(scope) as agent:
            session = (await agent.bank.sync()).sessions.get(job.session_id or "")
            if session is None:
                # Erased since; or the worker that accepted it died before it stored it,
                # and a repetition is about to.
                raise ServiceError("no such session", code="not_found", retryable=True)
            return await agent.remember(session, on_error="keep")

    @asynccontextmanager
    async def _exclusive(self, scope: Scope, job: Job | None = None) -> AsyncGenerator[None]:
        """Work on a memory alone, in this worker and among all.

        A job that remembers waits until earlier ones have had their first try, and for
        none that was tried before.
        """
        task = asyncio.current_task()
        assert task is not None
        place, pause = f"memory/{scope_digest(scope_key(scope))}", _FIRST_WAIT_S
        job_id = job.id if job is not None else ""
        shared = job is not None and self._leases.table.shared
        while True:
            async with self._locks[scope.key]:
                # the lock of one worker does not order the jobs of several
                earlier = shared and await asyncio.to_thread(self._table.has_earlier, job_id)
                if not earlier and await self._leases.acquire(place, lost=task.cancel):
                    try:
                        yield
                    finally:
                        await self._leases.release(place)
                    return
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_WAIT_S)

    async def forget(self, scope: Scope, *, session_id: str | None = None) -> None:
        """Drop stored responses of a memory's user, and the jobs that name a session."""
        await self._requests.responses.forget(scope.user_id)
        if session_id is not None:
            await asyncio.to_thread(self._table.forget_session, scope, session_id)
        await asyncio.to_thread(self._table.database.scrub)

    # -- data rights -------------------------------------------------------------------

    async def _for_each(
        self,
        chosen: Callable[[Scope], bool],
        work: Callable[[Scope, Memory, int], Awaitable[None]],
    ) -> None:
        """Do something with some memories, in turn, while no job remembers in them."""
        scopes = [scope for scope in await self._requests.journal.scopes() if chosen(scope)]
        for number, scope in enumerate(scopes, 1):
            async with self._exclusive(scope):
                with self._banks.agent(scope) as agent:
                    await work(scope, agent.memory, number)

    async def _export(self, scope: Scope) -> dict[str, Any]:
        files: list[dict[str, Any]] = []

        async def describe(_: Scope, memory: Memory, number: int) -> None:
            files.append(await describe_file(memory.bank, number))

        await self._for_each(lambda other: other.user_id == scope.user_id, describe)
        return {"user_id": scope.user_id, "files": files}

    async def _erase(self, job: Job, scope: Scope) -> dict[str, Any]:
        user_id, began = scope.user_id, system_clock()
        receipt: list[dict[str, Any]] = []
        needles: set[bytes] = set()

        async def erase(erased: Scope, memory: Memory, _: int) -> None:
            state = await memory.bank.sync()
            counts = {"items": len(state.touched), "sessions": len(state.sessions)}
            del state  # so that it is freed in slices
            needles.update(await needles_of_all(memory.bank))
            await memory.reset(user_id=user_id)
            receipt.append(
                {**erased.model_dump(), **counts, "erased_through": memory.bank.state.seq}
            )

        if job.kind is JobKind.RESET:
            await self._for_each(lambda other: other == scope, erase)
        else:
            await self._for_each(lambda other: other.user_id == user_id, erase)
            await asyncio.to_thread(self._table.forget_user, user_id, before=began, keep_job=job.id)
            await asyncio.to_thread(self._table.database.scrub)
        await self._requests.responses.forget(user_id)
        inner = self._requests.journal.inner
        places, unproven = await asyncio.to_thread(searched, inner, sorted(needles))
        return {
            "user_id": user_id,
            "memories": receipt,
            "at": system_clock().isoformat(),
            "scrubbed": not (isinstance(inner, DatabaseJournal) and inner.scrub_due),
            "needles": len(needles),
            "places": [place.model_dump() for place in places],
            "unproven": unproven,
        }


def counts_of(report: IngestReport) -> dict[str, Any]:
    """Return the result of a job that remembered a session."""
    return {
        "stored_turns": report.stored_turns,
        "chunks": len(report.chunks),
        "ops": report.op_counts,
        "skipped": report.skipped,
    }


def error_code(error: MemAgentError) -> str:
    """Return the code under which an error is reported to callers."""
    if isinstance(error, ServiceError):
        return error.code
    return next(fault.code for fault in FAULTS if isinstance(error, fault.kind))


# Seconds between two looks for jobs that another worker left.
_LOOK_S: Final = 1.0
# Seconds after which a job that was accepted and not started is started all the same.
_FORGOTTEN_S: Final = 5.0
_ENDED: Final = (JobState.DONE, JobState.FAILED)


class Jobs:
    """Accepts jobs, starts them, and finds those that were left. Used from one event loop.

    It takes no further sessions while `most` jobs wait or run here.
    """

    def __init__(
        self,
        table: JobTable,
        work: JobWork,
        leases: Leases,
        banks: Banks,
        *,
        most: int,
    ) -> None:
        self._most = most
        self.table, self.work = table, work
        self._leases, self._banks = leases, banks
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
                    raise ServiceError(
                        "as many sessions wait to be remembered as may; nothing of this one was "
                        "stored, send it again in a second",
                        code="overloaded",
                        retryable=True,
                    )
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
                    await self.work.move(job_id, JobState.FAILED, error=error_code(exc))
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
        if self.work.stopping or job.id in self._tasks or job.state in _ENDED:
            return
        task = asyncio.get_running_loop().create_task(
            self.work.run(job, scope, pause_s=pause_s), context=trace_context()
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
        await self.work.move(job.id, JobState.FAILED, error=CANCELLED)
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
                await self.work.move(
                    job.id, JobState.DONE, attempts=job.attempts + 1, result=counts_of(report)
                )
                await self._leases.release(job_place(job.id))
        except ServiceError:
            raise InputError(f"session {job.session_id!r} is not stored (any more)") from None
        finally:
            PENDING.reset(token)
            self._accepted.pop(job.id, None)
        if report.failed_chunks:
            self.start(
                job.model_copy(update={"state": JobState.QUEUED}), scope, pause_s=FIRST_PAUSE_S
            )
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
        self.work.stopping = True
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
        return await asyncio.to_thread(
            self.table.add,
            job_id,
            scope,
            kind,
            session_id=session_id,
            worker=self._leases.worker,
        )

    async def _requeued(self, job: Job) -> Job:
        """Hold the lease of a job and put it back to its beginning."""
        await self._leases.acquire(job_place(job.id))
        await self.work.move(job.id, JobState.QUEUED, attempts=0, revive=True)
        return job.model_copy(update={"state": JobState.QUEUED, "attempts": 0, "error": None})

    def _stop(self, job_id: str) -> None:
        if task := self._tasks.get(job_id):
            task.cancel()

    def _ended(self, job_id: str, task: asyncio.Task[None]) -> None:
        self._tasks.pop(job_id, None)
        error = None if task.cancelled() else task.exception()
        if error is not None:  # the database is away; `resume` finds the job when it is back
            _log.warning("job %s waits: %s", job_id, type(error).__name__)
