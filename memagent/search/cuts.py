"""The cuts at the end of a search: near duplicates, a share of one session, a token budget.

Each function takes hits in their order, best first, and gives positions to keep in that
same order.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Hashable, Sequence
from math import ceil

_FIXED = re.compile(r"\d+|(?<=[\w,] )[A-Z][\w'’-]+")
_CHARS_PER_TOKEN = 4


def fixed_words(text: str) -> tuple[str, ...]:
    """Return the numbers and capitalised words of a text, in which near duplicates agree."""
    return tuple(_FIXED.findall(text))


def word_overlap(words: frozenset[str], others: frozenset[str]) -> float:
    """Return the shared words as a part of all words, 0.0 to 1.0; 0.0 when both are empty."""
    together = len(words | others)
    return len(words & others) / together if together else 0.0


def collapse(
    frames: Sequence[Hashable], alike: Callable[[int, int], bool]
) -> list[tuple[int, tuple[int, ...]]]:
    """Return each position to keep, with the positions that it stands for.

    A hit joins the first better one of the same frame that it is like. A frame holds
    what two hits must share to be compared at all, such as speaker and numbers.
    """
    joined: dict[int, list[int]] = {}
    heads: dict[Hashable, list[int]] = {}
    for at, frame in enumerate(frames):
        rivals = heads.setdefault(frame, [])
        head = next((head for head in rivals if alike(head, at)), None)
        if head is None:
            rivals.append(at)
            joined[at] = []
        else:
            joined[head].append(at)
    return [(head, tuple(others)) for head, others in joined.items()]


def quota(groups: Sequence[Hashable | None], *, most: int) -> list[int]:
    """Return positions of the first `most` of each group; None is no group and always kept."""
    counts: dict[Hashable, int] = {}
    kept: list[int] = []
    for at, group in enumerate(groups):
        if group is not None:
            counts[group] = counts.get(group, 0) + 1
        if group is None or counts[group] <= most:
            kept.append(at)
    return kept


def budget(costs: Sequence[int], *, most: int) -> list[int]:
    """Return positions that fit a budget: each is kept if the rest of the budget pays for it.

    So one long hit does not end the list.
    """
    left = most
    kept: list[int] = []
    for at, cost in enumerate(costs):
        if cost <= left:
            left -= cost
            kept.append(at)
    return kept


def token_estimate(text: str) -> int:
    """Estimate the tokens of a text by its characters; at least 1.

    A token has four characters, or one that is wide (Chinese, Japanese, Korean).
    """
    if text.isascii():
        return max(1, ceil(len(text) / _CHARS_PER_TOKEN))
    wide = sum(1 for char in text if unicodedata.east_asian_width(char) in "WF")
    return max(1, wide + ceil((len(text) - wide) / _CHARS_PER_TOKEN))
