"""kill -9 anywhere in the life of a whole memory.

Twenty cycles, or $MEMAGENT_KILL_CYCLES.

Whatever was acknowledged is there afterwards with the very digest that was told, at
most one step that was not acknowledged follows, no batch is torn, search index and
event graph hold what the journal holds, and unfinished sessions are finished by
`resume`.
"""

from __future__ import annotations

import json
import os
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from bank_workloads import ANA, ENTRIES_OF, EXPORT, SESSION_TURNS, session_of
from crash_child import BANK_CRASH_POINTS, CRASH_POINTS, CrashServer, Death

from memagent.async_agent import AsyncAgent
from memagent.build import Store, open_store
from memagent.core.ops import Add
from memagent.core.records import NodeKind
from memagent.core.snapshot import Commit, Erased, JournalRow
from memagent.embed.static import HashEmbedder
from memagent.journal.open_database import DatabaseJournal
from memagent.journal.postgres import is_postgres_url
from memagent.memory.bank import MemoryBank
from memagent.memory.transfer import import_bank
from memagent.state.fold import EMPTY_STATE, BankState, apply

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
CYCLES = int(os.environ.get("MEMAGENT_KILL_CYCLES", "20"))
CYCLES_A_STORE = 7
JOURNAL_POINTS = tuple(
    point for point in CRASH_POINTS if point not in ("schema.migrated", "cache.written")
)
"""All but two: these stores are new, and vectors of the hashing embedder are not kept in
the database.
"""
POINTS = (*BANK_CRASH_POINTS, *JOURNAL_POINTS)
FEW = {
    "lock.acquired",
    "schema.created",
    "close.drained",
    "lock.releasing",
    "checkpoint.before",
    "checkpoint.after",
}
ERASING = {"erase.deleted", "erase.committed", "erase.scrubbed"}
PART = re.compile(r"batch (\S+) part \d+ of (\d+)")


@pytest.fixture(scope="module")
def server() -> Iterator[CrashServer]:
    with CrashServer("bank_workloads") as running:
        yield running


def points_of(place: str) -> tuple[str, ...]:
    """The crash points that are passed there: a server has no lock file and makes its
    own checkpoints.
    """
    here = ("lock.", "checkpoint.") if is_postgres_url(place) else ()
    return tuple(point for point in POINTS if not point.startswith(here))


@dataclass
class Truth:
    """What one store has acknowledged: digests by sequence, and the step that was cut off."""

    place: str
    folder: Path
    digests: dict[int, str] = field(default_factory=dict)
    head: int = 0
    cut_off: str | None = None

    def learn(self, death: Death) -> int:
        """Take in what a process said; how many steps it acknowledged."""
        steps = 0
        self.cut_off = None
        for line in death.said:
            word, *rest = json.loads(line)
            if word == "begin":
                self.cut_off = rest[0]
            elif word != "closed":
                steps += word == "done"
                self.cut_off = None
                self.head, digest = rest
                self.digests[self.head] = digest
        return steps

    async def check(self) -> None:
        """Open the memory as the next process would, compare, and finish what was left unfinished."""
        store = open_store(path=self.place, embedder="hashing")
        try:
            assert isinstance(store.journal, DatabaseJournal)
            assert store.journal.verify(ANA) == []
            agent = store.agent(ANA)
            state = await agent.bank.sync()
            rows = [row async for row in store.journal.since(ANA, 0)]
            self._check_rows(rows, state)
            _check_batches(rows, state)
            await _check_projections(agent)
            await self._finish(agent)
            await self._check_export()
            self.head = agent.bank.state.seq
            self.digests[self.head] = agent.bank.state.digest()
        finally:
            store.close()

    def _check_rows(self, rows: list[JournalRow], state: BankState) -> None:
        first = rows[0].seq if rows else 1
        assert first == 1 or isinstance(rows[0].entry, Erased)
        assert [row.seq for row in rows] == list(range(first, first + len(rows))), "a gap"
        assert state.seq >= self.head, "something acknowledged is lost"
        more = tuple(row.entry.kind for row in rows if row.seq > self.head)
        allowed = ENTRIES_OF[self.cut_off] if self.cut_off else ()
        assert more == allowed[: len(more)], (
            f"{more} follow what was acknowledged, in {self.cut_off}"
        )
        folded = EMPTY_STATE
        for row in rows:
            folded = apply(folded, row)
            assert self.digests.get(row.seq, folded.digest()) == folded.digest(), (
                f"another memory at {row.seq}"
            )
        assert folded.digest() == state.digest()

    async def _finish(self, agent: AsyncAgent) -> None:
        left = await agent.unfinished()
        assert len(left) <= (self.cut_off == "remember")
        reports = await agent.resume()
        assert [report.failed_chunks for report in reports] == [()] * len(left)
        assert await agent.unfinished() == []
        cited = {
            turn_id for item in agent.bank.state.items.values() for turn_id in item.source_turn_ids
        }
        for session in left:
            assert len(session.turns) == SESSION_TURNS
            assert {turn.id for turn in session.turns} <= cited

    async def _check_export(self) -> None:
        """An export is whole or not there."""
        file = self.folder / EXPORT
        if file.exists():
            read = await import_bank(MemoryBank(embedder=HashEmbedder(dim=32)), file)
            assert read.digest in {*self.digests.values(), EMPTY_STATE.digest()}


def _check_batches(rows: list[JournalRow], state: BankState) -> None:
    """A batch is in one journal row as a whole, and in the memory as a whole or not at all."""
    commits = [row.entry for row in rows if isinstance(row.entry, Commit)]
    for texts in [
        *(
            [applied.op.fact.text for applied in commit.ops if isinstance(applied.op, Add)]
            for commit in commits
        ),
        [item.text for item in state.items.values()],
    ]:
        parts = Counter(match.groups() for text in texts if (match := PART.match(text)))
        assert {
            token: count for (token, size), count in parts.items() if count != int(size)
        } == {}, "a torn batch"


