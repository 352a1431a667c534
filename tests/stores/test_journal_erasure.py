"""Erase is erase: no byte of what was erased is left in any file, whatever SQLite moved
around before, whatever is open meanwhile.
"""

from __future__ import annotations

import asyncio
import random
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from crash_child import CrashServer, Say
from journal_kit import read_all

from memagent.core.records import Scope, Session, Turn
from memagent.core.snapshot import Erased, SessionStored
from memagent.journal.sqlite import SqlJournal

SCAN = "import sys, pathlib; sys.stdout.buffer.write(b''.join(file.read_bytes() for file in pathlib.Path(sys.argv[1]).iterdir()))"


@pytest.fixture(scope="module")
def server() -> Iterator[CrashServer]:
    with CrashServer("journal_workloads") as running:
        yield running


def all_bytes(folder: Path) -> bytes:
    """Every byte of every file, read by another process: closing a database file here
    would drop SQLite's locks on it.
    """
    return subprocess.run(
        [sys.executable, "-c", SCAN, str(folder)], check=True, capture_output=True
    ).stdout


def said(marker: str, *, times: int) -> SessionStored:
    return SessionStored(
        session=Session(id="s", turns=(Turn(id="t", speaker="A", text=f"{marker}-" * times),))
    )


async def fill(journal: SqlJournal, rng: random.Random, scopes: list[Scope]) -> None:
    """Rows of all sizes, scopes in turn, so that they share pages."""
    heads = dict.fromkeys(scopes, 0)
    for _ in range(400):
        scope = rng.choice(scopes)
        entry = said(f"MARK{scope.user_id}", times=rng.choice([1, 3, 10, 30, 120]))
        await journal.append(scope, entry, expect=heads[scope])
        heads[scope] += 1


@pytest.mark.parametrize("seed", [8, 17, 19, 21])
async def test_no_copy_is_left_where_rows_were_moved(tmp_path: Path, seed: int) -> None:
    """SQLite moves rows of others when it merges the pages that an erasure emptied, and
    leaves their old bytes behind.
    """

    scopes = [Scope(user_id=f"{number:02d}") for number in range(8)]
    with SqlJournal(tmp_path / "j.db", synchronous="OFF") as journal:
        await fill(journal, random.Random(seed), scopes)
        for number in (0, 1, 2, 4, 5, 6, 3):
            await journal.append(
                scopes[number], Erased(), expect=await journal.head(scopes[number])
            )
    assert set(re.findall(rb"MARK\d\d", all_bytes(tmp_path))) == {b"MARK07"}


@pytest.mark.parametrize("seed", range(2))
async def test_no_byte_is_left_while_the_store_stays_open(tmp_path: Path, seed: int) -> None:
    scopes = [Scope(user_id=f"{number:02d}") for number in range(8)]
    vector = np.random.default_rng(seed).normal(size=64).astype(np.float32)
    with (
        SqlJournal(tmp_path / "j.db", synchronous="OFF") as journal,
        SqlJournal(tmp_path / "j.db", read_only=True) as reader,
    ):
        await fill(journal, random.Random(seed), scopes)
        gone = scopes[3]
        journal.cache.put_many("e", {"digest": vector})
        expect = await journal.head(gone)
        await journal.append(
            gone,
            said("MARK03", times=2),
            expect=expect,
            idempotency=("key", "digest", '"MARK03"'),
        )
        found = all_bytes(tmp_path)
        assert b"MARK03" in found
        assert vector.tobytes() in found
        await read_all(reader, gone)
        await journal.append(gone, Erased(reason="asked for"), expect=expect + 1)
        assert not journal.scrub_due
        left = all_bytes(tmp_path)
        assert b"MARK03" not in left
        assert vector[:4].tobytes() not in left
        assert await read_all(reader, gone) == await read_all(journal, gone)
        assert len(await read_all(journal, gone)) == 1
        assert [problem for scope in scopes for problem in journal.verify(scope)] == []
        kept = {match.decode() for match in re.findall(rb"MARK\d\d", left)}
        assert kept == {
            f"MARK{s.user_id}"
            for s in scopes
            if any(r.entry.kind == "session" for r in await read_all(journal, s))
        }


@pytest.mark.parametrize("point", ["erase.committed", "erase.scrubbed", "commit.after"])
async def test_an_erasure_cut_short_is_finished_on_the_next_open(
    tmp_path: Path, server: CrashServer, point: str
) -> None:
    path = tmp_path / "j.db"

    async def prepare() -> int:
        with SqlJournal(path, synchronous="OFF") as journal:
            scopes = [Scope(user_id="00"), Scope(user_id="01"), Scope(user_id="02")]
            await fill(journal, random.Random(7), scopes)
            return await journal.head(scopes[0])

    expect = await prepare()
    death = server.run(
        "test_journal_erasure:erase", point=point, path=str(path), user="00", expect=expect
    )
    assert death.killed, death.trace
    if point != "erase.scrubbed":
        assert scrub_asked(path)
    with SqlJournal(path) as journal:
        assert not journal.scrub_due
        assert b"MARK00" not in all_bytes(tmp_path)
        assert b"MARK01" in all_bytes(tmp_path)
        assert await journal.head(Scope(user_id="00")) == expect + 1
    assert not scrub_asked(path)


def erase(say: Say, *, path: str, user: str, expect: int) -> None:
    """Erase one scope; run in a process that is killed over it."""
    with SqlJournal(path) as journal:
        asyncio.run(journal.append(Scope(user_id=user), Erased(), expect=expect))


def scrub_asked(path: Path) -> bool:
    database = sqlite3.connect(path)
    asked = database.execute("SELECT count(*) FROM meta WHERE key = 'scrub'").fetchone()[0]
    database.close()
    return bool(asked)


async def test_a_long_reader_delays_the_scrub_and_no_data_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memagent.journal.sqlite_engine._BUSY_S", 0.05)
    monkeypatch.setattr("memagent.journal.committer._SCRUB_AGAIN_S", 0.05)
    ann, bob = Scope(user_id="ann"), Scope(user_id="bob")

    with SqlJournal(tmp_path / "j.db") as journal:
        await journal.append(ann, said("MARK", times=5), expect=0)
        reader = sqlite3.connect(tmp_path / "j.db", isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM journal").fetchone()
        await journal.append(ann, Erased(), expect=1)
        assert journal.scrub_due
        await journal.append(bob, said("OTHER", times=5), expect=0)
        reader.close()
        for _ in range(50):
            if not journal.scrub_due:
                break
            await asyncio.sleep(0.05)
        assert not journal.scrub_due, "it is tried again even when nothing else happens"
        left = all_bytes(tmp_path)
        assert b"MARK" not in left
        assert b"OTHER" in left
