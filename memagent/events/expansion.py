"""Scored expansion over the event graph without a model: personalised PageRank by push.

The walk restarts at the seeds; an edge passes on by its kind (a cause more than a mere
order in time) times its confidence, either way. The push method (Andersen, Chung and
Lang 2006) touches only nodes that matter. Closed nodes take no part, and a node that
many neighbours hang on is reached but not walked through. Invariant: the shares of all
nodes add up to 1; what arrives below the tolerance stays where it arrived.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from functools import cache
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
        held = restart if ways[node_id] else 1.0
        share[node_id] = share.get(node_id, 0.0) + mass * held
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
