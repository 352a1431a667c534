"""The turn inspector: the journal, a session turn by turn, why a memory is there, a search.

What is shown of the past comes from the journal; what the journal does not keep is named
as such. "What recall gives" is computed now, over the memory as it was at that entry: the
search is today's, the memory is not.

Search hits with the parts of their scores, and quotations, as values for templates.

Scores are those of the search (`Relevance`): the raw score and rank in every arm, the
fused sum, and the factors it was multiplied by. Tokens are estimates from the letters of
each text; what a model really read is only known as the total that its provider counts.

Ask: a message, the reply first, why below, and the thread so far.

A message goes the way of every conversation (`exchange.reply_to`): it is stored in its
thread and remembered. "Only look it up" asks one question instead and stores nothing;
the memory of an earlier time can only be looked up.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import nlargest
from typing import Annotated, Any, Final

from fastapi import Depends, Query
from starlette.responses import HTMLResponse

from memagent.async_agent import AsyncAgent
from memagent.client.wire import MAX_QUESTION_CHARS, Answer, AsOf, Hit, Job, JobKind, Question
from memagent.core.errors import InputError, MemAgentError, MemoryNotFound
from memagent.core.recipes import RECIPES, recipe_of
from memagent.core.records import Session, Turn, content_id
from memagent.core.snapshot import Commit, JournalRow
from memagent.experience import newest_trials
from memagent.memory.incoming import split_session
from memagent.memory.threads import is_reply, thread_turns
from memagent.pages.journal_words import (
    EntryView,
    describe_entry,
    describe_session,
    is_about,
    turns_of,
)
from memagent.search.cuts import token_estimate
from memagent.service.routes import exchange
from memagent.service.routes.memories import context_of
from memagent.service.ui.frame import (
    Reader,
    Viewer,
    constants,
    page,
    page_router,
    require_viewer,
    steps,
)
from memagent.state.fold import BankState


@dataclass(frozen=True, kw_only=True)
class HitView:
    """One hit with the parts of its score."""

    rank: int
    hit: Hit
    share: float
    """Its score by the best one's, 0 to 1."""
    tokens: int
    part: float
    """Its share of all tokens taken, 0 to 1; 0 when it was not taken."""
    taken: bool
    cited: bool


def explain_hits(
    hits: Sequence[Hit], *, taken: Collection[str] = (), cited: Collection[str] = ()
) -> list[HitView]:
    """Return hits in their order; `taken` are the ids that go into the prompt."""
    best = max((hit.score for hit in hits), default=0.0)
    tokens = [token_estimate(hit.text) for hit in hits]
    total = sum(count for hit, count in zip(hits, tokens, strict=True) if hit.id in taken)
    return [
        HitView(
            rank=rank,
            hit=hit,
            share=score_share(hit.score, best),
            tokens=count,
            part=count / total if total and hit.id in taken else 0.0,
            taken=hit.id in taken,
            cited=hit.id in cited,
        )
        for rank, (hit, count) in enumerate(zip(hits, tokens, strict=True), 1)
    ]


def score_share(score: float, best: float) -> float:
    """Return a score as a share of the best one, from 0 to 1."""
    return max(0.0, min(1.0, score / best)) if best > 0 else 0.0


def quotations(agent: AsyncAgent, turn_ids: Iterable[str]) -> dict[str, tuple[Turn, Session]]:
    """Return the stored ones of some turns with their sessions, by id."""
    turns = {turn_id: agent.bank.turn_with_session(turn_id) for turn_id in turn_ids}
    return {turn_id: turn for turn_id, turn in turns.items() if turn is not None}


router = page_router()
MOST_ROWS: Final = 20_000
"""Journal entries that are read for one session at most."""
# Entries read behind the last decision about a session, for what grew the graph.
_AFTER: Final = 200
_PAGE: Final = 40
# Ops of a decision for which recall is computed at most.
_RECALLED: Final = 8
_SEQ_DIGITS: Final = 18
_BUDGETS: Final = (500, 1_000, 2_000, 4_000, 8_000)
Seq = Annotated[int | None, Query(ge=0, le=2**62)]
Name = Annotated[str, Query(min_length=1, max_length=512)]


