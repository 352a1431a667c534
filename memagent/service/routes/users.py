"""Talking: sessions to remember, questions to answer, chat, and the jobs behind them.

Data rights: export everything of a user, erase it, and import an export.

Trials: recall memories for a task, report what came of it, tidy the memory.

The care of a memory: review of changes kept aside, traces of a source, erasure.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from memagent.client.http import ServiceError
from memagent.client.wire import (
    MAX_PAGE,
    Answer,
    ChatRequest,
    ErasureReceipt,
    IngestReport,
    Job,
    JobKind,
    JobPage,
    JobState,
    Learned,
    NewSession,
    NewTrial,
    QuarantineList,
    Question,
    Recall,
    Reply,
    SessionPage,
    SourceFilter,
    TakenBack,
    Tidied,
    TidyRequest,
    TouchedList,
    Trial,
    TrialOutcome,
    TrialPage,
    UserPage,
)
from memagent.core.errors import InputError, MemoryNotFound
from memagent.core.ops import Delete
from memagent.core.records import Id, Scope, Session, Trust, Turn, content_id, system_clock
from memagent.core.snapshot import Commit, Entry
from memagent.experience import get_trial, newest_trials
from memagent.memory.transfer import ExportReport, import_bank
from memagent.service.access import Call, caller_of, may, may_for_user, once, service_of
from memagent.service.data.leases import LOCAL_USER
from memagent.service.routes.exchange import (
    EVENTS,
    PageRequest,
    Said,
    answer,
    answer_events,
    event_stream,
    openapi_responses,
    page_of,
    page_response,
    record,
    reply_events,
    wants_stream,
)
from memagent.service.routes.memories import Deleter, Reader, Writer

talk_router = APIRouter(tags=["talking"])
Talker = Annotated[Call, Depends(may("chat", "memory:write"))]
Asker = Annotated[Call, Depends(may("chat"))]


@talk_router.post(
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
    session_id = body.id or content_id("ses", call.journal_key)
    at = body.at
    if at is None:
        known = (await call.state()).sessions.get(session_id)
        at = known.at if known is not None else system_clock()
    # a turn's id would grow too long with some ids of sessions
    short = session_id if len(session_id) <= 240 else content_id("ses", session_id)
    turns = tuple(
        Turn(**turn.model_dump(exclude={"id"}), id=turn.id or f"{short}:{number}")
        for number, turn in enumerate(body.turns, 1)
    )
    return Session(id=session_id, at=at, turns=turns)


@talk_router.get(
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
    return page_response(
        SessionPage,
        page_of(
            call, sessions, PageRequest("sessions", cursor, limit), id_of=lambda session: session.id
        ),
    )


@talk_router.post(
    "/v1/questions", responses=openapi_responses(Answer, description="The answer", content=EVENTS)
)
async def ask(body: Question, call: Asker) -> Response:
    """Answer from memory, with citations.

    The answer comes as server-sent events where the Accept header asks for them.
    """
    if wants_stream(call):
        return event_stream(answer_events(call, body))

    async def work() -> Response:
        with call.agent() as agent:
            return record(await agent.ask(body))

    return await call.once(work)


@talk_router.post(
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
    write = reply_events if wants_stream(call) else None
    return await answer(call, said, lambda reply: reply, write)


@talk_router.get("/v1/jobs", responses=openapi_responses(JobPage, description="A page of jobs"))
async def list_jobs(
    call: Reader,
    cursor: Annotated[str | None, Query(max_length=2_000)] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100,
) -> Response:
    """List the user's jobs, newest first."""
    jobs = await run_in_threadpool(call.service.jobs.table.of_user, call.scope.user_id)
    return page_response(
        JobPage,
        page_of(call, jobs, PageRequest("jobs", cursor, limit), id_of=lambda job: job.id),
    )


