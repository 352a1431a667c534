"""Random histories of a memory on disk, and the comparison of two memories in every part."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from random import Random

from bank_kit import DAY, WORDS, fact, session, source

from memagent.checkpoints.tables import maps_of
from memagent.core.answers import Hit, Query
from memagent.core.errors import MemoryNotFound, StoreError
from memagent.core.ops import Add, Delete, MemoryOp, Noop, OpBatch, OpLimits, Update
from memagent.core.recipes import RECIPES
from memagent.core.records import Event, EventEdge, ItemStats, Relation, Scope, Trust
from memagent.core.snapshot import GraphDelta, MemorySnapshot
from memagent.core.trials import Outcome, TrialStep
from memagent.designs.base import Lesson, RunningValue
from memagent.experience import TrialReport, end_trial, start_trial, take_lesson
from memagent.memory.bank import MemoryBank
from memagent.memory.care.undo import undo
from memagent.memory.facade import Memory
from memagent.memory.threads import Spoken, store_message
from memagent.memory.timetravel import restore_snapshot, undelete
from memagent.opening.open_store import OpenStore
from memagent.state.fold import BankState

ANA = Scope(user_id="ana")


def standing() -> datetime:
    """Return the moment at which the clock of these tests stands."""
    return DAY + timedelta(days=400)


def open_hashing(path: Path | str, *, read_only: bool = False) -> OpenStore:
    """Open a store with the hashing embedder."""
    return OpenStore.open(path=path, embedder="hashing", read_only=read_only, clock=standing)


def without_checkpoint(store: OpenStore) -> MemoryBank:
    """Return the memory as a replay of the whole journal makes it."""
    return MemoryBank(embedder=store.embedder, scope=ANA, journal=store.journal, clock=standing)


class History:
    """Writes random entries of every kind to a bank; equal seeds write the same."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.sessions = 0
        self.messages = 0
        self.snapshots: list[MemorySnapshot] = []

    async def write(self, bank: MemoryBank, steps: int) -> None:
        """Take so many steps."""
        for _ in range(steps):
            kind = self.rng.choice(
                "session ops ops ops ops message stats graph trial undo snapshot restore refresh"
                " delete_all back".split()
            )
            await getattr(self, f"_{kind}")(bank)

    async def _session(self, bank: MemoryBank) -> None:
        self.sessions += 1
        await bank.store_session(session(self.sessions))

    async def _ops(self, bank: MemoryBank) -> None:
        if not self.sessions:
            await self._session(bank)
        known = sorted(item.id for item in (await bank.sync()).active())
        ops: list[MemoryOp] = []
        for _ in range(self.rng.randint(1, 5)):
            words = " ".join(self.rng.choices(WORDS, k=4))
            turn = f"D{self.rng.randint(1, max(1, self.sessions))}:{self.rng.randint(1, 4)}"
            told = fact(
                words,
                turn=turn,
                subject=self.rng.choice(["Ana", "Bo", None]),
                day=self.rng.choice([None, self.rng.randint(0, 300)]),
            )
            if self.rng.random() < 0.2:
                told = told.model_copy(update={"expires_at": DAY + timedelta(days=1)})
            kind = self.rng.choice("add add update delete noop".split()) if known else "add"
            target = self.rng.choice(known) if known else ""
            match kind:
                case "add":
                    tags = ("é", "b") if self.rng.random() < 0.3 else ()
                    ops.append(Add(fact=told, tags=tags, metadata={"n": self.rng.random()}))
                case "update":
                    ops.append(Update(id=target, text=words, source_turn_ids=(turn,)))
                case "delete":
                    ops.append(Delete(id=target))
                case _:
                    ops.append(Noop(id=target, fact=told))
        where = source(self.sessions, self.rng.randint(0, 2))
        await bank.commit(OpBatch(accepted=tuple(ops)), source=where)

    async def _message(self, bank: MemoryBank) -> None:
        self.messages += 1
        at = DAY + timedelta(hours=7 * self.messages)
        await bank.sync()
        text = " ".join(self.rng.choices(WORDS, k=3))
        spoken = Spoken(speaker="Ana", text=text, trust=Trust.USER)
        await store_message(bank, f"chat{self.messages % 2}", spoken, at=at)

    async def _stats(self, bank: MemoryBank) -> None:
        known = sorted((await bank.sync()).items)
        if known:
            stats = ItemStats(q_value=self.rng.random(), uses=self.rng.randint(0, 9))
            await bank.learn([(self.rng.choice(known), stats)])

    async def _trial(self, bank: MemoryBank) -> None:
        """Start a trial, and mostly end it and take a lesson with a count and an ADD."""
        items = [item for item in (await bank.sync()).active() if not item.expired(standing())]
        items.sort(key=lambda item: item.id)
        shown = self.rng.sample(items, min(2, len(items)))
        trial = await start_trial(bank, " ".join(self.rng.choices(WORDS, k=2)), shown)
        ending = self.rng.randint(0, 3)
        if ending:
            step = TrialStep(action="look", observation=" ".join(self.rng.choices(WORDS, k=2)))
            outcome = Outcome(reward=self.rng.choice([-1.0, 0.0, 1.0]))
            told = TrialReport(trial=trial, outcome=outcome, steps=(step,))
            await end_trial(bank, told, RunningValue())
        if ending > 1:
            told_fact = fact(f"lesson {self.rng.random()}", turn=f"{trial.id}:0")
            counts = tuple((item.id, "seen", 1.0) for item in shown)
            lesson = Lesson(ops=(Add(fact=told_fact),), counts=counts)
            await take_lesson(bank, trial.id, lesson, limits=OpLimits())

    async def _graph(self, bank: MemoryBank) -> None:
        known = sorted((await bank.sync()).graph.nodes)
        name = f"evt_{self.rng.randint(0, 20)}"
        node = Event(id=name, summary=" ".join(self.rng.choices(WORDS, k=3)), people=("Ana",))
        others = [other for other in known if other != name]
        edges = [
            EventEdge(source=name, target=self.rng.choice(others), relation=relation)
            for relation in (Relation.RELATED, Relation.CAUSES)
            if others
        ]
        await bank.index(GraphDelta(nodes=(node,), edges=tuple(edges)))

    async def _undo(self, bank: MemoryBank) -> None:
        try:
            await undo(bank)
        except StoreError:
            return

    async def _snapshot(self, bank: MemoryBank) -> None:
        await bank.sync()
        self.snapshots.append(bank.snapshot())

    async def _restore(self, bank: MemoryBank) -> None:
        if self.snapshots:
            await restore_snapshot(bank, self.rng.choice(self.snapshots))

    async def _delete_all(self, bank: MemoryBank) -> None:
        await Memory(bank).delete_all(user_id=bank.scope.user_id)

    async def _back(self, bank: MemoryBank) -> None:
        """Restore a deleted item, deleted alone or with all others."""
        state = await bank.sync()
        gone = [
            name
            for name in state.touched
            if name not in state.items or not state.items[name].active
        ]
        if gone:
            with suppress(MemoryNotFound, StoreError):  # or from before a fork began
                await undelete(bank, self.rng.choice(sorted(gone)))

    async def _refresh(self, bank: MemoryBank) -> None:
        await bank.refresh()


