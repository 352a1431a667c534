"""The rules behind the design without a model, on literals: what is worth keeping, what
repeats, what corrects, what a question asks.
"""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from memagent.core.records import Fact, Granularity, ItemStatus, MemoryItem, TimeSpan
from memagent.designs.parts.rules.manager import (
    Candidate,
    Cue,
    corrected,
    correction_in,
    restated_text,
    swapped,
)
from memagent.designs.parts.rules.statements import (
    conflicting,
    context_reason,
    informative,
    near_duplicate,
    overlap,
    quote_from,
    time_told,
)
from memagent.memory.question import Period, QuestionKind, read_question
from memagent.timex.resolve import format_span


def at(date: str) -> datetime:
    return datetime.fromisoformat(date).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    [
        "Hey Ben! How are you?",
        "Thanks, Anna!",
        "Wow, that's great!",
        "Bye! Take care!",
        "Yeah, totally.",
        "Actually, that's great!",
    ],
)
def test_small_talk_is_not_informative(text: str) -> None:
    assert not informative(text, names=("Anna", "Ben"))


@pytest.mark.parametrize(
    "text",
    [
        "Berlin.",
        "I'm a nurse.",
        "Thanks! I quit smoking.",
        "Hey, it cost 240.",
        "Ella se mudó a Lisboa.",
        "我住在柏林",
    ],
)
def test_anything_with_content_is_informative(text: str) -> None:
    assert informative(text, names=("Anna", "Ben"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I went there yesterday.", "7 May 2023"),
        ("Next month I fly out, but last week I was home.", "the week of 1 May 2023"),
        ("Yesterday I remembered that we met on 3 June 2019.", "3 June 2019"),
        ("I've played for three years now.", "2020"),
        ("I said it was on 3 June, it is on 5 June 2023.", "5 June 2023"),
        ("I like jazz.", None),
    ],
)
def test_the_most_telling_time_of_a_turn_is_kept(text: str, expected: str | None) -> None:
    span = time_told(text, at("2023-05-08"))
    assert (format_span(span) if span else None) == expected


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (
            "I ran 5 miles in the park today with my dog",
            "I ran 8 miles in the park today with my dog",
        ),
        (
            "I like to swim in the lake near my house",
            "I don't like to swim in the lake near my house",
        ),
        ("We fly to my aunt in Rome with the kids", "We fly to my aunt in Oslo with the kids"),
        (
            "The class is on Monday in the big red hall",
            "The class is on Friday in the big red hall",
        ),
        (
            "Today ship number 4 left for port number 7",
            "Today ship number 7 left for port number 4",
        ),
    ],
)
def test_statements_that_differ_in_a_value_are_no_duplicates(one: str, two: str) -> None:
    fact = Fact(text=one, speaker="Anna")
    assert conflicting(one, two)
    assert overlap(one, two) > 0.7
    assert not near_duplicate(fact, two, None, cosine=0.99)


def test_near_duplicates_need_words_meaning_and_time() -> None:
    fact = Fact(text="I really love my small flat near the canal", speaker="Anna")
    other = "I love my small flat near the canal"
    day = TimeSpan(start=at("2023-05-08"), end=at("2023-05-09"), granularity=Granularity.DAY)
    assert near_duplicate(fact, other, None, cosine=0.95)
    assert not near_duplicate(fact, other, None, cosine=0.5)
    assert not near_duplicate(fact, other, day, cosine=0.95)
    assert not near_duplicate(fact, other, None, cosine=None)