@talk_router.get("/v1/jobs/{job_id}", responses=openapi_responses(Job, description="The job"))
async def get_job(job_id: Id, call: Reader) -> Response:
    """Return the state of a job."""
    return record(await find_job(call, job_id))


@talk_router.post(
    "/v1/jobs/{job_id}/retry", status_code=202, responses=openapi_responses(Job, 202, "The job")
)
async def retry_job(job_id: Id, call: Writer) -> Response:
    """Start a failed job again."""
    return record(await call.service.jobs.retry(await find_job(call, job_id), call.scope), 202)


@talk_router.post(
    "/v1/jobs/{job_id}/cancel", responses=openapi_responses(Job, description="The job")
)
async def cancel_job(job_id: Id, call: Writer) -> Response:
    """Cancel a job that is not finished; it counts as failed, and can be retried."""
    return record(await call.service.jobs.cancel(await find_job(call, job_id), call.scope))


@talk_router.get(
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
    return await file_response(call, await find_job(call, job_id), number)


async def file_response(call: Call, job: Job, number: int) -> Response:
    """Return a file of an export. Raises `MemoryNotFound`."""
    file = await call.service.jobs.work.export_file(job, number)
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


router = APIRouter(tags=["users"])


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
    call = Call(request, service, caller, Scope(user_id=caller.user_id or LOCAL_USER), None)
    call.require("memory:read")
    return page_response(
        UserPage,
        page_of(
            call,
            await reachable(call),
            PageRequest("users", cursor, limit),
            id_of=lambda scope: scope.key,
        ),
    )


async def reachable(call: Call) -> list[Scope]:
    """Return the memories that a caller may reach, in order of user, agent and run."""
    mine = call.caller.user_id
    return sorted(
        (each for each in await call.service.journal.scopes() if mine in (None, each.user_id)),
        key=lambda scope: scope.key,
    )


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


@once()
async def _begin(call: Call, kind: JobKind) -> Response:
    job = await call.service.jobs.accept(call.scope, kind, request_key=call.journal_key)
    return _accepted(job)


@router.post(
    "/v1/users/{user_id}/import",
    responses=openapi_responses(ExportReport, description="What was read"),
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/x-ndjson": {"schema": {"type": "string"}}},
        }
    },
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


trials_router = APIRouter(tags=["trials"])


@trials_router.post(
    "/v1/trials", status_code=201, responses=openapi_responses(Recall, 201, "The trial, with hits")
)
@once()
async def start_trial(body: NewTrial, call: Writer) -> Response:
    """Recall memories for a task and start a trial with what was shown.

    The key needs the scope memory:read too.
    """
    call.need("memory:read", "shows memories")
    with call.agent() as agent:
        return record(
            await agent.recall(Question(text=body.task, k=body.k, recipe=body.recipe)), 201
        )


@trials_router.get(
    "/v1/trials", responses=openapi_responses(TrialPage, description="A page of trials")
)
async def list_trials(
    call: Reader,
    cursor: Annotated[str | None, Query(max_length=2_000)] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100,
) -> Response:
    """List trials, newest first."""
    trials = newest_trials(await call.state())
    return page_response(
        TrialPage,
        page_of(call, trials, PageRequest("trials", cursor, limit), id_of=lambda trial: trial.id),
    )


@trials_router.get(
    "/v1/trials/{trial_id}", responses=openapi_responses(Trial, description="The trial")
)
async def read_trial(trial_id: Id, call: Reader) -> Response:
    """Return one trial."""
    with call.agent() as agent:
        return record(await get_trial(agent.bank, trial_id))


@trials_router.post(
    "/v1/trials/{trial_id}/report",
    responses=openapi_responses(Learned, description="The trial and its lesson"),
)
@once()
async def report_trial(trial_id: Id, body: TrialOutcome, call: Writer) -> Response:
    """Report what came of a trial; the same report again changes nothing."""
    with call.agent() as agent:
        return record(await agent.report(trial_id, body.reward, **body.arguments()))


