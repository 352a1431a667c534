"""LangChain's `Embeddings` as the embedder of a memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from langgraph.store.base import IndexConfig, ensure_embeddings

from memagent.core.errors import ConfigError, EmbeddingError
from memagent.core.records import clean_text
from memagent.protocols import Embedder, Matrix


def langchain_embedder(index: IndexConfig, *, id: str | None = None) -> Embedder:
    """Return the embedder that LangGraph's `index=` configures, for `Agent(embedder=...)`.

    `embed` is LangChain's `Embeddings`, or a function from texts to vectors; `dims` is
    the length of a vector. `id` names weights and recipe for the cache of vectors; by
    default it is made of the class, its model and `dims`. Raises `ConfigError` without
    `embed` and `dims`.
    """
    embed: Any = index.get("embed")
    dims: Any = index.get("dims")
    if embed is None or isinstance(embed, str) or not isinstance(dims, int) or dims < 1:
        raise ConfigError("an index names `embed`, LangChain's Embeddings, and its `dims`")
    model = next((getattr(embed, name, None) for name in ("model", "model_name")), None)
    kind = getattr(embed, "__qualname__", type(embed).__qualname__)
    name = id or ":".join(str(part) for part in ("langchain", kind, model, dims) if part)
    return _LangChainEmbedder(ensure_embeddings(embed), name, dims)


class _LangChainEmbedder:
    def __init__(self, embeddings: Any, id: str, dim: int) -> None:
        self._embeddings, self.id, self.dim = embeddings, id, dim

    async def embed(self, texts: Sequence[str]) -> Matrix:
        """Return unit vectors (N, D) in the order of the texts. Raises `EmbeddingError`."""
        if not texts:
            return np.zeros((0, self.dim), dtype=np.float32)
        try:
            rows = await self._embeddings.aembed_documents([clean_text(text) for text in texts])
            vectors = np.asarray(rows, dtype=np.float32)
        except Exception as exc:
            raise EmbeddingError(f"{self.id} failed: {type(exc).__name__}: {exc}") from exc
        if vectors.shape != (len(texts), self.dim):
            raise EmbeddingError(
                f"{self.id} gave vectors of shape {vectors.shape} for {len(texts)} texts; "
                f"`dims` says {self.dim}"
            )
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not np.all(np.isfinite(norms)) or not np.all(norms > 0):
            raise EmbeddingError(f"{self.id} gave a vector that is zero or not finite")
        return vectors / norms
