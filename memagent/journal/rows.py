"""The parts of a journal row, without any database: encoding, digests, the hash chain.

A row has a header and a payload. The payload is the entry as JSON with a random salt;
the header holds a digest over both and a chain hash over itself and the header before.
The salt lies beside the payload and goes with it, so that after an erasure the chain
still proves the order of things while the digest that is left can no longer be guessed
from likely words. The surprise: `encode_entry` refuses an entry that would come out
different when read back (a number that is not finite), because a row that cannot be
replayed would lock its owner out of the whole memory.

The names and marks of the journal's schema stand here too: its revisions, its tables,
its settings. The tables themselves are in `reader`.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError, ValidationError

from memagent.core.errors import InputError, StoreError, VersionConflict
from memagent.core.records import Scope, as_utc
from memagent.core.snapshot import Entry
from memagent.protocols import Clock

SCHEMA_REVISION: Final = "0001"
"""The revision that the tables of this version stand at."""
KNOWN_REVISIONS: Final = ("0001",)
"""Every revision this version can read or migrate from, oldest first."""
VERSION_TABLE: Final = "memagent_version"
"""The table of the revision: its presence says that a database is ours."""
TABLES: Final = frozenset({"meta", "scopes", "journal", "payloads", "idempotency", "embeddings"})
"""The tables of a journal, without `VERSION_TABLE`."""
FORMAT: Final = "memagent-journal/1"
"""Value of the `format` row in `meta`."""
GUESTS: Final = ("service_", "checkpoint")
"""Tables whose names begin so are kept by the REST service, or as copies that may go at any
time, in the same place; the journal leaves them alone.
"""
SCHEMA_LOCK: Final = 0x6D656D6167656E74
"""The advisory lock on PostgreSQL that is held while tables are made."""
SETTING: Final = "memagent.scopes"
"""The variable in which a transaction on PostgreSQL names its scopes."""
NAMED: Final = f"string_to_array(current_setting('{SETTING}', true), ',')"
"""SQL for the digests in that variable."""


ScopeKey: TypeAlias = tuple[str, str | None, str | None]
"""(user id, agent id, run id)."""

SALT_BYTES: Final = 16
ERASED: Final = "erased"
"""The kind of an `Erased` entry."""
NAMELESS: Final = "\x1f"
"""What the user of an erased scope is written as, with the scope's digest; no id has it."""
REDACTED: Final = "redacted"
"""The kind of a `Redacted` entry."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_ENTRY: Final[TypeAdapter[Entry]] = TypeAdapter(Entry)


class Tip(NamedTuple):
    """The end of a scope's log."""

    scope_id: int
    head: int
    chain: bytes
    recorded_us: int


class ReadConnection(Protocol):
    """A connection that only reads."""

    def execute(self, statement: str, parameters: Sequence[Any] = ..., /) -> Any:
        """Run a statement with `?` for each parameter; gives a driver's cursor."""
        ...


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """The first answer to a request that carried an idempotency key."""

    key: str
    body_digest: str
    """Digest of the request's body, as the caller made it."""
    response_json: str


class IdempotencyKeyUsed(StoreError):
    """An append came with an idempotency key that its scope has seen; nothing was written.

    `.response` is the first answer.
    """

    def __init__(self, response: StoredResponse) -> None:
        super().__init__(
            f"idempotency key {response.key!r} was used before in this scope; nothing was "
            "written again"
        )
        self.response = response


def to_microseconds(moment: datetime) -> int:
    """Convert a moment to microseconds since 1970 in UTC; exact."""
    return ((moment if moment.tzinfo is not None else as_utc(moment)) - _EPOCH) // _MICROSECOND


def from_microseconds(microseconds: int) -> datetime:
    """Convert microseconds since 1970 to a moment in UTC."""
    return _EPOCH + timedelta(microseconds=microseconds)


def scope_key(scope: Scope) -> ScopeKey:
    """Return the scope as a plain tuple, quick to hash."""
    return (scope.user_id, scope.agent_id, scope.run_id)


@lru_cache(maxsize=8_192)
def scope_digest(key: ScopeKey) -> str:
    """Return the 64 hex digits that name a scope.

    No two scopes share them, whatever characters their ids have.
    """
    return hashlib.sha256(json.dumps(["memagent/scope/1", *key]).encode()).hexdigest()


def nameless(key: ScopeKey) -> ScopeKey:
    """Return what stands for the names of an erased scope."""
    return (f"{NAMELESS}{scope_digest(key)}", None, None)


