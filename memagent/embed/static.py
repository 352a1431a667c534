"""Embedders without a model: the default one, its tokeniser, and one for tests.

The default embedder is a table of word-piece vectors distilled from MiniLM. Each piece
has one vector, already weighted by how rare the piece is (`scripts/distill_static.py`
makes the table and explains the recipe). A text is the unit sum of its pieces, so it
costs look-ups and additions in numpy: about 0.1 ms, no model, no download. Word order
is lost; a keyword search beside it and a transformer behind an extra are the ways to
have more.

No text is without a vector. A word the table does not know counts with a fixed random
direction of its own, so equal unknown words still find each other, and a text with no
words at all (empty, only punctuation) takes the direction of its whole text.

Its tokeniser is uncased WordPiece in pure Python: text in, rows of a vocabulary out. A
word is a run of letters and digits, or one other visible character, or one CJK
ideograph. Words are lower-cased, stripped of their accents and cut greedily into the
longest known pieces; continuation pieces are written ``##piece``. On prose the pieces
are those of the uncased BERT tokeniser. The surprise: a symbol outside ASCII (an emoji,
a currency sign) is always its own word here, so that it cannot make the word it touches
unknown, and an unknown word yields no piece at all instead of a shared ``[UNK]``, so
that the caller may tell unknown words apart.

Splitting a word is the slow part and texts repeat their words, so each tokeniser keeps
a bounded memory of words already split.

The embedder for tests hashes each word to a fixed direction; a text is their unit sum.
Texts that share words are near each other and all others are near orthogonal, on every
machine alike, so tests of storage and search need no weights. It knows nothing of
meaning: synonyms are strangers. A text without words hashes as a whole.
"""

from __future__ import annotations

import asyncio
import json
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt

from memagent.core.errors import ConfigError
from memagent.embed.cached import hashed_direction, readable, unit_rows
from memagent.protocols import Matrix

_WORD = re.compile(r"[^\W_]+|[^\w\s\x00-\x1f\x7f]|_")
_INVISIBLE = frozenset({"Cf", "Cs", "Co", "Mn"})
_IDEOGRAPHS = ((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x2FA1F))
_LONGEST_WORD = 100
_WORD_MEMORY = 100_000


class WordPiece:
    """A greedy longest-match tokeniser over a fixed vocabulary; safe to share between threads."""

    def __init__(self, vocabulary: Sequence[str]) -> None:
        """Take the pieces in row order; a piece's row is its position."""
        self._rows = {piece: row for row, piece in enumerate(vocabulary)}
        self._split_words: dict[str, tuple[int, ...]] = {}

    def words(self, text: str) -> list[str]:
        """Split text into normalised words, in order.

        Control characters part words; accents and lone surrogates vanish.
        """
        lowered = text.lower()
        if not lowered.isascii():
            lowered = unicodedata.normalize("NFD", lowered).translate(_FOLDING)
        return _WORD.findall(lowered)

    def pieces(self, word: str) -> tuple[int, ...]:
        """Return the rows of one normalised word's pieces, first to last.

        Return () when any part of the word is unknown.
        """
        rows = self._split_words.get(word)
        if rows is None:
            rows = self._split(word)
            if len(self._split_words) >= _WORD_MEMORY:
                self._split_words.clear()
            self._split_words[word] = rows
        return rows

    def _split(self, word: str) -> tuple[int, ...]:
        if len(word) > _LONGEST_WORD:
            return ()
        rows: list[int] = []
        start = 0
        while start < len(word):
            prefix = "##" if start else ""
            for end in range(len(word), start, -1):
                row = self._rows.get(prefix + word[start:end])
                if row is not None:
                    rows.append(row)
                    start = end
                    break
            else:
                return ()
        return tuple(rows)


class _Folding(dict[int, str | None]):
    """A `str.translate` table filled on demand.

    Invisible marks go, spaces become one kind, ideographs stand apart.
    """

    def __missing__(self, code: int) -> str | None:
        letter = chr(code)
        folded: str | None = letter
        if letter.isspace() or unicodedata.category(letter) == "Cc":
            folded = " "
        elif unicodedata.category(letter) in _INVISIBLE:
            folded = None
        elif any(first <= code <= last for first, last in _IDEOGRAPHS):
            folded = f" {letter} "
        self[code] = folded
        return folded


_FOLDING = _Folding()


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


_HASHING_WORD = re.compile(r"\w+")
_HASHING_INLINE_CHARS = 8_192


class HashEmbedder:
    """Deterministic bag-of-words hashing; the id is `hash-<dim>-v1`."""

    def __init__(self, *, dim: int = 256) -> None:
        """Raise `ConfigError` when dim is below 8, where unrelated words would collide."""
        if dim < 8:
            raise ConfigError(f"dim must be at least 8, got {dim}")
        self.id = f"hash-{dim}-v1"
        self.dim = dim

    async def embed(self, texts: Sequence[str]) -> Matrix:
        """Return unit rows (N, dim) float32; never fails.

        Large batches run in a worker thread.
        """
        if sum(map(len, texts)) <= _HASHING_INLINE_CHARS:
            return self._encode(texts)
        return await asyncio.to_thread(self._encode, texts)

    def _encode(self, texts: Sequence[str]) -> Matrix:
        rows: Matrix = np.zeros((len(texts), self.dim), dtype=np.float32)
        keys = [readable(text) for text in texts]
        for row, text in zip(rows, keys, strict=True):
            for word in _HASHING_WORD.findall(text.lower()):
                row += hashed_direction(word, self.dim)
        return unit_rows(rows, fallback_keys=keys)
