"""A vector index in Qdrant: one collection for all users, kept apart by tenant.

Filters are made in one place (`Points.within`), which puts the tenant first; the tenant
stands in every point as well. Import this module late: it loads `qdrant_client`.

Qdrant proposes, exactly and not by its approximate graph (none is built), and the index
decides: it checks that candidates are rows of this scope that pass the filter, and
scores them again in float64 from their vectors, ties by id, so the order is the same as
the numpy index's. It fetches more candidates while the last one of the answer ties with
the last one fetched. Every call assigns or reads, so one that may have been carried out
is made again: what may pass (429, 5xx, no answer, a lost connection, an answer of
another shape) is tried within a bounded time, a wrong request fails at once. No message
repeats what the server answered, since Qdrant quotes the request, which holds words. The
surprise: beside its items a scope has one point that is no item, the mark, which tells
what journal sequence the rows are level with (see `projection`).
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
import time
import uuid
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Final, Literal, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from httpx import TransportError

from memagent.core.answers import Filter, Hit
from memagent.core.errors import (
    ConfigError,
    EmbeddingError,
    MemAgentError,
    MissingExtra,
    StoreError,
    StoreUnavailable,
)
from memagent.core.records import MemoryItem, Scope, TimeSpan
from memagent.protocols import IndexRow, Vector
from memagent.search.index import Scored, cosine_hits, ordered
from memagent.state.validation import LISTED, TRUST, allowed_values, filter_keys, matches
from memagent.vectors.projection import Applied, Proposal, row_check

try:
    from qdrant_client import AsyncQdrantClient, models
    from qdrant_client.common.client_exceptions import ResourceExhaustedResponse
    from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse
except ImportError as exc:
    raise MissingExtra("qdrant", needed_for="the Qdrant index") from exc

T = TypeVar("T")
_log = logging.getLogger(__name__)
_Clients = dict[tuple[str, str | None, float], AsyncQdrantClient]
_CLIENTS: WeakKeyDictionary[asyncio.AbstractEventLoop, _Clients] = WeakKeyDictionary()
_MARGIN: Final = 16
_MOST: Final = 16_384
_PAGE: Final = 1_000
_BATCH: Final = 256
# Of JSON in one request; a server as it is installed refuses more than 32 MB.
_BATCH_BYTES: Final = 4 * 1024 * 1024
_NUMBER_BYTES: Final = 24
_EVER: Final = 1e18

INDEXED: Final[dict[str, Any]] = {
    "tenant": models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True),
    "seq": models.PayloadSchemaType.INTEGER,
    **dict.fromkeys(("row", "item_id", *LISTED), models.PayloadSchemaType.KEYWORD),
    **dict.fromkeys(("said", "valid_start", "valid_end"), models.PayloadSchemaType.FLOAT),
}
"""The payload fields that a collection indexes, with their schemas."""


class Points:
    """The points of one scope."""

    def __init__(self, scope: Scope) -> None:
        self.tenant = hashlib.sha256(scope.key.encode()).hexdigest()

    def id_of(self, item_id: str) -> str:
        """Return the id of an item's point; the mark has that of the empty id."""
        digest = hashlib.sha256(f"{self.tenant}\x1f{item_id}".encode()).digest()
        return str(uuid.UUID(bytes=digest[:16]))

    def mark(self, applied: Applied, dim: int) -> models.PointStruct:
        """Make the point that tells what the rows are level with."""
        payload = {
            "tenant": self.tenant,
            "row": "mark",
            "seq": applied.seq,
            "count": applied.count,
            "digest": applied.digest,
        }
        return models.PointStruct(id=self.id_of(""), vector=[0.0] * dim, payload=payload)

    def mark_in(self, points: Sequence[Any]) -> Applied | None:
        """Read the mark, if it is among the points."""
        payloads: Iterable[dict[str, Any]] = (point.payload or {} for point in points)
        marks = (
            Applied(int(payload["seq"]), int(payload["count"]), str(payload["digest"]))
            for payload in payloads
            if (payload.get("tenant"), payload.get("row")) == (self.tenant, "mark")
        )
        return next(marks, None)

    def batches(self, rows: Sequence[IndexRow], seq: int) -> Generator[list[models.PointStruct]]:
        """Make the points of rows, in batches that a server accepts."""
        batch: list[models.PointStruct] = []
        size = 0
        for row in rows:
            payload = self.payload(row, seq)
            weight = 2 * len(payload["item"]) + _NUMBER_BYTES * len(row.vector)
            if batch and (len(batch) >= _BATCH or size + weight > _BATCH_BYTES):
                yield batch
                batch, size = [], 0
            point_id, vector = self.id_of(row.item.id), row.vector.tolist()
            batch.append(models.PointStruct(id=point_id, vector=vector, payload=payload))
            size += weight
        yield batch

    def payload(self, row: IndexRow, seq: int) -> dict[str, Any]:
        """Return the fields stored with a row that a sequence wrote."""
        item = row.item
        payload: dict[str, Any] = {
            "tenant": self.tenant,
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
            payload["valid_start"], payload["valid_end"] = _bounds(item.valid)
        return payload

    def scored(self, point: Any, vector: Vector, where: Filter | None) -> Scored | None:
        """Return a row with its exact score; None for one that the search does not cover.

        Raises `ValueError` for a point that is no row of ours.
        """
        payload: dict[str, Any] = point.payload or {}
        if payload.get("tenant") != self.tenant or payload.get("row") != "item":
            return None
        item = MemoryItem.model_validate_json(payload["item"])
        if where is not None and not matches(item, where):
            return None
        row = np.asarray(point.vector, dtype=np.float32).astype(np.float64)
        if row.shape != vector.shape or not np.isfinite(row).all():
            raise ValueError("a vector of another width")
        return item, float((row * vector.astype(np.float64)).sum())

    def within(
        self,
        *conditions: models.Condition,
        row: Literal["item", "mark"] | None = "item",
        up_to: int | None = None,
    ) -> models.Filter:
        """Make a filter: this scope's points of a kind that meet the conditions.

        `up_to` leaves out what was written after that sequence.
        """
        keys = {"tenant": self.tenant} | ({} if row is None else {"row": row})
        must: list[models.Condition] = [
            models.FieldCondition(key=key, match=models.MatchValue(value=value))
            for key, value in keys.items()
        ]
        if up_to is not None:
            must.append(models.FieldCondition(key="seq", range=models.Range(lte=float(up_to))))
        return models.Filter(must=[*must, *conditions])


def _conditions(where: Filter | None) -> list[models.FieldCondition]:
    """Translate a filter of items into conditions on the payload."""
    if where is None:
        return []
    # points written before items were filed under their trust lack it; `scored` checks it
    listed = {**allowed_values(where), "item_id": where.ids}
    listed.pop(TRUST, None)
    ranges: dict[str, models.Range] = {}
    if where.said is not None:
        start, end = where.said.start, where.said.end
        ranges["said"] = models.Range(
            gte=start.timestamp() if start else None, lt=end.timestamp() if end else None
        )
    if where.valid is not None:
        after, before = _bounds(where.valid)
        ranges |= {"valid_start": models.Range(lt=before), "valid_end": models.Range(gt=after)}
    return [
        *(
            models.FieldCondition(key=name, match=models.MatchAny(any=sorted(values)))
            for name, values in listed.items()
            if values
        ),
        *(models.FieldCondition(key=name, range=span) for name, span in ranges.items()),
    ]


def _bounds(span: TimeSpan) -> tuple[float, float]:
    return (
        span.start.timestamp() if span.start else -_EVER,
        span.end.timestamp() if span.end else _EVER,
    )


class CollectionGone(StoreUnavailable):
    """The collection that was there is not there any more; the next write makes it anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """The time that a call may take."""

    tries: int = 4
    timeout_s: float = 5.0
    """Of one try."""
    total_s: float = 12.0
    """Of all tries with the pauses between them; a server that asks for more has failed."""
    first_pause_s: float = 0.1
    """Of which half is left to chance; it doubles with every try."""

    async def ask(
        self,
        client: Callable[[], AsyncQdrantClient],
        doing: str,
        call: Callable[[AsyncQdrantClient], Awaitable[T]],
    ) -> T:
        """Return the result of `call`, tried again as far as patience goes.

        Raises `StoreUnavailable` (retryable), `ConfigError` for a refused key,
        `StoreError` for a request that the server finds wrong.
        """
        ends, pause_s, tried = time.monotonic() + self.total_s, self.first_pause_s, 0
        while True:
            try:
                left_s = ends - time.monotonic()
                async with asyncio.timeout(max(min(self.timeout_s, left_s), 0.001)):
                    return await call(client())
            except MemAgentError:
                raise
            except Exception as exc:
                error, reason, wait_s = _fault(exc)
                if error is not StoreUnavailable:
                    raise error(f"Qdrant, {doing}: {reason}") from exc
                tried += 1
                rest_s = pause_s * random.uniform(0.5, 1.0) if wait_s is None else wait_s
                if tried == self.tries or rest_s >= ends - time.monotonic():
                    tries = f"{tried} {'try' if tried == 1 else 'tries'}"
                    asks = f"; it asks to wait {wait_s:g} s" if wait_s else ""
                    raise StoreUnavailable(f"Qdrant, {doing}: {reason} ({tries}){asks}") from exc
            await asyncio.sleep(rest_s)
            pause_s *= 2


class QdrantIndex:
    """`AppliedIndex` of one scope over a `qdrant_client.AsyncQdrantClient`."""

    def __init__(
        self,
        client: AsyncQdrantClient | Callable[[], AsyncQdrantClient],
        *,
        dim: int | None = None,
        scope: Scope | None = None,
        collection: str = "memagent",
        patience: Patience | None = None,
    ) -> None:
        """Open the index; `dim` None takes the width of the first vector written.

        A callable `client` is called at every try, inside the event loop of the call.
        """
        self._client = client if callable(client) else lambda: client
        self._points = Points(scope or Scope())
        self._name, self._dim = collection, dim
        self._patience = patience or Patience()
        self._ready = self._prepared = False
        # Rows returned that the search does not cover: another user's, or outside the
        # filter.
        self.dropped = 0

    @classmethod
    def connect(
        cls,
        url: str,
        *,
        api_key: str | None = None,
        dim: int | None = None,
        collection: str = "memagent",
        scope: Scope | None = None,
        patience: Patience | None = None,
    ) -> QdrantIndex:
        """Open the index on a server, over the one client that an event loop has for it."""
        patience = patience or Patience()
        return cls(
            lambda: _shared_client(url, api_key, patience.timeout_s),
            dim=dim,
            scope=scope,
            collection=collection,
            patience=patience,
        )

    # -- a vector index ----------------------------------------------------------------

    async def upsert(self, rows: Sequence[IndexRow], *, seq: int = 0) -> None:
        """Write rows in batches; a row of the same item replaces the older one.

        With `seq` none replaces what a later sequence wrote. Raises `EmbeddingError`,
        `StoreUnavailable`.
        """
        if not rows:
            return
        dim = await self._prepare(rows[0].vector.shape[0])
        for row in rows:
            if row.vector.shape != (dim,):
                raise EmbeddingError(
                    f"item {row.item.id} has a vector of shape {row.vector.shape}, "
                    f"the collection {self._name!r} holds width {dim}; "
                    "embed the store again with `memagent reembed`"
                )
        older = self._points.within(row="item", up_to=seq) if seq else None
        for batch in self._points.batches(rows, seq):
            await self._put("writing rows", batch, older)

    async def remove(self, ids: Sequence[str], *, seq: int | None = None) -> None:
        """Take items out; unknown ids are ignored, and with `seq` what was written later."""
        if not ids or not await self._exists():
            return
        for start in range(0, len(ids), _PAGE):
            page: Any = [*map(self._points.id_of, ids[start : start + _PAGE])]
            points = models.HasIdCondition(has_id=page)
            await self._delete("removing rows", self._points.within(points, up_to=seq))

    async def search(self, vector: Vector, *, k: int, where: Filter | None = None) -> list[Hit]:
        """Return the k best by cosine, ties by id; [] when the collection does not exist yet."""
        return (await self.candidates(vector, k=k, where=where)).hits

    # -- an applied index --------------------------------------------------------------

    async def applied(self) -> tuple[Applied | None, int]:
        """Return the mark and the true number of the scope's rows.

        (None, 0) without a collection.
        """

        async def read(client: AsyncQdrantClient) -> tuple[Applied | None, int]:
            marks = self._points.within(row="mark")
            points, _ = await client.scroll(self._name, scroll_filter=marks, limit=1)
            rows = await client.count(self._name, count_filter=self._points.within(), exact=True)
            return self._points.mark_in(points), rows.count

        try:
            found = await self._exists()
            return await self._ask("reading what is applied", read) if found else (None, 0)
        except CollectionGone:
            return None, 0

    async def write(
        self,
        rows: Sequence[IndexRow],
        gone: Sequence[str],
        *,
        applied: Applied,
        rebuild: bool = False,
    ) -> None:
        """Write rows, take ids out, and store the mark last.

        Nothing replaces or removes what came from a later sequence. With `rebuild` the
        rows are all there are: what an earlier sequence left is removed as well.
        """
        await self.upsert(rows, seq=applied.seq)
        await self.remove(gone, seq=applied.seq)
        if self._dim is None and not await self._exists():
            return  # nothing was ever embedded, so there is nothing to mark
        if rebuild:
            await self._delete("removing old rows", self._points.within(up_to=applied.seq - 1))
        mark = self._points.mark(applied, self._dim or 1)
        older = self._points.within(row="mark", up_to=applied.seq)
        await self._put("marking what is applied", [mark], older)

    async def clear(self) -> None:
        """Remove every row of the scope, and the mark."""
        if await self._exists():
            await self._delete("emptying", self._points.within(row=None))

    async def candidates(self, vector: Vector, *, k: int, where: Filter | None = None) -> Proposal:
        """Search, and read the mark in the same request."""
        if not await self._exists():
            return Proposal([], None)
        if vector.shape != (self._dim,):
            raise EmbeddingError(
                f"the query vector has shape {vector.shape}, "
                f"the collection {self._name!r} holds width {self._dim}"
            )
        limit = k + _MARGIN

        async def query(client: AsyncQdrantClient) -> tuple[list[Any], Applied | None]:
            nearest = models.QueryRequest(
                query=vector.tolist(),
                filter=self._points.within(*_conditions(where)),
                params=models.SearchParams(exact=True),
                limit=limit,
                with_payload=True,
                with_vector=True,
            )
            mark = models.QueryRequest(
                filter=self._points.within(row="mark"), limit=1, with_payload=True
            )
            near, marks = await client.query_batch_points(self._name, requests=[nearest, mark])
            rows = [self._points.scored(point, vector, where) for point in near.points]
            return rows, self._points.mark_in(marks.points)

        while True:
            try:
                rows, mark = await self._ask("searching", query)
            except CollectionGone:
                return Proposal([], None)
            scored = ordered([row for row in rows if row is not None], len(rows))
            dropped = len(rows) - len(scored)
            if dropped:
                self.dropped += dropped
                _log.warning(
                    "Qdrant returned %d points that were not asked for from collection %r; "
                    "nothing of them was shown",
                    dropped,
                    self._name,
                )
            ties = len(scored) >= k and scored[k - 1][1] == scored[-1][1]
            if not ties or len(rows) < limit or limit >= _MOST:
                return Proposal(cosine_hits(scored[:k]), mark, dropped)
            limit = min(4 * limit, _MOST)

    # -- inside ------------------------------------------------------------------------

    async def _put(self, doing: str, points: list[Any], older: Any) -> None:
        """Write points; stored ones are replaced only where they pass the filter `older`."""
        await self._ask(
            doing,
            lambda client: client.upsert(self._name, points=points, wait=True, update_filter=older),
        )

    async def _delete(self, doing: str, points: Any) -> None:
        await self._ask(doing, lambda client: client.delete(self._name, points, wait=True))

    async def _exists(self) -> bool:
        if not self._ready:
            self._ready = await self._ask("looking for the collection", self._look)
        return self._ready

    async def _look(self, client: AsyncQdrantClient) -> bool:
        if not await client.collection_exists(self._name):
            return False
        params: Any = (await client.get_collection(self._name)).config.params.vectors
        if isinstance(params, dict) or params is None or str(params.distance.value) != "Dot":
            raise ConfigError(
                f"the Qdrant collection {self._name!r} holds other data; "
                "set index.collection to another name"
            )
        self._dim = int(params.size)
        return True

    async def _prepare(self, dim: int) -> int | None:
        """Create the collection and its payload indexes unless they exist; return its width.

        Several processes may do so at once.
        """
        if self._prepared:
            return self._dim
        if not await self._exists():
            vectors = models.VectorParams(
                size=self._dim or dim,
                distance=models.Distance.DOT,
                hnsw_config=models.HnswConfigDiff(m=0),  # search is exact and needs no graph
            )
            try:
                await self._ask(
                    "making the collection",
                    lambda client: client.create_collection(self._name, vectors_config=vectors),
                )
            except StoreError:
                if not await self._exists():  # unless another process was first
                    raise
            await self._exists()
        for field, schema in INDEXED.items():
            await self._ask(
                "indexing a field",
                lambda client, field=field, schema=schema: client.create_payload_index(
                    self._name, field_name=field, field_schema=schema, wait=True
                ),
            )
        self._prepared = True
        return self._dim

    async def _ask(self, doing: str, call: Callable[[AsyncQdrantClient], Awaitable[T]]) -> T:
        """Ask as `Patience.ask` does; after a fault the collection is looked at anew."""
        try:
            return await self._patience.ask(self._client, doing, call)
        except MemAgentError as exc:
            if type(exc) is not StoreUnavailable:
                self._ready = self._prepared = False
            raise


def _fault(exc: Exception) -> tuple[type[MemAgentError], str, float | None]:
    """Return the error of a fault, its reason, and the seconds that the server asks to wait.

    Another try may mend what is `StoreUnavailable`, and nothing else.
    """
    match exc:
        case ResourceExhaustedResponse():
            reason, wait_s = "it asks for fewer requests (429)", float(exc.retry_after_s)
            return StoreUnavailable, reason, wait_s
        case UnexpectedResponse(status_code=404):
            return CollectionGone, "the collection is gone", None
        case UnexpectedResponse(status_code=401 | 403 as status):
            key = "set index.api_key to one that may write"
            return ConfigError, f"the key was refused ({status}); {key}", None
        case UnexpectedResponse(status_code=status):
            status, asked = status or 0, exc.headers.get("Retry-After") or ""
            if status in (408, 429) or status >= 500:
                wait_s = float(asked) if asked.isdigit() else None
                return StoreUnavailable, f"status {status}", wait_s
            return StoreError, f"the request was refused with status {status}", None
        case TimeoutError():
            return StoreUnavailable, "no answer in time", None
        case ResponseHandlingException(source=TransportError() as source):
            lost = f"no connection, or a lost one ({type(source).__name__})"
            return StoreUnavailable, lost, None
        case _:
            return StoreUnavailable, f"an answer of another shape ({type(exc).__name__})", None


def _shared_client(url: str, api_key: str | None, timeout_s: float) -> AsyncQdrantClient:
    """Return the client of the running event loop for a server.

    All users of a process share its connections.
    """
    clients = _CLIENTS.setdefault(asyncio.get_running_loop(), {})
    key = (url, api_key, timeout_s)
    if key not in clients:
        clients[key] = AsyncQdrantClient(
            url=url, api_key=api_key, timeout=ceil(timeout_s), check_compatibility=False
        )
    return clients[key]
