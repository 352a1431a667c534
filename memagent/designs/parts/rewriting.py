"""A slot that does nothing: no event graph of its own.

Words for pairs of memories that replaced or contradict one another, with their dates.

Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from memagent.core.answers import Hit
from memagent.core.snapshot import Commit, GraphDelta
from memagent.designs.base import SlotContext, quoted
from memagent.designs.parts.lines import NO_NAMES, day_text
from memagent.designs.parts.rules.statements import quote_from, said_line
from memagent.state.versions import Clash

_MAX_LINES = 24
_MAX_NOTES = 3


def change_lines(clashes: Sequence[Clash], names: Mapping[str, str] = NO_NAMES) -> list[str]:
    """Write one line a pair for a prompt, by short names or ids, and dates; at most 24."""
    pairs = (
        (_dated(clash.earlier, names), _dated(clash.later, names), clash.replaced)
        for clash in clashes[:_MAX_LINES]
    )
    return [
        f"- {earlier} was replaced by {later}"
        if replaced
        else f"- {earlier} and {later} contradict each other"
        for earlier, later, replaced in pairs
    ]


def change_notes(clashes: Sequence[Clash], cited: Collection[str]) -> tuple[str, ...]:
    """Write one note a pair for the reader; at most three, cited pairs first.

    A note gives both statements with speaker and date. `cited` holds ids of hits or
    turns.
    """

    def uncited(clash: Clash) -> bool:
        earlier, later = clash.earlier, clash.later
        ids = {earlier.id, later.id, *earlier.source_turn_ids, *later.source_turn_ids}
        return ids.isdisjoint(cited)

    return tuple(
        f"This has changed: {_statement(clash.earlier)}, then {_statement(clash.later)}"
        if clash.replaced
        else f"Memory does not agree: {_statement(clash.earlier)}, and {_statement(clash.later)}"
        for clash in sorted(clashes, key=uncited)[:_MAX_NOTES]
    )


def _statement(hit: Hit) -> str:
    record = hit.item or hit.event
    speaker = hit.item.speaker if hit.item is not None else None
    quote = quote_from(hit.text, (), limit=160)
    line = said_line(speaker, record.said_at if record is not None else None, quote)
    return line if speaker else line[:1].lower() + line[1:]


def _dated(hit: Hit, names: Mapping[str, str]) -> str:
    record = hit.item or hit.event
    said_at = record.said_at if record is not None else None
    name = names.get(hit.id) or quoted(hit.id)
    return f"[{name}]{f' (said {day_text(said_at)})' if said_at else ''}"


async def no_indexer(
    commits: Sequence[Commit],  # noqa: ARG001 - interface
    ctx: SlotContext,
    /,
) -> GraphDelta:
    """Add nothing to the event graph beyond the edges that follow from the ops."""
    return GraphDelta(session_id=ctx.session.id if ctx.session else None)
