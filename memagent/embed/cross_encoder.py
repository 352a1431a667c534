"""Any sentence-transformers cross-encoder as a reranker: a model id of the public hub,
or a local folder.

A cross-encoder reads query and text together, which finds more than two vectors do and
costs a forward pass a pair. The model loads when the object is made; pairs run in a
worker thread, one call at a time, under the same thread limit as an embedding model.
Scores are the model's own logits, so their sign and size depend on the model; only
their order means anything. The surprise: a score may differ in its last digits with the
other texts of its batch, because they are padded together.
"""

# pyright: reportUnknownMemberType=false, reportMissingTypeStubs=false

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from memagent.core.errors import ConfigError, MissingExtra, ModelError
from memagent.embed.local_models import ThreadLimit, model_source, weight_digests
from memagent.embed.vectors import readable

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder


class CrossEncoderReranker:
    """A loaded cross-encoder with one output.

    Pairs longer than the model's limit are cut by its own tokeniser.
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
        model is not there, does not load, or gives more than one score a pair.
        """
        name = str(model)
        source = model_source(model, what="reranking model", offline=offline, revision=revision)
        self._model = _load(source, name=name, revision=revision, device=device)
        if self._model.num_labels != 1:
            raise ConfigError(
                f"reranking model {name!r} gives {self._model.num_labels} scores a pair; name a cross-encoder with one output"
            )
        self._id = f"{Path(name).name}-{_fingerprint(self._model)}"
        self._batch_size = batch_size
        self._limit = ThreadLimit(threads)
        self._lock = threading.Lock()

    @property
    def id(self) -> str:
        """`<model name>-<12 hex digits over the weights>`."""
        return self._id

    async def score(self, query: str, texts: Sequence[str]) -> list[float]:
        """The model's logit of each (query, text) pair. Raises `ModelError`."""
        if not texts:
            return []
        asked = readable(query)
        return await asyncio.to_thread(self._predict, [(asked, readable(text)) for text in texts])

    def _predict(self, pairs: list[tuple[str, str]]) -> list[float]:
        with self._lock, self._limit.held():
            try:
                answer = cast(Any, self._model).predict(
                    pairs,
                    batch_size=self._batch_size,
                    activation_fn=_as_it_is,
                    convert_to_numpy=True,
                    show_progress_bar=False,
                )
            except Exception as exc:
                raise ModelError(f"reranker {self.id} failed: {type(exc).__name__}: {exc}") from exc
        scores = np.asarray(answer, dtype=np.float64).reshape(-1)
        if len(scores) != len(pairs) or not np.isfinite(scores).all():
            raise ModelError(
                f"reranker {self.id} gave {len(scores)} scores for {len(pairs)} texts, or some not finite"
            )
        return [float(score) for score in scores]


def _as_it_is(logits: Any) -> Any:
    return logits


def _load(source: str | Path, *, name: str, revision: str | None, device: str) -> CrossEncoder:
    """Load from a folder without network, or a hub id with it."""
    try:
        from sentence_transformers import CrossEncoder
    except ImportError as exc:
        raise MissingExtra(
            "embeddings", needed_for=f"the reranking model {name}", cause=str(exc)
        ) from exc
    try:
        if isinstance(source, Path):
            return CrossEncoder(str(source), device=device, local_files_only=True)
        return CrossEncoder(source, device=device, revision=revision)
    except Exception as exc:
        raise ConfigError(
            f"reranking model {name!r} did not load; it must be a folder or the id of a sentence-transformers cross-encoder "
            f"({type(exc).__name__}: {exc})"
        ) from exc


def _fingerprint(model: CrossEncoder) -> str:
    """12 hex digits over all parameters, whatever they are called."""
    parts = weight_digests(cast(Any, model).model.parameters())
    return hashlib.blake2b(b"".join(parts), digest_size=6).hexdigest()
