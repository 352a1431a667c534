"""Sessions and questions from loose input: texts, chat messages, turns.

The one place where loose input is read. Input that cannot be used is an `InputError`
that names the turn and the fix, before anything is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, cast

from pydantic import ValidationError

from memagent.core.answers import MAX_QUESTION_CHARS, Question
from memagent.core.errors import InputError, fault_in
from memagent.core.records import MAX_TURN_CHARS, Session, Trust, Turn, content_id

Said = Session | str | Sequence[Turn | Mapping[str, Any]]
"""Input to remember: a session, one utterance, or a list of turns or chat messages."""
_TRUST = {
    "user": Trust.USER,
    "assistant": Trust.ASSISTANT,
    "tool": Trust.TOOL,
    "system": Trust.SYSTEM,
}


def as_session(
    what: Said, *, at: datetime | None, session_id: str | None, now: datetime
) -> Session:
    """Return a caller's input as a session, dated `at` or else now.

    Raises `InputError` naming the turn that cannot be used.
    """
    if isinstance(what, Session):
        return what
    moment = now if at is None else at
    if not isinstance(moment, datetime):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(
            f"`at` is a {type(at).__name__}; "
            "give a datetime such as datetime(2024, 3, 4, tzinfo=UTC)"
        )
    messages = _listed(what)
    name = session_id or content_id("ses", moment.isoformat(), *map(str, messages))
    turns = tuple(_turn(turn, f"{name}:{at}", at) for at, turn in enumerate(messages, 1))
    try:
        return Session(id=name, at=moment, turns=turns)
    except ValidationError as exc:
        raise InputError(f"session {name!r} cannot be stored: {fault_in(exc)}") from exc


def as_question(asked: Question | str) -> Question:
    """Return a text as a question. Raises `InputError` if it is empty or too long."""
    if isinstance(asked, Question):
        return asked
    if not asked.strip():
        raise InputError("the question is empty")
    if len(asked) > MAX_QUESTION_CHARS:
        raise InputError(
            f"the question has {len(asked):,} characters; ask with at most {MAX_QUESTION_CHARS:,}"
        )
    return Question(text=asked)


def _listed(what: object) -> Sequence[object]:
    if isinstance(what, str):
        return [{"role": "user", "content": what}]
    if not isinstance(what, Sequence) or isinstance(what, bytes):
        raise InputError(
            f"a {type(what).__name__} cannot be remembered; "
            "give a text, a Session, or a list of turns or chat messages"
        )
    if not what:
        raise InputError("there are no turns to remember")
    return cast("Sequence[object]", what)


def _turn(message: object, turn_id: str, number: int) -> Turn:
    if isinstance(message, Turn):
        return message
    if not isinstance(message, Mapping):
        raise InputError(
            f"turn {number} is a {type(message).__name__}; give a Turn or a chat message "
            "such as {'role': 'user', 'content': 'Hello'}"
        )
    fields = cast("Mapping[str, Any]", message)
    text = fields.get("content", fields.get("text"))
    if not isinstance(text, str) or not text.strip():
        raise InputError(
            f"turn {number} has no text: give it as `content`, a string that is not empty"
        )
    if len(text) > MAX_TURN_CHARS:
        raise InputError(
            f"turn {number} has {len(text):,} characters, "
            f"a turn holds at most {MAX_TURN_CHARS:,}; split it into several"
        )
    role = str(fields.get("role") or "user")
    try:
        return Turn(
            id=str(fields.get("id") or turn_id),
            speaker=str(fields.get("name") or fields.get("speaker") or role),
            text=text,
            at=fields.get("at"),
            trust=_TRUST.get(role, Trust.UNTRUSTED),
            recalled=bool(fields.get("recalled", False)),
        )
    except ValidationError as exc:
        raise InputError(f"turn {number} cannot be stored: {fault_in(exc)}") from exc
