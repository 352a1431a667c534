"""Lists of items: the orders kept by the fold are those of a sort, and pages meet."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

from memagent.core.answers import AsOf, Filter
from memagent.core.errors import MemoryNotFound
from memagent.core.ops import Add, OpBatch
from memagent.core.records import Event, Fact, MemoryItem, NodeKind, Session, SourceRef, Turn
from memagent.core.snapshot import GraphDelta
from memagent.embed.static import HashEmbedder
from memagent.memory.bank import MemoryBank
from memagent.memory.facade import Listing, Memory
from memagent.state.fold import BankState, age_key, change_key

START = datetime(2024, 5, 1, tzinfo=UTC)


def memory(now: Callable[[], datetime] = lambda: START) -> Memory:
    return Memory(MemoryBank(embedder=HashEmbedder(dim=32), clock=now))


def check(state: BankState) -> None:
    """Compare the kept orders with sorts of all items."""
    orders = state.orders
    by_age = sorted(age_key(state, item) for item in state.items.values())
    assert list(orders.by("age", state)) == by_age
    assert list(orders.by("change", state)) == sorted(
        change_key(state, item) for item in state.items.values()
    )
    by_expiry = sorted((end, key) for key, end in state.expiring.items())
    assert list(orders.by("expiry", state)) == by_expiry
    cited = {(turn, name) for name in state.items for version in state.versions(name)
             for turn in version.source_turn_ids}  # fmt: skip
    cited |= {(turn, node.id) for node in state.graph.all_nodes() if node.kind is NodeKind.EVENT
              for turn in node.source_turn_ids}  # fmt: skip
    assert list(orders.by("source", state)) == sorted(cited)


async def act(made: Memory, dice: Random, number: int) -> None:
    """Do one of the things that change a memory."""
    ids = [item.id for item in await made.get_all()]
    ways = ("add", "add", "expiring", "update", "delete", "undo", "turns", "late", "event", "gone")
    match dice.choice(ways):
        case "update" if ids:
            await made.update(dice.choice(ids), f"text {number}")
        case "delete" if ids:
            await made.delete(dice.choice(ids))
        case "undo" if number > 10:
            await made.undo()
        case "expiring":
            await made.add(f"text {number}", ttl=timedelta(hours=dice.randrange(1, 9)))
        case "event":
            turns = tuple({f"t{dice.randrange(number + 9)}" for _ in range(2)})
            node = Event(id=f"e{dice.randrange(5)}", summary="An event.", source_turn_ids=turns)
            await made.bank.append(lambda _: GraphDelta(nodes=(node,)))
        case "gone":
            gone = (f"e{dice.randrange(5)}",)
            await made.bank.append(lambda _: GraphDelta(removed_nodes=gone))
        case "late":  # an item may rest on a turn that is stored later
            await made.add(f"text {number}", source_turn_ids=[f"t{dice.randrange(number + 9)}"])
        case "turns" if made.bank.state.turn(f"t{number}") is None:
            at = START - timedelta(days=dice.randrange(30))
            turns = (Turn(id=f"t{number}", speaker="Ana", text="Hello."),)
            await made.bank.store_session(Session(id=f"s{number}", at=at, turns=turns))
            fact = Fact(text=f"told {number}", source_turn_ids=(f"t{number}",))
            source = SourceRef(actor="user")
            await made.bank.commit(OpBatch(accepted=(Add(fact=fact),)), source=source)
        case _:
            said = START - timedelta(days=dice.randrange(9))
            await made.add(f"text {number}", said_at=said)


@pytest.mark.parametrize("seed", range(6))
async def test_the_orders_are_those_of_a_sort_whatever_happens(seed: int) -> None:
    made, dice = memory(), Random(seed)
    for number in range(60):
        await act(made, dice, number)
        if number > 20:
            check(made.bank.state)
    early = made.bank.snapshot()
    fork = await made.fork()
    await fork.add("of the fork alone")
    check(fork.bank.state)
    check(made.bank.state)
    await made.restore(early)
    check(made.bank.state)
    check((await made.as_of(AsOf(recorded=30))).bank.state)
    await made.reset(user_id="default")
    assert list(made.bank.state.orders.by("age", await made.bank.sync())) == []
    check(made.bank.state)


async def test_a_memory_that_nobody_lists_keeps_no_orders() -> None:
    made = memory()
    await made.add("one")
    assert not made.bank.state.orders.derived
    await made.get_all()
    await made.add("two")
    assert made.bank.state.orders.derived
    assert not (await memory().bank.sync()).orders.derived


@pytest.mark.parametrize("where", [None, Filter(kinds=frozenset({"note"}))])
async def test_pages_meet_though_items_come_and_go(where: Filter | None) -> None:
    made = memory()
    for number in range(40):
        kind = "note" if number % 3 else "fact"
        said = START - timedelta(days=(number * 7) % 11)
        await made.add(f"text {number}", said_at=said, kind=kind)
    everything = await made.get_all(where=where)
    pages: list[MemoryItem] = []
    gone = everything[12]
    while page := await made.get_all(where=where, limit=5, after=pages[-1].id if pages else None):
        pages += page
        if len(pages) == 10:
            await made.delete(pages[-1].id)  # the next page begins behind a deleted item
            await made.delete(gone.id)
    assert pages == [item for item in everything if item.id != gone.id]
    with pytest.raises(MemoryNotFound, match="mem_nobody"):
        await made.get_all(after="mem_nobody")


async def test_a_list_comes_latest_first_and_last_changed_first() -> None:
    made = memory()
    items = [await made.add(f"text {n}", said_at=START - timedelta(days=n)) for n in range(5)]
    await made.update(items[3].id, "changed")
    await made.delete(items[1].id)
    state = made.bank.state

    def texts(**given: Any) -> list[str]:
        return [item.text for item in Listing(**given).of(state, START)]

    assert texts() == ["text 4", "changed", "text 2", "text 0"]
    assert texts(order="new") == texts()[::-1]
    assert texts(order="new", after=items[2].id) == ["changed", "text 4"]
    assert texts(order="changed") == ["changed", "text 4", "text 2", "text 0"]
    shown = texts(order="changed", include_deleted=True)
    assert shown == ["text 1", "changed", "text 4", "text 2", "text 0"]
    assert texts(order="changed", include_deleted=True, after=items[1].id) == shown[1:]
    only = Filter(ids=frozenset({items[0].id, items[2].id, "mem_nobody"}))
    assert texts(where=only) == ["text 2", "text 0"]
