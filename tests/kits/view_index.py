"""A vector index in memory over an `IndexView`, for the tests of the contract."""

from __future__ import annotations

from collections.abc import Sequence

from memagent.core.answers import Filter, Hit
from memagent.core.errors import EmbeddingError
from memagent.protocols import IndexRow, Vector
from memagent.search.index import IndexView, Scoring, cosine_hits
from memagent.search.segments import Arena, Doc, make_doc


class ViewIndex:
    """`VectorIndex` in memory: exact cosine over all rows that pass the filter."""

    def __init__(self, dim: int) -> None:
        self._view = IndexView(Arena(dim))
        self._serial = 0

    async def upsert(self, rows: Sequence[IndexRow]) -> None:
        """Write rows; a row of the same item replaces the older one."""
        arena = self._view.arena
        docs: dict[str, Doc] = {}
        for row in rows:
            if row.vector.shape != (arena.dim,):
                raise EmbeddingError(f"item {row.item.id} has a vector of another width")
            self._serial += 1
            key = f"{row.item.id}\x1f{self._serial}"
            arena.put([key], row.vector[None, :])
            docs[row.item.id] = make_doc(row.item, (key, ""), ((), ()), arena)
        self._view = self._view.put(list(docs.values()))

    async def remove(self, ids: Sequence[str]) -> None:
        """Take items out; unknown ids are ignored."""
        self._view = self._view.drop(ids)

    async def search(self, vector: Vector, *, k: int, where: Filter | None = None) -> list[Hit]:
        """Return the k best by cosine, ties by id."""
        scoring = Scoring(self._view, vector=vector)
        return cosine_hits(scoring.listed(scoring.cosines(k=k, where=where)))
