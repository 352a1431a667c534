"""The checkpoints of a store: one a memory, in a folder beside the journal or on its server.

A checkpoint is a cache. It is made in the background when a memory has grown, and when
the store closes; it may be deleted at any time; and whatever is wrong with one is said
in the log and mended by replaying the journal. Rules: only the store's own writer makes
them, and only with the store's own embedder; none is larger than `MOST_BYTES`, and the
ones used longest ago go when the folder passes `MOST_FOLDER_BYTES`; while a memory is
erased none of it is made, and the old one is gone before the erasure is written.

The places that checkpoints lie in: a folder beside a file, or tables on a server.

The full check of a checkpoint: every part of it against a replay of the journal.
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, Protocol
from weakref import WeakSet

from memagent.checkpoints.checkpoint import (
    Origin,
    check_document,
    read_checkpoint,
    write_checkpoint,
)
from memagent.checkpoints.file import CheckpointFile, CheckpointUnusable, SectionWriter
from memagent.checkpoints.tables import Pause, maps_of
from memagent.core.crash_points import reach
from memagent.core.errors import StoreError
from memagent.core.records import EventEdge, Scope
from memagent.protocols import Embedder
from memagent.search.pipeline import Projected, Projection
from memagent.state.adjacency import GraphState
from memagent.state.fold import BankState

SUFFIX: Final = ".ckpt"
Replacing = Callable[[], AbstractContextManager[None]]
"""Entered while a new checkpoint takes its place; may raise to prevent it."""


class Begun(NamedTuple):
    """A checkpoint to be made."""

    scope: Scope
    seq: int
    chain: bytes
    """Chain hash of the journal's row at `seq`."""
    write: Callable[[BinaryIO], None]
    """Writes it to an empty file."""


class Place(Protocol):
    """Keeps one checkpoint a memory. Everything blocks, and may raise `OSError`."""

    @property
    def key(self) -> bytes | None:
        """The key that signs checkpoints; None where the store has none."""
        ...

    def path_of(self, scope: Scope) -> Path:
        """Return the path of a memory's checkpoint; on a server a name for messages only."""
        ...

    def open(self, scope: Scope) -> CheckpointFile:
        """Return a memory's checkpoint.

        Raises `FileNotFoundError` where there is none, `CheckpointUnusable`.
        """
        ...

    def size_of(self, scope: Scope) -> int | None:
        """Return the bytes of a memory's checkpoint, None where there is none."""
        ...

    def used(self, scope: Scope) -> None:
        """Note that a memory's checkpoint was used."""
        ...

    def put(self, begun: Begun, replacing: Replacing) -> None:
        """Make a checkpoint and replace the old one. Raises `CheckpointUnusable`."""
        ...

    def trim(self, most_bytes: int) -> None:
        """Delete the checkpoints used longest ago while all take more."""
        ...

    def drop(self, scope: Scope) -> None:
        """Delete a checkpoint that is of no use."""
        ...

    def erase(self, scope: Scope) -> None:
        """Delete a memory's checkpoint durably before the memory is erased.

        Raises `StoreError` when it cannot be deleted.
        """
        ...


# How often a folder is measured while as much is written as it may hold.
_LOOKS: Final = 64


