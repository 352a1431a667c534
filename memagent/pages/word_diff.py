"""What changed between two texts, word by word. Pure.

Words keep the space behind them, so a changed word is shown with its own space.
Beginnings and ends that are equal are set aside first; what lies between is compared up
to `_MOST_WORDS` a side, and shown as one replacement beyond, since comparing grows with
the square.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Final, Literal, NamedTuple

_WORD = re.compile(r"\s+|\w+\s*|[^\w\s]\s*")
_MOST_WORDS: Final = 1_500


class Piece(NamedTuple):
    """A stretch of text that stayed, went or came."""

    kind: Literal["same", "del", "ins"]
    text: str


def word_diff(before: str, after: str) -> list[Piece]:
    """The pieces of both texts in order: `same` and `del` together are `before`, `same`
    and `ins` are `after`.
    """
    old, new = _WORD.findall(before), _WORD.findall(after)
    head = _common(old, new)
    tail = _common(old[head:][::-1], new[head:][::-1])
    pieces = [Piece("same", "".join(old[:head]))]
    pieces += _between(old[head : len(old) - tail], new[head : len(new) - tail])
    pieces.append(Piece("same", "".join(old[len(old) - tail :])))
    return _joined(pieces)


def _common(old: list[str], new: list[str]) -> int:
    count = 0
    for one, other in zip(old, new, strict=False):
        if one != other:
            break
        count += 1
    return count


def _between(old: list[str], new: list[str]) -> Iterator[Piece]:
    if max(len(old), len(new)) > _MOST_WORDS:
        yield Piece("del", "".join(old))
        yield Piece("ins", "".join(new))
        return
    for what, start, end, into, until in SequenceMatcher(
        None, old, new, autojunk=False
    ).get_opcodes():
        if what == "equal":
            yield Piece("same", "".join(old[start:end]))
        else:
            yield Piece("del", "".join(old[start:end]))
            yield Piece("ins", "".join(new[into:until]))


def _joined(pieces: list[Piece]) -> list[Piece]:
    """The pieces without empty ones, neighbours of one kind put together."""
    found: list[Piece] = []
    for piece in pieces:
        if piece.text and found and found[-1].kind == piece.kind:
            found[-1] = Piece(piece.kind, found[-1].text + piece.text)
        elif piece.text:
            found.append(piece)
    return found
