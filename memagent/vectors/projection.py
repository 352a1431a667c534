"""A networked vector index as a projection of the journal.

The index is kept level with the journal, and bypassed while it is not. The journal is
the truth and a bank holds all of its own items, so a networked index may fail, lag or
be deleted at any time: searches then go over the bank's own view, which gives the same
hits. An `AppliedIndex` stores a mark: the journal sequence that it is level with, how
many rows that makes, and their digest. At first use, and after any fault, the mark and
the server's own count are compared with the state; where they differ every row is
written again, and what an earlier sequence left is removed. Every search brings the
mark along, so an index that was emptied, restored from a backup or left half-written is
noticed before a hit of it is used. The surprise: several processes write one index.
Writes carry the sequence that they come from and never replace what a later one wrote,
so a rebuild beside another writer removes nothing of its rows.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from memagent.core.answers import Filter, Hit
from memagent.core.errors import StoreUnavailable
from memagent.protocols import IndexRow, Vector, VectorIndex
from memagent.search.pipeline import Level

_log = logging.getLogger(__name__)
_REST_S: Final = 15.0
_CHECK_BYTES: Final = 16
_MODULUS: Final = 1 << (8 * _CHECK_BYTES)


@dataclass(frozen=True, slots=True)
class Applied:
    """The state an index is level with: a journal sequence, a number of rows, their digest.

    The digest (32 hex digits) is over all rows.
    """

    seq: int
    count: int
    digest: str

    def agrees(self, other: Applied | None) -> bool:
        """Tell whether both stand for the same rows.

        The sequence may differ, since many entries change no row.
        """
        return other is not None and (self.count, self.digest) == (other.count, other.digest)


@dataclass(frozen=True, slots=True)
class Proposal:
    """Hits of an index with the mark it bore at that moment."""

    hits: list[Hit]
    applied: Applied | None
    dropped: int = 0
    """Rows that came back outside of the search, and were left out."""


@runtime_checkable
class AppliedIndex(VectorIndex, Protocol):
    """A `VectorIndex` outside of the process that stores what it is level with.

    All calls raise `StoreUnavailable`.
    """

    async def applied(self) -> tuple[Applied | None, int]:
        """Return the mark, and the true number of the scope's rows."""
        ...

    async def write(
        self,
        rows: Sequence[IndexRow],
        gone: Sequence[str],
        *,
        applied: Applied,
        rebuild: bool = False,
    ) -> None:
        """Write rows, take ids out, and store the mark last.

        Nothing replaces or removes what came from a later sequence. With `rebuild` the
        rows are all there are: what an earlier sequence left is removed as well.
        """
        ...

    async def clear(self) -> None:
        """Remove every row of the scope, and the mark."""
        ...

    async def candidates(self, vector: Vector, *, k: int, where: Filter | None) -> Proposal:
        """Search, and read the mark in the same request."""
        ...


def row_check(row: IndexRow) -> int:
    """Return a number (128 bits) over an item version and its vector.

    The digest of an index is the sum over its rows.
    """
    seal = hashlib.sha256(row.item.model_dump_json().encode() + row.vector.tobytes())
    return int.from_bytes(seal.digest()[:_CHECK_BYTES], "big")


