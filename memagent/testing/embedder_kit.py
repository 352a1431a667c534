"""`check_embedder`: whether an object keeps the promises of `Embedder`.

About 120 short texts are embedded and one of 10,000 characters three times, so mind the
bill of a hosted one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from memagent.core.errors import MemAgentError
from memagent.protocols import Embedder, Matrix

SAME = 1e-5
"""Greatest difference of two vectors of one text, in any coordinate."""
UNIT = 1e-3
"""Greatest deviation of a row's length from one."""
CONCURRENT_CALLS = 8
SHORT = 8

_PLAIN = (
    "Maria adopted a puppy in March.",
    "The quarterly report is due on Friday.",
    "We hiked the northern trail before breakfast.",
)
_HARD = (
    "",
    " \n\t ",
    "?!... --",
    "\x00\x07\x1b",
    "\u200b\ufeff",
    "\ud83d",
    "half \udc00 a pair",
    "🍕👩‍👩‍👧🇳🇴",
    "Ærøskøbing, Ångström, naïve, İstanbul",
    "東京で寿司を食べました",
    "यह हिन्दी में है",
    "qzx" * 100,
    "word " * 2_000,
)


async def check_embedder(make: Callable[[], Embedder]) -> None:
    """Check an embedder made by `make`, called twice for fresh objects.

    Raises `AssertionError` naming the broken promise: a stable id and dim; float32 rows
    of unit length, one a text and in order; any text embeds, the empty one, broken
    Unicode and 10,000 characters among them; no texts give (0, dim); a text has the
    same vector alone, in a batch, in `CONCURRENT_CALLS` calls at once and from a fresh
    object. Errors of memagent's own tree (no key, no network) pass through.
    """
    embedder, other = make(), make()
    _check_name(embedder, other)
    nothing = await _embed(embedder, ())
    assert nothing.shape == (0, embedder.dim), (
        f"no texts must give a matrix of shape {(0, embedder.dim)}, not {nothing.shape}"
    )
    texts = (*_PLAIN, *_HARD, _PLAIN[0])
    batch = await _embed(embedder, texts)
    _check_same(batch[0], batch[-1], "a text that occurs twice in a batch must get one vector")
    await _check_order(embedder, texts, batch)
    _check_same(
        await _embed(other, texts), batch, "a fresh object must give the vectors of the first one"
    )
    await _check_concurrency(embedder, texts[:SHORT], batch[:SHORT])
    assert (embedder.id, embedder.dim) == (other.id, other.dim), (
        "id and dim must not change with use"
    )


def _check_name(embedder: Embedder, other: Embedder) -> None:
    assert embedder.id and not any(letter.isspace() for letter in embedder.id), (
        f"an id must be a word, as it is part of cache keys; it is {embedder.id!r}"
    )
    assert embedder.dim >= 1, f"dim must be positive, not {embedder.dim!r}"
    names = (embedder.id, embedder.dim), (other.id, other.dim)
    assert names[0] == names[1], (
        f"two objects made alike must share id and dim: {names[0]} and {names[1]}"
    )


async def _check_order(embedder: Embedder, texts: Sequence[str], batch: Matrix) -> None:
    for position, text in enumerate(texts):
        alone = await _embed(embedder, (text,))
        _check_same(
            alone[0],
            batch[position],
            f"{text[:40]!r} must get one vector, alone or as text {position} of a batch",
        )
    similar = batch[: len(_PLAIN)] @ batch[: len(_PLAIN)].T
    assert float((similar - np.eye(len(_PLAIN))).max()) <= 1.0 - 1e-3, (
        "different sentences must get different vectors"
    )


async def _check_concurrency(embedder: Embedder, texts: Sequence[str], batch: Matrix) -> None:
    shifts = [position % len(texts) for position in range(CONCURRENT_CALLS)]
    answers = await asyncio.gather(
        *(_embed(embedder, (*texts[shift:], *texts[:shift])) for shift in shifts)
    )
    for shift, answer in zip(shifts, answers, strict=True):
        _check_same(
            np.roll(answer, shift, axis=0), batch, "calls made at once must not mix their texts"
        )


def _check_same(first: Matrix, second: Matrix, promise: str) -> None:
    gap = float(np.abs(first - second).max())
    assert gap <= SAME, f"{promise}; two differ by {gap:.2g}"


async def _embed(embedder: Embedder, texts: Sequence[str]) -> Matrix:
    try:
        rows = cast(object, await embedder.embed(texts))
    except MemAgentError:
        raise
    except Exception as error:
        raise AssertionError(
            f"an embedder may raise only EmbeddingErrors; it raised {error!r}"
        ) from error
    assert isinstance(rows, np.ndarray), (
        f"an embedder must answer with a matrix, not {type(rows).__name__}"
    )
    matrix = cast(npt.NDArray[Any], rows)
    assert matrix.dtype == np.float32, f"an embedder must answer in float32, not {matrix.dtype}"
    assert matrix.shape == (len(texts), embedder.dim), (
        f"{len(texts)} texts must give shape {(len(texts), embedder.dim)}, not {matrix.shape}"
    )
    lengths = np.sqrt((matrix.astype(np.float64) ** 2).sum(axis=1))
    for text, length in zip(texts, lengths, strict=True):
        assert abs(length - 1.0) <= UNIT, (
            f"every row must be a unit vector; {text[:40]!r} got length {length:.4g}"
        )
    return matrix