async def _check_projections(agent: AsyncAgent) -> None:
    """Every active item is found by its own words, every item has its node, and nothing
    else is there.
    """
    bank = agent.bank
    await bank.refresh()
    state, active = bank.state, list(bank.state.active())
    assert len(bank.view.index) == len(active)
    assert bank.degraded is None
    for item in active:
        assert item.id in bank.view.index
        (found,) = [hit for hit in await agent.search(item.text, k=40) if hit.id == item.id]
        assert found.why.ranks["lexical"] <= 3
    nodes = {
        node.id: node
        for node in state.graph.all_nodes()
        if node.kind is NodeKind.ITEM and "@" not in node.id
    }
    assert {item.id: not item.active for item in state.items.values()} == {
        node.id: node.closed for node in nodes.values()
    }
    for edge in state.graph.all_edges():
        assert state.graph.node(edge.source) is not None
        assert state.graph.node(edge.target) is not None


@pytest.mark.timeout(60 + 5 * CYCLES)
async def test_no_kill_loses_or_tears_anything_in_a_memory(
    server: CrashServer, new_place: Callable[[], str], tmp_path: Path
) -> None:
    rng = random.Random(3)
    truth = Truth(new_place(), tmp_path)
    points = points_of(truth.place)
    cycles = max(1, CYCLES // 2) if is_postgres_url(truth.place) else CYCLES
    hit: set[str] = set()
    steps = 0
    plan = [*points, None]
    for cycle in range(cycles):
        point = plan[cycle % len(plan)]
        if cycle % CYCLES_A_STORE == 0 or point == "schema.created":
            truth = Truth(new_place(), tmp_path / f"export{cycle}")
            truth.folder.mkdir()
        death = server.run(
            "bank_workloads:live",
            point=point,
            visit=1 if point in FEW | ERASING | {"export.written"} else rng.randint(1, 9),
            kill_after_s=rng.uniform(0.02, 0.3) if point is None else None,
            path=truth.place,
            folder=str(truth.folder),
            cycle=cycle,
            erase=point in ERASING or cycle % 9 == 8,
        )
        assert death.trace == ""
        if death.killed and point is not None:
            hit.add(point)
        steps += truth.learn(death)
        await truth.check()
        again = server.run("bank_workloads:digest_of", path=truth.place)
        assert again.trace == ""
        assert json.loads(again.said[0]) == [truth.head, truth.digests[truth.head]]
    assert steps > cycles, "the processes died before they did anything: the test proves nothing"
    assert hit == set(points[:cycles])
    assert len(hit) >= min(12, cycles, len(points))


def test_the_bank_names_its_crash_points() -> None:
    memory = Path(import_bank.__code__.co_filename).parent
    source = "".join(file.read_text(encoding="utf-8") for file in memory.glob("*.py"))
    assert set(re.findall(r'reach\("([a-z._]+)"\)', source)) == set(BANK_CRASH_POINTS)
    assert (
        len({*CRASH_POINTS, *BANK_CRASH_POINTS}) == len(CRASH_POINTS) + len(BANK_CRASH_POINTS) >= 12
    )


@pytest.mark.parametrize(
    ("point", "visit", "stored"),
    [
        ("bank.planned", 1, 0),
        ("bank.appended", 1, 1),
        ("bank.planned", 2, 1),
        ("bank.appended", 2, 2),
        ("refresh.begun", 1, 2),
        ("bank.planned", 3, 2),
        ("bank.appended", 3, 3),
    ],
)
async def test_a_session_cut_off_anywhere_ends_as_if_nothing_had_happened(
    server: CrashServer, place: str, point: str, visit: int, stored: int
) -> None:
    death = server.run("bank_workloads:remember_one", point=point, visit=visit, path=place)
    assert (death.killed, death.said, death.trace) == (True, [], "")

    async def whole() -> str:
        agent = open_store(path=":memory:", embedder="hashing").agent(ANA)
        await agent.remember(session_of("trip"))
        return agent.snapshot().digest

    async def finish() -> str:
        store = open_store(path=place, embedder="hashing")
        agent = store.agent(ANA)
        assert (await agent.bank.sync()).seq == stored
        assert len(await agent.unfinished()) == (0 < stored < 3)
        assert [len(report.chunks) for report in await agent.resume()] == (
            [3 - stored] if 0 < stored < 3 else []
        )
        await agent.remember(session_of("trip"))
        assert await agent.unfinished() == []
        store.close()
        return agent.snapshot().digest

    assert await finish() == await whole()


async def test_work_in_the_background_survives_a_kill(server: CrashServer, place: str) -> None:
    death = server.run("bank_workloads:die_with_work_in_the_background", path=place)
    assert (death.said, death.killed, death.trace) == (["back"], True, "")

    async def finish(store: Store) -> None:
        agent = store.agent(ANA, design="verbatim")  # it adds each statement
        (left,) = await agent.unfinished()
        assert (left.id, len(left.turns)) == ("late", SESSION_TURNS)
        assert [item.text for item in await agent.memory.get_all()] == ["Ana has a key"]
        (report,) = await agent.resume()
        assert report.op_counts["ADD"] == SESSION_TURNS
        assert await agent.unfinished() == []
        assert "kettle" in (await agent.search("kettle", k=1))[0].text

    store = open_store(path=place, embedder="hashing", check_embedder=False)
    await finish(store)
    store.close()
