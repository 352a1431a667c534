"""The state of one memory as a value, and the fold that makes it from journal entries.

`apply(state, row)` is the only way a state changes, live or in replay, so the two
cannot disagree. It assigns what the entry says and keeps the roots of the digest; it
asks no model, no clock and no rule. All maps are persistent: a state costs the
difference to its predecessor, and keeping one is keeping a snapshot.

Trials are one persistent map by id, with the root of their hashes. A trial that has
ended leads to a session with the trial's id (`Trial.session`); the fold stores it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from itertools import chain

from rpds import HashTrieMap

from memagent.core.errors import SnapshotMismatch
from memagent.core.records import ItemStats, MemoryItem, Session, Trust, Turn, lowest_trust
from memagent.core.snapshot import (
    Commit,
    Entry,
    Erased,
    GraphDelta,
    ItemChange,
    JournalRow,
    MemorySnapshot,
    Redacted,
    Restored,
    Roots,
    SessionStored,
    StatsDelta,
    TrialChanges,
    TurnsAdded,
    add_hash,
    item_hash,
    ordinal_hash,
    stats_hash,
    sub_hash,
    trial_hash,
)
from memagent.core.trials import Trial, TrialEnded, TrialStarted
from memagent.state.adjacency import GraphState, pairs
from memagent.state.orders import Orders, SortedSet


def trials_after(
    trials: HashTrieMap[str, Trial], root: int, changes: Iterable[tuple[str, Trial | None]]
) -> tuple[HashTrieMap[str, Trial], int]:
    """Return the trials and their root after assignments; None takes a trial out."""
    for trial_id, after in changes:
        old = trials.get(trial_id)
        if old is not None:
            root = sub_hash(root, trial_hash(old))
        if after is None:
            trials = trials.discard(trial_id)
        else:
            trials = trials.insert(trial_id, after)
            root = add_hash(root, trial_hash(after))
    return trials, root


def untaught(trials: Mapping[str, Trial]) -> Iterator[Trial]:
    """Yield the trials that ended and whose lesson nobody has taken or refused."""
    return (trial for trial in trials.values() if trial.outcome and not trial.taught)


def failures(trials: Mapping[str, Trial]) -> list[Trial]:
    """Return the trials that failed, oldest first, ties by id."""
    failed = (trial for trial in trials.values() if trial.outcome and not trial.outcome.good)
    return sorted(failed, key=lambda trial: (trial.at.timestamp() if trial.at else 0.0, trial.id))


Mark = tuple[float, float, str]
"""(start, end, item id) of a bounded valid span, in epoch seconds."""


NO_MARKS: SortedSet[Mark] = SortedSet()
_STEPS = 128
"""The last entries of which a state knows the names that they changed."""
_MANY_NAMES = 4_096
"""Names in one entry above which a trail begins again, so that none is held twice."""


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """The names that one entry changed, in whichever table; a step equals only itself."""

    names: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class BankState:
    """Everything one memory holds at one journal sequence."""

    items: HashTrieMap[str, MemoryItem] = HashTrieMap()
    """Present version of every item, tombstones included."""
    archive: HashTrieMap[str, tuple[MemoryItem, ...]] = HashTrieMap()
    """Older versions, oldest first."""
    sessions: HashTrieMap[str, Session] = HashTrieMap()
    turns: HashTrieMap[str, tuple[str, int]] = HashTrieMap()
    """Turn id to (session id, position)."""
    threads: HashTrieMap[str, tuple[str, ...]] = HashTrieMap()
    """Thread to the ids of its sessions, oldest first."""
    graph: GraphState = GraphState()
    stats: HashTrieMap[str, ItemStats] = HashTrieMap()
    trials: HashTrieMap[str, Trial] = HashTrieMap()
    """Trials by id, open and ended."""
    ordinals: HashTrieMap[str, int] = HashTrieMap()
    """The id counter: how many items were ever made from each set of source turns."""
    done: HashTrieMap[str, frozenset[int]] = HashTrieMap()
    """Session id to indexes of the chunks already committed."""
    touched: HashTrieMap[str, tuple[int, ...]] = HashTrieMap()
    """Item id to sequences of the entries that changed it."""
    texts: HashTrieMap[str, str] = HashTrieMap()
    """Folded text of active items to item id, for exact duplicates."""
    timelines: HashTrieMap[str, SortedSet[Mark]] = HashTrieMap()
    """Folded subject to its active items with bounded spans, by start."""
    expiring: HashTrieMap[str, datetime] = HashTrieMap()
    """When those active items expire that ever do, by id."""
    seq: int = 0
    item_root: int = 0
    stats_root: int = 0
    ordinal_root: int = 0
    trial_root: int = 0
    orders: Orders = field(default_factory=Orders, compare=False, repr=False)
    """Orders of the items that somebody asked for; derived from the rest."""
    trail: tuple[Step, ...] = field(default_factory=lambda: (Step(),), compare=False, repr=False)
    """The last entries, latest last; two states with a common step differ in later ones."""

    def digest(self) -> str:
        """Return the content digest, 64 hex digits."""
        return Roots(
            items=self.item_root,
            graph=self.graph.root,
            stats=self.stats_root,
            ordinals=self.ordinal_root,
            trials=self.trial_root,
        ).digest()

    def turn(self, turn_id: str) -> Turn | None:
        """Return a stored turn, or None."""
        place = self.turns.get(turn_id)
        return None if place is None else self.sessions[place[0]].turns[place[1]]

    def trust_of(self, turn_ids: Iterable[str]) -> Trust:
        """Return the lowest trust among stored turns; `Trust.USER` when none is stored."""
        return lowest_trust(turn.trust for name in turn_ids if (turn := self.turn(name)))

    def active(self) -> Iterator[MemoryItem]:
        """Yield the items that are not deleted, in no particular order."""
        return (item for _, item in pairs(self.items) if item.active)

    def versions(self, item_id: str) -> tuple[MemoryItem, ...]:
        """Return every readable version of an item, oldest first; () when unknown."""
        item = self.items.get(item_id)
        return () if item is None else (*self.archive.get(item_id, ()), item)


EMPTY_STATE = BankState()
_REMEMBERED_CHARS = 100
"""Longest text whose folded form is remembered: names and ids come again and again."""


def folded(text: str) -> str:
    """Fold a text for exact-duplicate detection: case and white space do not count."""
    return _folded_name(text) if len(text) <= _REMEMBERED_CHARS else _folded(text)


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())


_folded_name = lru_cache(maxsize=4_096)(_folded)


def apply(state: BankState, row: JournalRow) -> BankState:
    """Return the state after one journal row."""
    entry, seq = row.entry, row.seq
    names = frozenset(_names(state.graph, entry))
    match entry:
        case Commit():
            after = _after_commit(state, entry, seq)
        case SessionStored():
            after = _with_session(state, entry.session)
        case TurnsAdded():
            after = _with_turns(state, entry)
        case GraphDelta():
            after = replace(state, graph=state.graph.apply(entry))
        case StatsDelta():
            after = _with_stats(state, entry.updates)
        case TrialStarted(trial=trial):
            after = _with_trials(state, ((trial.id, trial),))
        case TrialEnded(trial=trial, stats=stats):
            after = _with_stats(_with_trials(state, ((trial.id, trial),)), stats)
        case Restored():
            after = _after_restore(state, entry, seq)
        case Erased() | Redacted():
            after = EMPTY_STATE if isinstance(entry, Erased) else state
    orders = after.orders.after(state, after, names)
    anew = isinstance(entry, Erased) or len(names) > _MANY_NAMES
    trail = (Step(),) if anew else (*state.trail[1 - _STEPS :], Step(names))
    return replace(after, seq=seq, orders=orders, trail=trail)


def names_between(before: BankState, after: BankState) -> frozenset[str] | None:
    """Return names that hold all by which the tables of two states differ.

    None where the states have no recent entry in common: any name may differ then.
    """
    known = set(after.trail)
    shared = next((step for step in reversed(before.trail) if step in known), None)
    if shared is None:
        return None
    later = (state.trail[state.trail.index(shared) + 1 :] for state in (before, after))
    return frozenset[str]().union(*(step.names for step in chain.from_iterable(later)))


def _names(graph: GraphState, entry: Entry) -> Iterable[str]:
    """Return the keys of all tables that an entry changes, nodes at both ends of its edges."""
    match entry:
        case Commit() | Restored():
            names = {*changed_items(entry), *_names(graph, entry.graph)}
            names.update(_keys(*entry.ordinals, *entry.stats, *entry.trials))
            if isinstance(entry, Commit):
                return names | {entry.source.session_id or ""}
            return names.union(_keys(*entry.done), (session.id for session in entry.sessions))
        case GraphDelta():
            edges = [(edge.source, edge.target) for edge in entry.edges]
            edges += [(source, target) for source, target, _ in entry.removed_edges]
            at_gone = (other[0] for name in entry.removed_nodes for other in graph.edges_of(name))
            nodes = (node.id for node in entry.nodes)
            return {*nodes, *entry.removed_nodes, *at_gone, *chain.from_iterable(edges)}
        case TrialEnded():
            return (entry.trial.id, *_keys(*entry.stats))
        case StatsDelta():
            return _keys(*entry.updates)
        case SessionStored(session=holder) | TrialStarted(trial=holder):
            return (holder.id,)
        case TurnsAdded():
            return (entry.session_id,)
        case Erased() | Redacted():
            return ()


def _keys(*pairs: tuple[str, object]) -> list[str]:
    return [key for key, _ in pairs]


def changed_items(entry: Entry) -> Iterable[str]:
    """Return the ids of the items an entry changes."""
    return [change.id for change in entry.changes] if isinstance(entry, Commit | Restored) else ()


def _after_commit(state: BankState, commit: Commit, seq: int) -> BankState:
    done = state.done
    session_id, index = commit.source.session_id, commit.source.chunk_index
    if session_id is not None and index is not None:
        done = done.insert(session_id, done.get(session_id, frozenset()) | {index})
    state = _with_effects(state, commit, done, seq)
    if not (commit.stats or commit.trials):
        return state
    return _with_stats(_with_trials(state, commit.trials), commit.stats)


def _after_restore(state: BankState, entry: Restored, seq: int) -> BankState:
    for session in entry.sessions:
        state = _with_session(state, session)
    done = state.done
    for session_id, chunks in entry.done:
        done = done.insert(session_id, frozenset(chunks)) if chunks else done.discard(session_id)
    state = _with_trials(_with_effects(state, entry, done, seq), entry.trials)
    return _with_stats(state, entry.stats)


def _with_session(state: BankState, session: Session, *, first: int = 0) -> BankState:
    """Store a session whose turns from `first` on are new."""
    turns, threads, thread = state.turns, state.threads, session.thread
    for at, turn in enumerate(session.turns[first:], first):
        turns = turns.insert(turn.id, (session.id, at))
    if thread is not None and session.id not in state.sessions:
        threads = threads.insert(thread, (*threads.get(thread, ()), session.id))
    return replace(
        state,
        sessions=state.sessions.insert(session.id, session),
        turns=turns,
        threads=threads,
        orders=state.orders.after_turns([turn.id for turn in session.turns[first:]]),
    )


def _with_turns(state: BankState, entry: TurnsAdded) -> BankState:
    session = state.sessions[entry.session_id]
    size = len(session.turns)
    grown = session.model_copy(
        update={
            "turns": (*session.turns, *entry.turns),
            "grown_at": (*session.grown_at, size),
        }
    )
    return _with_session(state, grown, first=size)


def _with_effects(
    state: BankState,
    entry: Commit | Restored,
    done: HashTrieMap[str, frozenset[int]],
    seq: int,
) -> BankState:
    """Assign the entry's items, graph and id counter, in one new state."""
    items, archive, touched, root = state.items, state.archive, state.touched, state.item_root
    texts, timelines, expiring = state.texts, state.timelines, state.expiring
    for change in entry.changes:
        old, past = items.get(change.id), archive.get(change.id, ())
        if old is not None:
            root = sub_hash(root, item_hash(old, past))
            key = folded(old.text)
            if texts.get(key) == change.id:
                texts = texts.remove(key)
            timelines = _placed(timelines, old, present=False)
            if old.expires_at is not None:
                expiring = expiring.discard(change.id)
        new_past = change.archive
        if new_past is None:
            new_past = () if old is None else (*past, old)
        if new_past != past:
            archive = (
                archive.insert(change.id, new_past) if new_past else archive.discard(change.id)
            )
        if change.after is None:
            items = items.discard(change.id)
        else:
            items = items.insert(change.id, change.after)
            root = add_hash(root, item_hash(change.after, new_past))
            if change.after.active:
                texts = texts.insert(folded(change.after.text), change.id)
                timelines = _placed(timelines, change.after, present=True)
                if change.after.expires_at is not None:
                    expiring = expiring.insert(change.id, change.after.expires_at)
        touched = touched.insert(change.id, (*touched.get(change.id, ()), seq))
    ordinals, ordinal_root = _counted(state, entry.ordinals)
    return replace(
        state,
        items=items,
        archive=archive,
        touched=touched,
        texts=texts,
        timelines=timelines,
        expiring=expiring,
        item_root=root,
        graph=state.graph.apply(entry.graph),
        ordinals=ordinals,
        ordinal_root=ordinal_root,
        done=done,
    )


