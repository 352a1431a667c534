"""Rules that tell a statement from what is only context: questions, greetings, comments.

Pure, and made to err on the side of keeping. The rules for greetings and comments know
English; a question ends with a question mark in any script, and a sentence in another
language that does not is a statement. The surprise: a question mark alone is not enough
("I moved to Porto, right?" states something).

Rules for keeping turns as they were said: worth, repetition, conflict.

Pure, English, and made to err on the side of keeping: a turn that no rule is sure about
becomes an item of its own. The surprise: a turn in another script has words that no
list here knows, so it always counts as worth keeping.

Words for evidence: the time it tells, the part to quote, the line with speaker and date.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import lru_cache

from memagent.core.records import Fact, Granularity, TimeSpan
from memagent.designs.parts.lines import day_text
from memagent.language.vocabulary import MONTHS, NEGATION, NUMBER, WEEKDAYS, any_of
from memagent.memory.judging.evidence import Evidence
from memagent.memory.question import Period, QuestionKind, QuestionView
from memagent.state.effects import stems, tokenize
from memagent.state.fold import folded
from memagent.state.versions import bounds
from memagent.timex.resolve import MAX_TURN_TIMES, TimeMention, find_times

# -- worth keeping ---------------------------------------------------------------------


# Index terms, remembered: words and statements come again with every turn near them.
_known_stems = lru_cache(maxsize=2_048)(stems)


SMALL_TALK = stems(
    """
    hey hi hello howdy yo bye goodbye morning evening night afternoon welcome thanks thank
    thx ty please sorry yes yeah yep yup ya no nope nah ok okay alright sure right exactly
    absolutely definitely totally certainly indeed true agreed agree course cool nice great
    good awesome amazing wonderful fantastic lovely sweet super wow whoa woah oh ooh aww aw
    ah haha hahaha lol hmm hm mm uh um well so too much very really lot lots all always again
    soon later now then there here this that it glad happy hear hearing sound sounds see
    seeing talk talking chat chatting catch take care day one go going get got keep know let
    like love mean same also more up out ha congrats congratulations luck best wishes wish
    appreciate kind word words support bet idea fun enjoy hope hoping looking forward have
    having had make makes made do doing done how what why who when where which about think
    tell say thing things anything something everything new else even just still back long
    time whats thats its im youre dont cant didnt doesnt youve ive weve theyre hows lets
    guess believe could yourself myself till until proud way cheers anytime problem worries
    worry any many some such mind actually
    """
)


def terms_of(names: Iterable[str]) -> frozenset[str]:
    """Return the index terms of people's names."""
    return frozenset[str]().union(*map(_known_stems, names))


def content(text: str, *, but: Iterable[str] = ()) -> set[str]:
    """Return a text's index terms without small talk and without the terms `but`."""
    return set(tokenize(text)) - SMALL_TALK - set(but)


def informative(text: str, *, names: Iterable[str] = ()) -> bool:
    """Say whether a turn goes beyond greeting, thanking, agreeing and the like.

    The `names` of those present say nothing.
    """
    if not tokenize(text, keep_stop_words=True):
        return bool(text.strip())
    return bool(content(text, but=terms_of(names)))


# -- repeats ---------------------------------------------------------------------------

CALENDAR = re.compile(
    rf"\b{any_of(*WEEKDAYS.values())}s?\b|\b{any_of(*MONTHS.values())}\b"
    r"|\b(?:today|tomorrow|yesterday|tonight|morning|afternoon|evening|spring|summer|autumn"
    r"|fall|winter)\b|\b(?:last|next)\s+\w+",
    re.I,
)
NAME = re.compile(r"(?<=[^.!?\s])\s+([A-Z][\w’'-]*[a-z][\w-]*)")
VALUES = (NUMBER, CALENDAR, NAME)
"""Values that a statement may have wrong: numbers, calendar words, names in a sentence."""