@pytest.mark.parametrize(
    ("text", "cue", "earlier"),
    [
        (
            "Sorry, I meant Thursday, not Tuesday.",
            Cue.MISTAKE,
            "My dentist appointment is on Tuesday at 9.",
        ),
        ("Correction: the party starts at 8, not 7.", Cue.MISTAKE, "The party starts at 7."),
        ("It's not Tuesday but Thursday.", Cue.MISTAKE, "The party is on Tuesday."),
        ("I said the train leaves at 9, it's 10.", Cue.MISTAKE, "The train leaves at 9."),
        ("Actually, my sister lives in Rome, not Milan.", Cue.ASIDE, "My sister lives in Milan."),
        ("I've moved to Lisbon!", Cue.CHANGE, "I live in Berlin now."),
        ("We finally moved into a bigger apartment.", Cue.CHANGE, "My flat in Berlin is tiny."),
        ("I don't live in Berlin any more.", Cue.CHANGE, "I live in Berlin."),
        ("I no longer drink coffee.", Cue.CHANGE, "I drink five cups of coffee a day."),
        ("I don't like coffee anymore.", Cue.CHANGE, "I like coffee a lot."),
        ("I changed my mind about the party.", Cue.CHANGE, "I'm going to the party on Friday."),
        ("I left my job at the bank.", Cue.CHANGE, "I work as a clerk at the bank."),
    ],
)
def test_plain_self_corrections_find_what_they_correct(text: str, cue: Cue, earlier: str) -> None:
    correction = correction_in(text)
    assert correction is not None
    assert correction.cue is cue
    others = [
        Candidate("b", "I bought bread and milk on Monday."),
        Candidate("c", "We went camping in the hills."),
    ]
    found = corrected(correction, [*others, Candidate("a", earlier)])
    assert found is not None
    assert found.text == earlier


@pytest.mark.parametrize(
    ("text", "earlier"),
    [
        ("Actually, that's great!", "I got a new job in June."),
        ("Actually, I went to Paris last year too!", "I went to Paris with my mom last summer."),
        ("Actually, are you coming on Friday?", "I come on Monday."),
        ("I meant to call you on Thursday.", "I called you on Tuesday."),
        ("I moved to the front row at the concert.", "I live in Berlin."),
        ("We moved to the next level in the game.", "I live in Berlin."),
        ("I can't wait any more!", "I can't wait for the trip."),
        ("Like I said, it's tough.", "It is tough, I need two weeks for it."),
        ("It's not big, but we can have fun.", "We have fun at a big park in May."),
        ("It's not just sport but life.", "Sport is good."),
        ("I said the race was in June, it is in July.", "I was born in June."),
        ("My cousin moved to Braga.", "I live in Lisbon."),
        ("I've moved to Porto.", "My cousin Beatriz moved from Lisbon to Braga."),
        ("We ran on Thursday.", "We ran on Tuesday."),
    ],
)
def test_what_is_not_plain_corrects_nothing(text: str, earlier: str) -> None:
    correction = correction_in(text)
    assert correction is None or corrected(correction, [Candidate("a", earlier)]) is None


def test_two_equally_good_matches_leave_both_alone() -> None:
    correction = correction_in("I meant Thursday, not Tuesday.")
    assert correction is not None
    assert (
        corrected(
            correction,
            [
                Candidate("a", "The party is on Tuesday."),
                Candidate("b", "The dentist is on Tuesday."),
            ],
        )
        is None
    )


def test_a_terse_correction_keeps_the_words_it_corrects() -> None:
    item = MemoryItem(
        id="mem_1", text="My dentist appointment is on Tuesday at 9.", status=ItemStatus.ACTIVE
    )
    assert (
        restated_text(item, "I meant Thursday.")
        == "I meant Thursday. (This corrects: My dentist appointment is on Tuesday at 9.)"
    )
    assert (
        restated_text(item, "The dentist appointment moved to Thursday morning.")
        == "The dentist appointment moved to Thursday morning."
    )
    assert (
        swapped("I meant Thursday, not Tuesday.", item.text)
        == "My dentist appointment is on Thursday at 9."
    )


