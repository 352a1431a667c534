"""The verbs of a memory over HTTP, with the names and results of `memory.facade.Memory`.

All rules are the service's. A snapshot taken here is a `RemoteSnapshot`: its digest and
place are known, its content stays with the service. A view of the past reads as of that
point and refuses to write, as a local one does.

`AsyncClient`: an agent behind the REST service, with the verbs of a local one.

`Client` is the same for synchronous code, as `Agent` is beside `AsyncAgent`: one event
loop in a background thread runs the very same coroutines.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Self, TypeVar, Unpack

from pydantic import BaseModel

from memagent.client import wire
from memagent.client.http import DEFAULT_URL, ClientArguments, Connection, path_of
from memagent.client.wire import (
    ErasureReceipt,
    GraphStats,
    IngestReport,
    Learned,
    OutcomeArguments,
    Quarantined,
    Recall,
    SourceFilter,
    Touched,
    Trial,
)
from memagent.core.answers import (
    Answer,
    AsOf,
    Filter,
    GraphFormat,
    Hit,
    Question,
    Reply,
    SearchEvidence,
)
from memagent.core.errors import (
    ConfigError,
    InputError,
    StoreError,
    check_keywords,
    input_errors,
)
from memagent.core.recipes import Recipe, recipe_of
from memagent.core.records import (
    DEFAULT_THREAD,
    MemoryItem,
    Scope,
    Session,
    TimeSpan,
    Trust,
    system_clock,
)
from memagent.core.snapshot import Commit, HistoryEntry, MemorySnapshot, SnapshotDiff
from memagent.memory.graph_export import GraphExport
from memagent.memory.incoming import Said, as_question, as_session
from memagent.memory.options import AddArguments, SearchArguments, SearchHits, SearchOptions
from memagent.memory.transfer import ExportReport
from memagent.sync.live_agent import LoopThread, SyncMemory, blocking


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RemoteSnapshot(MemorySnapshot):
    """A snapshot that the service keeps; equal to any other of the same digest.

    Its mappings are empty here.
    """

    id: str = ""
    name: str = ""
    created_at: datetime | None = None


class RemoteMemory:
    """The verbs of one memory behind the service, as of the connection's point in time."""

    def __init__(self, connection: Connection) -> None:
        self._http = connection

    # -- writing -----------------------------------------------------------------------

    async def add(self, text: str, **options: Unpack[AddArguments]) -> MemoryItem:
        """Remember a text as it is. Raises `InputError`."""
        check_keywords("add()", options, AddArguments.__annotations__)
        fields: dict[str, Any] = {**options}
        ttl, tags = fields.pop("ttl", None), fields.get("tags", ())
        fields |= {
            "text": text,
            "source_turn_ids": tuple(fields.get("source_turn_ids", ())),
            "tags": tags if isinstance(tags, str) else tuple(tags),
            "ttl_s": ttl.total_seconds() if ttl is not None else None,
        }
        return await self._http.write(MemoryItem, "memories", body=_body(wire.NewMemory, **fields))

    async def add_many(
        self, texts: Sequence[str], *, kind: str = "fact", subject: str | None = None
    ) -> list[MemoryItem]:
        """Remember many texts in one durable write; all or none."""
        if not texts:
            return []
        body = _body(wire.NewMemories, texts=tuple(texts), kind=kind, subject=subject)
        return list((await self._http.write(wire.MemoryList, "memories", "batch", body=body)).items)

    async def update(
        self, item_id: str, text: str, *, version: int | None = None, valid: TimeSpan | None = None
    ) -> MemoryItem:
        """Write a new version.

        Raises `MemoryNotFound`, `VersionConflict`, `InputError`.
        """
        body = _body(wire.MemoryChange, text=text, version=version, valid=valid)
        return await self._http.write(MemoryItem, "memories", item_id, method="PATCH", body=body)

    async def delete(self, item_id: str, *, version: int | None = None) -> None:
        """Take an item out; restorable. Raises `MemoryNotFound`, `VersionConflict`."""
        self._http.check_writable()
        await self._http.send("DELETE", path_of("memories", item_id), params={"version": version})

    async def delete_all(self, *, user_id: str) -> int:
        """Delete every item of this memory; `user_id` must name its user."""
        request: dict[str, Any] = {"method": "DELETE", "params": {"confirm": user_id}}
        return (await self._http.write(wire.Deleted, "memories", **request)).deleted

    async def reset(self, *, user_id: str) -> None:
        """Erase this memory with its history and turns, beyond recovery, and wait for it.

        `user_id` must name the memory's user.
        """
        known = self._http.user_id
        if known not in (None, user_id):
            raise ConfigError(
                f"this memory belongs to user {known!r}, not to {user_id!r}; nothing was deleted"
            )
        path, params = ("users", user_id, "erase"), {"memory_only": True}
        await self._http.finish(await self._http.write(wire.Job, *path, params=params))

    async def undo(self, commit_id: str | None = None) -> Commit:
        """Take back a commit, by default the last."""
        body = _body(wire.UndoRequest, commit_id=commit_id)
        return await self._http.write(Commit, "undo", body=body)

    # -- care: review, the traces of a source, erasure ---------------------------------

    async def quarantine(self) -> list[Quarantined]:
        """Return the changes that were kept aside for review, oldest first."""
        return list((await self._http.read(wire.QuarantineList, "quarantine")).items)

    async def accept(self, quarantined_id: str) -> Commit:
        """Carry out a change that was kept aside. Raises `MemoryNotFound`, `VersionConflict`."""
        return await self._http.write(Commit, "quarantine", quarantined_id, "accept")

    async def refuse(self, quarantined_id: str) -> Commit:
        """Settle a change that was kept aside without carrying it out. Raises `MemoryNotFound`."""
        return await self._http.write(Commit, "quarantine", quarantined_id, "refuse")

    async def touched_by(self, source: SourceFilter) -> list[Touched]:
        """Return every memory that rests on a source. Raises `InputError` for an empty filter."""
        rows = await self._http.read(
            wire.TouchedList, "sources", "touched", method="POST", body=source
        )
        return list(rows.items)

    async def exclude(self, source: SourceFilter) -> Commit | None:
        """Delete every memory that rests on a source; None when there is none."""
        return (await self._http.write(wire.TakenBack, "sources", "exclude", body=source)).commit

    async def roll_back(self, source: SourceFilter) -> Commit | None:
        """Set every memory that rests on a source back; None when there is nothing to do."""
        return (await self._http.write(wire.TakenBack, "sources", "roll-back", body=source)).commit

    async def erase(self, item_id: str, *, keep_turns: bool = False) -> ErasureReceipt:
        """Erase one memory beyond recovery. Raises `MemoryNotFound`."""
        params = {"keep_turns": keep_turns}
        return await self._http.write(ErasureReceipt, "memories", item_id, "erase", params=params)

    async def erase_session(self, session_id: str) -> ErasureReceipt:
        """Erase a session beyond recovery. Raises `MemoryNotFound`."""
        return await self._http.write(ErasureReceipt, "sessions", session_id, "erase")

    # -- reading -----------------------------------------------------------------------

    async def search(self, text: str, **options: Unpack[SearchArguments]) -> SearchHits:
        """Return at most k hits for a text, best first, each with the reasons for its place."""
        check_keywords("search()", options, SearchArguments.__annotations__)
        chosen = SearchOptions(**options)
        body = _body(
            wire.SearchRequest,
            text=text,
            k=chosen.k,
            where=chosen.filter(),
            as_of=chosen.as_of or self._http.as_of,
            recipe=recipe_of(chosen.recipe) if chosen.recipe is not None else None,
            max_tokens=chosen.max_tokens,
            explain=True,
            evidence=True,
            abstain_below=chosen.abstain_below,
        )
        hits = await self._http.read(wire.Hits, "search", method="POST", body=body)
        return SearchHits(hits.hits, judge=lambda: hits.evidence or SearchEvidence())

    async def context(self, text: str, *, k: int = 20, max_tokens: int = 2_000) -> wire.Context:
        """Return a block for a prompt, within a budget of tokens."""
        past = self._http.as_of
        body = _body(wire.ContextRequest, text=text, k=k, max_tokens=max_tokens, as_of=past)
        return await self._http.read(wire.Context, "context", method="POST", body=body)

    async def get(self, item_id: str) -> MemoryItem:
        """Return an item. Raises `MemoryNotFound`."""
        return await self._http.read(
            MemoryItem, "memories", item_id, params=_past_terms(self._http.as_of)
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
        page: dict[str, Any] = {"include_deleted": include_deleted, "after": after}
        terms = {**_filter_terms(where or Filter()), **page, **_past_terms(self._http.as_of)}
        return [item async for item in self._http.pages(wire.MemoryPage, "memories", terms, limit)]

    async def sessions(self) -> list[Session]:
        """Return the stored sessions with their turns, oldest first."""
        return [session async for session in self._http.pages(wire.SessionPage, "sessions", {})]

    async def history(self, item_id: str) -> tuple[HistoryEntry, ...]:
        """Return every change of an item, oldest first."""
        return (await self._http.read(wire.History, "memories", item_id, "history")).entries

    async def graph_stats(self) -> GraphStats:
        """Return figures of the event graph."""
        return await self._http.read(GraphStats, "graph", "stats")

    # -- time --------------------------------------------------------------------------

    async def as_of(self, when: AsOf) -> RemoteMemory:
        """Return a read-only view of the memory at a point in time."""
        return RemoteMemory(self._http.about(as_of=when))

    async def snapshot(self) -> RemoteSnapshot:
        """Have the service keep this point, and return it."""
        info = await self._http.write(wire.SnapshotInfo, "snapshots", body=wire.NewSnapshot())
        return RemoteSnapshot(
            digest=info.digest, seq=info.seq, id=info.id, name=info.name, created_at=info.created_at
        )

    async def fork(self) -> RemoteMemory:
        """Return a private copy of the memory; its writes never reach this one."""
        start = await self.snapshot()
        fork = await self._http.write(wire.Fork, "snapshots", start.id, "fork")
        scope = Scope(user_id=fork.user_id, agent_id=fork.agent_id, run_id=fork.run_id)
        return RemoteMemory(self._http.about(scope))

    async def restore(self, what: MemorySnapshot | str) -> None:
        """Put the memory back to a snapshot, or bring back one deleted item by its id."""
        if isinstance(what, str):
            await self._http.write(MemoryItem, "memories", what, "restore")
        else:
            await self._http.write(wire.SnapshotInfo, "snapshots", _id_of(what), "restore")

    async def diff(
        self, before: MemorySnapshot, after: MemorySnapshot | None = None
    ) -> SnapshotDiff:
        """Return the changes between two snapshots; `after` defaults to now."""
        params = {"to": _id_of(after) if after is not None else None}
        start = _id_of(before)
        return await self._http.read(SnapshotDiff, "snapshots", start, "diff", params=params)

    # -- files -------------------------------------------------------------------------

    async def export(self, path: str | Path) -> ExportReport:
        """Have the service export everything, and write this memory's file."""
        file, content = await _exported(self._http)
        await _write_file(Path(path), content, "; nothing was exported")
        figures = {name: file[name] for name in ("rows", "items", "sessions", "digest")}
        return ExportReport(path=str(Path(path)), **figures)

    async def import_(self, path: str | Path) -> ExportReport:
        """Import an export into this memory, which must be empty."""
        user_id = self._http.user_for("an import")
        try:
            content = await asyncio.to_thread(Path(path).read_bytes)
        except OSError as exc:
            raise InputError(f"{path}: cannot be read: {exc.strerror}") from exc
        kind = {"Content-Type": "application/x-ndjson"}
        report = await self._http.write(
            ExportReport, "users", user_id, "import", content=content, headers=kind
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
        """Export the event graph as a self-contained page, node-link JSON or GraphML.

        The export is also written to `path`, if one is given.
        """
        terms = {"format": format, "include_hidden": include_hidden}
        params = _past_terms(as_of or self._http.as_of) | terms
        response = await self._http.send("GET", path_of("graph"), params=params)
        if path is not None:
            await _write_file(Path(path), response.content)
        names = ("nodes", "edges", "turns", "digest")
        figures = {name: response.headers[f"x-graph-{name}"] for name in names}
        place = str(path) if path is not None else None
        return GraphExport.model_validate(
            {**figures, "path": place, "format": format, "text": response.text}, strict=False
        )


async def _exported(connection: Connection) -> tuple[dict[str, Any], bytes]:
    """Have the service export everything; return this memory's file, figures and content."""
    job = await connection.write(wire.Job, "users", connection.user_for("an export"), "export")
    job = await connection.finish(job)
    files: list[dict[str, Any]] = (job.result or {}).get("files", [])
    own = {name: connection.terms.get(name) for name in ("agent_id", "run_id")}
    file = next((file for file in files if own.items() <= file.items()), None)
    if file is None:
        raise InputError("there is nothing to export: the memory is empty")
    place = path_of("jobs", job.id, "files", str(file["number"]))
    return file, (await connection.send("GET", place)).content


def _past_terms(when: AsOf) -> dict[str, Any]:
    """Return the query that names a point in time."""
    known = when.model_dump(mode="json", exclude_none=True)
    return {f"as_of_{'seq' if isinstance(at, int) else axis}": at for axis, at in known.items()}


async def _write_file(path: Path, content: bytes, outcome: str = "") -> None:
    try:
        await asyncio.to_thread(path.write_bytes, content)
    except OSError as exc:
        raise InputError(f"{path} cannot be written: {exc.strerror}{outcome}") from exc


def _filter_terms(where: Filter) -> dict[str, Any]:
    """Return the query that names a filter: the parameter of each field is its singular."""
    if where.valid is not None or where.said is not None:
        raise ConfigError("a list over HTTP takes no filter on spans of time; use search, or as_of")
    named = where.model_dump(mode="json", exclude_defaults=True)
    return {name.removesuffix("s"): value for name, value in named.items()}


def _id_of(snapshot: MemorySnapshot) -> str:
    if not isinstance(snapshot, RemoteSnapshot):
        raise ConfigError(
            "the service knows only snapshots that were taken with this client's memory.snapshot()"
        )
    return snapshot.id


def _body(model: type[BaseModel], **fields: Any) -> Any:
    """Make a body, checked before it is sent. Raises `InputError` in one line."""
    with input_errors("the request cannot be sent"):
        return model(**{name: value for name, value in fields.items() if value is not None})


class AsyncClient:
    """A client for coroutines; use it as a context manager or call `close()`.

    It belongs to one event loop, and needs the extra `client`.
    """

    def __init__(self, url: str = DEFAULT_URL, **options: Unpack[ClientArguments]) -> None:
        """Make a client that opens no connection yet.

        The keywords are those of `ClientArguments`. Raises `ConfigError`,
        `MissingExtra`, `InputError`.
        """
        settings: dict[str, Any] = {**options}
        names = {name: settings.pop(name, None) for name in ("user_id", "agent_id", "run_id")}
        terms = {name: value for name, value in names.items() if value is not None}
        with input_errors("the memory named cannot be one"):
            Scope.model_validate(terms)
        self._connection = Connection(url, terms=terms, **settings)

    @property
    def memory(self) -> RemoteMemory:
        """Direct verbs on the memory."""
        return RemoteMemory(self._connection)

    async def ask(
        self,
        question: Question | str,
        *,
        as_of: AsOf | None = None,
        min_trust: Trust | str | None = None,
    ) -> Answer:
        """Answer from memory, with citations; abstain when nothing fits.

        `min_trust` leaves out what is trusted less. Raises `ModelError`.
        """
        asked = as_question(question, as_of=as_of, min_trust=min_trust)
        return await self._connection.write(Answer, "questions", body=asked)

    async def stream(self, question: Question | str) -> AsyncGenerator[tuple[str, str]]:
        """Yield (name, JSON) of the answer's events: each `step`, then `answer`, then `done`."""
        async for event in self._connection.events(path_of("questions"), as_question(question)):
            yield event

    async def chat(
        self,
        text: str,
        *,
        speaker: str = "user",
        thread: str = DEFAULT_THREAD,
        system: str | None = None,
        min_trust: Trust | None = None,
    ) -> Reply:
        """Reply to a message of a conversation and have the exchange remembered.

        Raises `ModelError`; the text is stored even then.
        """
        body = wire.ChatRequest(
            text=as_question(text).text,
            speaker=speaker,
            thread=thread,
            system=system,
            min_trust=min_trust,
        )
        return await self._connection.write(Reply, "chat", body=body)

    async def remember(
        self, what: Said, *, at: datetime | None = None, session_id: str | None = None
    ) -> IngestReport:
        """Store turns and wait until they are remembered. Raises `InputError`."""
        body = _session_body(what, at, session_id)
        return await self._connection.write(
            IngestReport, "sessions", body=body, params={"wait": True}
        )

    async def remember_later(
        self, what: Said, *, at: datetime | None = None, session_id: str | None = None
    ) -> wire.Job:
        """Store turns durably and leave the rest to a job."""
        return await self._connection.write(
            wire.Job, "sessions", body=_session_body(what, at, session_id)
        )

    async def search(self, text: str, **options: Unpack[SearchArguments]) -> list[Hit]:
        """Return at most k hits for a text, best first."""
        return await self.memory.search(text, **options)

    async def context(self, text: str, *, k: int = 20, max_tokens: int = 2_000) -> wire.Context:
        """Return a block for a prompt, within a budget of tokens."""
        return await self.memory.context(text, k=k, max_tokens=max_tokens)

    async def recall(self, task: str, *, k: int = 10, recipe: Recipe | str | None = None) -> Recall:
        """Recall memories for a task and start a trial. Raises `InputError`."""
        body = wire.NewTrial(
            task=as_question(task).text,
            k=k,
            recipe=recipe_of(recipe) if recipe is not None else None,
        )
        return await self._connection.write(Recall, "trials", body=body)

    async def report(
        self, what: Recall | Trial | str, reward: float, **outcome: Unpack[OutcomeArguments]
    ) -> Learned:
        """Report what came of a trial; the same report again changes nothing.

        Raises `InputError` for another outcome, `MemoryNotFound`, `ModelError`.
        """
        trial_id = what if isinstance(what, str) else what.id
        done = {"steps": what.steps, "edits": what.edits} if isinstance(what, Trial) else {}
        body = _body(wire.TrialOutcome, **{"reward": reward, **done, **outcome})
        return await self._connection.write(Learned, "trials", trial_id, "report", body=body)

    async def tidy(self, budget: int | None = None) -> Commit | None:
        """Let the design's keeper put the memory in order; None when nothing was to do."""
        body = wire.TidyRequest(budget=budget)
        return (await self._connection.write(wire.Tidied, "tidy", body=body)).commit

    async def job(self, job_id: str) -> wire.Job:
        """Return a job as it stands. Raises `MemoryNotFound`."""
        return await self._connection.read(wire.Job, "jobs", job_id)

    async def finish(self, job: wire.Job) -> wire.Job:
        """Wait for a job. Raises `ModelError` or `StoreError` when it failed."""
        return await self._connection.finish(job)

    async def close(self) -> None:
        """Close the connections."""
        await self._connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _session_body(what: Said, at: datetime | None, session_id: str | None) -> wire.NewSession:
    session = as_session(what, at=at, session_id=session_id, now=system_clock())
    turns = tuple(wire.NewTurn(**turn.model_dump()) for turn in session.turns)
    return wire.NewSession(id=session.id, at=session.at, turns=turns)


T = TypeVar("T")
_CLOSED = "this client is closed; open another one"


class Client:
    """A client for synchronous code; use it as a context manager or call `close()`.

    Threads may share it. `client.memory` has the verbs of `agent.memory`.
    """

    def __init__(self, url: str = DEFAULT_URL, **options: Unpack[ClientArguments]) -> None:
        """Make a client that opens no connection yet; the keywords are `AsyncClient`'s.

        Raises `ConfigError`, `MissingExtra`, `InputError`.
        """
        self._client = AsyncClient(url, **options)
        self._thread = LoopThread()
        self._closed = False

    ask = blocking(AsyncClient.ask)
    chat = blocking(AsyncClient.chat)
    remember = blocking(AsyncClient.remember)
    remember_later = blocking(AsyncClient.remember_later)
    search = blocking(AsyncClient.search)
    context = blocking(AsyncClient.context)
    recall = blocking(AsyncClient.recall)
    report = blocking(AsyncClient.report)
    tidy = blocking(AsyncClient.tidy)
    job = blocking(AsyncClient.job)
    finish = blocking(AsyncClient.finish)

    @property
    def memory(self) -> SyncMemory:
        """Direct verbs on the memory."""
        return SyncMemory(lambda make: self._run(lambda client: make(client.memory)))

    def stream(self, question: Question | str) -> Iterator[tuple[str, str]]:
        """Yield (name, JSON) of the answer's events as they come."""
        if self._closed:
            raise StoreError(_CLOSED)
        yield from self._thread.iterate(self._client.stream(question))

    def _run(self, make: Callable[[AsyncClient], Coroutine[Any, Any, T]]) -> T:
        if self._closed:
            raise StoreError(_CLOSED)
        return self._thread.run(make(self._client))

    def close(self) -> None:
        """Close the connections; harmless when repeated."""
        if not self._closed:
            self._thread.run(self._client.close())
            self._closed = True
            self._thread.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
