"""Review, the traces of a source, and erasure over HTTP, as `memory.care.verbs` names them."""

from __future__ import annotations

from memagent.client import care_wire
from memagent.client.http import path_of
from memagent.client.remote_transfer import RemoteTransfer
from memagent.core.reports import ErasureReceipt, Quarantined, SourceFilter, Touched
from memagent.core.snapshot import Commit


class RemoteCare(RemoteTransfer):
    """These verbs of one memory behind the service."""

    async def quarantine(self) -> list[Quarantined]:
        """Return the changes that were kept aside for review, oldest first."""
        return list(
            (
                await self._connection.read(care_wire.QuarantineList, "GET", path_of("quarantine"))
            ).items
        )

    async def accept(self, quarantined_id: str) -> Commit:
        """Carry out a change that was kept aside. Raises `MemoryNotFound`, `VersionConflict`."""
        return await self._write(Commit, "POST", path_of("quarantine", quarantined_id, "accept"))

    async def refuse(self, quarantined_id: str) -> Commit:
        """Settle a change that was kept aside without carrying it out. Raises `MemoryNotFound`."""
        return await self._write(Commit, "POST", path_of("quarantine", quarantined_id, "refuse"))

    async def touched_by(self, source: SourceFilter) -> list[Touched]:
        """Return every memory that rests on a source. Raises `InputError` for an empty filter."""
        path = path_of("sources", "touched")
        return list(
            (await self._connection.read(care_wire.TouchedList, "POST", path, body=source)).items
        )

    async def exclude(self, source: SourceFilter) -> Commit | None:
        """Delete every memory that rests on a source; None when there is none."""
        return await self._taken_back("exclude", source)

    async def roll_back(self, source: SourceFilter) -> Commit | None:
        """Set every memory that rests on a source back; None when there is nothing to do."""
        return await self._taken_back("roll-back", source)

    async def erase(self, item_id: str, *, keep_turns: bool = False) -> ErasureReceipt:
        """Erase one memory beyond recovery. Raises `MemoryNotFound`."""
        path = path_of("memories", item_id, "erase")
        params = {"keep_turns": keep_turns}
        return await self._write(ErasureReceipt, "POST", path, params=params)

    async def erase_session(self, session_id: str) -> ErasureReceipt:
        """Erase a session beyond recovery. Raises `MemoryNotFound`."""
        return await self._write(ErasureReceipt, "POST", path_of("sessions", session_id, "erase"))

    async def _taken_back(self, how: str, source: SourceFilter) -> Commit | None:
        path = path_of("sources", how)
        answer: care_wire.TakenBack = await self._write(
            care_wire.TakenBack, "POST", path, body=source
        )
        return answer.commit
