"""Whether cited words say what an op claims, and the guard that refuses what they do not.

Where a chunk or the memories shown hold texts of tools or strangers, a model may follow
them and cite a user's turn all the same. So an op is judged by what it would change:

- *An added text* is backed when the cited words hold most of it, every number, name and
  negation in it, and nothing in it comes from a suspect text alone.
- *A new wording* is backed when the cited words speak of the item and hold every word
  that is new. Where nothing is new, or a negation comes or goes, they must retract.
- *A deletion* is backed when the cited words retract what the item says.

The surprise: a text that only repeats the item's own words in another order counts as a
deletion. Words are compared as index terms. Glue ("lives", "now", "prefers") may come
from the model; it decides nothing by itself.

The guard of a language model's ops holds them to it. Pure. An UPDATE may only write
words of the old memory, of its fact and of the turns the fact rests on; names, numbers
and denials strictly. An UPDATE or DELETE needs a fact that speaks of the same subject
and topic and is no joke, hearsay or plan, and one fact ends at most one memory unless
each is backed. An op that fails is refused, and its fact is added instead, so nothing
is lost. The surprise: the guard knows words, not meaning. Whether two statements
exclude each other is for `pair`, which has the last word where it has one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from memagent.core.ops import Add, Delete, MemoryOp, Noop, Update
from memagent.core.records import Fact, MemoryItem, TimeSpan
from memagent.language.vocabulary import (
    CONSENT,
    COUNTS,
    COURTESY,
    HOLD,
    KEEPING,
    NEGATION,
    PROPOSAL,
    READ_CHARS,
    RETRACTION,
    WORD,
    agrees,
)
from memagent.state.effects import stems, tokenize
from memagent.state.fold import folded

ADDED_SHARE: Final = 2 / 3
"""Share of an added text's words that the cited words must hold."""
RETRACTED_SHARE: Final = 0.6
"""Share of an item's words that a retraction must name."""

_GLUE = (
    "user person someone say says said mention mentions mentioned tell tells told note noted "
    "remember live lives lived living move moved moves like likes liked prefer prefers preferred "
    "enjoy enjoys want wants plan plans planned use uses used own owns keep keeps work works go "
    "goes went get gets got make makes made take takes hold holds now currently recently "
    "still also previously formerly before after since until instead anymore longer new old "
    "current name named call called one two day today yesterday tomorrow"
    " ein eine einen einem einer namens heißt una uno llamado llamada"
)
GLUE: Final = frozenset(tokenize(_GLUE))
"""The terms that say little by themselves."""
_OVER = re.compile(r"\b(?:is|are|was) over\b|\bended\b|\bno more\b", re.IGNORECASE)
_KEEP = r"\b(?:keep|leave|behalten|lassen|conserv\w+|guard\w+|dej\w+)\b"
_CHOICE = re.compile(
    rf"\b(?:or|oder|o)\b[^.?!]{{0,80}}{_KEEP}|{_KEEP}[^.?!]{{0,80}}\b(?:or|oder|o)\b", re.I
)
_SENTENCE = re.compile(r"(?<=[.!?;\n])\s+")
_CAPITAL = re.compile(r"(?<=\S\s)[^\W\d_]*[A-Z]\w*")
_TOPICS: Final = [
    frozenset(tokenize(line))
    for line in (
        "live lives lived move moved moving reside home address city apartment flat house rent "
        "wohne wohnt wohnen lebe ziehe zieht umgezogen wohnung adresse vivo vive mudo mudé piso\n"
        "work works job employer employed company office hired career position "
        "arbeite arbeitet beruf stelle firma trabajo trabaja empleo empresa\n"
        "phone mobile number telephone cell\n"
        "mail email e-mail address\n"
        "like likes love loves prefer enjoy favourite favorite hate hates\n"
        "drive drives car vehicle\n"
        "eat eats food diet vegetarian vegan meat\n"
        "meeting appointment call date schedule\n"
        "bank account iban\n"
    ).splitlines()
]
_TOPICS_OF: Final = {
    term: frozenset(place for place, own in enumerate(_TOPICS) if term in own)
    for term in frozenset[str]().union(*_TOPICS)
}


def topics_of(term: str) -> frozenset[int]:
    """Return the topics of an index term, such as where one lives."""
    return _TOPICS_OF.get(term, frozenset())


