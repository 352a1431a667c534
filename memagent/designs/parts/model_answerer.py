"""Answerers that ask a model, and the search by sessions that comes before one of them.

`ModelAnswerer` shows the memories in order of time and has the model select first. The
selection is the reply's first key, so the answer is written with it in view. It is
also the list of citations, which the `cite` step checks against what was shown. Without
hits and without tools it abstains without a call. Where one memory shown replaced
another or contradicts it, the prompt names both with their dates, and so do the
answer's notes, by rule and whatever the model wrote.

`SessionAnswerer` shows memories by session and has the model name its evidence first.
Only memories of the named sessions (and memories that belong to no session) may be
cited. Where the model cites none, the best memory of each named session is cited. The
sessions are recorded on the answer. Naming a session that was not shown, or citing
outside the named ones, is noted and has no effect.

`SessionRetriever` narrows in: the question's time, the sessions that fit, their best
memories. The time is what the model says or, where it says nothing that can be read,
what the rules read from the question. Sessions that were held then or tell of then come
first. A few of the most relevant others are kept beside them, since people tell of
things long after. Without a time, relevance alone decides.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from memagent.core.answers import Answer, Citation, Hit, Question, Verdict
from memagent.core.exchange import JsonSchema, ModelResponse, Role
from memagent.core.ops import Rejected
from memagent.core.records import Session, TimeSpan
from memagent.designs.base import OnePrompt, Prompt, SlotContext, fence, load_prompt, quoted
from memagent.designs.parts.lines import (
    NO_NAMES,
    TEXT,
    TEXT_OR_NULL,
    TEXTS,
    ask_about,
    day_text,
    hit_line,
    hit_lines,
    hit_said_at,
    in_time_order,
    named,
    object_schema,
    question_values,
    short_names,
    weekday_text,
)
from memagent.designs.parts.retrieval import queries_at, query_for, with_timed
from memagent.designs.parts.rules.answerer import overview
from memagent.designs.parts.rules.statements import quote_from, said_line
from memagent.memory.question import read_question
from memagent.replies.readers import AnswerDraft, parse_answer, parse_window
from memagent.state.fold import BankState, folded
from memagent.state.versions import Clash, clashes

ANSWER_SCHEMA: Final[JsonSchema] = object_schema(
    {"citations": TEXTS, "answer": TEXT, "abstain": {"type": "boolean"}}
)
NO_ANSWER: Final = "I don't know."
"""The text of an answer that abstains without words of its own."""
UNREADABLE: Final = "the model's reply could not be read"


@dataclass(frozen=True, kw_only=True)
class ModelAnswerer(OnePrompt):
    """Answers a question from its hits with one model call."""

    prompt: str = "answer"

    async def __call__(
        self, question: Question, hits: Sequence[Hit], ctx: SlotContext, /
    ) -> Answer:
        """Return the answer with the citations the model gave, unchecked.

        It is UNSUPPORTED without citations, and ABSTAINED when the model says so, when
        its reply cannot be read, and when there is nothing to show.
        """
        if (listed := overview(question, ctx)) is not None:
            return listed
        if nothing_to_show(hits, ctx):
            return no_evidence(question)
        shown = in_time_order(hits)
        names = short_names(shown)
        changes = clashes(shown, ctx.bank.state)
        reply = await ask_for_answer(
            question,
            ctx,
            self.prompt,
            ANSWER_SCHEMA,
            memories=fence("memories", hit_lines(shown, names)),
            changes=fence("changes", change_lines(changes, names)) if changes else "",
            **question_values(question),
        )
        said = reply.draft.citations if reply.draft else ()
        return reply.answer(
            question,
            shown,
            [Citation(hit_id=named(names, cited)) for cited in reply.cited],
            notes=change_notes(changes, [named(names, cited) for cited in said]),
        )


@dataclass(frozen=True, slots=True)
class AnswerReply:
    """A reply of the answerer's model; `draft` is None when it cannot be read."""

    response: ModelResponse
    draft: AnswerDraft | None

    @property
    def abstained(self) -> bool:
        """Whether the model gives no answer."""
        return self.draft is None or self.draft.abstain

    @property
    def cited(self) -> tuple[str, ...]:
        """The ids cited; () for an abstention."""
        return () if self.draft is None or self.draft.abstain else self.draft.citations

    def answer(
        self,
        question: Question,
        shown: Sequence[Hit],
        citations: Sequence[Citation],
        *,
        notes: Iterable[str] = (),
        sessions: tuple[str, ...] = (),
    ) -> Answer:
        """Return the answer; an abstention drops citations and evidence sessions."""
        supported = Verdict.SUPPORTED if citations else Verdict.UNSUPPORTED
        return Answer(
            text=(self.draft.text if self.draft else "") or NO_ANSWER,
            citations=() if self.abstained else tuple(citations),
            verdict=Verdict.ABSTAINED if self.abstained else supported,
            notes=(*((UNREADABLE,) if self.draft is None else ()), *notes),
            hits=tuple(shown),
            evidence_sessions=() if self.abstained else sessions,
            usage=self.response.usage,
            response_ids=(self.response.id,),
            question=question,
        )


