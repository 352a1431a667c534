"""An answerer that shows memories under their sessions, has the model name its evidence
sessions first, and holds it to them.

Only memories of the sessions named (and such as belong to none) may be cited; the best
one of each is where the model cites none itself. The sessions are recorded on the
answer. Naming one that was not shown, or citing outside those named, is noted and has
no effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from memagent.core.answers import Answer, Citation, Hit, Question, Verdict
from memagent.core.exchange import JsonSchema
from memagent.core.records import Session
from memagent.designs.base import SlotContext
from memagent.designs.parts.changes import change_lines, change_notes
from memagent.designs.parts.lines import day_of, hit_line
from memagent.designs.parts.model.answerer import (
    NO_ANSWER,
    UNREADABLE,
    asked_for,
    in_time_order,
    nothing_found,
)
from memagent.designs.parts.retrieval.sessions import session_of
from memagent.designs.prompting import Prompt, fence, load_prompt, quoted
from memagent.replies.answers import AnswerDraft
from memagent.state.fold import folded
from memagent.state.versions import clashes

_TEXTS: Final[JsonSchema] = {"type": "array", "items": {"type": "string"}}
SESSION_ANSWER_SCHEMA: Final[JsonSchema] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["sessions", "citations", "answer", "abstain"],
    "properties": {
        "sessions": _TEXTS,
        "citations": _TEXTS,
        "answer": {"type": "string"},
        "abstain": {"type": "boolean"},
    },
}
"""What the answerer's reply should look like."""
Groups = Mapping[str | None, Sequence[Hit]]
"""Hits by session id, in the order of retrieval; None holds what belongs to no session."""


@dataclass(frozen=True, kw_only=True)
class SessionAnswerer:
    """Question and hits to an answer with named evidence sessions, with one model call."""

    prompt: str = "answer_sessions"

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """The one prompt."""
        return (load_prompt(self.prompt),)

    async def __call__(
        self, question: Question, hits: Sequence[Hit], ctx: SlotContext, /
    ) -> Answer:
        """The answer; UNSUPPORTED when it names no session that was shown, ABSTAINED as
        `ModelAnswerer` does.
        """
        if not hits and not ctx.tools and not ctx.transcript:
            return nothing_found(question)
        groups: dict[str | None, list[Hit]] = {}
        for hit in hits:
            groups.setdefault(session_of(hit, ctx.bank.state), []).append(hit)
        found = clashes(hits, ctx.bank.state)
        response, draft = await asked_for(
            question,
            ctx,
            load_prompt(self.prompt),
            schema=SESSION_ANSWER_SCHEMA,
            sessions=fence("sessions", _lines(groups, ctx.bank.state.sessions)),
            changes=fence("changes", change_lines(found)) if found else "",
        )
        abstained = draft is None or draft.abstain
        named, citations, notes = ((), (), [UNREADABLE]) if draft is None else _held(draft, groups)
        return Answer(
            text=(draft.text if draft else "") or NO_ANSWER,
            citations=() if abstained else citations,
            verdict=Verdict.ABSTAINED
            if abstained
            else Verdict.SUPPORTED
            if citations
            else Verdict.UNSUPPORTED,
            notes=(*notes, *change_notes(found, [one.hit_id for one in citations])),
            hits=tuple(hits),
            evidence_sessions=() if abstained else named,
            usage=response.usage,
            response_ids=(response.id,),
            question=question,
        )


def _held(
    draft: AnswerDraft, groups: Groups
) -> tuple[tuple[str, ...], tuple[Citation, ...], list[str]]:
    """The sessions named that were shown, the citations within them, and notes on what was dropped."""
    shown = {folded(name): name for name in groups if name is not None}
    named = tuple(
        dict.fromkeys(shown[folded(one)] for one in draft.sessions if folded(one) in shown)
    )
    foreign = [one for one in draft.sessions if folded(one) not in shown]
    notes: list[str] = []
    if foreign:
        notes.append(
            f"sessions that were not shown were dropped: {', '.join(one[:80] for one in foreign[:8])}"
        )
    allowed = _by_id(
        hit for name, hits in groups.items() if name is None or name in named for hit in hits
    )
    everything = _by_id(hit for hits in groups.values() for hit in hits)
    outside = [one for one in draft.citations if one in everything and one not in allowed]
    if outside and not draft.abstain:
        notes.append(f"citations outside the sessions named were dropped: {', '.join(outside[:8])}")
    cited = [
        allowed.get(one) or Citation(hit_id=one) for one in draft.citations if one not in outside
    ]
    if not any(one in allowed for one in draft.citations):
        cited += [Citation(hit_id=groups[name][0].id) for name in named]
    if not named and not draft.abstain:
        notes.append("the model named no session that it was shown")
    return named, tuple(cited), notes


def _by_id(hits: Iterable[Hit]) -> dict[str, Citation]:
    """What may be cited, by the ids of the hits and of the turns they rest on."""
    known: dict[str, Citation] = {}
    for hit in hits:
        known[hit.id] = Citation(hit_id=hit.id)
        for turn_id in hit.source_turn_ids:
            known.setdefault(turn_id, Citation(hit_id=hit.id, turn_id=turn_id))
    return known


def _lines(groups: Groups, sessions: Mapping[str, Session]) -> list[str]:
    """A line for each session, undated ones first, and under it one for each of its
    memories in order of time.
    """
    lines: list[str] = []
    dated = {name: sessions[name].at for name in groups if name is not None}
    order = sorted(
        dated, key=lambda name: (at.timestamp() if (at := dated[name]) else float("-inf"), name)
    )
    for name in order:
        at = dated[name]
        lines.append(f"Session [{quoted(name)}]{f', {day_of(at)}' if at else ''}")
        lines += [f"  {hit_line(hit, version=False)}" for hit in in_time_order(groups[name])]
    if None in groups:
        lines.append("Of no session")
        lines += [f"  {hit_line(hit, version=False)}" for hit in in_time_order(groups[None])]
    return lines
