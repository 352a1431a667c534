"""The event graph as a value: persistent maps of nodes and of edges in both directions.

The maps have exactly the nesting networkx uses (node -> attributes; node -> neighbour
-> key -> attributes), so `networkx_graph` can lay a frozen `MultiDiGraph` over them
without copying. Every change gives a new graph that shares the rest; the root hash is
kept per edit. Invariants: both ends of an edge exist; the attribute dict of an edge is
one object seen from both ends and never mutated.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypedDict

from rpds import HashTrieMap

from memagent.core.errors import StoreError
from memagent.core.records import Event, EventEdge, Relation
from memagent.core.snapshot import GraphDelta, add_hash, edge_hash, node_hash, sub_hash


class NodeData(TypedDict):
    """Attributes of a node."""

    event: Event


class EdgeData(TypedDict):
    """Attributes of an edge."""

    edge: EventEdge
    relation: str
    weight: float


if TYPE_CHECKING:  # the map type takes no parameters at run time
    Keyed = HashTrieMap[str, EdgeData]
    Adjacency = HashTrieMap[str, HashTrieMap[str, Keyed]]

Path = tuple[tuple[str, Relation, bool], ...]
"""Steps (node left, relation, along the edge's direction?) from a seed."""


_NO_NEIGHBOURS: HashTrieMap[str, Keyed] = HashTrieMap()
HUB = 256
"""Neighbours above which a node is not walked through."""


@dataclass(frozen=True, slots=True)
class GraphState:
    """An immutable typed multigraph.

    `root` is the multiset hash of its nodes and edges.
    """

    nodes: HashTrieMap[str, NodeData] = HashTrieMap()
    succ: Adjacency = HashTrieMap()
    pred: Adjacency = HashTrieMap()
    edge_count: int = 0
    root: int = 0

    def __len__(self) -> int:
        return len(self.nodes)

    def node(self, node_id: str) -> Event | None:
        """The node, or None."""
        data = self.nodes.get(node_id)
        return None if data is None else data["event"]

    def edge(self, source: str, target: str, key: str) -> EventEdge | None:
        """The edge, or None."""
        targets = self.succ.get(source)
        keyed = None if targets is None else targets.get(target)
        data = None if keyed is None else keyed.get(key)
        return None if data is None else data["edge"]

    def all_nodes(self) -> Iterator[Event]:
        """Every node, in no particular order."""
        return (data["event"] for data in self.nodes.values())

    def all_edges(self) -> Iterator[EventEdge]:
        """Every edge, in no particular order."""
        for targets in self.succ.values():
            for keyed in targets.values():
                for data in keyed.values():
                    yield data["edge"]

    def edges_of(self, node_id: str) -> Iterator[tuple[str, EventEdge, bool]]:
        """(other end, edge, leaving?) of every edge at a node."""
        for adjacency, leaving in ((self.succ, True), (self.pred, False)):
            neighbours = adjacency.get(node_id)
            if neighbours is not None:
                for other, keyed in neighbours.items():
                    for data in keyed.values():
                        yield other, data["edge"], leaving

    def degree(self, node_id: str) -> int:
        """How many neighbours a node has, counted once in each direction; 0 when unknown."""
        return sum(len(adjacency.get(node_id, ())) for adjacency in (self.succ, self.pred))

    def apply(self, delta: GraphDelta) -> GraphState:
        """The graph after a delta: removals first, then nodes and edges assigned.

        Raises `StoreError` on a dangling edge.
        """
        graph = self
        for source, target, key in delta.removed_edges:
            graph = graph._without_edge(source, target, key)
        for node_id in delta.removed_nodes:
            graph = graph._without_node(node_id)
        for node in delta.nodes:
            graph = graph._with_node(node)
        for edge in delta.edges:
            graph = graph._with_edge(edge)
        return graph

    def _with_node(self, node: Event) -> GraphState:
        old = self.node(node.id)
        if old == node:
            return self
        root = self.root if old is None else sub_hash(self.root, node_hash(old))
        nodes = self.nodes.insert(node.id, NodeData(event=node))
        root = add_hash(root, node_hash(node))
        if old is not None:
            return replace(self, nodes=nodes, root=root)
        empty: HashTrieMap[str, Keyed] = HashTrieMap()
        return GraphState(
            nodes,
            self.succ.insert(node.id, empty),
            self.pred.insert(node.id, empty),
            self.edge_count,
            root,
        )

    def _with_edge(self, edge: EventEdge) -> GraphState:
        for end in (edge.source, edge.target):
            if end not in self.nodes:
                raise StoreError(
                    f"edge {edge.source} -{edge.key}-> {edge.target} has no node {end!r} in the graph"
                )
        old = self.edge(edge.source, edge.target, edge.key)
        if old == edge:
            return self
        root = self.root if old is None else sub_hash(self.root, edge_hash(old))
        data = EdgeData(edge=edge, relation=edge.key.partition(":")[0], weight=edge.confidence)
        return GraphState(
            self.nodes,
            _put(self.succ, edge.source, edge.target, edge.key, data),
            _put(self.pred, edge.target, edge.source, edge.key, data),
            self.edge_count + (old is None),
            add_hash(root, edge_hash(edge)),
        )

    def _without_edge(self, source: str, target: str, key: str) -> GraphState:
        old = self.edge(source, target, key)
        if old is None:
            return self
        return GraphState(
            self.nodes,
            _take(self.succ, source, target, key),
            _take(self.pred, target, source, key),
            self.edge_count - 1,
            sub_hash(self.root, edge_hash(old)),
        )

    def _without_node(self, node_id: str) -> GraphState:
        old = self.node(node_id)
        if old is None:
            return self
        graph = self
        for _, edge, _ in list(self.edges_of(node_id)):
            graph = graph._without_edge(edge.source, edge.target, edge.key)
        return GraphState(
            graph.nodes.remove(node_id),
            graph.succ.remove(node_id),
            graph.pred.remove(node_id),
            graph.edge_count,
            sub_hash(graph.root, node_hash(old)),
        )

    def walk(
        self,
        seeds: Iterable[str],
        *,
        hops: int,
        relations: frozenset[Relation] | None = None,
        limit: int | None = None,
        hub: int = HUB,
    ) -> list[tuple[str, Path]]:
        """Open nodes within `hops` edges of the seeds, breadth first, either way along
        the relations; seeds are left out.

        Order: by distance, then in the order the seeds lead to them, ties by id.
        `relations` None means all. Closed nodes are neither returned nor passed
        through; nodes with more than `hub` neighbours are returned but not passed
        through, for what hangs on someone everybody mentions is no neighbourhood.
        """
        seen = {seed for seed in seeds if seed in self.nodes}
        ring: deque[tuple[str, Path]] = deque(
            (seed, ()) for seed in dict.fromkeys(seeds) if seed in self.nodes
        )
        found: list[tuple[str, Path]] = []
        for _ in range(hops):
            following: deque[tuple[str, Path]] = deque()
            for node_id, path in ring:
                if self.degree(node_id) > hub:
                    continue
                for other, relation, leaving in self._steps(node_id, relations, seen):
                    if other in seen or self.nodes[other]["event"].closed:
                        continue
                    seen.add(other)
                    step = (other, (*path, (node_id, relation, leaving)))
                    found.append(step)
                    if limit is not None and len(found) >= limit:
                        return found
                    following.append(step)
            ring = following
        return found

    def _steps(
        self, node_id: str, relations: frozenset[Relation] | None, seen: Container[str]
    ) -> list[tuple[str, Relation, bool]]:
        """(other end, relation, leaving?) of the edges to nodes not seen yet, in order."""
        steps: list[tuple[str, Relation, bool]] = []
        for adjacency, leaving in ((self.succ, True), (self.pred, False)):
            for other, keyed in adjacency.get(node_id, _NO_NEIGHBOURS).items():
                if other not in seen:
                    for data in keyed.values():
                        relation = data["edge"].relation
                        if relations is None or relation in relations:
                            steps.append((other, relation, leaving))
        return sorted(steps)


def graph_delta_between(before: GraphState, after: GraphState) -> GraphDelta:
    """The delta that turns one graph into the other."""
    gone_edges = [
        (e.source, e.target, e.key)
        for e in before.all_edges()
        if after.edge(e.source, e.target, e.key) is None
    ]
    return GraphDelta(
        nodes=tuple(node for node in after.all_nodes() if before.node(node.id) != node),
        edges=tuple(e for e in after.all_edges() if before.edge(e.source, e.target, e.key) != e),
        removed_nodes=tuple(node.id for node in before.all_nodes() if node.id not in after.nodes),
        removed_edges=tuple(gone_edges),
    )


def graph_of(nodes: Iterable[Event], edges: Iterable[EventEdge]) -> GraphState:
    """A graph with these nodes and edges."""
    return GraphState().apply(GraphDelta(nodes=tuple(nodes), edges=tuple(edges)))


def _put(adjacency: Adjacency, a: str, b: str, key: str, data: EdgeData) -> Adjacency:
    neighbours = adjacency[a]
    keyed: Keyed = neighbours.get(b) or HashTrieMap()
    return adjacency.insert(a, neighbours.insert(b, keyed.insert(key, data)))


def _take(adjacency: Adjacency, a: str, b: str, key: str) -> Adjacency:
    neighbours = adjacency[a]
    keyed = neighbours[b].remove(key)
    return adjacency.insert(a, neighbours.insert(b, keyed) if len(keyed) else neighbours.remove(b))
