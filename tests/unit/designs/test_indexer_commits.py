"""The indexer of a design gets the commits of all chunks of a session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from memagent.async_agent import AsyncAgent
from memagent.core.errors import ModelError
from memagent.core.records import Chunk, Fact, Session, Turn
from memagent.core.snapshot import Commit, GraphDelta
from memagent.designs.base import Proposal, SlotContext
from memagent.designs.verbatim import DESIGN as VERBATIM
from memagent.embed.static import HashEmbedder
from memagent.memory.bank import MemoryBank

TURNS = tuple(Turn(id=f"t{n}", speaker="Ana", text=f"I have {n} boats.") for n in range(6))
SESSION = Session(id="s", at=datetime(2024, 1, 1, tzinfo=UTC), turns=TURNS)


class SeenChunks:
    """An indexer that writes down which chunks' commits it was given."""

    def __init__(self) -> None:
        self.chunks: list[list[int | None]] = []

    async def __call__(self, commits: Sequence[Commit], _: SlotContext, /) -> GraphDelta:
        self.chunks.append([commit.source.chunk_index for commit in commits])
        return GraphDelta()


class FailsOnce:
    """An extractor whose model fails at one chunk, the first time."""

    def __init__(self, at: int) -> None:
        self.at = {at}

    async def __call__(self, chunk: Chunk, ctx: SlotContext, /) -> Proposal[Fact]:
        if chunk.index in self.at:
            self.at.remove(chunk.index)
            raise ModelError("the model is down")
        return await VERBATIM.extractor(chunk, ctx)


def agent_of(seen: SeenChunks, **slots: object) -> AsyncAgent:
    design = replace(VERBATIM, indexer=seen, chunk_turns=2, **slots)
    return AsyncAgent(design=design, bank=MemoryBank(embedder=HashEmbedder(dim=64)))


async def test_the_indexer_gets_the_commits_of_three_chunks() -> None:
    seen = SeenChunks()
    await agent_of(seen).remember(SESSION)
    assert seen.chunks == [[0, 1, 2]]


async def test_chunks_of_a_run_that_failed_are_read_from_the_journal() -> None:
    seen = SeenChunks()
    agent = agent_of(seen, extractor=FailsOnce(1))
    with pytest.raises(ModelError):
        await agent.remember(SESSION)
    assert seen.chunks == []
    await agent.remember(SESSION)
    assert seen.chunks == [[0, 1, 2]]


async def test_a_session_that_grows_is_indexed_part_by_part() -> None:
    seen = SeenChunks()
    agent = agent_of(seen)
    for size in (4, 6):
        await agent.remember(SESSION.model_copy(update={"turns": TURNS[:size]}))
    assert seen.chunks == [[0, 1], [2]]
