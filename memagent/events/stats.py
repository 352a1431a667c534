"""Figures of an event graph: its size, its connected parts, its merged events.

Pure; one pass over nodes and edges. Components are counted over events and the edges
between events, the ones a compass walk can follow: over people nearly everything would
hang together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from memagent.core.records import NodeKind
from memagent.core.reports import GraphStats
from memagent.events.merge import in_order
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
