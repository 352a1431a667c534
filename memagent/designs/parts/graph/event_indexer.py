"""An indexer that asks a model twice a session: which events it tells, and how these
hang together; at times a third time.

The first call divides the dialogue into a few whole events; the second sees dialogue
and events and considers all pairs. What follows from the turns is the system's: date,
resolved time, ids; links to items, people and the time line are added by rules, and new
events are merged with those told before. Where a new event is near to one told before
but not so near as to be plainly the same, a third call judges all such pairs together.
Entries that cannot be read, events that name no turn of the session and relations that
break a rule of the graph are told in `rejected` and stay out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from memagent.core.exchange import JsonSchema, Role
from memagent.core.ops import Rejected, RejectReason
from memagent.core.records import Event, EventEdge, Session, content_id
from memagent.core.snapshot import Commit, GraphDelta
from memagent.designs.base import SlotContext
from memagent.designs.parts.asking import ask
from memagent.designs.parts.graph.event_links import linked
from memagent.designs.parts.graph.merge_judge import MergeJudge
from memagent.designs.parts.lines import day_of, turn_line
from memagent.designs.prompting import Prompt, fence, load_prompt, prompts_of, quoted
from memagent.events.merge import (
    EventJudge,
    MergeSettings,
    event_texts,
    merge_events,
    near_pairs,
    open_events,
)
from memagent.memory.event_vectors import text_vectors
from memagent.replies.events import (
    MODEL_RELATIONS,
    EventDraft,
    RelationDraft,
    parse_events,
    parse_relations,
)
from memagent.state.fold import folded
from memagent.timex.resolve import resolve_time

_TEXT: Final[JsonSchema] = {"type": "string"}
_TEXTS: Final[JsonSchema] = {"type": "array", "items": _TEXT}


def _list_of(key: str, properties: JsonSchema) -> JsonSchema:
    entry = {
        "type": "object",
        "additionalProperties": False,
        "required": list(properties),
        "properties": properties,
    }
    return {
        "type": "object",
        "additionalProperties": False,
        "required": [key],
        "properties": {key: {"type": "array", "items": entry}},
    }


EVENTS_SCHEMA: Final = _list_of(
    "events",
    {"summary": _TEXT, "people": _TEXTS, "turns": _TEXTS, "when": {"type": ["string", "null"]}},
)
"""What the reply to `segment` should look like."""
RELATIONS_SCHEMA: Final = _list_of(
    "relations",
    {
        "source": {"type": "integer"},
        "target": {"type": "integer"},
        "relation": {"type": "string", "enum": sorted(one.value for one in MODEL_RELATIONS)},
        "label": _TEXT,
        "turns": _TEXTS,
        "confidence": {"type": "number"},
    },
)
"""What the reply to `relate_events` should look like."""


@dataclass(frozen=True, kw_only=True)
class EventIndexer:
    """A session to merged events and edges, with two or three model calls; one more for
    each reply that cannot be read.
    """

    judge: MergeJudge | None = MergeJudge()
    """Settles whether near events are one; without it the cosine decides."""
    merge: MergeSettings = MergeSettings()
    retry: bool = True

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """Those of the two calls, and the judge's."""
        return (load_prompt("segment"), load_prompt("relate_events"), *prompts_of(self.judge))

    async def __call__(self, commits: Sequence[Commit], ctx: SlotContext, /) -> GraphDelta:
        """What the session adds; only `rejected` is filled when it tells of no event."""
        session = ctx.session
        if session is None:
            return GraphDelta()
        events, refused = await self._segment(session, ctx)
        edges: list[EventEdge] = []
        if len(events) > 1:
            edges, more = await self._relate(session, events, ctx)
            refused += more
        state = await ctx.bank.sync()
        proposal = linked(state, events)
        texts = [
            text for event in (*open_events(state.graph), *events) for text in event_texts(event)
        ]
        vectors = await text_vectors(ctx.bank, texts)
        judge: EventJudge | None = None
        if self.judge is not None:
            pairs = near_pairs(state.graph, events, vectors=vectors, settings=self.merge)
            judge, more = await self.judge(pairs, ctx, settings=self.merge, call=4)
            refused += more
        proposal = proposal.model_copy(
            update={
                "edges": (*edges, *proposal.edges),
                "session_id": session.id,
                "rejected": tuple(
                    f"{bad.detail}: {bad.raw}" if bad.raw else bad.detail for bad in refused
                ),
            }
        )
        return await merge_events(
            state.graph, proposal, vectors=vectors, judge=judge, settings=self.merge
        )

    async def _segment(
        self, session: Session, ctx: SlotContext
    ) -> tuple[list[Event], list[Rejected]]:
        asked = await ask(
            ctx,
            Role.INDEXER,
            load_prompt("segment"),
            values={
                "date": _date(session),
                "speakers": ", ".join(map(quoted, session.speakers)),
                "dialogue": _dialogue(session),
            },
            schema=EVENTS_SCHEMA,
            parse=parse_events,
            call=0,
            retry=self.retry,
        )
        read = [grounded(draft, session, order) for order, draft in enumerate(asked.parsed.values)]
        events = {one.id: one for one in read if isinstance(one, Event)}
        refused = [one for one in read if isinstance(one, Rejected)]
        return list(events.values()), [*asked.parsed.rejected, *refused]

    async def _relate(
        self, session: Session, events: Sequence[Event], ctx: SlotContext
    ) -> tuple[list[EventEdge], list[Rejected]]:
        asked = await ask(
            ctx,
            Role.INDEXER,
            load_prompt("relate_events"),
            values={
                "date": _date(session),
                "dialogue": _dialogue(session),
                "events": fence(
                    "events", (_event_line(i, event) for i, event in enumerate(events))
                ),
            },
            schema=RELATIONS_SCHEMA,
            parse=lambda text: parse_relations(text, events=len(events)),
            call=2,
            retry=self.retry,
        )
        edges = [_edge(draft, events, session) for draft in asked.parsed.values]
        return edges, list(asked.parsed.rejected)


