"""The same request again has no further effect.

A request that writes hands its key down to the journal: the first append it makes
carries key, digest and the response that will be sent, in the very transaction of the
write. So there is no moment in which a crash leaves the one without the other.
Responses to requests that write nothing are kept in memory, or where several workers
share a database for some minutes there; made again later they still have no effect.
Which keys are at work is known in the process, and among workers by claims. The
surprise: the key travels in a context variable, because between the route and the
journal lie the facade and the bank, which know nothing of HTTP.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from datetime import datetime
from typing import Any, Final, Protocol, cast

from sqlalchemy import Connection, text
from starlette.requests import Request
from starlette.responses import Response

from memagent.client.faults import ServiceError
from memagent.core.errors import StoreUnavailable
from memagent.core.records import Record, Scope
from memagent.core.snapshot import Entry, JournalRow
from memagent.journal.backend import WHOLE_STORE
from memagent.journal.rows import IdempotencyKeyUsed, StoredResponse, scope_digest, scope_key
from memagent.protocols import Journal
from memagent.service.data.database import ServiceDatabase
from memagent.service.data.leases import Claims
from memagent.service.data.tables import owner_digest
from memagent.service.metrics import Metrics

MAX_KEY_CHARS: Final = 255
_MOST_KEPT: Final = 10_000
_MOST_BYTES: Final = 64 * 1024 * 1024
_SHARED_S: Final = 600
_MOST_SHARED_BYTES: Final = 1024 * 1024
_KEEP: Final = (
    "INSERT INTO service_responses (owner, place, body_digest, response_json, until_us) "
    "SELECT CAST(:owner AS varchar), CAST(:place AS varchar), CAST(:digest AS varchar), CAST(:kept AS text), "
    "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint) + :span "
    "WHERE NOT EXISTS (SELECT 1 FROM service_responses WHERE owner = :owner AND place = :erased) ON CONFLICT DO NOTHING"
)
_ERASED: Final = "erased"
"""Stands in the place of a key for a while after an erasure, so that a request begun
before it does not leave words behind.
"""
_FIND: Final = "SELECT body_digest, response_json FROM service_responses WHERE owner = :owner AND place = :place"


class Kept(Record):
    """A response as it is kept."""

    status: int
    headers: dict[str, str] = {}
    body: str = ""

    @classmethod
    def of(cls, response: Response) -> Kept:
        """A whole response, without the headers that say how long it is."""
        headers = {
            name: value for name, value in response.headers.items() if name != "content-length"
        }
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
        """(key, digest, response as JSON), or None when these entries are not what the
        response tells of.
        """
        response = None if self.kept or not entries else self._keep(entries[-1])
        return (
            None
            if response is None
            else (self.key, self.digest, Kept.of(response).model_dump_json())
        )


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
        self,
        scope: Scope,
        entries: Sequence[Entry],
        *,
        expect: int,
        recorded_at: Sequence[datetime] | None = None,
    ) -> list[JournalRow]:
        """Append several entries as one."""
        promise = PROMISE.get()
        record = promise.record(entries) if promise is not None else None
        rows = await self.inner.append_many(
            scope, entries, expect=expect, recorded_at=recorded_at, idempotency=record
        )
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
    """Responses kept in this process, by scope and key. Used from one event loop."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str], tuple[str, Kept]] = OrderedDict()
        self._bytes = 0

    async def get(self, scope: Scope, key: str) -> tuple[str, Kept] | None:
        """(digest, response) kept under a key."""
        return self._kept.get((scope.key, key))

    async def put(self, scope: Scope, key: str, digest: str, kept: Kept) -> None:
        """Keep a response, in place of the oldest where there is no room."""
        if (scope.key, key) in self._kept:
            return
        self._kept[scope.key, key] = (digest, kept)
        self._bytes += len(kept.body)
        while len(self._kept) > _MOST_KEPT or self._bytes > _MOST_BYTES:
            _, (_, dropped) = self._kept.popitem(last=False)
            self._bytes -= len(dropped.body)

    async def forget(self, user_id: str) -> None:
        """Drop everything kept for a user."""
        doomed = [place for place in self._kept if place[0].partition("\x1f")[0] == user_id]
        for place in doomed:
            self._bytes -= len(self._kept.pop(place)[1].body)

    async def prune(self) -> None:
        """Drop what is past its time: nothing, for room is made as it is needed."""


