"""A manager for turns kept word for word, by rule.

It leaves questions, greetings and comments to the session as context, leaves out
repeats, follows plain self-corrections, and adds the rest.
Nothing is lost silently: whatever is not kept as an item of its own becomes a NOOP that
names the fact and the reason. No rule ever touches a statement of another speaker, or
one that is trusted more than the turn at hand.

Turns as facts, word for word, with the time a turn tells resolved against its date.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from memagent.core import Later
from memagent.core.errors import EmbeddingError
from memagent.core.long_work import LARGE_CHARS, Slices, aside
from memagent.core.ops import Add, MemoryOp, Noop, Rejected, RejectReason, Update
from memagent.core.records import Chunk, Fact, MemoryItem, TimeSpan, Trust, Turn
from memagent.designs.base import Manager, Proposal, Related, SlotContext
from memagent.designs.parts.rules.corrections import (
    Candidate,
    Correction,
    Cue,
    corrected,
    correction_in,
    restated_text,
    swapped,
)
from memagent.designs.parts.rules.statements import context_reason, near_duplicate, time_told
from memagent.protocols import Embedder
from memagent.state.fold import folded
from memagent.state.validation import restates

if TYPE_CHECKING:
    from memagent.designs.parts.rules import standing
else:
    standing = Later("memagent.designs.parts.rules.standing")

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
        empty: list[Rejected] = []
        slices = Slices()  # a long turn makes hundreds of facts; others come between
        for turn in chunk.turns:
            said = turn.said.strip()
            if not said:
                detail = f"turn {turn.id} has no words"
                empty.append(Rejected(reason=RejectReason.EMPTY_TEXT, detail=detail))
                continue
            parts = await aside(pieces, said) if len(said) >= LARGE_CHARS else pieces(said)
            said_at, kind = turn.at or chunk.at, "turn" if len(parts) == 1 else "passage"
            facts += [
                turn_fact(turn, part, said_at, kind=kind) async for part in slices.over(parts)
            ]
        return Proposal(values=tuple(facts), rejected=tuple(empty))


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


@dataclass(frozen=True, kw_only=True)
class VerbatimManager:
    """Turns facts into ADD, UPDATE and NOOP by the rules of this package.

    Asks no model.
    """

    async def __call__(self, related: Sequence[Related], ctx: SlotContext, /) -> Proposal[MemoryOp]:
        """Return one op a fact, in order."""
        present = ctx.session.speakers if ctx.session is not None else ()
        names = tuple(dict.fromkeys((*present, *(entry.fact.speaker or "" for entry in related))))
        draft = _Draft(names=names, embedder=ctx.bank.embedder)
        async for entry in Slices().over(related):  # a long turn makes hundreds of ops
            await draft.decide(entry)
        return Proposal(values=tuple(draft.ops))


@dataclass(frozen=True, kw_only=True)
class KeepingManager:
    """The ops of `base`, and what the turns that they replace said beside.

    An UPDATE takes the place of a whole turn; each statement of it that the new words do
    not speak of stays, as an item of its own on the turn of old. Asks no model.
    """

    base: Manager

    async def __call__(self, related: Sequence[Related], ctx: SlotContext, /) -> Proposal[MemoryOp]:
        """Return the ops of `base`, in order, then one ADD for each statement kept."""
        proposal = await self.base(related, ctx)
        items = {hit.id: hit.item for entry in related for hit in entry.hits if hit.item}
        kept = [
            Add(fact=fact, reason=f"kept: {op.id} said this too")
            for op in proposal.values
            if isinstance(op, Update) and (item := items.get(op.id)) is not None
            for fact in _kept(item, op.text, ctx)
        ]
        return proposal.model_copy(update={"values": (*proposal.values, *kept)})


def _kept(item: MemoryItem, new: str, ctx: SlotContext) -> Iterator[Fact]:
    """Yield the statements of an item's latest turn that the new words leave alone."""
    turn = ctx.bank.state.turn(item.source_turn_ids[-1]) if item.source_turn_ids else None
    if turn is None or turn.said.strip() not in item.text or item.text in new:
        return  # written by hand, or all of it is in the new words
    said_at = ctx.bank.state.said_at(turn.id)
    for text in standing.untouched(turn.said, new):
        yield turn_fact(turn, text, said_at, kind="passage")


