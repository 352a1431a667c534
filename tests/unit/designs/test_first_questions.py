"""The first questions of a stranger: over an own store, and over a store with one memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line_kit import got, run
from places import ROOT

from memagent import Agent
from memagent.core.answers import Answer, Citation, Hit, Verdict
from memagent.core.records import MemoryItem
from memagent.memory.judging.evidence import OF_ANOTHER, OPPOSITE, cite
from memagent.state.fold import BankState
from memagent.testing.models import FunctionModel

DATA: dict[str, Any] = json.loads(
    (ROOT / "tests" / "data" / "first_questions.json").read_text(encoding="utf-8")
)
EDITED = "Ana lives in Braga."
ALONE = [
    ("I live in Porto.", "Where do I live?"),
    ("I work as a nurse at the city hospital.", "What is my job?"),
    ("My dog is called Rex.", "What is my dog called?"),
    ("I am allergic to peanuts.", "What am I allergic to?"),
    ("My sister Clara got married in June 2023.", "When did Clara get married?"),
    ("I have two cats.", "How many cats do I have?"),
    ("My favourite colour is green.", "What is my favourite colour?"),
    ("I play the cello in an orchestra.", "Which instrument do I play?"),
]


def test_the_first_questions_are_answered_in_three_languages() -> None:
    abstained: list[str] = []
    wrong: list[str] = []
    with Agent(path=":memory:") as agent:
        for session in DATA["sessions"]:
            turns = [{"role": "user", "content": text} for text in session["turns"]]
            agent.remember(turns, at=session["at"])
        for case in DATA["questions"]:
            answer = agent.ask(case["question"])
            held = all(part.lower() in answer.text.lower() for part in case["answer"])
            if answer.verdict is Verdict.SUPPORTED and not (held and case["answer"]):
                wrong.append(case["question"])
            if case["answer"] and answer.verdict is Verdict.ABSTAINED:
                abstained.append(case["question"])
    assert len(DATA["questions"]) >= 30
    assert len(abstained) <= 2, abstained
    assert wrong == []


@pytest.mark.parametrize(("told", "question"), ALONE)
def test_a_store_with_one_memory_is_sure(told: str, question: str) -> None:
    with Agent(path=":memory:") as agent:
        agent.remember([{"role": "user", "content": told}])
        assert agent.ask(question).verdict is Verdict.SUPPORTED
        assert agent.ask("What is my bank account number?").verdict is not Verdict.SUPPORTED


@pytest.mark.parametrize(
    "model", [None, FunctionModel(lambda _: "not asked")], ids=["rules", "model"]
)
def test_a_list_is_dated_and_cited_with_and_without_a_model(model: FunctionModel | None) -> None:
    design = "verbatim" if model is None else "memory_r2"
    with Agent(path=":memory:", model=model, design=design) as agent:
        agent.remember([{"name": "Ana", "content": "I live in Porto."}], at="2024-05-03")
        agent.remember([{"name": "Tom", "content": "I work at the bank."}], at="2024-05-04")
        answer = agent.ask("What do you know about Ana?")
        assert answer.text == '- Ana said on 3 May 2024: "I live in Porto."'
        assert [bool(citation.turn_id) for citation in answer.citations] == [True]
        assert "bank" in agent.ask("What did Tom say on 4 May 2024?").text


@pytest.mark.parametrize("told", ["I have no car.", "I don't have a car.", "I do not have a car."])
def test_denials_in_other_words_answer_alike(told: str) -> None:
    with Agent(path=":memory:") as agent:
        agent.remember([{"name": "Ana", "content": told}])
        answer = agent.ask("Does Ana have a car?")
    assert answer.verdict is Verdict.SUPPORTED and told in answer.text


@pytest.mark.parametrize(
    ("said", "speaker", "text", "note"),
    [
        ("I have a car", "Ana", "Ana does not have a car", OPPOSITE),
        ("I don't have a car", "Ana", "Ana has a car", OPPOSITE),
        ("I have a red car", "Tom", "a red car", OF_ANOTHER),
        ("I have a red car", "Ana", "a red car", ""),
    ],
)
def test_a_models_answer_has_the_polarity_and_subject_of_what_it_cites(
    said: str, speaker: str, text: str, note: str
) -> None:
    others = [MemoryItem(id="mem_b", text="I am Ana", speaker="Ana", subject="Ana")]
    item = MemoryItem(id="mem_a", text=said, speaker=speaker, subject=speaker)
    hits = [Hit(id=entry.id, score=1.0, item=entry) for entry in (item, *others)]
    draft = Answer(text=text, citations=(Citation(hit_id="mem_a"),), verdict=Verdict.SUPPORTED)
    answer = cite(draft, hits, BankState(), question="Does Ana have a car?")
    assert (answer.verdict is Verdict.UNSUPPORTED) == bool(note)
    assert (note in answer.notes) == bool(note)


def _restored(agent: Agent, item_id: str, folder: Path) -> Agent:
    agent.memory.delete(item_id)
    agent.memory.restore(item_id)
    return agent


def _rewritten(agent: Agent, item_id: str, folder: Path) -> Agent:
    agent.memory.update(item_id, EDITED)
    return agent


def _undone(agent: Agent, item_id: str, folder: Path) -> Agent:
    agent.memory.delete(item_id)
    agent.memory.undo()
    return agent


def _imported(agent: Agent, item_id: str, folder: Path) -> Agent:
    agent.memory.export(folder / "all.jsonl")
    other = Agent(path=":memory:", design="verbatim")
    other.memory.import_(folder / "all.jsonl")
    return other


def _forked(agent: Agent, item_id: str, folder: Path) -> Agent:
    fork = agent.memory.fork()
    agent.memory.delete(item_id)
    agent.memory.restore(fork.snapshot())
    return agent


def _reopened(agent: Agent, item_id: str, folder: Path) -> Agent:
    agent.close()
    return Agent(path=folder / "memory.db", design="verbatim")


def _embedded_anew(agent: Agent, item_id: str, folder: Path) -> Agent:
    agent.close()
    got(run("reembed", "--path", str(folder / "memory.db"), "--json"))
    return Agent(path=folder / "memory.db", design="verbatim")


@pytest.mark.parametrize(
    "way",
    [_restored, _rewritten, _undone, _imported, _forked, _reopened, _embedded_anew],
    ids=lambda way: way.__name__.strip("_"),
)
def test_what_was_written_by_hand_stays_so(
    way: Callable[[Agent, str, Path], Agent], tmp_path: Path
) -> None:
    with Agent(path=tmp_path / "memory.db", design="verbatim") as agent:
        agent.remember([{"name": "Ana", "content": "I live in Porto."}])
        (item,) = agent.memory.get_all()
        agent.memory.update(item.id, EDITED)
        with way(agent, item.id, tmp_path) as after:
            answer = after.ask("Where does Ana live?")
    assert f'Written by hand: "{EDITED}"' in answer.text
    assert [citation.by_hand for citation in answer.citations] == [True]
