"""Figures and topics of an event graph.

The figures are its size, its connected parts and its merged events. Pure; one pass over
nodes and edges. Components are counted over events and the edges between events, the
ones a compass walk can follow: over people nearly everything would hang together.

Topics are K-means over the events' unit vectors, K = max(2, min(n // 5, 50)). They are
made anew from the graph whenever they are needed: they follow from the events' vectors
alone, so nothing of them is journalled. Deterministic: the first centre is the vector
nearest to the mean, each further one the vector farthest from all chosen, ties by
position.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from memagent.core.records import NodeKind
from memagent.core.snapshot import GraphStats
from memagent.events.merge import in_order
from memagent.protocols import Matrix, Vector
from memagent.state.fold import BankState


def graph_stats(state: BankState) -> GraphStats:
    """Count the graph as it stands."""
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
