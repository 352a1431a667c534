"""The design `learned` with a model's decisions: numbers in, one word out.

A policy that is trained reads numbers that the reader gives for a statement and for each
memory beside it, as words ("f12"), and replies with one word: `add`, `skip`, or `same`,
`update` or `delete` with the place of a memory ("update3"). Its reply is one token with
a log-probability, so the training of any other policy trains it too
(`train.sampling.decisions`). Turns are encoded once, for all rollouts of a process.

    Agent(model="hf:runs/smoke/best", design="memagent.designs.learned_policy:DESIGN")
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from memagent.core.exchange import Message, Role
from memagent.core.ops import Add, Delete, MemoryOp, Noop, Update
from memagent.core.records import Fact, MemoryItem
from memagent.designs.base import Proposal, Related, SlotContext
from memagent.designs.learned import DESIGN as LEARNED
from memagent.designs.parts.reading import as_statement, may_end, read_once
from memagent.designs.parts.rules.statements import context_reason
from memagent.language.reader import Statement, open_reader, pair_extras
from memagent.state.effects import tokenize

LEVELS: Final = 64
"""Words that a number from 0 to 1 is rounded to."""
MEMORIES: Final = 12
"""Most memories that a decision is about."""
STATEMENT: Final = 2
"""Numbers of the statement: whether it states something, its length."""
PAIR: Final = 9
"""Numbers of each memory beside it."""
PER_MEMORY: Final = ("same", "update", "delete")
REPLIES: Final = ("add", "skip", *(f"{op}{n}" for n in range(MEMORIES) for op in PER_MEMORY))
"""The words that a policy may say, in order of its outputs."""
_REPLY: Final = re.compile(r"\s*(add|skip|same|update|delete)(\d*)\s*")
# Terms of a text that count as many.
_LONG: Final = 40


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision about a statement."""

    op: str
    """`add`, `skip`, `same`, `update` or `delete`."""
    target: int | None
    """Place of the memory that it is about."""
    reason: str


def described(new: Statement, memories: Sequence[Statement]) -> str:
    """Return the numbers of a statement and of each memory as words; both are read."""
    shares = open_reader().propose(memories, new)
    terms = set(tokenize(new.text))
    rows = [[new.states or 0.0, min(len(terms) / _LONG, 1.0)]]
    for memory, share in zip(memories, shares.tolist(), strict=True):
        own = set(tokenize(memory.text))
        cosine = float(np.dot(memory.vector, new.vector)) if memory.vector is not None else 0.0  # pyright: ignore[reportArgumentType]
        shared = len(own & terms)
        rows.append(
            [
                share,
                share**0.25,
                max(cosine, 0.0),
                shared / max(len(own), 1),
                shared / max(len(terms), 1),
                *pair_extras(memory, new),
            ]
        )
    levels = np.rint(np.clip(np.concatenate(rows), 0.0, 1.0) * (LEVELS - 1))
    return " ".join(f"f{int(level)}" for level in levels)


def nearest(new: Statement, memories: Sequence[Statement]) -> list[int]:
    """Return the places of the memories to decide about, in order, at most `MEMORIES`."""
    shares = open_reader().propose(memories, new)
    return sorted(np.argsort(-shares, kind="stable")[:MEMORIES].tolist())


def read_reply(text: str, places: Sequence[int]) -> Decision:
    """Return the decision in a reply; `places` are the memories it was asked about."""
    match = _REPLY.fullmatch(text)
    if match is None:
        return Decision("add", None, f"the reply {text[:20]!r} is none, so it is kept")
    op, number = match[1], match[2]
    if op in ("add", "skip"):
        return Decision(op, None, "the policy's reply")
    if not number or int(number) >= len(places):
        return Decision("add", None, f"the reply {text[:20]!r} names no memory, so it is kept")
    return Decision(op, places[int(number)], "the policy's reply")


@dataclass(frozen=True, kw_only=True)
class DecidingManager:
    """Asks a model what to do with each statement; the rules leave out small talk."""

    async def __call__(self, related: Sequence[Related], ctx: SlotContext, /) -> Proposal[MemoryOp]:
        """Return one op a fact in order; a deletion adds its statement as well."""
        names = tuple(dict.fromkeys(entry.fact.speaker or "" for entry in related))
        ops: list[MemoryOp] = []
        changed: set[str] = set()
        for entry in related:
            fact = entry.fact
            if reason := context_reason(fact.text, names=names, comments=True):
                ops.append(Noop(fact=fact, reason=reason))
                continue
            items = [
                hit.item
                for hit in entry.hits
                if hit.item is not None
                and hit.item.active
                and hit.id not in changed
                and may_end(fact, hit.item)
            ]
            decision = await _decided(fact, items, ctx)
            item = items[decision.target] if decision.target is not None else None
            if item is not None and decision.op != "same":
                changed.add(item.id)
            ops += _ops(decision, fact, item)
        return Proposal(values=tuple(ops), responses=tuple(ctx.trail.responses))


async def _decided(fact: Fact, items: Sequence[MemoryItem], ctx: SlotContext) -> Decision:
    new, *memories = read_once(open_reader(), map(as_statement, (fact, *items)))
    places = nearest(new, memories)
    text = described(new, [memories[place] for place in places])
    response = await ctx.call(
        Role.MANAGER, [Message(role="user", content=text)], call=len(ctx.trail.responses)
    )
    return read_reply(response.text, places)


def _ops(decision: Decision, fact: Fact, item: MemoryItem | None) -> list[MemoryOp]:
    reason, turns = decision.reason, fact.source_turn_ids
    match decision.op:
        case "skip":
            return [Noop(fact=fact, reason=reason)]
        case "same" if item is not None:
            return [Noop(id=item.id, fact=fact, reason=reason)]
        case "update" if item is not None:
            text, valid = fact.text, fact.valid
            return [
                Update(id=item.id, text=text, source_turn_ids=turns, valid=valid, reason=reason)
            ]
        case "delete" if item is not None:
            gone = Delete(id=item.id, source_turn_ids=turns, reason=reason)
            return [gone, Add(fact=fact, reason=reason)]
        case _:
            return [Add(fact=fact, reason=reason)]


DESIGN: Final = replace(LEARNED, name="learned_policy", manager=DecidingManager(), needs_model=True)
