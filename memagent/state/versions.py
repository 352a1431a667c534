"""Wordings of a statement over time, the undoing of an entry, snapshots, what has expired.

Pure. A wording holds from when it began (its valid time, else when it was said) until
the next one began; the oldest, when it names no time, has no known beginning, for what
somebody tells has mostly been so for a while. A statement that was taken out by the
turn that told another (`SUPERSEDES`) is an older wording of that other. What a user
deleted is nobody's older wording and never comes back here. The surprise: a wording
that was corrected, not outdated ("since 2019, not 2021"), may never have held at all.

The commit that takes an earlier entry back is a pure function of two states. Undoing
the last commit gives exactly the digest from before it. What later entries built on is
refused. The surprise: the text of an undone trial stays, as the turns of an undone
session do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Final, TypeVar

from memagent.core.answers import Hit
from memagent.core.errors import SnapshotMismatch, StoreError
from memagent.core.records import Event, MemoryItem, Relation, SourceRef, TimeSpan
from memagent.core.snapshot import (
    Commit,
    GraphDelta,
    ItemChange,
    MemorySnapshot,
    Restored,
    TrialChanges,
)
from memagent.core.trials import Trial, TrialEnded
from memagent.state.adjacency import GraphState, pairs, version_node_id
from memagent.state.fold import EMPTY_STATE, BankState, Orders, Step, folded, restored

# Older wordings of one statement, newest first.
_MAX_OLDER = 4


@dataclass(frozen=True, slots=True)
class Wording:
    """One wording of a statement."""

    node_id: str
    """The item's or event's id; of an older version its node's id (`mem_...@1`)."""
    record: MemoryItem | Event
    begins: datetime | None
    """From when it held; None when that is not known."""
    ends: datetime | None
    """When the next one began; None for the present wording, and when that is not known."""
    current: bool

    def held_in(self, span: TimeSpan) -> bool:
        """Tell whether it held at some moment of the span."""
        if self.begins is not None and self.ends is not None and self.ends <= self.begins:
            return False
        return (self.begins is None or span.end is None or self.begins < span.end) and (
            self.ends is None or span.start is None or span.start < self.ends
        )


def began(record: MemoryItem | Event) -> datetime | None:
    """Return when a record began to hold: the start of its valid time, else when it was said."""
    return (record.valid.start if record.valid else None) or record.said_at


def wordings(state: BankState, hit: Hit, *, now: datetime) -> list[Wording]:
    """Return the wordings of a hit's statement, the present one first, then the latest.

    Items expired at `now` are left out.
    """
    present = hit.item or hit.event
    if present is None:
        return []
    chain = [(hit.id, present)]
    for node_id, record in _older(state, hit.id, present, now, frozenset({hit.id})):
        if _text(record) != _text(chain[-1][1]):
            chain.append((node_id, record))
    chain = chain[: _MAX_OLDER + 1]
    oldest = chain[-1][1]
    timed = oldest.valid is not None and oldest.valid.start is not None
    starts = [began(record) for _, record in chain]
    return [
        Wording(
            node_id=node_id,
            record=record,
            begins=None if record is oldest and not timed else start,
            ends=None if at == 0 else starts[at - 1],
            current=at == 0,
        )
        for at, ((node_id, record), start) in enumerate(zip(chain, starts, strict=True))
    ]


def _older(
    state: BankState, node_id: str, present: MemoryItem | Event, now: datetime, seen: frozenset[str]
) -> Iterator[tuple[str, MemoryItem | Event]]:
    """Yield what a statement replaced, latest first.

    First come its own older versions, then items that were taken out for it and theirs.
    """
    replaced = sorted(
        other
        for other, edge, leaving in state.graph.edges_of(node_id)
        if leaving and edge.relation is Relation.SUPERSEDES and other not in seen
    )
    if isinstance(present, MemoryItem):
        for past in reversed(state.versions(node_id)):
            if past.version < present.version and past.active:
                yield version_node_id(node_id, past.version), past
    gone = [item for other in replaced if (item := _last_active(state, other))]
    items = [item for item in gone if not item.expired(now)]
    for item in sorted(
        items, key=lambda item: (item.said_at is not None, item.said_at), reverse=True
    ):
        yield version_node_id(item.id, item.version), item
        yield from _older(state, item.id, item, now, seen | {item.id})
    if isinstance(present, Event):
        for other in reversed(replaced):
            if other.startswith(f"{node_id}@") and (event := state.graph.node(other)):
                yield event.id, event


