"""The orders of a memory's items: by age, by last change, by expiry, by source.

An order is derived from the items when somebody first asks for it; from then on the
fold keeps it level, in O(log n) a change. So a memory that nobody lists, a rollout's
for one, pays nothing, and neither a digest nor a stored state knows of orders. The
surprise: an item stands by the place of its last turn, which may be stored after the
item; the orders of such a memory are derived anew then.

`SortedSet` is persistent: every edit gives a new set that shares nearly everything. It
is a tuple of leaves, which are tuples of at most 256 keys. An edit copies one leaf and
the tuple of leaves: 5 us at 10,000 keys, some 60 at a million. Reading on from a place
takes O(1) a key. The surprise: a leaf that loses keys is not merged with its neighbour,
only dropped when it is empty, for sets here shrink far less than they grow.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain, islice
from operator import itemgetter
from typing import Any, Final, Generic, Protocol, TypeVar, cast

from memagent.core.records import Event, MemoryItem, NodeKind
from memagent.state.adjacency import GraphState, pairs

K = TypeVar("K")
_WIDTH: Final = 256
"""Most keys of a leaf."""
_last = itemgetter(-1)


class SortedSet(Generic[K]):
    """An immutable set of comparable keys in their order."""

    __slots__ = ("_leaves", "_size")

    def __init__(self, keys: Iterable[K] = ()) -> None:
        """Make a set of keys in any order; O(n log n), O(n) for sorted ones."""
        ordered = tuple(sorted(cast("set[Any]", set(keys))))
        starts = range(0, len(ordered), _WIDTH)
        self._leaves: tuple[tuple[Any, ...], ...] = tuple(
            ordered[at : at + _WIDTH] for at in starts
        )
        self._size = len(ordered)

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[K]:
        return chain.from_iterable(self._leaves)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SortedSet) and tuple(self) == tuple(other)  # pyright: ignore[reportUnknownArgumentType]

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"SortedSet({list(self)!r})"

    def __contains__(self, key: object) -> bool:
        return next(self.since(key), None) == key  # pyright: ignore[reportArgumentType]

    def __reversed__(self) -> Iterator[K]:
        return chain.from_iterable(map(reversed, reversed(self._leaves)))

    def insert(self, key: K) -> SortedSet[K]:
        """Return the set with a key; itself when it has it."""
        place = min(bisect_left(self._leaves, cast("Any", key), key=_last), len(self._leaves) - 1)
        leaf = self._leaves[place] if self._leaves else ()
        at = bisect_left(leaf, key)
        if at < len(leaf) and leaf[at] == key:
            return self
        grown = (*leaf[:at], key, *leaf[at:])
        # keys that come in order leave full leaves behind
        half = len(leaf) if at == len(leaf) else len(grown) // 2
        parts = (grown,) if len(grown) <= _WIDTH else (grown[:half], grown[half:])
        return self._with(max(place, 0), parts, self._size + 1)

    def remove(self, key: K) -> SortedSet[K]:
        """Return the set without a key; itself when it lacks it."""
        place = bisect_left(self._leaves, cast("Any", key), key=_last)
        leaf = self._leaves[place] if place < len(self._leaves) else ()
        at = bisect_left(leaf, key)
        if at == len(leaf) or leaf[at] != key:
            return self
        rest = (*leaf[:at], *leaf[at + 1 :])
        return self._with(place, (rest,) if rest else (), self._size - 1)

    def since(self, key: K) -> Iterator[K]:
        """Yield the keys that are not less than a key, in order."""
        return self._from(key, bisect_left)

    def after(self, key: K) -> Iterator[K]:
        """Yield the keys that are greater than a key, in order."""
        return self._from(key, bisect_right)

    def before(self, key: K) -> Iterator[K]:
        """Yield the keys that are less than a key, the greatest first."""
        place = bisect_left(self._leaves, cast("Any", key), key=_last)
        leaf = self._leaves[place] if place < len(self._leaves) else ()
        head = leaf[: bisect_left(leaf, key)]
        rest = map(self._leaves.__getitem__, range(place - 1, -1, -1))
        return chain(reversed(head), chain.from_iterable(map(reversed, rest)))

    def rank(self, key: K) -> int:
        """Return the number of keys less than a key."""
        place = bisect_left(self._leaves, cast("Any", key), key=_last)
        leaf = self._leaves[place] if place < len(self._leaves) else ()
        return sum(map(len, self._leaves[:place])) + bisect_left(leaf, key)

    def _from(self, key: Any, bisect: Any) -> Iterator[K]:
        place = bisect(self._leaves, key, key=_last)
        leaf = self._leaves[place] if place < len(self._leaves) else ()
        rest = islice(self._leaves, place + 1, None)
        return chain(leaf[bisect(leaf, key) :], chain.from_iterable(rest))

    def _with(self, place: int, parts: tuple[tuple[Any, ...], ...], size: int) -> SortedSet[K]:
        """Return a set with other leaves in the place of one."""
        made = cast("SortedSet[K]", object.__new__(SortedSet))
        leaves = (*self._leaves[:place], *parts, *self._leaves[place + 1 :])
        made._leaves, made._size = leaves, size  # noqa: SLF001 (a set of our own making)
        return made


AgeKey = tuple[float, str, int, str]
"""(said at in epoch seconds, session id, place of the turn there, item id)."""
ChangeKey = tuple[int, float, str, int, str]
"""(minus the sequence of the last change, then as `AgeKey`)."""
ExpiryKey = tuple[datetime, str]
"""(when it expires, item id)."""
SourceKey = tuple[str, str]
"""(turn id, id of an item or an event that rests on the turn)."""


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

    @property
    def graph(self) -> GraphState:
        """The event graph."""
        ...


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

    def by_source(self, tables: ItemTables) -> SortedSet[SourceKey]:
        """Return the keys of the items, in any version, and of the events that rest on turns."""
        return self._order("source", tables, chain(tables.items, tables.graph.nodes))

    def _order(self, name: str, tables: ItemTables, ids: Iterable[str]) -> SortedSet[Any]:
        keys = self._derived.get(name)
        if keys is None:
            keys_of = _KEYS[name]
            keys = SortedSet(key for entry_id in ids for key in keys_of(tables, entry_id))
            if len(tables.items) or len(tables.graph.nodes):  # all share the empty state
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

    def after(self, before: ItemTables, after: ItemTables, names: Iterable[str]) -> Orders:
        """Return the orders of a state in which only items and events of these names changed."""
        orders = Orders()
        if not self._derived:
            return orders
        for order, keys in self._derived.items():
            keys_of = _KEYS[order]
            for name in names:
                keys = _moved(keys, keys_of(before, name), keys_of(after, name))
            orders._derived[order] = keys
        changed = filter(None, map(after.items.get, names))
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


def _source_keys(tables: ItemTables, name: str) -> set[Any]:
    """Return the keys of the turns that any version of an item cites, or that an event does."""
    item, node = tables.items.get(name), tables.graph.node(name)
    cited: list[MemoryItem | Event] = []
    if item is not None:
        cited += (*tables.archive.get(name, ()), item)
    if node is not None and node.kind is NodeKind.EVENT:
        cited.append(node)
    return {(turn, name) for record in cited for turn in record.source_turn_ids}


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
