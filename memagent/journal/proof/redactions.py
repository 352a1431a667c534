"""Payloads that were rewritten because words in them were erased.

A header keeps the digest of the first payload, so the chain stays whole. The digest of
the new one stands in a later `Redacted` entry, whose own digest is in the chain.
"""

from __future__ import annotations

from pydantic_core import ValidationError

from memagent.core.snapshot import Redacted
from memagent.journal.backend import ReadConnection
from memagent.journal.rows import decode_entry, payload_digest
from memagent.journal.statements import SELECT_REDACTIONS


class Redactions:
    """The digests of a scope's rewritten payloads, read when one is first asked for."""

    def __init__(self, connection: ReadConnection, digest: str) -> None:
        self._connection, self._scope = connection, digest
        self._digests: dict[int, bytes] | None = None

    def digest(self, seq: int) -> bytes | None:
        """Return the digest of the last rewritten payload of a row; None if there is none."""
        if self._digests is None:
            self._digests = self._read()
        return self._digests.get(seq)

    def _read(self) -> dict[int, bytes]:
        digests: dict[int, bytes] = {}
        for body, salt, digest in self._connection.execute(SELECT_REDACTIONS, (self._scope,)):
            try:
                entry = decode_entry(body) if payload_digest(salt, body) == digest else None
            except (ValidationError, TypeError):
                entry = None
            if isinstance(entry, Redacted):
                digests |= {seq: bytes.fromhex(text) for seq, text in entry.rewritten}
        return digests
