"""The state of one memory as a value, and the fold that makes it from journal entries.

`apply(state, row)` is the only way a state changes, live or in replay, so the two
cannot disagree. It assigns what the entry says and keeps the roots of the digest; it
asks no model, no clock and no rule. All maps are persistent: a state costs the
difference to its predecessor, and keeping one is keeping a snapshot.

Trials are one persistent map by id, with the root of their hashes. A trial that has
ended leads to a session with the trial's id (`Trial.session`); the fold stores it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache, partial
from itertools import chain
from typing import Any, Final, Literal, TypeVar

from rpds import HashTrieMap

from memagent.core.records import (
    Event,
    ItemStats,
    MemoryItem,
    NodeKind,
    Session,
    Trust,
    Turn,
    lowest_trust,
)
from memagent.core.snapshot import (
    Commit,
    Entry,
    Erased,
    GraphDelta,
    JournalRow,
    Redacted,
    Restored,
    SessionStored,
    StatsDelta,
    TrialChanges,
    TurnsAdded,
    add_hash,
    digest_of,
    item_hash,
    ordinal_hash,
    stats_hash,
    sub_hash,
    trial_hash,
)
from memagent.core.trials import Trial, TrialEnded, TrialStarted
from memagent.state.adjacency import GraphState, pairs
from memagent.state.orders import SortedSet

V = TypeVar("V")
Mark = tuple[float, float, str]
"""(start, end, item id) of a bounded valid span, in epoch seconds."""
NO_MARKS: SortedSet[Mark] = SortedSet()
# The last entries of which a state knows the names that they changed.
_STEPS = 128
# Names in one entry above which a trail begins again, so that none is held twice.
_MANY_NAMES = 4_096


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """The names that one entry changed, in whichever table; a step equals only itself."""

    names: frozenset[str] = frozenset()


OrderName = Literal["age", "change", "expiry", "source"]
"""Of all items, tombstones included, `age` (the oldest said first) and `change` (the last
changed first); `expiry`, the next to expire first, of those that ever do; and `source`, of
the items, in any version, and events that rest on a turn.
"""


class Orders:
    """The orders of one state, as far as somebody asked for them.

    An order is derived from the items when somebody first asks for it; from then on the
    fold keeps it level, in O(log n) a change. So a memory that nobody lists, a rollout's
    for one, pays nothing, and neither a digest nor a stored state knows of orders. The
    surprise: an item stands by the place of its last turn, which may be stored after the
    item; the orders of such a memory are derived anew then.
    """

    __slots__ = ("_derived", "_unplaced")

    def __init__(self) -> None:
        self._derived: dict[str, SortedSet[Any]] = {}
        self._unplaced: frozenset[str] = frozenset()
        """Turns that items rest on and that are not stored."""

    @property
    def derived(self) -> bool:
        """Whether any of them was derived, since somebody asked for it."""
        return bool(self._derived)

    def by(self, name: OrderName, state: BankState) -> SortedSet[Any]:
        """Return the keys of an order of the state; see `OrderName`."""
        keys = self._derived.get(name)
        if keys is None:
            keys_of, ids = _KEYS[name], state.expiring if name == "expiry" else state.items
            named = chain(ids, state.graph.nodes) if name == "source" else ids
            keys = SortedSet(key for entry_id in named for key in keys_of(state, entry_id))
            if len(state.items) or len(state.graph.nodes):  # all share the empty state
                if name in _LISTED:
                    self._unplaced |= _unplaced(state, (item for _, item in pairs(state.items)))
                # last and at once: another thread may look meanwhile
                self._derived = {**self._derived, name: keys}
        return keys

    def after_turns(self, turns: Iterable[Turn]) -> Orders:
        """Return the orders of a state that has these turns besides."""
        orders = Orders()
        if self._derived:
            ids = {turn.id for turn in turns}
            if not self._derived.keys().isdisjoint(_LISTED) and self._unplaced.isdisjoint(ids):
                return self
            orders._derived = {k: keys for k, keys in self._derived.items() if k not in _LISTED}
        return orders

    def after(self, before: BankState, after: BankState, names: Iterable[str]) -> Orders:
        """Return the orders of a state in which only items and events of these names changed."""
        orders = Orders()
        if not self._derived:
            return orders
        for order, keys in self._derived.items():
            keys_of = _KEYS[order]
            for name in names:
                old, new = keys_of(before, name), keys_of(after, name)
                for key in old - new:
                    keys = keys.remove(key)
                for key in new - old:
                    keys = keys.insert(key)
            orders._derived[order] = keys
        changed = filter(None, map(after.items.get, names))
        orders._unplaced = self._unplaced | _unplaced(after, changed)
        return orders


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
    cleared: tuple[int, ...] = ()
    """Sequences of the commits that deleted everything at once, oldest first."""
    live: int = 0
    """Number of items that are not deleted."""
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
        return digest_of(
            items=self.item_root,
            graph=self.graph.root,
            stats=self.stats_root,
            ordinals=self.ordinal_root,
            trials=self.trial_root,
        )

    def turn(self, turn_id: str) -> Turn | None:
        """Return a stored turn, or None."""
        place = self.turns.get(turn_id)
        return None if place is None else self.sessions[place[0]].turns[place[1]]

    def said_at(self, turn_id: str) -> datetime | None:
        """Return when a stored turn was said; None where that, or the turn, is unknown."""
        place = self.turns.get(turn_id)
        if place is None:
            return None
        session = self.sessions[place[0]]
        return session.date_of(session.turns[place[1]])

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
_REMEMBERED_CHARS = 100  # longest text whose folded form is remembered: names come again


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
            session = state.sessions[entry.session_id]
            size = len(session.turns)
            grown = {"turns": (*session.turns, *entry.turns), "grown_at": (*session.grown_at, size)}
            after = _with_session(state, session.model_copy(update=grown), first=size)
        case GraphDelta():
            after = replace(state, graph=state.graph.apply(entry))
        case StatsDelta():
            after = _with_stats(state, entry.updates)
        case TrialStarted(trial=trial):
            after = _with_trials(state, ((trial.id, trial),))
        case TrialEnded(trial=trial, stats=stats):
            after = _with_stats(_with_trials(state, ((trial.id, trial),)), stats)
        case Restored():
            after = restored(state, entry, seq)
        case Erased() | Redacted():
            after = EMPTY_STATE if isinstance(entry, Erased) else state
    orders = after.orders.after(state, after, names)
    emptied = isinstance(entry, Erased) or after.cleared != state.cleared
    anew = emptied or len(names) > _MANY_NAMES
    trail = (Step(),) if anew else (*state.trail[1 - _STEPS :], Step(names))
    return replace(after, seq=seq, orders=orders, trail=trail)


def without(state: BankState, taken: Restored, sessions: Iterable[str]) -> BankState:
    """Return the state as if what an entry takes out, and these sessions, had never been.

    Every record of what goes must be named.
    """
    after = restored(state, taken, state.seq)
    touched, stored, turns, threads = after.touched, after.sessions, after.turns, after.threads
    for change in taken.changes:
        touched = touched.discard(change.id)
    for session in filter(None, map(state.sessions.get, sessions)):
        stored = stored.discard(session.id)
        for turn in session.turns:
            turns = turns.discard(turn.id)
        if (thread := session.thread) is not None:
            left = tuple(name for name in threads[thread] if name != session.id)
            threads = threads.insert(thread, left) if left else threads.discard(thread)
    after = replace(after, touched=touched, sessions=stored, turns=turns, threads=threads)
    names = frozenset((*_names(state.graph, taken), *sessions))
    trail = (*state.trail[1 - _STEPS :], Step(names))
    return replace(after, orders=after.orders.after(state, after, names), trail=trail)


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
            names.update(dict(entry.ordinals), dict(entry.stats), dict(entry.trials))
            if isinstance(entry, Commit):
                return names | {entry.source.session_id or ""}
            return names.union(dict(entry.done), (session.id for session in entry.sessions))
        case GraphDelta():
            edges = [(edge.source, edge.target) for edge in entry.edges]
            edges += [(source, target) for source, target, _ in entry.removed_edges]
            at_gone = (other[0] for name in entry.removed_nodes for other in graph.edges_of(name))
            nodes = (node.id for node in entry.nodes)
            return {*nodes, *entry.removed_nodes, *at_gone, *chain.from_iterable(edges)}
        case TrialEnded():
            return (entry.trial.id, *dict(entry.stats))
        case StatsDelta():
            return dict(entry.updates)
        case SessionStored(session=holder) | TrialStarted(trial=holder):
            return (holder.id,)
        case TurnsAdded():
            return (entry.session_id,)
        case Erased() | Redacted():
            return ()


def changed_items(entry: Entry) -> Iterable[str]:
    """Return the ids of the items an entry changes."""
    return [change.id for change in entry.changes] if isinstance(entry, Commit | Restored) else ()


def _after_commit(state: BankState, commit: Commit, seq: int) -> BankState:
    if commit.cleared is not None:
        state = _emptied(state, seq)
    done = state.done
    session_id, index = commit.source.session_id, commit.source.chunk_index
    if session_id is not None and index is not None:
        done = done.insert(session_id, done.get(session_id, frozenset()) | {index})
    state = _with_effects(state, commit, done, seq)
    if not (commit.stats or commit.trials):
        return state
    return _with_stats(_with_trials(state, commit.trials), commit.stats)


def _emptied(state: BankState, seq: int) -> BankState:
    """Return the state without items, events and statistics, in O(1).

    What was told and tried stays, and so does the id counter, so that no id is used twice.
    The digest is that of a memory which never had them.
    """
    return BankState(
        sessions=state.sessions,
        turns=state.turns,
        threads=state.threads,
        trials=state.trials,
        trial_root=state.trial_root,
        ordinals=state.ordinals,
        ordinal_root=state.ordinal_root,
        done=state.done,
        touched=state.touched,
        cleared=(*state.cleared, seq),
    )


def restored(state: BankState, entry: Restored, seq: int) -> BankState:
    """Return the state after the changes of an entry that restores another one."""
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
        orders=state.orders.after_turns(session.turns[first:]),
    )


def _with_effects(
    state: BankState,
    entry: Commit | Restored,
    done: HashTrieMap[str, frozenset[int]],
    seq: int,
) -> BankState:
    """Assign the entry's items, graph and id counter, in one new state."""
    items, archive, touched, root = state.items, state.archive, state.touched, state.item_root
    texts, timelines, expiring = state.texts, state.timelines, state.expiring
    live = state.live
    for change in entry.changes:
        old, past = items.get(change.id), archive.get(change.id, ())
        live -= old is not None and old.active
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
                live += 1
                texts = texts.insert(folded(change.after.text), change.id)
                timelines = _placed(timelines, change.after, present=True)
                if change.after.expires_at is not None:
                    expiring = expiring.insert(change.id, change.after.expires_at)
        touched = touched.insert(change.id, (*touched.get(change.id, ()), seq))
    ordinals, ordinal_root = _assigned(
        state.ordinals, state.ordinal_root, entry.ordinals, ordinal_hash
    )
    return replace(
        state,
        items=items,
        archive=archive,
        touched=touched,
        texts=texts,
        timelines=timelines,
        expiring=expiring,
        live=live,
        item_root=root,
        graph=state.graph.apply(entry.graph),
        ordinals=ordinals,
        ordinal_root=ordinal_root,
        done=done,
    )


