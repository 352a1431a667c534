"""Direct verbs on a memory, in the words users of memory libraries know.

Every write is a commit like the agent's own: journalled, with provenance, undoable. `delete` leaves a restorable tombstone; `reset` erases.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from math import isfinite
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from memagent.core.answers import AsOf, Filter, Hit, Query
from memagent.core.errors import ConfigError, InputError, MemoryNotFound, StoreError, VersionConflict, fault_in
from memagent.core.ops import Add, Delete, MemoryOp, OpBatch, Rejected, RejectReason, Update
from memagent.core.records import Fact, ItemStatus, MemoryItem, Session, SourceRef, TimeSpan
from memagent.core.snapshot import Commit, Erased, HistoryEntry, MemorySnapshot, SnapshotDiff
from memagent.memory import timetravel
from memagent.memory.bank import MemoryBank
from memagent.memory.transfer import ExportReport, export_bank, import_bank
from memagent.stores.memory_index import matches

Scalar = str | int | float | bool | None
MAX_TEXT_CHARS = 20_000
"""Longest text of a directly added item, in characters."""
MAX_METADATA_CHARS = 20_000
"""Most characters that an item's metadata may have, keys and values together."""
MAX_ITEM_ID_CHARS = 200
"""Longest id that a caller may give an item, in characters."""


