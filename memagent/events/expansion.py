"""Scored expansion over the event graph without a model: personalised PageRank from
seeds, by push, with the path to each node.

The walk restarts at the seeds; an edge passes on by its kind (a cause more than a mere
order in time) times its confidence, either way. The push method (Andersen, Chung and
Lang 2006) touches only nodes that matter. Closed nodes take no part, and a node that
many neighbours hang on is reached but not walked through. Invariant: the shares of all
nodes add up to 1; what arrives below the tolerance stays where it arrived.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Final

from memagent.core.records import Relation
from memagent.state.adjacency import HUB, GraphState, Path

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
"""How much each kind of edge passes on."""


@dataclass(frozen=True, slots=True)
class Reached:
    """A node with its share of the walk and the path by which most of it came first,
    seed first; () for a seed.
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
    """The `limit` open nodes with the largest share, best first, ties by id; seeds (id
    to weight above 0) are among them.

    Closed nodes, unknown ones and those of `without` take no part; [] when no seed is
    left.
    """
    sight = _Sight(graph, without)
    start = {one: weight for one, weight in seeds.items() if weight > 0 and sight.open(one)}
    total = sum(start.values())
    if not total:
        return []
    rest = {one: start[one] / total for one in sorted(start, key=lambda one: (-start[one], one))}
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
            ways[node_id] = _steps(graph, node_id, sight)
        kept = restart if ways[node_id] else 1.0
        share[node_id] = share.get(node_id, 0.0) + mass * kept
        for (other, relation, leaving), part in ways[node_id].items():
            if other not in rest:
                waiting.append(other)
            rest[other] = rest.get(other, 0.0) + mass * (1 - restart) * part
            via.setdefault(other, (*via[node_id], (node_id, relation, leaving)))
    best = sorted(share, key=lambda one: (-round(share[one], 9), one))[:limit]
    return [Reached(one, share[one], via[one]) for one in best]


class _Sight:
    """Which nodes take part, each looked at once."""

    __slots__ = ("_graph", "_known", "_without")

    def __init__(self, graph: GraphState, without: Container[str]) -> None:
        self._graph, self._without = graph, without
        self._known: dict[str, bool] = {}

    def open(self, node_id: str) -> bool:
        known = self._known.get(node_id)
        if known is None:
            node = self._graph.node(node_id)
            known = self._known[node_id] = (
                node is not None and not node.closed and node_id not in self._without
            )
        return known


def _steps(
    graph: GraphState, node_id: str, sight: _Sight
) -> dict[tuple[str, Relation, bool], float]:
    """(other end, relation, leaving?) to its part of what the node passes on; the parts
    add up to 1.
    """
    if graph.degree(node_id) > HUB:
        return {}
    weights: dict[tuple[str, Relation, bool], float] = {}
    for other, edge, leaving in graph.edges_of(node_id):
        weight = EDGE_WEIGHTS[edge.relation] * edge.confidence
        if weight > 0 and sight.open(other):
            step = (other, edge.relation, leaving)
            weights[step] = max(weight, weights.get(step, 0.0))
    total = sum(weights.values())
    return {step: weights[step] / total for step in sorted(weights)}
