"""Jobs of the user shown: sessions to remember, exports, erasures; one of them with its
result, and the forms that retry or cancel it.
"""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Depends, Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from memagent.client.wire import Job, JobState
from memagent.core.errors import InputError, MemAgentError, MemoryNotFound
from memagent.core.records import Id
from memagent.service.routes.responses import page as cut
from memagent.service.routes.talk import file_response
from memagent.service.ui.frame import failure, go, page, page_router
from memagent.service.ui.session_auth import Viewer, viewer

router = page_router()
_PAGE: Final = 50
_OPEN: Final = (JobState.QUEUED, JobState.RUNNING)
Reader = Annotated[Viewer, Depends(viewer("memory:read"))]


@router.get("/ui/jobs")
async def list_jobs(
    seen: Reader,
    state: JobState | None = None,
    cursor: Annotated[str, Query(max_length=2_000)] = "",
) -> Response:
    """The jobs, the newest first."""
    jobs = await run_in_threadpool(seen.service.jobs.table.of_user, seen.scope.user_id)
    listed, further = cut(
        seen.call,
        jobs,
        id_of=lambda job: job.id,
        limit=_PAGE,
        cursor=cursor or None,
        listing="ui/jobs",
        terms=state.value if state is not None else "",
        shown=lambda job: state in (None, job.state),
    )
    counts = {one: sum(1 for job in jobs if job.state is one) for one in JobState}
    return page(
        seen.request,
        "jobs.html",
        title="Jobs",
        active="jobs",
        jobs=listed,
        further=further,
        counts=counts,
        state=state,
        total=len(jobs),
    )


@router.get("/ui/jobs/{job_id}")
async def one_job(job_id: Id, seen: Reader) -> Response:
    """One job with what came of it."""
    return _show(seen, await _job(job_id, seen))


@router.post("/ui/jobs/{job_id}")
async def act(job_id: Id, seen: Reader) -> Response:
    """What the field `do` names: `retry` or `cancel`."""
    seen.need("memory:write")
    job = await _job(job_id, seen)
    try:
        match seen.form["do"]:
            case "retry":
                begun = await seen.service.jobs.retry(job, seen.scope)
                note = (
                    "It begins again."
                    if begun.state is not job.state
                    else "Only a failed job is tried again."
                )
            case "cancel":
                ended = await seen.service.jobs.cancel(job, seen.scope)
                through = ended.state is JobState.DONE
                note = (
                    "It was through before."
                    if through
                    else "Cancelled. What it is about stays stored."
                )
            case _:
                raise InputError("the form names nothing to do")
    except MemAgentError as exc:
        status, fault = failure(seen.request, exc)
        return _show(seen, await _job(job_id, seen), status=status, fault=fault)
    return go(seen, f"/ui/jobs/{job.id}", note=note)


@router.get("/ui/jobs/{job_id}/files/{number}")
async def file(job_id: Id, number: int, seen: Reader) -> Response:
    """A file that an export wrote."""
    return await file_response(seen.service, await _job(job_id, seen), number)


async def _job(job_id: str, seen: Viewer) -> Job:
    job = await seen.service.jobs.find(job_id, seen.scope)
    if job is None:
        raise MemoryNotFound(f"no job {job_id!r}")
    return job


def _show(seen: Viewer, job: Job, *, status: int = 200, fault: str = "") -> Response:
    return page(
        seen.request,
        "job.html",
        title="Job",
        active="jobs",
        status=status,
        job=job,
        result=job.result or {},
        open=job.state in _OPEN,
        fault=fault,
    )