def timeline_key(item: MemoryItem) -> str | None:
    """Return the key of the timeline an item stands on: its subject's, else its speaker's."""
    name = item.subject or item.speaker
    return folded(name) if name else None


def mark_of(item: MemoryItem) -> Mark | None:
    """Return an item's place on its timeline; None when its time is unknown or open."""
    if item.valid is None or item.valid.start is None or item.valid.end is None:
        return None
    return (item.valid.start.timestamp(), item.valid.end.timestamp(), item.id)


def _placed(
    timelines: HashTrieMap[str, SortedSet[Mark]], item: MemoryItem, *, present: bool
) -> HashTrieMap[str, SortedSet[Mark]]:
    """Put an active item on its timeline, or take it off."""
    key, mark = timeline_key(item), mark_of(item)
    if key is None or mark is None or not item.active:
        return timelines
    marks = timelines.get(key, NO_MARKS)
    marks = marks.insert(mark) if present else marks.remove(mark)
    return timelines.insert(key, marks) if len(marks) else timelines.discard(key)


def _counted(
    state: BankState, updates: Iterable[tuple[str, int]]
) -> tuple[HashTrieMap[str, int], int]:
    """Return the id counter and its root after the updates."""
    ordinals, root = state.ordinals, state.ordinal_root
    for key, count in updates:
        old = ordinals.get(key, 0)
        if old:
            root = sub_hash(root, ordinal_hash(key, old))
        if count:
            root = add_hash(root, ordinal_hash(key, count))
        ordinals = ordinals.insert(key, count) if count else ordinals.discard(key)
    return ordinals, root