class Memory:
    """The verbs. Cheap to make; holds nothing but its bank."""

    def __init__(self, bank: MemoryBank) -> None:
        self.bank = bank

    async def add(
        self,
        text: str,
        *,
        id: str | None = None,
        kind: str = "fact",
        subject: str | None = None,
        speaker: str | None = None,
        valid: TimeSpan | None = None,
        said_at: datetime | None = None,
        source_turn_ids: Sequence[str] = (),
        tags: Sequence[str] = (),
        metadata: Mapping[str, Scalar] | None = None,
    ) -> MemoryItem:
        """Remember a text as it is. Raises `InputError` for text or metadata that cannot be stored."""
        with _input():
            fact = Fact(
                text=_checked_text(text),
                kind=kind,
                subject=subject,
                speaker=speaker,
                valid=valid,
                said_at=said_at,
                source_turn_ids=tuple(source_turn_ids),
            )
            op = Add(fact=fact, id=_checked_id(id), tags=_checked_tags(tags), metadata=_checked_metadata(metadata))
        commit = await self._write(op)
        item = commit.changes[0].after
        assert item is not None
        return item

    async def add_many(
        self, texts: Sequence[str], *, kind: str = "fact", subject: str | None = None
    ) -> list[MemoryItem]:
        """Remember many texts in one durable write; all or none."""
        with _input():
            ops = tuple(Add(fact=Fact(text=_checked_text(text), kind=kind, subject=subject)) for text in texts)
        commit = await self.bank.commit(OpBatch(accepted=ops), source=SourceRef(actor="user"))
        return [change.after for change in commit.changes if change.after is not None]

    async def search(
        self, text: str, *, k: int = 10, where: Filter | None = None, as_of: AsOf | None = None
    ) -> list[Hit]:
        """The k best items for a text, best first; [] when nothing matches or the text is empty."""
        if k < 1:
            raise ConfigError(f"k is {k}; ask for at least 1 item")
        bank = self.bank if as_of is None or as_of.now else await timetravel.as_of(self.bank, as_of)
        return await bank.search(Query(text=text, where=where or Filter()), k=k) if text.strip() else []

    async def get(self, item_id: str) -> MemoryItem:
        """An item. Raises `MemoryNotFound`."""
        return await self.bank.get(item_id)

    async def get_all(
        self, *, where: Filter | None = None, include_deleted: bool = False, limit: int | None = None
    ) -> list[MemoryItem]:
        """Items that pass the filter, oldest said first, those of one session in the order of their turns, ties by id."""
        if limit is not None and limit < 0:
            raise ConfigError(f"limit is {limit}; ask for at least 0 items")
        state = await self.bank.sync()
        items = [
            item
            for item in state.items.values()
            if (include_deleted or item.status is ItemStatus.ACTIVE) and (where is None or matches(item, where))
        ]

        def place(item: MemoryItem) -> tuple[float, str, int, str]:
            session_id, position = state.turns.get(item.source_turn_ids[-1] if item.source_turn_ids else "", ("", 0))
            return (item.said_at.timestamp() if item.said_at else 0.0, session_id, position, item.id)

        items.sort(key=place)
        return items[:limit]

    async def sessions(self) -> list[Session]:
        """Stored sessions with their raw turns, oldest first."""
        state = await self.bank.sync()
        return sorted(
            state.sessions.values(), key=lambda session: (session.at.timestamp() if session.at else 0.0, session.id)
        )

    async def update(
        self, item_id: str, text: str, *, version: int | None = None, valid: TimeSpan | None = None
    ) -> MemoryItem:
        """Write a new version; `version` guards against lost updates, and without `valid` the item keeps its time.

        Raises `MemoryNotFound`, `VersionConflict`, `InputError`.
        """
        with _input():
            kept = valid or (await self.get(item_id)).valid
            op = Update(id=item_id, text=_checked_text(text), version=version, valid=kept)
        commit = await self._write(op)
        item = commit.changes[0].after
        assert item is not None
        return item

    async def delete(self, item_id: str, *, version: int | None = None) -> None:
        """Take an item out; `restore(item_id)` brings it back. Raises `MemoryNotFound`, `VersionConflict`."""
        with _input():
            op = Delete(id=item_id, version=version)
        await self._write(op)

    async def delete_all(self, *, user_id: str) -> int:
        """Delete every item of this memory in one commit; `user_id` must name it. Gives the number of items; undoable."""
        self._own(user_id)
        state = await self.bank.sync()
        ops = tuple(Delete(id=item.id) for item in sorted(state.active(), key=lambda item: item.id))
        if ops:
            await self.bank.commit(OpBatch(accepted=ops), source=SourceRef(actor="user"))
        return len(ops)

    async def reset(self, *, user_id: str) -> None:
        """Erase this memory with its history and turns, beyond recovery; `user_id` must name it."""
        self._own(user_id)
        await self.bank.append(lambda _: Erased(reason="reset"))

    async def history(self, item_id: str) -> tuple[HistoryEntry, ...]:
        """Every change of an item, oldest first. Raises `MemoryNotFound`."""
        return await timetravel.history(self.bank, item_id)

    async def undo(self, commit_id: str | None = None) -> Commit:
        """Take back a commit, by default the last. Raises `MemoryNotFound`, `StoreError`."""
        return await timetravel.undo(self.bank, commit_id)

    async def as_of(self, when: AsOf) -> Memory:
        """A read-only view of the memory at a point in time."""
        return Memory(await timetravel.as_of(self.bank, when))

    async def snapshot(self) -> MemorySnapshot:
        """The memory as an immutable value."""
        await self.bank.sync()
        return self.bank.snapshot()

    async def fork(self) -> Memory:
        """A private copy in memory."""
        await self.bank.sync()
        return Memory(self.bank.fork())

    async def restore(self, what: MemorySnapshot | str) -> None:
        """Put the memory back to a snapshot, or bring back one deleted item by its id."""
        if isinstance(what, str):
            await timetravel.undelete(self.bank, what)
        else:
            await timetravel.restore_snapshot(self.bank, what)

    async def diff(self, before: MemorySnapshot, after: MemorySnapshot | None = None) -> SnapshotDiff:
        """What changed between two snapshots; `after` defaults to now."""
        return timetravel.diff(before, after if after is not None else await self.snapshot())

    async def export(self, path: str | Path) -> ExportReport:
        """Write everything, history included, to one portable file."""
        return await export_bank(self.bank, Path(path))

    async def import_(self, path: str | Path) -> ExportReport:
        """Read an export into this memory, which must be empty. Raises `SnapshotMismatch`, `InputError`."""
        return await import_bank(self.bank, Path(path))

    def _own(self, user_id: str) -> None:
        if user_id != self.bank.scope.user_id:
            raise ConfigError(
                f"this memory belongs to user {self.bank.scope.user_id!r}, not to {user_id!r}; nothing was deleted"
            )

    async def _write(self, op: MemoryOp) -> Commit:
        commit = await self.bank.commit(OpBatch(accepted=(op,)), source=SourceRef(actor="user"))
        if commit.rejected:
            raise _as_error(commit.rejected[0], self.bank)
        return commit


