"""The turn inspector: the journal, a session turn by turn, why a memory is there, a search.

What is shown of the past comes from the journal; what the journal does not keep is named
as such. "What recall gives" is computed now, over the memory as it was at that entry: the
search is today's, the memory is not.

Search hits with the parts of their scores, and quotations, as values for templates.

Scores are those of the search (`Relevance`): the raw score and rank in every arm, the
fused sum, and the factors it was multiplied by. Tokens are estimates from the letters of
each text; what a model really read is only known as the total that its provider counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Final

from fastapi import Depends, Query
from starlette.responses import HTMLResponse

from memagent.async_agent import AsyncAgent
from memagent.client.wire import Job, JobKind
from memagent.core.answers import MAX_QUESTION_CHARS, AsOf, Hit, Verdict
from memagent.core.errors import MemoryNotFound
from memagent.core.recipes import RECIPES
from memagent.core.records import Session, Turn, content_id
from memagent.core.snapshot import Commit, JournalRow
from memagent.memory.incoming import split_session
from memagent.memory.reporting import newest_trials
from memagent.pages.journal_words import (
    EntryView,
    describe_entry,
    describe_session,
    is_about,
    turns_of,
)
from memagent.search.cuts import token_estimate
from memagent.service.routes.memories import context_of
from memagent.service.ui.frame import constants, page, page_router, steps
from memagent.service.ui.session_auth import Reader, Viewer
from memagent.state.fold import BankState

_ARMS: Final[Mapping[str, str]] = {
    "dense": "meaning",
    "dense_context": "meaning, with its neighbours",
    "lexical": "words",
    "lexical_context": "words, with its neighbours",
    "session": "its session",
    "graph": "event graph",
    "window": "time asked about",
}
_FACTORS: Final[Mapping[str, str]] = {
    "time": "at the time asked about",
    "recency": "how recent",
    "importance": "importance",
    "names": "by or about who is named",
    "asking": "states rather than asks",
    "length": "length",
}
_VERDICTS: Final[Mapping[Verdict, tuple[str, str]]] = {
    Verdict.SUPPORTED: ("good", "The evidence below supports it."),
    Verdict.QUOTED: ("warn", "This is the closest thing said; it may not answer the question."),
    Verdict.UNSUPPORTED: ("bad", "It cites nothing that carries it."),
    Verdict.ABSTAINED: ("warn", "Nothing that was found answers it."),
}


def verdict_words(verdict: Verdict, *, conversation: bool = False) -> tuple[str, str]:
    """Return (kind of pill, sentence) of a verdict.

    In a conversation a reply that rests on no memory is no fault.
    """
    if conversation and verdict is Verdict.UNSUPPORTED:
        return "plain", "It rests on no memory."
    return _VERDICTS[verdict]


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

    @property
    def arms(self) -> list[tuple[str, float, int | None]]:
        """(name, raw score, rank) in every arm of the search."""
        why = self.hit.why
        return [(_ARMS.get(arm, arm), raw, why.ranks.get(arm)) for arm, raw in why.arms.items()]

    @property
    def factors(self) -> list[tuple[str, float]]:
        """(name, value) of what the fused score was multiplied by."""
        return [(_FACTORS.get(name, name), value) for name, value in self.hit.why.factors.items()]

    @property
    def path(self) -> str:
        """The steps of a walk over the graph that reached it; "" for a hit of the search."""
        return " ".join(
            f"{node} {'→' if on else '←'} {edge}" for node, edge, on in self.hit.why.via
        )


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
_AFTER: Final = 200
"""Entries read behind the last decision about a session, for what grew the graph."""
_PAGE: Final = 40
_RECALLED: Final = 8
"""Ops of a decision for which recall is computed at most."""
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
        rows = [
            (
                session,
                len(state.done.get(session.id, ())),
                len(split_session(session, chunk_turns=agent.design.chunk_turns)),
                memories[session.id],
            )
            for session in stored[start : start + _PAGE]
        ]
    return page(
        viewer.request,
        "turns/sessions.html",
        title="Sessions",
        active="turns",
        rows=rows,
        same=constants({"remembered": [_progress(done, parts) for _, done, parts, _ in rows]}),
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


def _progress(done: int, parts: int) -> str:
    """Tell how much of a session is remembered."""
    if not parts:
        return "nothing to read"
    return "all" if done >= parts else f"{done} of {parts} parts"


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
    if not query.text.strip():
        return _show_question(viewer, query)
    with viewer.agent() as agent:
        search = partial(
            agent.memory.search,
            query.text,
            k=query.k,
            recipe=query.recipe or None,
            as_of=AsOf(recorded=query.recorded),
        )
        hits, fitting = await search(), await search(max_tokens=query.budget)
    return _show_question(
        viewer,
        query,
        candidates=explain_hits(hits, taken={hit.id for hit in fitting}),
        block=context_of(fitting).text,
    )


def _show_question(
    viewer: Viewer,
    query: QuestionQuery,
    candidates: Sequence[HitView] | None = None,
    block: str = "",
) -> HTMLResponse:
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