class FolderPlace:
    """A file a memory, in a folder beside the journal."""

    def __init__(self, folder: Path, *, writes: bool, key: bytes | None = None) -> None:
        self._folder, self.key = folder, key
        # bytes written since the folder was last measured
        self._unmeasured: float = inf
        if writes:
            for left in folder.glob(f"*{SUFFIX}.*.tmp"):
                left.unlink(missing_ok=True)

    def path_of(self, scope: Scope) -> Path:
        """Return the path of a memory's checkpoint, whether there is one or not."""
        return self._folder / f"{name_of(scope)}{SUFFIX}"

    def open(self, scope: Scope) -> CheckpointFile:
        """Read a memory's file and check it."""
        return CheckpointFile.open(self.path_of(scope), self.key)

    def size_of(self, scope: Scope) -> int | None:
        """Return the bytes of a memory's file."""
        path = self.path_of(scope)
        return path.stat().st_size if path.exists() else None

    def used(self, scope: Scope) -> None:
        """Set the time of a memory's file."""
        os.utime(self.path_of(scope))

    def put(self, begun: Begun, replacing: Replacing) -> None:
        """Write the file beside the old one, and rename it."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.path_of(begun.scope)
        # Of its own: two threads may make a checkpoint of one memory at a time.
        fresh = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
        try:
            with open(fresh, "xb", opener=partial(os.open, mode=0o600)) as file:
                begun.write(file)
            self._unmeasured += fresh.stat().st_size
            with replacing():
                fresh.replace(path)
        except BaseException:
            fresh.unlink(missing_ok=True)
            raise
        reach("ckpt.renamed")
        _sync(self._folder)

    def trim(self, most_bytes: int) -> None:
        """Delete the files used longest ago; look only when much was written."""
        if self._unmeasured <= most_bytes / _LOOKS:
            return
        self._unmeasured = 0
        entries = os.scandir(self._folder)
        files = [(entry, entry.stat()) for entry in entries if entry.name.endswith(SUFFIX)]
        total = sum(stat.st_size for _, stat in files)
        for entry, stat in sorted(files, key=lambda pair: pair[1].st_mtime):
            if total <= most_bytes:
                return
            Path(entry.path).unlink(missing_ok=True)
            total -= stat.st_size

    def drop(self, scope: Scope) -> None:
        """Delete a memory's file."""
        self.path_of(scope).unlink(missing_ok=True)

    def erase(self, scope: Scope) -> None:
        """Delete a memory's file, and one that is being written, and make that durable."""
        path = self.path_of(scope)
        if not self._folder.exists():
            return
        try:
            for file in (path, *self._folder.glob(f"{path.name}.*.tmp")):
                file.unlink(missing_ok=True)
            _sync(self._folder)
        except OSError as exc:
            raise StoreError(
                f"the checkpoint {path} holds words of this memory and cannot be deleted "
                f"({exc}); nothing was erased. Delete it, or let memagent do so, and ask again"
            ) from exc


def _sync(folder: Path) -> None:
    """Make a rename or a removal in a folder durable, where the system can."""
    if sys.platform != "win32":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def name_of(scope: Scope) -> str:
    """Return the name of a memory's checkpoint: 64 hex digits that tell nobody whose it is."""
    return hashlib.sha256(b"memagent/checkpoint/" + scope.key.encode()).hexdigest()


_log = logging.getLogger(__name__)
MOST_BYTES: Final = 4 << 30
"""Largest checkpoint; a memory beyond it is replayed."""
MOST_FOLDER_BYTES: Final = 16 << 30
"""Most that all checkpoints of a store take together."""
FEWEST_ENTRIES: Final = 64
"""Entries of a journal, or items, from which on a checkpoint is worth its file, and the
fewest that lie between two of them while the store is open.
"""
GROWTH: Final = 2
"""A further checkpoint is made when a memory grew by one part in so many: each is written
whole, so all of a growing memory's take about three times the last one. What a kill
leaves to be replayed is a third of the memory at most.
"""
CLOSING_ENTRIES: Final = 64
"""Entries or items since the last checkpoint from which on closing makes another."""
_PAUSE_S: Final = 0.0005


def _size(content: Projection) -> int:
    """Return how much work a replay is: in entries, or in items where those hold many."""
    return max(content.state.seq, len(content.state.items))


