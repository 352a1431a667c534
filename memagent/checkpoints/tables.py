"""Tables of a checkpoint: keys that are found by hash, and a blob for each key.

A table of n entries is four sections: `keys` (the keys one after the other), `ends`
(n + 1, where each key ends), `slots` and `buckets` (a hash table over CRC-32). A lookup
reads a few bytes of the checkpoint and compares the whole key, so it costs about a
microsecond whatever n is. Values are decoded when they are first asked for and kept.

A persistent map over a read-only base whose entries are decoded when they are touched.

It has the interface of `rpds.HashTrieMap`, as far as a state uses it. The base is a
table of a checkpoint and never changes; what was inserted or removed since lies above
it in an ordinary persistent map. So a map of any size opens at once, every edit gives a
new map that shares the rest, and keeping one is keeping a snapshot.

The maps of a state as tables: how each kind of value is written and read.

Records are JSON, as in the journal; small plain values have their own short forms. A
map that was itself opened from a checkpoint hands its unchanged entries over as they
are, undecoded.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import (
    Callable,
    ItemsView,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    ValuesView,
)
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate, chain
from typing import Any, Final, Generic, Protocol, TypeVar, cast

import numpy as np
from pydantic import TypeAdapter
from rpds import HashTrieMap

from memagent.checkpoints.file import CheckpointFile, CheckpointUnusable, SectionWriter
from memagent.core.records import ItemStats, MemoryItem, Record, Session
from memagent.core.trials import Trial
from memagent.state.adjacency import pairs
from memagent.state.fold import BankState, Mark
from memagent.state.orders import SortedSet

V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)
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
        return value

    def get(self, key: str, default: Any = None, /) -> Any:
        """Return the value of a key, else the default."""
        changed = self._changes.get(key, _UNKNOWN)
        if changed is not _UNKNOWN:
            return default if changed is _REMOVED else changed
        at = self.base.find(key)
        return default if at == ABSENT else self.base.value(at)

    def __iter__(self) -> Iterator[str]:
        return (key for key, _ in chain(self.unchanged(), self.changed()))

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


def layers_of(content: object) -> LayeredMap[Any] | None:
    """Return a map that has a base, None for any other."""
    return cast("LayeredMap[Any]", content) if isinstance(content, LayeredMap) else None


class _Values(ValuesView[V]):
    """The values of a layered map, decoded one by one."""

    def __iter__(self) -> Iterator[V]:
        return (value for _, value in cast("LayeredMap[V]", self._mapping).items())


class _Items(ItemsView[str, V]):
    """The pairs of a layered map, decoded one by one."""

    def __iter__(self) -> Iterator[tuple[str, V]]:
        of = cast("LayeredMap[V]", self._mapping)
        value = of.base.value
        return chain(((key, value(at)) for key, at in of.unchanged()), of.changed())


_FEWEST_BUCKETS: Final = 8


def encoded(key: str) -> bytes:
    """Return a key as bytes."""
    return key.encode("utf-8", "surrogatepass")


class KeyTable:
    """n distinct keys in a fixed order; a place is a key's number in it."""

    __slots__ = ("_buckets", "_ends", "_keys", "_mask", "_slots")

    def __init__(self, file: CheckpointFile, name: str) -> None:
        self._keys = file.bytes(f"{name}.keys")
        self._ends = file.numbers(f"{name}.ends", "i8").data
        self._slots = file.numbers(f"{name}.slots", "u4").data
        self._buckets = file.numbers(f"{name}.buckets", "u4").data
        self._mask = len(self._buckets) - 2
        check_fit(
            len(self._slots) == len(self._ends) - 1
            and len(self._buckets) >= _FEWEST_BUCKETS
            and self._buckets[-1] == len(self._slots)
            and self._ends[-1] == len(self._keys),
            name,
        )

    def __len__(self) -> int:
        return len(self._slots)

    def find(self, key: str) -> int:
        """Return the place of a key, `ABSENT` for an unknown one."""
        return self.find_bytes(encoded(key))

    def find_bytes(self, key: bytes) -> int:
        """Return the place of a key that is no text."""
        bucket = zlib.crc32(key) & self._mask
        ends, slots = self._ends, self._slots
        keys: Any = self._keys
        for slot in range(self._buckets[bucket], self._buckets[bucket + 1]):
            at = slots[slot]
            if keys[ends[at] : ends[at + 1]] == key:
                return at
        return ABSENT

    def raw_key(self, at: int) -> bytes:
        """Return the key at a place as it was written."""
        return bytes(self._keys[self._ends[at] : self._ends[at + 1]])

    def key(self, at: int) -> str:
        """Return the key at a place."""
        return self.raw_key(at).decode("utf-8", "surrogatepass")

    def entries(self) -> Iterator[tuple[str, int]]:
        """Yield every key with its place."""
        return ((self.key(at), at) for at in range(len(self)))


