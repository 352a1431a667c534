"""A persistent map over a read-only base whose entries are decoded when they are touched.

It has the interface of `rpds.HashTrieMap`, as far as a state uses it. The base is a
table of a checkpoint and never changes; what was inserted or removed since lies above
it in an ordinary persistent map. So a map of any size opens at once, every edit gives a
new map that shares the rest, and keeping one is keeping a snapshot.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import Any, Final, Generic, Protocol, TypeVar, cast, overload

from rpds import HashTrieMap

V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)
D = TypeVar("D")
ABSENT: Final = -1
"""Place of a key that a base does not have."""
_REMOVED: Final = object()
_UNKNOWN: Final = object()


class Base(Protocol[V_co]):
    """A read-only table of n entries; a place is a number that stands for one of them."""

    def __len__(self) -> int:
        """Return n."""
        ...

    def find(self, key: str) -> int:
        """Return the place of a key, `ABSENT` for an unknown one."""
        ...

    def value(self, at: int) -> V_co:
        """Return the value at a place; the same object each time."""
        ...

    def entries(self) -> Iterator[tuple[str, int]]:
        """Yield every key with its place."""
        ...


class LayeredMap(Mapping[str, V], Generic[V]):
    """An immutable map: a base, and the changes since in a persistent map above it."""

    __slots__ = ("_changes", "_size", "base")

    def __init__(
        self, base: Base[V], changes: HashTrieMap[str, Any] | None = None, size: int | None = None
    ) -> None:
        self.base = base
        self._changes: HashTrieMap[str, Any] = HashTrieMap() if changes is None else changes
        self._size = len(base) if size is None else size

    def __len__(self) -> int:
        return self._size

    def __contains__(self, key: object) -> bool:
        if not isinstance(key, str):
            return False
        changed = self._changes.get(key, _UNKNOWN)
        if changed is not _UNKNOWN:
            return changed is not _REMOVED
        return self.base.find(key) != ABSENT

    def __getitem__(self, key: str) -> V:
        value = self.get(key, _UNKNOWN)
        if value is _UNKNOWN:
            raise KeyError(key)
        return value  # pyright: ignore[reportReturnType]

    @overload
    def get(self, key: str, /) -> V | None: ...
    @overload
    def get(self, key: str, default: V, /) -> V: ...
    @overload
    def get(self, key: str, default: D, /) -> V | D: ...
    def get(self, key: str, default: Any = None, /) -> Any:
        """Return the value of a key, else the default."""
        changed = self._changes.get(key, _UNKNOWN)
        if changed is not _UNKNOWN:
            return default if changed is _REMOVED else changed
        at = self.base.find(key)
        return default if at == ABSENT else self.base.value(at)

    def __iter__(self) -> Iterator[str]:
        return (key for key, _ in self._unchanged_and_changed())

    def keys(self) -> KeysView[str]:
        """Return the keys, in no particular order."""
        return KeysView(self)

    def values(self) -> ValuesView[V]:
        """Return the values, in no particular order."""
        return _Values(self)

    def items(self) -> ItemsView[str, V]:
        """Return the pairs, in no particular order."""
        return _Items(self)

    def insert(self, key: str, value: V) -> LayeredMap[V]:
        """Return the map with a key added or replaced."""
        old = self._changes.get(key, _UNKNOWN)
        new = self.base.find(key) == ABSENT if old is _UNKNOWN else old is _REMOVED
        return LayeredMap(self.base, self._changes.insert(key, value), self._size + new)

    def remove(self, key: str) -> LayeredMap[V]:
        """Return the map without a key. Raises `KeyError` for an unknown one."""
        if key not in self:
            raise KeyError(key)
        if self.base.find(key) == ABSENT:
            return LayeredMap(self.base, self._changes.remove(key), self._size - 1)
        return LayeredMap(self.base, self._changes.insert(key, _REMOVED), self._size - 1)

    def discard(self, key: str) -> LayeredMap[V]:
        """Return the map without a key, itself when it has none."""
        return self.remove(key) if key in self else self

    def unchanged(self) -> Iterator[tuple[str, int]]:
        """Yield the keys whose entry is the base's, with their places."""
        if not len(self._changes):
            return self.base.entries()
        changes = self._changes
        return (entry for entry in self.base.entries() if entry[0] not in changes)

    def changed(self) -> Iterator[tuple[str, V]]:
        """Yield the entries that the base lacks or has otherwise."""
        return (pair for pair in self._changes.items() if pair[1] is not _REMOVED)

    def touched(self, key: str) -> bool:
        """Tell whether a key was inserted or removed since the base."""
        return key in self._changes

    def _unchanged_and_changed(self) -> Iterator[tuple[str, object]]:
        yield from self.unchanged()
        yield from self.changed()


def layers_of(content: object) -> LayeredMap[Any] | None:
    """Return a map that has a base, None for any other."""
    return cast("LayeredMap[Any]", content) if isinstance(content, LayeredMap) else None


class _Values(ValuesView[V]):
    """The values of a layered map, decoded one by one."""

    def __init__(self, of: LayeredMap[V]) -> None:
        super().__init__(of)
        self._of = of

    def __iter__(self) -> Iterator[V]:
        value = self._of.base.value
        for _, at in self._of.unchanged():
            yield value(at)
        for _, changed in self._of.changed():
            yield changed


class _Items(ItemsView[str, V]):
    """The pairs of a layered map, decoded one by one."""

    def __init__(self, of: LayeredMap[V]) -> None:
        super().__init__(of)
        self._of = of

    def __iter__(self) -> Iterator[tuple[str, V]]:
        value = self._of.base.value
        for key, at in self._of.unchanged():
            yield key, value(at)
        yield from self._of.changed()
