"""Backups under writes, and putting them back."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import threading
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from journal_kit import read_all
from postgres_kit import journal_at

from memagent.core.errors import InputError, StoreError, StoreLocked
from memagent.core.records import Scope, Session, Turn
from memagent.core.snapshot import Erased, SessionStored
from memagent.journal.proof.audit import NO_SEAL, Seal
from memagent.journal.sqlite import SqlJournal, backup_store, restore_store, verify_store

ANN = Scope(user_id="ann")
KEYED = Seal(key=b"a secret of the operator")


def said(number: int) -> SessionStored:
    turn = Turn(id=f"t{number}", speaker="A", text=f"number {number}")
    return SessionStored(session=Session(id=f"s{number}", turns=(turn,)))


async def write(journal: SqlJournal, rows: int) -> None:
    head = await journal.head(ANN)
    for number in range(head, head + rows):
        await journal.append(ANN, said(number), expect=number)


def rows_of(path: Path) -> int:
    with SqlJournal(path, read_only=True) as journal:
        return len(asyncio.run(read_all(journal, ANN)))


@pytest.mark.parametrize("seal", [NO_SEAL, KEYED], ids=["plain", "keyed"])
def test_a_backup_is_whole_and_newer_than_what_was_acknowledged(tmp_path: Path, seal: Seal) -> None:
    path, stop = tmp_path / "m.db", threading.Event()
    acknowledged = 0

    def work() -> None:
        nonlocal acknowledged
        with SqlJournal(path, seal=seal, synchronous="OFF") as journal:
            while not stop.is_set():
                asyncio.run(write(journal, 5))
                acknowledged += 5

    writer = threading.Thread(target=work)
    writer.start()
    try:
        while acknowledged < 20:
            pass
        before = [acknowledged]
        reports = []
        for number in range(4):
            reports.append(backup_store(path, tmp_path / f"copy{number}.db", seal=seal))
            before.append(acknowledged)
    finally:
        stop.set()
        writer.join()
    for known, report in zip(before, reports, strict=False):
        assert report.problems == () and report.rows >= known
    assert rows_of(tmp_path / "copy3.db") == reports[3].rows
    with SqlJournal(tmp_path / "copy3.db", seal=seal) as journal:
        asyncio.run(write(journal, 3))


def test_a_backup_takes_the_place_of_a_store(tmp_path: Path) -> None:
    path, copy = tmp_path / "m.db", tmp_path / "copy.db"
    with SqlJournal(path) as journal:
        asyncio.run(write(journal, 5))
        backup_store(path, copy)
        asyncio.run(write(journal, 5))
        with pytest.raises(StoreLocked):
            restore_store(copy, path, force=True)
    with pytest.raises(InputError, match="--force"):
        restore_store(copy, path)
    assert restore_store(copy, path, force=True).rows == 5
    with SqlJournal(path) as journal:
        assert journal.compare_tips() == []
        asyncio.run(write(journal, 1))
    assert rows_of(path) == 6
    with pytest.raises(InputError, match="already"):
        backup_store(path, copy)


def test_a_restore_that_is_stopped_leaves_the_old_store_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a kill: rows that lay in the write-ahead log alone are still there."""
    path, copy, crashed = tmp_path / "m.db", tmp_path / "copy.db", tmp_path / "crashed"
    crashed.mkdir()
    with SqlJournal(path) as journal:
        asyncio.run(write(journal, 3))
        backup_store(path, copy)
        asyncio.run(write(journal, 4))
        for file in tmp_path.glob("m.db*"):
            shutil.copy(file, crashed)
    (crashed / "m.db.lock").unlink()
    assert (crashed / "m.db-wal").stat().st_size

    def stopped(self: Path, target: Path) -> None:
        raise KeyboardInterrupt(f"{self} and {target}")

    with monkeypatch.context() as killed:
        killed.setattr(Path, "replace", stopped)
        with pytest.raises(KeyboardInterrupt):
            restore_store(copy, crashed / "m.db", force=True)
    assert rows_of(crashed / "m.db") == 7
    with SqlJournal(crashed / "m.db") as journal:
        assert journal.compare_tips() == []
        asyncio.run(write(journal, 1))
    assert restore_store(copy, crashed / "m.db", force=True).rows == 3
    assert rows_of(crashed / "m.db") == 3


def test_a_store_that_sqlite_cannot_read_is_replaced(tmp_path: Path) -> None:
    path, copy = tmp_path / "m.db", tmp_path / "copy.db"
    with SqlJournal(path) as journal:
        asyncio.run(write(journal, 3))
        backup_store(path, copy)
    path.write_bytes(b"no database" * 999)
    path.with_name("m.db-wal").write_bytes(b"no log" * 99)
    assert restore_store(copy, path, force=True).rows == 3
    assert rows_of(path) == 3


@pytest.mark.parametrize("at", [0.2, 0.5, 0.8])
def test_a_damaged_backup_is_not_restored(tmp_path: Path, at: float) -> None:
    path, copy = tmp_path / "m.db", tmp_path / "copy.db"
    with SqlJournal(path) as journal:
        asyncio.run(write(journal, 60))
    backup_store(path, copy)
    data = copy.read_bytes()
    place = data.index(b"number ", int(len(data) * at))
    copy.write_bytes(data[:place] + b"Xumber " + data[place + 7 :])
    assert verify_store(copy).problems
    path.unlink()
    with pytest.raises(StoreError, match="damaged"):
        restore_store(copy, path)
    assert not path.exists()


def test_a_backup_with_a_changed_log_of_an_erased_user_is_told(tmp_path: Path) -> None:
    path, copy = tmp_path / "m.db", tmp_path / "copy.db"
    with SqlJournal(path) as journal:
        asyncio.run(write(journal, 3))
        (scope,) = asyncio.run(journal.scopes())
        asyncio.run(journal.append(scope, Erased(), expect=3))
        assert asyncio.run(journal.scopes()) == [] and journal.verify_erased() == []
    assert backup_store(path, copy).problems == ()
    with closing(sqlite3.connect(copy)) as database, database:
        database.execute("UPDATE journal SET recorded_us = recorded_us - 5 WHERE seq = 2")
    (fault, *_) = verify_store(copy).problems
    assert "erased scope" in fault and "seq 2" in fault


async def test_old_and_surplus_responses_are_forgotten(place: str) -> None:
    scope, (early, late) = (
        Scope(user_id="ann"),
        (datetime(year, 1, 1, tzinfo=UTC) for year in (2020, 2100)),
    )
    with journal_at(place) as journal:
        for number in range(3):
            session = Session(
                id=f"s{number}", turns=(Turn(id=f"t{number}", speaker="A", text="x"),)
            )
            record = (f"key{number}", "digest", "{}")
            entry = SessionStored(session=session)
            await journal.append(scope, entry, expect=number, idempotency=record)
            await asyncio.sleep(1.01)  # they are counted by the second
        assert journal.prune_responses(before=early, most=3) == 0
        assert journal.prune_responses(before=early, most=2) == 1
        known = [journal.response(scope, f"key{number}") for number in range(3)]
        assert known[0] is None and None not in known[1:]
        assert journal.prune_responses(before=late, most=2) == 2
        assert journal.verify_erased() == []
