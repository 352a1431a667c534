"""The network of `memagent.language.network` in torch, for training, and its file.

Names and shapes are those of the file; a matrix is (out, in), as torch keeps it.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

from memagent.embed.local_models import packaged_minilm
from memagent.language.network import ATTENTION_HEADS, SCALE
from memagent.language.reader import (
    EXTRAS,
    LIGHT,
    RELATIONS,
    Thresholds,
)
from train.reader.examples import POLARITIES, SUBJECTS, TIMES

POSITIONS = 192
TURN_CLASSES = (2, len(SUBJECTS), len(TIMES), len(POLARITIES))
"""Classes of the turn head's four parts: states something, subject, time, polarity."""
_COMMON = 24_000
"""Rows of the published vocabulary, which is ordered by frequency, that hold common words."""
_STEPS = {"words.": 0.64, "layers.": 0.13}
"""Steps of int8 in units of a row's root mean square, by part; .05 elsewhere."""
_NORM_EPSILON = 1e-12
_HIDDEN = 128


@dataclass(frozen=True)
class TextBatch:
    """B padded texts."""

    rows: Tensor  # (B, T) rows of the vocabulary
    segments: Tensor  # (B, T)
    lengths: Tensor  # (B,)

    @property
    def mask(self) -> Tensor:
        """Return (B, T): true where a piece stands."""
        return torch.arange(self.rows.shape[1])[None, :] < self.lengths[:, None]


def text_batch(inputs: Sequence[tuple[list[int], list[int]]]) -> TextBatch:
    """Return texts, given as rows and segments, as one padded batch."""
    lengths = torch.tensor([len(rows) for rows, _ in inputs])
    size = (len(inputs), int(lengths.max()))
    rows, segments = torch.zeros(size, dtype=torch.long), torch.zeros(size, dtype=torch.long)
    for place, (own, kinds) in enumerate(inputs):
        rows[place, : len(own)] = torch.tensor(own)
        segments[place, : len(own)] = torch.tensor(kinds)
    return TextBatch(rows, segments, lengths)


class Layer(nn.Module):
    """One layer of BERT."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mixed = nn.LayerNorm(width, eps=_NORM_EPSILON)
        self.wide = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)
        self.last = nn.LayerNorm(width, eps=_NORM_EPSILON)
        self.drop = nn.Dropout(0.1)

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """Return the next states (B, T, D); `mask` (B, 1, 1, T) is true where a piece stands."""
        size, most, width = hidden.shape
        parts = self.qkv(hidden).view(size, most, 3, ATTENTION_HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(
            parts[0], parts[1], parts[2], attn_mask=mask
        )
        mixed = mixed.transpose(1, 2).reshape(size, most, width)
        hidden = self.mixed(hidden + self.drop(self.out(mixed)))
        inner = functional.gelu(self.wide(hidden), approximate="tanh")
        return self.last(hidden + self.drop(self.narrow(inner)))


class TwoLayers(nn.Module):
    """A head: one hidden layer."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.add_module("in", nn.Linear(inputs, _HIDDEN))
        self.out = nn.Linear(_HIDDEN, classes)
        self.drop = nn.Dropout(0.1)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the logits (N, classes)."""
        inner = functional.gelu(self.get_submodule("in")(inputs), approximate="tanh")
        return self.out(self.drop(inner))


class ReaderNetwork(nn.Module):
    """The encoder and every head."""

    def __init__(self, vocabulary: Sequence[str], *, width: int = 384, layers: int = 6) -> None:
        super().__init__()
        self.vocabulary = tuple(vocabulary)
        self.words = nn.Embedding(len(vocabulary), width)
        self.positions = nn.Parameter(torch.randn(POSITIONS, width) * 0.02)
        self.segments = nn.Parameter(torch.randn(2, width) * 0.02)
        self.enter = nn.LayerNorm(width, eps=_NORM_EPSILON)
        self.layers = nn.ModuleList(Layer(width) for _ in range(layers))
        self.turn = TwoLayers(2 * width, sum(TURN_CLASSES))
        self.value = nn.Linear(width, 2)
        self.old = nn.Linear(width, LIGHT)
        self.new = nn.Linear(width, LIGHT)
        self.near = nn.Linear(width, LIGHT)
        self.light = TwoLayers(4 * LIGHT + EXTRAS, len(RELATIONS))
        self.pair = TwoLayers(2 * width + EXTRAS, len(RELATIONS))

    def forward(self, batch: TextBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Return states (B, T, D), first states beside means (B, 2 D), unit vectors (B, D)."""
        most = batch.rows.shape[1]
        hidden = self.words(batch.rows) + self.positions[:most] + self.segments[batch.segments]
        hidden = self.enter(hidden)
        mask = batch.mask
        for layer in self.layers:
            hidden = layer(hidden, mask[:, None, None, :])
        means = (hidden * mask[:, :, None]).sum(dim=1) / batch.lengths[:, None]
        pooled = torch.cat([hidden[:, 0], means], dim=1)
        return hidden, pooled, functional.normalize(means.float(), dim=1)

    def light_logits(self, old: Tensor, new: Tensor, extras: Tensor) -> Tensor:
        """Return the light head's logits (N, relations) for vectors (N, D) of pairs."""
        old, new = old * old.shape[1] ** 0.5, new * new.shape[1] ** 0.5
        first, second = self.near(old), self.near(new)
        parts = [self.old(old), self.new(new), first * second, (first - second).abs(), extras]
        return self.light(torch.cat(parts, dim=1))


