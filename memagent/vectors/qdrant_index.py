"""A vector index in Qdrant: one collection for all users, the tenant in every point and
every filter.

Qdrant proposes, exactly and not by its approximate graph (none is built), and we
decide: candidates come back with their payload, are checked to be rows of this scope
that were asked for, and are scored again in float64 from their vectors, ties by id, so
the order is the same as the numpy index's. More candidates are fetched while the last
one kept ties with the last one seen. Filters are made in one place (`_within`), which
puts the tenant first; writes wait until they are applied, and go in bounded batches. A
row that was not asked for is left out, counted and logged without its words. The
surprise: beside its items a scope has one point that is no item, the mark, which tells
what journal sequence the rows are level with (see `index_projection`).
"""

from __future__ import annotations

import hashlib
import logging
import uuid
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import numpy as np

from memagent.core.answers import Filter, Hit
from memagent.core.errors import ConfigError, EmbeddingError, StoreError
from memagent.core.records import MemoryItem, Scope, TimeSpan
from memagent.protocols import IndexRow, Vector
from memagent.search.scoring import Scored, cosine_hits, ordered
from memagent.state.matching import filter_keys, matches
from memagent.vectors.projection import Applied, Proposal, row_check
from memagent.vectors.qdrant_calls import Calls, CollectionGone, Patience

if TYPE_CHECKING:
    from qdrant_client import AsyncQdrantClient