@pytest.mark.parametrize(
    ("text", "kind", "period"),
    [
        ("When did Anna move?", QuestionKind.WHEN, Period.ANY),
        ("What year did Anna start to paint?", QuestionKind.WHEN, Period.ANY),
        ("In which month was Anna in Italy?", QuestionKind.WHEN, Period.ANY),
        ("How long ago did Anna leave?", QuestionKind.WHEN, Period.ANY),
        ("What did Anna say when she left?", QuestionKind.OTHER, Period.ANY),
        ("How long has Anna lived there?", QuestionKind.HOW_LONG, Period.ANY),
        ("How many weeks was Anna away?", QuestionKind.HOW_LONG, Period.ANY),
        ("How many times did Anna call?", QuestionKind.HOW_MANY, Period.ANY),
        ("Who is Clara?", QuestionKind.WHO, Period.ANY),
        ("Where does Anna live now?", QuestionKind.WHERE, Period.NOW),
        ("Where did Anna live before?", QuestionKind.WHERE, Period.THEN),
        ("What did Ben use to do?", QuestionKind.OTHER, Period.THEN),
        ("Does Ben have a dog?", QuestionKind.YES_NO, Period.ANY),
    ],
)
def test_kind_and_period_of_a_question(text: str, kind: QuestionKind, period: Period) -> None:
    view = read_question(text, speakers=("Anna", "Ben"))
    assert (view.kind, view.period) == (kind, period)


def test_people_terms_and_time_of_a_question() -> None:
    view = read_question(
        "Where did Anna, Zoe and Ben's sister camp in June 2023?", speakers=("Anna", "Ben")
    )
    assert view.people == ("Anna", "Zoe", "Ben")
    assert view.span is not None
    assert format_span(view.span) == "June 2023"
    assert set(view.terms) == {"zoe", "sister", "camp"}
    assert read_question("What did Anna visit in the Grand Canyon?").people == ("Anna",)
    assert read_question("").terms == ()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "?",
        "x" * 5_000,
        "Кто такая Анна?",
        "安娜住在哪里？",
        "When when when did did Anna Anna?",
        "O'Neil's?",
    ],
)
def test_reading_a_question_never_fails(text: str) -> None:
    assert read_question(text, speakers=("Anna", "", " ")).kind in QuestionKind


def test_a_quotation_is_a_verbatim_part_of_its_turn() -> None:
    text = (
        "We packed the car. " * 30
        + "The tent stood near Lake Como for nine days. "
        + "We drove home tired. " * 30
    )
    quote = quote_from(text, ("tent", "lake"))
    assert quote in text
    assert "Lake Como" in quote
    assert len(quote) <= 320
    assert quote_from("y" * 900, ()) == "y" * 320


# -- statements and context ------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("And Japan?", "question"),
        ("Wo wohnst du jetzt?", "question"),
        ("你住在哪里？", "question"),
        ("أين تسكن؟", "question"),
        ("That is wonderful news. How did you do it?", "question"),
        ("That is wonderful news.", "comment"),
        ("You must be so proud of your sister!", "comment"),
        ("Sounds like a fine plan, Anna. Keep it up!", "comment"),
        ("I'm sorry about the bicycle.", "comment"),
        ("Hey Ben! Good to see you.", "small talk"),
    ],
)
def test_turns_that_state_nothing_are_context(text: str, kind: str) -> None:
    assert kind in context_reason(text, names=("Anna", "Ben"))


@pytest.mark.parametrize(
    "text",
    [
        "I moved to Porto, right?",
        "Did I tell you that I moved to Porto?",
        "How are you? I quit smoking.",
        "Her name is Pixel.",
        "He works at Siemens.",
        "Yes, on Tuesday.",
        "Two cats and a dog.",
        "You need a visa for Vietnam.",
        "Don't use emojis in your answers.",
        "Ich wohne seit Mai in Berlin.",
        "Super, ich ziehe nach Porto um.",
        "So fahren wir in den Urlaub.",
        "我住在柏林",
    ],
)
def test_statements_are_kept_in_any_language(text: str) -> None:
    assert context_reason(text, names=("Anna", "Ben")) == ""


def test_the_advice_of_an_assistant_is_no_comment() -> None:
    advice = "You can keep your basil in water. That is the best way."
    assert context_reason(advice) and not context_reason(advice, comments=False)
    assert context_reason("How long would you like to stay?", comments=False)
