"""The parsers of conversations: message JSONL, dated plain text, and what plug-ins add.

`read_conversation(path)` finds the format by itself. Every fault of a file is an
`InputError` that names the file, the place, what is wrong and what is accepted;
whatever was repaired or left out stands in `Conversation.warnings`.
"""

from __future__ import annotations

from memagent.readers.files import Conversation, GoldQuestion
from memagent.readers.formats import (
    FileFormat,
    detect_format,
    formats,
    iter_conversations,
    read_conversation,
    read_messages,
    read_plain_text,
)

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