class SharedReplays:
    """Responses kept for some minutes in the database, for every worker."""

    def __init__(self, database: ServiceDatabase) -> None:
        self._database = database

    async def get(self, scope: Scope, key: str) -> tuple[str, Kept] | None:
        """(digest, response) kept under a key."""
        owner, place = owner_digest(scope.user_id), _place(scope, key)

        def work(db: Connection) -> tuple[str, Kept] | None:
            found = db.execute(text(_FIND), {"owner": owner, "place": place}).first()
            return (
                None
                if found is None
                else (found.body_digest, Kept.model_validate_json(found.response_json))
            )

        return await asyncio.to_thread(self._database.run, work, sees=(owner,))

    async def put(self, scope: Scope, key: str, digest: str, kept: Kept) -> None:
        """Keep a response, unless it is very large."""
        if len(kept.body) > _MOST_SHARED_BYTES:
            return
        owner = owner_digest(scope.user_id)
        values: dict[str, Any] = {"owner": owner, "place": _place(scope, key), "digest": digest}
        values |= {"kept": kept.model_dump_json(), "span": _SHARED_S * 1_000_000, "erased": _ERASED}

        def work(db: Connection) -> None:
            db.execute(text(_KEEP), values)

        await asyncio.to_thread(self._database.run, work, sees=(owner,), soon=True)

    async def forget(self, user_id: str) -> None:
        """Delete everything kept for a user, and keep nothing for as long as a response would be."""
        owner = owner_digest(user_id)
        mark = {
            "owner": owner,
            "place": _ERASED,
            "digest": "",
            "kept": "",
            "span": _SHARED_S * 1_000_000,
            "erased": "",
        }

        def work(db: Connection) -> None:
            db.execute(text("DELETE FROM service_responses"))
            db.execute(text(_KEEP), mark)

        await asyncio.to_thread(self._database.run, work, sees=(owner,))
        await asyncio.to_thread(self._database.scrub_responses)

    async def prune(self) -> None:
        """Delete what is past its time, of all users: nothing else of theirs is seen here."""
        statement = text("DELETE FROM service_responses")
        await asyncio.to_thread(
            self._database.run, lambda db: db.execute(statement), sees=(WHOLE_STORE,)
        )


class Requests:
    """Has a request with a key done once. Used from one event loop."""

    def __init__(
        self, journal: PromisingJournal, database: ServiceDatabase, claims: Claims, metrics: Metrics
    ) -> None:
        self._journal, self._claims, self._metrics = journal, claims, metrics
        self._shared = database.shared
        self.replays: Replays | SharedReplays = (
            SharedReplays(database) if self._shared else Replays()
        )
        self._running: set[tuple[str, str]] = set()

    async def once(
        self,
        scope: Scope,
        key: str,
        digest: str,
        work: Callable[[], Awaitable[Response]],
        keep: Callable[[Entry], Response | None] | None,
    ) -> Response:
        """The response of `work`, or the first one when the request was made before
        with the same key.

        `keep` makes the response out of the journal entry that the work appends; it is
        written along with that entry. Raises `ServiceError` when the key was used for
        another request (`key_reused`) or is at work (`request_in_progress`).
        """
        known = await self._known(scope, key, digest)
        if known is not None:
            return known
        async with self._turn(scope, key):
            if self._shared:  # it may have been done by another worker since
                known = self._again(await self.replays.get(scope, key), digest)
                if known is not None:
                    return known
            promise = Promise(key, digest, keep) if keep is not None else None
            token = PROMISE.set(promise)
            try:
                response = await work()
            except IdempotencyKeyUsed:
                known = await self._known(scope, key, digest)
                if known is None:
                    raise
                return known
            finally:
                PROMISE.reset(token)
            told = promise is not None and promise.kept and self._shared
            if response.status_code < 400 and type(response) is Response and not told:
                with suppress(StoreUnavailable):  # what it did is done
                    await self.replays.put(scope, key, digest, Kept.of(response))
            return response

    @asynccontextmanager
    async def _turn(self, scope: Scope, key: str) -> AsyncGenerator[None]:
        place = (scope.key, key)
        if place in self._running:
            raise _in_progress()
        self._running.add(place)
        claimed = f"request/{_place(scope, key)}"
        try:
            if not await self._claims.take(claimed, soon=True):
                raise _in_progress()
            try:
                yield
            finally:
                await self._claims.give_back(claimed)
        finally:
            self._running.discard(place)

    async def _known(self, scope: Scope, key: str, digest: str) -> Response | None:
        found = await self.replays.get(scope, key)
        if found is None:
            inner = self._journal.inner
            look = asyncio.to_thread(inner.response, scope, key) if self._shared else None
            stored = await look if look is not None else inner.response(scope, key)
            if stored is not None:
                found = (stored.body_digest, Kept.model_validate_json(stored.response_json))
        return self._again(found, digest)

    def _again(self, found: tuple[str, Kept] | None, digest: str) -> Response | None:
        if found is None:
            return None
        if found[0] != digest:
            raise ServiceError(
                "the Idempotency-Key was used for another request; take a new one",
                code="key_reused",
            )
        self._metrics.events["replays"] += 1
        return found[1].response()


def _in_progress() -> ServiceError:
    return ServiceError("the same request is at work", code="request_in_progress", retryable=True)


def _place(scope: Scope, key: str) -> str:
    return f"{scope_digest(scope_key(scope))}/{key}"


async def request_digest(request: Request) -> str:
    """Digest of all that makes two requests the same: method, path, query, what is accepted, body."""
    parts = [request.method, request.url.path, request.url.query, request.headers.get("accept", "")]
    parts.append(request.headers.get("if-match", ""))
    digest = hashlib.sha256(json.dumps(parts).encode())
    digest.update(await request.body())
    return digest.hexdigest()
