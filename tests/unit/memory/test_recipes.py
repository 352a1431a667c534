"""Recipes: what each knob does, that every hit explains its score, and that the order
of hits depends on no index.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from math import prod
from typing import Any

import pytest
from bank_kit import filled
from places import ROOT
from pydantic import ValidationError

from memagent.agent import Agent
from memagent.build import open_agent
from memagent.core.answers import Filter, Hit, Query, Question
from memagent.core.errors import ConfigError
from memagent.core.ops import Add, OpBatch
from memagent.core.recipes import BALANCED, DEEP, FAST, PLAIN, RECIPES, Recipe, recipe_of
from memagent.core.records import Fact, ItemStats, MemoryItem, Session, SourceRef, TimeSpan, Turn
from memagent.designs.verbatim import DESIGN as VERBATIM
from memagent.embed.static import HashEmbedder
from memagent.memory.bank import MemoryBank
from memagent.memory.facade import Memory
from memagent.protocols import VectorIndex
from memagent.readers import iter_conversations
from memagent.search.cuts import budget, collapse, fixed_words, quota, token_estimate, word_overlap
from memagent.search.fusion import (
    ARM_WEIGHTS,
    calls,
    importance,
    length,
    named_in,
    nearness,
    recency,
)
from memagent.search.index import Scoring
from memagent.search.segments import CONTEXT, OWN
from memagent.state.effects import query_terms
from memagent.vectors.projection import IndexProjection

SAMPLE = ROOT / "examples" / "data" / "two_friends.txt"
DAY = datetime(2024, 3, 1, tzinfo=UTC)
NOW = DAY + timedelta(days=100)
WORDS = "boat harbour tea lisbon porto dog chess piano garden winter rent flight market bridge letter".split()


def span(first: int, last: int) -> TimeSpan:
    return TimeSpan(start=DAY + timedelta(days=first), end=DAY + timedelta(days=last))


def item(**fields: Any) -> MemoryItem:
    return MemoryItem(id="mem_1", text="a boat", **fields)


async def told(
    turns: Sequence[tuple[str, str]], *, at: datetime = DAY, bank: MemoryBank | None = None
) -> MemoryBank:
    """A bank in which every turn (speaker, text) of a session is an item; on top of
    another one, a fork of it.
    """
    bank = (
        bank.fork()
        if bank is not None
        else MemoryBank(embedder=HashEmbedder(dim=64), clock=lambda: NOW)
    )
    number = len(bank.state.sessions)
    session = Session(
        id=f"s{number}",
        at=at,
        turns=tuple(
            Turn(id=f"D{number}:{i}", speaker=who, text=text) for i, (who, text) in enumerate(turns)
        ),
    )
    await store(bank, session)
    return bank


async def store(bank: MemoryBank, session: Session) -> None:
    """Put a session's turns into a bank, every turn an item."""
    await bank.store_session(session)
    facts = (
        Fact(text=turn.text, speaker=turn.speaker, source_turn_ids=(turn.id,), kind="turn")
        for turn in session.turns
    )
    await bank.commit(
        OpBatch(accepted=tuple(Add(fact=fact) for fact in facts)),
        source=SourceRef(session_id=session.id),
    )


async def search(bank: MemoryBank, text: str, *, k: int = 10, **knobs: Any) -> list[Hit]:
    return await bank.fork().search(Query(text=text, recipe=Recipe(**knobs)), k=k)


def texts(hits: Sequence[Hit]) -> list[str]:
    return [hit.text for hit in hits]


# -- pure parts ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("age_days", "weight"), [(0, 1.0), (30, 0.5), (60, 0.25), (-5, 1.0), (15, 0.70711)]
)
def test_recency_halves_with_each_half_life(age_days: int, weight: float) -> None:
    assert recency(NOW - timedelta(days=age_days), now=NOW, half_life_days=30) == pytest.approx(
        weight, abs=1e-5
    )
    assert recency(None, now=NOW, half_life_days=30) == 1.0


@pytest.mark.parametrize(
    ("what", "near"),
    [
        ({"said_at": DAY + timedelta(days=12)}, 1.0),
        ({"said_at": DAY + timedelta(days=10)}, 1.0),
        ({"said_at": DAY + timedelta(days=30)}, 0.5),
        ({"said_at": DAY}, 0.5),
        ({"valid": span(8, 11)}, 1.0),
        ({"valid": span(30, 40)}, 0.5),
        ({"valid": span(30, 40), "said_at": DAY + timedelta(days=19)}, 1.0),
        ({"valid": TimeSpan(start=None, end=DAY)}, 0.5),
        ({}, 0.0),
    ],
)
def test_proximity_halves_with_each_length_of_the_span(what: dict[str, Any], near: float) -> None:
    assert nearness(span(10, 20))(item(**what)) == pytest.approx(near)


