"""Checkpoints in a PostgreSQL database: shared by workers, checked, gone with an erasure."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from checkpoint_kit import ANA, History, same_memory, standing, without_checkpoint

from memagent.checkpoints import file as file_format, store as policy
from memagent.checkpoints.store import Checkpoints, audit_checkpoint
from memagent.checkpoints.tables import LayeredMap
from memagent.core.answers import Query
from memagent.core.records import Scope
from memagent.core.snapshot import Erased
from memagent.memory.bank import MemoryBank
from memagent.memory.facade import Memory
from memagent.opening.open_store import OpenStore

if TYPE_CHECKING:
    from postgres_kit import Postgres

TEXTS = ("harbour", "ferry Ana")
BOB = Scope(user_id="bob")


@pytest.fixture
def url(postgres: Postgres) -> Iterator[str]:
    """An empty schema of the session's server."""
    with postgres.schema() as made:
        yield made


def opened(url: str, *, read_only: bool = False) -> OpenStore:
    return OpenStore.open(path=url, embedder="hashing", read_only=read_only, clock=standing)


def checkpoints_of(store: OpenStore) -> Checkpoints:
    assert store.checkpoints is not None
    return store.checkpoints


async def written(url: str, scope: Scope = ANA) -> None:
    """Write a memory and its checkpoint."""
    store = opened(url)
    bank = store.bank(scope)
    await History(3).write(bank, 40)
    await bank.refresh()
    checkpoints_of(store).save(bank)
    assert checkpoints_of(store).place.size_of(scope)
    store.close()


def asked(url: str, statement: str, *values: object) -> list[tuple[Any, ...]]:
    """Run a statement that sees every row."""
    store = opened(url)
    with store.journal.backend.connect() as connection:  # type: ignore[attr-defined]
        connection.execute("SELECT set_config('memagent.scopes', '*', false)")
        cursor = connection.execute(statement, values)
        rows = cursor.fetchall() if cursor.description else []
    store.close()
    return rows


def content(url: str) -> bytes:
    """The bytes of the only checkpoint."""
    ((part,),) = asked(url, "SELECT part FROM checkpoint_parts")
    return bytes(part)


def is_lazy(bank: MemoryBank) -> bool:
    return isinstance(bank.state.touched, LayeredMap)


async def refused(url: str, caplog: pytest.LogCaptureFixture, why: str) -> None:
    """Fail unless the journal is replayed, which is said, and the useless rows are gone."""
    caplog.clear()
    store = opened(url)
    bank = store.bank(ANA)
    with caplog.at_level(logging.WARNING):
        await bank.sync()
    assert why in caplog.text
    assert "the journal is replayed" in caplog.text
    assert not is_lazy(bank)
    await same_memory(bank, without_checkpoint(store), texts=TEXTS)
    assert checkpoints_of(store).place.size_of(ANA) is None
    checkpoints_of(store).save(bank)
    again = store.bank(ANA)
    await again.sync()
    assert is_lazy(again)
    store.close()


async def test_another_worker_opens_from_the_checkpoint(url: str) -> None:
    await written(url)
    store = opened(url)
    bank = store.bank(ANA)
    await bank.sync()
    assert is_lazy(bank)
    await same_memory(bank, without_checkpoint(store), texts=TEXTS)
    await History(4).write(bank, 10)
    await same_memory(bank, without_checkpoint(store), texts=TEXTS)
    found = await audit_checkpoint(
        checkpoints_of(store), ANA, without_checkpoint(store).log.state_at
    )
    assert found.seq
    assert found.size_bytes
    assert not found.faults
    store.close()


async def test_a_reader_uses_a_checkpoint_and_a_store_without_one_is_replayed(url: str) -> None:
    store = opened(url)
    await History(1).write(store.bank(ANA), 10)
    store.close()
    reader = opened(url, read_only=True)
    bank = reader.bank(ANA)
    await bank.sync()
    assert not is_lazy(bank)
    reader.close()
    assert asked(url, "SELECT to_regclass('checkpoints')") == [(None,)]
    store = opened(url)
    checkpoints_of(store).save(store.bank(ANA))
    bank = store.bank(ANA)
    await bank.refresh()
    checkpoints_of(store).save(bank)
    store.close()
    reader = opened(url, read_only=True)
    bank = reader.bank(ANA)
    await bank.sync()
    assert is_lazy(bank)
    reader.close()


@pytest.mark.parametrize("share", [0.0, 0.3, 0.999])
async def test_a_torn_one_is_replaced_by_a_replay(
    url: str, share: float, caplog: pytest.LogCaptureFixture
) -> None:
    await written(url)
    whole = content(url)
    asked(url, "UPDATE checkpoint_parts SET part = %b", whole[: int(share * len(whole))] or b"x")
    await refused(url, caplog, "torn" if share < 0.1 else "should end at")


