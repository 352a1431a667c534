"""Vectors and vocabulary shared by a bank and all its forks; both only grow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from memagent.protocols import Matrix

NO_ROW: Final = -1
"""Row number of a text that could not be embedded."""


class Arena:
    """Vectors (rows, D) and the vocabulary shared by a bank and all its forks; both only grow."""

    __slots__ = ("_count", "_matrix", "_rows", "_terms", "dim")

    def __init__(self, dim: int) -> None:
        self.dim = dim
        self._matrix: Matrix = np.zeros((0, dim), dtype=np.float32)
        self._count = 0
        self._rows: dict[str, int] = {}
        self._terms: dict[str, int] = {}

    def __len__(self) -> int:
        return self._count

    @property
    def matrix(self) -> Matrix:
        """All rows so far (rows, D)."""
        return self._matrix[: self._count]

    def row(self, text: str) -> int:
        """Return the row of a text, `NO_ROW` when it has none yet."""
        return self._rows.get(text, NO_ROW)

    def put(self, texts: Sequence[str], vectors: Matrix) -> None:
        """Append vectors (N, D) for those texts that have no row yet."""
        need = self._count + len(texts)
        if need > len(self._matrix):
            grown = np.zeros((max(need, 2 * len(self._matrix), 64), self.dim), dtype=np.float32)
            grown[: self._count] = self._matrix[: self._count]
            self._matrix = grown
        for text, vector in zip(texts, vectors, strict=True):
            if self.row(text) == NO_ROW:
                self._matrix[self._count] = vector
                self._rows[text] = self._count
                self._count += 1

    def texts(self) -> dict[str, int]:
        """Return a copy of the texts put in, with their rows."""
        return self._rows.copy()

    def term(self, word: str) -> int:
        """Return the number of a term; a new term gets the next one."""
        return self._terms.setdefault(word, len(self._terms))

    def words(self) -> list[str]:
        """Return the terms in the order of their numbers."""
        return list(self._terms)

    def known_terms(self, words: Iterable[str]) -> list[int]:
        """Return the numbers of those words that any document has used, in their order."""
        return [number for word in words if (number := self._terms.get(word)) is not None]
