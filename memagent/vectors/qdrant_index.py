"""A vector index in Qdrant: one collection for all users, kept apart by tenant.

The tenant stands in every point and every filter.

Qdrant proposes, exactly and not by its approximate graph (none is built), and the index
decides: it checks that candidates are rows of this scope that pass the filter, and
scores them again in float64 from their vectors, ties by id, so the order is the same as
the numpy index's. It fetches more candidates while the last one of the answer ties with
the last one fetched. Writes wait until they are applied, and go in bounded batches. A
row that the search does not cover is left out, counted and logged without its text. The
surprise: beside its items a scope has one point that is no item, the mark, which tells
what journal sequence the rows are level with (see `projection`).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from memagent.core.answers import Filter, Hit
from memagent.core.errors import ConfigError, EmbeddingError, StoreError
from memagent.core.records import Scope
from memagent.protocols import IndexRow, Vector
from memagent.search.scoring import Scored, cosine_hits, ordered
from memagent.vectors.projection import Applied, Proposal
from memagent.vectors.qdrant_calls import Calls, CollectionGone, Patience

if TYPE_CHECKING:
    from qdrant_client import AsyncQdrantClient

T = TypeVar("T")
_log = logging.getLogger(__name__)
_MARGIN: Final = 16
_MOST: Final = 16_384
_PAGE: Final = 1_000


class QdrantIndex:
    """`AppliedIndex` of one scope over a `qdrant_client.AsyncQdrantClient`."""

    def __init__(
        self,
        client: AsyncQdrantClient | Calls,
        *,
        dim: int | None = None,
        scope: Scope | None = None,
        collection: str = "memagent",
    ) -> None:
        """Open the index; `dim` None takes the width of the first vector written."""
        from memagent.vectors.qdrant_points import Points

        self._calls = client if isinstance(client, Calls) else Calls.over(client)
        self._points = Points(scope or Scope())
        self._collection = _Collection(self._calls, collection, dim)
        # Rows returned that the search does not cover: another user's, or outside the
        # filter.
        self.dropped = 0

    @classmethod
    def connect(
        cls,
        url: str,
        *,
        api_key: str | None = None,
        collection: str = "memagent",
        scope: Scope | None = None,
        patience: Patience | None = None,
    ) -> QdrantIndex:
        """Open the index on a server, over the one client that an event loop has for it.

        Raises `MissingExtra` without qdrant-client.
        """
        calls = Calls.to(url, api_key=api_key, patience=patience)
        return cls(calls, scope=scope, collection=collection)

    # -- a vector index ----------------------------------------------------------------

    async def upsert(self, rows: Sequence[IndexRow]) -> None:
        """Write rows in batches; a row of the same item replaces the older one.

        Raises `EmbeddingError`, `StoreUnavailable`.
        """
        await self._upsert(rows, seq=0)

    async def remove(self, ids: Sequence[str]) -> None:
        """Take items out; unknown ids are ignored."""
        await self._remove(ids, seq=None)

    async def search(self, vector: Vector, *, k: int, where: Filter | None = None) -> list[Hit]:
        """Return the k best by cosine, ties by id; [] when the collection does not exist yet."""
        return (await self.candidates(vector, k=k, where=where)).hits

    # -- an applied index --------------------------------------------------------------

    async def applied(self) -> tuple[Applied | None, int]:
        """Return the mark and the true number of the scope's rows.

        (None, 0) without a collection.
        """
        if not await self._collection.exists():
            return None, 0

        async def read(client: AsyncQdrantClient) -> tuple[Applied | None, int]:
            points, _ = await client.scroll(
                self._collection.name,
                scroll_filter=self._points.within(row="mark"),
                limit=1,
                with_payload=True,
                with_vectors=False,
            )
            rows = await client.count(
                self._collection.name, count_filter=self._points.within(), exact=True
            )
            return self._points.mark_in(points), rows.count

        try:
            return await self._collection.ask("reading what is applied", read)
        except CollectionGone:
            return None, 0

    async def inventory(self) -> dict[str, int] | None:
        """Return item ids with their checks.

        None when a point of the scope is neither an item of ours nor there once.
        """
        checks: dict[str, int] = {}
        if not await self._collection.exists():
            return checks
        offset: Any = None
        while True:

            async def page(
                client: AsyncQdrantClient, offset: Any = offset
            ) -> tuple[list[Any], Any]:
                return await client.scroll(
                    self._collection.name,
                    scroll_filter=self._points.within(),
                    limit=_PAGE,
                    offset=offset,
                    with_payload=["tenant", "item_id", "check"],
                    with_vectors=False,
                )

            points, offset = await self._collection.ask("listing rows", page)
            for point in points:
                payload: dict[str, Any] = point.payload or {}
                if payload.get("tenant") != self._points.tenant:
                    self._drop(1)
                    continue
                item_id, check = payload.get("item_id"), payload.get("check")
                if (
                    not isinstance(item_id, str)
                    or not isinstance(check, str)
                    or point.id != self._points.id_of(item_id)
                ):
                    return None
                checks[item_id] = int(check, 16)
            if offset is None:
                return checks

    async def write(
        self, rows: Sequence[IndexRow], gone: Sequence[str], *, applied: Applied
    ) -> None:
        """Write rows, take ids out, and store the mark last.

        Nothing replaces or removes what came from a later sequence.
        """
        await self._upsert(rows, seq=applied.seq)
        await self._remove(gone, seq=applied.seq)
        if self._collection.dim is None and not await self._collection.exists():
            return  # nothing was ever embedded, so there is nothing to mark
        mark = self._points.mark(applied, self._collection.dim or 1)
        older = self._points.within(row="mark", up_to=applied.seq)
        await self._put("marking what is applied", [mark], older)

    async def clear(self) -> None:
        """Remove every row of the scope, and the mark."""
        if await self._collection.exists():
            await self._collection.delete("emptying", self._points.all())

    async def candidates(self, vector: Vector, *, k: int, where: Filter | None = None) -> Proposal:
        """Search, and read the mark in the same request."""
        if not await self._collection.exists():
            return Proposal([], None)
        if vector.shape != (self._collection.dim,):
            raise EmbeddingError(
                f"the query vector has shape {vector.shape}, "
                f"the collection {self._collection.name!r} holds width {self._collection.dim}"
            )
        limit = k + _MARGIN
        while True:
            try:
                scored, count, mark = await self._nearest(vector, limit, where)
            except CollectionGone:
                return Proposal([], None)
            best = ordered(scored, k)
            if (
                count < limit
                or limit >= _MOST
                or len(best) < k
                or best[-1][1] > ordered(scored, len(scored))[-1][1]
            ):
                return Proposal(cosine_hits(best), mark, count - len(scored))
            limit = min(4 * limit, _MOST)

    async def _nearest(
        self, vector: Vector, limit: int, where: Filter | None
    ) -> tuple[list[Scored], int, Applied | None]:
        """Return rows with their scores, the number of points that came back, and the mark."""
        requests = self._points.nearest(vector, limit=limit, where=where, exact=self._calls.exact)

        async def query(client: AsyncQdrantClient) -> tuple[list[Scored], int, Applied | None]:
            near, marks = await client.query_batch_points(self._collection.name, requests=requests)
            rows = (self._points.scored(point, vector, where) for point in near.points)
            scored = [row for row in rows if row is not None]
            return scored, len(near.points), self._points.mark_in(marks.points)

        scored, count, mark = await self._collection.ask("searching", query)
        if count > len(scored):
            self._drop(count - len(scored))
        return scored, count, mark

    def _drop(self, count: int) -> None:
        self.dropped += count
        _log.warning(
            "Qdrant returned %d points that were not asked for from collection %r; "
            "nothing of them was shown",
            count,
            self._collection.name,
        )

    async def _upsert(self, rows: Sequence[IndexRow], *, seq: int) -> None:
        if not rows:
            return
        dim = await self._collection.prepare(rows[0].vector.shape[0])
        for row in rows:
            if row.vector.shape != (dim,):
                raise EmbeddingError(
                    f"item {row.item.id} has a vector of shape {row.vector.shape}, "
                    f"the collection {self._collection.name!r} holds width {dim}; "
                    "embed the store again with `memagent reembed`"
                )
        older = self._points.within(row="item", up_to=seq) if seq else None
        for batch in self._points.batches(rows, seq):
            await self._put("writing rows", batch, older)

    async def _put(self, doing: str, points: list[Any], older: Any) -> None:
        """Write points; stored ones are replaced only where they pass the filter `older`."""

        async def put(client: AsyncQdrantClient) -> None:
            await client.upsert(
                self._collection.name, points=points, wait=True, update_filter=older
            )

        await self._collection.ask(doing, put)

    async def _remove(self, ids: Sequence[str], *, seq: int | None) -> None:
        if not ids or not await self._collection.exists():
            return
        for start in range(0, len(ids), _PAGE):
            page = self._points.among(ids[start : start + _PAGE], up_to=seq)
            await self._collection.delete("removing rows", page)


class _Collection:
    """The collection on the server: looked for, created once, and asked."""

    def __init__(self, calls: Calls, name: str, dim: int | None) -> None:
        self._calls, self.name, self.dim = calls, name, dim
        self._ready = self._prepared = False

    async def ask(self, doing: str, call: Callable[[AsyncQdrantClient], Awaitable[T]]) -> T:
        try:
            return await self._calls.ask(doing, call)
        except CollectionGone:
            self._ready = self._prepared = False
            raise

    async def delete(self, doing: str, selector: Any) -> None:
        await self.ask(doing, lambda client: client.delete(self.name, selector, wait=True))

    async def exists(self) -> bool:
        if not self._ready:
            self._ready = await self.ask("looking for the collection", self._look)
        return self._ready

    async def _look(self, client: AsyncQdrantClient) -> bool:
        if not await client.collection_exists(self.name):
            return False
        params: Any = (await client.get_collection(self.name)).config.params.vectors
        if isinstance(params, dict) or params is None or str(params.distance.value) != "Dot":
            raise ConfigError(
                f"the Qdrant collection {self.name!r} holds other data; "
                "set index.collection to another name"
            )
        self.dim = int(params.size)
        return True

    async def prepare(self, dim: int) -> int | None:
        """Create the collection and its payload indexes unless they exist; return its width.

        Several processes may do so at once.
        """
        if self._prepared:
            return self.dim
        from memagent.vectors.qdrant_points import INDEXED, collection_of

        if not await self.exists():
            vectors = collection_of(self.dim or dim)

            async def create(client: AsyncQdrantClient) -> None:
                if not await client.collection_exists(self.name):
                    await client.create_collection(self.name, vectors_config=vectors)

            try:
                await self.ask("making the collection", create)
            except StoreError:
                if not await self.exists():  # unless another process was first
                    raise
            await self.exists()
        for field, schema in INDEXED.items():
            await self.ask(
                "indexing a field",
                lambda client, field=field, schema=schema: client.create_payload_index(
                    self.name, field_name=field, field_schema=schema, wait=True
                ),
            )
        self._prepared = True
        return self.dim
