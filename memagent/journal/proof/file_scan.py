"""Looking for many byte strings in files in one pass.

Run as a script it reads its task from stdin as JSON and writes what it found. A few
needles are looked for one by one. Of many, each is known by eight bytes of it, the most
varied ones; a hash of those bytes is looked up in a table for each place of the file, by
numpy, and only where the table says yes are the bytes compared. So the time follows from
the size of the files, not from the number of needles.
"""

from __future__ import annotations

import base64
import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

SHORTEST = 8
"""Bytes that a needle has at least."""
FEW = 12
"""Needles up to which it is quicker to look for one after the other."""
_PIECE_BYTES = 1 << 24
_FACTOR, _SHIFT = 0x9E3779B97F4A7C15, 44


class Needles:
    """Byte strings to look for."""

    def __init__(self, needles: Sequence[bytes]) -> None:
        self.longest = max(map(len, needles), default=SHORTEST)
        self._few = set(needles) if len(needles) <= FEW else None
        if self._few is not None:
            return
        import numpy as np

        self._np = np
        self._by_mark: dict[bytes, list[tuple[bytes, int]]] = defaultdict(list)
        for needle in set(needles):
            at = max(range(len(needle) - SHORTEST + 1), key=lambda at: _variety(needle, at))
            self._by_mark[needle[at : at + SHORTEST]].append((needle, at))
        self._table = np.zeros(1 << (64 - _SHIFT), bool)
        marks = np.frombuffer(b"".join(self._by_mark), "<u8")
        self._table[self._hashes(marks)] = True

    def _hashes(self, words: Any) -> Any:
        return (words * self._np.uint64(_FACTOR)) >> self._np.uint64(_SHIFT)

    def found_in(self, data: bytes, known: set[bytes]) -> None:
        """Add the needles that stand in some bytes to those `known`."""
        if self._few is not None:
            known.update(needle for needle in self._few - known if needle in data)
            return
        for offset in range(min(SHORTEST, len(data) - SHORTEST + 1)):
            count = (len(data) - offset) // SHORTEST
            words = self._np.frombuffer(data, "<u8", count=count, offset=offset)
            places = self._np.flatnonzero(self._table[self._hashes(words)])
            for place in places.tolist():
                start = SHORTEST * place + offset
                for needle, at in self._by_mark.get(data[start : start + SHORTEST], ()):
                    if needle not in known and data.startswith(needle, max(0, start - at)):
                        known.add(needle)


def _variety(needle: bytes, at: int) -> int:
    return len(set(needle[at : at + SHORTEST]))


def scanned(name: str, needles: Needles) -> tuple[int, int] | None:
    """Return (size in bytes, number of needles in it) of a file; None where there is none."""
    found: set[bytes] = set()
    size, tail = 0, b""
    try:
        with open(name, "rb") as file:
            while piece := file.read(_PIECE_BYTES):
                size += len(piece)
                data = tail + piece
                needles.found_in(data, found)
                tail = data[1 - needles.longest :]
    except FileNotFoundError:
        return None
    return size, len(found)


if __name__ == "__main__":
    task = json.load(sys.stdin)
    sys.path.append(task["packages"])
    sought = Needles([base64.b64decode(text) for text in task["needles"]])
    answers = {name: scanned(name, sought) for name in task["files"]}
    json.dump({name: answer for name, answer in answers.items() if answer}, sys.stdout)
