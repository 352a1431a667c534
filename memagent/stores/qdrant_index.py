"""A vector index in Qdrant: one collection for all users, the tenant in every point and every filter.

Qdrant proposes, exactly and not by its approximate graph, and we decide: candidates come back with their payload, are checked to belong
to the scope, and are scored again in float64 from their vectors, ties by id, so the order is the same as the numpy index's. More candidates
are fetched while the last one kept ties with the last one seen. `wait=True` on every write.
The tenant is set in one place (`_tenant`), and rows of another tenant are refused even if a server returned them.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from memagent.core.answers import Filter, Hit
from memagent.core.errors import EmbeddingError, MissingExtra, StoreError, StoreUnavailable
from memagent.core.records import MemoryItem, Scope, TimeSpan
from memagent.protocols import IndexRow, Vector
from memagent.stores.memory_index import Scored, cosine_hits, ordered
from memagent.stores.segments import filter_keys

if TYPE_CHECKING:
    from qdrant_client import AsyncQdrantClient

T = TypeVar("T")
_MARGIN: Final = 16
_MOST: Final = 16_384
_BATCH: Final = 256
_LISTED: Final = ("speakers", "subjects", "kinds", "session_ids", "tags")


class QdrantIndex:
    """`VectorIndex` of one scope over a `qdrant_client.AsyncQdrantClient`."""

    def __init__(
        self,
        client: AsyncQdrantClient,
        *,
        dim: int | None = None,
        scope: Scope | None = None,
        collection: str = "memagent",
    ) -> None:
        """`dim` None takes the width of the first vector written."""
        self._client = client
        options = client.init_options
        self._local = options.get("location") == ":memory:" or options.get("path") is not None
        """Whether the client searches by itself, which is exact anyway and says so when asked for it."""
        self._dim = dim
        self._scope_key = hashlib.sha256((scope or Scope()).key.encode()).hexdigest()
        self._collection = collection
        self._ready = False

    @classmethod
    def connect(
        cls, url: str, *, api_key: str | None = None, collection: str = "memagent", scope: Scope | None = None
    ) -> QdrantIndex:
        """An index on a server. Raises `MissingExtra` without qdrant-client."""
        try:
            from qdrant_client import AsyncQdrantClient
        except ImportError as exc:
            raise MissingExtra("qdrant", needed_for="the Qdrant index") from exc
        return cls(AsyncQdrantClient(url=url, api_key=api_key), scope=scope, collection=collection)

    async def upsert(self, rows: Sequence[IndexRow]) -> None:
        """Write rows in batches; a row of the same item replaces the older one. Raises `EmbeddingError`, `StoreUnavailable`."""
        if not rows:
            return
        from qdrant_client import models

        await self._prepare(rows[0].vector.shape[0])
        points: list[Any] = []
        for row in rows:
            if row.vector.shape != (self._dim,):
                raise EmbeddingError(
                    f"item {row.item.id} has a vector of shape {row.vector.shape}, "
                    f"the collection {self._collection!r} holds width {self._dim}; "
                    "embed the store again with `memagent reembed`"
                )
            points.append(
                models.PointStruct(
                    id=self._point_id(row.item.id), vector=row.vector.tolist(), payload=self._payload(row.item)
                )
            )
        for start in range(0, len(points), _BATCH):
            batch = points[start : start + _BATCH]
            await _asked(lambda batch=batch: self._client.upsert(self._collection, points=batch, wait=True))

    async def remove(self, ids: Sequence[str]) -> None:
        """Take items out; unknown ids are ignored."""
        if not ids or not await self._exists():
            return
        from qdrant_client import models

        points = models.PointIdsList(points=[self._point_id(item_id) for item_id in ids])
        await _asked(lambda: self._client.delete(self._collection, points_selector=points, wait=True))

    async def search(self, vector: Vector, *, k: int, where: Filter | None = None) -> list[Hit]:
        """The k best by cosine, ties by id; [] when the collection does not exist yet."""
        if not await self._exists():
            return []
        if vector.shape != (self._dim,):
            raise EmbeddingError(
                f"the query vector has shape {vector.shape}, the collection {self._collection!r} holds width {self._dim}"
            )
        limit = k + _MARGIN
        while True:
            scored = await self._candidates(vector, limit, where)
            cut = ordered(scored, k)
            exhausted = len(scored) < limit or limit >= _MOST
            if exhausted or len(cut) < k or cut[-1][1] > min(score for _, score in ordered(scored, len(scored))):
                return cosine_hits(cut)
            limit = min(4 * limit, _MOST)

    async def _candidates(self, vector: Vector, limit: int, where: Filter | None) -> list[Scored]:
        from qdrant_client import models

        found = await _asked(
            lambda: self._client.query_points(
                self._collection,
                query=vector.tolist(),
                query_filter=self._filter(where),
                limit=limit,
                search_params=None if self._local else models.SearchParams(exact=True),
                with_payload=True,
                with_vectors=True,
            )
        )
        scored: list[Scored] = []
        for point in found.points:
            payload: dict[str, Any] = point.payload or {}
            if payload.get("tenant") != self._scope_key:
                raise StoreError(
                    f"Qdrant returned a point of another user from collection {self._collection!r}; nothing of it was shown"
                )
            row = np.asarray(point.vector, dtype=np.float32).astype(np.float64)
            scored.append(
                (MemoryItem.model_validate_json(payload["item"]), float((row * vector.astype(np.float64)).sum()))
            )
        return scored

    # -- inside ----------------------------------------------------------------------------------------------------

    async def _exists(self) -> bool:
        if not self._ready and await _asked(lambda: self._client.collection_exists(self._collection)):
            info = await _asked(lambda: self._client.get_collection(self._collection))
            params: Any = info.config.params.vectors
            self._dim, self._ready = int(params.size), True
        return self._ready

    async def _prepare(self, dim: int) -> None:
        from qdrant_client import models

        if await self._exists():
            return
        wanted = self._dim or dim
        await _asked(
            lambda: self._client.create_collection(
                self._collection, vectors_config=models.VectorParams(size=wanted, distance=models.Distance.DOT)
            )
        )
        tenant = models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True)
        await _asked(
            lambda: self._client.create_payload_index(self._collection, field_name="tenant", field_schema=tenant)
        )
        for name in _LISTED:
            await _asked(
                lambda name=name: self._client.create_payload_index(
                    self._collection, field_name=name, field_schema=models.PayloadSchemaType.KEYWORD
                )
            )
        self._dim, self._ready = wanted, True

    def _point_id(self, item_id: str) -> str:
        return str(uuid.UUID(bytes=hashlib.sha256(f"{self._scope_key}\x1f{item_id}".encode()).digest()[:16]))

    def _payload(self, item: MemoryItem) -> dict[str, Any]:
        payload: dict[str, Any] = {"tenant": self._scope_key, "item": item.model_dump_json(), "item_id": item.id}
        for name, value in filter_keys(item):
            payload.setdefault(name, []).append(value)
        if item.said_at is not None:
            payload["said"] = item.said_at.timestamp()
        if item.valid is not None:
            payload["valid_start"] = item.valid.start.timestamp() if item.valid.start else -1e18
            payload["valid_end"] = item.valid.end.timestamp() if item.valid.end else 1e18
        return payload

    def _tenant(self) -> Any:
        from qdrant_client import models

        return models.FieldCondition(key="tenant", match=models.MatchValue(value=self._scope_key))

    def _filter(self, where: Filter | None) -> Any:
        from qdrant_client import models

        must: list[Any] = [self._tenant()]
        if where is not None:
            for name in _LISTED:
                if wanted := getattr(where, name):
                    must.append(models.FieldCondition(key=name, match=models.MatchAny(any=sorted(wanted))))
            if where.ids:
                must.append(models.FieldCondition(key="item_id", match=models.MatchAny(any=sorted(where.ids))))
            if where.said is not None:
                must.append(models.FieldCondition(key="said", range=_range(where.said)))
            if where.valid is not None:
                must.append(
                    models.FieldCondition(
                        key="valid_start",
                        range=models.Range(lt=where.valid.end.timestamp() if where.valid.end else 1e18),
                    )
                )
                must.append(
                    models.FieldCondition(
                        key="valid_end",
                        range=models.Range(gt=where.valid.start.timestamp() if where.valid.start else -1e18),
                    )
                )
        return models.Filter(must=must)


def _range(span: TimeSpan) -> Any:
    from qdrant_client import models

    return models.Range(
        gte=span.start.timestamp() if span.start else None,
        lt=span.end.timestamp() if span.end else None,
    )


async def _asked(call: Callable[[], Awaitable[T]]) -> T:
    """The call's answer; whatever the client raises becomes a `StoreUnavailable` that keeps the cause."""
    try:
        return await call()
    except Exception as exc:
        raise StoreUnavailable(f"Qdrant did not answer as it should: {type(exc).__name__}: {exc}") from exc
