"""Times of plans and of odd dates: tense, house numbers, and days that no month has."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from memagent import AsyncAgent
from memagent.core.exchange import ModelRequest, Role
from memagent.core.records import Session, Turn
from memagent.testing.models import FunctionModel
from memagent.timex.resolve import find_times, resolve_time

MONDAY = datetime(2023, 5, 8, 13, 56, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "times"),
    [
        ("Two years ago today I quit smoking.", ["2021-05-08"]),
        ("We met a year ago yesterday.", ["2022-05-07"]),
        ("We leave in ten days.", ["2023-05-18"]),
        ("The train leaves in two weeks.", ["2023-05-22"]),
        ("I ran the race in ten days.", []),
        ("Let us meet Saturday week.", ["2023-05-20"]),
        ("See you a week on Friday.", ["2023-05-19"]),
        ("The exam starts Tuesday fortnight.", ["2023-05-23"]),
        ("I began in mid-2021.", ["2021-05-01"]),
        ("We opened in early-2020.", ["2020-01-01"]),
        ("The meeting is on 31 February 2023.", []),
        ("On the 31st of April we met.", []),
        ("It was February 30, and cold.", []),
        ("In February 30 people came.", ["2023-02-01"]),
        ("We met on 28 February 2023.", ["2023-02-28"]),
        ("I live at 2021 Main Street.", []),
        ("We moved to 1999 Old Oak Avenue in 2021.", ["2021-01-01"]),
        ("In 2021 we walked down the street.", ["2021-01-01"]),
        ("We fly on Saturday.", ["2023-05-13"]),
        ("We flew on Saturday.", ["2023-05-06"]),
        ("She came home and we met on Saturday.", ["2023-05-06"]),
    ],
)
def test_times_in_free_text(text: str, times: list[str]) -> None:
    found = [str(mention.span.start)[:10] for mention in find_times(text, anchor=MONDAY)]
    assert found == times


NEWS = [
    ("2026-04-11", "We finally found a flat in Esslingen, moving in on May 1st.", "2026-05-01"),
    ("2026-04-11", "I left Bosch, starting at Zeiss on June 1st.", "2026-06-01"),
    ("2026-06-11", "I got the job, starting in September.", "2026-09-01"),
    ("2026-08-20", "I enrolled in a course starting in October.", "2026-10-01"),
    ("2026-02-10", "They accepted our offer, closing on March 3rd.", "2026-03-03"),
    ("2026-11-20", "My visa got approved, flying to Tokyo in January!", "2027-01-01"),
    ("2026-11-18", "We adopted a puppy, picking her up on Saturday.", "2026-11-21"),
    ("2026-01-18", "We got engaged, getting married in June.", "2026-06-01"),
    ("2026-11-18", "I was promoted, effective December 1st.", "2026-12-01"),
    ("2026-03-01", "He passed the exam, graduating in May.", "2026-05-01"),
    ("2026-05-20", "We signed the lease, keys on June 15.", "2026-06-15"),
    ("2026-04-11", "Wir haben die Wohnung bekommen, Einzug am 1. Mai.", "2026-05-01"),
    ("2026-02-10", "Nos aceptaron la oferta, mudanza el 3 de marzo.", "2026-03-03"),
]
PAST = [
    ("2026-05-05", "We drove to Rome, arriving on May 1st.", "2026-05-01"),
    ("2026-11-18", "We had a lovely trip, returning on November 3rd.", "2026-11-03"),
    ("2026-11-18", "We lived in Rome, starting in March.", "2026-03-01"),
    ("2026-11-18", "I bought a house, moving in on May 1st was stressful.", "2026-05-01"),
    ("2026-09-10", "We won the cup in May, moving up to the first division.", "2026-05-01"),
    ("2026-03-10", "He got laid off in January, getting by on savings.", "2026-01-01"),
    ("2026-11-18", "I got a new job in March.", "2026-03-01"),
]


AHEAD = [
    "Remind me to call mom on Saturday.",
    "Could you pick me up on Friday?",
    "Don't forget the cake on Sunday.",
    "Call the plumber on Thursday.",
    "There's a party on Saturday.",
    "Are you free on Thursday?",
    "No school on Thursday.",
    "I've got a date on Friday.",
    "I get my results on Friday.",
    "I'm off on Friday.",
    "We need to feed the cat on Sunday.",
    "I need the report by Friday.",
    "She sings at the club on Saturday.",
    "Can we push our call to Friday?",
    "See you Friday!",
    "Dinner with Tom Thursday 7pm",
    "Let's do Friday at 6.",
    "Kannst du mich am Freitag abholen?",
    "Wir haben eine Wohnung gefunden und ziehen am Samstag ein.",
    "Am Sonntag bin ich bei Oma.",
    "Recuérdame llamar a mamá el sábado.",
]
BEHIND = [
    "I could not come on Saturday.",
    "I needed the report by Friday.",
    "We fed the cat on Sunday.",
    "Nice talking to you on Thursday.",
    "I got a parking ticket on Friday.",
    "Thanks for the lovely evening on Saturday.",
    "I hope you had fun on Saturday.",
    "I read the whole book on Sunday.",
    "We should have met on Sunday.",
    "Here's us at the lake on Saturday.",
    "Am Sonntag waren wir bei Oma.",
    "El domingo corrí una media maratón.",
]


@pytest.mark.parametrize("text", [*AHEAD, *BEHIND])
def test_a_weekday_is_ahead_where_something_is_asked_or_coming(text: str) -> None:
    tuesday = datetime(2026, 11, 10, 10, tzinfo=UTC)
    span = find_times(text, anchor=tuesday)[-1].span
    moment = span.start or span.end
    assert moment is not None and (moment > tuesday) is (text in AHEAD)


@pytest.mark.parametrize(("said", "text", "day"), [*NEWS, *PAST])
def test_a_plan_told_with_the_news_that_led_to_it_is_ahead(said: str, text: str, day: str) -> None:
    anchor = datetime.fromisoformat(said).replace(hour=10, tzinfo=UTC)
    assert str(find_times(text, anchor=anchor)[-1].span.start)[:10] == day


def test_of_two_times_told_the_one_of_the_move_is_past_like_the_wedding() -> None:
    text = "I got married in June, moving to Berlin in August."
    found = find_times(text, anchor=datetime(2026, 11, 20, tzinfo=UTC))
    assert [str(mention.span.start)[:7] for mention in found] == ["2026-06", "2026-08"]


@pytest.mark.parametrize(
    ("phrase", "told", "day"),
    [
        ("Saturday", ("We will fly on Saturday.",), "2023-05-13"),
        ("Saturday", ("We flew on Saturday.",), "2023-05-06"),
        ("Saturday", ("We meet, and I will cook.", "Ana will fly to Rome"), "2023-05-13"),
        ("Saturday", (), "2023-05-06"),
        ("20 November", ("The visa expires on 20 November.",), "2023-11-20"),
        ("20 November", ("The visa expired",), "2022-11-20"),
        ("last Saturday", ("We will see what came of last Saturday.",), "2023-05-06"),
        ("a week ago today", (), "2023-05-01"),
        ("mid-2021", (), "2021-05-01"),
    ],
)
def test_a_bare_time_follows_the_tense_of_what_it_dates(
    phrase: str, told: tuple[str, ...], day: str
) -> None:
    span = resolve_time(phrase, anchor=MONDAY, told=told)
    assert span is not None and str(span.start)[:10] == day


async def test_an_extractor_dates_a_plan_forward() -> None:
    def reply(request: ModelRequest) -> str:
        if request.role is Role.MANAGER:
            return json.dumps({"ops": [{"op": "ADD", "fact": 0}, {"op": "ADD", "fact": 1}]})
        facts = [
            {"text": "Ana will fly to Rome", "source": "t1", "when": "Saturday"},
            {"text": "Ana saw the sea", "source": "t2", "when": "Sunday"},
        ]
        return json.dumps({"facts": facts})

    turns = (
        Turn(id="t1", speaker="Ana", text="I will fly to Rome on Saturday!"),
        Turn(id="t2", speaker="Ana", text="On Sunday I saw the sea."),
    )
    async with AsyncAgent(
        model=FunctionModel(reply), path=":memory:", embedder="hashing", design="memory_r1"
    ) as agent:
        await agent.remember(Session(id="s", at=MONDAY, turns=turns))
        starts = {
            item.text: str(item.valid.start)[:10]
            for item in await agent.memory.get_all()
            if item.valid is not None
        }
    assert starts == {"Ana will fly to Rome": "2023-05-13", "Ana saw the sea": "2023-05-07"}
