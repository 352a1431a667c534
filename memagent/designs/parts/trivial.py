"""Slots that do nothing: no event graph of their own, no learning from use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from memagent.core.answers import Hit
from memagent.core.records import ItemStats
from memagent.core.snapshot import Commit, GraphDelta
from memagent.designs.base import SlotContext


async def no_indexer(
    commits: Sequence[Commit],  # noqa: ARG001 - interface
    ctx: SlotContext,
    /,
) -> GraphDelta:
    """Add nothing to the event graph beyond the edges that follow from the ops."""
    return GraphDelta(session_id=ctx.session.id if ctx.session else None)


def no_feedback(
    hits: Sequence[Hit],  # noqa: ARG001 - interface
    reward: float,  # noqa: ARG001 - interface
    stats: Mapping[str, ItemStats],  # noqa: ARG001 - interface
    /,
) -> tuple[tuple[str, ItemStats], ...]:
    """Learn nothing from use."""
    return ()