def _last_active(state: BankState, item_id: str) -> MemoryItem | None:
    """Return the last version of a deleted item in which it was part of memory.

    None for unknown and active items.
    """
    item = state.items.get(item_id)
    if item is None or item.active:
        return None
    return next((past for past in reversed(state.versions(item_id)) if past.active), None)


def _text(record: MemoryItem | Event) -> str:
    return folded(record.text if isinstance(record, MemoryItem) else record.summary)


# -- statements that do not stand side by side -----------------------------------------


@dataclass(frozen=True, slots=True)
class Clash:
    """Two hits that cannot both be the answer; `earlier` was said first."""

    earlier: Hit
    later: Hit
    replaced: bool
    """Whether memory let the later one take the place of the earlier; otherwise the two
    contradict each other.
    """


def clashes(hits: Iterable[Hit], state: BankState) -> list[Clash]:
    """Return the pairs of hits that cannot both be the answer, in their order.

    Either one replaced the other (`SUPERSEDES`) or the two contradict each other
    (`CONTRASTS`).
    """
    by_id = {hit.id: hit for hit in hits}
    found: dict[tuple[str, str], Clash] = {}
    for hit in by_id.values():
        linked: list[tuple[str, Relation]] = []
        for other, edge, leaving in state.graph.edges_of(hit.id):
            if leaving and edge.relation in (Relation.SUPERSEDES, Relation.CONTRASTS):
                last = _last_active(state, other)  # a deleted item goes by its last version
                name = version_node_id(other, last.version) if last else other
                linked.append((name, edge.relation))
        for other, relation in sorted(linked):
            if other in by_id:
                replaced = relation is Relation.SUPERSEDES
                pair = (by_id[other], hit) if replaced else sorted((hit, by_id[other]), key=_said)
                found.setdefault((pair[0].id, pair[1].id), Clash(pair[0], pair[1], replaced))
    return list(found.values())


def _said(hit: Hit) -> tuple[float, str]:
    record = hit.item or hit.event
    moment = (record.said_at or began(record)) if record is not None else None
    return (moment.timestamp() if moment is not None else float("-inf"), hit.id)


def clearing(state: BankState) -> Commit | None:
    """Return the commit that deletes every item and event; None where there is none."""
    if not (state.live or len(state.graph)):
        return None
    return Commit(id=f"c{state.seq + 1}", cleared=state.live, source=SourceRef(actor="user"))


def inverse(state: BankState, before: BankState, undone: Commit | TrialEnded) -> Commit:
    """Return the commit that takes an entry back; `before` is the state it was written to.

    Raises `StoreError` when a later entry changed the same items or their statistics.
    """
    commit = undone
    if isinstance(commit, TrialEnded):  # the effects of a report
        trial = commit.trial
        commit = Commit(id=trial.id, stats=commit.stats, trials=((trial.id, trial),))
    changes: list[ItemChange] = []
    if commit.cleared is not None:
        commit = _all_of(before, commit)
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
    for item_id, value in commit.stats:
        if state.stats.get(item_id) != value:
            raise StoreError(
                f"cannot undo {commit.id}: the use of {item_id} was counted again later; "
                "undo that first"
            )
    return Commit(
        id=f"c{state.seq + 1}",
        changes=tuple(changes),
        graph=_inverse_graph(state.graph, before.graph, commit.graph),
        ordinals=ordinals,
        source=SourceRef(actor="undo"),
        undoes=commit.id,
        stats=tuple((name, before.stats.get(name)) for name, _ in commit.stats),
        trials=_inverse_trials(state, before, commit),
    )


def _all_of(before: BankState, commit: Commit) -> Commit:
    """Return the commit of a clearing that names all it took out."""
    return commit.model_copy(
        update={
            "changes": tuple(ItemChange(id=name, after=None) for name in sorted(before.items)),
            "graph": GraphDelta(
                removed_nodes=tuple(name for name, _ in pairs(before.graph.nodes)),
                removed_edges=tuple(
                    (edge.source, edge.target, edge.key) for edge in before.graph.all_edges()
                ),
            ),
            "stats": tuple((name, None) for name, _ in pairs(before.stats)),
        }
    )


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


# -- snapshots -------------------------------------------------------------------------


