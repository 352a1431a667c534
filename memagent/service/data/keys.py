"""API keys: their form, their scopes, and the caller a key stands for.

A key is `ma_<id>_<secret>`; the secret has 256 bits and only its HMAC-SHA-256 is kept,
so the database gives nobody away. A key may be bound to one user, and then reaches no
other. Without any key the service serves loopback requests alone, as the local user.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from threading import Event
from typing import Final

from memagent.core.errors import InputError, MemAgentError, StoreUnavailable
from memagent.journal.rows import from_microseconds, to_microseconds
from memagent.service.data.database import ServiceDatabase, keys

SCOPES: Final = ("memory:read", "memory:write", "memory:delete", "chat", "admin")
"""The scopes of keys; `admin` reads metrics. A key that is bound to no user names any."""
LOCAL_USER: Final = "default"
_KEY = re.compile(r"ma_([a-z0-9]{12})_([A-Za-z0-9_-]{43})")
# Seconds after which a revoked key is refused at the latest.
_FRESH_S: Final = 1.0
# A read that takes longer hangs; a shorter one waits for a busy machine.
_PATIENCE_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request."""

    name: str
    """The key's id, or `local`; never a secret."""
    scopes: frozenset[str]
    user_id: str | None
    """The only user that the caller may act for; None for any."""


LOCAL: Final = Caller("local", frozenset(SCOPES), None)


@dataclass(frozen=True, slots=True)
class StoredKey:
    """An API key as it is stored."""

    id: str
    name: str
    secret_hmac: str
    scopes: frozenset[str]
    user_id: str | None
    created_at: datetime
    revoked: bool


class KeyRing:
    """Makes keys and recognises them."""

    def __init__(self, database: ServiceDatabase) -> None:
        self._database = database
        self._secret = hmac.new(database.secret(), b"memagent/keys/1", hashlib.sha256).digest()
        self._known: dict[str, StoredKey] = {}
        self._read_at = float("-inf")
        # Since when `watch` has waited for the database.
        self._waiting_since: float | None = None
        self._failing = False
        self._idle = Event()
        self._idle.set()

    def create(
        self, *, name: str, scopes: Sequence[str], user_id: str | None, at: datetime
    ) -> tuple[str, str]:
        """Make a key: (its id, the key itself, which is never seen again).

        Raises `InputError` for an unknown scope.
        """
        unknown = sorted(set(scopes) - set(SCOPES))
        if unknown or not scopes:
            raise InputError(
                f"scope {', '.join(unknown) or 'missing'}: a key has one or more of "
                f"{', '.join(SCOPES)}"
            )
        if user_id is not None and not 0 < len(user_id) <= 256:
            raise InputError("a user id has 1 to 256 characters")
        key_id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
        row = keys.insert().values(
            id=key_id,
            name=name[:200],
            secret_hmac=self._hmac(secret),
            scopes=" ".join(sorted(set(scopes))),
            user_id=user_id,
            created_us=to_microseconds(at),
        )
        self._database.run(lambda db: db.execute(row))
        self.read()
        return key_id, f"ma_{key_id}_{secret}"

    def revoke(self, key_id: str, *, at: datetime) -> bool:
        """Make a key useless; return False when it is unknown or was revoked before."""
        working = keys.update().where(keys.c.id == key_id, keys.c.revoked_us.is_(None))
        statement = working.values(revoked_us=to_microseconds(at))
        return self._database.run(lambda db: db.execute(statement).rowcount) > 0

    def stored(self) -> list[StoredKey]:
        """Read every key, revoked ones too, oldest first."""
        rows = self._database.rows(keys.select().order_by(keys.c.created_us, keys.c.id))
        return [
            StoredKey(
                id=row.id,
                name=row.name,
                secret_hmac=row.secret_hmac,
                scopes=frozenset(row.scopes.split()),
                user_id=row.user_id,
                created_at=from_microseconds(row.created_us),
                revoked=row.revoked_us is not None,
            )
            for row in rows
        ]

    def caller(self, key: str) -> Caller | None:
        """Return the caller of a key; None when it is unknown or was revoked."""
        match = _KEY.fullmatch(key)
        if match is None:
            return None
        stored = self._keys().get(match[1])
        expected = stored.secret_hmac if stored is not None else "0" * 64
        return (
            self.holder(match[1]) if hmac.compare_digest(expected, self._hmac(match[2])) else None
        )

    def holder(self, key_id: str) -> Caller | None:
        """Return the caller of the key with an id, for a session that was opened with it.

        None when it is unknown or was revoked.
        """
        stored = self._keys().get(key_id)
        if stored is None or stored.revoked:
            return None
        return Caller(stored.id, stored.scopes, stored.user_id)

    @property
    def ever(self) -> bool:
        """Whether there ever was a key: revoking the last one does not open the service."""
        return bool(self._keys())

    def read(self) -> None:
        """Read the keys anew; blocks. Raises `StoreError`s.

        Of two threads that read at once the one that began last knows best.
        """
        now, known = time.monotonic(), {key.id: key for key in self.stored()}
        if now >= self._read_at:
            self._known, self._read_at = known, now

    async def watch(self) -> None:
        """Read the keys twice a second, so that no request waits for it, until cancelled."""
        try:
            while True:
                with suppress(MemAgentError):
                    await asyncio.to_thread(self._read_watched)
                await asyncio.sleep(_FRESH_S / 2)
        finally:
            self._waiting_since = None

    def _read_watched(self) -> None:
        self._waiting_since = self._waiting_since or time.monotonic()
        self._idle.clear()
        try:
            self.read()
            self._waiting_since = None
        finally:
            self._failing = self._waiting_since is not None
            self._idle.set()

    def _keys(self) -> dict[str, StoredKey]:
        now, began = time.monotonic(), self._waiting_since
        if now - self._read_at > _FRESH_S:
            if began is None or now - began <= _FRESH_S:
                self.read()
            elif (
                self._failing
                or not self._idle.wait(max(0.0, began + _PATIENCE_S - now))
                or self._failing
            ):
                raise StoreUnavailable("the API keys cannot be read now; come back in a second")
        return self._known

    def _hmac(self, secret: str) -> str:
        return hmac.new(self._secret, secret.encode(), hashlib.sha256).hexdigest()
