"""Export files that are made of the journal when they are fetched.

A job stores where in the journal a file ends, and its size and checksum. The same lines
come out every time, in whichever worker, until an erasure has taken some of them: then
the checksum differs and the file is not given.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator
from typing import Any, Final

from memagent.core.records import Scope
from memagent.memory.bank import MemoryBank
from memagent.memory.transfer import export_lines
from memagent.service.banks import Banks

_BLOCK_CHARS: Final = 64 * 1024


async def describe_file(bank: MemoryBank, number: int) -> dict[str, Any]:
    """Describe one file of an export for its job.

    Names the memory, the place in the journal, the counts, the size and the checksum.
    """
    state = await bank.sync()
    place: dict[str, Any] = {"seq": state.seq, "digest": state.digest()}
    lines, size, seal = 0, 0, hashlib.sha256()
    async for line in export_lines(bank, **place):
        content = line.encode()
        seal.update(content)
        lines, size = lines + 1, size + len(content)
    return {
        **bank.scope.model_dump(),
        **place,
        "items": sum(1 for _ in state.active()),
        "sessions": len(state.sessions),
        "rows": lines - 2,
        "number": number,
        "bytes": size,
        "sha256": seal.hexdigest(),
    }


async def open_file(banks: Banks, file: dict[str, Any]) -> AsyncGenerator[bytes] | None:
    """Return the content of a described file; None when it cannot be made any more."""
    seal = hashlib.sha256()
    async for block in _blocks(banks, file):
        seal.update(block)
    return _blocks(banks, file) if seal.hexdigest() == file["sha256"] else None


async def _blocks(banks: Banks, file: dict[str, Any]) -> AsyncGenerator[bytes]:
    waiting: list[str] = []
    size = 0
    scope = Scope(**{name: file[name] for name in Scope.model_fields})
    with banks.agent(scope) as agent:
        async for line in export_lines(agent.bank, seq=file["seq"], digest=file["digest"]):
            waiting.append(line)
            size += len(line)
            if size >= _BLOCK_CHARS:
                yield "".join(waiting).encode()
                waiting, size = [], 0
    yield "".join(waiting).encode()
