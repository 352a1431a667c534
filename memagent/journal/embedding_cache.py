"""Cached vectors by (embedder id, text digest), in the journal's database.

The cache gives read-only float32 arrays. The stored bytes are little-endian, so a
database moves between machines. Losing a row costs one call of the embedder and nothing
else, which is why these writes wait for no fsync of their own.
"""

from __future__ import annotations

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
            f"the vector for text digest {digest!r} is not a finite one-dimensional array "
            f"(shape {array.shape})"
        )
    return array.tobytes()


def _from_bytes(blob: bytes) -> Vector:
    return np.frombuffer(blob, dtype="<f4").astype(np.float32, copy=False)


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
        """Return known vectors (D,) by digest; unknown digests are left out.

        Raises `StoreError`s.
        """
        self._check()
        waiting: dict[str, bytes] = {}
        if self._writer is not None:
            keys = [(embedder_id, digest) for digest in digests]
            pending = self._writer.pending.vectors(keys)
            waiting = {digest: blob for (_, digest), blob in pending.items()}
        missing = [digest for digest in dict.fromkeys(digests) if digest not in waiting]
        known = self._reader.vectors(embedder_id, missing) | waiting
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
