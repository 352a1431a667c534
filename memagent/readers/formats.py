"""Detection of a file's format, and one function for all readers.

Detection looks at the content, never at the name: the first JSON object tells LoCoMo,
LongMemEval and messages apart by their fields, and everything else is dated plain text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args

from memagent.core.errors import InputError
from memagent.readers import locomo, longmemeval, messages_jsonl, plain_text
from memagent.readers.files import bad_input, head_of, json_records
from memagent.readers.records import Conversation

Format = Literal["locomo", "longmemeval", "messages", "text"]
FORMATS: tuple[Format, ...] = get_args(Format)
"""Formats that can be read: LoCoMo, LongMemEval, message JSONL, dated plain text."""
_FIELDS: dict[str, Format] = {
    "conversation": "locomo",
    "haystack_sessions": "longmemeval",
    "role": "messages",
}
_ACCEPTED = "; ".join(
    f"{name}: {module.ACCEPTED}"
    for name, module in zip(FORMATS, (locomo, longmemeval, messages_jsonl, plain_text), strict=True)
)
_JSON_START = re.compile(r"\s*(?:\{|\[\s*(?:[{\]]|\Z))")


def read_conversation(path: str | Path, format: str = "auto") -> Conversation:
    """Read the one conversation of a file; `format` is `auto` or one of `FORMATS`.

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
    match chosen:
        case "locomo":
            yield from locomo.iter_locomo(file)
        case "longmemeval":
            yield from longmemeval.iter_longmemeval(file)
        case "messages":
            yield messages_jsonl.read_messages(file)
        case "text":
            yield plain_text.read_plain_text(file)
        case _:
            raise InputError(
                f"unknown format {format!r} for {file}. Accepted: auto, {', '.join(FORMATS)}"
            )


def detect_format(path: str | Path) -> Format:
    """Detect the format of a file by its content.

    Raises `InputError` for JSON of no known kind and for a file that is no text.
    """
    file = Path(path)
    if not _JSON_START.match(head_of(file, accepted=_ACCEPTED)):
        return "text"
    _, keys = next(json_records(file, accepted=_ACCEPTED))
    for field, format in _FIELDS.items():
        if field in keys:
            return format
    known = ", ".join(map(repr, _FIELDS))
    raise bad_input(
        file, "", f"the JSON is of no known kind: its first object has none of {known}", _ACCEPTED
    )
