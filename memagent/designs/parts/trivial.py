"""A slot that does nothing: no event graph of its own."""

from __future__ import annotations

from collections.abc import Sequence

from memagent.core.snapshot import Commit, GraphDelta
from memagent.designs.base import SlotContext


async def no_indexer(
    commits: Sequence[Commit],  # noqa: ARG001 - interface
    ctx: SlotContext,
    /,
) -> GraphDelta:
    """Add nothing to the event graph beyond the edges that follow from the ops."""
    return GraphDelta(session_id=ctx.session.id if ctx.session else None)
