"""The verbs of a memory over HTTP, with the names and results of `memory.facade.Memory`.

All rules are the service's. A snapshot taken here is a `RemoteSnapshot`: its digest and
place are known, its content stays with the service. A view of the past reads as of that
point and refuses to write, as a local one does.

`RemoteTransfer` has exports, imports and the jobs they wait for, `RemoteCare` the verbs
of `memory.care.verbs`: review, the traces of a source, and erasure.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Unpack

from pydantic import BaseModel, ValidationError

from memagent.client import wire, wire as care_wire
from memagent.client.http import Connection, path_of
from memagent.core.answers import AsOf, Filter, GraphFormat, SearchEvidence
from memagent.core.errors import (
    ConfigError,
    InputError,
    ModelError,
    StoreError,
    StoreReadOnly,
    fault_in,
)
from memagent.core.recipes import recipe_of
from memagent.core.records import MemoryItem, Scope, Session, TimeSpan
from memagent.core.reports import ErasureReceipt, GraphStats, Quarantined, SourceFilter, Touched
from memagent.core.snapshot import Commit, HistoryEntry, MemorySnapshot, SnapshotDiff
from memagent.memory.graph_export import GraphExport
from memagent.memory.options import (
    AddArguments,
    SearchArguments,
    SearchHits,
    SearchOptions,
    check_add,
)
from memagent.memory.transfer import ExportReport

_NOW = AsOf()


class RemoteTransfer:
    """Exports, imports and jobs of one memory behind the service."""

    def __init__(self, connection: Connection, *, as_of: AsOf = _NOW) -> None:
        self._connection = connection
        self._as_of = as_of

    async def export(self, path: str | Path) -> ExportReport:
        """Have the service export everything, and write this memory's file."""
        job = await self._write(
            wire.Job, "POST", path_of("users", self._user("an export"), "export")
        )
        job = await self.finish(job)
        files: list[dict[str, Any]] = (job.result or {}).get("files", [])
        own = {name: self._connection.terms.get(name) for name in ("agent_id", "run_id")}
        file = next((file for file in files if own.items() <= file.items()), None)
        if file is None:
            raise InputError("there is nothing to export: the memory is empty")
        response = await self._connection.send(
            "GET", path_of("jobs", job.id, "files", str(file["number"]))
        )
        await _write_file(Path(path), response.content, "; nothing was exported")
        figures = {name: file[name] for name in ("rows", "items", "sessions", "digest")}
        return ExportReport(path=str(Path(path)), **figures)

    async def import_(self, path: str | Path) -> ExportReport:
        """Import an export into this memory, which must be empty."""
        user_id = self._user("an import")
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

    def _user(self, purpose: str) -> str:
        user_id = self._connection.user_id
        if user_id is None:
            raise ConfigError(
                f"{purpose} needs to know whose memory it is; give the client its user_id"
            )
        return user_id

    async def export_graph(
        self,
        path: str | Path | None = None,
        format: GraphFormat = "html",
        *,
        as_of: AsOf | None = None,
        include_hidden: bool = True,
    ) -> GraphExport:
        """Export the event graph as a self-contained page, node-link JSON or GraphML.

        The export is also written to `path`, if one is given.
        """
        params = {
            **past_terms(as_of or self._as_of),
            "format": format,
            "include_hidden": include_hidden,
        }
        response = await self._connection.send("GET", path_of("graph"), params=params)
        if path is not None:
            await _write_file(Path(path), response.content)
        figures = {
            name: response.headers[f"x-graph-{name}"]
            for name in ("nodes", "edges", "turns", "digest")
        }
        place = str(path) if path is not None else None
        return GraphExport.model_validate(
            {**figures, "path": place, "format": format, "text": response.text}, strict=False
        )

    # -- jobs --------------------------------------------------------------------------

    async def finish(self, job: wire.Job, *, poll_s: float = 0.05) -> wire.Job:
        """Wait for a job. Raises `StoreError` or `ModelError` when it failed."""
        while job.state in (wire.JobState.QUEUED, wire.JobState.RUNNING):
            await asyncio.sleep(poll_s)
            poll_s = min(2 * poll_s, 2.0)
            job = await self._connection.read(wire.Job, "GET", path_of("jobs", job.id))
        if job.state is wire.JobState.FAILED:
            by_model = (job.error or "").startswith(("model", "context", "budget"))
            raise (ModelError if by_model else StoreError)(
                f"job {job.id} ({job.kind.value}) failed after {job.attempts} tries: {job.error}"
            )
        return job

    async def _write(self, model: Any, method: str, path: str, **request: Any) -> Any:
        self._check_writable()
        return await self._connection.read(model, method, path, **request)

    def _check_writable(self) -> None:
        if not self._as_of.now:
            raise StoreReadOnly("a view of the past is open for reading only")


def past_terms(when: AsOf) -> dict[str, Any]:
    """Return the query parameters that name a point in time."""
    moments = {"as_of_said": when.said, "as_of_valid": when.valid}
    seq: dict[str, Any] = {}
    if isinstance(when.recorded, int):
        seq = {"as_of_seq": when.recorded}
    else:
        moments["as_of_recorded"] = when.recorded
    return seq | {name: moment.isoformat() for name, moment in moments.items() if moment}


async def _write_file(path: Path, content: bytes, outcome: str = "") -> None:
    try:
        await asyncio.to_thread(path.write_bytes, content)
    except OSError as exc:
        raise InputError(f"{path} cannot be written: {exc.strerror}{outcome}") from exc


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