def _with_trials(state: BankState, changes: TrialChanges) -> BankState:
    """Assign trials, and store the session of each that has ended."""
    for trial_id, trial in changes:
        if trial is not None and trial.outcome is not None and trial_id not in state.sessions:
            state = _with_session(state, trial.session())
    trials, root = trials_after(state.trials, state.trial_root, changes)
    return replace(state, trials=trials, trial_root=root) if changes else state


def _with_stats(state: BankState, updates: Iterable[tuple[str, ItemStats | None]]) -> BankState:
    stats, root = state.stats, state.stats_root
    for item_id, value in updates:
        old = stats.get(item_id)
        if old is not None:
            root = sub_hash(root, stats_hash(item_id, old))
        if value is not None:
            root = add_hash(root, stats_hash(item_id, value))
        stats = stats.insert(item_id, value) if value is not None else stats.discard(item_id)
    return replace(state, stats=stats, stats_root=root)


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
            for item in snapshot.items.values()
        ),
        graph=GraphDelta(
            nodes=tuple(snapshot.graph.all_nodes()), edges=tuple(snapshot.graph.all_edges())
        ),
        ordinals=tuple(snapshot.ordinals.items()),
        stats=tuple(snapshot.stats.items()),
        trials=tuple(snapshot.trials.items()),
        done=tuple((name, tuple(chunks)) for name, chunks in snapshot.done.items()),
        sessions=tuple(snapshot.sessions.values()),
    )
    state = _after_restore(EMPTY_STATE, entry, snapshot.seq)
    state = replace(state, seq=snapshot.seq, orders=Orders(), trail=(Step(),))
    if state.digest() != snapshot.digest:
        raise SnapshotMismatch(
            f"the snapshot says digest {snapshot.digest[:12]}, its content has"
            f" {state.digest()[:12]}: it was altered or cut short"
        )
    return state
