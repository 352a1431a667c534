"""Requests with an idempotency key: the same request again has no further effect.

A request that writes hands its key down to the journal: the first append it makes
carries key, digest and the response that will be sent, in the very transaction of the
write. So no crash leaves one without the other. The process knows which keys are at work
in it; leases tell the workers of each other. The surprise: the key travels in a context
variable, because between the route and the journal lie the facade and the bank, which
know nothing of HTTP.

Responses to requests that write nothing are cached: on PostgreSQL for ten minutes in the
database, which several workers may share (`SharedResponseCache`), else in the process
(`ResponseCache`). The cache in the process also holds responses that the journal stores.
A request that wrote nothing is done again when its response has gone.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, cast

from sqlalchemy import Connection, text
from starlette.requests import Request
from starlette.responses import Response

from memagent.client.http import ServiceError
from memagent.core.errors import StoreUnavailable
from memagent.core.records import Record, Scope
from memagent.core.snapshot import Entry, JournalRow
from memagent.journal.backend import WHOLE_STORE
from memagent.journal.rows import IdempotencyKeyUsed, scope_digest, scope_key
from memagent.protocols import FindsRows, Journal, SearchesFiles
from memagent.service.data.database import DUE, ServiceDatabase, owner_digest
from memagent.service.data.leases import Leases
from memagent.service.metrics import Metrics

if TYPE_CHECKING:
    from memagent.journal.in_memory import MemoryJournal
    from memagent.journal.open_database import DatabaseJournal

MAX_KEY_CHARS: Final = 255
# Bounds of `ResponseCache`.
_MOST_RESPONSES: Final = 10_000
_MOST_BYTES: Final = 64 * 1024 * 1024
# How long `SharedResponseCache` stores a response, and how large it may be.
_SHARED_S: Final = 600
_MOST_SHARED_BYTES: Final = 1024 * 1024
_INSERT: Final = (
    "INSERT INTO service_responses (owner, place, body_digest, response_json, until_us) "
    "SELECT CAST(:owner AS varchar), CAST(:place AS varchar), CAST(:digest AS varchar), "
    "CAST(:kept AS text), "
    "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint) + :span "
    "WHERE NOT EXISTS (SELECT 1 FROM service_responses WHERE owner = :owner AND place = "
    ":erased) ON CONFLICT DO NOTHING"
)
# The place of the mark that an erasure leaves. While a user has it, `_INSERT` stores no
# response to the user, so a request begun before the erasure leaves no text behind.
_ERASED: Final = "erased"
# Row-level security says the same, but PostgreSQL does not hold superusers to it.
_FORGET: Final = "DELETE FROM service_responses WHERE owner = :owner"
_PRUNE: Final = f"DELETE FROM service_responses WHERE {DUE}"
_FIND: Final = (
    "SELECT body_digest, response_json FROM service_responses WHERE owner = :owner AND place = "
    ":place"
)


class PendingResponse:
    """The response that the first append of a request records."""

    def __init__(self, key: str, digest: str, keep: Callable[[Entry], Response | None]) -> None:
        self.key, self.digest, self._keep = key, digest, keep
        self.recorded = False
        self.response: Response | None = None
        """What was recorded: the request and its repetitions get the same."""

    def record(self, entries: Sequence[Entry]) -> tuple[str, str, str] | None:
        """Return (key, digest, response as JSON) to write with entries.

        None when the response was recorded before, and for entries of which no response
        is made.
        """
        response = None if self.recorded or not entries else self._keep(entries[-1])
        if response is None:
            return None
        self.response = response
        return self.key, self.digest, CachedResponse.of(response).model_dump_json()


PENDING: ContextVar[PendingResponse | None] = ContextVar("memagent_pending_response", default=None)
"""The pending response of the request at work."""


class IdempotentJournal:
    """A journal that adds the pending response of the request at work to its first append."""

    def __init__(self, inner: Journal) -> None:
        # every journal that a store opens records responses
        self.inner = cast("DatabaseJournal | MemoryJournal", inner)

    async def append(self, scope: Scope, entry: Entry, *, expect: int) -> JournalRow:
        """Append one entry."""
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
        pending = PENDING.get()
        record = pending.record(entries) if pending is not None else None
        rows = await self.inner.append_many(
            scope, entries, expect=expect, recorded_at=recorded_at, idempotency=record
        )
        if pending is not None and record is not None:
            pending.recorded = True
        return rows

    async def redact(
        self, scope: Scope, rewritten: Mapping[int, Entry], *, expect: int, reason: str = ""
    ) -> JournalRow:
        """Replace earlier entries; no response is stored with it."""
        return await self.inner.redact(scope, rewritten, expect=expect, reason=reason)

    @property
    def scrub_due(self) -> bool:
        """Whether erased bytes may still lie in files."""
        return self.inner.scrub_due

    def search_files(self, needles: Sequence[bytes]) -> dict[str, tuple[int, int]]:
        """Search the files of the journal; {} where it has none."""
        return self.inner.search_files(needles) if isinstance(self.inner, SearchesFiles) else {}

    def since(self, scope: Scope, seq: int) -> AsyncIterator[JournalRow]:
        """Return the rows after a sequence."""
        return self.inner.since(scope, seq)

    def naming(self, scope: Scope, named: Callable[[bytes], bool]) -> AsyncIterator[JournalRow]:
        """Return the rows whose entries are named; all of them, where the journal can't look."""
        inner = self.inner
        return inner.naming(scope, named) if isinstance(inner, FindsRows) else inner.since(scope, 0)

    async def head(self, scope: Scope) -> int:
        """Return the sequence of the last row."""
        return await self.inner.head(scope)

    async def scopes(self) -> list[Scope]:
        """Return every scope that has rows."""
        return await self.inner.scopes()


