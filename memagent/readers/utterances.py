"""Turns and sessions from a file: ids, trust, length limits, and a place for every fault."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pydantic import ValidationError

from memagent.core.errors import fault_in
from memagent.core.records import MAX_TURN_CHARS, Session, Trust, Turn
from memagent.readers.files import bad_input

TRUST_OF_ROLE = {
    "user": Trust.USER,
    "assistant": Trust.ASSISTANT,
    "tool": Trust.TOOL,
    "function": Trust.TOOL,
    "system": Trust.SYSTEM,
    "developer": Trust.SYSTEM,
}
"""Trust in the words of each role."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Utterance:
    """A turn as read, before it has an id; `where` is its place in the file."""

    where: str
    speaker: str
    text: str
    at: datetime | None = None
    trust: Trust = Trust.USER
    caption: str | None = None
    id: str | None = None


def build_session(
    path: Path,
    session_id: str,
    at: datetime | None,
    utterances: Sequence[Utterance],
    *,
    accepted: str,
) -> Session:
    """Build the session of some utterances.

    An utterance without an id of its own gets `{session_id}:{n}`, n from 1. Raises
    `InputError` at the place of an utterance that is too long, bears the id of an
    earlier one or is otherwise unusable.
    """
    turns: dict[str, Turn] = {}
    for number, said in enumerate(utterances, start=1):
        turn_id = said.id or f"{session_id}:{number}"
        if turn_id in turns:
            wrong = f"turn id {turn_id!r} occurs twice"
            raise bad_input(path, said.where, wrong, f"{accepted}, turn ids unique")
        if max(len(said.text), len(said.caption or "")) > MAX_TURN_CHARS:
            wrong = f"a turn of {len(said.text):,} characters; split it into several turns"
            limit = f"at most {MAX_TURN_CHARS:,} characters a turn"
            raise bad_input(path, said.where, wrong, limit)
        with faults_of(path, said.where, accepted):
            turns[turn_id] = Turn(
                id=turn_id,
                speaker=said.speaker,
                text=said.text,
                at=said.at,
                image_caption=said.caption,
                trust=said.trust,
            )
    where = utterances[0].where if utterances else ""
    with faults_of(path, where, accepted, record=f"session {session_id!r}: "):
        return Session(id=session_id, at=at, turns=tuple(turns.values()))


@contextmanager
def faults_of(path: Path, where: str, accepted: str, *, record: str = "") -> Generator[None]:
    """Raise the faults of records that are made in the block as faults of the file."""
    try:
        yield
    except ValidationError as exc:
        raise bad_input(path, where, f"{record}{fault_in(exc)}", accepted) from exc
