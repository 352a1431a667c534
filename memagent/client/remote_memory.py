"""The verbs of a memory over HTTP, with the names and results of `memory.facade.Memory`.

All rules are the service's. A snapshot taken here is a `RemoteSnapshot`: its digest and
place are known, its content stays with the service. A view of the past reads as of that
point and refuses to write, as a local one does.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Unpack

from pydantic import BaseModel, ValidationError

from memagent.client import wire
from memagent.client.http import path_of
from memagent.client.remote_care import RemoteCare
from memagent.client.remote_transfer import past_terms
from memagent.core.answers import AsOf, Filter, SearchEvidence
from memagent.core.errors import (
    ConfigError,
    InputError,
    fault_in,
)
from memagent.core.recipes import recipe_of
from memagent.core.records import MemoryItem, Scope, Session, TimeSpan
from memagent.core.reports import GraphStats
from memagent.core.snapshot import Commit, HistoryEntry, MemorySnapshot, SnapshotDiff
from memagent.memory.hits import SearchHits
from memagent.memory.options import AddArguments, SearchArguments, SearchOptions, check_add

_FILTER_TERMS = {
    "speakers": "speaker",
    "subjects": "subject",
    "kinds": "kind",
    "tags": "tag",
    "ids": "id",
    "session_ids": "session_id",
}
"""Query parameter of each field of a filter."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RemoteSnapshot(MemorySnapshot):
    """A snapshot that the service keeps; equal to any other of the same digest.

    Its mappings are empty here.
    """

    id: str = ""
    name: str = ""
    created_at: datetime | None = None


