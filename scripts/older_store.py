"""Write a small store with the public API, for the test that later versions read it.

    python scripts/older_store.py FOLDER

The folder then holds `store.db` (SQLite, checkpointed), `export.jsonl` and `facts.json`:
the digest, the texts, the answers and the history that every later version must read
out of the store. Run it once for each release and add the folder to
`tests/stores/older/`.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from datetime import UTC, datetime
from pathlib import Path

from memagent import Agent, AsOf, Question, __version__

SESSIONS = (
    (
        datetime(2024, 3, 4, 9, tzinfo=UTC),
        [
            ("Ana", "I moved to Lisbon yesterday."),
            ("Bo", "Congratulations! I adopted a grey cat called Miso last week."),
            ("Ana", "My sister Rita works as a nurse in Porto."),
        ],
    ),
    (
        datetime(2024, 6, 1, 18, 30, tzinfo=UTC),
        [
            ("Ana", "I started learning the cello in May."),
            ("Bo", "Miso broke the blue vase on Friday."),
            ("Ana", "Correction: I started learning the viola, not the cello."),
        ],
    ),
)
QUESTIONS = (
    "When did Ana move to Lisbon?",
    "What is the name of Bo's cat?",
    "Where is my passport?",
)


def write(folder: Path) -> None:
    """Fill a store with sessions, direct writes, a deletion, an undo and a snapshot."""
    folder.mkdir(parents=True)
    store = folder / "store.db"
    with Agent(path=store, user_id="ana", embedder="hashing") as agent:
        for at, turns in SESSIONS:
            agent.remember([{"name": name, "content": text} for name, text in turns], at=at)
        memory = agent.memory
        door = memory.add("The green door sticks", said_at=datetime(2024, 6, 2, tzinfo=UTC))
        memory.update(door.id, "The green door was mended")
        lamp = memory.add("The lamp is broken", said_at=datetime(2024, 6, 3, tzinfo=UTC))
        memory.delete(lamp.id)
        memory.add("A mistake", said_at=datetime(2024, 6, 4, tzinfo=UTC))
        memory.undo()
        memory.export(folder / "export.jsonl")
        facts = facts_of(agent) | {"version": __version__, "door": door.id}
    (folder / "store.db.lock").unlink(missing_ok=True)
    (folder / "facts.json").write_text(
        json.dumps(facts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    with sqlite3.connect(store) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def facts_of(agent: Agent) -> dict[str, object]:
    """Read everything that must stay readable out of an open store."""
    memory = agent.memory
    asked = datetime(2024, 7, 1, tzinfo=UTC)
    answers = [agent.ask(Question(text=question, asked_at=asked)) for question in QUESTIONS]
    return {
        "digest": memory.snapshot().digest,
        "texts": sorted(item.text for item in memory.get_all()),
        "answers": [
            [answer.text, [citation.quote for citation in answer.citations]] for answer in answers
        ],
        "hits": [hit.text for hit in memory.search("the green door", k=3)],
        "then": sorted(item.text for item in memory.as_of(AsOf(recorded=3)).get_all()),
    }


if __name__ == "__main__":
    write(Path(sys.argv[1]))
