"""The ten lines that most programs need: remember, ask, change, look back.

No model, no key, no server.

python examples/quickstart.py
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime

from memagent import Agent, AsOf

TOLD = (
    ("2024-03-04", "I moved to Lisbon yesterday and already love the light."),
    ("2024-03-04", "My dog Rex is allergic to chicken."),
    ("2024-06-02", "I don't live in Lisbon any more, I moved to Porto last week."),
)
ASKED = (
    "When did Ana move to Lisbon?",
    "Where does Ana live now?",
    "What is Rex allergic to?",
    "Which car does Ana drive?",
)


def main() -> None:
    """Tell Ana's story on two days and ask about it."""
    with Agent(path=":memory:", user_id="ana") as agent:
        for day, text in TOLD:
            agent.remember([{"name": "Ana", "content": text}], at=day)
        for question in ASKED:
            answer = agent.ask(question)
            cited = [f"{one.speaker}, {one.said_at:%d %b %Y}" for one in answer.citations]
            sys.stdout.write(f"{question}\n  {answer}  [{'; '.join(cited) or answer.verdict}]\n")

        april = AsOf(said=datetime(2024, 4, 1, tzinfo=UTC))
        past = [item.text for item in agent.memory.as_of(april).get_all()]
        sys.stdout.write(f"In April the memory held {len(past)} items.\n")
        note = agent.memory.add("Ana prefers tea", subject="Ana")
        agent.memory.update(note.id, "Ana prefers coffee")
        agent.memory.undo()
        sys.stdout.write(f"After an undo: {agent.memory.get(note.id).text}\n")


if __name__ == "__main__":
    main()
