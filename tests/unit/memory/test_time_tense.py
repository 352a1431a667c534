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
