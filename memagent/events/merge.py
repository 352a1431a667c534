"""Merging new events into the event graph, so that one thing told in several sessions
becomes one node.

Every new event is compared with those told before it: its nearest texts (summaries and
aliases) above a cosine floor. Without a judge, 0.88 and more is the same event; with
one, every pair of 0.85 and more is asked about. Events that are the same become one
node with the id and summary of the one told first, the other summaries as aliases, and
the union of people and source turns; edges follow the merged nodes, self-loops go,
equal edges become one with their counts added. Invariants: new events are taken in the
order in which they were told, so session by session gives the same graph as all at
once, as long as no more than `neighbours` texts are within reach of one event; ties go
by text. The delta has passed `checked_delta`. The surprise: a new event can be the same
as two old ones that were apart; these are joined too, and the later of them is removed.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from memagent.core.records import Event, EventEdge, NodeKind, Record, Relation, Text
from memagent.core.snapshot import GraphDelta
from memagent.events.rules import checked_delta
from memagent.protocols import Vector
from memagent.state.adjacency import GraphState

_DIGITS = re.compile(r"(\d+)")
StoryKey = tuple[float, str, int, str]


class Likeness(StrEnum):
    """What two events are to each other."""

    SAME = "same"
    OVERLAPPING = "overlapping"
    NEITHER = "neither"


class Judgement(Record):
    """A judge's verdict on two events; `label` says how they overlap."""

    likeness: Likeness
    label: Text = ""


EventJudge = Callable[[Event, Event], Awaitable[Judgement]]
"""Says what two events (the one told first, the later one) are to each other; each carries
the summary in question.
"""


@dataclass(frozen=True, kw_only=True)
class MergeSettings:
    """When two events count as one."""

    neighbours: int = 8
    """Nearest texts that a new event is compared with."""
    same_cosine: float = 0.88
    """Without a judge: at least this is the same event."""
    asked_cosine: float = 0.85
    """With a judge: at least this is asked about."""


def near_pairs(
    graph: GraphState,
    events: Iterable[Event],
    *,
    vectors: Mapping[str, Vector],
    settings: MergeSettings = MergeSettings(),
) -> list[tuple[Event, Event, float]]:
    """(the one told first, the later one, cosine) of the pairs `merge_events` would ask
    a judge about, each with the summary in question.

    For a judge that wants to see all pairs of a session at once; nearest first. Events
    known to the graph count as told.
    """
    fresh = sorted((one for one in events if graph.node(one.id) is None), key=story_key)
    told = {event.id: event for event in (*open_events(graph), *fresh)}
    new = {event.id for event in fresh}
    rows = [
        (text, event.id)
        for event in told.values()
        for text in event_texts(event)
        if text in vectors
    ]
    if not rows:
        return []
    matrix = np.stack([vectors[text] for text, _ in rows])  # (R, D)
    pairs: dict[tuple[str, str], tuple[Event, Event, float]] = {}
    for at, (text, event_id) in enumerate(rows):
        if event_id not in new:
            continue
        near = _nearest(rows[:at], matrix[:at], matrix[at], settings.asked_cosine)[
            : settings.neighbours
        ]
        for minus, other_text, other_id in near:
            if other_id != event_id and not _apart(told[other_id], told[event_id]):
                first = told[other_id].model_copy(update={"summary": other_text})
                pairs.setdefault(
                    (other_text, text),
                    (first, told[event_id].model_copy(update={"summary": text}), -minus),
                )
    return sorted(pairs.values(), key=lambda pair: (-pair[2], pair[0].summary, pair[1].summary))


def event_texts(event: Event) -> tuple[str, ...]:
    """The texts an event is compared by: its summary and its aliases."""
    return tuple(dict.fromkeys(text for text in (event.summary, *event.aliases) if text.strip()))


def open_events(graph: GraphState) -> list[Event]:
    """The graph's events that are not closed, by id."""
    found = (
        node
        for node in graph.all_nodes()
        if node.kind is NodeKind.EVENT and not node.closed and node.summary
    )
    return sorted(found, key=lambda event: event.id)


def story_key(event: Event) -> StoryKey:
    """Sorts events as they were told: date, session, place in the session, id; undated ones first."""
    told = event.said_at.timestamp() if event.said_at else float("-inf")
    return (told, event.session_id or "", event.order, event.id)


