"""The network in numpy: tokens in, parts and classes out.

Dilated convolutions over the tokens of a window (`BLOCKS` of width 3), then linear heads
a token (bounds, roles) and a statement (act, kind, subject, key). `train.learned` has
the same network in torch; a test holds both to 1e-3. The weights are one `.npz` of half
precision whose digest is the network's name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any, Final
from zipfile import BadZipFile

import numpy as np

from memagent.core.errors import ConfigError
from memagent.designs.parts.learned.tokens import Floats, TokenRows

WEIGHTS_FILE: Final = Path(__file__).parent / "weights.npz"
BLOCKS: Final = (1, 2, 4, 8)
"""Dilations of the convolutions, in order."""
_EPSILON: Final = 1e-5


@dataclass(frozen=True, eq=False)
class Network:
    """The weights by name, in float32."""

    weights: Mapping[str, Floats]
    digest: str
    """SHA-256 of the file."""


@dataclass(frozen=True, slots=True)
class TokenOutput:
    """The outputs for each of T tokens."""

    hidden: Floats
    """(T, H)."""
    bounds: Floats
    """(T, len(BOUNDS)) probabilities."""
    roles: Floats
    """(T, len(ROLES)) probabilities."""


@dataclass(frozen=True, slots=True)
class ClauseOutput:
    """The outputs for a statement."""

    act: Floats
    """(len(ACTS),) probabilities."""
    kind: Floats
    """(len(KINDS),) probabilities."""
    subject: Floats
    """(len(SUBJECTS),) probabilities."""
    key: Floats
    """(K,) unit vector; statements of one relation have near keys."""


@lru_cache(maxsize=4)
def open_network(path: Path = WEIGHTS_FILE) -> Network:
    """Read the weights (about 20 ms). Raises `ConfigError` for a file that is none."""
    weights, digest = read_arrays(path)
    for number in range(len(BLOCKS)):
        weight = weights[f"convs.{number}.weight"]  # (out, in, 3)
        weights[f"convs.{number}.flat"] = np.ascontiguousarray(
            weight.transpose(2, 1, 0).reshape(-1, weight.shape[0])
        )  # (3 * in, out)
    return Network(weights, digest)


def read_arrays(path: Path) -> tuple[dict[str, Any], str]:
    """Return the arrays of a file by name, numbers in float32, and the file's digest.

    Raises `ConfigError` for a file that is none.
    """
    try:
        data = path.read_bytes()
        with np.load(BytesIO(data), allow_pickle=False) as arrays:
            found = {name: arrays[name] for name in arrays.files}
    except (OSError, ValueError, KeyError, BadZipFile) as exc:
        remedy = "reinstall memagent" if path == WEIGHTS_FILE else "fit them again"
        raise ConfigError(
            f"the weights in {path} cannot be read ({type(exc).__name__}: {exc}); {remedy}"
        ) from exc
    numbers = {
        name: array.astype(np.float32) if array.dtype.kind == "f" else array
        for name, array in found.items()
    }
    return numbers, hashlib.sha256(data).hexdigest()


def read_tokens(network: Network, rows: Sequence[TokenRows]) -> list[TokenOutput]:
    """Run the network over windows, all in one batch."""
    if not rows:
        return []
    w = network.weights
    lengths = [len(row.words) for row in rows]
    pad = max(BLOCKS)
    # Windows stand in one row with gaps as wide as the widest reach between them.
    starts = np.cumsum([pad, *(length + pad for length in lengths)])[:-1]
    total = int(starts[-1]) + lengths[-1] + pad
    mask = np.zeros((total, 1), dtype=np.float32)
    entry = np.zeros((total, w["enter.weight"].shape[1]), dtype=np.float32)
    for start, row in zip(starts, rows, strict=True):
        end = start + len(row.words)
        mask[start:end] = 1.0
        words = row.vectors @ w["words.weight"].T
        strings = w["strings.weight"][row.hashes].mean(axis=1)
        entry[start:end] = np.concatenate([words, strings, row.flags], axis=1)
    hidden = np.maximum(entry @ w["enter.weight"].T + w["enter.bias"], 0.0) * mask
    for number, dilation in enumerate(BLOCKS):
        hidden = hidden + _convolved(w, number, dilation, hidden, mask)
    hidden = _normed(hidden, w["last.weight"], w["last.bias"])
    bounds = softmax(hidden @ w["bounds.weight"].T + w["bounds.bias"])
    roles = softmax(hidden @ w["roles.weight"].T + w["roles.bias"])
    return [
        TokenOutput(hidden[start:end], bounds[start:end], roles[start:end])
        for start, end in (
            (start, start + length) for start, length in zip(starts, lengths, strict=True)
        )
    ]


def _convolved(
    w: Mapping[str, Floats], number: int, dilation: int, hidden: Floats, mask: Floats
) -> Floats:
    normed = _normed(hidden, w[f"norms.{number}.weight"], w[f"norms.{number}.bias"]) * mask
    length, width = normed.shape
    stacked = np.zeros((length, 3 * width), dtype=np.float32)
    stacked[dilation:, :width] = normed[:-dilation]
    stacked[:, width : 2 * width] = normed
    stacked[:-dilation, 2 * width :] = normed[dilation:]
    output = stacked @ w[f"convs.{number}.flat"] + w[f"convs.{number}.bias"]
    return np.maximum(output, 0.0, out=output) * mask


def _normed(x: Floats, weight: Floats, bias: Floats) -> Floats:
    centred = x - x.mean(axis=1, keepdims=True)
    spread = np.sqrt((centred * centred).mean(axis=1, keepdims=True) + _EPSILON)
    return centred / spread * weight + bias


def softmax(x: Floats) -> Floats:
    """Return the softmax over the last axis."""
    exped = np.exp(x - x.max(axis=-1, keepdims=True))
    return exped / exped.sum(axis=-1, keepdims=True)


def read_clause(network: Network, hidden: Floats) -> ClauseOutput:
    """Read the classes of a statement off the vectors (T, H) of its tokens."""
    w = network.weights
    pooled = np.concatenate([hidden[0], hidden.mean(axis=0), hidden.max(axis=0)])
    inner = np.maximum(w["clause.weight"] @ pooled + w["clause.bias"], 0.0)
    key = w["key.weight"] @ inner
    return ClauseOutput(
        act=softmax(w["act.weight"] @ inner + w["act.bias"]),
        kind=softmax(w["kind.weight"] @ inner + w["kind.bias"]),
        subject=softmax(w["subject.weight"] @ inner + w["subject.bias"]),
        key=key / max(float(np.linalg.norm(key)), 1e-6),
    )


def pair_scores(network: Network, features: Floats) -> Floats:
    """Return the logits (N, 2) of pairs (N, F): the same statement, or one that it replaces."""
    w = network.weights
    inner = np.maximum(features @ w["pair.0.weight"].T + w["pair.0.bias"], 0.0)
    return inner @ w["pair.2.weight"].T + w["pair.2.bias"]
