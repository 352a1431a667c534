"""Figures of the event graph: what is counted, what is not, and that the commands and
the library tell the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
from bank_kit import DIRECT, batch, fact, new_bank, session
from hypothesis import HealthCheck, given, settings, strategies as st

from memagent import Agent
from memagent.cli.views import stats_view
from memagent.core.errors import MemoryNotFound, StoreError
from memagent.core.ops import Add, Delete
from memagent.core.records import Event, EventEdge, NodeKind, Relation
from memagent.core.snapshot import GraphDelta, GraphStats, MemorySnapshot
from memagent.events.visibility import graph_stats
from memagent.memory.bank import MemoryBank
from memagent.memory.care.erasure import erase_session
from memagent.memory.care.undo import undo
from memagent.memory.facade import Memory
from memagent.memory.timetravel import restore_snapshot
from memagent.state.adjacency import GraphState
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


_NAMES = st.sampled_from("abcdef")
_TURNS = st.lists(st.sampled_from(["D1:1", "D1:2", "D2:1", "D3:1"]), unique=True, max_size=3)
_STEPS = st.one_of(
    st.tuples(st.just("event"), _NAMES, _TURNS, st.booleans(), st.booleans()),
    st.tuples(st.just("edge"), _NAMES, _NAMES, st.sampled_from(list(Relation)[:3])),
    st.tuples(st.just("cut"), _NAMES, _NAMES, st.sampled_from(list(Relation)[:3])),
    st.tuples(st.sampled_from(["add", "delete", "out", "keep", "back", "undo"]), _NAMES),
    st.tuples(st.sampled_from(["session", "forget"]), st.integers(1, 3)),
)


async def carried_out(bank: MemoryBank, step: tuple[Any, ...], kept: list[MemorySnapshot]) -> None:
    """Change a memory by one step: its events, edges, items, sessions, or all at once."""
    name = f"evt_{step[1]}"
    match step:
        case "event", letter, turns, closed, merged:
            aliases = ("other words",) if merged else ()
            node = event(letter, *turns, closed=closed, aliases=aliases, told_in=f"s{len(turns)}")
            entry = GraphDelta(nodes=(node,))
        case "edge", _, other, relation:
            ends = (event(step[1]), event(other))
            new = tuple(node for node in ends if bank.state.graph.node(node.id) is None)
            entry = GraphDelta(nodes=new, edges=(edge(name, f"evt_{other}", relation),))
        case "cut", _, other, relation:
            entry = GraphDelta(removed_edges=((name, f"evt_{other}", relation.value),))
        case "out", _:
            entry = GraphDelta(removed_nodes=(name,))
        case "session", number:
            await bank.store_session(session(number))
            return
        case "forget", number:
            with suppress(MemoryNotFound):
                await erase_session(bank, f"s{number}")
            return
        case "keep", _:
            kept.append(bank.snapshot())
            return
        case "back", _:
            await restore_snapshot(bank, kept[-1])
            return
        case "undo", _:
            with suppress(StoreError):
                await undo(bank)
            return
        case _:
            op = Add(fact=fact(step[1])) if step[0] == "add" else Delete(id=name)
            await bank.commit(batch(op), source=DIRECT)
            return
    await bank.append(lambda _: entry)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(_STEPS, max_size=25), st.integers(1, 4))
async def test_figures_corrected_by_what_changed_are_those_of_a_full_count(
    steps: list[tuple[Any, ...]], every: int
) -> None:
    bank = new_bank()
    kept, memory = [bank.snapshot()], Memory(bank)
    for number, step in enumerate(steps):
        await carried_out(bank, step, kept)
        if number % every == 0:
            assert await memory.graph_stats() == graph_stats(bank.state)
    assert await memory.graph_stats() == graph_stats(bank.state)


async def test_one_change_is_not_a_reason_to_count_all(monkeypatch: pytest.MonkeyPatch) -> None:
    bank = new_bank()
    memory = Memory(bank)
    before = await memory.graph_stats()
    monkeypatch.delattr(GraphState, "all_nodes")
    monkeypatch.delattr(GraphState, "all_edges")
    await memory.add("Ana lives in Porto", subject="Ana")
    stats = await memory.graph_stats()
    assert (before.nodes, stats.nodes) == ({}, {"entity": 2, "item": 1})
    assert stats.edges == {"mentions": 2}
