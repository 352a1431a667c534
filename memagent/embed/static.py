"""Embedders without a model, the cache in front of any, and the law of all vectors.

The shared work of all embedders stands first: readable text, its digest, and the check
of vectors. One law: a row is float32, finite and of unit length, or there is no row at
all. Texts are compared in Unicode's composed form (NFC), so a letter typed in two ways
is one text with one digest and one vector.

`CachedEmbedder` stands in front of any embedder. Vectors are kept by (embedder id, text
digest): first a bounded memory of the most recent ones, then, when given, a shared
`EmbeddingCache`. A call sends each unknown text once, all of them in one request. Only
proven unit rows are kept, so a failure is never remembered; and what the shared cache
hands back is proven too, so a row of another width is refused with the way out instead
of being compared. A shared cache that cannot be reached costs time, not the call: it is
logged and the texts are embedded.

The surprise: the inner embedder sees texts in NFC, because two spellings with one
digest must have one vector.

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
import hashlib
import json
import logging
import re
import threading
import unicodedata
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import sqrt
from pathlib import Path
from typing import cast

import numpy as np

from memagent.core.errors import ConfigError, EmbeddingError, StoreError, boundary
from memagent.protocols import Embedder, EmbeddingCache, Matrix, Vector

UNIT_TOLERANCE = 1e-3
"""Greatest deviation of a row's length from one."""

_SMALLEST_LENGTH = 1e-6


def readable(text: str) -> str:
    """Return the text in NFC, fit for any encoder.

    A lone surrogate becomes U+FFFD, a surrogate pair its character.
    """
    if text.isascii():
        return text
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return unicodedata.normalize("NFC", whole)


