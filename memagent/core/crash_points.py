"""Named places at which a test can stop or kill a process.

Tests prove with them that a crash anywhere loses nothing acknowledged. The stores and
the bank call `reach(name)` as they pass each place: an audit event of Python, which is
next to nothing in a process that hears none. Nothing but a call of `watch` in this very
process arms a point: no environment variable, no setting.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache, partial
from typing import Final

CRASH_POINTS: Final = (
    "lock.acquired",
    "schema.created",
    "schema.migrated",
    "append.enqueued",
    "append.taken",
    "transaction.begun",
    "headers.written",
    "payloads.written",
    "heads.written",
    "cache.written",
    "erase.deleted",
    "commit.before",
    "commit.after",
    "ack.before",
    "erase.committed",
    "erase.scrubbed",
    "checkpoint.before",
    "checkpoint.after",
    "close.drained",
    "lock.releasing",
)
"""Every name that the stores call `reach` with, in the order of a journal's life."""
BANK_CRASH_POINTS: Final = (
    "bank.planned",
    "bank.appended",
    "refresh.begun",
    "refresh.caught_up",
    "export.written",
)
"""The points of the memory bank: before and after an append, around the catch-up of the
search view, before an export takes its place.
"""

REDACTION_CRASH_POINTS: Final = ("redact.planned", "redact.written")
"""The points of an erasure of single words: before and after the journal is rewritten."""
CHECKPOINT_CRASH_POINTS: Final = (
    "ckpt.begun",
    "ckpt.sections",
    "ckpt.manifest",
    "ckpt.synced",
    "ckpt.renamed",
    "ckpt.erased",
)
"""The points of a memory's checkpoint: a new file begun, its sections written, its
manifest durable, its header durable, in its place; and a file deleted by an erasure.
"""

SERVER_CHECKPOINT_CRASH_POINTS: Final = ("ckpt.sent", "ckpt.replaced", "ckpt.committed")
"""Further points of a checkpoint on a server: its pieces sent, in the old one's place, and
that committed.
"""

_EVENT: Final = "memagent.reach"
reach: Final = partial(sys.audit, _EVENT)
"""Reports that the place with a name has been reached."""
_hook: Callable[[str], None] | None = None


def watch(hook: Callable[[str], None] | None) -> None:
    """Call `hook` at every place from now on in this process; None ends it.

    It runs in whichever thread gets there.
    """
    global _hook
    _hook = hook
    _listen()


@cache
def _listen() -> None:
    """Hear the audit events from now on, which a process cannot cease to do."""

    def hear(event: str, args: tuple[object, ...]) -> None:
        if event == _EVENT and _hook is not None:
            _hook(str(args[0]))

    sys.addaudithook(hear)