async def merge_events(
    graph: GraphState,
    proposal: GraphDelta,
    *,
    vectors: Mapping[str, Vector],
    judge: EventJudge | None = None,
    settings: MergeSettings = MergeSettings(),
) -> GraphDelta:
    """The delta that brings the proposed nodes and edges into the graph, merged; what
    breaks a rule is told in `rejected`.

    `vectors` holds a unit vector (D,) for each text of `event_texts`, of the open
    events and the proposed ones; an event without a vector is merged with nothing.
    Nodes whose id is in the graph already are left as they are there.
    """
    fresh = [
        node
        for node in proposal.nodes
        if node.kind is NodeKind.EVENT and graph.node(node.id) is None
    ]
    fresh = sorted({event.id: event for event in fresh}.values(), key=story_key)
    groups = _Groups()
    for event in (*open_events(graph), *fresh):
        groups.add(event)
    overlaps = await _join(groups, fresh, vectors, judge, settings)
    gone = [
        event_id
        for event_id in groups.parent
        if groups.root(event_id) != event_id and event_id in graph.nodes
    ]
    moved = [edge for event_id in gone for _, edge, _ in graph.edges_of(event_id)]
    changed = {groups.root(event.id) for event in fresh} | {
        groups.root(event_id) for event_id in gone
    }
    others = [
        node
        for node in proposal.nodes
        if node.kind is not NodeKind.EVENT and graph.node(node.id) is None
    ]
    related = [_directed(edge, groups) for edge in overlaps]
    delta = proposal.model_copy(
        update={
            "nodes": (*sorted((groups.merged[one] for one in changed), key=story_key), *others),
            "edges": _collapsed(
                graph, [*_each_once(moved), *proposal.edges, *related], groups, frozenset(gone)
            ),
            "removed_nodes": (*proposal.removed_nodes, *sorted(gone)),
        }
    )
    return checked_delta(graph, delta)


@dataclass(slots=True)
class _Groups:
    """Events that have turned out to be one: a union-find whose root is the event told
    first, with the merged record of each root.
    """

    parent: dict[str, str] = field(default_factory=dict[str, str])
    merged: dict[str, Event] = field(default_factory=dict[str, Event])

    def add(self, event: Event) -> None:
        self.parent[event.id] = event.id
        self.merged[event.id] = event

    def root(self, event_id: str) -> str:
        while (above := self.parent.get(event_id, event_id)) != event_id:
            event_id = above
        return event_id

    def unite(self, one: str, other: str) -> None:
        first, later = sorted(
            (self.merged[self.root(one)], self.merged[self.root(other)]), key=story_key
        )
        if first.id != later.id:
            self.parent[later.id] = first.id
            self.merged[first.id] = united(first, later)
            del self.merged[later.id]


def united(first: Event, later: Event) -> Event:
    """Two events as one: `first` with the other's people, turns, words, and its time
    when that is more precise.
    """
    texts = {*event_texts(first), *event_texts(later)} - {first.summary}
    timed = min((first, later), key=_vagueness)
    return first.model_copy(
        update={
            "people": tuple(sorted({*first.people, *later.people})),
            "source_turn_ids": in_order({*first.source_turn_ids, *later.source_turn_ids}),
            "aliases": tuple(sorted(texts)),
            "valid": timed.valid,
            "time_text": timed.time_text,
        }
    )


def in_order(turn_ids: Iterable[str]) -> tuple[str, ...]:
    """Ids sorted with their numbers as numbers: D1:2 before D1:10."""
    parts = ((_DIGITS.split(turn_id), turn_id) for turn_id in turn_ids)
    return tuple(
        turn_id
        for _, turn_id in sorted(
            ([(len(p), p) if p.isdigit() else (0, p) for p in ps], t) for ps, t in parts
        )
    )


def _vagueness(event: Event) -> tuple[bool, float, float, str]:
    span = event.valid
    if span is None:
        return (True, 0.0, 0.0, event.time_text or "\uffff")
    start = span.start.timestamp() if span.start else float("-inf")
    end = span.end.timestamp() if span.end else float("inf")
    return (False, end - start, start, event.time_text or "")


