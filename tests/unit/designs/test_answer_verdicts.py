"""What an answer of quotes claims: `supported` only where the quote answers this question.

The own chat has 40 turns and 60 questions, 14 of them without an answer.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from places import ROOT

from memagent import Agent
from memagent.core.answers import SUPPORTED_FROM, Answer, Citation, Hit, Verdict
from memagent.core.errors import ConfigError
from memagent.core.records import MemoryItem
from memagent.memory.judging.certainty import FEATURES, MODEL_FILE, OVERALL, open_model
from memagent.memory.judging.evidence import NOT_CARRIED, cite
from memagent.state.fold import BankState

MARCH = datetime(2024, 3, 1, tzinfo=UTC)
JUNE = datetime(2024, 6, 2, tzinfo=UTC)


def told(*lines: str, at: datetime = MARCH, agent: Agent | None = None) -> Agent:
    """An agent that has heard lines such as "Anna: I live in Porto."."""
    agent = agent or Agent(path=":memory:")
    turns = [dict(zip(("name", "content"), line.split(": ", 1), strict=True)) for line in lines]
    agent.remember(turns, at=at)
    return agent


def asked(question: str, *lines: str) -> Answer:
    with told(*lines) as agent:
        return agent.ask(question)


# -- the whole chat --------------------------------------------------------------------


def test_sixty_questions_over_forty_turns() -> None:
    chat = json.loads((ROOT / "tests" / "data" / "own_chat.json").read_text(encoding="utf-8"))
    assert sum(len(session["turns"]) for session in chat["sessions"]) == 40
    assert len(chat["questions"]) == 60
    right, wrong = 0, []
    with Agent(path=":memory:") as agent:
        for session in chat["sessions"]:
            agent.remember(
                [
                    {
                        "name": name,
                        "content": text,
                        "role": "assistant" if name == "Assistant" else "user",
                    }
                    for name, text in session["turns"]
                ],
                at=datetime.fromisoformat(session["at"]).replace(tzinfo=UTC),
            )
        kept = [item.text for item in agent.memory.get_all()]
        assert len(kept) <= 0.75 * 40 and "And Japan?" not in kept
        for question, gold in chat["questions"]:
            answer = agent.ask(question)
            is_right = (
                answer.abstained
                if gold is None
                else not answer.abstained and gold.lower() in answer.text.lower()
            )
            right += is_right
            if not is_right and answer.verdict is Verdict.SUPPORTED:
                wrong.append(question)
    assert right >= 40
    assert len(wrong) <= 3, wrong


# -- subject, object, number -----------------------------------------------------------


@pytest.mark.parametrize(
    ("question", "lines", "verdict"),
    [
        ("When did Anna move to Porto?", ["Anna: I moved to Porto in May."], "supported"),
        ("When did Anna move to Lisbon?", ["Anna: I moved to Porto in May."], "quoted"),
        ("How old is Anna's dog?", ["Anna: My dog Rex is five years old."], "supported"),
        ("How old is Anna?", ["Anna: My dog Rex is five years old."], "quoted"),
        ("What is Anna allergic to?", ["Anna: My dog is allergic to chicken."], "quoted"),
        ("How old is Anna?", ["Anna: I like my old piano."], "quoted"),
        ("Which car does Anna drive?", ["Anna: I like my old piano."], "abstained"),
    ],
)
def test_a_quote_supports_only_the_very_question(
    question: str, lines: Sequence[str], verdict: str
) -> None:
    answer = asked(question, *lines, "Ben: I play the cello in an orchestra.")
    assert answer.verdict.value == verdict or (verdict, answer.verdict.value) == (
        "quoted",
        "abstained",
    )
    assert answer.probability is not None
    if answer.verdict is Verdict.QUOTED:
        assert answer.text.startswith("Not sure. The closest thing said:")
        assert answer.probability < SUPPORTED_FROM


def test_somebody_elses_statement_is_no_answer() -> None:
    lines = ("Anna: I adopted a grey kitten yesterday.", "Ben: I repaired my bicycle.")
    right, swapped = (asked(f"What did {name} adopt?", *lines) for name in ("Anna", "Ben"))
    assert right.verdict is Verdict.SUPPORTED
    assert swapped.verdict is not Verdict.SUPPORTED
    assert (swapped.probability or 0.0) < (right.probability or 0.0)


def test_german_questions_about_german_turns_are_answered() -> None:
    answer = asked(
        "Wo wohnt Ben?", "Ben: Ich wohne seit Mai in Hamburg.", "Anna: Ich spiele gern Klavier."
    )
    assert not answer.abstained and "Hamburg" in answer.text


# -- short answers, now, by hand -------------------------------------------------------


@pytest.mark.parametrize(
    ("question", "line", "first"),
    [
        ("Where does Anna live?", "Anna: I live in Porto, near the river.", "Porto."),
        ("Where does Anna work?", "Anna: I work at St. Anne's hospital in Leeds.", "St. Anne's."),
        (
            "Where does Anna live?",
            "Anna: I moved to Mt. Isa last week. Dr. Cole did too.",
            "Mt. Isa.",
        ),
        ("How many cats does Anna have?", "Anna: I have three cats and a dog.", "three."),
        ("What is the name of Anna's dog?", "Anna: My dog is called Rex.", "Rex."),
    ],
)
def test_a_certain_span_comes_before_the_quote(question: str, line: str, first: str) -> None:
    answer = asked(question, line, "Ben: I play the cello in an orchestra.")
    assert answer.text.splitlines()[0] == first
    assert line.split(": ", 1)[1] in answer.text


def test_no_span_is_given_where_two_could_be_meant() -> None:
    answer = asked("Where does Anna live?", "Anna: I live in Porto and I lived in Rome.")
    assert "Porto and I lived in Rome" in answer.text.splitlines()[0]


def test_questions_of_now_follow_the_latest_statement() -> None:
    with told("Anna: I work at a bank in Graz.", "Ben: I play the cello.") as agent:
        told("Anna: I work at a bakery in Linz.", at=JUNE, agent=agent)
        answer = agent.ask("Where does Anna work now?")
        assert answer.citations[0].said_at == JUNE and "bakery" in answer.citations[0].quote
        assert "bakery" in agent.ask("Where does Anna work?").citations[0].quote


def test_a_memory_edited_by_hand_beats_a_quote() -> None:
    with told("Mira: I live in Zurich.", "Tom: I live in Berlin with my cats.") as agent:
        (item,) = [item for item in agent.memory.get_all() if "Zurich" in item.text]
        agent.memory.update(item.id, "Mira lives in Basel")
        answer = agent.ask("Where does Mira live?")
        assert answer.text.splitlines() == ["Basel.", 'Written by hand: "Mira lives in Basel"']
        (citation,) = answer.citations
        assert citation.by_hand and citation.quote == "Mira lives in Basel"
        assert citation.turn_id is None and citation.speaker is None


def test_a_memory_added_by_hand_beats_a_quote() -> None:
    with told("Mira: I live in Zurich with my two cats.") as agent:
        agent.memory.add("Mira lives in Basel", subject="Mira")
        assert agent.ask("Where does Mira live?").citations[0].quote == "Mira lives in Basel"


# -- a model's answers -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("Chicken.", Verdict.SUPPORTED),
        ("Rex is allergic to chicken.", Verdict.SUPPORTED),
        ("Yes.", Verdict.SUPPORTED),
        ("1 March 2024", Verdict.SUPPORTED),
        ("Peanuts and penicillin.", Verdict.UNSUPPORTED),
    ],
)
def test_citations_must_carry_a_models_words(text: str, verdict: Verdict) -> None:
    item = MemoryItem(id="m", text="My dog Rex is allergic to chicken.", said_at=MARCH)
    hits = [Hit(id="m", score=1.0, item=item)]
    draft = Answer(text=text, citations=(Citation(hit_id="m"),))
    answer = cite(draft, hits, BankState(), question="What is Rex allergic to?")
    assert answer.verdict is verdict
    assert (NOT_CARRIED in answer.notes) is (verdict is Verdict.UNSUPPORTED)


# -- the weights -----------------------------------------------------------------------


def test_the_shipped_weights_fit_the_features() -> None:
    model = open_model()
    assert model.order.shape == (len(FEATURES),)
    assert model.overall.shape == (1 + len(OVERALL),)
    report = json.loads(
        (ROOT / "docs" / "research" / "results" / "certainty.json").read_text(encoding="utf-8")
    )
    assert report["weights"] == model.digest


def test_weights_of_another_version_are_refused(tmp_path: Path) -> None:
    weights = json.loads(MODEL_FILE.read_text(encoding="utf-8"))
    del weights["order"]["near"]
    other = tmp_path / "certainty.json"
    other.write_text(json.dumps(weights), encoding="utf-8")
    with pytest.raises(ConfigError, match="cannot be read"):
        open_model(other)


# -- words that are not what is asked --------------------------------------------------


def heard(question: str, first: str, second: str = "I love tea.") -> Answer:
    """The answer after two statements, a month apart, of one nameless speaker."""
    with Agent(path=":memory:") as agent:
        agent.remember(first, at=datetime(2026, 1, 5, tzinfo=UTC))
        agent.remember(second, at=datetime(2026, 2, 5, tzinfo=UTC))
        return agent.ask(question)


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("What car do I drive?", "They moved my driving test to 3 June."),
        ("What bike do I ride?", "The riding lessons were cancelled again."),
        ("Which book am I reading?", "My reading glasses broke yesterday."),
        ("What food do I cook?", "My cooking class starts in May."),
        ("Where did I live before Bradford?", "I'm living with my mum in Bradford now."),
        ("Where did I work before Siemens?", "I work at Siemens now."),
        ("Where did we live before moving to Graz?", "We live in Graz, near the park."),
    ],
)
def test_a_word_of_another_thing_or_of_what_came_after_supports_nothing(
    question: str, said: str
) -> None:
    assert heard(question, said).verdict is not Verdict.SUPPORTED


@pytest.mark.parametrize(
    ("question", "first", "second", "lead"),
    [
        ("What car do I drive?", "I drive a red Fiesta.", "I love tea.", "user said"),
        ("Where did I live before Bradford?", "Before Bradford I lived in Leeds.", "", "Leeds."),
        (
            "Where did I live before moving to Bradford?",
            "I live in Leeds.",
            "I moved to Bradford.",
            "Leeds.",
        ),
        (
            "When is my driving test?",
            "My driving test is on 14 May.",
            "They moved my driving test to 3 June.",
            "3 June 2026.",
        ),
        (
            "When is the wedding?",
            "The wedding is on 3 May.",
            "We've moved the wedding to 10 May.",
            "10 May 2026.",
        ),
        (
            "When's my flight?",
            "My flight is on 2 April.",
            "My flight was put back to 4 April.",
            "4 April 2026.",
        ),
        ("What do I do for a living?", "I live in Lisbon.", "I work as a nurse.", "user said"),
    ],
)
def test_the_right_words_still_do(question: str, first: str, second: str, lead: str) -> None:
    answer = heard(question, first, second or "I love tea.")
    assert answer.verdict is Verdict.SUPPORTED and answer.text.startswith(lead)
    if "living" in question:
        assert "nurse" in answer.text and "Lisbon" not in answer.text
