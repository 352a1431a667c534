"""What a process does to a checkpointed memory before it is killed.

Lines are JSON: ["opened", seq, digest] and, for each acknowledged write, ["done", seq,
digest]; ["erased"] once an erasure was acknowledged; at last ["closed"].
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Callable
from importlib import import_module

from checkpoint_kit import ANA, History, open_hashing

from memagent.core.snapshot import Erased

Say = Callable[[str], None]
for _name in (
    "memagent.checkpoints.store memagent.embed.static memagent.embed.static "
    "memagent.embed.static memagent.journal.sqlite memagent.journal.reader "
    "memagent.journal.postgres memagent.checkpoints.server"
).split():
    import_module(_name)


def live(say: Say, *, path: str, seed: int, erase: bool, folder: str = "") -> None:
    """Open the memory, make a checkpoint, write, make another, close.

    `folder` is for temporary files.
    """
    tempfile.tempdir = folder or None
    asyncio.run(_live(say, path, seed, erase))


async def _live(say: Say, path: str, seed: int, erase: bool) -> None:
    store = open_hashing(path)
    assert store.checkpoints is not None
    bank, history = store.bank(ANA), History(seed)
    await bank.sync()
    history.sessions = history.messages = len(bank.state.sessions)
    say(json.dumps(["opened", bank.state.seq, bank.state.digest()]))
    for _ in range(2):
        for _ in range(4):
            await history.write(bank, 1)
            say(json.dumps(["done", bank.state.seq, bank.state.digest()]))
        await bank.refresh()
        store.checkpoints.save(bank)
    if erase:
        say(json.dumps(["erasing"]))
        await bank.append(lambda _: Erased(reason="asked"))
        say(json.dumps(["erased"]))
    store.close()
    say(json.dumps(["closed"]))
