"""The ten lines that most programs need: remember, ask, change, look back.

No model, no key, no server.

python examples/quickstart.py
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime

from memagent import Agent, AsOf


def main() -> None:
    """Tell Ana's story in two sessions and ask about it."""
    with Agent(path=":memory:", user_id="ana") as agent:
        agent.remember(
            [
                {
                    "name": "Ana",
                    "content": "I moved to Lisbon yesterday and already love the light.",
                },
                {"name": "Ana", "content": "My dog Rex is allergic to chicken."},
            ],
            at=datetime(2024, 3, 4, tzinfo=UTC),
        )
        agent.remember(
            [
                {
                    "name": "Ana",
                    "content": "I don't live in Lisbon any more, I moved to Porto last week.",
                }
            ],
            at=datetime(2024, 6, 2, tzinfo=UTC),
        )
        for question in (
            "When did Ana move to Lisbon?",
            "Where does Ana live now?",
            "What is Rex allergic to?",
            "Which car does Ana drive?",
        ):
            answer = agent.ask(question)
            cited = ", ".join(
                f"{one.speaker}, {one.said_at:%d %b %Y}" for one in answer.citations if one.said_at
            )
            sys.stdout.write(f"{question}\n  {answer.text}{f'  [{cited}]' if cited else ''}\n")

        past = agent.memory.as_of(AsOf(said=datetime(2024, 4, 1, tzinfo=UTC)))
        sys.stdout.write(
            f"In April the memory held {len(past.get_all())} items, now "
            f"{len(agent.memory.get_all())}.\n"
        )
        note = agent.memory.add("Ana prefers tea", subject="Ana")
        agent.memory.update(note.id, "Ana prefers coffee")
        agent.memory.undo()
        sys.stdout.write(f"After an undo: {agent.memory.get(note.id).text}\n")


if __name__ == "__main__":
    main()