@dataclass(frozen=True, slots=True)
class QuestionQuery:
    """A search for a question, from the address."""

    text: Annotated[str, Query(max_length=MAX_QUESTION_CHARS)] = ""
    k: Annotated[int, Query(ge=1, le=200)] = 20
    budget: Annotated[int, Query(ge=1, le=1_000_000)] = 2_000
    recipe: Annotated[str, Query(max_length=64)] = ""
    seq: Annotated[str, Query(max_length=_SEQ_DIGITS)] = ""

    @property
    def recorded(self) -> int | None:
        """The sequence of the journal; None for what is no number."""
        text = self.seq
        known = text.isascii() and text.isdecimal() and len(text) <= _SEQ_DIGITS
        return int(text) if known else None


@router.get("/ui/turns")
async def journal(viewer: Reader, before: Seq = None) -> HTMLResponse:
    """Show the journal, newest first."""
    with viewer.agent() as agent:
        state = await agent.bank.sync()
        top = min(before if before is not None else state.seq + 1, state.seq + 1)
        after = max(0, top - 1 - _PAGE)
        rows = await _rows(agent, after, top)
    return page(
        viewer.request,
        "turns/journal.html",
        title="Turns",
        active="turns",
        entries=[describe_entry(row, state) for row in reversed(rows)],
        older=after + 1 if after > 0 else None,
        newer=before is not None,
    )


@router.get("/ui/turns/sessions")
async def sessions(
    viewer: Reader, start: Annotated[int, Query(ge=0, le=10_000_000)] = 0
) -> HTMLResponse:
    """Show the stored sessions, newest first, and how far each was remembered."""
    with viewer.agent() as agent:
        stored = list(reversed(await agent.memory.sessions()))
        state = agent.bank.state
        memories = Counter(item.session_id for item in state.active())
        rows: list[tuple[Session, str, int]] = []
        for session in stored[start : start + _PAGE]:
            parts = len(split_session(session, chunk_turns=agent.design.chunk_turns))
            done = len(state.done.get(session.id, ()))
            part = "all" if done >= parts else f"{done} of {parts} parts"
            rows.append((session, part if parts else "nothing to read", memories[session.id]))
    return page(
        viewer.request,
        "turns/sessions.html",
        title="Sessions",
        active="turns",
        rows=rows,
        same=constants({"remembered": [part for _, part, _ in rows]}),
        steps=steps(start, _PAGE, len(stored)),
        total=len(stored),
    )


@router.get("/ui/trials")
async def trials(
    viewer: Reader, start: Annotated[int, Query(ge=0, le=10_000_000)] = 0
) -> HTMLResponse:
    """Show the trials, newest first, with what came of each and what it counted."""
    with viewer.agent() as agent:
        state = await agent.bank.sync()
        listed = newest_trials(state)
        texts = {
            use.id: state.items[use.id].text
            for trial in listed[start : start + _PAGE]
            for use in (*trial.shown, *trial.credit)
            if use.id in state.items
        }
    return page(
        viewer.request,
        "turns/trials.html",
        title="Trials",
        active="trials",
        trials=listed[start : start + _PAGE],
        texts=texts,
        steps=steps(start, _PAGE, len(listed)),
        total=len(listed),
    )


@router.get("/ui/turns/session")
async def session(viewer: Reader, id: Name, seq: Seq = None, turn: str = "") -> HTMLResponse:
    """Show one session, turn by turn, with what was decided about each.

    `seq` is a hint where its entries begin; `turn` is marked.
    """
    with viewer.agent() as agent:
        state = await agent.bank.sync()
        stored = state.sessions.get(id)
        if stored is None:
            raise MemoryNotFound(f"no session {id!r} for user {viewer.scope.user_id!r}")
        parts = len(split_session(stored, chunk_turns=agent.design.chunk_turns))
        rows, whole = await _rows_about(agent, stored.id, state, after=max(0, (seq or 1) - 1))
        view = describe_session(stored, rows, state, parts=parts)
    return page(
        viewer.request,
        "turns/session.html",
        title="Session",
        active="turns",
        story=view,
        whole=whole,
        job=await _job(viewer, id) if view.decided < parts else None,
        waiting=max(0, parts - view.decided),
        marked=turn,
    )