async def ask_for_answer(
    question: Question, ctx: SlotContext, prompt: str, schema: JsonSchema, /, **values: str
) -> AnswerReply:
    """Fill the prompt with `values`, ask the answerer's model once and read its reply."""
    response = await ask_about(question, ctx, Role.ANSWERER, prompt, schema, **values)
    parsed = parse_answer(response.text)
    return AnswerReply(response, parsed.values[0] if parsed.values else None)


def nothing_to_show(hits: Sequence[Hit], ctx: SlotContext) -> bool:
    """Say whether there are neither hits nor tools that could find some."""
    return not (hits or ctx.tools or ctx.transcript)


def no_evidence(question: Question) -> Answer:
    """Abstain because memory holds nothing to show."""
    return Answer(
        text=NO_ANSWER,
        verdict=Verdict.ABSTAINED,
        notes=("nothing in memory bears on this",),
        question=question,
    )


# -- what has changed --------------------------------------------------------------------

_MAX_LINES = 24
_MAX_NOTES = 3


def change_lines(clashes: Sequence[Clash], names: Mapping[str, str] = NO_NAMES) -> list[str]:
    """Write one line a pair for a prompt, by short names or ids, and dates; at most 24."""
    pairs = (
        (_dated(clash.earlier, names), _dated(clash.later, names), clash.replaced)
        for clash in clashes[:_MAX_LINES]
    )
    return [
        f"- {earlier} was replaced by {later}"
        if replaced
        else f"- {earlier} and {later} contradict each other"
        for earlier, later, replaced in pairs
    ]


def change_notes(clashes: Sequence[Clash], cited: Collection[str]) -> tuple[str, ...]:
    """Write one note a pair for the reader; at most three, cited pairs first.

    A note gives both statements with speaker and date. `cited` holds ids of hits or
    turns.
    """

    def uncited(clash: Clash) -> bool:
        earlier, later = clash.earlier, clash.later
        ids = {earlier.id, later.id, *earlier.source_turn_ids, *later.source_turn_ids}
        return ids.isdisjoint(cited)

    return tuple(
        f"This has changed: {_statement(clash.earlier)}, then {_statement(clash.later)}"
        if clash.replaced
        else f"Memory does not agree: {_statement(clash.earlier)}, and {_statement(clash.later)}"
        for clash in sorted(clashes, key=uncited)[:_MAX_NOTES]
    )


def _statement(hit: Hit) -> str:
    speaker = hit.item.speaker if hit.item is not None else None
    line = said_line(speaker, hit_said_at(hit), quote_from(hit.text, (), limit=160))
    return line if speaker else line[:1].lower() + line[1:]


def _dated(hit: Hit, names: Mapping[str, str]) -> str:
    said_at = hit_said_at(hit)
    name = names.get(hit.id) or quoted(hit.id)
    return f"[{name}]{f' (said {day_text(said_at)})' if said_at else ''}"


# -- by session ------------------------------------------------------------------------

SESSION_ANSWER_SCHEMA: Final[JsonSchema] = object_schema(
    {"sessions": TEXTS, **ANSWER_SCHEMA["properties"]}
)
Groups = Mapping[str | None, Sequence[Hit]]
"""Hits by session id, in the order of retrieval; None holds hits of no session."""


