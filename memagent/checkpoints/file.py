"""One checkpoint file: named sections of bytes with a checksum each.

Layout: a header of 128 bytes (magic, format, place and SHA-256 of the manifest), the
sections, each at a multiple of 64 bytes, and the manifest as JSON. The header is
written last, so a torn file has none. `CheckpointFile.open` reads the file into memory
once and checks every byte there against its checksum: what happens to the file later
changes nothing that is served. In a store with a key the checksums are SHA-256 and the
header's digest of the manifest is an HMAC by that key; a file without it is not used
there. Nothing in the file is code.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import mmap
import os
import struct
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedRandom, BufferedReader, FileIO
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np

from memagent.core.crash_points import reach

FORMAT: Final = 2
"""Number of the only format that is read; raise it whenever a section, a record's JSON or
the way texts are indexed changes.
"""
_MAGIC: Final = b"memagent ckpt\r\n\x1a"
_HEADER: Final = struct.Struct("<16sIQQ32s")
_HEADER_BYTES: Final = 128
_ALIGN: Final = 64
# Bytes that are written or read at once.
_PIECE: Final = 1 << 19
_MOST_MANIFEST_BYTES: Final = 16 << 20


class CheckpointUnusable(Exception):
    """A checkpoint that must not be used, with the reason; the journal is replayed instead."""


class SectionWriter:
    """Writes sections to an empty file; `finish` makes a checkpoint of them."""

    def __init__(self, file: BinaryIO, key: bytes | None = None) -> None:
        self._file, self._key = file, key
        self._sections: dict[str, tuple[int, int, str | int]] = {}
        self._at = _HEADER_BYTES
        file.write(bytes(_HEADER_BYTES))
        reach("ckpt.begun")

    @property
    def size_bytes(self) -> int:
        """Length of what was written so far."""
        return self._at

    def put(self, name: str, pieces: Iterable[bytes | memoryview]) -> None:
        """Write one section from its pieces."""
        start, check = self._at, _Check(self._key)
        for piece in pieces:
            self._file.write(piece)
            check.update(piece)
            self._at += len(piece)
        self._sections[name] = (start, self._at - start, check.value())
        self._file.write(bytes(-self._at % _ALIGN))
        self._at += -self._at % _ALIGN

    def put_array(self, name: str, array: np.typing.NDArray[Any]) -> None:
        """Write an array, in little-endian order; the reader names its type."""
        plain = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        flat = plain.reshape(-1).view(np.uint8).data
        self.put(name, (flat[at : at + _PIECE] for at in range(0, len(flat), _PIECE)))

    def finish(self, facts: Mapping[str, Any]) -> None:
        """Write the manifest, and the header when all else is durable."""
        reach("ckpt.sections")
        manifest = json.dumps({"facts": facts, "sections": self._sections}).encode()
        self._file.write(manifest)
        self._sync()
        reach("ckpt.manifest")
        fields = struct.pack("<IQQ", FORMAT, self._at, len(manifest))
        digest = _digest(fields, manifest, self._key)
        header = _HEADER.pack(_MAGIC, FORMAT, self._at, len(manifest), digest)
        self._file.seek(0)
        self._file.write(header.ljust(_HEADER_BYTES, b"\0"))
        self._sync()
        reach("ckpt.synced")

    def _sync(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())


class _Check:
    """A checksum of a section: CRC-32, or SHA-256 where a key signs the manifest."""

    def __init__(self, key: bytes | None) -> None:
        self._sha, self._crc = (None if key is None else hashlib.sha256()), 0

    def update(self, piece: bytes | memoryview) -> None:
        if self._sha is None:
            self._crc = zlib.crc32(piece, self._crc)
        else:
            self._sha.update(piece)

    def value(self) -> str | int:
        return self._crc if self._sha is None else self._sha.hexdigest()


def _digest(fields: bytes, manifest: bytes, key: bytes | None) -> bytes:
    if key is None:
        return hashlib.sha256(fields + manifest).digest()
    return hmac.digest(key, b"memagent/checkpoint/1/" + fields + manifest, "sha256")


@dataclass(frozen=True, slots=True)
class CheckpointFile:
    """A checked checkpoint in memory."""

    facts: Mapping[str, Any]
    size_bytes: int
    _content: memoryview
    _sections: Mapping[str, tuple[int, int, str | int]]

    @classmethod
    def open(cls, path: Path, key: bytes | None = None) -> CheckpointFile:
        """Read a file and check it.

        Raises `CheckpointUnusable` for one that is torn, damaged, of another format or
        not signed by the key, `FileNotFoundError` where there is none, and `OSError`.
        """
        with BufferedReader(FileIO(path), _PIECE) as file:  # small sections come at one read
            return cls.read(file, key)

    @classmethod
    def read(cls, file: BufferedReader[Any] | BufferedRandom, key: bytes | None) -> CheckpointFile:
        """Read an open file from its beginning, and check it as `open` does."""
        size = os.fstat(file.fileno()).st_size
        file.seek(0)
        facts, sections = _manifest(file, size, key)
        content = _memory(size)
        for name, (start, length, expected) in sections.items():
            check, at, end = _Check(key), start, start + length
            file.seek(start)
            # A piece is checked while it still lies in the processor's cache.
            while at < end and (got := file.readinto(content[at : min(at + _PIECE, end)])):
                check.update(content[at : at + got])
                at += got
            if at < end or check.value() != expected:
                raise CheckpointUnusable(f"section {name!r} is damaged, or cut short")
        return cls(facts, size, content.toreadonly(), sections)

    def __contains__(self, table: str) -> bool:
        """Tell whether the file has a table of this name; empty ones are left out."""
        return f"{table}.keys" in self._sections

    def bytes(self, name: str) -> memoryview:
        """Return the content of a section. Raises `CheckpointUnusable` when it is absent."""
        try:
            start, length, _ = self._sections[name]
        except KeyError:
            raise CheckpointUnusable(f"section {name!r} is missing") from None
        return self._content[start : start + length]

    def numbers(self, name: str, kind: str) -> np.typing.NDArray[Any]:
        """Return a section as a read-only array of little-endian numbers, such as `i4`."""
        content = self.bytes(name)
        if len(content) % np.dtype(kind).itemsize:
            raise CheckpointUnusable(f"section {name!r} is not made of {kind} numbers")
        return np.frombuffer(content, dtype=f"<{kind}")


def _memory(size: int) -> memoryview:
    """Return empty memory of its own, in large pages where the system has them.

    Filling that takes half the time of filling small pages.
    """
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return memoryview(mmap.mmap(-1, size))
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a kernel without them
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(memory)


def _manifest(
    file: BufferedReader[Any] | BufferedRandom, size: int, key: bytes | None
) -> tuple[Mapping[str, Any], dict[str, tuple[int, int, str | int]]]:
    head = file.read(_HEADER_BYTES)
    if len(head) < _HEADER_BYTES or not head.startswith(_MAGIC):
        raise CheckpointUnusable("it is torn, or no checkpoint")
    _, number, at, length, digest = _HEADER.unpack(head[: _HEADER.size])
    if number != FORMAT:
        raise CheckpointUnusable(f"its format is {number}, this memagent reads {FORMAT}")
    if at + length != size or length > _MOST_MANIFEST_BYTES:
        raise CheckpointUnusable(f"it has {size} bytes and should end at {at + length}")
    file.seek(at)
    manifest = file.read(length)
    known = _digest(struct.pack("<IQQ", number, at, length), manifest, key)
    if not hmac.compare_digest(known, digest):
        how = "damaged" if key is None else "damaged, or not signed by the key of the store"
        raise CheckpointUnusable(f"its manifest is {how}")
    described = json.loads(manifest)
    sections = {
        str(name): (int(start), int(length), check)
        for name, (start, length, check) in described["sections"].items()
    }
    return described["facts"], sections
