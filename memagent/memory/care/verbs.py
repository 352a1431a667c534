"""The verbs of review, forensics and erasure, which `Memory` has beside its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memagent.core import Later
from memagent.core.reports import ErasureReceipt, Quarantined, SourceFilter, Touched
from memagent.core.snapshot import Commit
from memagent.memory.bank import MemoryBank

if TYPE_CHECKING:
    from memagent.memory.care import redaction as erasure, undo as quarantine, undo as sources
else:
    erasure = Later("memagent.memory.care.redaction")
    quarantine = Later("memagent.memory.care.undo")
    sources = Later("memagent.memory.care.undo")


class CareVerbs:
    """Verbs over the memory's bank."""

    bank: MemoryBank

    async def quarantine(self) -> list[Quarantined]:
        """Return the changes that were kept aside for review, oldest first.

        A change is kept aside when what it rests on is trusted too little for what it
        would change.
        """
        return await quarantine.quarantined(self.bank)

    async def accept(self, quarantined_id: str) -> Commit:
        """Carry out a change that was kept aside; the memory keeps its trust.

        Raises `MemoryNotFound`, `InputError`, and `VersionConflict` when the memory
        changed meanwhile.
        """
        return await quarantine.accept(self.bank, quarantined_id)

    async def refuse(self, quarantined_id: str) -> Commit:
        """Settle a change that was kept aside without carrying it out.

        Raises `MemoryNotFound`.
        """
        return await quarantine.refuse(self.bank, quarantined_id)

    async def touched_by(self, source: SourceFilter) -> list[Touched]:
        """Return every memory that rests on a session, turn, speaker, tool or trust.

        Raises `InputError` for a filter that names nothing.
        """
        return await sources.touched_by(self.bank, source)

    async def exclude(self, source: SourceFilter) -> Commit | None:
        """Delete every memory that rests on a source, in one commit that can be undone.

        None when there is none. Raises as `touched_by`.
        """
        return await sources.exclude(self.bank, source)

    async def roll_back(self, source: SourceFilter) -> Commit | None:
        """Set every memory that rests on a source back to before the source touched it.

        One commit that can be undone; None when there is nothing to do. Raises as
        `touched_by`.
        """
        return await sources.roll_back(self.bank, source)

    async def erase(self, item_id: str, *, keep_turns: bool = False) -> ErasureReceipt:
        """Erase one memory beyond recovery, with the words of the turns it rests on.

        `keep_turns` leaves those turns. Raises `MemoryNotFound`, `StoreError`.
        """
        return await erasure.erase_item(self.bank, item_id, keep_turns=keep_turns)

    async def erase_session(self, session_id: str) -> ErasureReceipt:
        """Erase a session beyond recovery, with every memory that rests on it.

        Raises `MemoryNotFound`, `StoreError`.
        """
        return await erasure.erase_session(self.bank, session_id)
