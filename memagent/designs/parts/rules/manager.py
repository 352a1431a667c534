"""A manager for turns kept word for word, by rule.

It leaves questions, greetings and comments to the session as context, leaves out
repeats, follows plain self-corrections, and adds the rest.
Nothing is lost silently: whatever is not kept as an item of its own becomes a NOOP that
names the fact and the reason. No rule ever touches a statement of another speaker, or
one that is trusted more than the turn at hand.

Turns as facts, word for word, with the time a turn tells resolved against its date.

Rules that find a turn's self-correction and the earlier statement that it corrects.
Pure and English. A correction needs more than its cue: "Actually, that's great!" has
one, but shares no topic with an earlier statement and sets no value against another, so
it corrects nothing. Unclear cases are left alone; two statements side by side do less
harm than one that was overwritten by mistake.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from memagent.core import Later
from memagent.core.errors import EmbeddingError
from memagent.core.long_work import LARGE_CHARS, Slices, aside
from memagent.core.ops import Add, MemoryOp, Noop, Rejected, RejectReason, Update
from memagent.core.records import Chunk, Fact, MemoryItem, TimeSpan, Trust, Turn
from memagent.designs.base import Manager, Proposal, Related, SlotContext
from memagent.designs.parts.rules.statements import (
    CALENDAR,
    NUMBER,
    VALUES,
    content,
    context_reason,
    near_duplicate,
    stems,
    terms_of,
    time_told,
    values,
)
from memagent.language.vocabulary import CORRECTS, GAP
from memagent.protocols import Embedder
from memagent.state.effects import tokenize
from memagent.state.fold import folded
from memagent.state.validation import restates

if TYPE_CHECKING:
    from memagent.designs.parts.rules import standing
    from memagent.state import clauses
else:
    clauses = Later("memagent.state.clauses")
    standing = Later("memagent.designs.parts.rules.standing")


_MAX_CHARS = 1_800
_SENTENCE = re.compile(r"[^.!?\n]+[.!?\n]*\s*|[.!?\n]+\s*")
_OF_THE_USER = re.compile(r"^(?:the\s+)?user(['’]s)?\s+", re.I)


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
            and same_speaker(fact, hit.item)
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
            if same_speaker(fact, other) and (
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
            f"#{place}": other for place, other in self.added.items() if same_speaker(fact, other)
        }
        texts = {key: as_told(earlier.text) for key, earlier in (items | here).items()}
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


def speaker_of(record: Fact | MemoryItem) -> str:
    """Return who told a record, or whom it is of; what is written by hand is the user's own."""
    unsaid = "" if record.source_turn_ids else record.subject or "user"
    return record.speaker or unsaid


def as_told(text: str) -> str:
    """Return a text in its teller's person where it speaks of "the user": "I lives in Oslo"."""
    return _OF_THE_USER.sub(lambda match: "My " if match[1] else "I ", text)


def same_speaker(fact: Fact, other: Fact | MemoryItem) -> bool:
    """Tell whether a fact is told by whoever told another."""
    speaker = speaker_of(other)
    return bool(fact.speaker) and (
        fact.speaker == speaker or folded(fact.speaker or "") == folded(speaker)
    )


def _swapped_time(correction: Correction, old: Fact | MemoryItem) -> TimeSpan | None:
    """Resolve the old words with the day of the correction: "not Tuesday but Thursday"."""
    words = swapped(correction.clause, old.text)
    return time_told(words, old.said_at) if words is not None else None


# -- self-corrections --------------------------------------------------------------------


class Cue(StrEnum):
    """The way a turn announces that an earlier statement no longer stands."""

    MISTAKE = "mistake"
    """The earlier words were wrong: "I meant", "correction:", "not X but Y"."""
    ASIDE = "aside"
    """Maybe they were: "actually", "sorry, it's"."""
    CHANGE = "change"
    """They were right and the world has changed: "I've moved to", "no longer"."""


