"""Likeness of single words, by the vectors of the shipped word-piece table.

A question says "automobile" where the statement says "car". A search compares whole
texts; here each word of a question meets each content word of a text. The table is read
once a process (about 20 ms), a word's vector is made once and remembered, and a
question costs one product over the distinct words of its hits. The surprise: the table
is the shipped one whatever embedder the memory has, because a remote embedder would be
asked for single words and because the weights of `certainty` were fitted to it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from threading import Lock

import numpy as np
import numpy.typing as npt

from memagent.embed.static import open_table
from memagent.state.tokens import tokenize

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
_MOST_WORDS = 50_000
Likeness = npt.NDArray[np.float32]


class _Vectors:
    """Unit vectors of the words met so far, a row each; row 0 is that of unknown words."""

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}
        self.matrix = np.zeros((1_024, open_table().vectors.shape[1]), np.float32)
        self.lock = Lock()

    def rows_of(self, words: Sequence[str]) -> list[int]:
        """Return the row of each word, made when it is new."""
        with self.lock:
            return [
                row if (row := self.rows.get(word)) is not None else self._add(word)
                for word in words
            ]

    def _add(self, word: str) -> int:
        table = open_table()
        pieces = list(table.tokeniser.pieces(word))
        vector = table.scales[pieces] @ table.vectors[pieces].astype(np.float32)
        length = float(np.linalg.norm(vector)) if pieces else 0.0
        at = 0
        if length > 1e-6:
            at = 1 + len(self.rows)
            if at >= len(self.matrix):
                self.matrix = np.concatenate([self.matrix, np.zeros_like(self.matrix)])
            self.matrix[at] = vector / length
        self.rows[word] = at
        return at


@lru_cache(maxsize=1)
def _vectors() -> _Vectors:
    return _Vectors()


@lru_cache(maxsize=16_384)
def _content_words(text: str) -> tuple[str, ...]:
    """Return the distinct words of a text without stop words, in lower case."""
    words = dict.fromkeys(match.group().lower() for match in _WORD.finditer(text))
    return tuple(word for word in words if tokenize(word))


def words_of(text: str) -> dict[str, str]:
    """Return the words of a text, in lower case, by their index terms."""
    return {terms[0]: word for word in _content_words(text) if len(terms := tokenize(word)) == 1}


def likeness(words: Sequence[str], texts: Sequence[str]) -> Likeness:
    """Return the cosine of each word to the nearest word of each text, 0 to 1.

    Shape (N texts, W words). A word or text that the table does not know gives 0.
    """
    found = np.zeros((len(texts), len(words)), np.float32)
    if not words or not texts:
        return found
    if len(_vectors().rows) > _MOST_WORDS:
        _vectors.cache_clear()
    known = _vectors()
    asked = known.rows_of(words)
    rows = [known.rows_of(_content_words(text)) for text in texts]
    distinct = sorted({row for line in rows for row in line} | {0})
    place = {row: at for at, row in enumerate(distinct)}
    cosines = known.matrix[distinct] @ known.matrix[asked].T
    filled = [at for at, line in enumerate(rows) if line]
    if filled:
        starts = np.cumsum([0, *(len(rows[at]) for at in filled[:-1])])
        places = [place[row] for at in filled for row in rows[at]]
        found[filled] = np.maximum.reduceat(cosines[places], starts, axis=0)
    return np.maximum(found, 0.0)
