"""`check_vector_index`: the promises of `VectorIndex`, against a brute-force cosine in float64."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import numpy as np

from memagent.core.answers import Filter
from memagent.core.errors import EmbeddingError
from memagent.core.records import MemoryItem, TimeSpan
from memagent.protocols import IndexRow, Matrix, Vector, VectorIndex

_DAY = datetime(2024, 1, 1, tzinfo=UTC)


def unit_vectors(count: int, dim: int, *, seed: int) -> Matrix:
    """Draw random unit rows (count, dim) float32, the same for the same seed."""
    rows = np.random.default_rng(seed).normal(size=(count, dim))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def sample_items(count: int) -> list[MemoryItem]:
    """Make items that differ in speaker, kind, session, tags and times."""
    return [
        MemoryItem(
            id=f"mem_{i:05d}",
            text=f"fact number {i}",
            kind=("fact", "event", "plan")[i % 3],
            speaker=("Ana", "Bo", "Chi", "Dee")[i % 4],
            subject=("Ana", "Bo")[i % 2],
            session_id=f"s{i % 5}",
            tags=(f"t{i % 7}",),
            said_at=_DAY + timedelta(days=i),
            valid=TimeSpan(start=_DAY + timedelta(days=i), end=_DAY + timedelta(days=i + 2))
            if i % 2
            else None,
        )
        for i in range(count)
    ]


FILTERS: dict[str, Filter] = {
    "none": Filter(),
    "speaker": Filter(speakers=frozenset({"Ana"})),
    "two speakers": Filter(speakers=frozenset({"Ana", "Chi"})),
    "speaker and kind": Filter(speakers=frozenset({"Ana"}), kinds=frozenset({"event"})),
    "session and tag": Filter(session_ids=frozenset({"s1"}), tags=frozenset({"t1", "t2"})),
    "ids": Filter(ids=frozenset({"mem_00003", "mem_00004"})),
    "said": Filter(said=TimeSpan(start=_DAY + timedelta(days=10), end=_DAY + timedelta(days=30))),
    "valid": Filter(valid=TimeSpan(start=_DAY + timedelta(days=10), end=_DAY + timedelta(days=30))),
    "nobody": Filter(speakers=frozenset({"Nobody"})),
}


async def check_vector_index(
    make: Callable[[int], VectorIndex | Awaitable[VectorIndex]], *, count: int = 200, dim: int = 32
) -> None:
    """Check an index made by `make(dim)`; raise `AssertionError` in plain words.

    Checked are order, ties, filters, replacing, removing, wrong widths and concurrency.
    """
    opened = make(dim)
    index = await opened if isinstance(opened, Awaitable) else opened
    items, vectors = sample_items(count), unit_vectors(count, dim, seed=1)
    vectors[7] = vectors[3]
    vectors[11] = vectors[3]
    query = unit_vectors(1, dim, seed=2)[0]
    assert await index.search(query, k=5) == [], "an empty index must answer []"

    rows = [IndexRow(item, vector) for item, vector in zip(items, vectors, strict=True)]
    await index.upsert(rows)
    await index.upsert(rows[:10])
    for name, where in FILTERS.items():
        fitting = [i for i, item in enumerate(items) if _passes(item, where)]
        for k in (1, 5, count + 10):
            got = await _ids(index, query, k=k, where=where)
            due = _best(items, vectors, fitting, query, k)
            assert got == due, f"filter {name!r}, k={k}: expected {due[:5]}..., got {got[:5]}..."
    tied = await _ids(index, vectors[3], k=2)
    assert tied == ["mem_00003", "mem_00007"], f"equal vectors must come in order of id, got {tied}"

    hit = (await index.search(query, k=1))[0]
    assert hit.item is not None, "a hit must carry its item"
    assert hit.item == items[int(hit.id[4:])], "a hit must carry the item as it was written"
    assert "dense" in hit.why.arms, "a hit must say its cosine under why.arms['dense']"

    moved = items[0].model_copy(update={"version": 2, "text": "changed", "speaker": "Bo"})
    await index.upsert([IndexRow(moved, query)])
    first = (await index.search(query, k=1))[0]
    assert first.item == moved, "a newer version must replace the older one"
    by_ana = await _ids(index, query, k=count, where=Filter(speakers=frozenset({"Ana"})))
    assert moved.id not in by_ana, "the replaced version must no longer match its old speaker"

    await index.remove([moved.id, "mem_unknown"])
    await index.remove([moved.id])
    assert moved.id not in await _ids(index, query, k=count), "a removed item must not be found"

    for vector in (query[:-1], np.zeros(dim + 1, np.float32)):
        await _refuses(index, vector)
    answers = await asyncio.gather(*(_ids(index, query, k=5) for _ in range(16)))
    assert all(answer == answers[0] for answer in answers), "concurrent searches must agree"


async def _ids(
    index: VectorIndex, query: Vector, *, k: int, where: Filter | None = None
) -> list[str]:
    return [hit.id for hit in await index.search(query, k=k, where=where)]


async def _refuses(index: VectorIndex, vector: Vector) -> None:
    try:
        await index.search(vector, k=1)
    except EmbeddingError:
        return
    raise AssertionError(f"a query of width {vector.shape[0]} must raise EmbeddingError")


def _passes(item: MemoryItem, where: Filter) -> bool:
    listed = (
        (where.speakers, {item.speaker}),
        (where.subjects, {item.subject}),
        (where.kinds, {item.kind}),
        (where.session_ids, {item.session_id}),
        (where.tags, set(item.tags)),
        (where.ids, {item.id}),
    )
    if any(allowed and not allowed & values for allowed, values in listed):
        return False
    if where.valid is not None and (item.valid is None or not item.valid.overlaps(where.valid)):
        return False
    return where.said is None or (item.said_at is not None and where.said.contains(item.said_at))


def _best(
    items: list[MemoryItem], vectors: Matrix, fitting: list[int], query: Vector, k: int
) -> list[str]:
    scores = (vectors.astype(np.float64) * query.astype(np.float64)).sum(axis=1)
    order = sorted(fitting, key=lambda i: (-round(float(scores[i]), 6), items[i].id))
    return [items[i].id for i in order[:k]]
