"""Threads, processes, event loops, forks and Ctrl-C on one memory: nothing is lost or
torn, and who may not go on is told why.

What needs a process of its own runs in a forked one (`crash_child`) and says what it
saw, a line at a time.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import pytest
from bank_workloads import ANA, SESSION_TURNS, session_of
from crash_child import CrashServer, watch
from places import KITS_PATH, ROOT

from memagent.agent import Agent
from memagent.build import open_store
from memagent.core.errors import MemoryNotFound, StoreError, StoreLocked, VersionConflict, WrongLoop
from memagent.core.exchange import ModelRequest, Role
from memagent.core.ops import Add, OpBatch
from memagent.core.records import Fact, SourceRef
from memagent.core.snapshot import Commit, IngestReport, JournalRow
from memagent.embed.static import HashEmbedder
from memagent.journal.open_database import DatabaseJournal
from memagent.memory.bank import MemoryBank
from memagent.testing import FunctionModel

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
THREADS = 8
Say = Callable[[str], None]


@pytest.fixture(scope="module")
def server() -> Iterator[CrashServer]:
    with CrashServer("test_concurrency") as running:
        yield running


def open_agent(path: str | Path, **more: object) -> Agent:
    """The agent of one user on a store with the hashing embedder; it changes nothing by itself."""
    options = {"embedder": "hashing", "design": "verbatim", **more}
    return Agent(path=path, user_id="ana", **options)  # type: ignore[arg-type]


def in_threads(work: Callable[[int], None]) -> None:
    """Run `work` in eight threads at once and raise what any of them raised."""
    start, failures = threading.Barrier(THREADS), list[BaseException]()

    def run(number: int) -> None:
        try:
            start.wait(10)
            work(number)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert not any(thread.is_alive() for thread in threads)


async def replayed(path: str | Path) -> tuple[str, list[JournalRow]]:
    """Digest and rows of a memory rebuilt from its journal, whose hashes are checked."""

    async def rebuild() -> tuple[str, list[JournalRow]]:
        store = open_store(path=path, embedder="hashing", read_only=True)
        assert isinstance(store.journal, DatabaseJournal)
        assert store.journal.verify(ANA) == []
        state = await store.bank(ANA).sync()
        rows = [row async for row in store.journal.since(ANA, 0)]
        store.close()
        return state.digest(), rows

    return await rebuild()


def added(rows: list[JournalRow]) -> Counter[str]:
    """Texts of every ADD in the journal, undone ones too."""
    ops = (applied.op for row in rows if isinstance(row.entry, Commit) for applied in row.entry.ops)
    return Counter(op.fact.text for op in ops if isinstance(op, Add))


# -- threads ---------------------------------------------------------------------------


async def test_eight_threads_share_one_agent(place: str) -> None:
    told, undone = list[str](), list[str]()

    def work(number: int) -> None:
        for step in range(4):
            item = agent.memory.add(
                f"thread {number} keeps note {step}", subject=f"thread {number}"
            )
            told.append(item.text)
            agent.search(f"note {step}", k=3)
            try:
                agent.memory.update(item.id, f"thread {number} has changed note {step}")
                if step == 2:
                    agent.memory.delete(item.id)
            except MemoryNotFound:  # another thread's undo took it back
                pass
        agent.remember(
            f"Thread {number} bought a lantern in Porto", at=datetime(2024, 1, 1, tzinfo=UTC)
        )
        told.append(f"Thread {number} bought a lantern in Porto")
        with suppress(StoreError):  # two undid the same commit, or something was built on it
            undone.append(agent.memory.undo().undoes or "")

    with open_agent(place) as agent:
        in_threads(work)
        assert Counter(told) == added((await replayed(place))[1])
        digest, rows = await replayed(place)
        assert agent.snapshot().digest == digest
        assert sorted(undone) == sorted(
            row.entry.undoes for row in rows if isinstance(row.entry, Commit) and row.entry.undoes
        )
        active = agent.memory.get_all()
        assert {item.text for item in active} == {
            hit.text for hit in agent.search("thread note lantern", k=500)
        }


async def test_eight_agents_on_one_path_lose_no_write(place: str) -> None:
    digests = list[str]()
    done = threading.Barrier(THREADS)

    def work(number: int) -> None:
        with open_agent(place) as agent:
            for step in range(10):
                agent.memory.add(f"agent {number} keeps note {step}")
            agent.memory.add_many(
                [f"agent {number} lists {thing}" for thing in ("tea", "rice", "oil")]
            )
            agent.remember(
                f"Agent {number} saw a heron",
                session_id=f"s{number}",
                at=datetime(2024, 1, 1, tzinfo=UTC),
            )
            done.wait(30)
            digests.append(agent.snapshot().digest)
            assert len(agent.search("agent", k=500)) == THREADS * 14

    in_threads(work)
    digest, rows = await replayed(place)
    assert set(digests) == {digest}
    assert sorted(added(rows).values()) == [1] * THREADS * 14


def test_an_update_that_came_second_is_told_so(place: str) -> None:
    with open_agent(place) as one, open_agent(place) as two:
        item = one.memory.add("Ana likes tea")
        assert two.memory.update(item.id, "Ana likes coffee", version=1).version == 2
        with pytest.raises(VersionConflict, match="at version 2"):
            one.memory.update(item.id, "Ana likes water", version=1)
        assert one.memory.get(item.id).text == "Ana likes coffee"


async def test_closing_lets_other_threads_finish_and_refuses_the_rest(place: str) -> None:
    agent, told, refused = open_agent(place), list[str](), list[str]()

    def work(number: int) -> None:
        for step in count():
            try:
                told.append(agent.memory.add(f"thread {number} note {step}").text)
            except StoreError as error:
                refused.append(str(error))
                return
            if number == 0 and step == 3:
                agent.close()

    in_threads(work)
    assert refused == ["this agent is closed; open another one"] * THREADS
    assert Counter(told) == added((await replayed(place))[1])


# -- event loops -----------------------------------------------------------------------


@pytest.mark.parametrize("place", ["memory", "file"])
def test_a_bank_belongs_to_one_event_loop(tmp_path: Path, place: str) -> None:
    store = open_store(
        path=":memory:" if place == "memory" else tmp_path / "m.db", embedder="hashing"
    )
    bank = store.bank(ANA)
    batch = OpBatch(accepted=(Add(fact=Fact(text="Ana has a key")),))
    asyncio.run(bank.commit(batch, source=SourceRef()))
    for attempt in (bank.sync, bank.refresh, lambda: bank.commit(batch, source=SourceRef())):
        with pytest.raises(
            WrongLoop, match="'ana' belongs to another event loop; open one agent a loop"
        ):
            asyncio.run(attempt())
    assert len(bank.state.items) == 1
    assert asyncio.run(store.bank(ANA).get(next(iter(bank.state.items)))).text == "Ana has a key"
    store.close()


async def test_two_running_loops_get_the_same_answer() -> None:
    bank, ready, over = (
        MemoryBank(embedder=HashEmbedder(dim=32)),
        threading.Event(),
        threading.Event(),
    )

    async def first() -> None:
        await bank.commit(
            OpBatch(accepted=(Add(fact=Fact(text="Ana has a key")),)), source=SourceRef()
        )
        ready.set()
        while not over.is_set():
            await bank.sync()
            await asyncio.sleep(0.001)

    thread = threading.Thread(target=asyncio.run, args=(first(),))
    thread.start()
    ready.wait(10)
    with pytest.raises(WrongLoop):
        await bank.sync()
    over.set()
    thread.join(10)
    assert len(bank.state.items) == 1


async def test_the_agent_works_inside_a_running_loop(tmp_path: Path) -> None:
    async def cell() -> str:
        with open_agent(tmp_path / "m.db") as agent:
            agent.remember("Ana adopted a cat named Miso", at=datetime(2024, 1, 1, tzinfo=UTC))
            return agent.ask("What is the cat's name?").text

    assert "Miso" in await cell()


def test_an_agent_called_from_its_own_loop_says_so_instead_of_hanging(tmp_path: Path) -> None:
    def reply(request: ModelRequest) -> str:
        agent.memory.add("from inside")
        return ""

    with open_agent(tmp_path / "m.db", model=FunctionModel(reply), design="add_only") as agent:
        with pytest.raises(
            StoreError, match="called from its own event loop; use AsyncAgent inside coroutines"
        ):
            agent.remember("Ana has a key")
        assert len(agent.memory.sessions()) == 1


# -- processes -------------------------------------------------------------------------


@needs_fork
async def test_of_three_processes_one_writes_and_the_others_are_told_who(
    server: CrashServer, tmp_path: Path
) -> None:
    death = server.run("test_concurrency:three_processes", path=str(tmp_path / "m.db"))
    assert death.trace == ""
    assert Counter(death.said) == {
        "writes": 1,
        "locked, and told by whom": 2,
        "reads one": 2,
        "reads two": 2,
        "exit 0": 3,
    }
    assert len((await replayed(tmp_path / "m.db"))[1]) == 2


def three_processes(say: Say, *, path: str) -> None:
    """Three processes open a store at once; the one that gets it writes while the others read."""
    won_in, won_out = os.pipe()
    turns = [os.pipe() for _ in range(4)]  # losers -> writer, writer -> losers, and again

    def contend() -> None:
        try:
            agent = open_agent(path)
        except StoreLocked as error:
            winner = int(os.read(won_in, 8))
            told = error.pid == winner and f"process {winner} is the writer of this store" in str(
                error
            )
            say("locked, and told by whom" if told else str(error))
            os.write(turns[0][1], b".")
            os.read(turns[1][0], 1)
            with open_agent(path, read_only=True) as reader:
                say(f"reads {reader.memory.get_all()[-1].text}")
                os.write(turns[2][1], b".")
                os.read(turns[3][0], 1)
                say(f"reads {reader.search('two', k=1)[0].text}")
            return
        say("writes")
        os.write(won_out, b"%8d" % os.getpid() * 2)
        for lost, go, text in (
            (turns[0][0], turns[1][1], "one"),
            (turns[2][0], turns[3][1], "two"),
        ):
            for _ in range(2):
                os.read(lost, 1)
            agent.memory.add(text, said_at=datetime(2024, 1, 1, tzinfo=UTC))
            os.write(go, b"..")
        agent.close()

    for pid in [_forked(contend) for _ in range(3)]:
        say(f"exit {os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}")


def _forked(work: Callable[[], None]) -> int:
    """The id of a forked process that does the work and ends with status 0, or 1 when
    it raised, or is killed after 20 s.
    """
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        signal.alarm(20)
        work()
        status = 0
    except BaseException as failure:
        os.write(2, f"in a forked process: {failure!r}\n".encode())
    finally:
        os._exit(status)


@needs_fork
async def test_a_child_forked_with_an_open_agent_is_refused_and_its_parent_goes_on(
    server: CrashServer, tmp_path: Path
) -> None:
    death = server.run("test_concurrency:fork_an_agent", path=str(tmp_path / "m.db"))
    assert death.trace == ""
    assert death.said == ["child is refused", "exit 0", "parent writes on"]
    assert sorted(added((await replayed(tmp_path / "m.db"))[1])) == [
        "Ana has a key",
        "Bo has a dog",
    ]


def fork_an_agent(say: Say, *, path: str) -> None:
    """Fork with an open agent; the child tries to use it as it is."""
    agent = open_agent(path)
    agent.memory.add("Ana has a key")

    def child() -> None:
        try:
            agent.search("key", k=1)
        except StoreError as error:
            say("child is refused" if "forked from" in str(error) else str(error))

    pid = _forked(child)
    say(f"exit {os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}")
    agent.memory.add("Bo has a dog")
    say("parent writes on")
    agent.close()


@needs_fork
def test_forks_amid_work_hang_nobody(server: CrashServer, tmp_path: Path) -> None:
    death = server.run("test_concurrency:fork_amid_work", path=str(tmp_path / "m.db"))
    assert death.trace == ""
    assert death.said == ["exit 0"] * 6 + ["remembered 6"]


def fork_amid_work(say: Say, *, path: str) -> None:
    """Fork again and again while sessions wait for a model in the background; each
    child is refused and ends, and inherits none of that work.
    """
    gate = Gate()
    with open_agent(path, model=gate.model, design="add_only") as agent:

        def child() -> None:
            with pytest.raises(StoreError, match="forked from"):
                agent.search("anything")

        for number in range(6):
            agent.remember("A thing happened", session_id=f"s{number}", background=True)
            while not gate.model.requests:
                time.sleep(0.001)
            say(f"exit {os.waitstatus_to_exitcode(os.waitpid(_forked(child), 0)[1])}")
        gate.open.set()
        say(f"remembered {sum(report.op_counts['ADD'] for report in agent.flush())}")


# -- Ctrl-C ----------------------------------------------------------------------------


@needs_fork
@pytest.mark.parametrize(
    "point",
    [
        "bank.planned",
        "append.enqueued",
        "headers.written",
        "commit.before",
        "ack.before",
        "bank.appended",
        "refresh.begun",
    ],
)
async def test_ctrl_c_reaches_the_caller_and_tears_nothing(
    server: CrashServer, tmp_path: Path, point: str
) -> None:
    path = tmp_path / "m.db"
    death = server.run("test_concurrency:press_ctrl_c", path=str(path), point=None, where=point)
    assert death.trace == ""
    assert death.said[:1] == ["interrupted"]
    assert death.said[1] == f"finished {SESSION_TURNS}"
    digest, rows = await replayed(path)
    assert death.said[2:] == [digest]
    assert sum(added(rows).values()) == SESSION_TURNS + 2


def press_ctrl_c(say: Say, *, path: str, where: str) -> None:
    """Send SIGINT to this very process when a remember gets to a point, then go on with
    the same agent.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    visits = count(1)

    def press(reached: str) -> None:
        if reached == where and next(visits) == 2:
            os.kill(os.getpid(), signal.SIGINT)

    with open_agent(path) as agent:
        agent.memory.add("Ana has a key")
        watch(press)
        try:
            agent.remember(session_of("cut"))
            time.sleep(5)
        except KeyboardInterrupt:
            say("interrupted")
        watch(None)
        agent.memory.add("Bo has a dog")
        agent.remember(session_of("cut"))
        found = [
            hit.text
            for hit in agent.search("packed", k=50)
            if hit.item and hit.item.session_id == "cut"
        ]
        say(f"finished {len(found)}")
        say(agent.snapshot().digest)


