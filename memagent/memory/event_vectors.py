"""Vectors of event texts, kept in the arena that a bank shares with its forks, and of queries.

A text is embedded once. When the embedder fails nothing is made up: texts that were
never embedded are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from memagent.core.errors import EmbeddingError, boundary
from memagent.memory.bank import MemoryBank
from memagent.protocols import Matrix, Vector
from memagent.search.segments import NO_ROW


async def text_vectors(bank: MemoryBank, texts: Iterable[str]) -> dict[str, Vector]:
    """Return unit vectors (D,) by text, without blank texts.

    New texts are missing too while the embedder fails.
    """
    texts, arena = _distinct(texts), bank.view.index.arena
    missing = [text for text in texts if arena.row(text) == NO_ROW]
    vectors = await _embedded(bank, missing) if missing else None
    if (
        vectors is not None
        and vectors.shape == (len(missing), arena.dim)
        and np.isfinite(vectors).all()
    ):
        arena.put(missing, vectors)
    rows = ((text, arena.row(text)) for text in texts)
    return {text: arena.matrix[row] for text, row in rows if row != NO_ROW}


async def query_vectors(bank: MemoryBank, texts: Iterable[str]) -> dict[str, Vector]:
    """Return unit vectors (D,) of texts that the arena does not keep.

    {} while the embedder fails.
    """
    texts = _distinct(texts)
    vectors = await _embedded(bank, texts) if texts else None
    return {} if vectors is None else dict(zip(texts, vectors, strict=True))


def _distinct(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(text for text in texts if text.strip()))


async def _embedded(bank: MemoryBank, texts: Sequence[str]) -> Matrix | None:
    try:
        with boundary(EmbeddingError, f"embedder {bank.embedder.id!r}"):
            return await bank.embedder.embed(texts)
    except EmbeddingError:
        return None