@dataclass(slots=True)
class _Draft:
    """The ops of one chunk, as decided so far."""

    names: tuple[str, ...]
    embedder: Embedder
    ops: list[MemoryOp] = field(default_factory=list[MemoryOp])
    added: dict[int, Fact] = field(default_factory=dict[int, Fact])
    """Facts to be added, by the place of their op."""
    changed: set[str] = field(default_factory=set[str])
    """Items that an op of this chunk changes."""

    async def decide(self, entry: Related) -> None:
        """Add an op for one fact."""
        fact = entry.fact
        advice = fact.trust is Trust.ASSISTANT
        if reason := context_reason(fact.text, names=self.names, comments=not advice):
            self.ops.append(Noop(fact=fact, reason=reason))
            return
        own = [
            (hit.item, hit.why.arms.get("dense"))
            for hit in entry.hits
            if hit.item is not None
            and hit.item.active
            and hit.id not in self.changed
            and _same_speaker(fact, hit.item)
        ]
        self.ops.append(
            self._repeat(fact, own)
            or await self._correction(fact, [item for item, _ in own])
            or self._addition(fact)
        )

    def _repeat(self, fact: Fact, own: Sequence[tuple[MemoryItem, float | None]]) -> Noop | None:
        for item, cosine in own:
            if restates(fact, item):
                return Noop(id=item.id, fact=fact, reason="said before in the same words")
            if near_duplicate(fact, item.text, item.valid, cosine=cosine):
                return Noop(id=item.id, fact=fact, reason="said before in nearly the same words")
        for other in self.added.values():
            if _same_speaker(fact, other) and (
                restates(fact, other) or near_duplicate(fact, other.text, other.valid, cosine=None)
            ):
                return Noop(fact=fact, reason=f"said before, in turn {other.source_turn_ids[-1]}")
        return None

    async def _correction(self, fact: Fact, own: Sequence[MemoryItem]) -> Update | Add | None:
        correction = correction_in(fact.text)
        if correction is None:
            return None
        items = {
            item.id: item
            for item in own
            if item.trust.rank >= fact.trust.rank
            and not (item.said_at and fact.said_at and item.said_at > fact.said_at)
        }
        here = {
            f"#{place}": other for place, other in self.added.items() if _same_speaker(fact, other)
        }
        texts = {key: earlier.text for key, earlier in (items | here).items()}
        cosines = await self._cosines(correction.topic(self.names), list(texts.values()))
        candidates = [
            Candidate(key, text, cosine, recent=key in here)
            for (key, text), cosine in zip(texts.items(), cosines, strict=True)
        ]
        target = corrected(correction, candidates, names=self.names)
        if target is None:
            return None
        if target.id in here:
            return (
                self._merged(fact, int(target.id[1:]), correction)
                if correction.cue is not Cue.CHANGE
                else None
            )
        item = items[target.id]
        self.changed.add(item.id)
        earlier = " and ".join(item.source_turn_ids) or item.id
        return Update(
            id=item.id,
            text=restated_text(item, fact.text),
            source_turn_ids=fact.source_turn_ids,
            valid=fact.valid or _swapped_time(correction, item),
            reason=f"{fact.speaker} takes back or outdates what {earlier} said",
        )

    async def _cosines(self, topic: str, texts: Sequence[str]) -> list[float]:
        if topic and texts:
            with suppress(EmbeddingError):
                vectors = await self.embedder.embed([topic, *texts])
                return [float(cosine) for cosine in vectors[1:] @ vectors[0]]
        return [0.0] * len(texts)

    def _merged(self, fact: Fact, place: int, correction: Correction) -> Add:
        """Merge a slip with its correction in the same chunk into one item on both turns."""
        slip = self.added.pop(place)
        self.ops[place] = Noop(
            fact=slip, reason=f"corrected at once, in turn {fact.source_turn_ids[-1]}"
        )
        merged = fact.model_copy(
            update={
                "text": restated_text(slip, fact.text),
                "source_turn_ids": tuple(
                    dict.fromkeys((*slip.source_turn_ids, *fact.source_turn_ids))
                ),
                "valid": fact.valid or _swapped_time(correction, slip),
            }
        )
        return self._addition(merged, reason=f"corrects turn {slip.source_turn_ids[-1]}")

    def _addition(self, fact: Fact, *, reason: str = "") -> Add:
        self.added[len(self.ops)] = fact
        return Add(fact=fact, reason=reason)


def _same_speaker(fact: Fact, other: Fact | MemoryItem) -> bool:
    return bool(fact.speaker and other.speaker and folded(fact.speaker) == folded(other.speaker))


def _swapped_time(correction: Correction, old: Fact | MemoryItem) -> TimeSpan | None:
    """Resolve the old words with the day of the correction: "not Tuesday but Thursday"."""
    words = swapped(correction.clause, old.text)
    return time_told(words, old.said_at) if words is not None else None