def pretrained(**sizes: int) -> ReaderNetwork:
    """Return all-MiniLM-L6 with new heads, its vocabulary cut to Latin and single characters."""
    folder = packaged_minilm()
    published = (folder / "vocab.txt").read_text(encoding="utf-8").rstrip("\n").split("\n")
    kept = [row for row, piece in enumerate(published) if _is_kept(row, piece)]
    network = ReaderNetwork([published[row] for row in kept], **sizes)
    source = load_file(folder / "model.safetensors")
    embeddings = "embeddings."
    state = network.state_dict()
    state["words.weight"] = source[embeddings + "word_embeddings.weight"][kept]
    state["positions"] = source[embeddings + "position_embeddings.weight"][:POSITIONS]
    state["segments"] = source[embeddings + "token_type_embeddings.weight"]
    for end in ("weight", "bias"):
        state[f"enter.{end}"] = source[f"{embeddings}LayerNorm.{end}"]
        for number in range(len(network.layers)):
            theirs, own = f"encoder.layer.{number}.", f"layers.{number}."
            state[f"{own}qkv.{end}"] = torch.cat(
                [
                    source[f"{theirs}attention.self.{part}.{end}"]
                    for part in ("query", "key", "value")
                ]
            )
            for name, origin in (
                ("out", "attention.output.dense"),
                ("mixed", "attention.output.LayerNorm"),
                ("wide", "intermediate.dense"),
                ("narrow", "output.dense"),
                ("last", "output.LayerNorm"),
            ):
                state[f"{own}{name}.{end}"] = source[f"{theirs}{origin}.{end}"]
    network.load_state_dict(state)
    return network


