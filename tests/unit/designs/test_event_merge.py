"""Merging events: what becomes one node, what the edges do then, and that the order of
arrival does not show.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from memagent.core.records import Event, EventEdge, Granularity, Relation, TimeSpan
from memagent.core.snapshot import GraphDelta
from memagent.embed.static import HashEmbedder
from memagent.events.merge import (
    EventJudge,
    Judgement,
    Likeness,
    event_texts,
    in_order,
    merge_events,
    open_events,
    united,
)
from memagent.state.adjacency import GraphState

DAY = datetime(2024, 1, 1, tzinfo=UTC)
TRIP = "Ana and Bo walked the coast path to the lighthouse near Porto together"


def event(name: str, summary: str, *, day: int = 0, order: int = 0, **more: object) -> Event:
    return Event.model_validate(
        {
            "id": f"evt_{name}",
            "summary": summary,
            "said_at": DAY + timedelta(days=day),
            "session_id": f"s{day}",
            "order": order,
            "source_turn_ids": (f"D{day}:{order}",),
            **more,
        }
    )


def edge(
    source: str, target: str, relation: Relation = Relation.CAUSES, **more: object
) -> EventEdge:
    ends = {"source": f"evt_{source}", "target": f"evt_{target}", "relation": relation}
    return EventEdge.model_validate({**ends, **more})


async def merged(
    graph: GraphState,
    nodes: Sequence[Event],
    edges: Iterable[EventEdge] = (),
    *,
    judge: EventJudge | None = None,
) -> tuple[GraphState, GraphDelta]:
    async def run() -> GraphDelta:
        texts = [text for one in (*open_events(graph), *nodes) for text in event_texts(one)]
        vectors = dict(zip(texts, await HashEmbedder(dim=256).embed(texts), strict=True))
        return await merge_events(
            graph, GraphDelta(nodes=tuple(nodes), edges=tuple(edges)), vectors=vectors, judge=judge
        )

    delta = await run()
    return graph.apply(delta), delta


async def test_nearly_equal_events_become_one_with_all_people_turns_and_words() -> None:
    first = event("a", TRIP, people=("Ana",))
    again = event("b", f"{TRIP} again", day=3, people=("Bo",))
    graph, _ = await merged(GraphState(), [first])
    graph, _ = await merged(graph, [again])
    (node,) = open_events(graph)
    assert (
        node.id == "evt_a" and node.people == ("Ana", "Bo") and node.aliases == (f"{TRIP} again",)
    )
    assert node.source_turn_ids == ("D0:0", "D3:0") and node.said_at == first.said_at


async def test_a_merge_drops_self_loops_and_counts_equal_edges_once() -> None:
    old = [event("a", TRIP), event("c", "Ana bought a tent", order=1)]
    graph, _ = await merged(GraphState(), old, [edge("c", "a")])
    new = [event("b", f"{TRIP} again", day=3)]
    graph, delta = await merged(
        graph,
        new,
        [edge("b", "a", Relation.ELABORATES), edge("c", "b", evidence_turn_ids=("D3:0",))],
    )
    (kept,) = graph.all_edges()
    assert (kept.source, kept.target, kept.count, kept.evidence_turn_ids) == (
        "evt_c",
        "evt_a",
        2,
        ("D3:0",),
    )
    assert delta.rejected == ()


async def test_an_event_that_is_the_same_as_two_old_ones_joins_them_and_their_edges() -> None:
    words = [f"w{i}" for i in range(20)]
    left, right = " ".join([*words, "x1", "x2", "x3"]), " ".join([*words, "y1", "y2", "y3"])
    between = " ".join([*words, "x1", "y1"])
    old = [event("a", left), event("b", right, day=1), event("c", "rain", day=1, order=1)]
    graph, _ = await merged(GraphState(), old, [edge("c", "b")])
    assert len(open_events(graph)) == 3
    graph, delta = await merged(graph, [event("m", between, day=2)])
    assert [one.id for one in open_events(graph)] == ["evt_a", "evt_c"] and delta.removed_nodes == (
        "evt_b",
    )
    assert [(one.source, one.target) for one in graph.all_edges()] == [("evt_c", "evt_a")]


async def test_events_at_known_times_that_do_not_meet_stay_apart() -> None:
    spans = [
        TimeSpan(
            start=DAY + timedelta(days=n),
            end=DAY + timedelta(days=n + 1),
            granularity=Granularity.DAY,
        )
        for n in (0, 30)
    ]
    nodes = [event("a", TRIP, valid=spans[0]), event("b", TRIP, day=30, valid=spans[1])]
    graph, _ = await merged(GraphState(), nodes)
    assert len(open_events(graph)) == 2


async def test_the_judge_is_asked_from_085_and_its_overlap_becomes_a_labelled_edge() -> None:
    asked: list[tuple[str, str]] = []

    async def judge(first: Event, later: Event) -> Judgement:
        asked.append((first.id, later.id))
        return Judgement(likeness=Likeness.OVERLAPPING, label="same walk, another day")

    nodes = [
        event("a", TRIP),
        event("b", f"{TRIP} again", day=1),
        event("c", "Bo sold his car", day=1, order=1),
    ]
    graph, _ = await merged(GraphState(), nodes, judge=judge)
    assert asked == [("evt_a", "evt_b")] and len(open_events(graph)) == 3
    (related,) = graph.all_edges()
    assert (related.source, related.target, related.key) == (
        "evt_a",
        "evt_b",
        "related:same walk, another day",
    )


async def test_a_merge_that_would_make_time_run_in_a_circle_loses_the_edge_and_says_so() -> None:
    nodes = [event("a", TRIP), event("b", "Bo sold his car", order=1)]
    graph, _ = await merged(GraphState(), nodes, [edge("a", "b", Relation.BEFORE)])
    graph, delta = await merged(
        graph, [event("c", f"{TRIP} again", day=1)], [edge("b", "c", Relation.BEFORE)]
    )
    assert [one.key for one in graph.all_edges()] == ["before"]
    assert len(delta.rejected) == 1 and "circle" in delta.rejected[0]


def test_ids_sort_with_their_numbers_as_numbers() -> None:
    assert in_order({"D10:2", "D1:10", "D1:2", "x"}) == ("D1:2", "D1:10", "D10:2", "x")


def test_the_more_precise_time_stays() -> None:
    month = TimeSpan(start=DAY, end=DAY + timedelta(days=31), granularity=Granularity.MONTH)
    day = TimeSpan(start=DAY, end=DAY + timedelta(days=1))
    one = united(
        event("a", TRIP, valid=month), event("b", TRIP, day=1, valid=day, time_text="1 January")
    )
    assert one.valid == day and one.time_text == "1 January"
