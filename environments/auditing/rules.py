"""The rules of an audit: when items repeat, exclude or outlive each other, or say nothing.

All are pure, go by words, records and dates, and ask no model. They are cautious: a
rule that cannot tell says no, so a rate is a lower bound of what a careful reader would
find. The surprise: an item's `valid` is when something happened or *began*, so a day
that is past does not make an item stale; only a span that was still running when it was
told, and has ended since, does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from environments.rewards.metrics import normalised
from memagent.core.records import Granularity, MemoryItem, TimeSpan

_WORD: Final = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_NUMBER_WORDS: Final = frozenset(
    "zero one two three four five six seven eight nine ten eleven twelve first second third "
    "half".split()
)
_NEGATIONS: Final = frozenset("not no never none nobody nothing neither cannot without".split())
_EMPTY_WORDS: Final = frozenset(
    "a about ah aha all alright alrighty also always am amazing an and any anyway are as at aw "
    "awesome aww back be been being best "
    "bet but by bye can catch chat cheers congrats congratulations cool could course day did do "
    "does doing done evening everything "
    "exactly fantastic fine for from fun glad go going good goodbye goodnight got great guess "
    "guy guys ha had haha hahaha happy has "
    "have he hear hello her here hey hi him his hmm hope how hows i if im in indeed interesting "
    "is it its just keep know later let "
    "lets like lol lot lots love lovely luck maybe me mean mine morning much my need nice night "
    "no nope not now of off oh ok okay on "
    "one ooh or our out perfect please pretty quite really right same say see she should so some "
    "something soon sorry sounds stuff "
    "super sure take talk thank thanks that thats the their them then there they thing things "
    "think this time to today tomorrow "
    "tonight too totally true u uh um up us very wait was way we welcome well were what whats "
    "when where which while who why will "
    "wish with wonderful would wow ya yay yeah yep yes yet you your youre yours".split()
)
"""Words of greeting, thanks, agreement and grammar: a text of these alone tells nothing."""


# -- the same --------------------------------------------------------------------------


def owner_of(item: MemoryItem) -> str:
    """Return an item's subject, else its speaker, in lower case; empty when neither is known."""
    return " ".join((item.subject or item.speaker or "").casefold().split())


def plain(text: str) -> str:
    """Return a text in the form for comparison: lower case, no punctuation, no articles."""
    return " ".join(normalised(text))


def exact_words(text: str) -> frozenset[str]:
    """Return the words that near-equal texts must share exactly.

    They are numbers, negations, and names (capitals not at the start of a sentence).
    """
    exact: set[str] = set()
    for match in _WORD.finditer(text):
        word = match.group()
        low = word.casefold().replace("’", "'")
        starts = (
            not text[: match.start()].rstrip(" \"'“‘(")
            or text[: match.start()].rstrip()[-1:] in ".!?\n"
        )
        if any(char.isdigit() for char in word) or low in _NUMBER_WORDS:
            exact.add(low)
        elif low in _NEGATIONS or low.endswith("n't"):
            exact.add("not")
        elif word[0].isupper() and not starts and low != "i" and not low.startswith("i'"):
            exact.add(low.removesuffix("'s"))
    return frozenset(exact)


def apart(a: MemoryItem, b: MemoryItem) -> bool:
    """Whether two items speak of times that share no moment.

    The same words on two days are two events.
    """
    return a.valid is not None and b.valid is not None and not a.valid.overlaps(b.valid)


# -- exclusive -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim about something that has one value at a time."""

    about: str
    """The person or thing, in lower case."""
    phrase: str
    value: str
    """As `plain` gives it."""
    holds: TimeSpan


_WHO: Final = (
    r"(?:^|(?<=[.!?;,]\s)|(?<=\band\s)|(?<=\bbut\s))"
    r"(?P<who>I|(?:[Mm]y|[Hh]is|[Hh]er|[Tt]heir|[Oo]ur)\s+[a-z]+(?:\s+(?!now|still|just|currently|al)[a-z]+)?|[A-Z][\w’'-]+(?:\s+[A-Z][\w’'-]+){0,2})"
)
_ADVERB: Final = r"(?:\s+(?:now|still|just|currently|already|always))?"
_VALUE: Final = r"\s+(?:an?\s+|the\s+)?(?P<value>[^.,;:!?()\n]+)"
_SINGLE: Final = tuple(
    (phrase, re.compile(f"{_WHO}{between}{_VALUE}"))
    for phrase, between in (
        ("lives in", rf"{_ADVERB}\s+(?:live|lives|living|(?:am|is)\s+living){_ADVERB}\s+in"),
        ("works as", rf"{_ADVERB}\s+(?:work|works|(?:am|is)\s+working){_ADVERB}\s+as"),
        ("works at", rf"{_ADVERB}\s+(?:work|works|(?:am|is)\s+working){_ADVERB}\s+(?:at|for)"),
        ("is married to", rf"(?:\s+(?:am|is)|'m|’m){_ADVERB}\s+married\s+to"),
        ("was born in", r"\s+was\s+born\s+(?:in|on)"),
        ("is called", rf"\s+is{_ADVERB}\s+(?:called|named)"),
        ("prefers", rf"{_ADVERB}\s+(?:prefer|prefers)"),
    )
)
_ATTRIBUTE: Final = re.compile(
    r"(?:^|(?<=[.!?;,]\s)|(?<=\band\s)|(?<=\bbut\s))"
    r"(?P<who>[Mm]y|[A-Z][\w-]+(?:\s+[A-Z][\w-]+)?['’]s)\s+"
    r"(?P<what>favou?rite\s+[a-z]+|name|birthday|age|job|address|phone\s+number|email(?:\s+address)?|surname|home\s+town|hometown)"
    r"\s+is(?:\s+now)?" + _VALUE
)
_VALUE_ENDS: Final = re.compile(
    r"\s+(?:with|since|and|but|now|for|because|as|so|when|where|while|until|again|anymore|these|this|at|from|after|to)\b.*$"
)
_SPAN_ENDS: Final = re.compile(r"\s*\(.*$")


