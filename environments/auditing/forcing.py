"""Forced ops: an agent whose decisions in one session are given.

It is the same agent with two other slots of its design: an extractor that returns the
facts which the journal recorded for that session, and a manager that proposes the given
ops. So it asks no model for what it remembers, and its ops pass the same validation as
any. The surprise: only ops that the agent may do can be forced; validation reports any
other op and does not carry it out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal, Protocol

from environments.auditing.past_session import PastSession
from memagent.async_agent import AsyncAgent
from memagent.core.ops import Add, MemoryOp, Noop, OpLimits, Update
from memagent.core.records import Chunk, Fact
from memagent.designs.base import Proposal

Forced = Literal["NOOP", "ADD"] | tuple[tuple[MemoryOp, ...], ...]
"""The op that replaces every decision, or the ops of each chunk in order (none for chunks
beyond the last).
"""


class _About(Protocol):
    @property
    def fact(self) -> Fact: ...


class _Where(Protocol):
    @property
    def chunk(self) -> Chunk | None: ...


@dataclass(frozen=True, kw_only=True)
class RecordedFacts:
    """An extractor without a model, from recorded facts.

    Each fact belongs to the chunk that holds the last turn it rests on.

    With `probe_only` it returns the chunk's first words alone, by which memory is looked
    up where the ops are given anyway.
    """

    facts: tuple[Fact, ...]
    probe_only: bool = False

    async def __call__(self, chunk: Chunk, _ctx: _Where, /) -> Proposal[Fact]:
        """Return the facts of the chunk in their order."""
        if self.probe_only:
            spoken = (turn for turn in chunk.turns if turn.said.strip())
            facts = [
                Fact(text=turn.said[:2_000], source_turn_ids=(turn.id,))
                for turn in islice(spoken, 1)
            ]
        else:
            facts = [
                fact for fact in self.facts if {*fact.source_turn_ids[-1:]} & {*chunk.turn_ids}
            ]
        return Proposal(values=tuple(facts))


@dataclass(frozen=True, kw_only=True)
class ForcedManager:
    """A manager that proposes forced ops: one kind for every fact, or those of each chunk."""

    forced: Forced

    async def __call__(self, related: Sequence[_About], ctx: _Where, /) -> Proposal[MemoryOp]:
        """Return the ops in order of the facts, or as given."""
        if not isinstance(self.forced, tuple):
            kind = Noop if self.forced == "NOOP" else Add
            return Proposal(
                values=tuple(kind(fact=entry.fact, reason="forced") for entry in related)
            )
        place = ctx.chunk.index if ctx.chunk is not None else 0
        return Proposal(values=self.forced[place] if place < len(self.forced) else ())


def forced_agent(agent: AsyncAgent, past: PastSession, forced: Forced) -> AsyncAgent:
    """Return the agent with an extractor and a manager that force its decisions.

    For ops given one by one the whole memory counts as shown and every kind of op is
    allowed, so that any item may be changed.
    """
    design = agent.design
    given_ops = isinstance(forced, tuple)
    if given_ops:
        everything = len(past.before.items) + 64 * len(past.session.turns)
        relate = replace(
            design.relate, k=everything, min_cosine=-1.0, same_subject=False, cap=everything
        )
        design = replace(
            design,
            relate=relate,
            limits=design.limits.model_copy(update={"allow": OpLimits().allow}),
        )
    return replace(
        agent,
        design=replace(
            design,
            extractor=RecordedFacts(facts=recorded_facts(past), probe_only=given_ops),
            manager=ForcedManager(forced=forced),
        ),
    )


def recorded_facts(past: PastSession) -> tuple[Fact, ...]:
    """Return the facts that the session's ops were about, in order.

    An UPDATE gives its new text; a DELETE gives nothing.
    """
    turns = {turn.id for turn in past.session.turns}
    facts: list[Fact] = []
    for op in (applied.op for commit in past.commits for applied in commit.ops):
        if isinstance(op, Add | Noop) and op.fact is not None:
            facts.append(op.fact)
        elif isinstance(op, Update):
            sources = tuple(turn_id for turn_id in op.source_turn_ids if turn_id in turns)
            facts.append(Fact(text=op.text, source_turn_ids=sources, valid=op.valid))
    return tuple(facts)