def same_state(one: BankState, other: BankState) -> None:
    """Fail unless two states hold the same in every map, seen from every side."""
    assert one.digest() == other.digest()
    assert (one.seq, one.live, one.cleared) == (other.seq, other.live, other.cleared)
    assert one.live == sum(1 for _ in one.active())
    others = maps_of(other)
    for name, a in maps_of(one).items():
        b = others[name]
        assert len(a) == len(b), name
        assert dict(a.items()) == dict(b.items()), name
        assert set(a) == set(b.keys()), name
        assert all(b[key] == value and key in b for key, value in a.items()), name
        assert "no such key" not in a
        assert a.get("no such key") is None
    nodes = set(one.graph.nodes)
    assert nodes == set(other.graph.nodes)
    assert one.graph.edge_count == other.graph.edge_count
    for node_id in sorted(nodes):
        assert one.graph.node(node_id) == other.graph.node(node_id)
        assert one.graph.degree(node_id) == other.graph.degree(node_id)
        assert _edges(one, node_id) == _edges(other, node_id)
        for side in ("succ", "pred"):
            rows = [getattr(state.graph, side)[node_id] for state in (one, other)]
            assert set(rows[0]) == set(rows[1])
            assert len(rows[0]) == len(set(rows[0]))


def _edges(state: BankState, node_id: str) -> list[tuple[str, str, bool, EventEdge]]:
    found = [(other, edge.key, to, edge) for other, edge, to in state.graph.edges_of(node_id)]
    return sorted(found, key=lambda pair: pair[:3])


async def same_memory(one: MemoryBank, other: MemoryBank, *, texts: Sequence[str]) -> None:
    """Fail unless two memories hold the same and find the same, score by score."""
    await one.refresh()
    await other.refresh()
    same_state(one.state, other.state)
    assert len(one.view.index) == len(other.view.index)
    assert one.view.index.totals == other.view.index.totals
    for name, recipe in RECIPES.items():
        for text in texts:
            query = Query(text=text, recipe=recipe)
            answers = [
                [_plain(hit) for hit in await bank.search(query, k=8)] for bank in (one, other)
            ]
            assert answers[0] == answers[1], (name, text)


def _plain(hit: Hit) -> object:
    """Return all that a hit says; weights that add up along the graph to twelve decimals.

    Neighbours come in no particular order, so their last bit may differ.
    """
    why = hit.why.model_copy(update={"via": (), "fused": 0.0, "arms": {}})
    arms = {name: round(value, 12) for name, value in hit.why.arms.items()}
    return hit.id, round(hit.score, 12), hit.item, why, arms
