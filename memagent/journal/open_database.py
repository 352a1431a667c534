"""A journal's database while it is open: its claim, its responses, its files, its end."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from types import TracebackType
from typing import Final, Self, TypeVar

from memagent.core.errors import ConfigError, StoreError
from memagent.core.records import Scope
from memagent.journal.backend import Backend
from memagent.journal.file_lock import FileLock
from memagent.journal.open_writers import OPEN_WRITERS
from memagent.journal.reader import JournalReader
from memagent.journal.rows import (
    StoredResponse,
    scope_digest,
    scope_key,
    to_microseconds,
)
from memagent.protocols import Clock, EmbeddingCache

T = TypeVar("T")
_EMBEDDER_KEY: Final = "embedder"


class OpenDatabase:
    """A database opened as a journal; what reads and writes entries is a subclass.

    Thread-safe; those of the same database share a writer within a process.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        read_only: bool,
        clock: Clock,
        lock: Callable[[], FileLock] | None = None,
    ) -> None:
        self._backend = backend
        # The place of the journal, for messages; never with a password.
        self.place = backend.name
        self.read_only = read_only
        self._clock = clock
        # Entered around an erasure by whoever keeps copies of a scope outside of the journal.
        self.erasing: Callable[[Scope], AbstractContextManager[object]] = lambda _: nullcontext()
        self._pid = os.getpid()
        self._closed = False
        self._reader = JournalReader(backend)
        self._writer, self._opened_as = None, backend
        try:
            if not read_only:
                self._writer, self._opened_as = OPEN_WRITERS.acquire(backend, lock=lock)
            self._reader.ready()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.place!r}{', read_only=True' if self.read_only else ''})"
        )

    async def scopes(self) -> list[Scope]:
        """Return every scope that holds something, in order of key; erased ones are nameless."""
        self._check()
        return await asyncio.to_thread(self._reader.scopes)

    def verify(self, scope: Scope) -> list[str]:
        """Return what is wrong with the scope's log, the first bad sequence first; [] is well.

        Blocks.
        """
        self._check()
        return self._reader.verify(scope_key(scope))

    def chain_at(self, scope: Scope, seq: int) -> bytes | None:
        """Return a row's chain hash; None where there is none or an erasure came later. Blocks."""
        self._check()
        return self._reader.chain_at(scope_key(scope), seq)

    def response(self, scope: Scope, key: str) -> StoredResponse | None:
        """Return the first response to the request with this idempotency key.

        None when the scope has not seen the key.
        """
        self._check()
        return self._reader.response(scope_key(scope), key)

    def drop_response(self, scope: Scope, key: str) -> bool:
        """Delete the response of an idempotency key; return whether it was there. Blocks."""
        self._check()
        digest = scope_digest(scope_key(scope))
        return _deleted(self._backend, lambda: self._backend.drop_response(digest, key))

    def prune_responses(self, *, before: datetime, most: int) -> int:
        """Delete first responses older than a moment, and the oldest beyond the newest `most`.

        Return their number. Blocks.
        """
        self._check()
        limit_us = to_microseconds(before)
        return _deleted(self._backend, lambda: self._backend.prune_responses(limit_us, most))

    def verify_erased(self) -> list[str]:
        """Return what is wrong with the logs of erased scopes, as `verify` does. Blocks."""
        self._check()
        return self._reader.verify_erased()

    def claimed_embedder(self) -> tuple[str, int] | None:
        """Return (id, width) of the embedder that this store's vectors come from.

        None when no embedder was claimed yet.
        """
        self._check()
        value = (
            self._writer.pending.meta(_EMBEDDER_KEY) if self._writer is not None else None
        ) or self._reader.meta(_EMBEDDER_KEY)
        if value is None:
            return None
        dim, _, embedder_id = value.partition(" ")
        return embedder_id, int(dim)

    def claim_embedder(self, embedder_id: str, dim: int, *, force: bool = False) -> None:
        """Claim the store's vectors for an embedder.

        The first claim stays unless `force` is set (after embedding anew) or nothing is
        stored yet.

        Raises `ConfigError` naming both embedders and the way out when another one was
        claimed.
        """
        known = self.claimed_embedder()
        if known == (embedder_id, dim):
            return
        if known is not None and not force and self._reader.scopes():
            raise ConfigError(
                f"the memory at {self.place} was embedded by {known[0]!r} ({known[1]} "
                f"dimensions), but {embedder_id!r} ({dim} dimensions) "
                "is configured; their vectors cannot be compared. Configure the first one "
                "again, or embed the memory anew:  "
                "memagent reembed"
            )
        if self._writer is not None:
            self._writer.put_meta(_EMBEDDER_KEY, f"{dim} {embedder_id}")

    @property
    def backend(self) -> Backend:
        """The database, for what else is kept in it."""
        return self._backend

    @property
    def cache(self) -> EmbeddingCache:
        """The embedding cache in the same database; usable until the journal is closed."""
        from memagent.journal.embedding_cache import SqlEmbeddingCache

        return SqlEmbeddingCache(self._reader, self._writer, check=self._check)

    @property
    def scrub_due(self) -> bool:
        """Whether erased bytes may still lie in the files.

        The disk or a long reader was in the way.
        """
        return self._writer is not None and self._writer.committer.scrub_due

    def close(self) -> None:
        """Wait for what has been handed in, then close.

        The last user of the store frees its lock. Closing again is harmless.
        """
        if self._closed or self._pid != os.getpid():
            return
        self._closed = True
        self._reader.close()
        if self._writer is not None:
            OPEN_WRITERS.release(self._backend)

    def _check(self) -> None:
        if self._pid != os.getpid():
            raise StoreError(
                f"the journal at {self.place} was opened before a fork; open stores after it, "
                "or start the child process anew ('spawn')"
            )
        if self._closed:
            raise StoreError(f"the journal at {self.place} is closed")


def _deleted(backend: Backend, delete: Callable[[], T]) -> T:
    """Return what a deletion of responses returns; translate its errors."""
    try:
        return delete()
    except backend.driver_error as exc:
        raise backend.error(exc, "deleting responses in") from exc