def test_proximity_to_an_open_span_counts_from_its_bound() -> None:
    since = TimeSpan(start=DAY)
    assert nearness(since)(item(said_at=DAY + timedelta(days=999))) == 1.0
    assert nearness(since)(item(said_at=DAY - timedelta(days=30))) == pytest.approx(0.5)


def test_a_span_that_ends_where_the_asked_one_begins_is_near_and_not_in_it() -> None:
    assert 0.999 < nearness(span(10, 20))(item(valid=span(5, 10))) < 1.0


def test_importance_is_stated_or_learned_and_stays_between_nought_and_one() -> None:
    assert importance(item(metadata={"importance": 0.7}), ItemStats(q_value=0.1)) == 0.7
    assert importance(item(metadata={"importance": 7}), None) == 1.0
    assert importance(item(metadata={"importance": "high"}), ItemStats(q_value=0.1)) == 0.1
    assert importance(item(), ItemStats(q_value=-3)) == 0.0
    assert importance(item(), None) == 0.0


def test_names_are_found_whole_by_first_name_and_as_possessive() -> None:
    known = calls(["Ana", "Bo Larsen", "李雷", "X"])
    assert named_in("Where does ANA live?", known) == {"Ana"}
    assert named_in("Is it Bo's boat, or “Ana’s”?", known) == {"Bo Larsen", "Ana"}
    assert named_in("Bo Larsen said so", known) == {"Bo Larsen"}
    assert named_in("李雷 在 哪里?", known) == {"李雷"}
    assert named_in("Bananas grow in X", known) == frozenset()


def test_quota_keeps_the_first_of_each_group() -> None:
    assert quota(["a", "a", "b", None, "a", "b", None, "b"], most=2) == [0, 1, 2, 3, 5, 6]


def test_budget_passes_over_what_does_not_fit() -> None:
    assert budget([5, 7, 3, 2, 1], most=10) == [0, 2, 3]
    assert budget([11, 12], most=10) == []


def test_collapse_joins_the_first_better_one_of_the_same_frame() -> None:
    near = {(0, 2), (0, 4), (1, 3)}
    groups = collapse(["x", "y", "x", "y", "z"], lambda a, b: (a, b) in near)
    assert groups == [(0, (2,)), (1, (3,)), (4, ())]


def test_numbers_and_names_are_fixed_words_and_a_first_word_is_not() -> None:
    assert fixed_words("Yes, Ana paid 20 to Bo in 2023") == ("Ana", "20", "Bo", "2023")
    assert fixed_words("Paid") == ()


def test_words_overlap_as_a_share_of_all_words() -> None:
    assert word_overlap(frozenset("abc"), frozenset("bcd")) == 0.5
    assert word_overlap(frozenset(), frozenset()) == 0.0


@pytest.mark.parametrize(
    ("text", "tokens"), [("", 1), ("abcd", 1), ("abcde", 2), ("東京に行った", 6), ("東京 abcd", 4)]
)
def test_tokens_are_estimated_by_letters(text: str, tokens: int) -> None:
    assert token_estimate(text) == tokens


# -- knobs -----------------------------------------------------------------------------


def test_a_recipe_by_name_is_the_constant_and_a_wrong_name_says_which_there_are() -> None:
    assert Query(text="x", recipe="deep").recipe is DEEP  # pyright: ignore[reportArgumentType]
    assert Question(text="x", recipe="fast").recipe is FAST  # pyright: ignore[reportArgumentType]
    assert recipe_of("balanced") is BALANCED
    with pytest.raises(ConfigError, match="no recipe is named 'depe'; did you mean 'deep'"):
        recipe_of("depe")
    with pytest.raises(ValidationError, match="no recipe is named"):
        Query(text="x", recipe="nothing")  # pyright: ignore[reportArgumentType]


async def test_a_query_without_a_recipe_is_searched_plainly() -> None:
    bank = await filled(12)
    asked = [Query(text="Ana likes tea", recipe=recipe) for recipe in (None, PLAIN)]
    one, other = [await bank.search(query, k=5) for query in asked]
    assert one == other


async def test_neighbouring_turns_come_with_a_hit_and_count_in_k() -> None:
    bank = await told([("Ana", f"{word} stays") for word in ("snow", "boat", "kettle", "drum")])
    assert texts(await search(bank, "boat", arms={"lexical"})) == ["boat stays"]
    hits = await search(bank, "boat", neighbours=1, arms={"lexical"})
    assert texts(hits) == [
        "boat stays",
        *sorted(["snow stays", "kettle stays"], key=texts(hits).index),
    ]
    assert {hit.why.expanded_from for hit in hits[1:]} == {hits[0].id}
    assert len(await search(bank, "boat", k=2, neighbours=2, arms={"lexical"})) == 2


