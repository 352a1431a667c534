"""kill -9 anywhere: nothing acknowledged is lost, no batch is torn, what was erased stays gone. Twenty cycles, or $MEMAGENT_KILL_CYCLES."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from crash_child import CrashServer, Death
from journal_workloads import EMBEDDER, token_of, vector_of

from memagent.core.records import Scope
from memagent.core.snapshot import Erased, JournalRow
from memagent.stores.crash_points import CRASH_POINTS, kill_at
from memagent.stores.schema import VERSION_TABLE
from memagent.stores.sql_journal import SqlJournal

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
CYCLES = int(os.environ.get("MEMAGENT_KILL_CYCLES", "20"))
CYCLES_A_STORE = 8
ONCE = {"lock.acquired", "schema.created", "schema.migrated", "close.drained", "lock.releasing"}
ERASING = {"erase.deleted", "erase.committed", "erase.scrubbed"}


@pytest.fixture(scope="module")
def server() -> Iterator[CrashServer]:
    with CrashServer("journal_workloads") as running:
        yield running


@dataclass
class Truth:
    """What a store has acknowledged: tokens by scope and sequence, erasures by scope."""

    rows: dict[tuple[str, int], str] = field(default_factory=dict)
    erasures: dict[str, int] = field(default_factory=dict)

    def learn(self, death: Death) -> int:
        """Take in what a process said; how many rows it acknowledged."""
        before = len(self.rows)
        for line in death.said:
            kind, user, seq, *more = json.loads(line)
            if kind == "row":
                self.rows[user, seq] = more[0]
            elif kind == "batch":
                token, count = more
                self.rows |= {(user, seq + number): f"{token}/{number}/{count}" for number in range(count)}
            elif kind == "erased":
                self.erasures[user] = seq
        return len(self.rows) - before

    def check(self, path: Path) -> None:
        """Open the store as the next process would and compare."""
        with SqlJournal(path) as journal:
            logs = asyncio.run(_read(journal))
            for user, log in logs.items():
                assert journal.verify(Scope(user_id=user)) == []
                self._check_log(user, log)
            assert not journal.scrub_due
            self._check_cache(journal)
        lost = [key for key in self.rows if key[0] not in logs]
        assert lost == []
        self._check_erased(path, logs)

    def _check_log(self, user: str, log: list[JournalRow]) -> None:
        first = log[0].seq
        assert first == 1 or isinstance(log[0].entry, Erased)
        assert [row.seq for row in log] == list(range(first, first + len(log))), "a gap"
        found = {row.seq: token_of(row.entry) for row in log}
        lost = {
            seq: token
            for (name, seq), token in self.rows.items()
            if name == user and seq >= first and found.get(seq) != token
        }
        assert lost == {}, f"acknowledged and lost in {user!r}"
        assert self.erasures.get(user, 0) <= max((row.seq for row in log if isinstance(row.entry, Erased)), default=0)
        batches: dict[str, list[str]] = {}
        for token in found.values():
            if "/" in token:
                batches.setdefault(token.split("/")[0], []).append(token)
        for name, tokens in batches.items():
            count = int(tokens[0].split("/")[2])
            assert tokens == [f"{name}/{number}/{count}" for number in range(count)], "a torn batch"

    def _check_cache(self, journal: SqlJournal) -> None:
        digests = [
            f"c{cycle}v{step}n{number}" for cycle in range(CYCLES_A_STORE) for step in range(12) for number in range(20)
        ]
        for digest, vector in journal.cache.get_many(EMBEDDER, digests).items():
            assert vector.tobytes() == vector_of(digest).tobytes()

    def _check_erased(self, path: Path, logs: dict[str, list[JournalRow]]) -> None:
        """No byte of an erased token is left; the store is closed, so its files may be read."""
        data = b"".join(file.read_bytes() for file in path.parent.iterdir())
        there = set(re.findall(rb"c\d+w\d+s\d+", data))
        gone = {token for (user, seq), token in self.rows.items() if user in logs and seq < logs[user][0].seq}
        assert {token for token in gone if token.encode() in there} == set(), "erased bytes are still in the files"


async def _read(journal: SqlJournal) -> dict[str, list[JournalRow]]:
    return {scope.user_id: [row async for row in journal.since(scope, 0)] for scope in await journal.scopes()}


def _older_database(path: Path) -> None:
    """A store at the revision before the first, so that opening it migrates."""
    with sqlite3.connect(path) as connection:
        connection.execute(f"CREATE TABLE {VERSION_TABLE} (version_num VARCHAR(32) NOT NULL)")
    connection.close()


def _kill_many(server: CrashServer, folder: Path, *, cycles: int, seed: int) -> None:
    rng = random.Random(seed)
    truth, path = Truth(), Path()
    acknowledged, hit = 0, set[str]()
    points = [*CRASH_POINTS, None]
    for cycle in range(cycles):
        point = points[cycle % len(points)]
        if cycle % CYCLES_A_STORE == 0 or point in ("schema.created", "schema.migrated"):
            truth, path = Truth(), folder / str(cycle) / "memory.db"
            path.parent.mkdir()
            if point == "schema.migrated":
                _older_database(path)
        death = server.run(
            "journal_workloads:write_everything",
            point=point,
            visit=1
            if point in ONCE or point in ERASING
            else rng.randint(1, 2 if "checkpoint" in (point or "") else 12),
            kill_after_s=rng.uniform(0.01, 0.15) if point is None else None,
            path=str(path),
            cycle=cycle % CYCLES_A_STORE,
            erase=point in ERASING or rng.random() < 0.2,
        )
        assert death.trace == ""
        if death.killed and point:
            hit.add(point)
        acknowledged += truth.learn(death)
        truth.check(path)
    assert acknowledged > cycles, "the processes died before they wrote anything: the test proves nothing"
    if cycles >= 2 * len(points):
        assert hit == set(CRASH_POINTS)


def test_no_kill_loses_or_tears_anything(server: CrashServer, tmp_path: Path) -> None:
    _kill_many(server, tmp_path, cycles=CYCLES, seed=1)


@pytest.mark.full
def test_two_hundred_kills_lose_and_tear_nothing(server: CrashServer, tmp_path: Path) -> None:
    _kill_many(server, tmp_path, cycles=200, seed=2)


@pytest.mark.parametrize("point", ["schema.created", "schema.migrated", "lock.acquired", "lock.releasing"])
def test_a_kill_while_opening_or_closing_leaves_a_store_that_opens(
    server: CrashServer, tmp_path: Path, point: str
) -> None:
    path = tmp_path / "memory.db"
    if point == "schema.migrated":
        _older_database(path)
    death = server.run("journal_workloads:open_and_close", point=point, path=str(path))
    assert death.killed
    assert death.trace == ""
    Truth().check(path)
    whole = server.run("journal_workloads:open_and_close", path=str(path))
    assert (whole.killed, len(whole.said)) == (False, 1)


def test_there_are_at_least_twelve_crash_points_and_no_typing_errors() -> None:
    assert len(set(CRASH_POINTS)) == len(CRASH_POINTS) >= 12
    with pytest.raises(ValueError, match=r"append\.taken"):
        kill_at("append.token")
    source = "".join(
        file.read_text(encoding="utf-8") for file in Path(kill_at.__code__.co_filename).parent.glob("*.py")
    )
    assert set(re.findall(r'reach\("([a-z.]+)"\)', source)) == set(CRASH_POINTS)