@dataclass(frozen=True)
class Words:
    """Cited texts and the names of those who may have said them."""

    texts: tuple[str, ...]
    speakers: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    """What each text answers; it says what is spoken of, and claims nothing."""

    @cached_property
    def terms(self) -> frozenset[str]:
        """The index terms of all texts."""
        return frozenset(tokenize("\n".join(self.texts)))

    @cached_property
    def names(self) -> frozenset[str]:
        """The terms of the speakers' names; they say nothing by themselves."""
        return frozenset(tokenize("\n".join(self.speakers)))

    @cached_property
    def sentences(self) -> list[tuple[str, frozenset[str]]]:
        """The sentences, each with its terms and those of the sentence before it."""
        pairs: list[tuple[str, frozenset[str]]] = []
        for place, said in enumerate(self.texts):
            before = frozenset(tokenize("".join(self.asked[place : place + 1])))
            for sentence in _SENTENCE.split(said):
                terms = frozenset(tokenize(sentence))
                pairs.append((sentence, terms | before))
                before = terms
        return pairs

    @cached_property
    def negated(self) -> bool:
        """Whether any of the texts holds a negation."""
        return any(map(NEGATION.search, self.texts))

    def content(self, text: str) -> frozenset[str]:
        """Return the terms of a text without the speakers' names."""
        return frozenset(tokenize(text)) - self.names

    def dates(self, valid: TimeSpan | None) -> frozenset[str]:
        """Return the terms that may write out a span, if the cited words name it."""
        if valid is None or not self.name_time(valid):
            return frozenset()
        days = [day for day in (valid.start, valid.end) if day is not None]
        return frozenset(
            term for day in days for term in tokenize(f"{day.year} {day:%B} {day:%b} {day.day}")
        )

    def name_time(self, valid: TimeSpan) -> bool:
        """Tell whether the cited words hold the span's phrase or its first day."""
        phrase = stems(valid.text or "")
        if phrase and phrase <= stems("\n".join(self.texts)):
            return True
        day = valid.start or valid.end
        return day is not None and frozenset(tokenize(f"{day:%B} {day.day}")) <= self.terms


def backs_addition(
    words: Words, text: str, *, suspect: Collection[str], valid: TimeSpan | None = None
) -> bool:
    """Tell whether the cited words say an added text; `suspect` are terms of suspect texts."""
    weighty = words.content(text) - words.dates(valid) - GLUE
    missing = weighty - words.terms
    names = {term for match in _CAPITAL.finditer(text) for term in tokenize(match[0])}
    if any(_DIGITS.search(term) or term in names or term in suspect for term in missing):
        return False
    if NEGATION.search(text) is not None and not words.negated:
        return False
    return len(weighty) - len(missing) >= ADDED_SHARE * len(weighty)


def backs_change(words: Words, *, old: str, new: str, valid: TimeSpan | None = None) -> bool:
    """Tell whether the cited words turn the old text into the new; `valid` is a new time."""
    known = words.content(old)
    spoken = words.terms | frozenset(tokenize("\n".join(words.asked)))
    if not speaks_of(spoken, known) or (valid is not None and not words.name_time(valid)):
        return False
    added = words.content(new) - known - GLUE
    if not added - words.dates(valid) <= words.terms:
        return False
    if new == old or (added and _denies(old) == _denies(new)):
        return True
    return backs_deletion(words, old)


def backs_deletion(words: Words, text: str) -> bool:
    """Tell whether the cited words retract a text.

    A sentence takes it back by name, or denies all of it.
    """
    content = words.content(text)
    sentences = [(KEEPING.sub(" ", said), spoken) for said, spoken in words.sentences]
    named = frozenset(term for term in content - GLUE if not _DIGITS.search(term)) or content
    return any(
        (len(named & spoken) >= RETRACTED_SHARE * len(named) and RETRACTION.search(sentence))
        or (content <= spoken and NEGATION.search(sentence))
        for sentence, spoken in sentences
        if named & spoken
    )


def takes_back(words: Words, text: str) -> bool:
    """Tell whether a sentence retracts or denies something that a text says.

    Less than `backs_deletion`: enough where nobody but the speaker and an assistant is read.
    """
    content = words.content(text) - GLUE
    content = (content - _SMALL) or content
    return any(
        content & spoken and any(mark.search(said) for mark in (RETRACTION, NEGATION, _OVER))
        for sentence, spoken in words.sentences
        if (said := KEEPING.sub(" ", sentence))
    )


