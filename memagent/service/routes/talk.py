"""Talking: sessions to remember, questions to answer, chat, and the jobs behind them."""

from __future__ import annotations

import uuid
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from memagent.client.http import ServiceError
from memagent.client.wire import (
    MAX_PAGE,
    ChatRequest,
    Job,
    JobPage,
    JobState,
    NewSession,
    SessionPage,
)
from memagent.core.answers import Answer, Question, Reply
from memagent.core.errors import MemoryNotFound
from memagent.core.records import Id, Session, Trust, Turn, content_id
from memagent.core.snapshot import Entry, IngestReport
from memagent.memory.bank import system_clock
from memagent.service.access import Call, may
from memagent.service.hosting import Service
from memagent.service.routes import exchange
from memagent.service.routes.exchange import (
    EVENTS,
    PageRequest,
    Said,
    openapi_responses,
    page_of,
    record,
)
from memagent.service.routes.memories import Reader, Writer

router = APIRouter(tags=["talking"])
Talker = Annotated[Call, Depends(may("chat", "memory:write"))]
Asker = Annotated[Call, Depends(may("chat"))]


@router.post(
    "/v1/sessions",
    status_code=202,
    responses={
        **openapi_responses(Job, 202, "Stored; a job remembers it"),
        200: {"model": IngestReport, "description": "Remembered"},
    },
)
async def remember(
    body: NewSession,
    call: Writer,
    wait: Annotated[bool, Query(description="Answer when it is remembered.")] = False,
) -> Response:
    """Store a session's turns durably, then remember them.

    The same session again has no further effect.
    """
    opened: list[Job] = []

    async def work() -> Response:
        session = await _session(body, call)
        jobs = call.service.jobs
        job, fresh = await jobs.accept_session(call.scope, session, opened=opened.append)
        if job.state is JobState.FAILED:
            job = job.model_copy(update={"state": JobState.QUEUED})
        if wait:
            report = await jobs.remember_now(job, call.scope)
            return record(
                report.model_copy(update={"stored_turns": len(session.turns)}) if fresh else report
            )
        jobs.start(job, call.scope)
        return _accepted(job)

    def keep(_: Entry) -> Response | None:
        return _accepted(opened[0]) if opened and not wait else None

    return await call.once(work, keep=keep)


def _accepted(job: Job) -> Response:
    return record(job, 202, {"Location": f"/v1/jobs/{job.id}"})


async def _session(body: NewSession, call: Call) -> Session:
    """Build the session of a body.

    Ids come from the idempotency key where none is given, so a repetition names the
    same.
    """
    if any(turn.trust is Trust.SYSTEM for turn in body.turns) and "admin" not in call.caller.scopes:
        raise ServiceError(
            "turns with trust `system` need a key with the scope admin", code="forbidden"
        )
    session_id = body.id or content_id("ses", call.journal_key if call.key else uuid.uuid4().hex)
    at = body.at
    if at is None:
        with call.agent() as agent:
            known = (await agent.bank.sync()).sessions.get(session_id)
        at = known.at if known is not None else system_clock()
    # a turn's id would grow too long with some ids of sessions
    short = session_id if len(session_id) <= 240 else content_id("ses", session_id)
    turns = tuple(
        Turn(**turn.model_dump(exclude={"id"}), id=turn.id or f"{short}:{number}")
        for number, turn in enumerate(body.turns, 1)
    )
    return Session(id=session_id, at=at, turns=turns)


@router.get(
    "/v1/sessions", responses=openapi_responses(SessionPage, description="A page of sessions")
)
async def list_sessions(
    call: Reader,
    cursor: Annotated[str | None, Query(max_length=2_000)] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 20,
) -> Response:
    """List stored sessions with their turns, oldest first."""
    with call.agent() as agent:
        sessions = await agent.memory.sessions()
    items, further = page_of(
        call, sessions, PageRequest("sessions", cursor, limit), id_of=lambda session: session.id
    )
    return record(SessionPage(items=tuple(items), next_cursor=further))