def overlap(first: str, second: str) -> float:
    """Return the Jaccard overlap of two texts' index terms, stop words included: 0 to 1."""
    terms, others = _known_stems(first), _known_stems(second)
    return len(terms & others) / len(terms | others) if terms | others else 0.0


def conflicting(first: str, second: str) -> bool:
    """Say whether two texts differ in negation, numbers, calendar words or names.

    Values count in their order; names count inside sentences only.
    """
    if bool(NEGATION.search(first)) != bool(NEGATION.search(second)):
        return True
    return any(values(first, rule) != values(second, rule) for rule in VALUES)


def values(text: str, rule: re.Pattern[str]) -> list[str]:
    """Return the matches of a rule in a text, folded, in order."""
    return [folded(match.group(match.lastindex or 0)) for match in rule.finditer(text)]


_MIN_OVERLAP = 0.8
# Two statements of one speaker are near duplicates when both are reached.
_MIN_COSINE = 0.9


def near_duplicate(fact: Fact, text: str, valid: TimeSpan | None, *, cosine: float | None) -> bool:
    """Say whether a fact repeats `text`, with the same time and nothing that conflicts.

    Words and meaning must be nearly the same. `cosine` is None when no vectors are at
    hand; then nearly all words must be the same.
    """
    return (
        (cosine is None or cosine >= _MIN_COSINE)
        and 0.7 <= (len(fact.text) + 8) / (len(text) + 8) <= 1.4
        and overlap(fact.text, text) >= (_MIN_OVERLAP if cosine is not None else 0.9)
        and bounds(fact.valid) == bounds(valid)
        and not conflicting(fact.text, text)
    )


_SENTENCE = re.compile(r"[^.!?\n]+[.!?]*\s*")
_LASTING = re.compile(r"^for\b.*?\b(day|week|month|year|decade)s?\b", re.I)


def time_told(text: str, said_at: datetime | None) -> TimeSpan | None:
    """Resolve the most telling time phrase of a text against `said_at`; None without any.

    A written-out date comes before a relative one, a past time before a coming one, a
    closed span before an open one. A date whose side is open tells no time.
    """
    mentions = _standing(text, said_at)
    if not mentions:
        return None

    def vagueness(mention: TimeMention) -> tuple[bool, bool, bool]:
        span = mention.span
        return (
            span.start is None or span.end is None,
            _ahead(mention, said_at) or span.granularity is Granularity.RANGE,
            mention.relative,
        )

    return _beginning(min(mentions, key=vagueness), said_at)


def time_for(evidence: Evidence, view: QuestionView) -> TimeSpan | None:
    """Return the time that the statement gives for the question.

    Of several, choose the one whose sentence shares most with the question.
    """
    mentions = _standing(evidence.text, evidence.said_at)
    if not mentions:
        return evidence.valid

    def fit(mention: TimeMention) -> tuple[int, bool]:
        shared = set(view.terms) & set(tokenize(_sentence_at(evidence.text, mention.start)))
        return len(shared), _ahead(mention, evidence.said_at) == view.ahead

    return _beginning(max(mentions, key=fit), evidence.said_at)


_TAKEN_BACK = re.compile(
    r"(?:\bnot|\binstead\s+of|\bI\s+(?:said|told\s+you)\b[^.,;?!]*)(?:\s+(?:in|on|at|for|the))*\s*$",
    re.I,
)


def _standing(text: str, said_at: datetime | None) -> list[TimeMention]:
    """Return the times of a text whose side is sure.

    Those that it takes back or names a thing by are dropped, unless none is left then:
    "not on Tuesday", "I said June", "last year's race".
    """
    times = find_times(text, anchor=said_at, most=MAX_TURN_TIMES)
    mentions = [mention for mention in times if not mention.open]
    standing = [
        mention
        for mention in mentions
        if not _TAKEN_BACK.search(text[max(0, mention.start - 60) : mention.start])
        and text[mention.end : mention.end + 2] not in ("'s", "’s")
    ]
    return standing or mentions


