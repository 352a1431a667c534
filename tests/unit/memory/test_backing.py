"""What cited words back: additions, new wordings and deletions, rule by rule."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from memagent.core.records import TimeSpan
from memagent.state.backing import Words, backs_addition, backs_change, backs_deletion

JUNE = TimeSpan(
    start=datetime(2024, 6, 9, tzinfo=UTC),
    end=datetime(2024, 6, 10, tzinfo=UTC),
    text="next Sunday",
)


def words(*texts: str) -> Words:
    return Words(texts, ("Ana",))


@pytest.mark.parametrize(
    ("said", "text", "suspect", "backed"),
    [
        ("I bought a grey cat in Porto.", "Ana bought a grey cat in Porto", (), True),
        ("I bought a grey cat in Porto.", "Ana bought a grey kitten in Porto", (), True),
        ("I bought a grey cat in Porto.", "Ana bought a grey kitten", (), True),
        ("I bought a grey cat.", "Ana purchased some grey kitten", (), False),
        ("I bought a grey cat.", "Ana bought a grey cat from Eva", (), False),
        ("I bought a grey cat.", "Ana bought a grey cat for 90", (), False),
        ("I bought a grey cat.", "Ana bought a grey cat there", ("there",), True),
        ("I bought a grey cat here.", "Ana bought a grey cat online", ("onlin",), False),
        ("I bought a grey cat.", "Ana never bought a grey cat", (), False),
        ("I never bought a grey cat.", "Ana never bought a grey cat", (), True),
        ("I bought a cat.", "Ana now lives with a cat she bought", (), True),
    ],
)
def test_an_addition(said: str, text: str, suspect: tuple[str, ...], backed: bool) -> None:
    assert backs_addition(words(said), text, suspect=suspect) is backed


@pytest.mark.parametrize(
    ("said", "old", "new", "backed"),
    [
        ("I moved from Porto to Bern.", "Ana lives in Porto", "Ana lives in Bern", True),
        ("My new flat is in Bern.", "Ana lives in Porto", "Ana lives in Bern", True),
        ("What is the weather in Bern?", "Ana lives in Porto", "Ana lives in Bern", False),
        ("I moved.", "Ana lives in Porto", "Ana lives in Bern", False),
        ("My cat is grey.", "Ana has a cat", "Ana has a grey cat", True),
        ("My cat is grey.", "Ana has a cat", "Ana has no cat", False),
        ("I have no cat any more.", "Ana has a cat", "Ana has no cat", True),
        ("My cat is fine.", "Ana has a cat", "Ana has a cat", True),
        ("I do not smoke cigars.", "Ana quit smoking", "Ana does not smoke cigars", True),
        ("My cat is fine.", "Ana has a grey cat", "Ana has a cat", False),
        ("I gave up the grey cat.", "Ana has a grey cat", "Ana has a cat", True),
    ],
)
def test_a_new_wording(said: str, old: str, new: str, backed: bool) -> None:
    assert backs_change(words(said), old=old, new=new) is backed


@pytest.mark.parametrize(
    ("said", "backed"),
    [
        ("The trip starts next Sunday.", True),
        ("The trip starts on 9 June.", True),
        ("The trip starts soon.", False),
    ],
)
def test_a_new_time_has_to_be_named(said: str, backed: bool) -> None:
    change = {"old": "Ana plans a trip", "new": "Ana plans a trip on 9 June 2024"}
    assert backs_change(words(said), **change, valid=JUNE) is backed
    assert words(said).name_time(JUNE) is backed
    assert bool(words(said).dates(JUNE)) is backed
    assert backs_addition(words(said), "a trip on 9 June", suspect=(), valid=JUNE) is backed


def test_a_span_without_bounds_is_named_by_its_phrase_alone() -> None:
    open_span = TimeSpan(text="some day")
    assert not words("I leave.").name_time(open_span)
    assert words("Some day I leave.").name_time(open_span)
    assert words("Some day I leave.").dates(None) == frozenset()
    until = TimeSpan(end=datetime(2024, 6, 9, tzinfo=UTC))
    assert words("until 9 June").name_time(until) and not words("until June").name_time(until)


@pytest.mark.parametrize(
    ("said", "text", "backed"),
    [
        ("Forget the grey cat.", "Ana has a grey cat", True),
        ("I sold the piano. It was grey.", "Ana has a grey piano", False),
        ("The piano is grey. I sold it.", "Ana has a grey piano", True),
        ("The piano is grey. We talked. I sold it.", "Ana has a grey piano", False),
        ("I have no grey cat.", "Ana has a grey cat", True),
        ("I have no cat.", "Ana has a grey cat", False),
        ("Forget the weather.", "Ana has a grey cat", False),
        ("Forget the cat.", "Ana has a grey cat with two white ears", False),
        ("The grey cat is well.", "Ana has a grey cat", False),
        ("Forget the grey cat Rex.", "grey cat Rex Porto garden", True),
        ("Delete my alarm code.", "Ana's alarm code is 4711", True),
        ("Delete 4711.", "4711", True),
    ],
)
def test_a_deletion(said: str, text: str, backed: bool) -> None:
    assert backs_deletion(words(said), text) is backed


def test_names_of_speakers_back_nothing() -> None:
    assert words("Ana, forget it.").names == {"ana"}
    assert not backs_deletion(words("Forget Ana."), "Ana has a cat")
