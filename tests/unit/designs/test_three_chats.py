"""Three conversations of 25 turns and 40 questions, which were written before any answer.

The bars are what was measured; a change of the rules may raise them and must not lower them.
"""

from __future__ import annotations

import json
from typing import Any

from places import ROOT

from memagent import Agent
from memagent.core.answers import Answer, Verdict

CHATS: list[dict[str, Any]] = json.loads(
    (ROOT / "tests" / "data" / "three_chats.json").read_text(encoding="utf-8")
)["chats"]
RIGHT_AT_LEAST, WRONG_AND_SUPPORTED_AT_MOST = 29, 1


def is_right(answer: Answer, parts: list[str]) -> bool:
    """Whether an answer holds each part in one of its spellings; without parts it abstains."""
    text = answer.text.lower()
    held = (any(word.lower() in text for word in part.split("|")) for part in parts)
    return (not answer.abstained and all(held)) if parts else answer.abstained


def test_forty_questions_over_three_conversations() -> None:
    assert [sum(len(one["turns"]) for one in chat["sessions"]) for chat in CHATS] == [25] * 3
    assert sum(len(chat["questions"]) for chat in CHATS) == 40
    right: list[str] = []
    wrong: list[str] = []
    for chat in CHATS:
        with Agent(path=":memory:") as agent:
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
    assert len(right) >= RIGHT_AT_LEAST, len(right)
    assert len(wrong) <= WRONG_AND_SUPPORTED_AT_MOST, wrong