@needs_fork
def test_ctrl_c_ends_a_model_call(server: CrashServer, tmp_path: Path) -> None:
    death = server.run("test_concurrency:press_ctrl_c_in_a_model_call", path=str(tmp_path / "m.db"))
    assert death.trace == ""
    assert death.said == ["cancelled", "interrupted", "turns kept 1", "remembered 1"]


def press_ctrl_c_in_a_model_call(say: Say, *, path: str) -> None:
    """A model that would take a minute is interrupted; the next try answers at once."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    calls = count()

    async def reply(request: ModelRequest) -> str:
        if next(calls) == 0:
            os.kill(os.getpid(), signal.SIGINT)
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                say("cancelled")
                raise
        return one_fact(request)

    with open_agent(path, model=FunctionModel(reply), design="add_only") as agent:
        try:
            agent.remember("Ana has a key", session_id="s1")
        except KeyboardInterrupt:
            agent.search("")  # a turn of the loop, in which the call ends
            say("interrupted")
        say(f"turns kept {len(agent.memory.sessions())}")
        say(f"remembered {sum(report.op_counts['ADD'] for report in agent.resume())}")


# -- in the background -----------------------------------------------------------------


def one_fact(request: ModelRequest) -> str:
    """What a model answers that takes one fact from the first turn of a chunk and knows no answers."""
    if request.role is Role.ANSWERER:
        return json.dumps({"answer": None, "citations": []})
    name = request.step.session_id or ""
    turn = re.search(r'([^\s"<>\[\]]*:1)\b([^\n]*)', request.messages[-1].content)
    return json.dumps(
        {
            "facts": [
                {
                    "text": f"In {name}: {turn.group(2) if turn else ''}",
                    "source": turn.group(1) if turn else f"{name}:1",
                }
            ]
        }
    )


class Gate:
    """A model whose extractor waits until it is let through."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.model = FunctionModel(self._reply)

    async def _reply(self, request: ModelRequest) -> str:
        if request.role is Role.EXTRACTOR:
            await asyncio.to_thread(self.open.wait, 30)
        return one_fact(request)


