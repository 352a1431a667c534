"""Any sentence-transformers cross-encoder as a reranker: a hub id or a local folder.

A cross-encoder reads query and text together, which finds more than two vectors do and
costs a forward pass a pair. Scores are the model's own logits, so their sign and size
depend on the model; only their order means anything. The surprise: a score may differ
in its last digits with the other texts of its batch, because they are padded together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from memagent.core.errors import ConfigError, ModelError
from memagent.embed.local_models import LocalModel, weights_digest
from memagent.embed.vectors import readable


class CrossEncoderReranker(LocalModel):
    """A loaded cross-encoder with one output; others raise `ConfigError`.

    Pairs longer than the model's limit are cut by its own tokeniser. The id is `<model
    name>-<12 hex digits over the weights>`.
    """

    _kind = "reranking model"
    _class = "CrossEncoder"
    _form = "sentence-transformers cross-encoder"

    def _make_id(self) -> str:
        if self._model.num_labels != 1:
            raise ConfigError(
                f"reranking model {self._name!r} gives {self._model.num_labels} scores a pair; "
                "name a cross-encoder with one output"
            )
        return f"{Path(self._name).name}-{weights_digest(self._model.model.parameters())}"

    async def score(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return the model's logit of each (query, text) pair. Raises `ModelError`."""
        if not texts:
            return []
        question = readable(query)
        pairs = [(question, readable(text)) for text in texts]
        return await asyncio.to_thread(self._predict, pairs)

    def _predict(self, pairs: list[tuple[str, str]]) -> list[float]:
        with self._alone():
            try:
                answer = self._model.predict(
                    pairs,
                    batch_size=self._batch_size,
                    activation_fn=_identity,
                    convert_to_numpy=True,
                    show_progress_bar=False,
                )
            except Exception as exc:
                raise ModelError(f"reranker {self.id} failed: {type(exc).__name__}: {exc}") from exc
        scores = np.asarray(answer, dtype=np.float64).reshape(-1)
        if len(scores) != len(pairs) or not np.isfinite(scores).all():
            raise ModelError(
                f"reranker {self.id} gave {len(scores)} scores for {len(pairs)} texts, "
                "or some not finite"
            )
        return [float(score) for score in scores]


def _identity(logits: Any) -> Any:
    return logits
