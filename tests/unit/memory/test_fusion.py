"""Fusion: arms add up by score, what a full arm does not list gets its floor, and
names, questions and length move a hit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import numpy as np
import pytest

from memagent.core.answers import Query
from memagent.core.ops import Add, OpBatch
from memagent.core.recipes import PLAIN
from memagent.core.records import Fact, MemoryItem, SourceRef
from memagent.embed.static import StaticEmbedder
from memagent.memory.bank import MemoryBank
from memagent.search.fusion import ARM_WEIGHTS, ASKING, TOLD_CHARS, Pool, asking, length
from memagent.search.index import Ranking, Scored, Scoring
from memagent.search.segments import CONTEXT, OWN
from memagent.state.effects import query_terms

TOLD = "went to the market and bought a red bicycle with a basket for the weekend"
Numbers = Mapping[str, float]


def item(item_id: str) -> MemoryItem:
    return MemoryItem(id=item_id, text="a boat", kind="turn")


ITEMS = A, C, D = item("mem_a"), item("mem_c"), item("mem_d")
DENSE, LEXICAL = ARM_WEIGHTS["dense"], ARM_WEIGHTS["lexical"]


class Places:
    """The pieces of a view whose places are the numbers of `ITEMS`."""

    size = len(ITEMS)

    def items_at(self, places: np.ndarray) -> list[MemoryItem]:
        return [ITEMS[place] for place in places]


def pool_of(
    arms: Mapping[str, Sequence[Scored]], most: Numbers | None = None, *, size: int = 10
) -> Pool:
    """The fused pool of some rankings, best first."""
    rankings = {
        name: Ranking(
            np.asarray([ITEMS.index(item) for item, _ in scored], np.int64),
            np.asarray([score for _, score in scored], float),
        )
        for name, scored in arms.items()
    }
    return Pool(rankings, most=most or {}, size=size, pieces=Places())  # type: ignore[arg-type]


def fused(
    arms: Mapping[str, Sequence[Scored]], most: Numbers | None = None, *, size: int = 10
) -> dict[str, float]:
    """Scores by item id."""
    pool = pool_of(arms, most, size=size)
    return {item.id: score for item, score in zip(pool.items, pool.scores, strict=True)}


def test_arms_add_up_as_weighted_shares_of_the_most_they_could_give() -> None:
    arms = {"dense": [(A, 0.8), (C, 0.2)], "lexical": [(C, 6.0)]}
    assert fused(arms, {"lexical": 12.0}) == pytest.approx(
        {"mem_a": DENSE * 0.8, "mem_c": DENSE * 0.2 + LEXICAL * 0.5}
    )


def test_a_full_arm_gives_its_last_score_to_what_it_does_not_list_and_a_short_one_nothing() -> None:
    arms = {"dense": [(A, 0.8), (C, 0.3)], "lexical": [(D, 1.0)]}
    assert fused(arms, size=2) == pytest.approx(
        {"mem_a": DENSE * 0.8, "mem_c": DENSE * 0.3, "mem_d": LEXICAL + DENSE * 0.3}
    )
    assert fused(arms, size=3)["mem_d"] == pytest.approx(LEXICAL)


def test_what_a_later_ranking_brings_starts_from_the_floors_of_the_arms_before() -> None:
    pool = pool_of({"dense": [(A, 0.8), (C, 0.3)]}, size=2)
    pool.add("graph", [(D, 0.1), (A, 0.05)], most=0.1)
    graph = ARM_WEIGHTS["graph"]
    assert dict(zip((item.id for item in pool.items), pool.scores, strict=True)) == pytest.approx(
        {"mem_a": DENSE * 0.8 + graph / 2, "mem_c": DENSE * 0.3, "mem_d": DENSE * 0.3 + graph}
    )
    best = pool.candidates(pool.best(pool.scores, 2), pool.scores)
    pool.explain(best)
    assert [(one.id, one.arms, one.ranks) for one in best] == [
        ("mem_a", {"dense": 0.8, "graph": 0.05}, {"dense": 1, "graph": 2}),
        ("mem_d", {"graph": 0.1}, {"graph": 1}),
    ]


def test_a_cosine_below_zero_takes_nothing_away() -> None:
    assert fused({"dense": [(A, 0.4), (C, -0.3)]}, size=2) == pytest.approx(
        {"mem_a": DENSE * 0.4, "mem_c": 0.0}
    )


def test_arms_without_hits_or_room_are_harmless() -> None:
    assert fused({"dense": [], "lexical": []}, most={"lexical": 0.0}) == {}
    assert fused({}) == {}


def test_a_text_that_asks_counts_less_in_any_script_and_a_short_one_less_than_a_long_one() -> None:
    assert asking("Is it?") == asking("何？") == asking("ماذا؟") == ASKING < 1.0
    assert asking("It is.") == asking("? no") == 1.0
    worth = [length("w" * count) for count in (1, 20, 100, TOLD_CHARS, 10 * TOLD_CHARS)]
    assert worth == sorted(worth)
    assert worth[-1] == worth[-2] == 1.0
    assert 0.0 < worth[0] < worth[2] < 1.0


async def bank_of(texts: Sequence[tuple[str, str]]) -> MemoryBank:
    bank = MemoryBank(embedder=StaticEmbedder(), clock=lambda: datetime(2024, 1, 1, tzinfo=UTC))
    ops = tuple(
        Add(id=f"mem_{at:03}", fact=Fact(text=text, kind="turn", speaker=speaker, subject=speaker))
        for at, (speaker, text) in enumerate(texts)
    )
    await bank.commit(OpBatch(accepted=ops), source=SourceRef(actor="test"))
    await bank.refresh()
    return bank


@pytest.mark.parametrize("name", ["Ana", "Rui"])
async def test_a_plain_search_finds_first_what_the_named_speaker_told(name: str) -> None:
    bank = await bank_of(
        [("Rui", TOLD), ("Ana", TOLD), ("Ana", "Yes!"), ("Rui", "What about a bicycle?")]
    )
    hits = await bank.search(Query(text=f"What did {name} buy at the market?"), k=4)
    assert hits[0].item is not None and hits[0].item.speaker == name
    assert hits[0].why.factors["names"] == 1.0 + PLAIN.names
    asks = next(hit for hit in hits if hit.text.endswith("?"))
    assert asks.why.factors["asking"] == ASKING


async def test_no_text_reaches_the_most_of_bm25_and_unknown_words_make_it_higher() -> None:
    view = (
        await bank_of(
            [("Ana", "tulip " * 400), ("Rui", "a tulip and a rose"), ("Rui", "the cellar")]
        )
    ).view.index
    scoring = Scoring(view, words=query_terms("tulip rose"))
    further = Scoring(view, words=query_terms("tulip rose unheard"))
    for field in (OWN, CONTEXT):
        most = scoring.lexical_most(field=field)
        best = scoring.listed(scoring.words(k=3, field=field))[0][1]
        assert 0 < best < most < further.lexical_most(field=field)
    assert Scoring(view).lexical_most() == 0.0


async def test_a_word_that_only_deleted_items_used_counts_like_one_never_seen() -> None:
    async def most(texts: Sequence[tuple[str, str]], *, forget: str | None) -> tuple[int, float]:
        bank = await bank_of(texts)
        view = bank.view.index if forget is None else bank.view.index.drop([forget])
        return len(view), Scoring(view, words=query_terms("tulip cellar")).lexical_most()

    kept = [("Rui", "the cellar"), ("Rui", "the attic")]
    never, forgotten = (
        await most(kept, forget=None),
        await most([*kept, ("Ana", "tulip")], forget="mem_002"),
    )
    assert never[0] == forgotten[0]
    assert never[1] == pytest.approx(forgotten[1])