@dataclass(frozen=True, kw_only=True)
class SessionAnswerer(OnePrompt):
    """Answers a question, with named evidence sessions, with one model call."""

    prompt: str = "answer_sessions"

    async def __call__(
        self, question: Question, hits: Sequence[Hit], ctx: SlotContext, /
    ) -> Answer:
        """Return the answer; UNSUPPORTED when it names no session that was shown.

        It abstains as `ModelAnswerer` does.
        """
        if nothing_to_show(hits, ctx):
            return no_evidence(question)
        groups = _by_session(hits, ctx.bank.state)
        changes = clashes(hits, ctx.bank.state)
        reply = await ask_for_answer(
            question,
            ctx,
            self.prompt,
            SESSION_ANSWER_SCHEMA,
            sessions=fence("sessions", _lines(groups, ctx.bank.state.sessions)),
            changes=fence("changes", change_lines(changes)) if changes else "",
            **question_values(question),
        )
        named, citations, notes = (
            _within_sessions(reply.draft, groups) if reply.draft else ((), (), list[str]())
        )
        notes += change_notes(changes, [citation.hit_id for citation in citations])
        return reply.answer(question, hits, citations, notes=notes, sessions=named)


def _within_sessions(
    draft: AnswerDraft, groups: Groups
) -> tuple[tuple[str, ...], tuple[Citation, ...], list[str]]:
    """Return the named sessions that were shown, the citations within them, and notes."""
    shown = {folded(name): name for name in groups if name is not None}
    named = tuple(
        dict.fromkeys(shown[folded(name)] for name in draft.sessions if folded(name) in shown)
    )
    unknown = [name[:80] for name in draft.sessions if folded(name) not in shown]
    allowed = _citations(
        hit for name, hits in groups.items() if name is None or name in named for hit in hits
    )
    every = _citations(hit for hits in groups.values() for hit in hits)
    outside = [cited for cited in draft.citations if cited in every and cited not in allowed]
    citations = [
        allowed.get(cited) or Citation(hit_id=cited)
        for cited in draft.citations
        if cited not in outside
    ]
    if not any(cited in allowed for cited in draft.citations):
        citations += [Citation(hit_id=groups[name][0].id) for name in named]
    notes: list[str] = []
    if unknown:
        notes.append(f"sessions that were not shown were dropped: {', '.join(unknown[:8])}")
    if outside and not draft.abstain:
        notes.append(f"citations outside the sessions named were dropped: {', '.join(outside[:8])}")
    if not named and not draft.abstain:
        notes.append("the model named no session that it was shown")
    return named, tuple(citations), notes


def _citations(hits: Iterable[Hit]) -> dict[str, Citation]:
    citations: dict[str, Citation] = {}
    for hit in hits:
        citations[hit.id] = Citation(hit_id=hit.id)
        for turn_id in hit.source_turn_ids:
            citations.setdefault(turn_id, Citation(hit_id=hit.id, turn_id=turn_id))
    return citations


def _lines(groups: Groups, sessions: Mapping[str, Session]) -> list[str]:
    """Write a line for each session, undated ones first, with its memories below it.

    Memories stand in order of time; those of no session come last.
    """
    lines: list[str] = []
    dates = {name: sessions[name].at for name in groups if name is not None}
    order = sorted(
        dates, key=lambda name: (at.timestamp() if (at := dates[name]) else float("-inf"), name)
    )
    for name in (*order, *([None] if None in groups else [])):
        at = dates[name] if name is not None else None
        heading = f"Session [{quoted(name)}]" if name is not None else "Of no session"
        lines.append(f"{heading}{f', {weekday_text(at)}' if at else ''}")
        lines += [f"  {hit_line(hit)}" for hit in in_time_order(groups[name])]
    return lines


WINDOW_SCHEMA: Final[JsonSchema] = object_schema({"from": TEXT_OR_NULL, "to": TEXT_OR_NULL})
# Best hits of a session that make its score.
_SCORED_HITS = 3
_FALLBACK_NOTES: Final = {
    "rules": "the time that the rules read from the question was used",
    "nobody": "no time was asked for as far as the rules can tell",
    "model": "",
}


@dataclass(frozen=True, kw_only=True)
class Window:
    """The time a question is about, and who found it."""

    span: TimeSpan | None
    by: Literal["model", "rules", "nobody"]
    rejected: tuple[Rejected, ...] = ()
    """The reason why the model's reply could not be used."""


