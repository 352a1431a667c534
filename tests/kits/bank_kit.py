"""What the bank tests share: small sessions, batches and strategies."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st

from memagent.core.ops import Add, Delete, MemoryOp, Noop, OpBatch, OpLimits, Update
from memagent.core.records import Chunk, Fact, Session, SourceRef, TimeSpan, Turn
from memagent.core.snapshot import Commit
from memagent.embed.static import HashEmbedder
from memagent.memory.bank import MemoryBank
from memagent.memory.facade import Memory
from memagent.state.validation import validate_ops

DAY = datetime(2024, 1, 1, tzinfo=UTC)
DIRECT = SourceRef(actor="user")
WORDS = "boat harbour tea Lisbon Porto dog chess piano garden winter rent flight".split()


def session(number: int, *, turns: int = 4) -> Session:
    """A dated session of two speakers, one week after the one before."""
    return Session(
        id=f"s{number}",
        at=DAY + timedelta(weeks=number),
        turns=tuple(
            Turn(
                id=f"D{number}:{i}",
                speaker=("Ana", "Bo")[i % 2],
                text=f"{WORDS[(number + i) % len(WORDS)]} talk {number} {i}",
            )
            for i in range(1, turns + 1)
        ),
    )


def source(number: int, index: int = 0) -> SourceRef:
    """Where a commit on a session's chunk comes from."""
    return SourceRef(
        session_id=f"s{number}",
        chunk_id=f"s{number}#{index}",
        chunk_index=index,
        turn_ids=(f"D{number}:1",),
    )


def fact(
    text: str, *, turn: str = "D1:1", subject: str | None = "Ana", day: int | None = None
) -> Fact:
    """A fact from a turn, on a day."""
    valid = (
        TimeSpan(start=DAY + timedelta(days=day), end=DAY + timedelta(days=day + 1))
        if day is not None
        else None
    )
    return Fact(text=text, subject=subject, source_turn_ids=(turn,), valid=valid)


def batch(*ops: MemoryOp) -> OpBatch:
    """A batch of accepted ops."""
    return OpBatch(accepted=ops)


def new_bank() -> MemoryBank:
    """A private bank in memory."""
    return MemoryBank(embedder=HashEmbedder(dim=32))


async def filled(items: int = 6) -> MemoryBank:
    """A bank with one session and some facts."""
    bank = new_bank()
    await bank.store_session(session(1))
    await bank.commit(
        batch(
            *(
                Add(
                    fact=fact(
                        f"Ana likes {WORDS[i % len(WORDS)]} {i}", turn=f"D1:{i % 4 + 1}", day=i
                    )
                )
                for i in range(items)
            )
        ),
        source=source(1),
    )
    return bank


def ids(commit: Commit) -> list[str]:
    """Ids of the items a commit changed."""
    return [change.id for change in commit.changes]


@st.composite
def op_plans(draw: st.DrawFn, *, most: int = 12) -> list[list[tuple[str, int, str, int | None]]]:
    """Batches of abstract ops (kind, which item, words, day); `realise` turns them into
    real ones for a bank's present items.
    """
    one = st.tuples(
        st.sampled_from(["ADD", "ADD", "UPDATE", "DELETE", "NOOP"]),
        st.integers(0, 30),
        st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join),
        st.one_of(st.none(), st.integers(0, 400)),
    )
    return draw(st.lists(st.lists(one, max_size=4), max_size=most))


def realise(plan: Sequence[tuple[str, int, str, int | None]], bank: MemoryBank) -> OpBatch:
    """The plan's ops on the items the bank has now."""
    known = sorted(bank.state.items)
    ops: list[MemoryOp] = []
    for kind, which, words, day in plan:
        turn = f"D1:{which % 4 + 1}"
        if kind == "ADD" or not known:
            ops.append(Add(fact=fact(words, turn=turn, day=day)))
        elif kind == "UPDATE":
            ops.append(Update(id=known[which % len(known)], text=words, source_turn_ids=(turn,)))
        elif kind == "DELETE":
            ops.append(Delete(id=known[which % len(known)]))
        else:
            ops.append(Noop(id=known[which % len(known)], fact=fact(words, turn=turn)))
    return OpBatch(accepted=tuple(ops))


async def propose(memory: Memory, session: Session, *ops: Add | Update | Delete) -> None:
    """What a model that obeys proposes for one session, judged and written as in ingest."""
    bank = memory.bank
    await bank.store_session(session)
    chunk = Chunk(
        id=f"{session.id}#0", session_id=session.id, index=0, count=1, turns=session.turns
    )
    batch = validate_ops(
        ops, visible=dict(bank.state.items.items()), limits=OpLimits(), chunk=chunk
    )
    source = SourceRef(session_id=session.id, chunk_index=0, chunk_count=1, turn_ids=chunk.turn_ids)
    await bank.commit(batch, source=source)
