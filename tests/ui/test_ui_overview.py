"""The overview: how the memory grew, what was decided, and how both are counted."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from service_kit import serving
from ui_pages import words

from memagent.core.ops import Rejected, RejectReason
from memagent.core.snapshot import Commit, Erased, JournalRow
from memagent.pages.charts import Axes, column_chart, line_chart, moments, time_axes
from memagent.pages.journal_words import JournalFigures
from memagent.service.ui import overview

START = datetime(2024, 2, 28, 22, 30, tzinfo=UTC)
HOUR, DAY = 3_600.0, 86_400.0


def test_the_charts_tell_the_journal() -> None:
    with serving(":memory:", design="verbatim") as running, running.http() as http:
        for number in range(5):
            assert http.post("/v1/memories", json={"id": f"m{number}", "text": f"It is {number}"})
        http.patch("/v1/memories/m1", json={"text": "It is one"})
        http.delete("/v1/memories/m2")
        told = http.get("/ui").text
        assert "Memories over time. memories: 1 at" in told and "between 1 and 4" in told
        counts = re.findall(r"<title>(added|changed|deleted), [^<]*: (\d+)<", told)
        sums = {name: sum(int(n) for of, n in counts if of == name) for name, _ in counts}
        assert sums == {"added": 5, "changed": 1, "deleted": 1}
        http.post("/v1/undo", json={})
        assert re.search(r"memories: 1 at [^<]*, 5 at ", http.get("/ui").text)


def test_a_large_memory_is_counted_by_the_second_view(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview, "_COUNTED_AT_ONCE", 3)
    with serving(":memory:", design="verbatim") as running, running.http() as http:
        texts = [f"It is {number}" for number in range(8)]
        assert http.post("/v1/memories/batch", json={"texts": texts}).is_success
        first = http.get("/ui")
        assert "data-refresh" in first.text and "not counted yet" in words(first)
        second = http.get("/ui")
        assert "data-refresh" not in second.text and "memories: 8 at" in second.text


def rows(*entries: Commit | Erased, every: timedelta) -> list[JournalRow]:
    return [
        JournalRow(seq=number, recorded_at=START + number * every, entry=entry)
        for number, entry in enumerate(entries, 1)
    ]


def test_a_long_journal_keeps_a_bounded_number_of_points_and_every_decision() -> None:
    refused = Rejected(reason=RejectReason.EMPTY_TEXT)
    figures = JournalFigures()
    commit = Commit(id="c", rejected=(refused,))
    for row in rows(*[commit] * 5_000, every=timedelta(minutes=7)):
        figures.add(row)
    assert len(figures.points) <= 2_049 and figures.seq == 5_000
    assert sum(point.decisions["refused"] for point in figures.points) == 5_000
    columns = re.findall(r"<title>refused, [^<]*: ([\d.k]+)<", figures.charts()[1].svg)
    assert 2 <= len(columns) <= 24


def test_memories_stand_where_they_were_said_whenever_they_were_imported() -> None:
    with serving(":memory:", design="verbatim") as running, running.http() as http:
        for year, text in ((2021, "I have a cat called Miso."), (2023, "I play the cello.")):
            turns = [{"speaker": "Ana", "text": text}]
            body = {"at": f"{year}-05-01T10:00:00Z", "turns": turns}
            assert http.post("/v1/sessions?wait=true", json=body).is_success
        page = http.get("/ui").text
    assert re.search(r"memories: 1 at UTC \w+ 2021, 2 at \w+ 2023,", page)
    assert "by when they were said" in page and "by when it was recorded" in page
    legend = {words: tone for tone, words in re.findall(r'<li class="(tone\d)">([^<]+)<', page)}
    assert legend["left as it was"] == "tone5", "grey, for nothing was lost"


def test_the_question_in_the_empty_field_is_about_nobody_whom_the_memory_does_not_know() -> None:
    with serving(":memory:", design="verbatim") as running, running.http() as http:
        turns = [{"speaker": "Tom", "text": "I live in Porto."}]
        assert http.post("/v1/sessions?wait=true", json={"turns": turns}).is_success
        for path in ("/ui", "/ui/ask"):
            assert 'placeholder="What do you know about me?"' in http.get(path).text


def test_an_erasure_empties_the_curve_and_a_new_figure_has_no_picture() -> None:
    assert [chart.svg for chart in JournalFigures().charts()] == ["", ""]
    figures = JournalFigures()
    for row in rows(Commit(id="c"), Erased(), every=timedelta(days=1)):
        figures.add(row)
    assert figures.charts()[0].svg == ""


@pytest.mark.parametrize(
    ("span", "words_"),
    [
        (4.0, ["22:30:00", "22:30:04"]),
        (0.9 * HOUR, ["22:45", "23:15"]),
        (30 * HOUR, ["29 Feb 00:00", "1 Mar 00:00"]),
        (20 * DAY, ["29 Feb", "14 Mar"]),
        (300 * DAY, ["Apr 2024", "Oct 2024"]),
        (4_000 * DAY, ["2025", "2030"]),
    ],
)
def test_labels_stand_at_round_moments(span: float, words_: list[str]) -> None:
    first = START.timestamp()
    axes = time_axes(first, first + span)
    labels = [axes.format_x(place) for place in axes.places]
    assert 2 <= len(labels) <= 12 and set(words_) <= set(labels)
    assert all(first <= place <= first + span for place in axes.places)


@pytest.mark.parametrize("span", [0.0, 1.0, 59.0, HOUR, 3 * DAY, 45 * DAY, 900 * DAY, 90_000 * DAY])
def test_stretches_cover_everything_and_are_few(span: float) -> None:
    first = START.timestamp()
    starts = moments(first, first + span, most=24)
    assert 1 <= len(starts) <= 24 and starts[0] <= first and starts == sorted(set(starts))


def test_a_chart_without_a_time_axis_keeps_its_round_numbers() -> None:
    chart = column_chart("a", [(1.0, 2.0), (2.0, 3.0)], ["x"], Axes(across="step"))
    assert "x, step 2: 3" in chart.svg
    assert line_chart("a", [], time_axes(0.0, 10.0)).svg == ""


def heads(page: str) -> list[str]:
    """The heads of the page's table."""
    return [words(head) for head in re.findall(r"<th[ >].*?</th>", page)]


