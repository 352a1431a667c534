"""Turns as facts, word for word: no model, nothing rephrased, the time a turn tells
resolved against its date.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from memagent.core.ops import Rejected, RejectReason
from memagent.core.records import Chunk, Fact, Turn
from memagent.designs.base import Proposal, SlotContext
from memagent.designs.parts.rules.wording import time_told

TURN = "turn"
"""Kind of a fact that is a whole turn."""
PASSAGE = "passage"
"""Kind of a fact that is a part of a turn too long for one item."""
_MAX_CHARS = 1_800
_SENTENCE = re.compile(r"[^.!?\n]+[.!?\n]*\s*|[.!?\n]+\s*")


@dataclass(frozen=True, kw_only=True)
class VerbatimExtractor:
    """One fact a turn; a turn of more than 1,800 characters becomes several, cut between sentences.

    Asks no model.

    Every turn is emitted, small talk too: the manager says what is left out, and why. A
    turn without any text is rejected as such.
    """

    async def __call__(self, chunk: Chunk, ctx: SlotContext, /) -> Proposal[Fact]:
        """Facts in the order of the turns."""
        facts: list[Fact] = []
        rejected: list[Rejected] = []
        for turn in chunk.turns:
            said_at = turn.at or chunk.at
            if not turn.said.strip():
                rejected.append(
                    Rejected(reason=RejectReason.EMPTY_TEXT, detail=f"turn {turn.id} has no words")
                )
                continue
            facts.extend(_facts(turn, said_at))
        return Proposal(values=tuple(facts), rejected=tuple(rejected))


def _facts(turn: Turn, said_at: datetime | None) -> list[Fact]:
    parts = pieces(turn.said)
    return [
        Fact(
            text=part,
            kind=TURN if len(parts) == 1 else PASSAGE,
            speaker=turn.speaker,
            subject=turn.speaker,
            source_turn_ids=(turn.id,),
            valid=time_told(part, said_at),
            said_at=said_at,
            trust=turn.trust,
        )
        for part in parts
    ]


def pieces(text: str, *, limit: int = _MAX_CHARS) -> list[str]:
    """The text in parts of at most `limit` characters, cut after sentences where
    possible; white space around a part goes.
    """
    text = text.strip()
    if len(text) <= limit:
        return [text]
    parts = [""]
    for match in _SENTENCE.finditer(text):
        sentence = match.group()
        if len(parts[-1]) + len(sentence.rstrip()) > limit:
            parts.append("")
        parts[-1] += sentence
        while len(parts[-1].strip()) > limit:
            at = parts[-1].rfind(" ", 1, limit)
            at = at if at > 0 else limit
            parts[-1:] = [parts[-1][:at], parts[-1][at:]]
    return [part.strip() for part in parts if part.strip()]
