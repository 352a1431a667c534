"""An indexer that asks a model which events a session tells and how they hang together.

The first call divides the dialogue into a few whole events; the second sees dialogue
and events and considers all pairs. What follows from the turns is the system's work:
date, resolved time, ids. Links to items, people and the time line are added by rules,
and new events are merged with earlier ones. Where a new event is near to an earlier one
but not so near as to be plainly the same, a third call judges all such pairs together.
Entries that cannot be read, events that name no turn of the session and relations that
break a rule of the graph are listed in `rejected` and stay out.

Edges that tie a session's new events to people, names, items and the time line.

Shared by both indexers. Nothing here asks a model; entity nodes that exist already are
left as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from memagent.core.exchange import JsonSchema, Role
from memagent.core.ops import Rejected, RejectReason
from memagent.core.records import (
    Event,
    EventEdge,
    NodeKind,
    Relation,
    Session,
    content_id,
    lowest_trust,
)
from memagent.core.snapshot import Commit, GraphDelta
from memagent.designs.base import (
    OnePrompt,
    Prompt,
    SlotContext,
    fence,
    load_prompt,
    prompts_of,
    quoted,
)
from memagent.designs.parts.lines import (
    INTEGER,
    TEXT,
    TEXT_OR_NULL,
    TEXTS,
    JsonCall,
    ask_for_json,
    date_text,
    event_notes,
    list_schema,
    object_schema,
    turn_line,
)
from memagent.designs.parts.model_extractor import Dialogue, echo_in, shares_content
from memagent.events.merge import (
    EventJudge,
    Judgement,
    Likeness,
    MergeSettings,
    event_texts,
    merge_events,
    near_pairs,
    open_events,
    story_key,
)
from memagent.memory.bank import MemoryBank, text_vectors
from memagent.protocols import Vector
from memagent.replies.entries import extract_json, ids_at, index_of
from memagent.replies.readers import (
    MODEL_RELATIONS,
    EventDraft,
    parse_events,
    parse_pairs,
    parse_relations,
)
from memagent.state.adjacency import GraphState
from memagent.state.effects import entity_id, names_in
from memagent.state.fold import BankState, folded
from memagent.timex.resolve import resolve_time

_MAX_MENTIONS = 8


@dataclass(frozen=True, slots=True)
class LinkedEvents:
    """New events with their edges, for a merge into the graph of `state`."""

    state: BankState
    delta: GraphDelta
    vectors: Mapping[str, Vector]
    """Unit vectors (D,) of the texts of open and new events, by text."""


async def link_events(bank: MemoryBank, events: Sequence[Event]) -> LinkedEvents:
    """Link new events to the memory.

    Edges are MENTIONS (event to person or name), PART_OF (item to event) and BEFORE
    (along the time line of the people).
    """
    state = await bank.sync()
    entities, mentions = _mentions(state, events)
    edges = (*mentions, *_parts(state, events), *_time_edges(state, events))
    present = (*open_events(state.graph), *events)
    vectors = await text_vectors(bank, [text for event in present for text in event_texts(event)])
    return LinkedEvents(state, GraphDelta(nodes=(*events, *entities), edges=edges), vectors)


def _mentions(state: BankState, events: Sequence[Event]) -> tuple[list[Event], list[EventEdge]]:
    entities: dict[str, Event] = {}
    edges: list[EventEdge] = []
    for event in events:
        mentioned = (*event.people, *names_in(event.summary))
        names = {entity_id(name): name for name in reversed(mentioned)}
        for node_id, name in list(reversed(names.items()))[:_MAX_MENTIONS]:
            if state.graph.node(node_id) is None:
                entities.setdefault(
                    node_id, Event(id=node_id, kind=NodeKind.ENTITY, summary=name[:240])
                )
            edges.append(_edge(event.id, node_id, Relation.MENTIONS, event.source_turn_ids))
    return list(entities.values()), edges


def _parts(state: BankState, events: Sequence[Event]) -> list[EventEdge]:
    """Return edges from active items to the events that share turns with them."""
    by_turn: dict[str, list[Event]] = {}
    for event in events:
        for turn_id in event.source_turn_ids:
            by_turn.setdefault(turn_id, []).append(event)
    edges: list[EventEdge] = []
    for item in sorted(state.active(), key=lambda item: item.id):
        if state.graph.node(item.id) is None:
            continue
        shared: dict[str, list[str]] = {}
        for turn_id in item.source_turn_ids:
            for event in by_turn.get(turn_id, ()):
                shared.setdefault(event.id, []).append(turn_id)
        edges.extend(
            _edge(item.id, event_id, Relation.PART_OF, turns) for event_id, turns in shared.items()
        )
    return edges


def _time_edges(state: BankState, events: Sequence[Event]) -> list[EventEdge]:
    """Return BEFORE edges from the nearest earlier event and to the nearest later one.

    Only events with closed times that share people count.
    """
    timed = {
        event.id: (event.valid.start, event.valid.end, set(map(folded, event.people)))
        for event in (*open_events(state.graph), *events)
        if event.valid and event.valid.start and event.valid.end
    }
    edges: dict[tuple[str, str], EventEdge] = {}
    for event in (event for event in events if event.id in timed):
        start, end, people = timed[event.id]
        near = [(name, *own) for name, own in timed.items() if name != event.id and own[2] & people]
        before = max(((stop, name) for name, _, stop, _ in near if stop <= start), default=None)
        after = min(((begin, name) for name, begin, _, _ in near if begin >= end), default=None)
        pairs = (before and (before[1], event.id), after and (event.id, after[1]))
        for first, second in filter(None, pairs):
            edges[first, second] = _edge(first, second, Relation.BEFORE, event.source_turn_ids)
    return list(edges.values())


def _edge(source: str, target: str, relation: Relation, turns: Sequence[str]) -> EventEdge:
    return EventEdge(
        source=source, target=target, relation=relation, evidence_turn_ids=tuple(turns)
    )


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
SESSION_RELATIONS_SCHEMA: Final[JsonSchema] = object_schema(
    {
        **RELATIONS_SCHEMA["properties"],
        "ended": {"type": "array", "items": object_schema({"relation": INTEGER, "turns": TEXTS})},
    }
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
EdgeKey = tuple[str, str, str]
"""(source, target, key) of an edge."""
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

    async def __call__(
        self, pairs: Sequence[NearPair], ctx: SlotContext, *, settings: MergeSettings, ordinal: int
    ) -> tuple[EventJudge, list[Rejected]]:
        """Return the judge, which asks nothing more, and the entries that were not read.

        `ordinal` counts its call among the indexer's calls.
        """
        verdicts = {
            (first.summary, later.summary): Judgement(
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
            lines = (
                f"{index}. first: {event_notes(first)}{quoted(first.summary)}\n"
                f"   second: {event_notes(later)}{quoted(later.summary)}"
                for index, (first, later, _) in enumerate(unsure)
            )
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
                retry=True,
            )
            rejected += reply.parsed.rejected
            for draft in reply.parsed.values:
                first, later, _ = unsure[draft.pair]
                verdicts[first.summary, later.summary] = draft.judgement

        async def judge(first: Event, later: Event) -> Judgement:
            known = verdicts.get((first.summary, later.summary))
            return known or Judgement(likeness=Likeness.NEITHER)

        return judge, rejected


@dataclass(frozen=True, kw_only=True)
class EventIndexer:
    """Turns a session into merged events and edges, with two or three model calls.

    Each reply that cannot be read costs one more call.
    """

    judge: MergeJudge | None = MergeJudge()
    """Settles whether near events are one; without it the cosine decides."""
    merge: MergeSettings = MergeSettings()
    retry: bool = True
    earlier: int = 0
    """Events of earlier sessions, nearest to what a turn of this one says, that are related
    to the new ones. The model names those of their relations that no longer hold.
    """

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """The prompts of the two calls and of the judge."""
        return (load_prompt("segment"), self._relating, *prompts_of(self.judge))

    @property
    def _relating(self) -> Prompt:
        return load_prompt("relate_sessions" if self.earlier else "relate_events")

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
        linked = await link_events(ctx.bank, events)
        graph = linked.state.graph
        near = await _nearest(session, linked, ctx.bank, self.earlier)
        edges, ended = list[EventEdge](), list[EdgeKey]()
        if len(events) + len(near) > 1:
            edges, ended, bad_edges = await self._relate(session, events, near, graph, ctx)
            rejected += bad_edges
        judge = None
        if self.judge is not None:
            pairs = near_pairs(graph, events, vectors=linked.vectors, settings=self.merge)
            judge, bad_verdicts = await self.judge(pairs, ctx, settings=self.merge, ordinal=4)
            rejected += bad_verdicts
        proposal = linked.delta.model_copy(
            update={
                "edges": (*edges, *linked.delta.edges),
                "removed_edges": tuple(ended),
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
        entries = [_ground(draft, session, at) for at, draft in enumerate(reply.parsed.values)]
        events = {entry.id: entry for entry in entries if isinstance(entry, Event)}
        refused = [entry for entry in entries if isinstance(entry, Rejected)]
        return list(events.values()), [*reply.parsed.rejected, *refused]

    async def _relate(
        self,
        session: Session,
        events: Sequence[Event],
        near: Sequence[Event],
        graph: GraphState,
        ctx: SlotContext,
    ) -> tuple[list[EventEdge], list[EdgeKey], list[Rejected]]:
        """Return new relations, the keys of ended ones, and what was refused."""
        shown = (*events, *near)
        places = {event.id: place for place, event in enumerate(shown)}
        known = [
            edge
            for event in near
            for _, edge, leaving in graph.edges_of(event.id)
            if leaving and edge.target in places and edge.relation in MODEL_RELATIONS
        ]
        lines = [_event_line(place, event) for place, event in enumerate(shown)]
        stated = (
            f"{place}. {places[edge.source]} -{quoted(edge.key)}-> {places[edge.target]}"
            for place, edge in enumerate(known)
        )
        values = {
            "date": date_text(session.at),
            "dialogue": _dialogue(session),
            "events": fence("events", lines[: len(events)]),
        }
        if self.earlier:
            values["earlier"] = fence("earlier", lines[len(events) :])
            values["relations"] = fence("relations", stated)
        reply = await ask_for_json(
            ctx,
            JsonCall(
                role=Role.INDEXER,
                prompt=self._relating,
                schema=SESSION_RELATIONS_SCHEMA if self.earlier else RELATIONS_SCHEMA,
                parse=lambda text: parse_relations(text, events=len(shown)),
            ),
            values,
            ordinal=2,
            retry=self.retry,
        )
        edges = [
            EventEdge(
                source=shown[draft.source].id,
                target=shown[draft.target].id,
                relation=draft.relation,
                label=draft.label,
                evidence_turn_ids=_turns_of(draft.turn_ids, session),
                confidence=draft.confidence,
            )
            for draft in reply.parsed.values
        ]
        ended, refused = _ended(reply.responses[-1].text, known, session, ctx.bank.state)
        return edges, ended, [*reply.parsed.rejected, *refused]


async def _nearest(
    session: Session, linked: LinkedEvents, bank: MemoryBank, most: int
) -> list[Event]:
    """Return the open events of the graph nearest to a turn of the session, as told.

    A cause that a turn names need not share a word with what it brought about.
    """
    new = {event.id for event in linked.delta.nodes}
    earlier = [event for event in open_events(linked.state.graph) if event.id not in new]
    if not most or not earlier:
        return []
    turns = (await text_vectors(bank, [turn.said for turn in session.turns])).values()

    def distance(event: Event) -> tuple[float, str]:
        own = linked.vectors.get(event.summary)
        cosines = [float(row @ own) for row in turns] if own is not None else []
        return -round(max(cosines, default=-1.0), 6), event.id

    return sorted(sorted(earlier, key=distance)[:most], key=story_key)


def _ended(
    text: str, known: Sequence[EventEdge], session: Session, state: BankState
) -> tuple[list[EdgeKey], list[Rejected]]:
    """Return the shown relations that a reply ends on a turn of the session.

    The turn must be trusted as far as those that the relation rests on.
    """
    value = extract_json(text).value
    listed = value.get("ended") if isinstance(value, dict) else None
    ended: dict[EdgeKey, None] = {}
    refused: list[Rejected] = []
    for raw in listed if isinstance(listed, list) else []:
        entry = raw if isinstance(raw, dict) else {}
        place = index_of(entry.get("relation"))
        turns = _turns_of(ids_at(entry, ("turns",)), session)
        edge = known[place] if place is not None and 0 <= place < len(known) else None
        said = lowest_trust(turn.trust for turn in session.turns if turn.id in turns)
        if edge and turns and said.rank <= state.trust_of(edge.evidence_turn_ids).rank:
            ended[edge.source, edge.target, edge.key] = None
        else:
            detail = "no shown relation is ended by a turn of the session that is trusted as far"
            refused.append(_refused(RejectReason.FOREIGN_TURN, detail, str(raw)))
    return list(ended), refused


def _ground(draft: EventDraft, session: Session, order: int) -> Event | Rejected:
    """Fill date, time and people of an event from its turns.

    Reject it when it names no turn of the session or shares no content with its turns;
    turns of other sessions are left out.
    """
    turn_ids = _turns_of(draft.turn_ids, session)
    if not turn_ids:
        detail = f"the event names no turn of session {session.id!r}"
        return _refused(RejectReason.FOREIGN_TURN, detail, draft.summary)
    turns = [turn for turn in session.turns if turn.id in turn_ids]
    said_at = session.date_of(turns[0])
    dialogue = Dialogue(session.turns)
    echo = echo_in(draft.summary, load_prompt("segment").examples, dialogue)
    if echo or not shares_content(draft.summary, turns, dialogue, said_at=said_at):
        detail = "the event repeats the prompt" if echo else "no word of it is in its turns"
        return _refused(RejectReason.UNGROUNDED, detail, draft.summary)
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


def _refused(reason: RejectReason, detail: str, raw: str) -> Rejected:
    return Rejected(reason=reason, detail=detail, raw=raw[:120])


def _turns_of(names: Iterable[str], session: Session) -> tuple[str, ...]:
    """Return the ids of the named turns of a session, in the session's order."""
    last = {folded(turn.id): turn.id for turn in session.turns}
    named = {last.get(folded(name)) for name in names}
    return tuple(turn.id for turn in session.turns if turn.id in named)


def _dialogue(session: Session) -> str:
    return fence("dialogue", (turn_line(turn) for turn in session.turns if not turn.recalled))


def _event_line(index: int, event: Event) -> str:
    when = f" (time {quoted(event.time_text)})" if event.time_text else ""
    return f"{index}. {quoted(event.summary)}{when}"
