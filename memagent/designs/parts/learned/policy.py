"""The decision about a statement as a request to a model: numbers in, one word out.

A policy that is trained reads what the shipped scorer reads, as words ("f12"), one for
each number, and replies with one word: `add`, `skip`, or `same`, `update` or `delete`
with the place of a memory ("update3"). Its reply is one token with a log-probability, so
the training of any other policy trains it too (`train.sampling.decisions`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, cast

import numpy as np

from memagent.core.exchange import Message, Role
from memagent.designs.base import SlotContext
from memagent.designs.parts.learned.labels import ACTS, KINDS
from memagent.designs.parts.learned.pairs import (
    ALONE,
    COMPARED,
    Choice,
    Decision,
    Side,
    alone,
    features_of,
    names_old,
)
from memagent.designs.parts.learned.tokens import Floats

LEVELS: Final = 64
"""Words that a number from -1 to 1 is rounded to."""
MEMORIES: Final = 12
"""Most memories that a decision is about."""
STATEMENT: Final = ALONE
"""Numbers of the statement."""
PAIR: Final = COMPARED + len(ACTS) + len(KINDS) + 1
"""Numbers of each memory."""
PER_MEMORY: Final[tuple[Decision, ...]] = ("same", "update", "delete")
REPLIES: Final = ("add", "skip", *(f"{op}{n}" for n in range(MEMORIES) for op in PER_MEMORY))
"""The words that a policy may say, in order of its outputs."""
_REPLY: Final = re.compile(r"\s*(add|skip|same|update|delete)(\d*)\s*")


async def policy_choice(new: Side, memories: Sequence[Side], ctx: SlotContext, /) -> Choice:
    """Return what the model replies; a statement is kept where the reply is unreadable."""
    places = nearest(new, memories)
    text = described(new, [memories[place] for place in places])
    response = await ctx.call(
        Role.MANAGER, [Message(role="user", content=text)], call=len(ctx.trail.responses)
    )
    return read_reply(response.text, places)


def nearest(new: Side, memories: Sequence[Side]) -> list[int]:
    """Return the places of the memories to decide about, in order, at most `MEMORIES`."""
    order = sorted(
        range(len(memories)),
        key=lambda place: -float(new.clause.vector @ memories[place].clause.vector),
    )
    return sorted(order[:MEMORIES])


def described(new: Side, memories: Sequence[Side]) -> str:
    """Return the numbers of a statement and of each memory as words."""
    rows = [alone(new.clause), *pair_features(new, memories)]
    levels = np.rint((np.clip(np.concatenate(rows), -1.0, 1.0) + 1.0) / 2.0 * (LEVELS - 1))
    return " ".join(f"f{int(level)}" for level in levels)


def pair_features(new: Side, memories: Sequence[Side]) -> Floats:
    """Return the numbers (N, PAIR) of the memories beside a statement."""
    features = features_of(new, memories)
    named = [[float(names_old(new.clause, memory.clause))] for memory in memories]
    other = len(ACTS) + len(KINDS)
    flags = np.array(named, dtype=np.float32).reshape(-1, 1)
    parts = [features[:, :COMPARED], features[:, COMPARED + other :], flags]
    return np.concatenate(parts, axis=1).astype(np.float32)


def read_reply(text: str, places: Sequence[int]) -> Choice:
    """Return the decision in a reply; `places` are the memories it was asked about."""
    match = _REPLY.fullmatch(text)
    if match is None:
        return Choice("add", None, 0.0, f"the reply {text[:20]!r} is none, so it is kept")
    op, number = cast("Decision", match[1]), match[2]
    if op in ("add", "skip"):
        return Choice(op, None, 1.0, "the policy's reply")
    if not number or int(number) >= len(places):
        return Choice("add", None, 0.0, f"the reply {text[:20]!r} names no memory, so it is kept")
    return Choice(op, places[int(number)], 1.0, "the policy's reply")
