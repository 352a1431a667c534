"""Reads what an indexer's model writes: events, relations between them, verdicts on pairs of them.

Pure; never raises.

    {"events": [{"summary": "...", "people": ["Ana"], "turns": ["D1:3"], "when": "7 May 2023"}]}
    {"pairs": [{"pair": 0, "verdict": "same", "label": ""}]}
    {"relations": [{"source": 0, "target": 2, "relation": "causes", "label": "", "turns": ["D1:5"], "confidence": 0.9}]}

Each entry is judged alone; a bad one becomes a `Rejected` and the others stay. A
relation that is not known is kept as RELATED with its word as the label; relations that
only the system writes are refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from memagent.core.ops import Parsed, ParseStatus, Rejected, RejectReason
from memagent.core.records import Record, Relation, Text
from memagent.events.merge import Judgement, Likeness
from memagent.replies.tolerant_json import JsonValue, extract_json

T = TypeVar("T")

MAX_EVENTS: Final = 32
"""Events read from one reply."""
MAX_RELATIONS: Final = 256
"""Relations read from one reply."""
MODEL_RELATIONS: Final = frozenset(
    {
        Relation.CAUSES,
        Relation.MOTIVATES,
        Relation.ENABLES,
        Relation.FOLLOWS,
        Relation.BEFORE,
        Relation.AFTER,
        Relation.CONTRASTS,
        Relation.PART_OF,
        Relation.PARALLEL,
        Relation.ELABORATES,
        Relation.RELATED,
    }
)
"""Relations a model may state."""
_MAX_SUMMARY_CHARS = 1_200
_MAX_LABEL_CHARS = 80


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
    """What the model says of one pair of near events, by its number from 0."""

    pair: int
    judgement: Judgement


def parse_pairs(text: str, *, pairs: int) -> Parsed[PairDraft]:
    """Verdicts on pairs 0 to `pairs` - 1; FAILED when the reply holds no list of them."""
    return _parse(text, "pairs", lambda entry: _read_pair(entry, pairs), MAX_RELATIONS)


def parse_events(text: str) -> Parsed[EventDraft]:
    """Events in the order written; FAILED when the reply holds no list of them."""
    return _parse(text, "events", _read_event, MAX_EVENTS)


def parse_relations(text: str, *, events: int) -> Parsed[RelationDraft]:
    """Relations between events 0 to `events` - 1; FAILED when the reply holds no list of them."""
    return _parse(text, "relations", lambda entry: _read_relation(entry, events), MAX_RELATIONS)


def _parse(
    text: str, key: str, read: Callable[[dict[str, JsonValue]], T | str], most: int
) -> Parsed[T]:
    def entries_of(value: JsonValue) -> Sequence[JsonValue] | None:
        listed = value.get(key) if isinstance(value, dict) else value
        return listed if isinstance(listed, list) else None

    found = extract_json(text, wanted=lambda value: entries_of(value) is not None)
    if found.status is ParseStatus.EMPTY:
        return Parsed(status=found.status)
    entries = entries_of(found.value)
    if entries is None:
        bad = Rejected(
            reason=RejectReason.NOT_AN_OBJECT,
            detail=f"the reply has no list under {key!r}",
            raw=text[:500],
        )
        return Parsed(status=ParseStatus.FAILED, rejected=(bad,))
    values: list[T] = []
    rejected: list[Rejected] = []
    for entry in entries[:most]:
        done = read(entry) if isinstance(entry, dict) else "the entry is no object"
        if isinstance(done, str):
            raw = json.dumps(entry, ensure_ascii=False)[:500]
            rejected.append(Rejected(reason=RejectReason.INVALID_FIELDS, detail=done, raw=raw))
        else:
            values.append(done)
    if len(entries) > most:
        detail = f"{len(entries) - most} entries after the first {most} were not read"
        rejected.append(Rejected(reason=RejectReason.TOO_MANY_OPS, detail=detail))
    status = found.status if not rejected else ParseStatus.PARTIAL if values else ParseStatus.FAILED
    return Parsed(status=status, values=tuple(values), rejected=tuple(rejected))


def _read_event(entry: dict[str, JsonValue]) -> EventDraft | str:
    summary = _text(entry.get("summary"))
    if not summary:
        return "the event has no summary"
    when = _text(entry.get("when"))
    return EventDraft(
        summary=summary[:_MAX_SUMMARY_CHARS],
        people=_texts(entry.get("people")),
        turn_ids=_texts(entry.get("turns")),
        when=when[:200] or None,
    )


def _read_relation(entry: dict[str, JsonValue], events: int) -> RelationDraft | str:
    ends = [_index(entry.get(end)) for end in ("source", "target")]
    if any(end is None or not 0 <= end < events for end in ends):
        return f"source and target must be numbers of the {events} events shown"
    source, target = (end for end in ends if end is not None)
    if source == target:
        return "an event is not related to itself"
    word = _text(entry.get("relation")).lower().replace(" ", "_").replace("-", "_")
    relation = next((one for one in Relation if one.value == word), Relation.RELATED)
    if not word or relation not in MODEL_RELATIONS:
        return (
            f"{word!r} is no relation that a model may state" if word else "the relation is missing"
        )
    label = _text(entry.get("label")) or (
        word.replace("_", " ") if word != Relation.RELATED.value else ""
    )
    given = entry.get("confidence")
    sure = float(given) if isinstance(given, int | float) and not isinstance(given, bool) else 1.0
    return RelationDraft(
        source=source,
        target=target,
        relation=relation,
        label=label[:_MAX_LABEL_CHARS] if relation is Relation.RELATED else "",
        turn_ids=_texts(entry.get("turns")),
        confidence=min(1.0, max(0.0, sure)) if sure == sure else 1.0,
    )


_VERDICTS = {
    **dict.fromkeys(("same", "same_event", "identical"), Likeness.SAME),
    **dict.fromkeys(("overlapping", "overlap", "related"), Likeness.OVERLAPPING),
    **dict.fromkeys(("neither", "different", "none"), Likeness.NEITHER),
}


def _read_pair(entry: dict[str, JsonValue], pairs: int) -> PairDraft | str:
    pair = _index(entry.get("pair"))
    if pair is None or not 0 <= pair < pairs:
        return f"pair must be a number of the {pairs} pairs shown"
    word = _text(entry.get("verdict")).lower().replace(" ", "_").replace("-", "_")
    likeness = _VERDICTS.get(word)
    if likeness is None:
        return f"{word!r} is no verdict; it is same, overlapping or neither"
    label = _text(entry.get("label"))[:_MAX_LABEL_CHARS] if likeness is Likeness.OVERLAPPING else ""
    return PairDraft(pair=pair, judgement=Judgement(likeness=likeness, label=label))


def _index(value: JsonValue) -> int | None:
    if isinstance(value, str) and value.strip().isdecimal() and len(value.strip()) < 4:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value: JsonValue) -> str:
    return value.strip() if isinstance(value, str) else ""


def _texts(value: JsonValue) -> tuple[str, ...]:
    listed = value if isinstance(value, list) else [value]
    return tuple(dict.fromkeys(text for one in listed if (text := _text(one).strip("[]").strip())))