class RemoteMemory(RemoteCare):
    """The verbs of one memory behind the service.

    Cheap to make: it holds a connection and the point in time to read at.
    """

    # -- writing -----------------------------------------------------------------------

    async def add(self, text: str, **options: Unpack[AddArguments]) -> MemoryItem:
        """Remember a text as it is. Raises `InputError`."""
        check_add(options)
        fields: dict[str, Any] = {**options}
        ttl, tags = fields.pop("ttl", None), fields.get("tags", ())
        body = _body(
            wire.NewMemory,
            **fields
            | {
                "text": text,
                "source_turn_ids": tuple(fields.get("source_turn_ids", ())),
                "tags": tags if isinstance(tags, str) else tuple(tags),
                "ttl_s": ttl.total_seconds() if ttl is not None else None,
            },
        )
        return await self._write(MemoryItem, "POST", path_of("memories"), body=body)

    async def add_many(
        self, texts: Sequence[str], *, kind: str = "fact", subject: str | None = None
    ) -> list[MemoryItem]:
        """Remember many texts in one durable write; all or none."""
        if not texts:
            return []
        body = _body(wire.NewMemories, texts=tuple(texts), kind=kind, subject=subject)
        path = path_of("memories", "batch")
        return list((await self._write(wire.MemoryList, "POST", path, body=body)).items)

    async def update(
        self, item_id: str, text: str, *, version: int | None = None, valid: TimeSpan | None = None
    ) -> MemoryItem:
        """Write a new version.

        Raises `MemoryNotFound`, `VersionConflict`, `InputError`.
        """
        body = _body(wire.MemoryChange, text=text, version=version, valid=valid)
        return await self._write(MemoryItem, "PATCH", path_of("memories", item_id), body=body)

    async def delete(self, item_id: str, *, version: int | None = None) -> None:
        """Take an item out; restorable. Raises `MemoryNotFound`, `VersionConflict`."""
        self._check_writable()
        await self._connection.send(
            "DELETE", path_of("memories", item_id), params={"version": version}
        )

    async def delete_all(self, *, user_id: str) -> int:
        """Delete every item of this memory; `user_id` must name its user."""
        params = {"confirm": user_id}
        return (
            await self._write(wire.Deleted, "DELETE", path_of("memories"), params=params)
        ).deleted

    async def reset(self, *, user_id: str) -> None:
        """Erase this memory with its history and turns, beyond recovery, and wait for it.

        `user_id` must name the memory's user.
        """
        known = self._connection.user_id
        if known not in (None, user_id):
            raise ConfigError(
                f"this memory belongs to user {known!r}, not to {user_id!r}; nothing was deleted"
            )
        params = {"memory_only": True}
        await self.finish(
            await self._write(wire.Job, "POST", path_of("users", user_id, "erase"), params=params)
        )

    async def undo(self, commit_id: str | None = None) -> Commit:
        """Take back a commit, by default the last."""
        return await self._write(
            Commit, "POST", path_of("undo"), body=_body(wire.UndoRequest, commit_id=commit_id)
        )

    # -- reading -----------------------------------------------------------------------

    async def search(self, text: str, **options: Unpack[SearchArguments]) -> SearchHits:
        """Return at most k hits for a text, best first, each with the reasons for its place."""
        chosen = SearchOptions(**options)
        body = _body(
            wire.SearchRequest,
            text=text,
            k=chosen.k,
            where=chosen.filter(),
            as_of=chosen.as_of or self._as_of,
            recipe=recipe_of(chosen.recipe) if chosen.recipe is not None else None,
            max_tokens=chosen.max_tokens,
            explain=True,
            evidence=True,
            abstain_below=chosen.abstain_below,
        )
        hits = await self._connection.read(wire.Hits, "POST", path_of("search"), body=body)
        evidence = hits.evidence or SearchEvidence()
        return SearchHits(hits.hits, judge=lambda: evidence)

    async def context(self, text: str, *, k: int = 20, max_tokens: int = 2_000) -> wire.Context:
        """Return a block for a prompt, within a budget of tokens."""
        body = _body(wire.ContextRequest, text=text, k=k, max_tokens=max_tokens, as_of=self._as_of)
        return await self._connection.read(wire.Context, "POST", path_of("context"), body=body)

    async def get(self, item_id: str) -> MemoryItem:
        """Return an item. Raises `MemoryNotFound`."""
        return await self._connection.read(
            MemoryItem, "GET", path_of("memories", item_id), params=past_terms(self._as_of)
        )

    async def get_all(
        self,
        *,
        where: Filter | None = None,
        include_deleted: bool = False,
        limit: int | None = None,
        after: str | None = None,
    ) -> list[MemoryItem]:
        """Return the items that pass the filter, oldest said first, those behind `after`.

        They come page by page. A filter on spans of time raises `ConfigError`, an id
        `after` that the memory never held `MemoryNotFound`.
        """
        if limit is not None and limit < 0:
            raise ConfigError(f"limit is {limit}; ask for at least 0 items")
        terms = {
            **_filter_terms(where),
            "include_deleted": include_deleted,
            "after": after,
            **past_terms(self._as_of),
        }
        return [item async for item in self._pages(wire.MemoryPage, "memories", terms, limit)]

    async def sessions(self) -> list[Session]:
        """Return the stored sessions with their turns, oldest first."""
        return [session async for session in self._pages(wire.SessionPage, "sessions", {})]

    async def _pages(
        self,
        model: type[wire.MemoryPage | wire.SessionPage],
        path: str,
        terms: Mapping[str, Any],
        limit: int | None = None,
    ) -> AsyncGenerator[Any]:
        """Yield the entries of a list, at most `limit`, page by page."""
        cursor: str | None = None
        left = limit
        while left is None or left > 0:
            room = wire.MAX_PAGE if left is None else min(wire.MAX_PAGE, left)
            params = {**terms, "limit": room, "cursor": cursor}
            page = await self._connection.read(model, "GET", path_of(path), params=params)
            for entry in page.items:
                yield entry
            left = left - len(page.items) if left is not None else None
            cursor = page.next_cursor
            if cursor is None:
                return

    async def history(self, item_id: str) -> tuple[HistoryEntry, ...]:
        """Return every change of an item, oldest first."""
        path = path_of("memories", item_id, "history")
        return (await self._connection.read(wire.History, "GET", path)).entries

    async def graph_stats(self) -> GraphStats:
        """Return figures of the event graph."""
        return await self._connection.read(GraphStats, "GET", path_of("graph", "stats"))

    # -- time --------------------------------------------------------------------------

    async def as_of(self, when: AsOf) -> RemoteMemory:
        """Return a read-only view of the memory at a point in time."""
        return RemoteMemory(self._connection, as_of=when)

    async def snapshot(self) -> RemoteSnapshot:
        """Have the service keep this point, and return it."""
        self._check_writable()
        info = await self._write(
            wire.SnapshotInfo, "POST", path_of("snapshots"), body=wire.NewSnapshot()
        )
        return RemoteSnapshot(
            digest=info.digest, seq=info.seq, id=info.id, name=info.name, created_at=info.created_at
        )

    async def fork(self) -> RemoteMemory:
        """Return a private copy of the memory; its writes never reach this one."""
        start = await self.snapshot()
        fork = await self._write(wire.Fork, "POST", path_of("snapshots", start.id, "fork"))
        scope = Scope(user_id=fork.user_id, agent_id=fork.agent_id, run_id=fork.run_id)
        return RemoteMemory(self._connection.about(scope))

    async def restore(self, what: MemorySnapshot | str) -> None:
        """Put the memory back to a snapshot, or bring back one deleted item by its id."""
        if isinstance(what, str):
            await self._write(MemoryItem, "POST", path_of("memories", what, "restore"))
        else:
            await self._write(
                wire.SnapshotInfo, "POST", path_of("snapshots", _id_of(what), "restore")
            )

    async def diff(
        self, before: MemorySnapshot, after: MemorySnapshot | None = None
    ) -> SnapshotDiff:
        """Return the changes between two snapshots; `after` defaults to now."""
        params = {"to": _id_of(after) if after is not None else None}
        return await self._connection.read(
            SnapshotDiff, "GET", path_of("snapshots", _id_of(before), "diff"), params=params
        )


def _filter_terms(where: Filter | None) -> dict[str, Any]:
    if where is None:
        return {}
    if where.valid is not None or where.said is not None:
        raise ConfigError("a list over HTTP takes no filter on spans of time; use search, or as_of")
    return {
        term: sorted(values)
        for name, term in _FILTER_TERMS.items()
        if (values := getattr(where, name))
    } | ({"min_trust": where.min_trust.value} if where.min_trust is not None else {})


def _id_of(snapshot: MemorySnapshot) -> str:
    if not isinstance(snapshot, RemoteSnapshot):
        raise ConfigError(
            "the service knows only snapshots that were taken with this client's memory.snapshot()"
        )
    return snapshot.id


def _body(model: type[BaseModel], **fields: Any) -> Any:
    """Make a body, checked before it is sent. Raises `InputError` in one line."""
    try:
        return model(**{name: value for name, value in fields.items() if value is not None})
    except ValidationError as exc:
        raise InputError(f"the request cannot be sent: {fault_in(exc)}") from exc
