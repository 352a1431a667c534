"""Ops, notes and facts, read from a model's reply. Pure; never raises.

The manager's reply is `{"ops": [...]}`, a bare list, or one op object. Op names are
case-insensitive; an index counts the facts shown, from 0:

    {"op": "ADD", "fact": 0}                             remember fact 0 as it is
    {"op": "ADD", "text": "...", "sources": ["D1:3"]}    remember words of its own
    {"op": "UPDATE", "id": "mem_..", "text": "...", "fact": 2}
                                                         rewrite it on fact 2's turns
    {"op": "DELETE", "id": "mem_..", "fact": 1}          fact 1 contradicts the item
    {"op": "NOOP", "fact": 3, "id": "mem_.."}            the item says fact 3 already

`sources` may stand beside or instead of `fact`; `version`, `reason`, `subject`, `kind`,
`tags` and `metadata` are optional. Spellings of other memory systems are understood
(`event` for `op`, `NONE` for `NOOP`, `memory` for `text`). Where one fact is shown, it
is the default. An UPDATE or DELETE is taken only from a clear reply; one that names two
ops, ids or texts is refused.

A learner's reply about a trial is `{"notes": [{"text", "subject"}, {"id", "tag"}]}`: a
new note, or a tag (`helpful` or `harmful`) on a note that was shown.

The extractor's reply is `{"facts": [{"text", "subject", "speaker", "source", "when",
"kind"}]}`; `when` stays a phrase in the `FactDraft`. An entry that is a plain string is
a fact without a source.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from memagent.core.ops import Add, Delete, MemoryOp, Noop, Parsed, RejectReason, Update
from memagent.core.records import Fact, Record, Text
from memagent.replies.entries import (
    MAX_FACT_CHARS,
    SOURCE_KEYS,
    Entry,
    Unfit,
    checked_text,
    flat_text,
    ids_at,
    index_of,
    parse_entries,
    plain_id,
    raw_json,
    string_at,
    value_at,
)
from memagent.replies.tolerant_json import JsonValue
from memagent.state.fold import folded

_MAX_UPDATE_CHARS: Final = 8_000
_OP_KEYS = ("op", "event", "action", "operation", "type")
_OP_NAMES = {
    **dict.fromkeys(("add", "insert", "create"), "ADD"),
    **dict.fromkeys(("update", "modify", "edit", "replace"), "UPDATE"),
    **dict.fromkeys(("delete", "remove"), "DELETE"),
    **dict.fromkeys(("noop", "none", "nochange", "nothing", "skip", "ignore", "keep"), "NOOP"),
}
_LIST_KEYS = ("ops", "operations", "actions", "memory", "memories", "results")
_ID_KEYS = ("id", "memory_id", "item_id", "target", "target_id")
_TEXT_KEYS = ("text", "new_text", "memory", "new_memory", "content")
_INDEX_KEYS = ("fact", "fact_index", "fact_id", "index")


def parse_ops(
    text: str, *, facts: Sequence[Fact] = (), fact_is_text: bool = False
) -> Parsed[MemoryOp]:
    """Read the ops that a manager wrote about `facts`.

    An index outside the facts is rejected as UNRESOLVED. With `fact_is_text` an UPDATE
    that names a fact and no text writes the fact's; else it is rejected as EMPTY_TEXT.
    """

    def read(entry: JsonValue) -> MemoryOp:
        if not isinstance(entry, dict):
            raise Unfit(RejectReason.NOT_AN_OBJECT, "an op must be a JSON object")
        return _read_op(entry, facts, fact_is_text)

    return parse_entries(
        text,
        _LIST_KEYS,
        read,
        is_entry=lambda value: any(key in value for key in _OP_KEYS),
        destroys=lambda op: isinstance(op, Update | Delete),
    )


def _read_op(entry: Entry, facts: Sequence[Fact], fact_is_text: bool) -> MemoryOp:
    name = _only("ops", filter(None, (_op_name(entry.get(key)) for key in _OP_KEYS)))
    if name is None:
        raise Unfit(RejectReason.UNKNOWN_OP, "op must be one of ADD, UPDATE, DELETE, NOOP")
    place = _place_of(entry, facts)
    fact, about = (None, ()) if place is None else (facts[place], (place,))
    reason = string_at(entry, "reason", "why") or ""
    if name == "ADD":
        return _read_add(entry, place, facts, reason)
    target = _only("ids", filter(None, (plain_id(entry.get(key)) for key in _ID_KEYS))) or ""
    if name == "NOOP":
        return Noop(id=target or None, fact=fact, reason=reason, about=about)
    if not target:
        raise Unfit(RejectReason.INVALID_FIELDS, f"{name} must name the id of an item")
    sources = ids_at(entry, SOURCE_KEYS) or (fact.source_turn_ids if fact else ())
    version = index_of(entry.get("version"))
    if name == "DELETE":
        return Delete(
            id=target, version=version, source_turn_ids=sources, reason=reason, about=about
        )
    text = _only("texts", filter(None, (string_at(entry, key) for key in _TEXT_KEYS)))
    text = text or (fact.text if fact and fact_is_text else None)
    return Update(
        id=target,
        version=version,
        text=checked_text(text, _MAX_UPDATE_CHARS),
        source_turn_ids=sources,
        valid=fact.valid if fact else None,
        reason=reason,
        about=about,
    )


def _read_add(entry: Entry, place: int | None, facts: Sequence[Fact], reason: str) -> Add:
    """Read an ADD of a shown fact, perhaps reworded, or of words of its own.

    Words of its own that repeat a shown fact stand for that fact.
    """
    text = string_at(entry, *_TEXT_KEYS)
    if text is not None and place is None:
        same = (at for at, shown in enumerate(facts) if folded(shown.text) == folded(text))
        place = next(same, None)
    fact = None if place is None else facts[place]
    if fact is None and text is None:
        raise Unfit(RejectReason.INVALID_FIELDS, "ADD must name a fact or bring a text")
    values: dict[str, object] = (
        fact.model_dump() if fact else {"kind": (string_at(entry, "kind") or "fact").lower()}
    )
    stated = {
        "text": None if text is None else checked_text(text, MAX_FACT_CHARS),
        "source_turn_ids": ids_at(entry, SOURCE_KEYS) or None,
        "subject": string_at(entry, "subject"),
        "speaker": string_at(entry, "speaker"),
    }
    values |= {name: value for name, value in stated.items() if value is not None}
    tags, metadata = entry.get("tags"), entry.get("metadata")
    return Add.model_validate(
        {
            "fact": values,
            "reason": reason,
            "about": () if place is None else (place,),
            "tags": [flat_text(tag) for tag in tags] if isinstance(tags, list) else (),
            "metadata": metadata if isinstance(metadata, dict) else {},
        }
    )


def _only(what: str, values: Iterable[str]) -> str | None:
    """Return the one value; None without any. Raises `Unfit` when several differ."""
    named = list(dict.fromkeys(values))
    if len(named) > 1:
        raise Unfit(RejectReason.AMBIGUOUS, f"the entry names {len(named)} {what}")
    return named[0] if named else None


def _op_name(value: JsonValue) -> str | None:
    known = isinstance(value, str)
    return _OP_NAMES.get(re.sub(r"[\s_-]", "", value[:20]).lower()) if known else None


def _place_of(entry: Entry, facts: Sequence[Fact]) -> int | None:
    """Return the place of the fact that an entry names; the only one when it names none."""
    named = value_at(entry, _INDEX_KEYS)
    if named is None:
        return 0 if len(facts) == 1 else None
    index = index_of(named[0] if isinstance(named, list) and len(named) == 1 else named)
    if index is None or not 0 <= index < len(facts):
        raise Unfit(
            RejectReason.UNRESOLVED, f"no fact {raw_json(named)[:40]} among the {len(facts)} shown"
        )
    return index


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


_FACTS_TEXT_KEYS = ("text", "fact", "statement", "content")


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
        is_entry=lambda value: string_at(value, *_FACTS_TEXT_KEYS) is not None,
    )


def _read_fact(entry: JsonValue) -> FactDraft:
    if isinstance(entry, str):
        return FactDraft(text=checked_text(entry, MAX_FACT_CHARS))
    if not isinstance(entry, dict):
        raise Unfit(RejectReason.NOT_AN_OBJECT, "a fact must be a JSON object")
    return FactDraft(
        text=checked_text(string_at(entry, *_FACTS_TEXT_KEYS), MAX_FACT_CHARS),
        subject=string_at(entry, "subject"),
        speaker=string_at(entry, "speaker"),
        source_turn_ids=ids_at(entry, SOURCE_KEYS),
        when=string_at(entry, "when", "time", "date"),
        kind=(string_at(entry, "kind", "type") or "fact").lower(),
    )
