"""A retriever that goes from coarse to fine: the time a question asks about, the
sessions that fit it, the best memories of each.

The time is what the model says or, where it says nothing that can be read, what the
rules read from the question. Sessions that were held then or tell of then come first; a
few of the most relevant others are kept beside them, since people tell of things long
after. Without a time, relevance alone decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from memagent.core.answers import Filter, Hit, Question
from memagent.core.exchange import JsonSchema, Role
from memagent.core.ops import Rejected
from memagent.core.records import TimeSpan
from memagent.designs.base import SlotContext
from memagent.designs.parts.lines import day_of
from memagent.designs.parts.retrieval.hybrid import query_for
from memagent.designs.prompting import Prompt, fence, load_prompt, quoted
from memagent.memory.question import read_question
from memagent.replies.time_window import parse_window
from memagent.state.fold import BankState

_DAY: Final[JsonSchema] = {"type": ["string", "null"]}
WINDOW_SCHEMA: Final[JsonSchema] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["from", "to"],
    "properties": {"from": _DAY, "to": _DAY},
}
"""What the planner's reply should look like."""
_OF_TIME = 0.25
"""What a hit of the time alone counts, beside one of the plain search."""
_COUNTED = 3
"""Best hits of a session that make its score."""


@dataclass(frozen=True, kw_only=True)
class Window:
    """The time a question is about, and who said so."""

    span: TimeSpan | None
    by: Literal["model", "rules", "nobody"]
    rejected: tuple[Rejected, ...] = ()
    """Why the model's reply could not be used."""


@dataclass(frozen=True, kw_only=True)
class SessionRetriever:
    """The best memories of the sessions that fit a question's time and words."""

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
    """Whether one planner call may give the window; without it the rules alone do, and no
    model is asked.
    """
    prompt: str = "window"

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """The planner's, if it is asked."""
        return (load_prompt(self.prompt),) if self.ask_model else ()

    async def __call__(self, question: Question, ctx: SlotContext, /) -> list[Hit]:
        """Hits session by session, sessions inside the window first, then by relevance;
        [] and no call over an empty memory.

        Each hit's `why` tells its session's rank, and `window` 1 or 0 where the
        question has a time. Scores fall from session to session and are comparable
        within this list only. Memories that belong to no session come last.
        """
        state = await ctx.bank.sync()
        if next(state.active(), None) is None:
            return []
        window = await self.window(question, ctx)
        ctx.trail.notes.extend(
            f"the model's time window could not be read ({bad.detail}); {_FALLEN_BACK[window.by]}"
            for bad in window.rejected
        )
        query = query_for(question)
        wheres = [question.where, *_narrowed(question.where, window.span)]
        queries = [query.model_copy(update={"where": where}) for where in wheres]
        plain, *timed = await ctx.bank.search_many(queries, k=self.pool)
        groups = _by_session([plain, *timed], state)
        loose = groups.pop(None, [])
        inside = {session_of(hit, state) for hits in timed for hit in hits}
        chosen = self._chosen(groups, inside if window.span is not None else set(groups))
        found: list[Hit] = []
        for rank, name in enumerate(chosen, 1):
            arms = {"session": groups[name][0].score}
            if window.span is not None:
                arms["window"] = float(name in inside)
            found += [
                _placed(hit, len(chosen) - rank + 1, arms, rank)
                for hit in groups[name][: self.per_session]
            ]
        return [*found, *(_placed(hit, 0, {}, None) for hit in loose[: self.per_session])]

    async def window(self, question: Question, ctx: SlotContext) -> Window:
        """The time a question is about."""
        asked_at = question.asked_at or ctx.clock()
        ruled = read_question(question.text, asked_at=asked_at).span
        by_rule = Window(span=ruled, by="rules" if ruled is not None else "nobody")
        if not self.ask_model:
            return by_rule
        prompt = load_prompt(self.prompt)
        messages = prompt.messages(
            asked=f"The question is asked on {day_of(asked_at)}.",
            covered=_covered(ctx.bank.state),
            question=fence("question", [quoted(question.text)]),
        )
        response = await ctx.call(
            Role.PLANNER,
            messages,
            schema=WINDOW_SCHEMA,
            question_id=question.id,
            prompt_digest=prompt.digest,
        )
        parsed = parse_window(response.text, asked_at=asked_at)
        if parsed.values:
            return Window(span=parsed.values[0], by="model")
        return Window(span=by_rule.span, by=by_rule.by, rejected=parsed.rejected)

    def _chosen(
        self, groups: dict[str | None, list[Hit]], inside: set[str | None]
    ) -> list[str | None]:
        """The sessions to show: those inside, best first, then the best of the others;
        never more than `sessions`.
        """
        order = sorted(groups, key=lambda name: (-_score(groups[name]), name or ""))
        fitting = [name for name in order if name in inside]
        others = [name for name in order if name not in inside]
        if not fitting:
            return others[: self.sessions]
        beside = others[: min(self.outside, self.sessions)]
        return [*fitting[: self.sessions - len(beside)], *beside]


_FALLEN_BACK: Final = {
    "rules": "the time that the rules read from the question was used",
    "nobody": "no time was asked for as far as the rules can tell",
    "model": "",
}


def session_of(hit: Hit, state: BankState) -> str | None:
    """The session in which what a hit tells was last said; None when it belongs to none."""
    for turn_id in reversed(hit.source_turn_ids):
        place = state.turns.get(turn_id)
        if place is not None:
            return place[0]
    record = hit.item or hit.event
    known = record.session_id if record is not None else None
    return known if known in state.sessions else None


def _by_session(found: Sequence[Sequence[Hit]], state: BankState) -> dict[str | None, list[Hit]]:
    """Hits by session, those of the plain search (the first list) before those of the
    time alone, each once.
    """
    known: dict[str, Hit] = {}
    for number, hits in enumerate(found):
        for hit in hits:
            known.setdefault(
                hit.id,
                hit if number == 0 else hit.model_copy(update={"score": _OF_TIME * hit.score}),
            )
    groups: dict[str | None, list[Hit]] = {}
    for hit in sorted(known.values(), key=lambda hit: (-hit.score, hit.id)):
        groups.setdefault(session_of(hit, state), []).append(hit)
    return groups


def _score(hits: Sequence[Hit]) -> float:
    return sum(hit.score for hit in hits[:_COUNTED])


def _placed(hit: Hit, floor: int, arms: dict[str, float], rank: int | None) -> Hit:
    ranks = {"session": rank} if rank is not None else {}
    why = hit.why.model_copy(
        update={"arms": {**hit.why.arms, **arms}, "ranks": {**hit.why.ranks, **ranks}}
    )
    return hit.model_copy(update={"score": floor + min(hit.score, 0.999), "why": why})


def _narrowed(where: Filter, span: TimeSpan | None) -> Iterable[Filter]:
    """The filter narrowed to a time on each axis that it leaves open."""
    if span is None:
        return []
    axes = [axis for axis, given in (("valid", where.valid), ("said", where.said)) if given is None]
    return [where.model_copy(update={axis: span}) for axis in axes]


def _covered(state: BankState) -> str:
    days = [session.at for session in state.sessions.values() if session.at is not None]
    return (
        f"The conversations were held between {day_of(min(days))} and {day_of(max(days))}."
        if days
        else ""
    )
