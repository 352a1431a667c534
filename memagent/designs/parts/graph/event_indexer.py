"""An indexer that asks a model which events a session tells and how they hang together.

The first call divides the dialogue into a few whole events; the second sees dialogue
and events and considers all pairs. What follows from the turns is the system's work:
date, resolved time, ids. Links to items, people and the time line are added by rules,
and new events are merged with earlier ones. Where a new event is near to an earlier one
but not so near as to be plainly the same, a third call judges all such pairs together.
Entries that cannot be read, events that name no turn of the session and relations that
break a rule of the graph are listed in `rejected` and stay out.
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
from memagent.designs.parts.asking import (
    INTEGER,
    TEXT,
    TEXT_OR_NULL,
    TEXTS,
    JsonCall,
    ask_for_json,
    list_schema,
    object_schema,
)
from memagent.designs.parts.graph.event_links import link_events
from memagent.designs.parts.grounding import Dialogue, echo_in, shares_content
from memagent.designs.parts.lines import date_text, event_notes, turn_line
from memagent.designs.prompting import OnePrompt, Prompt, fence, load_prompt, prompts_of, quoted
from memagent.events.merge import (
    EventJudge,
    Judgement,
    Likeness,
    MergeSettings,
    merge_events,
    near_pairs,
)
from memagent.replies.events import (
    MODEL_RELATIONS,
    EventDraft,
    RelationDraft,
    parse_events,
    parse_pairs,
    parse_relations,
)
from memagent.state.fold import folded
from memagent.timex.resolve import resolve_time

EVENTS_SCHEMA: Final[JsonSchema] = list_schema(
    "events",
    object_schema({"summary": TEXT, "people": TEXTS, "turns": TEXTS, "when": TEXT_OR_NULL}),
)
RELATIONS_SCHEMA: Final[JsonSchema] = list_schema(
    "relations",
    object_schema(
        {
            "source": INTEGER,
            "target": INTEGER,
            "relation": {
                "type": "string",
                "enum": sorted(relation.value for relation in MODEL_RELATIONS),
            },
            "label": TEXT,
            "turns": TEXTS,
            "confidence": {"type": "number"},
        }
    ),
)


PAIRS_SCHEMA: Final[JsonSchema] = list_schema(
    "pairs",
    object_schema(
        {
            "pair": INTEGER,
            "verdict": {"type": "string", "enum": [likeness.value for likeness in Likeness]},
            "label": TEXT,
        }
    ),
)
NearPair = tuple[Event, Event, float]
"""(earlier event, later event, cosine)."""


@dataclass(frozen=True, kw_only=True)
class MergeJudge(OnePrompt):
    """Judges near-equal events with at most one model call, or two if it is unreadable.

    Pairs whose cosine is at least `sure_cosine` are the same without asking; below the
    floor of the merge nobody asks. A pair that the reply does not settle falls back to
    the cosine, as without a judge.
    """

    sure_cosine: float = 0.97
    """At least this is the same event without asking."""
    most_pairs: int = 40
    """Pairs asked about, nearest first; the cosine decides about the rest."""
    prompt: str = "merge_events"
    retry: bool = True

    async def __call__(
        self, pairs: Sequence[NearPair], ctx: SlotContext, *, settings: MergeSettings, ordinal: int
    ) -> tuple[EventJudge, list[Rejected]]:
        """Return the judge, which asks nothing more, and the entries that were not read.

        `ordinal` counts its call among the indexer's calls.
        """
        verdicts = {
            _pair_key(first, later): Judgement(
                likeness=Likeness.SAME if cosine >= settings.same_cosine else Likeness.NEITHER
            )
            for first, later, cosine in pairs
        }
        unsure = [
            pair
            for pair in pairs
            if pair[2] < self.sure_cosine and pair[0].summary != pair[1].summary
        ][: self.most_pairs]
        rejected: list[Rejected] = []
        if unsure:
            lines = (line for i, pair in enumerate(unsure) for line in _pair_lines(i, pair))
            reply = await ask_for_json(
                ctx,
                JsonCall(
                    role=Role.INDEXER,
                    prompt=load_prompt(self.prompt),
                    schema=PAIRS_SCHEMA,
                    parse=lambda text: parse_pairs(text, pairs=len(unsure)),
                ),
                {"pairs": fence("pairs", lines)},
                ordinal=ordinal,
                retry=self.retry,
            )
            rejected += reply.parsed.rejected
            for draft in reply.parsed.values:
                first, later, _ = unsure[draft.pair]
                verdicts[_pair_key(first, later)] = draft.judgement

        async def judge(first: Event, later: Event) -> Judgement:
            return verdicts.get(_pair_key(first, later)) or Judgement(likeness=Likeness.NEITHER)

        return judge, rejected


def _pair_key(first: Event, later: Event) -> tuple[str, str]:
    return (first.summary, later.summary)


def _pair_lines(index: int, pair: NearPair) -> list[str]:
    first, later, _ = pair
    return [
        f"{index}. first: {event_notes(first)}{quoted(first.summary)}",
        f"   second: {event_notes(later)}{quoted(later.summary)}",
    ]


@dataclass(frozen=True, kw_only=True)
class EventIndexer:
    """Turns a session into merged events and edges, with two or three model calls.

    Each reply that cannot be read costs one more call.
    """

    judge: MergeJudge | None = MergeJudge()
    """Settles whether near events are one; without it the cosine decides."""
    merge: MergeSettings = MergeSettings()
    retry: bool = True

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """The prompts of the two calls and of the judge."""
        return (load_prompt("segment"), load_prompt("relate_events"), *prompts_of(self.judge))

    async def __call__(
        self,
        commits: Sequence[Commit],  # noqa: ARG002 - interface
        ctx: SlotContext,
        /,
    ) -> GraphDelta:
        """Return the session's additions; only `rejected` is filled when it tells no event."""
        session = ctx.session
        if session is None:
            return GraphDelta()
        events, rejected = await self._segment(session, ctx)
        edges: list[EventEdge] = []
        if len(events) > 1:
            edges, bad_edges = await self._relate(session, events, ctx)
            rejected += bad_edges
        linked = await link_events(ctx.bank, events)
        graph = linked.state.graph
        judge: EventJudge | None = None
        if self.judge is not None:
            pairs = near_pairs(graph, events, vectors=linked.vectors, settings=self.merge)
            judge, bad_verdicts = await self.judge(pairs, ctx, settings=self.merge, ordinal=4)
            rejected += bad_verdicts
        proposal = linked.delta.model_copy(
            update={
                "edges": (*edges, *linked.delta.edges),
                "session_id": session.id,
                "rejected": tuple(
                    f"{entry.detail}: {entry.raw}" if entry.raw else entry.detail
                    for entry in rejected
                ),
            }
        )
        return await merge_events(
            graph, proposal, vectors=linked.vectors, judge=judge, settings=self.merge
        )

    async def _segment(
        self, session: Session, ctx: SlotContext
    ) -> tuple[list[Event], list[Rejected]]:
        reply = await ask_for_json(
            ctx,
            JsonCall(
                role=Role.INDEXER,
                prompt=load_prompt("segment"),
                schema=EVENTS_SCHEMA,
                parse=parse_events,
            ),
            {
                "date": date_text(session.at),
                "speakers": ", ".join(map(quoted, session.speakers)),
                "dialogue": _dialogue(session),
            },
            ordinal=0,
            retry=self.retry,
        )
        results = [_ground(draft, session, at) for at, draft in enumerate(reply.parsed.values)]
        events = {event.id: event for event in results if isinstance(event, Event)}
        rejected = [entry for entry in results if isinstance(entry, Rejected)]
        return list(events.values()), [*reply.parsed.rejected, *rejected]

    async def _relate(
        self, session: Session, events: Sequence[Event], ctx: SlotContext
    ) -> tuple[list[EventEdge], list[Rejected]]:
        reply = await ask_for_json(
            ctx,
            JsonCall(
                role=Role.INDEXER,
                prompt=load_prompt("relate_events"),
                schema=RELATIONS_SCHEMA,
                parse=lambda text: parse_relations(text, events=len(events)),
            ),
            {
                "date": date_text(session.at),
                "dialogue": _dialogue(session),
                "events": fence(
                    "events", (_event_line(i, event) for i, event in enumerate(events))
                ),
            },
            ordinal=2,
            retry=self.retry,
        )
        edges = [_edge(draft, events, session) for draft in reply.parsed.values]
        return edges, list(reply.parsed.rejected)


