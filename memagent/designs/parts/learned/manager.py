"""Decides about statements: new, known, or in the place of a memory; by probabilities.

Each statement and the memories about it form one categorical choice (`pairs`). Every op
says in its reason which head decided and how sure it was. No statement touches what is
trusted more, nor what another speaker said of himself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from memagent.core.ops import Add, Delete, MemoryOp, Noop, Update
from memagent.core.records import Fact, MemoryItem, TimeSpan, Trust
from memagent.designs.base import Proposal, Related, SlotContext
from memagent.designs.parts.learned.extractor import STATEMENT, read_chunk
from memagent.designs.parts.learned.pairs import (
    SHORT,
    Choice,
    Side,
    choose,
    copies,
    ends,
    names_old,
)
from memagent.designs.parts.learned.reading import Clause, shipped_reader
from memagent.designs.parts.rules.statements import context_reason, time_told
from memagent.state.fold import folded
from memagent.state.validation import restates

CONTEXT: Final = 0.9
"""Least probability at which a short turn is left as context."""
VALUE: Final = 0.8
"""Least probability of a value at which the rules for small talk are not asked."""
CHANGES: Final = 0.75
"""Least probability of an end or a change at which they are not asked either."""
_MAX_TEXT: Final = 2_000


class Chooser(Protocol):
    """Decides about a statement; the shipped network, or a policy that is trained."""

    async def __call__(self, new: Side, memories: Sequence[Side], ctx: SlotContext, /) -> Choice:
        """Return the choice; `memories` are in the order of saying."""
        ...


async def shipped_choice(new: Side, memories: Sequence[Side], _ctx: SlotContext, /) -> Choice:
    """Return the choice of the shipped network. Asks no model."""
    return choose(shipped_reader().network, new, memories)


@dataclass(frozen=True, kw_only=True)
class LearnedManager:
    """Turns facts into ADD, UPDATE, DELETE and NOOP by the network."""

    chooser: Chooser = shipped_choice

    async def __call__(self, related: Sequence[Related], ctx: SlotContext, /) -> Proposal[MemoryOp]:
        """Return one op a fact, in order, and NOOPs for those corrected in the same chunk."""
        present = ctx.session.speakers if ctx.session is not None else ()
        draft = _Draft(present, _read_facts(ctx), self.chooser, ctx)
        _warm(related)
        for entry in related:
            await draft.decide(entry)
        return Proposal(values=tuple(draft.ops))


@dataclass(slots=True)
class _Draft:
    """The ops of one chunk, as decided so far."""

    names: tuple[str, ...]
    """Those who take part."""
    readings: Mapping[tuple[str, str], tuple[Clause | None, float]]
    """By turn and text: the statement as read in its turn, and the turn's context."""
    choose: Chooser
    ctx: SlotContext
    ops: list[MemoryOp] = field(default_factory=list[MemoryOp])
    added: dict[int, Fact] = field(default_factory=dict[int, Fact])
    """Facts to be added, by the place of their op."""
    changed: set[str] = field(default_factory=set[str])
    """Items that an op of this chunk changes."""

    async def decide(self, entry: Related) -> None:
        """Add an op for one fact."""
        fact = entry.fact
        if repeat := self._repeat(entry):
            self.ops.append(repeat)
        elif fact.kind != STATEMENT and self._read_in_turn(fact)[0] is None:
            if self._ends_something(entry):
                await self._statement(entry)
            else:
                self.ops.append(self._whole(fact))
        else:
            await self._statement(entry)

    def _ends_something(self, entry: Related) -> bool:
        """Say whether a turn without a sure statement ends what a memory states.

        An unusual farewell ("it's quiet without the hen") looks like small talk, unless one
        knows of the hen.
        """
        if len(entry.fact.text.split()) > SHORT:
            return False
        items = _changeable(entry, self.changed)
        clause = _read(entry.fact)
        return any(names_old(clause, side.clause) for side in _sides(items))

    def _repeat(self, entry: Related) -> Noop | None:
        fact = entry.fact
        for hit in entry.hits:
            if hit.item is not None and hit.item.active and restates(fact, hit.item):
                return Noop(id=hit.id, fact=fact, reason="said before in the same words")
        for other in self.added.values():
            if restates(fact, other):
                return Noop(fact=fact, reason=f"said before, in turn {other.source_turn_ids[-1]}")
        return None

    def _whole(self, fact: Fact) -> MemoryOp:
        context = self._read_in_turn(fact)[1]
        if context >= CONTEXT and len(fact.text.split()) <= SHORT:
            return Noop(fact=fact, reason=f"context: states nothing (p={context:.2f})")
        if rule := self._context(fact):
            return Noop(fact=fact, reason=f"{rule} (rule; context p={context:.2f})")
        return self._addition(fact, f"kept whole: context p={context:.2f}, no sure statement")

    def _read_in_turn(self, fact: Fact) -> tuple[Clause | None, float]:
        return self.readings.get((fact.source_turn_ids[-1], fact.text), (None, 0.0))

    def _context(self, fact: Fact) -> str:
        """Return the rule by which a text is context; "" for none."""
        advice = fact.trust is Trust.ASSISTANT
        return context_reason(fact.text, names=self.names, comments=not advice)

    async def _statement(self, entry: Related) -> None:
        fact = entry.fact
        clause = self._read_in_turn(fact)[0] or _read(fact)
        said = f"keep {clause.keep:.2f}, {clause.act} {clause.act_p:.2f}"
        value = clause.spans.get("value")
        vague = (value is None or value.p < VALUE) and ends(clause) < CHANGES
        if vague and (rule := self._context(fact)):
            self.ops.append(Noop(fact=fact, reason=f"{said}; {rule} (rule)"))
            return
        here = [(place, other) for place, other in self.added.items()]
        items = _changeable(entry, self.changed)
        sides = _sides([*items, *(other for _, other in here)])
        new = Side(clause, fact.speaker or "", folded(fact.subject or ""))
        choice = await self.choose(new, sides, self.ctx)
        whole = fact.kind != STATEMENT and choice.replaces and choice.target is not None
        if whole and not names_old(clause, sides[choice.target or 0].clause):
            choice = Choice("add", None, choice.p, "a whole turn replaces what it names only")
        said = f"{said}, {choice.op} {choice.p:.2f} of {len(sides)}"
        said = f"{said}; {choice.reason}" if choice.reason else said
        target = choice.target
        if target is None:
            skipped = choice.op == "skip"
            self.ops.append(Noop(fact=fact, reason=said) if skipped else self._addition(fact, said))
        elif target < len(items):
            self.ops.append(self._onto(items[target], fact, clause, choice, said))
            if choice.replaces:
                self._drop_copies(new, items[target], items, fact)
        else:
            self._merge(here[target - len(items)], fact, clause, choice, said)

    def _onto(
        self, item: MemoryItem, fact: Fact, clause: Clause, choice: Choice, said: str
    ) -> MemoryOp:
        """Return the op about a memory of an earlier chunk."""
        if not choice.replaces:
            return Noop(id=item.id, fact=fact, reason=f"{said}: said before")
        self.changed.add(item.id)
        if choice.op == "delete":
            return Delete(id=item.id, source_turn_ids=fact.source_turn_ids, reason=said)
        text, valid = _restated(item, fact, clause)
        return Update(
            id=item.id, text=text, source_turn_ids=fact.source_turn_ids, valid=valid, reason=said
        )

    def _drop_copies(
        self, new: Side, item: MemoryItem, items: Sequence[MemoryItem], fact: Fact
    ) -> None:
        """Delete the other memories that say what a replaced one said."""
        others = [other for other in items if other.id not in self.changed]
        sides = _sides(others)
        for place in copies(shipped_reader().network, new, _sides([item])[0], sides):
            copy = others[place]
            self.changed.add(copy.id)
            sources, reason = fact.source_turn_ids, f"said the same as {item.id}, now replaced"
            self.ops.append(Delete(id=copy.id, source_turn_ids=sources, reason=reason))

    def _merge(
        self, earlier: tuple[int, Fact], fact: Fact, clause: Clause, choice: Choice, said: str
    ) -> None:
        """Decide about a fact that an earlier fact of the chunk is about."""
        place, slip = earlier
        turn = fact.source_turn_ids[-1]
        if not choice.replaces:
            reason = f"{said}: said before, in turn {slip.source_turn_ids[-1]}"
            self.ops.append(Noop(fact=fact, reason=reason))
            return
        del self.added[place]
        self.ops[place] = Noop(fact=slip, reason=f"replaced at once, in turn {turn}")
        if choice.op == "delete":
            self.ops.append(Noop(fact=fact, reason=f"{said}: taken back at once"))
            return
        text, valid = _restated(slip, fact, clause)
        sources = tuple(dict.fromkeys((*slip.source_turn_ids, *fact.source_turn_ids)))
        merged = fact.model_copy(update={"text": text, "valid": valid, "source_turn_ids": sources,
                                         "subject": slip.subject})  # fmt: skip
        self.ops.append(self._addition(merged, said))

    def _addition(self, fact: Fact, reason: str) -> Add:
        self.added[len(self.ops)] = fact
        return Add(fact=fact, reason=reason)


