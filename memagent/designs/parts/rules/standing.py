"""Which of several statements about the same thing stands for a question.

Pure. A question about how things are, or will be, is answered by the latest statement of
the same subject and predicate; a memory that was written or edited by hand comes before
any quote. Where a later statement of the same speaker ends or turns what the best one
tells of, it comes first and neither is sure. A question of before is never answered by
what came after. Questions of a time and of events ("when did") keep the order they have.

And what of a turn stands when new words take its place.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from operator import itemgetter
from typing import Final

from memagent.core.answers import Hit
from memagent.core.records import MemoryItem
from memagent.designs.parts.rules.statements import content, context_reason, stems
from memagent.language.vocabulary import BESIDE, RETRACTION, STAYING, TURNING
from memagent.memory.judging.certainty import Reading, Scored, tells_of_another
from memagent.memory.judging.evidence import Evidence, who_fits
from memagent.memory.question import (
    QuestionKind,
    QuestionView,
    content_terms,
)
from memagent.state.backing import GLUE, topics_of
from memagent.state.clauses import Clause, clauses_of
from memagent.state.effects import tokenize

# A later statement must be this likely, relative to the best.
_MIN_SHARE = 0.15
# Words of what ends, or turns to something else.
_ENDS = re.compile(
    rf"{RETRACTION.pattern}|\b(?:split|bro(?:ke|ken)\s+up|divorced|separated|left|lost|notice|died|dead|gone|retired"
    r"|resigned|fired|moved|moving|changed|switched|postponed|instead|(?:is|are|was)\s+over|passed\s+away"
    r"|started|starting|closed|getrennt|umgezogen|verschoben|gestorben|vorbei|mehr|statt|ya\s+no|separ\w+"
    r"|mudad?[oé]|murió|cambi\w+|dej[éo])\b",
    re.I,
)
# Words of how things were.
_WAS = re.compile(
    r"\b(?:was|were|had|used\s+to|before|formerly|previously|ago|left|first|went|grew"
    r"|\w{2,}ed|war|hatte\w*|früher|bis|\w+te|antes|hasta|era|tenía|\w+aba)\b",
    re.I,
)
# Words by which a statement tells of before and of after at once.
_FROM = re.compile(
    r"\b(?:from|before|used\s+to|previously|formerly|left|aus|vorher|früher|zuvor|antes|desde)\b",
    re.I,
)
_BEFORE = re.compile(
    r"\b(?:before|prior\s+to|bevor|vor|antes\s+de(?:l|\s+que)?)\s+(?P<what>[^?.!]+)", re.I
)
ENDED: Final = "a later statement may have ended it"
NOT_BEFORE: Final = "it does not tell of before"


def as_stands(
    reading: Reading,
    view: QuestionView,
    *,
    told: bool,
    near: Sequence[Evidence],
    rare: frozenset[str],
) -> Reading:
    """Return a reading with the statement in front that stands for a question of now or before.

    `told` says that memory tells what a question of before names; `near` are statements
    that share words with the best one, and `rare` the words that few memories say.
    """
    if not view.now:
        return reading if told or view.span is not None else _before(reading, view)
    best = reading.order[0]
    rivals = [entry for entry in reading.order if _rival(entry, best, view)]
    front = max([best, *rivals], key=lambda own: (own.evidence.by_hand, _said(own.evidence)))
    led = reading if front is best else _led(reading, front)
    known = (*(entry.evidence for entry in reading.order), *near)
    turning = [
        (-steps, _said(own), own)
        for own in known
        if (steps := _turns(own, front.evidence, view, rare)) is not None
    ]
    if not turning:
        return led
    latest = replace(front, evidence=max(turning, key=itemgetter(0, 1))[2])
    others = (own for own in led.chosen if own.evidence.hit.id != latest.evidence.hit.id)
    chosen = (latest, *others)[: max(2, len(led.chosen))]
    return replace(led, chosen=chosen, doubts=(*led.doubts, ENDED))


def _said(record: Evidence | MemoryItem) -> float:
    return record.said_at.timestamp() if record.said_at is not None else 0.0


def _led(reading: Reading, front: Scored) -> Reading:
    """Return a reading with another statement in front."""
    order = (front, *(entry for entry in reading.order if entry is not front))
    chosen = (front, *(entry for entry in reading.chosen if entry is not front))
    return replace(reading, order=order, chosen=chosen[: max(1, len(reading.chosen))])


def _turns(new: Evidence, old: Evidence, view: QuestionView, rare: frozenset[str]) -> int | None:
    """Return how nearly a later statement ends or turns what the best one tells of.

    A sentence of it has a word of turning, and names what is asked about or something of
    its topic: 0; or another word of the clause that answers: as many words as this one
    stands from those asked about. None where nothing of the kind is told.
    """
    mine = new.speaker == old.speaker and who_fits(new, view) >= min(who_fits(old, view), 0.5)
    if not mine or not new.current or old.by_hand or not 0.0 < _said(old) < _said(new):
        return None
    asked = set(view.terms)
    topics = frozenset[int]().union(*map(topics_of, asked))
    parts = [tokenize(own.text) for own in clauses_of(old.text)] or [tokenize(old.text)]
    told = max(parts, key=lambda terms: len(asked & set(terms)))
    places = [at for at, term in enumerate(told) if term in asked] or [0]
    steps: list[int] = []
    for sentence in _SENTENCE.findall(new.text):
        plain = _ALSO.sub("", sentence)
        turns = _ENDS.search(plain) or TURNING.search(plain)
        if BESIDE.search(plain) or STAYING.search(plain) or not (turns or _AGAIN.search(plain)):
            continue
        terms = set(tokenize(sentence))
        if asked & terms & rare or any(topics & topics_of(term) for term in terms):
            return 0
        shared = content(_ENDS.sub(" ", plain), but=_IDLE) & rare if turns else set[str]()
        spots = [at for at, term in enumerate(told) if term in shared]
        steps += [abs(at - place) for at in spots for place in places]
    return min(steps, default=None)


_SENTENCE = re.compile(r"[^.!?\n]+")
_ALSO = re.compile(
    r"^\W*(?:(?:also|and|plus|oh|außerdem|auch|también|además)\W+)+|\btoo\s+(?=\w)", re.I
)
_AGAIN = re.compile(r"\b(?:again|wieder|otra\s+vez)\b", re.I)
_IDLE = stems(
    "because since every each until after before while with without about during on day week"
    " weekend month year ago last next two three tag woche monat jahr día semana mes año"
)


def without_after(
    view: QuestionView, text: str, hits: Sequence[Hit]
) -> tuple[QuestionView, list[Hit], bool]:
    """Return a question of before without what came after, as "before Bradford" names it.

    Then the hits that may answer it, and whether that was told at all: what tells only of
    it, or was said later, cannot answer.
    """
    match = _BEFORE.search(text)
    after = set(content_terms(match["what"]) if match is not None else ()) & set(view.terms)
    terms = tuple(term for term in view.terms if term not in after)
    if not after or not terms:
        return view, list(hits), False
    naming = [hit for hit in hits if hit.item and after <= set(tokenize(hit.text))]
    latest = max((_said(hit.item) for hit in naming if hit.item), default=inf)
    able = [
        hit
        for hit in hits
        if (hit.item is None or _said(hit.item) <= latest)
        and (hit not in naming or _FROM.search(hit.text) or (hit.item and hit.item.version > 1))
    ]
    names = tuple(term for term in view.names if term not in after)
    return view.model_copy(update={"terms": terms, "names": names}), able, bool(naming)


def _before(reading: Reading, view: QuestionView) -> Reading:
    """Return a reading for a question of before: what holds now does not answer it.

    Of several present statements the earliest may; one that nothing followed is a doubt.
    """
    front = reading.order[0]
    if not front.evidence.current or _WAS.search(front.evidence.text):
        return reading
    rivals = [entry for entry in reading.order if _rival(entry, front, view)]
    first = min([front, *rivals], key=lambda own: _said(own.evidence))
    if first is front and not any(_said(own.evidence) > _said(front.evidence) for own in rivals):
        return replace(reading, doubts=(*reading.doubts, NOT_BEFORE))
    return _led(reading, first)


def _rival(entry: Scored, best: Scored, view: QuestionView) -> bool:
    """Say whether a statement is about the same subject and predicate as the best.

    Asked when something will be, one whose time is over, or that tells none, is not.
    """
    own, written = entry.evidence, entry.evidence.by_hand
    start = own.valid.start if own.valid is not None else None
    ahead = start is not None and start.timestamp() >= _said(own)
    if (
        entry is best
        or not own.current
        or entry.who < min(best.who, 1.0)
        or (view.kind is QuestionKind.WHEN and not ahead)
        or tells_of_another(view, own)
    ):
        return False
    if not written:
        alike = entry.cover >= best.cover - 0.1 and entry.share >= _MIN_SHARE * best.share
        return alike and own.speaker == best.evidence.speaker
    asked = set(view.terms)
    mine, theirs = (asked & set(tokenize(text)) for text in (own.text, best.evidence.text))
    return bool(mine) and mine >= theirs


_AM = re.compile(r"^['’]?(?:m|am|bin|soy)\s+(?:(?:now|a|an|the|jetzt|ahora)\s+)*(?=\w)", re.I)


def untouched(said: str, new: str) -> list[str]:
    """Return the statements of a turn that new words leave alone; [] where that is not clear.

    A statement is spoken of when its first topic, or where it has none a word of it, is
    among the new ones.
    """
    parts, words = clauses_of(said), content(new) - GLUE
    news = [own.predicate for own in clauses_of(new)] or [new]
    topics = frozenset[int]().union(*map(_topic, news))

    def spoken(part: Clause, text: str) -> bool:
        own = _topic(part.predicate)
        return bool(own & topics if own and topics else content(text) - GLUE & words)

    kept = [part for part in parts if not spoken(part, part.predicate)]
    if len(kept) == len(parts):
        kept = [part for part in parts if not spoken(part, part.text)]
    spared = len(kept) < len(parts)
    return [part.text for part in kept if spared and not context_reason(part.text)]


def _topic(predicate: str) -> frozenset[int]:
    """Return the first topic that a statement has; what somebody is counts as their work."""
    known = _AM.sub("work ", predicate.strip())
    return next((own for own in map(topics_of, tokenize(known)) if own), frozenset[int]())
