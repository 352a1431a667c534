"""Exports of seven programs: WhatsApp, Telegram, Signal, ChatGPT, Claude, Letta and Zep.

A chat of a messenger becomes one session a day; a talk with an assistant is a session
of its own, dated by its first message. Moments without a zone count as UTC. What has no
words (pictures, calls, notices, deleted messages) is left out and counted. The
surprise: WhatsApp writes dates in the order of the phone's language, which the file
does not name; the whole file decides between day and month.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import wraps
from itertools import pairwise
from pathlib import Path
from typing import Final

from memagent.readers.files import (
    TRUST_OF_ROLE,
    Conversation,
    Utterance,
    bad_input,
    faults_of,
    gather,
    json_records,
    lines_of,
    list_in,
    moment_in,
    object_in,
    parse_line,
    text_in,
)

ACCEPTED: Final = {
    "whatsapp": "a chat that WhatsApp exported as text, '12/03/2024, 21:05 - Ana: Hi'",
    "telegram": "result.json of Telegram Desktop's export",
    "signal": "data.json of signal-export, one message a line",
    "chatgpt": "conversations.json of ChatGPT's data export",
    "claude": "conversations.json of Claude's data export",
    "letta": "an agent file of Letta (.af)",
    "zep": "the messages of a thread of Zep, as its API gives them",
}
"""What each export must hold, by the name of its format."""
Said = tuple[str, Utterance]
"""The id of a session, and an utterance in it."""

WHATSAPP_LINE: Final = re.compile(
    r"[\u200e\u200f]*(?!\[\d{4}-\d\d-\d\d )\[?"
    r"(?P<date>\d{1,4}[./-]\s?\d{1,2}[./-]\s?\d{1,4})[.,]?\s+(?:(?:à|às|klo|pukul)\s+)?"
    r"(?P<hour>\d{1,2})[:.](?P<minute>\d\d)(?:[:.](?P<second>\d\d))?"
    r"(?:\s?(?P<half>[ap])\.?\s?m\.?)?(?:\]|\s+-)\s(?P<rest>.*)",
    re.IGNORECASE,
)
"""The first line of a message or notice, in the forms of Android and of iOS."""
# Who speaks, unless a quotation is open at the colon: 'Ana created group "Trip: Rome"'.
_SPEAKS = re.compile(
    r"(?!(?:[^:\"]*\"[^:\"]*\")*[^:\"]*\"[^:\"]*:|[^:„]*“[^:”]*:)"
    r"[\u200e\u202a]*(?:~\s?)?(?P<speaker>[^:]{1,80}?)[\u202c]*:(?: (?P<text>.*))?$"
)
# Notices of iOS, placeholders of media, names of attached files.
_WORDLESS = re.compile(r"\u200e.*|<[^<>]+>|null|\S+\.\w{3,4} \([^()]+\)", re.DOTALL)
_DELETED = frozenset(
    {
        "This message was deleted",
        "You deleted this message",
        "Diese Nachricht wurde gelöscht",
        "Du hast diese Nachricht gelöscht",
        "Ce message a été supprimé",
        "Vous avez supprimé ce message",
        "Se eliminó este mensaje",
        "Eliminaste este mensaje",
    }
)
_EDITED = re.compile(
    r"\s*(?:\u200e<[^<>]*>|<(?:This message was edited|Diese Nachricht wurde bearbeitet)>)$"
)


def read_whatsapp(path: Path) -> Conversation:
    """Read a chat that WhatsApp exported as text. Raises `InputError`."""
    heads: list[tuple[int, re.Match[str], list[str]]] = []
    for number, line in lines_of(path, accepted=ACCEPTED["whatsapp"]):
        if match := WHATSAPP_LINE.fullmatch(line):
            heads.append((number, match, [match["rest"]]))
        elif heads:
            heads[-1][2].append(line)
    warnings: list[str] = []
    dates = [[int(part) for part in re.split(r"[./-]", match["date"])] for _, match, _ in heads]
    in_order = _date_order([match["date"] for _, match, _ in heads], dates, warnings)

    def said() -> Iterator[Said]:
        for (number, match, lines), date in zip(heads, dates, strict=True):
            speaks = _SPEAKS.match(lines[0])
            if speaks is None:
                continue  # a notice of the program
            text = _EDITED.sub("", "\n".join([speaks["text"] or "", *lines[1:]]))
            with faults_of(path, f"line {number}", ACCEPTED["whatsapp"]):
                at = _whatsapp_moment(path, number, in_order(date), match)
            first, _, rest = text.partition("\n")
            kept = rest if _WORDLESS.fullmatch(first) else text
            kept = "" if kept.strip().rstrip(".") in _DELETED else kept.strip()
            yield (
                f"{at:%Y-%m-%d}",
                Utterance(
                    where=f"line {number}", speaker=speaks["speaker"].strip(), text=kept, at=at
                ),
            )

    return _conversation(path, said(), warnings)


def _export(said: Callable[[Path], Iterator[Said]]) -> Callable[[Path], Conversation]:
    """Make the reader of an export of a function that yields what was said."""

    @wraps(said)
    def read(path: Path) -> Conversation:
        return _conversation(path, said(path), [])

    return read


def _whatsapp_moment(
    path: Path, number: int, date: tuple[int, int, int], match: re.Match[str]
) -> datetime:
    hour, half = int(match["hour"]), (match["half"] or "").lower()
    hour = hour % 12 + 12 * (half == "p") if half else hour
    try:
        return datetime(*date, hour, int(match["minute"]), int(match["second"] or 0), tzinfo=UTC)
    except ValueError as exc:
        wrong = f"{match['date']!r} is no date in the order of the others"
        raise bad_input(path, f"line {number}", wrong, ACCEPTED["whatsapp"]) from exc


def _date_order(
    written: list[str], dates: list[list[int]], warnings: list[str]
) -> Callable[[list[int]], tuple[int, int, int]]:
    """Return what turns the three numbers of a date into year, month and day."""

    def day_first(date: list[int]) -> tuple[int, int, int]:
        day, month, year = date
        return (year + 2000 * (year < 100), month, day)

    def month_first(date: list[int]) -> tuple[int, int, int]:
        return day_first([date[1], date[0], date[2]])

    if any(date[0] > 31 for date in dates):
        return lambda date: (date[0], date[1], date[2])
    if any("." in date for date in written) or any(date[0] > 12 for date in dates):
        return day_first
    if any(date[1] > 12 for date in dates):
        return month_first
    # A chat goes forward in time: the wrong order jumps back.
    jumps = [
        sum(later < earlier for earlier, later in pairwise(map(order, dates)))
        for order in (day_first, month_first)
    ]
    if jumps[0] == jumps[1] and any(date[0] != date[1] for date in dates):
        warnings.append("day and month of the dates cannot be told apart; they are read day first")
    return month_first if jumps[1] < jumps[0] else day_first


@_export
def read_telegram(path: Path) -> Iterator[Said]:
    """Read the chat, or all chats, of Telegram Desktop's export. Raises `InputError`."""
    for _, record in json_records(path, accepted=ACCEPTED["telegram"]):
        chats = list_in(object_in(record.get("chats")).get("list")) or [record]
        for chat in map(object_in, chats):
            prefix = f"{text_in(chat.get('name')) or 'chat'} " if len(chats) > 1 else ""
            for message in map(object_in, list_in(chat.get("messages"))):
                if message.get("type") != "message":
                    continue
                seconds = text_in(message.get("date_unixtime"))
                at = moment_in(float(seconds) if seconds.isdecimal() else message.get("date"))
                parts = message.get("text")
                text = parts if isinstance(parts, str) else "".join(map(_text_of, list_in(parts)))
                speaker = (
                    text_in(message.get("forwarded_from"))
                    or text_in(message.get("from"))
                    or text_in(message.get("from_id"))
                    or "unknown"
                )
                where = f"message {text_in(message.get('id'))}"
                yield (
                    f"{prefix}{_day(at)}",
                    Utterance(where=where, speaker=speaker, text=text.strip(), at=at),
                )


