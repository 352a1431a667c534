"""Decides which proposed ops may be carried out, and which items pass a filter.

Never raises for what ops say. An op may touch only an item that was shown, at the
version that was shown, and may rest only on turns of the chunk. What the system knows
wins over what a model wrote: who said a turn, when, and how far it is trusted are read
from the cited turns. What an earlier op of the batch did counts for the later ones.

Invariants: every proposal is accepted, or rejected with a reason; at most one write an
item (a NOOP writes nothing); evidence of lower trust never updates or deletes an item of
higher trust; accepted ops are normalised: sources each once and in the chunk's order,
trust the lowest of the sources, `said_at` the latest of them, versions filled in.

What a replaced item said beside may be kept: an ADD of one of its statements, as said,
on the turn of old that said it (`clauses`). Citing a trusted turn does not launder
another: where the proposer also read texts of tools or strangers, an op has the trust of
its cited turns only if their words back what it would change (`backing`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from itertools import pairwise, repeat
from typing import TYPE_CHECKING, Final

from memagent.core import Later
from memagent.core.answers import Filter
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
from memagent.core.records import Chunk, Fact, MemoryItem, Trust, Turn, lowest_trust
from memagent.state.effects import tokenize
from memagent.state.fold import folded
from memagent.state.versions import Statement, bounds

if TYPE_CHECKING:
    from memagent.state import backing, clauses
    from memagent.state.backing import Guard, Words
else:
    backing, clauses = Later("memagent.state.backing"), Later("memagent.state.clauses")

LISTED: Final = ("speakers", "subjects", "kinds", "session_ids", "tags")
"""The fields of `Filter` that list values."""
TRUST: Final = "trust"
"""What items are filed under beside these, for `min_trust`."""


def filter_keys(item: MemoryItem) -> list[tuple[str, str]]:
    """Return the (field of `Filter`, value) pairs that an item is filed under."""
    named = (
        ("kinds", item.kind),
        (TRUST, item.trust.value),
        ("speakers", item.speaker),
        ("subjects", item.subject),
        ("session_ids", item.session_id),
        *zip(repeat("tags"), item.tags, strict=False),
    )
    return [(name, value) for name, value in named if value]


def allowed_values(where: Filter) -> dict[str, frozenset[str]]:
    """Return, for each name that a filter restricts, the values that pass."""
    allowed: dict[str, frozenset[str]] = {
        name: values for name in LISTED if (values := getattr(where, name))
    }
    if where.min_trust is not None:
        allowed[TRUST] = _AT_LEAST[where.min_trust]
    return allowed


_AT_LEAST: Final = {
    least: frozenset(level.value for level in Trust if level.rank <= least.rank) for least in Trust
}


def matches(item: MemoryItem, where: Filter) -> bool:
    """Tell whether an item passes a filter."""
    filed = filter_keys(item)
    for name, allowed in allowed_values(where).items():
        if not any(name == key and value in allowed for key, value in filed):
            return False
    if where.ids and item.id not in where.ids:
        return False
    if where.valid is not None and (item.valid is None or not item.valid.overlaps(where.valid)):
        return False
    return where.said is None or (item.said_at is not None and where.said.contains(item.said_at))


NO_IDS: Final[frozenset[str]] = frozenset()


class Refused(Exception):
    """An op that may not be carried out, or an entry of a reply that cannot be read."""

    def __init__(self, reason: RejectReason, detail: str) -> None:
        super().__init__(detail)
        self.reason, self.detail = reason, detail


def _refuse_if(wrong: object, reason: RejectReason, detail: str) -> None:
    """Raise `Refused` where something is wrong."""
    if wrong:
        raise Refused(reason, detail)


class Evidence:
    """The chunk that ops rest on, asked about the turns they cite."""

    def __init__(
        self, chunk: Chunk | None, actor_trust: Trust, visible: Mapping[str, MemoryItem]
    ) -> None:
        self.chunk = chunk
        self.actor_trust = actor_trust
        self.turns: dict[str, Turn] = {turn.id: turn for turn in chunk.turns} if chunk else {}
        self._read = [(turn.trust, turn.said) for turn in self.turns.values()]
        self._read += [(item.trust, item.text) for item in visible.values()]
        """Every text that the proposer read, with its trust."""
        self._words: dict[tuple[str, ...], Words] = {}
        self._terms: dict[str, frozenset[str]] = {}

    def cited(
        self,
        ids: Iterable[str],
        *,
        needed: bool = False,
        older: Container[str] = NO_IDS,
        speaker: str | None = None,
    ) -> tuple[str, ...]:
        """Return the cited turns, each once and in the chunk's order.

        When none is cited and only one can be meant, it is that one; otherwise the op is
        refused where a turn is `needed`. `older` are turns of earlier chunks that an item
        rests on already: they may be named and are left out.
        """
        if self.chunk is None:
            return tuple(dict.fromkeys(ids))
        named = dict.fromkeys(
            turn_id for turn_id in ids if turn_id in self.turns or turn_id not in older
        )
        foreign = [turn_id for turn_id in named if turn_id not in self.turns]
        if foreign:
            raise Refused(
                RejectReason.FOREIGN_TURN,
                f"turn {foreign[0]!r} is not part of chunk {self.chunk.id!r}",
            )
        if not named:
            able = [
                turn.id
                for turn in self.chunk.turns
                if speaker is None or folded(turn.speaker) == folded(speaker)
            ]
            _refuse_if(
                needed and len(able) != 1,
                RejectReason.FOREIGN_TURN,
                "cites no turn of the chunk, and more than one could be meant",
            )
            return (able[0],) if len(able) == 1 else ()
        return tuple(turn_id for turn_id in self.turns if turn_id in named)

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
            raise Refused(
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

    def trust_of_addition(self, fact: Fact, ids: Sequence[str]) -> Trust:
        """Return the trust in a new text."""
        return self._trust(
            ids,
            lambda words, suspects: backing.backs_addition(
                words, fact.text, suspect=self._terms_of(suspects), valid=fact.valid
            ),
        )

    def trust_of_change(self, item: MemoryItem, op: Update | Delete, ids: Sequence[str]) -> Trust:
        """Return the trust in a new wording or a deletion of an item.

        A suspect text that names the item by its id is behind the op in any case. What an
        assistant said changes what a user said only if the user confirms it.
        """

        def backs(words: Words, suspects: Sequence[str]) -> bool:
            if any(item.id in text for text in suspects):
                return False
            if isinstance(op, Delete):
                return backing.backs_deletion(words, item.text)
            valid = op.valid if op.valid != item.valid else None
            return backing.backs_change(words, old=item.text, new=op.text.strip(), valid=valid)

        level = self._trust(ids, backs)
        if self.chunk is None or item.trust.rank > Trust.USER.rank:
            return level
        own = self._own_words(ids)
        willed = own is not None and (
            backing.takes_back(own, item.text) if isinstance(op, Delete) else backs(own, ())
        )
        if level is Trust.ASSISTANT:
            return Trust.USER if willed else level
        spoken = [text for trust, text in self._read if trust is Trust.ASSISTANT]
        if level.rank > Trust.USER.rank or not spoken or willed:
            return level
        new = "" if isinstance(op, Delete) else op.text
        known = own.terms if own is not None else frozenset[str]()
        steered = backing.steers(spoken, old=item.text, new=new, known=known)
        return Trust.ASSISTANT if steered else level

    @cached_property
    def agreed(self) -> dict[str, str]:
        """Words of the turns that propose, and of those that agree, by id of the turn."""
        return {
            turn_id: words
            for before, turn in pairwise(self.chunk.turns if self.chunk is not None else ())
            if before.trust is Trust.ASSISTANT and turn.trust.rank <= Trust.USER.rank
            if (meant := backing.confirmed(before.said, turn.said))
            for turn_id, words in ((before.id, meant), (turn.id, f"{meant}\n{turn.said}"))
        }

    def _own_words(self, ids: Sequence[str]) -> Words | None:
        """Return the user's cited words, and those of an assistant that the user confirmed.

        None where a cited turn is an assistant's and was not confirmed in the next one.
        """
        assert self.chunk is not None
        turns = self.chunk.turns
        said: list[str] = []
        asked: list[str] = []
        answered: set[str] = set()
        for before, turn in zip((None, *turns), turns, strict=False):
            if turn.trust.rank > Trust.USER.rank:
                continue
            heard = before if before is not None and before.trust is Trust.ASSISTANT else None
            if heard and turn.id in self.agreed and {heard.id, turn.id} & set(ids):
                answered |= {heard.id, turn.id}
                said, asked = [*said, self.agreed[heard.id]], [*asked, ""]
            if turn.id in ids or turn.id in answered:
                answered.add(turn.id)
                said.append(turn.said)
                asked.append(backing.spoken_to(heard.said, turn.said) if heard else "")
        names = dict.fromkeys(turn.speaker for turn in turns if turn.trust.rank <= Trust.USER.rank)
        return (
            backing.Words(tuple(said), tuple(names), tuple(asked)) if answered >= set(ids) else None
        )

    def _trust(self, ids: Sequence[str], backs: Callable[[Words, Sequence[str]], bool]) -> Trust:
        """Return the lowest trust among the cited turns, or all when none is cited.

        Where the proposer read texts of tools or strangers that are trusted less, and
        the cited turns do not back the op, it is the lowest trust among these.
        """
        if self.chunk is None:
            return self.actor_trust
        cited = [self.turns[turn_id] for turn_id in ids] or list(self.chunk.turns)
        level = lowest_trust([turn.trust for turn in cited])
        floor = max(level.rank, Trust.ASSISTANT.rank)
        suspects = [(trust, text) for trust, text in self._read if trust.rank > floor]
        if not suspects or backs(self._words_of(cited), [text for _, text in suspects]):
            return level
        return lowest_trust(trust for trust, _ in suspects)

    def _words_of(self, cited: Sequence[Turn]) -> Words:
        key = tuple(turn.id for turn in cited)
        if key not in self._words:
            trusted = (turn for turn in self.turns.values() if turn.trust.rank <= Trust.USER.rank)
            speakers = dict.fromkeys(turn.speaker for turn in (*cited, *trusted))
            self._words[key] = backing.Words(tuple(turn.said for turn in cited), tuple(speakers))
        return self._words[key]

    def _terms_of(self, texts: Sequence[str]) -> frozenset[str]:
        for text in texts:
            if text not in self._terms:
                self._terms[text] = frozenset(tokenize(text))
        return frozenset[str]().union(*(self._terms[text] for text in texts))


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
    told: Callable[[str], Turn | None] | None = None,
) -> OpBatch:
    """Sort proposals into accepted and rejected ones, each in order.

    Accepted ops are normalised, rejected ones stay as proposed and carry a reason.
    `visible` are the items that the proposer was shown, by id. `chunk` is what it read;
    without one (a direct caller) sources and speakers are taken as given and nothing is
    trusted more than `actor_trust`. `existing_ids` tells an id that was not shown from
    one that does not exist. `told` finds turns of earlier chunks, by id. With a `guard`, a
    model's ops about `facts` must be backed by what was told; where it enforces this, each
    fact that no accepted op keeps is added with the reason; without one, if its update is refused.
    """
    source = Evidence(chunk, actor_trust, visible)
    validator = _Validator(visible, limits, source, existing_ids, told=told)
    accepted: list[MemoryOp] = []
    rejected: list[Rejected] = []
    doubts: list[Rejected] = []
    settled: set[int] = set()
    ended: Counter[int] = Counter()
    for op in proposed:
        try:
            _refuse_if(
                len(accepted) >= limits.max_ops,
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
    refusals = {entry.op.text: entry.detail for entry in rejected if isinstance(entry.op, Update)}
    for place, fact in enumerate(facts if guard is None or guard.enforce else ()):
        held = refusals.get(fact.text) if guard is None else None
        if (held or (guard and place not in settled)) and len(accepted) < limits.max_ops:
            why = _why_added(place, proposed, rejected) if guard else f"UPDATE was refused: {held}"
            with suppress(Refused):  # what memory says already is not lost
                accepted.append(validator.checked(Add(fact=fact, reason=why)))
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
    """Tell whether two have the same words, and no other speaker or time tells them apart."""
    if folded(fact.text) != folded(item.text):
        return False
    statement = Statement("", fact.speaker, fact.valid)
    return statement.repeats(Statement("", item.speaker, item.valid))


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
    texts: dict[str, list[Statement]] = field(default_factory=dict[str, "list[Statement]"])
    told: Callable[[str], Turn | None] | None = None
    replaced: dict[str, MemoryItem] = field(default_factory=dict[str, MemoryItem])
    """Items that an earlier op updates, by the id of each turn they rest on."""

    def __post_init__(self) -> None:
        for item_id, item in self.visible.items():
            if item.active:
                self._note(item.text, Statement(item_id, item.speaker, item.valid))

    def doubt(
        self, op: MemoryOp, guard: Guard, facts: Sequence[Fact], ended: Mapping[int, int]
    ) -> str:
        """Return what the guard holds against an op; "" for nothing."""
        if isinstance(op, Add) and self._kept(op) is not None:
            return ""
        shown = tuple(facts[place] for place in _places(op, facts))
        sources = op.source_turn_ids if isinstance(op, Update | Delete) else ()
        cited = dict.fromkeys(
            (*sources, *(name for fact in shown for name in fact.source_turn_ids))
        )
        if isinstance(op, Add):
            cited |= dict.fromkeys(op.fact.source_turn_ids)
        turns = [turn for name in cited if (turn := self.source.turns.get(name)) is not None]
        told = backing.Grounds(
            shown,
            (*(self.source.agreed.get(turn.id, turn.said) for turn in turns),),
            tuple(dict.fromkeys(turn.speaker for turn in self.source.turns.values())),
        )
        item = None if isinstance(op, Add) else self.visible.get(op.id or "")
        times = max((ended.get(place, 0) for place in op.about), default=0)
        return guard.problem(op, item, told, ended=times)

    def checked(self, op: MemoryOp) -> MemoryOp:
        """Return the op, normalised. Raises `Refused`."""
        unused = op.op not in self.limits.allow
        _refuse_if(unused, RejectReason.UNKNOWN_OP, f"this design does not use {op.op}")
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
            rule = "ids of new items are given by the system"
            _refuse_if(not self.limits.allow_explicit_ids, RejectReason.ID_NOT_ALLOWED, rule)
            taken = op.id in self.claimed or op.id in self.visible or op.id in self.existing_ids
            _refuse_if(taken, RejectReason.DUPLICATE_TARGET, f"{op.id} exists already")
        _refuse_reserved(op)
        fact = op.fact
        text = self._checked_text(fact.text)
        if (kept := self._kept(op)) is not None:
            known = Statement("", kept.fact.speaker, None)
            self._refuse_repeat(text, known)
            self._note(text, known)
            return kept
        needed = self.limits.require_sources
        sources = self.source.cited(fact.source_turn_ids, needed=needed, speaker=fact.speaker)
        speaker = self.source.speaker(fact.speaker, sources)
        statement = Statement(op.id or "", speaker, fact.valid)
        self._refuse_repeat(text, statement)
        evidence = self.source.trust_of_addition(fact.model_copy(update={"text": text}), sources)
        own = self.source.chunk is None or fact.trust.rank > Trust.USER.rank
        fact = fact.model_copy(
            update={
                "text": text,
                "speaker": speaker,
                "source_turn_ids": sources,
                "said_at": self.source.said_at(sources, fact.said_at),
                "trust": lowest_trust((evidence, fact.trust)) if own else evidence,
            }
        )
        self._note(text, statement)
        if op.id is not None:
            self.claimed.add(op.id)
        return op.model_copy(update={"fact": fact})

    def _kept(self, op: Add) -> Add | None:
        """Return an op that keeps a statement of an item updated before; None for any other."""
        turn_id = "".join(op.fact.source_turn_ids)
        item = self.replaced.get(turn_id) if op.id is None else None
        turn = self.told(turn_id) if self.told is not None else None
        if item is None or turn is None or turn_id in self.source.turns:
            return None
        return clauses.kept_part(op, item, turn)

    def _update(self, op: Update) -> Update:
        item = self._target(op)
        _refuse_reserved(op)
        text = self._checked_text(op.text)
        named = [turn_id for turn_id in op.source_turn_ids if turn_id not in item.source_turn_ids]
        same_time = op.valid is None or bounds(op.valid) == bounds(item.valid)
        refiled = any(
            value is not None and value != getattr(item, name)
            for name, value in (("kind", op.kind), ("tags", op.tags), ("metadata", op.metadata))
        )
        if text == item.text and same_time and not named and not refiled:
            raise Refused(RejectReason.UNCHANGED, f"{op.id} says this already, on the same turns")
        needed, older = self.limits.require_sources, item.source_turn_ids
        sources = self.source.cited(op.source_turn_ids, needed=needed, older=older)
        statement = Statement(op.id, item.speaker, op.valid or item.valid)
        self._refuse_repeat(text, statement)
        self._check_trust(item, self.source.trust_of_change(item, op, sources))
        self._claim(item, op.id)
        self._note(text, statement)
        self.replaced |= dict.fromkeys(item.source_turn_ids, item)
        return op.model_copy(
            update={"text": text, "version": item.version, "source_turn_ids": sources}
        )

    def _delete(self, op: Delete) -> Delete:
        item = self._target(op)
        _refuse_if(
            self.source.chunk is not None and self.deletions >= self.limits.max_deletes,
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
        claimed = f"an earlier op of this batch changes {op.id}"
        _refuse_if(op.id in self.claimed, RejectReason.DUPLICATE_TARGET, claimed)
        _refuse_if(
            op.version not in (None, item.version),
            RejectReason.STALE_VERSION,
            f"{op.id} was shown at version {item.version}, the op says {op.version}",
        )
        return item

    def _checked_text(self, text: str) -> str:
        text = text.strip()
        _refuse_if(not text, RejectReason.EMPTY_TEXT, "the text is empty")
        _refuse_if(
            len(text) > self.limits.max_text_chars,
            RejectReason.TEXT_TOO_LONG,
            f"{len(text)} characters; at most {self.limits.max_text_chars} are allowed",
        )
        return text

    def _check_trust(self, item: MemoryItem, evidence: Trust) -> None:
        _refuse_if(
            evidence.rank > item.trust.rank,
            RejectReason.LOW_TRUST,
            f"evidence trusted as {evidence} cannot change an item trusted as {item.trust}",
        )

    def _refuse_repeat(self, text: str, statement: Statement) -> None:
        for other in self.texts.get(folded(text), ()):
            if (other.id != statement.id or not statement.id) and other.repeats(statement):
                raise Refused(
                    RejectReason.DUPLICATE_TEXT,
                    f"{other.id or 'an earlier op of this batch'} says the same",
                )

    def _note(self, text: str, statement: Statement) -> None:
        self.texts.setdefault(folded(text), []).append(statement)

    def _claim(self, item: MemoryItem, item_id: str) -> None:
        """Mark an item as written; its old text is free again."""
        self.claimed.add(item_id)
        key = folded(item.text)
        self.texts[key] = [other for other in self.texts.get(key, ()) if other.id != item_id]
