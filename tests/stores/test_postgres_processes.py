"""Many processes on one PostgreSQL journal: they write at once, die, read each other,
and live through a server that goes away.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from crash_child import CrashServer, Death, Say, watch
from journal_kit import read_all
from places import ROOT
from postgres_kit import PASSWORD, Postgres, rows_of, running_postgres

from memagent.build import open_store
from memagent.core.errors import StoreError, StoreUnavailable, VersionConflict
from memagent.core.records import Scope, Session, Turn
from memagent.core.snapshot import Entry, Erased, SessionStored, StatsDelta
from memagent.journal.postgres import PostgresJournal

pytest.importorskip("psycopg", reason="needs the postgres extra")
ANN = Scope(user_id="ann")


@pytest.fixture
def url(postgres: Postgres) -> Iterator[str]:
    """An empty schema of the session's server."""
    with postgres.schema() as made:
        yield made


@pytest.fixture(scope="module")
def workers() -> Iterator[tuple[CrashServer, CrashServer]]:
    """Two servers, so that two processes work at the same time."""
    with (
        CrashServer("test_postgres_processes") as one,
        CrashServer("test_postgres_processes") as two,
    ):
        yield one, two


def said(words: str) -> Entry:
    return SessionStored(session=Session(id="s", turns=(Turn(id="t", speaker="A", text=words),)))


def stats(token: str) -> Entry:
    return StatsDelta(updates=((token, None),))


# -- processes -------------------------------------------------------------------------


def contend(say: Say, *, path: str, worker: int, steps: int) -> None:
    """Write to one user whom all share and to own ones, each acknowledged by a line
    [user, sequence, token].
    """

    async def run() -> None:
        with PostgresJournal(path, pool=2) as journal:

            async def write(user: str) -> None:
                scope = Scope(user_id=user)
                for step in range(steps):
                    token = f"w{worker}/{user}/{step}"
                    while True:
                        try:
                            row = await journal.append(
                                scope, stats(token), expect=await journal.head(scope)
                            )
                        except VersionConflict:
                            continue
                        break
                    say(json.dumps([user, row.seq, token]))

            await asyncio.gather(
                *(write(user) for user in ("shared", *(f"w{worker}u{n}" for n in range(8))))
            )

    asyncio.run(run())


def at_the_same_time(
    workers: tuple[CrashServer, CrashServer], orders: list[dict[str, Any]]
) -> list[Death]:
    deaths: list[Death | None] = [None, None]

    def work(number: int) -> None:
        deaths[number] = workers[number].run(
            "test_postgres_processes:contend", worker=number, **orders[number]
        )

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [death for death in deaths if death is not None]


@pytest.mark.parametrize("point", [None, "payloads.written", "commit.after", "ack.before"])
async def test_of_two_processes_one_dies_and_nothing_acknowledged_is_lost(
    workers: tuple[CrashServer, CrashServer], url: str, point: str | None
) -> None:
    PostgresJournal(url).close()
    doomed = {"point": point, "visit": 7} if point is not None else {}
    deaths = at_the_same_time(
        workers, [{"path": url, "steps": 15, **doomed}, {"path": url, "steps": 15}]
    )
    assert [death.trace for death in deaths] == ["", ""]
    assert [death.killed for death in deaths] == [point is not None, False]
    assert len(deaths[1].said) == 9 * 15, "the other one goes on to its end"
    with PostgresJournal(url) as journal:
        assert [
            problem for scope in await journal.scopes() for problem in journal.verify(scope)
        ] == []
        found = {
            (scope.user_id, row.seq): row.entry
            for scope in await journal.scopes()
            for row in await read_all(journal, scope)
        }
    told = [tuple(json.loads(line)) for death in deaths for line in death.said]
    assert {(user, seq): stats(token) for user, seq, token in told}.items() <= found.items()
    assert len(told) == len({(user, seq) for user, seq, _ in told}), "no sequence was given twice"
    if point is None:
        assert len(found) == len(told) == 2 * 9 * 15


READ = """
import asyncio, sys
from memagent.build import open_store
from memagent.core.records import Scope

async def main():
    store = open_store(path=sys.argv[1], embedder="hashing")
    bank = store.bank(Scope(user_id="ann"))
    for _ in iter(sys.stdin.readline, ""):
        state = await bank.sync()
        print(state.seq, state.digest(), flush=True)
    store.close()

asyncio.run(main())
"""


