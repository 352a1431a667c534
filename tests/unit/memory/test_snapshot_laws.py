"""The laws of state: replay, digest, forks, undo and restore, for any sequence of ops."""

from __future__ import annotations

import gc
import tracemalloc
from contextlib import suppress
from dataclasses import replace

import pytest
from bank_kit import DIRECT, batch, fact, filled, ids, new_bank, op_plans, realise, session, source
from hypothesis import HealthCheck, given, settings

from memagent.core.answers import Query
from memagent.core.errors import MemoryNotFound, SnapshotMismatch
from memagent.core.ops import Add, Delete, OpBatch, Update
from memagent.core.records import ItemStats
from memagent.core.snapshot import EMPTY, MemorySnapshot
from memagent.embed.static import HashEmbedder
from memagent.memory.bank import MemoryBank
from memagent.memory.care.undo import undo
from memagent.memory.log import ViewContent
from memagent.memory.timetravel import diff, restore_snapshot, restoring_entry
from memagent.state.effects import plan_commit
from memagent.state.fold import (
    EMPTY_STATE,
    Step,
    apply,
    names_between,
)
from memagent.state.versions import rebuilt, snapshot_of

relaxed = settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)


async def played(plans: list[list[tuple[str, int, str, int | None]]]) -> MemoryBank:
    bank = new_bank()
    await bank.store_session(session(1))
    for plan in plans:
        await bank.commit(realise(plan, bank), source=DIRECT)
    return bank


@relaxed
@given(op_plans())
async def test_replaying_the_journal_gives_the_same_state(
    plans: list[list[tuple[str, int, str, int | None]]],
) -> None:
    bank = await played(plans)
    state = EMPTY_STATE
    async for row in bank.rows():
        state = apply(state, type(row).model_validate_json(row.model_dump_json()))
    assert state.digest() == bank.state.digest()
    assert dict(state.items.items()) == dict(bank.state.items.items())
    assert dict(state.texts.items()) == dict(bank.state.texts.items())
    assert dict(state.timelines.items()) == dict(bank.state.timelines.items())


@relaxed
@given(op_plans())
async def test_a_snapshot_rebuilt_from_its_content_is_equal(
    plans: list[list[tuple[str, int, str, int | None]]],
) -> None:
    snapshot = (await played(plans)).snapshot()
    plain = MemorySnapshot(
        digest=snapshot.digest,
        items=dict(sorted(snapshot.items.items(), reverse=True)),
        archive=dict(snapshot.archive.items()),
        sessions=dict(snapshot.sessions.items()),
        graph=snapshot.graph,
        stats=dict(snapshot.stats.items()),
        ordinals=dict(snapshot.ordinals.items()),
    )
    assert rebuilt(plain).digest() == snapshot.digest
    restored = MemoryBank.restore(plain, embedder=HashEmbedder(dim=32))
    assert restored.snapshot() == snapshot


@relaxed
@given(op_plans(), op_plans(most=3))
async def test_a_fork_never_leaks_into_its_parent(
    plans: list[list[tuple[str, int, str, int | None]]],
    more: list[list[tuple[str, int, str, int | None]]],
) -> None:
    bank = await played(plans)
    before = bank.snapshot()
    found = [hit.id for hit in await bank.search(Query(text="Lisbon boat"), k=20)]
    fork = bank.fork()
    for plan in more:
        await fork.commit(realise(plan, fork), source=DIRECT)
    await fork.search(Query(text="Lisbon boat"), k=20)
    assert bank.snapshot().digest == before.digest
    assert dict(bank.state.items.items()) == dict(before.items.items())
    assert [hit.id for hit in await bank.search(Query(text="Lisbon boat"), k=20)] == found
    assert bank.at(before).snapshot() == before


@relaxed
@given(op_plans(most=6))
async def test_undoing_every_commit_leads_back_to_the_start(
    plans: list[list[tuple[str, int, str, int | None]]],
) -> None:
    bank = new_bank()
    await bank.store_session(session(1))
    digests: list[str] = []
    for plan in plans:
        before = bank.snapshot().digest
        commit = await bank.commit(realise(plan, bank), source=DIRECT)
        if commit.changes or not commit.graph.empty:
            digests.append(before)
    for digest in reversed(digests):
        await undo(bank)
        assert bank.snapshot().digest == digest


@relaxed
@given(op_plans(most=5), op_plans(most=5))
async def test_restoring_a_snapshot_gives_its_digest_from_anywhere(
    plans: list[list[tuple[str, int, str, int | None]]],
    more: list[list[tuple[str, int, str, int | None]]],
) -> None:
    bank = await played(plans)
    earlier = bank.snapshot()
    for plan in more:
        await bank.commit(realise(plan, bank), source=DIRECT)
    later = bank.snapshot()
    await restore_snapshot(bank, earlier)
    assert bank.snapshot() == earlier
    await restore_snapshot(bank, later)
    assert bank.snapshot() == later


