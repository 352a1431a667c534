"""The difference between two texts, word by word. Pure.

Words keep the space behind them, so a changed word is shown with its own space.
Beginnings and ends that are equal are set aside first; what lies between is compared up
to `_MOST_WORDS` a side, and shown as one replacement beyond, since comparing grows with
the square.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from itertools import groupby, takewhile
from typing import Final, Literal, NamedTuple

_WORD = re.compile(r"\s+|\w+\s*|[^\w\s]\s*")
_MOST_WORDS: Final = 1_500
Kind = Literal["same", "del", "ins"]


class Piece(NamedTuple):
    """A stretch of text that stayed, went or came."""

    kind: Kind
    text: str


def word_diff(before: str, after: str) -> list[Piece]:
    """Return the pieces of both texts in order.

    `same` and `del` together are `before`, `same` and `ins` are `after`.
    """
    old, new = _WORD.findall(before), _WORD.findall(after)
    head = _common(old, new)
    tail = _common(old[head:][::-1], new[head:][::-1])
    pieces = [
        Piece("same", "".join(old[:head])),
        *_between(old[head : len(old) - tail], new[head : len(new) - tail]),
        Piece("same", "".join(old[len(old) - tail :])),
    ]
    filled = (piece for piece in pieces if piece.text)
    groups = groupby(filled, key=_kind)
    return [Piece(kind, "".join(piece.text for piece in group)) for kind, group in groups]


def _kind(piece: Piece) -> Kind:
    return piece.kind


def _common(old: list[str], new: list[str]) -> int:
    """Count the words at the beginning that are equal."""
    pairs = zip(old, new, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _between(old: list[str], new: list[str]) -> Iterator[Piece]:
    changes = [("replace", 0, len(old), 0, len(new))]
    if max(len(old), len(new)) <= _MOST_WORDS:
        changes = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    for kind, start, end, into, until in changes:
        if kind == "equal":
            yield Piece("same", "".join(old[start:end]))
        else:
            yield Piece("del", "".join(old[start:end]))
            yield Piece("ins", "".join(new[into:until]))
