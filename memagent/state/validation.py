"""Decides which proposed ops may be carried out.

Pure, deterministic, and it never raises for what ops say.

An op may touch only an item that was shown, at the version that was shown, and may rest
only on turns of the chunk. What the system knows always wins over what a model wrote:
who said a turn, when, and how far it is trusted are read from the cited turns. Ops are
judged in order; what an earlier op of the batch did to a text or an item counts for the
later ones.

Invariants: every proposal is either accepted or rejected with a reason; at most one
write an item (a NOOP writes nothing and claims nothing); evidence of lower trust never
updates or deletes an item of higher trust; accepted ops are normalised: sources each
once and in the chunk's order, trust the lowest of the sources, `said_at` the latest of
them, versions filled in. `evidence` says how far cited turns are trusted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from memagent.core.ops import (
    Add,
    Delete,
    MemoryOp,
    Noop,
    OpBatch,
    OpLimits,
    Rejected,
    RejectReason,
    Update,
)
from memagent.core.records import Chunk, Fact, MemoryItem, TimeSpan, Trust, lowest_trust
from memagent.state.evidence import NO_IDS, Evidence, Refused
from memagent.state.fold import folded
from memagent.state.guard import Guard, Told

_SYSTEM_KEYS = frozenset({"id", "trust", "version"})


def validate_ops(  # noqa: PLR0913 (one batch has many surroundings)
    proposed: Sequence[MemoryOp],
    *,
    visible: Mapping[str, MemoryItem],
    limits: OpLimits,
    chunk: Chunk | None = None,
    existing_ids: Container[str] = NO_IDS,
    actor_trust: Trust = Trust.USER,
    guard: Guard | None = None,
    facts: Sequence[Fact] = (),
) -> OpBatch:
    """Sort proposals into accepted and rejected ones, each in order.

    Accepted ops are normalised, rejected ones stay as proposed and carry a reason.
    `visible` are the items that the proposer was shown, by id. `chunk` is what it read;
    without one (a direct caller) sources and speakers are taken as given and nothing is
    trusted more than `actor_trust`. `existing_ids` tells an id that was not shown from
    one that does not exist.

    With a `guard`, ops of a language model about `facts` must be backed by what was told.
    Where it enforces this, each fact that no accepted op decides about, or that only
    deletes, is added with the reason.
    """
    validator = _Validator(visible, limits, Evidence(chunk, actor_trust, visible), existing_ids)
    accepted: list[MemoryOp] = []
    rejected: list[Rejected] = []
    doubts: list[Rejected] = []
    settled: set[int] = set()
    ended: Counter[int] = Counter()
    for op in proposed:
        try:
            if len(accepted) >= limits.max_ops:
                raise Refused(
                    RejectReason.TOO_MANY_OPS,
                    f"at most {limits.max_ops} ops are taken from one batch",
                )
            if guard is not None and (reason := validator.doubt(op, guard, facts, ended)):
                if guard.enforce:
                    raise Refused(RejectReason.UNGROUNDED, reason)
                doubts.append(_rejected(op, RejectReason.UNGROUNDED, reason))
            accepted.append(validator.checked(op).model_copy(update={"about": ()}))
        except Refused as refused:
            rejected.append(_rejected(op, refused.reason, refused.detail))
        else:
            ended.update(op.about if isinstance(op, Update | Delete) else ())
            settled.update(() if isinstance(op, Delete) else _places(op, facts))
    if guard is not None and guard.enforce:
        for place, fact in enumerate(facts):
            if place not in settled and len(accepted) < limits.max_ops:
                reason = _why_added(place, proposed, rejected)
                with suppress(Refused):  # what memory says already is not lost
                    accepted.append(validator.checked(Add(fact=fact, reason=reason)))
    return OpBatch(accepted=tuple(accepted), rejected=tuple(rejected), doubts=tuple(doubts))


def _places(op: MemoryOp, facts: Sequence[Fact]) -> tuple[int, ...]:
    """Return the places of the facts that an op decides about."""
    if op.about or not isinstance(op, Add | Noop):
        return tuple(place for place in op.about if place < len(facts))
    return tuple(place for place, fact in enumerate(facts) if fact == op.fact)


NOT_DECIDED: Final = "not decided"
"""The reason of a fact that no op names."""


def _rejected(op: MemoryOp, reason: RejectReason, detail: str) -> Rejected:
    return Rejected(reason=reason, detail=detail, op=op.model_copy(update={"about": ()}))


def _why_added(place: int, proposed: Sequence[MemoryOp], rejected: Sequence[Rejected]) -> str:
    """Say why a fact is added that no accepted op keeps."""
    op = next((op for op in proposed if place in op.about), None)
    if op is None:
        return NOT_DECIDED
    bare = op.model_copy(update={"about": ()})
    refused = next((entry for entry in rejected if entry.op == bare), None)
    if refused is not None:
        return f"{op.op} was refused: {refused.detail}"
    return f"it ends {op.id}" if isinstance(op, Delete) else NOT_DECIDED


def restates(fact: Fact, item: Fact | MemoryItem) -> bool:
    """Tell whether a fact says exactly what the other says.

    The words are the same, and no other speaker or time tells the two apart.
    """
    if folded(fact.text) != folded(item.text):
        return False
    statement = _Statement("", fact.speaker, fact.valid)
    return statement.repeats(_Statement("", item.speaker, item.valid))


@dataclass(frozen=True, slots=True)
class _Statement:
    """A live text's id, speaker and time, which tell two uses of the same words apart."""

    id: str
    speaker: str | None
    valid: TimeSpan | None

    def repeats(self, other: _Statement) -> bool:
        """Tell whether neither speaker nor time tells the two statements apart."""
        names = {folded(name) for name in (self.speaker, other.speaker) if name is not None}
        times = {_bounds(span) for span in (self.valid, other.valid) if span is not None}
        return len(names) < 2 and len(times) < 2