_WE = (
    r"\b(?:I|we)(?:['’](?:ve|m|re))?\s+(?:have\s+|am\s+|are\s+)?"
    r"(?:(?:just|finally|recently|now|also|even)\s+)?"
)
_MISTAKE = (
    r"\bcorrection\s*[:,–—-]",
    r"\bI\s+(?:actually\s+)?meant\b(?!\s+(?:to|it|that|every|well|no|a\s+lot)\b)",
    r"\bI\s+misspoke\b|\bmy\s+(?:mistake|bad)\b",
    r"\bI\s+(?:was|got\s+(?:it|that))\s+(?:wrong|mixed\s+up|confused)\b|\bI\s+mixed\s+(?:it|that|them)\s+up\b",
    r"(?<!like\s)(?<!as\s)\bI\s+(?:said|told\s+you)\b[^.?!]{0,300}\b(?:but|it['’]?s|it\s+(?:is|was))\b",
    r"\b(?:it['’]?s|it\s+is)\s+not\s+(?!just\b|only\b)[^.?!]{0,300}[,;]\s*(?:it['’]?s|it\s+is)\b",
    r"\bnot\s+(?!just\b|only\b)(?:(?:in|on|at|to|from|with|a|an|the)\s+)?[\w’'-]+,?\s+but\s+(?!(?:not|also|I|it|you|we|he|she|they|that|still|hey)\b)",
)
_CHANGE = (
    rf"{_WE}(?:moved|relocated|switched)\s+(?:in\s+)?(?:to|into|from|back|over|out)\b",
    r"\b(?:I|we)(?:['’](?:m|re))?\s+(?:don['’]t|do\s+not|am\s+not|are\s+not|not)\b[^.?!,;]{0,300}\bany\s*more\b",
    r"\b(?:I|we)(?:['’](?:m|re))?\s+(?:am\s+|are\s+)?no\s+longer\b",
    r"\bI(?:['’]ve|\s+have)?\s+changed\s+my\s+mind\b",
    rf"{_WE}(?:changed\s+(?:jobs|my\s+job)|quit\s+my\s+(?:old\s+)?job|left\s+my\s+(?:old\s+)?job|started\s+(?:a|my)\s+new\s+job)\b",
)
_ASIDE = (
    r"(?:^|[.!?]\s+|[,—–-]\s*)(?:oh|wait|no|sorry|hmm|well|oops)?[,.!\s—–-]{0,8}\bactually\b",
    r"\b(?:sorry|oops|I\s+mean|make\s+that)\b[,.!\s—–-]{0,20}(?:I\s+mean\s+)?(?:it['’]?s|it\s+(?:is|was)|that['’]?s|on|in|at)\b",
)
_CUES = tuple(
    (cue, re.compile("|".join(rules), re.I))
    for cue, rules in ((Cue.MISTAKE, _MISTAKE), (Cue.CHANGE, _CHANGE), (Cue.ASIDE, _ASIDE))
)
_CUE_WORDS = stems(
    "actually meant mean said told quick correction mistake wrong mixed confused longer "
    "anymore any more changed mind but not instead oops"
)
_ADDING = re.compile(
    r"\b(?:too|also|as\s+well|another|again|even|love|loved|great|amazing|awesome)\b", re.I
)
_FIRST_PERSON = re.compile(r"\b(?:I|we|my|our)\b", re.I)

_PLACE = (
    r"(?:(?i:an?|the|my|our|your)\s+)?(?:(?!of\b|with\b|for\b|and\b|but\b)[a-z]+\s+){0,2}?"
    r"(?:[A-Z][\w’'-]+|(?:apartment|flat|house|home|place|studio|city|town|village|country"
    r"|countryside|suburbs|island)\b)"
)
# Where one lives and what one works as: statements about these replace each other without
# sharing a word.
_TOPICS = (
    re.compile(
        rf"{_WE.replace('I|we', '(?i:I|we)')}(?:\w+\s+){{0,2}}"
        r"(?i:live|lived|living|based|settled|rent|renting|moved|relocated)"
        rf"\s+(?:[a-z]+\s+)?(?i:in|at|near|to|into)\s+{_PLACE}"
        r"|\b(?i:my|our)\s+(?:new\s+)?(?i:place|flat|apartment|home|house)"
        rf"\s+(?:is\s+)?(?:in|at|near)\s+{_PLACE}"
    ),
    re.compile(
        rf"{_WE}(?:\w+\s+){{0,2}}(?:work|worked|working|employed|hired)"
        r"\s+(?:\w+\s+)?(?:as|at|for)\b"
        r"|\bI(?:['’]m|\s+am)\s+(?:still\s+)?an?\s+[\w-]+(?:\s+[\w-]+)?\s+(?:at|for)\b"
        r"|\b(?:my|a)\s+(?:new\s+)?job\s+(?:is|as|at)\b"
        r"|\b(?:left|quit)\s+my\s+(?:old\s+)?job\b",
        re.I,
    ),
)
# Content terms that a correction must share with what it corrects when nothing else ties the
# two.
_MIN_SHARED = 2
# Least nearness in meaning of a correction's topic to a statement that shares no word.
_MIN_TOPIC_COSINE = 0.2
# The best match must be this many times better than the next.
_MIN_MARGIN = 1.1


@dataclass(frozen=True, slots=True)
class Candidate:
    """An earlier statement of the speaker that a correction may be about."""

    id: str
    text: str
    cosine: float = 0.0
    """Nearness in meaning to the correction's topic; 0 when unknown."""
    recent: bool = False
    """Said just before, in the same chunk."""


@dataclass(frozen=True, slots=True)
class Correction:
    """A cue with its clause: its sentence, and the next one where its own says too little."""

    cue: Cue
    clause: str

    def topic(self, names: Iterable[str] = ()) -> str:
        """Return the clause's own words; "" when it is terse.

        Its cue, its values (numbers, days, names) and the names of those present are
        left out.
        """
        bare = self.clause
        for rule in VALUES:
            bare = rule.sub(" ", bare)
        terms = content(bare, but=_CUE_WORDS | terms_of(names))
        return " ".join(word for word in bare.split() if terms & set(tokenize(word)))