async def test_no_flipped_bit_changes_an_answer(url: str, caplog: pytest.LogCaptureFixture) -> None:
    await written(url)
    whole = bytearray(content(url))
    whole[len(whole) // 2] ^= 4
    asked(url, "UPDATE checkpoint_parts SET part = %b", bytes(whole))
    await refused(url, caplog, "damaged")


async def test_one_of_a_newer_format_is_refused(
    url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as newer:
        newer.setattr(file_format, "FORMAT", 99)
        await written(url)
    await refused(url, caplog, "its format is 99")


async def test_one_of_another_user_is_refused(url: str, caplog: pytest.LogCaptureFixture) -> None:
    await written(url)
    await written(url, BOB)
    ours = asked(url, "SELECT digest, version FROM checkpoints ORDER BY digest")
    assert len(ours) == 2
    parts = asked(url, "SELECT part FROM checkpoint_parts ORDER BY digest")
    for (digest, _), (part,) in zip(ours, reversed(parts), strict=True):
        asked(url, "UPDATE checkpoint_parts SET part = %b WHERE digest = %s", bytes(part), digest)
    await refused(url, caplog, "belongs to another memory")


async def test_a_stale_one_of_a_journal_that_was_restored_is_refused(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    await written(url)
    asked(url, "DELETE FROM payloads WHERE seq > (SELECT max(seq) - 3 FROM journal)")
    store = opened(url)
    with store.journal.backend.connect() as connection:  # type: ignore[attr-defined]
        connection.execute(
            "SELECT set_config('memagent.scopes', (SELECT string_agg(digest, ',') FROM checkpoints), false)"
        )
    store.close()
    # The chain of the last row becomes another: as in a log that went on differently.
    asked(
        url,
        "UPDATE journal SET chain = decode(repeat('00', 32), 'hex') WHERE seq = (SELECT max(seq) FROM journal)",
    )
    store = opened(url)
    bank = store.bank(ANA)
    with caplog.at_level(logging.WARNING):
        content_of = checkpoints_of(store).load(ANA, bank.embedder)
    assert content_of is None
    assert "not the one that it was made from" in caplog.text
    store.close()


async def test_an_older_one_never_takes_the_place_of_a_newer(url: str) -> None:
    store, other = opened(url), opened(url)
    bank, behind = store.bank(ANA), other.bank(ANA)
    await History(1).write(bank, 20)
    await behind.refresh()
    await History(2).write(bank, 20)
    await bank.refresh()
    checkpoints_of(store).save(bank)
    (newest,) = asked(url, "SELECT seq, version FROM checkpoints")
    checkpoints_of(other).save(behind)
    assert asked(url, "SELECT seq, version FROM checkpoints") == [newest]
    assert newest[0] == bank.state.seq
    for each in (store, other):
        each.close()


async def test_an_erasure_takes_the_rows_along(url: str) -> None:
    await written(url)
    store = opened(url)
    await Memory(store.bank(ANA)).reset(user_id="ana")
    assert asked(url, "SELECT count(*) FROM checkpoints") == [(0,)]
    assert asked(url, "SELECT count(*) FROM checkpoint_parts") == [(0,)]
    store.close()


async def test_the_erasure_of_one_memory_takes_the_rows_along(url: str) -> None:
    await written(url)
    store = opened(url)
    bank = store.bank(ANA)
    gone = sorted(item.id for item in (await bank.sync()).active())[0]
    await Memory(bank).erase(gone)
    assert asked(url, "SELECT count(*) FROM checkpoint_parts") == [(0,)]
    store.close()


async def test_another_worker_s_never_comes_after_an_erasure(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    store, other = opened(url), opened(url)
    bank, late = store.bank(ANA), other.bank(ANA)
    await History(1).write(bank, 20)
    await late.refresh()
    place = checkpoints_of(other).place
    send = place._send  # type: ignore[attr-defined]

    def send_late(*given: Any) -> None:
        """Send it when the memory was erased while the file was made."""
        import asyncio

        async def erase() -> None:
            eraser = opened(url)
            await eraser.bank(ANA).append(lambda _: Erased(reason="asked"))
            eraser.close()

        asyncio.run(erase())
        send(*given)

    place._send = send_late  # type: ignore[attr-defined]
    import asyncio

    with caplog.at_level(logging.INFO):
        await asyncio.to_thread(checkpoints_of(other).save, late)
    assert "erased meanwhile" in caplog.text
    assert asked(url, "SELECT count(*) FROM checkpoint_parts") == [(0,)]
    for each in (store, other):
        each.close()


async def test_the_ones_used_longest_ago_go_first(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await written(url)
    ((size,),) = asked(url, "SELECT bytes FROM checkpoints")
    monkeypatch.setattr(policy, "MOST_FOLDER_BYTES", int(1.5 * size))
    await written(url, BOB)
    store = opened(url)
    assert checkpoints_of(store).place.size_of(ANA) is None
    assert checkpoints_of(store).place.size_of(BOB) is not None
    store.close()
    assert asked(url, "SELECT count(DISTINCT digest) FROM checkpoint_parts") == [(1,)]


async def test_the_wall_between_users_holds_for_checkpoints(url: str) -> None:
    await written(url)
    store = opened(url)
    with store.journal.backend.connect() as connection:  # type: ignore[attr-defined]
        for table in ("checkpoints", "checkpoint_parts"):
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
    store.close()


async def test_a_server_that_refuses_the_tables_only_goes_without(
    url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memagent.checkpoints.server._TABLES", "SELECT 1/0")
    store = opened(url)
    bank = store.bank(ANA)
    await History(1).write(bank, 10)
    with caplog.at_level(logging.INFO):
        checkpoints_of(store).save(bank)
    assert "division by zero" in caplog.text
    assert await bank.search(Query(text="harbour"), k=1) is not None
    store.close()
