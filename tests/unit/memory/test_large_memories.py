"""Work on a large memory: others go on meanwhile, and the past near the end costs little."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable
from datetime import timedelta
from typing import Any

import pytest
from bank_kit import DIRECT, batch, fact
from checkpoint_kit import ANA, History

from memagent.core import long_work
from memagent.core.answers import AsOf, Query
from memagent.core.errors import MemoryNotFound, StoreError
from memagent.core.ops import Add, Delete
from memagent.core.records import Scope
from memagent.core.snapshot import JournalRow
from memagent.embed.static import HashEmbedder
from memagent.journal.in_memory import MemoryJournal
from memagent.memory import log as log_module
from memagent.memory.bank import MemoryBank
from memagent.memory.care.undo import undo
from memagent.memory.facade import Memory
from memagent.memory.log import MOST_PAST
from memagent.memory.timetravel import as_of
from memagent.service.hosting import collect_when_idle, serving_interpreter
from memagent.state.fold import EMPTY_STATE, BankState, apply

ENTRIES = 400


class Counting(MemoryJournal):
    """Counts the rows that are read."""

    read = 0

    async def since(self, scope: Scope, seq: int) -> AsyncIterator[JournalRow]:
        async for row in super().since(scope, seq):
            self.read += 1
            yield row


async def filled(journal: MemoryJournal) -> MemoryBank:
    bank = MemoryBank(embedder=HashEmbedder(), scope=ANA, journal=journal)
    for number in range(ENTRIES):
        told = fact(f"note {number} about the harbour", turn=f"D{number}:1")
        await bank.commit(batch(Add(fact=told)), source=DIRECT)
    return bank


async def turns_of_others(work: Awaitable[Any]) -> int:
    """How often another task ran while some work was done."""
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    await asyncio.sleep(0)
    before = turns
    await work
    task.cancel()
    return turns - before


async def test_others_run_while_a_memory_is_replayed_indexed_and_read_as_of_the_past(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    journal = Counting()
    await filled(journal)
    monkeypatch.setattr(long_work, "SLICE_S", 0.0)
    bank = MemoryBank(embedder=HashEmbedder(), scope=ANA, journal=journal)
    assert await turns_of_others(bank.sync()) >= ENTRIES
    assert await turns_of_others(bank.refresh()) >= ENTRIES  # more while a thread embeds
    assert await turns_of_others(bank.log.state_at(ENTRIES // 2)) >= ENTRIES // 2


async def test_many_changes_are_planned_and_applied_aside() -> None:
    bank = await filled(MemoryJournal())
    threads: list[str] = []

    def planned(state: Any) -> None:
        threads.append(threading.current_thread().name)

    await bank.append(planned, large=True)
    await bank.append(planned)
    assert threads[0].startswith("memagent-aside")
    assert threads[1] == threading.current_thread().name
    ids = sorted((await bank.sync()).items)
    deleting = batch(*(Delete(id=item_id) for item_id in ids))
    assert await turns_of_others(bank.commit(deleting, source=DIRECT)) > 10
    assert not [item for item in bank.state.active() if item.id in ids]
    await undo(bank)
    assert {item.id for item in bank.state.active()} == set(ids)


async def test_a_writer_that_comes_while_a_large_entry_is_applied_loses_nothing() -> None:
    journal = MemoryJournal()
    bank = await filled(journal)
    other = MemoryBank(embedder=HashEmbedder(), scope=ANA, journal=journal)
    ops = [Delete(id=item_id) for item_id in sorted(bank.state.items)[:200]]
    await asyncio.gather(
        bank.commit(batch(*ops), source=DIRECT),
        *(other.commit(batch(Add(fact=fact(f"late {n}"))), source=DIRECT) for n in range(5)),
        *(bank.sync() for _ in range(5)),
    )
    assert (await bank.sync()).digest() == (await other.sync()).digest()
    state = EMPTY_STATE
    async for row in journal.since(ANA, 0):
        state = apply(state, row)
    assert state.digest() == bank.state.digest()


async def test_undo_of_a_recent_commit_reads_only_the_end_of_the_log() -> None:
    journal = Counting()
    bank = await filled(journal)
    digests = [bank.state.digest()]
    for number in range(3):
        await bank.commit(batch(Add(fact=fact(f"more {number}"))), source=DIRECT)
        digests.append(bank.state.digest())
    journal.read = 0
    await undo(bank)
    assert journal.read < 50
    assert bank.state.digest() == digests[-2]
    journal.read = 0
    await undo(bank, f"c{ENTRIES + 2}")
    assert journal.read < 50
    assert bank.state.digest() == digests[-3]
    with pytest.raises(StoreError, match="was undone already"):
        await undo(bank, f"c{ENTRIES + 2}")
    with pytest.raises(MemoryNotFound, match="no commit 'c9999'"):
        await undo(bank, "c9999")


async def test_undo_in_a_memory_of_a_few_large_commits_applies_none_of_them_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bank = MemoryBank(embedder=HashEmbedder(), scope=ANA, journal=MemoryJournal())
    await Memory(bank).add_many([f"note {number}" for number in range(ENTRIES)])
    digests = [bank.state.digest()]
    for number in range(2):
        await bank.commit(batch(Add(fact=fact(f"more {number}"))), source=DIRECT)
        digests.append(bank.state.digest())
    applied: list[int] = []

    def counted(state: BankState, row: JournalRow) -> BankState:
        applied.append(row.seq)
        return apply(state, row)

    monkeypatch.setattr(log_module, "apply", counted)
    for before in reversed(digests[:-1]):
        await undo(bank)
        assert bank.state.digest() == before
    assert applied == [4, 5]


async def test_as_of_near_the_end_takes_over_the_index_and_is_kept_until_an_erasure() -> None:
    journal = Counting()
    bank = await filled(journal)
    await bank.refresh()
    journal.read = 0
    view = await as_of(bank, AsOf(recorded=ENTRIES - 5))
    assert journal.read < 50
    assert len(view.view.lagging) == 5
    assert len(await view.search(Query(text="harbour"), k=1_000)) == ENTRIES - 5
    assert await as_of(bank, AsOf(recorded=ENTRIES - 5)) is view
    for seq in (ENTRIES - 6, ENTRIES - 7):
        await as_of(bank, AsOf(recorded=seq))
    assert len(bank.view.past) == MOST_PAST
    await Memory(bank).reset(user_id="ana")
    assert len(bank.view.past) == 0


@pytest.mark.parametrize("seed", [1, 2])
async def test_the_past_is_searched_as_if_it_were_indexed_anew(seed: int) -> None:
    bank = MemoryBank(embedder=HashEmbedder(), scope=ANA, journal=MemoryJournal())
    await History(seed).write(bank, 60)
    await bank.refresh()
    for seq in range(bank.state.seq // 2, bank.state.seq):
        view = await as_of(bank, AsOf(recorded=seq))
        anew = bank.showing(await bank.log.state_at(seq), at=view.now())
        assert view.state.digest() == anew.state.digest()
        found, expected = [
            {hit.id for hit in await each.search(Query(text="harbour Lisbon"), k=500)}
            for each in (view, anew)
        ]
        assert found == expected


async def test_a_moment_is_found_by_halves() -> None:
    journal = Counting()
    bank = await filled(journal)
    rows = [row async for row in journal.since(ANA, 0)]
    for row in (rows[0], rows[137], rows[-1]):
        last = max(each.seq for each in rows if each.recorded_at <= row.recorded_at)
        journal.read = 0
        view = await as_of(bank, AsOf(recorded=row.recorded_at))
        assert view.state.seq == last
    early = await as_of(bank, AsOf(recorded=rows[0].recorded_at - timedelta(seconds=1)))
    assert early.state.seq == 0


async def test_objects_are_freed_bit_by_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    class Thing:
        """Something that can be watched."""

    monkeypatch.setattr(long_work, "SLICE_S", 0.0)
    things = [Thing() for _ in range(1_000)]
    watched = [weakref.ref(thing) for thing in things]
    long_work.let_go(things)
    del things
    left = [sum(ref() is not None for ref in watched)]
    while left[-1]:
        await asyncio.sleep(0)
        left.append(sum(ref() is not None for ref in watched))
    assert len(set(left)) > 10


def test_a_process_that_serves_collects_its_oldest_garbage_only_when_idle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before, switch_s = gc.get_threshold(), sys.getswitchinterval()
    monkeypatch.setattr("memagent.service.hosting._last", float("-inf"))
    assert not collect_when_idle(at_work=0)
    with serving_interpreter():
        assert gc.get_threshold()[2] > 1_000_000
        assert sys.getswitchinterval() <= 0.001
        assert not collect_when_idle(at_work=0), "it began with a collection"
        monkeypatch.setattr("memagent.service.hosting._last", float("-inf"))
        assert not collect_when_idle(at_work=1)
        assert collect_when_idle(at_work=0)
        assert not collect_when_idle(at_work=0)
    assert gc.get_threshold() == before
    assert sys.getswitchinterval() == switch_s


async def test_what_is_let_go_is_freed_in_pieces() -> None:
    at_once: list[bool] = []

    class Watched:
        def __del__(self) -> None:
            frame = sys._getframe().f_back
            at_once.append(frame is None or frame.f_code.co_name != "_freed")

    long_work.let_go({number: Watched() for number in range(1_000)})
    for _ in range(1_000):
        await asyncio.sleep(0)
    assert len(at_once) == 1_000
    assert sum(at_once) < 10