@router.get("/ui/turns/decision")
async def decision(
    viewer: Reader, seq: Annotated[int, Query(ge=1, le=2**62)], recall: bool = False
) -> HTMLResponse:
    """Show one journal entry in full.

    With `recall` it shows what a search for each of its texts gives on the memory before.
    """
    with viewer.agent() as agent:
        state = await agent.bank.sync()
        rows = await _rows(agent, seq - 1, seq + 1)
        if not rows:
            raise MemoryNotFound(f"no journal entry {seq} for user {viewer.scope.user_id!r}")
        entry = describe_entry(rows[0], state)
        recalled = await _recalled(agent, entry) if recall else None
        cited = quotations(agent, (turn_id for op in entry.ops for turn_id in op.turn_ids))
    return page(
        viewer.request,
        "turns/decision.html",
        title=f"Entry {seq}",
        active="turns",
        entry=entry,
        cited=cited,
        recalled=recalled,
        last=state.seq,
    )


@router.get("/ui/turns/memory")
async def memory(viewer: Reader, id: Name) -> HTMLResponse:
    """Show why a memory is there: every op, with its reason and the words it rests on."""
    with viewer.agent() as agent:
        entries = await agent.memory.history(id)
        state = agent.bank.state
        items = [entry.item for entry in entries if entry.item is not None]
        quoted = quotations(agent, (turn for item in items for turn in item.source_turn_ids))
    return page(
        viewer.request,
        "turns/memory.html",
        title="Why this was remembered",
        active="turns",
        memory_id=id,
        item=state.items.get(id),
        steps=[(entry, turns_of(entry.op)) for entry in entries],
        quoted=quoted,
        stats=state.stats.get(id),
    )


@router.get("/ui/turns/question")
async def question(viewer: Reader, query: Annotated[QuestionQuery, Depends()]) -> HTMLResponse:
    """Show what a search for a question finds, why, and what fits a prompt; ask no model."""
    candidates, block = None, ""
    if query.text.strip():
        with viewer.agent() as agent:
            search = partial(
                agent.memory.search,
                query.text,
                k=query.k,
                recipe=query.recipe or None,
                as_of=AsOf(recorded=query.recorded),
            )
            hits, fitting = await search(), await search(max_tokens=query.budget)
        candidates = explain_hits(hits, taken={hit.id for hit in fitting})
        block = context_of(fitting).text
    return page(
        viewer.request,
        "turns/question.html",
        title="What a search finds",
        active="turns",
        query=query,
        budgets=sorted({*_BUDGETS, query.budget}),
        recipes=list(RECIPES),
        candidates=candidates,
        block=block,
    )


# -- reading ---------------------------------------------------------------------------


async def _rows(agent: AsyncAgent, after: int, before: int) -> list[JournalRow]:
    """Return the rows with a sequence between the two."""
    rows: list[JournalRow] = []
    async for row in agent.bank.rows(after=after):
        if row.seq >= before:
            break
        rows.append(row)
    return rows


async def _rows_about(
    agent: AsyncAgent, session_id: str, state: BankState, *, after: int
) -> tuple[list[JournalRow], bool]:
    """Return the rows about a session, and whether every decision about it is among them.

    What belongs to a session stands together: once every part with a decision is read,
    only a few more rows follow.
    """
    missing = set(state.done.get(session_id, ()))
    several = bool(missing)
    rows: list[JournalRow] = []
    left = MOST_ROWS
    async for row in agent.bank.rows(after=after):
        if not left:
            return rows, not missing
        left -= 1
        if is_about(row, session_id):
            rows.append(row)
            if isinstance(row.entry, Commit) and row.entry.source.chunk_index is not None:
                missing.discard(row.entry.source.chunk_index)
            left = min(left, _AFTER) if several and not missing else left
    return rows, True


async def _job(viewer: Viewer, session_id: str) -> Job | None:
    job_id = content_id("job", JobKind.INGEST.value, viewer.scope.key, session_id)
    return await viewer.service.jobs.find(job_id, viewer.scope)


