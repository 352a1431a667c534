"""An exchange with the agent: answer, then remember, and never lose what was said.

The answer is made before the exchange is stored, so that it rests on what was known
before. When the model fails, or the caller goes away, what the user said is stored all
the same and remembered by a job.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable

from starlette.responses import Response, StreamingResponse

from memagent.async_agent import exchange_session
from memagent.client.faults import problem_of
from memagent.client.wire import JobState
from memagent.core.answers import Answer, Question
from memagent.core.errors import MemAgentError
from memagent.core.records import Session
from memagent.core.snapshot import Entry, SessionStored
from memagent.memory.bank import system_clock
from memagent.service.access import Call
from memagent.service.hosting import Service
from memagent.service.problems import request_id_of
from memagent.service.routes.responses import record
from memagent.tracing import carried

_KEEPING: set[asyncio.Task[None]] = set()


async def remember_exchange(call: Call, text: str, answer: str, *, speaker: str) -> None:
    """Store a question and its answer durably and have a job remember them."""
    session = exchange_session(text, Answer(text=answer), at=system_clock(), speaker=speaker)
    await take(call.service, call, session)


async def remember_said(call: Call, text: str, *, speaker: str) -> None:
    """Store what a user said that got no answer."""
    session = exchange_session(text, Answer(text="-"), at=system_clock(), speaker=speaker)
    await take(call.service, call, session.model_copy(update={"turns": session.turns[:1]}))


async def take(service: Service, call: Call, session: Session) -> str:
    """Store a session and start its job; gives the job's id."""
    job, _ = await service.jobs.accept_session(call.scope, session)
    if job.state is JobState.FAILED:
        job = job.model_copy(update={"state": JobState.QUEUED})
    service.jobs.start(job, call.scope)
    return job.id


def keep_said(call: Call, text: str, *, speaker: str) -> None:
    """`remember_said` for when nobody waits any more (the caller is gone)."""
    task = asyncio.get_running_loop().create_task(
        remember_said(call, text, speaker=speaker), context=carried()
    )
    _KEEPING.add(task)
    task.add_done_callback(_KEEPING.discard)


async def kept_through() -> None:
    """Wait for what callers who went away said to be stored."""
    while _KEEPING:
        await asyncio.wait(set(_KEEPING))


async def chat(call: Call, text: str, *, speaker: str, said: list[Answer]) -> Answer:
    """Answer from memory and remember the exchange; the answer is put into `said` before that.

    Raises `ModelError`; what the user said is stored then too.
    """
    try:
        with call.agent() as agent:
            answer = await agent.ask(text)
    except asyncio.CancelledError:
        keep_said(call, text, speaker=speaker)
        raise
    except MemAgentError:
        await remember_said(call, text, speaker=speaker)
        raise
    said.append(answer)
    await remember_exchange(call, text, answer.text, speaker=speaker)
    return answer


def kept_chat(said: list[Answer]) -> Callable[[Entry], Response | None]:
    """The response to keep with a stored exchange; nothing is kept for what got no answer."""

    def keep(entry: Entry) -> Response | None:
        return record(said[-1]) if said and isinstance(entry, SessionStored) else None

    return keep


def wants_stream(call: Call) -> bool:
    """Whether the caller asked for server-sent events."""
    return "text/event-stream" in call.request.headers.get("accept", "")


def event_stream(events: AsyncIterator[str]) -> StreamingResponse:
    """Server-sent events as a response."""
    return StreamingResponse(
        events,
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


def sse(name: str, data: str) -> str:
    """One server-sent event; the data is one line of JSON."""
    return f"event: {name}\ndata: {data}\n\n"


async def answer_events(
    call: Call, question: Question, *, speaker: str | None = None
) -> AsyncGenerator[str]:
    """The steps of an answer as they finish, then the answer; a failure is a `problem`.

    With a speaker it is remembered.
    """
    answer: Answer | None = None
    settled = speaker is None
    try:
        with call.agent() as agent:
            async for node, values in agent.stream(question):
                found = values.get("answer")
                answer = found if isinstance(found, Answer) else answer
                yield sse("step", f'{{"name":"{node}"}}')
        assert answer is not None
        if speaker is not None:
            await remember_exchange(call, question.text, answer.text, speaker=speaker)
            settled = True
        yield sse("answer", answer.model_dump_json())
    except MemAgentError as exc:
        if not settled and speaker is not None:
            settled = True
            await remember_said(call, question.text, speaker=speaker)
        yield sse(
            "problem",
            problem_of(exc, request_id=request_id_of(call.request)).model_dump_json(
                exclude_none=True
            ),
        )
    finally:
        if not settled and speaker is not None:
            keep_said(call, question.text, speaker=speaker)
    yield sse("done", "{}")
