"""Flip bits of a store, its log, notes, checkpoint and an export; see what is served.

A checkpoint is a cache, so there a mutation is detected if the journal is replayed.
Otherwise a mutation is *detected* if opening, reading, auditing or importing tells of it,
*harmless* if everything read is what was written, and *served* if something else is read
without a word. Prints one line of JSON for each kind of file, and exits with 1 if
anything was served.

    python scripts/mutations.py --flips 10000 --seed 1
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from memagent.checkpoints.tables import LayeredMap
from memagent.core.answers import Query
from memagent.core.errors import MemAgentError
from memagent.core.ops import Add, OpBatch
from memagent.core.records import Fact, Scope, Session, SourceRef, Turn
from memagent.embed.static import HashEmbedder
from memagent.journal.proof.audit import Seal
from memagent.journal.sqlite import SqlJournal
from memagent.memory.bank import MemoryBank
from memagent.memory.transfer import export_bank, import_bank
from memagent.opening.open_store import OpenStore

SCOPES = tuple(Scope(user_id=name) for name in ("ann", "bob"))
KINDS = ("journal", "log", "tips", "checkpoint", "archive")
SEAL = Seal(key=b"the operator's secret")


async def fill(folder: Path) -> dict[str, str]:
    """Write a store, keep a copy with its log as a crash leaves it, and export a user."""
    (folder / "log").mkdir()
    with SqlJournal(folder / "m.db", seal=SEAL) as journal:
        for scope in SCOPES:
            bank = MemoryBank(embedder=HashEmbedder(), scope=scope, journal=journal)
            for number in range(10):
                turn = Turn(id=f"t{number}", speaker="Ann", text=f"I bought {number} apples.")
                await bank.store_session(Session(id=f"s{number}", turns=(turn,)))
                fact = Fact(text=f"Ann bought {number} apples.", source_turn_ids=(turn.id,))
                source = SourceRef(session_id=f"s{number}", chunk_index=0)
                await bank.commit(OpBatch(accepted=(Add(fact=fact),)), source=source)
            await export_bank(bank, folder / f"{scope.user_id}.jsonl")
        for name in ("m.db", "m.db-wal", "m.db.tips"):
            shutil.copy(folder / name, folder / "log")
        rows = await content(journal)
    (folder / "rest").mkdir()
    for name in ("m.db", "m.db.tips"):
        shutil.copy(folder / name, folder / "rest")
    return rows


async def content(journal: SqlJournal) -> dict[str, str]:
    """Return every row of every scope as JSON."""
    return {
        scope.user_id: "\n".join([row.model_dump_json() async for row in journal.since(scope, 0)])
        for scope in SCOPES
    }


def flipped(file: Path, rng: random.Random) -> None:
    """Flip one bit, or for one in ten cut the file off."""
    data = bytearray(file.read_bytes())
    if rng.random() < 0.1:
        data = data[: rng.randrange(len(data))]
    else:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    file.write_bytes(data)


def read_store(path: Path, rows: dict[str, str], *, write: bool) -> str:
    """Open a store as its owner would, and say what became of the mutation."""
    try:
        with SqlJournal(path, seal=SEAL, read_only=not write) as journal:
            same = asyncio.run(content(journal)) == rows
            told = journal.compare_tips() + [p for scope in SCOPES for p in journal.verify(scope)]
    except MemAgentError:
        return "detected"
    except Exception as exc:
        print(json.dumps({"crashed": repr(exc)[:200]}))
        return "crashed"
    if told:
        return "detected"
    return "harmless" if same else "served"


def read_archive(path: Path, digest: str) -> str:
    """Import an export and say what became of the mutation."""
    bank = MemoryBank(embedder=HashEmbedder(), scope=Scope(user_id="copy"))
    try:
        asyncio.run(import_bank(bank, path))
    except MemAgentError:
        return "detected"
    return "harmless" if bank.state.digest() == digest else "served"


class Checkpointed:
    """A store with a checkpoint of a memory, opened again after each mutation of it."""

    def __init__(self, path: Path) -> None:
        self._store = OpenStore.open(path=path, embedder="hashing")
        self._answers = asyncio.run(self._made())

    async def _made(self) -> tuple[str, str]:
        bank = self._store.bank(SCOPES[0])
        for number in range(10):
            turn = Turn(id=f"t{number}", speaker="Ann", text=f"I bought {number} apples.")
            await bank.store_session(Session(id=f"s{number}", turns=(turn,)))
            fact = Fact(text=f"Ann bought {number} apples.", source_turn_ids=(turn.id,))
            source = SourceRef(session_id=f"s{number}", chunk_index=0)
            await bank.commit(OpBatch(accepted=(Add(fact=fact),)), source=source)
        answers = await self._read(bank)
        assert self._store.checkpoints is not None
        self.file = self._store.checkpoints.save(bank)
        self._whole = self.file.read_bytes()
        return answers

    async def _read(self, bank: MemoryBank) -> tuple[str, str]:
        hits = await bank.search(Query(text="four apples"), k=5)
        words = [item.model_dump_json() for item in bank.state.active()]
        return bank.state.digest(), repr((hits, words))

    def mutated(self, rng: random.Random) -> str:
        """Mutate the checkpoint and say what became of the mutation."""
        self.file.write_bytes(self._whole)
        flipped(self.file, rng)
        bank = self._store.bank(SCOPES[0])
        if asyncio.run(self._read(bank)) != self._answers:
            return "served"
        return "harmless" if isinstance(bank.state.items, LayeredMap) else "detected"


def main() -> int:
    """Run all mutations."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--flips", type=int, default=200, help="of each kind of file")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", nargs="*", default=KINDS)
    options = parser.parse_args()
    rng, served = random.Random(options.seed), 0
    logging.disable()  # a line for each checkpoint that is not used
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = asyncio.run(fill(folder))
        whole = MemoryBank(embedder=HashEmbedder(), scope=Scope(user_id="copy"))
        asyncio.run(import_bank(whole, folder / "ann.jsonl"))
        digest = whole.state.digest()
        checkpointed = Checkpointed(folder / "checkpointed.db")
        kinds: dict[str, Callable[[Path], str]] = {
            "journal": lambda at: _stored(folder / "rest", "m.db", at, rng, rows, write=False),
            "log": lambda at: _stored(folder / "log", "m.db-wal", at, rng, rows, write=True),
            "tips": lambda at: _stored(folder / "rest", "m.db.tips", at, rng, rows, write=False),
            "checkpoint": lambda _: checkpointed.mutated(rng),
            "archive": lambda at: _archive(folder / "ann.jsonl", at, rng, digest),
        }
        for kind in options.kinds:
            began, counts = time.monotonic(), Counter[str]()
            for _ in range(options.flips):
                counts[kinds[kind](folder / "work")] += 1
            served += counts["served"] + counts["crashed"]
            took = round(time.monotonic() - began, 1)
            print(
                json.dumps(
                    {
                        "kind": kind,
                        "seed": options.seed,
                        "flips": options.flips,
                        **counts,
                        "s": took,
                    }
                )
            )
            sys.stdout.flush()
    return int(served > 0)


def _stored(
    source: Path, name: str, at: Path, rng: random.Random, rows: dict[str, str], *, write: bool
) -> str:
    shutil.rmtree(at, ignore_errors=True)
    shutil.copytree(source, at)
    flipped(at / name, rng)
    return read_store(at / "m.db", rows, write=write)


def _archive(source: Path, at: Path, rng: random.Random, digest: str) -> str:
    shutil.rmtree(at, ignore_errors=True)
    at.mkdir()
    shutil.copy(source, at / "a.jsonl")
    flipped(at / "a.jsonl", rng)
    return read_archive(at / "a.jsonl", digest)


if __name__ == "__main__":
    sys.exit(main())