def quantise(
    matrix: NDArray[np.floating], step: float, moments: NDArray[np.float64] | None = None
) -> tuple[NDArray[np.int8], NDArray[np.float16]]:
    """Return a matrix (out, in) as int8 and the scales (out,) of its rows.

    A scale is `step` times the root mean square of its row. Given the second moments
    (in, in) of what the matrix is multiplied by, the columns that follow make up for the
    rounding of each column (GPTQ, arXiv:2210.17323).
    """
    rest = matrix.astype(np.float64)
    scales = np.maximum(step * np.sqrt(np.mean(rest**2, axis=1)), np.abs(rest).max(axis=1) / 120)
    scales = np.maximum(scales, 1e-6).astype(np.float16)
    wide = scales.astype(np.float64)
    if moments is None:
        return np.rint(rest / wide[:, None]).astype(np.int8), scales
    size = len(moments)
    damped = moments + np.eye(size) * 0.01 * np.trace(moments) / size
    spread = np.linalg.cholesky(np.linalg.inv(damped)).T
    codes = np.zeros(rest.shape, np.int8)
    for column in range(size):
        codes[:, column] = np.clip(np.rint(rest[:, column] / wide), -127, 127)
        fault = (rest[:, column] - codes[:, column] * wide) / spread[column, column]
        rest[:, column + 1 :] -= np.outer(fault, spread[column, column + 1 :])
    return codes, scales


def input_moments(
    network: ReaderNetwork, texts: Iterable[tuple[list[int], list[int]]]
) -> dict[str, NDArray[np.float64]]:
    """Return the second moments (in, in) of what each matrix of the encoder is given."""
    sums: dict[str, Tensor] = {}

    def watch(name: str, inputs: tuple[Tensor, ...]) -> None:
        rows = inputs[0].reshape(-1, inputs[0].shape[-1]).double()
        sums[name] = sums.get(name, 0) + rows.T @ rows

    hooks = [
        module.register_forward_pre_hook(lambda _, inputs, at=name: watch(str(at), inputs))
        for name, module in network.named_modules()
        if name.startswith("layers.") and isinstance(module, nn.Linear)
    ]
    with torch.no_grad():
        for text in texts:
            network(text_batch([text]))
    for hook in hooks:
        hook.remove()
    return {f"{name}.weight": total.numpy() for name, total in sums.items()}


def file_arrays(
    network: ReaderNetwork, texts: Iterable[tuple[list[int], list[int]]] = ()
) -> dict[str, NDArray[np.generic]]:
    """Return the arrays of the network's file; `texts` show what the encoder's matrices get."""
    arrays: dict[str, NDArray[np.generic]] = {
        "vocabulary": np.frombuffer("\n".join(network.vocabulary).encode("utf-8"), np.uint8)
    }
    moments = input_moments(network, texts)
    for name, value in network.state_dict().items():
        array, own = value.detach().numpy(), file_name(name)
        if array.ndim == 2:
            step = next((step for start, step in _STEPS.items() if name.startswith(start)), 0.05)
            arrays[own], arrays[own + SCALE] = quantise(array, step, moments.get(name))
        else:
            arrays[own] = array.astype(np.float16)
    return arrays


def save_network(
    path: Path, arrays: dict[str, NDArray[np.generic]], thresholds: Thresholds
) -> None:
    """Write the file of a network's arrays; equal arrays give equal bytes."""
    bars = (thresholds.states, thresholds.light, thresholds.change, thresholds.proposals)
    bars += thresholds.weights
    buffer = io.BytesIO()  # numpy dates each entry 1980
    np.savez(buffer, allow_pickle=False, **arrays, thresholds=np.array(bars, np.float32))
    # matches of three bytes, which the other strategies take, cost more than their letters
    coder = zlib.compressobj(9, zlib.DEFLATED, 15, 9, zlib.Z_HUFFMAN_ONLY)
    path.write_bytes(coder.compress(buffer.getvalue()) + coder.flush())


def file_name(name: str) -> str:
    """Return the name in the file of a parameter."""
    return "words" if name == "words.weight" else name.replace("layers.", "layer")


def _is_kept(row: int, piece: str) -> bool:
    """Whether a piece stays: a mark, a character, or Latin and (if it begins a word) common."""
    word = piece.removeprefix("##")
    if piece.startswith("["):
        return piece in {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "["}
    if len(word) <= 1:
        return True
    rare = row >= _COMMON and not piece.startswith("##")
    return not rare and all(ord(letter) < 0x250 for letter in word)
