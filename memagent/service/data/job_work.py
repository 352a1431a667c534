"""The three kinds of jobs: remember a session, export a user's memories, erase them.

Only one job works on a memory at a time, in whichever worker, so a user's sessions are
remembered in the order they came. The surprise: an export writes no file. Its job tells
where in the journal each file ends and what it weighs; `exports` makes the file of the
journal when it is fetched.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from memagent.client.wire import Job, JobKind, JobState
from memagent.core.long_work import aside
from memagent.core.records import Scope
from memagent.core.reports import IngestReport
from memagent.journal.database import DatabaseJournal
from memagent.journal.rows import scope_digest, scope_key, system_clock
from memagent.memory.care.erasure import needles_of_all, searched
from memagent.memory.facade import Memory
from memagent.service.banks import Banks
from memagent.service.data import exports
from memagent.service.data.idempotency import IdempotentJournal
from memagent.service.data.job_table import JobTable
from memagent.service.data.leases import Leases
from memagent.service.data.response_cache import ResponseCache, SharedResponseCache

_FIRST_WAIT_S: Final = 0.05
_LONGEST_WAIT_S: Final = 1.0


class JobFailed(Exception):
    """A try of a job that failed, with the error code for the caller."""

    def __init__(self, code: str, *, retryable: bool) -> None:
        super().__init__(code)
        self.code, self.retryable = code, retryable


class JobWork:
    """Does the work of jobs. Used from one event loop."""

    def __init__(
        self,
        table: JobTable,
        leases: Leases,
        banks: Banks,
        journal: IdempotentJournal,
        responses: ResponseCache | SharedResponseCache,
        *,
        side_by_side: int,
    ) -> None:
        """Remember at most `side_by_side` sessions at a time."""
        self._table, self._leases, self._banks = table, leases, banks
        self._journal, self._responses = journal, responses
        self._slots = asyncio.Semaphore(side_by_side)
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def run(self, job: Job, scope: Scope, attempts: int) -> dict[str, Any]:
        """Do a job and return its result; raise what made it fail."""
        if job.kind is JobKind.INGEST:
            async with self._exclusive(scope, job), self._slots:
                await self._running(job, attempts)
                report = await self._remember(job, scope)
            if report.failed_chunks:
                raise JobFailed("model_error", retryable=True)
            return counts_of(report)
        await self._running(job, attempts)
        return await (
            self._export(scope) if job.kind is JobKind.EXPORT else self._erase(job, scope)
        )

    async def remember(self, job: Job, scope: Scope) -> IngestReport:
        """Remember the job's session at once, beside the jobs in the background.

        Raises `JobFailed` when it is not stored.
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
        content = await exports.open_file(self._banks, file) if file is not None else None
        return None if file is None or content is None else (file["bytes"], content)

    async def _running(self, job: Job, attempts: int) -> None:
        await asyncio.to_thread(self._table.move, job.id, JobState.RUNNING, attempts=attempts)

    async def _remember(self, job: Job, scope: Scope) -> IngestReport:
        with self._banks.agent(scope) as agent:
            session = (await agent.bank.sync()).sessions.get(job.session_id or "")
            if session is None:
                # Erased since; or the worker that accepted it died before it stored it,
                # and a repetition is about to.
                raise JobFailed("not_found", retryable=True)
            return await agent.remember(session, on_error="keep")

    @asynccontextmanager
    async def _exclusive(self, scope: Scope, job: Job | None = None) -> AsyncGenerator[None]:
        """Work on a memory alone, in this worker and among all.

        A job that remembers waits until earlier ones have had their first try.
        """
        task = asyncio.current_task()
        assert task is not None
        place, pause = f"memory/{scope_digest(scope_key(scope))}", _FIRST_WAIT_S
        while True:
            async with self._locks[scope.key]:
                if not await self._must_wait(job) and await self._leases.acquire(
                    place, lost=task.cancel
                ):
                    try:
                        yield
                    finally:
                        await self._leases.release(place)
                    return
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_WAIT_S)

    async def _must_wait(self, job: Job | None) -> bool:
        """Tell whether an earlier job goes first.

        The lock of one worker does not order the jobs of several. A job that was tried
        before waits for nobody.
        """
        if job is None or not self._leases.table.shared:
            return False
        return await asyncio.to_thread(self._table.has_earlier, job.id)

    async def forget(self, scope: Scope, *, session_id: str | None = None) -> None:
        """Drop stored responses of a memory's user, and the jobs that name a session."""
        await self._responses.forget(scope.user_id)
        if session_id is not None:
            await asyncio.to_thread(self._table.forget_session, scope, session_id)
        await asyncio.to_thread(self._table.scrub)

    # -- data rights -------------------------------------------------------------------

    async def _for_each(
        self,
        chosen: Callable[[Scope], bool],
        work: Callable[[Scope, Memory, int], Awaitable[None]],
    ) -> None:
        """Do something with some memories, in turn, while no job remembers in them."""
        scopes = [scope for scope in await self._journal.scopes() if chosen(scope)]
        for number, scope in enumerate(scopes, 1):
            async with self._exclusive(scope):
                with self._banks.agent(scope) as agent:
                    await work(scope, agent.memory, number)

    async def _export(self, scope: Scope) -> dict[str, Any]:
        files: list[dict[str, Any]] = []

        async def describe(_: Scope, memory: Memory, number: int) -> None:
            files.append(await exports.describe_file(memory.bank, number))

        await self._for_each(lambda other: other.user_id == scope.user_id, describe)
        return {"user_id": scope.user_id, "files": files}

    async def _erase(self, job: Job, scope: Scope) -> dict[str, Any]:
        user_id, began = scope.user_id, system_clock()
        receipt: list[dict[str, Any]] = []
        needles: set[bytes] = set()

        async def erase(erased: Scope, memory: Memory, _: int) -> None:
            state = await memory.bank.sync()
            counts = {"items": len(state.items), "sessions": len(state.sessions)}
            needles.update(await aside(needles_of_all, memory.bank))
            await memory.reset(user_id=user_id)
            through = {"erased_through": memory.bank.state.seq}
            receipt.append({**erased.model_dump(), **counts, **through})

        if job.kind is JobKind.RESET:
            await self._for_each(lambda other: other == scope, erase)
        else:
            await self._for_each(lambda other: other.user_id == user_id, erase)
            await asyncio.to_thread(self._table.forget_user, user_id, before=began, keep_job=job.id)
            await asyncio.to_thread(self._table.scrub)
        await self._responses.forget(user_id)
        inner = self._journal.inner
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
