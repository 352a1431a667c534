"""A guided run on the light core: a conversation of two friends is remembered, then asked about.

No model, no key, no network.

python examples/demo.py
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from memagent import Agent, Question
from memagent.readers import read_conversation

DATA = Path(__file__).parent / "data"
ASKED = ("q5", "q2", "q9", "q10", "q15")
"""A date told as "last Saturday", a plain fact, the same fact now and then, and one that
nobody ever told.
"""


def main() -> None:
    """Remember a conversation in a fresh store, ask five questions and show an answer's sources."""
    conversation = read_conversation(DATA / "two_friends.txt")
    gold = {
        one["id"].partition(":")[2]: one
        for one in json.loads((DATA / "two_friends.questions.json").read_text(encoding="utf-8"))
    }
    with (
        tempfile.TemporaryDirectory() as folder,
        Agent(path=Path(folder) / "memory.db", user_id="friends") as agent,
    ):
        began = time.perf_counter()
        counts: dict[str, int] = {}
        for session in conversation.sessions:
            report = agent.remember(session)
            for op, count in report.op_counts.items():
                counts[op] = counts.get(op, 0) + count
        turns = sum(len(session.turns) for session in conversation.sessions)
        told = ", ".join(f"{count} {op}" for op, count in counts.items() if count)
        say(
            f"Remembered {turns} turns of {len(conversation.sessions)} sessions in "
            f"{time.perf_counter() - began:.1f} s: {told}.\n"
        )

        for key in ASKED:
            asked = Question(text=gold[key]["text"], asked_at=gold[key]["asked_at"])
            answer = agent.ask(asked)
            say(f"? {asked.text}")
            say(f"  {answer.text}".replace("\n", "\n  "))
            for citation in answer.citations:
                say(
                    f"    cited: turn {citation.turn_id}, {citation.speaker}, "
                    f"{citation.said_at:%d %B %Y}"
                    if citation.said_at
                    else ""
                )
            for note in answer.notes:
                say(f"    note: {note}".replace("\n", " "))
            say(
                f"    verdict: {answer.verdict.value}; expected: "
                f"{gold[key]['answer'] or 'nothing, it was never told'}\n"
            )


def say(line: str) -> None:
    """One line of output."""
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main()
