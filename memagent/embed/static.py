"""The default embedder: a table of word-piece vectors distilled from MiniLM.

Each piece has one vector, already weighted by how rare the piece is
(`scripts/distill_static.py` makes the table and explains the recipe). A text is the
unit sum of its pieces, so it costs look-ups and additions in numpy: about 0.1 ms, no
model, no download. Word order is lost; a keyword search beside it and a transformer
behind an extra are the ways to have more.

No text is without a vector. A word the table does not know counts with a fixed random
direction of its own, so equal unknown words still find each other, and a text with no
words at all (empty, only punctuation) takes the direction of its whole text.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt

from memagent.core.errors import ConfigError
from memagent.embed.vectors import hashed_direction, readable, unit_rows
from memagent.embed.wordpiece import WordPiece
from memagent.protocols import Matrix

TABLE_FOLDER = Path(__file__).parent / "data"
MAX_CHARS = 32_768
"""A text is read up to this many characters; a mean over more words says nothing new."""

_INLINE_CHARS = 32_768
_GATHER_PIECES = 8_192


@dataclass(frozen=True)
class StaticTable:
    """A loaded table of V pieces; read-only and shared by all embedders of the process."""

    id: str
    vectors: npt.NDArray[np.int8]
    """(V, D), each row scaled to the full range."""
    scales: npt.NDArray[np.float32]
    """(V,) factor that gives a row its true length; 0 for pieces that carry no meaning."""
    tokeniser: WordPiece
    unknown_length: float
    """Length of an unknown word's vector: that of a middling rare piece."""


@lru_cache(maxsize=4)
def open_table(folder: Path = TABLE_FOLDER) -> StaticTable:
    """Load a table (about 20 ms the first time).

    Raises `ConfigError` when a file is missing or does not fit the others.
    """
    try:
        about = cast(dict[str, object], json.loads((folder / "table.json").read_text("utf-8")))
        pieces = (folder / "vocab.txt").read_text("utf-8").rstrip("\n").split("\n")
        vectors: npt.NDArray[np.int8] = np.load(folder / "vectors.npy", allow_pickle=False)
        scales: npt.NDArray[np.float32] = np.load(folder / "scales.npy", allow_pickle=False).astype(
            np.float32
        )
        table_id, dim, length = (
            str(about["id"]),
            about["dim"],
            float(cast(float, about["unknown_length"])),
        )
    except (OSError, ValueError, KeyError, TypeError) as exc:
        raise ConfigError(
            f"the static embedding table in {folder} cannot be read "
            f"({type(exc).__name__}: {exc}); reinstall memagent"
        ) from exc
    if (
        vectors.shape != (len(pieces), dim)
        or vectors.dtype != np.int8
        or scales.shape != (len(pieces),)
    ):
        raise ConfigError(
            f"the static embedding table in {folder} is damaged: its files differ in size; "
            "reinstall memagent"
        )
    vectors.flags.writeable = scales.flags.writeable = False
    return StaticTable(
        id=table_id,
        vectors=vectors,
        scales=scales,
        tokeniser=WordPiece(pieces),
        unknown_length=length,
    )


class StaticEmbedder:
    """Mean of static word-piece vectors; safe to share between tasks and threads."""

    def __init__(self, folder: Path | None = None) -> None:
        """Use the shipped table, or another made by the same script.

        Raises `ConfigError` when it cannot be read.
        """
        self._table = open_table(TABLE_FOLDER if folder is None else folder)
        self.id = self._table.id
        self.dim = int(self._table.vectors.shape[1])

    async def embed(self, texts: Sequence[str]) -> Matrix:
        """Return unit rows (N, dim) float32; never fails.

        Large batches run in a worker thread.
        """
        if sum(min(len(text), MAX_CHARS) for text in texts) <= _INLINE_CHARS:
            return self.encode(texts)
        return await asyncio.to_thread(self.encode, texts)

    def encode(self, texts: Sequence[str]) -> Matrix:
        """Embed without an event loop."""
        sums: Matrix = np.zeros((len(texts), self.dim), dtype=np.float32)
        keys = [readable(text[:MAX_CHARS]) for text in texts]
        table = self._table
        for position, text in enumerate(keys):
            rows = self._read(text, sums[position])
            for start in range(0, len(rows), _GATHER_PIECES):
                picked = np.asarray(rows[start : start + _GATHER_PIECES])
                sums[position] += table.scales[picked] @ table.vectors[picked].astype(np.float32)
        return unit_rows(sums, fallback_keys=keys)

    def _read(self, text: str, unknown_sum: npt.NDArray[np.float32]) -> list[int]:
        """Return rows of the known pieces; add unknown words to `unknown_sum` (D,)."""
        pieces, length = self._table.tokeniser.pieces, np.float32(self._table.unknown_length)
        rows: list[int] = []
        for word in self._table.tokeniser.words(text):
            if known := pieces(word):
                rows.extend(known)
            else:
                unknown_sum += hashed_direction(word, self.dim) * length
        return rows
