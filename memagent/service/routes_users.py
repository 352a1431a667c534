"""Data rights: everything of a user as files, everything of a user gone, and an export read in again."""

from __future__ import annotations

import tempfile
import uuid
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from memagent.client.faults import ServiceError
from memagent.client.wire import Job, JobKind
from memagent.core.errors import InputError
from memagent.core.snapshot import Entry
from memagent.memory.transfer import ExportReport
from memagent.service.access import Call, may_for_user
from memagent.service.answers import record, told

router = APIRouter(tags=["users"])
_NDJSON = {"requestBody": {"required": True, "content": {"application/x-ndjson": {"schema": {"type": "string"}}}}}


@router.post("/v1/users/{user_id}/export", status_code=202, responses=told(Job, 202, "The job"))
async def export(call: Annotated[Call, Depends(may_for_user("memory:read"))]) -> Response:
    """Write every memory of a user, history included, to files; the job's result lists them with their checksums."""
    return await _begin(call, JobKind.EXPORT)


@router.post("/v1/users/{user_id}/erase", status_code=202, responses=told(Job, 202, "The job"))
async def erase(
    call: Annotated[Call, Depends(may_for_user("memory:delete"))],
    memory_only: Annotated[bool, Query(description="Only the memory named, not every memory of the user.")] = False,
) -> Response:
    """Erase every memory of a user beyond recovery; the job's result is the receipt."""
    return await _begin(call, JobKind.RESET if memory_only else JobKind.ERASE)


async def _begin(call: Call, kind: JobKind) -> Response:
    async def work() -> Response:
        key = call.journal_key if call.key else uuid.uuid4().hex
        job = await call.service.jobs.take(call.scope, kind, request_key=key)
        return record(job, 202, {"Location": f"/v1/jobs/{job.id}"})

    return await call.once(work)


@router.post(
    "/v1/users/{user_id}/import", responses=told(ExportReport, description="What was read"), openapi_extra=_NDJSON
)
async def import_(call: Annotated[Call, Depends(may_for_user("memory:write"))]) -> Response:
    """Read an export into a memory that is empty; history and dates come along."""
    if call.request.headers.get("content-type", "").partition(";")[0].strip() != "application/x-ndjson":
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
