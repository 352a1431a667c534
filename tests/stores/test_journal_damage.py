"""Damage is found and named: changed rows, broken files, files that are not ours, full disks.

Nothing is acknowledged that is not kept.
"""

from __future__ import annotations

import asyncio
import os
import random
import resource
import shutil
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from crash_child import CrashServer, Say
from journal_kit import every_kind, read_all

from memagent.core.errors import StoreCorrupt, StoreError, StoreUnavailable
from memagent.core.records import Scope, Session, Turn
from memagent.core.snapshot import Erased, SessionStored, StatsDelta
from memagent.journal.rows import SCHEMA_REVISION, VERSION_TABLE
from memagent.journal.sqlite import SqlJournal

ANN, BOB = Scope(user_id="ann"), Scope(user_id="bob")


@pytest.fixture(scope="module")
def server() -> Iterator[CrashServer]:
    with CrashServer("test_journal_damage") as running:
        yield running


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store with two scopes, one of which was erased once."""
    path = tmp_path_factory.mktemp("sound") / "j.db"
    with SqlJournal(path) as journal:
        asyncio.run(journal.append_many(ANN, [*every_kind(), Erased(), *every_kind()], expect=0))
        asyncio.run(journal.append_many(BOB, every_kind(), expect=0))
        assert (
            journal.verify(ANN)
            == journal.verify(BOB)
            == journal.verify(Scope(user_id="nobody"))
            == []
        )
    return path


def problems(path: Path) -> list[str]:
    with SqlJournal(path, read_only=True) as journal:
        return journal.verify(ANN) + journal.verify(BOB)


def changed(value: object, rng: random.Random) -> object:
    """Another value of the same type."""
    if isinstance(value, int):
        return value + rng.choice([-3, -1, 1, 2, 1 << 40])
    if isinstance(value, bytes):
        data = bytearray(value)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        return bytes(data)
    return f"{value}x" if value is None or rng.random() < 0.5 else str(value)[:-1]


def tamper(database: sqlite3.Connection, rng: random.Random) -> str:
    """Change one thing in the log; what was done. "" when the change was not possible."""
    table = rng.choice(["journal", "payloads", "scopes"])
    database.row_factory = sqlite3.Row
    row: dict[str, Any] = dict(rng.choice(database.execute(f"SELECT * FROM {table}").fetchall()))
    keys = [name for name in ("scope_id", "seq", "id") if name in row]
    where = " AND ".join(f"{name} = :old_{name}" for name in keys)
    old = {f"old_{name}": row[name] for name in keys}
    action = rng.choice(["change", "change", "change", "delete", "copy"])
    try:
        if action == "delete":
            database.execute(f"DELETE FROM {table} WHERE {where}", old)
        elif action == "copy":
            row[keys[-1]] += rng.choice([1, 50])
            row |= {"digest": "0" * 64} if table == "scopes" else {}
            names = ", ".join(row)
            database.execute(
                f"INSERT INTO {table} ({names}) VALUES ({', '.join(':' + name for name in row)})",
                row,
            )
            return (
                "" if table == "scopes" else f"{action} {table} {old}"
            )  # one more empty-handed scope changes no log
        else:
            name = rng.choice(list(row))
            database.execute(
                f"UPDATE {table} SET {name} = :new WHERE {where}",
                old | {"new": changed(row[name], rng)},
            )
            action += f" {name}"
    except sqlite3.IntegrityError:
        return ""
    return f"{action} {table} {old}"


def check_tampering(sound: Path, folder: Path, *, rounds: int, seed: int) -> None:
    rng, path, done = random.Random(seed), folder / "j.db", 0
    shutil.copyfile(sound, path)
    database = sqlite3.connect(path, isolation_level=None)
    with SqlJournal(path, read_only=True) as journal:
        while done < rounds:
            database.execute("BEGIN")
            what = tamper(database, rng)
            if what:
                done += 1
                database.execute("COMMIT")
                found = journal.verify(ANN) + journal.verify(BOB)
                assert found, f"not found: {what}"
                assert all(problem.startswith("seq ") for problem in found)
                database.row_factory = None
                shutil_restore(database, sound)
            else:
                database.execute("ROLLBACK")
    database.close()


def shutil_restore(database: sqlite3.Connection, sound: Path) -> None:
    """Put the tables back as they are in the sound store."""
    database.execute("ATTACH ? AS sound", (str(sound),))
    for table in ("journal", "payloads", "scopes"):
        database.execute(f"DELETE FROM main.{table}")
        database.execute(f"INSERT INTO main.{table} SELECT * FROM sound.{table}")
    database.execute("DETACH sound")


def test_any_change_to_the_log_is_found(sound: Path, tmp_path: Path) -> None:
    check_tampering(sound, tmp_path, rounds=200, seed=1)


@pytest.mark.full
def test_ten_thousand_changes_to_the_log_are_found(sound: Path, tmp_path: Path) -> None:
    check_tampering(sound, tmp_path, rounds=10_000, seed=2)


async def test_the_first_bad_sequence_is_named(sound: Path, tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    shutil.copyfile(sound, path)
    database = sqlite3.connect(path)
    database.execute(
        "UPDATE payloads SET body = replace(body, 'Oslo', 'Rome') WHERE seq = 8 AND scope_id = 1"
    )
    database.execute("DELETE FROM payloads WHERE seq = 10 AND scope_id = 1")
    database.commit()
    database.close()
    assert problems(path) == [
        "seq 8: its payload is not the one that was written",
        "seq 10: its payload is missing",
    ]
    with SqlJournal(path) as journal:
        with pytest.raises(StoreCorrupt, match=r"row 8 of scope .* not the one that was"):
            await read_all(journal, ANN)
        assert len(await read_all(journal, BOB)) == len(every_kind())


def check_flips(sound: Path, folder: Path, *, rounds: int, seed: int) -> None:
    """Flip one bit of the file at a time: what is read is what was written, or an error."""
    rng = random.Random(seed)
    content = sound.read_bytes()
    path = folder / "flipped.db"
    with SqlJournal(sound, read_only=True) as journal:
        written = [asyncio.run(read_all(journal, scope)) for scope in (ANN, BOB)]
    found = lost = 0
    for _ in range(rounds):
        flipped = bytearray(content)
        flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
        path.write_bytes(flipped)
        try:
            with SqlJournal(path, read_only=True) as journal:
                for scope, rows in zip((ANN, BOB), written, strict=True):
                    read = asyncio.run(read_all(journal, scope))
                    lost += not read
                    assert read in (rows, []), "served as truth"
        except StoreError:
            found += 1
    # A flip in the row that names a scope hides its log from readers; the audit finds it.
    assert found > rounds / 20 and lost <= rounds / 20


def test_no_flipped_bit_of_the_file_is_served_as_truth(sound: Path, tmp_path: Path) -> None:
    check_flips(sound, tmp_path, rounds=250, seed=3)


@pytest.mark.full
def test_ten_thousand_flipped_bits_are_found_or_harmless(sound: Path, tmp_path: Path) -> None:
    check_flips(sound, tmp_path, rounds=10_000, seed=4)


async def test_a_payload_that_is_no_entry_is_named(sound: Path, tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    shutil.copyfile(sound, path)
    database = sqlite3.connect(path)
    database.execute(
        'UPDATE payloads SET body = CAST(\'{"kind":"odd"}\' AS BLOB) WHERE seq = 9 AND scope_id = 1'
    )
    database.commit()
    database.close()
    with SqlJournal(path) as journal, pytest.raises(StoreCorrupt, match=r"j\.db.*row 9 of scope"):
        await read_all(journal, ANN)


async def test_something_else_that_writes_to_the_file_is_noticed(tmp_path: Path) -> None:
    with SqlJournal(tmp_path / "j.db") as journal:
        await journal.append_many(ANN, every_kind(), expect=0)
        other = sqlite3.connect(tmp_path / "j.db")
        for table in ("journal", "payloads"):
            other.execute(f"DELETE FROM {table} WHERE seq > 3")
        other.execute(
            "UPDATE scopes SET (head, chain) = (SELECT seq, chain FROM journal WHERE seq = 3)"
        )
        other.commit()
        other.close()
        outcome = await gathered(journal, expects=[len(every_kind()), 3])
        assert outcome == ["VersionConflict", "JournalRow"]
        assert journal.verify(ANN) == []


async def gathered(journal: SqlJournal, *, expects: list[int]) -> list[str]:
    jobs = [journal.append(ANN, StatsDelta(), expect=expect) for expect in expects]
    return [
        type(outcome).__name__ for outcome in await asyncio.gather(*jobs, return_exceptions=True)
    ]


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize(
    "damage", ["other words", "header", "cut short", "foreign", "table gone", "format"]
)
def test_a_file_that_is_no_sound_store_is_refused_and_left_alone(
    sound: Path, tmp_path: Path, damage: str, read_only: bool
) -> None:
    path = tmp_path / "j.db"
    shutil.copyfile(sound, path)
    if damage == "other words":
        path.write_bytes(b"Dear diary, today I wrote to a file that is no database. " * 50)
    elif damage == "header":
        path.write_bytes(b"\xff" * 100 + path.read_bytes()[100:])
    elif damage == "cut short":
        path.write_bytes(path.read_bytes()[:6000])
    else:
        if damage == "foreign":
            path.unlink()
        database = sqlite3.connect(path)
        statement = {
            "foreign": "CREATE TABLE notes (id INTEGER)",
            "table gone": "DROP TABLE scopes",
            "format": "UPDATE meta SET value = 'memagent-journal/0'",
        }[damage]
        database.execute(statement)
        database.commit()
        database.close()
    before = path.read_bytes()
    with pytest.raises(StoreCorrupt, match=r"j\.db.*(backup|export).*doctor"):
        SqlJournal(path, read_only=read_only)
    assert path.read_bytes() == before
    SqlJournal(tmp_path / "other.db").close()


async def test_a_page_broken_later_is_named_when_it_is_read(sound: Path, tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    database = sqlite3.connect(sound)
    root = database.execute(
        "SELECT rootpage FROM sqlite_master WHERE name = 'payloads'"
    ).fetchone()[0]
    page = database.execute("PRAGMA page_size").fetchone()[0]
    database.close()
    data = bytearray(sound.read_bytes())
    data[(root - 1) * page : root * page] = os.urandom(page)
    path.write_bytes(data)
    with SqlJournal(path, read_only=True) as journal, pytest.raises(StoreCorrupt, match=r"j\.db"):
        await read_all(journal, ANN)


@pytest.mark.parametrize("read_only", [False, True])
def test_a_newer_schema_is_refused_by_name(sound: Path, tmp_path: Path, read_only: bool) -> None:
    path = tmp_path / "j.db"
    shutil.copyfile(sound, path)
    database = sqlite3.connect(path)
    database.execute(f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
    database.commit()
    database.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match=rf"newer memagent .*9999.*{SCHEMA_REVISION}"):
        SqlJournal(path, read_only=read_only)
    assert path.read_bytes() == before


async def test_a_full_disk_refuses_and_recovers(tmp_path: Path, server: CrashServer) -> None:
    death = server.run("test_journal_damage:fill_the_disk", path=str(tmp_path / "j.db"))
    assert death.trace == ""
    assert death.said == [
        "StoreUnavailable",
        "StoreUnavailable",
        "head 3",
        "written 4",
        "written other",
        "sound",
    ]
    with SqlJournal(tmp_path / "j.db") as journal:
        assert await journal.head(ANN) == 4
        assert journal.verify(ANN) == []


def fill_the_disk(say: Say, *, path: str) -> None:
    """Append against a limit on file sizes, lift it, append again; run in a process of its own."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    big = SessionStored(
        session=Session(id="s", turns=(Turn(id="t", speaker="A", text="x" * 150_000),))
    )

    async def run() -> None:
        with SqlJournal(path) as journal:
            await journal.append_many(ANN, [StatsDelta()] * 3, expect=0)
            _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, most))
            both = await asyncio.gather(
                journal.append(ANN, big, expect=3),
                journal.append(BOB, big, expect=0),
                return_exceptions=True,
            )
            for outcome in both:
                say(type(outcome).__name__)
                assert isinstance(outcome, StoreUnavailable)
                assert outcome.retryable
            say(f"head {await journal.head(ANN)}")
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
            say(f"written {(await journal.append(ANN, big, expect=3)).seq}")
            await journal.append(BOB, big, expect=0)
            say("written other")
            assert len(await read_all(journal, ANN)) == 4
            say("sound" if journal.verify(ANN) == journal.verify(BOB) == [] else "broken")

    asyncio.run(run())
