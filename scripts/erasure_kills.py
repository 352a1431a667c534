"""Kill a process in the middle of an erasure, again and again, and search for what is left.

Each round copies a store that holds 20 markers and the vectors of three memories, lets a
process erase the session they stand in, kills it after a random time or at a named
point, opens the store again, finishes the erasure if it had not begun, and searches every
file. Prints one line of JSON: rounds, kills, stores that were whole or gone, bytes left.

    python scripts/erasure_kills.py --rounds 100 --seed 1
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

KITS = Path(__file__).resolve().parents[1] / "tests" / "kits" / "workloads"
sys.path.insert(0, str(KITS))
POINTS = (
    *("redact.planned", "transaction.begun", "headers.written", "heads.written"),
    *("commit.before", "commit.after", "erase.committed", "erase.scrubbed", "redact.written"),
)


def main() -> int:
    """Run the rounds; exits with 1 if anything is left."""
    from crash_child import CrashServer
    from erasure_workloads import fill, needles, open_memory

    from memagent.journal.proof.audit import files_of
    from memagent.journal.sqlite import SqlJournal

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng, counts = random.Random(options.seed), Counter[str]()
    with tempfile.TemporaryDirectory() as name, CrashServer("erasure_workloads") as server:
        folder = Path(name)
        (folder / "first").mkdir()
        (folder / "copy").mkdir()
        with SqlJournal(folder / "first" / "m.db") as journal:
            memory = open_memory(journal)
            asyncio.run(fill(memory, journal))
            sought = needles(memory)
            for file in files_of(folder / "first" / "m.db"):
                shutil.copy(file, folder / "copy")
        shutil.copytree(folder / "copy", folder / "timed")
        began = time.monotonic()
        server.run("erasure_workloads:erase_session", path=str(folder / "timed" / "m.db"))
        longest = time.monotonic() - began
        for number in range(options.rounds):
            path = folder / f"round{number}" / "m.db"
            shutil.copytree(folder / "copy", path.parent)
            death = server.run(
                "erasure_workloads:erase_session",
                point=rng.choice(POINTS) if number % 2 else None,
                kill_after_s=None if number % 2 else rng.uniform(0.0, longest),
                path=str(path),
            )
            counts["killed" if death.killed else "finished"] += 1
            counts["left"] += asyncio.run(_finished(path, sought, counts))
            shutil.rmtree(path.parent)
    print(json.dumps({"rounds": options.rounds, "seed": options.seed, **counts}))
    return int(counts["left"] > 0)


async def _finished(path: Path, sought: list[bytes], counts: Counter[str]) -> int:
    """Return how many needles are left after the store was opened and the erasure finished."""
    from erasure_workloads import SCOPE, open_memory

    from memagent.journal.proof.audit import count_in_files, files_of
    from memagent.journal.sqlite import SqlJournal

    with SqlJournal(path) as journal:
        memory = open_memory(journal)
        if "session-gone" in {session.id for session in await memory.sessions()}:
            counts["whole"] += 1
            await memory.erase_session("session-gone")
        else:
            counts["gone"] += 1
        counts["faults"] += len(journal.verify(SCOPE))
        found = count_in_files(files_of(path), sought)
    return sum(count for _, count in found.values())


if __name__ == "__main__":
    sys.exit(main())
