"""What models that run in this process share: where their files come from, and a bound
on the threads they may start.
"""

# pyright: reportUnknownMemberType=false, reportMissingTypeStubs=false

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from memagent.core.errors import ConfigError, MissingExtra


class ThreadLimit:
    """A bound on the numeric libraries' threads, for the length of a `with` block."""

    def __init__(self, threads: int | None) -> None:
        """Look up the libraries loaded so far: make it after the model.

        None sets no bound.
        """
        from threadpoolctl import ThreadpoolController

        self._threads = threads
        self._libraries = ThreadpoolController()

    @contextmanager
    def held(self) -> Generator[None]:
        """Hold the limit in the calling thread."""
        if self._threads is None:
            yield
            return
        with self._libraries.limit(limits=self._threads):
            yield


def weight_digests(parameters: Iterable[Any]) -> list[bytes]:
    """A digest of each parameter tensor, sorted: library versions rename parameters and
    change their order.
    """
    return sorted(
        hashlib.blake2b(one.detach().float().cpu().numpy().tobytes(), digest_size=16).digest()
        for one in parameters
    )


def model_source(
    model: str | Path, *, what: str, offline: bool, revision: str | None
) -> str | Path:
    """The folder a model is read from, or the hub id it is loaded by; with `offline` always a folder.

    `what` names it in messages.

    Raises `ConfigError` when there is no such folder, or no downloaded copy to go by.
    """
    name = str(model)
    folder = Path(model).expanduser()
    if folder.is_dir():
        return folder
    if isinstance(model, Path) or name.startswith((".", "~")) or folder.is_absolute():
        raise ConfigError(f"{what} folder {name} does not exist")
    return _cached_snapshot(name, what=what, revision=revision) if offline else name


def _cached_snapshot(name: str, *, what: str, revision: str | None) -> Path:
    """The folder where a hub model was downloaded to before.

    The library's own offline switch still asks the network.
    """
    try:
        from huggingface_hub import snapshot_download  # pyright: ignore[reportUnknownVariableType]
    except ImportError as exc:
        raise MissingExtra("embeddings", needed_for=f"the {what} {name}", cause=str(exc)) from exc
    try:
        return Path(snapshot_download(name, revision=revision, local_files_only=True))
    except Exception as exc:
        raise ConfigError(
            f"{what} {name!r} is neither a folder nor in the local model cache, and offline=True forbids downloads; "
            "name a folder, or load it once with offline=False"
        ) from exc