class Table(KeyTable, Generic[V]):
    """Keys with a value each, made of its place when it is first asked for."""

    __slots__ = ("_known", "_make")

    def __init__(self, file: CheckpointFile, name: str, make: Callable[[int], V]) -> None:
        super().__init__(file, name)
        self._make = make
        self._known: dict[int, V] = {}

    def value(self, at: int) -> V:
        """Return the value at a place; the same object each time."""
        value = self._known.get(at)
        if value is None:
            value = self._known.setdefault(at, self._make(at))
        return value


class RecordTable(Table[V]):
    """Keys with a value each, decoded when first asked for."""

    __slots__ = ("_value_ends", "_values")

    def __init__(self, file: CheckpointFile, name: str, decode: Callable[[memoryview], V]) -> None:
        super().__init__(file, name, lambda at: decode(self.raw(at)))
        self._values = file.bytes(f"{name}.values")
        self._value_ends = file.numbers(f"{name}.value_ends", "i8").data
        check_fit(
            len(self._value_ends) == len(self) + 1 and self._value_ends[-1] == len(self._values),
            name,
        )

    def raw(self, at: int) -> memoryview:
        """Return the encoded value at a place."""
        return self._values[self._value_ends[at] : self._value_ends[at + 1]]


def check_fit(consistent: bool, name: str) -> None:
    """Refuse a checkpoint whose sections of this name differ in their figures."""
    if not consistent:
        raise CheckpointUnusable(f"the sections of {name!r} do not fit together")


# -- writing ---------------------------------------------------------------------------


Pause = Callable[[], object]
"""Lets other threads run; called every so many records."""
# Records between two pauses.
_BETWEEN: Final = 256


def paced(records: Iterable[V], pause: Pause) -> Iterator[V]:
    """Yield the records, with a pause now and then."""
    for number, record in enumerate(records, 1):
        yield record
        if not number % _BETWEEN:
            pause()


def put_keys(writer: SectionWriter, name: str, keys: Sequence[bytes]) -> None:
    """Write a `KeyTable` of distinct keys, which keep their order."""
    count = _FEWEST_BUCKETS
    while count < len(keys):
        count *= 2
    hashes = np.fromiter(map(zlib.crc32, keys), np.uint32, len(keys)) & np.uint32(count - 1)
    writer.put(f"{name}.keys", [b"".join(keys)])
    writer.put_array(f"{name}.ends", ends_of(map(len, keys)))
    writer.put_array(f"{name}.slots", np.argsort(hashes, kind="stable").astype(np.uint32))
    writer.put_array(f"{name}.buckets", firsts_of(hashes, count))


def put_records(
    writer: SectionWriter, name: str, records: Sequence[tuple[bytes, bytes | memoryview]]
) -> None:
    """Write a `RecordTable` of (key, encoded value)."""
    put_keys(writer, name, [key for key, _ in records])
    values = [value for _, value in records]
    writer.put(f"{name}.values", joined(values))
    writer.put_array(f"{name}.value_ends", ends_of(map(len, values)))


def joined(values: Sequence[bytes | memoryview]) -> Iterator[bytes]:
    """Yield the values one after the other, some hundred at a time."""
    return (b"".join(values[at : at + _BETWEEN]) for at in range(0, len(values), _BETWEEN))


