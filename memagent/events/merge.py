"""Merging of new events into the event graph: one thing told in several sessions is one node.

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

`checked_delta` holds the rules for edges of the event graph: both ends exist, no
self-loops, no circles in time. BEFORE, the inverse of AFTER, and CAUSES together must
stay acyclic; an edge that would close a circle is refused with a reason.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from memagent.core.records import Event, EventEdge, NodeKind, Record, Relation, Text
from memagent.core.snapshot import GraphDelta
from memagent.protocols import Vector
from memagent.state.adjacency import GraphState

_FORWARD = frozenset({Relation.BEFORE, Relation.CAUSES})
_SEARCH_LIMIT = 10_000


def checked_delta(graph: GraphState, delta: GraphDelta) -> GraphDelta:
    """Return the delta without the edges that break a rule, each listed in `rejected`."""
    work = graph.apply(
        GraphDelta(
            nodes=delta.nodes, removed_edges=delta.removed_edges, removed_nodes=delta.removed_nodes
        )
    )
    accepted: list[EventEdge] = []
    rejected = list(delta.rejected)
    for edge in delta.edges:
        reason = _refusal(work, edge)
        if reason is None:
            accepted.append(edge)
            work = work.apply(GraphDelta(edges=(edge,)))
        else:
            rejected.append(f"{edge.source} -{edge.key}-> {edge.target}: {reason}")
    return delta.model_copy(update={"edges": tuple(accepted), "rejected": tuple(rejected)})


def _refusal(graph: GraphState, edge: EventEdge) -> str | None:
    if edge.source == edge.target:
        return "an edge may not lead from a node to itself"
    for end in (edge.source, edge.target):
        node = graph.node(end)
        if node is None:
            return f"no node {end!r} in the graph"
        if node.closed and edge.relation is not Relation.SUPERSEDES:
            return f"node {end!r} is closed"
    ends = _in_time(edge)
    if ends is not None and _reaches(graph, ends[1], ends[0]):
        return "it would make time run in a circle"
    return None


def _in_time(edge: EventEdge) -> tuple[str, str] | None:
    """Return (earlier, later) of an edge that orders its ends in time, else None."""
    if edge.relation in _FORWARD:
        return edge.source, edge.target
    return (edge.target, edge.source) if edge.relation is Relation.AFTER else None


def _reaches(graph: GraphState, start: str, goal: str) -> bool:
    """Tell whether `goal` is at or after `start`; past ten thousand nodes the answer is yes."""
    stack, seen = [start], {start}
    while stack:
        node_id = stack.pop()
        if node_id == goal or len(seen) > _SEARCH_LIMIT:
            return True
        for _, edge, _ in graph.edges_of(node_id):
            ends = _in_time(edge)
            if ends is not None and ends[0] == node_id and ends[1] not in seen:
                seen.add(ends[1])
                stack.append(ends[1])
    return False


_DIGITS = re.compile(r"(\d+)")


class Likeness(StrEnum):
    """The relation of two tellings to each other."""

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
    """Return the pairs that `merge_events` would ask a judge about, nearest first.

    A pair is (the event told first, the later one, cosine), each event with the summary
    in question, for a judge that wants to see all pairs of a session at once. Events
    known to the graph count as told.
    """
    fresh = sorted((event for event in events if graph.node(event.id) is None), key=story_key)
    by_id = {event.id: event for event in (*open_events(graph), *fresh)}
    new = {event.id for event in fresh}
    pairs: dict[tuple[str, str], tuple[Event, Event, float]] = {}
    for near in _near_texts(by_id.values(), new, vectors, settings.asked_cosine, settings):
        first, later = by_id[near.first_id], by_id[near.later_id]
        if first.id != later.id and not _apart(first, later):
            pair = _worded(first, near.first_text), _worded(later, near.later_text), near.cosine
            pairs.setdefault((near.first_text, near.later_text), pair)
    return sorted(pairs.values(), key=lambda pair: (-pair[2], pair[0].summary, pair[1].summary))


def event_texts(event: Event) -> tuple[str, ...]:
    """Return the texts an event is compared by: its summary and its aliases."""
    return tuple(dict.fromkeys(text for text in (event.summary, *event.aliases) if text.strip()))


def open_events(graph: GraphState) -> list[Event]:
    """Return the graph's events that are not closed, by id."""
    return sorted(filter(is_open_event, graph.all_nodes()), key=lambda event: event.id)


