"""Rules for keeping turns as they were said: what is worth keeping, what repeats, what corrects.

Pure, English, and made to err on the side of keeping: a turn that no rule is sure about becomes an item of its own. Only the same speaker
can repeat or correct a statement. The surprise: a correction needs more than its cue. "Actually, that's great!" has the cue but shares no
topic and sets no value against another, so it corrects nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from memagent.core.records import Fact, MemoryItem, TimeSpan
from memagent.memory.lexical import tokenize
from memagent.memory.state import folded

# -- worth keeping -----------------------------------------------------------------------------------------------------


def _stems(words: str) -> frozenset[str]:
    return frozenset(tokenize(words, keep_stop_words=True))


_SMALL_TALK = _stems(
    "hey hi hello howdy yo bye goodbye morning evening night afternoon welcome thanks thank thx ty please sorry yes yeah yep yup ya no nope nah ok okay "
    "alright sure right exactly absolutely definitely totally certainly indeed true agreed agree course cool nice great good awesome amazing "
    "wonderful fantastic lovely sweet super wow whoa woah oh ooh aww aw ah haha hahaha lol hmm hm mm uh um well so too much very really lot lots "
    "all always again soon later now then there here this that it glad happy hear hearing sound sounds see seeing talk talking chat chatting catch "
    "take care day one go going get got keep know let like love mean got same also more up out ha congrats congratulations luck best wishes wish "
    "appreciate kind word words support bet idea fun enjoy hope hoping looking forward have having had make makes made do doing done how what why "
    "who when where which about think tell say thing things anything something everything new else even just still back long time whats thats "
    "its im youre dont cant didnt doesnt youve ive weve theyre hows lets guess believe could yourself myself till until proud way cheers anytime "
    "problem worries worry any many some such mind actually"
)


def informative(text: str, *, names: Iterable[str] = ()) -> bool:
    """Whether a turn says anything beyond greeting, thanking, agreeing and the like; `names` of those present say nothing."""
    own = _terms_of(names)
    return any(term not in _SMALL_TALK and term not in own for term in tokenize(text)) or (not tokenize(text, keep_stop_words=True) and bool(text.strip()))


# -- repeats -----------------------------------------------------------------------------------------------------------

_NEGATION = re.compile(r"\b(?:not|no|never|none|nothing|nobody|neither|nor|without|cannot|no\s+longer)\b|n['’]t\b", re.I)
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|thirty|forty|fifty|hundred|thousand)\b", re.I)
_CALENDAR = re.compile(
    r"\b(?:mon|tues|wednes|thurs|fri|satur|sun)days?\b|\b(?:january|february|march|april|may|june|july|august|september|october|november|december)\b"
    r"|\b(?:today|tomorrow|yesterday|tonight|morning|afternoon|evening|spring|summer|autumn|fall|winter)\b|\b(?:last|next)\s+\w+",
    re.I,
)
_NAME = re.compile(r"(?<=[^.!?\s])\s+([A-Z][\w’'-]*[a-z][\w-]*)")


def overlap(first: str, second: str) -> float:
    """Jaccard overlap of two texts' index terms, stop words included: 0 to 1."""
    one, two = set(tokenize(first, keep_stop_words=True)), set(tokenize(second, keep_stop_words=True))
    return len(one & two) / len(one | two) if one | two else 0.0


def conflicting(first: str, second: str) -> bool:
    """Whether two texts differ in a number, a day or month word, a name inside a sentence, or in negation."""
    return any(values(first, rule) != values(second, rule) for rule in (_NUMBER, _CALENDAR, _NAME)) or bool(_NEGATION.search(first)) != bool(_NEGATION.search(second))


def values(text: str, rule: re.Pattern[str]) -> frozenset[str]:
    """What a rule finds in a text, folded."""
    return frozenset(folded(match.group(match.lastindex or 0)) for match in rule.finditer(text))