async def test_a_process_reads_what_another_has_just_been_told_is_written(url: str) -> None:
    """The other process is warm: it has read before, and reads again right after each
    acknowledgement.
    """
    store = open_store(path=url, embedder="hashing")
    command = [sys.executable, "-c", READ, url]
    environment = dict(os.environ, PYTHONPATH=str(ROOT))
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
        env=environment,
    ) as reader:
        assert reader.stdin is not None
        assert reader.stdout is not None

        async def run() -> None:
            assert reader.stdin is not None
            assert reader.stdout is not None
            agent = store.agent(ANN)
            for number in range(20):
                await agent.memory.add(f"Ann keeps key {number} in drawer {number}")
                reader.stdin.write("\n")
                seq, seen = reader.stdout.readline().split()
                assert (int(seq), seen) == (agent.bank.state.seq, agent.bank.state.digest())

        await run()
        reader.stdin.close()
    store.close()
    assert reader.returncode == 0


def test_many_may_open_an_empty_database_at_once(url: str) -> None:
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:  # another pool is another backend: each makes the schema, or finds it made
            with PostgresJournal(url, pool=number + 1) as journal:
                asyncio.run(journal.append(Scope(user_id=str(number)), stats("a"), expect=0))
        except BaseException as exc:
            errors.append(exc)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    with PostgresJournal(url) as journal:
        assert len(asyncio.run(journal.scopes())) == 5


async def test_a_process_keeps_a_handful_of_connections(url: str) -> None:
    count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'memagent'"
    before = rows_of(url, count)[0][0]
    journals = [PostgresJournal(url, pool=3) for _ in range(12)]

    users = [Scope(user_id=f"u{number}") for number in range(60)]
    await asyncio.gather(
        *(journals[n % 12].append(user, stats("a"), expect=0) for n, user in enumerate(users))
    )
    await asyncio.gather(*(read_all(journals[n % 12], user) for n, user in enumerate(users)))
    await asyncio.gather(*(journals[n % 12].head(user) for n, user in enumerate(users)))
    assert rows_of(url, count)[0][0] - before <= 4
    for journal in journals:
        journal.close()
    assert rows_of(url, count)[0][0] == before


# -- a server that goes away -----------------------------------------------------------


@pytest.fixture(scope="module")
def own() -> Iterator[Postgres]:
    """A server that tests may stop and set up anew."""
    with running_postgres() as server:
        if server.folder is None:
            pytest.skip("the server is not ours to stop")
        yield server


async def test_a_server_that_is_away_is_waited_for_by_trying_again(own: Postgres) -> None:
    with own.schema() as url, PostgresJournal(url) as journal:
        await journal.append(ANN, stats("a"), expect=0)
        own.stop()
        for call in (
            journal.append(ANN, stats("b"), expect=1),
            journal.head(ANN),
            read_all(journal, ANN),
        ):
            with pytest.raises(StoreUnavailable) as caught:
                await call
            assert caught.value.retryable
            assert PASSWORD not in str(caught.value)
        with pytest.raises(StoreUnavailable) as caught:
            PostgresJournal(url, pool=2)
        assert caught.value.retryable
        own.start()
        await journal.append(ANN, stats("b"), expect=1)
        assert [row.seq for row in await read_all(journal, ANN)] == [1, 2]
        assert journal.verify(ANN) == []


def test_what_will_never_work_is_told_apart_from_what_may(own: Postgres) -> None:
    """A wrong password, an unknown role or database: asking again is no use, and the
    message says what to do.
    """
    assert own.folder is not None
    rules = own.folder / "pg_hba.conf"
    allowed = rules.read_text()
    places = {
        "createdb": own.url.replace("/tests?", "/absent?"),
        "check user and password": own.url.replace("tester:", "nobody:"),
        "libpq reads the password": own.url.replace(PASSWORD, "not-" + PASSWORD),
    }
    try:
        rules.write_text("local all tester scram-sha-256\n" + allowed)
        own.program("pg_ctl", "-D", str(own.folder), "reload")
        for _ in range(50):  # the server reads its rules a moment later
            try:
                PostgresJournal(places["libpq reads the password"], read_only=True).close()
            except StoreUnavailable:
                break
            except StoreError:
                time.sleep(0.05)
        for advice, place in places.items():
            with pytest.raises(StoreUnavailable, match=advice) as caught:
                PostgresJournal(place)
            assert not caught.value.retryable
            assert PASSWORD not in str(caught.value)
        with own.schema() as url:
            PostgresJournal(url).close()
    finally:
        rules.write_text(allowed)
        own.program("pg_ctl", "-D", str(own.folder), "reload")
    nowhere = f"postgresql://tester@/tests?host={own.folder.parent / 'nowhere'}"
    with pytest.raises(StoreUnavailable) as caught:
        PostgresJournal(nowhere)
    assert caught.value.retryable