class IndexProjection:
    """One scope's networked index. Used from one event loop."""

    def __init__(self, index: VectorIndex) -> None:
        self._index = index
        self._applied_index = index if isinstance(index, AppliedIndex) else None
        self._pending: set[str] = set()
        self._checks: dict[str, int] = {}
        # The known state of the index; None before the first look and after a fault.
        self._level: Applied | None = None
        self._erasures, self._emptied = 0, 0
        self._lock = asyncio.Lock()
        self._rest_until = 0.0
        # The reason for which the index is bypassed at present, or None.
        self.failure: StoreUnavailable | None = None

    def changed(self, ids: Iterable[str]) -> None:
        """Note items that the index has yet to follow."""
        self._pending.update(ids)

    def erased(self) -> None:
        """Note that everything so far was erased: the next write empties the index first."""
        self._pending.clear()
        self._level = None
        self._erasures += 1

    async def catch_up(self, present: Callable[[], Level], *, insist: bool = False) -> None:
        """Bring the index level with the state that `present` gives.

        A failure is stored in `failure`, and raised with `insist`.

        Without `insist` nothing is tried while another task does so, nor for 15 s after
        a failure.
        """
        if not insist and (self._lock.locked() or time.monotonic() < self._rest_until):
            return
        async with self._lock:
            level, erasures = present(), self._erasures
            pending, self._pending = self._pending, set[str]()
            try:
                await self._follow(level, pending)
            except BaseException as exc:
                self._pending |= pending
                self._level = None
                if not isinstance(exc, StoreUnavailable):
                    raise
                self._failed(exc)
                if insist:
                    raise
                return
            if self._erasures != erasures:
                self._level = None  # what was written may hold what was erased meanwhile
            if self.failure is not None:
                _log.info("the vector index is level again")
                self.failure = None

    async def propose(
        self, vector: Vector, *, k: int, where: Filter | None, seq: int
    ) -> frozenset[str] | None:
        """Return the ids of the k nearest for a state at `seq`.

        None when the index cannot be relied on and the bank has to search itself.
        """
        level = self._level
        if (
            self._pending
            or self.failure is not None
            or (self._applied_index is not None and level is None)
        ):
            return None
        try:
            if self._applied_index is None or level is None:
                return frozenset(
                    hit.id for hit in await self._index.search(vector, k=k, where=where)
                )
            proposal = await self._applied_index.candidates(vector, k=k, where=where)
        except StoreUnavailable as failure:
            self._level = None
            self._failed(failure)
            return None
        few = where is None and len(proposal.hits) < min(k, level.count)
        if proposal.dropped or few or not level.agrees(proposal.applied):
            if proposal.applied is None or proposal.applied.seq <= seq:
                self._level = (
                    None  # no later writer explains it: look closely before the next search
                )
                _log.warning(
                    "the vector index is not as it was left; it is compared with the journal"
                )
            return None
        return frozenset(hit.id for hit in proposal.hits)

    # -- inside ------------------------------------------------------------------------

    async def _follow(self, level: Level, pending: set[str]) -> None:
        """Write what has changed, or every row when it is in doubt what the index holds."""
        index, before = self._applied_index, self._level
        ids = pending if index is None or before is not None else level.ids
        rows = {item_id: level.row(item_id) for item_id in ids}
        present = {item_id: row for item_id, row in sorted(rows.items()) if row is not None}
        gone = sorted(rows.keys() - present.keys())
        if index is None:
            await self._index.upsert(list(present.values()))
            await self._index.remove(gone)
            return
        checks = {item_id: row_check(row) for item_id, row in present.items()}
        total, count = sum(checks.values()), len(checks)
        known: dict[str, int] = {}
        if before is not None:
            known = {item_id: self._checks.get(item_id, 0) for item_id in rows}
            total += int(before.digest, 16) - sum(known.values())
            count += before.count - sum(map(bool, known.values()))
        after = Applied(level.seq, count, f"{total % _MODULUS:0{2 * _CHECK_BYTES}x}")
        if before is None:
            await self._rebuild(index, level, list(present.values()), gone, after)
            self._checks = checks
        else:
            changed = [row for key, row in present.items() if checks[key] != known[key]]
            gone = [item_id for item_id in gone if known[item_id]]
            if changed or gone:
                await index.write(changed, gone, applied=after)
            self._checks |= checks | dict.fromkeys(gone, 0)
        self._level = after

    async def _rebuild(
        self, index: AppliedIndex, level: Level, rows: list[IndexRow], gone: list[str], to: Applied
    ) -> None:
        """Write every row, unless mark and count say that they are there."""
        erasures = self._erasures
        mark, count = await index.applied()
        # A mark ahead of the journal is of a history that a restored backup has undone.
        if self._emptied < erasures or (
            mark is not None and mark.seq > max(level.seq, await level.head())
        ):
            await index.clear()
            mark, count = None, 0
        if not (to.agrees(mark) and count == to.count):
            await index.write(rows, gone if count else [], applied=to, rebuild=count > 0)
            _log.info("the vector index was rebuilt with %d rows", to.count)
        self._emptied = erasures

    def _failed(self, failure: StoreUnavailable) -> None:
        if self.failure is None:
            _log.warning("the vector index is done without for now: %s", failure)
        self.failure = failure
        self._rest_until = time.monotonic() + _REST_S