@router.post(
    "/v1/questions", responses=openapi_responses(Answer, description="The answer", content=EVENTS)
)
async def ask(body: Question, call: Asker) -> Response:
    """Answer from memory, with citations.

    The answer comes as server-sent events where the Accept header asks for them.
    """
    if exchange.wants_stream(call):
        return exchange.event_stream(exchange.answer_events(call, body))

    async def work() -> Response:
        with call.agent() as agent:
            return record(await agent.ask(body))

    return await call.once(work)


@router.post(
    "/v1/chat", responses=openapi_responses(Reply, description="The reply", content=EVENTS)
)
async def chat(body: ChatRequest, call: Talker) -> Response:
    """Reply to a message of a conversation and remember the exchange.

    The reply comes as server-sent events, word by word, where the Accept header asks
    for them. Messages of one `thread` belong together.
    """
    said = Said(
        text=body.text,
        speaker=body.speaker,
        thread=body.thread,
        system=body.system,
        min_trust=body.min_trust,
    )
    write = exchange.reply_events if exchange.wants_stream(call) else None
    return await exchange.answer(call, said, lambda reply: reply, write)


@router.get("/v1/jobs", responses=openapi_responses(JobPage, description="A page of jobs"))
async def list_jobs(
    call: Reader,
    cursor: Annotated[str | None, Query(max_length=2_000)] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100,
) -> Response:
    """List the user's jobs, newest first."""
    jobs = await run_in_threadpool(call.service.jobs.table.of_user, call.scope.user_id)
    items, further = page_of(
        call, jobs, PageRequest("jobs", cursor, limit), id_of=lambda job: job.id
    )
    return record(JobPage(items=tuple(items), next_cursor=further))


@router.get("/v1/jobs/{job_id}", responses=openapi_responses(Job, description="The job"))
async def get_job(job_id: Id, call: Reader) -> Response:
    """Return the state of a job."""
    return record(await find_job(call, job_id))


@router.post(
    "/v1/jobs/{job_id}/retry", status_code=202, responses=openapi_responses(Job, 202, "The job")
)
async def retry_job(job_id: Id, call: Writer) -> Response:
    """Start a failed job again."""
    return record(await call.service.jobs.retry(await find_job(call, job_id), call.scope), 202)


@router.post("/v1/jobs/{job_id}/cancel", responses=openapi_responses(Job, description="The job"))
async def cancel_job(job_id: Id, call: Writer) -> Response:
    """Cancel a job that is not finished; it counts as failed, and can be retried."""
    return record(await call.service.jobs.cancel(await find_job(call, job_id), call.scope))


@router.get(
    "/v1/jobs/{job_id}/files/{number}",
    response_class=StreamingResponse,
    responses=openapi_responses(
        None,
        description="The file",
        content={"application/x-ndjson": {"schema": {"type": "string"}}},
    ),
)
async def get_file(job_id: Id, number: int, call: Reader) -> Response:
    """Return a file that an export wrote."""
    return await file_response(call.service, await find_job(call, job_id), number)


async def file_response(service: Service, job: Job, number: int) -> Response:
    """Return a file of an export. Raises `MemoryNotFound`."""
    file = await service.jobs.work.export_file(job, number)
    if file is None:
        raise MemoryNotFound(f"job {job.id!r} has no file {number}")
    size, content = file
    headers = {
        "Content-Length": str(size),
        "Content-Disposition": f'attachment; filename="{job.id}.{number}.jsonl"',
    }
    return StreamingResponse(content, media_type="application/x-ndjson", headers=headers)


async def find_job(call: Call, job_id: str) -> Job:
    """Return a job of the call's user. Raises `MemoryNotFound`."""
    job = await call.service.jobs.find(job_id, call.scope)
    if job is None:
        raise MemoryNotFound(f"no job {job_id!r} for user {call.scope.user_id!r}")
    return job
