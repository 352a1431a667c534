"""The event graph as a value: persistent maps of nodes and of edges in both directions.

The maps have exactly the nesting networkx uses (node -> attributes; node -> neighbour
-> key -> attributes), so `networkx_graph` can lay a frozen `MultiDiGraph` over them
without copying. Every change gives a new graph that shares the rest; the root hash is
kept per edit. Invariants: both ends of an edge exist; the attribute dict of an edge is
one object seen from both ends and never mutated.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict, TypeVar, cast

from rpds import HashTrieMap

from memagent.core.errors import StoreError
from memagent.core.records import Event, EventEdge, MemoryItem, NodeKind, Relation
from memagent.core.snapshot import GraphDelta, add_hash, edge_hash, node_hash, sub_hash

K = TypeVar("K")
V = TypeVar("V")


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
_NO_EDGES: Keyed = HashTrieMap()
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
        """Return a node, or None."""
        data = self.nodes.get(node_id)
        return None if data is None else data["event"]

    def edge(self, source: str, target: str, key: str) -> EventEdge | None:
        """Return an edge, or None."""
        targets = self.succ.get(source)
        keyed = None if targets is None else targets.get(target)
        data = None if keyed is None else keyed.get(key)
        return None if data is None else data["edge"]

    def all_nodes(self) -> Iterator[Event]:
        """Yield every node, in no particular order."""
        return (data["event"] for _, data in pairs(self.nodes))

    def all_edges(self) -> Iterator[EventEdge]:
        """Yield every edge, in no particular order."""
        sources = (targets for _, targets in pairs(self.succ) if len(targets))
        keyed = (keyed for targets in sources for _, keyed in pairs(targets))
        return (data["edge"] for edges in keyed for _, data in pairs(edges))

    def edges_of(self, node_id: str) -> Iterator[tuple[str, EventEdge, bool]]:
        """Yield (other end, edge, leaving?) for every edge at a node."""
        for adjacency, leaving in ((self.succ, True), (self.pred, False)):
            for other, keyed in pairs(adjacency.get(node_id, _NO_NEIGHBOURS)):
                for _, data in pairs(keyed):
                    yield other, data["edge"], leaving

    def degree(self, node_id: str) -> int:
        """Count the neighbours of a node, once in each direction; 0 when unknown."""
        return sum(len(adjacency.get(node_id, ())) for adjacency in (self.succ, self.pred))

    def apply(self, delta: GraphDelta) -> GraphState:
        """Return the graph after a delta: removals first, then nodes and edges assigned.

        Raises `StoreError` on a dangling edge.
        """
        graph = self
        for source, target, key in delta.removed_edges:
            graph = _without_edge(graph, source, target, key)
        for node_id in delta.removed_nodes:
            graph = _without_node(graph, node_id)
        for node in delta.nodes:
            graph = _with_node(graph, node)
        for edge in delta.edges:
            graph = _with_edge(graph, edge)
        return graph

    def walk(
        self,
        seeds: Iterable[str],
        *,
        hops: int,
        relations: frozenset[Relation] | None = None,
        limit: int | None = None,
        hub: int = HUB,
    ) -> list[tuple[str, Path]]:
        """Return the open nodes within `hops` edges of the seeds, breadth first.

        Edges are followed either way along the relations; seeds are left out. Order: by
        distance, then in the order the seeds lead to them, ties by id. `relations` None
        means all. Closed nodes are neither returned nor passed through; nodes with more
        than `hub` neighbours are returned but not passed through, for what hangs on
        someone everybody mentions is no neighbourhood.
        """
        ring: list[tuple[str, Path]] = [
            (seed, ()) for seed in dict.fromkeys(seeds) if seed in self.nodes
        ]
        seen = {seed for seed, _ in ring}
        reached: list[tuple[str, Path]] = []
        for _ in range(hops):
            following: list[tuple[str, Path]] = []
            for node_id, path in ring:
                if self.degree(node_id) > hub:
                    continue
                for other, relation, leaving in self._steps(node_id, relations, seen):
                    if other in seen or self.nodes[other]["event"].closed:
                        continue
                    seen.add(other)
                    step = (other, (*path, (node_id, relation, leaving)))
                    reached.append(step)
                    if limit is not None and len(reached) >= limit:
                        return reached
                    following.append(step)
            ring = following
        return reached

    def _steps(
        self, node_id: str, relations: frozenset[Relation] | None, seen: Container[str]
    ) -> list[tuple[str, Relation, bool]]:
        """Return (other end, relation, leaving?) of the edges to unseen nodes, in order."""
        steps = (
            (other, data["edge"].relation, leaving)
            for adjacency, leaving in ((self.succ, True), (self.pred, False))
            for other, keyed in pairs(adjacency.get(node_id, _NO_NEIGHBOURS))
            if other not in seen
            for _, data in pairs(keyed)
        )
        return sorted(step for step in steps if relations is None or step[1] in relations)


def _with_node(graph: GraphState, node: Event) -> GraphState:
    old = graph.node(node.id)
    if old == node:
        return graph
    root = add_hash(
        graph.root if old is None else sub_hash(graph.root, node_hash(old)), node_hash(node)
    )
    nodes = graph.nodes.insert(node.id, NodeData(event=node))
    if old is not None:
        return GraphState(nodes, graph.succ, graph.pred, graph.edge_count, root)
    return GraphState(
        nodes,
        graph.succ.insert(node.id, _NO_NEIGHBOURS),
        graph.pred.insert(node.id, _NO_NEIGHBOURS),
        graph.edge_count,
        root,
    )


def _with_edge(graph: GraphState, edge: EventEdge) -> GraphState:
    for end in (edge.source, edge.target):
        if end not in graph.nodes:
            raise StoreError(
                f"edge {edge.source} -{edge.key}-> {edge.target} has no node {end!r} in the graph"
            )
    key = edge.key
    old = graph.edge(edge.source, edge.target, key)
    if old == edge:
        return graph
    root = graph.root if old is None else sub_hash(graph.root, edge_hash(old))
    data = EdgeData(edge=edge, relation=key.partition(":")[0], weight=edge.confidence)
    return GraphState(
        graph.nodes,
        _put(graph.succ, edge.source, edge.target, key, data),
        _put(graph.pred, edge.target, edge.source, key, data),
        graph.edge_count + (old is None),
        add_hash(root, edge_hash(edge)),
    )


def _without_edge(graph: GraphState, source: str, target: str, key: str) -> GraphState:
    old = graph.edge(source, target, key)
    if old is None:
        return graph
    return GraphState(
        graph.nodes,
        _take(graph.succ, source, target, key),
        _take(graph.pred, target, source, key),
        graph.edge_count - 1,
        sub_hash(graph.root, edge_hash(old)),
    )


def _without_node(graph: GraphState, node_id: str) -> GraphState:
    old = graph.node(node_id)
    if old is None:
        return graph
    for _, edge, _ in list(graph.edges_of(node_id)):
        graph = _without_edge(graph, edge.source, edge.target, edge.key)
    return GraphState(
        graph.nodes.remove(node_id),
        graph.succ.remove(node_id),
        graph.pred.remove(node_id),
        graph.edge_count,
        sub_hash(graph.root, node_hash(old)),
    )


def edges_between(
    before: GraphState, after: GraphState, among: Collection[str] | None = None
) -> Iterator[tuple[EventEdge | None, EventEdge | None]]:
    """Yield (edge before, edge after) of every edge that differs, by source, target and key.

    `among` names nodes outside of which no edge differs.
    """
    for source in unshared(before.succ, after.succ, among):
        old, new = (graph.succ.get(source, _NO_NEIGHBOURS) for graph in (before, after))
        for target in unshared(old, new, among):
            was, now = (side.get(target, _NO_EDGES) for side in (old, new))
            for key in unshared(was, now):
                pair = before.edge(source, target, key), after.edge(source, target, key)
                if pair[0] != pair[1]:
                    yield pair


def graph_delta_between(
    before: GraphState, after: GraphState, among: Collection[str] | None = None
) -> GraphDelta:
    """Return the delta that turns one graph into the other; only `among` may differ."""
    names = unshared(before.nodes, after.nodes, among)
    edges = list(edges_between(before, after, among))
    return GraphDelta(
        nodes=tuple(
            node for name in names if (node := after.node(name)) and node != before.node(name)
        ),
        edges=tuple(new for _, new in edges if new is not None),
        removed_nodes=tuple(name for name in names if name not in after.nodes),
        removed_edges=tuple(
            (old.source, old.target, old.key) for old, new in edges if old and new is None
        ),
    )


def graph_of(nodes: Iterable[Event], edges: Iterable[EventEdge]) -> GraphState:
    """Build a graph of these nodes and edges."""
    return GraphState().apply(GraphDelta(nodes=tuple(nodes), edges=tuple(edges)))


def _put(adjacency: Adjacency, a: str, b: str, key: str, data: EdgeData) -> Adjacency:
    neighbours = adjacency[a]
    keyed: Keyed = neighbours.get(b) or HashTrieMap()
    return adjacency.insert(a, neighbours.insert(b, keyed.insert(key, data)))


def _take(adjacency: Adjacency, a: str, b: str, key: str) -> Adjacency:
    neighbours = adjacency[a]
    keyed = neighbours[b].remove(key)
    return adjacency.insert(a, neighbours.insert(b, keyed) if len(keyed) else neighbours.remove(b))


# -- tables ----------------------------------------------------------------------------


def pairs(table: Mapping[K, V]) -> Iterable[tuple[K, V]]:
    """Return the (key, value) pairs of a table, in no particular order.

    An iterator of `rpds` takes one key after the other off a copy of the map; the list
    that a map gives to pickle holds the same and is made four times as fast.
    """
    if type(table) is HashTrieMap:
        return cast("list[tuple[K, V]]", table.__reduce__()[1][0])
    return table.items()


def unshared(
    before: Mapping[str, object],
    after: Mapping[str, object],
    among: Collection[str] | None = None,
) -> list[str]:
    """Return the sorted keys whose values are not one and the same object in both tables.

    Values of one memory that nobody changed are shared between its states, so what may
    have changed is found without comparing them. Of two large tables that differ in no
    key but `among`, no other is looked at.
    """
    if among is not None and len(among) < len(before) + len(after):
        return sorted(key for key in among if before.get(key) is not after.get(key))
    gone = [key for key, _ in pairs(before) if key not in after]
    return sorted(gone + [key for key, value in pairs(after) if before.get(key) is not value])


# -- nodes that stand for items and events ---------------------------------------------


def version_node_id(record_id: str, version: int) -> str:
    """Return the node id of an old version of an item or event."""
    return f"{record_id}@{version}"


def item_node(item: MemoryItem, *, node_id: str | None = None, closed: bool = False) -> Event:
    """Return the node that stands for an item or, closed, for an old version of it."""
    return Event(
        id=node_id or item.id,
        kind=NodeKind.ITEM,
        summary=item.text[:240],
        people=tuple(dict.fromkeys(filter(None, (item.subject, item.speaker)))),
        source_turn_ids=item.source_turn_ids,
        valid=item.valid,
        said_at=item.said_at,
        session_id=item.session_id,
        closed=closed or not item.active,
    )


def event_version(graph: GraphState, node_id: str) -> int:
    """Return the version of an event: one more than the older versions it supersedes."""
    return 1 + sum(
        leaving and edge.relation is Relation.SUPERSEDES
        for _, edge, leaving in graph.edges_of(node_id)
    )


def event_as_item(graph: GraphState, event: Event) -> MemoryItem | None:
    """Return an event as the item that an op may target.

    None for nodes that are not open events or say nothing.
    """
    if event.kind is not NodeKind.EVENT or event.closed or not event.summary:
        return None
    return MemoryItem(
        id=event.id,
        version=event_version(graph, event.id),
        text=event.summary,
        kind="event",
        subject=event.people[0] if event.people else None,
        source_turn_ids=event.source_turn_ids,
        session_id=event.session_id,
        valid=event.valid,
        said_at=event.said_at,
    )
