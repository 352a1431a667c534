"""Statements as facts, copied from the turn; what the network is unsure of stays a turn.

A fact is a stretch of its turn, word for word, so nothing can be invented. A turn that
states nothing is proposed as it is too: the manager says that it is left out, and why.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from memagent.core.ops import Rejected, RejectReason
from memagent.core.records import Chunk, Fact, Turn
from memagent.designs.base import Proposal, SlotContext
from memagent.designs.parts.learned.people import People
from memagent.designs.parts.learned.reading import (
    TurnReading,
    TurnText,
    shipped_reader,
)
from memagent.designs.parts.rules.manager import pieces
from memagent.designs.parts.rules.statements import context_reason, time_told

KEEP: Final = 0.6
"""Least mean probability of the words of a statement that stands for its turn."""
_MAX_CHARS: Final = 1_800
_FILLER: Final = 6
"""Most words beside the statements that are never looked at ("Oh, before I forget,")."""
_LONGEST: Final = 16
"""Most different words of a statement that stands for its turn."""
STATEMENT: Final = "fact"
"""Kind of a fact that is one statement."""
WHOLE: Final = "turn"
"""Kind of a fact that is a turn, or a piece of a long one, as it was said."""


@dataclass(frozen=True, kw_only=True)
class LearnedExtractor:
    """Cuts turns into the statements that the network finds. Asks no model."""

    async def __call__(self, chunk: Chunk, ctx: SlotContext, /) -> Proposal[Fact]:
        """Return facts in the order of the turns."""
        facts: list[Fact] = []
        people = People(ctx.bank.state.active())
        for turn, texts in zip(chunk.turns, read_chunk(chunk, ctx), strict=True):
            facts += _facts(turn, chunk, texts, people)
        rejected = (
            Rejected(reason=RejectReason.EMPTY_TEXT, detail=f"turn {turn.id} has no words")
            for turn in chunk.turns
            if not turn.said.strip()
        )
        return Proposal(values=tuple(facts), rejected=tuple(rejected))


def read_chunk(chunk: Chunk, ctx: SlotContext) -> list[list[tuple[str, TurnReading]]]:
    """Return the texts of each turn of a chunk (a long turn has several) with their readings."""
    turns = ctx.session.turns if ctx.session is not None else ()
    speakers = ctx.session.speakers if ctx.session is not None else ()
    place = next((at for at, turn in enumerate(turns) if turn.id == chunk.turns[0].id), 0)
    before = turns[place - 1].said if place else ""
    texts: list[list[TurnText]] = []
    for turn in chunk.turns:
        others = tuple(name for name in speakers if name != turn.speaker)
        own: list[TurnText] = []
        for piece in pieces(turn.said, limit=_MAX_CHARS) if turn.said.strip() else ():
            own.append(TurnText(piece, before, turn.speaker, others))
            before = piece
        texts.append(own)
    readings = iter(shipped_reader().turns([text for own in texts for text in own]))
    return [[(text.text, next(readings)) for text in own] for own in texts]


def _facts(
    turn: Turn, chunk: Chunk, texts: Sequence[tuple[str, TurnReading]], people: People
) -> Iterator[Fact]:
    for piece, reading in texts:
        if not _cuts(piece, reading):
            yield _fact(turn, chunk, piece, subject=turn.speaker, kind=WHOLE)
            continue
        for clause in reading.clauses:
            subject = people.subject(clause, turn.speaker)
            yield _fact(turn, chunk, clause.text, subject=subject, kind=STATEMENT)


def _cuts(text: str, reading: TurnReading) -> bool:
    """Say whether the statements may stand for the turn: each sure and short, the rest context.

    Training saw short statements only. What a longer turn tells beside them would be lost.
    """
    if not reading.clauses:
        return False
    sure = all(clause.keep >= KEEP and len(clause.words) <= _LONGEST for clause in reading.clauses)
    rest = text
    for clause in reading.clauses:
        rest = rest.replace(clause.text, " ", 1)
    few = len(rest.split()) <= _FILLER
    return sure and (few or bool(context_reason(rest)))


def _fact(turn: Turn, chunk: Chunk, text: str, *, subject: str, kind: str) -> Fact:
    said_at = turn.at or chunk.at
    return Fact(
        text=text,
        kind=kind,
        speaker=turn.speaker,
        subject=subject,
        source_turn_ids=(turn.id,),
        valid=time_told(text, said_at),
        said_at=said_at,
        trust=turn.trust,
    )
