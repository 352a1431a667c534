"""Jobs of the user shown: the list, one of them with its result, and forms to retry or cancel."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Final

from fastapi import Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from memagent.client.wire import Job, JobState
from memagent.core.errors import InputError, MemAgentError
from memagent.core.records import Id
from memagent.service.routes.responses import PageRequest, page_of
from memagent.service.routes.talk import file_response, find_job
from memagent.service.ui.frame import constants, failure, go, page, page_router
from memagent.service.ui.session_auth import Reader, Viewer

router = page_router()
_PAGE: Final = 50
_OPEN: Final = (JobState.QUEUED, JobState.RUNNING)


@router.get("/ui/jobs")
async def list_jobs(
    viewer: Reader,
    state: JobState | None = None,
    cursor: Annotated[str, Query(max_length=2_000)] = "",
) -> Response:
    """Show the jobs, the newest first."""
    jobs = await run_in_threadpool(viewer.service.jobs.table.of_user, viewer.scope.user_id)
    listed, further = page_of(
        viewer.call,
        jobs,
        PageRequest("ui/jobs", cursor or None, _PAGE, state.value if state is not None else ""),
        id_of=lambda job: job.id,
        visible=lambda job: state in (None, job.state),
    )
    counts = Counter(job.state for job in jobs)
    return page(
        viewer.request,
        "jobs.html",
        title="Jobs",
        active="jobs",
        jobs=listed,
        same=constants({"tries": [job.attempts for job in listed]}),
        further=further,
        counts={each: counts[each] for each in JobState},
        state=state,
        total=len(jobs),
    )


@router.get("/ui/jobs/{job_id}")
async def one_job(job_id: Id, viewer: Reader) -> Response:
    """Show one job with its result."""
    return _show(viewer, await find_job(viewer.call, job_id))


@router.post("/ui/jobs/{job_id}")
async def act(job_id: Id, viewer: Reader) -> Response:
    """Do what the field `do` names: `retry` or `cancel`."""
    viewer.need("memory:write")
    job = await find_job(viewer.call, job_id)
    try:
        match viewer.form["do"]:
            case "retry":
                begun = (await viewer.service.jobs.retry(job, viewer.scope)).state is not job.state
                note = "It begins again." if begun else "Only a failed job is tried again."
            case "cancel":
                job = await viewer.service.jobs.cancel(job, viewer.scope)
                note = "Cancelled. What it is about stays stored."
                note = "It was through before." if job.state is JobState.DONE else note
            case _:
                raise InputError("the form names nothing to do")
    except MemAgentError as exc:
        status, fault = failure(viewer.request, exc)
        return _show(viewer, await find_job(viewer.call, job_id), status=status, fault=fault)
    return go(viewer, f"/ui/jobs/{job.id}", note=note)


@router.get("/ui/jobs/{job_id}/files/{number}")
async def file(job_id: Id, number: int, viewer: Reader) -> Response:
    """Serve a file that an export wrote."""
    return await file_response(viewer.service, await find_job(viewer.call, job_id), number)


def _show(viewer: Viewer, job: Job, *, status: int = 200, fault: str = "") -> Response:
    return page(
        viewer.request,
        "job.html",
        title="Job",
        active="jobs",
        status=status,
        job=job,
        result=job.result or {},
        open=job.state in _OPEN,
        fault=fault,
    )
