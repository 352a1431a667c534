"""A list of items in an order, read from any place on.

The orders are the state's own, so a page costs its own length (and the items that its
filter skips), whatever the size of the memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from memagent.core.answers import Filter
from memagent.core.errors import MemoryNotFound
from memagent.core.records import MemoryItem
from memagent.state.fold import BankState, age_key, change_key
from memagent.state.orders import SortedSet
from memagent.state.validation import matches

Order = Literal["old", "new", "changed"]
"""Oldest said first, latest said first, or last changed first; ties by turn, then id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The items of a list and their order."""

    where: Filter | None = None
    include_deleted: bool = False
    """Whether deleted and expired items are in it."""
    order: Order = "old"
    after: str | None = None
    """Id of an item, in the list or not, behind which it begins."""

    def of(self, state: BankState, now: datetime) -> Iterator[MemoryItem]:
        """Return the items of a state one by one. Raises `MemoryNotFound` for `after`."""
        last = None if self.after is None else state.items.get(self.after)
        if self.after is not None and last is None:
            raise MemoryNotFound(f"there is no memory {self.after!r} to list on from")
        changed, backwards = self.order == "changed", self.order == "new"
        key_of: Callable[[BankState, MemoryItem], Any] = change_key if changed else age_key
        keys = state.orders.by("change" if changed else "age", state)
        if self.where is not None and self.where.ids:
            chosen = filter(None, map(state.items.get, self.where.ids))
            keys = SortedSet(key_of(state, item) for item in chosen)
        if last is None:
            rest = reversed(keys) if backwards else iter(keys)
        else:
            place = key_of(state, last)
            rest = keys.before(place) if backwards else keys.after(place)
        items = (state.items[key[-1]] for key in rest)
        return (item for item in items if self._has(item, now))

    def _has(self, item: MemoryItem, now: datetime) -> bool:
        if not self.include_deleted and (not item.active or item.expired(now)):
            return False
        return self.where is None or self.where.empty or matches(item, self.where)