T = TypeVar("T")
_log = logging.getLogger(__name__)
_MARGIN: Final = 16
_MOST: Final = 16_384
_BATCH: Final = 256
_BATCH_BYTES: Final = 4 * 1024 * 1024
"""Of JSON in one request; a server as it is installed refuses more than 32 MB."""
_NUMBER_BYTES: Final = 24
_PAGE: Final = 1_000
_LISTED: Final = ("speakers", "subjects", "kinds", "session_ids", "tags")
_KEYWORDS: Final = ("row", "item_id", *_LISTED)
_MOMENTS: Final = ("said", "valid_start", "valid_end")
_EVER: Final = 1e18
_Row = Literal["item", "mark"]


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
        """`dim` None takes the width of the first vector written."""
        self._calls = client if isinstance(client, Calls) else Calls.over(client)
        self._dim = dim
        self._tenant = hashlib.sha256((scope or Scope()).key.encode()).hexdigest()
        self._collection = collection
        self._ready = self._prepared = False
        self.dropped = 0
        """Rows that came back without having been asked for: another user's, or such as do
        not pass the filter.
        """

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
        """An index on a server, over the one client that an event loop has for it.

        Raises `MissingExtra` without qdrant-client.
        """
        return cls(
            Calls.to(url, api_key=api_key, patience=patience), scope=scope, collection=collection
        )

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
        """The k best by cosine, ties by id; [] when the collection does not exist yet."""
        return (await self.candidates(vector, k=k, where=where)).hits

    # -- an applied index --------------------------------------------------------------

    async def applied(self) -> tuple[Applied | None, int]:
        """The mark, and how many rows of the scope are really there; (None, 0) without
        a collection.
        """
        if not await self._exists():
            return None, 0

        async def read(client: AsyncQdrantClient) -> tuple[Applied | None, int]:
            points, _ = await client.scroll(
                self._collection,
                scroll_filter=self._within(row="mark"),
                limit=1,
                with_payload=True,
                with_vectors=False,
            )
            found = await client.count(self._collection, count_filter=self._within(), exact=True)
            return self._mark_in(points), found.count

        try:
            return await self._ask("reading what is applied", read)
        except CollectionGone:
            return None, 0

    async def inventory(self) -> dict[str, int] | None:
        """Item ids with their checks; None when a point of the scope is neither an item
        of ours nor there once.
        """
        if not await self._exists():
            return {}
        found: dict[str, int] = {}
        offset: Any = None
        while True:

            async def page(
                client: AsyncQdrantClient, offset: Any = offset
            ) -> tuple[list[Any], Any]:
                return await client.scroll(
                    self._collection,
                    scroll_filter=self._within(),
                    limit=_PAGE,
                    offset=offset,
                    with_payload=["tenant", "item_id", "check"],
                    with_vectors=False,
                )

            points, offset = await self._ask("listing rows", page)
            for point in points:
                payload: dict[str, Any] = point.payload or {}
                if payload.get("tenant") != self._tenant:
                    self._drop(1)
                    continue
                item_id, check = payload.get("item_id"), payload.get("check")
                if (
                    not isinstance(item_id, str)
                    or not isinstance(check, str)
                    or point.id != self._point_id(item_id)
                ):
                    return None
                found[item_id] = int(check, 16)
            if offset is None:
                return found

    async def write(
        self, rows: Sequence[IndexRow], gone: Sequence[str], *, applied: Applied
    ) -> None:
        """Write rows, take ids out, and store the mark last; nothing replaces or
        removes what came from a later sequence.
        """
        from qdrant_client import models

        await self._upsert(rows, seq=applied.seq)
        await self._remove(gone, seq=applied.seq)
        if self._dim is None and not await self._exists():
            return  # nothing was ever embedded, so there is nothing to mark
        payload = {
            "tenant": self._tenant,
            "row": "mark",
            "seq": applied.seq,
            "count": applied.count,
            "digest": applied.digest,
        }
        mark = models.PointStruct(
            id=self._point_id(""), vector=[0.0] * (self._dim or 1), payload=payload
        )
        older = self._within(row="mark", up_to=applied.seq)
        await self._put("marking what is applied", [mark], older)

    async def clear(self) -> None:
        """Remove every row of the scope, and the mark."""
        from qdrant_client import models

        if not await self._exists():
            return
        everything = models.FilterSelector(filter=self._within(row=None))
        await self._ask(
            "emptying", lambda client: client.delete(self._collection, everything, wait=True)
        )

    async def candidates(self, vector: Vector, *, k: int, where: Filter | None = None) -> Proposal:
        """`search`, and the mark read in the same request."""
        if not await self._exists():
            return Proposal([], None)
        if vector.shape != (self._dim,):
            raise EmbeddingError(
                f"the query vector has shape {vector.shape}, the collection {self._collection!r} holds width {self._dim}"
            )
        limit = k + _MARGIN
        while True:
            try:
                scored, count, mark, dropped = await self._nearest(vector, limit, where)
            except CollectionGone:
                return Proposal([], None)
            cut = ordered(scored, k)
            if (
                count < limit
                or limit >= _MOST
                or len(cut) < k
                or cut[-1][1] > ordered(scored, len(scored))[-1][1]
            ):
                return Proposal(cosine_hits(cut), mark, dropped)
            limit = min(4 * limit, _MOST)

    async def _ask(self, doing: str, call: Callable[[AsyncQdrantClient], Awaitable[T]]) -> T:
        try:
            return await self._calls.ask(doing, call)
        except CollectionGone:
            self._ready = self._prepared = False
            raise

    # -- inside: reading ---------------------------------------------------------------

    async def _nearest(
        self, vector: Vector, limit: int, where: Filter | None
    ) -> tuple[list[Scored], int, Applied | None, int]:
        """Rows with their scores, how many points came back, the mark, and how many
        points were dropped.
        """
        from qdrant_client import models

        nearest = models.QueryRequest(
            query=vector.tolist(),
            filter=self._within(*_conditions(where)),
            params=None if self._calls.exact else models.SearchParams(exact=True),
            limit=limit,
            with_payload=True,
            with_vector=True,
        )
        mark = models.QueryRequest(filter=self._within(row="mark"), limit=1, with_payload=True)

        async def query(client: AsyncQdrantClient) -> tuple[list[Scored], int, Applied | None, int]:
            near, marks = await client.query_batch_points(
                self._collection, requests=[nearest, mark]
            )
            scored = [
                row
                for point in near.points
                if (row := self._scored(point, vector, where)) is not None
            ]
            return (
                scored,
                len(near.points),
                self._mark_in(marks.points),
                len(near.points) - len(scored),
            )

        answer = await self._ask("searching", query)
        if answer[3]:
            self._drop(answer[3])
        return answer

    def _scored(self, point: Any, vector: Vector, where: Filter | None) -> Scored | None:
        """A row with its exact score; None for one that was not asked for.

        Raises `ValueError` for what is no row of ours.
        """
        payload: dict[str, Any] = point.payload or {}
        if payload.get("tenant") != self._tenant or payload.get("row") != "item":
            return None
        item = MemoryItem.model_validate_json(payload["item"])
        if where is not None and not matches(item, where):
            return None
        row = np.asarray(point.vector, dtype=np.float32).astype(np.float64)
        if row.shape != vector.shape or not np.isfinite(row).all():
            raise ValueError("a vector of another width")
        return item, float((row * vector.astype(np.float64)).sum())

    def _mark_in(self, points: Sequence[Any]) -> Applied | None:
        for point in points:
            payload: dict[str, Any] = point.payload or {}
            if payload.get("tenant") == self._tenant and payload.get("row") == "mark":
                return Applied(int(payload["seq"]), int(payload["count"]), str(payload["digest"]))
        return None

    def _drop(self, count: int) -> None:
        self.dropped += count
        _log.warning(
            "Qdrant returned %d points that were not asked for from collection %r; nothing of them was shown",
            count,
            self._collection,
        )

    # -- inside: writing ---------------------------------------------------------------

    async def _upsert(self, rows: Sequence[IndexRow], *, seq: int) -> None:
        if not rows:
            return
        await self._prepare(rows[0].vector.shape[0])
        for row in rows:
            if row.vector.shape != (self._dim,):
                raise EmbeddingError(
                    f"item {row.item.id} has a vector of shape {row.vector.shape}, "
                    f"the collection {self._collection!r} holds width {self._dim}; "
                    "embed the store again with `memagent reembed`"
                )
        older = self._within(row="item", up_to=seq) if seq else None
        for batch in self._batches(rows, seq):
            await self._put("writing rows", batch, older)

    def _batches(self, rows: Sequence[IndexRow], seq: int) -> Generator[list[Any]]:
        from qdrant_client import models

        batch: list[Any] = []
        size = 0
        for row in rows:
            payload = self._payload(row, seq)
            weight = 2 * len(payload["item"]) + _NUMBER_BYTES * len(row.vector)
            if batch and (len(batch) >= _BATCH or size + weight > _BATCH_BYTES):
                yield batch
                batch, size = [], 0
            batch.append(
                models.PointStruct(
                    id=self._point_id(row.item.id), vector=row.vector.tolist(), payload=payload
                )
            )
            size += weight
        yield batch

    async def _put(self, doing: str, points: list[Any], older: Any) -> None:
        """Write points; those that are there already only where they pass the filter
        `older`, if there is one.
        """

        async def put(client: AsyncQdrantClient) -> None:
            await client.upsert(self._collection, points=points, wait=True, update_filter=older)

        await self._ask(doing, put)

    async def _remove(self, ids: Sequence[str], *, seq: int | None) -> None:
        from qdrant_client import models

        if not ids or not await self._exists():
            return
        for start in range(0, len(ids), _PAGE):
            points: list[Any] = [self._point_id(item_id) for item_id in ids[start : start + _PAGE]]
            chosen = models.FilterSelector(
                filter=self._within(models.HasIdCondition(has_id=points), up_to=seq)
            )
            await self._ask(
                "removing rows",
                lambda client, chosen=chosen: client.delete(
                    self._collection, points_selector=chosen, wait=True
                ),
            )

    async def _exists(self) -> bool:
        if not self._ready:
            self._ready = await self._ask("looking for the collection", self._look)
        return self._ready

    async def _look(self, client: AsyncQdrantClient) -> bool:
        if not await client.collection_exists(self._collection):
            return False
        params: Any = (await client.get_collection(self._collection)).config.params.vectors
        if isinstance(params, dict) or params is None or str(params.distance.value) != "Dot":
            raise ConfigError(
                f"the Qdrant collection {self._collection!r} holds other data; set index.collection to another name"
            )
        self._dim = int(params.size)
        return True

    async def _prepare(self, dim: int) -> None:
        """Make the collection and its payload indexes, unless they are there; several
        processes may do so at once.
        """
        if self._prepared:
            return
        from qdrant_client import models

        if not await self._exists():
            vectors = models.VectorParams(
                size=self._dim or dim,
                distance=models.Distance.DOT,
                hnsw_config=models.HnswConfigDiff(m=0),
            )

            async def create(client: AsyncQdrantClient) -> None:
                if not await client.collection_exists(self._collection):
                    await client.create_collection(self._collection, vectors_config=vectors)

            try:
                await self._ask("making the collection", create)
            except StoreError:
                if not await self._exists():  # unless another process was first
                    raise
            await self._exists()
        fields: list[tuple[str, Any]] = [
            (
                "tenant",
                models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True),
            ),
            ("seq", models.PayloadSchemaType.INTEGER),
            *((name, models.PayloadSchemaType.KEYWORD) for name in _KEYWORDS),
            *((name, models.PayloadSchemaType.FLOAT) for name in _MOMENTS),
        ]
        for name, schema in fields:
            await self._ask(
                "indexing a field",
                lambda client, name=name, schema=schema: client.create_payload_index(
                    self._collection, field_name=name, field_schema=schema, wait=True
                ),
            )
        self._prepared = True

    def _point_id(self, item_id: str) -> str:
        """The mark's is that of the empty id, which no item has."""
        return str(
            uuid.UUID(bytes=hashlib.sha256(f"{self._tenant}\x1f{item_id}".encode()).digest()[:16])
        )

    def _payload(self, row: IndexRow, seq: int) -> dict[str, Any]:
        item = row.item
        payload: dict[str, Any] = {
            "tenant": self._tenant,
            "row": "item",
            "seq": seq,
            "item": item.model_dump_json(),
            "item_id": item.id,
            "check": f"{row_check(row):x}",
        }
        for name, value in filter_keys(item):
            payload.setdefault(name, []).append(value)
        if item.said_at is not None:
            payload["said"] = item.said_at.timestamp()
        if item.valid is not None:
            payload["valid_start"] = item.valid.start.timestamp() if item.valid.start else -_EVER
            payload["valid_end"] = item.valid.end.timestamp() if item.valid.end else _EVER
        return payload

    def _within(self, *conditions: Any, row: _Row | None = "item", up_to: int | None = None) -> Any:
        """The filter of every request: this scope's rows of a kind, written at or
        before a sequence, that meet further conditions.
        """
        from qdrant_client import models

        must: list[Any] = [
            models.FieldCondition(key="tenant", match=models.MatchValue(value=self._tenant))
        ]
        if row is not None:
            must.append(models.FieldCondition(key="row", match=models.MatchValue(value=row)))
        if up_to is not None:
            must.append(models.FieldCondition(key="seq", range=models.Range(lte=float(up_to))))
        return models.Filter(must=[*must, *conditions])


def _conditions(where: Filter | None) -> list[Any]:
    """What a filter asks of the payload."""
    from qdrant_client import models

    if where is None:
        return []
    found: list[Any] = []
    for name in _LISTED:
        if wanted := getattr(where, name):
            found.append(models.FieldCondition(key=name, match=models.MatchAny(any=sorted(wanted))))
    if where.ids:
        found.append(
            models.FieldCondition(key="item_id", match=models.MatchAny(any=sorted(where.ids)))
        )
    if where.said is not None:
        found.append(models.FieldCondition(key="said", range=_range(where.said)))
    if where.valid is not None:
        before = where.valid.end.timestamp() if where.valid.end else _EVER
        after = where.valid.start.timestamp() if where.valid.start else -_EVER
        found.append(models.FieldCondition(key="valid_start", range=models.Range(lt=before)))
        found.append(models.FieldCondition(key="valid_end", range=models.Range(gt=after)))
    return found


def _range(span: TimeSpan) -> Any:
    from qdrant_client import models

    return models.Range(
        gte=span.start.timestamp() if span.start else None,
        lt=span.end.timestamp() if span.end else None,
    )
