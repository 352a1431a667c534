"""A conversation with the agent: reply, then remember, and never lose what was said.

The message is stored, with the job that remembers it, before the model is asked; the
reply is stored before the job begins. So a model that fails, a caller who goes away or
a worker that dies costs no turn.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Final

from starlette.responses import StreamingResponse

from memagent.client.faults import problem_of
from memagent.core.answers import Answer, Question, Reply, ReplyDelta
from memagent.core.errors import MemAgentError
from memagent.core.exchange import JsonSchema, Message, Role, Sampling, ToolSpec
from memagent.core.records import DEFAULT_THREAD, Trust
from memagent.graphs.chat_run import ChatOptions, chat_context, last_reply, start_state, stream_chat
from memagent.memory.bank import MemoryBank
from memagent.memory.threads import Spoken, add_to_thread, store_message
from memagent.service.access import Call
from memagent.service.problems import request_id_of
from memagent.service.routes.client_model import ClientModel, Wishes

_WHOLE_THREAD: Final = 1_000_000_000
"""Tokens of a thread that is shown whole, where no memory stands in for its beginning."""


@dataclass(frozen=True, kw_only=True)
class Said:
    """A message to reply to."""

    text: str
    speaker: str = "user"
    thread: str = DEFAULT_THREAD
    system: str | None = None
    min_trust: Trust | None = None
    earlier: Sequence[Spoken] = ()
    """Messages before it that the thread does not hold yet."""
    sampling: Sampling | None = None
    client_tools: tuple[ToolSpec, ...] = ()
    """Tools that the caller runs."""
    client_transcript: tuple[Message, ...] = ()
    """The calls of such tools after the message, and their results."""
    schema: JsonSchema | None = None
    """The JSON Schema that the reply has to follow."""
    wishes: Wishes | None = None
    """What else is asked of the model."""
    memory: bool = True
    """Whether anything is recalled, stored and remembered."""
    deliver: Callable[[Reply], None] | None = None
    """Told of the reply right before it is stored."""


async def converse(call: Call, said: Said) -> AsyncGenerator[ReplyDelta]:
    """Yield the reply to a message as the model speaks; the last piece has the `Reply`.

    The first piece is empty and says that the message is stored.
    A job remembers the exchange afterwards. Raises `ModelError`; the message is stored
    and remembered then too.
    """
    jobs, message = call.service.jobs, Spoken(said.text, said.speaker)
    with call.agent() as agent:
        if not said.memory:
            blank = MemoryBank(embedder=agent.embedder, clock=agent.clock)
            agent = replace(agent, bank=blank)
        if said.earlier:
            await add_to_thread(agent.bank, said.thread, said.earlier, at=agent.clock())
        end = await store_message(agent.bank, said.thread, message, at=agent.clock())
        job = await jobs.accept_growth(call.scope, end.session) if said.memory else None
        options: ChatOptions = {
            "thread": said.thread,
            "speaker": said.speaker,
            "system": said.system,
            "min_trust": said.min_trust,
            "remember": False,
        }
        context = replace(
            chat_context(agent.context, options),
            deliver=said.deliver,
            client_tools=said.client_tools,
            client_transcript=said.client_transcript,
            client_schema=said.schema,
        )
        if said.wishes is not None:
            context = replace(context, model=ClientModel(context.model, said.wishes))
        if not said.memory:
            limits = replace(context.chat, thread_tokens=_WHOLE_THREAD)
            context = replace(context, chat=limits)
        if said.sampling is not None:
            sampling = {**context.sampling, Role.ANSWERER: said.sampling}
            context = replace(context, sampling=sampling)
        state = start_state(said.text, options, thread=said.thread)
        deltas = stream_chat(state, context=context, checkpointer=None, tracing=agent.tracing)
        try:
            yield ReplyDelta()
            async with aclosing(deltas):
                async for delta in deltas:
                    yield delta
        finally:
            if job is not None:
                jobs.start(job, call.scope)


async def reply_to(call: Call, said: Said) -> Reply:
    """Reply to a message and have a job remember the exchange. Raises `ModelError`."""
    return await last_reply(converse(call, said))


def wants_stream(call: Call) -> bool:
    """Return whether the caller asked for server-sent events."""
    return "text/event-stream" in call.request.headers.get("accept", "")


def event_stream(events: AsyncIterator[str]) -> StreamingResponse:
    """Return server-sent events as a response."""
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)


async def reply_events(call: Call, said: Said) -> AsyncGenerator[str]:
    """Yield the words of a reply as `delta` events, then the `answer`, or a `problem`."""
    try:
        async with aclosing(converse(call, said)) as deltas:
            async for delta in deltas:
                if delta.text:
                    yield _event("delta", ReplyDelta(text=delta.text).model_dump_json())
                if delta.reply is not None:
                    yield _event("answer", delta.reply.model_dump_json())
    except MemAgentError as exc:
        yield _problem(call, exc)
    yield _event("done", "{}")


async def answer_events(call: Call, question: Question) -> AsyncGenerator[str]:
    """Yield the steps of an answer as they finish, then the answer, or a `problem`."""
    values: dict[str, Any] = {}
    try:
        with call.agent() as agent:
            async for node, update in agent.stream(question):
                values |= update
                yield _event("step", f'{{"name":"{node}"}}')
        answer: Answer = values["answer"]
        yield _event("answer", answer.model_dump_json())
    except MemAgentError as exc:
        yield _problem(call, exc)
    yield _event("done", "{}")


def _problem(call: Call, exc: MemAgentError) -> str:
    problem = problem_of(exc, request_id=request_id_of(call.request))
    return _event("problem", problem.model_dump_json(exclude_none=True))


def _event(name: str, data: str) -> str:
    """Return one server-sent event; the data is one line of JSON."""
    return f"event: {name}\ndata: {data}\n\n"