async def test_more_of_the_best_session_is_found() -> None:
    bank = await told([("Ana", "the boat leaks"), ("Bo", "paint will do"), ("Ana", "so it floats")])
    bank = await told([("Ana", "nothing here"), ("Bo", "indeed nothing")], bank=bank)
    hits = await search(bank, "boat", arms={"lexical"}, sessions=1)
    assert sorted(texts(hits)) == ["paint will do", "so it floats", "the boat leaks"]
    assert {
        hit.why.expanded_from
        for hit in hits
        if "session" in hit.why.arms and "lexical" not in hit.why.arms
    } == {next(hit.id for hit in hits if hit.text == "the boat leaks")}


async def test_what_the_event_graph_links_is_found_with_its_path() -> None:
    bank = MemoryBank(embedder=HashEmbedder(dim=32))
    made = Memory(bank)
    first = await made.add("the boat was sold", subject="Ana", valid=span(0, 1))
    then = await made.add("a flat in Porto", subject="Ana", valid=span(5, 6))
    hits = await made.search("boat", recipe=Recipe(arms=frozenset({"lexical_context"}), graph=5))
    assert [hit.id for hit in hits] == [first.id, then.id]
    assert hits[1].why.via[0][0] == first.id
    assert "graph" in hits[1].why.arms
    await made.delete(then.id)
    assert len(await made.search("boat", recipe=Recipe(arms=frozenset({"lexical"}), graph=5))) == 1


@pytest.mark.parametrize(
    ("time", "first", "count"),
    [("off", "2024-03-01", 3), ("soft", "2024-05-10", 3), ("hard", "2024-05-10", 1)],
)
async def test_a_time_in_the_question_weighs_or_filters(time: str, first: str, count: int) -> None:
    async def run() -> list[Hit]:
        bank: MemoryBank | None = None
        for days in (0, 70, 400):
            bank = await told(
                [("Ana", "we went out in the boat")], at=DAY + timedelta(days=days), bank=bank
            )
        assert bank is not None
        recipe = Recipe(arms=frozenset({"lexical"}), time=time)  # pyright: ignore[reportArgumentType]
        query = Query(text="what about the boat in May 2024?", recipe=recipe)
        ids = sorted(item.id for item in bank.state.items.values())
        hits = await bank.search(query, k=10)
        assert time != "off" or [hit.id for hit in hits] == ids  # three equal texts: ties by id
        return hits

    hits = await run()
    assert len(hits) == count
    if time != "off":
        assert hits[0].item is not None and hits[0].item.said_at is not None
        assert f"{hits[0].item.said_at:%Y-%m-%d}" == first
        assert hits[0].why.factors == {"time": 2.0, "length": length("we went out in the boat")}


async def test_relative_times_are_read_from_when_it_is_asked() -> None:
    bank = await told([("Ana", "the boat is new")], at=DAY)
    query = Query(
        text="boat last month", recipe=Recipe(time="hard"), asked_at=DAY + timedelta(days=31)
    )
    assert len(await bank.fork().search(query, k=5)) == 1
    later = query.model_copy(update={"asked_at": DAY + timedelta(days=90)})
    assert await bank.fork().search(later, k=5) == []


async def test_whoever_is_named_weighs_more() -> None:
    bank = await told([("Ana", "the boat is mine"), ("Bo", "the boat is mine")])
    for name in ("Ana", "Bo"):
        hit = (await search(bank, f"does {name} own the boat", names=0.5))[0]
        assert hit.item is not None and hit.item.speaker == name
        assert hit.why.factors == {"names": 1.5, "length": length("the boat is mine")}


async def test_old_and_unimportant_memories_weigh_less() -> None:
    made = Memory(MemoryBank(embedder=HashEmbedder(dim=32), clock=lambda: NOW))
    for days in (80, 0, 40):
        await made.add(
            "a boat", said_at=NOW - timedelta(days=days), metadata={"importance": days / 80}
        )
    recent = await made.search("boat", recipe=Recipe(half_life_days=20))
    assert [hit.item.said_at for hit in recent if hit.item] == sorted(
        (hit.item.said_at for hit in recent if hit.item and hit.item.said_at), reverse=True
    )
    assert [hit.why.factors.get("recency", 1.0) for hit in recent] == pytest.approx(
        [1.0, 0.25, 0.0625]
    )
    heavy = await made.search("boat", recipe=Recipe(importance=1.0))
    assert [hit.why.factors.get("importance", 1.0) for hit in heavy] == [2.0, 1.5, 1.0]


