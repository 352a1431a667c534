"""Data rights: export everything of a user, erase it, and import an export."""

from __future__ import annotations

import tempfile
import uuid
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from memagent.client.faults import ServiceError
from memagent.client.wire import MAX_PAGE, Job, JobKind, UserPage
from memagent.core.errors import InputError
from memagent.core.records import Scope, Trust
from memagent.memory.transfer import ExportReport, import_bank
from memagent.service.access import Call, caller_of, may_for_user, service_of
from memagent.service.data.keys import LOCAL_USER
from memagent.service.routes.responses import PageRequest, openapi_responses, page_of, record

router = APIRouter(tags=["users"])
_NDJSON = {
    "requestBody": {
        "required": True,
        "content": {"application/x-ndjson": {"schema": {"type": "string"}}},
    }
}


@router.get(
    "/v1/users",
    responses=openapi_responses(UserPage, description="A page of memories by their names"),
)
async def list_users(
    request: Request,
    cursor: Annotated[str | None, Query(max_length=2_000)] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100,
) -> Response:
    """List the memories that the caller may reach and that hold something.

    With a key bound to a user, only that user's memories are listed.
    """
    caller, service = caller_of(request), service_of(request)
    if "memory:read" not in caller.scopes:
        raise ServiceError("the API key lacks the scope memory:read", code="forbidden")
    call = Call(request, service, caller, Scope(user_id=caller.user_id or LOCAL_USER), None)
    scopes = await reachable(call)
    items, further = page_of(
        call, scopes, PageRequest("users", cursor, limit), id_of=lambda scope: scope.key
    )
    return record(UserPage(items=tuple(items), next_cursor=further))


async def reachable(call: Call) -> list[Scope]:
    """Return the memories that a caller may reach, in order of user, agent and run."""
    scopes = await call.service.journal.scopes()
    mine = call.caller.user_id
    return sorted((each for each in scopes if mine in (None, each.user_id)), key=lambda s: s.key)


@router.post(
    "/v1/users/{user_id}/export", status_code=202, responses=openapi_responses(Job, 202, "The job")
)
async def export(call: Annotated[Call, Depends(may_for_user("memory:read"))]) -> Response:
    """Export every memory of a user, history included, to files.

    The job's result lists the files with their checksums.
    """
    return await _begin(call, JobKind.EXPORT)


@router.post(
    "/v1/users/{user_id}/erase", status_code=202, responses=openapi_responses(Job, 202, "The job")
)
async def erase(
    call: Annotated[Call, Depends(may_for_user("memory:delete"))],
    memory_only: Annotated[
        bool, Query(description="Only the memory named, not every memory of the user.")
    ] = False,
) -> Response:
    """Erase every memory of a user beyond recovery; the job's result is the receipt."""
    return await _begin(call, JobKind.RESET if memory_only else JobKind.ERASE)


async def _begin(call: Call, kind: JobKind) -> Response:
    async def work() -> Response:
        key = call.journal_key if call.key else uuid.uuid4().hex
        job = await call.service.jobs.accept(call.scope, kind, request_key=key)
        return record(job, 202, {"Location": f"/v1/jobs/{job.id}"})

    return await call.once(work)


@router.post(
    "/v1/users/{user_id}/import",
    responses=openapi_responses(ExportReport, description="What was read"),
    openapi_extra=_NDJSON,
)
async def import_(call: Annotated[Call, Depends(may_for_user("memory:write"))]) -> Response:
    """Import an export into an empty memory; history and dates come along.

    What the file says is trusted no more than what the caller writes; only `admin` may
    import memories of the system.
    """
    if (
        call.request.headers.get("content-type", "").partition(";")[0].strip()
        != "application/x-ndjson"
    ):
        raise ServiceError("send the export as application/x-ndjson", code="unsupported_media_type")
    content = await call.request.body()
    most = Trust.SYSTEM if "admin" in call.caller.scopes else Trust.USER

    async def work() -> Response:
        with tempfile.TemporaryDirectory(prefix="memagent-import-") as folder:
            path = Path(folder) / "export.jsonl"
            await run_in_threadpool(path.write_bytes, content)
            try:
                with call.agent() as agent:
                    report = await import_bank(agent.bank, path, most_trust=most)
            except InputError as exc:
                raise InputError(str(exc).replace(str(path), "the export")) from exc
        return record(report.model_copy(update={"path": ""}))

    return await call.once(work, keep=lambda _: None)
