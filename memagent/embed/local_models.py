"""Models of sentence-transformers that run in this process.

A model loads when its object is made, from a folder without network or by a hub id with
it. Calls run in a worker thread, one at a time, so the event loop stays free.

The surprise: one thread is the default because it measures fastest wherever something
else runs too; two threads on a busy two-core machine were up to 25 times slower. The
limit holds during a call only and leaves the rest of the process as it was;
`threads=None` sets none.
"""

# pyright: reportUnknownMemberType=false, reportMissingTypeStubs=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

import hashlib
import importlib
import threading
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from memagent.core.errors import ConfigError, MissingExtra


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

    @contextmanager
    def _alone(self) -> Generator[None]:
        with self._lock:
            if self._threads is None:
                yield
            else:
                with self._libraries.limit(limits=self._threads):
                    yield

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
