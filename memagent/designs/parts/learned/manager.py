"""Decides about statements: new, known, or in the place of a memory; by probabilities.

Each statement and the memories about it form one categorical choice (`pairs`). Every op
says in its reason which head decided and how sure it was. No statement touches what is
trusted more, nor what another speaker said of himself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from memagent.core.ops import Add, Delete, MemoryOp, Noop, Update
from memagent.core.records import Fact, MemoryItem, TimeSpan
from memagent.designs.base import Proposal, Related, SlotContext
from memagent.designs.parts.learned.extractor import STATEMENT, earlier_turn, readings
from memagent.designs.parts.learned.network import open_network
from memagent.designs.parts.learned.pairs import Choice, Side, choose
from memagent.designs.parts.learned.reading import Clause, read_statement
from memagent.designs.parts.rules.wording import time_told
from memagent.state.fold import folded
from memagent.state.validation import restates

CONTEXT: Final = 0.9
"""Least probability at which a turn is left as context."""
UNTRUE: Final = 0.7
"""Least probability at which a joke or hearsay is left as context."""
REPLACE: Final = 0.6
"""Least probability at which a statement takes a memory's place."""
_MAX_TEXT: Final = 2_000


@dataclass(frozen=True, kw_only=True)
class LearnedManager:
    """Turns facts into ADD, UPDATE, DELETE and NOOP by the network. Asks no model."""

    async def __call__(self, related: Sequence[Related], ctx: SlotContext, /) -> Proposal[MemoryOp]:
        """Return one op a fact, in order, and NOOPs for those corrected in the same chunk."""
        draft = _Draft(ctx)
        for entry in related:
            draft.decide(entry)
        return Proposal(values=tuple(draft.ops))


@dataclass(slots=True)
class _Draft:
    """The ops of one chunk, as decided so far."""

    ctx: SlotContext
    ops: list[MemoryOp] = field(default_factory=list[MemoryOp])
    added: dict[int, Fact] = field(default_factory=dict[int, Fact])
    """Facts to be added, by the place of their op."""
    changed: set[str] = field(default_factory=set[str])
    """Items that an op of this chunk changes."""

    def decide(self, entry: Related) -> None:
        """Add an op for one fact."""
        fact = entry.fact
        if repeat := self._repeat(entry):
            self.ops.append(repeat)
        elif fact.kind != STATEMENT:
            self.ops.append(self._whole(fact))
        else:
            self._statement(entry)

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
        context = self._reading_of(fact)[1]
        if context >= CONTEXT:
            return Noop(fact=fact, reason=f"context: states nothing (p={context:.2f})")
        return self._addition(fact, f"kept whole: context p={context:.2f}, no sure statement")

    def _reading_of(self, fact: Fact) -> tuple[Clause | None, float]:
        """Return the statement of a fact as it was read in its turn, and the turn's context."""
        chunk = self.ctx.chunk
        before = earlier_turn(chunk, self.ctx) if chunk is not None else ""
        speakers = self.ctx.session.speakers if self.ctx.session is not None else ()
        for turn in chunk.turns if chunk is not None else ():
            if turn.id == fact.source_turn_ids[-1]:
                for piece, reading in readings(turn, before, speakers):
                    for clause in reading.clauses:
                        if clause.text == fact.text:
                            return clause, reading.context
                    if piece == fact.text:
                        return None, reading.context
            before = turn.said if turn.said.strip() else before
        return None, 0.0

    def _statement(self, entry: Related) -> None:
        fact = entry.fact
        clause = self._reading_of(fact)[0] or read_statement(fact.text, fact.speaker or "")
        said = f"keep {clause.keep:.2f}, {clause.act} {clause.act_p:.2f}"
        if clause.act in ("joke", "hearsay") and clause.act_p >= UNTRUE:
            self.ops.append(Noop(fact=fact, reason=f"{said}: not known to be true"))
            return
        here = [(place, other) for place, other in self.added.items() if other.kind == STATEMENT]
        items = _changeable(entry, self.changed)
        sides = [*(_side(item) for item in items), *(_side(other) for _, other in here)]
        new = Side(clause, fact.speaker or "", folded(fact.subject or ""))
        choice = choose(open_network(), new, sides)
        said = f"{said}, choice {choice.p:.2f} of {len(sides)}"
        target = choice.target
        if target is None or (choice.replaces and choice.p < REPLACE):
            self.ops.append(self._untargeted(fact, clause, said))
        elif target < len(items):
            self.ops.append(self._onto(items[target], fact, clause, choice, said))
        else:
            self._merge(here[target - len(items)], fact, clause, choice, said)

    def _untargeted(self, fact: Fact, clause: Clause, said: str) -> MemoryOp:
        if clause.act == "retract":
            return Noop(fact=fact, reason=f"{said}: takes back nothing that is known")
        return self._addition(fact, said)

    def _onto(
        self, item: MemoryItem, fact: Fact, clause: Clause, choice: Choice, said: str
    ) -> MemoryOp:
        """Return the op about a memory of an earlier chunk."""
        if not choice.replaces:
            return Noop(id=item.id, fact=fact, reason=f"{said}: said before")
        self.changed.add(item.id)
        if clause.act == "retract":
            return Delete(id=item.id, source_turn_ids=fact.source_turn_ids, reason=said)
        text, valid = _restated(item, fact, clause)
        return Update(
            id=item.id, text=text, source_turn_ids=fact.source_turn_ids, valid=valid, reason=said
        )

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
        if clause.act == "retract":
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
    return sorted(items, key=lambda item: (item.said_at.timestamp() if item.said_at else 0.0, item.id))


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


def _side(memory: MemoryItem | Fact) -> Side:
    speaker = memory.speaker or ""
    return Side(read_statement(memory.text, speaker), speaker, folded(memory.subject or ""))


def _restated(
    earlier: MemoryItem | Fact, fact: Fact, clause: Clause
) -> tuple[str, TimeSpan | None]:
    """Return the new wording of a memory, and its time.

    A statement that only names the old and the new value ("make that Lisbon, not
    Porto") is written as the earlier words with the new value in them: both parts are
    copies. Any other takes the place of the earlier words.
    """
    value, old = clause.spans.get("value"), clause.spans.get("old")
    if value is not None and old is not None and clause.act in ("correct", "change"):
        words, place = earlier.text, earlier.text.lower().find(old.text.lower())
        swapped = words[:place] + value.text + words[place + len(old.text) :]
        whole = clause.act == "correct" or len(clause.words) <= _FEW + len(value.text.split())
        if place >= 0 and whole and len(swapped) <= _MAX_TEXT:
            time = fact.valid or time_told(swapped, earlier.said_at) or earlier.valid
            return swapped, time if clause.act == "correct" else fact.valid
    return fact.text, fact.valid


_FEW: Final = 8
"""Words beside the value of a change that says nothing but the two values."""
