"""Vectors are kept by (embedder, text digest), seen at once, written with the next
commit, and gone with an erasure.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from postgres_kit import journal_at

from memagent.core.errors import EmbeddingError, StoreError
from memagent.core.records import Scope
from memagent.core.snapshot import Erased, StatsDelta
from memagent.journal.sqlite import SqlJournal
from memagent.protocols import EmbeddingCache, Vector

ANN = Scope(user_id="ann")


def vectors(*names: str) -> dict[str, Vector]:
    return {name: np.full(3, float(len(name)), dtype=np.float32) for name in names}


@pytest.fixture(params=["sqlite", "postgres"])
def cache(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EmbeddingCache]:
    with ExitStack() as opened:
        place = str(tmp_path / "j.db")
        if request.param == "postgres":
            place = opened.enter_context(request.getfixturevalue("postgres").schema())
        yield opened.enter_context(journal_at(place)).cache


def test_what_is_kept_is_found_again(cache: EmbeddingCache) -> None:
    cache.put_many("e/1", vectors("a", "bb"))
    cache.put_many("e/2", vectors("ccc"))
    cache.put_many("e/1", {})
    found = cache.get_many("e/1", ["bb", "unknown", "a", "bb", "ccc"])
    assert list(found) == ["bb", "a"]
    assert all(vector.dtype == np.float32 and vector.shape == (3,) for vector in found.values())
    assert found["bb"].tolist() == [2.0, 2.0, 2.0]
    assert cache.get_many("e/1", []) == {}


def test_no_caller_can_change_what_others_get(cache: EmbeddingCache) -> None:
    given = np.ones(2, dtype=np.float32)
    cache.put_many("e", {"a": given})
    given[0] = 7
    with pytest.raises(ValueError, match="read-only"):
        cache.get_many("e", ["a"])["a"][0] = 8
    assert cache.get_many("e", ["a"])["a"].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("bad", [[[1.0]], [], [float("nan")], [float("inf")], 1.0])
def test_unusable_vectors_are_refused(cache: EmbeddingCache, bad: object) -> None:
    with pytest.raises(EmbeddingError):
        cache.put_many(
            "e", {"fine": np.ones(1, dtype=np.float32), "bad": np.asarray(bad, dtype=np.float32)}
        )
    assert cache.get_many("e", ["fine", "bad"]) == {}


async def test_vectors_are_written_with_a_commit_and_on_closing(place: str) -> None:
    with journal_at(place) as journal, journal_at(place, read_only=True) as reader:
        journal.cache.put_many("e", vectors("a"))
        await journal.append(ANN, StatsDelta(), expect=0)
        assert list(reader.cache.get_many("e", ["a"])) == ["a"]
        journal.cache.put_many("e", vectors("bb", "a"))
        reader.cache.put_many("e", vectors("kept nowhere"))
    with journal_at(place) as journal:
        assert list(journal.cache.get_many("e", ["a", "bb", "kept nowhere"])) == ["a", "bb"]
        cache = journal.cache
    with pytest.raises(StoreError, match="closed"):
        cache.get_many("e", ["a"])


async def test_vectors_are_written_even_when_nothing_else_is(place: str) -> None:
    with journal_at(place) as journal, journal_at(place, read_only=True) as reader:
        for name in ("a", "bb"):
            journal.cache.put_many("e", vectors(name))
            for _ in range(100):
                if reader.cache.get_many("e", [name]):
                    break
                await asyncio.sleep(0.02)
            assert list(reader.cache.get_many("e", [name])) == [name]


def test_many_vectors_are_found_in_one_call(place: str) -> None:
    names = {f"{number:064x}": np.full(4, number, dtype=np.float32) for number in range(1_200)}
    with journal_at(place) as journal:
        journal.cache.put_many("e", names)
    with journal_at(place) as journal:
        found = journal.cache.get_many("e", list(names))
        assert {name: vector[0] for name, vector in found.items()} == {
            name: vector[0] for name, vector in names.items()
        }


async def test_any_erasure_empties_the_cache(place: str) -> None:
    with journal_at(place) as journal:
        journal.cache.put_many("e", vectors("a"))
        await journal.append(Scope(user_id="bob"), StatsDelta(), expect=0)
        journal.cache.put_many("e", vectors("not yet written"))
        await journal.append(ANN, Erased(), expect=0)
        assert journal.cache.get_many("e", ["a", "not yet written"]) == {}


@pytest.mark.parametrize(
    "damage",
    ["vector = x'0000'", "vector = x'000080400000803f0000803f'", "dim = 4", "crc = crc + 1"],
)
def test_a_damaged_row_counts_as_unknown_and_is_written_anew(tmp_path: Path, damage: str) -> None:
    with SqlJournal(tmp_path / "j.db") as journal:
        journal.cache.put_many("e", vectors("a", "bb"))
    with sqlite3.connect(tmp_path / "j.db") as database:
        database.execute(f"UPDATE embeddings SET {damage} WHERE digest = 'a'")
    database.close()
    with SqlJournal(tmp_path / "j.db") as journal:
        assert list(journal.cache.get_many("e", ["a", "bb"])) == ["bb"]
        journal.cache.put_many("e", vectors("a"))
    with SqlJournal(tmp_path / "j.db") as journal:
        assert list(journal.cache.get_many("e", ["a", "bb"])) == ["a", "bb"]
