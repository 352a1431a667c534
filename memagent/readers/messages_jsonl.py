"""Chat messages as OpenAI-style APIs write them: one JSON object a line, or a JSON list.

A message is `{"role", "content", "name"?, "created_at" or "timestamp"?,
"session_id"?}`; content is a string or a list of parts, whose texts are joined. Trust
follows the role. Messages with one `session_id` are one session; without it each UTC
day is a session named by its date, and an undated message stays with the one before it.
The surprise: a message without any text, such as a bare tool call, is left out and
counted, so that turn numbers `{session_id}:{n}` count what was kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

from memagent.core.records import Session, as_utc
from memagent.readers.files import (
    bad_input,
    json_records,
    lines_of,
    list_in,
    object_in,
    parse_line,
    text_in,
)
from memagent.readers.records import Conversation
from memagent.readers.utterances import TRUST_OF_ROLE, Utterance, build_session, faults_of

ACCEPTED = (
    'one JSON message a line, {"role": "user", "content": "...", "name"?, '
    '"created_at" or "timestamp"?, "session_id"?}, or a JSON list of such messages'
)
FIRST_SESSION = "session_1"
"""Session of messages that bear neither a session id nor a date and follow none."""
_MILLISECONDS_FROM = 1e11
_TEXT_PARTS = {"text", "input_text", "output_text"}


def read_messages(path: str | Path) -> Conversation:
    """Read the conversation of a message file, named by the file's stem.

    Raises `InputError` naming the line of the first fault.
    """
    file = Path(path)
    warnings: list[str] = []
    by_session: dict[str, list[Utterance]] = {}
    current = FIRST_SESSION
    empty = 0
    for line, message in _messages(file):
        said = _utterance(file, line, message, warnings)
        session_id = text_in(message.get("session_id"))
        current = session_id or (f"{said.at:%Y-%m-%d}" if said.at else current)
        if said.text.strip() or said.caption:
            by_session.setdefault(current, []).append(said)
        else:
            empty += 1
    if empty:
        warnings.append(f"{empty} messages without text are left out")
    if not by_session:
        raise bad_input(file, "", "there is no message with text", ACCEPTED)
    sessions: list[Session] = []
    for name, utterances in by_session.items():
        at = next((said.at for said in utterances if said.at), None)
        sessions.append(build_session(file, name, at, utterances, accepted=ACCEPTED))
    with faults_of(file, "", ACCEPTED):
        return Conversation(id=file.stem, sessions=tuple(sessions), warnings=tuple(warnings))


def _messages(path: Path) -> Iterator[tuple[int, dict[str, object]]]:
    lines = lines_of(path, accepted=ACCEPTED)
    for number, line in lines:
        if not line.strip():
            continue
        if line.lstrip().startswith("["):
            lines.close()
            yield from json_records(path, accepted=ACCEPTED)
            return
        yield number, parse_line(path, number, line, accepted=ACCEPTED)


def _utterance(path: Path, line: int, message: dict[str, object], warnings: list[str]) -> Utterance:
    role, where = text_in(message.get("role")), f"line {line}"
    if role not in TRUST_OF_ROLE:
        wrong = f"unknown role {role!r}" if "role" in message else "the message has no 'role'"
        raise bad_input(path, where, wrong, f"the roles {', '.join(TRUST_OF_ROLE)}")
    if "content" not in message:
        raise bad_input(path, where, "the message has no 'content'", ACCEPTED)
    content = message["content"]
    if isinstance(content, str):
        text, caption = content, None
    elif content is None or isinstance(content, list):
        text, caption = _parts(line, list_in(cast("object", content)), warnings)
    else:
        raise bad_input(path, where, "'content' is neither a string nor a list of parts", ACCEPTED)
    stamp = message.get("created_at", message.get("timestamp"))
    return Utterance(
        where=where,
        speaker=text_in(message.get("name")) or role,
        text=text,
        at=_moment(stamp, line, warnings),
        trust=TRUST_OF_ROLE[role],
        caption=caption,
    )


def _parts(line: int, parts: list[object], warnings: list[str]) -> tuple[str, str | None]:
    texts: list[str] = []
    captions: list[str] = []
    for value in parts:
        part = object_in(value)
        kind = text_in(part.get("type"))
        caption = text_in(part.get("caption")) or text_in(part.get("alt_text"))
        if isinstance(value, str):
            texts.append(value)
        elif kind in _TEXT_PARTS:
            texts.append(text_in(part.get("text")))
        elif caption:
            captions.append(caption)
        else:
            warnings.append(f"line {line}: a part of type {kind!r} has no text and is left out")
    return "\n".join(texts), "; ".join(captions) or None


def _moment(value: object, line: int, warnings: list[str]) -> datetime | None:
    """Read a UTC moment from ISO 8601 or from seconds (or milliseconds) since 1970."""
    if value is None:
        return None
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            seconds = value / 1_000 if abs(value) >= _MILLISECONDS_FROM else value
            return datetime.fromtimestamp(seconds, tz=UTC)
        return as_utc(datetime.fromisoformat(text_in(value).strip()))
    except (ValueError, OverflowError, OSError):
        warnings.append(f"line {line}: {text_in(value)!r} is no date; the message stays undated")
        return None
