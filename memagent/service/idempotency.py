"""The same request again has no further effect.

A request that writes hands its key down to the journal: the first append it makes carries key, digest and the response that will be sent,
in the very transaction of the write. So there is no moment in which a crash leaves the one without the other. Responses to requests that
write nothing are kept in memory only; made again after a restart they still have no effect.
The surprise: the key travels in a context variable, because between the route and the journal lie the facade and the bank, which know
nothing of HTTP.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from contextvars import ContextVar
from datetime import datetime
from typing import Final, Protocol, cast

from starlette.requests import Request
from starlette.responses import Response

from memagent.core.records import Record, Scope
from memagent.core.snapshot import Entry, JournalRow
from memagent.protocols import Journal
from memagent.stores.journal_rows import StoredResponse

MAX_KEY_CHARS: Final = 255
_MOST_KEPT: Final = 10_000
_MOST_BYTES: Final = 64 * 1024 * 1024


class Kept(Record):
    """A response as it is kept."""

    status: int
    headers: dict[str, str] = {}
    body: str = ""

    @classmethod
    def of(cls, response: Response) -> Kept:
        """A whole response, without the headers that say how long it is."""
        headers = {name: value for name, value in response.headers.items() if name != "content-length"}
        return cls(status=response.status_code, headers=headers, body=bytes(response.body).decode())

    def response(self) -> Response:
        """The response again, marked as a repetition."""
        headers = {**self.headers, "Idempotent-Replayed": "true"}
        return Response(self.body.encode(), status_code=self.status, headers=headers)


class Promise:
    """What the first append of a request takes along."""

    def __init__(self, key: str, digest: str, keep: Callable[[Entry], Response | None]) -> None:
        self.key, self.digest, self._keep = key, digest, keep
        self.kept = False

    def record(self, entries: Sequence[Entry]) -> tuple[str, str, str] | None:
        """(key, digest, response as JSON), or None when these entries are not what the response tells of."""
        response = None if self.kept or not entries else self._keep(entries[-1])
        return None if response is None else (self.key, self.digest, Kept.of(response).model_dump_json())


PROMISE: ContextVar[Promise | None] = ContextVar("memagent_promise", default=None)
"""The promise of the request at work."""


class KeyedJournal(Journal, Protocol):
    """A journal that keeps responses in the transaction of an append; ours all do."""

    async def append_many(
        self,
        scope: Scope,
        entries: Sequence[Entry],
        *,
        expect: int,
        recorded_at: Sequence[datetime] | None = None,
        idempotency: tuple[str, str, str] | None = None,
    ) -> list[JournalRow]:
        """As `Journal.append_many`, with (key, digest, response)."""
        ...

    def response(self, scope: Scope, key: str) -> StoredResponse | None:
        """The response kept under a key."""
        ...


class PromisingJournal:
    """A journal that adds the promise of the request at work to its first append."""

    def __init__(self, inner: Journal) -> None:
        self.inner = cast("KeyedJournal", inner)

    async def append(self, scope: Scope, entry: Entry, *, expect: int) -> JournalRow:
        """Append one entry."""
        if PROMISE.get() is None:
            return await self.inner.append(scope, entry, expect=expect)
        return (await self.append_many(scope, (entry,), expect=expect))[0]

    async def append_many(
        self, scope: Scope, entries: Sequence[Entry], *, expect: int, recorded_at: Sequence[datetime] | None = None
    ) -> list[JournalRow]:
        """Append several entries as one."""
        promise = PROMISE.get()
        record = promise.record(entries) if promise is not None else None
        rows = await self.inner.append_many(scope, entries, expect=expect, recorded_at=recorded_at, idempotency=record)
        if promise is not None and record is not None:
            promise.kept = True
        return rows

    def since(self, scope: Scope, seq: int) -> AsyncIterator[JournalRow]:
        """Rows after a sequence."""
        return self.inner.since(scope, seq)

    async def head(self, scope: Scope) -> int:
        """Sequence of the last row."""
        return await self.inner.head(scope)

    async def scopes(self) -> list[Scope]:
        """Every scope that has rows."""
        return await self.inner.scopes()


class Replays:
    """Responses kept in memory, and the keys at work, by scope and key. Used from one event loop."""

    def __init__(self) -> None:
        self.running: set[tuple[str, str]] = set()
        self._kept: OrderedDict[tuple[str, str], tuple[str, Kept]] = OrderedDict()
        self._bytes = 0

    def get(self, scope: Scope, key: str) -> tuple[str, Kept] | None:
        """(digest, response) kept under a key."""
        return self._kept.get((scope.key, key))

    def put(self, scope: Scope, key: str, digest: str, kept: Kept) -> None:
        """Keep a response, in place of the oldest where there is no room."""
        if (scope.key, key) in self._kept:
            return
        self._kept[scope.key, key] = (digest, kept)
        self._bytes += len(kept.body)
        while len(self._kept) > _MOST_KEPT or self._bytes > _MOST_BYTES:
            _, (_, dropped) = self._kept.popitem(last=False)
            self._bytes -= len(dropped.body)

    def forget(self, user_id: str) -> None:
        """Drop everything kept for a user."""
        doomed = [place for place in self._kept if place[0].partition("\x1f")[0] == user_id]
        for place in doomed:
            self._bytes -= len(self._kept.pop(place)[1].body)


async def request_digest(request: Request) -> str:
    """Digest of all that makes two requests the same: method, path, query, what is accepted, body."""
    parts = [request.method, request.url.path, request.url.query, request.headers.get("accept", "")]
    parts.append(request.headers.get("if-match", ""))
    digest = hashlib.sha256(json.dumps(parts).encode())
    digest.update(await request.body())
    return digest.hexdigest()
