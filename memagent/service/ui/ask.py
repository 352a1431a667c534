"""Ask: a message, the reply first, why below, and the thread so far.

A message goes the way of every conversation (`exchange.reply_to`): it is stored in its
thread and remembered. "Only look it up" asks one question instead and stores nothing;
the memory of an earlier time can only be looked up.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import nlargest
from typing import Annotated, Any, Final

from fastapi import Depends, Query
from starlette.responses import HTMLResponse

from memagent.core.answers import MAX_QUESTION_CHARS, Answer, AsOf, Hit, Question
from memagent.core.errors import InputError, MemAgentError
from memagent.core.recipes import RECIPES, recipe_of
from memagent.core.records import Session, Turn
from memagent.memory.threads import is_reply, thread_turns
from memagent.service.routes import exchange
from memagent.service.ui.frame import failure, page, page_router
from memagent.service.ui.session_auth import Viewer, require_viewer
from memagent.service.ui.turns import QuestionQuery, explain_hits, verdict_words
from memagent.state.fold import BankState

router = page_router()
Asker = Annotated[Viewer, Depends(require_viewer("chat"))]
_MOST_EXCHANGES: Final = 20
_MOST_THREADS: Final = 6
_LONGEST_THREAD: Final = 256


@dataclass(frozen=True, slots=True)
class Exchange:
    """A message of the thread, and the reply to it."""

    message: Turn | None
    reply: Turn | None


@router.get("/ui/ask")
async def ask_page(
    viewer: Asker,
    query: Annotated[QuestionQuery, Depends()],
    thread: Annotated[str, Query(max_length=_LONGEST_THREAD)] = "",
) -> HTMLResponse:
    """Show the form, with what the address fills in, above the thread it names."""
    return await _show(viewer, query, thread)


@router.post("/ui/ask")
async def ask(viewer: Asker) -> HTMLResponse:
    """Send the message, and show the reply above what it rests on."""
    form = viewer.form
    recipe = form["recipe"] if form["recipe"] in RECIPES else ""
    text = form["text"].strip()[:MAX_QUESTION_CHARS]
    query = QuestionQuery(text=text, recipe=recipe, seq=form["seq"])
    if not text:
        return await _show(viewer, query, form["thread"])
    lookup = bool(form["lookup"] or recipe) or query.recorded is not None
    conversation = not lookup and viewer.may("memory:write")
    thread = form["thread"] or f"ui-{uuid.uuid4().hex}"
    try:
        if len(thread) > _LONGEST_THREAD:
            raise InputError(f"a thread's id has 1 to {_LONGEST_THREAD} characters")
        if conversation:
            said = exchange.Said(text=text, thread=thread)
            reply = await exchange.reply_to(viewer.call, said)
            answer, hits, shown = reply, reply.hits, reply.turn_ids
        else:
            answer, hits = await _looked_up(viewer, query)
            shown = ()
    except MemAgentError as exc:
        status, fault = failure(viewer.request, exc)
        return await _show(viewer, query, thread, status=status, fault=fault)
    cited = {citation.hit_id for citation in answer.citations}
    taken = {hit.id for hit in answer.hits} if answer.response_ids else ()
    kind, words = verdict_words(answer.verdict, conversation=conversation)
    return await _show(
        viewer,
        query,
        thread if conversation else form["thread"],
        shown=shown,
        lookup=lookup,
        answer=answer,
        verdict_kind=kind,
        verdict_words=words,
        candidates=explain_hits(hits, taken=taken, cited=cited),
    )


async def _looked_up(viewer: Viewer, query: QuestionQuery) -> tuple[Answer, Sequence[Hit]]:
    """Return the answer to one question, and what was retrieved for it, best first."""
    question = Question(
        text=query.text,
        recipe=recipe_of(query.recipe) if query.recipe else None,
        as_of=AsOf(recorded=query.recorded),
    )
    values: dict[str, Any] = {}
    hits: list[Hit] = []
    with viewer.agent() as agent:
        async for node, update in agent.stream(question):
            values |= update
            hits = list(update.get("hits", ())) if node == "retrieve" else hits
    return values["answer"], hits


async def _show(
    viewer: Viewer,
    query: QuestionQuery,
    thread: str,
    *,
    status: int = 200,
    shown: Sequence[str] = (),
    **values: Any,
) -> HTMLResponse:
    """Show the page; the turns `shown` stand in the reply and not below it."""
    nothing: dict[str, Any] = {"answer": None, "candidates": None, "fault": "", "lookup": False}
    with viewer.agent() as agent:
        state = await agent.bank.sync()
    turns = [turn for turn in thread_turns(state, thread) if turn.id not in shown]
    return page(
        viewer.request,
        "ask.html",
        title="Ask",
        active="ask",
        status=status,
        query=query,
        thread=thread,
        earlier=exchanges(turns)[: -_MOST_EXCHANGES - 1 : -1],
        recent=[] if thread else _recent(state),
        recipes=list(RECIPES),
        has_model=viewer.service.has_model,
        empty=not state.items and not state.sessions,
        **(nothing | values),
    )


def exchanges(turns: Sequence[Turn]) -> list[Exchange]:
    """Return the turns of a thread as messages with their replies, oldest first."""
    pairs: list[Exchange] = []
    for turn in turns:
        if not is_reply(turn):
            pairs.append(Exchange(turn, None))
        elif pairs and pairs[-1].reply is None:
            pairs[-1] = Exchange(pairs[-1].message, turn)
        else:
            pairs.append(Exchange(None, turn))
    return pairs


def _recent(state: BankState) -> list[tuple[str, Session]]:
    """Return (thread, its last session) of the latest threads, the latest first."""
    last = ((thread, state.sessions[ids[-1]]) for thread, ids in state.threads.items() if ids)
    return nlargest(_MOST_THREADS, last, key=lambda pair: (pair[1].at, pair[0]))
