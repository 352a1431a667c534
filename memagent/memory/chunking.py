"""Cutting a session into balanced, contiguous chunks."""

from __future__ import annotations

from itertools import pairwise
from math import ceil

from memagent.core.records import Chunk, Session
from memagent.core.trials import is_trial


def split_session(session: Session, *, chunk_turns: int = 8) -> tuple[Chunk, ...]:
    """Cut a session into chunks of at most `chunk_turns` turns; sizes differ by one at most.

    Ids are `{session}#{index}`. Turns made from recalled memory are left out, so memory
    never feeds on itself; () when nothing else is left, and for the text of a trial, of
    which a design's learner takes lessons. Each part by which a session
    grew is cut by itself, so the chunks of earlier parts stay as they were.
    """
    chunks: list[Chunk] = []
    for part in () if is_trial(session.id) else session.parts:
        turns = tuple(turn for turn in part if not turn.recalled)
        total, first = len(turns), len(chunks)
        count = ceil(total / chunk_turns)
        bounds = [round(i * total / count) for i in range(count + 1)] if count else []
        chunks += (
            Chunk(
                id=f"{session.id}#{i}",
                session_id=session.id,
                index=i,
                count=first + count,
                at=session.at,
                turns=turns[lo:hi],
            )
            for i, (lo, hi) in enumerate(pairwise(bounds), first)
        )
    return tuple(chunks)
