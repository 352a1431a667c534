"""Cutting a session into balanced, contiguous chunks, and storing what is new of it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import ceil

from memagent.core.errors import InputError
from memagent.core.records import Chunk, Session, Turn
from memagent.core.snapshot import SessionStored, TurnsAdded
from memagent.core.trials import is_trial
from memagent.state.fold import BankState


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


def session_entry(state: BankState, session: Session) -> SessionStored | TurnsAdded | None:
    """Return the entry that stores what a memory lacks of a session; None when it has all.

    Raises `InputError` on a clash of ids.
    """
    known = state.sessions.get(session.id)
    if known is None:
        _refuse_taken(state, session.id, session.turns)
        return SessionStored(session=session)
    size = len(known.turns)
    both = min(size, len(session.turns))
    if (known.at, known.turns[:both]) != (session.at, session.turns[:both]):
        raise InputError(
            f"session {session.id!r} is stored already with other content; "
            f"give the new one another id (it has {len(session.turns)} turns, "
            f"the stored one {size})"
        )
    if len(session.turns) <= size:
        return None  # it has grown since, as a conversation does
    _refuse_taken(state, session.id, session.turns[size:])
    return TurnsAdded(session_id=session.id, turns=session.turns[size:])


def _refuse_taken(state: BankState, session_id: str, turns: Sequence[Turn]) -> None:
    """Raise `InputError` for a turn id that a stored turn has."""
    for turn in turns:
        if turn.id in state.turns:
            raise InputError(
                f"turn id {turn.id!r} of session {session_id!r} is taken by session "
                f"{state.turns[turn.id][0]!r}; turn ids must be unique"
            )