def _read_facts(ctx: SlotContext) -> dict[tuple[str, str], tuple[Clause | None, float]]:
    chunk = ctx.chunk
    if chunk is None:
        return {}
    readings: dict[tuple[str, str], tuple[Clause | None, float]] = {}
    for turn, texts in zip(chunk.turns, read_chunk(chunk, ctx), strict=True):
        for piece, reading in texts:
            best = max(reading.clauses, key=lambda clause: clause.keep, default=None)
            readings[turn.id, piece] = (best, reading.context)
            for clause in reading.clauses:
                readings[turn.id, clause.text] = (clause, reading.context)
    return readings


def _warm(related: Sequence[Related]) -> None:
    """Read all facts and the memories that they will be compared with, in one batch."""
    items = [hit.item for entry in related for hit in entry.hits if hit.item is not None]
    memories = [*items, *(entry.fact for entry in related)]
    shipped_reader().statements([(memory.text, memory.speaker or "") for memory in memories])


def _read(memory: MemoryItem | Fact) -> Clause:
    return shipped_reader().statements([(memory.text, memory.speaker or "")])[0]


def _changeable(entry: Related, changed: set[str]) -> list[MemoryItem]:
    """Return the memories that a fact may be about, in the order of saying."""
    fact = entry.fact
    items = [
        hit.item
        for hit in entry.hits
        if hit.item is not None
        and hit.item.active
        and hit.id not in changed
        and hit.item.trust.rank >= fact.trust.rank
        and not _of_another(fact, hit.item)
        and not _later(hit.item, fact)
    ]
    return sorted(
        items, key=lambda item: (item.said_at.timestamp() if item.said_at else 0.0, item.id)
    )


