"""Facts of the extractor, read from a model's reply. Pure; never raises.

`{"facts": [{"text", "subject", "speaker", "source", "when", "kind"}]}`; `when` stays a
phrase in the `FactDraft`. An entry that is a plain string is a fact without a source.
"""

from __future__ import annotations

from memagent.core.ops import Parsed, RejectReason
from memagent.core.records import Record, Text
from memagent.replies.entries import (
    MAX_FACT_CHARS,
    SOURCE_KEYS,
    Unfit,
    checked_text,
    ids_at,
    parse_entries,
    string_at,
)
from memagent.replies.tolerant_json import JsonValue

_TEXT_KEYS = ("text", "fact", "statement", "content")


class FactDraft(Record):
    """A fact as the extractor wrote it; ids are unchecked and the time is still a phrase."""

    text: Text
    subject: Text | None = None
    speaker: Text | None = None
    source_turn_ids: tuple[Text, ...] = ()
    when: Text | None = None
    kind: Text = "fact"


def parse_facts(text: str) -> Parsed[FactDraft]:
    """Read the facts that an extractor wrote."""
    return parse_entries(
        text,
        ("facts", "memories", "results"),
        _read_fact,
        is_entry=lambda value: string_at(value, *_TEXT_KEYS) is not None,
    )


def _read_fact(entry: JsonValue) -> FactDraft:
    if isinstance(entry, str):
        return FactDraft(text=checked_text(entry, MAX_FACT_CHARS))
    if not isinstance(entry, dict):
        raise Unfit(RejectReason.NOT_AN_OBJECT, "a fact must be a JSON object")
    return FactDraft(
        text=checked_text(string_at(entry, *_TEXT_KEYS), MAX_FACT_CHARS),
        subject=string_at(entry, "subject"),
        speaker=string_at(entry, "speaker"),
        source_turn_ids=ids_at(entry, SOURCE_KEYS),
        when=string_at(entry, "when", "time", "date"),
        kind=(string_at(entry, "kind", "type") or "fact").lower(),
    )