def grounded(draft: EventDraft, session: Session, order: int) -> Event | Rejected:
    """The event with what its turns tell; rejected when it names no turn of the session.

    Turns of other sessions are left out.
    """
    turns = _turns_of(draft.turn_ids, session)
    if not turns:
        detail = f"the event names no turn of session {session.id!r}"
        return Rejected(reason=RejectReason.FOREIGN_TURN, detail=detail, raw=draft.summary[:120])
    chosen = [turn for turn in session.turns if turn.id in turns]
    said_at = session.date_of(chosen[0])
    valid = resolve_time(draft.when, anchor=said_at) if draft.when else None
    return Event(
        id=content_id("evt", *(turn.id for turn in chosen), draft.summary),
        summary=draft.summary,
        people=draft.people or tuple(dict.fromkeys(turn.speaker for turn in chosen)),
        source_turn_ids=tuple(turn.id for turn in chosen),
        time_text=draft.when,
        valid=valid,
        said_at=said_at,
        session_id=session.id,
        order=order,
    )


def _turns_of(turn_ids: Iterable[str], session: Session) -> set[str]:
    known = {folded(turn.id): turn.id for turn in session.turns}
    return {known[folded(one)] for one in turn_ids if folded(one) in known}


def _edge(draft: RelationDraft, events: Sequence[Event], session: Session) -> EventEdge:
    found = _turns_of(draft.turn_ids, session)
    return EventEdge(
        source=events[draft.source].id,
        target=events[draft.target].id,
        relation=draft.relation,
        label=draft.label,
        evidence_turn_ids=tuple(turn.id for turn in session.turns if turn.id in found),
        confidence=draft.confidence,
    )


def _date(session: Session) -> str:
    return day_of(session.at) if session.at else "unknown, so leave relative time as it was told"


def _dialogue(session: Session) -> str:
    return fence("dialogue", (turn_line(turn) for turn in session.turns if not turn.recalled))


def _event_line(index: int, event: Event) -> str:
    when = f" (time {quoted(event.time_text)})" if event.time_text else ""
    return f"{index}. {quoted(event.summary)}{when}"
