"""What a new statement ends, by the reader: the rules' ops with updates beside them.

The rules decide what is kept (`rules.manager`). Of each statement that they would add,
the reader is asked whether it ends something that the same speaker said before. Then the
old memory takes the new words as its next version, cited by the turn that said them; the
old wording stays readable, still finds the memory, and `undo` brings it back. A second
memory that the statement ends is deleted and linked. The surprise: the reader may only
refuse and replace. It never drops a statement that the rules would keep, and a change
that the rules propose stays only if the pair head does not speak against it.

The weights are loaded at the first statement that has a candidate. Where they cannot be
read, the rules decide alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from logging import getLogger
from typing import Final

from memagent.core.long_work import aside
from memagent.core.ops import Add, Delete, MemoryOp, Noop, Update
from memagent.core.records import Fact, MemoryItem
from memagent.designs.base import Manager, Proposal, Related, SlotContext
from memagent.designs.parts.rules.manager import VerbatimManager
from memagent.language.reader import Change, Reader, Statement, open_reader
from memagent.language.vocabulary import NEGATION
from memagent.state.backing import ADDS
from memagent.state.fold import folded

REFUSED_BELOW: Final = 0.1
"""A change that the rules propose is an addition where the pair head gives it less."""
UNRELATED_FROM: Final = 0.97
"""A model's change is refused where the pair head is as sure that the two are unrelated."""
_MOST_READ: Final = 4_096
"""Texts whose readings are remembered, 2 kB each."""
_log = getLogger(__name__)


@lru_cache(maxsize=1)
def shipped_reader() -> Reader | None:
    """Return the shipped reader; None, with a line in the log, if its file cannot be read."""
    try:
        return open_reader()
    except (OSError, ValueError, KeyError) as failure:
        _log.warning("the reader's weights cannot be read (%s); rules decide alone", failure)
        return None


_KNOWN: dict[str, Statement] = {}
"""Statements that were read, by their text."""


def read_once(reader: Reader, statements: Iterable[Statement]) -> list[Statement]:
    """Return statements with their readings; a text is read once, all new ones in a batch."""
    known = list(statements)
    missing = list(dict.fromkeys(own.text for own in known if own.text not in _KNOWN))
    if len(_KNOWN) + len(missing) > _MOST_READ:
        _KNOWN.clear()
        missing = list(dict.fromkeys(own.text for own in known))
    read = {own.text: own for own in reader.read([Statement(text) for text in missing])}
    _KNOWN.update(read)
    texts = {**_KNOWN, **read}
    return [
        Statement(own.text, own.speaker, own.at, texts[own.text].vector, texts[own.text].states)
        for own in known
    ]


_Asked = tuple[int, Fact, list[MemoryItem | Fact]]
"""The place of a statement among the facts, the statement, and what it may end."""


def backed_by_reader(old: MemoryItem, new: str, fact: Fact | None, /) -> bool | None:
    """Say whether the pair head backs a change by a language model; None where it is unsure.

    It refuses only what it is sure has nothing to do with the old memory.
    """
    reader = shipped_reader()
    if reader is None:
        return None
    said = Statement(new) if fact is None else as_statement(fact)
    known, first = read_once(reader, (as_statement(old), said))
    pair = reader.compare([known], first)[0]
    if pair.change >= reader.thresholds.change:
        return True
    return False if pair.unrelated >= UNRELATED_FROM else None


def as_statement(record: Fact | MemoryItem) -> Statement:
    """Return a fact or an item as the reader takes it."""
    return Statement(record.text, record.speaker or "", record.said_at)


@dataclass(frozen=True, kw_only=True)
class ReadingManager:
    """The ops of `base`, with what new statements end. Asks no model."""

    base: Manager = VerbatimManager()

    async def __call__(self, related: Sequence[Related], ctx: SlotContext, /) -> Proposal[MemoryOp]:
        """Return one op a fact in order, then the deletions."""
        proposal = await self.base(related, ctx)
        draft = _Draft(list(proposal.values))
        asked = [
            (at, entry.fact, items)
            for at, entry in enumerate(related)
            if (items := draft.may_change(at, entry))
        ]
        reader = shipped_reader() if asked else None
        if reader is None:
            return proposal
        await aside(draft.read, reader, asked)
        return proposal.model_copy(update={"values": (*draft.ops, *draft.ended)})


