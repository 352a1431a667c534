"""Vectors of event texts and queries, kept in the arena that a bank shares with its
forks: a text is embedded once.

When the embedder fails nothing is made up: texts that were never embedded are left out.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from memagent.core.errors import EmbeddingError, boundary
from memagent.memory.bank import MemoryBank
from memagent.protocols import Vector
from memagent.search.segments import NO_ROW


async def text_vectors(bank: MemoryBank, texts: Iterable[str]) -> dict[str, Vector]:
    """Unit vectors (D,) by text; blank texts, and new ones while the embedder fails, are left out."""
    wanted = list(dict.fromkeys(text for text in texts if text.strip()))
    arena = bank.view.arena
    missing = [text for text in wanted if arena.row(text) == NO_ROW]
    if missing:
        try:
            with boundary(EmbeddingError, f"embedder {bank.embedder.id!r}"):
                vectors = await bank.embedder.embed(missing)
        except EmbeddingError:
            vectors = None
        if (
            vectors is not None
            and vectors.shape == (len(missing), arena.dim)
            and bool(np.isfinite(vectors).all())
        ):
            arena.put(missing, vectors)
    rows = ((text, arena.row(text)) for text in wanted)
    return {text: arena.matrix[row] for text, row in rows if row != NO_ROW}


async def query_vectors(bank: MemoryBank, texts: Iterable[str]) -> dict[str, Vector]:
    """Unit vectors (D,) of passing texts, which the arena is not to keep; {} while the
    embedder fails.
    """
    wanted = list(dict.fromkeys(text for text in texts if text.strip()))
    if not wanted:
        return {}
    try:
        with boundary(EmbeddingError, f"embedder {bank.embedder.id!r}"):
            vectors = await bank.embedder.embed(wanted)
    except EmbeddingError:
        return {}
    return dict(zip(wanted, vectors, strict=True))
