"""Edges that tie a session's new events to people, names, items and the time line.

Shared by both indexers. Nothing here asks a model; entity nodes that exist already are
left as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from memagent.core.records import Event, EventEdge, NodeKind, Relation
from memagent.core.snapshot import GraphDelta
from memagent.events.merge import event_texts, open_events
from memagent.memory.bank import MemoryBank
from memagent.memory.event_vectors import text_vectors
from memagent.protocols import Vector
from memagent.state.effects import entity_id, names_in
from memagent.state.fold import BankState, folded

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
    timed = [event for event in (*open_events(state.graph), *events) if _bounded(event)]
    edges: dict[tuple[str, str], EventEdge] = {}
    for event in filter(_bounded, events):
        near = [other for other in timed if other.id != event.id and _share_people(other, event)]
        before = [other for other in near if _precedes(other, event)]
        after = [other for other in near if _precedes(event, other)]
        pairs: list[tuple[Event, Event]] = []
        if before:
            pairs.append((max(before, key=lambda other: (_end(other), other.id)), event))
        if after:
            pairs.append((event, min(after, key=lambda other: (_start(other), other.id))))
        for first, second in pairs:
            edges[first.id, second.id] = _edge(
                first.id, second.id, Relation.BEFORE, event.source_turn_ids
            )
    return list(edges.values())


def _bounded(event: Event) -> bool:
    return event.valid is not None and event.valid.start is not None and event.valid.end is not None


def _precedes(first: Event, second: Event) -> bool:
    return bool(first.valid and second.valid and first.valid.precedes(second.valid))


def _share_people(first: Event, second: Event) -> bool:
    return not set(map(folded, first.people)).isdisjoint(map(folded, second.people))


def _start(event: Event) -> float:
    return event.valid.start.timestamp() if event.valid and event.valid.start else 0.0


def _end(event: Event) -> float:
    return event.valid.end.timestamp() if event.valid and event.valid.end else 0.0


def _edge(source: str, target: str, relation: Relation, turns: Sequence[str]) -> EventEdge:
    return EventEdge(
        source=source, target=target, relation=relation, evidence_turn_ids=tuple(turns)
    )
