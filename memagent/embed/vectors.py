"""Shared work of the embedders: readable text, its digest, and the check of vectors.

One law: a row is float32, finite and of unit length, or there is no row at all. Texts
are compared in Unicode's composed form (NFC), so a letter typed in two ways is one text
with one digest and one vector.
"""

from __future__ import annotations

import hashlib
import unicodedata
from functools import lru_cache
from math import sqrt

import numpy as np
import numpy.typing as npt

from memagent.core.errors import EmbeddingError
from memagent.protocols import Matrix, Vector

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
