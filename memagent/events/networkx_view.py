"""The event graph through networkx: a frozen `MultiDiGraph` laid over persistent maps.

Laying the view costs microseconds at any size (a copy of 20,000 nodes costs most of a
second), and networkx's own algorithms run on it. The maps enter by the dict factories
that networkx documents for subclasses.
"""

from __future__ import annotations

from typing import Any, NoReturn, cast

import networkx as nx

from memagent.state.adjacency import GraphState

_MUTATORS = (
    "add_node add_nodes_from remove_node remove_nodes_from add_edge add_edges_from"
    " add_weighted_edges_from remove_edge remove_edges_from clear clear_edges update"
).split()


def _refuse(*_: object, **__: object) -> NoReturn:
    raise nx.NetworkXError(
        "this graph is a frozen view of memory; change it through the bank,"
        " or take a copy with .copy()"
    )


class FrozenEventGraph(nx.MultiDiGraph):  # pyright: ignore[reportMissingTypeArgument]  # generic in the stubs only
    """A read-only `MultiDiGraph`.

    Nodes carry `event`, edges `edge`, `relation` and `weight` (the confidence).
    """

    frozen = True

    def __init__(self, memory: GraphState | None = None) -> None:  # pyright: ignore[reportInconsistentConstructor]  # `__new__` takes anything
        """Lay the graph over the maps of a memory; without one it is empty."""
        if memory is None:  # networkx makes one for a view of a part
            super().__init__()  # pyright: ignore[reportUnknownMemberType]
            return
        # networkx asks twice for an outer map: successors first, then predecessors
        outer = iter((memory.succ, memory.pred))
        factories = ("node_dict_factory", "adjlist_outer_dict_factory")
        vars(self).update(zip(factories, (lambda: memory.nodes, lambda: next(outer)), strict=True))
        super().__init__()  # pyright: ignore[reportUnknownMemberType]
        for factory in factories:
            del vars(self)[factory]

    def copy(self, as_view: bool = False) -> nx.MultiDiGraph[str]:  # noqa: ARG002  # interface
        """Return an ordinary, mutable `MultiDiGraph` with the same nodes and edges."""
        plain: Any = cast("Any", nx.MultiDiGraph)()
        view: Any = self
        plain.add_nodes_from((node, dict(data)) for node, data in view.nodes(data=True))
        plain.add_edges_from(
            (u, v, key, dict(data)) for u, v, key, data in view.edges(keys=True, data=True)
        )
        return cast("nx.MultiDiGraph[str]", plain)

    def reverse(self, copy: bool = True) -> nx.MultiDiGraph[str]:
        """Return a mutable graph with every edge turned round."""
        return self.copy().reverse(copy=copy)

    def to_directed_class(self) -> type[nx.MultiDiGraph[Any]]:
        """Return the class of graphs that networkx derives: the plain, mutable one."""
        return nx.MultiDiGraph

    def to_undirected_class(self) -> type[nx.MultiGraph[Any]]:
        """Return the class of undirected graphs that networkx derives."""
        return nx.MultiGraph


for _name in _MUTATORS:
    setattr(FrozenEventGraph, _name, _refuse)


def as_networkx(graph: GraphState) -> FrozenEventGraph:
    """Lay a frozen networkx view over the graph without copying."""
    return FrozenEventGraph(graph)
