"""Five conversations of 25 turns and 70 questions, which were written before any answer.

The bars are what was measured; a change of the rules may raise them and must not lower them.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from places import ROOT

from memagent import Agent
from memagent.core.answers import Answer, Verdict

BARS = {
    ("three_chats.json", "verbatim"): (3, 40, 30, 1),
    ("three_chats.json", "auto"): (3, 40, 32, 1),
    ("two_chats.json", "verbatim"): (2, 30, 20, 1),
    ("two_chats.json", "auto"): (2, 30, 19, 1),
}
"""By file and design: chats, questions, right at least, wrong and `supported` at most."""


def is_right(answer: Answer, parts: list[str]) -> bool:
    """Whether an answer holds each part in one of its spellings; without parts it abstains."""
    text = answer.text.lower()
    held = (any(word.lower() in text for word in part.split("|")) for part in parts)
    return (not answer.abstained and all(held)) if parts else answer.abstained


@pytest.mark.parametrize(("name", "design"), BARS)
def test_questions_over_own_conversations(name: str, design: str) -> None:
    number, questions, right_at_least, wrong_at_most = BARS[name, design]
    file = ROOT / "tests" / "data" / name
    chats: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["chats"]
    assert [sum(len(one["turns"]) for one in chat["sessions"]) for chat in chats] == [25] * number
    assert sum(len(chat["questions"]) for chat in chats) == questions
    right: list[str] = []
    wrong: list[str] = []
    for chat in chats:
        with Agent(path=":memory:", design=design) as agent:
            for session in chat["sessions"]:
                turns = [
                    {"role": who, "content": text}
                    if who in ("user", "assistant")
                    else {"role": "user", "name": who, "content": text}
                    for who, text in session["turns"]
                ]
                agent.remember(turns, at=session["at"])
            for question, parts in chat["questions"]:
                answer = agent.ask(question)
                if is_right(answer, parts):
                    right.append(question)
                elif answer.verdict is Verdict.SUPPORTED:
                    wrong.append(question)
    assert len(right) >= right_at_least, len(right)
    assert len(wrong) <= wrong_at_most, wrong