def end_sessions(url: str) -> None:
    """Cut every connection but our own, as a restart of the server does."""
    rows_of(
        url,
        "SELECT pg_terminate_backend(pid, 2000) FROM pg_stat_activity "
        "WHERE application_name = 'memagent' AND usename = current_user AND pid <> pg_backend_pid()",
    )


async def test_connections_that_died_in_their_sleep_are_replaced_unseen(url: str) -> None:
    with PostgresJournal(url) as journal:
        await journal.append(ANN, stats("a"), expect=0)
        assert await journal.head(ANN) == 1
        end_sessions(url)
        assert await journal.head(ANN) == 1
        await journal.append(ANN, stats("b"), expect=1)
        end_sessions(url)
        assert len(await read_all(journal, ANN)) == 2
        assert journal.verify(ANN) == []


@pytest.mark.parametrize("arrived", [True, False], ids=["committed", "not committed"])
async def test_a_connection_lost_in_the_commit_leaves_no_doubt(url: str, arrived: bool) -> None:
    """The answer to the commit is lost; the entry is there once all the same, and its
    caller is told its sequence.
    """
    with PostgresJournal(url) as journal:
        await journal.append(ANN, stats("a"), expect=0)
        cut = threading.Event()

        def cut_the_line(name: str) -> None:
            if name == "commit.before" and not cut.is_set():
                cut.set()
                assert journal._writer is not None
                if arrived:
                    journal._writer.committer.connected().execute("COMMIT")
                end_sessions(url)

        watch(cut_the_line)
        try:
            row = await journal.append(ANN, stats("b"), expect=1)
        finally:
            watch(None)
        assert (cut.is_set(), row.seq) == (True, 2)
        assert [row.entry for row in await read_all(journal, ANN)] == [
            stats("a"),
            stats("b"),
        ]
        assert journal.verify(ANN) == []


async def test_an_erasure_cut_short_is_finished_by_whoever_opens_next(
    workers: tuple[CrashServer, CrashServer], url: str
) -> None:
    with PostgresJournal(url) as journal:
        await journal.append(ANN, said("MARK"), expect=0)
    death = workers[0].run("test_postgres_processes:erase", point="erase.committed", path=url)
    assert (death.killed, death.trace) == (True, "")
    assert len(rows_of(url, "SELECT * FROM meta WHERE key = 'scrub'")) == 1
    with PostgresJournal(url) as journal:
        assert not journal.scrub_due
        assert await journal.head(ANN) == 2
    assert rows_of(url, "SELECT * FROM meta WHERE key = 'scrub'") == []


def erase(say: Say, *, path: str) -> None:
    """Erase one scope; run in a process that is killed over it."""
    with PostgresJournal(path) as journal:
        asyncio.run(journal.append(ANN, Erased(), expect=1))


async def test_concurrent_appends_to_one_user_have_one_winner_each(url: str) -> None:
    """Through two writers, as from two processes: every sequence is given once, and
    everybody gets through.
    """

    async def run() -> None:
        with PostgresJournal(url, pool=1) as one, PostgresJournal(url, pool=2) as two:
            assert one._writer is not two._writer
            rng = random.Random(1)

            async def write(number: int) -> int:
                journal = (one, two)[number % 2]
                while True:
                    try:
                        return (
                            await journal.append(
                                ANN, stats(str(number)), expect=await journal.head(ANN)
                            )
                        ).seq
                    except VersionConflict:
                        await asyncio.sleep(rng.random() * 0.01)

            assert sorted(await asyncio.gather(*(write(number) for number in range(20)))) == list(
                range(1, 21)
            )
            assert len(await read_all(one, ANN)) == 20

    await run()
