"""An embedder for tests: each word hashes to a fixed direction, a text is their unit sum.

Texts that share words are near each other and all others are near orthogonal, on every
machine alike, so tests of storage and search need no weights. It knows nothing of
meaning: synonyms are strangers. A text without words hashes as a whole.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence

import numpy as np

from memagent.core.errors import ConfigError
from memagent.embed.vectors import hashed_direction, readable, unit_rows
from memagent.protocols import Matrix

_WORD = re.compile(r"\w+")
_INLINE_CHARS = 8_192


class HashEmbedder:
    """Deterministic bag-of-words hashing; the id is `hash-<dim>-v1`."""

    def __init__(self, *, dim: int = 256) -> None:
        """Raise `ConfigError` when dim is below 8, where unrelated words would collide."""
        if dim < 8:
            raise ConfigError(f"dim must be at least 8, got {dim}")
        self.id = f"hash-{dim}-v1"
        self.dim = dim

    async def embed(self, texts: Sequence[str]) -> Matrix:
        """Return unit rows (N, dim) float32; never fails.

        Large batches run in a worker thread.
        """
        if sum(map(len, texts)) <= _INLINE_CHARS:
            return self._encode(texts)
        return await asyncio.to_thread(self._encode, texts)

    def _encode(self, texts: Sequence[str]) -> Matrix:
        rows: Matrix = np.zeros((len(texts), self.dim), dtype=np.float32)
        keys = [readable(text) for text in texts]
        for row, text in zip(rows, keys, strict=True):
            for word in _WORD.findall(text.lower()):
                row += hashed_direction(word, self.dim)
        return unit_rows(rows, fallback_keys=keys)
