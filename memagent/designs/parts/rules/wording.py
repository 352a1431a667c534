"""Words for evidence: the time it tells, the part to quote, the line with speaker and date.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime

from memagent.core.records import Granularity, TimeSpan
from memagent.designs.parts.lines import day_text
from memagent.language.vocabulary import NUMBER
from memagent.memory.judging.evidence import Evidence
from memagent.memory.question import QuestionKind, QuestionView
from memagent.state.tokens import tokenize
from memagent.timex.resolve import MAX_TURN_TIMES, TimeMention, find_times

_SENTENCE = re.compile(r"[^.!?\n]+[.!?]*\s*")
_LASTING = re.compile(r"^for\b.*?\b(day|week|month|year|decade)s?\b", re.I)


def time_told(text: str, said_at: datetime | None) -> TimeSpan | None:
    """Resolve the most telling time phrase of a text against `said_at`; None without any.

    A written-out date comes before a relative one, a past time before a coming one, a
    closed span before an open one. A date whose side is open tells no time.
    """
    times = find_times(text, anchor=said_at, most=MAX_TURN_TIMES)
    mentions = _standing(text, [mention for mention in times if not mention.open])
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
    times = find_times(evidence.text, anchor=evidence.said_at, most=MAX_TURN_TIMES)
    mentions = _standing(evidence.text, [mention for mention in times if not mention.open])
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


def _standing(text: str, mentions: Sequence[TimeMention]) -> list[TimeMention]:
    """Drop mentions that the text takes back or names a thing by; keep all if none is left.

    Examples are "not on Tuesday", "I said June" and "last year's race".
    """
    standing = [
        mention
        for mention in mentions
        if not _TAKEN_BACK.search(text[max(0, mention.start - 60) : mention.start])
        and text[mention.end : mention.end + 2] not in ("'s", "’s")
    ]
    return standing or list(mentions)


def _ahead(mention: TimeMention, said_at: datetime | None) -> bool:
    return said_at is not None and mention.span.start is not None and mention.span.start > said_at


def _beginning(mention: TimeMention, said_at: datetime | None) -> TimeSpan:
    """Return the beginning of a duration, and the own span of any other mention.

    "For three years", said in 2023, gives 2020.
    """
    span = mention.span
    match = _LASTING.match(mention.text)
    if (
        match is None
        or span.start is None
        or said_at is None
        or span.granularity is not Granularity.RANGE
    ):
        return span
    start, unit = span.start, match[1].lower()
    if unit == "year":
        end = datetime(start.year + 1, 1, 1, tzinfo=UTC)
        return TimeSpan(start=start, end=end, granularity=Granularity.YEAR, text=span.text)
    if unit == "month" and start.day == 1:
        end = datetime(start.year + start.month // 12, start.month % 12 + 1, 1, tzinfo=UTC)
        return TimeSpan(start=start, end=end, granularity=Granularity.MONTH, text=span.text)
    return span


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
    r"((?:the\s+)?[A-Z][\w’'-]+(?:\s+[A-Z][\w’'-]+)*)"
)
_LIVING = re.compile(r"liv|mov|reloc|settl|based|born|grew|stay", re.I)
"""Verbs of a place that somebody lives at; a job or a journey names another."""
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
    sentences = [match.group() for match in _SENTENCE.finditer(evidence.text)]
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
    elif view.kind is QuestionKind.HOW_MANY:
        spans = [match[1] for match in _COUNTS.finditer(text) if asked & set(tokenize(match[2]))]
    elif "name" in asked or "call" in asked:
        spans = [match[1] for match in _CALLED.finditer(text)]
    else:
        return ""
    return f"{spans[0]}." if len(set(spans)) == 1 else ""


_TAKEN = re.compile(r"(?:n['’]t|\bnot|\bno\s+longer|\bused\s+to|\bleft)\b[^.?!,;]*$", re.I)


def said_line(speaker: str | None, said_at: datetime | None, quote: str) -> str:
    """Write speaker, day and words: `Anna said on 8 May 2023: "..."`."""
    when = f" on {day_text(said_at)}" if said_at is not None else ""
    return f'{speaker or "It was"} said{when}: "{quote}"'
