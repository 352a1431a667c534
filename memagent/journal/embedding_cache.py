"""Vectors kept by (embedder id, text digest): in the journal's database, or in memory.

Both hand out read-only float32 arrays. The kept bytes are little-endian, so a database
moves between machines. Losing a row costs one call of the embedder and nothing else,
which is why these writes wait for no fsync of their own.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from memagent.core.errors import EmbeddingError
from memagent.journal.reader import JournalReader
from memagent.journal.writer import JournalWriter
from memagent.protocols import Vector


def _to_bytes(digest: str, vector: Vector) -> bytes:
    array = np.asarray(vector, dtype="<f4")
    if array.ndim != 1 or not array.size or not np.isfinite(array).all():
        raise EmbeddingError(
            f"the vector for text digest {digest!r} is not a finite one-dimensional array (shape {array.shape})"
        )
    return array.tobytes()


def _from_bytes(blob: bytes) -> Vector:
    return np.frombuffer(blob, dtype="<f4").astype(np.float32, copy=False)


class MemoryEmbeddingCache:
    """Vectors in memory, the least recently written dropped beyond `max_rows`.

    Thread-safe.
    """

    def __init__(self, *, max_rows: int = 200_000) -> None:
        self._max_rows = max_rows
        self._rows: OrderedDict[tuple[str, str], Vector] = OrderedDict()
        self._lock = threading.Lock()

    def get_many(self, embedder_id: str, digests: Sequence[str]) -> dict[str, Vector]:
        """Known vectors (D,) by digest; unknown digests are left out."""
        with self._lock:
            found = ((digest, self._rows.get((embedder_id, digest))) for digest in digests)
            return {digest: vector for digest, vector in found if vector is not None}

    def put_many(self, embedder_id: str, rows: Mapping[str, Vector]) -> None:
        """Keep vectors (D,), in place of those kept before.

        Raises `EmbeddingError` for what is not a finite vector.
        """
        fresh = {
            (embedder_id, digest): _from_bytes(_to_bytes(digest, vector))
            for digest, vector in rows.items()
        }
        with self._lock:
            for key, vector in fresh.items():
                self._rows[key] = vector
                self._rows.move_to_end(key)
            while len(self._rows) > self._max_rows:
                self._rows.popitem(last=False)


class SqlEmbeddingCache:
    """Vectors in a journal's database, written by the journal's writer and gone with any erasure.

    Thread-safe.

    Made by `SqlJournal.cache`. Without a writer (a journal opened for reading)
    `put_many` keeps nothing.
    """

    def __init__(
        self, reader: JournalReader, writer: JournalWriter | None, *, check: Callable[[], None]
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._check = check

    def get_many(self, embedder_id: str, digests: Sequence[str]) -> dict[str, Vector]:
        """Known vectors (D,) by digest; unknown digests are left out.

        Raises `StoreError`s.
        """
        self._check()
        waiting: dict[str, bytes] = {}
        if self._writer is not None:
            keys = [(embedder_id, digest) for digest in digests]
            waiting = {digest: blob for (_, digest), blob in self._writer.vectors(keys).items()}
        asked = [digest for digest in dict.fromkeys(digests) if digest not in waiting]
        known = self._reader.vectors(embedder_id, asked) | waiting
        return {digest: _from_bytes(known[digest]) for digest in digests if digest in known}

    def put_many(self, embedder_id: str, rows: Mapping[str, Vector]) -> None:
        """Keep vectors (D,), in place of those kept before.

        Raises `EmbeddingError` for what is not a finite vector.
        """
        self._check()
        fresh = {
            (embedder_id, digest): _to_bytes(digest, vector) for digest, vector in rows.items()
        }
        if self._writer is not None and fresh:
            self._writer.put_vectors(fresh)