def same_time(first: TimeSpan | None, second: TimeSpan | None) -> bool:
    """Whether two statements are about the same time, or neither names one."""
    if first is None or second is None:
        return first is second
    return (first.start, first.end) == (second.start, second.end)


MIN_OVERLAP = 0.8
MIN_COSINE = 0.9
"""Two statements of one speaker are near duplicates when both are reached."""


def near_duplicate(fact: Fact, text: str, valid: TimeSpan | None, *, cosine: float | None) -> bool:
    """Whether a fact says again what `text` says: nearly the same words and meaning, the same time, nothing that conflicts.

    `cosine` is None when no vectors are at hand; then nearly all words must be the same.
    """
    if cosine is not None and cosine < MIN_COSINE:
        return False
    if not 0.7 <= (len(fact.text) + 8) / (len(text) + 8) <= 1.4:
        return False
    alike = overlap(fact.text, text) >= (MIN_OVERLAP if cosine is not None else 0.9)
    return alike and same_time(fact.valid, valid) and not conflicting(fact.text, text)


# -- corrections -------------------------------------------------------------------------------------------------------


class Cue(StrEnum):
    """How a turn announces that an earlier statement no longer stands."""

    MISTAKE = "mistake"
    """The earlier words were wrong: "I meant", "correction:", "not X but Y"."""
    ASIDE = "aside"
    """Maybe wrong, maybe nothing: "actually"."""
    CHANGE = "change"
    """They were right and the world has changed: "I've moved to", "no longer"."""


_CUES: tuple[tuple[Cue, re.Pattern[str]], ...] = (
    (
        Cue.MISTAKE,
        re.compile(
            r"\bcorrection\s*[:,–—-]|\bI\s+(?:actually\s+)?meant\b(?!\s+(?:it|that|every|well|no|a\s+lot))|\b(?:I\s+)?misspoke\b|\bmy\s+(?:mistake|bad)\b"
            r"|\bI\s+(?:was|got\s+(?:it|that))\s+(?:wrong|mixed\s+up|confused)\b|\bI\s+mixed\s+(?:it|that|them)\s+up\b"
            r"|(?<!like\s)(?<!as\s)\bI\s+(?:said|told\s+you)\b[^.?!]*\b(?:but|it['’]?s|it\s+(?:is|was))\b|\bit['’]?s\s+not\s+(?!just|only)[^.?!]*[,;]\s*it['’]?s\b"
            r"|\bnot\s+(?!just\b|only\b)(?:(?:in|on|at|to|from|with|a|an|the)\s+)?[\w’'-]+,?\s+but\s+"
            r"(?!not\b|also\b|I\b|it\b|you\b|we\b|he\b|she\b|they\b|that|still\b|hey\b)",
            re.I,
        ),
    ),
    (
        Cue.CHANGE,
        re.compile(
            r"\b(?:I|we)\s*(?:['’]ve|\s+have)?\s*(?:just\s+|finally\s+|recently\s+|now\s+)?(?:moved|relocated|switched)\s+(?:in\s+)?(?:to|into|from|back|over|out)\b"
            r"|\b(?:I|we)\s+(?:no\s+longer|don['’]t|do\s+not|am\s+not|are\s+not|can['’]t)\b[^.?!]*\bany\s*more\b|\b(?:I|we)(?:['’]m|\s+am|['’]re|\s+are)?\s+no\s+longer\b"
            r"|\bI['’]m\s+not\b[^.?!]*\bany\s*more\b|\bchanged\s+my\s+mind\b|\bI\s*(?:['’]ve|\s+have)?\s*(?:just\s+|recently\s+|finally\s+)?(?:changed\s+(?:jobs|my\s+job)"
            r"|quit\s+(?:my\s+job|smoking)|left\s+my\s+(?:old\s+)?job|started\s+(?:a|my)\s+new\s+job)\b|\b(?:we\s+broke\s+up|I\s+gave\s+up)\b",
            re.I,
        ),
    ),
    (Cue.ASIDE, re.compile(r"(?:^|[.!?]\s+|[,—–-]\s*)(?:oh|wait|no|sorry|hmm|well|oops)?[,.!\s—–-]*\bactually\b", re.I)),
)
_FIRST_PERSON = re.compile(r"\b(?:I|we|my|our)\b", re.I)
_ADDING = re.compile(r"\b(?:too|also|as\s+well|another|again|even|love|loved|great|amazing|awesome)\b", re.I)
_TOPICS: tuple[re.Pattern[str], ...] = (
    re.compile(
        r"\b(?:I|we)(?:['’]m|['’]re|['’]ve|\s+am|\s+are|\s+have)?\s+(?:\w+\s+){0,2}(?:live|lived|living|based|moved|relocated|settled|rent|renting)"
        r"\s+(?:\w+\s+)?(?:in|at|to|into|near|with)\b|\bmy\s+(?:new\s+)?(?:place|flat|apartment|home|house)\s+(?:is\s+)?(?:in|at|near)\b",
        re.I,
    ),
    re.compile(
        r"\b(?:I|we)(?:['’]m|['’]ve|\s+am|\s+have)?\s+(?:\w+\s+){0,2}(?:work|worked|working|employed|hired)\s+(?:\w+\s+)?(?:as|at|for)\b"
        r"|\bI(?:['’]m|\s+am)\s+an?\s+[\w-]+(?:\s+[\w-]+)?\s+(?:at|for)\b|\b(?:my|a)\s+(?:new\s+)?job\s+(?:is|as|at)\b|\bleft\s+my\s+(?:old\s+)?job\b",
        re.I,
    ),
)
"""Where one lives and what one works as: statements about these replace each other without sharing words."""
MIN_SHARED = 2
"""Content terms that a correction must share with what it corrects when no topic rule ties the two."""
MIN_TOPIC_COSINE = 0.2
"""How near in meaning a correction's topic must be to what it corrects when the two share no word of it."""
MIN_MARGIN = 1.1
"""How many times better than the next the best match must be."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An earlier statement of the speaker that a correction may be about."""

    id: str
    text: str
    cosine: float = 0.0
    """How near it is in meaning to the correction's topic; 0 when unknown."""
    recent: bool = False
    """Whether it was said just before."""


