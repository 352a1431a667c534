"""Uncased WordPiece in pure Python: text in, rows of a vocabulary out.

A word is a run of letters and digits, or one other visible character, or one CJK
ideograph. Words are lower-cased, stripped of their accents and cut greedily into the
longest known pieces; continuation pieces are written ``##piece``. On prose the pieces
are those of the uncased BERT tokeniser. The surprise: a symbol outside ASCII (an emoji,
a currency sign) is always its own word here, so that it cannot make the word it touches
unknown, and an unknown word yields no piece at all instead of a shared ``[UNK]``, so
that the caller may tell unknown words apart.

Splitting a word is the slow part and texts repeat their words, so each tokeniser keeps
a bounded memory of words already split.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

_WORD = re.compile(r"[^\W_]+|[^\w\s\x00-\x1f\x7f]|_")
_INVISIBLE = frozenset({"Cf", "Cs", "Co", "Mn"})
_IDEOGRAPHS = ((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x2FA1F))
_LONGEST_WORD = 100
_WORD_MEMORY = 100_000


class WordPiece:
    """A greedy longest-match tokeniser over a fixed vocabulary; safe to share between threads."""

    def __init__(self, vocabulary: Sequence[str]) -> None:
        """Take the pieces in row order; a piece's row is its position."""
        self._rows = {piece: row for row, piece in enumerate(vocabulary)}
        self._split_words: dict[str, tuple[int, ...]] = {}

    def words(self, text: str) -> list[str]:
        """Split text into normalised words, in order.

        Control characters part words; accents and lone surrogates vanish.
        """
        lowered = text.lower()
        if not lowered.isascii():
            lowered = unicodedata.normalize("NFD", lowered).translate(_FOLDING)
        return _WORD.findall(lowered)

    def pieces(self, word: str) -> tuple[int, ...]:
        """Return the rows of one normalised word's pieces, first to last.

        Return () when any part of the word is unknown.
        """
        rows = self._split_words.get(word)
        if rows is None:
            rows = self._split(word)
            if len(self._split_words) >= _WORD_MEMORY:
                self._split_words.clear()
            self._split_words[word] = rows
        return rows

    def _split(self, word: str) -> tuple[int, ...]:
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
