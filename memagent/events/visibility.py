"""Views of the event graph: what may be shown, what hangs together, figures and topics.

Visible are open events that fit the filter and still tell what memory holds. An event
rests on turns, and so do the items made from those turns (`PART_OF` leads from item to
event). When such an item is deleted, or has since been rewritten on later turns, the
event tells what no longer holds and stays out of sight; nothing is written for that, so
an older snapshot still shows it. An item whose time to live is over counts as deleted;
which those are is asked of the bank (`bank.expired`).

Expansion scores what hangs together with the seeds of a search, without a model:
personalised PageRank by push. The walk restarts at the seeds; an edge passes on by its
kind (a cause more than a mere order in time) times its confidence, either way. The push
method (Andersen, Chung and Lang 2006) touches only nodes that matter. Closed nodes take
no part, and a node that many neighbours hang on is reached but not walked through.
Invariant: the shares of all nodes add up to 1; what arrives below the tolerance stays
where it arrived.

The figures of a graph are its size, its connected parts and its merged events. Pure; one
pass over nodes and edges, or over those that changed since the figures of a recent
state. Components are counted over events and the edges between events, the ones a
compass walk can follow: over people nearly everything would hang together.

Topics are K-means over the events' unit vectors, K = max(2, min(n // 5, 50)). They are
made anew from the graph whenever they are needed: they follow from the events' vectors
alone, so nothing of them is journalled. Deterministic: the first centre is the vector
nearest to the mean, each further one the vector farthest from all chosen, ties by
position.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Final

import numpy as np

from memagent.core.answers import Filter
from memagent.core.records import Event, EventEdge, MemoryItem, NodeKind, Relation
from memagent.core.snapshot import GraphStats
from memagent.events.merge import in_order, is_open_event, open_events
from memagent.protocols import Matrix, Vector
from memagent.state.adjacency import HUB, GraphState, Path, edges_between, event_as_item
from memagent.state.fold import BankState, names_between
from memagent.state.validation import NO_IDS, matches


def events_in_sight(
    state: BankState, where: Filter | None = None, *, expired: Container[str] = NO_IDS
) -> dict[str, Event]:
    """Return the events that may be shown, by id, in the order of their ids."""
    return {
        event.id: event
        for event in open_events(state.graph)
        if not outdated(state, event, expired=expired)
        and (where is None or where.empty or _fits(state, event, where))
    }


def events_behind(
    state: BankState, after: str | None, *, expired: Container[str] = NO_IDS
) -> Iterator[Event]:
    """Yield the events that may be shown behind an id, in the order of their ids.

    Only those that are asked for are looked at.
    """
    graph = state.graph
    for node_id in sorted(key for key in graph.nodes if after is None or key > after):
        node = graph.node(node_id)
        if node is not None and is_open_event(node) and not outdated(state, node, expired=expired):
            yield node


def outdated(state: BankState, event: Event, *, expired: Container[str] = NO_IDS) -> bool:
    """Tell whether an item made from the event's turns is gone or says something else now."""
    items = (
        state.items.get(other)
        for other, edge, leaving in state.graph.edges_of(event.id)
        if not leaving and edge.relation is Relation.PART_OF
    )
    return any(
        not item.active or item.id in expired or _rewritten(state, item, event)
        for item in items
        if item is not None
    )


@dataclass(frozen=True)
class OutOfSight:
    """The graph's item and event nodes that may not be shown, as a container of ids.

    It looks only at the nodes it is asked about.
    """

    state: BankState
    where: Filter
    expired: Container[str] = NO_IDS

    @cached_property
    def _where(self) -> Filter | None:
        return None if self.where.empty else self.where

    def __contains__(self, node_id: object) -> bool:
        state, where = self.state, self._where
        item = state.items.get(str(node_id))
        if item is not None:
            gone = not item.active or item.id in self.expired
            return gone or (where is not None and not matches(item, where))
        node = state.graph.node(str(node_id))
        if node is None or node.kind is not NodeKind.EVENT:
            return False
        if node.closed or not node.summary or outdated(state, node, expired=self.expired):
            return True
        return where is not None and not _fits(state, node, where)


def _rewritten(state: BankState, item: MemoryItem, event: Event) -> bool:
    first = state.versions(item.id)[0]
    later = set(item.source_turn_ids) - set(first.source_turn_ids)
    return item.version > 1 and item.text != first.text and not later & set(event.source_turn_ids)


