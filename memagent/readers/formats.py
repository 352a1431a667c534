"""Detection of a file's format, and one function for all readers.

Detection looks at the content, never at the name: a field of the first JSON object tells
the JSON formats apart, the first line those of text. Messages, plain text and the
exports of seven programs are built in and are tried first; a distribution adds a
`FileFormat` under the entry-point group `memagent.readers`, as this one does for LoCoMo
and LongMemEval. A plug-in is imported only for a file that no built-in format fits, for
its name, and for the list of formats in an error.

Messages are written as OpenAI-style APIs write them, one JSON object a line or a JSON
list: `{"role", "content", "name"?, "created_at" or "timestamp"?, "session_id"?}`.
Content is a string or a list of parts, whose texts are joined. Trust follows the role.
Messages with one `session_id` are one session; without it each UTC day is a session
named by its date, and an undated message stays with the one before it. A message
without any text, such as a bare tool call, is left out and counted, so that turn
numbers `{session_id}:{n}` count what was kept.

Plain text is what people can write by hand:

    # 8 May 2023, 1:56 pm          a heading begins a session
    Ana Silva: Hi!                 a turn: a name of one to four words, a colon, a space
      More of the same turn.       lines without a name go on with the turn
    [2023-05-08 13:58] Ben: Hey    a turn with its own time

A heading may also be "--- 2023-05-08 ---" or "[2023-05-08]"; a line of a turn that
looks like "Name: text" must be indented. A session is named by its date ("2023-05-08",
a second one that day "2023-05-08-2") or, undated, by its place ("session_2"); turns are
`{session id}:{n}`. Turns with their own dates outside any heading are one session a
day. The surprise: a name of several words counts only if all its words are capitalised
or it occurs twice, so that "she said: no" stays a sentence.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final, cast

from memagent.core.errors import InputError
from memagent.core.records import Granularity, Session, Trust
from memagent.plugins import available, load
from memagent.readers import exports
from memagent.readers.files import (
    TRUST_OF_ROLE,
    Conversation,
    Utterance,
    bad_input,
    build_session,
    faults_of,
    gather,
    head_of,
    json_records,
    lines_of,
    list_in,
    moment_in,
    object_in,
    parse_line,
    text_in,
)

ACCEPTED_MESSAGES = (
    'one JSON message a line, {"role": "user", "content": "...", "name"?, '
    '"created_at" or "timestamp"?, "session_id"?}, or a JSON list of such messages'
)
FIRST_SESSION = "session_1"
"""Session of messages that bear neither a session id nor a date and follow none."""
_TEXT_PARTS = {"text", "input_text", "output_text"}
ACCEPTED_TEXT = (
    "lines 'Speaker: text' under date headings such as '# 8 May 2023, 1:56 pm', "
    "or '[2023-05-08 13:56] Speaker: text'; or an export of WhatsApp, Telegram, Signal, "
    "ChatGPT or Claude"
)
_HEADING = re.compile(
    r"#{1,6}\s+(?P<hash>.+)|(?:-{3,}|={3,})\s*(?P<rule>[^-=\s].*?)\s*(?:-{3,}|={3,})?"
    r"|\[(?P<date>[^\]]*\d{4}[^\]]*)\]"
)
_RULE = re.compile(r"[-=*_]{3,}")
_TURN = re.compile(
    r"(?:\[(?P<at>[^\]]*\d{4}[^\]]*)\]\s*)?"
    r"(?P<speaker>[^\W\d_](?:[\w.'’()&-]| (?=\S)){0,59}?)\s?:(?:\s+(?P<text>.*)|$)"
)
_PLAIN_TEXT = re.compile(f"{_HEADING.pattern}|{_TURN.pattern}")
# Speakers trusted less than a person; no name in a text file earns more.
_TRUST = {"assistant": Trust.ASSISTANT, "tool": Trust.TOOL}
_DATED = {Granularity.DAY, Granularity.HOUR, Granularity.MINUTE}
_LONE_SPEAKER_FROM = 20
_JSON_START = re.compile(r"\s*(?:\{|\[\s*(?:[{\]]|\Z))")


@dataclass(frozen=True, kw_only=True)
class FileFormat:
    """A format of files that hold conversations."""

    accepted: str
    """What a file must hold, in words, for errors."""
    read: Callable[[Path], Iterator[Conversation]]
    """Yield the conversations of a file one by one."""
    fields: tuple[str, ...] = ()
    """Fields of the first JSON object; a file of this format alone has one of them."""
    begins: re.Pattern[str] | None = None
    """What the first line of a text file looks like, for a format of text."""


def read_messages(path: str | Path) -> Conversation:
    """Read the conversation of a message file, named by the file's stem.

    Raises `InputError` naming the line of the first fault.
    """
    file = Path(path)
    warnings: list[str] = []

    def said() -> Iterator[tuple[str, Utterance]]:
        current = FIRST_SESSION
        for line, message in _messages(file):
            utterance = _utterance(file, line, message, warnings)
            day = f"{utterance.at:%Y-%m-%d}" if utterance.at else current
            current = text_in(message.get("session_id")) or day
            yield current, utterance

    return gather(file, said(), warnings, accepted=ACCEPTED_MESSAGES, lacking="text")


def _messages(path: Path) -> Iterator[tuple[int, dict[str, object]]]:
    lines = lines_of(path, accepted=ACCEPTED_MESSAGES)
    for number, line in lines:
        if not line.strip():
            continue
        if line.lstrip().startswith("["):
            lines.close()
            yield from json_records(path, accepted=ACCEPTED_MESSAGES)
            return
        yield number, parse_line(path, number, line, accepted=ACCEPTED_MESSAGES)


def _utterance(path: Path, line: int, message: dict[str, object], warnings: list[str]) -> Utterance:
    role, where = text_in(message.get("role")), f"line {line}"
    if role not in TRUST_OF_ROLE:
        wrong = f"unknown role {role!r}" if "role" in message else "the message has no 'role'"
        raise bad_input(path, where, wrong, f"the roles {', '.join(TRUST_OF_ROLE)}")
    if "content" not in message:
        raise bad_input(path, where, "the message has no 'content'", ACCEPTED_MESSAGES)
    content = message["content"]
    if isinstance(content, str):
        text, caption = content, None
    elif content is None or isinstance(content, list):
        text, caption = _parts(line, list_in(cast("object", content)), warnings)
    else:
        raise bad_input(
            path, where, "'content' is neither a string nor a list of parts", ACCEPTED_MESSAGES
        )
    stamp = message.get("created_at", message.get("timestamp"))
    at = moment_in(stamp)
    if at is None and stamp is not None:
        warnings.append(f"{where}: {text_in(stamp)!r} is no date; the message stays undated")
    return Utterance(
        where=where,
        speaker=text_in(message.get("name")) or role,
        text=text,
        at=at,
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


@dataclass(slots=True)
class _Turn:
    """A turn whose lines are still being gathered."""

    line: int
    speaker: str
    at: datetime | None
    lines: list[str]

    @property
    def text(self) -> str:
        """All lines, without blank ones at either end."""
        return "\n".join(self.lines).strip()


@dataclass(slots=True)
class _Part:
    """A session being gathered: begun by a heading, or by the date of a turn outside any."""

    at: datetime | None
    headed: bool
    turns: list[_Turn] = field(default_factory=list["_Turn"])


def read_plain_text(path: str | Path) -> Conversation:
    """Read the conversation of a dated plain text file, named by the file's stem.

    Raises `InputError` naming the first line at fault.
    """
    file = Path(path)
    lines = list(lines_of(file, accepted=ACCEPTED_TEXT))
    warnings: list[str] = []
    parts = _gather(file, lines, warnings)
    sessions = _sessions(file, parts, warnings)
    if not sessions:
        raise bad_input(file, "", "there are no turns", ACCEPTED_TEXT)
    turns = [turn for part in parts for turn in part.turns]
    count = Counter(turn.speaker for turn in turns)
    if len(turns) >= _LONE_SPEAKER_FROM:
        warnings += [
            f"line {turn.line}: {turn.speaker!r} speaks only here; "
            "indent the line if it belongs to the turn before"
            for turn in turns
            if count[turn.speaker] == 1
        ]
    with faults_of(file, "", ACCEPTED_TEXT):
        return Conversation(id=file.stem, sessions=sessions, warnings=tuple(warnings))


def _gather(path: Path, lines: list[tuple[int, str]], warnings: list[str]) -> list[_Part]:
    labels = Counter(match["speaker"] for _, line in lines if (match := _TURN.match(line)))
    parts = [_Part(at=None, headed=False)]
    turn: _Turn | None = None
    for number, line in lines:
        heading = _HEADING.fullmatch(line.strip()) if not line[:1].isspace() else None
        match = _TURN.match(line)
        if _RULE.fullmatch(line.strip()):
            turn = None
        elif heading and (begun := _part(number, heading, warnings)):
            parts.append(begun)
            turn = None
        elif match and _is_name(match["speaker"], labels):
            turn = _Turn(
                number,
                match["speaker"],
                _moment(match["at"], number, warnings),
                [match["text"] or ""],
            )
            last = parts[-1]
            if (
                turn.at
                and not last.headed
                and last.turns
                and (not last.at or last.at.date() != turn.at.date())
            ):
                parts.append(_Part(at=turn.at, headed=False))
            elif turn.at and not last.at and not last.turns:
                last.at = turn.at
            parts[-1].turns.append(turn)
        elif turn is not None:
            turn.lines.append(line.strip())
        elif line.strip():
            raise bad_input(
                path,
                f"line {number}",
                f"{line.strip()[:40]!r} is neither a heading nor a turn",
                ACCEPTED_TEXT,
            )
    return parts


def _part(number: int, heading: re.Match[str], warnings: list[str]) -> _Part | None:
    """Begin a session at a heading; return None when the line is no heading after all."""
    text = heading["hash"] or heading["rule"] or heading["date"]
    at = _read_date(text)
    if at is None and heading["hash"] is None:
        return None
    if at is None and any(sign.isdigit() for sign in text):
        warnings.append(f"line {number}: no date in the heading {text!r}; its session is undated")
    return _Part(at=at, headed=True)


def _sessions(path: Path, parts: list[_Part], warnings: list[str]) -> tuple[Session, ...]:
    sessions: list[Session] = []
    taken: Counter[str] = Counter()
    for part in parts:
        said = [
            Utterance(
                where=f"line {turn.line}",
                speaker=turn.speaker,
                text=turn.text,
                at=turn.at,
                trust=_TRUST.get(turn.speaker.lower(), Trust.USER),
            )
            for turn in part.turns
            if turn.text
        ]
        warnings += [
            f"line {turn.line}: a turn without words is left out"
            for turn in part.turns
            if not turn.text
        ]
        if not said:
            continue
        name = f"{part.at:%Y-%m-%d}" if part.at else f"session_{len(sessions) + 1}"
        taken[name] += 1
        unique = name if taken[name] == 1 else f"{name}-{taken[name]}"
        sessions.append(build_session(path, unique, part.at, said, accepted=ACCEPTED_TEXT))
    return tuple(sessions)


def _is_name(label: str, labels: Counter[str]) -> bool:
    words = label.split()
    capitalised = all(word[0].isupper() or not word[0].isalpha() for word in words)
    return len(words) <= 4 and (len(words) == 1 or labels[label] > 1 or capitalised)


def _read_date(text: str) -> datetime | None:
    # Imported late: other formats need no time grammar.
    from memagent.timex.resolve import find_times

    spans = (mention.span for mention in find_times(text, anchor=None))
    return next((span.start for span in spans if span.granularity in _DATED), None)


def _moment(text: str | None, number: int, warnings: list[str]) -> datetime | None:
    if text is None:
        return None
    at = _read_date(text)
    if at is None:
        warnings.append(f"line {number}: {text!r} is no date; the turn has its session's")
    return at


def _one(
    accepted: str,
    read: Callable[[Path], Conversation],
    *fields: str,
    begins: re.Pattern[str] | None = None,
) -> FileFormat:
    """Make the format of files that hold one conversation each."""
    return FileFormat(
        accepted=accepted, read=lambda file: iter((read(file),)), fields=fields, begins=begins
    )


_BUILT_IN: Final = {
    "whatsapp": _one(
        exports.ACCEPTED["whatsapp"], exports.read_whatsapp, begins=exports.WHATSAPP_LINE
    ),
    "zep": _one(exports.ACCEPTED["zep"], exports.read_zep, "row_count", "thread_created_at"),
    "letta": _one(exports.ACCEPTED["letta"], exports.read_letta, "agents"),
    "telegram": _one(exports.ACCEPTED["telegram"], exports.read_telegram, "messages", "chats"),
    "signal": _one(exports.ACCEPTED["signal"], exports.read_signal, "sender"),
    "chatgpt": _one(exports.ACCEPTED["chatgpt"], exports.read_chatgpt, "mapping"),
    "claude": _one(exports.ACCEPTED["claude"], exports.read_claude, "chat_messages"),
    "messages": _one(ACCEPTED_MESSAGES, read_messages, "role"),
    "text": _one(ACCEPTED_TEXT, read_plain_text, begins=_PLAIN_TEXT),
}


def formats() -> dict[str, FileFormat]:
    """Import the formats of plug-ins and return all by name; plain text is the last."""
    added = {name: cast("FileFormat", load("readers", name)) for name in available("readers")}
    return {**added, **_BUILT_IN}


def read_conversation(path: str | Path, format: str = "auto") -> Conversation:
    """Read the one conversation of a file; `format` is `auto` or a name of `formats()`.

    Raises `InputError` for a file that cannot be read as that format, and for a
    benchmark file of several conversations: those are for `iter_conversations`.
    """
    conversations = iter_conversations(path, format)
    first = next(conversations)
    if next(conversations, None) is not None:
        raise bad_input(
            Path(path),
            "",
            "the file holds several conversations",
            "one; iter_conversations reads them all",
        )
    return first


def iter_conversations(path: str | Path, format: str = "auto") -> Iterator[Conversation]:
    """Read all conversations of a file one by one; at least one, or an `InputError`."""
    file = Path(path)
    chosen = detect_format(file) if format == "auto" else format
    known = _BUILT_IN if chosen in _BUILT_IN else formats()
    if chosen not in known:
        raise InputError(
            f"unknown format {format!r} for {file}. Accepted: auto, {', '.join(known)}"
        )
    yield from known[chosen].read(file)


def detect_format(path: str | Path) -> str:
    """Detect the format of a file by its content.

    Raises `InputError` for JSON of no known kind and for a file that is no text.
    """
    file = Path(path)
    with suppress(InputError):  # raised again below, with the formats of plug-ins in its text
        if name := _detected(file, _BUILT_IN):
            return name
    return _detected(file, formats()) or "text"


def _detected(file: Path, known: Mapping[str, FileFormat]) -> str:
    """Return the first format that fits a file, or "" for text that none fits."""
    accepted = "; ".join(f"{name}: {format.accepted}" for name, format in known.items())
    head = head_of(file, accepted=ACCEPTED_TEXT)
    if not _JSON_START.match(head):
        first = head.lstrip().partition("\n")[0].rstrip("\r")
        texts = (name for name, each in known.items() if each.begins and each.begins.match(first))
        return next(texts, "")
    _, keys = next(json_records(file, accepted=accepted))
    for name, format in known.items():
        if not keys.keys().isdisjoint(format.fields):
            return name
    fields = ", ".join(repr(field) for format in known.values() for field in format.fields)
    wrong = f"the JSON is of no known kind: its first object has none of {fields}"
    raise bad_input(file, "", wrong, accepted)