@relaxed
@given(op_plans(most=5), op_plans(most=5), op_plans(most=3))
async def test_the_trail_leads_to_all_that_differs(
    plans: list[list[tuple[str, int, str, int | None]]],
    ours: list[list[tuple[str, int, str, int | None]]],
    theirs: list[list[tuple[str, int, str, int | None]]],
) -> None:
    """Compare the ways with and without a trail, between states before and after a fork."""
    bank = await played(plans)
    earlier, fork = bank.snapshot(), bank.fork()
    for branch, more in ((bank, ours), (fork, theirs)):
        for plan in more:
            await branch.commit(realise(plan, branch), source=DIRECT)
    await bank.store_session(session(2))
    with suppress(MemoryNotFound):
        await undo(bank)
    await restore_snapshot(fork, bank.snapshot())
    await fork.commit(batch(Add(fact=fact("a fork's own", turn="D1:1"))), source=DIRECT)
    states = [snap.live.state for snap in (earlier, bank.snapshot(), fork.snapshot())]  # type: ignore[attr-defined]
    for before in states:
        for after in states:
            assert names_between(before, after) is not None
            told = restoring_entry(before, after)
            walked = restoring_entry(replace(before, trail=(Step(),)), after)
            assert set(told.sessions) == set(walked.sessions)
            assert told.model_copy(update={"sessions": walked.sessions}) == walked
            first, second = (snapshot_of(state, None) for state in (before, after))
            by_trail = [
                replace(snap, live=ViewContent(state, *bank.view.content[1:]))
                for snap, state in ((first, before), (second, after))
            ]
            assert diff(*by_trail) == diff(first, second)


@relaxed
@given(op_plans())
async def test_every_op_is_applied_or_rejected_with_a_reason(
    plans: list[list[tuple[str, int, str, int | None]]],
) -> None:
    bank = new_bank()
    await bank.store_session(session(1))
    for plan in plans:
        wanted = realise(plan, bank)
        commit = await bank.commit(wanted, source=DIRECT)
        told = [applied.op for applied in commit.ops] + [one.op for one in commit.rejected]
        assert sorted(str(op) for op in told) == sorted(str(op) for op in wanted.accepted)
        targets = [change.id for change in commit.changes]
        assert len(targets) == len(set(targets))


async def test_the_digest_does_not_depend_on_insertion_order_scope_or_clock() -> None:
    facts = [fact(f"thing {i}", turn=f"D1:{i % 4 + 1}", subject=None) for i in range(4)]
    one, two = new_bank(), new_bank()
    for bank, order in ((one, facts), (two, facts[::-1])):
        await bank.store_session(session(1))
        for each in order:
            await bank.commit(batch(Add(fact=each)), source=DIRECT)
    assert one.snapshot().digest == two.snapshot().digest
    assert new_bank().snapshot() == EMPTY


async def test_ids_come_from_source_turns_and_ordinal_only() -> None:
    one, two = new_bank(), new_bank()
    for bank in (one, two):
        await bank.store_session(session(1))
    await two.commit(batch(Add(fact=fact("something else", turn="D1:3"))), source=DIRECT)
    a = await one.commit(batch(Add(fact=fact("x")), Add(fact=fact("y"))), source=source(1))
    b = await two.commit(batch(Add(fact=fact("p")), Add(fact=fact("q"))), source=source(1))
    assert ids(a) == ids(b)
    assert len(set(ids(a))) == 2


async def test_reading_never_changes_the_digest_and_statistics_do() -> None:
    bank = await filled()
    before = bank.snapshot().digest
    for k in range(1, 5):
        await bank.search(Query(text="Ana likes tea"), k=k)
    bank.state.graph.walk(sorted(bank.state.items)[:2], hops=2)
    await bank.get(sorted(bank.state.items)[0])
    assert bank.snapshot().digest == before
    await bank.learn([(sorted(bank.state.items)[0], ItemStats(q_value=0.5, uses=1))])
    assert bank.snapshot().digest != before


async def test_a_snapshot_whose_content_was_altered_is_refused() -> None:
    bank = await filled()
    snapshot = bank.snapshot()
    items = dict(snapshot.items.items())
    first = sorted(items)[0]
    items[first] = items[first].model_copy(update={"text": "forged"})
    forged = MemorySnapshot(
        digest=snapshot.digest,
        items=items,
        archive={},
        graph=snapshot.graph,
        ordinals=dict(snapshot.ordinals.items()),
    )
    with pytest.raises(SnapshotMismatch, match="altered or cut short"):
        MemoryBank.restore(forged, embedder=HashEmbedder(dim=32))


async def test_ten_thousand_forks_cost_less_than_one_more_bank() -> None:
    bank = new_bank()
    await bank.store_session(session(1))
    tracemalloc.start()
    try:
        gc.collect()
        empty = tracemalloc.get_traced_memory()[0]
        for start in range(0, 1_000, 100):
            facts = [
                fact(
                    f"fact {i} of Ana in a sentence of ordinary length",
                    turn=f"D1:{i % 4 + 1}",
                    day=i,
                )
                for i in range(start, start + 100)
            ]
            await bank.commit(batch(*(Add(fact=one) for one in facts)), source=DIRECT)
        await bank.refresh()
        gc.collect()
        one_bank = tracemalloc.get_traced_memory()[0] - empty
        forks = [bank.fork() for _ in range(10_000)]
        gc.collect()
        all_forks = tracemalloc.get_traced_memory()[0] - empty - one_bank
    finally:
        tracemalloc.stop()
    assert all_forks < one_bank, f"10,000 forks take {all_forks:,} bytes, one bank {one_bank:,}"
    for fork in forks[::1000]:
        await fork.commit(batch(Add(fact=fact("only here"))), source=DIRECT)
    assert len(bank.state.items) == 1_000


async def test_a_version_conflict_between_plan_and_state_is_rejected_not_lost() -> None:
    bank = await filled()
    target = sorted(bank.state.items)[0]
    await bank.commit(batch(Update(id=target, text="newer")), source=DIRECT)
    commit = plan_commit(
        bank.state,
        OpBatch(accepted=(Update(id=target, version=1, text="late"), Delete(id="mem_none"))),
        source=DIRECT,
    )
    assert [one.reason.value for one in commit.rejected] == ["stale_version", "unknown_id"]
