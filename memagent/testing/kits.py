"""Kits that check embedders, vector indexes, rerankers and memory designs.

`check_embedder` embeds about 120 short texts, and one of 10,000 characters three times;
`check_reranker` scores some 40 pairs: mind the bill of a hosted one.
`check_vector_index` compares with a brute-force cosine in float64. `check_design`
checks the three laws of memory designs (determinism, isolation, auditability) on a
small conversation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Any, cast

import numpy as np

from memagent.async_agent import AsyncAgent
from memagent.core.answers import Filter, Question
from memagent.core.errors import EmbeddingError, MemAgentError
from memagent.core.records import MemoryItem, Session, TimeSpan, Turn
from memagent.core.snapshot import EMPTY, Commit, IngestReport
from memagent.designs.base import MemoryDesign
from memagent.embed.static import UNIT_TOLERANCE, HashEmbedder
from memagent.memory.bank import MemoryBank
from memagent.protocols import ChatModel, Embedder, IndexRow, Matrix, Reranker, Vector, VectorIndex
from memagent.state.validation import matches

SAME = 1e-5
"""Greatest difference of two vectors of one text, in any coordinate."""
CONCURRENT_CALLS = 8

_PLAIN = (
    "Maria adopted a puppy in March.",
    "The quarterly report is due on Friday.",
    "We hiked the northern trail before breakfast.",
)
_HARD = (
    "",
    " \n\t ",
    "?!... --",
    "\x00\x07\x1b",
    "\u200b\ufeff",
    "\ud83d",
    "half \udc00 a pair",
    "🍕👩‍👩‍👧🇳🇴",
    "Ærøskøbing, Ångström, naïve, İstanbul",
    "東京で寿司を食べました",
    "यह हिन्दी में है",
    "qzx" * 100,
    "word " * 2_000,
)


async def check_embedder(make: Callable[[], Embedder]) -> None:
    """Check an embedder made by `make`, called twice for fresh objects.

    Raises `AssertionError` naming the broken promise: a stable id and dim; float32 rows
    of unit length, one a text and in order; any text embeds, the empty one, broken
    Unicode and 10,000 characters among them; no texts give (0, dim); a text has the
    same vector alone, in a batch, in `CONCURRENT_CALLS` calls at once and from a fresh
    object. Errors of memagent's own tree (no key, no network) pass through.
    """
    embedder, other = make(), make()
    assert embedder.id and not any(letter.isspace() for letter in embedder.id), (
        f"an id must be a word, as it is part of cache keys; it is {embedder.id!r}"
    )
    assert embedder.dim >= 1, f"dim must be positive, not {embedder.dim!r}"
    names = (embedder.id, embedder.dim), (other.id, other.dim)
    assert names[0] == names[1], (
        f"two objects made alike must share id and dim: {names[0]} and {names[1]}"
    )
    nothing = await _embed(embedder, ())
    assert nothing.shape == (0, embedder.dim), (
        f"no texts must give a matrix of shape {(0, embedder.dim)}, not {nothing.shape}"
    )
    texts = (*_PLAIN, *_HARD, _PLAIN[0])
    batch = await _embed(embedder, texts)
    _check_same(batch[0], batch[-1], "a text that occurs twice in a batch must get one vector")
    await _check_order(embedder, texts, batch)
    _check_same(
        await _embed(other, texts), batch, "a fresh object must give the vectors of the first one"
    )
    await _check_concurrency(embedder, texts[:CONCURRENT_CALLS], batch[:CONCURRENT_CALLS])
    assert (embedder.id, embedder.dim) == (other.id, other.dim), (
        "id and dim must not change with use"
    )


async def _check_order(embedder: Embedder, texts: Sequence[str], batch: Matrix) -> None:
    for position, text in enumerate(texts):
        alone = await _embed(embedder, (text,))
        _check_same(
            alone[0],
            batch[position],
            f"{text[:40]!r} must get one vector, alone or as text {position} of a batch",
        )
    similar = batch[: len(_PLAIN)] @ batch[: len(_PLAIN)].T
    assert float((similar - np.eye(len(_PLAIN))).max()) <= 1.0 - 1e-3, (
        "different sentences must get different vectors"
    )


async def _check_concurrency(embedder: Embedder, texts: Sequence[str], batch: Matrix) -> None:
    shifts = range(len(texts))  # each call begins with another text
    answers = await asyncio.gather(
        *(_embed(embedder, (*texts[shift:], *texts[:shift])) for shift in shifts)
    )
    for shift, answer in zip(shifts, answers, strict=True):
        _check_same(
            np.roll(answer, shift, axis=0), batch, "calls made at once must not mix their texts"
        )


def _check_same(first: Matrix, second: Matrix, promise: str) -> None:
    gap = float(np.abs(first - second).max())
    assert gap <= SAME, f"{promise}; two differ by {gap:.2g}"


async def _embed(embedder: Embedder, texts: Sequence[str]) -> Matrix:
    try:
        rows = cast(object, await embedder.embed(texts))
    except MemAgentError:
        raise
    except Exception as error:
        raise AssertionError(
            f"an embedder may raise only EmbeddingErrors; it raised {error!r}"
        ) from error
    assert isinstance(rows, np.ndarray), (
        f"an embedder must answer with a matrix, not {type(rows).__name__}"
    )
    matrix = cast(np.typing.NDArray[Any], rows)
    assert matrix.dtype == np.float32, f"an embedder must answer in float32, not {matrix.dtype}"
    assert matrix.shape == (len(texts), embedder.dim), (
        f"{len(texts)} texts must give shape {(len(texts), embedder.dim)}, not {matrix.shape}"
    )
    lengths = np.sqrt((matrix.astype(np.float64) ** 2).sum(axis=1))
    for text, length in zip(texts, lengths, strict=True):
        assert abs(length - 1.0) <= UNIT_TOLERANCE, (
            f"every row must be a unit vector; {text[:40]!r} got length {length:.4g}"
        )
    return matrix


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
        fitting = [i for i, item in enumerate(items) if matches(item, where)]
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
        try:
            await index.search(vector, k=1)
        except EmbeddingError:
            continue
        raise AssertionError(f"a query of width {vector.shape[0]} must raise EmbeddingError")
    answers = await asyncio.gather(*(_ids(index, query, k=5) for _ in range(16)))
    assert all(answer == answers[0] for answer in answers), "concurrent searches must agree"


async def _ids(
    index: VectorIndex, query: Vector, *, k: int, where: Filter | None = None
) -> list[str]:
    return [hit.id for hit in await index.search(query, k=k, where=where)]


def _best(
    items: list[MemoryItem], vectors: Matrix, fitting: list[int], query: Vector, k: int
) -> list[str]:
    scores = (vectors.astype(np.float64) * query.astype(np.float64)).sum(axis=1)
    order = sorted(fitting, key=lambda i: (-round(float(scores[i]), 6), items[i].id))
    return [items[i].id for i in order[:k]]


SAME_SCORE = 1e-4
"""Greatest difference of two scores of a pair: texts of one batch are padded together."""

_QUERY = "What did Maria adopt in March?"
_TEXTS = (
    "Maria adopted a puppy in March.",
    "The quarterly report is due on Friday.",
    "",
    "?!... --",
    "\ud83d half a pair",
    "東京で寿司を食べました",
    "word " * 2_000,
)


async def check_reranker(make: Callable[[], Reranker]) -> None:
    """Check a reranker made by `make`, called twice for fresh objects.

    Raises `AssertionError` naming the broken promise: a stable id; one finite number a
    text and in order, for any text; no texts give []; a pair has the same score alone,
    in a batch, in calls at once and from a fresh object. Errors of memagent's own tree
    pass through.
    """
    reranker, other = make(), make()
    assert reranker.id and not any(letter.isspace() for letter in reranker.id), (
        f"an id must be a word, not {reranker.id!r}"
    )
    assert reranker.id == other.id, (
        f"two objects made alike must share an id: {reranker.id!r} and {other.id!r}"
    )
    assert await _score(reranker, ()) == [], "no texts must give no scores"
    batch = await _score(reranker, _TEXTS)
    for text, score in zip(_TEXTS, batch, strict=True):
        alone = (await _score(reranker, (text,)))[0]
        assert abs(alone - score) <= SAME_SCORE, (
            f"{text[:40]!r} must get one score, alone or in a batch: {alone} and {score}"
        )
    turned = await _score(reranker, _TEXTS[::-1])
    assert _close(turned[::-1], batch), "scores must come in the order of the texts"
    assert _close(await _score(other, _TEXTS), batch), (
        "a fresh object must give the scores of the first one"
    )
    together = await asyncio.gather(*(_score(reranker, _TEXTS[:3]) for _ in range(4)))
    assert all(_close(scores, batch[:3]) for scores in together), (
        "calls made at once must not mix their texts"
    )


def _close(first: Sequence[float], second: Sequence[float]) -> bool:
    return all(abs(a - b) <= SAME_SCORE for a, b in zip(first, second, strict=True))


async def _score(reranker: Reranker, texts: Sequence[str]) -> list[float]:
    try:
        scores = cast(object, await reranker.score(_QUERY, texts))
    except MemAgentError:
        raise
    except Exception as error:
        raise AssertionError(
            f"a reranker may raise only ModelErrors; it raised {error!r}"
        ) from error
    assert isinstance(scores, list), (
        f"a reranker must answer with a list, not {type(scores).__name__}"
    )
    numbers = [
        float(score)
        for score in cast("list[object]", scores)
        if isinstance(score, int | float) and isfinite(score)
    ]
    assert len(numbers) == len(texts), (
        f"{len(texts)} texts must give as many finite numbers, not {scores!r:.200}"
    )
    return numbers


_SAID = (
    (
        "2024-03-04T18:00:00",
        ("Ana", "I moved to Lisbon yesterday, and I love the light here."),
        ("Bo", "Congratulations! Is the flat nice?"),
    ),
    (
        "2024-03-20T18:00:00",
        ("Ana", "My dog Rex is allergic to chicken, the vet told me last Friday."),
        ("Bo", "Poor Rex."),
    ),
    (
        "2024-06-02T18:00:00",
        ("Ana", "I don't live in Lisbon any more, I moved to Porto last week."),
        ("Bo", "That was quick!"),
    ),
)


def small_conversation() -> list[Session]:
    """Return three dated sessions of two people with one changed fact."""
    return [
        Session(
            id=f"session_{n}",
            at=datetime.fromisoformat(date).replace(tzinfo=UTC),
            turns=tuple(
                Turn(id=f"D{n}:{i}", speaker=speaker, text=text)
                for i, (speaker, text) in enumerate(said, 1)
            ),
        )
        for n, (date, *said) in enumerate(_SAID, 1)
    ]


async def check_design(design: MemoryDesign, make_model: Callable[[], ChatModel]) -> None:
    """Play the conversation twice with equal models from `make_model` and check the laws.

    Raises `AssertionError` in plain words.
    """
    first, reports = await _play(design, make_model())
    second, _ = await _play(design, make_model())
    digest = first.snapshot().digest
    assert digest == second.snapshot().digest, (
        f"{design.name}: the same conversation with the same model must end in one digest"
    )

    again = [await first.remember(session) for session in small_conversation()]
    assert all(report.skipped for report in again), (
        f"{design.name}: remembering a session twice must change nothing"
    )
    assert first.snapshot().digest == digest, (
        f"{design.name}: remembering a session twice must change nothing"
    )
    failures = [chunk.failure for report in reports for chunk in report.chunks if chunk.failure]
    assert not failures, f"{design.name}: chunks failed: {failures}"

    await _check_audit(design, first, reports)
    await _check_isolation(design, first, make_model())
    question = Question(text="Where does Ana live now?", asked_at=datetime(2024, 7, 1, tzinfo=UTC))
    answer = await first.with_model(make_model()).ask(question)
    shown = {hit.id for hit in answer.hits}
    assert all(citation.hit_id in shown for citation in answer.citations), (
        f"{design.name}: only hits that were shown may be cited"
    )
    assert answer.abstained or answer.text.strip(), (
        f"{design.name}: an answer must have text or abstain"
    )
    assert first.snapshot().digest == digest, f"{design.name}: asking must not change the memory"


async def _play(design: MemoryDesign, model: ChatModel) -> tuple[AsyncAgent, list[IngestReport]]:
    agent = AsyncAgent(
        design=design, model=model, bank=MemoryBank(embedder=HashEmbedder(dim=64))
    ).at(EMPTY)
    return agent, [
        await agent.remember(session, on_error="keep") for session in small_conversation()
    ]


async def _check_audit(
    design: MemoryDesign, agent: AsyncAgent, reports: list[IngestReport]
) -> None:
    turns = {turn.id for session in small_conversation() for turn in session.turns}
    commits = [row.entry async for row in agent.bank.rows() if isinstance(row.entry, Commit)]
    ops = {applied.op_id for commit in commits for applied in commit.ops}
    for item in agent.bank.state.items.values():
        assert item.source_turn_ids, f"{design.name}: item {item.id} names no source turn"
        assert set(item.source_turn_ids) <= turns, (
            f"{design.name}: item {item.id} names turns that do not exist"
        )
        assert item.op_id in ops, f"{design.name}: item {item.id} was made by no op of the log"
    chunks = [chunk for report in reports for chunk in report.chunks]
    reported = sum(len(chunk.applied) + len(chunk.rejected) for chunk in chunks)
    logged = sum(len(commit.ops) + len(commit.rejected) for commit in commits)
    assert reported == logged, (
        f"{design.name}: reports tell of {reported} ops, the log holds {logged}"
    )


async def _check_isolation(design: MemoryDesign, agent: AsyncAgent, model: ChatModel) -> None:
    before = agent.snapshot()
    fork = agent.at(before).with_model(model)
    await fork.memory.add("something only the fork knows")
    assert agent.snapshot().digest == before.digest, (
        f"{design.name}: a write to a fork must not reach the memory it came from"
    )
    assert fork.snapshot().digest != before.digest, (
        f"{design.name}: a write to a fork must change the fork"
    )