@dataclass(slots=True)
class _Guard:
    """Keeps the writers of one place apart from its erasers, within this process."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    erasures: dict[str, int] = field(default_factory=dict[str, int])
    """How often each memory was erased."""
    erasing: set[str] = field(default_factory=set[str])


_GUARDS: Final[dict[Path, _Guard]] = {}


class Checkpoints:
    """The checkpoints in a place. Thread-safe.

    `chain_at` returns the chain hash of a journal's row, None where the journal has no
    such row or was erased since; it may block and may raise.
    """

    def __init__(
        self,
        place: Place,
        *,
        chain_at: Callable[[Scope, int], bytes | None],
        writes: bool = True,
    ) -> None:
        self.place, self._chain_at, self._writes = place, chain_at, writes
        folder = place.path_of(Scope()).parent
        self._guard = _GUARDS.setdefault(folder.absolute(), _Guard())
        self._lock = self._guard.lock
        self._last: dict[str, int] = {}
        """The size of each memory when its checkpoint was made."""
        self._running: dict[str, Future[None]] = {}
        self._memories: WeakSet[Projected] = WeakSet()
        self._pool: ThreadPoolExecutor | None = None
        self._pid = os.getpid()

    def path_of(self, scope: Scope) -> Path:
        """Return the path of a memory's checkpoint, whether there is one or not."""
        return self.place.path_of(scope)

    # -- reading -----------------------------------------------------------------------

    def load(self, scope: Scope, embedder: Embedder) -> Projection | None:
        """Return a memory's checkpoint, checked; None where the journal must be replayed.

        Blocks.
        """
        path = self.path_of(scope)
        try:
            content = self.read(scope, embedder)
        except FileNotFoundError:
            return None
        except (CheckpointUnusable, OSError) as exc:
            _log.warning("the checkpoint %s is not used, the journal is replayed: %s", path, exc)
            if self._writes:
                with suppress(OSError):
                    self.place.drop(scope)
            return None
        lags = len(content.pending) > max(CLOSING_ENTRIES, len(content.state.items) // (4 * GROWTH))
        with self._lock:
            # One that was made before its items were indexed is soon made again.
            self._last[scope.key] = 0 if lags else _size(content)
        with suppress(OSError):
            self.place.used(scope)
        return content

    def read(self, scope: Scope, embedder: Embedder | None = None) -> Projection:
        """Return a memory's checkpoint, with the view if the embedder is the one it is of.

        None takes any embedder. Blocks. Raises `CheckpointUnusable`, `FileNotFoundError`
        where there is none, and `OSError`.
        """
        file = self.place.open(scope)
        try:
            seq, (embedder_id, dim) = int(file.facts["seq"]), file.facts["embedder"]
        except (KeyError, TypeError, ValueError) as exc:
            raise CheckpointUnusable("its manifest lacks something") from exc
        chain = self._chain_at(scope, seq)
        if chain is None:
            raise CheckpointUnusable("the journal was erased, or is shorter")
        if embedder is not None:
            embedder_id, dim = embedder.id, embedder.dim
        return read_checkpoint(file, Origin(name_of(scope), chain.hex(), embedder_id, dim))

    # -- writing -----------------------------------------------------------------------

    def watch(self, memory: Projected) -> None:
        """Make a checkpoint of a memory when the store closes, if it is open still."""
        if self._writes:
            self._memories.add(memory)

    def grown(self, memory: Projected, *, seq: int, items: int) -> None:
        """Begin a checkpoint in the background if the memory grew enough; returns at once."""
        if max(seq, items) < FEWEST_ENTRIES:
            return
        key = memory.scope.key
        due = self._last.get(key, 0) + max(FEWEST_ENTRIES, items // GROWTH)
        if max(seq, items) < due or not self._writes:
            return
        if key in self._guard.erasing or key in self._running:
            return
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(1, thread_name_prefix="memagent-checkpoint")
            content, erasures = memory.projection(), self._guard.erasures.get(key, 0)
            self._running[key] = self._pool.submit(
                self._save,
                memory.scope,
                memory.embedder,
                content,
                erasures,
                lambda: time.sleep(_PAUSE_S),
            )

    def save(self, memory: Projected) -> Path:
        """Make a memory's checkpoint now, as it was last read or written; return its path.

        Blocks. A failure is logged.
        """
        content, erasures = memory.projection(), self._guard.erasures.get(memory.scope.key, 0)
        self._save(memory.scope, memory.embedder, content, erasures, lambda: None)
        return self.path_of(memory.scope)

    def close(self) -> None:
        """Finish what was begun, and make the checkpoints that closing is worth."""
        if self._pid != os.getpid():
            return
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=True)
        for memory in list(self._memories):
            size = _size(memory.projection())
            new = size - self._last.get(memory.scope.key, 0)
            if size >= FEWEST_ENTRIES and new >= CLOSING_ENTRIES:
                self.save(memory)
        self._writes = False

    def _save(
        self,
        scope: Scope,
        embedder: Embedder,
        content: Projection,
        erasures: int,
        pause: Pause,
    ) -> None:
        """Write a checkpoint unless the memory was erased since; failures are logged."""
        path, key = self.path_of(scope), scope.key
        try:
            chain = self._chain_at(scope, content.state.seq)
            if chain is None:
                return
            origin = Origin(name_of(scope), chain.hex(), embedder.id, embedder.dim)

            def write(file: BinaryIO) -> None:
                writer = SectionWriter(file, self.place.key)
                write_checkpoint(writer, content, origin, most_bytes=MOST_BYTES, pause=pause)

            begun = Begun(scope, content.state.seq, chain, write)
            self.place.put(begun, lambda: self._replacing(key, erasures))
            self.place.trim(MOST_FOLDER_BYTES)
        except (CheckpointUnusable, OSError) as exc:
            _log.info("no checkpoint of %s was made: %s", path, exc)
        except Exception:
            _log.exception("no checkpoint of %s was made", path)
        finally:
            with self._lock:
                self._last[key] = max(_size(content), self._last.get(key, 0))
                self._running.pop(key, None)

    @contextmanager
    def _replacing(self, key: str, erasures: int) -> Generator[None]:
        """Keep erasures out while a file takes its place; refuse what one has overtaken."""
        with self._lock:
            if key in self._guard.erasing or self._guard.erasures.get(key, 0) != erasures:
                raise CheckpointUnusable("the memory was erased meanwhile")
            yield

    # -- erasing -----------------------------------------------------------------------

    @contextmanager
    def erasing(self, scope: Scope) -> Generator[None]:
        """Delete a memory's checkpoint durably, and let none be made while this lasts.

        Raises `StoreError` when it cannot be deleted: nothing is erased then.
        """
        with self._lock:
            self._guard.erasures[scope.key] = self._guard.erasures.get(scope.key, 0) + 1
            self._guard.erasing.add(scope.key)
        try:
            self.place.erase(scope)
            reach("ckpt.erased")
            yield
        finally:
            with self._lock:
                self._last.pop(scope.key, None)
                self._guard.erasing.discard(scope.key)


class CheckpointReport(NamedTuple):
    """The findings about one memory's checkpoint."""

    seq: int | None
    """The journal sequence that it was made at; None where there is none to use."""
    size_bytes: int
    reason: str = ""
    """Why it will not be used, "" when it will. The next writer makes a new one."""
    faults: tuple[str, ...] = ()
    """Where it differs from a replay; such a file has to be deleted."""


async def audit_checkpoint(
    checkpoints: Checkpoints, scope: Scope, state_at: Callable[[int], Awaitable[BankState]]
) -> CheckpointReport:
    """Compare a memory's checkpoint with `state_at` of its sequence, part by part.

    Decodes all of it; takes about as long as a replay. Changes nothing.
    """
    size = checkpoints.place.size_of(scope)
    if size is None:
        return CheckpointReport(None, 0)
    try:
        content = checkpoints.read(scope)
    except (CheckpointUnusable, OSError) as exc:
        return CheckpointReport(None, size, str(exc))
    seq = content.state.seq
    return CheckpointReport(seq, size, faults=tuple(differences(content, await state_at(seq))))


def differences(content: Projection, replayed: BankState) -> list[str]:
    """Return where a checkpoint's content differs from a replayed state; [] when nowhere."""
    state = content.state
    expected = maps_of(replayed)
    faults = [
        f"{name} differ from the journal's"
        for name, content_of in maps_of(state).items()
        if dict(content_of.items()) != dict(expected[name].items())
    ]
    if (state.live, state.cleared) != (replayed.live, replayed.cleared):
        faults.append("the count of items, or of deletions of all, differs from the journal's")
    if state.digest() != replayed.digest():
        faults.append(f"its digest is {state.digest()[:12]}, a replay's {replayed.digest()[:12]}")
    graphs = state.graph, replayed.graph
    own, expected_nodes = ({key: data["event"] for key, data in g.nodes.items()} for g in graphs)
    if own != expected_nodes:
        faults.append("nodes of the graph differ from the journal's")
    edges = _edges(replayed.graph, "succ")
    faults += [
        f"edges of the graph ({name}) differ from the journal's"
        for name in ("succ", "pred")
        if _edges(state.graph, name) != edges
    ]
    active, indexed = {item.id for item in state.active()}, set(content.view.places)
    if active != (indexed | content.pending) & active or indexed - active:
        faults.append("the items of the search index differ from the active ones")
    if content.view.parts:
        try:
            for at in range(len(content.view.parts[0].segment)):
                check_document(content, at)
        except CheckpointUnusable as exc:
            faults.append(str(exc))
    return faults


def _edges(graph: GraphState, side: str) -> dict[tuple[str, str, str], EventEdge]:
    rows: Any = getattr(graph, side)
    edges = [
        data["edge"] for row in rows.values() for keyed in row.values() for data in keyed.values()
    ]
    return {(edge.source, edge.target, edge.key): edge for edge in edges}
