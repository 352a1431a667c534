"""`check_event_graph`: what every `EventGraph` must do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import pairwise

from memagent.core.records import Event, EventEdge, NodeKind, Relation
from memagent.core.snapshot import GraphDelta
from memagent.protocols import EventGraph

_ALL = frozenset(Relation)


async def check_event_graph(make: Callable[[], EventGraph | Awaitable[EventGraph]]) -> None:
    """Check an empty graph made by `make`: assignment, idempotence, walks both ways,
    distance, closing and removing.

    Raises `AssertionError` in plain words.
    """
    made = make()
    graph = await made if isinstance(made, Awaitable) else made
    assert await graph.walk(["nowhere"], hops=2, relations=_ALL) == [], (
        "a walk from an unknown node must give []"
    )
    names = "abcdefg"
    nodes = tuple(Event(id=name, summary=f"event {name}") for name in names)
    chain = tuple(
        EventEdge(source=a, target=b, relation=Relation.CAUSES) for a, b in pairwise(names[:5])
    )
    mention = EventEdge(source="f", target="a", relation=Relation.MENTIONS)
    delta = GraphDelta(nodes=nodes, edges=(*chain, mention))
    await graph.apply(delta)
    await graph.apply(delta)

    async def ids(*seeds: str, hops: int, relations: frozenset[Relation] = _ALL) -> list[str]:
        return [hit.id for hit in await graph.walk(list(seeds), hops=hops, relations=relations)]

    assert await ids("a", hops=1) == ["b", "f"], (
        "one hop from a must reach b forward and f backward, ties by id, once each"
    )
    assert await ids("a", hops=1, relations=frozenset({Relation.CAUSES})) == ["b"], (
        "a walk must keep to the relations given"
    )
    assert await ids("a", hops=3, relations=frozenset({Relation.CAUSES})) == ["b", "c", "d"], (
        "nearer nodes must come first"
    )
    assert await ids("c", hops=2, relations=frozenset({Relation.CAUSES})) == ["b", "d", "a", "e"], (
        "walks must go both ways"
    )
    assert "g" not in await ids("a", hops=6), "an isolated node must not be reached"
    assert "a" not in await ids("a", "b", hops=2), "seeds must be left out"
    hits = await graph.walk(["a"], hops=2, relations=frozenset({Relation.CAUSES}))
    assert [step[1] for step in hits[1].why.via] == [Relation.CAUSES] * 2, (
        "a hit must tell the path that led to it"
    )
    assert hits[0].score > hits[1].score, "nearer nodes must score higher"
    assert hits[0].kind is NodeKind.EVENT, "a hit must tell the kind of its node"

    await graph.apply(GraphDelta(nodes=(nodes[2].model_copy(update={"closed": True}),)))
    assert await ids("a", hops=4, relations=frozenset({Relation.CAUSES})) == ["b"], (
        "a closed node must end the walk"
    )
    await graph.apply(GraphDelta(nodes=(nodes[2],)))
    assert "e" in await ids("a", hops=4), "a node opened again must be walked again"
    await graph.apply(
        GraphDelta(removed_edges=(("a", "b", Relation.CAUSES.value),), removed_nodes=("f",))
    )
    assert await ids("a", hops=4) == [], "removed edges and nodes must be gone"
