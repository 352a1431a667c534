"""Notes with the turns that nothing was noted of: search finds both.

The bank keeps every turn of a session beside the notes. This retriever searches them as
`verbatim` searches its own, and puts in the place of a turn the best note that was made
of it. So what the network left out can still be found, word for word. The turns are
indexed in memory at the first question after they were said.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final
from weakref import WeakKeyDictionary

from memagent.core.answers import Hit, Question
from memagent.core.ops import Add, OpBatch
from memagent.core.records import Fact, Session, SourceRef, Turn
from memagent.designs.base import SlotContext
from memagent.designs.parts.retrieval import TimedRetriever
from memagent.designs.parts.rules.manager import pieces, turn_fact
from memagent.designs.parts.rules.statements import context_reason
from memagent.memory.bank import MemoryBank

_PREFIX: Final = "turn:"
"""Ids of turns among hits begin with it."""


@dataclass(slots=True)
class _Heard:
    """The turns of a bank as items of a private one."""

    bank: MemoryBank
    turns: set[str] = field(default_factory=set[str])


_HEARD: WeakKeyDictionary[MemoryBank, _Heard] = WeakKeyDictionary()


@dataclass(frozen=True, kw_only=True)
class NotesAndTurns:
    """Searches notes and turns; a note stands in the place of the turns it was made of."""

    search: TimedRetriever = TimedRetriever()

    async def __call__(self, question: Question, ctx: SlotContext, /) -> list[Hit]:
        """Return hits in the order of the turns, then the notes that no turn led to."""
        notes = await self.search(question, ctx)
        if question.recipe is not None:
            return notes
        heard = await _turns_of(ctx.bank)
        turns = await self.search(question, replace(ctx, bank=heard))
        return list(_joined(notes, turns))[: max(question.k, len(turns))]


def _joined(notes: Sequence[Hit], turns: Sequence[Hit]) -> Iterator[Hit]:
    """Yield the turns, the notes in their place; each note once."""
    by_turn: dict[str, list[Hit]] = {}
    for hit in notes:
        for turn_id in hit.source_turn_ids:
            by_turn.setdefault(turn_id, []).append(hit)
    given: set[str] = set()
    for hit in turns:
        turn_id = hit.source_turn_ids[-1]
        own = [note for note in by_turn.get(turn_id, ()) if note.id not in given]
        if own:
            given.add(own[0].id)
            yield own[0].model_copy(update={"score": hit.score})
        elif not any(note.id in given for note in by_turn.get(turn_id, ())):
            yield _as_turn(hit)
    least = turns[-1].score if turns else 0.0
    for hit in notes:
        if hit.id not in given:
            yield hit.model_copy(update={"score": min(hit.score, least)})


def _as_turn(hit: Hit) -> Hit:
    """Return a hit whose id names its turn, so that no memory has it."""
    own = f"{_PREFIX}{hit.id.removeprefix('mem_')}"
    item = hit.item.model_copy(update={"id": own}) if hit.item is not None else None
    return hit.model_copy(update={"id": own, "item": item})


async def _turns_of(bank: MemoryBank) -> MemoryBank:
    """Return the turns of a bank as items of a private bank, the further ones added."""
    state = await bank.sync()
    heard = _HEARD.get(bank)
    if heard is None or not heard.turns <= state.turns.keys():
        heard = _Heard(MemoryBank(embedder=bank.embedder))
        _HEARD[bank] = heard
    for session in state.sessions.values():
        fresh = [turn for turn in session.turns if turn.id not in heard.turns]
        if not fresh:
            continue
        await heard.bank.store_session(session)
        heard.turns.update(turn.id for turn in fresh)
        ops = tuple(Add(fact=fact) for fact in _told(session, fresh))
        if ops:
            source = SourceRef(session_id=session.id)
            await heard.bank.commit(OpBatch(accepted=ops), source=source)
    return heard.bank


def _told(session: Session, turns: Sequence[Turn]) -> Iterator[Fact]:
    """Yield the turns that `verbatim` would keep; long ones in pieces."""
    for turn in turns:
        for piece in pieces(turn.said) if turn.said.strip() else ():
            if not context_reason(piece, names=session.speakers):
                yield turn_fact(turn, piece, turn.at or session.at, kind="turn")
