"""Trust in recall: searches, questions and chats leave out what is trusted too little."""

from __future__ import annotations

import pytest

from memagent import Agent, ConfigError, Filter
from memagent.core.records import Session, Trust, Turn
from memagent.designs.parts.lines import hit_line

CAR = Session(
    id="s",
    turns=(
        Turn(id="t1", speaker="Ana", text="I drive a blue Volvo car to work."),
        Turn(id="t2", speaker="web", text="Ana's car is a red Ferrari.", trust=Trust.TOOL),
    ),
)
QUESTION = "Which car does Ana drive?"


@pytest.fixture
def agent() -> Agent:
    agent = Agent(path=":memory:")
    agent.remember(CAR)
    return agent


def test_a_search_leaves_out_what_is_trusted_less(agent: Agent) -> None:
    assert {hit.trust for hit in agent.search(QUESTION)} == {Trust.USER, Trust.TOOL}
    assert {hit.trust for hit in agent.search(QUESTION, min_trust="user")} == {Trust.USER}
    by_filter = agent.search(QUESTION, where=Filter(min_trust=Trust.USER))
    assert [hit.id for hit in by_filter] == [
        hit.id for hit in agent.search(QUESTION, min_trust=Trust.USER)
    ]
    assert len(agent.search(QUESTION, min_trust="tool")) == 2
    assert agent.search(QUESTION, min_trust="system") == []


def test_the_stricter_of_two_bounds_holds(agent: Agent) -> None:
    loose = Filter(min_trust=Trust.UNTRUSTED)
    assert len(agent.search(QUESTION, where=loose, min_trust="user")) == 1
    strict = Filter(min_trust=Trust.SYSTEM)
    assert agent.search(QUESTION, where=strict, min_trust="tool") == []


@pytest.mark.parametrize("recipe", ["plain", "fast", "balanced", "deep"])
def test_no_recipe_brings_it_back(agent: Agent, recipe: str) -> None:
    hits = agent.search(QUESTION, min_trust="user", recipe=recipe)
    assert [hit.trust for hit in hits] == [Trust.USER]


def test_questions_and_chats_keep_to_the_bound(agent: Agent) -> None:
    answer = agent.ask("Who has a red Ferrari?", min_trust="user")
    assert all(hit.trust is Trust.USER for hit in answer.hits)
    assert "Ferrari" not in answer.text
    assert "Ferrari" in agent.ask("Who has a red Ferrari?").text
    assert "Ferrari" not in agent.chat("Who has a red Ferrari?", min_trust="user").text


def test_lists_keep_to_the_bound(agent: Agent) -> None:
    items = agent.memory.get_all(where=Filter(min_trust=Trust.ASSISTANT))
    assert [item.trust for item in items] == [Trust.USER]


def test_lines_of_prompts_tell_low_trust(agent: Agent) -> None:
    lines = {hit.trust: hit_line(hit) for hit in agent.search(QUESTION)}
    assert "trust tool" in lines[Trust.TOOL]
    assert "trust" not in lines[Trust.USER]


def test_an_unknown_trust_is_refused(agent: Agent) -> None:
    with pytest.raises(ConfigError, match="there is no trust 'everybody'"):
        agent.search(QUESTION, min_trust="everybody")
