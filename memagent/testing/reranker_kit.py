"""`check_reranker`: whether an object keeps the promises of `Reranker`.

It scores some 40 pairs; mind the bill of a hosted one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from math import isfinite
from typing import cast

from memagent.core.errors import MemAgentError
from memagent.protocols import Reranker

SAME = 1e-4
"""Greatest difference of two scores of a pair: texts of one batch are padded together."""

_QUERY = "What did Maria adopt in March?"
_TEXTS = (
    "Maria adopted a puppy in March.",
    "The quarterly report is due on Friday.",
    "",
    "?!... --",
    "\ud83d half a pair",
    "東京で寿司を食べました",
    "word " * 2_000,
)


async def check_reranker(make: Callable[[], Reranker]) -> None:
    """Check a reranker made by `make`, called twice for fresh objects.

    Raises `AssertionError` naming the broken promise: a stable id; one finite number a
    text and in order, for any text; no texts give []; a pair has the same score alone,
    in a batch, in calls at once and from a fresh object. Errors of memagent's own tree
    pass through.
    """
    reranker, other = make(), make()
    assert reranker.id and not any(letter.isspace() for letter in reranker.id), (
        f"an id must be a word, not {reranker.id!r}"
    )
    assert reranker.id == other.id, (
        f"two objects made alike must share an id: {reranker.id!r} and {other.id!r}"
    )
    assert await _score(reranker, ()) == [], "no texts must give no scores"
    batch = await _score(reranker, _TEXTS)
    for text, score in zip(_TEXTS, batch, strict=True):
        alone = (await _score(reranker, (text,)))[0]
        assert abs(alone - score) <= SAME, (
            f"{text[:40]!r} must get one score, alone or in a batch: {alone} and {score}"
        )
    turned = await _score(reranker, _TEXTS[::-1])
    assert _close(turned[::-1], batch), "scores must come in the order of the texts"
    assert _close(await _score(other, _TEXTS), batch), (
        "a fresh object must give the scores of the first one"
    )
    together = await asyncio.gather(*(_score(reranker, _TEXTS[:3]) for _ in range(4)))
    assert all(_close(scores, batch[:3]) for scores in together), (
        "calls made at once must not mix their texts"
    )


def _close(first: Sequence[float], second: Sequence[float]) -> bool:
    return all(abs(a - b) <= SAME for a, b in zip(first, second, strict=True))


async def _score(reranker: Reranker, texts: Sequence[str]) -> list[float]:
    try:
        scores = cast(object, await reranker.score(_QUERY, texts))
    except MemAgentError:
        raise
    except Exception as error:
        raise AssertionError(
            f"a reranker may raise only ModelErrors; it raised {error!r}"
        ) from error
    assert isinstance(scores, list), (
        f"a reranker must answer with a list, not {type(scores).__name__}"
    )
    numbers = [
        float(score)
        for score in cast("list[object]", scores)
        if isinstance(score, int | float) and isfinite(score)
    ]
    assert len(numbers) == len(texts), (
        f"{len(texts)} texts must give as many finite numbers, not {scores!r:.200}"
    )
    return numbers
