"""API keys: what they look like, what they may do, and who a request is from.

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
from typing import Final

from memagent.core.errors import InputError, MemAgentError, StoreUnavailable
from memagent.service.data.database import ServiceDatabase, StoredKey

SCOPES: Final = ("memory:read", "memory:write", "memory:delete", "chat", "admin")
"""What a key may be allowed; `admin` names any user (unless the key is bound), and reads
metrics.
"""
LOCAL_USER: Final = "default"
_KEY = re.compile(r"ma_([a-z0-9]{12})_([A-Za-z0-9_-]{43})")
_FRESH_S: Final = 1.0
"""How long a look at the keys holds: a revoked key is refused after at most so many
seconds.
"""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who a request is from."""

    name: str
    """The key's id, or `local`; never a secret."""
    scopes: frozenset[str]
    user_id: str | None
    """The one user it may act for; None for any."""


LOCAL: Final = Caller("local", frozenset(SCOPES), None)


class KeyRing:
    """Makes keys and knows them again."""

    def __init__(self, database: ServiceDatabase) -> None:
        self._database = database
        self._secret = hmac.new(database.secret(), b"memagent/keys/1", hashlib.sha256).digest()
        self._known: dict[str, StoredKey] = {}
        self._looked_at = float("-inf")
        self._waiting_since: float | None = None
        """Since when keys are being read beside the requests without having come."""

    def create(
        self, *, name: str, scopes: Sequence[str], user_id: str | None, at: datetime
    ) -> tuple[str, str]:
        """A new key: (its id, the key itself, which is never seen again).

        Raises `InputError` for an unknown scope.
        """
        unknown = sorted(set(scopes) - set(SCOPES))
        if unknown or not scopes:
            raise InputError(
                f"scope {', '.join(unknown) or 'missing'}: a key has one or more of {', '.join(SCOPES)}"
            )
        if user_id is not None and not 0 < len(user_id) <= 256:
            raise InputError("a user id has 1 to 256 characters")
        key_id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
        self._database.add_key(
            key_id,
            name=name[:200],
            secret_hmac=self._hmac(secret),
            scopes=sorted(set(scopes)),
            user_id=user_id,
            at=at,
        )
        self.look()
        return key_id, f"ma_{key_id}_{secret}"

    def caller(self, key: str) -> Caller | None:
        """Who a key stands for; None when it is none, or was revoked."""
        match = _KEY.fullmatch(key)
        if match is None:
            return None
        found = self._keys().get(match[1])
        given = self._hmac(match[2])
        if (
            not hmac.compare_digest(found.secret_hmac if found else "0" * 64, given)
            or found is None
            or found.revoked
        ):
            return None
        return Caller(found.id, found.scopes, found.user_id)

    def holder(self, key_id: str) -> Caller | None:
        """Who the key of an id stands for, for a session that was opened with it; None
        when it is none, or was revoked.
        """
        found = self._keys().get(key_id)
        return (
            Caller(found.id, found.scopes, found.user_id)
            if found is not None and not found.revoked
            else None
        )

    @property
    def ever(self) -> bool:
        """Whether there ever was a key: revoking the last one locks the door, it does
        not take it off its hinges.
        """
        return bool(self._keys())

    def look(self) -> None:
        """Read the keys anew; blocks. Raises `StoreError`s."""
        now = time.monotonic()
        self._known = {key.id: key for key in self._database.api_keys()}
        self._looked_at = now

    async def watch(self) -> None:
        """Read the keys again and again, so that no request has to wait for that; runs
        until it is cancelled.
        """
        try:
            while True:
                with suppress(MemAgentError):
                    await asyncio.to_thread(self._look_watched)
                await asyncio.sleep(_FRESH_S / 2)
        finally:
            self._waiting_since = None

    def _look_watched(self) -> None:
        self._waiting_since = self._waiting_since or time.monotonic()
        self.look()
        self._waiting_since = None

    def _keys(self) -> dict[str, StoredKey]:
        now = time.monotonic()
        if now - self._looked_at > _FRESH_S:
            if self._waiting_since is not None and now - self._waiting_since > _FRESH_S:
                raise StoreUnavailable("the API keys cannot be read now; come back in a second")
            self.look()
        return self._known

    def _hmac(self, secret: str) -> str:
        return hmac.new(self._secret, secret.encode(), hashlib.sha256).hexdigest()
