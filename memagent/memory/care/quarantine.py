"""Changes that were kept aside for review, because what they rest on is trusted too little.

The journal keeps every refused op beside the accepted ones, so nothing is stored twice:
the list is read from the journal, and a review is a commit that names what it settles.
"""

from __future__ import annotations

from collections.abc import Callable

from memagent.core.errors import InputError, MemoryNotFound, VersionConflict
from memagent.core.ops import Delete, OpBatch, RejectReason, Update
from memagent.core.records import SourceRef
from memagent.core.reports import Quarantined
from memagent.core.snapshot import Commit
from memagent.memory.bank import MemoryBank
from memagent.state.effects import plan_commit
from memagent.state.fold import BankState

_ACTOR = "review"


async def quarantined(bank: MemoryBank) -> list[Quarantined]:
    """Return the changes that wait for review, oldest first."""
    state = await bank.sync()
    waiting: dict[str, Quarantined] = {}
    async for row in bank.rows():
        entry = row.entry
        if not isinstance(entry, Commit):
            continue
        for name in entry.reviewed:
            waiting.pop(name, None)
        for number, refused in enumerate(entry.rejected):
            if refused.reason is RejectReason.LOW_TRUST and isinstance(refused.op, Update | Delete):
                name = f"{entry.id}.q{number}"
                waiting[name] = Quarantined(
                    id=name,
                    seq=row.seq,
                    recorded_at=row.recorded_at,
                    op=refused.op,
                    detail=refused.detail,
                    item=state.items.get(refused.op.id),
                    source=entry.source,
                )
    return list(waiting.values())


async def accept(bank: MemoryBank, name: str) -> Commit:
    """Carry out a quarantined change as a person's own decision.

    The memory keeps its trust: whoever accepts vouches for the words. Raises
    `MemoryNotFound`, `InputError` for a memory that is gone, and `VersionConflict` when
    the memory changed after the proposal.
    """
    waiting = await _find(bank, name)
    op = waiting.op
    assert isinstance(op, Update | Delete)

    def entry(state: BankState) -> Commit:
        touched = state.touched.get(op.id, ())
        item = state.items.get(op.id)
        if item is None or not item.active:
            raise InputError(f"{op.id} is not in memory any more; refuse the change")
        if touched and touched[-1] > waiting.seq:
            raise VersionConflict(
                f"{op.id} was changed after this was proposed; refuse it, or edit the memory",
                expected=waiting.seq,
                actual=touched[-1],
            )
        settled = op.model_copy(
            update={
                "source_turn_ids": (),
                "version": None,
                "reason": f"accepted in review ({name})",
            }
        )
        batch, source = OpBatch(accepted=(settled,)), SourceRef(actor=_ACTOR)
        commit = plan_commit(state, batch, source=source, commit_id=f"c{state.seq + 1}")
        if commit.rejected:
            raise InputError(commit.rejected[0].detail)
        return commit.model_copy(update={"reviewed": (name,)})

    return await _written(bank, entry)


async def refuse(bank: MemoryBank, name: str) -> Commit:
    """Settle a quarantined change without carrying it out. Raises `MemoryNotFound`."""
    await _find(bank, name)

    def entry(state: BankState) -> Commit:
        source = SourceRef(actor=_ACTOR)
        return Commit(id=f"c{state.seq + 1}", source=source, reviewed=(name,))

    return await _written(bank, entry)


async def _find(bank: MemoryBank, name: str) -> Quarantined:
    for waiting in await quarantined(bank):
        if waiting.id == name:
            return waiting
    raise MemoryNotFound(f"no change {name!r} waits for review for user {bank.scope.user_id!r}")


async def _written(bank: MemoryBank, entry: Callable[[BankState], Commit]) -> Commit:
    row = await bank.append(entry)
    assert row is not None and isinstance(row.entry, Commit)
    return row.entry