def _ground(draft: EventDraft, session: Session, order: int) -> Event | Rejected:
    """Fill date, time and people of an event from its turns.

    Reject it when it names no turn of the session or shares no content with its turns;
    turns of other sessions are left out.
    """
    turn_ids = _turns_of(draft.turn_ids, session)
    if not turn_ids:
        detail = f"the event names no turn of session {session.id!r}"
        return Rejected(reason=RejectReason.FOREIGN_TURN, detail=detail, raw=draft.summary[:120])
    turns = [turn for turn in session.turns if turn.id in turn_ids]
    said_at = session.date_of(turns[0])
    dialogue = Dialogue(session.turns)
    echo = echo_in(draft.summary, load_prompt("segment").examples, dialogue)
    if echo or not shares_content(draft.summary, turns, dialogue, said_at=said_at):
        detail = "the event repeats the prompt" if echo else "no word of it is in its turns"
        return Rejected(reason=RejectReason.UNGROUNDED, detail=detail, raw=draft.summary[:120])
    told = (*(turn.text for turn in turns), draft.summary)
    return Event(
        id=content_id("evt", *turn_ids, draft.summary),
        summary=draft.summary,
        people=draft.people or tuple(dict.fromkeys(turn.speaker for turn in turns)),
        source_turn_ids=turn_ids,
        time_text=draft.when,
        valid=resolve_time(draft.when, anchor=said_at, told=told) if draft.when else None,
        said_at=said_at,
        session_id=session.id,
        order=order,
    )


def _turns_of(names: Iterable[str], session: Session) -> tuple[str, ...]:
    """Return the ids of the named turns of a session, in the session's order."""
    last = {folded(turn.id): turn.id for turn in session.turns}
    named = {last.get(folded(name)) for name in names}
    return tuple(turn.id for turn in session.turns if turn.id in named)


def _edge(draft: RelationDraft, events: Sequence[Event], session: Session) -> EventEdge:
    return EventEdge(
        source=events[draft.source].id,
        target=events[draft.target].id,
        relation=draft.relation,
        label=draft.label,
        evidence_turn_ids=_turns_of(draft.turn_ids, session),
        confidence=draft.confidence,
    )


def _dialogue(session: Session) -> str:
    return fence("dialogue", (turn_line(turn) for turn in session.turns if not turn.recalled))


def _event_line(index: int, event: Event) -> str:
    when = f" (time {quoted(event.time_text)})" if event.time_text else ""
    return f"{index}. {quoted(event.summary)}{when}"
