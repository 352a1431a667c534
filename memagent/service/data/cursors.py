"""Cursors: the place where a page ended, sealed so that nobody can forge or share one.

A cursor names the last entry of a page, so pages neither skip nor repeat what stays
while others write. Its seal covers the listing, the scope and the filters it was made
for.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json

from memagent.client.faults import ServiceError
from memagent.core.records import Scope

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
        except (binascii.Error, ValueError):
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