def test_chat_answers_before_it_remembers_and_flush_waits(tmp_path: Path) -> None:
    gate = Gate()
    with open_agent(tmp_path / "m.db", model=gate.model, design="add_only") as agent:
        agent.chat("I adopted a cat named Miso")
        assert agent.memory.get_all() == []
        assert [session.turns[0].text for session in agent.memory.sessions()] == [
            "I adopted a cat named Miso"
        ]
        threading.Timer(0.05, gate.open.set).start()
        (report,) = agent.flush()
        assert report.op_counts["ADD"] == 1
        assert len(agent.memory.get_all()) == 1
        assert agent.flush() == []


async def test_work_in_the_background_keeps_its_order(place: str) -> None:
    gate = Gate()
    with open_agent(place, model=gate.model, design="add_only") as agent:
        futures = [
            agent.remember("A thing happened", session_id=f"s{n}", background=True)
            for n in range(5)
        ]
        gate.open.set()
        agent.remember("A last thing happened", session_id="s5")
        assert all(not isinstance(future, IngestReport) and future.done() for future in futures)
        rows = (await replayed(place))[1]
        commits = [row.entry.source.session_id for row in rows if isinstance(row.entry, Commit)]
        assert commits == [f"s{n}" for n in range(6)]
        assert [report.session_id for report in agent.flush()] == [f"s{n}" for n in range(5)]