def is_open_event(node: Event) -> bool:
    """Tell whether a node of the graph is an event that is not closed."""
    return node.kind is NodeKind.EVENT and not node.closed and bool(node.summary)


def story_key(event: Event) -> tuple[float, str, int, str]:
    """Return the key that sorts events as they were told.

    It is date, session, place in the session and id; undated ones come first.
    """
    moment = event.said_at.timestamp() if event.said_at else float("-inf")
    return (moment, event.session_id or "", event.order, event.id)


async def merge_events(
    graph: GraphState,
    proposal: GraphDelta,
    *,
    vectors: Mapping[str, Vector],
    judge: EventJudge | None = None,
    settings: MergeSettings = MergeSettings(),
) -> GraphDelta:
    """Return the delta that brings the proposed nodes and edges into the graph, merged.

    Whatever breaks a rule is listed in `rejected`.
    `vectors` holds a unit vector (D,) for each text of `event_texts`, of the open
    events and the proposed ones; an event without a vector is merged with nothing.
    Nodes whose id is in the graph already are left as they are there.
    """
    added = [node for node in proposal.nodes if graph.node(node.id) is None]
    events = {node.id: node for node in added if node.kind is NodeKind.EVENT}
    fresh = sorted(events.values(), key=story_key)
    told = {event.id: event for event in (*open_events(graph), *fresh)}
    groups = _Groups({event_id: event_id for event_id in told}, told)
    overlaps = await _join(groups, fresh, vectors, judge, settings)
    gone = [
        event_id
        for event_id in groups.parent
        if groups.root(event_id) != event_id and event_id in graph.nodes
    ]
    moved = {
        (edge.source, edge.target, edge.key): edge
        for event_id in gone
        for _, edge, _ in graph.edges_of(event_id)
        if (edge.source, edge.target, edge.key) not in proposal.removed_edges
    }
    changed = {groups.root(event_id) for event_id in (*events, *gone)}
    others = [node for node in added if node.kind is not NodeKind.EVENT]
    edges = [*moved.values(), *proposal.edges]
    for edge in overlaps:  # between equals, from the event told first to the later one
        first, later = groups.in_order_told(edge.source, edge.target)
        edges.append(edge.model_copy(update={"source": first.id, "target": later.id}))
    delta = proposal.model_copy(
        update={
            "nodes": (*sorted((groups.merged[root] for root in changed), key=story_key), *others),
            "edges": _collapsed(graph, edges, groups, frozenset(gone)),
            "removed_nodes": (*proposal.removed_nodes, *sorted(gone)),
        }
    )
    return checked_delta(graph, delta)


@dataclass(slots=True)
class _Groups:
    """Events that have turned out to be one, as a union-find.

    The root is the event told first; `merged` has the merged record of each root.
    """

    parent: dict[str, str]
    merged: dict[str, Event]

    def root(self, event_id: str) -> str:
        while (above := self.parent.get(event_id, event_id)) != event_id:
            event_id = above
        return event_id

    def in_order_told(self, *event_ids: str) -> list[Event]:
        return sorted((self.merged[self.root(event_id)] for event_id in event_ids), key=story_key)

    def unite(self, event_id: str, other_id: str) -> None:
        first, later = self.in_order_told(event_id, other_id)
        if first.id != later.id:
            self.parent[later.id] = first.id
            self.merged[first.id] = united(first, later)
            del self.merged[later.id]