async def test_near_duplicates_collapse_into_the_best_and_it_names_them() -> None:
    blue = [("Ana", "my boat is blue"), ("Ana", "My boat is blue!"), ("Bo", "my boat is blue")]
    turns = [*blue, ("Ana", "my boat is 12 long"), ("Ana", "my boat is 13 long")]
    bank = await told(turns)
    hits = await search(bank, "blue boat", collapse=0.9)
    assert len(hits) == 4
    [head] = [hit for hit in hits if hit.why.collapsed]
    assert head.text.lower().startswith("my boat is blue") and len(head.why.collapsed) == 1
    assert head.why.collapsed[0] not in {hit.id for hit in hits}


async def test_a_session_gives_no_more_than_its_quota() -> None:
    bank = await told([("Ana", f"boat {word}") for word in WORDS])
    bank = await told([("Ana", "a boat at last")], bank=bank)
    hits = await search(bank, "boat", per_session=2)
    assert sorted(hit.item.session_id or "" for hit in hits if hit.item) == ["s0", "s0", "s1"]


async def test_tokens_bound_the_hits_and_every_hit_says_its_own() -> None:
    made = Memory(MemoryBank(embedder=HashEmbedder(dim=32)))
    for i in range(9):
        await made.add("boat " * (4 * i + 1))
    hits = await made.search("boat", max_tokens=30)
    spent = [hit.why.tokens or 0 for hit in hits]
    assert 0 < sum(spent) <= 30
    assert spent == [token_estimate(hit.text) for hit in hits]
    with pytest.raises(ConfigError, match="max_tokens is 0"):
        await made.search("boat", max_tokens=0)


# -- the whole -------------------------------------------------------------------------


async def sample_bank(index: VectorIndex | None = None) -> MemoryBank:
    """The sample conversation, every turn an item."""
    bank = MemoryBank(
        embedder=HashEmbedder(dim=64),
        index=None if index is None else IndexProjection(index),
        clock=lambda: NOW,
    )
    for conversation in iter_conversations(SAMPLE):
        for session in conversation.sessions:
            await store(bank, session)
    return bank


async def random_bank(index: VectorIndex | None = None) -> MemoryBank:
    """Items of random words, speakers, times and sessions, many of them alike."""
    dice = random.Random(5)
    bank = MemoryBank(
        embedder=HashEmbedder(dim=32),
        index=None if index is None else IndexProjection(index),
        clock=lambda: NOW,
    )
    for number in range(12):
        turns = [
            (dice.choice(["Ana", "Bo", "Chi"]), " ".join(dice.choices(WORDS, k=dice.randint(1, 5))))
            for _ in range(20)
        ]
        session = Session(
            id=f"s{number}",
            at=DAY + timedelta(days=9 * number),
            turns=tuple(
                Turn(id=f"D{number}:{i}", speaker=who, text=text)
                for i, (who, text) in enumerate(turns)
            ),
        )
        await store(bank, session)
    for number in range(40):
        fact = Fact(
            text=" ".join(dice.choices(WORDS, k=3)),
            subject=dice.choice(["Ana", "Bo"]),
            valid=span(number, number + 2),
        )
        await bank.commit(
            OpBatch(accepted=(Add(fact=fact, tags=("odd",) * (number % 2)),)),
            source=SourceRef(actor="user"),
        )
    return bank


ASKED = (
    "What did Ana say about the boat?",
    "dog piano",
    "Where is Ravi's cat?",
    "garden in April 2024",
    "market last month",
    "?",
)
FILTERS = (
    Filter(),
    Filter(speakers=frozenset({"Ana", "Ravi"})),
    Filter(said=span(0, 60)),
    Filter(valid=span(10, 30), tags=frozenset({"odd"})),
    Filter(session_ids=frozenset({"s1", "s2"})),
    Filter(speakers=frozenset({"Nobody"})),
)


