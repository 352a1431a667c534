"""What a new statement ends, by the reader: the rules' ops with updates beside them.

The rules decide what is kept (`rules.manager`). Of each statement that they would add,
the reader is asked whether it ends something that the same speaker said before. Then the
old memory takes the new words as its next version, cited by the turn that said them; the
old wording stays readable, still finds the memory, and `undo` brings it back. A second
memory that the statement ends is deleted and linked. The surprise: the reader may only
replace. It never drops a statement that the rules would keep, and a change that the
rules make is made.

The weights are loaded at the first statement that has a candidate. Where they cannot be
read, the rules decide alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from hashlib import sha256
from logging import getLogger
from typing import Final

import numpy as np

from memagent.core.answers import QUOTED_FROM
from memagent.core.long_work import aside
from memagent.core.ops import Add, Delete, MemoryOp, Noop, Update
from memagent.core.records import Fact, MemoryItem
from memagent.designs.base import Proposal, Related
from memagent.designs.parts.rules.manager import as_told, same_speaker, speaker_of, stands_alone
from memagent.language.network import Array
from memagent.language.reader import BACKED, Change, Reader, Statement, open_reader
from memagent.memory.judging.certainty import Reading, has_term
from memagent.memory.judging.evidence import Evidence
from memagent.memory.question import QuestionView
from memagent.state.effects import tokenize
from memagent.state.fold import BankState

BACKED_FROM: Final = 0.9
"""A model's change stands where the pair head gives it as much."""
DOUBTED_FROM: Final = 0.05
"""A statement may be outdated where a later one has ended it with as much probability."""
NEAR_FROM: Final = 0.3
"""Cosine from which a statement is quoted that meets no word of the question."""
UNRELATED_FROM: Final = 0.97
"""A model's change is refused where the pair head is as sure that the two are unrelated."""
# Texts whose readings are kept, 2 kB each.
_MOST_READ: Final = 4_096
# Statements whose meaning is compared with a question's, and what cosines are divided by.
_MOST_NEAR: Final = 16
_WARMTH: Final = 0.05
_log = getLogger(__name__)


@lru_cache(maxsize=1)
def shipped_reader() -> Reader | None:
    """Return the shipped reader; None, with a line in the log, if its file cannot be read."""
    try:
        return open_reader()
    except (OSError, ValueError, KeyError) as failure:
        _log.warning("the reader's weights cannot be read (%s); rules decide alone", failure)
        return None


# The vectors of texts that were read, and whether they state something, by the digests of
# the texts: what is erased from a memory is not kept here.
_KNOWN: dict[bytes, tuple[Array | None, float | None]] = {}


def read_once(reader: Reader, statements: Iterable[Statement]) -> list[Statement]:
    """Return statements with their readings; a text is read once, all new ones in a batch."""
    known = [(sha256(own.text.encode()).digest(), own) for own in statements]
    readings = {key: kept for key, _ in known if (kept := _KNOWN.get(key)) is not None}
    missing = {key: Statement(own.text) for key, own in known if key not in readings}
    read = zip(missing, reader.read(list(missing.values())), strict=True)
    fresh = {key: (own.vector, own.states) for key, own in read}
    if len(_KNOWN) + len(fresh) > _MOST_READ:
        _KNOWN.clear()
    _KNOWN.update(fresh)
    readings |= fresh
    return [Statement(own.text, own.speaker, own.at, *readings[key]) for key, own in known]


# The place of a statement among the facts, the statement, and what it may end.
_Asked = tuple[int, Fact, list[MemoryItem | Fact]]


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
    if pair.change >= BACKED_FROM:
        return True
    return False if pair.unrelated >= UNRELATED_FROM else None


def doubts(view: QuestionView, reading: Reading, state: BankState, /) -> tuple[str, ...]:
    """Return a doubt where the best statement may not be what was asked about, or has ended.

    A whole statement that took the place of another must meet a word of the question
    itself: it may have taken the wrong place.
    """
    best = reading.order[0].evidence
    if (best.version or 1) > 1 and stands_alone(best.text):
        own = frozenset(tokenize(best.text))
        if not any(has_term(term, own) for term in view.terms):
            return ("the words asked about stand in an earlier wording only",)
    return _outdated(reading, state) if view.now else ()