def firsts_of(numbers: np.typing.NDArray[np.uint32], count: int) -> np.typing.NDArray[np.uint32]:
    """Return where the run of each number below `count` begins in their order (count + 1,)."""
    firsts = np.zeros(count + 1, np.uint32)
    np.cumsum(np.bincount(numbers, minlength=count), out=firsts[1:])
    return firsts


def ends_of(lengths: Iterable[int]) -> np.typing.NDArray[np.int64]:
    """Return 0 and the running sums of n lengths (n + 1,)."""
    return np.fromiter(accumulate(lengths, initial=0), np.int64)


_PAST: Final = TypeAdapter(tuple[MemoryItem, ...])


@dataclass(frozen=True, slots=True)
class Form:
    """The way in which the values of one map are written and read."""

    encode: Callable[[Any], bytes]
    decode: Callable[[memoryview], Any]


def record_form(kind: type[Record]) -> Form:
    """Return the form of a record: its JSON without default values, as in the journal."""
    return Form(
        # as bytes at once: `model_dump_json` makes a string
        lambda record: record.__pydantic_serializer__.to_json(record, exclude_defaults=True),
        lambda raw: kind.model_validate_json(bytes(raw)),
    )


def _text(raw: memoryview) -> str:
    return str(raw, "utf-8", "surrogatepass")


def _dump(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _decode_place(raw: memoryview) -> tuple[str, int]:
    position, _, session_id = _text(raw).partition(" ")
    return session_id, int(position)


FORMS: Final[Mapping[str, Form]] = {
    "items": record_form(MemoryItem),
    "archive": Form(_PAST.dump_json, lambda raw: _PAST.validate_json(bytes(raw))),
    "sessions": record_form(Session),
    "turns": Form(lambda place: encoded(f"{place[1]} {place[0]}"), _decode_place),
    "threads": Form(_dump, lambda raw: tuple(json.loads(bytes(raw)))),
    "stats": record_form(ItemStats),
    "trials": record_form(Trial),
    "ordinals": Form(lambda count: b"%d" % count, lambda raw: int(bytes(raw))),
    "done": Form(
        lambda chunks: _dump(sorted(chunks)), lambda raw: frozenset(json.loads(bytes(raw)))
    ),
    "touched": Form(
        lambda seqs: b"[%s]" % b",".join(b"%d" % seq for seq in seqs),
        lambda raw: tuple(json.loads(bytes(raw))),
    ),
    "texts": Form(encoded, _text),
    "timelines": Form(
        lambda marks: _dump(list(marks)),
        lambda raw: SortedSet[Mark](map(tuple, json.loads(bytes(raw)))),
    ),
    "expiring": Form(
        lambda moment: moment.isoformat().encode(),
        lambda raw: datetime.fromisoformat(_text(raw)),
    ),
}
"""The maps of a state that are tables of their own, by name; the graph is apart."""


def maps_of(state: BankState) -> dict[str, Mapping[str, Any]]:
    """Return the maps of a state by their names in `FORMS`."""
    return {name: getattr(state, name) for name in FORMS}


def put_map(
    writer: SectionWriter, name: str, content: Mapping[str, Any], form: Form, pause: Pause
) -> list[bytes]:
    """Write a map as a table, unless it is empty; return its keys in the order written."""
    records = list(paced(encoded_entries(content, form), pause))
    if records:  # a small memory has few tables, and six sections for each
        put_records(writer, name, records)
    return [key for key, _ in records]


def encoded_entries(
    content: Mapping[str, Any], form: Form
) -> Iterator[tuple[bytes, bytes | memoryview]]:
    """Yield (key, encoded value), what a map's base has first and in the base's order."""
    layers, encode = layers_of(content), form.encode
    if layers is not None:
        table = cast("RecordTable[Any]", layers.base)
        for _, at in layers.unchanged():
            yield table.raw_key(at), table.raw(at)
    for key, value in pairs(content) if layers is None else layers.changed():
        yield encoded(key), encode(value)


def read_map(file: CheckpointFile, name: str, form: Form) -> Any:
    """Return a map of the file; an empty one is an ordinary empty map."""
    table: RecordTable[Any] = RecordTable(file, name, form.decode)
    return LayeredMap(table) if len(table) else cast("Any", HashTrieMap())