def place_in_time(item: MemoryItem) -> tuple[str, Mark] | None:
    """Return the key of an item's timeline, its subject's or else its speaker's, and its mark.

    None for nobody's item, and where its time is unknown or open.
    """
    name, span = item.subject or item.speaker, item.valid
    if not name or span is None or span.start is None or span.end is None:
        return None
    return folded(name), (span.start.timestamp(), span.end.timestamp(), item.id)


def _placed(
    timelines: HashTrieMap[str, SortedSet[Mark]], item: MemoryItem, *, present: bool
) -> HashTrieMap[str, SortedSet[Mark]]:
    """Put an active item on its timeline, or take it off."""
    place = place_in_time(item)
    if place is None or not item.active:
        return timelines
    key, mark = place
    marks = timelines.get(key, NO_MARKS)
    marks = marks.insert(mark) if present else marks.remove(mark)
    return timelines.insert(key, marks) if len(marks) else timelines.discard(key)


def _assigned(
    table: HashTrieMap[str, V],
    root: int,
    changes: Iterable[tuple[str, V | None]],
    hashed: Callable[[str, V], int],
) -> tuple[HashTrieMap[str, V], int]:
    """Return a table and its root after assignments; None, or a count of 0, takes an entry out."""
    for key, value in changes:
        old = table.get(key)
        if old is not None:
            root = sub_hash(root, hashed(key, old))
        if value:
            root = add_hash(root, hashed(key, value))
        table = table.insert(key, value) if value else table.discard(key)
    return table, root


