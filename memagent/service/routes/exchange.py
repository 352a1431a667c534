"""An exchange with the agent: answer, then remember, and never lose what was said.

The answer is made before the exchange is stored, so that it rests on what was known
before. When the model fails, or the caller goes away, the user's words are stored all
the same and remembered by a job.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import Any

from starlette.responses import StreamingResponse

from memagent.async_agent import exchange_session
from memagent.client.faults import problem_of
from memagent.client.wire import JobState
from memagent.core.answers import Answer, Question
from memagent.core.errors import MemAgentError
from memagent.core.records import Session
from memagent.memory.bank import system_clock
from memagent.service.access import Call
from memagent.service.problems import request_id_of
from memagent.tracing import trace_context

_STORING: set[asyncio.Task[None]] = set()


async def store_exchange(call: Call, text: str, answer: str, *, speaker: str) -> None:
    """Store a question and its answer durably and have a job remember them."""
    session = exchange_session(text, Answer(text=answer), at=system_clock(), speaker=speaker)
    await _store(call, session)


async def store_question(call: Call, text: str, *, speaker: str) -> None:
    """Store what a user said that got no answer."""
    session = exchange_session(text, Answer(text="-"), at=system_clock(), speaker=speaker)
    await _store(call, session.model_copy(update={"turns": session.turns[:1]}))


async def _store(call: Call, session: Session) -> None:
    job, _ = await call.service.jobs.accept_session(call.scope, session)
    if job.state is JobState.FAILED:
        job = job.model_copy(update={"state": JobState.QUEUED})
    call.service.jobs.start(job, call.scope)


@asynccontextmanager
async def question_kept(call: Call, text: str, *, speaker: str) -> AsyncGenerator[None]:
    """Store the question when the block ends without having answered it.

    For a caller who is gone a task of its own stores it.
    """
    try:
        yield
    except MemAgentError:
        await store_question(call, text, speaker=speaker)
        raise
    except BaseException:
        storing = store_question(call, text, speaker=speaker)
        task = asyncio.get_running_loop().create_task(storing, context=trace_context())
        _STORING.add(task)
        task.add_done_callback(_STORING.discard)
        raise


async def all_stored() -> None:
    """Wait until the questions of callers who went away are stored."""
    while _STORING:
        await asyncio.wait(set(_STORING))


async def chat(call: Call, text: str, *, speaker: str, answers: list[Answer]) -> Answer:
    """Answer from memory and remember the exchange.

    The answer is put into `answers` before it is stored. Raises `ModelError`; the
    question is stored then too.
    """
    async with question_kept(call, text, speaker=speaker):
        with call.agent() as agent:
            answer = await agent.ask(text)
    answers.append(answer)
    await store_exchange(call, text, answer.text, speaker=speaker)
    return answer


def wants_stream(call: Call) -> bool:
    """Return whether the caller asked for server-sent events."""
    return "text/event-stream" in call.request.headers.get("accept", "")


def event_stream(events: AsyncIterator[str]) -> StreamingResponse:
    """Return server-sent events as a response."""
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)


async def answer_events(
    call: Call, question: Question, *, speaker: str | None = None
) -> AsyncGenerator[str]:
    """Yield the steps of an answer as they finish, then the answer, or a `problem`.

    With a speaker the exchange is remembered.
    """
    values: dict[str, Any] = {}
    guard = question_kept(call, question.text, speaker=speaker) if speaker is not None else None
    try:
        async with guard or nullcontext():
            with call.agent() as agent:
                async for node, update in agent.stream(question):
                    values |= update
                    yield _event("step", f'{{"name":"{node}"}}')
            answer: Answer = values["answer"]
            if speaker is not None:
                await store_exchange(call, question.text, answer.text, speaker=speaker)
        yield _event("answer", answer.model_dump_json())
    except MemAgentError as exc:
        problem = problem_of(exc, request_id=request_id_of(call.request))
        yield _event("problem", problem.model_dump_json(exclude_none=True))
    yield _event("done", "{}")


def _event(name: str, data: str) -> str:
    """Return one server-sent event; the data is one line of JSON."""
    return f"event: {name}\ndata: {data}\n\n"
