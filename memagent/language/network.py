"""A small transformer in numpy: all-MiniLM-L6 with the heads of the reader, small weights.

One file holds the vocabulary, the encoder and the heads (`train/reader` writes it). The
encoder is BERT as the model's authors publish it: six layers of 384 units, twelve heads
of attention, layer norms after each sum. Two things differ: the vocabulary keeps only
pieces in Latin letters and single characters, and GELU is its tanh approximation.
Matrices are int8 with one scale a row. Their steps are so coarse that few values occur,
and the Huffman code around the file makes about 3 bits of a word vector's number and 5 of
the encoder's. Word vectors stay int8 in memory, the rest is turned into float32 once.
Everything here maps arrays to arrays; what they mean is said in `memagent.language.reader`.

Shapes: B texts, T pieces, D units of the encoder, N pairs.
"""

from __future__ import annotations

import hashlib
import io
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from memagent.embed.static import WORD, WordPiece

Array = NDArray[np.float32]

ATTENTION_HEADS = 12
SCALE = ".scale"
"""Ending of the array that holds the scales of an int8 array's rows."""
TEXT_PIECES = 128
"""Most pieces read of a text alone."""
PAIR_PIECES = 72
"""Most pieces read of each text of a pair."""
# Most padded pieces a batch; larger ones leave the cache and gain nothing.
_BATCH_PIECES = 1_536
_FAR = -1e4
_GELU = float(np.sqrt(2 / np.pi))


@dataclass(frozen=True)
class Pieces:
    """The pieces of one text."""

    rows: tuple[int, ...]
    """Rows of the vocabulary, without the marks around the text."""
    spans: tuple[tuple[int, int], ...]
    """Characters of the word that each piece belongs to: first, and one past the last."""

    def cut(self, most: int) -> Pieces:
        """Return at most the first `most` pieces."""
        return self if len(self.rows) <= most else Pieces(self.rows[:most], self.spans[:most])


class Tokenizer:
    """WordPiece with the places of the words; safe to share between threads."""

    def __init__(self, vocabulary: Sequence[str]) -> None:
        """Take the pieces in row order, the marks of BERT among them."""
        self._pieces = WordPiece(vocabulary)
        self.cls, self.sep, self.unknown = (
            vocabulary.index(mark) for mark in ("[CLS]", "[SEP]", "[UNK]")
        )

    def pieces(self, text: str) -> Pieces:
        """Return the text's pieces; an unknown word is one piece, `[UNK]`."""
        rows: list[int] = []
        spans: list[tuple[int, int]] = []
        for match in WORD.finditer(text):
            for word in self._pieces.words(match.group()):
                known = self._pieces.pieces(word) or (self.unknown,)
                rows += known
                spans += [match.span()] * len(known)
        return Pieces(tuple(rows), tuple(spans))

    def alone(self, text: Pieces) -> tuple[list[int], list[int]]:
        """Return the rows and segments of one text between its marks."""
        rows = [self.cls, *text.cut(TEXT_PIECES).rows, self.sep]
        return rows, [0] * len(rows)

    def joined(self, first: Pieces, second: Pieces) -> tuple[list[int], list[int]]:
        """Return the rows and segments of two texts that are read together."""
        left = [self.cls, *first.cut(PAIR_PIECES).rows, self.sep]
        right = [*second.cut(PAIR_PIECES).rows, self.sep]
        return left + right, [0] * len(left) + [1] * len(right)