def united(first: Event, later: Event) -> Event:
    """Return two events as one.

    It is `first` with the other's people, turns and words, and the more precise time.
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
    """Sort ids with their numbers as numbers: D1:2 before D1:10."""

    def key(turn_id: str) -> tuple[list[tuple[int, str]], str]:
        parts = _DIGITS.split(turn_id)
        return [(len(part) if part.isdigit() else 0, part) for part in parts], turn_id

    return tuple(sorted(turn_ids, key=key))


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
    """Unite the same events, in the order told.

    Return edges for the pairs that the judge calls overlapping.
    """
    new = {event.id for event in fresh}
    known = [event for event in groups.merged.values() if event.id not in new]
    floor = settings.same_cosine if judge is None else settings.asked_cosine
    overlaps: list[EventEdge] = []
    for near in _near_texts([*known, *fresh], new, vectors, floor, settings):
        first, later = (
            groups.merged[groups.root(event_id)] for event_id in (near.first_id, near.later_id)
        )
        if first.id == later.id or _apart(first, later):
            continue
        verdict = Judgement(likeness=Likeness.SAME)
        if judge is not None:
            verdict = await judge(_worded(first, near.first_text), _worded(later, near.later_text))
        if verdict.likeness is Likeness.SAME:
            groups.unite(near.first_id, near.later_id)
        elif verdict.likeness is Likeness.OVERLAPPING:
            overlaps.append(
                EventEdge(
                    source=near.first_id,
                    target=near.later_id,
                    relation=Relation.RELATED,
                    label=verdict.label,
                    evidence_turn_ids=later.source_turn_ids,
                )
            )
    return overlaps


class _Near(NamedTuple):
    """Two near texts of events: that of the event told first, and that of the new one."""

    first_id: str
    first_text: str
    later_id: str
    later_text: str
    cosine: float


def _near_texts(
    events: Iterable[Event],
    new: Container[str],
    vectors: Mapping[str, Vector],
    floor: float,
    settings: MergeSettings,
) -> Iterator[_Near]:
    """Yield the nearest texts told before each text of the new events.

    They lie at or above the floor, nearest first, ties by text.
    """
    rows = [(text, event.id) for event in events for text in event_texts(event) if text in vectors]
    matrix = np.stack([vectors[text] for text, _ in rows]) if rows else None  # (R, D)
    for at, (text, event_id) in enumerate(rows):
        if event_id in new and matrix is not None:
            cosines = matrix[:at] @ matrix[at]  # (at,)
            close = map(int, np.flatnonzero(cosines >= floor - 1e-6))
            nearest = sorted((-round(float(cosines[row]), 6), *rows[row]) for row in close)
            for minus, other_text, other_id in nearest[: settings.neighbours]:
                yield _Near(other_id, other_text, event_id, text, -minus)


def _worded(event: Event, summary: str) -> Event:
    return event.model_copy(update={"summary": summary})


def _apart(event: Event, other: Event) -> bool:
    """Tell whether both happened at known times that do not meet."""
    return bool(event.valid and other.valid and not event.valid.overlaps(other.valid))


def _collapsed(
    graph: GraphState, edges: Iterable[EventEdge], groups: _Groups, gone: frozenset[str]
) -> tuple[EventEdge, ...]:
    """Return the edges between merged nodes, without self-loops.

    Equal edges are counted together, and with those that the graph has.
    """
    collapsed: dict[tuple[str, str, str], EventEdge] = {}
    for edge in edges:
        source, target = groups.root(edge.source), groups.root(edge.target)
        if source == target:
            continue
        key = (source, target, edge.key)
        led = edge.model_copy(update={"source": source, "target": target})
        known = collapsed.get(key) or (None if gone & {source, target} else graph.edge(*key))
        collapsed[key] = led if known is None else _counted(known, led)
    return tuple(edge for key, edge in collapsed.items() if edge != graph.edge(*key))


def _counted(known: EventEdge, other: EventEdge) -> EventEdge:
    """Count two equal edges as one; a repetition by the same turns adds nothing."""
    if other.evidence_turn_ids and set(other.evidence_turn_ids) <= set(known.evidence_turn_ids):
        return known
    return known.model_copy(
        update={
            "count": known.count + other.count,
            "confidence": max(known.confidence, other.confidence),
            "evidence_turn_ids": in_order({*known.evidence_turn_ids, *other.evidence_turn_ids}),
            "valid": known.valid or other.valid,
        }
    )
