"""The event graph through networkx: a frozen `MultiDiGraph` laid over persistent maps,
and the `EventGraph` adapter.

Laying the view costs microseconds at any size (a copy of 20,000 nodes costs most of a
second), and networkx's own algorithms run on it. It reaches into networkx's private
adjacency fields, so the version is bounded in `pyproject.toml` and the tests hold the
contract.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn, cast

import networkx as nx

from memagent.core.answers import Hit, Relevance
from memagent.core.records import Relation
from memagent.core.snapshot import GraphDelta
from memagent.state.adjacency import GraphState, Path

_MUTATORS = (
    "add_node add_nodes_from remove_node remove_nodes_from add_edge add_edges_from add_weighted_edges_from remove_edge remove_edges_from "
    "clear clear_edges update"
).split()


def _refuse(*_: object, **__: object) -> NoReturn:
    raise nx.NetworkXError(
        "this graph is a frozen view of memory; change it through the bank, or take a copy with .copy()"
    )


class FrozenEventGraph(nx.MultiDiGraph):  # pyright: ignore[reportMissingTypeArgument]  # networkx is generic in its stubs only
    """A read-only `MultiDiGraph`.

    Nodes carry `event`, edges `edge`, `relation` and `weight` (the confidence).
    """

    def copy(self, as_view: bool = False) -> nx.MultiDiGraph[str]:
        """An ordinary, mutable `MultiDiGraph` with the same nodes and edges."""
        plain: Any = cast("Any", nx.MultiDiGraph)()
        view: Any = self
        plain.add_nodes_from((node, dict(data)) for node, data in view.nodes(data=True))
        plain.add_edges_from(
            (u, v, key, dict(data)) for u, v, key, data in view.edges(keys=True, data=True)
        )
        return cast("nx.MultiDiGraph[str]", plain)

    def reverse(self, copy: bool = True) -> nx.MultiDiGraph[str]:
        """A mutable graph with every edge turned round."""
        return self.copy().reverse(copy=copy)

    def to_directed_class(self) -> type[nx.MultiDiGraph[Any]]:
        """Class of graphs derived from this one by networkx: the plain, mutable one."""
        return nx.MultiDiGraph

    def to_undirected_class(self) -> type[nx.MultiGraph[Any]]:
        """Class of undirected graphs derived from this one by networkx."""
        return nx.MultiGraph


for _name in _MUTATORS:
    setattr(FrozenEventGraph, _name, _refuse)


def as_networkx(graph: GraphState) -> FrozenEventGraph:
    """A frozen networkx view of the graph; nothing is copied."""
    view: Any = object.__new__(FrozenEventGraph)
    view.graph = {}
    view._node = graph.nodes
    view._adj = graph.succ
    view._pred = graph.pred
    view.frozen = True
    return cast("FrozenEventGraph", view)


def walk_hits(found: Sequence[tuple[str, Path]], graph: GraphState) -> list[Hit]:
    """Hits of a walk: the score is 1 / (1 + distance)."""
    hits: list[Hit] = []
    for node_id, path in found:
        event = graph.node(node_id)
        if event is not None:
            hits.append(
                Hit(
                    id=node_id,
                    kind=event.kind,
                    score=1.0 / (1 + len(path)),
                    event=event,
                    why=Relevance(via=path),
                )
            )
    return hits


class NetworkxGraph:
    """`EventGraph` in memory; `.graph` is the frozen networkx view of its present state."""

    def __init__(self, state: GraphState | None = None) -> None:
        self._state = state or GraphState()

    @property
    def state(self) -> GraphState:
        """The present graph as a value; keep it and later changes do not reach it."""
        return self._state

    @property
    def graph(self) -> nx.MultiDiGraph[str]:
        """A frozen networkx view of the present state."""
        return as_networkx(self._state)

    async def apply(self, delta: GraphDelta) -> None:
        """Assign the delta; applying it twice is the same as once."""
        self._state = self._state.apply(delta)

    async def walk(
        self, seeds: Sequence[str], *, hops: int, relations: frozenset[Relation]
    ) -> list[Hit]:
        """Nodes within `hops` of the seeds along the relations, nearest first; an empty
        set means every relation.
        """
        return walk_hits(
            self._state.walk(seeds, hops=hops, relations=relations or None), self._state
        )