async def _recalled(agent: AsyncAgent, entry: EntryView) -> list[tuple[str, list[Hit]]]:
    """Return (text, hits) of an entry's first ops, searched in the memory before it."""
    texts = dict.fromkeys(op.text for op in entry.ops if op.text and op.op != "DELETE")
    before = await agent.memory.as_of(AsOf(recorded=entry.seq - 1))
    return [(text, await before.search(text, k=5)) for text in list(texts)[:_RECALLED]]


Asker = Annotated[Viewer, Depends(require_viewer("chat"))]
_MOST_EXCHANGES: Final = 20
_MOST_THREADS: Final = 6
_LONGEST_THREAD: Final = 256


@router.get("/ui/ask")
async def ask_page(
    viewer: Asker,
    query: Annotated[QuestionQuery, Depends()],
    thread: Annotated[str, Query(max_length=_LONGEST_THREAD)] = "",
) -> HTMLResponse:
    """Show the form, with what the address fills in, above the thread it names."""
    return await _show_ask(viewer, query, thread)


@router.post("/ui/ask")
async def ask(viewer: Asker) -> HTMLResponse:
    """Send the message, and show the reply above what it rests on."""
    form = viewer.form
    recipe = form["recipe"] if form["recipe"] in RECIPES else ""
    text = form["text"].strip()[:MAX_QUESTION_CHARS]
    query = QuestionQuery(text=text, recipe=recipe, seq=form["seq"])
    if not text:
        return await _show_ask(viewer, query, form["thread"])
    lookup = bool(form["lookup"] or recipe) or query.recorded is not None
    conversation = not lookup and viewer.may("memory:write")
    thread = form["thread"] or f"ui-{uuid.uuid4().hex}"
    try:
        if len(thread) > _LONGEST_THREAD:
            raise InputError(f"a thread's id has 1 to {_LONGEST_THREAD} characters")
        if conversation:
            reply = await exchange.reply_to(viewer, exchange.Said(text=text, thread=thread))
            answer, hits, shown = reply, reply.hits, reply.turn_ids
        else:
            answer, hits = await _looked_up(viewer, query)
            shown = ()
    except MemAgentError as exc:
        viewer.fault = exc
        return await ask_page(viewer, query, thread)
    cited = {citation.hit_id for citation in answer.citations}
    taken = {hit.id for hit in answer.hits} if answer.response_ids else ()
    return await _show_ask(
        viewer,
        query,
        thread if conversation else form["thread"],
        shown=shown,
        lookup=lookup,
        answer=answer,
        conversation=conversation,
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


async def _show_ask(
    viewer: Viewer,
    query: QuestionQuery,
    thread: str,
    *,
    shown: Sequence[str] = (),
    **values: Any,
) -> HTMLResponse:
    """Show the page; the turns `shown` stand in the reply and not below it."""
    nothing: dict[str, Any] = {"answer": None, "candidates": None, "lookup": False}
    state = await viewer.state()
    turns = [turn for turn in thread_turns(state, thread) if turn.id not in shown]
    return page(
        viewer.request,
        "ask.html",
        title="Ask",
        active="ask",
        query=query,
        thread=thread,
        earlier=exchanges(turns)[: -_MOST_EXCHANGES - 1 : -1],
        recent=[] if thread else _recent(state),
        recipes=list(RECIPES),
        has_model=viewer.service.model is not None,
        empty=not state.items and not state.sessions,
        **(nothing | values),
    )


def exchanges(turns: Sequence[Turn]) -> list[tuple[Turn | None, Turn | None]]:
    """Return (message, its reply) of the turns of a thread, oldest first."""
    pairs: list[tuple[Turn | None, Turn | None]] = []
    for turn in turns:
        if not is_reply(turn):
            pairs.append((turn, None))
        elif pairs and pairs[-1][1] is None:
            pairs[-1] = (pairs[-1][0], turn)
        else:
            pairs.append((None, turn))
    return pairs


def _recent(state: BankState) -> list[tuple[str, Session]]:
    """Return (thread, its last session) of the latest threads, the latest first."""
    last = ((thread, state.sessions[ids[-1]]) for thread, ids in state.threads.items() if ids)
    return nlargest(_MOST_THREADS, last, key=lambda pair: (pair[1].at, pair[0]))
