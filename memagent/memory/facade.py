"""Direct verbs on a memory, in the words users of memory libraries know.

Every write is a commit like the agent's own: journalled, with provenance, undoable.
`delete` leaves a restorable tombstone; `reset` erases.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from math import isfinite
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from memagent.core.answers import AsOf, Filter, Hit, Query
from memagent.core.errors import (
    ConfigError,
    InputError,
    MemoryNotFound,
    StoreError,
    VersionConflict,
    fault_in,
)
from memagent.core.graph_document import GraphFormat
from memagent.core.ops import Add, Delete, MemoryOp, OpBatch, Rejected, RejectReason, Update
from memagent.core.recipes import BALANCED, Recipe, recipe_of
from memagent.core.records import Fact, ItemStatus, MemoryItem, Session, SourceRef, TimeSpan, as_utc
from memagent.core.reports import GraphStats
from memagent.core.snapshot import Commit, Erased, HistoryEntry, MemorySnapshot, SnapshotDiff
from memagent.events.stats import graph_stats
from memagent.memory import timetravel
from memagent.memory.bank import MemoryBank
from memagent.memory.graph_export import GraphExport, export_graph
from memagent.memory.transfer import ExportReport, export_bank, import_bank
from memagent.state.matching import matches
from memagent.tracing import operation_span, put_search, verb

Scalar = str | int | float | bool | None
_NO_FILTER = Filter()
MAX_TEXT_CHARS = 20_000
"""Longest text of a directly added item, in characters."""
MAX_METADATA_CHARS = 20_000
"""Most characters that an item's metadata may have, keys and values together."""
MAX_ITEM_ID_CHARS = 200
"""Longest id that a caller may give an item, in characters."""