@trials_router.post("/v1/tidy", responses=openapi_responses(Tidied, description="What was changed"))
@once()
async def tidy(body: TidyRequest, call: Deleter) -> Response:
    """Let the design's keeper prune, merge or rewrite memories; undo takes it back."""
    with call.agent() as agent:
        return record(Tidied(commit=await agent.tidy(body.budget)))


care_router = APIRouter(tags=["care"])


@care_router.get(
    "/v1/quarantine",
    responses=openapi_responses(QuarantineList, description="The changes kept aside"),
)
async def quarantine(call: Reader) -> Response:
    """List the changes that were kept aside, because what they rest on is trusted too little."""
    with call.agent() as agent:
        return record(QuarantineList(items=tuple(await agent.memory.quarantine())))


@care_router.post(
    "/v1/quarantine/{change_id}/accept",
    responses=openapi_responses(Commit, description="The commit that carries it out"),
)
@once()
async def accept(change_id: Id, call: Writer) -> Response:
    """Carry out a change that was kept aside.

    Where that takes a memory away, the key needs the scope memory:delete too.
    """
    with call.agent() as agent:
        for waiting in await agent.memory.quarantine():
            if waiting.id == change_id and isinstance(waiting.op, Delete):
                call.need("memory:delete", "takes a memory away")
        return record(await agent.memory.accept(change_id))


@care_router.post(
    "/v1/quarantine/{change_id}/refuse",
    responses=openapi_responses(Commit, description="The commit that settles it"),
)
@once()
async def refuse(change_id: Id, call: Writer) -> Response:
    """Settle a change that was kept aside without carrying it out."""
    with call.agent() as agent:
        return record(await agent.memory.refuse(change_id))


@care_router.post(
    "/v1/sources/touched",
    responses=openapi_responses(TouchedList, description="What rests on the source"),
)
async def touched(body: SourceFilter, call: Reader) -> Response:
    """List every memory that rests on a session, turn, speaker, tool or trust."""
    with call.agent() as agent:
        return record(TouchedList(items=tuple(await agent.memory.touched_by(body))))


@care_router.post(
    "/v1/sources/exclude",
    responses=openapi_responses(TakenBack, description="The commit that deletes"),
)
@once()
async def exclude(body: SourceFilter, call: Deleter) -> Response:
    """Delete every memory that rests on a source, in one commit that can be undone."""
    with call.agent() as agent:
        return record(TakenBack(commit=await agent.memory.exclude(body)))


@care_router.post(
    "/v1/sources/roll-back",
    responses=openapi_responses(TakenBack, description="The commit that sets back"),
)
@once()
async def roll_back(body: SourceFilter, call: Deleter) -> Response:
    """Set every memory that rests on a source back to before the source touched it."""
    with call.agent() as agent:
        return record(TakenBack(commit=await agent.memory.roll_back(body)))


@care_router.post(
    "/v1/memories/{memory_id:path}/erase",
    responses=openapi_responses(ErasureReceipt, description="What was erased and searched"),
)
async def erase_memory(
    memory_id: Id,
    call: Deleter,
    keep_turns: Annotated[
        bool, Query(description="Leave the words of the turns that it rests on.")
    ] = False,
) -> Response:
    """Erase one memory beyond recovery, with the words of the turns it rests on."""
    with call.agent() as agent:
        receipt = await agent.memory.erase(memory_id, keep_turns=keep_turns)
    await call.service.jobs.work.forget(call.scope)
    return record(receipt)


@care_router.post(
    "/v1/sessions/{session_id}/erase",
    responses=openapi_responses(ErasureReceipt, description="What was erased and searched"),
)
async def erase_session(session_id: Id, call: Deleter) -> Response:
    """Erase a session beyond recovery, with every memory that rests on it."""
    with call.agent() as agent:
        receipt = await agent.memory.erase_session(session_id)
    await call.service.jobs.work.forget(call.scope, session_id=session_id)
    return record(receipt)