def _as_error(rejected: Rejected, bank: MemoryBank) -> StoreError | InputError:
    user = bank.scope.user_id
    if rejected.reason is RejectReason.UNKNOWN_ID:
        return MemoryNotFound(f"{rejected.detail} (user {user!r})")
    if rejected.reason is RejectReason.STALE_VERSION and isinstance(rejected.op, Update | Delete):
        item = bank.state.items.get(rejected.op.id)
        return VersionConflict(rejected.detail, expected=rejected.op.version or 0, actual=item.version if item else 0)
    return InputError(rejected.detail or rejected.reason.value)


@contextmanager
def _input() -> Generator[None]:
    """Tell in one line what a record refuses."""
    try:
        yield
    except ValidationError as exc:
        raise InputError(f"the memory cannot be stored: {fault_in(exc)}") from exc


def _checked_text(text: object) -> str:
    if not isinstance(text, str):
        raise InputError(f"the text is a {type(text).__name__}; give a string")
    if not text.strip():
        raise InputError("the text is empty; there is nothing to remember")
    if len(text) > MAX_TEXT_CHARS:
        raise InputError(
            f"the text has {len(text):,} characters, a memory holds at most {MAX_TEXT_CHARS:,}; split it, or remember it as a session"
        )
    return text


def _checked_id(item_id: str | None) -> str | None:
    if item_id is not None and not 0 < len(item_id) <= MAX_ITEM_ID_CHARS:
        raise InputError(f"the id has {len(item_id):,} characters; give 1 to {MAX_ITEM_ID_CHARS}")
    return item_id


def _checked_tags(tags: Sequence[str]) -> tuple[str, ...]:
    if isinstance(tags, str):
        raise InputError(f"tags is one text; give a list such as [{tags!r}]")
    return tuple(tags)


def _checked_metadata(metadata: object) -> dict[str, Any]:
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping):
        raise InputError(f"the metadata is a {type(metadata).__name__}; give a dict")
    checked: dict[str, Any] = {}
    for key, value in metadata.items():  # pyright: ignore[reportUnknownVariableType]
        if not isinstance(key, str):
            raise InputError(f"metadata key {key!r}: keys are strings")
        if key.startswith("_"):
            raise InputError(f"metadata key {key!r}: keys that start with an underscore are reserved for the system")
        checked[key] = _checked_value(key, value)  # pyright: ignore[reportUnknownArgumentType]
    size = sum(len(key) + len(str(value)) for key, value in checked.items())
    if size > MAX_METADATA_CHARS:
        raise InputError(f"the metadata has {size:,} characters, a memory holds at most {MAX_METADATA_CHARS:,}")
    return checked


def _checked_value(key: str, value: object) -> object:
    if isinstance(value, float) and not isfinite(value):
        raise InputError(f"metadata {key!r} is {value}; numbers must be finite")
    if isinstance(value, int) and value.bit_length() > 63:
        raise InputError(f"metadata {key!r} is an integer of {value.bit_length()} bits; 63 are the most")
    if value is not None and not isinstance(value, str | int | float):
        raise InputError(f"metadata {key!r} is a {type(value).__name__}; values are texts, numbers, booleans or None")
    return value
