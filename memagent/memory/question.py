"""A question read from its words alone: kind of answer, now or then, people, time, content.

Pure and cautious: a question that no rule knows is `OTHER`, about `ANY` time, with all
its words as content, and answering it then rests on search alone. German and Spanish
questions are read for now and then, without the words that only ask; their kind is not. The
surprise: people are told from places by grammar ("did Anna", "Anna's"), not from a list
of names, so a person named only after a preposition counts as content unless the caller
says who the speakers are.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from memagent.core.answers import MAX_RULED_CHARS
from memagent.core.records import Record, Text, TimeSpan
from memagent.language.vocabulary import MONTHS, WEEKDAYS
from memagent.search.pipeline import asked_times
from memagent.state.effects import POSSESSIVE, stems, tokenize
from memagent.state.fold import folded


class QuestionKind(StrEnum):
    """The kind of answer that a question asks for."""

    WHEN = "when"
    HOW_LONG = "how_long"
    HOW_MANY = "how_many"
    WHO = "who"
    WHERE = "where"
    YES_NO = "yes_no"
    OTHER = "other"


class Period(StrEnum):
    """The state of the world that a question asks about."""

    NOW = "now"
    THEN = "then"
    ANY = "any"


class QuestionView(Record):
    """A question as the rules read it."""

    kind: QuestionKind
    period: Period
    present: bool = False
    """Whether its verb is in the present, the perfect included ("does", "is", "has")."""
    now: bool = False
    """Whether it asks how things are now, or will be."""
    moment: datetime | None = None
    """The moment whose state of things it asks for, if that is when it is asked."""
    people: tuple[Text, ...] = ()
    """The people it names, in order: known speakers, and subjects or possessors by grammar."""
    terms: tuple[Text, ...] = ()
    """Distinct index terms of its content: no speakers, no time phrases, no words that
    only pose the question.
    """
    span: TimeSpan | None = None
    """The time it names, if any."""
    ahead: bool = False
    """Whether it asks about something to come."""
    names: tuple[Text, ...] = ()
    """Index terms of the names in it, those of known speakers left out ("Lisbon")."""
    owned: tuple[Text, ...] = ()
    """Index terms of a thing that it says somebody has ("Anna's dog")."""


def read_question(
    text: str, *, speakers: Iterable[str] = (), asked_at: datetime | None = None
) -> QuestionView:
    """Read a question.

    `speakers` are known names; `asked_at` anchors relative phrases ("last summer").
    Of a longer text, the first 2,000 characters are read. Never raises.
    """
    text = _WAS.sub("Welches", text[:MAX_RULED_CHARS])
    kind = _kind(text)
    known = list(speakers)
    people = _people(text, known)
    times = asked_times(text, asked_at)
    left = text
    for mention in reversed(times):
        left = f"{left[: mention.start]} {left[mention.end :]}"
    own = stems(" ".join(name for name in people if name in known))
    period, ahead = Period.ANY, bool(_AHEAD.search(text))
    if (_THEN if kind is not QuestionKind.WHEN else _PLANNED).search(text):
        period = Period.THEN
    elif _NOW.search(text):
        period = Period.NOW
    past = (_PAST, *(own.past for own in _LANGUAGES if own.clue.search(text)))
    present = bool(_PRESENT.search(text)) and not any(own.search(text) for own in past)
    tells_when = kind is QuestionKind.WHEN and not ahead
    asks_now = period is Period.NOW or (not tells_when and (present or ahead))
    now = period is not Period.THEN and not times and asks_now
    return QuestionView(
        kind=kind,
        period=period,
        present=present,
        now=now,
        moment=asked_at if now and kind not in _OF_TIME and not _EVER.search(text) else None,
        people=tuple(people),
        terms=content_terms(left, own=own, frame=_FRAME[kind]),
        span=times[0].span if times else None,
        ahead=ahead,
        names=tuple(
            dict.fromkeys(
                term
                for match in _PROPER.finditer(left)
                if folded(match[1]) not in _NOT_PEOPLE
                for term in tokenize(match[1])
                if term not in own
            )
        ),
        owned=_owned(left),
    )


def _owned(text: str) -> tuple[str, ...]:
    """Return the terms of "dog" in "Anna's old dog"; () when nobody owns anything."""
    match = _OWNED.search(text)
    if match is None:
        return ()
    words = match[1].split()
    stop = next((at for at, word in enumerate(words) if word.lower() in _ENDS), len(words))
    terms = [term for word in words[:stop][-1:] for term in tokenize(word) if term not in _POSING]
    return tuple(terms)


def content_terms(
    text: str, *, own: Container[str] = (), frame: frozenset[str] = frozenset()
) -> tuple[str, ...]:
    """Return the distinct index terms of a text without the `own` ones of names.

    The words of `frame` are left out as long as others are left.
    """
    posing = _POSING.union(*(own.posing for own in _LANGUAGES if own.clue.search(text)))
    terms = [
        term for term in dict.fromkeys(tokenize(text)) if term not in own and term not in posing
    ]
    return tuple([term for term in terms if term not in frame] or terms)


# -- rules -----------------------------------------------------------------------------

_UNIT = (
    r"(?:dates?|days?|weeks?|weekends?|months?|years?|times?|seasons?|summers?|winters?|decades?)"
)
_WHEN = re.compile(
    rf"\bwhen\b|\b(?:what|which)(?:\s+\w+)?\s+{_UNIT}\b(?!\s+of\s+(?:music|art|day))|\bhow\s+(?:long\s+ago|recently)\b"
    r"|\bwhat\s+was\s+the\s+date\b",
    re.I,
)
_WHEN_CLAUSE = re.compile(
    r"^\s*(?:what|who|whom|whose|where|why|how|which)\b(?!\s+\w*\s*(?:date|day|week|month|year|time)).*\bwhen\b",
    re.I,
)
_HOW_LONG = re.compile(
    r"\bhow\s+long\b(?!\s+ago)|\bhow\s+many\s+(?:days|weeks|weekends|months|years|hours|minutes)\b",
    re.I,
)
_HOW_MANY = re.compile(r"\bhow\s+(?:many|much|often|old|tall|far)\b|\bwhat\s+number\b", re.I)
ASKER = "user"
"""The speaker of messages that name nobody; a question in the first person is about them."""
_FIRST_PERSON = re.compile(r"\b(?:I|me|my|mine|we|(?-i:us)|ours?)\b", re.I)
_WHO = re.compile(r"^\s*(?:with\s+|to\s+|from\s+|by\s+|for\s+)?(?:who|whom|whose)\b", re.I)
_WHERE = re.compile(
    r"^\s*(?:(?:from|to|in|at)\s+)?"
    r"(?:where\b|(?:what|which)\s+(?:city|town|country|countries|state|place|places|location|venue|restaurant)\b)",
    re.I,
)
_AUXILIARY = (
    r"(?:is|are|was|were|am|do|does|did|has|have|had|will|would|can|could|should|shall|may|might"
    r"|isn['’]t|aren['’]t|wasn['’]t|doesn['’]t|didn['’]t)"
)
# The German "was" asks what.
_WAS = re.compile(
    r"^\W*Was(?=\s+(?!(?:he|the|some\w*|any\w*|every\w*|one|these|those|there|it|that)\b)[a-zäöüß]+(?:e|t|n|ar)\b)"
)
_YES_NO = re.compile(rf"^\s*{_AUXILIARY}\b", re.I)
_NOW = re.compile(
    r"\b(?:now|nowadays|currently|presently|these\s+days|at\s+(?:the\s+moment|present)|right\s+now|today|still|any\s*more"
    r"|latest|most\s+recent(?:ly)?|current|jetzt|noch|derzeit|zurzeit|momentan|aktuell\w*|inzwischen|heutzutage|mittlerweile"
    r"|ahora|actualmente|todavía|aún|hoy(?:\s+en)?\s+día|últim[oa]|sigo|sigue|seguimos|siguen)\b",
    re.I,
)
_FIRST = (
    r"originally|original|initial(?:ly)?|at\s+first|to\s+begin\s+with|(?:planned|booked|meant|named)\s+first|first\s+(?:planned|booked|meant)"
    r"|zuerst|zunächst|ursprünglich\w*|anfangs|al\s+principio|en\s+un\s+principio|inicialmente|original(?:es|mente)"
)
_THEN = re.compile(
    rf"\b(?:{_FIRST}|used?\s+to|previous(?:ly)?|former(?:ly)?|back\s+then|at\s+that\s+time"
    r"|in\s+the\s+past|earlier|before|früher\w*|vorher\w*|zuvor|davor|damals|einst|ehemal\w*|antes|anterior(?:es|mente)?"
    r"|antigu[oa]|antiguamente|en\s+aquel\s+entonces|sol[íi]a\w*)\b",
    re.I,
)
_PLANNED = re.compile(rf"\b(?:{_FIRST})\b", re.I)
_PRESENT = re.compile(
    r"\b(?:is|are|am|do|does|has|have|isn['’]t|aren['’]t|doesn['’]t|don['’]t)\b"
    r"|^\W*(?:(?:in|an|auf|bei|mit|für|von|um|aus|zu|a|en|de|con|por|para)\s+)?(?:wo(?:her|hin|mit|von|für)?|we[rnm]|wie"
    r"|welche[rsmn]?|ad[óo]nde|dónde|qué|quién(?:es)?|cómo|cuál(?:es)?|cuánt[oa]s?)\b",
    re.I,
)
_OF_TIME = frozenset((QuestionKind.WHEN, QuestionKind.HOW_LONG))
# "Has Bo been there?" asks for any time until now.
_EVER = re.compile(
    r"^(?!.*\b(?:do|does|don['’]t|doesn['’]t)\b).*\bha(?:s|ve)\b|\bever\b", re.I | re.DOTALL
)
_PAST = re.compile(
    r"\b(?:was|were|did|had|ago|when|while|after|since|until|wasn['’]t|didn['’]t)\b", re.I
)
_AHEAD = re.compile(
    r"\b(?:will|going\s+to|plans?\s+(?:to|on|for)|planning|planned|plan|upcoming|scheduled?|next)\b"
    r"|\bwhen(?:['’]s|\s+is|\s+are|\s+do(?:es)?)\b",
    re.I,
)
_NAME = r"[A-Z][\w’'-]*[a-z][\w-]*(?:\s+[A-Z][\w-]*[a-z][\w-]*)?"
_SUBJECT = re.compile(
    rf"\b(?i:{_AUXILIARY})\s+({_NAME})((?:\s*,\s*{_NAME})*)"
    rf"(?:,?\s+and\s+(?:(?:his|her|their)\b|({_NAME})))?"
    rf"|\b({_NAME})(?:['’]s?\b|['’](?=\s))"
)
_PROPER = re.compile(r"(?<=[^.!?\s])\s+[\"“']?([A-Z][\w’'-]*\w)")
_OWNED = re.compile(
    r"(?:\b[A-Z][\w-]*(?:['’]s|s['’])|\b(?i:my|his|her|their|your|our))\s+((?:[\w-]+\s*){1,4})"
)
_ENDS = frozenset(
    "is are was were do does did has have had will would can could go went called named like and "
    "or in on at to of for from with by about when where that who get got start started live work "
    "now most".split()
)
_NOT_PEOPLE = frozenset(
    f"{MONTHS['en']} {WEEKDAYS['en']} i what when where who whom whose which why how is are was "
    "were do does did has have had will would can could should the a an in on at christmas "
    "easter halloween thanksgiving internet god english "
    "french spanish german chinese japanese italian".split()
)


_POSING = stems(
    "when what which who whom whose where why how much many often long ago recently happen "
    "happened happening tell type kind sort during before after about some any other "
    "another than while besides since until have having get got getting do doing done "
    "something someone thing things one use using used might may likely now currently "
    "nowadays still more back time times also too each both up out there"
)


class _Language(NamedTuple):
    """The words by which questions in a language other than English are read."""

    clue: re.Pattern[str]
    """What shows that a text is in it."""
    posing: frozenset[str]
    """Index terms of words that only ask."""
    past: re.Pattern[str]


_LANGUAGES = (
    _Language(
        re.compile(
            r"\b(?:ich|mich|mir|mein\w*|wir|unser\w*|wo(?:her|hin|mit|von|für)?|we[rnm]|wie|welche\w*"
            r"|wann|habe|ist|sind|der|das|noch)\b",
            re.I,
        ),
        stems(
            "wo woher wohin womit wovon wofür wer wen wem was wie welch welche welcher welches "
            "welchem welchen wann warum viel viele noch jetzt derzeit zurzeit momentan inzwischen "
            "mittlerweile früher vorher zuvor davor damals zuerst zunächst ursprünglich anfangs "
            "einst denn eigentlich"
        ),
        re.compile(
            r"\b(?:war(?:en|st)?|hatten?|wurden?|gingen?|ging|kam(?:en)?|fuhr|lief|gab|hieß|seit|nach|als|bis"
            r"|(?!heute|bitte|leute|möchte)\w{2,}ten?(?=\s+(?:ich|er|sie|es|wir|man|mein\w*|unser\w*)\b))\b"
            r"|\b(?:haben?|hat|bin|ist|sind)\b.*\b(?:\w*ge\w{2,}(?:t|en)|(?:be|ver|er|ent)\w{2,}t|\w+iert)\W*$",
            re.I,
        ),
    ),
    _Language(
        re.compile(
            r"¿|\b(?:qué|quién\w*|dónde|adónde|cómo|cuál\w*|cuán\w+|tengo)\b"
            r"|^\W*(?:donde|que|quien|cual|cuando)\b",
            re.I,
        ),
        stems(
            "qué que quién quien quiénes cuál cuáles cuánto cuánta cuántos cuántas cómo dónde "
            "donde adónde cuándo cuando todavía aún ahora antes actualmente primero principio"
        ),
        re.compile(
            r"\b(?:fu(?:i|e|eron)|era[ns]?|hubo|desde|hasta|\w{2,}(?:aba[ns]?|ábamos|aron|ieron|aste|iste|ó)"
            r"|(?!todavía|tía|día)\w{2,}ía(?:[ns]|mos)?|(?!qué|café|josé|bebé)\w{2,}é)\b",
            re.I,
        ),
    ),
)
_FRAME: dict[QuestionKind, frozenset[str]] = {
    QuestionKind.WHEN: stems(
        "date day week weekend month year time season start started begin began go went get "
        "take place"
    ),
    QuestionKind.HOW_LONG: stems("day week month year time pass passed between after"),
    QuestionKind.HOW_MANY: stems("number times time"),
    QuestionKind.WHO: frozenset(),
    QuestionKind.WHERE: stems("place city town location go went"),
    QuestionKind.YES_NO: frozenset(),
    QuestionKind.OTHER: frozenset(),
}


# The first rule that fits tells.
_KINDS = (
    (_HOW_LONG, QuestionKind.HOW_LONG),
    (_WHEN, QuestionKind.WHEN),
    (_HOW_MANY, QuestionKind.HOW_MANY),
    (_WHO, QuestionKind.WHO),
    (_WHERE, QuestionKind.WHERE),
    (_YES_NO, QuestionKind.YES_NO),
)


def _kind(text: str) -> QuestionKind:
    for rule, kind in _KINDS:
        if rule.search(text) and (rule is not _WHEN or not _WHEN_CLAUSE.search(text)):
            return kind
    return QuestionKind.OTHER


def _people(text: str, speakers: list[str]) -> list[str]:
    """Return the names in order of appearance, each once.

    A known speaker has the speaker's own spelling.
    """
    people: dict[str, tuple[int, str]] = {}
    for speaker in speakers:
        for name in dict.fromkeys((speaker, speaker.split()[0] if speaker.split() else speaker)):
            at = re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text, re.I)
            if at is not None and len(name) > 1:
                people.setdefault(folded(speaker), (at.start(), speaker))
    own = _FIRST_PERSON.search(text)
    if own is not None and ASKER in speakers:
        people.setdefault(ASKER, (own.start(), ASKER))
    known = set(people) | {part for name in people for part in name.split()}
    for match in _SUBJECT.finditer(text):
        for part in (match[1], *(match[2] or "").split(","), match[3], match[4]):
            name = POSSESSIVE.sub("", (part or "").strip())
            if name and not {folded(word) for word in name.split()} & (_NOT_PEOPLE | known):
                people.setdefault(folded(name), (text.index(name, match.start()), name))
    return [name for _, name in sorted(people.values())]
