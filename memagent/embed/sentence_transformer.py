"""Any sentence-transformers model as an embedder: a hub id or a local folder.

The id names the weights themselves (a digest over all parameters, the pooling and the
text limit), so the same model is one vector space wherever it was read from, and
changed weights under an old name are a new one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from memagent.core.errors import EmbeddingError
from memagent.embed.local_models import LocalModel, weights_digest
from memagent.embed.vectors import checked_rows, readable
from memagent.protocols import Matrix


class SentenceTransformerEmbedder(LocalModel):
    """A loaded sentence-transformers model.

    Texts longer than the model's limit are cut by its own tokeniser. The id is `<model
    name>-<dim>-<12 hex digits over weights, pooling and text limit>`.
    """

    _kind = "embedding model"
    _class = "SentenceTransformer"
    _form = "sentence-transformers model"

    def _make_id(self) -> str:
        probe = self._model.encode(["width"], convert_to_numpy=True, show_progress_bar=False)
        self.dim = int(probe.shape[1])
        pooling = [str(getattr(module, "pooling_mode", "")) for module in self._model.children()]
        recipe = f"{pooling} {self._model.max_seq_length}".encode()
        digest = weights_digest(self._model.parameters(), recipe)
        return f"{Path(self._name).name}-{self.dim}-{digest}"

    async def embed(self, texts: Sequence[str]) -> Matrix:
        """Return unit rows (N, dim) float32.

        Raises `EmbeddingError`; retryable when the device ran out of memory.
        """
        if not texts:
            return np.zeros((0, self.dim), dtype=np.float32)
        return await asyncio.to_thread(self._encode, [readable(text) for text in texts])

    def _encode(self, texts: list[str]) -> Matrix:
        with self._alone():
            try:
                answer = self._model.encode(
                    texts,
                    batch_size=self._batch_size,
                    convert_to_numpy=True,
                    normalize_embeddings=True,
                    show_progress_bar=False,
                )
            except Exception as exc:
                out_of_memory = (
                    isinstance(exc, MemoryError) or type(exc).__name__ == "OutOfMemoryError"
                )
                raise EmbeddingError(
                    f"embedder {self.id} failed: {type(exc).__name__}: {exc}",
                    retryable=out_of_memory,
                ) from exc
        return checked_rows(answer, texts=len(texts), dim=self.dim, embedder_id=self.id)
