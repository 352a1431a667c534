"""From what a file says to turns and sessions: ids, trust, length limits, and a place
in the file for every fault.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pydantic import ValidationError

from memagent.core.records import MAX_TURN_CHARS, Session, Trust, Turn
from memagent.readers.files import bad_input
from memagent.readers.records import Conversation

TRUST_OF_ROLE = {
    "user": Trust.USER,
    "assistant": Trust.ASSISTANT,
    "tool": Trust.TOOL,
    "function": Trust.TOOL,
    "system": Trust.SYSTEM,
    "developer": Trust.SYSTEM,
}
"""How far the words of each role are trusted."""


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
    """The session of these utterances; one without an id of its own gets
    `{session_id}:{n}`, n from 1.

    Raises `InputError` at the place of an utterance that is too long, bears an id given
    before or is otherwise unusable.
    """
    turns: list[Turn] = []
    seen: set[str] = set()
    for number, said in enumerate(utterances, start=1):
        turn_id = said.id or f"{session_id}:{number}"
        if turn_id in seen:
            raise bad_input(
                path,
                said.where,
                f"turn id {turn_id!r} occurs twice",
                f"{accepted}, turn ids unique",
            )
        if max(len(said.text), len(said.caption or "")) > MAX_TURN_CHARS:
            wrong = f"a turn of {len(said.text):,} characters; split it into several turns"
            raise bad_input(
                path, said.where, wrong, f"at most {MAX_TURN_CHARS:,} characters a turn"
            )
        seen.add(turn_id)
        try:
            turns.append(
                Turn(
                    id=turn_id,
                    speaker=said.speaker,
                    text=said.text,
                    at=said.at,
                    image_caption=said.caption,
                    trust=said.trust,
                )
            )
        except ValidationError as exc:
            raise bad_input(path, said.where, _first_fault(exc), accepted) from exc
    try:
        return Session(id=session_id, at=at, turns=tuple(turns))
    except ValidationError as exc:
        where = utterances[0].where if utterances else ""
        raise bad_input(
            path, where, f"session {session_id!r}: {_first_fault(exc)}", accepted
        ) from exc


def build_conversation(
    path: Path, conversation: Callable[[], Conversation], *, accepted: str
) -> Conversation:
    """The conversation that the callable makes, its faults told as faults of the file."""
    try:
        return conversation()
    except ValidationError as exc:
        raise bad_input(path, "", _first_fault(exc), accepted) from exc


def _first_fault(exc: ValidationError) -> str:
    fault = exc.errors()[0]
    place = ".".join(str(part) for part in fault["loc"])
    return f"{place}: {fault['msg']}" if place else fault["msg"].removeprefix("Value error, ")
