"""Free text: time phrases are found where they stand, look-alikes are left alone, and
scanning never raises and stays fast.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from datetime import UTC, datetime

import pytest
from hypothesis import given, strategies as st
from patience import patience_s
from places import ROOT

from memagent.timex import resolve
from memagent.timex.resolve import find_times, format_span, resolve_time

FRIDAY = datetime(2023, 6, 9, 13, 30, tzinfo=UTC)
FREE_TEXT = [
    ("I went to a support group yesterday and it was great.", [("yesterday", "8 June 2023")]),
    ("Last Fri I finally took my kids to the museum", [("Last Fri", "2 June 2023")]),
    (
        "I've known them for 4 years, since I moved.",
        [("for 4 years", "1 January 2019 to 9 June 2023")],
    ),
    ("Volunteering at a shelter on Monday - so rewarding", [("Monday", "5 June 2023")]),
    ("We're meeting on Monday at noon", [("Monday", "12 June 2023")]),
    ("Because on Sunday I am going on a picnic", [("Sunday", "11 June 2023")]),
    ("I'll call you in two weeks.", [("in two weeks", "the week of 19 June 2023")]),
    ("He moved there in 2016, after college", [("2016", "2016")]),
    ("He has lived there since 2016.", [("since 2016", "since 2016")]),
    ("We met in the summer of 2019 in Rome", [("summer of 2019", "summer 2019")]),
    ("We start in August", [("August", "August 2023")]),
    ("We will start in August", [("August", "August 2023")]),
    (
        "It happened the week before 25 May 2023 or so",
        [("the week before 25 May 2023", "the week of 15 May 2023")],
    ),
    ("I saw her two days before Christmas", [("two days before Christmas", "23 December 2022")]),
    ("It took from Monday to Wednesday.", [("from Monday to Wednesday", "5 to 7 June 2023")]),
    (
        "Between May 2021 and March 2022 I was ill",
        [("Between May 2021 and March 2022", "May 2021 to March 2022")],
    ),
    (
        "The race was on 5/14/2023, not 05/13/2023!",
        [("5/14/2023", "14 May 2023"), ("05/13/2023", "13 May 2023")],
    ),
    ("Music from the 90s and from 1985", [("90s", "the 1990s"), ("1985", "1985")]),
    ("I got it in May, I think", [("May", "May 2023")]),
    ("we marched on march 5th", [("march 5th", "5 March 2023")]),
    (
        "Begun in Sept; it must be ready by the end of October",
        [("Sept", "September 2022"), ("by the end of October", "before November 2023")],
    ),
    ("He said it was ready by Friday.", [("by Friday", "before 3 June 2023")]),
    ("LAST WEEK WAS WILD", [("LAST WEEK", "the week of 29 May 2023")]),
    ("İstanbul\u2019dayım, back since Last Week", [("since Last Week", "since 29 May 2023")]),
    (
        "Cheers for asking!\n\nThe day\nbefore yesterday we left",
        [("The day\nbefore yesterday", "7 June 2023")],
    ),
]


@pytest.mark.parametrize(("text", "expected"), FREE_TEXT, ids=[text[:40] for text, _ in FREE_TEXT])
def test_free_text_mentions(text: str, expected: list[tuple[str, str]]) -> None:
    mentions = find_times(text, anchor=FRIDAY)
    assert [(mention.text, format_span(mention.span)) for mention in mentions] == expected
    assert all(
        text[mention.start : mention.end] == mention.text == mention.span.text
        for mention in mentions
    )


NO_TIMES = """
You may be right about that.
I may 2 times a day take a walk
May I ask you something?
this may be the best one so far
Many people march for their rights
the march was long, and the next march will be longer
we march 5 miles a day
Give me a second, please.
She came second in the race
The sun was out and we sat down
I sat there; the sun sat low
We last sat together at school
it takes 2000 steps to get there
In 2000 steps you are there
I ran 2016 meters
Cyberpunk 2077 is a great game
call 555 1234 or 2023
room 1984 on floor 3
it cost 2000 dollars
the version is 2.10.1
the score was 3/4
in my 20s I was wild
I live on the 15th floor
she took the 2nd place
Merry Christmas tree hunting
I fall asleep in spring rolls
April said hi to June
Jan and June are friends
it was a long time ago
I have not slept in ages
see you next time
the last book that I read
once a week or twice a month
I go there on weekends
on Mondays I swim
a weekend trip
every day and every night
the week was hard
I finished it in two days
day after day
we were hiking last time
the next level is hard
last one standing
I ran for two hours
the third quarter was rough
inspired by autumn leaves
30 years old
it is 25 degrees
what a great year
half the day
the mon and the wed
decades of work
24/7 support
1-2-3 go
1.5 liters
from 3 to 5
between you and me
by hand
"""


@pytest.mark.parametrize("text", NO_TIMES.strip().splitlines())
def test_words_that_only_look_like_times_are_left_alone(text: str) -> None:
    assert [mention.text for mention in find_times(text, anchor=FRIDAY)] == []


def test_relative_phrases_need_an_anchor() -> None:
    text = "Yesterday I said that on 7 May 2023 we moved, two years ago, since 2016, in June."
    found = find_times(text, anchor=None)
    assert [(mention.text, mention.relative) for mention in found] == [
        ("7 May 2023", False),
        ("since 2016", False),
    ]
    anchored = find_times(text, anchor=FRIDAY)
    assert [(mention.text, mention.relative) for mention in anchored] == [
        ("Yesterday", True), ("7 May 2023", False), ("two years ago", True), ("since 2016", False), ("June", True),
    ]  # fmt: skip
    assert resolve_time("yesterday", anchor=None) is None
    assert resolve_time("hier", anchor=None) is None


def test_scanning_never_loads_dateparser() -> None:
    code = (
        "import sys; from datetime import datetime\n"
        "from memagent.timex.resolve import find_times, resolve_time\n"
        "find_times('gestern, last week, 7 mai 2023, hace dos semanas', anchor=datetime(2023, 6, 9))\n"
        "resolve_time('last week', anchor=datetime(2023, 6, 9))\n"
        "print('dateparser' in sys.modules)\n"
        "resolve_time('hier', anchor=datetime(2023, 6, 9))\n"
        "print('dateparser' in sys.modules)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "True"]


def test_without_the_extra_dates_our_own_grammar_still_reads() -> None:
    code = (
        "import sys; sys.modules['dateparser'] = None\n"
        "from datetime import datetime\n"
        "from memagent.timex.resolve import resolve_time\n"
        "anchor = datetime(2023, 6, 9)\n"
        "print(resolve_time('last week', anchor=anchor) is None)\n"
        "print(resolve_time('hier', anchor=anchor) is None)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "True"]


WORDS = st.sampled_from(
    "may march sun last next this the week weekend month year day two few a of ago before after since until between and from to in on "
    "Friday monday June may 2023 2016 31 29 7th 0 99999 early mid late end beginning summer Christmas Easter yesterday 1:56 pm "
    "5/7/2023 13.13.2023 2023-02-30 '98 90s Q4 half first quarter - – now years 9999 0001-01-01 31 December 9999".split(
        " "
    )
)


def test_a_range_of_days_that_runs_backwards_is_no_range() -> None:
    mentions = find_times("from 21 to 2 January 2023", anchor=None)
    assert [mention.text for mention in mentions] == ["2 January 2023"]


@given(
    st.one_of(st.text(max_size=300), st.lists(WORDS, max_size=25).map(" ".join)),
    st.one_of(st.none(), st.datetimes()),
)
def test_scanning_never_raises_and_mentions_are_in_order(
    text: str, anchor: datetime | None
) -> None:
    end = 0
    for mention in find_times(text, anchor=anchor):
        assert end <= mention.start < mention.end
        assert text[mention.start : mention.end] == mention.span.text or "\ufffd" in mention.text
        assert anchor is not None or not mention.relative
        assert mention.span.start is not None or mention.span.end is not None
        assert format_span(mention.span)
        end = mention.end


@given(st.lists(WORDS, max_size=8).map(" ".join), st.one_of(st.none(), st.datetimes()))
def test_resolving_never_raises(phrase: str, anchor: datetime | None) -> None:
    span = resolve_time(phrase, anchor=anchor)
    assert span is None or format_span(span)


TURN = (
    "Hey! Long time no talk, so much happened since we last spoke. Last week I went hiking with my sister and we may go back "
    "in August; she moved to Porto two years ago and loves it there. How was the race on Saturday?"
)


def test_a_long_turn_takes_time_in_proportion_to_its_length() -> None:
    def least_s(text: str) -> float:
        took: list[float] = []
        for _ in range(5):
            began = time.thread_time()
            find_times(text, anchor=FRIDAY)
            took.append(time.thread_time() - began)
        return min(took)

    assert len(TURN) >= 200
    assert len(find_times(TURN, anchor=FRIDAY)) == 4
    assert least_s(f"{TURN} " * 16) < 3 * 16 * least_s(TURN)


def test_a_very_long_text_is_scanned_in_linear_time() -> None:
    began = time.perf_counter()
    assert len(find_times("yesterday " * 4_000, anchor=FRIDAY)) == 4_000
    find_times("the " * 50_000 + "week", anchor=FRIDAY)
    find_times("last " + " " * 100_000 + "week", anchor=FRIDAY)
    find_times("1" * 100_000 + " 2023", anchor=FRIDAY)
    assert time.perf_counter() - began < patience_s(10)


def test_a_text_is_passed_over_only_where_it_names_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The quick look at a text says what the whole grammar says, on everyday talk and numbers."""
    folder = ROOT / "environments" / "dialogues" / "data"
    lines = [
        line
        for path in sorted(folder.rglob("*.txt"))
        for line in path.read_text("utf-8").splitlines()[::7]
    ]
    numbers = (0, 7, 19, 90, 98, 501, 1492, 1539, 1999, 2024, 2199, 2200, 8117, 20_240, 123_456)
    frames = (
        "it cost {}",
        "in {} we",
        "{}s",
        "'{}",
        "{}-05-03",
        "3/{}",
        "{}/3",
        "{}th",
        "room {}.",
    )
    lines += [frame.format(number) for frame in frames for number in numbers]
    units = "minute min hour hr day weekend week wk fortnight month quarter year yr decade".split()
    frames = ("for 6 {}s", "6 {}s ago", "in 6 {}s", "last {}", "next {}", "a {} ago", "the past {}")
    lines += [frame.format(unit) for frame in frames for unit in units]
    quick = [find_times(line, anchor=FRIDAY) for line in lines]
    monkeypatch.setattr(resolve, "_CUE", re.compile(""))
    assert [find_times(line, anchor=FRIDAY) for line in lines] == quick
    assert any(mention.text == "for 6 yrs" for found in quick for mention in found)
