"""A cache in front of any embedder, and the gate its vectors must pass.

Vectors are kept by (embedder id, text digest): first a bounded memory of the most
recent ones, then, when given, a shared `EmbeddingCache`. A call sends each unknown text
once, all of them in one request. Only proven unit rows are kept, so a failure is never
remembered; and what the shared cache hands back is proven too, so a row of another
width is refused with the way out instead of being compared. A shared cache that cannot
be reached costs time, not the call: it is logged and the texts are embedded.

The surprise: the inner embedder sees texts in NFC, because two spellings with one
digest must have one vector.

The shared work of all embedders stands here too: readable text, its digest, and the
check of vectors. One law: a row is float32, finite and of unit length, or there is no
row at all. Texts are compared in Unicode's composed form (NFC), so a letter typed in
two ways is one text with one digest and one vector.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import unicodedata
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import sqrt

import numpy as np
import numpy.typing as npt

from memagent.core.errors import EmbeddingError, StoreError, boundary
from memagent.protocols import Embedder, EmbeddingCache, Matrix, Vector

UNIT_TOLERANCE = 1e-3
"""Greatest deviation of a row's length from one."""

_SMALLEST_LENGTH = 1e-6


def readable(text: str) -> str:
    """Return the text in NFC, fit for any encoder.

    A lone surrogate becomes U+FFFD, a surrogate pair its character.
    """
    if text.isascii():
        return text
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return unicodedata.normalize("NFC", whole)


def text_digest(text: str) -> str:
    """Name a text by 32 hex digits: BLAKE2b of 16 bytes over its NFC form in UTF-8.

    Lone surrogates are kept apart, by `surrogatepass`.
    """
    composed = text if text.isascii() else unicodedata.normalize("NFC", text)
    return hashlib.blake2b(composed.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


@lru_cache(maxsize=16_384)
def hashed_direction(key: str, dim: int) -> Vector:
    """Draw a unit vector (dim,) from the key alone, the same on every machine.

    Any two keys are close to orthogonal. The vector is read-only.
    """
    bits = hashlib.shake_256(key.encode("utf-8", "surrogatepass")).digest((dim + 7) // 8)
    signs = np.unpackbits(np.frombuffer(bits, dtype=np.uint8))[:dim].astype(np.float32) * 2.0 - 1.0
    direction: Vector = (signs / np.sqrt(np.float32(dim))).astype(np.float32)
    direction.flags.writeable = False
    return direction


def unit_rows(rows: Matrix, *, fallback_keys: list[str]) -> Matrix:
    """Scale rows (N, D) to unit length in place.

    A row without a direction takes the hashed direction of its key (N,).
    """
    lengths = np.sqrt(np.vecdot(rows, rows))
    if len(lengths) and lengths.min() < _SMALLEST_LENGTH:
        for row in np.flatnonzero(lengths < _SMALLEST_LENGTH):
            rows[row] = hashed_direction(fallback_keys[row], rows.shape[1])
            lengths[row] = 1.0
    rows /= lengths[:, None]
    return rows


def checked_rows(answer: npt.ArrayLike, *, texts: int, dim: int, embedder_id: str) -> Matrix:
    """Return an embedder's answer as float32 (texts, dim) after proof that it is usable.

    Raises `EmbeddingError`, not retryable: the shape is wrong, a number is not finite,
    or a row's length is not one.
    """
    try:
        rows: Matrix = np.ascontiguousarray(answer, dtype=np.float32)
    except (TypeError, ValueError) as exc:
        raise EmbeddingError(
            f"embedder {embedder_id} answered with something that is not a matrix of numbers: {exc}"
        ) from exc
    if rows.shape != (texts, dim):
        raise EmbeddingError(
            f"embedder {embedder_id} answered with shape {rows.shape} where {(texts, dim)} was due"
        )
    wrong = off_unit(rows)
    if wrong:
        at, length = next(iter(wrong.items()))
        raise EmbeddingError(
            f"embedder {embedder_id}: {len(wrong)} of {texts} rows are not unit vectors "
            f"(row {at} has length {length})"
        )
    return rows


def off_unit(rows: Matrix) -> dict[int, float]:
    """Return the lengths of the rows (N, D) that are not finite or not of unit length."""
    with np.errstate(over="ignore", invalid="ignore"):
        squares: list[float] = np.vecdot(rows, rows).tolist()
    # for the one row of a query numpy would take longer from here on
    lengths = enumerate(map(sqrt, squares))
    return {at: length for at, length in lengths if not abs(length - 1.0) <= UNIT_TOLERANCE}


_log = logging.getLogger(__name__)


class CachedEmbedder:
    """An embedder that remembers, with the inner one's id and dim.

    `capacity` is the number of vectors kept in memory; at 256 dimensions 20,000 of them
    are 20 MB, 0 keeps none. An inner embedder that embeds questions in a way of their own
    has another embedder for them under `queries`. Safe to share between tasks and threads.
    """

    def __init__(
        self, inner: Embedder, *, shared: EmbeddingCache | None = None, capacity: int = 20_000
    ) -> None:
        self._inner = inner
        self._shared = shared
        self._capacity = capacity
        self._recent: OrderedDict[str, Vector] = OrderedDict()
        self._lock = threading.Lock()
        self.queries: CachedEmbedder | None = (
            CachedEmbedder(other, shared=shared, capacity=capacity)
            if (other := getattr(inner, "queries", None))
            else None
        )

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