def questions_in(said: str) -> list[str]:
    """Return the questions of an utterance; one that only points back has what it means."""
    questions: list[str] = []
    before = ""
    for part in _SENTENCE.split(said[-READ_CHARS:]):
        words = frozenset(WORD.findall(RETRACTION.sub(" ", part).lower()))
        pointing = not words - _POINTING or _POINTS.match(part)
        if part.rstrip().endswith("?"):
            if pointing and before in questions:
                questions.pop()
            questions.append(f"{before} {part}" if pointing else part)
        before = part
    return questions


def confirmed(said: str, reply: str) -> str:
    """Return the words of an utterance that the reply confirms; "" for none.

    Where it asks, a "yes" confirms what is asked and not what else it says: of several
    questions those that the reply speaks of, or the last.
    """
    questions = questions_in(said)
    if not agrees(reply, asked=bool(questions)):
        return ""
    if not questions:
        return said
    terms = frozenset(tokenize(reply)) - GLUE - CONSENT - COURTESY
    meant = [part for part in questions if terms & frozenset(tokenize(part))] or questions[-1:]
    if any(map(_CHOICE.search, meant)) and RETRACTION.search(reply) is None:
        return ""
    return _UNSURE.sub("", PROPOSAL.sub(r"delete \g<0>", " ".join(meant))).replace("?", ".")


def spoken_to(said: str, reply: str) -> str:
    """Return the questions that a reply answers; "" where it does not do what they propose."""
    questions = " ".join(questions_in(said))
    proposed = any(mark.search(questions) for mark in (RETRACTION, PROPOSAL, _OVER, NEGATION))
    willing = agrees(reply, asked=True) or (
        "?" not in reply and RETRACTION.search(KEEPING.sub(" ", reply)) and not HOLD.search(reply)
    )
    return questions if willing or not proposed else ""


def steers(texts: Sequence[str], *, old: str, new: str, known: frozenset[str]) -> bool:
    """Tell whether texts may be behind a change: they speak of the item, retract, or word it.

    `new` is "" for a deletion; `known` are the terms that others said.
    """
    terms = frozenset(tokenize("\n".join(texts)))
    before = frozenset(tokenize(old))
    return (
        speaks_of(terms, before)
        or any(map(RETRACTION.search, texts))
        or bool((frozenset(tokenize(new)) - before - GLUE - known) & terms)
    )


def _denies(text: str) -> bool:
    return NEGATION.search(text) is not None or RETRACTION.search(text) is not None


def speaks_of(spoken: frozenset[str], terms: Iterable[str]) -> bool:
    """Tell whether some of the terms, or words of their topics, were spoken."""
    spoken_topics = frozenset[int]().union(*map(topics_of, spoken))
    return any(term in spoken or topics_of(term) & spoken_topics for term in terms)