@dataclass(frozen=True, kw_only=True)
class SessionRetriever:
    """Finds the best memories of the sessions that fit a question's time and words."""

    sessions: int = 10
    """Most sessions."""
    outside: int = 3
    """Of these, most that lie outside the window, the most relevant ones; all do when
    nothing lies inside.
    """
    per_session: int = 6
    """Most memories a session."""
    pool: int = 200
    """Memories searched by relevance, and as many again for what happened or was said in
    the window.
    """
    ask_model: bool = True
    """Ask a planner for the window; without it the rules alone give it, and no model is
    asked.
    """
    prompt: str = "window"

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """The planner's prompt, if it is asked."""
        return (load_prompt(self.prompt),) if self.ask_model else ()

    async def __call__(self, question: Question, ctx: SlotContext, /) -> list[Hit]:
        """Return hits session by session: those inside the window first, then by relevance.

        An empty memory gives [] without a call. Each hit's `why` tells its session's
        rank, and `window` 1 or 0 where the question has a time. Scores fall from
        session to session and are comparable within this list only. Memories that
        belong to no session come last.
        """
        state = await ctx.bank.sync()
        if next(state.active(), None) is None:
            return []
        window = await self.window(question, ctx)
        fallback = _FALLBACK_NOTES[window.by]
        ctx.trail.notes.extend(
            f"the model's time window could not be read ({entry.detail}); {fallback}"
            for entry in window.rejected
        )
        query = query_for(question)
        timed = queries_at(query, window.span) if window.span is not None else []
        plain_hits, *timed_hits = await ctx.bank.search_many([query, *timed], k=self.pool)
        groups = _by_session(with_timed(plain_hits, timed_hits), state)
        loose = groups.pop(None, [])
        inside = {session_of(hit, state) for hits in timed_hits for hit in hits}
        chosen = self._choose(groups, inside if window.span is not None else set(groups))
        placed: list[Hit] = []
        for rank, name in enumerate(chosen, 1):
            arms = {"session": groups[name][0].score}
            if window.span is not None:
                arms["window"] = float(name in inside)
            placed += [
                _place(hit, len(chosen) - rank + 1, arms, {"session": rank})
                for hit in groups[name][: self.per_session]
            ]
        return [*placed, *(_place(hit, 0, {}, {}) for hit in loose[: self.per_session])]

    async def window(self, question: Question, ctx: SlotContext) -> Window:
        """Find the time a question is about."""
        asked_at = question.asked_at or ctx.clock()
        span = read_question(question.text, asked_at=asked_at).span
        by_rule = Window(span=span, by="rules" if span is not None else "nobody")
        if not self.ask_model:
            return by_rule
        response = await ask_about(
            question,
            ctx,
            Role.PLANNER,
            self.prompt,
            WINDOW_SCHEMA,
            covered=_covered(ctx.bank.state),
            **question_values(question.model_copy(update={"asked_at": asked_at})),
        )
        parsed = parse_window(response.text, asked_at=asked_at)
        if parsed.values:
            return Window(span=parsed.values[0], by="model")
        return Window(span=by_rule.span, by=by_rule.by, rejected=parsed.rejected)

    def _choose(
        self, groups: dict[str | None, list[Hit]], inside: set[str | None]
    ) -> list[str | None]:
        """Choose the sessions to show: those inside, best first, then the best of the others."""
        scores = {name: sum(hit.score for hit in groups[name][:_SCORED_HITS]) for name in groups}
        order = sorted(groups, key=lambda name: (-scores[name], name or ""))
        fitting = [name for name in order if name in inside]
        others = [name for name in order if name not in inside]
        if not fitting:
            return others[: self.sessions]
        beside = others[: min(self.outside, self.sessions)]
        return [*fitting[: self.sessions - len(beside)], *beside]


def session_of(hit: Hit, state: BankState) -> str | None:
    """Return the session in which a hit's statement was last made, or None."""
    for turn_id in reversed(hit.source_turn_ids):
        place = state.turns.get(turn_id)
        if place is not None:
            return place[0]
    record = hit.item or hit.event
    session_id = record.session_id if record is not None else None
    return session_id if session_id in state.sessions else None


def _by_session(hits: Iterable[Hit], state: BankState) -> dict[str | None, list[Hit]]:
    groups: dict[str | None, list[Hit]] = {}
    for hit in hits:
        groups.setdefault(session_of(hit, state), []).append(hit)
    return groups


def _place(hit: Hit, floor: int, arms: dict[str, float], ranks: dict[str, int]) -> Hit:
    """Lift a hit's score above all scores of the lower floors."""
    why = hit.why.model_copy(
        update={"arms": {**hit.why.arms, **arms}, "ranks": {**hit.why.ranks, **ranks}}
    )
    return hit.model_copy(update={"score": floor + min(hit.score, 0.999), "why": why})


def _covered(state: BankState) -> str:
    days = [session.at for session in state.sessions.values() if session.at is not None]
    if not days:
        return ""
    first, last = weekday_text(min(days)), weekday_text(max(days))
    return f"The conversations were held between {first} and {last}."