def conflict(key: ScopeKey, *, expected: int, actual: int) -> VersionConflict:
    """Make the error for an append that built on a head which is no longer the last."""
    return VersionConflict(
        f"scope {key} is at sequence {actual}, not at {expected}: read what was written in "
        "between and try again",
        expected=expected,
        actual=actual,
    )


def encode_entry(entry: Entry) -> bytes:
    """Encode an entry as UTF-8 JSON, without fields that hold their default.

    Raises `InputError` when reading it back would not give the same entry.

    The serializer refuses values of a foreign type, which leaves numbers that JSON does
    not know; only an entry that seems to hold one is read back, for reading costs
    several times more than writing.
    """
    try:
        body = entry.model_dump_json(warnings="error", exclude_defaults=True).encode()
        if b"NaN" not in body and b"Infinity" not in body:
            return body
        same = _ENTRY.validate_json(body) == entry
    except (PydanticSerializationError, ValidationError, UnicodeError) as exc:
        raise InputError(
            f"this {entry.kind!r} entry cannot be written as JSON and read back: {exc}"
        ) from exc
    if not same:
        raise InputError(
            f"this {entry.kind!r} entry would change when written as JSON: look for NaN or "
            "infinite numbers in it"
        )
    return body


def decode_entry(body: bytes) -> Entry:
    """Decode what `encode_entry` made.

    Raises `pydantic_core.ValidationError` for anything else.
    """
    return _ENTRY.validate_json(body)


def payload_digest(salt: bytes, body: bytes) -> bytes:
    """Return the digest of salt and payload (32 bytes)."""
    return hashlib.sha256(salt + body).digest()


def first_chain(digest: str) -> bytes:
    """Return the chain hash before the first row of the scope with that digest (32 bytes)."""
    return hashlib.sha256(b"memagent/journal/1/" + digest.encode()).digest()


def next_chain(previous: bytes, *, seq: int, kind: str, recorded_us: int, digest: bytes) -> bytes:
    """Return the chain hash of a header that follows one with the hash `previous` (32 bytes)."""
    label = kind.encode()
    return hashlib.sha256(
        previous + struct.pack(">qqI", seq, recorded_us, len(label)) + label + digest
    ).digest()


def follows(
    before: bytes, chain: bytes, *, seq: int, kind: str, recorded_us: int, digest: bytes
) -> bool:
    """Tell whether a header with this chain hash follows one with the hash `before`."""
    try:
        after = next_chain(before, seq=seq, kind=kind, recorded_us=recorded_us, digest=digest)
    except (AttributeError, TypeError, struct.error):  # SQLite lets other types through
        return False
    return chain == after


def fits(
    salt: Any, body: Any, digest: bytes, seq: int, rewritten: Callable[[int], bytes | None]
) -> bool:
    """Tell whether a payload is the one that its header names, or its last rewriting."""
    try:
        own = payload_digest(salt, body)
    except TypeError:
        return False
    return own == digest or own == rewritten(seq)


def vector_crc(embedder_id: str, digest: str, blob: bytes) -> int:
    """Return the CRC-32 of a cached vector and its key.

    A flipped bit anywhere makes the row unknown.
    """
    return zlib.crc32(f"{embedder_id}\x00{digest}\x00".encode() + blob)


@dataclass(frozen=True, slots=True)
class PreparedEntry:
    """An entry ready to be written: all that does not depend on its place in the log."""

    kind: str
    recorded_us: int
    salt: bytes
    body: bytes
    digest: bytes


def dates_of(
    entries: Sequence[Entry], recorded_at: Sequence[datetime] | None, clock: Clock
) -> list[datetime]:
    """Return the dates of entries, in UTC: as given, or all at this moment.

    Raises `InputError` unless there is a date for each.
    """
    if recorded_at is None:
        return [as_utc(clock())] * len(entries)
    if len(recorded_at) != len(entries):
        raise InputError(
            f"{len(entries)} entries came with {len(recorded_at)} dates in recorded_at; give "
            "one date an entry"
        )
    return [as_utc(moment) for moment in recorded_at]


def prepare_entry(entry: Entry, recorded_at: datetime) -> PreparedEntry:
    """Encode and digest an entry. Raises `InputError` as `encode_entry` does."""
    body, salt = encode_entry(entry), os.urandom(SALT_BYTES)
    return PreparedEntry(
        entry.kind, to_microseconds(recorded_at), salt, body, payload_digest(salt, body)
    )
