"""How evidence is put into words: the time it tells, the part to quote, the line that says who said it when.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from memagent.core.records import Granularity, TimeSpan
from memagent.designs.parts.rules.evidence import Evidence
from memagent.memory.question import QuestionView
from memagent.state.tokens import tokenize
from memagent.timex.resolve import TimeMention, find_times, format_span

_SENTENCE = re.compile(r"[^.!?\n]+[.!?]*\s*")
_LASTING = re.compile(r"^for\b.*?\b(day|week|month|year|decade)s?\b", re.I)


def time_told(text: str, said_at: datetime | None) -> TimeSpan | None:
    """The time that a text is about: of the phrases it holds the most telling one,
    resolved against `said_at`; None without any.

    A written-out date comes before a relative one, what has happened before what is to
    come, a closed span before an open one.
    """
    mentions = _standing(text, find_times(text, anchor=said_at))
    if not mentions:
        return None

    def vagueness(mention: TimeMention) -> tuple[bool, bool, bool]:
        span = mention.span
        ahead = said_at is not None and span.start is not None and span.start > said_at
        return (
            span.start is None or span.end is None,
            ahead or span.granularity is Granularity.RANGE,
            mention.relative,
        )

    return began(min(mentions, key=vagueness), said_at)


def time_for(evidence: Evidence, view: QuestionView) -> TimeSpan | None:
    """The time that the statement gives for what is asked: of several, the one whose
    sentence shares most with the question.
    """
    mentions = _standing(evidence.text, find_times(evidence.text, anchor=evidence.said_at))
    if not mentions:
        return evidence.valid

    def fit(mention: TimeMention) -> tuple[int, bool]:
        shared = len(set(view.terms) & set(tokenize(sentence_at(evidence.text, mention.start))))
        return shared, _ahead(mention, evidence.said_at) == view.ahead

    return began(max(mentions, key=fit), evidence.said_at)


_TAKEN_BACK = re.compile(
    r"(?:\bnot|\binstead\s+of|\bI\s+(?:said|told\s+you)\b[^.,;?!]*)(?:\s+(?:in|on|at|for|the))*\s*$",
    re.I,
)


def _standing(text: str, mentions: Sequence[TimeMention]) -> list[TimeMention]:
    """The mentions that the text neither takes back ("not on Tuesday", "I said June")
    nor uses to tell a thing by ("last year's race"); all when none is left.
    """

    def stands(mention: TimeMention) -> bool:
        before, after = (
            text[max(0, mention.start - 60) : mention.start],
            text[mention.end : mention.end + 2],
        )
        return not _TAKEN_BACK.search(before) and after not in ("'s", "’s")

    return [mention for mention in mentions if stands(mention)] or list(mentions)


def _ahead(mention: TimeMention, said_at: datetime | None) -> bool:
    return said_at is not None and mention.span.start is not None and mention.span.start > said_at


def began(mention: TimeMention, said_at: datetime | None) -> TimeSpan:
    """When what a mention tells began: "for three years", said in 2023, gives 2020; any
    other mention gives its own span.
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
        return TimeSpan(
            start=start,
            end=datetime(start.year + 1, 1, 1, tzinfo=UTC),
            granularity=Granularity.YEAR,
            text=span.text,
        )
    if unit == "month" and start.day == 1:
        end = datetime(start.year + start.month // 12, start.month % 12 + 1, 1, tzinfo=UTC)
        return TimeSpan(start=start, end=end, granularity=Granularity.MONTH, text=span.text)
    return span


def day_of(moment: datetime) -> TimeSpan:
    """The UTC day of a moment."""
    start = moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return TimeSpan(start=start, end=start + timedelta(days=1), granularity=Granularity.DAY)


def sentence_at(text: str, at: int) -> str:
    """The sentence of a text that holds the character at an offset."""
    return next(
        (match.group() for match in _SENTENCE.finditer(text) if match.start() <= at < match.end()),
        text,
    )


def quote_from(text: str, terms: Sequence[str], *, limit: int = 320) -> str:
    """A verbatim part of a text: all of it when short enough, else whole sentences in a
    row that cover most of the terms.
    """
    if len(text.strip()) <= limit:
        return text.strip()
    sentences = [(match.start(), match.end()) for match in _SENTENCE.finditer(text)]
    wanted = set(terms)
    best, most = (0, limit), -1
    for i, (start, first_stop) in enumerate(sentences):
        stop = min(first_stop, start + limit)
        for _, end in sentences[i + 1 :]:
            if end - start > limit:
                break
            stop = end
        gain = len(wanted & set(tokenize(text[start:stop])))
        if gain > most:
            best, most = (start, stop), gain
    return text[best[0] : best[1]].strip()


def said_line(speaker: str | None, said_at: datetime | None, quote: str) -> str:
    """Who said it, when, and the words: `Anna said on 8 May 2023: "..."`."""
    when = f" on {format_span(day_of(said_at))}" if said_at is not None else ""
    return f'{speaker or "It was"} said{when}: "{quote}"'