def _with_trials(state: BankState, changes: TrialChanges) -> BankState:
    """Assign trials, and store the session of each that has ended."""
    for trial_id, trial in changes:
        if trial is not None and trial.outcome is not None and trial_id not in state.sessions:
            state = _with_session(state, trial.session())
    trials, root = _assigned(state.trials, state.trial_root, changes, trial_hash)
    return replace(state, trials=trials, trial_root=root) if changes else state


def _with_stats(state: BankState, updates: Iterable[tuple[str, ItemStats | None]]) -> BankState:
    stats, root = _assigned(state.stats, state.stats_root, updates, stats_hash)
    return replace(state, stats=stats, stats_root=root)


# -- orders ----------------------------------------------------------------------------

AgeKey = tuple[float, str, int, str]
"""(said at in epoch seconds, session id, place of the turn there, item id)."""
ChangeKey = tuple[int, float, str, int, str]
"""(minus the sequence of the last change, then as `AgeKey`)."""


def age_key(state: BankState, item: MemoryItem) -> AgeKey:
    """Return the place of an item among all by when it was said, ties by turn, then id."""
    turn_id = item.source_turn_ids[-1] if item.source_turn_ids else ""
    said = item.said_at.timestamp() if item.said_at else 0.0
    return said, *state.turns.get(turn_id, ("", 0)), item.id