def correction_in(text: str) -> Correction | None:
    """Find the self-correction that a turn announces; questions announce none.

    Of several, choose the first that gives a value.
    """
    corrections: list[Correction] = []
    for cue, rule in _CUES:
        for match in rule.finditer(text):
            start, end = _sentence(text, match.end() - 1)
            clause = text[start:end]
            if clause.rstrip().endswith("?"):
                continue
            if len(content(clause, but=_CUE_WORDS)) < 2 and end < len(text):
                clause = text[start : _sentence(text, end)[1]]
            corrections.append(Correction(cue, clause))
    return next(
        (
            correction
            for correction in corrections
            if any(rule.search(correction.clause) for rule in VALUES)
        ),
        corrections[0] if corrections else None,
    )


def corrected(
    correction: Correction, earlier: Sequence[Candidate], *, names: Iterable[str] = ()
) -> Candidate | None:
    """Find the one earlier statement of the same speaker that a turn corrects or outdates.

    Return None when there is no clear one. `names` of those present do not count as
    shared words.
    """
    own = terms_of(names)
    scores = [(_match(correction, candidate, own), candidate) for candidate in earlier]
    scores += [(0.0, None), (0.0, None)]  # there may be one candidate, or none
    (best, found), (second, _) = sorted(scores, key=lambda pair: -pair[0])[:2]
    return found if best > 0 and best >= _MIN_MARGIN * second else None


def _match(correction: Correction, earlier: Candidate, own: frozenset[str]) -> float:
    """Score how well an earlier statement fits a correction; 0 when it does not."""
    clause, there = correction.clause, content(earlier.text, but=own | _CUE_WORDS)
    here = content(clause, but=own | _CUE_WORDS)
    shared = len(here & there)
    if correction.cue is Cue.CHANGE:
        if topics := [rule for rule in _TOPICS if rule.search(clause)]:
            parts = [own.text.replace(GAP, " ") for own in clauses.clauses_of(earlier.text)]
            same_topic = any(
                rule.search(text) for rule in topics for text in (earlier.text, *parts)
            )
            return 1.0 + shared + earlier.cosine if same_topic else 0.0
        same_words = len(set(tokenize(clause)) & set(tokenize(earlier.text)) - own - _CUE_WORDS)
        plain = shared >= _MIN_SHARED or (shared == len(here) > 0)
        own_words = plain and _FIRST_PERSON.search(earlier.text)
        return 0.5 * (shared + same_words) + earlier.cosine if own_words else 0.0
    replaces = _replaces(clause, earlier.text)
    denies = not _denied(clause).isdisjoint(tokenize(earlier.text))  # as in "not Tuesday"
    if not (replaces or denies) or (correction.cue is Cue.ASIDE and _ADDING.search(clause)):
        return 0.0
    topic = set(tokenize(correction.topic())) - own
    if topic and not topic & there and earlier.cosine < _MIN_TOPIC_COSINE:
        return 0.0
    if not denies and shared < _MIN_SHARED and (topic or not earlier.recent):
        return 0.0
    return shared + denies + earlier.cosine + earlier.recent


def _replaces(text: str, earlier: str) -> bool:
    """Say whether both texts have a value of one sort (number, day, name), but another one."""
    pairs = ((set(values(text, rule)), set(values(earlier, rule))) for rule in VALUES)
    return any(new and old and not new <= old for new, old in pairs)


_DENIED = re.compile(
    r"\bnot\s+(?:(?:in|on|at|to|from|with|an?|the)\s+){0,2}([\w’'-]+)|\binstead\s+of\s+(?:an?\s+|the\s+)?([\w’'-]+)"
    r"|\bI\s+(?:said|told\s+you)\b([^.,;?!]*)",
    re.I,
)


def _denied(text: str) -> set[str]:
    return {
        term
        for match in _DENIED.finditer(text)
        for group in match.groups()
        if group
        for term in content(group)
    }


def swapped(clause: str, earlier: str) -> str | None:
    """Put a correction's day, month or number in place of the one in the earlier words.

    Return None unless each has just one.
    """
    taken_back = _denied(clause)
    for rule in (CALENDAR, NUMBER):
        old = {match.group() for match in rule.finditer(earlier)}
        new = {
            match.group()
            for match in rule.finditer(clause)
            if not set(tokenize(match.group())) & taken_back
        }
        if len(old) == 1 and len(new) == 1 and old != new:
            return earlier.replace(old.pop(), new.pop())
    return None


def _sentence(text: str, at: int) -> tuple[int, int]:
    start = max(text.rfind(mark, 0, at) for mark in ".!?\n") + 1
    ends = [end for mark in ".!?\n" if (end := text.find(mark, at)) >= 0]
    return start, min(ends) + 1 if ends else len(text)


def stands_alone(text: str) -> bool:
    """Say whether a correcting turn is clear without the words that it corrects."""
    return len(content(text, but=_CUE_WORDS)) >= 3


def restated_text(item: MemoryItem | Fact, text: str, *, limit: int = 2_000) -> str:
    """Return the new words of a corrected statement, with the old ones if they need them."""
    joined = f"{text}{CORRECTS}{item.text})"
    return text if stands_alone(text) or len(joined) > limit else joined
