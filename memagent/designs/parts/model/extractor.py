"""An extractor that asks a model for the facts of a chunk, and anchors each in its turn
and on the calendar.

The model says what was told and by which turn; everything that follows from the turn is
the system's: who said it, when, how far it is trusted. A fact whose turn is not part of
the chunk is rejected, and relative time is resolved against the day the turn was said.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile
from typing import Final

from memagent.core.exchange import JsonSchema, Role
from memagent.core.ops import Rejected, RejectReason
from memagent.core.records import Chunk, Fact, Session, TimeSpan, Trust, Turn, lowest_trust
from memagent.designs.base import Proposal, SlotContext
from memagent.designs.parts.asking import ask
from memagent.designs.parts.lines import day_of, turn_line
from memagent.designs.prompting import Prompt, fence, load_prompt, quoted
from memagent.replies.facts import FactDraft, parse_facts
from memagent.state.fold import folded
from memagent.timex.resolve import find_times, resolve_time

_TEXT: Final[JsonSchema] = {"type": "string"}
_TEXT_OR_NULL: Final[JsonSchema] = {"type": ["string", "null"]}
FACTS_SCHEMA: Final[JsonSchema] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["facts"],
    "properties": {
        "facts": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["text", "subject", "source", "when", "kind"],
                "properties": {
                    "text": _TEXT,
                    "subject": _TEXT_OR_NULL,
                    "source": _TEXT,
                    "when": _TEXT_OR_NULL,
                    "kind": {"type": "string", "enum": ["event", "preference", "plan", "fact"]},
                },
            },
        }
    },
}
"""What the extractor's reply should look like."""


@dataclass(frozen=True, kw_only=True)
class ModelExtractor:
    """Chunk to facts with one model call; a second one only when the first reply cannot be read."""

    prompt: str = "extract"
    context_turns: int = 4
    """Turns before the chunk that are shown for understanding; what only they say is not
    noted again.
    """
    retry: bool = True

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """The one prompt."""
        return (load_prompt(self.prompt),)

    async def __call__(self, chunk: Chunk, ctx: SlotContext, /) -> Proposal[Fact]:
        """Facts in the order the model wrote them; entries that name no turn of the
        chunk are rejected.
        """
        values = {
            "date": day_of(chunk.at)
            if chunk.at
            else "unknown, so leave relative time as it was told",
            "speakers": ", ".join(dict.fromkeys(quoted(turn.speaker) for turn in chunk.turns)),
            "earlier": fence(
                "earlier", map(turn_line, _turns_before(chunk, ctx.session, self.context_turns))
            ),
            "dialogue": fence("dialogue", map(turn_line, chunk.turns)),
        }
        asked = await ask(
            ctx,
            Role.EXTRACTOR,
            load_prompt(self.prompt),
            values=values,
            schema=FACTS_SCHEMA,
            parse=parse_facts,
            call=0,
            retry=self.retry,
        )
        read = [ground(draft, chunk) for draft in asked.parsed.values]
        return Proposal(
            values=tuple(fact for fact in read if isinstance(fact, Fact)),
            rejected=(*asked.parsed.rejected, *(bad for bad in read if isinstance(bad, Rejected))),
            parse=asked.statuses,
            responses=asked.responses,
        )


def ground(draft: FactDraft, chunk: Chunk) -> Fact | Rejected:
    """The fact with what its turns tell: speaker, date, trust and resolved time.

    A missing source is filled only when one turn can be meant.
    """
    by_id = {folded(turn.id): turn for turn in chunk.turns}
    foreign = [turn_id for turn_id in draft.source_turn_ids if folded(turn_id) not in by_id]
    turns = list(
        {
            turn.id: turn
            for turn_id in draft.source_turn_ids
            if (turn := by_id.get(folded(turn_id)))
        }.values()
    )
    if not foreign and not turns:
        turns = [
            turn
            for turn in chunk.turns
            if draft.speaker is None or folded(turn.speaker) == folded(draft.speaker)
        ]
    if foreign or (not draft.source_turn_ids and len(turns) != 1):
        detail = (
            f"turn {foreign[0]!r} is not part of the chunk"
            if foreign
            else "the fact names no turn, and several could be meant"
        )
        return Rejected(
            reason=RejectReason.FOREIGN_TURN, detail=detail, raw=draft.model_dump_json()[:500]
        )
    speakers = dict.fromkeys(turn.speaker for turn in turns)
    said_at = max((date for turn in turns if (date := turn.at or chunk.at)), default=None)
    return Fact(
        text=draft.text,
        subject=draft.subject,
        speaker=next(iter(speakers)) if len(speakers) == 1 else None,
        source_turn_ids=tuple(turn.id for turn in turns),
        valid=_time_of(draft, said_at),
        said_at=said_at,
        kind=draft.kind,
        trust=lowest_trust(turn.trust for turn in turns),
    )


def _time_of(draft: FactDraft, said_at: datetime | None) -> TimeSpan | None:
    """The time the draft names; without one that can be read, the only time its text mentions."""
    named = resolve_time(draft.when, anchor=said_at) if draft.when else None
    if named is not None:
        return named
    spans = {
        (mention.span.start, mention.span.end): mention.span
        for mention in find_times(draft.text, anchor=said_at)
    }
    return next(iter(spans.values())) if len(spans) == 1 else None


def _turns_before(chunk: Chunk, session: Session | None, count: int) -> list[Turn]:
    """The last turns of the session before the chunk, without those of tools and strangers."""
    if session is None or not count:
        return []
    before = list(takewhile(lambda turn: turn.id != chunk.turns[0].id, session.turns))
    return [turn for turn in before if turn.trust.rank <= Trust.ASSISTANT.rank][-count:]