def _outdated(reading: Reading, state: BankState) -> tuple[str, ...]:
    """Return a doubt where a later statement of the same speaker may have ended the best one.

    What would not be enough to change a memory is enough to doubt it.
    """
    reader, best = shipped_reader(), reading.order[0].evidence
    if reader is None or best.said_at is None:
        return ()
    said: dict[tuple[datetime, int], Statement] = {}
    for entry in (scored.evidence for scored in reading.order):
        if entry.current and _speaker_of(entry) == _speaker_of(best) and entry.said_at:
            at = entry.said_at, state.turns.get("".join(entry.turn_ids[-1:]), ("", 0))[1]
            said.setdefault(at, Statement(as_told(entry.text), _speaker_of(entry), entry.said_at))
    known = dict(zip(said, read_once(reader, said.values()), strict=True))
    when = next((at for at, own in known.items() if own.text == as_told(best.text)), None)
    for at, new in known.items():
        if when is None or at <= when:
            continue
        if reader.propose([known[when]], new)[0] < reader.thresholds.light:
            continue
        earlier = [there for there in known if there < at]
        for own in reader.weigh(new, [known[there] for there in earlier]):
            backed = own.pair.change >= BACKED
            least = DOUBTED_FROM if backed else reader.thresholds.change
            if earlier[own.index] == when and reader.probability(own) >= least:
                return (f'{new.speaker} may have changed that, saying "{new.text[:80]}"',)
    return ()


def _speaker_of(evidence: Evidence) -> str:
    item = evidence.hit.item
    return speaker_of(item) if evidence.by_hand and item is not None else evidence.speaker or ""


def by_meaning(text: str, reading: Reading, /) -> Reading:
    """Return a reading that is too unsure to be quoted, ordered by meaning, for a question's text.

    The nearest is quoted where it is near enough; it is never supported.
    """
    reader, known = shipped_reader(), reading.order[:_MOST_NEAR]
    if reader is None:
        return reading
    texts = (text, *(scored.evidence.text for scored in known))
    asked, *said = (own.vector for own in read_once(reader, map(Statement, texts)))
    assert asked is not None
    near = np.array(said) @ asked
    shares = np.array([max(scored.share, 1e-4) for scored in known])
    order = list(map(int, np.argsort(-(near / _WARMTH + np.log(shares)), kind="stable")))
    if near[order[0]] < NEAR_FROM:
        return reading
    ordered = tuple(known[place] for place in order) + reading.order[_MOST_NEAR:]
    return replace(
        reading,
        order=ordered,
        chosen=ordered[:1],
        probability=QUOTED_FROM,
        doubts=(*reading.doubts, "it was found by its meaning, not by its words"),
        meant=True,
    )


def as_statement(record: Fact | MemoryItem) -> Statement:
    """Return a fact or an item as the reader takes it."""
    if record.source_turn_ids:
        return Statement(record.text, record.speaker or "", record.said_at)
    return Statement(as_told(record.text), speaker_of(record), record.said_at)


async def with_changes(
    proposal: Proposal[MemoryOp], related: Sequence[Related]
) -> Proposal[MemoryOp]:
    """Return the rules' ops, one a fact in order, with what the facts end; then the deletions."""
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
        """Return what the statement at a place may end, if the rules add it.

        These are memories, then statements of the same chunk that are to be added.
        """
        fact = entry.fact
        if not isinstance(self.ops[at], Add):
            return []
        items = [hit.item for hit in entry.hits if hit.item is not None and hit.item.active]
        earlier = [own.fact for own in self.ops[:at] if isinstance(own, Add)]
        return [own for own in (*items, *earlier) if may_end(fact, own)]

    def read(self, reader: Reader, asked: Sequence[_Asked]) -> None:
        """Put what the reader decides in the place of the rules' ops."""
        self.changed = {op.id for op in self.ops if isinstance(op, Update)}
        read_once(reader, (as_statement(own) for _, fact, old in asked for own in (fact, *old)))
        for at, fact, records in asked:
            self._end(reader, at, fact, [own for own in records if self._stands(own)])

    def _stands(self, record: MemoryItem | Fact) -> bool:
        if isinstance(record, MemoryItem):
            return record.id not in self.changed
        return any(isinstance(op, Add) and op.fact is record for op in self.ops)

    def _end(
        self, reader: Reader, at: int, fact: Fact, records: Sequence[MemoryItem | Fact]
    ) -> None:
        new, *old = read_once(reader, map(as_statement, (fact, *records)))
        for change in reader.changes(new, old):
            record, own = records[change.index], self.ops[at]
            if isinstance(record, Fact):
                self._merge(at, record, change)
                continue
            self.changed.add(record.id)
            if isinstance(own, Add):
                told = own.fact
                self.ops[at] = Update(
                    id=record.id,
                    text=told.text,
                    source_turn_ids=told.source_turn_ids,
                    valid=told.valid,
                    reason=_reason(change),
                )
            else:
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


def _reason(change: Change) -> str:
    deed = "replaced" if change.relation == "replaces" else "ended"
    return f"{deed} because {change.reason}"


def may_end(fact: Fact, item: MemoryItem | Fact) -> bool:
    """Say whether a fact may end another: of the same speaker, not later, trusted as much."""
    return (
        (fact.speaker == item.speaker is not None or same_speaker(fact, item))
        and (item.trust is fact.trust or item.trust.rank > fact.trust.rank)
        and (item.said_at is None or fact.said_at is None or item.said_at <= fact.said_at)
    )
