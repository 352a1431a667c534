"""One entry deletes everything: what goes, what stays, and every way back."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from bank_kit import DAY, DIRECT, batch, fact, filled, new_bank, source
from checkpoint_kit import ANA, open_hashing, same_memory, without_checkpoint
from view_index import ViewIndex

from memagent import Agent
from memagent.core.answers import AsOf, Query
from memagent.core.errors import MemoryNotFound, SnapshotMismatch, StoreError
from memagent.core.ops import Add, Delete, Update
from memagent.core.records import Event, EventEdge, ItemStats, Relation, Scope
from memagent.core.snapshot import Commit, GraphDelta, digest_of
from memagent.embed.static import HashEmbedder
from memagent.memory.bank import MemoryBank
from memagent.memory.facade import Memory
from memagent.pages.journal_words import describe_entry
from memagent.vectors.projection import IndexProjection

USER = "default"


async def eventful() -> MemoryBank:
    """A memory with versions, a tombstone, events, statistics and an expiring item."""
    bank = await filled(40)
    first, second, third, *_ = sorted(bank.state.items)
    await bank.commit(
        batch(
            Update(id=first, text="Ana likes tea no more", source_turn_ids=("D1:2",)),
            Delete(id=second),
            Add(fact=fact("Ana has a guest").model_copy(update={"expires_at": DAY})),
        ),
        source=DIRECT,
    )
    event = Event(id="evt_1", summary="Ana sailed", people=("Ana",), source_turn_ids=("D1:1",))
    edge = EventEdge(source="evt_1", target=third, relation=Relation.CAUSES)
    await bank.index(GraphDelta(nodes=(event,), edges=(edge,)))
    await bank.learn([(third, ItemStats(q_value=0.5, uses=3))])
    await bank.refresh()
    return bank


async def test_items_events_and_statistics_go_and_what_was_told_stays() -> None:
    bank = await eventful()
    memory, before = Memory(bank), bank.state
    assert await memory.delete_all(user_id=USER) == before.live == 40
    state = bank.state
    assert (len(state.items), len(state.archive), len(state.graph), len(state.stats)) == (0,) * 4
    assert (len(state.texts), len(state.timelines), len(state.expiring)) == (0,) * 3
    assert state.digest() == digest_of(ordinals=before.ordinal_root)
    assert state.sessions == before.sessions and state.done == before.done
    assert await memory.get_all() == await memory.get_all(include_deleted=True) == []
    assert await memory.search("Ana likes tea") == []
    assert (await memory.graph_stats()).nodes == {}
    (row,) = [row async for row in bank.rows(after=before.seq)]
    assert isinstance(row.entry, Commit) and row.entry.cleared == 40
    assert len(row.model_dump_json()) < 500, "the entry names none of them"
    assert await memory.delete_all(user_id=USER) == 0
    assert bank.state.seq == row.seq, "nothing more to delete, nothing written"


async def test_a_memory_of_events_alone_is_emptied_too() -> None:
    bank = new_bank()
    await bank.index(GraphDelta(nodes=(Event(id="evt_1", summary="Ana sailed"),)))
    assert await Memory(bank).delete_all(user_id=USER) == 0
    assert not len(bank.state.graph)
    await Memory(bank).undo()
    assert bank.state.graph.node("evt_1") is not None


async def test_undo_brings_all_of_it_back_and_undo_of_that_takes_it_again() -> None:
    bank = await eventful()
    memory, before = Memory(bank), bank.state
    hits = await bank.search(Query(text="tea and boats"), k=9)
    await memory.delete_all(user_id=USER)
    empty = bank.state.digest()
    back = await memory.undo()
    assert bank.state.digest() == before.digest()
    assert (bank.state.live, dict(bank.state.stats)) == (before.live, dict(before.stats))
    assert [hit.id for hit in await bank.search(Query(text="tea and boats"), k=9)] == [
        hit.id for hit in hits
    ]
    await memory.undo(back.id)
    assert bank.state.digest() == empty


async def test_undo_keeps_what_was_added_since_and_refuses_what_was_changed() -> None:
    bank = await eventful()
    memory, before = Memory(bank), bank.state
    await memory.delete_all(user_id=USER)
    commit_id = f"c{bank.state.seq}"
    new = await bank.commit(batch(Add(fact=fact("Ana has a new boat"))), source=source(2))
    made = new.changes[0].id
    assert made not in before.items, "no id is used twice"
    await memory.undo(commit_id)
    assert {item.id for item in bank.state.active()} == {
        *(item.id for item in before.active()),
        made,
    }
    await memory.delete_all(user_id=USER)
    commit_id = f"c{bank.state.seq}"
    await memory.restore(made)
    with pytest.raises(StoreError, match="was changed again"):
        await memory.undo(commit_id)


async def test_one_of_them_comes_back_with_its_past_and_whom_it_names() -> None:
    bank = await eventful()
    memory, before = Memory(bank), bank.state
    first, second, *_ = sorted(item.id for item in before.items.values())
    named = {other for other, edge, _ in before.graph.edges_of(first) if other.startswith("ent")}
    assert named
    for _ in range(2):  # the second time everything goes, it has been back
        await memory.delete_all(user_id=USER)
        last = (await memory.history(first))[-1]
        assert last.op == Delete(id=first) and last.item is not None and not last.item.active
        await memory.restore(first)
        item = await memory.get(first)
        assert item.text == "Ana likes tea no more"
        versions = [version.version for version in bank.state.versions(first)]
        assert versions == list(range(1, item.version + 1))
        assert named <= {other for other, _, _ in bank.state.graph.edges_of(first)}
        assert [hit.id for hit in await memory.search("tea")] == [first]
    await memory.restore(second)
    assert (await memory.get(second)).text == before.items[second].text
    with pytest.raises(MemoryNotFound):
        await memory.restore(first)
    with pytest.raises(MemoryNotFound):
        await memory.restore("mem_unknown")
    told = [entry.item.version for entry in await memory.history(first) if entry.item]
    assert told == sorted(set(told))


async def test_the_past_is_there_and_a_snapshot_goes_back_to_it(tmp_path: Path) -> None:
    bank = await eventful()
    memory, seq, snapshot = Memory(bank), bank.state.seq, bank.snapshot()
    await memory.delete_all(user_id=USER)
    then = await memory.as_of(AsOf(recorded=seq))
    assert len(await then.get_all(include_deleted=True)) == len(snapshot.items)
    assert await then.search("Ana likes tea")
    report = await memory.export(tmp_path / "all.jsonl")
    other = Memory(new_bank())
    await other.import_(tmp_path / "all.jsonl")
    assert other.bank.state.digest() == report.digest == bank.state.digest()
    assert other.bank.state.cleared == bank.state.cleared
    emptied = Memory(new_bank())
    await emptied.add("Ana keeps a bridge")
    await emptied.delete_all(user_id=USER)
    with pytest.raises(SnapshotMismatch, match="not empty"):  # its counter of ids goes on
        await emptied.import_(tmp_path / "all.jsonl")
    assert len((await memory.diff(snapshot, bank.snapshot())).removed) == 40
    await memory.restore(snapshot)
    assert bank.state.digest() == snapshot.digest


async def test_a_networked_index_is_emptied() -> None:
    index = ViewIndex(32)
    (vector,) = await HashEmbedder(dim=32).embed(["boat"])
    bank = MemoryBank(embedder=HashEmbedder(dim=32), index=IndexProjection(index))
    await bank.commit(batch(*(Add(fact=fact(f"boat {n}")) for n in range(5))), source=DIRECT)
    await bank.refresh()
    assert len(await index.search(vector, k=9)) == 5
    await Memory(bank).delete_all(user_id=USER)
    await Memory(bank).add("a bridge")
    await bank.refresh()
    assert len(await index.search(vector, k=9)) == 1


@pytest.mark.parametrize("saved", [False, True], ids=["replayed", "from a checkpoint"])
async def test_a_store_that_is_opened_again_says_the_same(tmp_path: Path, saved: bool) -> None:
    path = tmp_path / "m.db"
    store = open_hashing(path)
    memory = Memory(store.bank(ANA))
    items = await memory.add_many([f"Ana keeps boat number {n}" for n in range(80)])
    digest = memory.bank.state.digest()
    await memory.delete_all(user_id="ana")
    await memory.add("Ana keeps a bridge")
    await memory.bank.refresh()
    assert store.checkpoints is not None
    if saved:
        store.checkpoints.save(memory.bank)
    other = store.bank(ANA)
    await same_memory(other, memory.bank, texts=["boat"])
    store.close()
    store = open_hashing(path)
    memory = Memory(store.bank(ANA))
    await same_memory(memory.bank, without_checkpoint(store), texts=["boat"])
    assert [item.text for item in await memory.get_all()] == ["Ana keeps a bridge"]
    assert (await memory.history(items[3].id))[-1].op == Delete(id=items[3].id)
    await memory.restore(items[3].id)
    assert (await memory.get(items[3].id)).text == items[3].text
    await memory.undo()
    await memory.undo()
    await memory.undo()
    assert memory.bank.state.digest() == digest
    store.close()


async def test_what_went_can_be_erased_from_stored_forks_too(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    with Agent(path=path, user_id="ana", embedder="hashing") as agent:
        agent.remember("My code is xyzzy-4711.", session_id="one")
        agent.remember("My dog is called plugh-0815.", session_id="two")
        (code,) = [item for item in agent.memory.get_all() if "xyzzy" in item.text]
    store = open_hashing(path)
    memory = Memory(store.bank(ANA))
    forks = [Memory(store.bank(Scope(user_id="ana", run_id=f"fork{n}"))) for n in range(2)]
    for fork in forks:
        await fork.restore(await memory.snapshot())
    await forks[0].delete_all(user_id="ana")
    await memory.delete_all(user_id="ana")
    receipt = await memory.erase(code.id)
    assert (receipt.items, receipt.turns, receipt.copies, receipt.unproven) == (1, 1, 2, None)
    assert receipt.needles and receipt.gone
    receipt = await memory.erase_session("two")
    assert receipt.items == 1 and receipt.copies == 2 and receipt.gone
    with pytest.raises(MemoryNotFound):
        await memory.restore(code.id)
    for each in (memory, *forks):
        await same_memory(
            each.bank,
            MemoryBank(
                embedder=store.embedder,
                scope=each.bank.scope,
                journal=store.journal,
                clock=each.bank.log.clock,
            ),
            texts=["code"],
        )
    store.close()
    for file in tmp_path.rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            assert b"xyzzy" not in content and b"plugh" not in content, file.name


async def test_a_fork_tells_what_it_cannot_bring_back() -> None:
    bank = await eventful()
    await Memory(bank).delete_all(user_id=USER)
    fork = Memory(bank.fork())
    await fork.add("a bridge", said_at=DAY + timedelta(days=3))
    with pytest.raises(StoreError, match="fork began"):
        await fork.restore(next(iter(bank.state.touched)))


async def test_the_log_puts_it_into_words() -> None:
    bank = await eventful()
    await Memory(bank).delete_all(user_id=USER)
    (row,) = [row async for row in bank.rows(after=bank.state.seq - 1)]
    assert describe_entry(row, bank.state).title == "Everything was deleted: 40 memories"
