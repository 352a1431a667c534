"""The turn inspector: the journal as a feed, what was made of a session turn by turn,
why a memory is there, why an answer was given.

What is shown of the past comes from the journal; what the journal does not keep is
named as such. "What recall gives" is computed now, over the memory as it was at that
entry: the search is today's, the memory is not.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Depends, Query
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from memagent.async_agent import AsyncAgent
from memagent.client.wire import Job, JobKind
from memagent.core.answers import MAX_QUESTION_CHARS, Answer, AsOf, Hit, Question
from memagent.core.errors import MemAgentError, MemoryNotFound
from memagent.core.recipes import RECIPES, recipe_of
from memagent.core.records import Session, Turn, content_id
from memagent.core.snapshot import Commit, JournalRow
from memagent.designs.parts.lines import hit_line
from memagent.memory.chunking import split_session
from memagent.pages.journal_words import (
    EntryView,
    SessionView,
    describe_entry,
    describe_session,
    is_about,
    turns_of,
)
from memagent.service.routes.memories import context_of
from memagent.service.ui.explaining import answer_told, candidates_told
from memagent.service.ui.frame import failure, page, page_router
from memagent.service.ui.session_auth import Viewer, viewer
from memagent.state.fold import BankState

router = page_router()
Reader = Annotated[Viewer, Depends(viewer("memory:read"))]
Asker = Annotated[Viewer, Depends(viewer("chat"))]
MOST_ROWS: Final = 20_000
"""Most journal entries that are looked through for one session."""
_AFTER: Final = 200
"""Entries looked through behind the last decision about a session, for what was added to
the graph.
"""
_FEED: Final = 40
_SESSIONS: Final = 40
_RECALLED: Final = 8
"""Ops of a decision for which recall is computed again."""
_SEQ_DIGITS: Final = 18
_BUDGETS: Final = (500, 1_000, 2_000, 4_000, 8_000)
Seq = Annotated[int | None, Query(ge=0, le=2**62)]
Name = Annotated[str, Query(min_length=1, max_length=512)]
Words = Annotated[str, Query(max_length=MAX_QUESTION_CHARS)]


@router.get("/ui/turns")
async def feed(request: Request, seen: Reader, before: Seq = None) -> HTMLResponse:
    """The journal, newest first."""
    with seen.agent() as agent:
        state = await agent.bank.sync()
        top = min(before if before is not None else state.seq + 1, state.seq + 1)
        after = max(0, top - 1 - _FEED)
        rows = [row for row in await _rows(agent, after, top) if row.seq < top]
        entries = [describe_entry(row, state) for row in reversed(rows)]
    older = after + 1 if after > 0 else None
    return page(
        request,
        "turns.html",
        title="Turns",
        active="turns",
        entries=entries,
        older=older,
        newer=before is not None,
        total=state.seq,
        sessions=len(state.sessions),
    )


@router.get("/ui/turns/sessions")
async def sessions(
    request: Request, seen: Reader, start: Annotated[int, Query(ge=0, le=10_000_000)] = 0
) -> HTMLResponse:
    """Stored sessions, newest first, with how far each was remembered."""
    with seen.agent() as agent:
        stored = list(reversed(await agent.memory.sessions()))
        state = agent.bank.state
        resting: dict[str, int] = {}
        for item in state.active():
            if item.session_id is not None:
                resting[item.session_id] = resting.get(item.session_id, 0) + 1
        chunk_turns = agent.design.chunk_turns
    shown = [
        (
            one,
            len(state.done.get(one.id, ())),
            len(split_session(one, chunk_turns=chunk_turns)),
            resting.get(one.id, 0),
        )
        for one in stored[start : start + _SESSIONS]
    ]
    further = start + _SESSIONS if start + _SESSIONS < len(stored) else None
    return page(
        request,
        "turns_sessions.html",
        title="Sessions",
        active="turns",
        shown=shown,
        start=start,
        further=further,
        nearer=max(0, start - _SESSIONS) if start else None,
        total=len(stored),
    )


@router.get("/ui/turns/session")
async def session(request: Request, seen: Reader, id: Name, seq: Seq = None) -> HTMLResponse:
    """One session, turn by turn, with what was decided about each.

    `seq` is a hint where its entries begin.
    """
    with seen.agent() as agent:
        state = await agent.bank.sync()
        stored = state.sessions.get(id)
        if stored is None:
            raise MemoryNotFound(f"no session {id!r} for user {seen.scope.user_id!r}")
        parts = split_session(stored, chunk_turns=agent.design.chunk_turns)
        story, whole = await _story(
            agent, stored, state, after=max(0, (seq or 1) - 1), parts=len(parts)
        )
    job = await _job(seen, id) if story.decided < len(parts) else None
    return page(
        request,
        "turns_session.html",
        title="Session",
        active="turns",
        story=story,
        whole=whole,
        job=job,
        waiting=max(0, len(parts) - story.decided),
        marked=request.query_params.get("turn", ""),
    )


@router.get("/ui/turns/decision")
async def decision(
    request: Request, seen: Reader, seq: Annotated[int, Query(ge=1, le=2**62)], recall: bool = False
) -> HTMLResponse:
    """One journal entry in full; with `recall`, what a search for each of its texts
    gives on the memory before it.
    """
    with seen.agent() as agent:
        state = await agent.bank.sync()
        rows = await _rows(agent, seq - 1, seq + 1)
        if not rows or rows[0].seq != seq:
            raise MemoryNotFound(f"no journal entry {seq} for user {seen.scope.user_id!r}")
        entry = describe_entry(rows[0], state)
        recalled = await _recalled(agent, entry) if recall else None
        cited = _quoted(state, [turn_id for op in entry.ops for turn_id in op.turn_ids])
    return page(
        request,
        "turns_decision.html",
        title=f"Entry {seq}",
        active="turns",
        entry=entry,
        cited=cited,
        recalled=recalled,
        last=state.seq,
    )


@router.get("/ui/turns/memory")
async def memory(request: Request, seen: Reader, id: Name) -> HTMLResponse:
    """Why a memory is there: every op that made it what it is, with its reason and the
    words it rests on.
    """
    with seen.agent() as agent:
        entries = await agent.memory.history(id)
        state = agent.bank.state
        quoted = _quoted(
            state,
            [
                turn_id
                for one in entries
                for turn_id in (one.item.source_turn_ids if one.item is not None else ())
            ],
        )
        steps = [(one, turns_of(one.op) if one.op is not None else ()) for one in entries]
    return page(
        request,
        "turns_memory.html",
        title="Why this was remembered",
        active="turns",
        memory_id=id,
        item=state.items.get(id),
        steps=steps,
        quoted=quoted,
        stats=state.stats.get(id),
    )


@router.get("/ui/turns/question")
async def question(
    request: Request,
    seen: Reader,
    text: Words = "",
    k: Annotated[int, Query(ge=1, le=200)] = 20,
    budget: Annotated[int, Query(ge=1, le=1_000_000)] = 2_000,
    recipe: Annotated[str, Query(max_length=64)] = "",
    seq: Annotated[str, Query(max_length=_SEQ_DIGITS)] = "",
) -> HTMLResponse:
    """What a search for a question finds, why, and what of it fits a prompt; asks no model."""
    values = _asked(seen, text=text, k=k, budget=budget, recipe=recipe, seq=_number(seq))
    if not text.strip():
        return page(request, "turns_question.html", **values)
    with seen.agent() as agent:
        memory = agent.memory
        as_of = AsOf(recorded=_number(seq))
        found = await memory.search(text, k=k, recipe=recipe or None, as_of=as_of)
        fitting = await memory.search(
            text, k=k, recipe=recipe or None, as_of=as_of, max_tokens=budget
        )
    block = context_of(
        [hit_line(hit, version=False) for hit in fitting], [hit.id for hit in fitting]
    )
    values["candidates"] = candidates_told(found, taken={hit.id for hit in fitting})
    values["block"] = block.text
    return page(request, "turns_question.html", **values)


@router.post("/ui/turns/question")
async def ask(request: Request, seen: Asker) -> Response:
    """Ask the agent, and show what its answer rests on."""
    form = seen.form
    text = form["text"].strip()[:MAX_QUESTION_CHARS]
    seq = _number(form["seq"])
    recipe = form["recipe"] if form["recipe"] in RECIPES else ""
    values = _asked(seen, text=text, k=20, budget=2_000, recipe=recipe, seq=seq)
    status = 200
    if text:
        try:
            with seen.agent() as agent:
                values["answer"] = answer_told(
                    *await _answered(
                        agent,
                        Question(
                            text=text,
                            recipe=recipe_of(recipe) if recipe else None,
                            as_of=AsOf(recorded=seq),
                        ),
                    )
                )
        except MemAgentError as exc:
            status, values["fault"] = failure(request, exc)
    return page(request, "turns_question.html", status=status, **values)


def _number(text: str) -> int | None:
    """A sequence as it was typed; None for what is none."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _SEQ_DIGITS else None


