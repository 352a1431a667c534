"""Points of Qdrant: items of one scope as points, points as items, and filters.

Filters are made in one place (`Points.within`), which puts the tenant first. Import this
module late: it loads `qdrant_client`.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Generator, Sequence
from typing import Any, Final, Literal

import numpy as np
from qdrant_client import models

from memagent.core.answers import Filter
from memagent.core.records import MemoryItem, Scope, TimeSpan
from memagent.protocols import IndexRow, Vector
from memagent.search.scoring import Scored
from memagent.state.matching import LISTED, TRUST, allowed_values, filter_keys, matches
from memagent.vectors.projection import Applied, row_check

_BATCH: Final = 256
# Of JSON in one request; a server as it is installed refuses more than 32 MB.
_BATCH_BYTES: Final = 4 * 1024 * 1024
_NUMBER_BYTES: Final = 24
_EVER: Final = 1e18

_KEYWORD: Final = models.PayloadSchemaType.KEYWORD
INDEXED: Final[dict[str, Any]] = {
    "tenant": models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True),
    "seq": models.PayloadSchemaType.INTEGER,
    **dict.fromkeys(("row", "item_id", *LISTED), _KEYWORD),
    **dict.fromkeys(("said", "valid_start", "valid_end"), models.PayloadSchemaType.FLOAT),
}
"""The payload fields that a collection indexes, with their schemas."""


def collection_of(dim: int) -> models.VectorParams:
    """Return the vectors of a collection of this width: exact search, no graph."""
    hnsw = models.HnswConfigDiff(m=0)
    return models.VectorParams(size=dim, distance=models.Distance.DOT, hnsw_config=hnsw)


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
        for point in points:
            payload: dict[str, Any] = point.payload or {}
            if payload.get("tenant") == self.tenant and payload.get("row") == "mark":
                return Applied(int(payload["seq"]), int(payload["count"]), str(payload["digest"]))
        return None

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

    def nearest(
        self, vector: Vector, *, limit: int, where: Filter | None
    ) -> list[models.QueryRequest]:
        """Make the two requests of a search: for the nearest rows, and for the mark."""
        rows = models.QueryRequest(
            query=vector.tolist(),
            filter=self.within(*_conditions(where)),
            params=models.SearchParams(exact=True),
            limit=limit,
            with_payload=True,
            with_vector=True,
        )
        mark = models.QueryRequest(filter=self.within(row="mark"), limit=1, with_payload=True)
        return [rows, mark]

    def among(self, ids: Sequence[str], up_to: int | None) -> models.Filter:
        """Select items by id that were written at or before a sequence."""
        points = models.HasIdCondition(has_id=[self.id_of(item_id) for item_id in ids])
        return self.within(points, up_to=up_to)

    def within(
        self,
        *conditions: models.Condition,
        row: Literal["item", "mark"] | None = "item",
        up_to: int | None = None,
    ) -> models.Filter:
        """Make a filter: this scope's points of a kind that meet the conditions.

        `up_to` leaves out what was written after that sequence.
        """
        must: list[models.Condition] = [_equals("tenant", self.tenant)]
        if row is not None:
            must.append(_equals("row", row))
        if up_to is not None:
            must.append(models.FieldCondition(key="seq", range=models.Range(lte=float(up_to))))
        return models.Filter(must=[*must, *conditions])


def _equals(name: str, value: str) -> models.FieldCondition:
    return models.FieldCondition(key=name, match=models.MatchValue(value=value))


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