def text_digest(text: str) -> str:
    """Name a text by 32 hex digits: BLAKE2b of 16 bytes over its NFC form in UTF-8.

    Lone surrogates are kept apart, by `surrogatepass`.
    """
    composed = text if text.isascii() else unicodedata.normalize("NFC", text)
    return hashlib.blake2b(composed.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


@lru_cache(maxsize=16_384)
def hashed_direction(key: str, dim: int) -> Vector:
    """Draw a unit vector (dim,) from the key alone, the same on every machine.

    Any two keys are close to orthogonal. The vector is read-only.
    """
    bits = hashlib.shake_256(key.encode("utf-8", "surrogatepass")).digest((dim + 7) // 8)
    signs = np.unpackbits(np.frombuffer(bits, dtype=np.uint8))[:dim].astype(np.float32) * 2.0 - 1.0
    direction: Vector = (signs / np.sqrt(np.float32(dim))).astype(np.float32)
    direction.flags.writeable = False
    return direction


def unit_rows(rows: Matrix, *, fallback_keys: list[str]) -> Matrix:
    """Scale rows (N, D) to unit length in place.

    A row without a direction takes the hashed direction of its key (N,).
    """
    lengths = np.sqrt(np.vecdot(rows, rows))
    for row, length in enumerate(lengths.tolist()):
        if length < _SMALLEST_LENGTH:
            rows[row] = hashed_direction(fallback_keys[row], rows.shape[1])
            lengths[row] = 1.0
    rows /= lengths[:, None]
    return rows


def checked_rows(answer: np.typing.ArrayLike, *, texts: int, dim: int, embedder_id: str) -> Matrix:
    """Return an embedder's answer as float32 (texts, dim) after proof that it is usable.

    Raises `EmbeddingError`, not retryable: the shape is wrong, a number is not finite,
    or a row's length is not one.
    """
    try:
        rows: Matrix = np.ascontiguousarray(answer, dtype=np.float32)
    except (TypeError, ValueError) as exc:
        raise EmbeddingError(
            f"embedder {embedder_id} answered with something that is not a matrix of numbers: {exc}"
        ) from exc
    if rows.shape != (texts, dim):
        raise EmbeddingError(
            f"embedder {embedder_id} answered with shape {rows.shape} where {(texts, dim)} was due"
        )
    wrong = off_unit(rows)
    if wrong:
        at, length = next(iter(wrong.items()))
        raise EmbeddingError(
            f"embedder {embedder_id}: {len(wrong)} of {texts} rows are not unit vectors "
            f"(row {at} has length {length})"
        )
    return rows


def off_unit(rows: Matrix) -> dict[int, float]:
    """Return the lengths of the rows (N, D) that are not finite or not of unit length."""
    # row by row: a query has one, and no number of a row makes `vdot` warn
    lengths = enumerate(map(sqrt, map(np.vdot, rows, rows)))
    return {at: length for at, length in lengths if not abs(length - 1.0) <= UNIT_TOLERANCE}


_log = logging.getLogger(__name__)


class CachedEmbedder:
    """An embedder that remembers, with the inner one's id and dim.

    `capacity` is the number of vectors kept in memory; at 256 dimensions 20,000 of them
    are 20 MB, 0 keeps none. An inner embedder that embeds questions in a way of their own
    has another embedder for them under `queries`. Safe to share between tasks and threads.
    """

    def __init__(
        self, inner: Embedder, *, shared: EmbeddingCache | None = None, capacity: int = 20_000
    ) -> None:
        self._inner = inner
        self.id = inner.id
        self._shared = shared
        self._capacity = capacity
        self._recent: OrderedDict[str, Vector] = OrderedDict()
        self._lock = threading.Lock()
        self.queries: CachedEmbedder | None = (
            CachedEmbedder(other, shared=shared, capacity=capacity)
            if (other := getattr(inner, "queries", None))
            else None
        )

    @property
    def dim(self) -> int:
        """D."""
        return self._inner.dim

    async def embed(self, texts: Sequence[str]) -> Matrix:
        """Return unit rows (N, dim) float32.

        Raises `EmbeddingError` when the inner embedder fails or answers with unusable
        vectors.
        """
        digests = [text_digest(text) for text in texts]
        rows = self._recall(digests)
        missing = {
            digest: readable(text)
            for digest, text in zip(digests, texts, strict=True)
            if digest not in rows
        }
        if missing:
            with boundary(EmbeddingError, f"embedder {self.id}"):
                answer = await self._inner.embed(list(missing.values()))
            matrix = checked_rows(answer, texts=len(missing), dim=self.dim, embedder_id=self.id)
            fresh = dict(zip(missing, (row.copy() for row in matrix), strict=True))
            self._remember(fresh)
            try:
                if self._shared is not None:
                    self._shared.put_many(self.id, fresh)
            except StoreError as exc:
                _log.warning(
                    "embedding cache not writable, %d vectors not kept: %s", len(fresh), exc
                )
            if len(missing) == len(digests):
                return matrix
            rows |= fresh
        if not digests:
            return np.empty((0, self.dim), dtype=np.float32)
        return np.stack([rows[digest] for digest in digests])

    def _recall(self, digests: Sequence[str]) -> dict[str, Vector]:
        rows: dict[str, Vector] = {}
        with self._lock:
            for digest in digests:
                row = self._recent.get(digest)
                if row is not None:
                    self._recent.move_to_end(digest)
                    rows[digest] = row
        if self._shared is None or len(rows) == len(set(digests)):
            return rows
        unknown = list(dict.fromkeys(digest for digest in digests if digest not in rows))
        try:
            answer = self._shared.get_many(self.id, unknown)
        except StoreError as exc:
            _log.warning(
                "embedding cache not readable, embedding %d texts instead: %s", len(unknown), exc
            )
            return rows
        stored: dict[str, Vector] = {}
        for digest, row in answer.items():
            vector: Vector = np.asarray(row, dtype=np.float32)
            # one of another model or width must not be compared with
            if vector.shape != (self.dim,) or off_unit(vector[None]):
                raise EmbeddingError(
                    f"the embedding cache holds a row of shape {vector.shape} for {self.id} where "
                    f"a unit vector of {self.dim} was due; the model changed under its name or the "
                    "cache is damaged. Embed the stored texts anew:  memagent reembed"
                )
            stored[digest] = vector
        self._remember(stored)
        return rows | stored

    def _remember(self, rows: Mapping[str, Vector]) -> None:
        with self._lock:
            self._recent.update(rows)
            while len(self._recent) > self._capacity:
                self._recent.popitem(last=False)


WORD = re.compile(r"[^\W_]+|[^\w\s\x00-\x1f\x7f]|_")
_INVISIBLE = frozenset({"Cf", "Cs", "Co", "Mn"})
_IDEOGRAPHS = ((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x2FA1F))
_LONGEST_WORD = 100
_WORD_MEMORY = 100_000


class WordPiece:
    """A greedy longest-match tokeniser over a fixed vocabulary; safe to share between threads."""

    def __init__(self, vocabulary: Sequence[str]) -> None:
        """Take the pieces in row order; a piece's row is its position."""
        self._rows = {piece: row for row, piece in enumerate(vocabulary)}
        # `split`, with a bounded memory of words already split.
        self.pieces = lru_cache(maxsize=_WORD_MEMORY)(self.split)

    def words(self, text: str) -> list[str]:
        """Split text into normalised words, in order.

        Control characters part words; accents and lone surrogates vanish.
        """
        lowered = text.lower()
        if not lowered.isascii():
            lowered = unicodedata.normalize("NFD", lowered).translate(_FOLDING)
        return WORD.findall(lowered)

    def split(self, word: str) -> tuple[int, ...]:
        """Return the rows of one normalised word's pieces, first to last.

        Return () when any part of the word is unknown.
        """
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
    vectors: np.typing.NDArray[np.int8]
    """(V, D), each row scaled to the full range."""
    scales: np.typing.NDArray[np.float32]
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
        vectors: np.typing.NDArray[np.int8] = np.load(folder / "vectors.npy", allow_pickle=False)
        scales: np.typing.NDArray[np.float32] = np.load(
            folder / "scales.npy", allow_pickle=False
        ).astype(np.float32)
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
        table, unknown_length = self._table, np.float32(self._table.unknown_length)
        for text, total in zip(keys, sums, strict=True):
            rows: list[int] = []
            for word in table.tokeniser.words(text):
                known = table.tokeniser.pieces(word)
                rows.extend(known)
                if not known:
                    total += hashed_direction(word, self.dim) * unknown_length
            for start in range(0, len(rows), _GATHER_PIECES):
                picked = rows[start : start + _GATHER_PIECES]
                pieces = table.vectors.take(picked, axis=0).astype(np.float32)
                total += table.scales.take(picked) @ pieces
        return unit_rows(sums, fallback_keys=keys)


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
