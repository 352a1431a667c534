"""kill -9 anywhere: nothing acknowledged is lost, no batch is torn, what was erased stays gone.

Twenty cycles, or $MEMAGENT_KILL_CYCLES.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from crash_child import CRASH_POINTS, CrashServer, Death, kill_at
from journal_workloads import EMBEDDER, token_of, vector_of
from postgres_kit import journal_at

from memagent import journal
from memagent.core.records import Scope
from memagent.core.snapshot import Erased, JournalRow
from memagent.journal.open_database import DatabaseJournal
from memagent.journal.postgres import connect, is_postgres_url
from memagent.journal.rows import VERSION_TABLE

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
CYCLES = int(os.environ.get("MEMAGENT_KILL_CYCLES", "20"))
CYCLES_A_STORE = 8
ONCE = {"lock.acquired", "schema.created", "schema.migrated", "close.drained", "lock.releasing"}
NewPlace = Callable[[], str]
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
                self.rows |= {
                    (user, seq + number): f"{token}/{number}/{count}" for number in range(count)
                }
            elif kind == "erased":
                self.erasures[user] = seq
        return len(self.rows) - before

    def check(self, place: str) -> None:
        """Open the store as the next process would and compare."""
        with journal_at(place) as journal:
            logs = asyncio.run(_read(journal, {user for user, _ in self.rows}))
            for user, log in logs.items():
                assert journal.verify(Scope(user_id=user)) == []
                self._check_log(user, log)
            assert not journal.scrub_due
            self._check_cache(journal)
        lost = [key for key in self.rows if key[0] not in logs]
        assert lost == []
        if not is_postgres_url(place):
            self._check_files(Path(place).parent, logs)

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
        assert self.erasures.get(user, 0) <= max(
            (row.seq for row in log if isinstance(row.entry, Erased)), default=0
        )
        batches: dict[str, list[str]] = {}
        for token in found.values():
            if "/" in token:
                batches.setdefault(token.split("/")[0], []).append(token)
        for name, tokens in batches.items():
            count = int(tokens[0].split("/")[2])
            assert tokens == [f"{name}/{number}/{count}" for number in range(count)], "a torn batch"

    def _check_cache(self, journal: DatabaseJournal) -> None:
        digests = [
            f"c{cycle}v{step}n{number}"
            for cycle in range(CYCLES_A_STORE)
            for step in range(12)
            for number in range(20)
        ]
        for digest, vector in journal.cache.get_many(EMBEDDER, digests).items():
            assert vector.tobytes() == vector_of(digest).tobytes()

    def _check_files(self, folder: Path, logs: dict[str, list[JournalRow]]) -> None:
        """No byte of an erased token is left; the store is closed, so its files may be read."""
        data = b"".join(file.read_bytes() for file in folder.iterdir())
        there = set(re.findall(rb"c\d+w\d+s\d+", data))
        gone = {
            token
            for (user, seq), token in self.rows.items()
            if user in logs and seq < logs[user][0].seq
        }
        assert {token for token in gone if token.encode() in there} == set(), (
            "erased bytes are still in the files"
        )


def _points_of(place: str) -> tuple[str, ...]:
    """The crash points that are passed there: a server has no lock file and makes its
    own checkpoints.
    """
    here = ("lock.", "checkpoint.") if is_postgres_url(place) else ()
    return tuple(point for point in CRASH_POINTS if not point.startswith(here))


async def _read(journal: DatabaseJournal, users: set[str]) -> dict[str, list[JournalRow]]:
    """The logs of these users and of all that are listed; those that end erased are not."""
    listed = {scope.user_id for scope in await journal.scopes()}
    logs = {
        user: [row async for row in journal.since(Scope(user_id=user), 0)]
        for user in sorted(listed | users)
    }
    assert listed == {
        user for user, log in logs.items() if log and not isinstance(log[-1].entry, Erased)
    }
    return {user: log for user, log in logs.items() if log}


def _older_database(place: str) -> None:
    """A store at the revision before the first, so that opening it migrates."""
    statement = f"CREATE TABLE {VERSION_TABLE} (version_num VARCHAR(32) NOT NULL)"
    if is_postgres_url(place):
        connect(place).execute(statement.encode()).connection.close()
        return
    with sqlite3.connect(place) as connection:
        connection.execute(statement)
    connection.close()


def _kill_many(server: CrashServer, new_place: NewPlace, *, cycles: int, seed: int) -> None:
    rng = random.Random(seed)
    truth, place = Truth(), new_place()
    acknowledged, hit = 0, set[str]()
    points = [*_points_of(place), None]
    for cycle in range(cycles):
        point = points[cycle % len(points)]
        if cycle % CYCLES_A_STORE == 0 or point in ("schema.created", "schema.migrated"):
            truth, place = Truth(), new_place()
            if point == "schema.migrated":
                _older_database(place)
        death = server.run(
            "journal_workloads:write_everything",
            point=point,
            visit=1
            if point in ONCE or point in ERASING
            else rng.randint(1, 2 if "checkpoint" in (point or "") else 12),
            kill_after_s=rng.uniform(0.01, 0.15) if point is None else None,
            path=place,
            cycle=cycle % CYCLES_A_STORE,
            erase=point in ERASING or rng.random() < 0.2,
        )
        assert death.trace == ""
        if death.killed and point:
            hit.add(point)
        acknowledged += truth.learn(death)
        truth.check(place)
    assert acknowledged > cycles, (
        "the processes died before they wrote anything: the test proves nothing"
    )
    if cycles >= 2 * len(points):
        assert hit == set(points) - {None}


def test_no_kill_loses_or_tears_anything(server: CrashServer, new_place: NewPlace) -> None:
    _kill_many(server, new_place, cycles=CYCLES, seed=1)


@pytest.mark.full
@pytest.mark.timeout(900)
def test_two_hundred_kills_lose_and_tear_nothing(server: CrashServer, new_place: NewPlace) -> None:
    _kill_many(server, new_place, cycles=200, seed=2)


@pytest.mark.parametrize(
    "point", ["schema.created", "schema.migrated", "lock.acquired", "lock.releasing"]
)
def test_a_kill_while_opening_or_closing_leaves_a_store_that_opens(
    server: CrashServer, place: str, point: str
) -> None:
    if point not in _points_of(place):
        pytest.skip("no lock file there")
    if point == "schema.migrated":
        _older_database(place)
    death = server.run("journal_workloads:open_and_close", point=point, path=place)
    assert death.killed
    assert death.trace == ""
    Truth().check(place)
    whole = server.run("journal_workloads:open_and_close", path=place)
    assert (whole.killed, len(whole.said)) == (False, 1)


def test_there_are_at_least_twelve_crash_points_and_no_typing_errors() -> None:
    assert len(set(CRASH_POINTS)) == len(CRASH_POINTS) >= 12
    with pytest.raises(ValueError, match=r"append\.taken"):
        kill_at("append.token")
    source = "".join(
        file.read_text(encoding="utf-8") for file in Path(journal.__file__).parent.rglob("*.py")
    )
    assert set(re.findall(r'reach\("([a-z.]+)"\)', source)) == set(CRASH_POINTS)