class IdempotentRequests:
    """Does every request with a key once. Used from one event loop."""

    def __init__(
        self,
        journal: IdempotentJournal,
        responses: ResponseCache | SharedResponseCache,
        leases: Leases,
        metrics: Metrics,
    ) -> None:
        self.journal, self._leases, self._metrics = journal, leases, metrics
        self._shared = leases.table.shared
        self.responses = responses
        self._running: set[tuple[str, str]] = set()

    async def once(
        self,
        scope: Scope,
        key: str,
        digest: str,
        work: Callable[[], Awaitable[Response]],
        keep: Callable[[Entry], Response | None] | None,
    ) -> Response:
        """Return the response of `work`, or the stored response to the same request.

        `keep` makes the response out of the journal entry that the work appends; it is
        written along with that entry. Raises `ServiceError` when the key was used for
        another request (`key_reused`) or is at work (`request_in_progress`).
        """
        known = await self._stored(scope, key, digest)
        if known is not None:
            return known
        async with self._exclusive(scope, key):
            if self._shared:  # another worker may have done it since
                known = await self._stored(scope, key, digest)
                if known is not None:
                    return known
            pending = PendingResponse(key, digest, keep) if keep is not None else None
            token = PENDING.set(pending)
            try:
                response = await work()
            except IdempotencyKeyUsed:
                known = await self._stored(scope, key, digest)
                if known is None:
                    raise
                return known
            finally:
                PENDING.reset(token)
            if pending is not None and pending.recorded and self._shared:
                # The journal has it. Every worker finds it there and sends the same.
                return pending.response or response
            # Streams are of other classes and have no body to store.
            if response.status_code < 400 and type(response) is Response:
                with suppress(StoreUnavailable):  # the work itself is done
                    await self.responses.put(scope, key, digest, CachedResponse.of(response))
            return response

    @asynccontextmanager
    async def _exclusive(self, scope: Scope, key: str) -> AsyncGenerator[None]:
        """Run alone with a key, in this worker and among all."""
        request, place = (scope.key, key), f"request/{response_place(scope, key)}"
        if request in self._running:
            raise _in_progress()
        self._running.add(request)
        try:
            if not await self._leases.acquire(place, durable=False):
                raise _in_progress()
            try:
                yield
            finally:
                await self._leases.release(place)
        finally:
            self._running.discard(request)

    async def find(self, scope: Scope, key: str) -> tuple[str, CachedResponse] | None:
        """Return the digest of the request that came with a key, and its response."""
        known = await self.responses.get(scope, key)
        if known is not None:
            return known
        find = self.journal.inner.response
        stored = await asyncio.to_thread(find, scope, key) if self._shared else find(scope, key)
        if stored is None:
            return None
        return stored.body_digest, CachedResponse.model_validate_json(stored.response_json)

    async def drop(self, scope: Scope, key: str) -> bool:
        """Delete the stored response of a key; return whether the journal had one."""
        await self.responses.drop(scope, key)
        return await asyncio.to_thread(self.journal.inner.drop_response, scope, key)

    async def _stored(self, scope: Scope, key: str, digest: str) -> Response | None:
        """Return the stored response to a request; None when its key is unknown.

        Raises `ServiceError` when the key was used for another request.
        """
        known = await self.find(scope, key)
        if known is None:
            return None
        if known[0] != digest:
            raise ServiceError(
                "the Idempotency-Key was used for another request; take a new one",
                code="key_reused",
            )
        self._metrics.count("replays")
        return known[1].response()


def _in_progress() -> ServiceError:
    return ServiceError("the same request is at work", code="request_in_progress", retryable=True)


async def request_digest(request: Request) -> str:
    """Return the digest of method, path, query, the headers that matter, and body."""
    headers = [request.headers.get(name, "") for name in ("accept", "if-match")]
    parts = [request.method, request.url.path, request.url.query, *headers]
    chosen = (request.headers.get(name) for name in ("x-memagent-thread", "x-memagent-memory"))
    parts += [value for value in chosen if value]
    return hashlib.sha256(json.dumps(parts).encode() + await request.body()).hexdigest()


