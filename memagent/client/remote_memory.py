"""The verbs of a memory over HTTP: the same names and results as
`memagent.memory.facade.Memory`, the rules all in the service.

A snapshot taken here is a `RemoteSnapshot`: its digest and place are known, its content
stays with the service. A view of the past reads as of that point and refuses to write,
as a local one does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from memagent.client import wire
from memagent.client.http import Connection, path_of
from memagent.core.answers import AsOf, Filter, Hit
from memagent.core.errors import (
    ConfigError,
    InputError,
    ModelError,
    StoreError,
    StoreReadOnly,
    fault_in,
)
from memagent.core.graph_document import GraphFormat
from memagent.core.recipes import Recipe, recipe_of
from memagent.core.records import MemoryItem, Scope, Session, TimeSpan
from memagent.core.reports import GraphStats
from memagent.core.snapshot import Commit, HistoryEntry, MemorySnapshot, SnapshotDiff
from memagent.memory.facade import Scalar
from memagent.memory.graph_export import GraphExport
from memagent.memory.transfer import ExportReport

_NOW = AsOf()
_PAGE = {"limit": wire.MAX_PAGE}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RemoteSnapshot(MemorySnapshot):
    """A snapshot that the service keeps; equal to any other of the same digest.

    Its mappings are empty here.
    """

    id: str = ""
    name: str = ""
    created_at: datetime | None = None


class RemoteMemory:
    """The verbs.

    Cheap to make; holds its connection and the point in time it reads at.
    """

    def __init__(self, connection: Connection, *, as_of: AsOf = _NOW) -> None:
        self._connection = connection
        self._as_of = as_of

    # -- writing -----------------------------------------------------------------------

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
        """Remember a text as it is. Raises `InputError`."""
        body = _body(
            wire.NewMemory,
            text=text,
            id=id,
            kind=kind,
            subject=subject,
            speaker=speaker,
            valid=valid,
            said_at=said_at,
            source_turn_ids=tuple(source_turn_ids),
            tags=tags if isinstance(tags, str) else tuple(tags),
            metadata=metadata if metadata is not None else {},
            ttl_s=ttl.total_seconds() if ttl is not None else None,
            expires_at=expires_at,
        )
        return await self._write(MemoryItem, "POST", path_of("memories"), body=body)

    async def add_many(
        self, texts: Sequence[str], *, kind: str = "fact", subject: str | None = None
    ) -> list[MemoryItem]:
        """Remember many texts in one durable write; all or none."""
        if not texts:
            return []
        body = _body(wire.NewMemories, texts=tuple(texts), kind=kind, subject=subject)
        return list(
            (
                await self._write(wire.MemoryList, "POST", path_of("memories", "batch"), body=body)
            ).items
        )

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
        return (
            await self._write(
                wire.Deleted, "DELETE", path_of("memories"), params={"confirm": user_id}
            )
        ).deleted

    async def reset(self, *, user_id: str) -> None:
        """Erase this memory with its history and turns, beyond recovery, and wait for
        it; `user_id` must name its user.
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
        """At most k items for a text, best first, each with why it is there."""
        body = _body(
            wire.SearchRequest,
            text=text,
            k=k,
            where=where or Filter(),
            as_of=as_of or self._as_of,
            recipe=recipe_of(recipe) if recipe is not None else None,
            max_tokens=max_tokens,
            explain=True,
        )
        return list(
            (await self._connection.read(wire.Hits, "POST", path_of("search"), body=body)).hits
        )

    async def context(self, text: str, *, k: int = 20, max_tokens: int = 2_000) -> wire.Context:
        """A block for a prompt, within a budget of tokens."""
        body = _body(wire.ContextRequest, text=text, k=k, max_tokens=max_tokens, as_of=self._as_of)
        return await self._connection.read(wire.Context, "POST", path_of("context"), body=body)

    async def get(self, item_id: str) -> MemoryItem:
        """An item. Raises `MemoryNotFound`."""
        return await self._connection.read(
            MemoryItem, "GET", path_of("memories", item_id), params=self._past()
        )

    async def get_all(
        self,
        *,
        where: Filter | None = None,
        include_deleted: bool = False,
        limit: int | None = None,
    ) -> list[MemoryItem]:
        """Items that pass the filter, oldest said first, page by page.

        A filter on spans of time raises `ConfigError`.
        """
        if limit is not None and limit < 0:
            raise ConfigError(f"limit is {limit}; ask for at least 0 items")
        terms = {**_filter_terms(where), "include_deleted": include_deleted, **self._past()}
        found: list[MemoryItem] = []
        cursor: str | None = None
        while limit is None or len(found) < limit:
            room = wire.MAX_PAGE if limit is None else min(wire.MAX_PAGE, limit - len(found))
            page = await self._connection.read(
                wire.MemoryPage,
                "GET",
                path_of("memories"),
                params={**terms, "limit": room, "cursor": cursor},
            )
            found += page.items
            cursor = page.next_cursor
            if cursor is None:
                break
        return found

    async def sessions(self) -> list[Session]:
        """Stored sessions with their turns, oldest first."""
        found: list[Session] = []
        cursor: str | None = None
        while True:
            page = await self._connection.read(
                wire.SessionPage, "GET", path_of("sessions"), params={**_PAGE, "cursor": cursor}
            )
            found += page.items
            cursor = page.next_cursor
            if cursor is None:
                return found

    async def history(self, item_id: str) -> tuple[HistoryEntry, ...]:
        """Every change of an item, oldest first."""
        return (
            await self._connection.read(
                wire.History, "GET", path_of("memories", item_id, "history")
            )
        ).entries

    async def graph_stats(self) -> GraphStats:
        """Figures of the event graph."""
        return await self._connection.read(GraphStats, "GET", path_of("graph", "stats"))

    # -- time --------------------------------------------------------------------------

    async def as_of(self, when: AsOf) -> RemoteMemory:
        """A read-only view of the memory at a point in time."""
        return RemoteMemory(self._connection, as_of=when)

    async def snapshot(self) -> RemoteSnapshot:
        """Have the service remember this point."""
        self._check_writable()
        info = await self._write(
            wire.SnapshotInfo, "POST", path_of("snapshots"), body=wire.NewSnapshot()
        )
        return RemoteSnapshot(
            digest=info.digest, seq=info.seq, id=info.id, name=info.name, created_at=info.created_at
        )

    async def fork(self) -> RemoteMemory:
        """A private copy of the memory as it is; its writes never reach this one."""
        taken = await self.snapshot()
        made = await self._write(wire.Fork, "POST", path_of("snapshots", taken.id, "fork"))
        scope = Scope(user_id=made.user_id, agent_id=made.agent_id, run_id=made.run_id)
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
        """What changed between two snapshots; `after` defaults to now."""
        params = {"to": _id_of(after) if after is not None else None}
        return await self._connection.read(
            SnapshotDiff, "GET", path_of("snapshots", _id_of(before), "diff"), params=params
        )

    # -- moving ------------------------------------------------------------------------

    async def export(self, path: str | Path) -> ExportReport:
        """Have everything exported and write this memory's file."""
        user_id = self._connection.user_id
        if user_id is None:
            raise ConfigError(
                "an export needs to know whose memory it is; give the client its user_id"
            )
        job = await self.finish(
            await self._write(wire.Job, "POST", path_of("users", user_id, "export"))
        )
        files: list[dict[str, Any]] = (job.result or {}).get("files", [])
        mine = {name: self._connection.terms.get(name) for name in ("agent_id", "run_id")}
        found = next(
            (one for one in files if all(one[name] == value for name, value in mine.items())), None
        )
        if found is None:
            raise InputError("there is nothing to export: the memory is empty")
        response = await self._connection.send(
            "GET", path_of("jobs", job.id, "files", str(found["number"]))
        )
        place = Path(path)
        try:
            await asyncio.to_thread(place.write_bytes, response.content)
        except OSError as exc:
            raise InputError(
                f"{place} cannot be written: {exc.strerror}; nothing was exported"
            ) from exc
        return ExportReport(
            path=str(place),
            **{name: found[name] for name in ("rows", "items", "sessions", "digest")},
        )

    async def import_(self, path: str | Path) -> ExportReport:
        """Read an export into this memory, which must be empty."""
        user_id = self._connection.user_id
        if user_id is None:
            raise ConfigError(
                "an import needs to know whose memory it is; give the client its user_id"
            )
        try:
            content = await asyncio.to_thread(Path(path).read_bytes)
        except OSError as exc:
            raise InputError(f"{path}: cannot be read: {exc.strerror}") from exc
        report = await self._write(
            ExportReport,
            "POST",
            path_of("users", user_id, "import"),
            content=content,
            headers={"Content-Type": "application/x-ndjson"},
        )
        return report.model_copy(update={"path": str(path)})

    async def export_graph(
        self,
        path: str | Path | None = None,
        format: GraphFormat = "html",
        *,
        as_of: AsOf | None = None,
        include_hidden: bool = True,
    ) -> GraphExport:
        """The event graph as a self-contained page, node-link JSON or GraphML; also
        written to `path`.
        """
        params = {**_past(as_of or self._as_of), "format": format, "include_hidden": include_hidden}
        response = await self._connection.send("GET", path_of("graph"), params=params)
        if path is not None:
            try:
                await asyncio.to_thread(Path(path).write_bytes, response.content)
            except OSError as exc:
                raise InputError(f"{path} cannot be written: {exc.strerror}") from exc
        figures = {
            name: response.headers[f"x-graph-{name}"]
            for name in ("nodes", "edges", "turns", "digest")
        }
        return GraphExport.model_validate(
            {
                **figures,
                "path": str(path) if path is not None else None,
                "format": format,
                "text": response.text,
            },
            strict=False,
        )

    # -- jobs --------------------------------------------------------------------------

    async def finish(self, job: wire.Job, *, poll_s: float = 0.05) -> wire.Job:
        """Wait for a job. Raises `StoreError` or `ModelError` when it failed."""
        while job.state in (wire.JobState.QUEUED, wire.JobState.RUNNING):
            await asyncio.sleep(poll_s)
            poll_s = min(2 * poll_s, 2.0)
            job = await self._connection.read(wire.Job, "GET", path_of("jobs", job.id))
        if job.state is wire.JobState.FAILED:
            kind = (
                ModelError
                if (job.error or "").startswith(("model", "context", "budget"))
                else StoreError
            )
            raise kind(
                f"job {job.id} ({job.kind.value}) failed after {job.attempts} tries: {job.error}"
            )
        return job

    async def _write(self, model: Any, method: str, path: str, **given: Any) -> Any:
        self._check_writable()
        return await self._connection.read(model, method, path, **given)

    def _check_writable(self) -> None:
        if not self._as_of.now:
            raise StoreReadOnly("a view of the past is open for reading only")

    def _past(self) -> dict[str, Any]:
        return _past(self._as_of)


