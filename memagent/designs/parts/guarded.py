"""A design that asks a model, as it serves: guarded, and never worse than the rules alone.

A reply that cannot be read although it was asked for twice ends the model's part: the
chunk is remembered by the rules, marked by `BY_RULES` as the reason. A reply that is cut
off, or mostly refused, leaves the turns that no fact rests on to the rules. Where the
extractor was asked twice, the manager is asked once, so an unreadable model costs at
most three calls a chunk. The surprise: a rollout runs the design as it is. There the
reply is the policy's deed, and the guard only watches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from memagent.core.ops import Add, MemoryOp, ParseStatus, RejectReason, Update
from memagent.core.records import Chunk, Fact
from memagent.designs.base import (
    BY_RULES,
    Extractor,
    Manager,
    MemoryDesign,
    Proposal,
    Related,
    SlotContext,
)
from memagent.designs.parts.lines import UNREAD
from memagent.designs.parts.rules.manager import VerbatimExtractor, VerbatimManager
from memagent.designs.parts.rules.statements import context_reason
from memagent.state.backing import Guard, PairHead

_LOSSES = frozenset({RejectReason.CUT_OFF, RejectReason.UNGROUNDED, RejectReason.FOREIGN_TURN})


def guarded(design: MemoryDesign, *, pair: PairHead | None = None) -> MemoryDesign:
    """Return a design whose ops are guarded; one that asks no model stays as it is.

    `pair` backs or refuses what an UPDATE or DELETE ends.
    """
    if not design.needs_model:
        return design
    extractor = GuardedExtractor(design.extractor)
    return replace(
        design,
        extractor=extractor,
        manager=GuardedManager(design.manager, extractor, design.limits.allow),
        guard=design.guard or Guard(pair=pair),
    )


def first_unread(statuses: Sequence[ParseStatus]) -> int | None:
    """Return the place of the first unreadable reply that no second one made good."""
    at = 0
    while at < len(statuses):
        if statuses[at] in UNREAD:
            if statuses[at + 1 : at + 2] == () or statuses[at + 1] in UNREAD:
                return min(at + 1, len(statuses) - 1)
            at += 1
        at += 1
    return None


class GuardedExtractor:
    """A model's facts, or the turns themselves where its replies leave nothing."""

    def __init__(self, base: Extractor) -> None:
        self.base = base
        self.calls: dict[str, int] = {}
        """Calls made for each chunk."""
        self.ruled: set[str] = set()
        """Chunks whose facts are the turns themselves."""

    async def __call__(self, chunk: Chunk, ctx: SlotContext, /) -> Proposal[Fact]:
        """Return facts in order; those of the rules come last."""
        proposal = await self.base(chunk, replace(ctx, strict=True))
        self.calls[chunk.id] = len(proposal.responses)
        unread = first_unread(proposal.parse) is not None
        refused = [entry.reason for entry in proposal.rejected if entry.reason in _LOSSES]
        if unread:
            self.ruled.add(chunk.id)
        elif RejectReason.CUT_OFF not in refused and len(refused) <= len(proposal.values):
            return proposal
        known = {name for fact in proposal.values for name in fact.source_turn_ids}
        turns = (await VerbatimExtractor()(chunk, ctx)).values
        speakers = tuple(dict.fromkeys(turn.speaker for turn in chunk.turns))
        rest = (
            fact
            for fact in turns
            if known.isdisjoint(fact.source_turn_ids)
            and (unread or not context_reason(fact.text, names=speakers))
        )
        return proposal.model_copy(update={"values": (*proposal.values, *rest)})


class GuardedManager:
    """A model's ops, and those of the rules for facts that its replies leave undecided."""

    def __init__(self, base: Manager, extractor: GuardedExtractor, allow: frozenset[str]) -> None:
        self.base, self.extractor, self.allow = base, extractor, allow

    async def __call__(self, related: Sequence[Related], ctx: SlotContext, /) -> Proposal[MemoryOp]:
        """Return one op or more a fact, in order."""
        chunk = ctx.chunk.id if ctx.chunk is not None else ""
        proposal: Proposal[MemoryOp] = Proposal()
        if chunk not in self.extractor.ruled:
            asked_twice = self.extractor.calls.get(chunk, 0) >= 2
            proposal = await self.base(related, replace(ctx, strict=True, again=not asked_twice))
            if first_unread(proposal.parse) is None:
                return proposal
        settled = {place for op in proposal.values for place in op.about}
        rest = [(at, entry) for at, entry in enumerate(related) if at not in settled]
        ops = (await VerbatimManager()([entry for _, entry in rest], ctx)).values
        ruled: list[MemoryOp] = []
        for op, (at, entry) in zip(ops, rest, strict=True):
            reason = f"{BY_RULES}{op.reason and f': {op.reason}'}"
            if isinstance(op, Update) and "UPDATE" not in self.allow:
                op = Add(fact=entry.fact)  # in the place of a change that the design does not use
            ruled.append(op.model_copy(update={"about": (at,), "reason": reason}))
        return proposal.model_copy(update={"values": (*proposal.values, *ruled)})
