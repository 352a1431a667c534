"""A store with markers and vectors in many places, erased by a process that gets killed.

Twenty markers of one session stand in a turn, an image caption, memories, an old version
of one, refused ops, reasons, facts that were known already, events, edges, a thread of
model replies and a stored response; five vectors lie in the cache.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from memagent.core.ops import Add, Noop, OpBatch, Rejected, RejectReason, Update
from memagent.core.records import Event, EventEdge, Fact, Relation, Scope, Session, SourceRef, Turn
from memagent.core.snapshot import Commit, GraphDelta
from memagent.embed.static import CachedEmbedder
from memagent.journal.sqlite import SqlJournal
from memagent.memory.bank import MemoryBank
from memagent.memory.care.erasure import vector_bytes
from memagent.memory.facade import Memory
from memagent.protocols import Matrix

SCOPE = Scope(user_id="ana")
DOOMED, KEPT = "MARKgone{:02d}secret", "MARKkept{:02d}public"
MARKERS = [DOOMED.format(number) for number in range(20)]


class SlowEmbedder:
    """Vectors from a seed that follows from the text, cached in the database."""

    id, dim = "slow", 64

    async def embed(self, texts: Sequence[str]) -> Matrix:
        """One unit vector a text."""
        rows = [
            np.random.default_rng(list(text.encode())).normal(size=self.dim).astype(np.float32)
            for text in texts
        ]
        return np.asarray([row / np.linalg.norm(row) for row in rows], dtype=np.float32)


def open_memory(journal: SqlJournal) -> Memory:
    """The memory in a journal, with vectors cached beside it."""
    embedder = CachedEmbedder(SlowEmbedder(), shared=journal.cache)
    return Memory(MemoryBank(embedder=embedder, scope=SCOPE, journal=journal))


async def fill(memory: Memory, journal: SqlJournal) -> None:
    """Write the markers, and as much that stays."""
    bank, mark = memory.bank, iter(MARKERS)
    for name, words in (("gone", DOOMED), ("kept", KEPT)):
        say = (lambda m=mark: next(m)) if name == "gone" else (lambda w=words: w.format(0))
        turns = tuple(
            Turn(id=f"{name}:{n}", speaker="Ana", text=f"My note is {say()}", image_caption=cap)
            for n, cap in enumerate((None, f"a picture of {say()}", None), 1)
        )
        await bank.store_session(Session(id=f"session-{name}", turns=turns))
        adds = [
            Add(
                fact=Fact(text=f"Ana notes {say()}", source_turn_ids=(f"{name}:{n}",)),
                reason=f"because {say()}",
            )
            for n in (1, 2, 3)
        ]
        again = adds[0].fact.text.removeprefix("Ana notes ")  # two more vectors, no new marker
        adds += [
            Add(fact=Fact(text=f"Ana {verb} {again}", source_turn_ids=(f"{name}:1",)))
            for verb in ("reads", "hides")
        ]
        known = Noop(fact=Fact(text=f"Known: {say()}", source_turn_ids=(f"{name}:1",)))
        refused = Rejected(
            reason=RejectReason.LOW_TRUST,
            detail=f"not {say()}",
            raw=f"raw {say()}",
            op=Update(id="mem_x", text=f"refused {say()}"),
        )
        batch = OpBatch(accepted=(*adds, known), rejected=(refused,))
        ref = SourceRef(session_id=f"session-{name}", chunk_index=0, turn_ids=(f"{name}:1",))
        done = await bank.commit(batch, source=ref)
        first = done.changes[0].id
        await bank.commit(
            OpBatch(accepted=(Update(id=first, text=f"Ana now notes {say()}"),)),
            source=SourceRef(actor="user"),
        )
        event = Event(
            id=f"evt_{name}",
            summary=f"Noted {say()}",
            time_text=f"at {say()}",
            source_turn_ids=(f"{name}:1",),
        )
        edge = EventEdge(
            source=event.id,
            target=first,
            relation=Relation.RELATED,
            label=f"label {say()}",
            evidence_turn_ids=(f"{name}:2",),
        )
        await bank.index(GraphDelta(nodes=(event,), edges=(edge,), rejected=(f"no {say()}",)))
        await bank.refresh()
        response = (f"key-{name}", "digest", f'"{say()}"')
        entry = Commit(id=f"c-{name}", source=SourceRef(session_id=f"session-{name}"))
        await journal.append(SCOPE, entry, expect=await journal.head(SCOPE), idempotency=response)
        await bank.sync()
    await asyncio.sleep(0.3)  # the cache follows after a moment


def needles(memory: Memory) -> list[bytes]:
    """The markers, and the vectors of the memories that hold them."""
    items = memory.bank.state.items
    doomed = [item for item in items.values() if "MARKgone" in item.text]
    return [*(mark.encode() for mark in MARKERS), *vector_bytes(memory.bank, doomed)]


def erase_session(say: Callable[[str], None], *, path: str) -> None:
    """Erase the session, in a process that is killed over it."""

    async def work() -> None:
        with SqlJournal(Path(path)) as journal:
            receipt = await open_memory(journal).erase_session("session-gone")
            say("erased" if receipt.gone else "left")

    asyncio.run(work())
