"""The design `learned`: the reader sees what a statement ends; nothing else is touched."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from places import ROOT

from memagent import Agent, Question
from memagent.cli.doctor import Examination, _examine_weights
from memagent.core.answers import Verdict
from memagent.core.ops import Add, RejectReason, Update
from memagent.core.records import Session, Turn
from memagent.designs.parts import reading
from memagent.language import reader as language_reader

START = datetime(2024, 3, 1, 12, tzinfo=UTC)
MOVE = (
    [("Zarina", "I live in Quorbal, above a bakery."), ("Tim", "Nice!")],
    [("Zarina", "New keys, new life: Vestrin is home now, the flat in Quorbal is let.")],
)


def heard(agent: Agent, *days: list[tuple[str, str]]) -> None:
    for number, turns in enumerate(days, start=1):
        agent.remember(
            Session(
                id=f"S{number}",
                at=START + timedelta(days=70 * number),
                turns=tuple(
                    Turn(id=f"D{number}:{place}", speaker=who, text=text)
                    for place, (who, text) in enumerate(turns, start=1)
                ),
            )
        )


def active(agent: Agent) -> list[str]:
    return [item.text for item in agent.snapshot().items.values() if item.active]


def test_a_move_becomes_the_next_version_with_a_reason_and_undo_brings_the_old_one_back() -> None:
    with Agent(design="learned", path=":memory:") as agent:
        heard(agent, *MOVE)
        (item,) = agent.snapshot().items.values()
        assert "Vestrin" in item.text
        assert item.source_turn_ids == ("D1:1", "D2:1")
        last = agent.memory.history(item.id)[-1].op
        assert isinstance(last, Update)
        assert last.source_turn_ids == ("D2:1",)
        assert last.reason.startswith("replaced because")
        agent.memory.undo()
        assert active(agent) == ["I live in Quorbal, above a bakery."]


def test_the_present_and_the_earlier_wording_answer_their_own_questions() -> None:
    with Agent(design="learned", path=":memory:") as agent:
        heard(agent, *MOVE)
        now = agent.ask("Where does Zarina live now?")
        assert "Vestrin" in now.text
        assert now.citations[0].turn_id == "D2:1"
        before = agent.ask("Where did Zarina live before?")
        assert "Quorbal" in before.text
        assert before.citations[0].turn_id == "D1:1"


def test_a_changed_memory_is_found_by_its_earlier_words_and_quoted_in_its_newest() -> None:
    with Agent(design="learned", path=":memory:") as agent:
        heard(
            agent,
            [("Mara", "Levi has guitar lessons on Mondays.")],
            [("Mara", "We sold the guitar, there is a drum kit in the bedroom now.")],
        )
        answer = agent.ask("Does Levi have guitar lessons?")
        assert answer.verdict is Verdict.QUOTED
        assert "drum kit" in answer.text and "on Mondays" not in answer.text
        assert answer.citations[0].turn_id == "D2:1"


def test_a_day_that_was_given_up_answers_no_question_about_when_it_is() -> None:
    with Agent(design="learned", path=":memory:") as agent:
        heard(
            agent,
            [("Irina", "My appointment at the consulate is on 12 September.")],
            [("Irina", "The consulate cancelled, no new date yet.")],
        )
        answer = agent.ask("When is Irina's appointment?")
        assert "12 September" not in answer.text
        assert answer.citations[0].turn_id == "D2:1"


@pytest.mark.parametrize("later", ["They put me next to the printer.", "It is sunny there."])
def test_what_a_later_statement_may_have_ended_is_doubted(later: str) -> None:
    with Agent(design="learned", path=":memory:") as agent:
        for number, text in enumerate(("My desk is by the window.", later), start=1):
            turn = Turn(id=f"D{number}:1", speaker="Noa", text=text)
            agent.remember(
                Session(id=f"S{number}", at=START + timedelta(days=number), turns=(turn,))
            )
        assert "My desk is by the window." in active(agent), "too unsure to change it"
        answer = agent.ask("Where is Noa's desk?")
        doubted = any("may have changed that" in note for note in answer.notes)
        assert doubted == ("printer" in later)
        assert (answer.verdict is Verdict.SUPPORTED) != doubted


@pytest.mark.parametrize(
    "second",
    [
        "My brother moved to Vestrin, he lives by the harbour now.",
        "Greetings from Vestrin, we are here until Sunday.",
    ],
)
def test_a_brothers_move_and_a_holiday_move_nobody(second: str) -> None:
    with Agent(design="learned", path=":memory:") as agent:
        heard(agent, [("Ana", "I live in Quorbal.")], [("Ana", second)])
        assert "I live in Quorbal." in active(agent)


@pytest.mark.parametrize(
    "second",
    [
        "I also have a parrot called Piet.",
        "I still have my cat Miso, she sleeps on the printer.",
        "My brother sold his cat.",
        "Would you ever give your cat away? I could not.",
        "Thanks, that was a lovely evening!",
    ],
)
def test_what_ends_nothing_changes_nothing(second: str) -> None:
    with Agent(design="learned", path=":memory:") as agent:
        heard(agent, [("Ana", "I have a cat, Miso.")], [("Ana", second)])
        (first,) = [
            item for item in agent.snapshot().items.values() if "D1:1" in item.source_turn_ids
        ]
        assert (first.text, first.version, first.active) == ("I have a cat, Miso.", 1, True)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Apartment 4 is rented to the Millers.", "Apartment 5 is rented to the Schmidts."),
        ("The 2023 budget is 40,000 euros.", "The 2024 budget is 55,000 euros."),
        ("Room 11 is painted red.", "Room 12 is painted blue."),
    ],
)
def test_another_number_of_a_kind_is_another_thing(first: str, second: str) -> None:
    with Agent(design="learned", path=":memory:") as agent:
        agent.remember(first)
        agent.remember(second)
        assert sorted(active(agent)) == sorted([first, second])


def test_the_same_number_of_a_kind_is_the_same_thing() -> None:
    with Agent(design="learned", path=":memory:") as agent:
        agent.remember("Room 11 is painted red.")
        agent.remember("Room 11 is painted blue now.")
        assert active(agent) == ["Room 11 is painted blue now."]


def test_nobody_ends_what_another_speaker_said() -> None:
    with Agent(design="learned", path=":memory:") as agent:
        heard(agent, MOVE[0], [("Tim", "I moved to Vestrin last week, I live by the harbour now.")])
        assert "I live in Quorbal, above a bakery." in active(agent)


def test_whatever_is_kept_was_said_word_for_word() -> None:
    rng = random.Random(5)
    pieces = (
        "I live in", "my dog", "moved to", "not", "Quorbal", "sorry,", "我", "مرحبا", "{value}", "\n",
        "no longer", "ich wohne in", "42", "?", "!", "...", "http://x.y/z?q=1", "'s", "—", "🙂",
    )  # fmt: skip
    texts = [" ".join(rng.choices(pieces, k=rng.randint(1, 14))).strip() for _ in range(120)]
    with Agent(design="learned", path=":memory:") as agent:
        heard(agent, *([("Zarina", text or "?")] for text in texts))
        snapshot = agent.snapshot()
        items = [*snapshot.items.values(), *(old for v in snapshot.archive.values() for old in v)]
        assert len(items) > 40
        assert {item.text for item in items} <= set(texts)


def test_without_its_weights_the_rules_decide_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broken = tmp_path / "reader.npz"
    broken.write_bytes(language_reader.WEIGHTS_FILE.read_bytes()[:1_000])
    monkeypatch.setattr(reading, "open_reader", lambda: language_reader.open_reader(broken))
    reading.shipped_reader.cache_clear()
    try:
        with Agent(design="learned", path=":memory:") as agent:
            heard(agent, *MOVE)
            assert any("Quorbal" in text or "Vestrin" in text for text in active(agent))
    finally:
        reading.shipped_reader.cache_clear()
    assert "rules decide alone" in caplog.text


def test_the_doctor_tells_the_digest_of_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    report = Examination()
    _examine_weights(report)
    digest = language_reader.open_reader().network.digest
    assert report.versions["reader's weights"] == f"sha256 {digest[:12]}"

    def gone() -> None:
        raise OSError("gone")

    monkeypatch.setattr(language_reader, "open_reader", gone)
    _examine_weights(report)
    assert report.problems == ["the reader's weights cannot be read: gone"]


BELONGINGS = (
    [("Ana", "I'm allergic to penicillin.")],
    [("Ana", "My laptop is a ThinkPad.")],
    [("Ana", "We painted the kitchen green.")],
)


def test_what_is_near_in_meaning_is_quoted_where_no_word_fits_and_never_supported() -> None:
    question = "What medicine can't I take?"
    with Agent(design="learned", path=":memory:") as agent:
        heard(agent, *BELONGINGS)
        answer = agent.ask(question)
        assert answer.verdict is Verdict.QUOTED
        assert answer.citations[0].quote == "I'm allergic to penicillin."
        assert any("by its meaning, not by its words" in note for note in answer.notes)
    with Agent(design="verbatim", path=":memory:") as agent:
        heard(agent, *BELONGINGS)
        assert agent.ask(question).abstained, "no word of it is met"


def test_what_nothing_is_near_to_is_not_answered() -> None:
    with Agent(design="learned", path=":memory:") as agent:
        heard(agent, *BELONGINGS)
        assert agent.ask("How deep is the Mariana Trench?").abstained


def test_a_statement_that_took_the_wrong_place_is_not_sure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrong = language_reader.Change(0, "replaces", 0.9, "a wrong change")
    monkeypatch.setattr(language_reader.Reader, "changes", lambda *_: (wrong,))
    with Agent(design="learned", path=":memory:") as agent:
        heard(
            agent,
            [("Ana", "I work as a radiographer at the hospital.")],
            [("Ana", "I am staying with my mum in Bradford until the summer.")],
        )
        assert active(agent)[0].startswith("I am staying")
        soon = Question(text="Where does Ana work?", asked_at=START + timedelta(days=141))
        answer = agent.ask(soon)
        assert answer.verdict is not Verdict.SUPPORTED
        assert any("an earlier wording only" in note for note in answer.notes)


def test_readings_are_kept_without_the_texts() -> None:
    with Agent(design="learned", path=":memory:") as agent:
        heard(agent, *MOVE)
    assert reading._KNOWN
    assert all(isinstance(key, bytes) and len(key) == 32 for key in reading._KNOWN)


def test_a_change_that_is_refused_leaves_its_words_as_a_memory_of_their_own() -> None:
    """The assistant's "What changed your mind?" may be behind the change, so it is refused."""
    said = "I gave up being vegetarian, I eat fish again."
    chats = json.loads((ROOT / "tests/data/three_chats.json").read_text("utf-8"))["chats"]
    [chat] = [own for own in chats if said in json.dumps(own)]
    with Agent(design="learned", path=":memory:") as agent:
        for session in chat["sessions"]:
            turns = [{"role": who, "content": text} for who, text in session["turns"]]
            report = agent.remember(turns, at=session["at"])
        [refused] = [entry for chunk in report.chunks for entry in chunk.rejected]
        assert refused.reason is RejectReason.LOW_TRUST
        assert isinstance(refused.op, Update) and refused.op.text == said
        assert said in active(agent)
        [added] = [
            applied.op
            for chunk in report.chunks
            for applied in chunk.applied
            if isinstance(applied.op, Add) and applied.op.fact.text == said
        ]
        assert added.reason.startswith("UPDATE was refused: evidence trusted as assistant")


