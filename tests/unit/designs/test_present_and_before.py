"""What holds now, what held before, and what only sounds like what is asked.

Each question is asked of a memory of few turns, months apart. A quotation that a later
statement turned, that came after, or that is about another thing, supports no answer.
"""

from __future__ import annotations

from datetime import datetime

import pytest

from memagent import Agent, Question
from memagent.core.answers import Answer, Verdict
from memagent.designs.parts.rules.standing import ENDED, NOT_BEFORE

MONTHS = ("2024-02-04", "2024-04-04", "2024-06-04")


def asked(question: str, *turns: str) -> Answer:
    with Agent(path=":memory:", design="verbatim") as agent:
        for at, text in zip(MONTHS, turns, strict=False):
            agent.remember(text, at=at)
        return agent.ask(question)


@pytest.mark.parametrize(
    ("question", "old", "new"),
    [
        ("Who is my boyfriend?", "My boyfriend Luca works at the port.", "Luca and I broke up."),
        ("Who is my partner?", "My partner Tom and I rent a flat.", "Tom and I split up in March."),
        ("Am I vegan?", "I'm vegan and I love lentils.", "I eat cheese again, life is short."),
        ("Am I vegetarian?", "I'm vegetarian, since uni.", "I've started eating meat again."),
        ("Who is my dentist?", "My dentist is Dr. Wolf.", "Dr. Wolf has retired, sadly."),
        ("Do I have a dog?", "We have a dog called Bruno.", "Bruno died on Friday."),
        ("What car do I drive?", "I drive an old Golf.", "I sold the Golf last week."),
        (
            "Which gym am I a member of?",
            "I'm a member of the Riverside gym.",
            "I cancelled the gym, too expensive.",
        ),
        (
            "Where do I work?",
            "I work as a radiographer at the Anne hospital in Leeds.",
            "I handed in my notice at the hospital, starting at a clinic in Harrogate.",
        ),
        ("Wie heißt mein Freund?", "Mein Freund heißt Jonas.", "Jonas und ich sind getrennt."),
        ("¿Cómo se llama mi novio?", "Mi novio se llama Diego.", "Diego y yo nos separamos."),
    ],
)
def test_a_later_statement_that_ends_it_stands_against_an_answer(
    question: str, old: str, new: str
) -> None:
    answer = asked(question, old, new)
    assert answer.verdict is not Verdict.SUPPORTED, answer.text
    assert asked(question, old, "The rain is loud today, I like it.").text.count(old) == 1
    if "?" in question and question.isascii():
        assert new in answer.text.splitlines()[1]
        assert any(ENDED in note for note in answer.notes)


@pytest.mark.parametrize(
    ("question", "old", "new", "held"),
    [
        ("Who is my boyfriend?", "My boyfriend Luca is tall.", "Luca and I fly to Rome.", "Luca"),
        ("Where do I live?", "I live in Porto.", "The weather in Porto is awful again.", "Porto"),
        ("What car do I drive?", "I drive an old Golf.", "I have a second Golf too.", "Golf"),
    ],
)
def test_what_goes_on_or_comes_beside_leaves_an_answer_sure(
    question: str, old: str, new: str, held: str
) -> None:
    answer = asked(question, old, new)
    assert answer.verdict is Verdict.SUPPORTED and held in answer.text


def asked_at(question: str, moment: str, text: str) -> Answer:
    """Ask a memory of one turn, said on 1 March 2026, at a moment."""
    with Agent(path=":memory:") as agent:
        agent.remember(text, at="2026-03-01T10:00:00+00:00")
        moment = f"{moment}T12:00:00+00:00"
        return agent.ask(Question(text=question, asked_at=datetime.fromisoformat(moment)))


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("Am I on vacation?", "I'm on vacation in Greece until March 14."),
        ("Where is my car?", "My car is in the garage until Friday."),
        ("Am I on parental leave?", "I'm on parental leave until the end of March."),
        ("What is my gym password?", "My password for the gym is 4711 this month."),
        ("Who is visiting us?", "My sister is visiting us next week."),
        ("Do I have a meeting with Paul?", "I have a meeting with Paul tomorrow at 3pm."),
    ],
)
def test_what_was_told_for_a_time_that_is_over_supports_no_answer(question: str, text: str) -> None:
    late = asked_at(question, "2026-09-20", text)
    assert late.verdict is Verdict.QUOTED and text in late.text
    assert "that time is over" in late.text
    assert "that time is over" not in asked_at(question, "2026-03-01", text).text


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("Where do I live?", "We are moving to Oslo next month."),
        ("Wo wohnen wir?", "Wir ziehen nächsten Monat nach Oslo."),
        ("Who am I marrying?", "I'm getting married to Ida on May 4."),
        ("Where do I work?", "From Monday on I'm working at the Munich office."),
        ("Have I cooked for Ben?", "Tonight I'm cooking lasagna for Ben."),
        ("Did I cook for Ben?", "Tonight I'm cooking lasagna for Ben."),
        ("When does my lease end?", "My lease ends on June 30."),
        ("Can I juggle?", "This week I learned to juggle."),
        ("Where do I live?", "I have been living in Lisbon since January."),
        ("What is my birthday?", "My birthday is on May 4."),
    ],
)
def test_what_began_then_or_was_done_by_then_is_not_over(question: str, text: str) -> None:
    answer = asked_at(question, "2026-09-20", text)
    assert text in answer.text and "is over" not in answer.text


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("When is my birthday?", "My birthday is on May 4."),
        ("What day is my birthday?", "My birthday is on May 4."),
        ("When is Ida's birthday?", "Ida's birthday is June 12th."),
        ("When is our anniversary?", "Our anniversary is October 3."),
        ("When do we meet?", "We meet every Tuesday at 6pm."),
        ("¿Cuándo es mi cumpleaños?", "Mi cumpleaños es el 4 de mayo."),
    ],
)
def test_what_comes_again_needs_no_year(question: str, text: str) -> None:
    answer = asked_at(question, "2026-09-20", text)
    assert answer.verdict is Verdict.SUPPORTED and answer.when is None
    assert "No date is told" not in answer.text


