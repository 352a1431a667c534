"""An answerer that shows memories by session and has the model name its evidence first.

Only memories of the named sessions (and memories that belong to no session) may be
cited. Where the model cites none, the best memory of each named session is cited. The
sessions are recorded on the answer. Naming a session that was not shown, or citing
outside the named ones, is noted and has no effect.

An answerer that shows the memories in order of time and has the model select first.

The selection is the reply's first key, so the answer is written with it in view. It is
also the list of citations, which the `cite` step checks against what was shown. Without
hits and without tools it abstains without a call. Where one memory shown replaced
another or contradicts it, the prompt names both with their dates, and so do the
answer's notes, by rule and whatever the model wrote.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from memagent.core.answers import Answer, Citation, Hit, Question, Verdict
from memagent.core.exchange import JsonSchema, ModelResponse, Role
from memagent.core.records import Session
from memagent.designs.base import OnePrompt, SlotContext, fence, quoted
from memagent.designs.parts.lines import (
    TEXT,
    TEXTS,
    ask_about,
    hit_line,
    hit_lines,
    in_time_order,
    named,
    object_schema,
    question_values,
    short_names,
    weekday_text,
)
from memagent.designs.parts.rewriting import change_lines, change_notes
from memagent.designs.parts.rules.answerer import overview
from memagent.designs.parts.sessions import session_of
from memagent.replies.events import AnswerDraft, parse_answer
from memagent.state.fold import folded
from memagent.state.versions import clashes

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
        groups: dict[str | None, list[Hit]] = {}
        for hit in hits:
            groups.setdefault(session_of(hit, ctx.bank.state), []).append(hit)
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