@pytest.mark.parametrize(
    ("note", "told", "question", "right"),
    [
        ("I live in Lisbon", "I moved to Porto.", "Where do I live?", "Porto"),
        ("I'm vegetarian", "I'm not vegetarian any more, I eat fish.", "Am I vegetarian?", "fish"),
        ("I work as a nurse", "I quit my job as a nurse.", "What is my job?", "quit"),
        ("User works as a nurse", "I quit my job as a nurse.", "What is my job?", "quit"),
        ("The user drives a Volvo", "I sold my Volvo.", "Do I drive a Volvo?", "sold"),
    ],
)
def test_what_was_written_by_hand_is_the_user_s_own_and_ends_as_what_was_told(
    note: str, told: str, question: str, right: str
) -> None:
    with Agent(path=":memory:") as agent:
        item = agent.memory.add(note, said_at=START)
        agent.remember(told, at=START + timedelta(days=70))
        (op,) = [entry.op for entry in agent.memory.history(item.id)[1:]]
        assert op is not None and op.op in ("UPDATE", "DELETE"), active(agent)
        answer = agent.ask(question)
        assert right in answer.text and "Written by hand" not in answer.text
        assert answer.verdict is not Verdict.SUPPORTED or right in answer.text


def test_a_note_of_today_is_older_than_what_is_told_later_and_never_supported_against_it() -> None:
    with Agent(path=":memory:") as agent:
        item = agent.memory.add("User lives in Lisbon")
        assert item.said_at is not None
        agent.remember("I moved to Porto.")
        answer = agent.ask("Where do I live?")
        assert answer.verdict is not Verdict.SUPPORTED or "Porto" in answer.text


@pytest.mark.parametrize(
    ("note", "subject"),
    [
        ("Tom lives in Lisbon", None),
        ("Lives in Lisbon", "Tom"),
        ("I live in Lisbon", "Tom"),
        ("The office is in Lisbon, on floor 3", None),
        ("I was born in Lisbon", None),
    ],
)
def test_notes_about_others_and_other_things_stay(note: str, subject: str | None) -> None:
    with Agent(path=":memory:") as agent:
        agent.memory.add(note, subject=subject, said_at=START)
        agent.remember("I moved to Porto.", at=START + timedelta(days=70))
        assert sorted(active(agent)) == sorted([note, "I moved to Porto."])