def _of_another(fact: Fact, item: MemoryItem) -> bool:
    """Say whether another speaker said the memory of himself."""
    own = folded(item.speaker or "") == folded(item.subject or "")
    return (
        own
        and folded(fact.speaker or "") != folded(item.speaker or "")
        and folded(fact.subject or "") != folded(item.subject or "")
    )


def _later(item: MemoryItem, fact: Fact) -> bool:
    return item.said_at is not None and fact.said_at is not None and item.said_at > fact.said_at


def _sides(memories: Sequence[MemoryItem | Fact]) -> list[Side]:
    texts = [(memory.text, memory.speaker or "") for memory in memories]
    return [
        Side(clause, text[1], folded(memory.subject or ""))
        for clause, text, memory in zip(
            shipped_reader().statements(texts), texts, memories, strict=True
        )
    ]


def _restated(
    earlier: MemoryItem | Fact, fact: Fact, clause: Clause
) -> tuple[str, TimeSpan | None]:
    """Return the new wording of a memory, and its time.

    A statement that only names the old and the new value ("make that Lisbon, not
    Porto") is written as the earlier words with the new value in them: both parts are
    copies. Any other takes the place of the earlier words.
    """
    value, old = clause.spans.get("value"), clause.spans.get("old")
    if (
        value is not None
        and old is not None
        and min(value.p, old.p) >= VALUE
        and clause.act in ("correct", "change")
        and _holds(earlier, old.text)
    ):
        words = earlier.text
        place = re.search(rf"(?<!\w){re.escape(old.text)}(?!\w)", words, re.IGNORECASE)
        start, end = place.span() if place is not None else (0, 0)
        swapped = words[:start] + value.text + words[end:]
        whole = clause.act == "correct" or len(clause.words) <= _FEW + len(value.text.split())
        short = len(words.split()) <= SHORT
        if place is not None and whole and short and len(swapped) <= _MAX_TEXT:
            time = fact.valid or time_told(swapped, earlier.said_at) or earlier.valid
            return swapped, time if clause.act == "correct" else fact.valid
    return fact.text, fact.valid


def _holds(earlier: MemoryItem | Fact, old: str) -> bool:
    """Say whether the value of a statement is the one that another gives as the old."""
    held = _read(earlier).spans.get("value")
    return held is not None and held.text.lower() == old.lower()


_FEW: Final = 8
"""Words beside the value of a change that says nothing but the two values."""
