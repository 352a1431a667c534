"""Twenty messages in two threads over two days, a model that answers them, and their faces.

The model is a function of what it is shown: it repeats in its reply how much of the
thread it saw, so a face that shows another thread gives another memory.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from memagent.core.exchange import ModelRequest, Role
from memagent.testing.models import FunctionModel

MONDAY = datetime(2024, 3, 4, 9, 0, tzinfo=UTC)


class Message(NamedTuple):
    """One message of a thread, and when it is sent."""

    thread: str
    text: str
    at: datetime


_SAID = {
    ("home", 0): (
        "I moved to Lisbon in February with my dog Rex.",
        "The flat there has a small balcony.",
        "Rex sleeps on it all day.",
        "What is my dog called?",
        "My sister Clara visits us next week.",
    ),
    ("work", 0): (
        "I started a new job at a bakery today.",
        "My boss is called Ines.",
        "She makes the best custard tarts.",
        "Who is my boss?",
        "I begin at five in the morning.",
    ),
    ("home", 1): (
        "Clara has arrived.",
        "She likes it there so much that she wants to stay.",
        "Where do I live now?",
        "We walked to the castle with Rex.",
        "What did I tell you about the balcony?",
    ),
    ("work", 1): (
        "Ines gave me a day off.",
        "I learned to make sourdough today.",
        "It came out flat, though.",
        "When do I begin in the morning?",
        "Thank you, good night!",
    ),
}


class Clock:
    """A clock that stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = MONDAY

    def __call__(self) -> datetime:
        return self.now


def messages() -> list[Message]:
    """Return the messages in the order they are sent, the two threads in turn."""
    return [
        Message(thread, text, MONDAY + timedelta(days=day, minutes=2 * place + shift))
        for day in (0, 1)
        for place in range(5)
        for shift, thread in enumerate(("home", "work"))
        for text in (_SAID[thread, day][place],)
    ]


def scripted() -> FunctionModel:
    """Return a model that notes each statement, its pronoun resolved, and replies in a word."""
    return FunctionModel(lambda request: _reply(request))


def _reply(request: ModelRequest) -> str:
    if request.role is Role.ANSWERER:
        turns = [message for message in request.messages if message.role != "system"]
        return f"I see, that is message {len(turns)}."
    *_, earlier, dialogue = re.split("<earlier>|<dialogue>", request.messages[-1].content)
    facts: list[dict[str, str | None]] = []
    for turn_id, text in re.findall(r"^\[(\S+)\] \w+: (.*)$", dialogue, re.M):
        if not text.endswith(("?", "!")):
            place = "in Lisbon" if "Lisbon" in earlier else "there"
            fact = {"text": text.replace("there", place), "source": turn_id}
            facts.append({**fact, "subject": None, "when": None, "kind": "fact"})
    return json.dumps({"facts": facts})
