"""A plain search takes a quick way; it gives what the long way gives, to the last bit,
on any memory.
"""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime

import numpy as np
import pytest
from bank_kit import WORDS

from memagent.core.answers import Filter, Hit, Query
from memagent.core.ops import Add, Delete, MemoryOp, OpBatch, Update
from memagent.core.recipes import BALANCED, FAST, PLAIN, Recipe
from memagent.core.records import Fact, Session, SourceRef, Turn
from memagent.embed.static import StaticEmbedder
from memagent.memory.bank import MemoryBank
from memagent.search import pipeline as long_way
from memagent.search.fusion import ORDER_DECIMALS
from memagent.search.scoring import rounded

NOW = datetime(2024, 5, 1, tzinfo=UTC)
RECIPES = (
    PLAIN,
    BALANCED,
    FAST,
    Recipe(pool=12),
    Recipe(names=0.0),
    Recipe(arms=frozenset({"lexical", "dense_context"})),
)


async def random_bank(seed: int, items: int) -> MemoryBank:
    """Items with and without turns behind them, in several commits, some rewritten,
    some deleted, many alike.
    """
    dice = random.Random(seed)
    bank = MemoryBank(embedder=StaticEmbedder(), clock=lambda: NOW)
    turns = tuple(
        Turn(
            id=f"t{i}", speaker=dice.choice(("Ana", "Bo")), text=" ".join(dice.choices(WORDS, k=6))
        )
        for i in range(30)
    )
    await bank.store_session(Session(id="s1", at=NOW, turns=turns))
    told = dice.random() < 0.7
    while len(bank.state.items) < items:
        ops: list[MemoryOp] = []
        for _ in range(dice.choice((1, 2, 9, 40))):
            known = sorted(bank.state.items)
            text = " ".join(dice.choices(WORDS, k=dice.randint(1, 8))) + dice.choice(
                ("", "?", f" {dice.randrange(9)}")
            )
            sources = (dice.choice(turns).id,) if told and dice.random() < 0.5 else ()
            name = dice.choice((None, "Ana", "Bo Lind"))
            ops.append(
                Add(fact=Fact(text=text, subject=name, speaker=name, source_turn_ids=sources))
            )
            if known and dice.random() < 0.15:
                ops.append(Update(id=dice.choice(known), text=text, source_turn_ids=sources))
            elif known and dice.random() < 0.15:
                ops.append(Delete(id=dice.choice(known)))
        by_id = {getattr(op, "id", None) or str(i): op for i, op in enumerate(ops)}
        await bank.commit(OpBatch(accepted=tuple(by_id.values())), source=SourceRef())
        if dice.random() < 0.5:
            await bank.refresh()
    return bank


def asked(dice: random.Random) -> Query:
    """A question about words, perhaps of somebody, perhaps among some only."""
    words = [
        *dice.choices(WORDS, k=dice.randint(1, 5)),
        *dice.choices(("Ana", "Bo", "nowhere", "the"), k=dice.randint(0, 2)),
    ]
    where = dice.choice(
        (
            Filter(),
            Filter(),
            Filter(speakers=frozenset({"Ana"})),
            Filter(subjects=frozenset({"Ana", "Bo Lind"}), kinds=frozenset({"fact"})),
        )
    )
    arms = dice.choice(
        (frozenset({"dense", "lexical"}), frozenset({"dense", "lexical"}), frozenset({"lexical"}))
    )
    return Query(text=" ".join(words), where=where, recipe=dice.choice(RECIPES), arms=arms)


@pytest.mark.parametrize("seed", range(12))
def test_the_quick_way_gives_the_hits_scores_and_reasons_of_the_long_way(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        dice = random.Random(seed)
        bank = await random_bank(seed, items=dice.choice((3, 40, 130, 400)))
        for _ in range(25):
            query, k = asked(dice), dice.choice((1, 5, 10, 60))
            quick = await bank.search(query, k=k)
            bare = await bank.ranked(query, k=k)
            with monkeypatch.context() as patch:
                patch.setattr(long_way, "adds_nothing", lambda _: False)
                full = await bank.search(query, k=k)
            assert quick == full
            assert [hit.model_dump_json() for hit in quick] == [
                hit.model_dump_json() for hit in full
            ]
            assert bare == [(hit.item, hit.score) for hit in full]

    asyncio.run(run())


def test_a_search_that_looks_at_time_gives_the_same_hits_explained_or_not() -> None:
    async def run() -> None:
        bank = await random_bank(3, items=60)
        for text in ("boat last week", "what about tea in May 2024"):
            query = Query(text=text, recipe=BALANCED)
            explained = await bank.search(query, k=9)
            bare = await bank.ranked(query, k=9)
            assert bare == [(hit.item, hit.score) for hit in explained]
            assert all("time" in hit.why.factors or hit.why.arms for hit in explained)

    asyncio.run(run())


def test_an_empty_memory_and_words_nobody_used_find_nothing_or_go_by_cosine() -> None:
    async def run() -> None:
        bank = MemoryBank(embedder=StaticEmbedder(), clock=lambda: NOW)
        assert await bank.ranked(Query(text="boat"), k=5) == []
        bank = await random_bank(1, items=10)
        assert await bank.search(Query(text="zzz", arms=frozenset({"lexical"})), k=5) == []
        found: list[Hit] = await bank.search(Query(text="zzz"), k=5)
        assert len(found) == 5

    asyncio.run(run())


def test_numbers_are_rounded_as_python_rounds_them() -> None:
    dice = random.Random(7)
    values = [dice.uniform(-60, 60) for _ in range(20_000)]
    values += [n / 2 ** dice.randrange(1, 30) for n in range(-500, 500)]
    values += [
        (2 * n + 1) * 5.0 * 10 ** -(decimals + 1)
        for n in range(-300, 300)
        for decimals in (6, ORDER_DECIMALS)
    ]
    for decimals in (6, ORDER_DECIMALS):
        assert rounded(np.asarray(values), decimals).tolist() == [
            round(value, decimals) for value in values
        ]
