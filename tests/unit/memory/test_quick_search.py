"""A search fuses its arms in columns; it gives what one dictionary an item gives, to the
last bit, on any memory.
"""

from __future__ import annotations

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
from memagent.search.fusion import (
    ARM_WEIGHTS,
    ORDER_DECIMALS,
    asking,
    calls,
    hits_of,
    length,
    named_in,
)
from memagent.search.index import Scoring, rounded
from memagent.search.segments import CONTEXT, OWN
from memagent.state.effects import query_terms

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


def by_dictionary(bank: MemoryBank, query: Query, *, k: int) -> list[tuple[str, float]]:
    """Ids and scores of a plain search, item by item in plain Python."""
    recipe = query.recipe or PLAIN
    words = query_terms(query.text) if "lexical" in query.arms else []
    vector = StaticEmbedder().encode([query.text])[0] if "dense" in query.arms else None
    scoring = Scoring(bank.view.index, vector=vector, words=words)
    size = max(recipe.pool, 2 * k)
    sums: dict[str, float] = {}
    floors, items = 0.0, bank.state.items
    for arm in ("dense", "dense_context", "lexical", "lexical_context"):
        if arm not in recipe.arms or (arm.startswith("dense") and vector is None):
            continue
        field = CONTEXT if arm.endswith("context") else OWN
        if arm.startswith("dense"):
            ranking, most = (
                scoring.listed(scoring.cosines(k=size, field=field, where=query.where)),
                1.0,
            )
        else:
            ranking = scoring.listed(scoring.words(k=size, field=field, where=query.where))
            most = scoring.lexical_most(field=field)
        weight = ARM_WEIGHTS[arm] / max(most, 1e-9)
        floor = max(ranking[size - 1][1], 0.0) if len(ranking) >= size else 0.0
        floors += weight * floor
        for item, score in ranking:
            sums[item.id] = sums.get(item.id, 0.0) + weight * max(score - floor, 0.0)
    known = {name for item in items.values() for name in (item.speaker, item.subject) if name}
    names = named_in(query.text, calls(sorted(known))) if recipe.names else frozenset[str]()
    scores: dict[str, float] = {}
    for item_id, total in sums.items():
        item = items[item_id]
        named = 1.0 + recipe.names if {item.speaker, item.subject} & names else 1.0
        scores[item_id] = (total + floors) * (named * asking(item.text) * length(item.text))
    order = sorted(scores, key=lambda item_id: (-round(scores[item_id], ORDER_DECIMALS), item_id))
    return [(item_id, scores[item_id]) for item_id in order[:k]]


@pytest.mark.parametrize("seed", range(12))
async def test_the_columns_give_the_hits_and_scores_of_a_dictionary(seed: int) -> None:
    dice = random.Random(seed)
    bank = await random_bank(seed, items=dice.choice((3, 40, 130, 400)))
    for _ in range(25):
        query, k = asked(dice), dice.choice((1, 5, 10, 60))
        hits = await bank.search(query, k=k)
        assert [(hit.id, hit.score) for hit in hits] == by_dictionary(bank, query, k=k)
        (bare,) = await bank.search_many([query], k=k, explain=False)
        assert [(hit.item, hit.score) for hit in bare] == [(hit.item, hit.score) for hit in hits]


async def test_a_search_that_looks_at_time_gives_the_same_hits_explained_or_not() -> None:
    bank = await random_bank(3, items=60)
    for text in ("boat last week", "what about tea in May 2024"):
        query = Query(text=text, recipe=BALANCED)
        explained = await bank.search(query, k=9)
        (bare,) = await bank.search_many([query], k=9, explain=False)
        assert [(hit.item, hit.score) for hit in bare] == [
            (hit.item, hit.score) for hit in explained
        ]
        assert all("time" in hit.why.factors or hit.why.arms for hit in explained)


async def test_an_empty_memory_and_words_nobody_used_find_nothing_or_go_by_cosine() -> None:
    bank = MemoryBank(embedder=StaticEmbedder(), clock=lambda: NOW)
    assert await bank.search_many([Query(text="boat")], k=5, explain=False) == [[]]
    bank = await random_bank(1, items=10)
    assert await bank.search(Query(text="zzz", arms=frozenset({"lexical"})), k=5) == []
    found: list[Hit] = await bank.search(Query(text="zzz"), k=5)
    assert len(found) == 5


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


@pytest.mark.parametrize("items", [0, 9, 700])
async def test_many_texts_find_what_each_finds_alone(items: int) -> None:
    bank, dice = await random_bank(3, items), random.Random(1)
    texts = ["", *(" ".join(dice.choices(WORDS, k=4)) for _ in range(5))]
    together = await bank.most_similar(texts, k=8)
    for text, near in zip(texts, together, strict=True):
        (alone,) = await bank.most_similar([text], k=8)
        assert [(one.id, one.score, one.arms, one.ranks) for one in near] == [
            (one.id, one.score, one.arms, one.ranks) for one in alone
        ]
        for hit in hits_of(near):  # a hit that nothing checked is one that passes every check
            checked = Hit.model_validate(hit.model_dump())
            assert checked == hit and repr(checked) == repr(hit)
            assert hit.model_copy(update={"score": 1.0}).score == 1.0
            assert Hit.model_validate_json(hit.model_dump_json()) == hit