async def test_close_waits_for_work_in_the_background(place: str) -> None:
    gate = Gate()
    agent = open_agent(place, model=gate.model, design="add_only")
    for n in range(3):
        agent.remember("A thing happened", session_id=f"s{n}", background=True)
    threading.Timer(0.05, gate.open.set).start()
    agent.close()
    assert sum(added((await replayed(place))[1]).values()) == 3


def test_what_fails_in_the_background_is_told_and_costs_nothing_else(place: str) -> None:
    agent = open_agent(place)
    ok = agent.remember(session_of("one"), background=True)
    clash = session_of("two").model_copy(update={"turns": session_of("one").turns})
    with pytest.raises(
        ValueError, match="is taken by session 'one'"
    ):  # told at once: nothing was stored
        agent.remember(clash, background=True)
    agent.remember(session_of("three"), background=True)
    assert [report.session_id for report in agent.flush()] == ["one", "three"]
    assert not isinstance(ok, IngestReport)
    assert ok.result().op_counts["ADD"] == SESSION_TURNS
    agent.close()


LEAVE = """
import asyncio, os, sys
from memagent import Agent
from memagent.core.errors import StoreError
from memagent.testing import FunctionModel
sys.path[:0] = sys.argv[2].split(os.pathsep)
from test_concurrency import one_fact

async def slow(request):  # as a provider's client does, it needs a thread pool
    return await asyncio.to_thread(one_fact, request)

agent = Agent(FunctionModel(slow), "ana", sys.argv[1], design="add_only", embedder="hashing")
for number in range(5):
    agent.remember("A thing happened", session_id=f"s{number}", background=True)
pid = os.fork()
if pid == 0:
    try:
        agent.search("thing")
    except StoreError:
        sys.exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@needs_fork
async def test_a_process_that_ends_without_close_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    command = [
        sys.executable,
        "-W",
        "error",
        "-c",
        LEAVE,
        str(path),
        os.pathsep.join([KITS_PATH, str(Path(__file__).parent)]),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, cwd=ROOT, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "7\n", "")
    assert sum(added((await replayed(path))[1]).values()) == 5
    with open_agent(path) as agent:
        assert agent.resume() == []
