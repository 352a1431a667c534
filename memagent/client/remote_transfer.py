"""Exports and imports of a memory behind the service, and the jobs they wait for."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from memagent.client import wire
from memagent.client.http import Connection, path_of
from memagent.core.answers import AsOf
from memagent.core.errors import ConfigError, InputError, ModelError, StoreError, StoreReadOnly
from memagent.core.graph_document import GraphFormat
from memagent.memory.graph_export import GraphExport
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
