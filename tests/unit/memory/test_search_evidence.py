"""A search tells whether its hits answer what was asked, without being slower for it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from memagent import Agent, ConfigError
from memagent.core.answers import QUOTED_FROM, SearchEvidence, Strength
from memagent.memory.options import SearchHits

TALK = (
    "I moved to Porto in May and rent a flat by the river.",
    "My dog Rex is allergic to chicken.",
    "I bake sourdough bread every Sunday.",
    "My sister Clara plays the cello.",
    "I work as a nurse at the city hospital.",
)


@pytest.fixture(scope="module")
def agent() -> Iterator[Agent]:
    with Agent(path=":memory:") as opened:
        turns = [{"name": "Ana", "content": text} for text in TALK]
        opened.remember(turns, at=datetime(2024, 6, 2, tzinfo=UTC))
        yield opened


def test_hits_that_answer_are_told_from_hits_that_do_not(agent: Agent) -> None:
    answered = agent.search("What is the dog Rex allergic to?")
    unrelated = agent.search("Which football club won the cup?")
    assert isinstance(answered, SearchHits) and "chicken" in answered[0].text
    assert answered.evidence.strength is Strength.STRONG
    assert unrelated.evidence.strength is Strength.NONE
    assert unrelated.evidence.probability < QUOTED_FROM < answered.evidence.probability


def test_a_search_may_abstain(agent: Agent) -> None:
    question = "Which football club won the cup?"
    assert agent.search(question)
    nothing = agent.search(question, abstain_below=0.5)
    assert nothing == [] and nothing.evidence == agent.search(question).evidence
    assert agent.search("What is the dog Rex allergic to?", abstain_below=0.5)
    with pytest.raises(ConfigError, match="abstain_below is 2"):
        agent.search("dog", abstain_below=2)


def test_nothing_found_is_no_evidence(agent: Agent) -> None:
    assert agent.search(" ").evidence == SearchEvidence()


def test_hits_are_judged_only_when_somebody_looks() -> None:
    calls: list[int] = []

    def judge() -> SearchEvidence:
        calls.append(1)
        return SearchEvidence.of(0.4)

    hits = SearchHits(judge=judge)
    assert not calls and hits == []
    assert hits.evidence.strength is Strength.WEAK and hits.evidence.probability == 0.4
    assert len(calls) == 1


def test_hits_copy_with_their_evidence(agent: Agent) -> None:
    hits = agent.search("What is the dog Rex allergic to?")
    copied = copy.deepcopy(hits)
    assert copied == hits and copied.evidence == hits.evidence
