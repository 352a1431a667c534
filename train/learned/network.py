"""The network of `memagent.designs.parts.learned` in torch, for training."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from memagent.designs.parts.learned.labels import ACTS, BOUNDS, KINDS, ROLES, SUBJECTS
from memagent.designs.parts.learned.network import BLOCKS
from memagent.designs.parts.learned.tokens import BUCKETS, DIM, FLAGS

HIDDEN = 96
KEY = 32
_WORDS = 64
_STRINGS = 24


@dataclass(frozen=True)
class TokenBatch:
    """B windows of T tokens, padded."""

    vectors: Tensor  # (B, T, DIM)
    hashes: Tensor  # (B, T, HASHES)
    flags: Tensor  # (B, T, FLAGS)
    mask: Tensor  # (B, T) ones where a token is


class Encoder(nn.Module):
    """Token and statement heads over dilated convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Linear(DIM, _WORDS, bias=False)
        self.strings = nn.Embedding(BUCKETS + 1, _STRINGS)
        nn.init.normal_(self.strings.weight, std=0.3)
        self.enter = nn.Linear(_WORDS + _STRINGS + len(FLAGS), HIDDEN)
        self.norms = nn.ModuleList(nn.LayerNorm(HIDDEN) for _ in BLOCKS)
        self.convs = nn.ModuleList(
            nn.Conv1d(HIDDEN, HIDDEN, 3, padding=dilation, dilation=dilation) for dilation in BLOCKS
        )
        self.last = nn.LayerNorm(HIDDEN)
        self.bounds = nn.Linear(HIDDEN, len(BOUNDS))
        self.roles = nn.Linear(HIDDEN, len(ROLES))
        self.clause = nn.Linear(3 * HIDDEN, HIDDEN)
        self.act = nn.Linear(HIDDEN, len(ACTS))
        self.kind = nn.Linear(HIDDEN, len(KINDS))
        self.subject = nn.Linear(HIDDEN, len(SUBJECTS))
        self.key = nn.Linear(HIDDEN, KEY, bias=False)
        self.drop = nn.Dropout(0.15)

    def forward(self, batch: TokenBatch) -> Tensor:
        """Return the vectors (B, T, HIDDEN) of the tokens."""
        mask = batch.mask[:, :, None]
        strings = self.strings(batch.hashes).mean(dim=2)
        words = self.words(batch.vectors)
        hidden = functional.relu(self.enter(torch.cat([words, strings, batch.flags], dim=2))) * mask
        for norm, conv in zip(self.norms, self.convs, strict=True):
            normed = (norm(hidden) * mask).transpose(1, 2)
            hidden = hidden + self.drop(functional.relu(conv(normed)).transpose(1, 2)) * mask
        return self.last(hidden)

    def pooled(self, hidden: Tensor, rows: Tensor, inside: Tensor, starts: Tensor) -> Tensor:
        """Return the inner vectors (N, HIDDEN) of N statements.

        `rows` (N,) is the window of each, `inside` (N, T) marks its tokens and `starts`
        (N,) is its first.
        """
        tokens = hidden[rows]
        weight = inside[:, :, None]
        mean = (tokens * weight).sum(dim=1) / weight.sum(dim=1)
        most = tokens.masked_fill(weight == 0, -1e4).amax(dim=1)
        first = tokens[torch.arange(len(starts)), starts]
        return self.drop(functional.relu(self.clause(torch.cat([first, mean, most], dim=1))))


class PairScorer(nn.Sequential):
    """Logits of (the same, replaced) from the features of a pair."""

    def __init__(self, features: int, hidden: int = 48) -> None:
        super().__init__(nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, 2))


def save_weights(path: Path, encoder: Encoder, pairs: PairScorer | None) -> None:
    """Write the weights as one `.npz` in half precision, byte for byte the same each time."""
    arrays = {name: value.detach().numpy() for name, value in encoder.state_dict().items()}
    if pairs is not None:
        arrays |= {
            f"pair.{name}": value.detach().numpy() for name, value in pairs.state_dict().items()
        }
    half = {name: array.astype(np.float16) for name, array in arrays.items()}
    np.savez(path, **half)  # a zip without times of its own: numpy writes 1980 into each entry


def load_encoder(path: Path) -> Encoder:
    """Return the encoder of a file of weights, as inference sees it."""
    encoder = Encoder()
    with np.load(path, allow_pickle=False) as arrays:
        own = {
            name: torch.from_numpy(arrays[name].astype(np.float32)) for name in encoder.state_dict()
        }
    encoder.load_state_dict(own)
    return encoder.eval()
