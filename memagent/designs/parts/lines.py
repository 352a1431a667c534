"""One line for each thing a prompt shows: turns, facts, memories, events.

Pure; every part passes `quoted`.

Dates are written out ("8 May 2023"), since that is how facts and answers are to be
worded; ids and versions stand in brackets before all else, so that a text cannot
pretend to be another memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import lru_cache

from memagent.core.answers import Hit
from memagent.core.records import Event, Fact, Granularity, TimeSpan, Turn
from memagent.designs.prompting import quoted
from memagent.timex.resolve import format_span

_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MAX_TURN_IDS = 8


def day_of(moment: datetime) -> str:
    """The UTC day in words, with its weekday: "Monday, 8 May 2023"."""
    return f"{_WEEKDAYS[moment.weekday()]}, {_day(moment)}"


def turn_line(turn: Turn) -> str:
    """A turn: id, speaker, words, picture."""
    return f"[{quoted(turn.id)}] {quoted(turn.speaker)}: {quoted(turn.said)}"


def fact_line(index: int, fact: Fact) -> str:
    """A fact under its number."""
    notes = _notes(
        said=fact.said_at,
        by=fact.speaker,
        about=fact.subject,
        turns=fact.source_turn_ids,
        valid=fact.valid,
    )
    return f"{index}. {notes}{quoted(fact.text)}"


def hit_line(hit: Hit, *, version: bool) -> str:
    """A memory or event: id (and version), dates, speaker, source turns, how a walk
    reached it, text.
    """
    known = hit.item or hit.event
    by = hit.item.speaker if hit.item else ", ".join(hit.event.people) if hit.event else None
    about = hit.item.subject if hit.item else None
    notes = _notes(
        said=known.said_at if known else None,
        by=by,
        about=about if about != by else None,
        turns=hit.source_turn_ids,
        valid=known.valid if known else None,
        path=path_of(hit),
    )
    shown = f"{quoted(hit.id)} v{hit.item.version}" if version and hit.item else quoted(hit.id)
    return f"[{shown}] {notes}{quoted(hit.text)}"


def event_notes(event: Event) -> str:
    """What is known about an event, in parentheses: day, people, time; "" when nothing is."""
    return _notes(
        said=event.said_at,
        by=", ".join(event.people) or None,
        about=None,
        turns=(),
        valid=event.valid,
    )


def path_of(hit: Hit) -> str:
    """How a walk reached the hit, seed first: "mem_a -supersedes-> this"; "" when it
    was found by search.
    """
    steps = (
        f"{quoted(node)} {f'-{edge}->' if forward else f'<-{edge}-'}"
        for node, edge, forward in hit.why.via
    )
    return " ".join((*steps, "this")) if hit.why.via else ""


def _notes(
    *,
    said: datetime | None,
    by: str | None,
    about: str | None,
    turns: Iterable[str],
    valid: TimeSpan | None,
    path: str = "",
) -> str:
    """What is known about a statement, in parentheses; "" when nothing is."""
    ids = list(turns)
    shown = ", ".join(map(quoted, ids[-_MAX_TURN_IDS:]))
    parts = (
        f"said {_day(said)}" if said else "",
        f"by {quoted(by)}" if by else "",
        f"about {quoted(about)}" if about else "",
        f"turns {shown}" if ids else "",
        f"time {format_span(valid)}" if valid else "",
        f"reached {path}" if path else "",
    )
    known = "; ".join(part for part in parts if part)
    return f"({known}) " if known else ""


def _day(moment: datetime) -> str:
    return _day_from(moment.replace(hour=0, minute=0, second=0, microsecond=0))


@lru_cache(maxsize=4_096)
def _day_from(start: datetime) -> str:
    return format_span(
        TimeSpan(start=start, end=start + timedelta(days=1), granularity=Granularity.DAY)
    )
