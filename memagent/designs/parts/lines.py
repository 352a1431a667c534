"""One line for each thing a prompt shows: turns, facts, memories, events.

Pure; every part passes `quoted`.

Dates are written out ("8 May 2023"), since facts and answers are to be worded so. Ids
and versions stand in brackets before all else, so that a text cannot pretend to be
another memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from memagent.core.answers import Hit
from memagent.core.records import Event, Fact, Granularity, TimeSpan, Trust, Turn
from memagent.designs.prompting import quoted
from memagent.timex.resolve import format_span

_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MAX_TURN_IDS = 8


def day_span(moment: datetime) -> TimeSpan:
    """Return the UTC day of a moment."""
    start = moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return TimeSpan(start=start, end=start + timedelta(days=1), granularity=Granularity.DAY)


def day_text(moment: datetime) -> str:
    """Write the UTC day in words: "8 May 2023"."""
    return _midnight_text(moment.replace(hour=0, minute=0, second=0, microsecond=0))


@lru_cache(maxsize=4_096)
def _midnight_text(midnight: datetime) -> str:
    return format_span(day_span(midnight))


def weekday_text(moment: datetime) -> str:
    """Write the UTC day in words, with its weekday: "Monday, 8 May 2023"."""
    return f"{_WEEKDAYS[moment.weekday()]}, {day_text(moment)}"


def date_text(at: datetime | None) -> str:
    """Write the day of a conversation for a prompt that resolves relative time by it."""
    return weekday_text(at) if at else "unknown, so leave relative time as it was told"


def turn_line(turn: Turn) -> str:
    """Write a turn: id, speaker, words, picture."""
    return f"[{quoted(turn.id)}] {quoted(turn.speaker)}: {quoted(turn.said)}"


def fact_line(index: int, fact: Fact) -> str:
    """Write a fact under its number."""
    notes = _notes(
        said=fact.said_at,
        by=fact.speaker,
        about=fact.subject,
        turns=fact.source_turn_ids,
        valid=fact.valid,
    )
    return f"{index}. {notes}{quoted(fact.text)}"


def hit_line(hit: Hit, *, version: bool = False) -> str:
    """Write a memory or an event.

    The line gives its id (with `version` also its version), dates, speaker, source
    turns, the path by which a walk reached it, how far it is trusted where that is less
    than a user's words, and its text.
    """
    record = hit.item or hit.event
    by = hit.item.speaker if hit.item else ", ".join(hit.event.people) if hit.event else None
    about = hit.item.subject if hit.item else None
    notes = _notes(
        said=record.said_at if record else None,
        by=by,
        about=about if about != by else None,
        turns=hit.source_turn_ids,
        valid=record.valid if record else None,
        more=(
            f"reached {path}" if (path := path_text(hit)) else "",
            f"trust {hit.trust.value}" if hit.trust.rank > Trust.USER.rank else "",
        ),
    )
    name = f"{quoted(hit.id)} v{hit.item.version}" if version and hit.item else quoted(hit.id)
    return f"[{name}] {notes}{quoted(hit.text)}"


def event_notes(event: Event) -> str:
    """Write day, people and time of an event, in parentheses; "" when it has none."""
    return _notes(said=event.said_at, by=", ".join(event.people), valid=event.valid)


def path_text(hit: Hit) -> str:
    """Write the path of a walk to the hit, seed first: "mem_a -supersedes-> this".

    Return "" when the hit was found by search.
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
    valid: TimeSpan | None,
    about: str | None = None,
    turns: Iterable[str] = (),
    more: Iterable[str] = (),
) -> str:
    turn_ids = ", ".join(map(quoted, list(turns)[-_MAX_TURN_IDS:]))
    notes = (
        f"said {day_text(said)}" if said else "",
        f"by {quoted(by)}" if by else "",
        f"about {quoted(about)}" if about else "",
        f"turns {turn_ids}" if turn_ids else "",
        f"time {format_span(valid)}" if valid else "",
        *more,
    )
    known = "; ".join(note for note in notes if note)
    return f"({known}) " if known else ""