def test_a_plan_that_was_cancelled_answers_no_question_of_when() -> None:
    turns = ("We're flying to Japan on 10 July.", "The Japan trip is cancelled, sadly.")
    assert "10 July" not in asked("When do we fly to Japan?", *turns).text.splitlines()[0]


def test_a_date_that_was_moved_is_answered_by_the_later_statement() -> None:
    turns = ("My driving test is booked for 14 May.", "They moved my driving test to 3 June.")
    assert asked("When is my driving test?", *turns).text.startswith("3 June 2024.")


@pytest.mark.parametrize(
    ("question", "told"),
    [
        ("What car do I drive?", "They moved my driving test to 3 June."),
        ("What car do I have?", "I've got a car park opposite my flat."),
        ("Where is my house?", "The house party at Tom's was loud."),
        ("When is my birthday?", "I baked a birthday cake with cherries."),
        ("Do I play football?", "My football coach is called Ed."),
        ("What phone do I have?", "My phone bill was 40 euros."),
        ("What is my dog called?", "I bought the dog food for my neighbour."),
        ("Which bank am I with?", "The bank holiday was rainy."),
        ("Which guitar do I have?", "I watched the guitar lesson on TV."),
        ("What tea do I drink?", "My tea towel is green."),
    ],
)
def test_a_word_that_tells_the_kind_of_another_thing_is_not_what_is_asked(
    question: str, told: str
) -> None:
    assert asked(question, told, "I like walking.").verdict is not Verdict.SUPPORTED


@pytest.mark.parametrize(
    ("question", "told", "held"),
    [
        ("When is my driving test?", "My driving test is on 3 May 2024.", "3 May 2024."),
        ("Who is my football coach?", "My football coach is called Ed.", "Ed"),
        ("Who is Daniel?", "My boyfriend Daniel drew the pictures.", "Daniel"),
    ],
)
def test_the_whole_name_of_a_thing_is_what_is_asked(question: str, told: str, held: str) -> None:
    answer = asked(question, told, "I like walking.")
    assert answer.verdict is Verdict.SUPPORTED and held in answer.text


@pytest.mark.parametrize(
    ("question", "first", "second", "held"),
    [
        ("Where did I live before York?", "I live in Leeds.", "I moved to York in May.", "Leeds"),
        (
            "Where did I work before the library?",
            "I work at a bank in Graz.",
            "I started at the town library.",
            "bank",
        ),
        ("Where did I live before Madrid?", "I'm living in Rome.", "I'm living in Madrid.", "Rome"),
        ("What did I drive before the Fiesta?", "I drive a Golf.", "I drive a Fiesta.", "Golf"),
        ("Where did I live before Kiel?", "I used to live in Bonn.", "I live in Kiel.", "Bonn"),
        ("Where did I live before Nice?", "I moved from Lyon to Nice.", "I like tea.", "Lyon"),
    ],
)
def test_before_something_is_answered_by_what_was_before_it(
    question: str, first: str, second: str, held: str
) -> None:
    answer = asked(question, first, second)
    assert held in answer.text and second not in answer.text
    after = question.rstrip("?").split()[-1]
    assert not answer.text.startswith(f"{after}.")


@pytest.mark.parametrize(
    ("question", "turns"),
    [
        ("Where did I live before York?", ("I like tea.", "I moved to York in May.")),
        ("Where did I live before Bradford?", ("I'm living with my mum in Bradford.",)),
        ("Where did I live before?", ("I like tea.", "I'm living in Madrid.")),
    ],
)
def test_what_came_after_or_holds_now_answers_no_question_of_before(
    question: str, turns: tuple[str, ...]
) -> None:
    answer = asked(question, *turns)
    assert answer.verdict is not Verdict.SUPPORTED
    assert answer.abstained or any(NOT_BEFORE in note for note in answer.notes)


def test_a_living_is_work_and_not_where_one_lives() -> None:
    answer = asked("What do I do for a living?", "I live near the river.", "I like tea.")
    assert answer.verdict is not Verdict.SUPPORTED
    answer = asked("What do I do for a living?", "I work as a nurse.", "I live near the river.")
    assert "nurse" in answer.text.splitlines()[1 if answer.verdict is Verdict.QUOTED else 0]


def test_where_is_not_answered_without_a_place() -> None:
    answer = asked("Where did I live last year?", "Tom and I split up. He moved out.")
    assert answer.verdict is not Verdict.SUPPORTED
