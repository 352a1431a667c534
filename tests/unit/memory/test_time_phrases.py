"""Time phrases resolve to the spans a calendar gives them, in whole phrases and in free
text, and never raise.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given, strategies as st

from memagent.core.records import Granularity, TimeSpan
from memagent.timex.resolve import find_times, format_span, resolve_time

FRIDAY = datetime(2023, 6, 9, 13, 30, tzinfo=UTC)
MONDAY = datetime(2023, 7, 17, 19, 5, tzinfo=UTC)
SUNDAY = datetime(2024, 1, 14, 8, 0, tzinfo=UTC)
LEAP_DAY = datetime(2024, 2, 29, 23, 59, tzinfo=UTC)

# phrase | first day | stop day (open bounds: -) | granularity; written by hand beside a
# calendar, one block per anchor
NO_ANCHOR_TABLE = """
7 May 2023 | 2023-05-07 | 2023-05-08 | day
7th of May 2023 | 2023-05-07 | 2023-05-08 | day
7th May, 2023 | 2023-05-07 | 2023-05-08 | day
the 7th of May 2023 | 2023-05-07 | 2023-05-08 | day
May 7, 2023 | 2023-05-07 | 2023-05-08 | day
May 7th 2023 | 2023-05-07 | 2023-05-08 | day
on May 7th, 2023 | 2023-05-07 | 2023-05-08 | day
Sunday, 7 May 2023 | 2023-05-07 | 2023-05-08 | day
Sun 7 May 2023 | 2023-05-07 | 2023-05-08 | day
7-May-2023 | 2023-05-07 | 2023-05-08 | day
2023-05-07 | 2023-05-07 | 2023-05-08 | day
2023/05/07 | 2023-05-07 | 2023-05-08 | day
5/7/2023 | 2023-05-07 | 2023-05-08 | day
05/07/23 | 2023-05-07 | 2023-05-08 | day
25/12/2022 | 2022-12-25 | 2022-12-26 | day
7.5.2023 | 2023-05-07 | 2023-05-08 | day
07.05.2023 | 2023-05-07 | 2023-05-08 | day
Feb 29, 2024 | 2024-02-29 | 2024-03-01 | day
Sept. 3rd, 2022 | 2022-09-03 | 2022-09-04 | day
7 May '23 | 2023-05-07 | 2023-05-08 | day
around April 2, 2023 | 2023-04-02 | 2023-04-03 | day
1:56 pm on 8 May, 2023 | 2023-05-08T13:56 | 2023-05-08T13:57 | minute
2023-05-08T13:56:00Z | 2023-05-08T13:56 | 2023-05-08T13:57 | minute
8 May 2023, 13:56 | 2023-05-08T13:56 | 2023-05-08T13:57 | minute
8 May 2023 at 1 pm | 2023-05-08T13:00 | 2023-05-08T14:00 | hour
12 am on 8 May 2023 | 2023-05-08T00:00 | 2023-05-08T01:00 | hour
May 2023 | 2023-05-01 | 2023-06-01 | month
May, 2023 | 2023-05-01 | 2023-06-01 | month
May of 2023 | 2023-05-01 | 2023-06-01 | month
in Dec 2022 | 2022-12-01 | 2023-01-01 | month
2023-05 | 2023-05-01 | 2023-06-01 | month
05/2023 | 2023-05-01 | 2023-06-01 | month
2022 | 2022-01-01 | 2023-01-01 | year
in 2016 | 2016-01-01 | 2017-01-01 | year
the 90s | 1990-01-01 | 2000-01-01 | decade
the 1980s | 1980-01-01 | 1990-01-01 | decade
in the nineties | 1990-01-01 | 2000-01-01 | decade
the early 90s | 1990-01-01 | 1994-01-01 | range
the late 2010s | 2016-01-01 | 2020-01-01 | range
summer 2022 | 2022-06-01 | 2022-09-01 | season
approximately summer of 2022 | 2022-06-01 | 2022-09-01 | season
fall 2021 | 2021-09-01 | 2021-12-01 | season
winter 2022/23 | 2022-12-01 | 2023-03-01 | season
spring '19 | 2019-03-01 | 2019-06-01 | season
Q1 2023 | 2023-01-01 | 2023-04-01 | range
the third quarter of 2022 | 2022-07-01 | 2022-10-01 | range
first week of August 2023 | 2023-08-01 | 2023-08-08 | week
last week of September 2023 | 2023-09-24 | 2023-10-01 | week
the first weekend of August 2023 | 2023-08-05 | 2023-08-07 | weekend
the second Monday of May 2023 | 2023-05-08 | 2023-05-09 | day
the last Friday of June 2023 | 2023-06-30 | 2023-07-01 | day
the last day of February 2024 | 2024-02-29 | 2024-03-01 | day
the first half of 2021 | 2021-01-01 | 2021-07-01 | range
early June 2023 | 2023-06-01 | 2023-06-11 | range
mid-June 2023 | 2023-06-11 | 2023-06-21 | range
late February 2024 | 2024-02-21 | 2024-03-01 | range
the beginning of 2021 | 2021-01-01 | 2021-05-01 | range
mid 2020 | 2020-05-01 | 2020-09-01 | range
the end of 2021 | 2021-09-01 | 2022-01-01 | range
the end of May 2023 | 2023-05-21 | 2023-06-01 | range
the week of 23 August 2023 | 2023-08-21 | 2023-08-28 | week
the weekend of 6 May 2023 | 2023-05-06 | 2023-05-08 | weekend
the week before 9 June 2023 | 2023-05-29 | 2023-06-05 | week
The week before October 13th, 2023. | 2023-10-02 | 2023-10-09 | week
the Sunday before 25 May 2023 | 2023-05-21 | 2023-05-22 | day
The friday before 15 July 2023 | 2023-07-14 | 2023-07-15 | day
two weekends before 17 July 2023 | 2023-07-08 | 2023-07-10 | weekend
the weekend before 13 September 2023 | 2023-09-09 | 2023-09-11 | weekend
the day after 31 December 2022 | 2023-01-01 | 2023-01-02 | day
Last week before 13 October 2022. | 2022-10-03 | 2022-10-10 | week
three days before 2 March 2024 | 2024-02-28 | 2024-02-29 | day
a week after May 1, 2023 | 2023-05-08 | 2023-05-15 | week
the month before June 2023 | 2023-05-01 | 2023-06-01 | month
few days before November 22, 2023 | 2023-11-15 | 2023-11-22 | range
between 3 and 9 April 2023 | 2023-04-03 | 2023-04-10 | range
between October 19 and 24, 2023 | 2023-10-19 | 2023-10-25 | range
On the night of October 30 to 31, 2022 | 2022-10-30 | 2022-11-01 | range
November 5-6, 2022 | 2022-11-05 | 2022-11-07 | range
from 27 May to 3 June 2023 | 2023-05-27 | 2023-06-04 | range
27 December to 3 January 2023 | 2022-12-27 | 2023-01-04 | range
from May to July 2022 | 2022-05-01 | 2022-08-01 | range
between May 2021 and March 2022 | 2021-05-01 | 2022-04-01 | range
2016 to 2019 | 2016-01-01 | 2020-01-01 | range
since 2016 | 2016-01-01 | - | range
since March 2021 | 2021-03-01 | - | range
ever since 12 May 2020 | 2020-05-12 | - | range
before 9 June 2023 | - | 2023-06-09 | range
after 9 June 2023 | 2023-06-10 | - | range
until 3 July 2023 | - | 2023-07-04 | range
by the end of June 2023 | - | 2023-07-01 | range
Christmas 2022 | 2022-12-25 | 2022-12-26 | day
Christmas Eve 2022 | 2022-12-24 | 2022-12-25 | day
New Year's Eve 2022 | 2022-12-31 | 2023-01-01 | day
New Year's Day 2023 | 2023-01-01 | 2023-01-02 | day
Halloween 2023 | 2023-10-31 | 2023-11-01 | day
Valentine's Day 2023 | 2023-02-14 | 2023-02-15 | day
Thanksgiving 2022 | 2022-11-24 | 2022-11-25 | day
Thanksgiving 2023 | 2023-11-23 | 2023-11-24 | day
Easter 2023 | 2023-04-09 | 2023-04-10 | day
Good Friday 2024 | 2024-03-29 | 2024-03-30 | day
Mother's Day 2023 | 2023-05-14 | 2023-05-15 | day
Father's Day 2023 | 2023-06-18 | 2023-06-19 | day
Labor Day 2023 | 2023-09-04 | 2023-09-05 | day
Memorial Day 2023 | 2023-05-29 | 2023-05-30 | day
the day after Christmas 2022 | 2022-12-26 | 2022-12-27 | day
"""
FRIDAY_TABLE = """
yesterday | 2023-06-08 | 2023-06-09 | day
today | 2023-06-09 | 2023-06-10 | day
tonight | 2023-06-09 | 2023-06-10 | day
tomorrow | 2023-06-10 | 2023-06-11 | day
tomorrow morning | 2023-06-10 | 2023-06-11 | day
the day before yesterday | 2023-06-07 | 2023-06-08 | day
day after tomorrow | 2023-06-11 | 2023-06-12 | day
last night | 2023-06-08 | 2023-06-09 | day
this morning | 2023-06-09 | 2023-06-10 | day
the other day | 2023-06-02 | 2023-06-09 | range
last Friday | 2023-06-02 | 2023-06-03 | day
last Thursday | 2023-06-08 | 2023-06-09 | day
last Tues | 2023-06-06 | 2023-06-07 | day
this past Saturday | 2023-06-03 | 2023-06-04 | day
this Tuesday | 2023-06-06 | 2023-06-07 | day
this Sunday | 2023-06-11 | 2023-06-12 | day
next Tuesday | 2023-06-13 | 2023-06-14 | day
next Friday | 2023-06-16 | 2023-06-17 | day
on Monday | 2023-06-05 | 2023-06-06 | day
on Friday | 2023-06-02 | 2023-06-03 | day
Wednesday night | 2023-06-07 | 2023-06-08 | day
Tuesday of last week | 2023-05-30 | 2023-05-31 | day
Monday next week | 2023-06-12 | 2023-06-13 | day
next week on Wednesday | 2023-06-14 | 2023-06-15 | day
the Friday before last | 2023-05-26 | 2023-05-27 | day
two Fridays ago | 2023-05-26 | 2023-05-27 | day
last week | 2023-05-29 | 2023-06-05 | week
this week | 2023-06-05 | 2023-06-12 | week
next week | 2023-06-12 | 2023-06-19 | week
the week before last | 2023-05-22 | 2023-05-29 | week
the week after next | 2023-06-19 | 2023-06-26 | week
last weekend | 2023-06-03 | 2023-06-05 | weekend
this past weekend | 2023-06-03 | 2023-06-05 | weekend
over the weekend | 2023-06-03 | 2023-06-05 | weekend
this weekend | 2023-06-10 | 2023-06-12 | weekend
next weekend | 2023-06-17 | 2023-06-19 | weekend
two weekends ago | 2023-05-27 | 2023-05-29 | weekend
last month | 2023-05-01 | 2023-06-01 | month
this month | 2023-06-01 | 2023-07-01 | month
next month | 2023-07-01 | 2023-08-01 | month
the month before last | 2023-04-01 | 2023-05-01 | month
last quarter | 2023-01-01 | 2023-04-01 | range
last year | 2022-01-01 | 2023-01-01 | year
this year | 2023-01-01 | 2024-01-01 | year
next year | 2024-01-01 | 2025-01-01 | year
the year before last | 2021-01-01 | 2022-01-01 | year
last summer | 2022-06-01 | 2022-09-01 | season
this summer | 2023-06-01 | 2023-09-01 | season
next summer | 2024-06-01 | 2024-09-01 | season
last winter | 2022-12-01 | 2023-03-01 | season
last fall | 2022-09-01 | 2022-12-01 | season
June | 2023-06-01 | 2023-07-01 | month
August | 2022-08-01 | 2022-09-01 | month
in March | 2023-03-01 | 2023-04-01 | month
last March | 2023-03-01 | 2023-04-01 | month
last June | 2022-06-01 | 2022-07-01 | month
last August | 2022-08-01 | 2022-09-01 | month
next March | 2024-03-01 | 2024-04-01 | month
this March | 2023-03-01 | 2023-04-01 | month
June last year | 2022-06-01 | 2022-07-01 | month
in May of this year | 2023-05-01 | 2023-06-01 | month
the summer of last year | 2022-06-01 | 2022-09-01 | season
early next month | 2023-07-01 | 2023-07-11 | range
late last year | 2022-09-01 | 2023-01-01 | range
earlier this year | 2023-01-01 | 2023-06-10 | range
later this month | 2023-06-09 | 2023-07-01 | range
early June | 2023-06-01 | 2023-06-11 | range
first week of August | 2022-08-01 | 2022-08-08 | week
two days ago | 2023-06-07 | 2023-06-08 | day
a couple of days ago | 2023-06-07 | 2023-06-08 | day
a few days ago | 2023-06-02 | 2023-06-09 | range
a week ago | 2023-05-29 | 2023-06-05 | week
a couple of weeks ago | 2023-05-22 | 2023-05-29 | week
three weeks ago | 2023-05-15 | 2023-05-22 | week
a fortnight ago | 2023-05-22 | 2023-05-29 | week
a few weeks ago | 2023-05-08 | 2023-05-29 | range
two months ago | 2023-04-01 | 2023-05-01 | month
6 months ago | 2022-12-01 | 2023-01-01 | month
a few months ago | 2023-02-01 | 2023-05-01 | range
half a year ago | 2022-12-01 | 2023-01-01 | month
a year and a half ago | 2021-12-01 | 2022-01-01 | month
two and a half years ago | 2020-12-01 | 2021-01-01 | month
a year ago | 2022-01-01 | 2023-01-01 | year
about a year ago | 2022-01-01 | 2023-01-01 | year
ten years ago | 2013-01-01 | 2014-01-01 | year
twenty-five years ago | 1998-01-01 | 1999-01-01 | year
a few years back | 2019-01-01 | 2022-01-01 | range
two hours ago | 2023-06-09T11:00 | 2023-06-09T12:00 | hour
in three days | 2023-06-12 | 2023-06-13 | day
in two weeks | 2023-06-19 | 2023-06-26 | week
two months from now | 2023-08-01 | 2023-09-01 | month
in a year's time | 2024-01-01 | 2025-01-01 | year
the last two weeks | 2023-05-26 | 2023-06-10 | range
the past month | 2023-05-09 | 2023-06-10 | range
this past year | 2022-06-09 | 2023-06-10 | range
the next two weeks | 2023-06-09 | 2023-06-24 | range
for five years | 2018-01-01 | 2023-06-10 | range
seven years now | 2016-01-01 | 2023-06-10 | range
5 years already | 2018-01-01 | 2023-06-10 | range
for about four months now | 2023-02-01 | 2023-06-10 | range
since last March | 2023-03-01 | - | range
since Monday | 2023-06-05 | - | range
since last summer | 2022-06-01 | - | range
until next Friday | - | 2023-06-17 | range
by Friday | - | 2023-06-17 | range
before Christmas | - | 2022-12-25 | range
after last Saturday | 2023-06-04 | - | range
between Monday and Wednesday | 2023-06-05 | 2023-06-08 | range
from last Monday to yesterday | 2023-06-05 | 2023-06-09 | range
7 May | 2023-05-07 | 2023-05-08 | day
July 20 | 2023-07-20 | 2023-07-21 | day
Saturday, 30 September | 2023-09-30 | 2023-10-01 | day
Friday 30 September | 2022-09-30 | 2022-10-01 | day
20 October | 2022-10-20 | 2022-10-21 | day
on the 3rd | 2023-06-03 | 2023-06-04 | day
the 15th of last month | 2023-05-15 | 2023-05-16 | day
the weekend of 3 June | 2023-06-03 | 2023-06-05 | weekend
the week of April 3rd to 9th | 2023-04-03 | 2023-04-10 | week
the Sunday before 25 May | 2023-05-21 | 2023-05-22 | day
the day after Christmas | 2022-12-26 | 2022-12-27 | day
last Christmas | 2022-12-25 | 2022-12-26 | day
next Christmas | 2023-12-25 | 2023-12-26 | day
Halloween | 2022-10-31 | 2022-11-01 | day
Easter | 2023-04-09 | 2023-04-10 | day
Christmas last year | 2022-12-25 | 2022-12-26 | day
the week before Easter | 2023-03-27 | 2023-04-03 | week
"""
MONDAY_TABLE = """
last weekend | 2023-07-15 | 2023-07-17 | weekend
two weekends ago | 2023-07-08 | 2023-07-10 | weekend
last Friday | 2023-07-14 | 2023-07-15 | day
last Monday | 2023-07-10 | 2023-07-11 | day
next Monday | 2023-07-24 | 2023-07-25 | day
last week | 2023-07-10 | 2023-07-17 | week
last spring | 2023-03-01 | 2023-06-01 | season
"""
SUNDAY_TABLE = """
last weekend | 2024-01-06 | 2024-01-08 | weekend
this weekend | 2024-01-13 | 2024-01-15 | weekend
over the weekend | 2024-01-13 | 2024-01-15 | weekend
last Sunday | 2024-01-07 | 2024-01-08 | day
next Sunday | 2024-01-21 | 2024-01-22 | day
last week | 2024-01-01 | 2024-01-08 | week
two weeks ago | 2023-12-25 | 2024-01-01 | week
last month | 2023-12-01 | 2024-01-01 | month
last December | 2023-12-01 | 2024-01-01 | month
this winter | 2023-12-01 | 2024-03-01 | season
last winter | 2022-12-01 | 2023-03-01 | season
last summer | 2023-06-01 | 2023-09-01 | season
Christmas | 2023-12-25 | 2023-12-26 | day
New Year's Eve | 2023-12-31 | 2024-01-01 | day
Valentine's Day | 2024-02-14 | 2024-02-15 | day
"""
LEAP_DAY_TABLE = """
yesterday | 2024-02-28 | 2024-02-29 | day
tomorrow | 2024-03-01 | 2024-03-02 | day
a year ago | 2023-01-01 | 2024-01-01 | year
next month | 2024-03-01 | 2024-04-01 | month
last week | 2024-02-19 | 2024-02-26 | week
the past year | 2023-02-28 | 2024-03-01 | range
29 February | 2024-02-29 | 2024-03-01 | day
"""

Case = tuple[str, datetime | None, datetime | None, datetime | None, Granularity]


def _moment(text: str) -> datetime | None:
    return None if text == "-" else datetime.fromisoformat(text).replace(tzinfo=UTC)


def _cases() -> list[Case]:
    tables = {
        NO_ANCHOR_TABLE: None,
        FRIDAY_TABLE: FRIDAY,
        MONDAY_TABLE: MONDAY,
        SUNDAY_TABLE: SUNDAY,
        LEAP_DAY_TABLE: LEAP_DAY,
    }
    cases: list[Case] = []
    for table, anchor in tables.items():
        for line in table.strip().splitlines():
            phrase, start, end, granularity = (cell.strip() for cell in line.split("|"))
            cases.append((phrase, anchor, _moment(start), _moment(end), Granularity(granularity)))
    return cases


CASES = _cases()


def test_phrases_resolve_as_a_calendar_says() -> None:
    wrong: list[str] = []
    for phrase, anchor, start, end, granularity in CASES:
        span = resolve_time(phrase, anchor=anchor)
        if span is None or (span.start, span.end, span.granularity) != (start, end, granularity):
            got = "nothing" if span is None else f"{span.start} .. {span.end} {span.granularity}"
            wrong.append(
                f"{phrase!r} at {anchor:%a %d %b %Y}: {got}" if anchor else f"{phrase!r}: {got}"
            )
    assert len(CASES) >= 130
    assert not wrong, f"{len(wrong)} of {len(CASES)} wrong:\n" + "\n".join(wrong)


@pytest.mark.parametrize(
    ("span", "wording"),
    [
        ("7 May 2023", "7 May 2023"),
        ("May 2023", "May 2023"),
        ("2022", "2022"),
        ("the week of 3 May 2023", "the week of 1 May 2023"),
        ("summer of 2022", "summer 2022"),
        ("winter 2022", "winter 2022/23"),
        ("the weekend of 7 May 2023", "weekend of 6 May 2023"),
        ("from 27 May to 3 June 2023", "27 May to 3 June 2023"),
        ("between 3 and 9 April 2023", "3 to 9 April 2023"),
        ("27 December to 3 January 2023", "27 December 2022 to 3 January 2023"),
        ("Q1 2023", "January to March 2023"),
        ("from November 2021 to February 2022", "November 2021 to February 2022"),
        ("2016 to 2019", "2016 to 2019"),
        ("the 90s", "the 1990s"),
        ("since 2016", "since 2016"),
        ("since March 2021", "since March 2021"),
        ("before 9 June 2023", "before 9 June 2023"),
        ("until 8 June 2023", "before 9 June 2023"),
        ("1:56 pm on 8 May, 2023", "8 May 2023, 13:56"),
        ("8 May 2023 at 1 pm", "8 May 2023, 1 pm"),
        ("last week of September 2023", "24 to 30 September 2023"),
    ],
)
def test_spans_are_worded_at_their_granularity(span: str, wording: str) -> None:
    found = resolve_time(span, anchor=None)
    assert found is not None
    assert found.text == span
    assert format_span(found) == wording


def test_a_span_without_bounds_has_a_wording() -> None:
    assert format_span(TimeSpan()) == "any time"


def test_anchors_count_as_the_utc_day_they_lie_in() -> None:
    late = datetime.fromisoformat("2023-06-08T23:00-05:00")
    span = resolve_time("yesterday", anchor=late)
    assert span is not None
    assert span.start == datetime(2023, 6, 8, tzinfo=UTC)


@pytest.mark.parametrize(
    ("phrase", "first", "granularity"),
    [
        ("gestern", "2023-06-08", "day"),
        ("vor zwei Jahren", "2021-01-01", "year"),
        ("letzte Woche", "2023-05-29", "week"),
        ("hier", "2023-06-08", "day"),
        ("il y a trois jours", "2023-06-06", "day"),
        ("7 de mayo de 2023", "2023-05-07", "day"),
        ("вчера", "2023-06-08", "day"),
        ("昨天", "2023-06-08", "day"),
        ("2023年5月7日", "2023-05-07", "day"),
        ("7 mai 2023", "2023-05-07", "day"),
    ],
)
def test_other_languages_are_read_as_whole_phrases(
    phrase: str, first: str, granularity: str
) -> None:
    span = resolve_time(phrase, anchor=FRIDAY)
    assert span is not None
    assert (span.start, span.granularity) == (_moment(first), granularity)


@pytest.mark.parametrize(
    "phrase",
    [
        "",
        " ",
        "hello there",
        "recently",
        "a while ago",
        "soon",
        "12",
        "12 people",
        "three weeks",
        "nearly 4 years",
        "three",
        "no",
        "31 February 2023",
        "2023-13-45",
        "x" * 500,
    ],
)
def test_what_is_no_time_resolves_to_nothing(phrase: str) -> None:
    assert resolve_time(phrase, anchor=FRIDAY) is None


# --- laws ------------------------------------------------------------------------------------------------------------

DAYS = st.dates(min_value=date(1900, 1, 1), max_value=date(2099, 12, 30))
MONTHS = (
    "January February March April May June July August September October November December".split()
)


@given(DAYS)
def test_absolute_days_round_trip_in_every_format(day: date) -> None:
    month = MONTHS[day.month - 1]
    ordinal = f"{day.day}{'th' if 10 < day.day < 20 else {1: 'st', 2: 'nd', 3: 'rd'}.get(day.day % 10, 'th')}"
    for written in (
        f"{day.day} {month} {day.year}",
        f"{ordinal} of {month}, {day.year}",
        f"{month} {day.day}, {day.year}",
        f"{month[:3]} {ordinal} {day.year}",
        f"{day:%A}, {day.day} {month} {day.year}",
        f"{day.month}/{day.day}/{day.year}",
        f"{day.day}.{day.month}.{day.year}",
        day.isoformat(),
    ):
        span = resolve_time(written, anchor=None)
        assert span is not None, written
        assert (span.start, span.end) == (
            _moment(day.isoformat()),
            _moment((day + timedelta(1)).isoformat()),
        ), written
        said = f"We met on {written}, remember?"
        assert [mention.text for mention in find_times(said, anchor=None)] == [written]


@given(
    DAYS,
    st.sampled_from(
        [
            "{} ",
            "the week of {}",
            "the weekend of {}",
            "since {}",
            "before {}",
            "the month before {}",
            "the year after {}",
        ]
    ),
)
def test_wording_reads_back_as_the_same_span(day: date, frame: str) -> None:
    span = resolve_time(frame.format(day.isoformat()), anchor=None)
    assert span is not None
    again = resolve_time(format_span(span), anchor=None)
    assert again is not None
    assert (again.start, again.end) == (span.start, span.end)
    assert again.granularity == span.granularity


@given(DAYS, st.integers(1, 900))
def test_ranges_of_days_read_back(day: date, length: int) -> None:
    start = datetime(day.year, day.month, day.day, tzinfo=UTC)
    span = TimeSpan(start=start, end=start + timedelta(days=length), granularity=Granularity.RANGE)
    again = resolve_time(format_span(span), anchor=None)
    assert again is not None
    assert (again.start, again.end) == (span.start, span.end)


@given(st.dates(min_value=date(2000, 1, 1), max_value=date(2050, 1, 1)))
def test_last_this_and_next_follow_each_other(day: date) -> None:
    anchor = datetime(day.year, day.month, day.day, 9, tzinfo=UTC)
    for unit in ("week", "weekend", "month", "quarter", "year", "decade"):
        last, this, following = (
            resolve_time(f"{which} {unit}", anchor=anchor) for which in ("last", "this", "next")
        )
        assert last is not None
        assert this is not None
        assert following is not None
        assert last.end is not None and this.start is not None and last.end <= this.start
        assert this.end is not None and following.start is not None and this.end <= following.start
        assert last.granularity == this.granularity == following.granularity


@pytest.mark.parametrize(
    ("text", "month"),
    [
        ("seit 3. Jänner 2025", 1),
        ("im JÄNNER 2025", 1),
        ("el 5 de setiembre de 2025", 9),
        ("el 5 de septiembre de 2025", 9),
        ("am 3. März 2025", 3),
    ],
)
def test_names_of_months_that_only_some_countries_use(text: str, month: int) -> None:
    (found,) = find_times(text, anchor=datetime(2025, 12, 1, tzinfo=UTC))
    assert found.span.start is not None and found.span.start.month == month