def _bounds(span: TimeSpan | None) -> tuple[datetime | None, datetime | None] | None:
    return None if span is None else (span.start, span.end)


def _refuse_reserved(op: Add | Update) -> None:
    metadata = op.metadata or {}
    reserved = [key for key in (*metadata, *(op.tags or ())) if key.startswith("_")]
    reserved += [key for key in metadata if key in _SYSTEM_KEYS]
    if reserved:
        raise Refused(
            RejectReason.SYSTEM_METADATA,
            f"{reserved[0]!r} is kept by the system and cannot be set",
        )


@dataclass(slots=True)
class _Validator:
    """One batch under validation, with what its earlier ops have claimed and said."""

    visible: Mapping[str, MemoryItem]
    limits: OpLimits
    source: Evidence
    existing_ids: Container[str]
    claimed: set[str] = field(default_factory=set[str])
    deletions: int = 0
    texts: dict[str, list[_Statement]] = field(default_factory=dict[str, list[_Statement]])

    def __post_init__(self) -> None:
        for item_id, item in self.visible.items():
            if item.active:
                self._note(item.text, _Statement(item_id, item.speaker, item.valid))

    def doubt(
        self, op: MemoryOp, guard: Guard, facts: Sequence[Fact], ended: Mapping[int, int]
    ) -> str:
        """Return what the guard holds against an op; "" for nothing."""
        shown = tuple(facts[place] for place in _places(op, facts))
        sources = op.source_turn_ids if isinstance(op, Update | Delete) else ()
        cited = dict.fromkeys(
            (*sources, *(name for fact in shown for name in fact.source_turn_ids))
        )
        if isinstance(op, Add):
            cited |= dict.fromkeys(op.fact.source_turn_ids)
        turns = [turn for name in cited if (turn := self.source.turns.get(name)) is not None]
        told = Told(
            shown,
            tuple(turn.said for turn in turns),
            tuple(dict.fromkeys(turn.speaker for turn in self.source.turns.values())),
        )
        item = None if isinstance(op, Add) else self.visible.get(op.id or "")
        times = max((ended.get(place, 0) for place in op.about), default=0)
        return guard.problem(op, item, told, ended=times)

    def checked(self, op: MemoryOp) -> MemoryOp:
        """Return the op, normalised. Raises `Refused`."""
        if op.op not in self.limits.allow:
            raise Refused(RejectReason.UNKNOWN_OP, f"this design does not use {op.op}")
        match op:
            case Add():
                return self._add(op)
            case Update():
                return self._update(op)
            case Delete():
                return self._delete(op)
            case Noop():
                if op.id is not None:
                    self._visible_item(op.id)
                return op

    def _add(self, op: Add) -> Add:
        if op.id is not None:
            self._check_new_id(op.id)
        _refuse_reserved(op)
        fact = op.fact
        text = self._checked_text(fact.text)
        sources = self.source.cited(fact.source_turn_ids, speaker=fact.speaker)
        self.source.require(sources, self.limits)
        statement = _Statement(op.id or "", self.source.speaker(fact.speaker, sources), fact.valid)
        self._refuse_repeat(text, statement)
        evidence = self.source.trust_of_addition(fact.model_copy(update={"text": text}), sources)
        own = self.source.chunk is None or fact.trust.rank > Trust.USER.rank
        fact = fact.model_copy(
            update={
                "text": text,
                "speaker": statement.speaker,
                "source_turn_ids": sources,
                "said_at": self.source.said_at(sources, fact.said_at),
                "trust": lowest_trust((evidence, fact.trust)) if own else evidence,
            }
        )
        self._note(text, statement)
        if op.id is not None:
            self.claimed.add(op.id)
        return op.model_copy(update={"fact": fact})

    def _update(self, op: Update) -> Update:
        item = self._target(op)
        _refuse_reserved(op)
        text = self._checked_text(op.text)
        named = [turn_id for turn_id in op.source_turn_ids if turn_id not in item.source_turn_ids]
        same_time = op.valid is None or _bounds(op.valid) == _bounds(item.valid)
        refiled = any(
            value is not None and value != getattr(item, name)
            for name, value in (("kind", op.kind), ("tags", op.tags), ("metadata", op.metadata))
        )
        if text == item.text and same_time and not named and not refiled:
            raise Refused(RejectReason.UNCHANGED, f"{op.id} says this already, on the same turns")
        sources = self.source.cited(op.source_turn_ids, older=item.source_turn_ids)
        self.source.require(sources, self.limits)
        statement = _Statement(op.id, item.speaker, op.valid or item.valid)
        self._refuse_repeat(text, statement)
        self._check_trust(item, self.source.trust_of_change(item, op, sources))
        self._claim(item, op.id)
        self._note(text, statement)
        return op.model_copy(
            update={"text": text, "version": item.version, "source_turn_ids": sources}
        )

    def _delete(self, op: Delete) -> Delete:
        item = self._target(op)
        if self.source.chunk is not None and self.deletions >= self.limits.max_deletes:
            raise Refused(
                RejectReason.TOO_MANY_OPS,
                f"at most {self.limits.max_deletes} items are deleted by one chunk",
            )
        sources = self.source.cited(op.source_turn_ids, older=item.source_turn_ids)
        self._check_trust(item, self.source.trust_of_change(item, op, sources))
        self._claim(item, op.id)
        self.deletions += 1
        return op.model_copy(update={"version": item.version, "source_turn_ids": sources})

    def _visible_item(self, item_id: str) -> MemoryItem:
        item = self.visible.get(item_id)
        if item is not None and item.active:
            return item
        if item is None and item_id in self.existing_ids:
            raise Refused(RejectReason.NOT_SHOWN, f"{item_id} was not shown to the proposer")
        raise Refused(RejectReason.UNKNOWN_ID, f"no item {item_id} is in memory")

    def _target(self, op: Update | Delete) -> MemoryItem:
        item = self._visible_item(op.id)
        if op.id in self.claimed:
            raise Refused(
                RejectReason.DUPLICATE_TARGET, f"an earlier op of this batch changes {op.id}"
            )
        if op.version is not None and op.version != item.version:
            raise Refused(
                RejectReason.STALE_VERSION,
                f"{op.id} was shown at version {item.version}, the op says {op.version}",
            )
        return item

    def _check_new_id(self, item_id: str) -> None:
        if not self.limits.allow_explicit_ids:
            raise Refused(RejectReason.ID_NOT_ALLOWED, "ids of new items are given by the system")
        if item_id in self.claimed or item_id in self.visible or item_id in self.existing_ids:
            raise Refused(RejectReason.DUPLICATE_TARGET, f"{item_id} exists already")

    def _checked_text(self, text: str) -> str:
        text = text.strip()
        if not text:
            raise Refused(RejectReason.EMPTY_TEXT, "the text is empty")
        if len(text) > self.limits.max_text_chars:
            raise Refused(
                RejectReason.TEXT_TOO_LONG,
                f"{len(text)} characters; at most {self.limits.max_text_chars} are allowed",
            )
        return text

    def _check_trust(self, item: MemoryItem, evidence: Trust) -> None:
        if evidence.rank > item.trust.rank:
            raise Refused(
                RejectReason.LOW_TRUST,
                f"evidence trusted as {evidence} cannot change an item trusted as {item.trust}",
            )

    def _refuse_repeat(self, text: str, statement: _Statement) -> None:
        for other in self.texts.get(folded(text), ()):
            if (other.id != statement.id or not statement.id) and other.repeats(statement):
                raise Refused(
                    RejectReason.DUPLICATE_TEXT,
                    f"{other.id or 'an earlier op of this batch'} says the same",
                )

    def _note(self, text: str, statement: _Statement) -> None:
        self.texts.setdefault(folded(text), []).append(statement)

    def _claim(self, item: MemoryItem, item_id: str) -> None:
        """Mark an item as written; its old text is free again."""
        self.claimed.add(item_id)
        key = folded(item.text)
        self.texts[key] = [other for other in self.texts.get(key, ()) if other.id != item_id]
