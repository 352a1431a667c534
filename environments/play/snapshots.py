"""Snapshots kept while somebody needs them, and no longer.

A rollout leaves one memory a session, thousands in a training step; they share almost
everything, but kept for ever they still fill the machine. `SnapshotStore` counts who
holds each one and drops it with its last holder. A place (episode, sessions heard,
policy version) finds the memories that were there. The surprise: two memories may have
one digest and yet have heard different sessions, when nothing of a session was worth
keeping; so a snapshot is kept by place *and* digest, and looking it up by digest alone
refuses to guess.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Annotated, NamedTuple, Self

from pydantic import Field, ValidationError

from environments.errors import EnvironmentFault
from environments.records import SessionTrace
from memagent.core.records import Event, EventEdge, ItemStats, MemoryItem, Record, Session
from memagent.core.snapshot import MemorySnapshot, PlainGraph
from memagent.core.trials import Trial

_MAP_ENTRY_BYTES = 96
"""About what an entry of a persistent map takes beside key and value."""


class Place(NamedTuple):
    """A memory's place in training."""

    episode_id: str
    session: int
    """Number of sessions heard, so the number of the next one (from 0)."""
    policy_version: int


@dataclass(frozen=True, kw_only=True)
class StoreStats:
    """The statistics of a store."""

    live: int
    """Snapshots kept now."""
    peak: int
    """Most ever kept at once."""
    holders: int
    """Holds not released yet."""
    collected: int
    """Snapshots dropped so far."""
    estimated_bytes: int
    """Rough size of the live ones, what they share counted once."""


class Hold:
    """A claim on one snapshot; let go of it with `release()` or by leaving a `with` block.

    Releasing twice is harmless.
    """

    __slots__ = ("_store", "place", "snapshot")

    def __init__(self, store: SnapshotStore, place: Place, snapshot: MemorySnapshot) -> None:
        self._store: SnapshotStore | None = store
        self.place = place
        self.snapshot = snapshot

    @property
    def released(self) -> bool:
        """Whether it was let go."""
        return self._store is None

    def release(self) -> None:
        """Let go; the last holder's release drops the snapshot."""
        store, self._store = self._store, None
        if store is not None:
            store.drop(self.place, self.snapshot.digest)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


class SnapshotStore:
    """Counted snapshots by place and digest. Not for use from several threads."""

    def __init__(self) -> None:
        self._places: dict[Place, dict[str, MemorySnapshot]] = {}
        self._counts: dict[tuple[Place, str], int] = {}
        self._digests: dict[str, dict[Place, None]] = {}
        self._peak = self._collected = 0

    def hold(self, snapshot: MemorySnapshot, place: Place) -> Hold:
        """Keep a snapshot at a place until the hold is released.

        An equal one there already is kept instead of this one.
        """
        there = self._places.setdefault(place, {})
        stored = there.setdefault(snapshot.digest, snapshot)
        key = (place, snapshot.digest)
        self._counts[key] = self._counts.get(key, 0) + 1
        self._digests.setdefault(snapshot.digest, {})[place] = None
        self._peak = max(self._peak, len(self._counts))
        return Hold(self, place, stored)

    def at(self, place: Place) -> tuple[MemorySnapshot, ...]:
        """Return the snapshots at a place, oldest first; () when there is none."""
        return tuple(self._places.get(place, {}).values())

    def get(self, digest: str, place: Place | None = None) -> MemorySnapshot:
        """Return the snapshot of a digest, at a place if given.

        Raises `EnvironmentFault` when there is none, or several that have heard
        different sessions.
        """
        places = [
            known for known in self._digests.get(digest, ()) if place is None or known == place
        ]
        if not places:
            where = "" if place is None else f" at {tuple(place)}"
            raise EnvironmentFault(
                f"no snapshot {digest[:12]}{where} is held; it was released, or never kept"
            )
        snapshots = [self._places[at][digest] for at in places]
        if any(
            snapshot.done != snapshots[0].done
            or snapshot.sessions.keys() != snapshots[0].sessions.keys()
            for snapshot in snapshots[1:]
        ):
            raise EnvironmentFault(
                f"snapshots {digest[:12]} at {', '.join(str(tuple(at)) for at in places)} are "
                "equal but have heard different sessions; "
                "name the place"
            )
        return snapshots[0]

    def holders(self, digest: str, place: Place) -> int:
        """Return the number of holds on a snapshot that are not released."""
        return self._counts.get((place, digest), 0)

    def __len__(self) -> int:
        return len(self._counts)

    def __contains__(self, digest: object) -> bool:
        return digest in self._digests

    @property
    def stats(self) -> StoreStats:
        """Counts, and a size that takes a walk over all live items."""
        return StoreStats(
            live=len(self),
            peak=self._peak,
            holders=sum(self._counts.values()),
            collected=self._collected,
            estimated_bytes=estimated_bytes(
                snapshot for there in self._places.values() for snapshot in there.values()
            ),
        )

    def drop(self, place: Place, digest: str) -> None:
        """Count one holder less; the last one drops the snapshot. Holds call this."""
        key = (place, digest)
        self._counts[key] -= 1
        if self._counts[key]:
            return
        del self._counts[key], self._places[place][digest], self._digests[digest][place]
        self._collected += 1
        if not self._places[place]:
            del self._places[place]
        if not self._digests[digest]:
            del self._digests[digest]


def estimated_bytes(snapshots: Iterable[MemorySnapshot]) -> int:
    """Estimate the bytes of some snapshots' items, older versions and graphs.

    Every record counts once, however many snapshots share it.

    Leaves out search views and vectors, which belong to the bank, and the turns, which
    belong to the episode.
    """
    seen: set[int] = set()
    total = 0
    for snapshot in snapshots:
        total += 8 * _MAP_ENTRY_BYTES  # the paths from the roots of its own maps
        records: list[Record] = [
            *snapshot.items.values(),
            *snapshot.graph.all_nodes(),
            *snapshot.graph.all_edges(),
        ]
        records += [item for past in snapshot.archive.values() for item in past]
        for record in records:
            if id(record) not in seen:
                seen.add(id(record))
                total += _MAP_ENTRY_BYTES + _record_bytes(record)
    return total


def _record_bytes(record: Record) -> int:
    values = record.__dict__
    return sys.getsizeof(record) + sys.getsizeof(values) + sum(map(sys.getsizeof, values.values()))


# Snapshots as JSON text, and the digest of a replayed session.
#
# A resumed run and a test compare them.
#
# The text holds content only; vectors are a cache and are made again by the bank that
# continues from it. Its digest is proved when a bank continues (`SnapshotMismatch`), so a
# text that was altered is not played from.

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
