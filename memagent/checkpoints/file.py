"""One checkpoint file: named sections of bytes with a checksum each, written atomically.

Layout: a header of 128 bytes (magic, format, place and SHA-256 of the manifest), the
sections, each at a multiple of 64 bytes, and the manifest as JSON. The header is
written last, so a torn file has none. `CheckpointFile.open` checks every byte that it
will ever hand out against its checksum, reading the file in pieces, and then maps it:
later reads need no check and hold no memory of their own. Nothing in the file is code.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import struct
import sys
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, Self

import numpy as np
import numpy.typing as npt

from memagent.core.crash_points import reach

FORMAT: Final = 1
"""Number of the only format that is read; raise it whenever a section, a record's JSON or
the way texts are indexed changes.
"""
_MAGIC: Final = b"memagent ckpt\r\n\x1a"
_HEADER: Final = struct.Struct("<16sIQQ32s")
_HEADER_BYTES: Final = 128
_ALIGN: Final = 64
_PIECE_BYTES: Final = 1 << 20
_MOST_MANIFEST_BYTES: Final = 16 << 20


class CheckpointUnusable(Exception):
    """A checkpoint that must not be used, with the reason; the journal is replayed instead."""


class SectionWriter:
    """Writes sections to a temporary file; `finish` puts it in the place of the old file.

    Leaving the `with` block without `finish` removes the temporary file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        self._sections: dict[str, tuple[int, int, int]] = {}
        self._at = _HEADER_BYTES
        self._file: BinaryIO | None = None

    def __enter__(self) -> Self:
        descriptor = os.open(self.temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | _BINARY, 0o600)
        self._file = os.fdopen(descriptor, "wb")
        self._file.write(bytes(_HEADER_BYTES))
        reach("ckpt.begun")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.close()
            self.temporary.unlink(missing_ok=True)

    @property
    def size_bytes(self) -> int:
        """Length of what was written so far."""
        return self._at

    def put(self, name: str, pieces: Iterable[bytes | memoryview]) -> None:
        """Write one section from its pieces."""
        assert self._file is not None
        start, crc = self._at, 0
        for piece in pieces:
            self._file.write(piece)
            crc = zlib.crc32(piece, crc)
            self._at += len(piece)
        self._sections[name] = (start, self._at - start, crc)
        self._file.write(bytes(-self._at % _ALIGN))
        self._at += -self._at % _ALIGN

    def put_array(self, name: str, array: npt.NDArray[Any]) -> None:
        """Write an array, in little-endian order; the reader names its type."""
        plain = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        flat = plain.reshape(-1).view(np.uint8).data
        self.put(name, (flat[at : at + _PIECE_BYTES] for at in range(0, len(flat), _PIECE_BYTES)))

    def finish(
        self, facts: Mapping[str, Any], *, replacing: Callable[[], AbstractContextManager[None]]
    ) -> None:
        """Write manifest and header, make all durable, and replace the old file.

        The replacement happens inside `replacing`, which may raise to prevent it.
        """
        assert self._file is not None
        reach("ckpt.sections")
        manifest = json.dumps({"facts": facts, "sections": self._sections}).encode()
        self._file.write(manifest)
        self._file.flush()
        os.fsync(self._file.fileno())
        reach("ckpt.manifest")
        self._file.seek(0)
        self._file.write(_header(self._at, manifest))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._file = None
        reach("ckpt.synced")
        try:
            with replacing():
                os.replace(self.temporary, self._path)
        except BaseException:
            self.temporary.unlink(missing_ok=True)
            raise
        reach("ckpt.renamed")
        sync_folder(self._path.parent)


def _header(at: int, manifest: bytes) -> bytes:
    fields = struct.pack("<IQQ", FORMAT, at, len(manifest))
    digest = hashlib.sha256(fields + manifest).digest()
    return _HEADER.pack(_MAGIC, FORMAT, at, len(manifest), digest).ljust(_HEADER_BYTES, b"\0")


_BINARY: Final = getattr(os, "O_BINARY", 0)


def sync_folder(folder: Path) -> None:
    """Make a rename or a removal in a folder durable, where the system can."""
    if sys.platform == "win32":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class CheckpointFile:
    """A checked checkpoint in memory, mapped where the system can."""

    facts: Mapping[str, Any]
    size_bytes: int
    _content: memoryview
    _sections: Mapping[str, tuple[int, int, int]]

    @classmethod
    def open(cls, path: Path) -> CheckpointFile:
        """Check a file and map it.

        Raises `CheckpointUnusable` for one that is torn, damaged or of another format,
        `FileNotFoundError` where there is none, and `OSError`.
        """
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            facts, sections = _manifest(file, size)
            _check_sections(file, sections)
            file.seek(0)
            content: Any = (
                file.read()
                if sys.platform == "win32"  # a mapped file could be neither replaced nor deleted
                else mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
            )
        return cls(facts, size, memoryview(content), sections)

    def bytes(self, name: str) -> memoryview:
        """Return the content of a section. Raises `CheckpointUnusable` when it is absent."""
        try:
            start, length, _ = self._sections[name]
        except KeyError:
            raise CheckpointUnusable(f"section {name!r} is missing") from None
        return self._content[start : start + length]

    def numbers(self, name: str, kind: str) -> npt.NDArray[Any]:
        """Return a section as a read-only array of little-endian numbers, such as `i4`."""
        content = self.bytes(name)
        if len(content) % np.dtype(kind).itemsize:
            raise CheckpointUnusable(f"section {name!r} is not made of {kind} numbers")
        return np.frombuffer(content, dtype=f"<{kind}")

    def release(self, name: str) -> None:
        """Let the system take back the memory of a section that is hardly read any more."""
        mapped: Any = self._content.obj
        if isinstance(mapped, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            start, length, _ = self._sections[name]
            first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
            last = (start + length) // mmap.PAGESIZE * mmap.PAGESIZE
            if last > first:
                mapped.madvise(mmap.MADV_DONTNEED, first, last - first)


def _manifest(
    file: BinaryIO, size: int
) -> tuple[Mapping[str, Any], dict[str, tuple[int, int, int]]]:
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
    if hashlib.sha256(struct.pack("<IQQ", number, at, length) + manifest).digest() != digest:
        raise CheckpointUnusable("its manifest is damaged")
    content = json.loads(manifest)
    sections = {
        str(name): (int(start), int(length), int(crc))
        for name, (start, length, crc) in content["sections"].items()
    }
    return content["facts"], sections


def _check_sections(file: BufferedReader, sections: Mapping[str, tuple[int, int, int]]) -> None:
    buffer = memoryview(bytearray(_PIECE_BYTES))
    for name, (start, length, expected) in sections.items():
        file.seek(start)
        crc, left = 0, length
        while left:
            got = file.readinto(buffer[: min(left, _PIECE_BYTES)])
            if not got:
                raise CheckpointUnusable(f"section {name!r} is cut short")
            crc = zlib.crc32(buffer[:got], crc)
            left -= got
        if crc != expected:
            raise CheckpointUnusable(f"section {name!r} is damaged")
