"""One process writes, any number read: the lock, its holder's id, forks, readers beside
a writer, folders that cannot be written.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import pytest
from crash_child import CrashServer, Say
from journal_kit import read_all
from patience import patience_s
from places import ROOT

from memagent.core.errors import StoreError, StoreLocked, StoreReadOnly
from memagent.core.records import Scope
from memagent.core.snapshot import Erased, StatsDelta
from memagent.journal.sqlite import SqlJournal

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
ANN = Scope(user_id="ann")
HOLD = """
import asyncio, sys
from memagent.core.records import Scope
from memagent.core.snapshot import StatsDelta
from memagent.journal.sqlite import SqlJournal
with SqlJournal(sys.argv[1]) as journal:
    print("open", flush=True)
    for expect, _ in enumerate(sys.stdin):
        asyncio.run(journal.append(Scope(user_id="ann"), StatsDelta(), expect=expect))
        print("written", flush=True)
print("closed", flush=True)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[CrashServer]:
    with CrashServer("test_journal_processes") as running:
        yield running


class Holder:
    """Another process that holds a store open for writing and appends a row for each
    line it is sent.
    """

    def __init__(self, path: Path) -> None:
        environment = dict(os.environ, PYTHONPATH=str(ROOT))
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.pid = self.process.pid
        assert self.read() == "open"

    def read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def append(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        assert self.read() == "written"


@contextmanager
def holding(path: Path) -> Iterator[Holder]:
    """A `Holder`, ended afterwards."""
    holder = Holder(path)
    try:
        yield holder
    finally:
        holder.process.communicate(timeout=patience_s(10))


def test_a_second_process_is_told_who_writes(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    with holding(path) as holder:
        began = time.monotonic()
        with pytest.raises(StoreLocked, match=rf"process {holder.pid} is the writer") as caught:
            SqlJournal(path)
        assert time.monotonic() - began < patience_s(1)
        assert caught.value.pid == holder.pid
        assert caught.value.retryable
        with pytest.raises(StoreLocked):
            SqlJournal(path, lock_timeout_s=0.1)
        holder.append()
    SqlJournal(path).close()


async def test_the_lock_is_waited_for_and_outlives_nobody(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    with holding(path) as holder:
        holder.append()
        os.kill(holder.pid, signal.SIGKILL)
        with SqlJournal(path, lock_timeout_s=5) as journal:
            assert await journal.head(ANN) == 1


async def test_readers_see_what_another_process_commits(tmp_path: Path) -> None:
    async def run(path: Path) -> None:
        with holding(path) as holder, SqlJournal(path, read_only=True) as reader:
            assert await reader.head(ANN) == 0
            for count in range(1, 6):
                holder.append()
                assert await reader.head(ANN) == count
                assert (await read_all(reader, ANN))[-1].seq == count
            assert await reader.scopes() == [ANN]
            assert reader.verify(ANN) == []

    await run(tmp_path / "j.db")


async def test_a_reader_may_come_before_the_tables(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    path.touch()
    with SqlJournal(path, read_only=True) as reader:
        assert await reader.head(ANN) == 0
        assert await reader.scopes() == []
        assert await read_all(reader, ANN) == []
        assert reader.response(ANN, "key") is None
        assert reader.verify(ANN) == []
        assert reader.cache.get_many("e", ["a"]) == {}
        with SqlJournal(path) as journal:
            await journal.append(ANN, StatsDelta(), expect=0)
            assert await reader.head(ANN) == 1


async def test_a_store_that_was_closed_or_killed_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    holder = Holder(path)
    holder.append()
    os.kill(holder.pid, signal.SIGKILL)
    holder.process.communicate(timeout=patience_s(10))
    for _ in range(2):
        with SqlJournal(path, read_only=True) as reader:
            assert await reader.head(ANN) == 1
        SqlJournal(path).close()


def test_a_child_of_a_process_with_an_open_store_is_refused_and_harms_nothing(
    tmp_path: Path, server: CrashServer
) -> None:
    death = server.run(
        "test_journal_processes:fork_with_an_open_journal", path=str(tmp_path / "j.db")
    )
    assert death.trace == ""
    assert death.said == [
        "opened before a fork",
        "opened before a fork",
        "locked by the parent",
        "forked from one with an open store",
        "parent goes on",
        "child of a process without open stores writes 3",
    ]


def fork_with_an_open_journal(say: Say, *, path: str) -> None:
    """Open a journal, fork, and try everything in the child; run in a process of its own."""
    journal = SqlJournal(path)
    asyncio.run(journal.append(ANN, StatsDelta(), expect=0))
    asyncio.run(journal.head(ANN))

    def inherit() -> None:
        for attempt in (journal.head(ANN), journal.append(ANN, StatsDelta(), expect=1)):
            try:
                asyncio.run(attempt)
            except StoreError as error:
                known = "opened before a fork"
                say(known if known in str(error) else str(error))
        journal.close()
        try:
            SqlJournal(path)
        except StoreLocked as error:
            say("locked by the parent" if error.pid == os.getppid() else str(error))
        try:
            SqlJournal(path, read_only=True)
        except StoreError as error:
            told = "forked from" in str(error) and "spawn" in str(error)
            say("forked from one with an open store" if told else str(error))

    _in_a_child(inherit)
    asyncio.run(journal.append(ANN, StatsDelta(), expect=1))
    say("parent goes on")

    def write() -> None:
        with SqlJournal(path) as own:
            asyncio.run(own.append(ANN, StatsDelta(), expect=2))
            head = asyncio.run(own.head(ANN))
            say(f"child of a process without open stores writes {head}")

    journal.close()
    _in_a_child(write)


def _in_a_child(work: Callable[[], None]) -> None:
    pid = os.fork()
    if pid == 0:
        _leave(work)
    os.waitpid(pid, 0)


def _leave(work: Callable[[], None]) -> None:
    try:
        work()
    finally:
        os._exit(0)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users may enter, which pytest's own are not."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield Path(name)
        Path(name).chmod(0o777)


@pytest.mark.parametrize("unwritable", ["folder", "file"])
async def test_what_cannot_be_written_can_be_read(
    open_folder: Path, server: CrashServer, unwritable: str
) -> None:
    path = open_folder / "j.db"
    with SqlJournal(path) as journal:
        await journal.append(ANN, Erased(), expect=0)
    (open_folder / "j.db.lock").chmod(0o666)
    path.chmod(0o444 if unwritable == "file" else 0o666)
    open_folder.chmod(0o555 if unwritable == "folder" else 0o777)
    death = server.run("test_journal_processes:read_what_cannot_be_written", path=str(path))
    assert death.trace == ""
    assert death.said == ["read only", "head 1", "rows 1"]


def read_what_cannot_be_written(say: Say, *, path: str) -> None:
    """As a user without rights: open for writing, then for reading; run in a process of its own."""
    import_module("concurrent.futures.thread")  # that user may not read Python's own files either
    if os.geteuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    try:
        SqlJournal(path).close()
    except StoreReadOnly:
        say("read only")
    with SqlJournal(path, read_only=True) as reader:
        say(f"head {asyncio.run(reader.head(ANN))}")
        say(f"rows {len(asyncio.run(read_all(reader, ANN)))}")


def test_a_folder_that_cannot_be_written_holds_no_new_store(
    open_folder: Path, server: CrashServer
) -> None:
    open_folder.chmod(0o555)
    death = server.run("test_journal_processes:make_a_store", path=str(open_folder / "j.db"))
    assert death.trace == ""
    assert death.said == ["StoreReadOnly", "StoreReadOnly"]


def make_a_store(say: Say, *, path: str) -> None:
    """As a user without rights: make a store there and in a new folder there; run in a
    process of its own.
    """
    if os.geteuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    for place in (path, f"{path}.d/j.db"):
        try:
            SqlJournal(place).close()
        except StoreError as error:
            say(type(error).__name__)
