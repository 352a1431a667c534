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
them, versions filled in. The surprise: citing a trusted turn does not launder an
untrusted one. When a tool's or a stranger's turn in the chunk says more of a new text
than the cited turns do, the text counts as derived from that turn too.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

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
from memagent.core.records import Chunk, Fact, MemoryItem, TimeSpan, Trust, Turn, lowest_trust
from memagent.state.fold import folded
from memagent.state.tokens import tokenize

_SYSTEM_KEYS = frozenset({"id", "trust", "version"})
_NO_IDS: frozenset[str] = frozenset()


class _Refused(Exception):
    """An op that may not be carried out."""

    def __init__(self, reason: RejectReason, detail: str) -> None:
        super().__init__(detail)
        self.reason, self.detail = reason, detail


def validate_ops(
    proposed: Sequence[MemoryOp],
    *,
    visible: Mapping[str, MemoryItem],
    limits: OpLimits,
    chunk: Chunk | None = None,
    existing_ids: Container[str] = _NO_IDS,
    actor_trust: Trust = Trust.USER,
) -> OpBatch:
    """Sort proposals into accepted and rejected ones, each in order.

    Accepted ops are normalised, rejected ones stay as proposed and carry a reason.
    `visible` are the items that the proposer was shown, by id. `chunk` is what it read;
    without one (a direct caller) sources and speakers are taken as given and nothing is
    trusted more than `actor_trust`. `existing_ids` tells an id that was not shown from
    one that does not exist.
    """
    validator = _Validator(visible, limits, _Source(chunk, actor_trust), existing_ids)
    accepted: list[MemoryOp] = []
    rejected: list[Rejected] = []
    for op in proposed:
        try:
            if len(accepted) >= limits.max_ops:
                raise _Refused(
                    RejectReason.TOO_MANY_OPS,
                    f"at most {limits.max_ops} ops are taken from one batch",
                )
            accepted.append(validator.checked(op))
        except _Refused as refused:
            rejected.append(Rejected(reason=refused.reason, detail=refused.detail, op=op))
    return OpBatch(accepted=tuple(accepted), rejected=tuple(rejected))


class _Source:
    """The chunk that ops rest on, asked about the turns they cite."""

    def __init__(self, chunk: Chunk | None, actor_trust: Trust) -> None:
        self.chunk = chunk
        self.actor_trust = actor_trust
        self.turns: dict[str, Turn] = {turn.id: turn for turn in chunk.turns} if chunk else {}

    def cited(
        self, ids: Iterable[str], *, older: Container[str] = _NO_IDS, speaker: str | None = None
    ) -> tuple[str, ...]:
        """Return the cited turns, each once and in the chunk's order.

        When none is cited and only one can be meant, it is that one. `older` are turns
        of earlier chunks that an item rests on already: they may be named and are left
        out.
        """
        if self.chunk is None:
            return tuple(dict.fromkeys(ids))
        named = dict.fromkeys(
            turn_id for turn_id in ids if turn_id in self.turns or turn_id not in older
        )
        foreign = [turn_id for turn_id in named if turn_id not in self.turns]
        if foreign:
            raise _Refused(
                RejectReason.FOREIGN_TURN,
                f"turn {foreign[0]!r} is not part of chunk {self.chunk.id!r}",
            )
        if not named:
            able = [
                turn.id
                for turn in self.chunk.turns
                if speaker is None or folded(turn.speaker) == folded(speaker)
            ]
            return (able[0],) if len(able) == 1 else ()
        return tuple(turn_id for turn_id in self.chunk.turn_ids if turn_id in named)

    def require(self, ids: Sequence[str], limits: OpLimits) -> None:
        """Refuse an op that rests on no turn where turns are required."""
        if self.chunk is not None and limits.require_sources and not ids:
            raise _Refused(
                RejectReason.FOREIGN_TURN,
                "cites no turn of the chunk, and more than one could be meant",
            )

    def speaker(self, stated: str | None, ids: Sequence[str]) -> str | None:
        """Return the speaker of the cited turns, in the chunk's spelling."""
        if self.chunk is None:
            return stated
        spoken = list(dict.fromkeys(self.turns[turn_id].speaker for turn_id in ids))
        known = spoken or list(dict.fromkeys(turn.speaker for turn in self.chunk.turns))
        if stated is None:
            return spoken[0] if len(spoken) == 1 else None
        match = next((name for name in known if folded(name) == folded(stated)), None)
        if match is None:
            raise _Refused(
                RejectReason.FOREIGN_SPEAKER,
                f"{stated!r} did not say the cited turns; {', '.join(map(repr, known))} did",
            )
        return match

    def said_at(self, ids: Sequence[str], stated: datetime | None) -> datetime | None:
        """Return the latest date among the cited turns."""
        if self.chunk is None:
            return stated
        dates = [self.turns[turn_id].at or self.chunk.at for turn_id in ids]
        return max(filter(None, dates), default=stated)

    def trust(self, ids: Sequence[str], *, text: str, known: str = "", target: str = "") -> Trust:
        """Return the trust in the evidence for `text`.

        It is the lowest of the cited turns, or of the chunk when none is cited. Turns
        of tools and strangers count too when they say more of the text than the cited
        turns and `known` together, or when they name the item `target` by its id.
        """
        if self.chunk is None:
            return self.actor_trust
        cited = [self.turns[turn_id] for turn_id in ids] or list(self.chunk.turns)
        level = lowest_trust(turn.trust for turn in cited)
        floor = max(level.rank, Trust.ASSISTANT.rank)
        suspects = [turn for turn in self.chunk.turns if turn.trust.rank > floor]
        if not suspects:
            return level
        terms = set(tokenize(text))
        backed = len(terms & set(tokenize(" ".join((known, *(turn.said for turn in cited))))))
        behind = (
            turn.trust
            for turn in suspects
            if len(terms & set(tokenize(turn.said))) > backed or (target and target in turn.said)
        )
        return lowest_trust((level, *behind))


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


