"""A retriever that narrows in: the question's time, the sessions that fit, their best memories.

The time is what the model says or, where it says nothing that can be read, what the
rules read from the question. Sessions that were held then or tell of then come first. A
few of the most relevant others are kept beside them, since people tell of things long
after. Without a time, relevance alone decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from memagent.core.answers import Hit, Question
from memagent.core.exchange import JsonSchema, Role
from memagent.core.ops import Rejected
from memagent.core.records import TimeSpan
from memagent.designs.base import Prompt, SlotContext, load_prompt
from memagent.designs.parts.lines import (
    TEXT_OR_NULL,
    ask_about,
    object_schema,
    question_values,
    weekday_text,
)
from memagent.designs.parts.retrieval import queries_at, query_for, weighted
from memagent.memory.question import read_question
from memagent.replies.events import parse_window
from memagent.state.fold import BankState

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
        groups = _by_session(plain_hits, timed_hits, state)
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
        order = sorted(groups, key=lambda name: (-_score(groups[name]), name or ""))
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


def _by_session(
    plain: Sequence[Hit], timed: Sequence[Sequence[Hit]], state: BankState
) -> dict[str | None, list[Hit]]:
    merged = {hit.id: hit for hit in plain}
    for hits in timed:
        for hit in hits:
            merged.setdefault(hit.id, weighted(hit))
    groups: dict[str | None, list[Hit]] = {}
    for hit in sorted(merged.values(), key=lambda hit: (-hit.score, hit.id)):
        groups.setdefault(session_of(hit, state), []).append(hit)
    return groups


def _score(hits: Sequence[Hit]) -> float:
    return sum(hit.score for hit in hits[:_SCORED_HITS])


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
