"""Snapshots as JSON text, and the digest of a replayed session.

A resumed run and a test compare them.

The text holds content only; vectors are a cache and are made again by the bank that
continues from it. Its digest is proved when a bank continues (`SnapshotMismatch`), so a
text that was altered is not played from.
"""

from __future__ import annotations

import hashlib
from typing import Annotated

from pydantic import Field, ValidationError

from environments.errors import EnvironmentFault
from environments.records import SessionTrace
from memagent.core.records import Event, EventEdge, ItemStats, MemoryItem, Record, Session
from memagent.core.snapshot import MemorySnapshot, PlainGraph
from memagent.core.trials import Trial

FORMAT = "memagent-snapshot/1"

_TIMES = {
    "usage": {"seconds"},
    "chunks": {"__all__": {"usage": {"seconds"}, "responses": {"__all__": {"usage": {"seconds"}}}}},
}
"""Parts of a report that differ from run to run."""


def _is_empty(value: tuple[object, ...]) -> bool:
    return not value


class _Content(Record):
    """A snapshot's content, every list in order of ids."""

    format: str = FORMAT
    digest: str
    items: tuple[MemoryItem, ...]
    archive: tuple[tuple[str, tuple[MemoryItem, ...]], ...]
    sessions: tuple[Session, ...]
    nodes: tuple[Event, ...]
    edges: tuple[EventEdge, ...]
    stats: tuple[tuple[str, ItemStats], ...]
    ordinals: tuple[tuple[str, int], ...]
    trials: Annotated[tuple[Trial, ...], Field(exclude_if=_is_empty)] = ()
    done: tuple[tuple[str, tuple[int, ...]], ...]
    seq: int


def snapshot_to_json(snapshot: MemorySnapshot) -> str:
    """Return the snapshot as one JSON object; equal content gives equal text."""
    return _Content(
        digest=snapshot.digest,
        items=tuple(sorted(snapshot.items.values(), key=lambda item: item.id)),
        archive=tuple(sorted(snapshot.archive.items())),
        sessions=tuple(sorted(snapshot.sessions.values(), key=lambda session: session.id)),
        nodes=tuple(sorted(snapshot.graph.all_nodes(), key=lambda node: node.id)),
        edges=tuple(
            sorted(
                snapshot.graph.all_edges(), key=lambda edge: (edge.source, edge.target, edge.key)
            )
        ),
        stats=tuple(sorted(snapshot.stats.items())),
        ordinals=tuple(sorted(snapshot.ordinals.items())),
        trials=tuple(sorted(snapshot.trials.values(), key=lambda trial: trial.id)),
        done=tuple(sorted((key, tuple(sorted(chunks))) for key, chunks in snapshot.done.items())),
        seq=snapshot.seq,
    ).model_dump_json()


def snapshot_from_json(text: str | bytes) -> MemorySnapshot:
    """Read the snapshot of a text; give it to `agent.at`.

    Raises `EnvironmentFault` for a text that is none.
    """
    try:
        content = _Content.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise EnvironmentFault(f"this is no snapshot: {place}: {first['msg']}") from error
    if content.format != FORMAT:
        raise EnvironmentFault(
            f"a snapshot of format {content.format!r} cannot be read, only {FORMAT!r}"
        )
    return MemorySnapshot(
        digest=content.digest,
        items={item.id: item for item in content.items},
        archive=dict(content.archive),
        sessions={session.id: session for session in content.sessions},
        graph=PlainGraph(nodes=content.nodes, edges=content.edges),
        stats=dict(content.stats),
        ordinals=dict(content.ordinals),
        trials={trial.id: trial for trial in content.trials},
        done={key: frozenset(chunks) for key, chunks in content.done},
        seq=content.seq,
    )


def trace_digest(trace: SessionTrace) -> str:
    """Return the SHA-256 over all that a session left but how long it took.

    It covers the report, and both memories to the last version and op id.
    """
    whole = hashlib.sha256(b"memagent/trace/1")
    report = trace.report.model_dump_json(exclude=_TIMES)
    for part in (
        trace.session_id,
        report,
        snapshot_to_json(trace.before),
        snapshot_to_json(trace.after),
    ):
        data = part.encode("utf-8", "replace")
        whole.update(len(data).to_bytes(8, "big") + data)
    return whole.hexdigest()