@dataclass(slots=True)
class _Draft:
    """The ops of one chunk while the reader is asked about them."""

    ops: list[MemoryOp]
    """One a fact."""
    ended: list[MemoryOp] = field(default_factory=list[MemoryOp])
    changed: set[str] = field(default_factory=set[str])

    def may_change(self, at: int, entry: Related) -> list[MemoryItem | Fact]:
        """Return what the statement at a place may end, or the item that the rules change.

        These are memories, then statements of the same chunk that are to be added.
        """
        op, fact = self.ops[at], entry.fact
        if isinstance(op, Noop | Delete):
            return []
        items = [hit.item for hit in entry.hits if hit.item is not None and hit.item.active]
        if isinstance(op, Update):
            return [item for item in items if item.id == op.id]
        earlier = [own.fact for own in self.ops[:at] if isinstance(own, Add)]
        return [own for own in (*items, *earlier) if may_end(fact, own)]

    def read(self, reader: Reader, asked: Sequence[_Asked]) -> None:
        """Put what the reader decides in the place of the rules' ops."""
        self.changed = {op.id for op in self.ops if isinstance(op, Update)}
        read_once(reader, (as_statement(own) for _, fact, old in asked for own in (fact, *old)))
        for at, fact, records in asked:
            if isinstance(op := self.ops[at], Update):
                new, *old = read_once(reader, map(as_statement, (fact, *records)))
                share = reader.compare(old, new)[0].change
                if share < REFUSED_BELOW:
                    reason = f"kept beside {op.id}: the reader backs no change, p={share:.2f}"
                    self.ops[at] = Add(fact=fact, reason=reason)
            else:
                self._end(reader, at, fact, [own for own in records if self._stands(own)])

    def _stands(self, record: MemoryItem | Fact) -> bool:
        if isinstance(record, MemoryItem):
            return record.id not in self.changed
        return any(isinstance(op, Add) and op.fact is record for op in self.ops)

    def _end(
        self, reader: Reader, at: int, fact: Fact, records: Sequence[MemoryItem | Fact]
    ) -> None:
        new, *old = read_once(reader, map(as_statement, (fact, *records)))
        beside = ADDS.search(fact.text) is not None and NEGATION.search(fact.text) is None
        for change in () if beside else reader.changes(new, old):
            record, own = records[change.index], self.ops[at]
            if isinstance(record, Fact):
                self._merge(at, record, change)
            elif isinstance(own, Add):
                self.changed.add(record.id)
                self.ops[at] = _update(own.fact, record, change)
            else:
                self.changed.add(record.id)
                turns = fact.source_turn_ids
                self.ended.append(
                    Delete(id=record.id, source_turn_ids=turns, reason=_reason(change))
                )

    def _merge(self, at: int, old: Fact, change: Change) -> None:
        """Leave out an earlier statement of the chunk; the new one rests on its turn too."""
        place = next(
            place for place, op in enumerate(self.ops) if isinstance(op, Add) and op.fact is old
        )
        self.ops[place] = Noop(fact=old, reason=_reason(change))
        own = self.ops[at]
        if isinstance(own, Add):
            turns = tuple(dict.fromkeys((*old.source_turn_ids, *own.fact.source_turn_ids)))
            merged = own.fact.model_copy(update={"source_turn_ids": turns})
            self.ops[at] = Add(fact=merged, reason=_reason(change))


def _update(fact: Fact, item: MemoryItem, change: Change) -> Update:
    return Update(
        id=item.id,
        text=fact.text,
        source_turn_ids=fact.source_turn_ids,
        valid=fact.valid,
        reason=_reason(change),
    )


def _reason(change: Change) -> str:
    deed = "replaced" if change.relation == "replaces" else "ended"
    return f"{deed} because {change.reason}"


def may_end(fact: Fact, item: MemoryItem | Fact) -> bool:
    """Say whether a fact may end another: of the same speaker, not later, trusted as much."""
    return (
        fact.speaker is not None
        and folded(fact.speaker) == folded(item.speaker or "")
        and item.trust.rank >= fact.trust.rank
        and (item.said_at is None or fact.said_at is None or item.said_at <= fact.said_at)
    )