def _past(when: AsOf) -> dict[str, Any]:
    recorded = when.recorded
    moments = {"as_of_said": when.said, "as_of_valid": when.valid}
    if isinstance(recorded, int):
        return {"as_of_seq": recorded, **_written(moments)}
    return _written({"as_of_recorded": recorded, **moments})


def _written(moments: Mapping[str, datetime | None]) -> dict[str, Any]:
    return {name: moment.isoformat() for name, moment in moments.items() if moment is not None}


def _filter_terms(where: Filter | None) -> dict[str, Any]:
    if where is None:
        return {}
    if where.valid is not None or where.said is not None:
        raise ConfigError("a list over HTTP takes no filter on spans of time; use search, or as_of")
    names = {
        "speakers": "speaker",
        "subjects": "subject",
        "kinds": "kind",
        "tags": "tag",
        "ids": "id",
    }
    names["session_ids"] = "session_id"
    return {
        term: sorted(getattr(where, name)) for name, term in names.items() if getattr(where, name)
    }


def _id_of(snapshot: MemorySnapshot) -> str:
    if not isinstance(snapshot, RemoteSnapshot):
        raise ConfigError(
            "the service knows only snapshots that were taken with this client's memory.snapshot()"
        )
    return snapshot.id


def _body(model: type[BaseModel], **given: Any) -> Any:
    """A body, checked before it is sent. Raises `InputError` in one line."""
    try:
        return model(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as exc:
        raise InputError(f"the request cannot be sent: {fault_in(exc)}") from exc
