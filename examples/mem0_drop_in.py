"""A program written for mem0, with one import changed. No model, no key, no server.

python examples/mem0_drop_in.py
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime

from memagent.integrations.mem0 import Memory


def main() -> None:
    """Add, search, change, look back and delete, in mem0's calls."""
    with Memory(":memory:") as memory:
        added = memory.add(
            [
                {"role": "user", "content": "My dog Rex is allergic to chicken."},
                {"role": "assistant", "content": "I will keep that in mind."},
            ],
            user_id="ana",
            timestamp=datetime(2024, 3, 4, tzinfo=UTC),
            metadata={"category": "pets"},
        )
        for event in added["results"]:
            sys.stdout.write(f"{event['event']}: {event['memory']}\n")

        note = memory.add("Ana prefers tea", user_id="ana", infer=False)["results"][0]
        memory.update(note["id"], text="Ana prefers coffee")
        for change in memory.history(note["id"]):
            sys.stdout.write(
                f"{change['event']}: {change['old_memory']} -> {change['new_memory']}\n"
            )

        found = memory.search(
            "What is Rex allergic to?", filters={"user_id": "ana", "category": "pets"}, top_k=1
        )
        best = found["results"][0]
        sys.stdout.write(f"found, said on {best['created_at'][:10]}: {best['memory']}\n")

        memory.delete(note["id"])
        sys.stdout.write(
            f"{len(memory.get_all(filters={'user_id': 'ana'})['results'])} memories are left\n"
        )


if __name__ == "__main__":
    main()