@dataclass(slots=True)
class _Validator:
    """One batch under validation, with what its earlier ops have claimed and said."""

    visible: Mapping[str, MemoryItem]
    limits: OpLimits
    source: _Source
    existing_ids: Container[str]
    claimed: set[str] = field(default_factory=set[str])
    texts: dict[str, list[_Statement]] = field(default_factory=dict[str, list[_Statement]])

    def __post_init__(self) -> None:
        for item_id, item in self.visible.items():
            if item.active:
                self._note(item.text, _Statement(item_id, item.speaker, item.valid))

    def checked(self, op: MemoryOp) -> MemoryOp:
        """Return the op, normalised. Raises `_Refused`."""
        if op.op not in self.limits.allow:
            raise _Refused(RejectReason.UNKNOWN_OP, f"this design does not use {op.op}")
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
        reserved = [key for key in (*op.metadata, *op.tags) if key.startswith("_")]
        reserved += [key for key in op.metadata if key in _SYSTEM_KEYS]
        if reserved:
            raise _Refused(
                RejectReason.SYSTEM_METADATA,
                f"{reserved[0]!r} is kept by the system and cannot be set",
            )
        fact = op.fact
        text = self._checked_text(fact.text)
        sources = self.source.cited(fact.source_turn_ids, speaker=fact.speaker)
        self.source.require(sources, self.limits)
        statement = _Statement(op.id or "", self.source.speaker(fact.speaker, sources), fact.valid)
        self._refuse_repeat(text, statement)
        evidence = self.source.trust(sources, text=text)
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
        text = self._checked_text(op.text)
        named = [turn_id for turn_id in op.source_turn_ids if turn_id not in item.source_turn_ids]
        same_time = op.valid is None or _bounds(op.valid) == _bounds(item.valid)
        if text == item.text and same_time and not named:
            raise _Refused(RejectReason.UNCHANGED, f"{op.id} says this already, on the same turns")
        sources = self.source.cited(op.source_turn_ids, older=item.source_turn_ids)
        self.source.require(sources, self.limits)
        statement = _Statement(op.id, item.speaker, op.valid or item.valid)
        self._refuse_repeat(text, statement)
        self._check_trust(
            item, self.source.trust(sources, text=text, known=item.text, target=op.id)
        )
        self._claim(item, op.id)
        self._note(text, statement)
        return op.model_copy(
            update={"text": text, "version": item.version, "source_turn_ids": sources}
        )

    def _delete(self, op: Delete) -> Delete:
        item = self._target(op)
        sources = self.source.cited(op.source_turn_ids, older=item.source_turn_ids)
        self._check_trust(item, self.source.trust(sources, text=item.text, target=op.id))
        self._claim(item, op.id)
        return op.model_copy(update={"version": item.version, "source_turn_ids": sources})

    def _visible_item(self, item_id: str) -> MemoryItem:
        item = self.visible.get(item_id)
        if item is not None and item.active:
            return item
        if item is None and item_id in self.existing_ids:
            raise _Refused(RejectReason.NOT_SHOWN, f"{item_id} was not shown to the proposer")
        raise _Refused(RejectReason.UNKNOWN_ID, f"no item {item_id} is in memory")

    def _target(self, op: Update | Delete) -> MemoryItem:
        item = self._visible_item(op.id)
        if op.id in self.claimed:
            raise _Refused(
                RejectReason.DUPLICATE_TARGET, f"an earlier op of this batch changes {op.id}"
            )
        if op.version is not None and op.version != item.version:
            raise _Refused(
                RejectReason.STALE_VERSION,
                f"{op.id} was shown at version {item.version}, the op says {op.version}",
            )
        return item

    def _check_new_id(self, item_id: str) -> None:
        if not self.limits.allow_explicit_ids:
            raise _Refused(RejectReason.ID_NOT_ALLOWED, "ids of new items are given by the system")
        if item_id in self.claimed or item_id in self.visible or item_id in self.existing_ids:
            raise _Refused(RejectReason.DUPLICATE_TARGET, f"{item_id} exists already")

    def _checked_text(self, text: str) -> str:
        text = text.strip()
        if not text:
            raise _Refused(RejectReason.EMPTY_TEXT, "the text is empty")
        if len(text) > self.limits.max_text_chars:
            raise _Refused(
                RejectReason.TEXT_TOO_LONG,
                f"{len(text)} characters; at most {self.limits.max_text_chars} are allowed",
            )
        return text

    def _check_trust(self, item: MemoryItem, evidence: Trust) -> None:
        if evidence.rank > item.trust.rank:
            raise _Refused(
                RejectReason.LOW_TRUST,
                f"evidence trusted as {evidence} cannot change an item trusted as {item.trust}",
            )

    def _refuse_repeat(self, text: str, statement: _Statement) -> None:
        for other in self.texts.get(folded(text), ()):
            if (other.id != statement.id or not statement.id) and other.repeats(statement):
                raise _Refused(
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