def change_key(state: BankState, item: MemoryItem) -> ChangeKey:
    """Return the place of an item among all by its last change, then as `age_key`."""
    return -max(state.touched.get(item.id, (0,))), *age_key(state, item)


def _place_keys(
    place: Callable[[BankState, MemoryItem], Any], state: BankState, item_id: str
) -> set[Any]:
    item = state.items.get(item_id)
    return set() if item is None else {place(state, item)}


def _expiry_keys(state: BankState, item_id: str) -> set[Any]:
    ends = state.expiring.get(item_id)
    return set() if ends is None else {(ends, item_id)}


def _source_keys(state: BankState, name: str) -> set[Any]:
    """Return the keys of the turns that any version of an item cites, or that an event does."""
    item, node = state.items.get(name), state.graph.node(name)
    cited: list[MemoryItem | Event] = []
    if item is not None:
        cited += (*state.archive.get(name, ()), item)
    if node is not None and node.kind is NodeKind.EVENT:
        cited.append(node)
    return {(turn, name) for record in cited for turn in record.source_turn_ids}


def _unplaced(state: BankState, items: Iterable[MemoryItem]) -> frozenset[str]:
    return frozenset(
        item.source_turn_ids[-1]
        for item in items
        if item.source_turn_ids and item.source_turn_ids[-1] not in state.turns
    )


# The keys of an item in each order.
_KEYS: Final[Mapping[str, Callable[[BankState, str], set[Any]]]] = {
    "age": partial(_place_keys, age_key),
    "change": partial(_place_keys, change_key),
    "expiry": _expiry_keys,
    "source": _source_keys,
}
# The orders that items stand in by the place of their last turn.
_LISTED: Final = {"age", "change"}
