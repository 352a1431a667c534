"""History, undo, restore, `as_of` on three axes, diff, export and import."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from bank_kit import DAY, DIRECT, batch, fact, filled, ids, new_bank, session, source

from memagent.core.answers import AsOf, Query
from memagent.core.errors import (
    InputError,
    MemoryNotFound,
    SnapshotMismatch,
    StoreError,
    StoreReadOnly,
)
from memagent.core.ops import Add, Delete, Noop, Update
from memagent.core.records import Fact, Relation, TimeSpan
from memagent.memory.care.undo import undo
from memagent.memory.facade import Memory
from memagent.memory.timetravel import as_of, diff, history, undelete


async def test_history_tells_every_version_with_its_op_and_time() -> None:
    bank = await filled(1)
    (item_id,) = list(bank.state.items)
    await bank.commit(
        batch(
            Update(
                id=item_id,
                text="Ana moved to Porto",
                source_turn_ids=("D1:2",),
                reason="she said so",
            )
        ),
        source=DIRECT,
    )
    await bank.commit(batch(Delete(id=item_id)), source=DIRECT)
    told = await history(bank, item_id)
    assert [entry.op.op for entry in told if entry.op] == ["ADD", "UPDATE", "DELETE"]
    assert [entry.item.version for entry in told if entry.item] == [1, 2, 3]
    assert told[1].op is not None
    assert told[1].op.reason == "she said so"
    assert [item.text for item in bank.state.versions(item_id)][:2] == [
        "Ana likes boat 0",
        "Ana moved to Porto",
    ]
    with pytest.raises(MemoryNotFound):
        await history(bank, "mem_unknown")


async def test_a_deleted_item_is_gone_from_search_and_comes_back_whole() -> None:
    bank = await filled(3)
    target = ids_of(bank)[0]
    text = (await bank.get(target)).text
    await bank.commit(batch(Delete(id=target)), source=DIRECT)
    assert target not in [hit.id for hit in await bank.search(Query(text=text), k=10)]
    with pytest.raises(MemoryNotFound):
        await bank.get(target)
    await undelete(bank, target)
    assert (await bank.get(target)).text == text
    assert target in [hit.id for hit in await bank.search(Query(text=text), k=10)]
    with pytest.raises(MemoryNotFound):
        await undelete(bank, target)


def ids_of(bank: object) -> list[str]:
    return sorted(bank.state.items)  # type: ignore[attr-defined]


async def test_undoing_an_older_commit_is_refused_when_later_ones_build_on_it() -> None:
    bank = await filled(2)
    target = ids_of(bank)[0]
    first = await bank.commit(batch(Update(id=target, text="one")), source=DIRECT)
    second = await bank.commit(batch(Update(id=target, text="two")), source=DIRECT)
    other = await bank.commit(batch(Add(fact=fact("unrelated", turn="D1:4"))), source=DIRECT)
    with pytest.raises(StoreError, match="was changed again at sequence"):
        await undo(bank, first.id)
    await undo(bank, second.id)
    assert (await bank.get(target)).text == "one"
    assert (await bank.get(ids(other)[0])).text == "unrelated"
    with pytest.raises(StoreError, match="undone already"):
        await undo(bank, second.id)


async def test_undo_can_be_undone() -> None:
    bank = await filled(2)
    target = ids_of(bank)[0]
    await bank.commit(batch(Update(id=target, text="new words")), source=DIRECT)
    after = bank.snapshot()
    taken = await undo(bank)
    await undo(bank, taken.id)
    assert bank.snapshot() == after


async def test_as_of_recorded_shows_what_the_journal_held() -> None:
    bank = await filled(2)
    seq, digest, moment = bank.state.seq, bank.snapshot().digest, bank.now()
    target = ids_of(bank)[0]
    text = (await bank.get(target)).text
    await bank.commit(batch(Update(id=target, text="Ana sold the boat")), source=DIRECT)
    for when in (AsOf(recorded=seq), AsOf(recorded=moment)):
        past = await as_of(bank, when)
        assert past.snapshot().digest == digest
        assert (await past.get(target)).text == text
        assert not [hit for hit in await past.search(Query(text="sold"), k=5) if "sold" in hit.text]
        with pytest.raises(StoreReadOnly):
            await past.commit(batch(Delete(id=target)), source=DIRECT)


async def test_as_of_said_and_valid_differ_when_a_session_arrives_late() -> None:
    async def story() -> None:
        bank = new_bank()
        for number in (3, 1):
            await bank.store_session(session(number))
        late = Add(
            fact=Fact(
                text="Ana lived in Faro",
                subject="Ana",
                source_turn_ids=("D1:1",),
                valid=TimeSpan(start=DAY - timedelta(days=400), end=DAY),
            )
        )
        soon = Add(fact=Fact(text="Ana lives in Porto", subject="Ana", source_turn_ids=("D3:1",)))
        await bank.commit(batch(soon), source=source(3))
        await bank.commit(batch(late), source=source(1))

        async def texts(when: AsOf) -> list[str]:
            return sorted(item.text for item in (await as_of(bank, when)).state.active())

        week = timedelta(weeks=1)
        assert await texts(AsOf(said=DAY)) == []
        assert await texts(AsOf(said=DAY + 2 * week)) == ["Ana lived in Faro"]
        assert await texts(AsOf(said=DAY + 4 * week)) == ["Ana lived in Faro", "Ana lives in Porto"]
        assert await texts(AsOf(valid=DAY - timedelta(days=100))) == ["Ana lived in Faro"]
        assert await texts(AsOf(valid=DAY - timedelta(days=900))) == []
        assert await texts(AsOf(recorded=3, said=DAY + 4 * week)) == ["Ana lives in Porto"]
        assert await texts(AsOf(recorded=3, said=DAY + 2 * week)) == []

    await story()


async def test_as_of_valid_shows_the_version_that_held_then() -> None:
    bank = new_bank()
    for number in (1, 10):
        await bank.store_session(session(number))
    made = await bank.commit(
        batch(Add(fact=fact("Ana lives in Lisbon", turn="D1:1", day=0))), source=source(1)
    )
    (target,) = ids(made)
    moved = TimeSpan(start=DAY + timedelta(days=60), end=DAY + timedelta(days=61))
    await bank.commit(
        batch(
            Update(id=target, text="Ana lives in Porto", source_turn_ids=("D10:1",), valid=moved)
        ),
        source=source(10),
    )
    then = await as_of(bank, AsOf(valid=DAY + timedelta(days=30)))
    now = await as_of(bank, AsOf(valid=DAY + timedelta(days=90)))
    assert (await then.get(target)).text == "Ana lives in Lisbon"
    assert (await now.get(target)).text == "Ana lives in Porto"


async def test_edges_follow_from_ops_in_the_same_commit() -> None:
    bank = new_bank()
    await bank.store_session(session(1))
    made = await bank.commit(
        batch(
            Add(fact=fact("Ana met Maria in Porto", turn="D1:1", day=5)),
            Add(fact=fact("Ana bought a boat", turn="D1:2", day=9)),
            Add(fact=fact("Ana sailed away", turn="D1:3", day=7)),
        ),
        source=source(1),
    )
    met, bought, sailed = ids(made)
    graph = bank.state.graph
    assert graph.edge(met, sailed, Relation.BEFORE.value) is not None
    assert graph.edge(sailed, bought, Relation.BEFORE.value) is not None
    mentioned = [
        edge
        for _, edge, leaving in graph.edges_of(met)
        if leaving and edge.relation is Relation.MENTIONS
    ]
    names = [node.summary for edge in mentioned if (node := graph.node(edge.target)) is not None]
    assert sorted(names) == ["Ana", "Maria", "Porto"]

    later = TimeSpan(start=DAY + timedelta(days=20), end=DAY + timedelta(days=21))
    await bank.commit(
        batch(
            Update(id=sailed, text="Ana sailed home", valid=later),
            Noop(id=bought, fact=fact("Ana has a boat now", turn="D1:4")),
            Delete(id=met, source_turn_ids=("D1:4",)),
            Add(fact=fact("Ana never met Maria", turn="D1:4")),
        ),
        source=source(1),
    )
    graph = bank.state.graph
    assert graph.edge(sailed, f"{sailed}@1", Relation.SUPERSEDES.value) is not None
    assert graph.node(f"{sailed}@1").closed  # type: ignore[union-attr]
    assert graph.edge(sailed, bought, Relation.BEFORE.value) is None
    assert graph.edge(bought, sailed, Relation.BEFORE.value) is not None
    assert graph.node(met).closed  # type: ignore[union-attr]
    superseding = [
        edge.source
        for _, edge, leaving in graph.edges_of(met)
        if not leaving and edge.relation is Relation.SUPERSEDES
    ]
    assert len(superseding) == 1
    restated = [
        edge.source
        for _, edge, leaving in graph.edges_of(bought)
        if not leaving and edge.relation is Relation.SAME_AS
    ]
    assert len(restated) == 1
    assert graph.node(restated[0]).source_turn_ids == ("D1:4",)  # type: ignore[union-attr]
    assert met not in [node for node, _ in bank.state.graph.walk([bought], hops=3)]


async def test_export_and_import_keep_history_and_digest(tmp_path: Path) -> None:
    bank = await filled(4)
    target = ids_of(bank)[0]
    await bank.commit(
        batch(Update(id=target, text="line\u2028separator and \u2029 more")), source=DIRECT
    )
    await undo(bank)
    await bank.commit(batch(Update(id=target, text="again")), source=DIRECT)
    report = await Memory(bank).export(tmp_path / "memory.jsonl")
    other = Memory(new_bank())
    read = await other.import_(tmp_path / "memory.jsonl")
    assert read.digest == report.digest == bank.snapshot().digest == other.bank.snapshot().digest
    assert [e.recorded_at for e in await other.history(target)] == [
        e.recorded_at for e in await history(bank, target)
    ]
    with pytest.raises(SnapshotMismatch, match="not empty"):
        await other.import_(tmp_path / "memory.jsonl")
    fork = Memory(bank.fork())
    await fork.add("only here")
    await fork.export(tmp_path / "fork.jsonl")
    third = Memory(new_bank())
    assert (await third.import_(tmp_path / "fork.jsonl")).digest == fork.bank.snapshot().digest
    assert third.bank.snapshot().digest == fork.bank.snapshot().digest


@pytest.mark.parametrize("harm", ["cut", "flip", "drop", "format", "empty", "binary", "missing"])
async def test_a_damaged_export_is_refused_and_nothing_is_written(
    tmp_path: Path, harm: str
) -> None:
    path = tmp_path / "memory.jsonl"
    await Memory(await filled(3)).export(path)
    lines = path.read_text().split("\n")
    match harm:
        case "cut":
            path.write_text("\n".join(lines[:-2]))
        case "flip":
            path.write_text(path.read_text().replace("likes", "hates"))
        case "drop":
            path.write_text("\n".join([lines[0], *lines[2:]]))
        case "format":
            path.write_text(path.read_text().replace("memagent-export/1", "memagent-export/9"))
        case "empty":
            path.write_text("")
        case "binary":
            path.write_bytes(b"\xff\xfe\x00\x01")
        case _:
            path.unlink()
    memory = Memory(new_bank())
    with pytest.raises((SnapshotMismatch, InputError)) as caught:
        await memory.import_(path)
    assert "memory.jsonl" in str(caught.value)
    assert memory.bank.state.seq == 0


async def test_diff_names_what_changed() -> None:
    bank = await filled(3)
    before = bank.snapshot()
    first, second, _ = ids_of(bank)
    made = await bank.commit(
        batch(Update(id=first, text="new"), Delete(id=second), Add(fact=fact("more", turn="D1:4"))),
        source=DIRECT,
    )
    change = diff(before, bank.snapshot())
    assert [(a.id, b.text) for a, b in change.changed] == [(first, "new")]
    assert [item.id for item in change.removed] == [second]
    assert [item.id for item in change.added] == [made.changes[2].id]
    assert diff(before, before).empty
