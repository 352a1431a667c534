"""A question in the first person is about the user, who speaks without a name."""

from __future__ import annotations

import pytest

from memagent import AsyncAgent
from memagent.memory.question import read_question

pytestmark = pytest.mark.anyio
TOLD = (
    "My dog Rex is allergic to chicken.",
    "I moved to Lisbon yesterday.",
    "I adopted a cat called Miso.",
)
ASKED = ("When did I move to Lisbon?", "What is my cat called?", "Where do I live?")
SHORT = ["4 March 2024.", "Miso.", "Lisbon."]


def test_the_first_person_is_the_speaker_without_a_name() -> None:
    assert read_question("What is my cat called?", speakers=["user", "Bo"]).people == ("user",)
    assert read_question("When did Bo visit me?", speakers=["user", "Bo"]).people == ("Bo", "user")
    assert read_question("What is my cat called?", speakers=["Ana", "Bo"]).people == ()
    assert read_question("Where does Bo live?", speakers=["user", "Bo"]).people == ("Bo",)


async def test_users_get_sure_answers_about_themselves() -> None:
    async with AsyncAgent(path=":memory:", user_id="ana") as agent:
        for day, text in enumerate(TOLD, 4):
            await agent.remember(text, at=f"2024-03-0{day}")
        answers = [await agent.ask(question) for question in ASKED]
    assert [answer.verdict.value for answer in answers] == ["supported"] * 3
    assert [answer.text.splitlines()[0] for answer in answers] == SHORT