def _fits(state: BankState, event: Event, where: Filter) -> bool:
    plain = event_as_item(state.graph, event)
    if plain is None:
        return False
    trust = state.trust_of(event.source_turn_ids)
    return any(
        matches(plain.model_copy(update={"subject": name, "speaker": name, "trust": trust}), where)
        for name in event.people or (None,)
    )


EDGE_WEIGHTS: Final[Mapping[Relation, float]] = {
    Relation.CAUSES: 1.0,
    Relation.MOTIVATES: 1.0,
    Relation.ENABLES: 1.0,
    Relation.SAME_AS: 1.0,
    Relation.PART_OF: 0.8,
    Relation.FOLLOWS: 0.7,
    Relation.ELABORATES: 0.7,
    Relation.CONTRASTS: 0.6,
    Relation.SUPERSEDES: 0.6,
    Relation.PARALLEL: 0.5,
    Relation.RELATED: 0.5,
    Relation.CONTAINS: 0.4,
    Relation.BEFORE: 0.3,
    Relation.AFTER: 0.3,
    Relation.MENTIONS: 0.2,
}
"""The share that each kind of edge passes on."""


@dataclass(frozen=True, slots=True)
class Reached:
    """A node, its share of the walk, and the path of its first arrival from a seed.

    The path is () for a seed.
    """

    id: str
    score: float
    via: Path


def expand(
    graph: GraphState,
    seeds: Mapping[str, float],
    *,
    without: Container[str] = frozenset(),
    restart: float = 0.4,
    tolerance: float = 1e-3,
    limit: int = 50,
) -> list[Reached]:
    """Return the `limit` open nodes with the largest share, best first, ties by id.

    Seeds (id to weight above 0) are among them. Closed nodes, unknown ones and those of
    `without` take no part; [] when no seed is left.
    """

    @cache
    def is_open(node_id: str) -> bool:
        node = graph.node(node_id)
        return node is not None and not node.closed and node_id not in without

    start = {seed: weight for seed, weight in seeds.items() if weight > 0 and is_open(seed)}
    total = sum(start.values())
    rest = {
        seed: start[seed] / total for seed in sorted(start, key=lambda seed: (-start[seed], seed))
    }
    share: dict[str, float] = {}
    via: dict[str, Path] = dict.fromkeys(rest, ())
    ways: dict[str, dict[tuple[str, Relation, bool], float]] = {}
    waiting = deque(rest)
    while waiting:
        node_id = waiting.popleft()
        mass = rest.pop(node_id)
        if mass < tolerance:
            share[node_id] = share.get(node_id, 0.0) + mass
            continue
        if node_id not in ways:
            ways[node_id] = _steps(graph, node_id, is_open)
        share[node_id] = share.get(node_id, 0.0) + mass * (restart if ways[node_id] else 1.0)
        for (other, relation, leaving), part in ways[node_id].items():
            if other not in rest:
                waiting.append(other)
            rest[other] = rest.get(other, 0.0) + mass * (1 - restart) * part
            via.setdefault(other, (*via[node_id], (node_id, relation, leaving)))
    best = sorted(share, key=lambda node_id: (-round(share[node_id], 9), node_id))[:limit]
    return [Reached(node_id, share[node_id], via[node_id]) for node_id in best]


def _steps(
    graph: GraphState, node_id: str, is_open: Callable[[str], bool]
) -> dict[tuple[str, Relation, bool], float]:
    """Return the part that a node passes on along each (other end, relation, leaving?).

    The parts add up to 1.
    """
    if graph.degree(node_id) > HUB:
        return {}
    weights: dict[tuple[str, Relation, bool], float] = {}
    for other, edge, leaving in graph.edges_of(node_id):
        weight = EDGE_WEIGHTS[edge.relation] * edge.confidence
        if weight > 0 and is_open(other):
            step = (other, edge.relation, leaving)
            weights[step] = max(weight, weights.get(step, 0.0))
    total = sum(weights.values())
    return {step: weights[step] / total for step in sorted(weights)}


# -- figures and topics ----------------------------------------------------------------


