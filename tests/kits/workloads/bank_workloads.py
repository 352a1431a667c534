"""What a process does to a whole memory before it is killed: every kind of write, each
acknowledged with the digest that it led to.

Lines are JSON: ["opened", seq, digest], then for each step ["begin", kind] and, once it
was acknowledged, ["done", seq, digest]; at last ["closed"]. Items of a batch are "batch
<token> part <n> of <count>" and never lose these words, so a torn batch shows.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from random import Random

from memagent.agent import Agent
from memagent.async_agent import AsyncAgent
from memagent.build import open_store
from memagent.core.errors import MemoryNotFound, StoreError
from memagent.core.ops import Add, Delete, MemoryOp, OpBatch, Update
from memagent.core.records import (
    Event,
    EventEdge,
    Fact,
    ItemStats,
    Relation,
    Scope,
    Session,
    SourceRef,
    TimeSpan,
    Turn,
)
from memagent.core.snapshot import GraphDelta
from memagent.embed.static import HashEmbedder
from memagent.protocols import Matrix

PRELOADED = (
    "memagent.designs.verbatim memagent.embed.static memagent.embed.static memagent.graphs.answer memagent.graphs.ingest "
    "memagent.graphs.state memagent.journal.sqlite memagent.journal.open_database memagent.journal.proof.audit "
    "memagent.journal.postgres "
    "langsmith sqlalchemy.dialects.sqlite langchain_core.tracers.context langchain_core.tracers.run_collector"
)
"""Loaded on demand elsewhere; loaded here so that a forked process does not spend its time
on it.
"""
for _name in PRELOADED.split():
    import_module(_name)
with suppress(ImportError):
    import_module("psycopg")
ANA = Scope(user_id="ana")
SESSION_TURNS = 10
EXPORT = "export.jsonl"
THINGS = (
    "kettle anchor violin ladder compass teapot saddle lantern mirror hammer basket pillow".split()
)
Say = Callable[[str], None]


def live(say: Say, *, path: str, folder: str, cycle: int, erase: bool) -> None:
    """Open the memory, change it in every way there is, close it."""
    asyncio.run(_live(say, path, Path(folder), cycle, erase))


async def _live(say: Say, path: str, folder: Path, cycle: int, erase: bool) -> None:
    rng = Random(cycle)
    store = open_store(path=path, embedder="hashing")
    agent = store.agent(ANA)
    bank = agent.bank
    await bank.sync()
    say(json.dumps(["opened", bank.state.seq, bank.state.digest()]))
    kinds = [kind for kind in STEPS if kind != "erase"] * 2
    rng.shuffle(kinds)
    if erase:
        kinds.insert(3, "erase")
    for step, kind in enumerate(kinds):
        say(json.dumps(["begin", kind]))
        await STEPS[kind](agent, f"c{cycle}s{step}", rng, folder)
        say(json.dumps(["done", bank.state.seq, bank.state.digest()]))
    store.close()
    say(json.dumps(["closed"]))


def session_of(token: str) -> Session:
    """A session of two chunks whose turns are all worth keeping."""
    turns = tuple(
        Turn(
            id=f"{token}:{n}",
            speaker=("Ana", "Bo")[n % 2],
            text=f"I packed {THINGS[n]} {token}x{n} for the trip",
        )
        for n in range(SESSION_TURNS)
    )
    return Session(id=token, at=datetime(2024, 3, 4, tzinfo=UTC), turns=turns)


async def _remember(agent: AsyncAgent, token: str, rng: Random, folder: Path) -> None:
    await agent.remember(session_of(token))


async def _batch(agent: AsyncAgent, token: str, rng: Random, folder: Path) -> None:
    """Several ADDs, an UPDATE and a DELETE in one commit."""
    known = sorted(item.id for item in agent.bank.state.active())
    count = rng.randint(2, 6)
    ops: list[MemoryOp] = []
    for part in range(count):
        start = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(days=rng.randrange(300))
        valid = TimeSpan(start=start, end=start + timedelta(days=1))
        ops.append(
            Add(fact=Fact(text=f"batch {token} part {part} of {count}", subject="Ana", valid=valid))
        )
    changed, gone = rng.sample(known, 2) if len(known) >= 2 else (None, None)
    if changed is not None and gone is not None:
        words = agent.bank.state.items[changed].text.partition(" (")[0]
        ops += [Update(id=changed, text=f"{words} ({token})"), Delete(id=gone)]
    commit = await agent.bank.commit(OpBatch(accepted=tuple(ops)), source=SourceRef(actor="user"))
    assert not commit.rejected


async def _add(agent: AsyncAgent, token: str, rng: Random, folder: Path) -> None:
    await agent.memory.add(
        f"Ana keeps the {rng.choice(THINGS)} {token} in the garage", subject="Ana"
    )


async def _undo(agent: AsyncAgent, token: str, rng: Random, folder: Path) -> None:
    try:
        await agent.memory.undo()
    except (MemoryNotFound, StoreError):  # nothing left, or a later change is in the way
        return


async def _graph(agent: AsyncAgent, token: str, rng: Random, folder: Path) -> None:
    """Two events and the edge between them in one entry."""
    nodes = tuple(Event(id=f"evt_{token}_{n}", summary=f"event {n} of {token}") for n in range(2))
    edge = EventEdge(source=nodes[0].id, target=nodes[1].id, relation=Relation.CAUSES)
    await agent.bank.index(GraphDelta(nodes=nodes, edges=(edge,)))


async def _learn(agent: AsyncAgent, token: str, rng: Random, folder: Path) -> None:
    known = sorted(agent.bank.state.items)
    await agent.bank.learn(
        [(item_id, ItemStats(q_value=rng.random(), uses=1)) for item_id in known[:3]]
    )


async def _restore(agent: AsyncAgent, token: str, rng: Random, folder: Path) -> None:
    """Change the memory and set it back: three entries."""
    before = await agent.memory.snapshot()
    await agent.memory.add(f"Ana forgets {token} at once")
    await agent.memory.restore(before)


async def _search(agent: AsyncAgent, token: str, rng: Random, folder: Path) -> None:
    await agent.search(f"Where is the {rng.choice(THINGS)}?")


async def _export(agent: AsyncAgent, token: str, rng: Random, folder: Path) -> None:
    await agent.memory.export(folder / EXPORT)


async def _delete_all(agent: AsyncAgent, token: str, rng: Random, folder: Path) -> None:
    """Delete everything at once, and take that back: two entries."""
    await agent.memory.add(f"Ana sees {token} go")
    await agent.memory.delete_all(user_id=ANA.user_id)
    await agent.memory.undo()


async def _erase(agent: AsyncAgent, token: str, rng: Random, folder: Path) -> None:
    await agent.memory.reset(user_id=ANA.user_id)


Step = Callable[[AsyncAgent, str, Random, Path], Awaitable[None]]
STEPS: dict[str, Step] = {
    "remember": _remember,
    "batch": _batch,
    "add": _add,
    "undo": _undo,
    "graph": _graph,
    "learn": _learn,
    "restore": _restore,
    "search": _search,
    "export": _export,
    "delete_all": _delete_all,
    "erase": _erase,
}
ENTRIES_OF: dict[str, tuple[str, ...]] = {
    "remember": ("session", "commit", "commit"),
    "batch": ("commit",),
    "add": ("commit",),
    "undo": ("commit",),
    "graph": ("graph",),
    "learn": ("stats",),
    "restore": ("commit", "restored"),
    "search": (),
    "export": (),
    "delete_all": ("commit", "commit", "commit"),
    "erase": ("erased",),
}
"""The entries that each step appends, in order; a step that was cut off leaves a beginning
of them.
"""


def digest_of(say: Say, *, path: str) -> None:
    """Rebuild the memory from its journal, for reading, and say what came out."""

    async def rebuilt() -> tuple[int, str]:
        store = open_store(path=path, embedder="hashing", read_only=True)
        bank = store.bank(ANA)
        state = await bank.sync()
        store.close()
        return state.seq, state.digest()

    say(json.dumps(asyncio.run(rebuilt())))


def remember_one(say: Say, *, path: str) -> None:
    """Remember a session of two chunks: three entries, and two catch-ups of the search view."""

    async def remember() -> None:
        store = open_store(path=path, embedder="hashing")
        await store.agent(ANA).remember(session_of("trip"))
        store.close()

    asyncio.run(remember())
    say("remembered")


class SlowEmbedder:
    """Takes its time once it is told to."""

    id = "slow-64"
    dim = 64

    def __init__(self) -> None:
        self._inner = HashEmbedder(dim=64)
        self.delay_s = 0.0

    async def embed(self, texts: Sequence[str]) -> Matrix:
        """The vectors of the hashing embedder, later."""
        await asyncio.sleep(self.delay_s)
        return await self._inner.embed(texts)


def die_with_work_in_the_background(say: Say, *, path: str) -> None:
    """Be killed right after `remember(background=True)` has come back."""
    embedder = SlowEmbedder()
    agent = Agent(path=path, user_id="ana", embedder=embedder)
    agent.memory.add("Ana has a key")
    embedder.delay_s = 60.0
    agent.remember(session_of("late"), background=True)
    say("back")
    os.kill(os.getpid(), 9)
