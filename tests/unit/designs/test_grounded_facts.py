"""What a model says it read is stored only if somebody said it."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from importlib.resources import files

import pytest

from memagent.core.exchange import Role
from memagent.core.ops import ParseStatus, RejectReason
from memagent.core.records import Chunk, Turn
from memagent.designs.base import load_prompt, parse_prompt
from memagent.designs.parts.model_extractor import FactReading

DAY = datetime(2023, 5, 8, tzinfo=UTC)
TURNS = (
    Turn(id="D1:1", speaker="Ben", text="Did you buy the house by the lake?"),
    Turn(id="D1:2", speaker="Ana", text="Yes, at last!"),
    Turn(id="D1:3", speaker="Ben", text="I felt awful yesterday."),
    Turn(id="D1:4", speaker="Ana", text="Estoy aprendiendo a tocar la guitarra con Miguel."),
    Turn(id="D1:5", speaker="Ana", text="Mira", image_caption="a red bicycle"),
)
EXTRACT = load_prompt("extract")


def read(text: str, source: str, turns: tuple[Turn, ...] = TURNS) -> tuple[ParseStatus, list[str]]:
    """Read one fact: the status and the reasons why it was refused."""
    chunk = Chunk(id="s#0", session_id="s", index=0, count=1, at=DAY, turns=turns)
    reply = json.dumps({"facts": [{"text": text, "source": source}]})
    parsed = FactReading(chunk=chunk, prompt=EXTRACT).read(reply)
    assert len(parsed.values) + len(parsed.rejected) == 1
    return parsed.status, [bad.reason for bad in parsed.rejected]


def examples(name: str) -> list[str]:
    """The statements in a prompt's examples."""
    return re.findall(r'"(?:text|summary)": ?"([^"]+)"', load_prompt(name).text)


@pytest.mark.parametrize("source", [turn.id for turn in TURNS])
def test_the_prompts_own_example_is_never_a_memory(source: str) -> None:
    (example,) = examples("extract")
    assert read(example, source) == (ParseStatus.FAILED, [RejectReason.UNGROUNDED])


def test_an_echo_is_refused_even_where_words_are_shared() -> None:
    turns = (Turn(id="D1:1", speaker="Eva", text="My grey cat had a bad day in May."),)
    (example,) = examples("extract")
    assert read(example, "D1:1", turns)[1] == [RejectReason.UNGROUNDED]
    named = (Turn(id="D1:1", speaker="Eva", text="Vexil adopted a grey cat named Qindra."),)
    assert read(example, "D1:1", named)[1] == []


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("Ana bought the house by the lake", "D1:2"),
        ("Ben was ill on 7 May 2023", "D1:3"),
        ("Ana is learning the guitar", "D1:4"),
        ("Ana has a red bike like a bicycle", "D1:5"),
    ],
)
def test_a_fact_may_rest_on_the_question_a_day_a_picture_or_another_language(
    text: str, source: str
) -> None:
    assert read(text, source) == (ParseStatus.STRICT, [])


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("Ana works as a nurse", "D1:2"),
        ("Ben was ill on 3 June 2021", "D1:3"),
        ("Ana and Ben", "D1:1"),
        ("Ben owns a boat", "D1:1"),
    ],
)
def test_a_fact_that_shares_nothing_with_its_turn_is_refused(text: str, source: str) -> None:
    expected = [] if text == "Ana and Ben" else [RejectReason.UNGROUNDED]
    assert read(text, source)[1] == expected


def test_every_example_of_an_extractor_or_indexer_bears_a_name_that_nobody_has() -> None:
    folder = files("memagent.designs") / "prompts"
    for entry in folder.iterdir():
        if not entry.name.endswith(".md"):
            continue
        prompt = parse_prompt(entry.read_text(encoding="utf-8"))
        statements = examples(prompt.name) if prompt.role in (Role.EXTRACTOR, Role.INDEXER) else []
        for statement in statements:
            assert any(name in statement for name in prompt.examples), (prompt.name, statement)
