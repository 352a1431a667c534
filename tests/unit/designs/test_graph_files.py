"""The exported event graph: what it holds, and that JSON and GraphML come back as they
went, through networkx too.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import networkx as nx
import numpy as np
import pytest
from bank_kit import DAY, filled
from hypothesis import given, strategies as st

from memagent import Agent, AsOf
from memagent.core.answers import GraphDocument, GraphEdge, GraphNode, GraphTurn, NodeState
from memagent.core.errors import ConfigError, InputError
from memagent.core.records import Event, EventEdge, NodeKind, Relation, TimeSpan
from memagent.core.snapshot import GraphDelta
from memagent.events.graph_files import (
    graph_from_graphml,
    graph_from_json,
    graph_to_graphml,
    graph_to_json,
    read_graph,
)
from memagent.memory.facade import Memory
from memagent.memory.graph_export import (
    _words,  # pyright: ignore[reportPrivateUsage]
    graph_document,
)
from memagent.pages.graph_page import force_layout, safe_json, time_layout
from memagent.state.effects import tokenize

TOLD = (
    ("2024-03-04", "I moved to Lisbon yesterday and already love the light."),
    ("2024-03-04", "My dog Rex is allergic to chicken."),
    ("2024-06-02", "I don't live in Lisbon any more, I moved to Porto last week."),
    ("2024-06-02", "Rex had to go to the vet on Thursday because of the chicken."),
)


def told(agent: Agent) -> None:
    for day in dict.fromkeys(date for date, _ in TOLD):
        said = [{"name": "Ana", "content": text} for date, text in TOLD if date == day]
        agent.remember(said, at=datetime.fromisoformat(day).replace(tzinfo=UTC))


def exported(design: str = "compass_rules", **options: Any) -> GraphDocument:
    with Agent(path=":memory:", user_id="ana", design=design) as agent:
        told(agent)
        return graph_from_json(agent.memory.export_graph(format="json", **options).text)


def test_topics_are_named_without_contractions_names_and_chatter() -> None:
    said = (
        "Ana: Hey Ben! I don't think they're home, it's Melanie's yoga class.",
        "Ben: Wow, that’s awesome, I couldn’t find the yoga mat. Yeah, thanks!",
    )
    events = [
        Event(id=f"e{at}", summary=text, people=("Ana", "Melanie")) for at, text in enumerate(said)
    ]
    names = {term for event in events for name in event.people for term in tokenize(name)}
    words = {word for event in events for word in _words(event, names).values()}
    assert words >= {"yoga", "mat", "class"}
    assert not words & {"don", "don't", "couldn", "melanie", "hey", "wow", "yeah", "thanks"}


def test_a_graph_holds_events_memories_people_topics_and_turns() -> None:
    graph = exported()
    kinds = {node.kind for node in graph.nodes}
    assert kinds == set(NodeKind)
    topics = {node.id for node in graph.nodes if node.kind is NodeKind.TOPIC}
    events = {
        node.id
        for node in graph.nodes
        if node.kind is NodeKind.EVENT and node.state is NodeState.OPEN
    }
    contains = [edge for edge in graph.edges if edge.relation is Relation.CONTAINS]
    assert {edge.source for edge in contains} == topics and sorted(
        edge.target for edge in contains
    ) == sorted(events)
    assert [turn.text for turn in graph.turns] == [text for _, text in TOLD]
    assert (graph.scope.user_id, len(graph.digest)) == ("ana", 64)


def test_what_was_rewritten_is_there_but_hidden() -> None:
    graph, shown = exported(), exported(include_hidden=False)
    closed = [node for node in graph.nodes if node.state is NodeState.CLOSED]
    outdated = [node for node in graph.nodes if node.state is NodeState.OUTDATED]
    assert [node.text for node in closed] == [TOLD[0][1]] and [node.kind for node in outdated] == [
        NodeKind.EVENT
    ]
    hidden = {node.id for node in (*closed, *outdated)}
    assert all(
        (edge.state is NodeState.OPEN) == (not hidden & {edge.source, edge.target})
        for edge in graph.edges
    )
    assert {node.id for node in graph.nodes} - {node.id for node in shown.nodes} == hidden
    assert all(edge.state is NodeState.OPEN for edge in shown.edges)


def test_a_past_graph_shows_what_held_then() -> None:
    then = exported(as_of=AsOf(said=datetime(2024, 4, 1, tzinfo=UTC)))
    assert {turn.text for turn in then.turns} == {text for date, text in TOLD if date < "2024-04"}
    assert all(node.state is NodeState.OPEN for node in then.nodes)
    assert not any("Porto" in node.text for node in then.nodes)


def test_a_design_without_events_still_has_a_graph() -> None:
    graph = exported("verbatim")
    assert {node.kind for node in graph.nodes} == {NodeKind.ITEM, NodeKind.ENTITY}


def test_the_same_memory_gives_the_same_file() -> None:
    with Agent(path=":memory:", user_id="ana", design="compass_rules") as agent:
        told(agent)
        before = agent.memory.snapshot().digest
        for form in ("html", "json", "graphml"):
            assert (
                agent.memory.export_graph(format=form).text
                == agent.memory.export_graph(format=form).text
            )
        assert agent.memory.snapshot().digest == before


def test_json_and_graphml_come_back_the_same(tmp_path: Path) -> None:
    with Agent(path=":memory:", user_id="ana", design="compass_rules") as agent:
        told(agent)
        for form in ("json", "graphml"):
            done = agent.memory.export_graph(tmp_path / f"graph.{form}", form)
            assert (tmp_path / f"graph.{form}").read_text(encoding="utf-8") == done.text
        first, second = read_graph(tmp_path / "graph.json"), read_graph(tmp_path / "graph.graphml")
        assert first == second and (len(first.nodes), len(first.edges)) == (done.nodes, done.edges)


def test_networkx_reads_both_files(tmp_path: Path) -> None:
    with Agent(path=":memory:", user_id="ana", design="compass_rules") as agent:
        told(agent)
        agent.memory.export_graph(tmp_path / "graph.graphml", "graphml")
        document = agent.memory.export_graph(format="json").text
    from_xml = cast("Any", nx.read_graphml(tmp_path / "graph.graphml", force_multigraph=True))
    from_json = cast("Any", nx.node_link_graph(json.loads(document), edges="edges"))
    ends = [
        sorted((one, other, data["relation"]) for one, other, data in graph.edges(data=True))
        for graph in (from_xml, from_json)
    ]
    assert ends[0] == ends[1] and set(from_xml.nodes) == set(from_json.nodes)
    event = next(node for node, data in from_xml.nodes(data=True) if data["kind"] == "event")
    assert from_xml.nodes[event]["text"] == from_json.nodes[event]["text"]
    assert from_json.graph["format"] == "memagent-graph/1" and nx.is_weakly_connected(from_xml)


texts = st.text(max_size=20)


@st.composite
def documents(draw: st.DrawFn) -> GraphDocument:
    ids = draw(st.lists(st.text(min_size=1, max_size=6), min_size=1, max_size=5, unique=True))
    span = TimeSpan(start=DAY, text="then")
    nodes = tuple(
        GraphNode(
            id=one,
            kind=draw(st.sampled_from(list(NodeKind))),
            text=draw(texts),
            people=(draw(texts),),
            valid=span,
            said_at=DAY,
        )
        for one in ids
    )
    ends = draw(st.lists(st.tuples(st.sampled_from(ids), st.sampled_from(ids), texts), max_size=6))
    edges = tuple(
        GraphEdge(
            source=a, target=b, relation=Relation.RELATED, label=label, confidence=0.5, count=2
        )
        for a, b, label in ends
    )
    return GraphDocument(
        nodes=nodes,
        edges=edges,
        turns=(GraphTurn(id="t", speaker="s", text=draw(texts), session_id="1"),),
    )


@given(documents())
def test_json_keeps_any_text(document: GraphDocument) -> None:
    clean = GraphDocument.model_validate_json(document.model_dump_json())
    if len({node.id for node in clean.nodes}) == len(clean.nodes):
        assert graph_from_json(graph_to_json(clean)) == clean


@given(documents())
def test_graphml_keeps_the_shape_whatever_the_text(document: GraphDocument) -> None:
    back = graph_from_graphml(graph_to_graphml(document))
    ends: list[list[tuple[int, int, int]]] = []
    for one in (document, back):
        at = {node.id: number for number, node in enumerate(one.nodes)}
        ends.append([(at[edge.source], at[edge.target], edge.count) for edge in one.edges])
    assert ends[0] == ends[1]
    assert [node.people for node in back.nodes] == [node.people for node in document.nodes]


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", '{"graph": {"format": "other/1"}}', "<a/>", "<graphml", "nonsense"]
)
def test_other_files_are_refused_in_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "file").write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        read_graph(tmp_path / "file")
    assert "\n" not in str(caught.value)


async def test_a_file_is_replaced_only_when_all_is_written(tmp_path: Path) -> None:
    memory = Memory(await filled())
    (tmp_path / "taken").mkdir()
    with pytest.raises(InputError, match="no graph was exported"):
        await memory.export_graph(tmp_path / "taken", "json")
    with pytest.raises(ConfigError, match="'html', 'json', 'graphml'"):
        await memory.export_graph(format=cast("Any", "pdf"))
    done = await memory.export_graph()
    assert (
        done.path is None and done.text.startswith("<!doctype html>") and "text=" not in repr(done)
    )
    assert [file.name for file in tmp_path.iterdir()] == ["taken"]


async def test_an_edge_whose_time_is_over_is_closed() -> None:
    bank = await filled()
    one, other = (node.id for node in (await graph_document(bank)).nodes[:2])
    for relation, end in (
        (Relation.CAUSES, DAY),
        (Relation.ENABLES, datetime(9000, 1, 1, tzinfo=UTC)),
    ):
        edge = EventEdge(source=one, target=other, relation=relation, valid=TimeSpan(end=end))
        await bank.append(lambda _, edge=edge: GraphDelta(edges=(edge,)))
    states = {edge.relation: edge.state for edge in (await graph_document(bank)).edges}
    assert (states[Relation.CAUSES], states[Relation.ENABLES]) == (
        NodeState.CLOSED,
        NodeState.OPEN,
    )


async def test_a_deleted_memory_is_a_tombstone() -> None:
    bank = await filled()
    graph = await graph_document(bank)
    assert graph.edges and all(edge.state is NodeState.OPEN for edge in graph.edges)
    await Memory(bank).delete(next(node.id for node in graph.nodes if node.kind is NodeKind.ITEM))
    after = await graph_document(bank)
    assert any(node.state is NodeState.CLOSED for node in after.nodes)


@given(st.text())
def test_data_cannot_leave_its_script_element(text: str) -> None:
    written = safe_json({"text": text})
    assert not set("<>&\u2028\u2029") & set(written)
    assert json.loads(written) == {"text": text}


@pytest.mark.parametrize("count", [0, 1, 2, 60, 900])
def test_layouts_are_finite_apart_and_repeatable(count: int) -> None:
    links = [(at, at // 3, 1.0) for at in range(1, count)]
    places = force_layout(count, links)
    assert places.shape == (count, 2) and np.isfinite(places).all()
    assert np.array_equal(places, force_layout(count, links))
    assert len({(float(x), float(y)) for x, y in places}) == count
    line, axis = time_layout(
        [float(at % 7) if at % 3 else None for at in range(count)],
        [at % 4 for at in range(count)],
        links,
    )
    assert np.isfinite(line).all() and (axis is None) == (count < 2)
    assert len({(float(x), float(y)) for x, y in line}) == count or axis is None


def test_time_runs_from_left_to_right() -> None:
    moments = [0.0, 50.0, 100.0, 100.0, 75.0]
    places, axis = time_layout(moments, [1] * 5, [])
    assert axis is not None and axis[:2] == (0.0, 100.0)
    assert places[0, 0] < places[1, 0] < places[4, 0] < places[2, 0] == places[3, 0]