ENDED_BACKED: Final = 0.6
"""A second memory ends by the same fact if the fact holds this share of its words."""
_ENDS = re.compile(
    rf"{RETRACTION.pattern}|\b(?:died|gave\s+away|passed\s+away|broke\s+up|divorced|split\s+up)\b",
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
ADDS: Final = re.compile(
    r"\b(?:also|too|another|second|third|as\s+well|besides|still|auch|noch|también|otr[oa])\b", re.I
)
_NAME = re.compile(r"(?<![^\W\d_])[^\W\d_]*[A-Z]\w*(?:['’]\w+)?")
_DIGITS = re.compile(r"\d+(?:[.,]\d+)*")
_COUNTED: Final = frozenset(term for word in COUNTS for term in tokenize(word))
# The words of a question that names nothing: "would you like that?".
_POINTING: Final = (
    CONSENT
    | COURTESY
    | frozenset(
        "shall should want may could if when from what remember your memory notes list soll darf"
        " wenn recht ob liste aus te parece lo la puedo debo quieres lista".split()
    )
)
# German and Spanish words that say nothing of what a text is about.
_SMALL: Final = frozenset(
    "ist sind hat haben habe der die das den dem mit von für es está están tiene tengo el la los"
    " las en con por para".split()
)
_POINTS = re.compile(
    r"\W*(?:should|shall|is|soll|sollte|ist|heißt|debería|debe) (?:that|it|this|das|es|eso)\b", re.I
)
_LIKES = frozenset(
    tokenize("love loves like likes enjoy enjoys adore favourite favorite prefer prefers")
)
_HATES = frozenset(tokenize("hate hates dislike dislikes detest avoid avoids allergic"))


PairHead = Callable[[MemoryItem, str, Fact | None], bool | None]
"""Judges whether a new statement takes the place of an old one: (old, new, the fact), True to
back the change, False to refuse it, None to say nothing.
"""


@dataclass(frozen=True, slots=True)
class Grounds:
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
    linked: frozenset[str] = frozenset()
    """Memories that an edge of the event graph led to from what was told: spoken of in other
    words.
    """

    def problem(self, op: MemoryOp, item: MemoryItem | None, told: Grounds, *, ended: int) -> str:
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

    def _of_change(self, op: Update | Delete, item: MemoryItem, told: Grounds, ended: int) -> str:
        linked = item.id in self.linked
        reason = _unfit(item, told, linked=linked) or (
            _bad_text(op, item, told) if isinstance(op, Update) else _bad_end(item, told)
        )
        if reason:
            return reason
        new = op.text if isinstance(op, Update) else told.stated
        fact = told.facts[0] if told.facts else None
        # A text that keeps every word of the old one takes nothing away.
        sure = linked or frozenset(tokenize(item.text)) <= frozenset(tokenize(new))
        backed = self.pair(item, new, fact) if self.pair is not None and not sure else None
        unnamed = f"the fact has changed another memory, and does not name what {item.id} says"
        return _first(
            {
                f"nothing says that it takes the place of {item.id}": backed is False,
                unnamed: ended and not backed and _share(item, told) < ENDED_BACKED,
            }
        )


def ungrounded(
    text: str, told: Grounds, *, old: MemoryItem | None = None, valid: TimeSpan | None = None
) -> str:
    """Return which word of a new text stands neither in the old one nor in what was told."""
    records: Sequence[Fact | MemoryItem] = (*told.facts, *((old,) if old else ()))
    people = [name for record in records for name in (record.subject, record.speaker) if name]
    known = "\n".join((old.text if old else "", told.text, *told.speakers, *people))
    terms = stems(known) | _dates(told, old, valid)
    numbers = _numbers(known) | {int(term) for term in _dates(told, old, valid) if term.isdigit()}
    if strange := sorted(_numbers(text) - numbers):
        return f"nobody told the number {strange[0]}"
    names = {term for match in _NAME.finditer(text) for term in tokenize(match[0])}
    for term in dict.fromkeys(tokenize(text)):
        free = term in GLUE and term not in names and term not in _LIKES
        if term not in terms and not free and not term[:1].isdigit() and term not in _COUNTED:
            kind = "name" if term in names else "word"
            return f"nobody told the {kind} {term!r}"
    if NEGATION.search(text) and not NEGATION.search(known):
        return "nobody denied it"
    return ""


def _first(reasons: Mapping[str, object]) -> str:
    """Return the first reason that holds; "" where none does."""
    return next((reason for reason, holds in reasons.items() if holds), "")


def _unfit(item: MemoryItem, told: Grounds, *, linked: bool) -> str:
    """Return why what was told can change nothing: another subject, a joke, a question."""
    for fact in told.facts:
        subject, owner = fact.subject or fact.speaker, item.subject or item.speaker
        if not subject or not owner or set(folded(subject).split()) & set(folded(owner).split()):
            continue
        if not _named_in(subject, item.text) and not _named_in(owner, fact.text):
            return f"it is about {subject}, the memory about {owner}"
    spoken = frozenset(_content(told.text, told))
    plan = _PLANS.search(told.stated) and not _PLANS.search(item.text)
    apart = not linked and not speaks_of(spoken, _content(item.text, told))
    return _first(
        {
            "what was told is not certain": _UNSURE.search(told.basis),
            "it was only asked": told.nearest.rstrip().endswith("?"),
            "what was told is a plan": plan,
            f"what was told does not speak of what {item.id} says": apart,
        }
    )


def _bad_text(op: Update, item: MemoryItem, told: Grounds) -> str:
    if reason := ungrounded(op.text, told, old=item, valid=op.valid):
        return reason
    old, new, fact = (_content(text, told) for text in (item.text, op.text, told.stated))
    fresh = new & (fact - old) or _numbers(op.text) - _numbers(item.text)
    denied, denies = NEGATION.search(told.stated), NEGATION.search(op.text)
    lost = sorted(_values(item.text) - _values(op.text))
    against = _values(told.stated) - _values(item.text) or NEGATION.search(told.text)
    likes = (old | fact | _content(told.text, told)) & _LIKES
    return _first(
        {
            "the new text says nothing of the fact": fact - old
            and not fresh
            and not (denied and denies),
            "the new text leaves out the denial": NEGATION.search(told.basis)
            and not denies
            and not new - old,
            f"the new text does not speak of what {item.id} says": not speaks_of(new, old),
            "nobody told a liking": new & _LIKES and not likes,
            f"the new text drops {''.join(lost[:1])!r}, and nothing stands against it": lost
            and not against,
        }
    )


def _bad_end(item: MemoryItem, told: Grounds) -> str:
    if NEGATION.search(told.text) or _ENDS.search(told.text):
        return ""
    fact, old = _content(told.stated, told), _content(item.text, told)
    instead = _values(told.stated) - _values(item.text) or _opposed(fact, old)
    apart = fact <= old or not speaks_of(fact, old)
    return _first(
        {
            f"what was told does not stand against what {item.id} says": apart,
            "what was told comes beside it": ADDS.search(told.basis),
            f"what was told names nothing in the place of what {item.id} says": not instead,
        }
    )


def _not_known(item: MemoryItem, told: Grounds) -> str:
    """Return why a memory does not say a fact already."""

    def reason(fact: Fact) -> str:
        new, old = _content(fact.text, told), _content(item.text, told)
        more = _numbers(fact.text) - _numbers(item.text)
        other = bool(NEGATION.search(fact.text)) != bool(NEGATION.search(item.text))
        named = _values(fact.text) - _values(item.text) - _people_terms(told)
        names = sorted(term for term in named if not term[:1].isdigit())
        return _first(
            {
                f"{item.id} does not say it": more or (new and not speaks_of(new, old)),
                f"{item.id} says the opposite": other or _opposed(new, old),
                f"{item.id} does not name {''.join(names[:1])!r}": names,
            }
        )

    return next((why for fact in told.facts if (why := reason(fact))), "")


# -- words -----------------------------------------------------------------------------


def _numbers(text: str) -> set[int]:
    digits = {
        int(match.replace(",", "").split(".")[0])
        for match in _DIGITS.findall(text)
        if len(match) < 16
    }
    words = (word.lower() for word in WORD.findall(text))
    return digits | {COUNTS[word] for word in words if word in COUNTS and word not in _ARTICLES}


_ARTICLES: Final = frozenset(("one", "ein", "un"))


def _content(text: str, told: Grounds) -> frozenset[str]:
    return frozenset(tokenize(text)) - _people_terms(told)


def _people_terms(told: Grounds) -> frozenset[str]:
    return frozenset(term for name in (*told.speakers, "user") for term in tokenize(name))


def _values(text: str) -> frozenset[str]:
    """Return the names and numbers of a text, its first word left out."""
    names = {term for match in _NAME.finditer(text) if match.start() for term in tokenize(match[0])}
    return frozenset(names | {str(number) for number in _numbers(text)})


def _opposed(first: frozenset[str], second: frozenset[str]) -> bool:
    return bool(first & _LIKES and second & _HATES) or bool(first & _HATES and second & _LIKES)


def _share(item: MemoryItem, told: Grounds) -> float:
    own = _content(item.text, told)
    return len(own & _content(told.text, told)) / len(own) if own else 0.0


def _named_in(name: str, text: str) -> bool:
    return bool(set(tokenize(name)) & set(tokenize(text)))


def _dates(told: Grounds, old: MemoryItem | None, valid: TimeSpan | None) -> frozenset[str]:
    """Return the terms that write out the days which are told."""
    spans = [valid, *(fact.valid for fact in told.facts), old.valid if old else None]
    moments = [moment for span in spans if span for moment in (span.start, span.end) if moment]
    moments += [fact.said_at for fact in told.facts if fact.said_at]
    moments += [old.said_at] if old and old.said_at else []
    return frozenset(
        term for at in moments for term in tokenize(f"{at.year} {at:%B} {at:%b} {at:%A} {at.day}")
    )
