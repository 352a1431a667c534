"""Tables of a checkpoint: keys that are found by hash, and a blob for each key.

A table of n entries is four sections: `keys` (the keys one after the other), `ends`
(n + 1, where each key ends), `slots` and `buckets` (a hash table over CRC-32). A lookup
reads a few bytes of the checkpoint and compares the whole key, so it costs about a
microsecond whatever n is. Values are decoded when they are first asked for and kept.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, Final, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from memagent.checkpoints.file import CheckpointFile, CheckpointUnusable, SectionWriter
from memagent.checkpoints.layered import ABSENT

V = TypeVar("V")
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
        _check(
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


class RecordTable(KeyTable, Generic[V]):
    """Keys with a value each, decoded when first asked for."""

    __slots__ = ("_decode", "_known", "_value_ends", "_values")

    def __init__(self, file: CheckpointFile, name: str, decode: Callable[[memoryview], V]) -> None:
        super().__init__(file, name)
        self._decode = decode
        self._values = file.bytes(f"{name}.values")
        self._value_ends = file.numbers(f"{name}.value_ends", "i8").data
        self._known: dict[int, V] = {}
        _check(
            len(self._value_ends) == len(self) + 1 and self._value_ends[-1] == len(self._values),
            name,
        )

    def raw(self, at: int) -> memoryview:
        """Return the encoded value at a place."""
        return self._values[self._value_ends[at] : self._value_ends[at + 1]]

    def value(self, at: int) -> V:
        """Return the value at a place; the same object each time."""
        value = self._known.get(at)
        if value is None:
            value = self._known.setdefault(at, self._decode(self.raw(at)))
        return value


def _check(consistent: bool, name: str) -> None:
    if not consistent:
        raise CheckpointUnusable(f"the sections of {name!r} do not fit together")


# -- writing ---------------------------------------------------------------------------


class Pause(Protocol):
    """Lets other threads run; called every so many records."""

    def __call__(self) -> None:
        """Return soon."""
        ...


_BETWEEN: Final = 256
"""Records between two pauses."""


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
    starts = np.zeros(count + 1, np.uint32)
    np.cumsum(np.bincount(hashes, minlength=count), out=starts[1:])
    writer.put(f"{name}.keys", [b"".join(keys)])
    writer.put_array(f"{name}.ends", ends_of(map(len, keys)))
    writer.put_array(f"{name}.slots", np.argsort(hashes, kind="stable").astype(np.uint32))
    writer.put_array(f"{name}.buckets", starts)


def put_records(
    writer: SectionWriter, name: str, records: Sequence[tuple[bytes, bytes | memoryview]]
) -> None:
    """Write a `RecordTable` of (key, encoded value)."""
    put_keys(writer, name, [key for key, _ in records])
    writer.put(f"{name}.values", (value for _, value in records))
    writer.put_array(f"{name}.value_ends", ends_of(len(value) for _, value in records))


def ends_of(lengths: Iterable[int]) -> npt.NDArray[np.int64]:
    """Return 0 and the running sums of n lengths (n + 1,)."""
    return np.fromiter(accumulate(lengths, initial=0), np.int64)
