"""Rules for edges of the event graph: both ends exist, no self-loops, no circles in time.

BEFORE, the inverse of AFTER, and CAUSES together must stay acyclic; an edge that would
close a circle is refused with a reason.
"""

from __future__ import annotations

from memagent.core.records import EventEdge, Relation
from memagent.core.snapshot import GraphDelta
from memagent.state.adjacency import GraphState

_FORWARD = frozenset({Relation.BEFORE, Relation.CAUSES})
_SEARCH_LIMIT = 10_000


def checked_delta(graph: GraphState, delta: GraphDelta) -> GraphDelta:
    """Return the delta without the edges that break a rule, each listed in `rejected`."""
    work = graph.apply(
        GraphDelta(
            nodes=delta.nodes, removed_edges=delta.removed_edges, removed_nodes=delta.removed_nodes
        )
    )
    accepted: list[EventEdge] = []
    rejected = list(delta.rejected)
    for edge in delta.edges:
        reason = _refusal(work, edge)
        if reason is None:
            accepted.append(edge)
            work = work.apply(GraphDelta(edges=(edge,)))
        else:
            rejected.append(f"{edge.source} -{edge.key}-> {edge.target}: {reason}")
    return delta.model_copy(update={"edges": tuple(accepted), "rejected": tuple(rejected)})


def _refusal(graph: GraphState, edge: EventEdge) -> str | None:
    if edge.source == edge.target:
        return "an edge may not lead from a node to itself"
    for end in (edge.source, edge.target):
        node = graph.node(end)
        if node is None:
            return f"no node {end!r} in the graph"
        if node.closed and edge.relation is not Relation.SUPERSEDES:
            return f"node {end!r} is closed"
    ends = _in_time(edge)
    if ends is not None and _reaches(graph, ends[1], ends[0]):
        return "it would make time run in a circle"
    return None


def _in_time(edge: EventEdge) -> tuple[str, str] | None:
    """Return (earlier, later) of an edge that orders its ends in time, else None."""
    if edge.relation in _FORWARD:
        return edge.source, edge.target
    return (edge.target, edge.source) if edge.relation is Relation.AFTER else None


def _reaches(graph: GraphState, start: str, goal: str) -> bool:
    """Tell whether `goal` is at or after `start`; past ten thousand nodes the answer is yes."""
    stack, seen = [start], {start}
    while stack:
        node_id = stack.pop()
        if node_id == goal or len(seen) > _SEARCH_LIMIT:
            return True
        for _, edge, _ in graph.edges_of(node_id):
            ends = _in_time(edge)
            if ends is not None and ends[0] == node_id and ends[1] not in seen:
                seen.add(ends[1])
                stack.append(ends[1])
    return False
