"""Journal entries without the words of some memories, turns and sessions.

Pure. What is erased is a set of names (`Erasure`); `redacted` gives an entry without
them, the same object where it names none. A memory goes with all its versions, the ops
that made them, its node and the edges at it. A turn keeps its place, speaker and date,
since other memories may cite it; its words go. People and things that other memories name
stay in the graph, whichever session named them first. The surprise: models repeat texts in
reasons and in refused ops, so a commit that loses anything loses those altogether.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TypeVar

from memagent.core.ops import Noop
from memagent.core.records import EventEdge, MemoryItem, NodeKind, Session, Turn
from memagent.core.snapshot import (
    AppliedOp,
    Commit,
    Entry,
    GraphDelta,
    ItemChange,
    JournalRow,
    Redacted,
    Restored,
    SessionStored,
    StatsChanges,
    StatsDelta,
    TrialChanges,
    TurnsAdded,
)
from memagent.core.trials import Trial, TrialEnded, TrialStarted
from memagent.state.adjacency import pairs
from memagent.state.fold import BankState, folded, without

T = TypeVar("T")
ERASED_WORDS = "[erased]"
# Texts shorter than this occur by chance, and are not looked for in other texts.
_SHORTEST = 6


@dataclass(frozen=True)
class Erasure:
    """The names of what is erased."""

    items: frozenset[str] = frozenset()
    turns: frozenset[str] = frozenset()
    sessions: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()
    texts: frozenset[str] = frozenset()
    """The erased texts, folded."""

    @cached_property
    def _hints(self) -> frozenset[str]:
        """The longest word of each erased text."""
        return frozenset(max(text.split(), key=len) for text in self.texts)

    def near(self, things: Sequence[T], text_of: Callable[[T], str]) -> list[T]:
        """Return those of many things whose text may hold an erased one: it has a word of it."""
        whole = "\n".join(map(text_of, things)).casefold()
        plain = whole.split("\n")
        if len(plain) != len(things):  # one of them has several lines
            plain = [text_of(thing).casefold() for thing in things]
        hints = [hint for hint in self._hints if hint in whole]
        places = {at for hint in hints for at, text in enumerate(plain) if hint in text}
        return [things[at] for at in sorted(places)]

    def counts(self, key: str) -> bool:
        """Tell whether a key of the id counter has an erased turn."""
        return not self.turns.isdisjoint(key.split("\x1f"))

    def names(self, text: str) -> bool:
        """Tell whether a text holds an erased one."""
        plain = folded(text)
        return any(
            erased in plain if len(erased) >= _SHORTEST else erased == plain
            for erased in self.texts
        )


def of_item(state: BankState, rows: Sequence[JournalRow], item_id: str, *, turns: bool) -> Erasure:
    """Return the erasure of one memory, with the words of the turns it rests on if asked."""
    versions = state.versions(item_id) or lost_versions(state, rows).get(item_id, ())
    cited = {name for version in versions for name in version.source_turn_ids}
    own = frozenset(name for name in cited if turns and name in state.turns)
    return _completed(state, rows, Erasure(items=frozenset({item_id}), turns=own))


def of_session(state: BankState, rows: Sequence[JournalRow], session_id: str) -> Erasure:
    """Return the erasure of a session and of every memory that rests on it."""
    session = state.sessions.get(session_id)
    turns = frozenset(turn.id for turn in session.turns) if session else frozenset[str]()
    items = {
        item.id
        for _, item in pairs(state.items)
        if any(
            version.session_id == session_id or not turns.isdisjoint(version.source_turn_ids)
            for version in state.versions(item.id)
        )
    }
    for name, versions in lost_versions(state, rows).items():
        if any(not turns.isdisjoint(version.source_turn_ids) for version in versions):
            items.add(name)
    for row in rows:
        if isinstance(row.entry, Commit) and row.entry.source.session_id == session_id:
            items |= {change.id for change in row.entry.changes}
    erasure = Erasure(items=frozenset(items), turns=turns, sessions=frozenset({session_id}))
    return _completed(state, rows, erasure)


def joined(
    state: BankState, rows: Sequence[JournalRow], first: Erasure, second: Erasure
) -> Erasure:
    """Return the erasure of what either of two names, in one memory."""
    items, turns = first.items | second.items, first.turns | second.turns
    return _completed(state, rows, Erasure(items, turns, first.sessions | second.sessions))


def lost_versions(state: BankState, rows: Iterable[JournalRow]) -> dict[str, list[MemoryItem]]:
    """Return the versions that rows made of items which the state has no more, by id."""
    found: dict[str, list[MemoryItem]] = {}
    entries = (row.entry for row in rows if isinstance(row.entry, Commit | Restored))
    for change in chain.from_iterable(entry.changes for entry in entries):
        if change.id not in state.items:
            versions = (*(change.archive or ()), *((change.after,) if change.after else ()))
            found.setdefault(change.id, []).extend(versions)
    return found


def rewritten(rows: Iterable[JournalRow], erasure: Erasure) -> dict[int, Entry]:
    """Return the entries that change, by sequence."""
    changed = ((row.seq, row.entry, redacted(row.entry, erasure)) for row in rows)
    return {seq: new for seq, old, new in changed if new is not old}


def _completed(state: BankState, rows: Sequence[JournalRow], erasure: Erasure) -> Erasure:
    """Add the erased texts and the nodes that go along."""
    past = lost_versions(state, rows)
    texts = {version.text for name in erasure.items for version in state.versions(name)}
    texts |= {version.text for name in erasure.items for version in past.get(name, ())}
    texts |= {turn.said for name in erasure.turns if (turn := state.turn(name))}
    plain = frozenset(plain for text in texts if (plain := folded(text)))
    with_texts = Erasure(erasure.items, erasure.turns, erasure.sessions, texts=plain)
    nodes = _erased_nodes(state, rows, with_texts)
    return Erasure(erasure.items, erasure.turns, erasure.sessions, nodes, plain)


def _erased_nodes(state: BankState, rows: Iterable[JournalRow], erasure: Erasure) -> frozenset[str]:
    """Return the nodes that stand for what is erased, and names that nothing else holds."""
    gone: set[str] = set(erasure.items)
    deltas = [delta for row in rows if (delta := _graph_of(row.entry)) is not None]
    for delta in deltas:
        for node in delta.nodes:
            owner = node.id.partition("@")[0]
            rests = not erasure.turns.isdisjoint(node.source_turn_ids)
            told = (rests or node.session_id in erasure.sessions) and node.kind is not NodeKind.ITEM
            if owner in erasure.items or told:
                gone.add(node.id)

    def stays(edge: EventEdge) -> bool:
        unsaid = erasure.turns.isdisjoint(edge.evidence_turn_ids)
        return unsaid and gone.isdisjoint((edge.source, edge.target))

    held: set[str] = set()
    lost: set[str] = set()
    for edge in chain.from_iterable(delta.edges for delta in deltas):
        (held if stays(edge) else lost).update((edge.source, edge.target))
    present = state.graph.edges_of
    held |= {name for name in lost - held if any(stays(edge) for _, edge, _ in present(name))}
    known = {node.id: node for delta in deltas for node in delta.nodes}
    nodes = {name: known.get(name) or state.graph.node(name) for name in lost - held}
    # an item or an event stays, though nothing leads to it
    stay = (NodeKind.ITEM, NodeKind.EVENT)
    return frozenset(
        gone | {name for name, node in nodes.items() if not node or node.kind not in stay}
    )


def _graph_of(entry: Entry) -> GraphDelta | None:
    delta = entry.graph if isinstance(entry, Commit | Restored) else entry
    return delta if isinstance(delta, GraphDelta) else None


def redacted(entry: Entry, erasure: Erasure) -> Entry:
    """Return an entry without what is erased; the same object if it names nothing of it."""
    match entry:
        case (
            SessionStored(session=holder) | TrialStarted(trial=holder) | TrialEnded(trial=holder)
        ) if holder.id in erasure.sessions:
            return Redacted()
        case TurnsAdded(session_id=name) if name in erasure.sessions:
            return Redacted()
        case SessionStored():
            return _or_same(entry, SessionStored(session=_session(entry.session, erasure)))
        case TurnsAdded():
            turns = _turns(entry.turns, erasure)
            return _or_same(entry, entry.model_copy(update={"turns": turns}))
        case Commit():
            return _commit(entry, erasure)
        case GraphDelta():
            return _or_same(entry, _graph(entry, erasure))
        case StatsDelta():
            stats = _stats(entry.updates, erasure)
            return _or_same(entry, entry.model_copy(update={"updates": stats}))
        case TrialStarted() | TrialEnded():
            return _trial_entry(entry, erasure)
        case Restored():
            update = {
                "changes": tuple(each for each in entry.changes if each.id not in erasure.items),
                "graph": _graph(entry.graph, erasure),
                "ordinals": _ordinals(entry.ordinals, erasure),
                "stats": _stats(entry.stats, erasure),
                "trials": _trials(entry.trials, erasure),
                "done": tuple(pair for pair in entry.done if pair[0] not in erasure.sessions),
                "sessions": tuple(
                    _session(session, erasure)
                    for session in entry.sessions
                    if session.id not in erasure.sessions
                ),
            }
            return _or_same(entry, entry.model_copy(update=update))
        case _:
            return entry


def _or_same(old: Entry, new: Entry) -> Entry:
    return old if new == old else new


def _session(session: Session, erasure: Erasure) -> Session:
    turns = _turns(session.turns, erasure)
    return session if turns == session.turns else session.model_copy(update={"turns": turns})


def _turns(turns: tuple[Turn, ...], erasure: Erasure) -> tuple[Turn, ...]:
    words = {"text": ERASED_WORDS, "image_caption": None}
    return tuple(
        turn.model_copy(update=words) if turn.id in erasure.turns else turn for turn in turns
    )


def _commit(commit: Commit, erasure: Erasure) -> Entry:
    if commit.source.session_id in erasure.sessions:
        # The people and things that it was the first to name, where other memories name them.
        named = tuple(node for node in commit.graph.nodes if node.id not in erasure.nodes)
        return GraphDelta(nodes=named) if named else Redacted()
    kept = tuple(applied for applied in commit.ops if not _op_goes(applied, erasure))
    changes = tuple(change for change in commit.changes if change.id not in erasure.items)
    new = commit.model_copy(
        update={
            "ops": kept,
            "changes": changes,
            "graph": _graph(commit.graph, erasure),
            "stats": _stats(commit.stats, erasure),
            "trials": _trials(commit.trials, erasure),
            "ordinals": _ordinals(commit.ordinals, erasure),
            "rejected": tuple(
                refused
                for refused in commit.rejected
                if not erasure.names(f"{refused.detail}\n{refused.raw}")
                and (refused.op is None or not erasure.names(refused.op.model_dump_json()))
                and getattr(refused.op, "id", None) not in erasure.items
            ),
        }
    )
    if new == commit and erasure.turns.isdisjoint(commit.source.turn_ids):
        return commit
    silent = tuple(
        applied.model_copy(update={"op": applied.op.model_copy(update={"reason": ""})})
        for applied in new.ops
    )
    return new.model_copy(update={"ops": silent, "rejected": ()})


def _op_goes(applied: AppliedOp, erasure: Erasure) -> bool:
    op, gone = applied.op, erasure.items | erasure.nodes
    named = applied.item_id in gone or getattr(op, "id", None) in erasure.items
    told = isinstance(op, Noop) and op.fact is not None and erasure.names(op.fact.text)
    return named or told


def _graph(delta: GraphDelta, erasure: Erasure) -> GraphDelta:
    nodes = tuple(node for node in delta.nodes if node.id not in erasure.nodes)
    edges = tuple(
        edge
        for edge in delta.edges
        if {edge.source, edge.target}.isdisjoint(erasure.nodes)
        and erasure.turns.isdisjoint(edge.evidence_turn_ids)
    )
    changed = len(nodes) < len(delta.nodes) or len(edges) < len(delta.edges)
    ours = delta.session_id in erasure.sessions
    if not changed and not ours and not delta.removed_nodes and not delta.removed_edges:
        return delta
    return delta.model_copy(
        update={
            "nodes": nodes,
            "edges": edges,
            "removed_nodes": tuple(
                name for name in delta.removed_nodes if name not in erasure.nodes
            ),
            "removed_edges": tuple(
                key
                for key in delta.removed_edges
                if key[0] not in erasure.nodes and key[1] not in erasure.nodes
            ),
            "session_id": None if ours else delta.session_id,
            "rejected": () if changed or ours else delta.rejected,
        }
    )


def _ordinals(
    ordinals: tuple[tuple[str, int], ...], erasure: Erasure
) -> tuple[tuple[str, int], ...]:
    """Return the id counter without turns of an erased session, whose names go too."""
    if not erasure.sessions:
        return ordinals
    return tuple((key, count) for key, count in ordinals if not erasure.counts(key))


def _stats(stats: StatsChanges, erasure: Erasure) -> StatsChanges:
    return tuple(pair for pair in stats if pair[0] not in erasure.items)


def _trials(trials: TrialChanges, erasure: Erasure) -> TrialChanges:
    return tuple(
        (name, None if trial is None else _trial(trial, erasure))
        for name, trial in trials
        if name not in erasure.sessions
    )


def _trial_entry(entry: TrialStarted | TrialEnded, erasure: Erasure) -> Entry:
    update: dict[str, object] = {"trial": _trial(entry.trial, erasure)}
    if isinstance(entry, TrialEnded):
        update["stats"] = _stats(entry.stats, erasure)
    return _or_same(entry, entry.model_copy(update=update))


def _trial(trial: Trial, erasure: Erasure) -> Trial:
    """Return a trial without the words of erased turns, and without erased memories."""
    texts = [turn.text for turn in _turns(trial.session().turns, erasure)]
    said = iter(texts)
    task = next(said)
    steps = tuple(
        step.model_copy(
            update={
                "action": next(said),
                "observation": next(said) if step.observation else "",
                "used": tuple(name for name in step.used if name not in erasure.items),
            }
        )
        for step in trial.steps
    )
    outcome = trial.outcome
    if outcome is not None and ERASED_WORDS in texts:
        outcome = outcome.model_copy(update={"detail": ""})
    return trial.model_copy(
        update={
            "task": task,
            "steps": steps,
            "edits": () if ERASED_WORDS in texts else trial.edits,
            "outcome": outcome,
            "shown": tuple(use for use in trial.shown if use.id not in erasure.items),
            "credit": tuple(use for use in trial.credit if use.id not in erasure.items),
        }
    )


def sessions_of(state: BankState, erasure: Erasure) -> frozenset[str]:
    """Return the sessions of the erased turns."""
    return frozenset(state.turns[name][0] for name in erasure.turns if name in state.turns)


def taken_out(
    state: BankState, rows: Sequence[JournalRow], erasure: Erasure, near: Iterable[MemoryItem]
) -> BankState | None:
    """Return the state that the rewritten rows lead to; None where only a replay can tell.

    A name that goes from every row goes from the state. Where a row loses the assignment
    of a name that stays, an earlier one shows again. An item with an erased text, if
    there is one, is among those `near`.
    """
    others = (item for item in near if item.active and item.id not in erasure.items)
    if any(_uncovers(row.entry, erasure) for row in rows) or any(
        folded(item.text) in erasure.texts for item in others
    ):
        return None
    trials = (
        (name, None if name in erasure.sessions else _trial(trial, erasure))
        for name, trial in pairs(state.trials)
    )
    keys = state.ordinals if erasure.sessions else ()
    taken = Restored(
        digest="",
        changes=tuple(
            ItemChange(id=name, after=None, archive=()) for name in sorted(erasure.items)
        ),
        graph=GraphDelta(removed_nodes=tuple(sorted(filter(state.graph.node, erasure.nodes)))),
        ordinals=tuple((key, 0) for key in keys if erasure.counts(key)),
        stats=tuple((name, None) for name in sorted(erasure.items) if name in state.stats),
        trials=tuple(pair for pair in trials if pair[1] != state.trials[pair[0]]),
        done=tuple((name, ()) for name in sorted(erasure.sessions)),
        sessions=tuple(
            _session(state.sessions[name], erasure)
            for name in sorted(sessions_of(state, erasure) - erasure.sessions)
        ),
    )
    return without(state, taken, erasure.sessions)


def _uncovers(entry: Entry, erasure: Erasure) -> bool:
    """Tell whether an entry loses the assignment of a name that stays."""
    if isinstance(entry, TrialEnded) and entry.trial.id in erasure.sessions:
        return bool(entry.stats)
    graph = _graph_of(entry) or GraphDelta()
    commit = entry if isinstance(entry, Commit) else None
    whole = commit is not None and commit.source.session_id in erasure.sessions
    lost = (
        edge
        for edge in graph.edges
        if whole or not erasure.turns.isdisjoint(edge.evidence_turn_ids)
    )
    if any(erasure.nodes.isdisjoint((edge.source, edge.target)) for edge in lost):
        return True
    if commit is None or not whole:
        return False
    return bool(
        commit.stats
        or commit.trials
        or graph.removed_nodes
        or graph.removed_edges
        or any(not erasure.counts(key) for key, _ in commit.ordinals)
    )
