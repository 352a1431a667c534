"""A persistent sorted set: every edit gives a new set that shares nearly everything.

It is a B-tree of tuples. A leaf is a tuple of keys; an inner node knows the last key
of each child and its own size. Insertion, removal and the search for a place take
O(log n), reading on from there takes O(1) a key. The surprise: a node that loses keys is
not merged with its neighbour, only dropped when it is empty, for sets here shrink far
less than they grow.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast

K = TypeVar("K")
_WIDTH: Final = 64
"""Most keys of a leaf and most children of an inner node."""


class _Inner(NamedTuple):
    lasts: tuple[Any, ...]
    children: tuple[Any, ...]
    size: int


class SortedSet(Generic[K]):
    """An immutable set of comparable keys in their order."""

    __slots__ = ("_root",)

    def __init__(self, keys: Iterable[K] = ()) -> None:
        """Make a set of keys in any order; O(n log n), O(n) for sorted ones."""
        nodes: list[Any] = _chunks(tuple(sorted(set(keys))))
        while len(nodes) > 1:
            nodes = [_inner(part) for part in _chunks(tuple(nodes))]
        self._root: Any = nodes[0] if nodes else ()

    def __len__(self) -> int:
        return _size(self._root)

    def __iter__(self) -> Iterator[K]:
        return _all(self._root)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SortedSet) and tuple(self) == tuple(other)  # pyright: ignore[reportUnknownArgumentType]

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"SortedSet({list(self)!r})"

    def __contains__(self, key: object) -> bool:
        return next(self.since(key), None) == key  # pyright: ignore[reportArgumentType]

    def __reversed__(self) -> Iterator[K]:
        return _reversed(self._root)

    def insert(self, key: K) -> SortedSet[K]:
        """Return the set with a key; itself when it has it."""
        parts = _inserted(self._root, key)
        if parts[0] is self._root:
            return self
        return _set_of(parts[0] if len(parts) == 1 else _inner(parts))

    def remove(self, key: K) -> SortedSet[K]:
        """Return the set without a key; itself when it lacks it."""
        root = _removed(self._root, key)
        if root is self._root:
            return self
        while type(root) is _Inner and len(root.children) == 1:
            root = root.children[0]
        return _set_of(() if root is None else root)

    def since(self, key: K) -> Iterator[K]:
        """Yield the keys that are not less than a key, in order."""
        return _since(self._root, key, bisect_left)

    def after(self, key: K) -> Iterator[K]:
        """Yield the keys that are greater than a key, in order."""
        return _since(self._root, key, bisect_right)

    def before(self, key: K) -> Iterator[K]:
        """Yield the keys that are less than a key, the greatest first."""
        return _before(self._root, key)

    def rank(self, key: K) -> int:
        """Return the number of keys less than a key."""
        node, before = self._root, 0
        while type(node) is _Inner:
            at = bisect_left(node.lasts, key)
            if at == len(node.children):
                return before + node.size
            before += sum(map(_size, node.children[:at]))
            node = node.children[at]
        return before + bisect_left(node, key)


def _set_of(root: Any) -> SortedSet[Any]:
    made = cast("SortedSet[Any]", object.__new__(SortedSet))
    made._root = root  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    return made


def _chunks(values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    return [values[at : at + _WIDTH] for at in range(0, len(values), _WIDTH)]


def _size(node: Any) -> int:
    return node.size if type(node) is _Inner else len(node)


def _inner(children: tuple[Any, ...]) -> _Inner:
    return _Inner(tuple(map(_last, children)), children, sum(map(_size, children)))


def _last(node: Any) -> Any:
    return node.lasts[-1] if type(node) is _Inner else node[-1]


def _with_child(node: _Inner, at: int, child: Any) -> _Inner:
    """Return an inner node with another child in a place."""
    lasts, children, size = node
    size += _size(child) - _size(children[at])
    lasts = (*lasts[:at], _last(child), *lasts[at + 1 :])
    return _Inner(lasts, (*children[:at], child, *children[at + 1 :]), size)


def _all(node: Any) -> Iterator[Any]:
    if type(node) is _Inner:
        for child in node.children:
            yield from _all(child)
    else:
        yield from node


def _reversed(node: Any) -> Iterator[Any]:
    if type(node) is _Inner:
        for child in reversed(node.children):
            yield from _reversed(child)
    else:
        yield from reversed(node)


def _before(node: Any, key: Any) -> Iterator[Any]:
    if type(node) is not _Inner:
        yield from reversed(node[: bisect_left(node, key)])
        return
    at = bisect_left(node.lasts, key)
    if at < len(node.children):
        yield from _before(node.children[at], key)
    for child in reversed(node.children[:at]):
        yield from _reversed(child)


def _since(node: Any, key: Any, bisect: Any) -> Iterator[Any]:
    if type(node) is not _Inner:
        yield from node[bisect(node, key) :]
        return
    at = bisect(node.lasts, key)
    if at < len(node.children):
        yield from _since(node.children[at], key, bisect)
        for child in node.children[at + 1 :]:
            yield from _all(child)


def _inserted(node: Any, key: Any) -> tuple[Any, ...]:
    """Return the one or two nodes that take the place of a node; itself if it has the key."""
    if type(node) is not _Inner:
        at = bisect_left(node, key)
        if at < len(node) and node[at] == key:
            return (node,)
        grown = (*node[:at], key, *node[at:])
        return _halves(grown, at_end=at == len(node))
    at = min(bisect_left(node.lasts, key), len(node.children) - 1)
    old = node.children[at]
    parts = _inserted(old, key)
    if parts[0] is old:
        return (node,)
    if len(parts) == 1:
        return (_with_child(node, at, parts[0]),)
    children = (*node.children[:at], *parts, *node.children[at + 1 :])
    halves = _halves(children, at_end=at == len(node.children) - 1)
    return tuple(_inner(half) for half in halves)


def _halves(values: tuple[Any, ...], *, at_end: bool) -> tuple[tuple[Any, ...], ...]:
    """Split what is too wide; where keys come in order, the first half stays full."""
    if len(values) <= _WIDTH:
        return (values,)
    half = _WIDTH if at_end else len(values) // 2
    return values[:half], values[half:]


def _removed(node: Any, key: Any) -> Any:
    """Return a node without a key: itself if it lacks it, None if nothing is left."""
    if type(node) is not _Inner:
        at = bisect_left(node, key)
        if at == len(node) or node[at] != key:
            return node
        return (*node[:at], *node[at + 1 :]) or None
    at = bisect_left(node.lasts, key)
    if at == len(node.children):
        return node
    old = node.children[at]
    new = _removed(old, key)
    if new is old:
        return node
    if new is not None:
        return _with_child(node, at, new)
    kept = (*node.children[:at], *node.children[at + 1 :])
    return _inner(kept) if kept else None