@pytest.mark.filterwarnings("ignore:Payload indexes have no effect in the local Qdrant")
@pytest.mark.parametrize("pairs", ["each", pytest.param("all", marks=pytest.mark.full)])
@pytest.mark.parametrize("make", [sample_bank, random_bank])
def test_qdrant_and_numpy_give_the_same_hits_by_every_recipe(make: Any, pairs: str) -> None:
    """Each recipe without a filter and with one, each filter with a recipe; all pairs in
    the full tier.
    """
    client_module = pytest.importorskip(
        "qdrant_client", reason='needs the extra: pip install "memagent[qdrant]"'
    )
    from memagent.vectors.qdrant_index import QdrantIndex

    async def run() -> None:
        ours = await make()
        theirs = await make(QdrantIndex(client_module.AsyncQdrantClient(location=":memory:")))
        recipes = [
            *RECIPES.values(),
            DEEP.model_copy(update={"time": "hard", "per_session": 2, "half_life_days": 30.0}),
        ]
        some = 0
        for number, recipe in enumerate(recipes):
            one_other = 1 + number % (len(FILTERS) - 1)
            for where in FILTERS if pairs == "all" else (FILTERS[0], FILTERS[one_other]):
                queries = [
                    Query(text=text, where=where, recipe=recipe, asked_at=NOW) for text in ASKED
                ]
                one = await ours.search_many(queries, k=8)
                assert one == await theirs.search_many(queries, k=8)
                some += sum(map(len, one))
        assert len(recipes) >= len(FILTERS) - 1
        assert some > (300 if pairs == "all" else 100)

    asyncio.run(run())


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("make", [sample_bank, random_bank])
async def test_every_hit_explains_its_score_and_none_is_there_twice(name: str, make: Any) -> None:
    bank = await make()
    digest = bank.state.digest()
    for text in ASKED:
        for k in (1, 7, 40):
            hits = await bank.search(Query(text=text, recipe=RECIPES[name]), k=k)
            most = most_of(bank, text)
            assert len({hit.id for hit in hits}) == len(hits) <= k
            assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
            for hit in hits:
                why = hit.why
                assert why.fused is not None
                assert hit.score == pytest.approx(why.fused * prod(why.factors.values()))
                assert all(factor != 1.0 for factor in why.factors.values())
                from_arms = sum(
                    ARM_WEIGHTS[arm] * max(raw, 0.0) / most.get(arm, 1.0)
                    for arm, raw in why.arms.items()
                    if arm != "graph"
                )
                assert why.fused >= from_arms - 1e-6
                if (
                    len(bank.view.index) < RECIPES[name].pool
                    and "graph" not in why.arms
                    and not why.expanded_from
                ):
                    assert why.fused == pytest.approx(
                        from_arms
                    )  # no arm is full: nothing stands for what is not listed
                assert why.ranks.keys() == why.arms.keys()
                assert why.arms or why.expanded_from
    assert bank.state.digest() == digest


def most_of(bank: MemoryBank, text: str) -> dict[str, float]:
    """What the keyword arms could give at most for a text."""
    scoring = Scoring(bank.view.index, words=query_terms(text))
    fields = {"lexical": OWN, "lexical_context": CONTEXT}
    return {arm: scoring.lexical_most(field=field) for arm, field in fields.items()}


@pytest.mark.parametrize("name", RECIPES)
async def test_filters_hold_for_whatever_a_recipe_adds(name: str) -> None:
    bank = await random_bank()
    where = Filter(speakers=frozenset({"Bo"}))
    for text in ASKED:
        hits = await bank.search(Query(text=text, where=where, recipe=RECIPES[name]), k=30)
        assert {hit.item.speaker for hit in hits if hit.item} <= {"Bo"}


async def test_a_question_with_a_recipe_gets_at_most_k_hits_and_one_without_is_left_to_the_design() -> (
    None
):
    async with open_agent(path=":memory:", embedder="hashing", design="verbatim") as agent:
        for conversation in iter_conversations(SAMPLE):
            for session in conversation.sessions:
                await agent.remember(session)
        asked = Question(text="What happened in March 2024?", k=4, asked_at=NOW)
        slot = agent.context.slot()
        assert len(await VERBATIM.retriever(asked, slot)) > 4
        for name in RECIPES:
            named = asked.model_copy(update={"recipe": RECIPES[name]})
            assert len(await VERBATIM.retriever(named, slot)) <= 4
        answer = await agent.ask(asked.model_copy(update={"recipe": DEEP}))
        assert answer.question is not None and answer.question.recipe == DEEP


def test_the_synchronous_agent_searches_by_name_and_within_a_budget() -> None:
    with Agent(path=":memory:", embedder="hashing") as agent:
        for word in WORDS:
            agent.memory.add(f"the boat and the {word}")
        for name in RECIPES:
            assert len(agent.search("boat", k=3, recipe=name)) == 3
            assert len(agent.memory.search("boat", k=3, recipe=name)) == 3
        assert len(agent.search("boat", k=10, max_tokens=14)) == 2
        with pytest.raises(ConfigError, match="no recipe is named"):
            agent.search("boat", recipe="best")