def graph_stats(state: BankState, known: tuple[BankState, GraphStats] | None = None) -> GraphStats:
    """Count the graph as it stands.

    From the figures of a recent state, if they are `known`, only what changed since is
    counted, unless an event or a turn did.
    """
    before, stats = known or (state, None)
    names = names_between(before, state)
    nodes = [(before.graph.node(name), state.graph.node(name)) for name in names or ()]
    told = any(node and node.kind is NodeKind.EVENT for pair in nodes for node in pair)
    if stats is None or names is None or told or before.turns is not state.turns:
        return _counted(state)
    changes = [*nodes, *edges_between(before.graph, state.graph, names)]
    counts = Counter({**stats.nodes, **stats.edges, "closed": stats.closed_nodes})
    counts.subtract(_word(old) for old, _ in changes if old is not None)
    counts.update(_word(new) for _, new in changes if new is not None)
    return stats.model_copy(
        update={
            "nodes": _sorted({kind.value: n for kind in NodeKind if (n := counts[kind.value])}),
            "closed_nodes": counts["closed"],
            "edges": _sorted({kind.value: n for kind in Relation if (n := counts[kind.value])}),
            "sessions": len(state.sessions),
        }
    )


def _word(part: Event | EventEdge) -> str:
    if isinstance(part, EventEdge):
        return part.relation.value
    return "closed" if part.closed else part.kind.value


def _counted(state: BankState) -> GraphStats:
    nodes = list(state.graph.all_nodes())
    events = {node.id: node for node in nodes if node.kind is NodeKind.EVENT and not node.closed}
    edges = list(state.graph.all_edges())
    parent = {event_id: event_id for event_id in events}
    between: Counter[str] = Counter()
    for edge in edges:
        if edge.source in events and edge.target in events:
            between[edge.relation.value] += 1
            parent[_root(parent, edge.source)] = _root(parent, edge.target)
    components = Counter(_root(parent, event_id) for event_id in events)
    sessions = Counter(event.session_id for event in events.values() if event.session_id)
    return GraphStats(
        nodes=_sorted(Counter(node.kind.value for node in nodes if not node.closed)),
        closed_nodes=sum(node.closed for node in nodes),
        edges=_sorted(Counter(edge.relation.value for edge in edges)),
        event_edges=_sorted(between),
        events_per_session={name: sessions[name] for name in in_order(sessions)},
        sessions=len(state.sessions),
        components=tuple(sorted(components.values(), reverse=True)),
        merged_events=sum(
            bool(event.aliases) or len(_sessions(state, event.source_turn_ids)) > 1
            for event in events.values()
        ),
    )


def _root(parent: dict[str, str], node_id: str) -> str:
    while parent[node_id] != node_id:
        parent[node_id] = node_id = parent[parent[node_id]]
    return node_id


def _sessions(state: BankState, turn_ids: tuple[str, ...]) -> set[str]:
    return {place[0] for turn_id in turn_ids if (place := state.turns.get(turn_id)) is not None}


def _sorted(counts: Mapping[str, int]) -> dict[str, int]:
    """Sort counts, largest first, ties by name."""
    return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))


_ROUNDS = 12


def topics_of(vectors: Matrix) -> list[int]:
    """Return the topic of each unit vector (N, D), numbered from 0; [] without any."""
    n = len(vectors)
    if n == 0:
        return []
    centres = vectors[_spread(vectors, min(n, max(2, min(n // 5, 50))))]  # (K, D)
    labels = np.full(n, -1)
    for _ in range(_ROUNDS):
        nearest = np.argmax(np.round(vectors @ centres.T, 6), axis=1)
        if (nearest == labels).all():
            break
        labels = nearest
        for topic in range(len(centres)):
            members = vectors[labels == topic]
            if len(members):
                centre = members.mean(axis=0)
                centres[topic] = centre / max(float(np.linalg.norm(centre)), 1e-12)
    return [int(label) for label in labels]


def _spread(vectors: Matrix, count: int) -> list[int]:
    chosen = [int(np.argmax(_closeness(vectors, vectors.mean(axis=0))))]
    closeness = _closeness(vectors, vectors[chosen[0]])
    while len(chosen) < count:
        closeness[chosen] = np.inf
        chosen.append(int(np.argmin(closeness)))
        closeness = np.maximum(closeness, _closeness(vectors, vectors[chosen[-1]]))
    return chosen


def _closeness(vectors: Matrix, centre: Vector) -> Vector:
    """Return cosines (N,) with a centre, rounded so that equal texts tie on every machine."""
    return np.asarray(np.round(vectors @ centre, 6), dtype=np.float32)
