"""Work that goes on after the answer: remembering sessions, exports, erasures.

A job is a durable row before it is acknowledged, and so are the turns it is about; a
restart finds both and goes on with the first chunk that is not done. A model that fails
costs a try, never a turn. One job a memory runs at a time, in whichever worker, so a
user's sessions are remembered in the order they came. A worker claims a job and the
memory it is about; what a dead one held is found by the others. The surprise: an export
writes no file. Its job tells where in the log each file ends and what it weighs; the
file is made of the log when it is fetched, by whichever worker is asked, and not after
an erasure.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Final

from memagent.client.faults import FAULTS
from memagent.client.wire import Job, JobKind, JobState
from memagent.config import ServiceSettings
from memagent.core.errors import InputError, MemAgentError
from memagent.core.records import Scope, Session, content_id
from memagent.core.reports import IngestReport
from memagent.journal.database import DatabaseJournal
from memagent.journal.rows import scope_digest, scope_key
from memagent.memory.bank import system_clock
from memagent.memory.facade import Memory
from memagent.service.banks import Banks
from memagent.service.data import exports
from memagent.service.data.database import CANCELLED, ServiceDatabase, job_place
from memagent.service.data.idempotency import PROMISE, PromisingJournal, Replays, SharedReplays
from memagent.service.data.leases import Claims
from memagent.service.metrics import Metrics
from memagent.service.model_meter import job_line
from memagent.tracing import span, trace_context

_log = logging.getLogger(__name__)
_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 60.0
_TURN_PAUSE_S: Final = 0.05
_LONGEST_TURN_PAUSE_S: Final = 1.0
_LOOK_S: Final = 1.0
"""How often jobs are looked for that another worker left."""
_FORGOTTEN_S: Final = 5.0
"""After how long a job that was taken in and not started is started all the same."""


class _Failed(Exception):
    """A try of a job that came to nothing, with the code to tell."""

    def __init__(self, code: str, *, again: bool) -> None:
        super().__init__(code)
        self.code, self.again = code, again


class Jobs:
    """Runs jobs. Used from one event loop."""

    def __init__(
        self,
        *,
        database: ServiceDatabase,
        banks: Banks,
        journal: PromisingJournal,
        claims: Claims,
        replays: Replays | SharedReplays,
        metrics: Metrics,
        settings: ServiceSettings,
    ) -> None:
        self._database, self._banks, self._journal = database, banks, journal
        self._claims, self._replays, self._metrics, self._settings = (
            claims,
            replays,
            metrics,
            settings,
        )
        self._slots = asyncio.Semaphore(settings.ingest_jobs)
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._taken: dict[str, float] = {}
        """Jobs taken in and not started yet, since when."""
        self._stopping = False

    # -- taking work in ----------------------------------------------------------------

    async def take_session(self, scope: Scope, session: Session) -> tuple[Job, bool]:
        """Store a session's turns and the job to remember them; both are durable when this returns.

        Raises `InputError`.

        Gives the job and whether the session is new.
        """
        job_id = content_id("job", JobKind.INGEST.value, scope.key, session.id)
        try:
            return await self._take_session(job_id, scope, session)
        finally:
            self._taken[job_id] = time.monotonic()

    async def _take_session(self, job_id: str, scope: Scope, session: Session) -> tuple[Job, bool]:
        with self._banks.agent(scope) as agent:
            if session.id in (await agent.bank.sync()).sessions:
                await agent.bank.store_session(
                    session
                )  # refuses a session of the same id with other turns
                known = await self._add(job_id, scope, JobKind.INGEST, session_id=session.id)
                return (
                    await self._queued(known) if known.state is JobState.FAILED else known
                ), False
            job = await self._add(job_id, scope, JobKind.INGEST, session_id=session.id)
            if job.state not in (
                JobState.QUEUED,
                JobState.RUNNING,
            ):  # of a session that was refused or erased since
                job = await self._queued(job)
            try:
                fresh = await agent.bank.store_session(session)
            except MemAgentError as exc:
                await self.move(job_id, JobState.FAILED, error=_code_of(exc))
                await self._claims.give_back(job_place(job_id))
                raise
        return job, fresh

    async def _queued(self, job: Job) -> Job:
        """The job once more from the beginning, and ours."""
        await self._claims.take(job_place(job.id))
        await self.move(job.id, JobState.QUEUED, attempts=0, revive=True)
        return job.model_copy(update={"state": JobState.QUEUED, "attempts": 0, "error": None})

    async def take(self, scope: Scope, kind: JobKind, *, request_key: str) -> Job:
        """A new export or erasure; the one there is for a request that was made before."""
        job_id = content_id("job", kind.value, scope.key, request_key)
        try:
            job = await self._add(job_id, scope, kind)
        finally:
            self._taken[job_id] = time.monotonic()
        self.start(job, scope)
        return job

    async def _add(
        self, job_id: str, scope: Scope, kind: JobKind, *, session_id: str | None = None
    ) -> Job:
        self._taken[job_id] = math.inf
        return await asyncio.to_thread(
            self._database.add_job,
            job_id,
            scope,
            kind,
            session_id=session_id,
            at=system_clock(),
            worker=self._claims.worker,
        )

    async def move(self, job_id: str, state: JobState, **more: Any) -> None:
        """Write how far a job is."""
        await asyncio.to_thread(self._database.move_job, job_id, state, at=system_clock(), **more)

    async def find(self, job_id: str, scope: Scope) -> Job | None:
        """A job of the scope's user."""
        return await asyncio.to_thread(self._database.job, job_id, scope)

    # -- running -----------------------------------------------------------------------

    def start(self, job: Job, scope: Scope, *, pause_s: float = 0.0) -> None:
        """Have a job run, unless it does (here or in another worker) or is through."""
        self._taken.pop(job.id, None)
        if self._stopping or job.id in self._tasks or job.state in (JobState.DONE, JobState.FAILED):
            return
        task = asyncio.get_running_loop().create_task(
            self._claimed(job, scope, pause_s), context=trace_context()
        )
        self._tasks[job.id] = task
        task.add_done_callback(lambda _: self._done(job.id, task))

    def _done(self, job_id: str, task: asyncio.Task[None]) -> None:
        self._tasks.pop(job_id, None)
        error = None if task.cancelled() else task.exception()
        if error is not None:  # the database is away; the job is found again when it is back
            _log.warning("job %s waits: %s", job_id, type(error).__name__)

    async def retry(self, job: Job, scope: Scope) -> Job:
        """Begin a failed job again."""
        if job.state is JobState.FAILED:
            job = await self._queued(job)
            self.start(job, await asyncio.to_thread(self._database.scope_of_job, job.id) or scope)
        return job

    async def cancel(self, job: Job, scope: Scope) -> Job:
        """Give up a job that is not through; another worker that is at it stops within
        a second or two.
        """
        if job.state in (JobState.DONE, JobState.FAILED):
            return job
        await self.move(job.id, JobState.FAILED, error=CANCELLED)
        self._stop(job.id)
        return await self.find(job.id, scope) or job

    def _stop(self, job_id: str) -> None:
        task = self._tasks.get(job_id)
        if task is not None:
            task.cancel()

    async def resume(self) -> int:
        """Go on with what an earlier run of the service, or a worker that died, left;
        the number of jobs.
        """
        now, number = time.monotonic(), 0
        self._taken = {
            job_id: since for job_id, since in self._taken.items() if now - since < _FORGOTTEN_S
        }
        for job, scope in await asyncio.to_thread(self._database.jobs_left, self._claims.worker):
            if job.id not in self._tasks and job.id not in self._taken:
                self.start(job, scope)
                number += 1
        return number

    async def watch(self) -> None:
        """Look again and again for jobs that a worker left; runs until it is cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S if self._database.shared else _FORGOTTEN_S)
            try:
                await self.resume()
                for job_id in await asyncio.to_thread(self._database.cancelled, tuple(self._tasks)):
                    self._stop(job_id)
            except MemAgentError as exc:
                _log.warning("jobs were not looked for: %s", type(exc).__name__)

    async def drain(self, seconds: float) -> None:
        """Let running jobs finish, then stop the others; they stay queued for the next start."""
        self._stopping = True
        tasks = list(self._tasks.values())
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=seconds)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)

    async def remember_now(self, job: Job, scope: Scope) -> IngestReport:
        """Remember the job's session and wait for it; what fails is tried again later.

        Raises `InputError` when it was erased.
        """
        self._taken[job.id] = math.inf
        token = PROMISE.set(None)
        try:
            report = await self._remember(job, scope)
            if not report.failed_chunks:
                await self.move(
                    job.id, JobState.DONE, attempts=job.attempts + 1, result=_counts(report)
                )
                await self._claims.give_back(job_place(job.id))
        except _Failed:
            raise InputError(f"session {job.session_id!r} is not stored (any more)") from None
        finally:
            PROMISE.reset(token)
            self._taken.pop(job.id, None)
        if report.failed_chunks:
            self.start(
                job.model_copy(update={"state": JobState.QUEUED}), scope, pause_s=_FIRST_PAUSE_S
            )
        return report

    async def _claimed(self, job: Job, scope: Scope, pause_s: float) -> None:
        await asyncio.sleep(pause_s)
        task = asyncio.current_task()
        assert task is not None
        if not await self._claims.take(job_place(job.id), lost=task.cancel):
            return
        try:
            fresh = await asyncio.to_thread(
                self._database.job, job.id
            )  # another worker may have done it since
            if fresh is not None and fresh.state in (JobState.QUEUED, JobState.RUNNING):
                await self._tries(fresh, scope)
        finally:
            await self._claims.give_back(job_place(job.id))

    async def _tries(self, job: Job, scope: Scope) -> None:
        attempts = job.attempts
        pause = _FIRST_PAUSE_S
        while True:
            attempts += 1
            try:
                result = await self._one_try(job, scope, attempts)
                await self.move(job.id, JobState.DONE, attempts=attempts, result=result)
                self._metrics.events["jobs_done"] += 1
                return
            except _Failed as exc:
                code, again = exc.code, exc.again
            except MemAgentError as exc:
                code, again = _code_of(exc), exc.retryable
            except Exception as exc:
                _log.error("job %s (%s) failed: %s", job.id, job.kind.value, type(exc).__name__)
                code, again = "internal_error", False
            if not again or attempts >= self._settings.job_attempts:
                self._metrics.events["jobs_failed"] += 1
                await self.move(job.id, JobState.FAILED, attempts=attempts, error=code)
                return
            self._metrics.events["jobs_retried"] += 1
            await self.move(job.id, JobState.QUEUED, attempts=attempts, error=code)
            if self._stopping:
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    async def _one_try(self, job: Job, scope: Scope, attempts: int) -> dict[str, Any]:
        with span("memagent.job") as one, job_line(job.id, job.kind.value, attempts) as line:
            if one.recording:
                one.put({"memagent.job.kind": job.kind.value, "memagent.job.attempt": attempts})
            result = await self._work(job, scope, attempts)
            if job.kind is JobKind.INGEST:
                line.update(result)
            return result

    async def _work(self, job: Job, scope: Scope, attempts: int) -> dict[str, Any]:
        if job.kind is JobKind.INGEST:
            report = await self._remember(job, scope, attempts=attempts)
            if report.failed_chunks:
                raise _Failed("model_error", again=True)
            return _counts(report)
        await self.move(job.id, JobState.RUNNING, attempts=attempts)
        return await (self._export if job.kind is JobKind.EXPORT else self._erase)(job, scope)

    async def _remember(
        self, job: Job, scope: Scope, *, attempts: int | None = None
    ) -> IngestReport:
        """Remember the job's session; with a number of attempts as one of the jobs that
        run side by side.
        """
        async with self._turn(scope, job):
            if attempts is None:
                return await self._remember_session(job, scope)
            async with self._slots:
                await self.move(job.id, JobState.RUNNING, attempts=attempts)
                return await self._remember_session(job, scope)

    async def _remember_session(self, job: Job, scope: Scope) -> IngestReport:
        with self._banks.agent(scope) as agent:
            session = (await agent.bank.sync()).sessions.get(job.session_id or "")
            if session is None:
                # Erased since; or the worker that took it in died before it stored it,
                # and a repetition is about to.
                raise _Failed("not_found", again=True)
            return await agent.remember(session)

    @asynccontextmanager
    async def _turn(self, scope: Scope, job: Job | None = None) -> AsyncGenerator[None]:
        """Alone at a memory, in this worker and among all; for a job to remember, after
        those that came before it.
        """
        task = asyncio.current_task()
        assert task is not None
        place, pause = f"memory/{scope_digest(scope_key(scope))}", _TURN_PAUSE_S
        while True:
            async with self._locks[scope.key]:
                if not await self._must_wait(job) and await self._claims.take(
                    place, lost=task.cancel
                ):
                    try:
                        yield
                    finally:
                        await self._claims.give_back(place)
                    return
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_TURN_PAUSE_S)

    async def _must_wait(self, job: Job | None) -> bool:
        """Among workers the lock of one says nothing about the order.

        A job that was tried before waits for nobody.
        """
        if job is None or not self._database.shared:
            return False
        return await asyncio.to_thread(self._database.has_earlier, job.id)

    # -- data rights -------------------------------------------------------------------

    async def _memories(
        self, mine: Callable[[Scope], bool], work: Callable[[Scope, Memory, int], Awaitable[None]]
    ) -> None:
        """Do something with some memories, in turn, while nothing is being remembered there."""
        scopes = [scope for scope in await self._journal.scopes() if mine(scope)]
        for number, scope in enumerate(scopes, 1):
            async with self._turn(scope):
                with self._banks.agent(scope) as agent:
                    await work(scope, agent.memory, number)

    async def _export(self, job: Job, scope: Scope) -> dict[str, Any]:
        files: list[dict[str, Any]] = []

        async def weigh(_: Scope, memory: Memory, number: int) -> None:
            files.append(await exports.weighed(memory.bank, number))

        await self._memories(lambda one: one.user_id == scope.user_id, weigh)
        return {"user_id": scope.user_id, "files": files}

    async def export_file(self, job: Job, number: int) -> tuple[int, AsyncGenerator[bytes]] | None:
        """One file of an export: (bytes, content); None when there is none of that
        number, or it was erased since.
        """
        files: list[dict[str, Any]] = (
            (job.result or {}).get("files", []) if job.kind is JobKind.EXPORT else []
        )
        file = next((one for one in files if one["number"] == number), None)
        content = await exports.opened(self._banks, file) if file is not None else None
        return None if file is None or content is None else (file["bytes"], content)

    async def _erase(self, job: Job, scope: Scope) -> dict[str, Any]:
        user_id, began = scope.user_id, system_clock()
        receipt: list[dict[str, Any]] = []

        async def wipe(one: Scope, memory: Memory, _: int) -> None:
            state = await memory.bank.sync()
            counts = {"items": len(state.items), "sessions": len(state.sessions)}
            await memory.reset(user_id=user_id)
            receipt.append({**one.model_dump(), **counts, "erased_through": memory.bank.state.seq})

        if job.kind is JobKind.RESET:
            await self._memories(lambda one: one == scope, wipe)
        else:
            await self._memories(lambda one: one.user_id == user_id, wipe)
            await asyncio.to_thread(
                self._database.forget_user, user_id, before=began, keep_job=job.id
            )
        await self._replays.forget(user_id)
        inner = self._journal.inner
        scrubbed = not (isinstance(inner, DatabaseJournal) and inner.scrub_due)
        return {
            "user_id": user_id,
            "memories": receipt,
            "at": system_clock().isoformat(),
            "scrubbed": scrubbed,
        }

    async def prune(self) -> None:
        """Delete finished jobs that are older than the settings say."""
        limit = system_clock() - timedelta(days=self._settings.job_days)
        await asyncio.to_thread(self._database.prune_jobs, before=limit)


def _counts(report: IngestReport) -> dict[str, Any]:
    return {
        "stored_turns": report.stored_turns,
        "chunks": len(report.chunks),
        "ops": report.op_counts,
        "skipped": report.skipped,
    }


def _code_of(error: MemAgentError) -> str:
    return next(fault.code for fault in FAULTS if isinstance(error, fault.kind))
