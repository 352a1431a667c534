"""Turns as facts, word for word, with the time a turn tells resolved against its date."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from datetime import datetime

from memagent.core.long_work import LARGE_CHARS, aside
from memagent.core.ops import Rejected, RejectReason
from memagent.core.records import Chunk, Fact, Turn
from memagent.designs.base import Proposal, SlotContext
from memagent.designs.parts.rules.wording import time_told

_MAX_CHARS = 1_800
_SENTENCE = re.compile(r"[^.!?\n]+[.!?\n]*\s*|[.!?\n]+\s*")


@dataclass(frozen=True, kw_only=True)
class VerbatimExtractor:
    """Turns each turn into one fact, or several if it has more than 1,800 characters.

    Long turns are cut between sentences. Small talk is kept too: the manager says what
    is left out, and why. A turn without any text is rejected. Asks no model.
    """

    async def __call__(
        self,
        chunk: Chunk,
        ctx: SlotContext,  # noqa: ARG002 - interface
        /,
    ) -> Proposal[Fact]:
        """Return facts in the order of the turns."""
        facts: list[Fact] = []
        for turn in chunk.turns:
            if turn.said.strip():
                long = len(turn.said) >= LARGE_CHARS
                parts = await aside(pieces, turn.said) if long else pieces(turn.said)
                kind = "turn" if len(parts) == 1 else "passage"
                for part in parts:
                    facts.append(turn_fact(turn, part, turn.at or chunk.at, kind=kind))
                    await asyncio.sleep(0)  # a long turn makes hundreds; others come between
        return Proposal(
            values=tuple(facts),
            rejected=tuple(
                Rejected(reason=RejectReason.EMPTY_TEXT, detail=f"turn {turn.id} has no words")
                for turn in chunk.turns
                if not turn.said.strip()
            ),
        )


def turn_fact(turn: Turn, text: str, said_at: datetime | None, *, kind: str) -> Fact:
    """Return a part of a turn as a fact of its speaker, with the time that it tells."""
    return Fact(
        text=text,
        kind=kind,
        speaker=turn.speaker,
        subject=turn.speaker,
        source_turn_ids=(turn.id,),
        valid=time_told(text, said_at),
        said_at=said_at,
        trust=turn.trust,
    )


def pieces(text: str, *, limit: int = _MAX_CHARS) -> list[str]:
    """Cut a text into parts of at most `limit` characters, after sentences where possible.

    White space around a part goes.
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
