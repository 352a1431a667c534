"""Any sentence-transformers model as an embedder: a model id of the public hub, or a local folder.

The model loads when the object is made, because its id and width must be known from the
start; the id names the weights themselves (a digest over all parameters, the pooling
and the text limit), so the same model is one vector space wherever it was read from,
and changed weights under an old name are a new one. Texts run in a worker thread, one
call at a time, so the event loop stays free.

The surprise: one thread is the default because it measures fastest wherever something
else runs too; two threads on a busy two-core machine were up to 25 times slower. The
limit holds during a call only and leaves the rest of the process as it was;
`threads=None` sets none.
"""

# pyright: reportUnknownMemberType=false, reportMissingTypeStubs=false

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from memagent.core.errors import ConfigError, EmbeddingError, MissingExtra
from memagent.embed.local_models import ThreadLimit, model_source, weight_digests
from memagent.embed.vectors import checked_rows, readable
from memagent.protocols import Matrix

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


class SentenceTransformerEmbedder:
    """A loaded sentence-transformers model.

    Texts longer than the model's limit are cut by its own tokeniser.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        offline: bool = False,
        revision: str | None = None,
        device: str = "cpu",
        batch_size: int = 32,
        threads: int | None = 1,
    ) -> None:
        """Load `model`, a hub id or a folder; `offline` forbids any download,
        `revision` pins a hub commit.

        Raises `MissingExtra` without sentence-transformers, and `ConfigError` when the
        model is not there or does not load.
        """
        name = str(model)
        source = model_source(model, what="embedding model", offline=offline, revision=revision)
        self._model = _load(source, name=name, revision=revision, device=device)
        self._dim = int(
            self._model.encode(["width"], convert_to_numpy=True, show_progress_bar=False).shape[1]
        )
        self._id = f"{Path(name).name}-{self._dim}-{_fingerprint(self._model)}"
        self._batch_size = batch_size
        self._limit = ThreadLimit(threads)
        self._lock = threading.Lock()

    @property
    def id(self) -> str:
        """`<model name>-<dim>-<12 hex digits over weights, pooling and text limit>`."""
        return self._id

    @property
    def dim(self) -> int:
        """D."""
        return self._dim

    async def embed(self, texts: Sequence[str]) -> Matrix:
        """Unit rows (N, dim) float32.

        Raises `EmbeddingError`; retryable when the device ran out of memory.
        """
        if not texts:
            return np.zeros((0, self._dim), dtype=np.float32)
        return await asyncio.to_thread(self._encode, [readable(text) for text in texts])

    def _encode(self, texts: list[str]) -> Matrix:
        with self._lock, self._limit.held():
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
        return checked_rows(answer, texts=len(texts), dim=self._dim, embedder_id=self.id)


def _load(
    source: str | Path, *, name: str, revision: str | None, device: str
) -> SentenceTransformer:
    """Load from a folder without network, or a hub id with it."""
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as exc:
        raise MissingExtra(
            "embeddings", needed_for=f"the embedding model {name}", cause=str(exc)
        ) from exc
    try:
        if isinstance(source, Path):
            return SentenceTransformer(str(source), device=device, local_files_only=True)
        return SentenceTransformer(source, device=device, revision=revision)
    except Exception as exc:
        raise ConfigError(
            f"embedding model {name!r} did not load; it must be a folder or the id of a sentence-transformers model "
            f"({type(exc).__name__}: {exc})"
        ) from exc


def _fingerprint(model: SentenceTransformer) -> str:
    """12 hex digits over everything that shapes a vector.

    Parameter names are left out, as library versions rename them.
    """
    parts = weight_digests(model.parameters())
    pooling = [str(getattr(module, "pooling_mode", "")) for module in model.children()]
    parts.append(f"{pooling} {model.max_seq_length}".encode())
    return hashlib.blake2b(b"".join(parts), digest_size=6).hexdigest()
