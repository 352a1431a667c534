"""Notes that a learner wrote about a trial, read from a model's reply. Pure; never raises.

`{"notes": [{"text", "subject"}, {"id", "tag"}]}`: a new note, or a tag (`helpful` or
`harmful`) on a note that was shown.
"""

from __future__ import annotations

from memagent.core.ops import Parsed, RejectReason
from memagent.core.records import Record, Text
from memagent.replies.entries import (
    MAX_FACT_CHARS,
    Unfit,
    checked_text,
    parse_entries,
    plain_id,
    string_at,
)
from memagent.replies.tolerant_json import JsonValue

TAGS = ("helpful", "harmful")


class NoteDraft(Record):
    """A note as the learner wrote it: a text, or a tag on the note with the id."""

    text: Text = ""
    subject: Text | None = None
    id: Text = ""
    tag: Text = ""


def parse_notes(text: str) -> Parsed[NoteDraft]:
    """Read the notes that a learner wrote."""
    return parse_entries(
        text, ("notes", "bullets"), _read, is_entry=lambda value: "text" in value or "tag" in value
    )


def _read(entry: JsonValue) -> NoteDraft:
    if not isinstance(entry, dict):
        raise Unfit(RejectReason.NOT_AN_OBJECT, "a note must be a JSON object")
    tag, note_id = (string_at(entry, "tag") or "").lower(), plain_id(entry.get("id"))
    if note_id:
        if tag not in TAGS:
            raise Unfit(RejectReason.INVALID_FIELDS, f"the tag of a note is one of {TAGS}")
        return NoteDraft(id=note_id, tag=tag)
    text = checked_text(string_at(entry, "text", "note"), MAX_FACT_CHARS)
    return NoteDraft(text=text, subject=string_at(entry, "subject"))
