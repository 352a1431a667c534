"""Measure the cost of a memory: bytes on disk and in memory, and processor time.

Bytes are those in SQLite, in PostgreSQL, in an open process and in Qdrant; times are
those to replay, search and add.

Two shapes of memory are measured: `added` (a fact by itself, one commit each) and
`told` (a turn of a session, remembered by the design `verbatim`, so the turn is stored
and an item of it is indexed with its neighbours). Texts are random words, 70 characters
on average. Times are processor time, so other work on the machine matters little. A
server of PostgreSQL is started for it where its programs are installed.

    python scripts/store_sizes.py --users 40 --memories 250
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

from memagent.build import NoModel, Store, open_store
from memagent.core.answers import Query
from memagent.core.ops import Add, OpBatch
from memagent.core.recipes import BALANCED
from memagent.core.records import Fact, Scope, Session, SourceRef, Turn

ROOT = Path(__file__).resolve().parent.parent
SHAPES = ("added", "told")
LETTERS = random.Random(7)
WORDS = [
    "".join(LETTERS.choices("aeiounrtslmdkbgpfhv", k=LETTERS.randint(3, 9))) for _ in range(4_000)
]
"""Made up, so that texts compress about as far as real ones."""
DAY = datetime(2024, 1, 1, tzinfo=UTC)
SESSION_TURNS = 20


def sentence(dice: random.Random) -> str:
    """About twelve words."""
    return f"{' '.join(dice.choices(WORDS, k=dice.randint(7, 17)))} {dice.randrange(10_000)}"


async def fill(store: Store, shape: str, *, users: int, memories: int) -> None:
    """Write the memories of every user."""
    dice = random.Random(1)
    for user in range(users):
        agent = store.agent(Scope(user_id=f"user {user}"), model=NoModel(), design="verbatim")
        if shape == "added":
            for _ in range(memories):
                batch = OpBatch(accepted=(Add(fact=Fact(text=sentence(dice), subject="Ana")),))
                await agent.bank.commit(batch, source=SourceRef(actor="user"))
            continue
        for number in range(memories // SESSION_TURNS):
            turns = tuple(
                Turn(id=f"D{number}:{at}", speaker=("Ana", "Ben")[at % 2], text=sentence(dice))
                for at in range(SESSION_TURNS)
            )
            await agent.remember(
                Session(id=f"s{number}", at=DAY + timedelta(days=number), turns=turns)
            )


def resident_bytes() -> int:
    """Memory that this process holds now."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4096


async def opened(store: Store, *, users: int) -> dict[str, float]:
    """Open and search every user's memory in this process, cold and warm, then add to it."""
    queries = [
        Query(text=text, recipe=BALANCED)
        for text in (" ".join(WORDS[:3]), " ".join(WORDS[5:9]), WORDS[12])
    ]
    banks = [store.bank(Scope(user_id=f"user {user}")) for user in range(users + 1)]
    await banks.pop().search(
        queries[0], k=10
    )  # a user without memories: what is loaded once is loaded now
    before, began = resident_bytes(), time.process_time()
    for bank in banks:
        await bank.search(queries[0], k=10)
    cold_s, held = time.process_time() - began, resident_bytes() - before
    items = sum(len(bank.state.items) for bank in banks)
    began = time.process_time()
    for bank in banks:
        for query in queries:
            await bank.search(query, k=10)
    search_s = (time.process_time() - began) / (len(banks) * len(queries))
    dice = random.Random(2)
    began = time.process_time()
    for bank in banks:
        await bank.commit(
            OpBatch(accepted=(Add(fact=Fact(text=sentence(dice))),)), source=SourceRef(actor="user")
        )
    add_s = (time.process_time() - began) / len(banks)
    payload = _payload_bytes(banks[0])
    return {
        "items": items,
        "resident_bytes": held / items,
        "replay_us": 1e6 * (cold_s - len(banks) * search_s) / items,
        "search_cpu_ms": 1e3 * search_s,
        "add_cpu_ms": 1e3 * add_s,
        "qdrant_payload_bytes": payload,
        "width": float(store.embedder.dim),
    }


def _payload_bytes(bank: Any) -> float:
    """Mean length of a point's payload as JSON; 0 without the extra."""
    try:
        points = import_module("memagent.vectors.qdrant_index").Points(Scope())
    except ImportError:
        return 0.0
    level = bank.view.level(bank.log.head)
    rows = [row for item_id in level.ids if (row := level.row(item_id)) is not None]
    return sum(len(json.dumps(points.payload(row, 1))) for row in rows) / len(rows)


def child(place: str, users: int) -> dict[str, float]:
    """Run `opened` in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, "--opened", place, "--users", str(users)],
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(done.stdout)


def measure(shape: str, *, users: int, memories: int) -> dict[str, float]:
    """All figures of one shape, a memory."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        file = Path(folder) / "memory.db"
        store = open_store(path=file)
        asyncio.run(fill(store, shape, users=users, memories=memories))
        store.close()
        found = child(str(file), users)
        found["sqlite_bytes"] = (
            sum(one.stat().st_size for one in Path(folder).iterdir()) / found["items"]
        )
        sys.path.insert(0, str(ROOT / "tests"))
        try:
            kit = import_module("postgres_kit")
            server = stack.enter_context(kit.running_postgres())
        except BaseException as exc:
            if type(exc).__name__ not in ("Skipped", "ModuleNotFoundError"):
                raise
            return found
        url = stack.enter_context(server.schema())
        store = open_store(path=url)
        asyncio.run(fill(store, shape, users=users, memories=memories))
        store.close()
        [(size,)] = kit.rows_of(
            url,
            "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n ON "
            "n.oid = c.relnamespace "
            "WHERE n.nspname = current_schema() AND c.relkind = 'r'",
        )
        found["postgres_bytes"] = float(size) / found["items"]
        found["postgres_replay_us"] = child(url, users)["replay_us"]
        return found


def main() -> int:
    """Print the figures as JSON, one line a shape."""
    parser = argparse.ArgumentParser(description="Bytes and processor time of a memory.")
    parser.add_argument("--users", type=int, default=40)
    parser.add_argument("--memories", type=int, default=250, help="of each user")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--opened", metavar="PLACE", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.opened:
        store = open_store(path=given.opened)
        found = asyncio.run(opened(store, users=given.users))
        store.close()
        sys.stdout.write(json.dumps(found) + "\n")
        return 0
    for shape in given.shapes:
        found = measure(shape, users=given.users, memories=given.memories)
        sys.stdout.write(
            json.dumps({"shape": shape, **{name: round(value, 2) for name, value in found.items()}})
            + "\n"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
