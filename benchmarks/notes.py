"""Benchmark of the notes of where logs end: what one costs, plain, keyed and shared.

The yardstick is the processor time of the append that it follows. Notes on a server
(`store.tips` with PostgreSQL) are the shared ones.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

from measured import report

from memagent.core.records import Scope, Session, Turn
from memagent.core.snapshot import SessionStored
from memagent.journal.proof.audit import Seal, TipBook
from memagent.journal.rows import Tip, scope_key
from memagent.journal.sqlite import SqlJournal

SCOPE = Scope(user_id="ana")
KEY = b"a secret of the operator"
APPENDS, NOTES, ROUNDS = 500, 10_000, 5


def note_us(path: Path, *, key: bytes | None, shared: bool) -> float:
    """Processor time of one note in microseconds."""
    book = TipBook(path, key, shared=shared)
    book.open(())
    tips = {scope_key(SCOPE): Tip(1, 7, b"c" * 32, 0)}
    began = time.process_time()
    for _ in range(NOTES):
        book.note(tips)
    took = time.process_time() - began
    book.close()
    return took / NOTES * 1e6


async def append_us(path: Path, seal: Seal) -> float:
    """Processor time of one append in microseconds, its note included."""
    with SqlJournal(path, seal=seal) as journal:
        began = time.process_time()
        for number in range(APPENDS):
            turn = Turn(id=f"t{number}", speaker="Ana", text=f"I bought {number} apples.")
            entry = SessionStored(session=Session(id=f"s{number}", turns=(turn,)))
            await journal.append(SCOPE, entry, expect=number)
        return (time.process_time() - began) / APPENDS * 1e6


def main() -> None:
    """Measure and print."""
    best: dict[str, float] = {}

    def keep(name: str, value: float) -> None:
        best[name] = min(value, best.get(name, value))

    with tempfile.TemporaryDirectory() as name:
        for number in range(ROUNDS):
            folder = Path(name) / str(number)
            folder.mkdir()
            keep("plain note", note_us(folder / "plain", key=None, shared=False))
            keep("keyed note", note_us(folder / "keyed", key=KEY, shared=False))
            keep("keyed note, shared", note_us(folder / "shared", key=KEY, shared=True))
            keep("append", asyncio.run(append_us(folder / "plain.db", Seal())))
            keep("append, keyed", asyncio.run(append_us(folder / "keyed.db", Seal(key=KEY))))
    figures = {f"{name}, us": round(value, 1) for name, value in best.items()}
    shares = {
        f"{name} / append": round(best[name] / best["append"], 3)
        for name in ("plain note", "keyed note", "keyed note, shared")
    }
    report(
        "notes",
        figures | shares,
        promises={"keyed note / append": (shares["keyed note / append"], 0.1)},
    )


if __name__ == "__main__":
    main()
