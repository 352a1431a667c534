"""The only parsers of conversations: LoCoMo, LongMemEval, message JSONL and dated plain text.

`read_conversation(path)` finds the format by itself. Every fault of a file is an
`InputError` that names the file, the place, what is wrong and what is accepted;
whatever was repaired or left out stands in `Conversation.warnings`.
"""

from __future__ import annotations

from memagent.readers.formats import (
    FORMATS,
    Format,
    detect_format,
    iter_conversations,
    read_conversation,
)
from memagent.readers.locomo import iter_locomo, read_locomo
from memagent.readers.longmemeval import iter_longmemeval, read_longmemeval
from memagent.readers.messages_jsonl import read_messages
from memagent.readers.plain_text import read_plain_text
from memagent.readers.records import Conversation, GoldQuestion

__all__ = [
    "FORMATS",
    "Conversation",
    "Format",
    "GoldQuestion",
    "detect_format",
    "iter_conversations",
    "iter_locomo",
    "iter_longmemeval",
    "read_conversation",
    "read_locomo",
    "read_longmemeval",
    "read_messages",
    "read_plain_text",
]
