"""Retrieval in two steps of attention: over chunks of sessions, then within the best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from memagent.core.answers import Hit, Question, Relevance
from memagent.core.records import MemoryItem
from memagent.designs.base import SlotContext
from memagent.memory.event_vectors import query_vectors, text_vectors
from memagent.protocols import Vector
from memagent.state.fold import BankState
from memagent.state.matching import matches


@dataclass(frozen=True, kw_only=True)
class ChunkAttention:
    """Recalls the memories of the chunks whose summaries are nearest to the question."""

    chunks: int = 4
    """Chunks attended to in detail."""
    chunk_turns: int = 8
    sharp: float = 0.05
    """Temperature of the attention over chunks."""
    soft: float = 0.5
    """Temperature within a chunk, so that all of a fitting chunk is recalled."""

    async def __call__(self, question: Question, ctx: SlotContext, /) -> list[Hit]:
        """Return at most k hits by their weight, which add up to 1 over the chosen chunks."""
        state, expired = await ctx.bank.sync(), ctx.bank.expired
        items = [
            item
            for item in state.active()
            if item.id not in expired and matches(item, question.where)
        ]
        vectors = await text_vectors(ctx.bank, [item.text for item in items])
        asked = (await query_vectors(ctx.bank, [question.text])).get(question.text)
        groups: dict[tuple[str, int], list[MemoryItem]] = {}
        for item in items:
            if item.text in vectors and (chunk := self.chunk_of(item, state)) is not None:
                groups.setdefault(chunk, []).append(item)
        if asked is None or not groups:
            return []
        cosines = {
            item.id: float(vectors[item.text] @ asked) for item in items if item.text in vectors
        }
        near = {
            chunk: float(summary([vectors[item.text] for item in group]) @ asked)
            for chunk, group in groups.items()
        }
        chosen = sorted(near, key=lambda chunk: (-near[chunk], chunk))[: self.chunks]
        shares = attention([near[chunk] for chunk in chosen], self.sharp)
        hits = [
            Hit(id=item.id, score=share * own, item=item, why=Relevance(arms={"chunk": share}))
            for chunk, share in zip(chosen, shares, strict=True)
            for item, own in zip(
                groups[chunk],
                attention([cosines[item.id] for item in groups[chunk]], self.soft),
                strict=True,
            )
        ]
        return sorted(hits, key=lambda hit: (-hit.score, hit.id))[: question.k]

    def chunk_of(self, item: MemoryItem, state: BankState) -> tuple[str, int] | None:
        """Return the session and the number of the chunk that an item was told in."""
        places = [state.turns[turn] for turn in item.source_turn_ids if turn in state.turns]
        return (places[-1][0], places[-1][1] // self.chunk_turns) if places else None


def attention(cosines: Sequence[float], temperature: float) -> list[float]:
    """Return the softmax of cosines over a temperature."""
    weights = np.exp((np.asarray(cosines) - max(cosines)) / temperature)
    return [float(weight) for weight in weights / weights.sum()]


def summary(vectors: Sequence[Vector]) -> Vector:
    """Return the mean of vectors (D,), at unit length."""
    mean = np.mean(np.stack(vectors), axis=0)
    return (mean / max(float(np.linalg.norm(mean)), 1e-9)).astype(np.float32)
