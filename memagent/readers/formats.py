"""Detection of a file's format, and one function for all readers.

Detection looks at the content, never at the name: a field of the first JSON object tells
the JSON formats apart, and everything else is dated plain text. Messages and plain text
are built in; a distribution adds a `FileFormat` under the entry-point group
`memagent.readers`, as this one does for LoCoMo and LongMemEval.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from memagent.core.errors import InputError
from memagent.plugins import available, load
from memagent.readers import messages_jsonl, plain_text
from memagent.readers.files import bad_input, head_of, json_records
from memagent.readers.records import Conversation

_JSON_START = re.compile(r"\s*(?:\{|\[\s*(?:[{\]]|\Z))")


@dataclass(frozen=True, kw_only=True)
class FileFormat:
    """A format of files that hold conversations."""

    field: str
    """The field of the first JSON object that only this format has; "" for plain text."""
    accepted: str
    """What a file must hold, in words, for errors."""
    read: Callable[[Path], Iterator[Conversation]]
    """Yield the conversations of a file one by one."""


_MESSAGES: Final = FileFormat(
    field="role",
    accepted=messages_jsonl.ACCEPTED,
    read=lambda file: iter((messages_jsonl.read_messages(file),)),
)
_TEXT: Final = FileFormat(
    field="",
    accepted=plain_text.ACCEPTED,
    read=lambda file: iter((plain_text.read_plain_text(file),)),
)


def formats() -> dict[str, FileFormat]:
    """Return the formats that can be read, by name; plain text is the last."""
    added = {name: cast("FileFormat", load("readers", name)) for name in available("readers")}
    return {**added, "messages": _MESSAGES, "text": _TEXT}


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
    known = formats()
    chosen = detect_format(file) if format == "auto" else format
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
    known = formats()
    accepted = "; ".join(f"{name}: {format.accepted}" for name, format in known.items())
    if not _JSON_START.match(head_of(file, accepted=accepted)):
        return "text"
    _, keys = next(json_records(file, accepted=accepted))
    for name, format in known.items():
        if format.field in keys:
            return name
    fields = ", ".join(repr(format.field) for format in known.values() if format.field)
    raise bad_input(
        file, "", f"the JSON is of no known kind: its first object has none of {fields}", accepted
    )
