"""The parsers of conversations: message JSONL, dated plain text, and what plug-ins add.

`read_conversation(path)` finds the format by itself. Every fault of a file is an
`InputError` that names the file, the place, what is wrong and what is accepted;
whatever was repaired or left out stands in `Conversation.warnings`.
"""

from __future__ import annotations

from memagent.readers.formats import (
    FileFormat,
    detect_format,
    formats,
    iter_conversations,
    read_conversation,
)
from memagent.readers.messages_jsonl import read_messages
from memagent.readers.plain_text import read_plain_text
from memagent.readers.records import Conversation, GoldQuestion

__all__ = [
    "Conversation",
    "FileFormat",
    "GoldQuestion",
    "detect_format",
    "formats",
    "iter_conversations",
    "read_conversation",
    "read_messages",
    "read_plain_text",
]