def test_a_column_that_says_the_same_in_every_row_is_named_once_below() -> None:
    with serving(":memory:", design="verbatim") as running, running.http() as http:
        for number in range(3):
            body = {"id": f"m{number}", "text": f"Ana has plan {number}", "subject": "Ana"}
            body["said_at"] = "2024-03-04T10:00:00Z"
            assert http.post("/v1/memories", json=body).is_success
            if number == 0:
                assert heads(http.get("/ui/memories").text)[1:] == ["About", "Said", "Version"]
        page = http.get("/ui/memories")
        assert heads(page.text) == ["Memory"]
        assert "In every row: about Ana, kind fact, said 2024-03-04 10:00, version 1." in words(
            page
        )
        http.patch("/v1/memories/m1", json={"text": "Ana has another plan"})
        page = http.get("/ui/memories")
        assert heads(page.text) == ["Memory", "Version"]
        assert "In every row: about Ana, kind fact, said 2024-03-04 10:00." in words(page)
        session = {"id": "s", "turns": [{"speaker": "Ben", "text": "I sold my old boat."}]}
        assert http.post("/v1/sessions?wait=true", json=session).is_success
        assert heads(http.get("/ui/memories").text) == ["Memory", "About", "Said", "Version"]
        assert "Remembered" in heads(http.get("/ui/turns/sessions").text)
        assert http.post("/v1/sessions?wait=true", json=session | {"id": "t"}).is_success
        page = http.get("/ui/turns/sessions")
        assert "Remembered" not in heads(page.text) and "remembered: all." in words(page)
        assert heads(http.get("/ui/users").text) == ["User"]


def test_words_in_a_constant_column_stay_text() -> None:
    with serving(":memory:", design="verbatim") as running, running.http() as http:
        for number in range(2):
            body = {"text": f"Plan {number}", "subject": "<img src=x>"}
            assert http.post("/v1/memories", json=body).is_success
        page = http.get("/ui/memories")
        assert "about <img src=x>" in words(page) and "<img" not in page.text