@dataclass(frozen=True, slots=True)
class Correction:
    """A cue with the clause it stands in: its sentence, and the next one where the cue's own says too little."""

    cue: Cue
    clause: str

    def topic(self, names: Iterable[str] = ()) -> str:
        """The clause's own words without its cue, its values (numbers, days, names) and the names of those present; "" when terse."""
        bare = self.clause
        for rule in (_NUMBER, _CALENDAR, _NAME):
            bare = rule.sub(" ", bare)
        return " ".join(sorted(_content(bare, _terms_of(names))))


def correction_in(text: str) -> Correction | None:
    """The first self-correction that a turn announces, or None; questions announce none."""
    for cue, rule in _CUES:
        for match in rule.finditer(text):
            start, end = _sentence(text, match.end() - 1)
            clause = text[start:end]
            if clause.rstrip().endswith("?"):
                continue
            if len(_content(clause, set())) < 2 and end < len(text):
                clause = text[start : _sentence(text, end)[1]]
            return Correction(cue, clause)
    return None


def corrected(correction: Correction, earlier: Sequence[Candidate], *, names: Iterable[str] = ()) -> Candidate | None:
    """The one earlier statement of the same speaker that a turn plainly corrects or outdates; None when there is no clear one.

    `names` of those present do not count as shared words.
    """
    own = _terms_of(names)
    scored = sorted(((_match(correction, one, own), one) for one in earlier), key=lambda pair: -pair[0])
    if not scored or scored[0][0] <= 0:
        return None
    if len(scored) > 1 and scored[1][0] > 0 and scored[0][0] < MIN_MARGIN * scored[1][0]:
        return None
    return scored[0][1]


