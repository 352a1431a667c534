"""`hcam`: a chunk is recalled whole, with turns that share no word with the question."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from memagent.async_agent import AsyncAgent
from memagent.core.answers import Filter, Question
from memagent.core.records import Session, Turn
from memagent.designs.base import MemoryDesign, SlotContext
from memagent.designs.hcam import DESIGN
from memagent.designs.parts.sessions import ChunkAttention, attention
from memagent.embed.static import HashEmbedder
from memagent.memory.bank import MemoryBank
from memagent.testing import FunctionModel

DAY = datetime(2024, 5, 1, tzinfo=UTC)
BOAT = (
    "Yesterday we took the sailing boat of Olga out to the lighthouse.",
    "The sailing boat of Olga is fast and the lighthouse was near.",
    "They painted everything green and white last winter.",
    "Olga steers the sailing boat better than anybody at the lighthouse.",
)
QUESTION = "How does the sailing boat of Olga at the lighthouse look?"


def sessions() -> list[Session]:
    """Return the talk about the boat among thirty others that mention a boat or Olga once."""
    other = (
        "My neighbour number {n} saw a sailing boat and Olga on street {n}.",
        "Rain again, day {n}.",
    )
    said = [BOAT if n == 12 else tuple(text.format(n=n) for text in other) for n in range(30)]
    return [
        Session(
            id=f"s{n}",
            at=DAY + timedelta(days=n),
            turns=tuple(
                Turn(id=f"s{n}:{at}", speaker="Ana", text=text) for at, text in enumerate(texts)
            ),
        )
        for n, texts in enumerate(said)
    ]


async def recalled(design: MemoryDesign, **more: object) -> list[str]:
    bank = MemoryBank(embedder=HashEmbedder(dim=512), clock=lambda: DAY)
    agent = AsyncAgent(design=design, bank=bank, clock=lambda: DAY)
    for session in sessions():
        await agent.remember(session)
    model = FunctionModel(lambda _: "")
    context = SlotContext(model=model, bank=bank, clock=lambda: DAY)
    question = Question.model_validate({"text": QUESTION, "k": 5, **more})
    return [hit.text for hit in await design.retriever(question, context)]


async def test_the_chunk_brings_a_turn_that_shares_no_word_with_the_question() -> None:
    """Flat attention, chunks of one turn that are all attended to, loses the turn."""
    flat = replace(DESIGN, retriever=ChunkAttention(chunks=1000, chunk_turns=1))
    chunked = await recalled(DESIGN)
    assert set(chunked[:4]) == set(BOAT), "the chunk comes whole and first"
    assert BOAT[2] not in await recalled(flat)


async def test_filters_hold_and_weights_are_shares() -> None:
    assert await recalled(DESIGN, where=Filter(speakers=frozenset({"nobody"}))) == []
    shares = attention([0.9, 0.1, 0.1], 0.1)
    assert sum(shares) == pytest.approx(1.0) and shares[0] > 0.99