def claim_of(item: MemoryItem) -> Claim | None:
    """Return the claim that a text makes about something that has one value at a time.

    Such are home, work, marriage, birth, name, a favourite, and so on.

    "I" and "my" are the item's subject, else its speaker; "my sister" is that person's.
    None for anything else, "she" included.
    """
    for phrase, pattern in _SINGLE:
        if match := pattern.search(item.text):
            return _claim(item, match["who"], phrase, match["value"])
    if match := _ATTRIBUTE.search(item.text):
        who, what = (
            match["who"],
            " ".join(match["what"].casefold().replace("favour", "favor").split()),
        )
        return _claim(item, "I" if who.casefold() == "my" else who[:-2], what, match["value"])
    return None


def _claim(item: MemoryItem, who: str, phrase: str, value: str) -> Claim | None:
    owner, said = owner_of(item), plain(_VALUE_ENDS.sub("", _SPAN_ENDS.sub("", value)))
    named = " ".join(who.casefold().split())
    if named == "i":
        about = owner
    elif named.startswith("my "):
        about = f"{owner}'s {named[3:]}" if owner else ""
    elif named.split()[0] in (
        "his",
        "her",
        "their",
        "our",
        "he",
        "she",
        "it",
        "they",
        "we",
        "you",
        "this",
        "that",
    ):
        return None
    else:
        about = owner if named == owner or owner.split()[:1] == [named] else named
    return Claim(about, phrase, said, _held(item)) if about and said else None


def _held(item: MemoryItem) -> TimeSpan:
    """Return the known span of a state.

    It goes on from its beginning; it ends only where a span was told.
    """
    valid = item.valid
    if valid is None:
        return TimeSpan()
    return valid if valid.granularity is Granularity.RANGE else TimeSpan(start=valid.start)


def exclude(a: Claim, b: Claim) -> bool:
    """Whether two claims cannot both be true.

    They have one subject, one phrase, times that overlap, and values of which neither
    holds the other.
    """
    if (a.about, a.phrase) != (b.about, b.phrase) or not a.holds.overlaps(b.holds):
        return False
    words, other = set(a.value.split()), set(b.value.split())
    return not (words <= other or other <= words)


# -- outlived, empty -------------------------------------------------------------------


def outlived(item: MemoryItem, *, now: datetime, plan_grace: timedelta) -> str | None:
    """Return why an item no longer holds by the calendar; None when it may.

    Its time to live is over; it is a plan whose day is past by more than `plan_grace`;
    or it is no event and told a span that was still running when it was said ("until
    Friday") and has ended.
    """
    if item.expired(now):
        return "its time to live is over"
    end = item.valid.end if item.valid is not None else None
    if item.valid is None or end is None or end > now:
        return None
    if item.kind == "plan":
        return "its plan's day is long past" if end + plan_grace <= now else None
    span = item.valid.granularity is Granularity.RANGE or item.valid.start is None
    running = (
        item.said_at is not None
        and item.said_at < end
        and (not item.valid.start or item.valid.start <= item.said_at)
    )
    return (
        "the time that it told has ended"
        if span and running and item.kind not in ("event", "turn", "passage")
        else None
    )


def says_nothing(text: str, *, names: Iterable[str] = ()) -> bool:
    """Whether a text has no word of content.

    Such texts are blank, or hold signs, greetings, thanks, agreement and the names of
    the speakers alone.
    """
    known = {word.casefold() for name in names for word in name.split()}
    words = (word.casefold().replace("’", "'") for word in _WORD.findall(text))
    return all(
        word in known
        or word.split("'")[0] in _EMPTY_WORDS
        or (word.isascii() and word.isalpha() and len(word) < 2)
        for word in words
    )