def _text_of(part: object) -> str:
    return part if isinstance(part, str) else text_in(object_in(part).get("text"))


@_export
def read_signal(path: Path) -> Iterator[Said]:
    """Read the messages that signal-export wrote. Raises `InputError`."""
    for number, line in lines_of(path, accepted=ACCEPTED["signal"]):
        if not line.strip():
            continue
        message = parse_line(path, number, line, accepted=ACCEPTED["signal"])
        at, gone = moment_in(message.get("date")), message.get("deleted") or message.get("call")
        yield (
            _day(at),
            Utterance(
                where=f"line {number}",
                speaker=text_in(message.get("sender")) or "unknown",
                text="" if gone else text_in(message.get("body")).strip(),
                at=at,
            ),
        )


@_export
def read_chatgpt(path: Path) -> Iterator[Said]:
    """Read the talks of ChatGPT's data export, each along the branch that stood last.

    Raises `InputError`.
    """
    for line, talk in json_records(path, accepted=ACCEPTED["chatgpt"]):
        session = text_in(talk.get("conversation_id") or talk.get("id")) or f"talk {line}"
        for message in _branch(talk):
            role = text_in(object_in(message.get("author")).get("role"))
            hidden = object_in(message.get("metadata")).get("is_visually_hidden_from_conversation")
            content = object_in(message.get("content"))
            if role not in ("user", "assistant") or hidden:
                continue
            if content.get("content_type") not in ("text", "multimodal_text"):
                continue
            parts = filter(None, map(_text_of, list_in(content.get("parts"))))
            at = moment_in(message.get("create_time") or talk.get("create_time"))
            yield session, _of_role(line, role, "\n".join(parts), at)


