"""Stored responses to requests that wrote nothing, by idempotency key.

`ResponseCache` holds them in the process; `SharedResponseCache` holds them for some
minutes in the database that several workers share. A request that is repeated after its
response has gone is done again, which has no effect. Responses to requests that write
are not here: the journal keeps them (`idempotency`).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Any, Final

from sqlalchemy import Connection, Row, text
from starlette.responses import Response

from memagent.core.records import Record, Scope
from memagent.journal.backend import WHOLE_STORE
from memagent.journal.rows import scope_digest, scope_key
from memagent.service.data.database import ServiceDatabase, owner_digest

_MOST_RESPONSES: Final = 10_000
_MOST_BYTES: Final = 64 * 1024 * 1024
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
# Stands in the place of a key for a while after an erasure, so that a request begun
# before it leaves no text of the user behind.
_ERASED: Final = "erased"
_DELETE: Final = "DELETE FROM service_responses"
_FIND: Final = (
    "SELECT body_digest, response_json FROM service_responses WHERE owner = :owner AND place = "
    ":place"
)


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

        def find(db: Connection) -> Row[Any] | None:
            return db.execute(text(_FIND), values).first()

        row = await asyncio.to_thread(self._database.run, find, owners=(owner,))
        if row is None:
            return None
        return row.body_digest, CachedResponse.model_validate_json(row.response_json)

    async def put(self, scope: Scope, key: str, digest: str, response: CachedResponse) -> None:
        """Store a response of at most one megabyte unless the key has one."""
        if len(response.body) > _MOST_SHARED_BYTES:
            return
        owner = owner_digest(scope.user_id)
        row = _row(owner, response_place(scope, key), digest, response.model_dump_json(), _ERASED)

        def insert(db: Connection) -> None:
            db.execute(text(_INSERT), row)

        await asyncio.to_thread(self._database.run, insert, owners=(owner,), durable=False)

    async def drop(self, scope: Scope, key: str) -> None:
        """Do nothing: a response that the journal stores is not stored here."""

    async def forget(self, user_id: str) -> None:
        """Delete all responses to a user, and store none until requests of before have ended."""
        owner = owner_digest(user_id)

        def erase(db: Connection) -> None:
            db.execute(text(_DELETE))
            db.execute(text(_INSERT), _row(owner, _ERASED, "", "", ""))

        await asyncio.to_thread(self._database.run, erase, owners=(owner,))
        await asyncio.to_thread(self._database.scrub_responses)

    async def prune(self) -> None:
        """Delete what is past its time; row-level security shows this transaction nothing else."""
        await asyncio.to_thread(
            self._database.run, lambda db: db.execute(text(_DELETE)), owners=(WHOLE_STORE,)
        )


def response_place(scope: Scope, key: str) -> str:
    """Return the name of a request's response, and of its lease."""
    return f"{scope_digest(scope_key(scope))}/{key}"


def _row(owner: str, place: str, digest: str, response: str, erased: str) -> dict[str, Any]:
    values = {"owner": owner, "place": place, "digest": digest, "kept": response, "erased": erased}
    return {**values, "span": _SHARED_S * 1_000_000}
