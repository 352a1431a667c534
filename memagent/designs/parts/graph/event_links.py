"""Edges that tie a session's new events to what memory holds: who and what they
mention, which items they rest on, when they happened.

Shared by both indexers. Nothing here asks a model; entity nodes that exist already are
left as they are.
"""

from __future__ import annotations

from collections.abc import Sequence

from memagent.core.records import Event, EventEdge, NodeKind, Relation
from memagent.core.snapshot import GraphDelta
from memagent.events.merge import open_events
from memagent.state.effects import entity_id, names_in
from memagent.state.fold import BankState, folded

_MAX_MENTIONS = 8


def linked(state: BankState, events: Sequence[Event]) -> GraphDelta:
    """MENTIONS (event to person or name), PART_OF (item to event) and BEFORE (along the
    time line of the people) of new events.
    """
    entities, mentions = _mentions(state, events)
    edges = (*mentions, *_parts(state, events), *_times(state, events))
    return GraphDelta(nodes=(*events, *entities), edges=edges)


def _mentions(state: BankState, events: Sequence[Event]) -> tuple[list[Event], list[EventEdge]]:
    entities: dict[str, Event] = {}
    edges: list[EventEdge] = []
    for event in events:
        named = {
            entity_id(name): name for name in reversed((*event.people, *names_in(event.summary)))
        }
        for node_id, name in list(reversed(named.items()))[:_MAX_MENTIONS]:
            if state.graph.node(node_id) is None:
                entities.setdefault(
                    node_id, Event(id=node_id, kind=NodeKind.ENTITY, summary=name[:240])
                )
            edges.append(_edge(event.id, node_id, Relation.MENTIONS, event.source_turn_ids))
    return list(entities.values()), edges


def _parts(state: BankState, events: Sequence[Event]) -> list[EventEdge]:
    """From each active item that rests on a turn of an event to that event."""
    by_turn: dict[str, list[Event]] = {}
    for event in events:
        for turn_id in event.source_turn_ids:
            by_turn.setdefault(turn_id, []).append(event)
    edges: list[EventEdge] = []
    for item in sorted(state.active(), key=lambda one: one.id):
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


def _times(state: BankState, events: Sequence[Event]) -> list[EventEdge]:
    """BEFORE from the nearest event that was over when this one began, and to the
    nearest that began when it was over.
    """
    timed = [one for one in (*open_events(state.graph), *events) if _bounded(one)]
    edges: dict[tuple[str, str], EventEdge] = {}
    for event in events:
        near = (
            [one for one in timed if one.id != event.id and _meet(one, event)]
            if _bounded(event)
            else []
        )
        before = [
            one for one in near if one.valid and event.valid and one.valid.precedes(event.valid)
        ]
        after = [
            one for one in near if one.valid and event.valid and event.valid.precedes(one.valid)
        ]
        if before:
            last = max(before, key=lambda one: (_end(one), one.id))
            edges[last.id, event.id] = _edge(
                last.id, event.id, Relation.BEFORE, event.source_turn_ids
            )
        if after:
            first = min(after, key=lambda one: (_start(one), one.id))
            edges[event.id, first.id] = _edge(
                event.id, first.id, Relation.BEFORE, event.source_turn_ids
            )
    return list(edges.values())


def _bounded(event: Event) -> bool:
    return event.valid is not None and event.valid.start is not None and event.valid.end is not None


def _meet(one: Event, other: Event) -> bool:
    return bool({folded(name) for name in one.people} & {folded(name) for name in other.people})


def _start(event: Event) -> float:
    return event.valid.start.timestamp() if event.valid and event.valid.start else 0.0


def _end(event: Event) -> float:
    return event.valid.end.timestamp() if event.valid and event.valid.end else 0.0


def _edge(source: str, target: str, relation: Relation, turns: Sequence[str]) -> EventEdge:
    return EventEdge(
        source=source, target=target, relation=relation, evidence_turn_ids=tuple(turns)
    )