def _match(correction: Correction, earlier: Candidate, own: set[str]) -> float:
    """How well an earlier statement fits a correction; 0 when it does not."""
    cue, clause = correction.cue, correction.clause
    shared = len(_content(clause, own) & _content(earlier.text, own))
    if cue is Cue.CHANGE:
        topics = [rule for rule in _TOPICS if rule.search(clause)]
        if topics:
            return 1.0 + shared + earlier.cosine if any(rule.search(earlier.text) for rule in topics) else 0.0
        return shared + earlier.cosine if shared >= MIN_SHARED and _FIRST_PERSON.search(earlier.text) else 0.0
    replaces, denies = _replaces(clause, earlier.text), _denies(clause, earlier.text)
    if not (replaces or denies) or (cue is Cue.ASIDE and _ADDING.search(clause)):
        return 0.0
    topic = set(tokenize(correction.topic()))
    on_topic = not topic - own or bool(topic & _content(earlier.text, own)) or earlier.cosine >= MIN_TOPIC_COSINE
    if not on_topic or (not denies and shared < MIN_SHARED):
        return 0.0
    return shared + denies + earlier.cosine + earlier.recent


def _terms_of(names: Iterable[str]) -> set[str]:
    return {term for name in names for term in tokenize(name, keep_stop_words=True)}


def _content(text: str, own: set[str]) -> set[str]:
    return {term for term in tokenize(text) if term not in own and (term not in _SMALL_TALK)} - _CUE_WORDS


_CUE_WORDS = _stems("actually meant said told correction mistake wrong mixed confused longer anymore any more changed mind but not instead")


def _replaces(text: str, earlier: str) -> bool:
    """Whether both texts have a value of one sort (number, day, name), and not the same one."""
    return any(new and old and not new <= old for rule in (_NUMBER, _CALENDAR, _NAME) for new, old in ((values(text, rule), values(earlier, rule)),))


_DENIED = re.compile(
    r"\bnot\s+(?:(?:in|on|at|to|from|with|an?|the)\s+){0,2}([\w’'-]+)|\binstead\s+of\s+(?:an?\s+|the\s+)?([\w’'-]+)|\bI\s+(?:said|told\s+you)\b([^.,;?!]*)", re.I
)


def _denied(text: str) -> set[str]:
    return {term for match in _DENIED.finditer(text) for group in match.groups() if group for term in tokenize(group)}


def _denies(text: str, earlier: str) -> bool:
    """Whether the text takes back a word of the earlier one: "not Tuesday", "I said Tuesday"."""
    return bool(_denied(text) & set(tokenize(earlier)))


def swapped(clause: str, earlier: str) -> str | None:
    """The earlier words with the day, month or number that a correction gives in place of theirs; None unless each has just one."""
    taken_back = _denied(clause)
    for rule in (_CALENDAR, _NUMBER):
        old = {match.group() for match in rule.finditer(earlier)}
        new = {match.group() for match in rule.finditer(clause) if not set(tokenize(match.group())) & taken_back}
        if len(old) == 1 and len(new) == 1 and old != new:
            return earlier.replace(old.pop(), new.pop())
    return None


def _sentence(text: str, at: int) -> tuple[int, int]:
    """Bounds of the sentence that holds the character at an offset."""
    start = max(text.rfind(mark, 0, at) for mark in ".!?\n") + 1
    ends = [end for mark in ".!?\n" if (end := text.find(mark, at)) >= 0]
    return start, min(ends) + 1 if ends else len(text)


def stands_alone(text: str) -> bool:
    """Whether a correcting turn says enough to be understood without the words it corrects."""
    return len(_content(text, set())) >= 3


def restated_text(item: MemoryItem | Fact, text: str, *, limit: int = 2_000) -> str:
    """The words a corrected statement is kept under: the new ones, with the old ones behind them when the new do not stand alone."""
    if stands_alone(text):
        return text
    joined = f"{text} (This corrects: {item.text})"
    return joined if len(joined) <= limit else text
