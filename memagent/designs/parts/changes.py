"""How memories that replaced or contradict one another are told to a model and to the reader: both, each with its date.

Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from memagent.core.answers import Hit
from memagent.designs.parts.rules.wording import day_of, quote_from, said_line
from memagent.designs.prompting import quoted
from memagent.state.versions import Clash
from memagent.timex.resolve import format_span

_MAX_LINES = 24
_MAX_NOTES = 3


def change_lines(found: Sequence[Clash]) -> list[str]:
    """One line a pair for a prompt, by ids and dates; at most 24."""
    return [
        f"- [{quoted(one.earlier.id)}]{_on(one.earlier)} was replaced by [{quoted(one.later.id)}]{_on(one.later)}"
        if one.replaced
        else f"- [{quoted(one.earlier.id)}]{_on(one.earlier)} and [{quoted(one.later.id)}]{_on(one.later)} contradict each other"
        for one in found[:_MAX_LINES]
    ]


def change_notes(found: Sequence[Clash], cited: Collection[str]) -> tuple[str, ...]:
    """One note a pair for the reader, both statements with speaker and date; at most
    three, pairs that were cited first.

    `cited` holds ids of hits or turns.
    """

    def uncited(one: Clash) -> bool:
        names = {
            one.earlier.id,
            one.later.id,
            *one.earlier.source_turn_ids,
            *one.later.source_turn_ids,
        }
        return names.isdisjoint(cited)

    return tuple(
        f"This has changed: {_told(one.earlier)}, then {_told(one.later)}"
        if one.replaced
        else f"Memory does not agree: {_told(one.earlier)}, and {_told(one.later)}"
        for one in sorted(found, key=uncited)[:_MAX_NOTES]
    )


def _told(hit: Hit) -> str:
    record = hit.item or hit.event
    speaker = hit.item.speaker if hit.item is not None else None
    line = said_line(
        speaker, record.said_at if record is not None else None, quote_from(hit.text, (), limit=160)
    )
    return line if speaker else line[:1].lower() + line[1:]


def _on(hit: Hit) -> str:
    record = hit.item or hit.event
    if record is None or record.said_at is None:
        return ""
    return f" (said {format_span(day_of(record.said_at))})"