def _branch(talk: dict[str, object]) -> list[dict[str, object]]:
    """Return the messages from the root to the current node."""
    nodes = object_in(talk.get("mapping"))
    name = text_in(talk.get("current_node")) or next(reversed(nodes), "")
    messages: list[dict[str, object]] = []
    seen: set[str] = set()
    while name in nodes and name not in seen:
        seen.add(name)
        node = object_in(nodes[name])
        messages.append(object_in(node.get("message")))
        name = text_in(node.get("parent"))
    return messages[::-1]


@_export
def read_claude(path: Path) -> Iterator[Said]:
    """Read the talks of Claude's data export. Raises `InputError`."""
    for line, talk in json_records(path, accepted=ACCEPTED["claude"]):
        session = text_in(talk.get("uuid")) or f"talk {line}"
        for message in map(object_in, list_in(talk.get("chat_messages"))):
            role = "user" if message.get("sender") == "human" else "assistant"
            parts = map(object_in, list_in(message.get("content")))
            texts = [text_in(part.get("text")) for part in parts if part.get("type") == "text"]
            text = "\n".join(texts) or text_in(message.get("text"))
            at = moment_in(message.get("created_at") or talk.get("created_at"))
            yield session, _of_role(line, role, text, at)


@_export
def read_letta(path: Path) -> Iterator[Said]:
    """Read the messages of Letta's agent file. Raises `InputError`.

    What an agent said is what it sent: its thoughts and the events of the program are
    left out.
    """
    for line, record in json_records(path, accepted=ACCEPTED["letta"]):
        agents = [object_in(agent) for agent in list_in(record.get("agents"))]
        for agent in agents:
            prefix = f"{text_in(agent.get('name')) or 'agent'} " if len(agents) > 1 else ""
            for message in map(object_in, list_in(agent.get("messages"))):
                role, at = text_in(message.get("role")), moment_in(message.get("created_at"))
                if role in ("user", "assistant"):
                    yield f"{prefix}{_day(at)}", _of_role(line, role, _letta_text(message), at)


def _letta_text(message: dict[str, object]) -> str:
    """Return the words of a message: those sent by a tool, packed in JSON, or plain ones."""
    calls = [
        object_in(object_in(call).get("function")) for call in list_in(message.get("tool_calls"))
    ]
    sent = [text_in(call.get("arguments")) for call in calls if call.get("name") == "send_message"]
    content = message.get("content")
    plain = content if isinstance(content, str) else "\n".join(map(_text_of, list_in(content)))
    words = [_unpacked(text) for text in sent or ([] if calls else [plain])]
    return "\n".join(words)


def _unpacked(text: str) -> str:
    """Return the message in an object of Letta's, "" for an event, other text as it is."""
    packed: dict[str, object] = {}
    with suppress(ValueError):
        packed = object_in(json.loads(text))
    if packed.get("type", "user_message") == "user_message" and "message" in packed:
        return text_in(packed["message"])
    return "" if packed.keys() >= {"type", "time"} else text


@_export
def read_zep(path: Path) -> Iterator[Said]:
    """Read the messages of Zep's threads, one object a thread. Raises `InputError`."""
    threads = json_records(path, accepted=ACCEPTED["zep"])
    for number, (line, thread) in enumerate(threads, start=1):
        prefix = f"thread {number} " if number > 1 else ""
        for message in map(object_in, list_in(thread.get("messages"))):
            # version 2 has the name under `role` and the role under `role_type`
            role = text_in(message.get("role_type")) or text_in(message.get("role"))
            at = moment_in(message.get("created_at"))
            if role in ("user", "assistant", "tool"):
                words = _of_role(line, role, text_in(message.get("content")), at)
                name = text_in(message.get("name")) or text_in(message.get("role"))
                yield f"{prefix}{_day(at)}", replace(words, speaker=name or role)


def _of_role(line: int, role: str, text: str, at: datetime | None) -> Utterance:
    trust = TRUST_OF_ROLE[role]
    return Utterance(where=f"line {line}", speaker=role, text=text.strip(), at=at, trust=trust)


def _conversation(path: Path, said: Iterable[Said], warnings: list[str]) -> Conversation:
    """Build the conversation of an export, its sessions in the order of their dates."""
    read = gather(path, said, warnings, accepted="; ".join(ACCEPTED.values()))
    ordered = sorted(
        read.sessions, key=lambda session: session.at or datetime.min.replace(tzinfo=UTC)
    )
    return read.model_copy(update={"sessions": tuple(ordered)})


def _day(at: datetime | None) -> str:
    return f"{at:%Y-%m-%d}" if at else "undated"
