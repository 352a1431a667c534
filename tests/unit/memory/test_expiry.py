"""Items with a time to live: gone from search and lists when it is over, known to
history, and nothing is written for it.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import sleep
from typing import Any

import pytest
from bank_kit import filled
from hypothesis import given, strategies as st
from rpds import HashTrieMap

from memagent.agent import Agent
from memagent.core.answers import AsOf, Query
from memagent.core.errors import InputError, MemoryNotFound
from memagent.core.ops import Add, OpBatch
from memagent.core.recipes import DEEP, Recipe
from memagent.core.records import Event, EventEdge, Fact, MemoryItem, Relation, SourceRef
from memagent.core.snapshot import GraphDelta, item_hash
from memagent.embed.static import HashEmbedder
from memagent.events.visibility import events_in_sight
from memagent.journal.in_memory import MemoryJournal
from memagent.memory.bank import MemoryBank
from memagent.memory.facade import Memory
from memagent.state.fold import BankState
from memagent.state.versions import ExpiredIds

START = datetime(2024, 5, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
DIGEST_OF_SIX = "3a84ee13e0948a6b"
"""First digits of the digest that `bank_kit.filled()` had before items could expire."""


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now


def memory(clock: Clock, **given: Any) -> Memory:
    return Memory(MemoryBank(embedder=HashEmbedder(dim=32), clock=clock, **given))


async def found(made: Memory, text: str = "boat") -> list[str]:
    """Texts found, which all recipes must agree upon."""
    by_recipe = [
        sorted(hit.text for hit in await made.search(text, k=50, recipe=recipe))
        for recipe in ("plain", "fast", DEEP)
    ]
    assert by_recipe[0] == by_recipe[1] == by_recipe[2]
    return by_recipe[0]


async def test_an_expired_item_is_neither_found_nor_listed_nor_given() -> None:
    clock = Clock()
    made = memory(clock)
    kept = await made.add("a boat for good")
    gone = await made.add("a boat for an hour", ttl=HOUR)
    assert gone.expires_at == START + HOUR
    assert await found(made) == ["a boat for an hour", "a boat for good"]
    clock.now = START + HOUR - timedelta(seconds=1)
    assert len(await found(made)) == 2
    clock.now = START + HOUR
    before = await made.snapshot()
    assert await found(made) == ["a boat for good"]
    assert [item.id for item in await made.get_all()] == [kept.id]
    assert {item.id for item in await made.get_all(include_deleted=True)} == {kept.id, gone.id}
    for wanted in (made.get(gone.id), made.update(gone.id, "a boat again")):
        with pytest.raises(MemoryNotFound):
            await wanted
    after = await made.snapshot()
    assert (after.digest, after.seq) == (before.digest, before.seq), "looking writes nothing"
    assert [entry.item for entry in await made.history(gone.id)] == [gone]


@pytest.mark.parametrize("axis", ["recorded", "said", "valid"])
async def test_the_past_shows_what_had_not_expired_then(axis: str) -> None:
    clock = Clock()
    made = memory(clock)
    await made.add("a boat for an hour", ttl=HOUR, said_at=START)
    clock.now = START + 24 * HOUR
    assert await found(made) == []
    for after, count in ((timedelta(minutes=30), 1), (HOUR, 0), (2 * HOUR, 0)):
        past = await made.as_of(AsOf(**{axis: START + after}))  # pyright: ignore[reportArgumentType]
        assert len(await found(past)) == len(await past.get_all()) == count
    assert len(await found(await made.as_of(AsOf(recorded=1)))) == 1


async def test_an_item_kept_by_update_keeps_its_expiry_and_undelete_too() -> None:
    clock = Clock()
    made = memory(clock)
    item = await made.add("a boat", expires_at=START + HOUR)
    assert (await made.update(item.id, "a red boat")).expires_at == START + HOUR
    await made.delete(item.id)
    await made.restore(item.id)
    assert await found(made) == ["a red boat"]
    clock.now += HOUR
    assert await found(made) == []
    await made.delete(item.id)
    assert await found(made) == []


async def test_forks_snapshots_and_a_clock_set_back_all_agree() -> None:
    clock = Clock()
    made = memory(clock)
    await made.add("a boat", ttl=HOUR)
    fork, snapshot = await made.fork(), await made.snapshot()
    clock.now += 2 * HOUR
    restored = Memory(made.bank.at(snapshot))
    assert [await found(one) for one in (made, fork, restored)] == [[], [], []]
    clock.now -= 2 * HOUR
    assert [await found(one) for one in (made, fork, restored)] == [["a boat"]] * 3


async def test_a_second_process_replays_the_expiry() -> None:
    clock, journal = Clock(), MemoryJournal(clock=Clock())
    made = memory(clock, journal=journal)
    await made.add("a boat", ttl=HOUR)
    clock.now += HOUR
    again = memory(clock, journal=journal)
    assert await found(again) == []
    assert again.bank.expired == made.bank.expired != frozenset()


@pytest.mark.filterwarnings("ignore:Payload indexes have no effect in the local Qdrant")
async def test_an_expired_item_leaves_the_networked_index() -> None:
    client_module = pytest.importorskip(
        "qdrant_client", reason='needs the extra: pip install "memagent[qdrant]"'
    )
    from memagent.vectors.projection import IndexProjection
    from memagent.vectors.qdrant_index import QdrantIndex

    clock = Clock()
    index = QdrantIndex(client_module.AsyncQdrantClient(location=":memory:"))
    made = memory(clock, index=IndexProjection(index))
    await made.add("a boat", ttl=HOUR)
    await made.add("another boat")
    assert len(await found(made)) == 2
    clock.now += HOUR
    assert await found(made) == ["another boat"]
    vector = (await made.bank.embedder.embed(["boat"]))[0]
    assert [hit.text for hit in await index.search(vector, k=5)] == ["another boat"]


async def test_an_event_that_rests_on_an_expired_item_is_out_of_sight() -> None:
    clock = Clock()
    made = memory(clock)
    item = await made.add("the boat was sold", ttl=HOUR, source_turn_ids=["D1:1"])
    event = Event(id="evt_1", summary="a boat is sold", source_turn_ids=("D1:1",))
    edge = EventEdge(source=item.id, target=event.id, relation=Relation.PART_OF)
    await made.bank.index(GraphDelta(nodes=(event,), edges=(edge,)))
    state = made.bank.state
    assert list(events_in_sight(state, expired=made.bank.expired)) == ["evt_1"]
    clock.now += HOUR
    assert list(events_in_sight(state, expired=made.bank.expired)) == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"ttl": timedelta(0)}, "the ttl is 0:00:00; give a time longer than nothing"),
        ({"ttl": timedelta(days=4_000_000)}, "ends after the year 9999"),
        ({"ttl": 60}, "the ttl is a int; give a timedelta"),
        ({"expires_at": START}, "has passed already"),
        ({"expires_at": START + HOUR, "ttl": HOUR}, "give one of them"),
    ],
)
async def test_an_expiry_that_makes_no_sense_is_refused_and_nothing_written(
    given: dict[str, Any], message: str
) -> None:
    made = memory(Clock())
    with pytest.raises(InputError, match=message):
        await made.add("a boat", **given)
    assert made.bank.state.seq == 0


async def test_digests_of_what_never_expires_are_the_old_ones_and_an_expiry_counts() -> None:
    assert (await filled()).state.digest().startswith(DIGEST_OF_SIX)
    item = MemoryItem(id="mem_1", text="a boat")
    dated = item.model_copy(update={"expires_at": START})
    assert (
        len(
            {
                item_hash(item, ()),
                item_hash(dated, ()),
                item_hash(dated.model_copy(update={"expires_at": START + HOUR}), ()),
            }
        )
        == 3
    )


def test_records_written_before_items_could_expire_are_read() -> None:
    old = json.loads(MemoryItem(id="mem_1", text="a boat").model_dump_json())
    del old["expires_at"]
    assert MemoryItem.model_validate(old).expires_at is None
    fact = json.loads(Fact(text="a boat").model_dump_json())
    del fact["expires_at"]
    assert Fact.model_validate(fact) == Fact(text="a boat")


async def test_a_fact_carries_its_expiry_into_memory() -> None:
    made = memory(Clock())
    op = Add(fact=Fact(text="a boat", expires_at=START + HOUR))
    commit = await made.bank.commit(OpBatch(accepted=(op,)), source=SourceRef(actor="import"))
    assert commit.changes[0].after is not None
    assert commit.changes[0].after.expires_at == START + HOUR


def test_expiry_survives_export_and_a_closed_store(tmp_path: Path) -> None:
    with Agent(path=tmp_path / "a.db", embedder="hashing") as agent:
        agent.memory.add("a boat", ttl=timedelta(days=1))
        moment = datetime.now(UTC) + timedelta(milliseconds=300)
        agent.memory.add("an old boat", expires_at=moment)
        agent.memory.export(tmp_path / "all.json")
    while datetime.now(UTC) < moment:
        sleep(0.01)
    with Agent(path=tmp_path / "a.db", embedder="hashing") as agent:
        assert [hit.text for hit in agent.search("boat")] == ["a boat"]
    with Agent(path=tmp_path / "b.db", embedder="hashing") as agent:
        agent.memory.import_(tmp_path / "all.json")
        assert [hit.text for hit in agent.search("boat")] == ["a boat"]
        assert len(agent.memory.get_all(include_deleted=True)) == 2


@given(st.lists(st.integers(0, 20), max_size=12), st.lists(st.integers(0, 20), max_size=6))
def test_what_is_expired_is_told_right_however_the_clock_moves(
    expiries: list[int], looks: list[int]
) -> None:
    expiring = {f"m{i}": START + hours * HOUR for i, hours in enumerate(expiries)}
    state = BankState(expiring=HashTrieMap(expiring))
    expired = ExpiredIds(state, None)
    assert not expired and not len(expired) and "m0" not in expired
    for look in looks:
        now, before = START + look * HOUR, expired
        expired = ExpiredIds(state, now)
        ended = {item_id for item_id, moment in expiring.items() if moment <= now}
        assert expired == ended and len(expired) == len(ended)
        assert {item_id for item_id in expiring if item_id in expired} == ended
        assert set(expired.since(before)) == ended ^ set(before)
        assert expired.since(expired) == []


async def test_keyword_counts_leave_expired_items_out() -> None:
    clock = Clock()
    one, other = memory(clock), memory(clock)
    for made in (one, other):
        for i in range(40):
            await made.add(f"boat number {i}", id=f"mem_{i}")
    for i in range(9):
        await one.add(f"boat for a while {i}", ttl=HOUR)
    clock.now += HOUR
    query = Query(text="boat number 7", recipe=Recipe(arms=frozenset({"lexical"})))
    assert await one.bank.search(query, k=50) == await other.bank.search(query, k=50)
