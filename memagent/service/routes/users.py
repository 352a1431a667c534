"""Data rights: everything of a user as files, everything of a user gone, and an export
read in again.
"""

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
from memagent.core.records import Scope
from memagent.core.snapshot import Entry
from memagent.memory.transfer import ExportReport
from memagent.service.access import Call, caller_of, may_for_user, service_of
from memagent.service.data.keys import LOCAL_USER
from memagent.service.routes.responses import page, record, told

router = APIRouter(tags=["users"])
_NDJSON = {
    "requestBody": {
        "required": True,
        "content": {"application/x-ndjson": {"schema": {"type": "string"}}},
    }
}


@router.get("/v1/users", responses=told(UserPage, description="A page of memories by their names"))
async def list_users(
    request: Request,
    cursor: Annotated[str | None, Query(max_length=2_000)] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100,
) -> Response:
    """Every memory that the caller may reach and that holds something, by its name; of
    a key bound to a user, that user's.
    """
    caller, service = caller_of(request), service_of(request)
    if "memory:read" not in caller.scopes:
        raise ServiceError("the API key lacks the scope memory:read", code="forbidden")
    call = Call(request, service, caller, Scope(user_id=caller.user_id or LOCAL_USER), None)
    scopes = await reachable(call)
    items, further = page(
        call, scopes, id_of=lambda scope: scope.key, limit=limit, cursor=cursor, listing="users"
    )
    return record(UserPage(items=tuple(items), next_cursor=further))


async def reachable(call: Call) -> list[Scope]:
    """The memories that a caller may reach, in order of user, agent and run."""
    scopes = await call.service.journal.scopes()
    mine = call.caller.user_id
    return sorted((one for one in scopes if mine in (None, one.user_id)), key=lambda one: one.key)


@router.post("/v1/users/{user_id}/export", status_code=202, responses=told(Job, 202, "The job"))
async def export(call: Annotated[Call, Depends(may_for_user("memory:read"))]) -> Response:
    """Write every memory of a user, history included, to files; the job's result lists
    them with their checksums.
    """
    return await _begin(call, JobKind.EXPORT)


@router.post("/v1/users/{user_id}/erase", status_code=202, responses=told(Job, 202, "The job"))
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
    responses=told(ExportReport, description="What was read"),
    openapi_extra=_NDJSON,
)
async def import_(call: Annotated[Call, Depends(may_for_user("memory:write"))]) -> Response:
    """Read an export into a memory that is empty; history and dates come along."""
    if (
        call.request.headers.get("content-type", "").partition(";")[0].strip()
        != "application/x-ndjson"
    ):
        raise ServiceError("send the export as application/x-ndjson", code="unsupported_media_type")
    content = await call.request.body()
    made: list[ExportReport] = []

    async def work() -> Response:
        with tempfile.TemporaryDirectory(prefix="memagent-import-") as folder:
            path = Path(folder) / "export.jsonl"
            await run_in_threadpool(path.write_bytes, content)
            try:
                with call.agent() as agent:
                    made.append((await agent.memory.import_(path)).model_copy(update={"path": ""}))
            except InputError as exc:
                raise InputError(str(exc).replace(str(path), "the export")) from exc
        return record(made[0])

    def keep(_: Entry) -> Response | None:
        return None

    return await call.once(work, keep=keep)
