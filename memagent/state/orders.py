"""The orders of a memory's items: by age, by last change, by expiry, by source.

An order is derived from the items when somebody first asks for it; from then on the
fold keeps it level, in O(log n) a change. So a memory that nobody lists, a rollout's
for one, pays nothing, and neither a digest nor a stored state knows of orders. The
surprise: an item stands by the place of its last turn, which may be stored after the
item; the orders of such a memory are derived anew then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import NamedTuple, Protocol

from memagent.core.records import Event, MemoryItem, NodeKind
from memagent.state.adjacency import pairs
from memagent.state.sorted_set import SortedSet

AgeKey = tuple[float, str, int, str]
"""(said at in epoch seconds, session id, place of the turn there, item id)."""
ChangeKey = tuple[int, float, str, int, str]
"""(minus the sequence of the last change, then as `AgeKey`)."""
ExpiryKey = tuple[datetime, str]
"""(when it expires, item id)."""
SourceKey = tuple[str, str]
"""(turn id, id of an item or an event that rests on the turn)."""


class Nodes(Protocol):
    """The nodes of an event graph."""

    def node(self, node_id: str) -> Event | None:
        """Return a node, or None."""
        ...

    def all_nodes(self) -> Iterator[Event]:
        """Yield every node, in no particular order."""
        ...


class ItemTables(Protocol):
    """The tables of a state that its orders follow from."""

    @property
    def items(self) -> Mapping[str, MemoryItem]:
        """The items by id."""
        ...

    @property
    def archive(self) -> Mapping[str, Sequence[MemoryItem]]:
        """The older versions of an item, by its id."""
        ...

    @property
    def turns(self) -> Mapping[str, tuple[str, int]]:
        """(session id, place) by turn id."""
        ...

    @property
    def touched(self) -> Mapping[str, Sequence[int]]:
        """The sequences of the entries that changed an item, by its id."""
        ...

    @property
    def expiring(self) -> Mapping[str, datetime]:
        """When an item expires, by id."""
        ...


class Tables(NamedTuple):
    """The tables of a state in the making."""

    items: Mapping[str, MemoryItem]
    archive: Mapping[str, Sequence[MemoryItem]]
    turns: Mapping[str, tuple[str, int]]
    touched: Mapping[str, Sequence[int]]
    expiring: Mapping[str, datetime]


class Orders:
    """The orders of one state, as far as somebody asked for them."""

    __slots__ = ("_age", "_change", "_expiry", "_source", "_unplaced")

    def __init__(self) -> None:
        self._age: SortedSet[AgeKey] | None = None
        self._change: SortedSet[ChangeKey] | None = None
        self._expiry: SortedSet[ExpiryKey] | None = None
        self._source: SortedSet[SourceKey] | None = None
        self._unplaced: frozenset[str] = frozenset()
        """Turns that items rest on and that are not stored."""

    @property
    def derived(self) -> bool:
        """Whether any of them was derived, since somebody asked for it."""
        return not (self._age is self._change is self._expiry is self._source is None)

    def by_age(self, tables: ItemTables) -> SortedSet[AgeKey]:
        """Return the keys of all items, oldest said first, tombstones included."""
        keys = self._age
        if keys is None:
            items = [item for _, item in pairs(tables.items)]
            keys = SortedSet(age_key(tables, item) for item in items)
            if len(keys):  # the empty state is shared by all memories
                self._unplaced |= _unplaced(tables, items)
                self._age = keys  # last: another thread may look meanwhile
        return keys

    def by_change(self, tables: ItemTables) -> SortedSet[ChangeKey]:
        """Return the keys of all items, last changed first, tombstones included."""
        keys = self._change
        if keys is None:
            items = [item for _, item in pairs(tables.items)]
            keys = SortedSet(change_key(tables, item) for item in items)
            if len(keys):
                self._unplaced |= _unplaced(tables, items)
                self._change = keys
        return keys

    def by_expiry(self, tables: ItemTables) -> SortedSet[ExpiryKey]:
        """Return the keys of the items that ever expire, the next to expire first."""
        keys = self._expiry
        if keys is None:
            keys = SortedSet((moment, item_id) for item_id, moment in pairs(tables.expiring))
            if len(keys):
                self._expiry = keys
        return keys

    def by_source(self, tables: ItemTables, graph: Nodes) -> SortedSet[SourceKey]:
        """Return the keys of the items, in any version, and of the events that rest on turns."""
        keys = self._source
        if keys is None:
            cited = ((item_id, _cited(tables, item_id)) for item_id, _ in pairs(tables.items))
            events = ((node.id, _rested_on(node)) for node in graph.all_nodes())
            keys = SortedSet((turn, name) for name, turns in chain(cited, events) for turn in turns)
            if len(keys):
                self._source = keys
        return keys

    def after_turns(self, turn_ids: Iterable[str]) -> Orders:
        """Return the orders of a state that has these turns besides."""
        listed = self._age is not None or self._change is not None
        if listed and self._unplaced.isdisjoint(turn_ids):
            return self
        orders = Orders()
        orders._expiry, orders._source = self._expiry, self._source
        return orders

    def after_nodes(self, before: Nodes, after: Nodes, node_ids: Iterable[str]) -> Orders:
        """Return the orders of a state in which these nodes of the graph changed."""
        source = self._source
        if source is None:
            return self
        for name in dict.fromkeys(node_ids):
            was, rests = _rested_on(before.node(name)), _rested_on(after.node(name))
            source = _moved(source, name, was, rests)
        orders = Orders()
        orders._age, orders._change, orders._expiry = self._age, self._change, self._expiry
        orders._source, orders._unplaced = source, self._unplaced
        return orders

    def after_changes(
        self, before: ItemTables, after: ItemTables, item_ids: Iterable[str]
    ) -> Orders:
        """Return the orders of a state in which these items changed."""
        orders = Orders()
        if not self.derived:
            return orders
        age, change, expiry, source = self._age, self._change, self._expiry, self._source
        unplaced = self._unplaced
        for item_id in dict.fromkeys(item_ids):
            old, new = before.items.get(item_id), after.items.get(item_id)
            if age is not None:
                age = age if old is None else age.remove(age_key(before, old))
                age = age if new is None else age.insert(age_key(after, new))
            if change is not None:
                change = change if old is None else change.remove(change_key(before, old))
                change = change if new is None else change.insert(change_key(after, new))
            if expiry is not None:
                was, ends = before.expiring.get(item_id), after.expiring.get(item_id)
                expiry = expiry if was is None else expiry.remove((was, item_id))
                expiry = expiry if ends is None else expiry.insert((ends, item_id))
            if source is not None:
                source = _moved(
                    source, item_id, *(_cited(side, item_id) for side in (before, after))
                )
            if new is not None:
                unplaced |= _unplaced(after, (new,))
        orders._age, orders._change, orders._expiry, orders._source = age, change, expiry, source
        orders._unplaced = unplaced
        return orders


def age_key(tables: ItemTables, item: MemoryItem) -> AgeKey:
    """Return the place of an item among all by when it was said, ties by turn, then id."""
    turn_id = item.source_turn_ids[-1] if item.source_turn_ids else ""
    said = item.said_at.timestamp() if item.said_at else 0.0
    return said, *tables.turns.get(turn_id, ("", 0)), item.id


def change_key(tables: ItemTables, item: MemoryItem) -> ChangeKey:
    """Return the place of an item among all by its last change, then as `age_key`."""
    return -max(tables.touched.get(item.id, (0,))), *age_key(tables, item)


def _moved(
    keys: SortedSet[SourceKey], name: str, before: set[str], after: set[str]
) -> SortedSet[SourceKey]:
    """Return the keys after an item or event came to rest on other turns."""
    for turn in before - after:
        keys = keys.remove((turn, name))
    for turn in after - before:
        keys = keys.insert((turn, name))
    return keys


def _cited(tables: ItemTables, item_id: str) -> set[str]:
    """Return the turns that any version of an item cites."""
    item = tables.items.get(item_id)
    versions = () if item is None else (*tables.archive.get(item_id, ()), item)
    return {turn for version in versions for turn in version.source_turn_ids}


def _rested_on(node: Event | None) -> set[str]:
    """Return the turns that an event rests on; none for other nodes."""
    if node is None or node.kind is not NodeKind.EVENT:
        return set()
    return set(node.source_turn_ids)


def _unplaced(tables: ItemTables, items: Iterable[MemoryItem]) -> frozenset[str]:
    return frozenset(
        item.source_turn_ids[-1]
        for item in items
        if item.source_turn_ids and item.source_turn_ids[-1] not in tables.turns
    )
