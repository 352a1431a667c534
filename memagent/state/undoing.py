"""The commit that takes an earlier entry back, as a pure function of two states.

Undoing the last commit gives exactly the digest from before it. What later entries
built on is refused. The surprise: the text of an undone trial stays, as the turns of
an undone session do.
"""

from __future__ import annotations

from memagent.core.errors import StoreError
from memagent.core.records import SourceRef
from memagent.core.snapshot import Commit, GraphDelta, ItemChange, StatsChanges, TrialChanges
from memagent.core.trials import Trial, TrialEnded
from memagent.state.adjacency import GraphState
from memagent.state.fold import BankState


def inverse(state: BankState, before: BankState, undone: Commit | TrialEnded) -> Commit:
    """Return the commit that takes an entry back; `before` is the state it was written to.

    Raises `StoreError` when a later entry changed the same items or their statistics.
    """
    commit = undone if isinstance(undone, Commit) else _effects_of(undone)
    changes: list[ItemChange] = []
    for change in reversed(commit.changes):
        if state.items.get(change.id) != change.after:
            later = state.touched.get(change.id, ())[-1]
            raise StoreError(
                f"cannot undo {commit.id}: {change.id} was changed again at sequence {later}; "
                "undo that first"
            )
        changes.append(
            ItemChange(
                id=change.id,
                after=before.items.get(change.id),
                archive=before.archive.get(change.id, ()),
            )
        )
    ordinals = tuple(
        (key, before.ordinals.get(key, 0))
        for key, count in commit.ordinals
        if state.ordinals.get(key, 0) == count
    )
    return Commit(
        id=f"c{state.seq + 1}",
        changes=tuple(changes),
        graph=_inverse_graph(state.graph, before.graph, commit.graph),
        ordinals=ordinals,
        source=SourceRef(actor="undo"),
        undoes=commit.id,
        stats=_inverse_stats(state, before, commit),
        trials=_inverse_trials(state, before, commit),
    )


def _effects_of(ended: TrialEnded) -> Commit:
    """Return the commit with the effects of a report."""
    trial = ended.trial
    return Commit(id=trial.id, stats=ended.stats, trials=((trial.id, trial),))


def _inverse_stats(state: BankState, before: BankState, commit: Commit) -> StatsChanges:
    for item_id, value in commit.stats:
        if state.stats.get(item_id) != value:
            raise StoreError(
                f"cannot undo {commit.id}: the use of {item_id} was counted again later; "
                "undo that first"
            )
    return tuple((item_id, before.stats.get(item_id)) for item_id, _ in commit.stats)


def _inverse_trials(state: BankState, before: BankState, commit: Commit) -> TrialChanges:
    """Return the trials as before, with the raw steps, and with lessons still known as taken."""
    changes: list[tuple[str, Trial | None]] = []
    for trial_id, _ in commit.trials:
        old = before.trials.get(trial_id)
        if old is not None:
            now = state.trials.get(trial_id, old)
            taught = old.outcome is not None and (now.taught or old.taught)
            raw = {"steps": now.steps, "edits": now.edits}
            old = old.model_copy(update={**raw, "taught": taught})
        changes.append((trial_id, old))
    return tuple(changes)


def _inverse_graph(now: GraphState, before: GraphState, delta: GraphDelta) -> GraphDelta:
    """Return the delta that takes another back where nothing later has built on it."""
    removed_edges: list[tuple[str, str, str]] = []
    edges = [edge for key in delta.removed_edges if (edge := before.edge(*key)) is not None]
    for edge in delta.edges:
        if now.edge(edge.source, edge.target, edge.key) == edge:
            old = before.edge(edge.source, edge.target, edge.key)
            if old is None:
                removed_edges.append((edge.source, edge.target, edge.key))
            else:
                edges.append(old)
    taken = set(removed_edges)
    nodes = [
        old
        for node in delta.nodes
        if now.node(node.id) == node and (old := before.node(node.id)) is not None
    ]
    nodes += [
        old
        for node_id in delta.removed_nodes
        if now.node(node_id) is None and (old := before.node(node_id)) is not None
    ]
    removed_nodes = [
        node.id
        for node in delta.nodes
        if before.node(node.id) is None
        and all((e.source, e.target, e.key) in taken for _, e, _ in now.edges_of(node.id))
    ]
    kept = set(removed_nodes)
    return GraphDelta(
        nodes=tuple(nodes),
        edges=tuple(edge for edge in edges if not {edge.source, edge.target} & kept),
        removed_nodes=tuple(removed_nodes),
        removed_edges=tuple(removed_edges),
    )
