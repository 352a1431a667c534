"""Any embedding model that litellm knows, hosted or local, by its name.

Vectors are scaled to unit length. The width is given, or that of the first answer; a
store remembers it, so that opening one again asks nobody. A blank text, which providers
refuse, is embedded as `(no text)`, and a text is cut at `MAX_CHARS`. Every failure is
an `EmbeddingError` of one line, the same one as for a chat model.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import numpy as np
from pydantic import JsonValue

from memagent.core.errors import EmbeddingError, ModelError
from memagent.embed.cached import readable
from memagent.llm.litellm_errors import (
    Dumps,
    ErrorReader,
    call_options,
    check_installed,
    checked_url,
    knock,
    load_vendor,
    open_vendor,
)
from memagent.llm.wrappers import Retries
from memagent.protocols import Matrix

MAX_CHARS = 24_000
"""A text is embedded up to this many characters, about 6,000 tokens."""
_BATCH = 256
"""Most texts of one request."""
_BLANK = "(no text)"


class LiteLLMEmbedder:
    """An embedding model by its litellm name, such as `openai/text-embedding-3-small`.

    `dim` is the width of its vectors; None takes that of the first answer. `extra` goes
    to the provider as it is, for example `{"dimensions": 512}`. Raises `MissingExtra`
    when litellm is not installed.
    """

    def __init__(
        self,
        model: str,
        *,
        dim: int | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout_s: float = 30.0,
        extra: Mapping[str, JsonValue] | None = None,
    ) -> None:
        self._use = f"the embedder {model!r}"
        check_installed(self._use)
        self._model, self._dim, self._timeout_s = model, dim, timeout_s
        self._api_base = checked_url(base_url)
        self._api_key, self._extra = api_key, dict(extra or {})
        shortened = self._extra.get("dimensions")
        self.id = f"litellm/{model}" if shortened is None else f"litellm/{model}@{shortened}"
        self._errors = ErrorReader(
            model,
            timeout_s=timeout_s,
            settings={"api_key": api_key, **self._extra},
            base_url=self._api_base,
        )
        self._retries = Retries(deadline_s=2 * timeout_s)
        self._asking = threading.Lock()

    @property
    def dim(self) -> int:
        """D. Asks the model where nobody said it; raises `EmbeddingError`."""
        with self._asking:
            if self._dim is None:
                with ThreadPoolExecutor(1) as thread:  # an event loop may run in this one
                    self._dim = thread.submit(self._ask_width).result()
        return self._dim

    def recall_dim(self, claimed: tuple[str, int] | None) -> None:
        """Take the width that a store remembers of this embedder, instead of asking."""
        if self._dim is None and claimed is not None and claimed[0] == self.id:
            self._dim = claimed[1]

    async def embed(self, texts: Sequence[str]) -> Matrix:
        """Return unit rows (N, dim) float32. Raises `EmbeddingError`."""
        if not texts:
            return np.empty((0, self._dim or await asyncio.to_thread(lambda: self.dim)), np.float32)
        sent = [readable(text[:MAX_CHARS]) for text in texts]
        sent = [text if any(map(str.isprintable, text.strip())) else _BLANK for text in sent]
        rows: list[list[float]] = []
        for start in range(0, len(sent), _BATCH):
            rows += await self._rows(sent[start : start + _BATCH])
        widths = {len(row) for row in rows}
        if self._dim is None and len(widths) == 1:
            self._dim = widths.pop()
        elif widths != {self._dim}:
            raise EmbeddingError(
                f"{self._model} answered with vectors of {sorted(widths)} dimensions where "
                f"{self._dim} were due; correct `dim`, or embed the memory anew:  memagent reembed"
            )
        matrix: Matrix = np.asarray(rows, dtype=np.float32)
        lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
        if not np.isfinite(matrix).all() or not (lengths > 0).all():
            raise EmbeddingError(f"{self._model} answered with a vector that has no direction")
        return matrix / lengths

    async def _rows(self, texts: list[str]) -> list[list[float]]:
        """Return one vector for each text, retried as the calls of a chat model are."""
        try:
            return await self._retries.call(self._ask, texts)
        except ModelError as exc:
            raise EmbeddingError(str(exc), retryable=exc.retryable) from exc

    async def _ask(self, texts: list[str]) -> list[list[float]]:
        await knock(self._model, self._api_base)
        vendor = await open_vendor(self._use)
        with self._errors.translated():
            async with asyncio.timeout(self._timeout_s):
                answer = await vendor.aembedding(input=texts, **self._options())
        return self._read(answer, len(texts))

    def _ask_width(self) -> int:
        """Ask without an event loop: what the vendor leaves in a short-lived one is noisy."""
        try:
            asyncio.run(knock(self._model, self._api_base))
            vendor = load_vendor(self._use)
            with self._errors.translated():
                answer = vendor.embedding(input=["width"], **self._options())
        except ModelError as exc:
            raise EmbeddingError(str(exc), retryable=exc.retryable) from exc
        return len(self._read(answer, 1)[0])

    def _options(self) -> dict[str, object]:
        return {
            **call_options(
                self._model,
                api_base=self._api_base,
                api_key=self._api_key,
                timeout_s=self._timeout_s,
            ),
            "encoding_format": "float",
            # or the vendor drops it for models that it does not know
            **({"allowed_openai_params": ["dimensions"]} if "dimensions" in self._extra else {}),
            **self._extra,
        }

    def _read(self, answer: Dumps, count: int) -> list[list[float]]:
        """Return the vectors of an answer in the order of the texts."""
        listed = cast("list[dict[str, Any]]", answer.model_dump(warnings=False).get("data") or [])
        ordered = sorted(listed, key=lambda row: row.get("index") or 0)
        rows = [row.get("embedding") for row in ordered]
        if len(rows) != count or not all(rows):
            raise EmbeddingError(
                f"{self._model} answered with {len(rows)} vectors for {count} texts; check "
                "that it is an embedding model and that base_url has an /embeddings path"
            )
        return cast("list[list[float]]", rows)
