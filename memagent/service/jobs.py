"""Work that goes on after the answer: remembering sessions, exports, erasures.

A job is a durable row before it is acknowledged, and so are the turns it is about; a restart finds both and goes on with the first chunk
that is not done. A model that fails costs a try, never a turn. One job a memory runs at a time, so a user's sessions are remembered in the
order they came.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextvars import Context
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from memagent.client.faults import FAULTS
from memagent.client.wire import Job, JobKind, JobState
from memagent.config import ServiceSettings
from memagent.core.errors import InputError, MemAgentError
from memagent.core.records import Scope, Session, content_id
from memagent.core.reports import IngestReport
from memagent.memory.bank import system_clock
from memagent.memory.facade import Memory
from memagent.service.banks import Banks
from memagent.service.database import ServiceDatabase
from memagent.service.idempotency import PROMISE, PromisingJournal, Replays
from memagent.service.metrics import Metrics
from memagent.stores.database_journal import DatabaseJournal

_log = logging.getLogger(__name__)
_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 60.0


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
        replays: Replays,
        metrics: Metrics,
        settings: ServiceSettings,
        exports: Path | None,
    ) -> None:
        self._database, self._banks, self._journal = database, banks, journal
        self._replays, self._metrics, self._settings = replays, metrics, settings
        self._exports = exports
        self._slots = asyncio.Semaphore(settings.ingest_jobs)
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stopping = False

    # -- taking work in ----------------------------------------------------------------------------------------

    async def take_session(self, scope: Scope, session: Session) -> tuple[Job, bool]:
        """Store a session's turns and the job to remember them; both are durable when this returns. Raises `InputError`.

        Gives the job and whether the session is new.
        """
        job_id = content_id("job", JobKind.INGEST.value, scope.key, session.id)
        with self._banks.agent(scope) as agent:
            if session.id in (await agent.bank.sync()).sessions:
                await agent.bank.store_session(session)  # refuses a session of the same id with other turns
                return await self._add(job_id, scope, JobKind.INGEST, session_id=session.id), False
            job = await self._add(job_id, scope, JobKind.INGEST, session_id=session.id)
            if job.state not in (JobState.QUEUED, JobState.RUNNING):  # of a session that was refused or erased since
                await self.move(job_id, JobState.QUEUED, attempts=0)
            try:
                fresh = await agent.bank.store_session(session)
            except MemAgentError as exc:
                await self.move(job_id, JobState.FAILED, error=_code_of(exc))
                raise
        return job, fresh

    async def take(self, scope: Scope, kind: JobKind, *, request_key: str) -> Job:
        """A new export or erasure; the one there is for a request that was made before."""
        job = await self._add(content_id("job", kind.value, scope.key, request_key), scope, kind)
        self.start(job, scope)
        return job

    async def _add(self, job_id: str, scope: Scope, kind: JobKind, *, session_id: str | None = None) -> Job:
        return await asyncio.to_thread(
            self._database.add_job, job_id, scope, kind, session_id=session_id, at=system_clock()
        )

    async def move(self, job_id: str, state: JobState, **more: Any) -> None:
        """Write how far a job is."""
        await asyncio.to_thread(self._database.move_job, job_id, state, at=system_clock(), **more)

    async def find(self, job_id: str, scope: Scope) -> Job | None:
        """A job of the scope's user."""
        return await asyncio.to_thread(self._database.job, job_id, scope)

    # -- running -----------------------------------------------------------------------------------------------

    def start(self, job: Job, scope: Scope, *, pause_s: float = 0.0) -> None:
        """Have a job run, unless it does or is through."""
        if self._stopping or job.id in self._tasks or job.state in (JobState.DONE, JobState.FAILED):
            return
        task = asyncio.get_running_loop().create_task(self._tries(job, scope, pause_s), context=Context())
        self._tasks[job.id] = task
        task.add_done_callback(lambda _: self._tasks.pop(job.id, None))

    async def retry(self, job: Job, scope: Scope) -> Job:
        """Begin a failed job again."""
        if job.state is JobState.FAILED:
            await self.move(job.id, JobState.QUEUED, attempts=0)
            job = job.model_copy(update={"state": JobState.QUEUED, "attempts": 0, "error": None})
            self.start(job, await asyncio.to_thread(self._database.scope_of_job, job.id) or scope)
        return job

    async def resume(self) -> int:
        """Go on with what an earlier run of the service left; the number of jobs."""
        left = await asyncio.to_thread(self._database.open_jobs)
        for job, scope in left:
            self.start(job, scope)
        return len(left)

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
        """Remember the job's session and wait for it; what fails is tried again later. Raises `InputError` when it was erased."""
        token = PROMISE.set(None)
        try:
            report = await self._remember(job, scope)
        except _Failed:
            raise InputError(f"session {job.session_id!r} is not stored (any more)") from None
        finally:
            PROMISE.reset(token)
        failures = report.failed_chunks
        if failures:
            self.start(job.model_copy(update={"state": JobState.QUEUED}), scope, pause_s=_FIRST_PAUSE_S)
        else:
            await self.move(job.id, JobState.DONE, attempts=job.attempts + 1, result=_counts(report))
        return report

    async def _tries(self, job: Job, scope: Scope, pause_s: float) -> None:
        attempts = job.attempts
        pause = _FIRST_PAUSE_S
        await asyncio.sleep(pause_s)
        while True:
            attempts += 1
            try:
                async with self._slots:
                    await self.move(job.id, JobState.RUNNING, attempts=attempts)
                    result = await self._work(job, scope)
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

    async def _work(self, job: Job, scope: Scope) -> dict[str, Any]:
        if job.kind is JobKind.EXPORT:
            return await self._export(job, scope)
        if job.kind in (JobKind.ERASE, JobKind.RESET):
            return await self._erase(job, scope)
        report = await self._remember(job, scope)
        if report.failed_chunks:
            raise _Failed("model_error", again=True)
        return _counts(report)

    async def _remember(self, job: Job, scope: Scope) -> IngestReport:
        async with self._locks[scope.key]:
            with self._banks.agent(scope) as agent:
                session = (await agent.bank.sync()).sessions.get(job.session_id or "")
                if session is None:
                    raise _Failed("not_found", again=False)
                return await agent.remember(session)

    # -- data rights -------------------------------------------------------------------------------------------

    async def _memories(
        self, mine: Callable[[Scope], bool], work: Callable[[Scope, Memory, int], Awaitable[None]]
    ) -> None:
        """Do something with some memories, in turn, while nothing is being remembered there."""
        scopes = [scope for scope in await self._journal.scopes() if mine(scope)]
        for number, scope in enumerate(scopes, 1):
            async with self._locks[scope.key]:
                with self._banks.agent(scope) as agent:
                    await work(scope, agent.memory, number)

    def export_file(self, job_id: str, number: int) -> Path | None:
        """One file of an export, if it is there."""
        file = self._exports / f"{job_id}.{number}.jsonl" if self._exports is not None else None
        return file if file is not None and file.is_file() else None

    async def _export(self, job: Job, scope: Scope) -> dict[str, Any]:
        folder = self._exports
        if folder is None:
            raise _Failed("store_conflict", again=False)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        files: list[dict[str, Any]] = []

        async def write(one: Scope, memory: Memory, number: int) -> None:
            path = folder / f"{job.id}.{number}.jsonl"
            report = await memory.export(path)
            content = await asyncio.to_thread(path.read_bytes)
            files.append(
                {
                    **one.model_dump(),
                    **report.model_dump(exclude={"path"}),
                    "number": number,
                    "bytes": len(content),
                    "sha256": hashlib.sha256(content).hexdigest(),
                }
            )

        await self._memories(lambda one: one.user_id == scope.user_id, write)
        return {"user_id": scope.user_id, "files": files}

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
            await asyncio.to_thread(self._database.forget_user, user_id, before=began, keep_job=job.id)
        await asyncio.to_thread(self._forget_files, user_id)
        self._replays.forget(user_id)
        inner = self._journal.inner
        scrubbed = not (isinstance(inner, DatabaseJournal) and inner.scrub_due)
        return {"user_id": user_id, "memories": receipt, "at": system_clock().isoformat(), "scrubbed": scrubbed}

    def _forget_files(self, user_id: str) -> None:
        for file in sorted(self._exports.glob("*.jsonl")) if self._exports is not None else ():
            job_id = file.name.partition(".")[0]
            scope = self._database.scope_of_job(job_id)
            if scope is None or scope.user_id == user_id:
                file.unlink(missing_ok=True)

    async def prune(self) -> None:
        """Delete finished jobs, and files of exports, that are older than the settings say."""
        limit = system_clock() - timedelta(days=self._settings.job_days)
        await asyncio.to_thread(self._database.prune_jobs, before=limit)
        for file in self._exports.glob("*.jsonl") if self._exports is not None else ():
            if file.stat().st_mtime < limit.timestamp():
                file.unlink(missing_ok=True)


def _counts(report: IngestReport) -> dict[str, Any]:
    return {
        "stored_turns": report.stored_turns,
        "chunks": len(report.chunks),
        "ops": report.op_counts,
        "skipped": report.skipped,
    }


def _code_of(error: MemAgentError) -> str:
    return next(fault.code for fault in FAULTS if isinstance(error, fault.kind))