def snapshot_of(state: BankState, live: object) -> MemorySnapshot:
    """Return the state as a snapshot that shares everything.

    `live` is the handle a bank of this process continues from.
    """
    return MemorySnapshot(
        digest=state.digest(),
        items=state.items,
        archive=state.archive,
        sessions=state.sessions,
        graph=state.graph,
        stats=state.stats,
        ordinals=state.ordinals,
        trials=state.trials,
        done=state.done,
        seq=state.seq,
        live=live,
    )


def rebuilt(snapshot: MemorySnapshot) -> BankState:
    """Rebuild the state that a snapshot stands for from its content.

    Raises `SnapshotMismatch` when content and digest disagree.
    """
    entry = Restored(
        digest=snapshot.digest,
        changes=tuple(
            ItemChange(id=item.id, after=item, archive=snapshot.archive.get(item.id, ()))
            for _, item in pairs(snapshot.items)
        ),
        graph=GraphDelta(
            nodes=tuple(snapshot.graph.all_nodes()), edges=tuple(snapshot.graph.all_edges())
        ),
        ordinals=tuple(pairs(snapshot.ordinals)),
        stats=tuple(pairs(snapshot.stats)),
        trials=tuple(pairs(snapshot.trials)),
        done=tuple((name, tuple(chunks)) for name, chunks in pairs(snapshot.done)),
        sessions=tuple(session for _, session in pairs(snapshot.sessions)),
    )
    state = restored(EMPTY_STATE, entry, snapshot.seq)
    state = replace(state, seq=snapshot.seq, orders=Orders(), trail=(Step(),))
    if state.digest() != snapshot.digest:
        raise SnapshotMismatch(
            f"the snapshot says digest {snapshot.digest[:12]}, its content has"
            f" {state.digest()[:12]}: it was altered or cut short"
        )
    return state


# -- what has expired ------------------------------------------------------------------


T = TypeVar("T")
# A look before the first: nothing has expired.
_BEFORE_ALL: Final = datetime.min.replace(tzinfo=UTC)
_NEXT: Final = timedelta(microseconds=1)


class ExpiredIds(AbstractSet[str]):
    """Ids of the items of a state that have expired by a moment; a test takes O(1).

    No moment is a look before the first: nothing has expired.
    """

    __slots__ = ("_now", "_state")

    def __init__(self, state: BankState, now: datetime | None) -> None:
        self._state, self._now = state, now or _BEFORE_ALL

    @classmethod
    def _from_iterable(cls, it: Iterable[T]) -> frozenset[T]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return frozenset(it)

    def __contains__(self, item_id: object) -> bool:
        moment = self._state.expiring.get(item_id) if isinstance(item_id, str) else None
        return moment is not None and moment <= self._now

    def __len__(self) -> int:
        if not len(self._state.expiring):
            return 0
        return self._state.orders.by("expiry", self._state).rank((self._now + _NEXT, ""))

    def __iter__(self) -> Iterator[str]:
        if not len(self._state.expiring):
            return iter(())
        ended = takewhile(
            lambda key: key[0] <= self._now, self._state.orders.by("expiry", self._state)
        )
        return (item_id for _, item_id in ended)

    def since(self, before: ExpiredIds) -> list[str]:
        """Return the items that expired since a look before, or are alive again by the clock.

        Items that changed between the two states may be missing; whoever asks has
        heard of those already.
        """
        first, last = sorted((self._now, before._now))
        if first == last or not len(self._state.expiring):
            return []
        later = self._state.orders.by("expiry", self._state).since((first + _NEXT, ""))
        return [item_id for _, item_id in takewhile(lambda key: key[0] <= last, later)]


@dataclass(frozen=True, slots=True)
class Statement:
    """A live text's id, speaker and time, which tell two uses of the same words apart."""

    id: str
    speaker: str | None
    valid: TimeSpan | None

    def repeats(self, other: Statement) -> bool:
        """Tell whether neither speaker nor time tells the two statements apart."""
        names = {folded(name) for name in (self.speaker, other.speaker) if name is not None}
        times = {bounds(span) for span in (self.valid, other.valid) if span is not None}
        return len(names) < 2 and len(times) < 2


def bounds(span: TimeSpan | None) -> tuple[datetime | None, datetime | None] | None:
    """Return where a span starts and ends."""
    return None if span is None else (span.start, span.end)
