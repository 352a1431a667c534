"""Events, relations between them and verdicts on pairs, read from an indexer's reply.

Pure; never raises.

    {"events": [{"summary": "...", "people": ["Ana"], "turns": ["D1:3"], "when": "7 May 2023"}]}
    {"pairs": [{"pair": 0, "verdict": "same", "label": ""}]}
    {"relations": [{"source": 0, "target": 2, "relation": "causes", "label": "",
                    "turns": ["D1:5"], "confidence": 0.9}]}

A relation that is not known is kept as RELATED with its word as the label; relations
that only the system writes are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from memagent.core.ops import Parsed, RejectReason
from memagent.core.records import Record, Relation, Text
from memagent.events.merge import Judgement, Likeness
from memagent.replies.entries import Entry, Unfit, index_of, parse_entries, string_at
from memagent.replies.tolerant_json import JsonValue

T = TypeVar("T")

MAX_EVENTS: Final = 32
"""Events read from one reply."""
MAX_RELATIONS: Final = 256
"""Relations read from one reply."""
MODEL_RELATIONS: Final = frozenset(Relation) - {
    Relation.SAME_AS,
    Relation.SUPERSEDES,
    Relation.CONTAINS,
    Relation.MENTIONS,
}
"""Relations a model may state."""
_MAX_SUMMARY_CHARS = 1_200
_MAX_LABEL_CHARS = 80
_VERDICTS = {
    **dict.fromkeys(("same", "same_event", "identical"), Likeness.SAME),
    **dict.fromkeys(("overlapping", "overlap", "related"), Likeness.OVERLAPPING),
    **dict.fromkeys(("neither", "different", "none"), Likeness.NEITHER),
}


class EventDraft(Record):
    """An event as the model wrote it; `when` is still a phrase."""

    summary: Text
    people: tuple[Text, ...] = ()
    turn_ids: tuple[Text, ...] = ()
    when: Text | None = None


class RelationDraft(Record):
    """A relation between two events, by their numbers from 0."""

    source: int
    target: int
    relation: Relation
    label: Text = ""
    turn_ids: tuple[Text, ...] = ()
    confidence: float = 1.0


class PairDraft(Record):
    """The verdict on one pair of near events, by its number from 0."""

    pair: int
    judgement: Judgement


def parse_pairs(text: str, *, pairs: int) -> Parsed[PairDraft]:
    """Read verdicts on pairs 0 to `pairs` - 1; FAILED when the reply holds no list of them."""
    return _parse(text, "pairs", lambda entry: _read_pair(entry, pairs), MAX_RELATIONS)


def parse_events(text: str) -> Parsed[EventDraft]:
    """Read events in the order written; FAILED when the reply holds no list of them."""
    return _parse(text, "events", _read_event, MAX_EVENTS)


def parse_relations(text: str, *, events: int) -> Parsed[RelationDraft]:
    """Read relations between events 0 to `events` - 1; FAILED when there is no list of them."""
    return _parse(text, "relations", lambda entry: _read_relation(entry, events), MAX_RELATIONS)


def _parse(text: str, key: str, read: Callable[[Entry], T], limit: int) -> Parsed[T]:
    def read_object(entry: JsonValue) -> T:
        if not isinstance(entry, dict):
            raise _invalid("the entry is no object")
        return read(entry)

    return parse_entries(text, (key,), read_object, limit=limit)


def _invalid(detail: str) -> Unfit:
    return Unfit(RejectReason.INVALID_FIELDS, detail)


def _read_event(entry: Entry) -> EventDraft:
    summary = string_at(entry, "summary")
    if summary is None:
        raise _invalid("the event has no summary")
    return EventDraft(
        summary=summary[:_MAX_SUMMARY_CHARS],
        people=_texts(entry.get("people")),
        turn_ids=_texts(entry.get("turns")),
        when=(string_at(entry, "when") or "")[:200] or None,
    )


def _read_relation(entry: Entry, events: int) -> RelationDraft:
    source, target = (index_of(entry.get(end)) for end in ("source", "target"))
    if source is None or target is None or not (0 <= source < events and 0 <= target < events):
        raise _invalid(f"source and target must be numbers of the {events} events shown")
    if source == target:
        raise _invalid("an event is not related to itself")
    word = _word(entry, "relation")
    if not word:
        raise _invalid("the relation is missing")
    relation = next((known for known in Relation if known.value == word), Relation.RELATED)
    if relation not in MODEL_RELATIONS:
        raise _invalid(f"{word!r} is no relation that a model may state")
    label = string_at(entry, "label") or (
        "" if word == Relation.RELATED.value else word.replace("_", " ")
    )
    stated = entry.get("confidence")
    sure = 1.0 if isinstance(stated, bool) or not isinstance(stated, int | float) else float(stated)
    return RelationDraft(
        source=source,
        target=target,
        relation=relation,
        label=label[:_MAX_LABEL_CHARS] if relation is Relation.RELATED else "",
        turn_ids=_texts(entry.get("turns")),
        confidence=min(1.0, max(0.0, sure)) if sure == sure else 1.0,
    )


def _read_pair(entry: Entry, pairs: int) -> PairDraft:
    pair = index_of(entry.get("pair"))
    if pair is None or not 0 <= pair < pairs:
        raise _invalid(f"pair must be a number of the {pairs} pairs shown")
    word = _word(entry, "verdict")
    likeness = _VERDICTS.get(word)
    if likeness is None:
        raise _invalid(f"{word!r} is no verdict; it is same, overlapping or neither")
    label = string_at(entry, "label") if likeness is Likeness.OVERLAPPING else None
    return PairDraft(
        pair=pair, judgement=Judgement(likeness=likeness, label=(label or "")[:_MAX_LABEL_CHARS])
    )


def _word(entry: Entry, key: str) -> str:
    return (string_at(entry, key) or "").lower().replace(" ", "_").replace("-", "_")


def _texts(value: JsonValue) -> tuple[str, ...]:
    texts = value if isinstance(value, list) else [value]
    plain = (text.strip().strip("[]").strip() for text in texts if isinstance(text, str))
    return tuple(dict.fromkeys(filter(None, plain)))