class Memory:
    """The verbs.

    Cheap to make; holds nothing but its bank and how it searches unless told otherwise.
    """

    def __init__(
        self, bank: MemoryBank, *, recipe: Recipe = BALANCED, capture_content: bool = False
    ) -> None:
        self.bank = bank
        self.recipe = recipe
        self.capture_content = capture_content
        """Whether OpenTelemetry spans may tell texts."""

    @verb("create_memory")
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
        ttl: timedelta | None = None,
        expires_at: datetime | None = None,
    ) -> MemoryItem:
        """Remember a text as it is; with a time to live from now, or a moment of
        expiry, only until then.

        Raises `InputError` for text or metadata that cannot be stored, and for an
        expiry that has passed already.
        """
        with _input():
            expires_at = _checked_expiry(ttl, expires_at, now=self.bank.now())
            fact = Fact(
                text=_checked_text(text),
                kind=kind,
                subject=subject,
                speaker=speaker,
                valid=valid,
                said_at=said_at,
                source_turn_ids=tuple(source_turn_ids),
                expires_at=expires_at,
            )
            op = Add(
                fact=fact,
                id=_checked_id(id),
                tags=_checked_tags(tags),
                metadata=_checked_metadata(metadata),
            )
        commit = await self._write(op)
        item = commit.changes[0].after
        assert item is not None
        return item

    @verb("create_memory")
    async def add_many(
        self, texts: Sequence[str], *, kind: str = "fact", subject: str | None = None
    ) -> list[MemoryItem]:
        """Remember many texts in one durable write; all or none."""
        with _input():
            ops = tuple(
                Add(fact=Fact(text=_checked_text(text), kind=kind, subject=subject))
                for text in texts
            )
        commit = await self.bank.commit(OpBatch(accepted=ops), source=SourceRef(actor="user"))
        return [change.after for change in commit.changes if change.after is not None]

    async def search(
        self,
        text: str,
        *,
        k: int = 10,
        where: Filter | None = None,
        as_of: AsOf | None = None,
        recipe: Recipe | str | None = None,
        max_tokens: int | None = None,
    ) -> list[Hit]:
        """At most k items for a text, best first; [] when nothing matches or the text is empty.

        `recipe` is a `Recipe` or the name of one; `max_tokens` bounds the (estimated)
        tokens of all texts together. Raises `ConfigError`.
        """
        with operation_span("search_memory", capture=self.capture_content) as one:
            asked = await _asked(
                self, text, k=k, where=where, as_of=as_of, recipe=recipe, max_tokens=max_tokens
            )
            hits = await asked[0].search(asked[1], k=k) if asked is not None else []
            if one.recording and asked is not None:
                put_search(one, asked[1], hits, k=k)
            return hits

    async def get(self, item_id: str) -> MemoryItem:
        """An item. Raises `MemoryNotFound`."""
        return await self.bank.get(item_id)

    async def get_all(
        self,
        *,
        where: Filter | None = None,
        include_deleted: bool = False,
        limit: int | None = None,
    ) -> list[MemoryItem]:
        """Items that pass the filter, oldest said first, those of one session in the
        order of their turns, ties by id.

        `include_deleted` shows the deleted and the expired ones too.
        """
        if limit is not None and limit < 0:
            raise ConfigError(f"limit is {limit}; ask for at least 0 items")
        state = await self.bank.sync()
        expired = self.bank.expired
        items = [
            item
            for item in state.items.values()
            if (include_deleted or (item.status is ItemStatus.ACTIVE and item.id not in expired))
            and (where is None or matches(item, where))
        ]

        def place(item: MemoryItem) -> tuple[float, str, int, str]:
            session_id, position = state.turns.get(
                item.source_turn_ids[-1] if item.source_turn_ids else "", ("", 0)
            )
            return (
                item.said_at.timestamp() if item.said_at else 0.0,
                session_id,
                position,
                item.id,
            )

        items.sort(key=place)
        return items[:limit]

    async def sessions(self) -> list[Session]:
        """Stored sessions with their raw turns, oldest first."""
        state = await self.bank.sync()
        return sorted(
            state.sessions.values(),
            key=lambda session: (session.at.timestamp() if session.at else 0.0, session.id),
        )

    @verb("update_memory")
    async def update(
        self, item_id: str, text: str, *, version: int | None = None, valid: TimeSpan | None = None
    ) -> MemoryItem:
        """Write a new version; `version` guards against lost updates.

        The item keeps its expiry, and without `valid` its time.

        Raises `MemoryNotFound`, `VersionConflict`, `InputError`.
        """
        with _input():
            old = await self.get(item_id)
            op = Update(
                id=item_id, text=_checked_text(text), version=version, valid=valid or old.valid
            )
        commit = await self._write(op)
        item = commit.changes[0].after
        assert item is not None
        return item

    @verb("delete_memory")
    async def delete(self, item_id: str, *, version: int | None = None) -> None:
        """Take an item out; `restore(item_id)` brings it back.

        Raises `MemoryNotFound`, `VersionConflict`.
        """
        with _input():
            op = Delete(id=item_id, version=version)
        await self._write(op)

    @verb("delete_memory")
    async def delete_all(self, *, user_id: str) -> int:
        """Delete every item of this memory in one commit; `user_id` must name it.

        Gives the number of items; undoable.
        """
        self._own(user_id)
        state = await self.bank.sync()
        ops = tuple(Delete(id=item.id) for item in sorted(state.active(), key=lambda item: item.id))
        if ops:
            await self.bank.commit(OpBatch(accepted=ops), source=SourceRef(actor="user"))
        return len(ops)

    @verb("delete_memory_store")
    async def reset(self, *, user_id: str) -> None:
        """Erase this memory with its history and turns, beyond recovery; `user_id` must name it.

        Raises `StoreUnavailable` when a networked index could not be emptied; it is
        before its next use, and the rest is erased.
        """
        self._own(user_id)
        await self.bank.append(lambda _: Erased(reason="reset"))
        await self.bank.settle()

    async def history(self, item_id: str) -> tuple[HistoryEntry, ...]:
        """Every change of an item, oldest first. Raises `MemoryNotFound`."""
        return await timetravel.history(self.bank, item_id)

    @verb("update_memory")
    async def undo(self, commit_id: str | None = None) -> Commit:
        """Take back a commit, by default the last.

        Raises `MemoryNotFound`, `StoreError`.
        """
        return await timetravel.undo(self.bank, commit_id)

    async def as_of(self, when: AsOf) -> Memory:
        """A read-only view of the memory at a point in time."""
        return self._of(await timetravel.as_of(self.bank, when))

    async def graph_stats(self) -> GraphStats:
        """Figures of the event graph as it stands."""
        return graph_stats(await self.bank.sync())

    async def snapshot(self) -> MemorySnapshot:
        """The memory as an immutable value."""
        await self.bank.sync()
        return self.bank.snapshot()

    async def fork(self) -> Memory:
        """A private copy in memory."""
        await self.bank.sync()
        return self._of(self.bank.fork())

    @verb("update_memory")
    async def restore(self, what: MemorySnapshot | str) -> None:
        """Put the memory back to a snapshot, or bring back one deleted item by its id."""
        if isinstance(what, str):
            await timetravel.undelete(self.bank, what)
        else:
            await timetravel.restore_snapshot(self.bank, what)

    async def diff(
        self, before: MemorySnapshot, after: MemorySnapshot | None = None
    ) -> SnapshotDiff:
        """What changed between two snapshots; `after` defaults to now."""
        return timetravel.diff(before, after if after is not None else await self.snapshot())

    async def export(self, path: str | Path) -> ExportReport:
        """Write everything, history included, to one portable file."""
        return await export_bank(self.bank, Path(path))

    async def export_graph(
        self,
        path: str | Path | None = None,
        format: GraphFormat = "html",
        *,
        as_of: AsOf | None = None,
        include_hidden: bool = True,
    ) -> GraphExport:
        """The event graph with the turns it rests on, as a self-contained page,
        node-link JSON or GraphML; also written to `path`.

        Without `include_hidden`, what was deleted or rewritten is left out. Raises
        `ConfigError`, `InputError`.
        """
        place = Path(path) if path is not None else None
        return await export_graph(
            self.bank, place, format=format, as_of=as_of, include_hidden=include_hidden
        )

    async def import_(self, path: str | Path) -> ExportReport:
        """Read an export into this memory, which must be empty.

        Raises `SnapshotMismatch`, `InputError`.
        """
        return await import_bank(self.bank, Path(path))

    def _of(self, bank: MemoryBank) -> Memory:
        return Memory(bank, recipe=self.recipe, capture_content=self.capture_content)

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


