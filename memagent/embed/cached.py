"""A cache in front of any embedder, and the gate its vectors must pass.

Vectors are kept by (embedder id, text digest): first a bounded memory of the most
recent ones, then, when given, a shared `EmbeddingCache`. A call sends each unknown text
once, all of them in one request. Only proven unit rows are kept, so a failure is never
remembered; and what the shared cache hands back is proven too, so a row of another
width is refused with the way out instead of being compared. A shared cache that cannot
be reached costs time, not the call: it is logged and the texts are embedded.

The surprise: the inner embedder sees texts in NFC, because two spellings with one
digest must have one vector.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence

import numpy as np

from memagent.core.errors import EmbeddingError, StoreError, boundary
from memagent.embed.vectors import checked_rows, off_unit, readable, text_digest
from memagent.protocols import Embedder, EmbeddingCache, Matrix, Vector

_log = logging.getLogger(__name__)


class CachedEmbedder:
    """An embedder that remembers, with the inner one's id and dim.

    `capacity` is the number of vectors kept in memory; at 256 dimensions 20,000 of them
    are 20 MB, 0 keeps none. Safe to share between tasks and threads.
    """

    def __init__(
        self, inner: Embedder, *, shared: EmbeddingCache | None = None, capacity: int = 20_000
    ) -> None:
        self._inner = inner
        self._shared = shared
        self._capacity = capacity
        self._recent: OrderedDict[str, Vector] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def id(self) -> str:
        """The inner embedder's id."""
        return self._inner.id

    @property
    def dim(self) -> int:
        """D."""
        return self._inner.dim

    async def embed(self, texts: Sequence[str]) -> Matrix:
        """Return unit rows (N, dim) float32.

        Raises `EmbeddingError` when the inner embedder fails or answers with unusable
        vectors.
        """
        digests = [text_digest(text) for text in texts]
        rows = self._recall(digests)
        missing = {
            digest: readable(text)
            for digest, text in zip(digests, texts, strict=True)
            if digest not in rows
        }
        if missing:
            with boundary(EmbeddingError, f"embedder {self.id}"):
                answer = await self._inner.embed(list(missing.values()))
            matrix = checked_rows(answer, texts=len(missing), dim=self.dim, embedder_id=self.id)
            fresh = dict(zip(missing, (row.copy() for row in matrix), strict=True))
            self._remember(fresh)
            self._store(fresh)
            if len(missing) == len(digests):
                return matrix
            rows |= fresh
        if not digests:
            return np.empty((0, self.dim), dtype=np.float32)
        return np.stack([rows[digest] for digest in digests])

    def _recall(self, digests: Sequence[str]) -> dict[str, Vector]:
        rows: dict[str, Vector] = {}
        with self._lock:
            for digest in digests:
                row = self._recent.get(digest)
                if row is not None:
                    self._recent.move_to_end(digest)
                    rows[digest] = row
        unknown = list(dict.fromkeys(digest for digest in digests if digest not in rows))
        if self._shared is None or not unknown:
            return rows
        try:
            answer = self._shared.get_many(self.id, unknown)
        except StoreError as exc:
            _log.warning(
                "embedding cache not readable, embedding %d texts instead: %s", len(unknown), exc
            )
            return rows
        stored = {digest: self._proven(row) for digest, row in answer.items()}
        self._remember(stored)
        return rows | stored

    def _store(self, rows: Mapping[str, Vector]) -> None:
        if self._shared is None:
            return
        try:
            self._shared.put_many(self.id, rows)
        except StoreError as exc:
            _log.warning("embedding cache not writable, %d vectors not kept: %s", len(rows), exc)

    def _proven(self, row: Vector) -> Vector:
        """Check a stored row: one of another model or width must not be compared with."""
        vector: Vector = np.asarray(row, dtype=np.float32)
        if vector.shape == (self.dim,) and not off_unit(vector[None]):
            return vector
        raise EmbeddingError(
            f"the embedding cache holds a row of shape {vector.shape} for {self.id} where a unit "
            f"vector of {self.dim} was due; the model changed under its name or the cache is "
            "damaged. Embed the stored texts anew:  memagent reembed"
        )

    def _remember(self, rows: Mapping[str, Vector]) -> None:
        with self._lock:
            self._recent.update(rows)
            while len(self._recent) > self._capacity:
                self._recent.popitem(last=False)