# -- reading ---------------------------------------------------------------------------


async def _rows(agent: AsyncAgent, after: int, before: int) -> list[JournalRow]:
    """Rows with a sequence between the two."""
    found: list[JournalRow] = []
    async for row in agent.bank.rows(after=after):
        if row.seq >= before:
            break
        found.append(row)
    return found


async def _story(
    agent: AsyncAgent, stored: Session, state: BankState, *, after: int, parts: int
) -> tuple[SessionView, bool]:
    """The session with the rows about it, and whether all were looked through that may be.

    What belongs to a session stands together: once every part that was decided about is
    found, only a few more rows are looked at.
    """
    done = state.done.get(stored.id, frozenset[int]())
    found: list[JournalRow] = []
    decided: set[int] = set()
    left, whole = MOST_ROWS, True
    async for row in agent.bank.rows(after=after):
        if not left:
            whole = done <= decided
            break
        left -= 1
        if is_about(row, stored.id):
            found.append(row)
            part = row.entry.source.chunk_index if isinstance(row.entry, Commit) else None
            decided.update(() if part is None else (part,))
            left = min(left, _AFTER) if done and done <= decided else left
    return describe_session(stored, found, state, parts=parts), whole


async def _job(seen: Viewer, session_id: str) -> Job | None:
    job_id = content_id("job", JobKind.INGEST.value, seen.scope.key, session_id)
    return await seen.service.jobs.find(job_id, seen.scope)


