"""What a model's reply says: ops, notes, facts, events, windows of time and answers.

Pure; never raises.

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

An indexer's reply holds events, relations between them and verdicts on pairs:

    {"events": [{"summary": "...", "people": ["Ana"], "turns": ["D1:3"], "when": "7 May 2023"}]}
    {"pairs": [{"pair": 0, "verdict": "same", "label": ""}]}
    {"relations": [{"source": 0, "target": 2, "relation": "causes", "label": "",
                    "turns": ["D1:5"], "confidence": 0.9}]}

A relation that is not known is kept as RELATED with its word as the label; relations
that only the system writes are refused.

A planner's reply holds the stretch of time that a question is about:

    {"from": "2023-05-01", "to": "2023-05-31"}

Both days are included; null leaves an end open, null at both means no time. Bounds may
also be phrases ("May 2023", "last week"), read against the day of the question. What
cannot be read is a `Rejected` with its reason, never a window.

An answerer's reply is `{"citations": [ids], "answer": "...", "abstain": false}`, or
plain text with marks such as `[mem_..]` or `[D1:3]`; `"sessions": [ids]` beside them
names evidence sessions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from memagent.core.ops import Add, Delete, MemoryOp, Noop, Parsed, ParseStatus, RejectReason, Update
from memagent.core.records import Fact, Granularity, Record, Relation, Text, TimeSpan
from memagent.events.merge import Judgement, Likeness
from memagent.replies.entries import (
    MAX_FACT_CHARS,
    SOURCE_KEYS,
    Entry,
    checked_text,
    extract_json,
    flat_text,
    ids_at,
    index_of,
    parse_entries,
    plain_id,
    raw_json,
    string_at,
    unreadable,
    value_at,
)
from memagent.replies.tolerant_json import JsonValue, outside_reasoning
from memagent.state.fold import folded
from memagent.state.validation import Refused
from memagent.timex.resolve import resolve_time

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
    return parse_entries(
        text,
        _LIST_KEYS,
        lambda entry: _read_op(_object(entry, "an op"), facts, fact_is_text),
        is_entry=lambda value: any(key in value for key in _OP_KEYS),
        destroys=lambda op: isinstance(op, Update | Delete),
    )


def _object(entry: JsonValue, what: str) -> Entry:
    """Return an entry that is an object; `what` it has to be, for the reason."""
    if not isinstance(entry, dict):
        raise Refused(RejectReason.NOT_AN_OBJECT, f"{what} must be a JSON object")
    return entry


def _read_op(entry: Entry, facts: Sequence[Fact], fact_is_text: bool) -> MemoryOp:
    name = _only("ops", filter(None, (_op_name(entry.get(key)) for key in _OP_KEYS)))
    if name is None:
        raise Refused(RejectReason.UNKNOWN_OP, "op must be one of ADD, UPDATE, DELETE, NOOP")
    place = _place_of(entry, facts)
    fact, about = (None, ()) if place is None else (facts[place], (place,))
    reason = string_at(entry, "reason", "why") or ""
    if name == "ADD":
        return _read_add(entry, place, facts, reason)
    target = _only("ids", filter(None, (plain_id(entry.get(key)) for key in _ID_KEYS))) or ""
    if name == "NOOP":
        return Noop(id=target or None, fact=fact, reason=reason, about=about)
    if not target:
        raise Refused(RejectReason.INVALID_FIELDS, f"{name} must name the id of an item")
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
        raise Refused(RejectReason.INVALID_FIELDS, "ADD must name a fact or bring a text")
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
    """Return the one value; None without any. Raises `Refused` when several differ."""
    named = list(dict.fromkeys(values))
    if len(named) > 1:
        raise Refused(RejectReason.AMBIGUOUS, f"the entry names {len(named)} {what}")
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
        raise Refused(
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
        text,
        ("notes", "bullets"),
        lambda entry: _read_note(_object(entry, "a note")),
        is_entry=lambda value: "text" in value or "tag" in value,
    )


def _read_note(entry: Entry) -> NoteDraft:
    tag, note_id = (string_at(entry, "tag") or "").lower(), plain_id(entry.get("id"))
    if note_id:
        if tag not in TAGS:
            raise Refused(RejectReason.INVALID_FIELDS, f"the tag of a note is one of {TAGS}")
        return NoteDraft(id=note_id, tag=tag)
    return NoteDraft(
        text=checked_text(string_at(entry, "text", "note"), MAX_FACT_CHARS),
        subject=string_at(entry, "subject"),
    )


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


def _read_fact(value: JsonValue) -> FactDraft:
    if isinstance(value, str):
        return FactDraft(text=checked_text(value, MAX_FACT_CHARS))
    entry = _object(value, "a fact")
    return FactDraft(
        text=checked_text(string_at(entry, *_FACTS_TEXT_KEYS), MAX_FACT_CHARS),
        subject=string_at(entry, "subject"),
        speaker=string_at(entry, "speaker"),
        source_turn_ids=ids_at(entry, SOURCE_KEYS),
        when=string_at(entry, "when", "time", "date"),
        kind=(string_at(entry, "kind", "type") or "fact").lower(),
    )


# -- events, windows of time and answers -------------------------------------------------

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
    return parse_entries(
        text,
        ("pairs",),
        lambda entry: _read_pair(_object(entry, "a verdict"), pairs),
        limit=MAX_RELATIONS,
    )


def parse_events(text: str) -> Parsed[EventDraft]:
    """Read events in the order written; FAILED when the reply holds no list of them."""
    return parse_entries(
        text,
        ("events",),
        lambda entry: _read_event(_object(entry, "an event")),
        limit=MAX_EVENTS,
    )


def parse_relations(text: str, *, events: int) -> Parsed[RelationDraft]:
    """Read relations between events 0 to `events` - 1; FAILED when there is no list of them."""
    return parse_entries(
        text,
        ("relations",),
        lambda entry: _read_relation(_object(entry, "a relation"), events),
        limit=MAX_RELATIONS,
    )


def _invalid(detail: str) -> Refused:
    return Refused(RejectReason.INVALID_FIELDS, detail)


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


_FROM = ("from", "start")
_TO = ("to", "end", "until")


def parse_window(text: str, *, asked_at: datetime | None) -> Parsed[TimeSpan]:
    """Read the window as one value.

    None with a good status means that the question is about no particular time.
    """
    reply = extract_json(
        text,
        wanted=lambda value: isinstance(value, dict) and any(key in value for key in _FROM + _TO),
    )
    if reply.status is ParseStatus.EMPTY:
        return _unread(text, "the reply is empty")
    entry = reply.value
    if not isinstance(entry, dict) or not all(
        any(key in entry for key in keys) for keys in (_FROM, _TO)
    ):
        return _unread(text, "the reply does not give both 'from' and 'to'")
    bounds = [value_at(entry, keys) for keys in (_FROM, _TO)]
    first, last = (_read(bound, asked_at) for bound in bounds)
    for bound, span in zip(bounds, (first, last), strict=True):
        if bound is not None and span is None:
            return _unread(text, f"{str(bound)[:80]!r} names no date")
    start, end = first and first.start, last and last.end
    if start is None and end is None:
        return Parsed(status=reply.status)
    if first and last and (first.start, first.end) == (last.start, last.end):
        return Parsed(status=reply.status, values=(first.model_copy(update={"text": None}),))
    if start is not None and end is not None and end <= start:
        return _unread(text, "the window ends before it begins")
    return Parsed(
        status=reply.status, values=(TimeSpan(start=start, end=end, granularity=Granularity.RANGE),)
    )


def _read(bound: JsonValue, asked_at: datetime | None) -> TimeSpan | None:
    if isinstance(bound, int) and not isinstance(bound, bool) and 1000 <= bound <= 9999:
        bound = str(bound)
    return resolve_time(bound, anchor=asked_at) if isinstance(bound, str) else None


def _unread(text: str, detail: str) -> Parsed[TimeSpan]:
    return unreadable(text, detail, reason=RejectReason.INVALID_FIELDS)


_ANSWER_KEYS = ("answer", "text", "response")
_CITATION_KEYS = ("citations", "selected", "sources", "evidence")
_SESSION_KEYS = ("sessions", "session_ids", "evidence_sessions")

_MARK = re.compile(r"\s?\[([^\[\]\n]{1,400})\]")
_MARK_ID = re.compile(r"(?:mem|evt)_\w+|[A-Za-z]\w*:\d+")
_ANSWER_LINE = re.compile(
    r"^[^\w\n]{0,4}(?:final )?answer[^\w\n]{0,4}:\W{0,4}(?=\S)", re.IGNORECASE | re.MULTILINE
)
_NO_ANSWER = re.compile(
    r"(?:i (?:do not|don.t) know|unknown|not mentioned|no information(?: available)?"
    r"|not enough information|cannot be answered|unanswerable|n/a)\W{0,3}",
    re.IGNORECASE,
)


class AnswerDraft(Record):
    """An answer as the answerer wrote it.

    Citations are unchecked ids of hits or turns, in order, each once.
    """

    text: Text = ""
    citations: tuple[Text, ...] = ()
    sessions: tuple[Text, ...] = ()
    """Evidence sessions named, unchecked, for answerers that ask for them."""
    abstain: bool = False


def parse_answer(text: str) -> Parsed[AnswerDraft]:
    """Read the answer: one value, or none when the status is EMPTY or FAILED.

    Citation marks inside the answer become citations and leave the text; a stock phrase
    such as "I don't know" or an empty answer abstains.
    """
    reply = extract_json(
        text,
        wanted=lambda value: isinstance(value, dict) and any(key in value for key in _ANSWER_KEYS),
    )
    if reply.status is ParseStatus.EMPTY:
        return Parsed(status=reply.status)
    if reply.problem:
        return unreadable(text, reply.problem, reply=reply)
    plain = outside_reasoning(text).text if reply.status is not ParseStatus.STRICT else text.strip()
    entry = reply.value
    if isinstance(entry, dict) and (
        plain[:1] in ("{", "`") or "answer" in entry or "abstain" in entry
    ):
        key = next((key for key in _ANSWER_KEYS if key in entry), None)
        abstain = entry.get("abstain") is True
        if key is None and not abstain:
            return unreadable(text, "the reply has no answer", reply=reply)
        draft = _draft(flat_text(entry[key]) if key else "", ids_at(entry, _CITATION_KEYS), abstain)
        draft = draft.model_copy(update={"sessions": ids_at(entry, _SESSION_KEYS)})
        return Parsed(status=reply.status, values=(draft,), repairs=reply.repairs)
    if plain[:1] == "{":
        return unreadable(text, "the reply is neither JSON nor plain text")
    start = max((match.end() for match in _ANSWER_LINE.finditer(plain)), default=0)
    draft = _draft(plain[start:], (), False)
    return Parsed(status=ParseStatus.REPAIRED, values=(draft,), repairs=reply.repairs)


def _draft(text: str, citations: tuple[str, ...], abstain: bool) -> AnswerDraft:
    """Lift citation marks out of the text."""
    marked: list[str] = []

    def lift(match: re.Match[str]) -> str:
        ids = [part for part in re.split(r"[,;\s]+", match[1]) if part]
        if not ids or not all(_MARK_ID.fullmatch(part) for part in ids):
            return match[0]
        marked.extend(ids)
        return ""

    text = _MARK.sub(lift, text).strip()
    return AnswerDraft(
        text=text,
        citations=tuple(dict.fromkeys((*citations, *marked))),
        abstain=abstain or not text or _NO_ANSWER.fullmatch(text) is not None,
    )