class Network:
    """The encoder and the heads of one file; reads only, safe to share between threads."""

    def __init__(self, arrays: Mapping[str, NDArray[np.generic]]) -> None:
        """Take the arrays of a file of weights."""
        vocabulary = arrays["vocabulary"].tobytes().decode("utf-8").split("\n")
        self.tokenizer = Tokenizer(vocabulary)
        self._words = arrays["words"]
        self.width: int = self._words.shape[1]
        """D, the units of the encoder."""
        self._word_scales = arrays["words" + SCALE].astype(np.float32)
        self._arrays = {
            name: _plain(name, arrays)
            for name in arrays
            if not name.endswith(SCALE) and name not in {"words", "vocabulary"}
        }
        self._layers = sum(name.endswith(".qkv.weight") for name in self._arrays)
        self.digest = _digest(arrays)

    def encode(self, inputs: Sequence[tuple[list[int], list[int]]]) -> Array:
        """Return the first state of each text beside the mean of all (N, 2 D).

        Texts are rows and segments; equal lengths run together.
        """
        pooled = np.zeros((len(inputs), 2 * self.width), np.float32)
        for places in _batches([len(rows) for rows, _ in inputs]):
            lengths = [len(inputs[place][0]) for place in places]
            hidden = self._run([inputs[place] for place in places], lengths)
            for place, length, own in zip(places, lengths, hidden, strict=True):
                pooled[place, : self.width] = own[0]
                pooled[place, self.width :] = own[:length].mean(axis=0)
        return pooled

    def array(self, name: str) -> Array:
        """Return one array of the file in float32; a matrix is (in, out)."""
        return self._arrays[name]

    def head(self, name: str, inputs: Array) -> Array:
        """Return the logits (N, classes) of a head of two layers."""
        return self.linear(f"{name}.out", _gelu(self.linear(f"{name}.in", inputs)))

    def linear(self, name: str, inputs: Array) -> Array:
        """Return `inputs` (..., in) times a matrix, with its bias: (..., out)."""
        return inputs @ self._arrays[f"{name}.weight"] + self._arrays[f"{name}.bias"]

    def _run(self, inputs: Sequence[tuple[list[int], list[int]]], lengths: Sequence[int]) -> Array:
        """Return the states (B, T, D) of one padded batch."""
        size, most = len(inputs), max(lengths)
        rows = np.zeros((size, most), np.int64)
        segments = np.zeros((size, most), np.int64)
        for place, (own, kinds) in enumerate(inputs):
            rows[place, : len(own)], segments[place, : len(own)] = own, kinds
        hidden = self._words[rows].astype(np.float32) * self._word_scales[rows][:, :, None]
        hidden += self._arrays["positions"][:most]
        hidden += self._arrays["segments"][segments]
        flat = self._norm("enter", hidden.reshape(size * most, -1))
        padding = None
        if min(lengths) < most:
            seen = np.arange(most)[None, :] < np.asarray(lengths)[:, None]
            padding = np.where(seen, np.float32(0), np.float32(_FAR))[:, None, None, :]
        for layer in range(self._layers):
            mixed = self._attend(layer, flat, (size, most), padding)
            flat = self._norm(f"layer{layer}.mixed", flat + mixed)
            inner = _gelu(self.linear(f"layer{layer}.wide", flat))
            flat = self._norm(
                f"layer{layer}.last", flat + self.linear(f"layer{layer}.narrow", inner)
            )
        return flat.reshape(size, most, -1)

    def _attend(
        self, layer: int, flat: Array, shape: tuple[int, int], padding: Array | None
    ) -> Array:
        size, most = shape
        parts = self.linear(f"layer{layer}.qkv", flat).reshape(size, most, 3, ATTENTION_HEADS, -1)
        query, key, value = parts.transpose(2, 0, 3, 1, 4)  # each (B, heads, T, D / heads)
        scores = query @ key.transpose(0, 1, 3, 2)
        scores *= np.float32(1 / np.sqrt(query.shape[-1]))
        if padding is not None:
            scores += padding
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=-1, keepdims=True)
        mixed = (scores @ value).transpose(0, 2, 1, 3).reshape(size * most, -1)
        return self.linear(f"layer{layer}.out", mixed)

    def _norm(self, name: str, rows: Array) -> Array:
        rows -= rows.mean(axis=1, keepdims=True)
        spread = np.einsum("ij,ij->i", rows, rows) / np.float32(rows.shape[1])
        rows *= (1 / np.sqrt(spread + np.float32(1e-12)))[:, None]
        rows *= self._arrays[f"{name}.weight"]
        rows += self._arrays[f"{name}.bias"]
        return rows


def units(pooled: Array) -> Array:
    """Return the unit vectors (N, D) of texts, given as `Network.encode` returns them."""
    means = pooled[:, pooled.shape[1] // 2 :]
    return means / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-9)


def open_network(path: Path) -> Network:
    """Return the network of a file of weights; raise `OSError` or `ValueError` if it is none."""
    try:
        return Network(read_arrays(path))
    except (BadZipFile, KeyError, EOFError, zlib.error) as exc:
        raise ValueError(f"{path} holds no weights of a reader ({exc})") from exc


def read_arrays(path: Path) -> dict[str, NDArray[np.generic]]:
    """Return the arrays of a file of weights, an `.npz` in one zlib stream."""
    with np.load(io.BytesIO(zlib.decompress(path.read_bytes())), allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def softmax(logits: Array) -> Array:
    """Return probabilities over the last axis."""
    raised = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return raised / raised.sum(axis=-1, keepdims=True)


def _plain(name: str, arrays: Mapping[str, NDArray[np.generic]]) -> Array:
    """Return one array in float32; a matrix comes transposed, ready to stand on the right."""
    array = arrays[name].astype(np.float32)
    if name + SCALE in arrays:
        array *= arrays[name + SCALE].astype(np.float32)[:, None]
    return np.ascontiguousarray(array.T) if name.endswith(".weight") else array


def _gelu(rows: Array) -> Array:
    """Return the tanh approximation of GELU."""
    inner = rows * rows
    inner *= np.float32(0.044715 * _GELU)
    inner += np.float32(_GELU)
    inner *= rows
    np.tanh(inner, out=inner)
    inner += np.float32(1)
    inner *= rows
    inner *= np.float32(0.5)
    return inner


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield the places of texts that run together: near lengths, few padded pieces."""
    batch: list[int] = []
    for place in sorted(range(len(lengths)), key=lambda place: lengths[place]):
        if batch and (len(batch) + 1) * lengths[place] > _BATCH_PIECES:
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


def _digest(arrays: Mapping[str, NDArray[np.generic]]) -> str:
    held = hashlib.sha256()
    for name in sorted(arrays):
        buffer = io.BytesIO()
        np.save(buffer, arrays[name])
        held.update(name.encode("utf-8") + b"\0" + buffer.getvalue())
    return held.hexdigest()
