"""`memory_r1`: distillation as a call of its own, and what a wrong DELETE costs."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest

from memagent.async_agent import AsyncAgent
from memagent.core.answers import Answer, Question
from memagent.core.exchange import ModelRequest
from memagent.core.ops import Add, Delete, OpBatch, Update
from memagent.core.records import Fact, Session, SourceRef, Turn
from memagent.designs.base import MemoryDesign
from memagent.designs.memory_r1 import DESIGN, DISTILLED
from memagent.designs.memory_r2 import DESIGN as MEMORY_R2
from memagent.designs.parts.model_extractor import ALL_SHOWN, parse_selection
from memagent.embed.static import HashEmbedder
from memagent.memory.bank import MemoryBank
from memagent.plugins import load
from memagent.testing import FunctionModel

DAY = datetime(2024, 3, 1, tzinfo=UTC)
QUESTION = "Which colour is Ana's bicycle?"


async def bank_of(*texts: str) -> MemoryBank:
    bank = MemoryBank(embedder=HashEmbedder(dim=256), clock=lambda: DAY)
    turns = tuple(Turn(id=f"s:{n}", speaker="Ana", text=text) for n, text in enumerate(texts))
    await bank.store_session(Session(id="s", at=DAY, turns=turns))
    ops = tuple(Add(fact=fact_of(turn)) for turn in turns)
    await bank.commit(OpBatch(accepted=ops), source=SourceRef(session_id="s"))
    return bank


def fact_of(turn: Turn) -> Fact:
    return Fact(text=turn.text, speaker=turn.speaker, source_turn_ids=(turn.id,), said_at=DAY)


# -- distillation ----------------------------------------------------------------------


def easily_misled(selection: str | None = None) -> FunctionModel:
    """Answer with the first colour shown, and with "blue" where over ten memories are shown.

    The selection knows Ana's bicycle, unless it is given.
    """

    def reply(request: ModelRequest) -> str:
        said = request.messages[-1].content
        memories = re.findall(r"^\[(mem_\S+)\] .*", said, re.M)
        if "useful" in request.messages[0].content:
            own = re.findall(r"^\[(mem_\S+)\] [^\n]*Ana's bicycle", said, re.M)
            return json.dumps({"useful": own}) if selection is None else selection
        colour = re.search(r"is (red|blue)", said)
        answer = "blue" if len(memories) > 10 or colour is None else colour[1]
        return json.dumps({"citations": memories[:1], "answer": answer, "abstain": False})

    return FunctionModel(reply)


async def coloured(design: MemoryDesign, model: FunctionModel) -> Answer:
    names = ("Bo", "Cy", "Di", "Ed", "Flo", "Gus", "Hal", "Ida", "Jo", "Kim", "Lou", "Max")
    bank = await bank_of("Ana's bicycle is red.", *(f"{who}'s bicycle is blue." for who in names))
    agent = AsyncAgent(design=design, model=model, bank=bank, clock=lambda: DAY)
    return await agent.ask(QUESTION)


async def test_an_answerer_that_look_alikes_mislead_is_right_after_distillation() -> None:
    plain, model = await coloured(DESIGN, easily_misled()), easily_misled()
    distilled = await coloured(DISTILLED, model)
    assert (plain.text, distilled.text) == ("blue", "red")
    assert len(model.requests) == 2 and len(distilled.response_ids) == 2
    assert len(distilled.hits) == len(plain.hits) > 10
    assert [citation.quote for citation in distilled.citations] == ["Ana's bicycle is red."]
    assert distilled.usage.prompt_tokens > plain.usage.prompt_tokens


async def test_without_a_readable_selection_all_memories_are_shown() -> None:
    unread = await coloured(DISTILLED, easily_misled("I cannot tell."))
    assert unread.text == "blue" and ALL_SHOWN in unread.notes
    foreign = await coloured(DISTILLED, easily_misled('{"useful": ["mem_nobody"]}'))
    assert foreign.text == "blue" and ALL_SHOWN in foreign.notes
    none = await coloured(DISTILLED, easily_misled('{"useful": []}'))
    assert none.abstained and ALL_SHOWN not in none.notes
    assert parse_selection("nothing") is None
    assert load("designs", "memory_r1_distilled") is DISTILLED


# -- two dogs --------------------------------------------------------------------------

BUDDY, SCOUT = "Andrew adopted a dog named Buddy.", "Andrew adopted another dog named Scout."
BOTH = "Andrew adopted two dogs, Buddy and Scout."


def counting() -> FunctionModel:
    """Count the dogs that the prompt names."""

    def reply(request: ModelRequest) -> str:
        said = request.messages[-1].content
        cited = re.findall(r"^\[(mem_\S+)\] ", said, re.M)
        dogs = {name for name in ("Buddy", "Scout") if name in said}
        return json.dumps({"citations": cited, "answer": str(len(dogs)), "abstain": False})

    return FunctionModel(reply)


@pytest.mark.parametrize("design", [DESIGN, DISTILLED, MEMORY_R2], ids=lambda design: design.name)
@pytest.mark.parametrize(("how", "dogs"), [("update", "2"), ("delete and add", "1")])
async def test_only_the_update_keeps_both_dogs(design: MemoryDesign, how: str, dogs: str) -> None:
    bank = await bank_of(BUDDY)
    old = next(iter(bank.state.items))
    turn = Turn(id="t:0", speaker="Andrew", text=SCOUT)
    await bank.store_session(Session(id="t", at=DAY, turns=(turn,)))
    ops: tuple[Any, ...] = (Update(id=old, text=BOTH, source_turn_ids=("s:0", "t:0")),)
    if how != "update":
        ops = (Delete(id=old, source_turn_ids=("t:0",)), Add(fact=fact_of(turn)))
    await bank.commit(OpBatch(accepted=ops), source=SourceRef(session_id="t"))
    agent = AsyncAgent(design=design, model=counting(), bank=bank, clock=lambda: DAY)
    for text in ("How many dogs does Andrew have?", "How many dogs has Andrew adopted by now?"):
        assert (await agent.ask(Question(text=text, asked_at=DAY))).text == dogs
    before = await agent.ask(Question(text="Which dog did Andrew adopt before?", asked_at=DAY))
    assert any("Buddy" in hit.text for hit in before.hits), "the past is not lost"
