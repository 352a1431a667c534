"""The full check of a checkpoint: every part of it against a replay of the journal."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from memagent.checkpoints.checkpoint import check_document
from memagent.checkpoints.file import CheckpointUnusable
from memagent.checkpoints.records import maps_of
from memagent.checkpoints.store import Checkpoints
from memagent.core.records import EventEdge, Scope
from memagent.search.projection import Projection
from memagent.state.adjacency import GraphState
from memagent.state.fold import BankState


class CheckpointReport(NamedTuple):
    """The findings about one memory's checkpoint."""

    seq: int | None
    """The journal sequence that it was made at; None where there is none to use."""
    size_bytes: int
    reason: str = ""
    """Why it will not be used, "" when it will. The next writer makes a new one."""
    faults: tuple[str, ...] = ()
    """Where it differs from a replay; such a file has to be deleted."""


async def audit_checkpoint(
    checkpoints: Checkpoints, scope: Scope, state_at: Callable[[int], Awaitable[BankState]]
) -> CheckpointReport:
    """Compare a memory's checkpoint with `state_at` of its sequence, part by part.

    Decodes all of it; takes about as long as a replay. Changes nothing.
    """
    size = checkpoints.place.size_of(scope)
    if size is None:
        return CheckpointReport(None, 0)
    try:
        content = checkpoints.read(scope)
    except (CheckpointUnusable, OSError) as exc:
        return CheckpointReport(None, size, str(exc))
    seq = content.state.seq
    faults = differences(content, await state_at(seq))
    return CheckpointReport(seq, size, faults=tuple(faults))


def differences(content: Projection, replayed: BankState) -> list[str]:
    """Return where a checkpoint's content differs from a replayed state; [] when nowhere."""
    state = content.state
    expected = maps_of(replayed)
    faults = [
        f"{name} differ from the journal's"
        for name, content_of in maps_of(state).items()
        if dict(content_of.items()) != dict(expected[name].items())
    ]
    if state.digest() != replayed.digest():
        faults.append(f"its digest is {state.digest()[:12]}, a replay's {replayed.digest()[:12]}")
    if _nodes(state.graph) != _nodes(replayed.graph):
        faults.append("nodes of the graph differ from the journal's")
    edges = dict(_edges(replayed.graph))
    faults += [
        f"edges of the graph ({name}) differ from the journal's"
        for name in ("succ", "pred")
        if dict(_edges(state.graph, name)) != edges
    ]
    return faults + _view_faults(content)


def _nodes(graph: GraphState) -> dict[str, Any]:
    return {key: data["event"] for key, data in graph.nodes.items()}


def _edges(graph: GraphState, side: str = "succ") -> list[tuple[tuple[str, str, str], EventEdge]]:
    rows: Any = getattr(graph, side)
    found: list[tuple[tuple[str, str, str], EventEdge]] = []
    for row in rows.values():
        for keyed in row.values():
            edges = [data["edge"] for data in keyed.values()]
            found += [((edge.source, edge.target, edge.key), edge) for edge in edges]
    return found


def _view_faults(content: Projection) -> list[str]:
    view, active = content.view, {item.id for item in content.state.active()}
    faults: list[str] = []
    if active != (set(view.places) | content.pending) & active or set(view.places) - active:
        faults.append("the items of the search index differ from the active ones")
    if view.parts:
        try:
            for at in range(len(view.parts[0].segment)):
                check_document(content, at)
        except CheckpointUnusable as exc:
            faults.append(str(exc))
    return faults
