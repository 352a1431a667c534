"""The shipped reader: sentences in three languages that stand in no data of its fit."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import permutations

import numpy as np
import pytest

from memagent.language.network import Tokenizer
from memagent.language.reader import (
    NUMBERS,
    WEIGHTS_FILE,
    PairReading,
    Reader,
    Statement,
    Thresholds,
    change_numbers,
    open_reader,
    pair_extras,
)

JANUARY = datetime(2025, 1, 7, tzinfo=UTC)
JUNE = JANUARY + timedelta(days=150)


@pytest.fixture(scope="module")
def reader() -> Reader:
    return open_reader()


def said(text: str, *, at: datetime = JANUARY, speaker: str = "Noa") -> Statement:
    return Statement(text, speaker=speaker, at=at)


UPDATES = [
    ("I work at the harbour office.", "I quit the harbour office, I'm at the customs museum now."),
    ("We live on Falkner Street.", "We moved last week, our new place is on Elm Court."),
    ("My dentist appointment is on Tuesday.", "They moved my dentist appointment to Friday."),
    ("I have a red Vespa.", "I sold the Vespa yesterday."),
    ("Ich arbeite bei der Post.", "Ich habe bei der Post gekündigt und bin jetzt Gärtner."),
    ("Vivo en Granada.", "Me mudé, ahora vivo en Bilbao."),
]
FIRST_DAY = (
    "I live in Lisbon.",
    "My dog Rex is allergic to chicken.",
    "I work as a nurse at the Santa Maria hospital.",
    "My sister Ana lives in Rome.",
    "I like hiking.",
    "I'm allergic to nuts.",
    "We have two kids, Tom and Lea.",
    "I drive an old Fiat.",
    "I play the piano.",
    "My birthday is on 3 May.",
    "I'm learning Spanish.",
    "My wife works at a bank.",
    "We bought a house with a garden.",
)
KEPT = [
    ("I have a cat called Pixel.", "We adopted a second cat, her name is Byte."),
    ("I work at the harbour office.", "Thanks so much, that is really kind of you!"),
    ("I'm allergic to walnuts.", "The walk along the river was lovely today."),
    ("Ich habe zwei Kinder.", "Meine Kinder spielen gerade im Garten."),
    ("Tengo una bici azul.", "Hoy hace mucho calor, no salgo de casa."),
    ("My sister lives in Lyon.", "I still work at the bakery, by the way."),
    ("I love kayaking on the lake.", "Kayaking with the kids was so much fun, we laughed a lot!"),
]


def test_some_updates_are_found_and_named(reader: Reader) -> None:
    found = [reader.changes(said(new, at=JUNE), [said(old)]) for old, new in UPDATES]
    assert sum(bool(changes) for changes in found) >= 2
    for changes in found:
        for change in changes:
            assert change.index == 0
            assert change.relation in {"replaces", "ends"}
            assert change.probability >= reader.thresholds.change
            assert f"{change.probability:.2f}" in change.reason


@pytest.mark.parametrize(("old", "new"), KEPT)
def test_what_ends_nothing_changes_nothing(reader: Reader, old: str, new: str) -> None:
    assert reader.changes(said(new, at=JUNE), [said(old)]) == ()


def test_what_one_tells_of_oneself_on_the_first_day_ends_nothing(reader: Reader) -> None:
    changed = [
        (old, new)
        for old, new in permutations(FIRST_DAY, 2)
        for _ in reader.changes(said(new, at=JUNE), [said(old)])
    ]
    assert len(changed) <= 4, changed


def test_an_update_is_surer_than_whatever_ends_nothing(reader: Reader) -> None:
    updates, kept = (
        [reader.compare([said(old)], said(new, at=JUNE))[0].change for old, new in pairs]
        for pairs in (UPDATES, KEPT)
    )
    assert np.mean(updates) > np.mean(kept) + 0.15


def test_how_long_both_texts_are_counts_in_a_decision() -> None:
    pair = PairReading(0.5, 0.0, 0.1, 0.1, 0.3)
    numbers = change_numbers(said("one two three"), said("four five", at=JUNE), pair, 0.0)
    assert len(numbers) == NUMBERS
    own = numbers[:19]
    assert own[-2:] == (pytest.approx(np.log(4)), pytest.approx(np.log(3)))
    assert numbers[-1] == pytest.approx(np.log(3) ** 2), "and so do products of every two"
    assert sorted(numbers) == pytest.approx(
        sorted(first * second for at, first in enumerate(own) for second in own[at:])
    )


def test_words_of_a_second_thing_and_of_a_relative_speak_against_a_change(reader: Reader) -> None:
    memories = [said(text) for text in ("I live in Lund.", "I work as a nurse.", "I have a cat.")]

    def probability(text: str) -> float:
        weighed = {own.index: own for own in reader.weigh(said(text, at=JUNE), memories)}
        return reader.probability(weighed[0]) if 0 in weighed else 0.0

    assert probability("I moved to Bergen last week.") > 0.7
    assert probability("I have a flat in Bergen too.") < 0.3
    assert probability("I live in Bergen too.") < 0.3
    assert probability("My brother moved to Bergen last week.") < 0.1
    plain = probability("Bergen is where I sleep, by the harbour.")
    assert probability("Bergen is where I sleep too, by the harbour.") < plain - 0.1
    assert probability("My brother sleeps in Bergen, by the harbour.") < plain - 0.2


def test_the_right_one_of_several_memories_is_changed(reader: Reader) -> None:
    memories = [
        said("I have a cat called Pixel."),
        said("We live on Falkner Street."),
        said("I'm allergic to walnuts."),
    ]
    new = said("We moved last week, our new place is on Elm Court.", at=JUNE)
    assert [change.index for change in reader.changes(new, memories)] == [1]


def test_what_is_known_of_statements_changes_no_verdict(reader: Reader) -> None:
    new = said(UPDATES[0][1], at=JUNE)
    olds = [said(old) for old, _ in UPDATES]
    again = reader.changes(reader.read([new])[0], reader.read(olds))
    assert [change.index for change in again] == [
        change.index for change in reader.changes(new, olds)
    ]


def test_what_a_turn_states_is_told_from_chat(reader: Reader) -> None:
    stated = [
        "I moved to Tromsø in August.",
        "My brother works at a hospital.",
        "Unsere Tochter heißt Mathilda.",
        "Mi hermano trabaja en un hospital.",
    ]
    chat = [
        "Thank you so much, see you soon!",
        "Sounds great, have fun!",
        "Wie geht es dir heute?",
        "¡Qué bien, me alegro mucho!",
    ]
    shares = [own.states or 0.0 for own in reader.read(list(map(Statement, [*stated, *chat])))]
    assert min(shares[:4]) > max(shares[4:])
    assert sum(share >= 0.5 for share in shares[:4]) >= 3
    assert max(shares[4:]) < 0.5


def test_readings_do_not_depend_on_what_is_read_with_them(reader: Reader) -> None:
    texts = ["ok", "My brother sold his flat in Turin and moved back in with our parents.", "Hi!"]
    together = reader.read(list(map(Statement, texts)))
    for text, reading in zip(texts, together, strict=True):
        alone = reader.read([Statement(text)])[0]
        assert alone.vector is not None and reading.vector is not None
        assert np.abs(alone.vector - reading.vector).max() < 1e-4
        assert alone.states == pytest.approx(reading.states, abs=1e-3)


def test_empty_and_odd_texts_are_read(reader: Reader) -> None:
    assert reader.read([]) == ()
    assert reader.changes(said("   "), [said("I live in Rome.")]) == ()
    assert reader.changes(said("I live in Rome."), []) == ()
    odd = ["", "😂😂😂", "Привет, как дела?", "\x00\x07", "word " * 1_000]
    readings = reader.read(list(map(Statement, odd)))
    assert len(readings) == len(odd)
    assert all(own.vector is not None and np.isfinite(own.vector).all() for own in readings)


def test_unlikely_statements_are_not_read_together(reader: Reader) -> None:
    nothing = Reader(reader.network, Thresholds(states=1.1))
    assert nothing.changes(said(UPDATES[0][1]), [said(UPDATES[0][0])]) == ()
    nothing = Reader(reader.network, Thresholds(light=1.1))
    assert nothing.changes(said(UPDATES[0][1]), [said(UPDATES[0][0])]) == ()


def test_numbers_of_a_pair_say_who_and_when() -> None:
    old = said("a")
    assert pair_extras(old, said("b", at=JANUARY)) == (1.0, 0.0, 1.0, 0.0)
    same, other, today, days = pair_extras(old, said("b", at=JUNE, speaker="Kim"))
    assert (same, other, today) == (0.0, 1.0, 0.0)
    assert days == pytest.approx(np.log1p(150) / 6)
    assert pair_extras(Statement("a"), Statement("b")) == (0.0, 0.0, 0.0, 0.0)


def test_pieces_lie_at_their_words() -> None:
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "caf", "##e", "now", "."]
    text = "Café now. xyz"
    pieces = Tokenizer(vocabulary).pieces(text)
    assert [text[first:last] for first, last in pieces.spans] == ["Café", "Café", "now", ".", "xyz"]
    assert [vocabulary[row] for row in pieces.rows] == ["caf", "##e", "now", ".", "[UNK]"]


def test_the_shipped_file_is_small() -> None:
    assert WEIGHTS_FILE.stat().st_size <= 10_800_000
