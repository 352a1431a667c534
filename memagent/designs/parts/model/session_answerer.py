"""An answerer that shows memories by session and has the model name its evidence first.

Only memories of the named sessions (and memories that belong to no session) may be
cited. Where the model cites none, the best memory of each named session is cited. The
sessions are recorded on the answer. Naming a session that was not shown, or citing
outside the named ones, is noted and has no effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from memagent.core.answers import Answer, Citation, Hit, Question
from memagent.core.exchange import JsonSchema
from memagent.core.records import Session
from memagent.designs.base import SlotContext
from memagent.designs.parts.asking import TEXTS, object_schema, question_values
from memagent.designs.parts.changes import change_lines, change_notes
from memagent.designs.parts.lines import hit_line, in_time_order, weekday_text
from memagent.designs.parts.model.answerer import (
    ANSWER_SCHEMA,
    ask_for_answer,
    no_evidence,
    nothing_to_show,
)
from memagent.designs.parts.retrieval.sessions import session_of
from memagent.designs.prompting import OnePrompt, fence, quoted
from memagent.replies.answers import AnswerDraft
from memagent.state.fold import folded
from memagent.state.versions import clashes

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