async def _recalled(agent: AsyncAgent, entry: EntryView) -> list[tuple[str, list[Hit]]]:
    """(text, hits) of an entry's first ops, searched in the memory as it was before."""
    texts = list(dict.fromkeys(op.text for op in entry.ops if op.text and op.op != "DELETE"))[
        :_RECALLED
    ]
    before = await agent.memory.as_of(AsOf(recorded=entry.seq - 1))
    return [(text, await before.search(text, k=5)) for text in texts]


async def _answered(agent: AsyncAgent, question: Question) -> tuple[Answer, list[Hit]]:
    answer: Answer | None = None
    retrieved: list[Hit] = []
    async for node, values in agent.stream(question):
        if node == "retrieve":
            retrieved = list(values.get("hits", ()))
        found = values.get("answer")
        answer = found if isinstance(found, Answer) else answer
    assert answer is not None
    return answer, retrieved


def _quoted(state: BankState, turn_ids: list[str]) -> dict[str, tuple[Turn, Session]]:
    """Stored turns with their sessions, by id."""
    found: dict[str, tuple[Turn, Session]] = {}
    for turn_id in turn_ids:
        place = state.turns.get(turn_id)
        if place is not None:
            of = state.sessions[place[0]]
            found[turn_id] = (of.turns[place[1]], of)
    return found


def _asked(
    seen: Viewer, *, text: str, k: int, budget: int, recipe: str, seq: int | None
) -> dict[str, Any]:
    """What the question page needs, before anything was found."""
    return {
        "title": "Why this was answered",
        "active": "turns",
        "text": text,
        "k": k,
        "budget": budget,
        "budgets": sorted({*_BUDGETS, budget}),
        "recipe": recipe,
        "recipes": list(RECIPES),
        "seq": seq,
        "candidates": None,
        "block": "",
        "answer": None,
        "fault": "",
        "has_model": seen.service.has_model,
    }
