"""An extractor that asks a model for the facts of a chunk.

The model says what was told and by which turn. Everything that follows from the turn is
the system's work: who said it, when, how far it is trusted. A fact whose turn is not
part of the chunk is rejected, and relative time is resolved against the day the turn
was said.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile
from typing import Final

from memagent.core.exchange import JsonSchema, Role
from memagent.core.ops import Rejected, RejectReason
from memagent.core.records import Chunk, Fact, TimeSpan, Trust, Turn, lowest_trust
from memagent.designs.base import Proposal, SlotContext
from memagent.designs.parts.asking import (
    TEXT,
    TEXT_OR_NULL,
    JsonCall,
    JsonReply,
    ask_for_json,
    list_schema,
    object_schema,
)
from memagent.designs.parts.lines import date_text, turn_line
from memagent.designs.prompting import OnePrompt, fence, load_prompt, quoted
from memagent.memory.threads import thread_turns
from memagent.replies.facts import FactDraft, parse_facts
from memagent.state.fold import folded
from memagent.timex.resolve import find_times, resolve_time

FACTS_SCHEMA: Final[JsonSchema] = list_schema(
    "facts",
    object_schema(
        {
            "text": TEXT,
            "subject": TEXT_OR_NULL,
            "source": TEXT,
            "when": TEXT_OR_NULL,
            "kind": {"type": "string", "enum": ["event", "preference", "plan", "fact"]},
        }
    ),
)


@dataclass(frozen=True, kw_only=True)
class ModelExtractor(OnePrompt):
    """Turns a chunk into facts with one model call, or two if the first reply is unreadable."""

    prompt: str = "extract"
    context_turns: int = 4
    """Turns before the chunk that are shown for understanding; facts that only they tell
    are not noted again.
    """
    retry: bool = True

    async def __call__(self, chunk: Chunk, ctx: SlotContext, /) -> Proposal[Fact]:
        """Return facts in the order the model wrote them.

        Entries that name no turn of the chunk are rejected.
        """
        earlier = _turns_before(chunk, ctx, self.context_turns)
        values = {
            "date": date_text(chunk.at),
            "speakers": ", ".join(dict.fromkeys(quoted(turn.speaker) for turn in chunk.turns)),
            "earlier": fence("earlier", map(turn_line, earlier)),
            "dialogue": fence("dialogue", map(turn_line, chunk.turns)),
        }
        json_call = facts_call(self.prompt, FACTS_SCHEMA)
        reply = await ask_for_json(ctx, json_call, values, ordinal=0, retry=self.retry)
        return grounded(reply, reply.parsed.values, chunk)


def facts_call(prompt: str, schema: JsonSchema) -> JsonCall[FactDraft]:
    """Return the call by which an extractor asks for facts."""
    return JsonCall(
        role=Role.EXTRACTOR, prompt=load_prompt(prompt), schema=schema, parse=parse_facts
    )


def grounded(
    reply: JsonReply[FactDraft], drafts: Iterable[FactDraft], chunk: Chunk
) -> Proposal[Fact]:
    """Propose the drafts that name turns of the chunk, and reject the others."""
    results = [_ground(draft, chunk) for draft in drafts]
    return reply.proposal(
        (fact for fact in results if isinstance(fact, Fact)),
        (rejected for rejected in results if isinstance(rejected, Rejected)),
    )


def _ground(draft: FactDraft, chunk: Chunk) -> Fact | Rejected:
    """Fill speaker, date, trust and resolved time of a fact from its turns.

    A missing source is filled only when one turn can be meant.
    """
    by_id = {folded(turn.id): turn for turn in chunk.turns}
    sources = draft.source_turn_ids
    foreign = next((turn_id for turn_id in sources if folded(turn_id) not in by_id), None)
    turns = [by_id[key] for key in dict.fromkeys(map(folded, sources)) if key in by_id]
    if not sources:
        turns = [
            turn
            for turn in chunk.turns
            if draft.speaker is None or folded(turn.speaker) == folded(draft.speaker)
        ]
    if foreign is not None or (not sources and len(turns) != 1):
        detail = (
            f"turn {foreign!r} is not part of the chunk"
            if foreign is not None
            else "the fact names no turn, and several could be meant"
        )
        return Rejected(
            reason=RejectReason.FOREIGN_TURN, detail=detail, raw=draft.model_dump_json()[:500]
        )
    speakers = {turn.speaker for turn in turns}
    said_at = max((date for turn in turns if (date := turn.at or chunk.at)), default=None)
    return Fact(
        text=draft.text,
        subject=draft.subject,
        speaker=turns[0].speaker if len(speakers) == 1 else None,
        source_turn_ids=tuple(turn.id for turn in turns),
        valid=_time_of(draft, said_at),
        said_at=said_at,
        kind=draft.kind,
        trust=lowest_trust(turn.trust for turn in turns),
    )


def _time_of(draft: FactDraft, said_at: datetime | None) -> TimeSpan | None:
    """Resolve the time the draft names, or else the only time its text mentions."""
    named = resolve_time(draft.when, anchor=said_at) if draft.when else None
    if named is not None:
        return named
    spans = {
        (mention.span.start, mention.span.end): mention.span
        for mention in find_times(draft.text, anchor=said_at)
    }
    return next(iter(spans.values())) if len(spans) == 1 else None


def _turns_before(chunk: Chunk, ctx: SlotContext, count: int) -> list[Turn]:
    """Return the last turns before a chunk, of earlier days of its thread too."""
    session = ctx.session
    if session is None or not count:
        return []
    turns = thread_turns(ctx.bank.state, session.thread) if session.thread else session.turns
    before = takewhile(lambda turn: turn.id != chunk.turns[0].id, turns)
    return [turn for turn in before if turn.trust.rank <= Trust.ASSISTANT.rank][-count:]
