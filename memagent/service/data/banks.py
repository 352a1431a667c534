"""Open memories, one agent a scope, with the ones used longest ago closed first.

A memory in use is never closed: two banks of one scope would each keep a search view of
it. Opening one costs a replay of its journal at first use. All agents share model,
design, embedder and journal.

Export files that are made of the journal when they are fetched.

A job stores where in the journal a file ends, and its size and checksum. The same lines
come out every time, in whichever worker, until an erasure has taken some of them: then
the checksum differs and the file is not given.

Cursors: the place where a page ended, sealed so that nobody can forge or share one.

A cursor names the last entry of a page, so pages neither skip nor repeat what stays
while others write. Its seal covers the listing, the scope and the filters it was made
for.

Snapshots of memories: a name and a digest for a sequence of the journal.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import contextmanager
from typing import Any, Final

from sqlalchemy import Connection, Row

from memagent.async_agent import AsyncAgent
from memagent.client.http import ServiceError
from memagent.client.wire import SnapshotInfo
from memagent.core.records import Scope
from memagent.journal.rows import from_microseconds, to_microseconds
from memagent.memory.bank import MemoryBank
from memagent.memory.transfer import export_lines
from memagent.service.data.database import ServiceDatabase, snapshots
from memagent.service.metrics import Metrics


class Banks:
    """Agents by scope. Used from one event loop."""

    def __init__(self, make: Callable[[Scope], AsyncAgent], *, most: int, metrics: Metrics) -> None:
        self._make = make
        self._most = most
        self._metrics = metrics
        self._open: OrderedDict[str, AsyncAgent] = OrderedDict()
        self._users: Counter[str] = Counter()

    def users_of(self, scope: Scope) -> int:
        """Return how many are at work on a memory."""
        return self._users[scope.key]

    @contextmanager
    def agent(self, scope: Scope) -> Generator[AsyncAgent]:
        """Open the agent of a scope, which stays open as long as it is in use."""
        key = scope.key
        agent = self._open.get(key)
        if agent is None:
            agent = self._open[key] = self._make(scope)
            self._metrics.count("banks_opened")
            self._metrics.banks_open.set(len(self._open))
        self._open.move_to_end(key)
        self._users[key] += 1
        unused = (other for other in self._open if not self._users[other])
        if len(self._open) > self._most and (oldest := next(unused, None)) is not None:
            del self._open[oldest], self._users[oldest]
            self._metrics.count("banks_evicted")
            self._metrics.banks_open.set(len(self._open))
        try:
            yield agent
        finally:
            self._users[key] -= 1


_SEAL_BYTES = 16


class Cursors:
    """Makes and reads cursors."""

    def __init__(self, secret: bytes) -> None:
        self._secret = hmac.new(secret, b"memagent/cursors/1", hashlib.sha256).digest()

    def make(self, after: str, *, listing: str, scope: Scope, terms: str = "") -> str:
        """Make a cursor behind the entry `after`."""
        body = after.encode()
        sealed = self._seal(body, listing, scope, terms) + body
        return base64.urlsafe_b64encode(sealed).decode().rstrip("=")

    def read(self, cursor: str, *, listing: str, scope: Scope, terms: str = "") -> str:
        """Return the entry that a cursor stands behind.

        Raises `ServiceError` (`invalid_cursor`) for one not made for this listing.
        """
        try:
            raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
            after = raw[_SEAL_BYTES:].decode()
        except ValueError:
            raw, after = b"", ""
        if not hmac.compare_digest(
            raw[:_SEAL_BYTES], self._seal(raw[_SEAL_BYTES:], listing, scope, terms)
        ):
            raise ServiceError(
                "the cursor was not made for this listing; begin without one",
                status=400,
                code="invalid_cursor",
            )
        return after

    def _seal(self, body: bytes, listing: str, scope: Scope, terms: str) -> bytes:
        head = json.dumps([listing, scope.key, terms]).encode()
        return hmac.new(self._secret, head + b"\x00" + body, hashlib.sha256).digest()[:_SEAL_BYTES]


_BLOCK_CHARS: Final = 64 * 1024


async def describe_file(bank: MemoryBank, number: int) -> dict[str, Any]:
    """Describe one file of an export for its job.

    Names the memory, the place in the journal, the counts, the size and the checksum.
    """
    state = await bank.sync()
    place: dict[str, Any] = {"seq": state.seq, "digest": state.digest()}
    lines, size, seal = 0, 0, hashlib.sha256()
    async for line in export_lines(bank, **place):
        content = line.encode()
        seal.update(content)
        lines, size = lines + 1, size + len(content)
    return {
        **bank.scope.model_dump(),
        **place,
        "items": state.live,
        "sessions": len(state.sessions),
        "rows": lines - 2,
        "number": number,
        "bytes": size,
        "sha256": seal.hexdigest(),
    }


async def open_file(banks: Banks, file: dict[str, Any]) -> AsyncGenerator[bytes] | None:
    """Return the content of a described file; None when it cannot be made any more."""
    seal = hashlib.sha256()
    async for block in _blocks(banks, file):
        seal.update(block)
    return _blocks(banks, file) if seal.hexdigest() == file["sha256"] else None


async def _blocks(banks: Banks, file: dict[str, Any]) -> AsyncGenerator[bytes]:
    waiting: list[str] = []
    size = 0
    scope = Scope(**{name: file[name] for name in Scope.model_fields})
    with banks.agent(scope) as agent:
        async for line in export_lines(agent.bank, seq=file["seq"], digest=file["digest"]):
            waiting.append(line)
            size += len(line)
            if size >= _BLOCK_CHARS:
                yield "".join(waiting).encode()
                waiting, size = [], 0
    yield "".join(waiting).encode()


class SnapshotTable:
    """The rows of the snapshots. Thread-safe; calls block."""

    def __init__(self, database: ServiceDatabase) -> None:
        self._database = database

    def add(self, scope: Scope, info: SnapshotInfo) -> SnapshotInfo:
        """Store a snapshot; return the stored one when its id is known."""
        row = {
            **info.model_dump(exclude={"created_at"}),
            "scope": scope.model_dump_json(),
            "created_us": to_microseconds(info.created_at),
        }

        def work(db: Connection) -> SnapshotInfo:
            if self._database.insert(db, snapshots, row):
                return info
            return _info(db.execute(snapshots.select().where(snapshots.c.id == info.id)).one())

        return self._database.run(work)

    def of(self, scope: Scope) -> list[SnapshotInfo]:
        """Return a scope's snapshots, oldest first."""
        mine = snapshots.select().where(snapshots.c.scope == scope.model_dump_json())
        ordered = mine.order_by(snapshots.c.created_us, snapshots.c.id)
        return [_info(row) for row in self._database.rows(ordered)]


def _info(row: Row[Any]) -> SnapshotInfo:
    names = ("id", "name", "digest", "seq", "items")
    return SnapshotInfo(
        **{name: getattr(row, name) for name in names}, created_at=from_microseconds(row.created_us)
    )