async def _join(
    groups: _Groups,
    fresh: Sequence[Event],
    vectors: Mapping[str, Vector],
    judge: EventJudge | None,
    settings: MergeSettings,
) -> list[EventEdge]:
    """Unite what is the same, in the order told; edges for what the judge calls overlapping."""
    new = {event.id for event in fresh}
    known = [event for event in groups.merged.values() if event.id not in new]
    rows = [
        (text, event.id)
        for event in (*known, *fresh)
        for text in event_texts(event)
        if text in vectors
    ]
    if not rows:
        return []
    matrix = np.stack([vectors[text] for text, _ in rows])  # (R, D)
    floor = settings.same_cosine if judge is None else settings.asked_cosine
    overlaps: list[EventEdge] = []
    for at, (text, event_id) in enumerate(rows):
        if event_id not in new:
            continue
        for _, other_text, other_id in _nearest(rows[:at], matrix[:at], matrix[at], floor)[
            : settings.neighbours
        ]:
            old, event = (groups.merged[groups.root(one)] for one in (other_id, event_id))
            if old.id == event.id or _apart(old, event):
                continue
            verdict = Judgement(likeness=Likeness.SAME)
            if judge is not None:
                shown = [
                    one.model_copy(update={"summary": words})
                    for one, words in ((old, other_text), (event, text))
                ]
                verdict = await judge(*shown)
            if verdict.likeness is Likeness.SAME:
                groups.unite(other_id, event_id)
            elif verdict.likeness is Likeness.OVERLAPPING:
                overlaps.append(
                    EventEdge(
                        source=other_id,
                        target=event_id,
                        relation=Relation.RELATED,
                        label=verdict.label,
                        evidence_turn_ids=event.source_turn_ids,
                    )
                )
    return overlaps


def _nearest(
    rows: Sequence[tuple[str, str]],
    matrix: np.ndarray[tuple[int, ...], np.dtype[np.float32]],
    vector: Vector,
    floor: float,
) -> list[tuple[float, str, str]]:
    """(minus cosine, text, event id) of the rows at or above the floor, nearest first,
    ties by text.
    """
    cosines = matrix @ vector  # (R,)
    close = np.flatnonzero(cosines >= floor - 1e-6)
    found = ((-round(float(cosines[row]), 6), *rows[row]) for row in map(int, close))
    return sorted(found)


def _apart(one: Event, other: Event) -> bool:
    """Whether both happened at known times that do not meet."""
    return one.valid is not None and other.valid is not None and not one.valid.overlaps(other.valid)


def _directed(edge: EventEdge, groups: _Groups) -> EventEdge:
    """An edge between equals, led from the event told first to the later one."""
    source, target = (groups.merged[groups.root(end)] for end in (edge.source, edge.target))
    first, later = sorted((source, target), key=story_key)
    return edge.model_copy(update={"source": first.id, "target": later.id})


def _each_once(edges: Iterable[EventEdge]) -> Iterator[EventEdge]:
    return iter({(edge.source, edge.target, edge.key): edge for edge in edges}.values())


def _collapsed(
    graph: GraphState, edges: Iterable[EventEdge], groups: _Groups, gone: frozenset[str]
) -> tuple[EventEdge, ...]:
    """The edges between merged nodes, equal ones counted together and with what the
    graph has; no self-loops.
    """
    found: dict[tuple[str, str, str], EventEdge] = {}
    for edge in edges:
        source, target = groups.root(edge.source), groups.root(edge.target)
        if source == target:
            continue
        key = (source, target, edge.key)
        led = edge.model_copy(update={"source": source, "target": target})
        known = found.get(key) or (None if gone & {source, target} else graph.edge(*key))
        found[key] = led if known is None else _counted(known, led)
    return tuple(edge for key, edge in found.items() if edge != graph.edge(*key))


def _counted(one: EventEdge, other: EventEdge) -> EventEdge:
    """Two equal edges as one; what the same turns tell again is not counted again."""
    if other.evidence_turn_ids and set(other.evidence_turn_ids) <= set(one.evidence_turn_ids):
        return one
    return one.model_copy(
        update={
            "count": one.count + other.count,
            "confidence": max(one.confidence, other.confidence),
            "evidence_turn_ids": in_order({*one.evidence_turn_ids, *other.evidence_turn_ids}),
            "valid": one.valid or other.valid,
        }
    )