def _ahead(mention: TimeMention, said_at: datetime | None) -> bool:
    return said_at is not None and mention.span.start is not None and mention.span.start > said_at


def _beginning(mention: TimeMention, said_at: datetime | None) -> TimeSpan:
    """Return the beginning of a duration, and the own span of any other mention.

    "For three years", said in 2023, gives 2020.
    """
    span = mention.span
    match = _LASTING.match(mention.text)
    start, unit = span.start, match[1].lower() if match is not None else ""
    closed = span.granularity is not Granularity.RANGE or said_at is None
    if closed or start is None or not (unit == "year" or (unit == "month" and start.day == 1)):
        return span
    if unit == "year":
        end = datetime(start.year + 1, 1, 1, tzinfo=UTC)
    else:
        end = datetime(start.year + start.month // 12, start.month % 12 + 1, 1, tzinfo=UTC)
    return TimeSpan(start=start, end=end, granularity=Granularity(unit), text=span.text)


def _sentence_at(text: str, at: int) -> str:
    return next(
        (match.group() for match in _SENTENCE.finditer(text) if match.start() <= at < match.end()),
        text,
    )


def quote_from(text: str, terms: Sequence[str], *, limit: int = 320) -> str:
    """Quote a text word for word: all of it, or sentences in a row that cover most terms.

    A text of more than `limit` characters is cut.
    """
    if len(text.strip()) <= limit:
        return text.strip()
    sentences = [(match.start(), match.end()) for match in _SENTENCE.finditer(text)]
    best, most = (0, limit), -1
    for i, (start, first_stop) in enumerate(sentences):
        stop = min(first_stop, start + limit)
        for _, end in sentences[i + 1 :]:
            if end - start > limit:
                break
            stop = end
        covered = len(set(terms).intersection(tokenize(text[start:stop])))
        if covered > most:
            best, most = (start, stop), covered
    return text[best[0] : best[1]].strip()


_PLACES = re.compile(
    r"\b(?:live|lives|living|lived|move|moved|moving|relocated|settled|based|work|works|study|studies"
    r"|born|grew\s+up|went|go|travel(?:led|ed)?|flew|stay(?:ed|ing)?)\b[^.?!,;]{0,80}?\s(?:in|to|at|near)\s+"
    r"((?:the\s+)?[A-Z][\w’'-]+\u2024?(?:\s+[A-Z][\w’'-]+)*)"
)
# Short words whose full stop ends no sentence; it is read as U+2024.
_TITLE = re.compile(r"\b(St|Mt|Dr|Mr|Mrs|Ms|Prof)\.(?=\s+[A-Z])")
# Verbs of a place that somebody lives at; a job or a journey names another.
_LIVING = re.compile(r"liv|mov|reloc|settl|based|born|grew|stay", re.I)
_COUNTS = re.compile(
    rf"\b({NUMBER.pattern})\s+"
    r"(?:\w+\s+){0,2}?([a-z]+)",
    re.I,
)
_CALLED = re.compile(
    r"\b(?:called|named|name\s+is|name['’]s)\s+([A-Z][\w’'-]+(?:\s+[A-Z][\w’'-]+)?)"
)


def short_answer(evidence: Evidence, view: QuestionView) -> str:
    """Return the span that answers, "Porto.", where type and slot are certain; else "".

    Certain means: one place after a verb of place, one number before the noun that is
    counted, or one name after "called"; two different ones are not certain.
    """
    whole = _TITLE.sub("\\1\u2024", evidence.text)
    sentences = [match.group() for match in _SENTENCE.finditer(whole)]
    best = max(
        (len(set(view.terms) & set(tokenize(sentence))) for sentence in sentences), default=0
    )
    text = " ".join(
        sentence for sentence in sentences if len(set(view.terms) & set(tokenize(sentence))) == best
    )
    asked = set(view.terms)
    if view.kind is QuestionKind.WHERE:
        living = bool(asked & {"live", "home", "resid"})
        spans = [
            match[1]
            for match in _PLACES.finditer(text)
            if not living or _LIVING.match(match[0]) is not None
        ]
        spans = [span for span in spans if not _TAKEN.search(text[: text.index(span)])]
        spans = [] if view.period is Period.THEN and _LEAVING.search(text) else spans
    elif view.kind is QuestionKind.HOW_MANY:
        spans = [match[1] for match in _COUNTS.finditer(text) if asked & set(tokenize(match[2]))]
    elif "name" in asked or "call" in asked:
        spans = [match[1] for match in _CALLED.finditer(text)]
    else:
        return ""
    return f"{spans[0]}.".replace("\u2024", ".") if len(set(spans)) == 1 else ""


_LEAVING = re.compile(r"\bfrom\b", re.I)
_TAKEN = re.compile(r"(?:n['’]t|\bnot|\bno\s+longer|\bused\s+to|\bleft)\b[^.?!,;]*$", re.I)


def said_line(speaker: str | None, said_at: datetime | None, quote: str) -> str:
    """Write speaker, day and words: `Anna said on 8 May 2023: "..."`."""
    when = f" on {day_text(said_at)}" if said_at is not None else ""
    return f'{speaker or "It was"} said{when}: "{quote}"'


_STATEMENTS_SENTENCE = re.compile(r"[^.!?\uff1f\u061f\u3002\n]+[.!?\uff1f\u061f\u3002\n]*")
# Rules read so many characters of a sentence.
_MAX_SENTENCE = 1_000
_ASKS = re.compile(r"[?\uff1f\u061f\u055e\u2e2e\u037e]")
_OPENING = (
    r"^(?:(?:hey|hi|hello|wow|whoa|woah|oh|ooh|aww?|ah|m+|woohoo|yay|ouch|oof|well|yeah|yes|yep|yup|no|so|and|but|ok|okay"
    r"|haha|lol|cheers|man|dude|buddy|sure|thanks|right|btw|also|anyway|definitely|absolutely|totally|plus)\b[\s,.!\u2013\u2014-]*)*"
)
# A sentence with a question mark that tells something: "I moved to Porto, right?".
_DECLARED = re.compile(
    _OPENING
    + r"(?:(?:I|we)(?:['\u2019](?:m|ve|ll|d|re))?\s+(?!(?:was\s+)?wonder)\w+|(?:my|our)\s+\w+)"
    r"|\b(?:did|have|haven['\u2019]t|didn['\u2019]t)\s+I\s+(?:ever\s+|already\s+)?(?:tell|told|mention|mentioned|say|said)\b"
    r"|\bdo\s+you\s+remember\s+(?:that|when|how)\s+(?:I|we|my|our)\b",
    re.I,
)
# A question that proposes a date: "Say, the second weekend of October?".
_PROPOSED = re.compile(
    r"\b(?:say|how\s+about|what\s+about|shall\s+we|let['\u2019]?s)\b.{0,300}(?:\d|\b(?:"
    rf"{any_of(*WEEKDAYS.values(), *MONTHS.values())}|tomorrow)\b)",
    re.I,
)
_OWN_WORDS = re.compile(r"\b(?:I|me|my|mine|myself|we|us|our|ours)\b", re.I)
_POLITE = re.compile(
    r"\bI(?:['\u2019]m|\s+am|['\u2019]ll\s+be|\s+was)\s+(?:(?:so|really|very|truly|just|super|always|also|too)\s+)*"
    r"(?:glad|happy|proud|sorry|sure|impressed|thrilled\s+(?:for|to\s+hear)|excited\s+(?:for\s+you|to\s+(?:see|hear))"
    r"|here\s+(?:for|to)|rooting|cheering|in\s+your\s+corner|all\s+ears|grateful\s+(?:for\s+(?:you|your)|to\s+have\s+you))\b"
    r"|\bI\s+(?:(?:totally|completely|really|do|truly|also|just|absolutely|definitely|couldn['\u2019]t)\s+)*"
    r"(?:agree|understand|hear\s+you|get\s+it|get\s+that|see|appreciate|hope|bet|wish|admire|believe|guess|know"
    r"|love\s+(?:that|it|how\s+you|your|hearing|seeing)|like\s+(?:that|how\s+you|your)|think\s+(?:you|that['\u2019]?s|it['\u2019]?s)"
    r"|can\s+(?:see|imagine|tell|understand|relate)|can['\u2019]t\s+(?:wait|imagine|believe)|have\s+no\s+doubt|feel\s+you"
    r"|look\s+forward|can\s+picture|won['\u2019]t\s+give\s+up)\b"
    r"|\bI(?:['\u2019]m|\s+am)\s+(?:\w+\s+)?(?:around\s+for\s+you|(?:pumped|stoked|excited|thrilled)\s+(?:for\s+you|to\s+(?:hear|see|learn)))\b"
    r"|\bI(?:['\u2019]d|\s+would)\s+(?:\w+\s+)?love\s+to\s+(?:check|hear|see|know|learn\s+more)\b|\bI['\u2019]m\s+(?:curious|up\s+for|gonna\s+(?:make\s+it|keep))\b"
    r"|\bI\s+(?:won['\u2019]t|will\s+not)\s+(?:quit|stop)\b|\bI(?:['\u2019]ll|\s+will)\s+(?:reach\s+out|watch|be\s+there|keep)\b"
    r"|\bI(?:['\u2019]ll|\s+will)\s+(?:\w+\s+)?(?:let\s+you\s+know|keep\s+you|check\s+(?:it|them|that)|have\s+(?:a\s+blast|fun)|do\s+my\s+best|try\s+my\s+best)\b"
    r"|\b(?:keep|tell|show|let|give|join|inspire|reminds|inspires|motivates)\s+(?:me|us)\b"
    r"|\b(?:makes?|shows?|helps?|helping|reminds?|connects?|lets?|brings?|gives?|to)\s+us\b.*"
    r"|\bwe(?:['\u2019]re|['\u2019]ve)?\s+(?:all|should|can|could|must|need\s+to|got\s+this|in\s+this)\b.*|\bours(?:elf|elves)\b|\bour\s+(?:passions?|dreams?|goals?|lives|true|own)\b"
    r"|\b(?:mean|means|meant)\s+(?:\w+\s+){1,3}to\s+(?:me|us)\b|\b(?:having|have|got)\s+my\s+back\b"
    r"|\b(?:we|I)(?:['\u2019]ll)?\s+(?:can\s+|will\s+|should\s+|have\s+to\s+)?(?:catch\s+up|talk|chat|got\s+this|do\s+(?:this|it))\b",
    re.I,
)
_GOOD = (
    r"(?:great|good|nice|cool|awesome|amazing|wonderful|fantastic|lovely|sweet|super|incredible|beautiful"
    r"|gorgeous|stunning|adorable|cute|fun|interesting|exciting|inspiring|impressive|perfect|excellent|brilliant"
    r"|terrible|awful|sad|tough|hard|rough|scary|sick|neat|fab|fabulous|delicious|yummy|true|right|okay|ok|fine"
    r"|important|essential|so|really|pretty|such|always|quite|very|totally|absolutely|always|like|a\s+(?:great|good|nice|lovely|cool|real|tough|perfect|wonderful))"
)
_STRONG = (
    r"(?:a\s+(?:great|cool|good|nice|smart|real|wonderful|big)|great|awesome|amazing|always\\s+cool|wonderful|cool|fantastic|incredible"
    r"|beautiful|inspiring|impressive|perfect|important|so\s+important|worth|super|so\s+(?:cool|special|fun|good|great|rewarding)|(?:really\s+)?(?:special|cool|rewarding|inspiring)"
    r"|(?:always\s+|so\s+|really\s+)*(?:much\s+)?fun|the\s+best|a\s+(?:huge|special|must))"
)
_COMMENT = re.compile(
    _OPENING + r"(?:\w+[,!]\s+)?(?:"
    rf"(?:that|this|it|these|those|they)(?:['\u2019]?s|['\u2019]?re|\s+is|\s+are|\s+was|\s+were|\s+must|\s+can|\s+will|['\u2019]ll|\s+has|\s+have|\s+really)?\s+(?:be\s+|been\s+|have\s+been\s+)?{_GOOD}\b"
    r"|(?:that|this|it|these|they|which)\s+(?:all\s+)?(?:sounds?|looks?|seems?|feels?|must)\b|(?:sounds?|looks?|seems?|must(?:['\u2019]ve)?)\b"
    r"|that['\u2019]?s\s+(?:\w+\W*){1,3}$|that\s+(?:rocks|rules|helps|works|counts|makes\s+sense)|recommend\b|add\s+it\b|check\s+(?:it|them|that)\b"
    rf"|\w+ing\s.*\b(?:is|are|can\s+be|must\s+be)\s+(?:\w+\s+)?(?:{_STRONG})\b|that['\u2019]s\s+an?\s+(?:gorgeous|beautiful|huge)\b"
    r"|(?:\w+\s+){1,3}(?:really|sure|definitely)\s+(?:do|does|has|have|is|are|can|makes?|helps?|shows?|brings?)\b|life['\u2019]?s\b|nothing\b|(?:seeing|hearing|exploring|having)\b.*\b(?:is|are|must)\b"
    rf"|(?:that|this|those|these)\s+(?:\w+\s+){{1,6}}(?:is|are|looks?|sounds?)\s+(?:\w+\s+)?(?:gorgeous|{_STRONG})\b"
    r"|(?:go\s+for|give\s+it)\b|what\s+an?\b|how\s+(?:\w+)\b|you\b|you['\u2019]\w+|your\b|yours\b|congrat\w*|way\s+to\s+go|good\s+(?:for|luck|job|on|to)"
    r"|best\s+of|keep\s+(?:it\s+up|going|up|push\w*|at\s+it|on|in|shining|believing|rock\w*|chasing|me|us|working|moving|striving|doing|up)\b|hang\s+in|don['\u2019]?t\s+(?:give|worry|forget|let|be|stop|sweat|hesitate|mention|ever)\b|never\s+(?:give|stop|forget|mind|say)\b|(?:just\s+)?(?:remember|believe|imagine)\b|can['\u2019]?t\s+wait|enjoy\b|take\s+(?:care|it|your|a\s+break|breaks|that|this)\b"
    r"|have\s+(?:fun|a\b)|stay\b|glad|happy|sorry|nice|cool|great|awesome|amazing|wonderful|fantastic|lovely|excited|proud"
    r"|love\s+(?:that|it|the|your|how|this)|wishing|best|hope|hopefully|let['\u2019]?s|thanks|thank|appreciate|no\s+(?:doubt|problem|worries)"
    r"|(?:see|talk|speak)\s+(?:you|to|soon|later)|feel\s+free|welcome|(?:that|this)\b(?=\W*$)|believe\s+in|go\s+for|can\s+you"
    rf"|(?:\w+(?:s|ing)\s+|(?:\w+[-\s]+){{2,8}})(?:is|are)\s+(?:\w+\s+)?(?:key|{_STRONG})\b"
    r"|(?!please\b|always\b|never\b|don['\u2019]?t\b|use\b|call\b|answer\b|reply\b|write\b|been\b|got\b|went\b|had\b|just\b|still\b|saw\b|took\b|bought\b|found\b|met\b|made\b|\w+ed\b|\w+ing\b).*\b(?:you|your|yours|you['\u2019]\w+)\b|(?:lucky|kudos|props|woohoo|yum|yikes|cheers|chase|push|trust|just\s+keep)\b"
    r"|it['\u2019]?s\s+(?:worth|all\s+about|the\s+(?:little|best|least))|agreed|exactly|same\s+here|of\s+course|make\s+sure|reach\s+out|there['\u2019]?s\s+(?:nothing|always))",
    re.I,
)
_PEP_TALK = stems(
    """
    support encouragement encourage mean dream goal push forward hard work pay passion inspire
    inspiring inspiration motivate motivated motivation determine determined positive proud
    rewarding tough rough effort believe success special important excited excite heart life
    grateful thankful blessed huge pumped stoked thrilled ready moment memories memory
    strong strength courage brave step challenge advice help helpful helped friend buddy pal
    rock awesomeness lucky worth matter best better stay hang kind kindness care caring share
    stuff bit lately feel feeling felt place people way forever never totally super cheer
    """
)
_DIGIT = re.compile(r"\d")
_DAY = re.compile(
    r"\b(?:(?:mon|tues|wednes|thurs|fri|satur|sun)days?|yesterday|tomorrow|(?:last|next)\s+\w+)\b",
    re.I,
)
_WISH = re.compile(_OPENING + r"(?:see|talk|catch|have|enjoy|good\s+luck|best)\b", re.I)
_ENGLISH = stems(
    "a an the and or but if in on at to of for from with by about is are was were be been am do "
    "does did have has had i you he she it we they me my your his her our their this that these "
    "those not no so as up out all can could will would should just there here what how"
)


def context_reason(text: str, *, names: Iterable[str] = (), comments: bool = True) -> str:
    """Say why a turn is kept as context of its session only; "" for a turn that states something.

    A turn states something unless each of its sentences asks, greets, thanks, agrees, or
    comments on what the other said without a word about the speaker, a number, a day or
    a name. Sentences that are not English state something unless they end with a
    question mark. Without `comments` a comment counts as a statement too: what an
    assistant advises has no word about itself.
    """
    own = terms_of(names)
    if not informative(text, names=names):
        return "small talk: says nothing to remember"
    asks = False
    for match in _STATEMENTS_SENTENCE.finditer(text):
        sentence = match.group().strip()[:_MAX_SENTENCE]
        terms = tokenize(sentence, keep_stop_words=True)
        if not terms:
            continue
        if _ASKS.search(sentence) and not (
            _DECLARED.search(sentence) or _PROPOSED.search(sentence)
        ):
            asks = True
        elif not all(_known(term, own) for term in content(sentence, but=_PEP_TALK)) and not (
            comments and _comments(sentence, terms, own)
        ):
            return ""
    return "a question: asks and states nothing" if asks else "a comment: states nothing of its own"


def _comments(sentence: str, terms: Sequence[str], own: frozenset[str]) -> bool:
    """Say whether an English sentence only comments, greets, thanks or wishes."""
    if 3 * sum(term in _ENGLISH or term in SMALL_TALK for term in terms) < len(terms):
        return False
    if _DIGIT.search(sentence) or (_DAY.search(sentence) and not _WISH.search(sentence)):
        return False
    if any(not _known(match[1], own) for match in NAME.finditer(sentence)):
        return False
    bare = _POLITE.sub(" ", sentence)
    if _OWN_WORDS.search(bare):
        return False
    return bare != sentence or _COMMENT.search(sentence) is not None


def _known(name: str, own: frozenset[str]) -> bool:
    """Say whether a capitalised word names somebody present, maybe in short, or is small talk."""
    return all(
        term in own or term in SMALL_TALK or any(full.startswith(term[:3]) for full in own)
        for term in _known_stems(name)
    )