class CachedResponse(Record):
    """A response as it is stored."""

    status: int
    headers: dict[str, str] = {}
    body: str = ""

    @classmethod
    def of(cls, response: Response) -> CachedResponse:
        """Store a whole response, without the header of its length."""
        headers = {
            name: value for name, value in response.headers.items() if name != "content-length"
        }
        return cls(status=response.status_code, headers=headers, body=bytes(response.body).decode())

    def response(self) -> Response:
        """Make the response again, marked as a repetition."""
        headers = {**self.headers, "Idempotent-Replayed": "true"}
        return Response(self.body.encode(), status_code=self.status, headers=headers)


class ResponseCache:
    """Responses in this process, by scope and key. Used from one event loop."""

    def __init__(self) -> None:
        self._responses: OrderedDict[tuple[str, str], tuple[str, CachedResponse]] = OrderedDict()
        self._bytes = 0

    async def get(self, scope: Scope, key: str) -> tuple[str, CachedResponse] | None:
        """Return (digest of the request, response); None when the key is unknown."""
        return self._responses.get((scope.key, key))

    async def put(self, scope: Scope, key: str, digest: str, response: CachedResponse) -> None:
        """Store a response unless the key has one; the oldest go where there is no room."""
        if (scope.key, key) in self._responses:
            return
        self._responses[scope.key, key] = (digest, response)
        self._bytes += len(response.body)
        while len(self._responses) > _MOST_RESPONSES or self._bytes > _MOST_BYTES:
            self._drop(next(iter(self._responses)))

    async def drop(self, scope: Scope, key: str) -> None:
        """Drop the response of a key."""
        if (scope.key, key) in self._responses:
            self._drop((scope.key, key))

    async def forget(self, user_id: str) -> None:
        """Drop all responses to a user."""
        # The key of a scope begins with its user's id, which U+001F ends.
        for place in [key for key in self._responses if key[0].partition("\x1f")[0] == user_id]:
            self._drop(place)

    async def prune(self) -> None:
        """Do nothing: `put` makes room when it is needed."""

    def _drop(self, place: tuple[str, str]) -> None:
        self._bytes -= len(self._responses.pop(place)[1].body)


class SharedResponseCache:
    """Responses in the database, for ten minutes and for every worker."""

    def __init__(self, database: ServiceDatabase) -> None:
        self._database = database

    async def get(self, scope: Scope, key: str) -> tuple[str, CachedResponse] | None:
        """Return (digest of the request, response); None when the key is unknown."""
        owner = owner_digest(scope.user_id)
        values = {"owner": owner, "place": response_place(scope, key)}
        row = await asyncio.to_thread(
            self._database.run, lambda db: db.execute(text(_FIND), values).first(), owners=(owner,)
        )
        if row is None:
            return None
        return row.body_digest, CachedResponse.model_validate_json(row.response_json)

    async def put(self, scope: Scope, key: str, digest: str, response: CachedResponse) -> None:
        """Store a response of at most one megabyte unless the key has one."""
        if len(response.body) > _MOST_SHARED_BYTES:
            return
        owner = owner_digest(scope.user_id)
        row = _row(owner, response_place(scope, key), digest, response.model_dump_json(), _ERASED)
        await asyncio.to_thread(
            self._database.run,
            lambda db: db.execute(text(_INSERT), row),
            owners=(owner,),
            durable=False,
        )

    async def drop(self, scope: Scope, key: str) -> None:
        """Do nothing: a response that the journal stores is not stored here."""

    async def forget(self, user_id: str) -> None:
        """Delete all responses to a user, and store none for the next ten minutes."""
        owner = owner_digest(user_id)

        def erase(db: Connection) -> None:
            db.execute(text(_FORGET), {"owner": owner})
            # The mark. No row is at the place "", so it is inserted in any case.
            db.execute(text(_INSERT), _row(owner, _ERASED, "", "", ""))

        await asyncio.to_thread(self._database.run, erase, owners=(owner,))
        await asyncio.to_thread(self._database.scrub, responses=True)

    async def prune(self) -> None:
        """Delete the responses past their time."""
        await asyncio.to_thread(
            self._database.run, lambda db: db.execute(text(_PRUNE)), owners=(WHOLE_STORE,)
        )


def response_place(scope: Scope, key: str) -> str:
    """Return the name of a request's response, and of its lease."""
    return f"{scope_digest(scope_key(scope))}/{key}"


def _row(owner: str, place: str, digest: str, response: str, erased: str) -> dict[str, Any]:
    return {
        "owner": owner,
        "place": place,
        "digest": digest,
        "kept": response,
        "erased": erased,
        "span": _SHARED_S * 1_000_000,
    }