async def ranked(
    memory: Memory,
    text: str,
    *,
    k: int = 10,
    where: Filter | None = None,
    as_of: AsOf | None = None,
    recipe: Recipe | str | None = None,
    max_tokens: int | None = None,
) -> list[tuple[MemoryItem, float]]:
    """The items and scores that `Memory.search` finds, without the reasons and in less time.

    Raises `ConfigError`.
    """
    with operation_span("search_memory", capture=memory.capture_content) as one:
        asked = await _asked(
            memory, text, k=k, where=where, as_of=as_of, recipe=recipe, max_tokens=max_tokens
        )
        found = await asked[0].ranked(asked[1], k=k) if asked is not None else []
        if one.recording and asked is not None:
            put_search(one, asked[1], [item for item, _ in found], k=k)
        return found


async def _asked(
    memory: Memory,
    text: str,
    *,
    k: int,
    where: Filter | None,
    as_of: AsOf | None,
    recipe: Recipe | str | None,
    max_tokens: int | None,
) -> tuple[MemoryBank, Query] | None:
    """Whom to ask what; None for an empty text. Raises `ConfigError`."""
    if k < 1:
        raise ConfigError(f"k is {k}; ask for at least 1 item")
    if max_tokens is not None and max_tokens < 1:
        raise ConfigError(f"max_tokens is {max_tokens}; allow at least 1 token")
    chosen = recipe_of(recipe) if recipe is not None else memory.recipe
    if max_tokens is not None:
        chosen = chosen.model_copy(update={"max_tokens": max_tokens})
    bank = memory.bank if as_of is None or as_of.now else await timetravel.as_of(memory.bank, as_of)
    if not text.strip():
        return None
    return bank, Query(text=text, where=where or _NO_FILTER, recipe=chosen)


def _as_error(rejected: Rejected, bank: MemoryBank) -> StoreError | InputError:
    user = bank.scope.user_id
    if rejected.reason is RejectReason.UNKNOWN_ID:
        return MemoryNotFound(f"{rejected.detail} (user {user!r})")
    if rejected.reason is RejectReason.STALE_VERSION and isinstance(rejected.op, Update | Delete):
        item = bank.state.items.get(rejected.op.id)
        return VersionConflict(
            rejected.detail, expected=rejected.op.version or 0, actual=item.version if item else 0
        )
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


def _checked_expiry(
    ttl: timedelta | None, expires_at: datetime | None, *, now: datetime
) -> datetime | None:
    if ttl is not None and expires_at is not None:
        raise InputError("both ttl and expires_at are given; give one of them")
    if ttl is not None:
        if not isinstance(ttl, timedelta):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError(f"the ttl is a {type(ttl).__name__}; give a timedelta")
        if ttl <= timedelta(0):
            raise InputError(f"the ttl is {ttl}; give a time longer than nothing")
        try:
            return now + ttl
        except OverflowError:
            raise InputError(
                f"the ttl of {ttl.days:,} days ends after the year 9999; leave it out to keep the memory"
            ) from None
    if expires_at is not None and as_utc(expires_at) <= now:
        raise InputError(
            f"expires_at {expires_at.isoformat()} has passed already; it is {now.isoformat()}"
        )
    return expires_at


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
            raise InputError(
                f"metadata key {key!r}: keys that start with an underscore are reserved for the system"
            )
        checked[key] = _checked_value(key, value)  # pyright: ignore[reportUnknownArgumentType]
    size = sum(len(key) + len(str(value)) for key, value in checked.items())
    if size > MAX_METADATA_CHARS:
        raise InputError(
            f"the metadata has {size:,} characters, a memory holds at most {MAX_METADATA_CHARS:,}"
        )
    return checked


def _checked_value(key: str, value: object) -> object:
    if isinstance(value, float) and not isfinite(value):
        raise InputError(f"metadata {key!r} is {value}; numbers must be finite")
    if isinstance(value, int) and value.bit_length() > 63:
        raise InputError(
            f"metadata {key!r} is an integer of {value.bit_length()} bits; 63 are the most"
        )
    if value is not None and not isinstance(value, str | int | float):
        raise InputError(
            f"metadata {key!r} is a {type(value).__name__}; values are texts, numbers, booleans or None"
        )
    return value
