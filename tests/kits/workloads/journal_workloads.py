"""What a process does to a journal before it is killed: every kind of write, each
acknowledged by a line, each line checkable afterwards.

Lines are JSON: ["row", scope, seq, token], ["batch", scope, first seq, token, count],
["erased", scope, seq]. A token is the payload; the rows of a batch are
"token/number/count", so a torn batch shows.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from contextlib import suppress
from importlib import import_module

import numpy as np
from crash_child import Say
from postgres_kit import journal_at

from memagent.core.errors import VersionConflict
from memagent.core.records import Scope
from memagent.core.snapshot import Entry, Erased, StatsDelta
from memagent.journal import open_database as embedding_cache, postgres as postgres_journal, reader
from memagent.protocols import Vector

PRELOADED = (embedding_cache, postgres_journal, reader)
"""Loaded on demand elsewhere; loaded here so that a forked process does not spend its time
on it.
"""
with suppress(ImportError):
    import_module("psycopg")
EMBEDDER = "crash/1"
STEPS = 12


def entry_of(token: str) -> Entry:
    """An entry that carries a token."""
    return StatsDelta(updates=((token, None),))


def token_of(entry: Entry) -> str:
    """The token that an entry carries; "" for an erasure."""
    return entry.updates[0][0] if isinstance(entry, StatsDelta) else ""


def vector_of(digest: str) -> Vector:
    """The one right vector for a text digest."""
    return np.frombuffer(hashlib.sha256(digest.encode()).digest(), dtype=np.uint8).astype(
        np.float32
    )


def write_everything(say: Say, *, path: str, cycle: int, erase: bool) -> None:
    """Open the journal, write in every way there is, close it."""
    asyncio.run(_write_everything(say, path, cycle, erase))


async def _write_everything(say: Say, path: str, cycle: int, erase: bool) -> None:
    def tell(*words: str | int) -> None:
        say(json.dumps(words))

    with journal_at(path) as journal:

        async def rows(user: str, writer: int) -> None:
            scope = Scope(user_id=user)
            for step in range(STEPS):
                token = f"c{cycle}w{writer}s{step}"
                while True:
                    expect = await journal.head(scope)
                    try:
                        row = await journal.append(scope, entry_of(token), expect=expect)
                    except VersionConflict:
                        continue
                    tell("row", user, row.seq, token)
                    break

        async def batches(user: str) -> None:
            scope = Scope(user_id=user)
            for step in range(STEPS):
                count, token = 2 + step % 5, f"c{cycle}b{step}"
                entries = [entry_of(f"{token}/{number}/{count}") for number in range(count)]
                written = await journal.append_many(
                    scope, entries, expect=await journal.head(scope)
                )
                tell("batch", user, written[0].seq, token, count)

        async def vectors() -> None:
            for step in range(STEPS):
                digests = [f"c{cycle}v{step}n{number}" for number in range(20)]
                journal.cache.put_many(EMBEDDER, {digest: vector_of(digest) for digest in digests})
                await asyncio.sleep(0.002)

        async def erasure(user: str) -> None:
            scope = Scope(user_id=user)
            await asyncio.sleep(0.005)
            while True:
                try:
                    row = await journal.append(scope, Erased(), expect=await journal.head(scope))
                except VersionConflict:
                    continue
                tell("erased", user, row.seq)
                break

        tasks = [
            rows("alone", 0),
            rows("shared", 1),
            rows("shared", 2),
            rows("shared", 3),
            batches("batches"),
            vectors(),
        ]
        if erase:
            tasks.append(erasure("shared"))
        await asyncio.gather(*tasks)


def open_and_close(say: Say, *, path: str) -> None:
    """Open the journal, which makes or migrates it, and close it."""
    journal_at(path).close()
    say(json.dumps(["opened", os.getpid()]))
