"""The frozen networkx graph over memory: networkx's own algorithms run on it, and
nobody can change it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, cast

import networkx as nx
import pytest
from bank_kit import batch, fact, ids, new_bank, session, source

from memagent.async_agent import AsyncAgent
from memagent.core.ops import Add, Delete, Update
from memagent.core.records import Event, EventEdge, Relation
from memagent.core.snapshot import GraphDelta
from memagent.designs.add_only import DESIGN
from memagent.events.graph_files import FrozenEventGraph
from memagent.state.adjacency import GraphState, graph_delta_between, graph_of
from memagent.testing import FunctionModel


def random_graph(nodes: int, edges: int, seed: int) -> GraphState:
    dice = random.Random(seed)
    names = [f"n{i:03d}" for i in range(nodes)]
    relations = list(Relation)
    linked = [
        EventEdge(
            source=dice.choice(names), target=dice.choice(names), relation=dice.choice(relations)
        )
        for _ in range(edges)
    ]
    return graph_of([Event(id=name, summary=name) for name in names], linked)


def plain(graph: GraphState) -> Any:
    """The same graph built by networkx itself."""
    copy: Any = nx.MultiDiGraph()
    for node in graph.all_nodes():
        copy.add_node(node.id, event=node)
    for edge in graph.all_edges():
        copy.add_edge(
            edge.source,
            edge.target,
            key=edge.key,
            edge=edge,
            relation=edge.relation.value,
            weight=edge.confidence,
        )
    return copy


@pytest.mark.parametrize("seed", range(5))
def test_algorithms_give_what_they_give_on_an_ordinary_graph(seed: int) -> None:
    state = random_graph(40, 120, seed)
    view, ordinary = cast("Any", FrozenEventGraph(state)), plain(state)
    assert isinstance(view, FrozenEventGraph)
    assert nx.utils.graphs_equal(view.copy(), ordinary)
    assert (view.number_of_nodes(), view.number_of_edges()) == (
        ordinary.number_of_nodes(),
        ordinary.number_of_edges(),
    )
    assert dict(view.degree()) == dict(ordinary.degree())
    assert nx.is_directed_acyclic_graph(view) == nx.is_directed_acyclic_graph(ordinary)
    start = "n000"
    assert dict(nx.single_source_shortest_path_length(view, start)) == dict(
        nx.single_source_shortest_path_length(ordinary, start)
    )
    assert {frozenset(part) for part in nx.weakly_connected_components(view)} == {
        frozenset(part) for part in nx.weakly_connected_components(ordinary)
    }
    assert nx.utils.graphs_equal(cast("Any", view.reverse()), ordinary.reverse())
    assert set(view.subgraph(["n000", "n001", "n002"]).edges()) == set(
        ordinary.subgraph(["n000", "n001", "n002"]).edges()
    )


@pytest.mark.parametrize("seed", range(5))
def test_walks_reach_what_a_breadth_first_search_reaches(seed: int) -> None:
    state = random_graph(60, 70, seed)
    undirected = plain(state).to_undirected()
    for hops in (1, 2, 3):
        reached = dict(nx.single_source_shortest_path_length(undirected, "n005", cutoff=hops))
        walked = {node: len(path) for node, path in state.walk(["n005"], hops=hops)}
        assert walked == {node: distance for node, distance in reached.items() if node != "n005"}


def test_a_view_is_frozen_and_a_copy_is_not() -> None:
    view: Any = FrozenEventGraph(random_graph(5, 5, 1))
    for change in (
        lambda: view.add_node("x"),
        lambda: view.add_edge("n000", "n001"),
        lambda: view.remove_node("n000"),
        lambda: view.remove_edges_from([]),
        lambda: view.clear(),
        lambda: view.update(nodes=["x"]),
    ):
        with pytest.raises(nx.NetworkXError, match="frozen view of memory"):
            change()
    copy = view.copy()
    copy.add_node("x")
    assert "x" not in view


def test_a_delta_between_two_graphs_leads_from_one_to_the_other() -> None:
    one, two = random_graph(20, 30, 1), random_graph(25, 30, 2)
    assert one.apply(graph_delta_between(one, two)).root == two.root
    assert graph_delta_between(one, one) == GraphDelta()


def test_hubs_are_returned_but_not_passed_through() -> None:
    hub = [EventEdge(source=f"m{i}", target="hub", relation=Relation.MENTIONS) for i in range(300)]
    state = graph_of([Event(id="hub"), *(Event(id=f"m{i}") for i in range(300))], hub)
    assert [node for node, _ in state.walk(["m7"], hops=2)] == ["hub"]
    assert len(state.walk(["m7"], hops=2, hub=1_000)) == 300


async def test_the_agent_shows_its_graph() -> None:
    bank = new_bank()
    await bank.store_session(session(1))
    agent = AsyncAgent(design=DESIGN, model=FunctionModel(lambda _: ""), bank=bank)
    before: Any = agent.event_graph
    made = await bank.commit(
        batch(Add(fact=fact("Ana met Maria", day=1)), Add(fact=fact("Ana left", day=5))),
        source=source(1),
    )
    met, left = ids(made)
    await bank.commit(batch(Update(id=met, text="Ana met Mara"), Delete(id=left)), source=source(1))
    graph: Any = agent.event_graph
    assert graph.has_edge(met, f"{met}@1", key="supersedes")
    assert graph.nodes[left]["event"].closed
    assert isinstance(graph.get_edge_data(met, f"{met}@1"), Mapping)
    assert len(before) == 0
