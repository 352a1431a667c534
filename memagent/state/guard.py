"""The guard of a language model's ops: what they write is grounded, what they end is backed.

Pure. An UPDATE may only write words of the old memory, of its fact and of the turns the
fact rests on; names, numbers and denials strictly. An UPDATE or DELETE needs a fact that
speaks of the same subject and topic and is no joke, hearsay or plan, and one fact ends
at most one memory unless each is backed. An op that fails is refused, and its fact is
added instead, so nothing is lost. The surprise: the guard knows words, not meaning.
Whether two statements exclude each other is for `pair`, which has the last word where
it has one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Protocol

from memagent.core.ops import Add, Delete, MemoryOp, Noop, Update
from memagent.core.records import Fact, MemoryItem, TimeSpan
from memagent.language.vocabulary import COUNTS, NEGATION
from memagent.state.backing import glue, speaks_of
from memagent.state.fold import folded
from memagent.state.tokens import tokenize

ENDED_BACKED: Final = 0.6
"""A second memory ends by the same fact if the fact holds this share of its words."""
_ENDS = re.compile(
    r"\b(?:forget|delete|remove|erase|cancel|cancell?ed|sold|died|gave\s+away|passed\s+away|broke\s+up|divorced|split\s+up)\b",
    re.I,
)
_UNSURE = re.compile(
    r"\b(?:if|would|could|might|maybe|perhaps|kidding|joking|joke|just\s+kidding|lol|haha|dream(?:ed|t|s)?|imagine|suppose|pretend"
    r"|rumou?r|heard\s+that|they\s+say|apparently|supposedly|in\s+theory|someday|one\s+day|wish"
    r"|vielleicht|angeblich|scherz|wäre|würde|quizás|tal\s+vez|broma|ojalá|sería)\b",
    re.I,
)
_PLANS = re.compile(
    r"\b(?:will|going\s+to|plan(?:s|ning|ned)?\s+to|hopes?\s+to|wants?\s+to|thinking\s+(?:of|about)|considering)\b|['’]ll\b",
    re.I,
)
_ADDS = re.compile(
    r"\b(?:also|too|another|second|third|as\s+well|besides|still|auch|noch|también|otr[oa])\b", re.I
)
_NAME = re.compile(r"[^\W\d_]*[A-Z]\w*(?:['’]\w+)?")
_DIGITS = re.compile(r"\d+(?:[.,]\d+)*")
_WORD = re.compile(r"[^\W\d_]+")
_SENTENCE = re.compile(r"(?<=[.!?;\n])\s+")
_LIKES = frozenset(
    tokenize("love loves like likes enjoy enjoys adore favourite favorite prefer prefers")
)
_HATES = frozenset(tokenize("hate hates dislike dislikes detest avoid avoids allergic"))


class PairHead(Protocol):
    """Judges whether a new statement takes the place of an old one."""

    def __call__(self, old: MemoryItem, new: str, fact: Fact | None, /) -> bool | None:
        """Return True to back the change, False to refuse it, None to say nothing."""
        ...


@dataclass(frozen=True, slots=True)
class Told:
    """The words that an op rests on: its facts, and the turns these cite."""

    facts: tuple[Fact, ...]
    said: tuple[str, ...]
    """The cited turns as said."""
    speakers: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """All words."""
        return "\n".join((*(fact.text for fact in self.facts), *self.said))

    @property
    def stated(self) -> str:
        """The facts' words, or the turns' where there are none."""
        return "\n".join(fact.text for fact in self.facts) or "\n".join(self.said)

    @property
    def nearest(self) -> str:
        """The sentence of the turns that shares most words with the facts."""
        sentences = [part for text in self.said for part in _SENTENCE.split(text)]
        terms = frozenset(tokenize(self.stated))
        return max(sentences, key=lambda part: len(terms & set(tokenize(part))), default="")

    @property
    def basis(self) -> str:
        """The facts with the sentence that they come from."""
        return f"{self.stated}\n{self.nearest}"


@dataclass(frozen=True, kw_only=True)
class Guard:
    """Judges ops one by one."""

    pair: PairHead | None = None
    """Backs or refuses an UPDATE or DELETE by meaning, after the words were checked."""
    enforce: bool = True
    """Whether ops that fail are refused; else only their doubts are kept."""

    def problem(self, op: MemoryOp, item: MemoryItem | None, told: Told, *, ended: int) -> str:
        """Return why an op is not backed; "" when it is.

        `item` is what it changes or names, and `ended` how many memories its fact has
        ended before.
        """
        match op:
            case Add():
                rewritten = all(folded(fact.text) != folded(op.fact.text) for fact in told.facts)
                return ungrounded(op.fact.text, told, valid=op.fact.valid) if rewritten else ""
            case Noop():
                return _not_known(item, told) if item is not None and told.facts else ""
            case Update() | Delete():
                return self._of_change(op, item, told, ended) if item is not None else ""

    def _of_change(self, op: Update | Delete, item: MemoryItem, told: Told, ended: int) -> str:
        reason = _unfit(item, told)
        if not reason and isinstance(op, Update):
            reason = _bad_text(op, item, told)
        elif not reason:
            reason = _bad_end(item, told)
        if reason:
            return reason
        new = op.text if isinstance(op, Update) else told.stated
        fact = told.facts[0] if told.facts else None
        backed = self.pair(item, new, fact) if self.pair is not None else None
        if backed is False:
            return f"nothing says that it takes the place of {item.id}"
        if ended and not backed and _share(item, told) < ENDED_BACKED:
            return f"the fact has changed another memory, and does not name what {item.id} says"
        return ""


def ungrounded(
    text: str, told: Told, *, old: MemoryItem | None = None, valid: TimeSpan | None = None
) -> str:
    """Return which word of a new text stands neither in the old one nor in what was told."""
    known = "\n".join((old.text if old else "", told.text, *told.speakers, *_people(old, told)))
    terms = frozenset(tokenize(known, keep_stop_words=True)) | _dates(told, old, valid)
    numbers = _numbers(known) | {int(term) for term in _dates(told, old, valid) if term.isdigit()}
    if strange := sorted(_numbers(text) - numbers):
        return f"nobody told the number {strange[0]}"
    names = {term for match in _NAME.finditer(text) for term in tokenize(match[0])}
    for term in dict.fromkeys(tokenize(text)):
        free = term in glue() and term not in names and term not in _LIKES
        if term not in terms and not free and not term[:1].isdigit() and term not in _counted():
            kind = "name" if term in names else "word"
            return f"nobody told the {kind} {term!r}"
    if _denies(text) and not _denies(known):
        return "nobody denied it"
    return ""


def _unfit(item: MemoryItem, told: Told) -> str:
    """Return why what was told can change nothing: another subject, a joke, a question."""
    for fact in told.facts:
        subject, owner = fact.subject or fact.speaker, item.subject or item.speaker
        if not subject or not owner or _same(subject, owner):
            continue
        if not _named_in(subject, item.text) and not _named_in(owner, fact.text):
            return f"it is about {subject}, the memory about {owner}"
    basis = told.basis
    if _UNSURE.search(basis):
        return "what was told is not certain"
    if told.nearest.rstrip().endswith("?"):
        return "it was only asked"
    if _PLANS.search(told.stated) and not _PLANS.search(item.text):
        return "what was told is a plan"
    if not speaks_of(frozenset(_content(told.text, told)), _content(item.text, told)):
        return f"what was told does not speak of what {item.id} says"
    return ""


def _bad_text(op: Update, item: MemoryItem, told: Told) -> str:
    if reason := ungrounded(op.text, told, old=item, valid=op.valid):
        return reason
    old, new, fact = (_content(text, told) for text in (item.text, op.text, told.stated))
    fresh = new & (fact - old) or _numbers(op.text) - _numbers(item.text)
    if fact - old and not fresh and not (_denies(told.stated) and _denies(op.text)):
        return "the new text says nothing of the fact"
    if _denies(told.basis) and not _denies(op.text) and not (new - old):
        return "the new text leaves out the denial"
    if not speaks_of(new, old):
        return f"the new text does not speak of what {item.id} says"
    if new & _LIKES and not (old | fact | _content(told.text, told)) & _LIKES:
        return "nobody told a liking"
    lost = _values(item.text) - _values(op.text)
    if lost and not _values(told.stated) - _values(item.text) and not _denies(told.text):
        return f"the new text drops {sorted(lost)[0]!r}, and nothing stands against it"
    return ""


def _bad_end(item: MemoryItem, told: Told) -> str:
    ends = _denies(told.text) or _ENDS.search(told.text) is not None
    fact, old = _content(told.stated, told), _content(item.text, told)
    if not ends and (fact <= old or not speaks_of(fact, old)):
        return f"what was told does not stand against what {item.id} says"
    if not ends and _ADDS.search(told.basis):
        return "what was told comes beside it"
    if not ends and not (_values(told.stated) - _values(item.text)) and not _opposed(fact, old):
        return f"what was told names nothing in the place of what {item.id} says"
    return ""


def _not_known(item: MemoryItem, told: Told) -> str:
    """Return why a memory does not say a fact already."""
    for fact in told.facts:
        new, old = _content(fact.text, told), _content(item.text, told)
        if _numbers(fact.text) - _numbers(item.text) or (new and not speaks_of(new, old)):
            return f"{item.id} does not say it"
        if _denies(fact.text) != _denies(item.text) or _opposed(new, old):
            return f"{item.id} says the opposite"
        names = _values(fact.text) - _values(item.text) - _people_terms(told)
        if any(not term[:1].isdigit() for term in names):
            return f"{item.id} does not name {sorted(names)[0]!r}"
    return ""


# -- words -----------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _counted() -> frozenset[str]:
    return frozenset(term for word in COUNTS for term in tokenize(word))


def _numbers(text: str) -> set[int]:
    digits = {
        int(match.replace(",", "").split(".")[0])
        for match in _DIGITS.findall(text)
        if len(match) < 16
    }
    words = (word.lower() for word in _WORD.findall(text))
    return digits | {COUNTS[word] for word in words if word in COUNTS and word not in _ARTICLES}


_ARTICLES: Final = frozenset(("one", "ein", "un"))


def _denies(text: str) -> bool:
    return NEGATION.search(text) is not None


def _content(text: str, told: Told) -> frozenset[str]:
    return frozenset(tokenize(text)) - _people_terms(told)


def _people_terms(told: Told) -> frozenset[str]:
    return frozenset(term for name in (*told.speakers, "user") for term in tokenize(name))


def _people(old: MemoryItem | None, told: Told) -> Iterable[str]:
    records: Sequence[Fact | MemoryItem] = (*told.facts, *((old,) if old else ()))
    return [name for record in records for name in (record.subject, record.speaker) if name]


def _values(text: str) -> frozenset[str]:
    """Return the names and numbers of a text, its first word left out."""
    names = {term for match in _NAME.finditer(text) if match.start() for term in tokenize(match[0])}
    return frozenset(names | {str(number) for number in _numbers(text)})


def _opposed(first: frozenset[str], second: frozenset[str]) -> bool:
    return bool(first & _LIKES and second & _HATES) or bool(first & _HATES and second & _LIKES)


def _share(item: MemoryItem, told: Told) -> float:
    own = _content(item.text, told)
    return len(own & _content(told.text, told)) / len(own) if own else 0.0


def _same(first: str, second: str) -> bool:
    return bool(set(folded(first).split()) & set(folded(second).split()))


def _named_in(name: str, text: str) -> bool:
    return bool(set(tokenize(name)) & set(tokenize(text)))


def _dates(told: Told, old: MemoryItem | None, valid: TimeSpan | None) -> frozenset[str]:
    """Return the terms that write out the days which are told."""
    spans = [valid, *(fact.valid for fact in told.facts), old.valid if old else None]
    moments = [moment for span in spans if span for moment in (span.start, span.end) if moment]
    moments += [fact.said_at for fact in told.facts if fact.said_at]
    moments += [old.said_at] if old and old.said_at else []
    return frozenset(
        term for at in moments for term in tokenize(f"{at.year} {at:%B} {at:%b} {at:%A} {at.day}")
    )
