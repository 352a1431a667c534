"""Figures of the event graph: what is counted, what is not, and that the commands and
the library tell the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from bank_kit import new_bank, session

from memagent import Agent
from memagent.cli.views import stats_view
from memagent.core.records import Event, EventEdge, NodeKind, Relation
from memagent.core.snapshot import GraphDelta, GraphStats
from memagent.events.visibility import graph_stats
from memagent.memory.facade import Memory
from memagent.state.fold import EMPTY_STATE


def event(name: str, *turns: str, told_in: str = "s1", **more: object) -> Event:
    return Event.model_validate(
        {
            "id": f"evt_{name}",
            "summary": name,
            "source_turn_ids": turns,
            "session_id": told_in,
            **more,
        }
    )


def edge(source: str, target: str, relation: Relation) -> EventEdge:
    return EventEdge(source=source, target=target, relation=relation)


async def stats_of(nodes: Sequence[Event], edges: Sequence[EventEdge]) -> GraphStats:
    bank = new_bank()
    for number in (1, 2, 10):
        await bank.store_session(session(number))
    await bank.index(GraphDelta(nodes=tuple(nodes), edges=tuple(edges)))
    return await Memory(bank).graph_stats()


async def test_kinds_components_sessions_and_merges_are_counted() -> None:
    nodes = [
        event("a", "D1:1", "D2:1"),
        event("b", "D1:2"),
        event("c", "D2:2", told_in="s2"),
        event("d", "D10:1", told_in="s10", aliases=("dee",)),
        event("gone", "D1:3", closed=True),
        Event(id="ent_x", kind=NodeKind.ENTITY, summary="Ana"),
    ]
    edges = [
        edge("evt_a", "evt_b", Relation.CAUSES),
        edge("evt_b", "evt_c", Relation.CAUSES),
        edge("evt_a", "ent_x", Relation.MENTIONS),
        edge("evt_d", "ent_x", Relation.MENTIONS),
    ]
    stats = await stats_of(nodes, edges)
    assert (stats.nodes, stats.closed_nodes, stats.events) == ({"event": 4, "entity": 1}, 1, 4)
    assert stats.edges == {"causes": 2, "mentions": 2} and stats.event_edges == {"causes": 2}
    assert stats.components == (3, 1), "a person everybody mentions joins nothing"
    assert list(stats.events_per_session.items()) == [("s1", 2), ("s2", 1), ("s10", 1)]
    assert (stats.merged_events, stats.sessions) == (2, 3), (
        "told in two sessions, or in two wordings"
    )


def test_an_empty_memory_has_figures_too() -> None:
    stats = graph_stats(EMPTY_STATE)
    assert (stats.events, stats.components, stats.nodes, stats.merged_events) == (0, (), {}, 0)
    assert stats_view({"memories": 0}, stats) is not None


def test_the_synchronous_face_tells_the_same() -> None:
    with Agent(path=":memory:") as agent:
        agent.memory.add("Ana lives in Porto", subject="Ana")
        stats = agent.memory.graph_stats()
        assert stats.nodes == {"entity": 2, "item": 1} and stats.edges == {"mentions": 2}
