"""What to do with turns kept word for word, by rule: leave out small talk and repeats,
follow plain self-corrections, add the rest.

Nothing is lost silently: whatever is not kept as an item of its own becomes a NOOP that
names the fact and the reason. No rule ever touches what another speaker said, or what
is trusted more than the turn at hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from memagent.core.errors import EmbeddingError
from memagent.core.ops import Add, MemoryOp, Noop, Update
from memagent.core.records import Fact, MemoryItem, TimeSpan
from memagent.designs.base import Proposal, Related, SlotContext
from memagent.designs.parts.rules.corrections import (
    Candidate,
    Correction,
    Cue,
    corrected,
    correction_in,
    restated_text,
    swapped,
)
from memagent.designs.parts.rules.keeping import informative, near_duplicate
from memagent.designs.parts.rules.wording import time_told
from memagent.protocols import Embedder
from memagent.state.fold import folded
from memagent.state.validation import restates


@dataclass(frozen=True, kw_only=True)
class VerbatimManager:
    """Facts to ADD, UPDATE and NOOP by the rules of `verbatim_rules` and `verbatim_corrections`.

    Asks no model.
    """

    async def __call__(self, related: Sequence[Related], ctx: SlotContext, /) -> Proposal[MemoryOp]:
        """One op a fact, in order."""
        present = ctx.session.speakers if ctx.session is not None else ()
        names = tuple(dict.fromkeys((*present, *(entry.fact.speaker or "" for entry in related))))
        desk = _Desk(names=names, embedder=ctx.bank.embedder)
        for entry in related:
            await desk.take(entry)
        return Proposal(values=tuple(desk.ops))


@dataclass(slots=True)
class _Desk:
    """The ops of one chunk in the making."""

    names: tuple[str, ...]
    embedder: Embedder
    ops: list[MemoryOp] = field(default_factory=list[MemoryOp])
    added: dict[int, Fact] = field(default_factory=dict[int, Fact])
    """Facts to be added, by the place of their op."""
    taken: set[str] = field(default_factory=set[str])
    """Items that an op of this chunk changes."""

    async def take(self, entry: Related) -> None:
        """Decide about one fact."""
        fact = entry.fact
        if not informative(fact.text, names=self.names):
            self.ops.append(Noop(fact=fact, reason="small talk: says nothing to remember"))
            return
        known = [
            hit
            for hit in entry.hits
            if hit.item is not None and hit.item.active and hit.id not in self.taken
        ]
        own = [
            (hit.item, hit.why.arms.get("dense"))
            for hit in known
            if hit.item is not None and _same_speaker(fact, hit.item)
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
            if item.trust.rank >= fact.trust.rank and _not_later(item, fact)
        }
        here = {
            f"#{place}": other for place, other in self.added.items() if _same_speaker(fact, other)
        }
        texts = {
            **{key: item.text for key, item in items.items()},
            **{key: other.text for key, other in here.items()},
        }
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
        self.taken.add(item.id)
        return Update(
            id=item.id,
            text=restated_text(item, fact.text),
            source_turn_ids=fact.source_turn_ids,
            valid=fact.valid or _swapped_time(correction, item),
            reason=f"{fact.speaker} takes back or outdates what {' and '.join(item.source_turn_ids) or item.id} said",
        )

    async def _cosines(self, topic: str, texts: Sequence[str]) -> list[float]:
        """How near each text is to the topic; all 0 without a topic or an embedder."""
        if not topic or not texts:
            return [0.0] * len(texts)
        try:
            vectors = await self.embedder.embed([topic, *texts])
        except EmbeddingError:
            return [0.0] * len(texts)
        return [float(cosine) for cosine in vectors[1:] @ vectors[0]]

    def _merged(self, fact: Fact, place: int, correction: Correction) -> Add:
        """A slip corrected within the chunk: one item with the corrected words, resting
        on both turns.
        """
        slip = self.added.pop(place)
        self.ops[place] = Noop(
            fact=slip, reason=f"corrected at once, in turn {fact.source_turn_ids[-1]}"
        )
        sources = tuple(dict.fromkeys((*slip.source_turn_ids, *fact.source_turn_ids)))
        valid = fact.valid or _swapped_time(correction, slip)
        whole = fact.model_copy(
            update={
                "text": restated_text(slip, fact.text),
                "source_turn_ids": sources,
                "valid": valid,
            }
        )
        self.added[len(self.ops)] = whole
        return Add(fact=whole, reason=f"corrects turn {slip.source_turn_ids[-1]}")

    def _addition(self, fact: Fact) -> Add:
        self.added[len(self.ops)] = fact
        return Add(fact=fact)


def _same_speaker(fact: Fact, other: Fact | MemoryItem) -> bool:
    return (
        fact.speaker is not None
        and other.speaker is not None
        and folded(fact.speaker) == folded(other.speaker)
    )


def _swapped_time(correction: Correction, old: Fact | MemoryItem) -> TimeSpan | None:
    """The time of the old words with the day that the correction gives: "not Tuesday but Thursday"."""
    words = swapped(correction.clause, old.text)
    return time_told(words, old.said_at) if words is not None else None


def _not_later(item: MemoryItem, fact: Fact) -> bool:
    return item.said_at is None or fact.said_at is None or item.said_at <= fact.said_at
