"""The orders of a memory's items: by age, by last change, by expiry, by source.

An order is derived from the items when somebody first asks for it; from then on the
fold keeps it level, in O(log n) a change. So a memory that nobody lists, a rollout's
for one, pays nothing, and neither a digest nor a stored state knows of orders. The
surprise: an item stands by the place of its last turn, which may be stored after the
item; the orders of such a memory are derived anew then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import Any, Final, NamedTuple, Protocol

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

    __slots__ = ("_derived", "_unplaced")

    def __init__(self) -> None:
        self._derived: dict[str, SortedSet[Any]] = {}
        self._unplaced: frozenset[str] = frozenset()
        """Turns that items rest on and that are not stored."""

    @property
    def derived(self) -> bool:
        """Whether any of them was derived, since somebody asked for it."""
        return bool(self._derived)

    def by_age(self, tables: ItemTables) -> SortedSet[AgeKey]:
        """Return the keys of all items, oldest said first, tombstones included."""
        return self._order("age", tables, tables.items)

    def by_change(self, tables: ItemTables) -> SortedSet[ChangeKey]:
        """Return the keys of all items, last changed first, tombstones included."""
        return self._order("change", tables, tables.items)

    def by_expiry(self, tables: ItemTables) -> SortedSet[ExpiryKey]:
        """Return the keys of the items that ever expire, the next to expire first."""
        return self._order("expiry", tables, tables.expiring)

    def by_source(self, tables: ItemTables, graph: Nodes) -> SortedSet[SourceKey]:
        """Return the keys of the items, in any version, and of the events that rest on turns."""
        return self._order("source", tables, tables.items, graph)

    def _order(
        self, name: str, tables: ItemTables, ids: Mapping[str, Any], graph: Nodes | None = None
    ) -> SortedSet[Any]:
        keys = self._derived.get(name)
        if keys is None:
            of_items = (key for item_id, _ in pairs(ids) for key in _KEYS[name](tables, item_id))
            nodes = () if graph is None else graph.all_nodes()
            keys = SortedSet(chain(of_items, (key for node in nodes for key in _event_keys(node))))
            if len(keys):  # the empty state is shared by all memories
                if name in _LISTED:
                    self._unplaced |= _unplaced(tables, (item for _, item in pairs(tables.items)))
                # last and at once: another thread may look meanwhile
                self._derived = {**self._derived, name: keys}
        return keys

    def after_turns(self, turn_ids: Iterable[str]) -> Orders:
        """Return the orders of a state that has these turns besides."""
        if not self._derived.keys().isdisjoint(_LISTED) and self._unplaced.isdisjoint(turn_ids):
            return self
        orders = Orders()
        orders._derived = {k: keys for k, keys in self._derived.items() if k not in _LISTED}
        return orders

    def after_nodes(self, before: Nodes, after: Nodes, node_ids: Iterable[str]) -> Orders:
        """Return the orders of a state in which these nodes of the graph changed."""
        source = self._derived.get("source")
        if source is None:
            return self
        for name in dict.fromkeys(node_ids):
            source = _moved(source, _event_keys(before.node(name)), _event_keys(after.node(name)))
        orders = Orders()
        orders._derived, orders._unplaced = {**self._derived, "source": source}, self._unplaced
        return orders

    def after_changes(
        self, before: ItemTables, after: ItemTables, item_ids: Iterable[str]
    ) -> Orders:
        """Return the orders of a state in which these items changed."""
        orders = Orders()
        if not self.derived:
            return orders
        ids = list(dict.fromkeys(item_ids))
        for name, keys in self._derived.items():
            keys_of = _KEYS[name]
            for item_id in ids:
                keys = _moved(keys, keys_of(before, item_id), keys_of(after, item_id))
            orders._derived[name] = keys
        changed = filter(None, map(after.items.get, ids))
        orders._unplaced = self._unplaced | _unplaced(after, changed)
        return orders


def age_key(tables: ItemTables, item: MemoryItem) -> AgeKey:
    """Return the place of an item among all by when it was said, ties by turn, then id."""
    turn_id = item.source_turn_ids[-1] if item.source_turn_ids else ""
    said = item.said_at.timestamp() if item.said_at else 0.0
    return said, *tables.turns.get(turn_id, ("", 0)), item.id


def change_key(tables: ItemTables, item: MemoryItem) -> ChangeKey:
    """Return the place of an item among all by its last change, then as `age_key`."""
    return -max(tables.touched.get(item.id, (0,))), *age_key(tables, item)


def _moved(keys: SortedSet[Any], before: set[Any], after: set[Any]) -> SortedSet[Any]:
    """Return the keys of an order after an item or event got others."""
    for key in before - after:
        keys = keys.remove(key)
    for key in after - before:
        keys = keys.insert(key)
    return keys


def _age_keys(tables: ItemTables, item_id: str) -> set[Any]:
    item = tables.items.get(item_id)
    return set() if item is None else {age_key(tables, item)}


def _change_keys(tables: ItemTables, item_id: str) -> set[Any]:
    item = tables.items.get(item_id)
    return set() if item is None else {change_key(tables, item)}


def _expiry_keys(tables: ItemTables, item_id: str) -> set[Any]:
    ends = tables.expiring.get(item_id)
    return set() if ends is None else {(ends, item_id)}


def _source_keys(tables: ItemTables, item_id: str) -> set[Any]:
    """Return the keys of the turns that any version of an item cites."""
    item = tables.items.get(item_id)
    versions = () if item is None else (*tables.archive.get(item_id, ()), item)
    return {(turn, item_id) for version in versions for turn in version.source_turn_ids}


def _event_keys(node: Event | None) -> set[Any]:
    """Return the keys of the turns that an event rests on; none for other nodes."""
    if node is None or node.kind is not NodeKind.EVENT:
        return set()
    return {(turn, node.id) for turn in node.source_turn_ids}


def _unplaced(tables: ItemTables, items: Iterable[MemoryItem]) -> frozenset[str]:
    return frozenset(
        item.source_turn_ids[-1]
        for item in items
        if item.source_turn_ids and item.source_turn_ids[-1] not in tables.turns
    )


_KEYS: Final[Mapping[str, Callable[[ItemTables, str], set[Any]]]] = {
    "age": _age_keys,
    "change": _change_keys,
    "expiry": _expiry_keys,
    "source": _source_keys,
}
"""The keys of an item in each order."""
_LISTED: Final = {"age", "change"}
"""The orders that items stand in by the place of their last turn."""
