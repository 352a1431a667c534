"""Reads what models write: ops of the manager, facts of the extractor, answers of the answerer.

Pure; never raises.

**Ops on the wire.** `{"ops": [...]}`, a bare list, or one op object. Op names are
case-insensitive; an index counts the facts shown, from 0:

    {"op": "ADD", "fact": 0}                                             remember fact 0 as it is
    {"op": "ADD", "text": "...", "sources": ["D1:3"], "speaker": "Ana"}  remember words of its own
    {"op": "UPDATE", "id": "mem_..", "text": "...", "fact": 2}           new text for an item, on fact 2's turns
    {"op": "DELETE", "id": "mem_..", "fact": 1}                          fact 1 contradicts the item
    {"op": "NOOP", "fact": 3, "id": "mem_.."}                            the item says fact 3 already

`sources` may stand beside or instead of `fact`; `version`, `reason`, `subject`, `kind`,
`tags` and `metadata` are optional. Spellings of other memory systems are understood
(`event` for `op`, `NONE` for `NOOP`, `memory` for `text`). Where one fact is shown, it
is the default.

**Facts on the wire.** `{"facts": [{"text", "subject", "speaker", "source", "when",
"kind"}]}`; `when` stays a phrase in the `FactDraft`.

**Answers on the wire.** `{"citations": [ids], "answer": "...", "abstain": false}`, or
plain text with marks such as `[mem_..]` or `[D1:3]`; `"sessions": [ids]` beside them
names evidence sessions.

Each entry is judged alone: a bad one becomes a `Rejected` with its reason and the good
ones stay (PARTIAL). FAILED always carries at least one `Rejected`, so an unreadable
reply is never mistaken for "nothing to do". Other keys of an entry are ignored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from pydantic import ValidationError

from memagent.core.ops import (
    Add,
    Delete,
    MemoryOp,
    Noop,
    Parsed,
    ParseStatus,
    Rejected,
    RejectReason,
    Update,
)
from memagent.core.records import Fact, Record, Text
from memagent.replies.tolerant_json import Extracted, JsonValue, extract_json
from memagent.state.fold import folded

__all__ = [
    "MAX_ENTRIES",
    "AnswerDraft",
    "Extracted",
    "FactDraft",
    "JsonValue",
    "extract_json",
    "parse_answer",
    "parse_facts",
    "parse_ops",
]

MAX_ENTRIES: Final = 256
"""Entries read from one reply."""
_RAW_CHARS: Final = 500
_MAX_FACT_CHARS: Final = 2_000
_MAX_UPDATE_CHARS: Final = 8_000

_OP_KEYS = ("op", "event", "action", "operation", "type")
_OP_NAMES = {
    **dict.fromkeys(("add", "insert", "create"), "ADD"),
    **dict.fromkeys(("update", "modify", "edit", "replace"), "UPDATE"),
    **dict.fromkeys(("delete", "remove"), "DELETE"),
    **dict.fromkeys(("noop", "none", "nochange", "nothing", "skip", "ignore", "keep"), "NOOP"),
}
_LIST_KEYS = ("ops", "operations", "actions", "memory", "memories", "results")
_FACT_LIST_KEYS = ("facts", "memories", "results")
_ID_KEYS = ("id", "memory_id", "item_id", "target", "target_id")
_TEXT_KEYS = ("text", "new_text", "memory", "new_memory", "content")
_FACT_TEXT_KEYS = ("text", "fact", "statement", "content")
_SOURCE_KEYS = ("sources", "source", "source_turn_ids", "turns", "evidence")
_INDEX_KEYS = ("fact", "fact_index", "fact_id", "index")
_CITATION_KEYS = ("citations", "selected", "sources", "evidence")
_SESSION_KEYS = ("sessions", "session_ids", "evidence_sessions")
_ANSWER_KEYS = ("answer", "text", "response")

_INDEX = re.compile(r"(?:fact|version|f|v)?[ _#]{0,2}(\d{1,6})[.)]?", re.IGNORECASE)
_MARK = re.compile(r"\s?\[([^\[\]\n]{1,400})\]")
_MARK_ID = re.compile(r"(?:mem|evt)_\w+|[A-Za-z]\w*:\d+")
_ANSWER_LINE = re.compile(
    r"^\W{0,4}(?:final )?answer\W{0,4}:\W{0,4}(?=\S)", re.IGNORECASE | re.MULTILINE
)
_NO_ANSWER = re.compile(
    r"(?:i (?:do not|don.t) know|unknown|not mentioned|no information(?: available)?|not enough information"
    r"|cannot be answered|unanswerable|n/a)\W{0,3}",
    re.IGNORECASE,
)


class FactDraft(Record):
    """A fact as the extractor wrote it; ids are unchecked and the time is still a phrase."""

    text: Text
    subject: Text | None = None
    speaker: Text | None = None
    source_turn_ids: tuple[Text, ...] = ()
    when: Text | None = None
    kind: Text = "fact"


class AnswerDraft(Record):
    """An answer as the answerer wrote it; citations are unchecked ids of hits or turns,
    in order, each once.
    """

    text: Text = ""
    citations: tuple[Text, ...] = ()
    sessions: tuple[Text, ...] = ()
    """Evidence sessions named, unchecked, for answerers that ask for them."""
    abstain: bool = False


class _Unfit(Exception):
    """An entry that cannot be read; becomes a `Rejected`."""

    def __init__(self, reason: RejectReason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


T = TypeVar("T")
_Entry = Mapping[str, JsonValue]


def parse_ops(
    text: str, *, facts: Sequence[Fact] = (), fact_is_text: bool = False
) -> Parsed[MemoryOp]:
    """The ops that a manager wrote about `facts`; an index outside them is rejected as UNRESOLVED.

    With `fact_is_text` an UPDATE that names a fact and no text writes the fact's; else
    it is rejected as EMPTY_TEXT.
    """

    def read(entry: JsonValue) -> MemoryOp:
        if not isinstance(entry, dict):
            raise _Unfit(RejectReason.NOT_AN_OBJECT, "an op must be a JSON object")
        return _read_op(entry, facts, fact_is_text)

    return _parse(text, _LIST_KEYS, lambda value: any(key in value for key in _OP_KEYS), read)


def parse_facts(text: str) -> Parsed[FactDraft]:
    """The facts that an extractor wrote; an entry that is a plain string is a fact
    without a source.
    """
    return _parse(
        text,
        _FACT_LIST_KEYS,
        lambda value: _string(value, *_FACT_TEXT_KEYS) is not None,
        _read_fact,
    )


def parse_answer(text: str) -> Parsed[AnswerDraft]:
    """The answer that an answerer wrote: one value, or none when the status is EMPTY or FAILED.

    Citation marks inside the answer become citations and leave the text; a stock phrase
    such as "I don't know" or an empty answer abstains.
    """
    found = extract_json(
        text,
        wanted=lambda value: isinstance(value, dict) and any(key in value for key in _ANSWER_KEYS),
    )
    if found.status is ParseStatus.EMPTY:
        return Parsed(status=found.status)
    plain = text.rpartition("</think>")[2].strip()
    entry = found.value
    if isinstance(entry, dict) and (
        plain[:1] in ("{", "`") or "answer" in entry or "abstain" in entry
    ):
        key = next((key for key in _ANSWER_KEYS if key in entry), None)
        abstain = entry.get("abstain") is True
        if key is None and not abstain:
            return Parsed(
                status=ParseStatus.FAILED, rejected=(_unreadable(text, "the reply has no answer"),)
            )
        draft = _draft(_flat(entry[key]) if key else "", _ids(entry, _CITATION_KEYS), abstain)
        sessions = _ids(entry, _SESSION_KEYS)
        return Parsed(
            status=found.status, values=(draft.model_copy(update={"sessions": sessions}),)
        )
    if plain[:1] == "{":
        return Parsed(
            status=ParseStatus.FAILED,
            rejected=(_unreadable(text, "the reply is neither JSON nor plain text"),),
        )
    start = max((match.end() for match in _ANSWER_LINE.finditer(plain)), default=0)
    return Parsed(status=ParseStatus.REPAIRED, values=(_draft(plain[start:], (), False),))


def _parse(
    text: str,
    list_keys: Sequence[str],
    is_entry: Callable[[_Entry], bool],
    read: Callable[[JsonValue], T],
) -> Parsed[T]:
    """Find the entries, read each alone, and say how it went."""

    def entries_of(value: JsonValue) -> list[JsonValue] | None:
        if isinstance(value, list):
            return value
        if not isinstance(value, dict):
            return None
        listed = next((value[key] for key in list_keys if isinstance(value.get(key), list)), None)
        if isinstance(listed, list):
            return listed
        return [value] if is_entry(value) else None

    def wanted(value: JsonValue) -> bool:
        entries = entries_of(value)
        return entries is not None and (
            not entries or any(isinstance(entry, dict) for entry in entries)
        )

    found = extract_json(text, wanted=wanted)
    if found.status is ParseStatus.EMPTY:
        return Parsed(status=found.status)
    entries = entries_of(found.value)
    if entries is None:
        return Parsed(
            status=ParseStatus.FAILED,
            rejected=(
                _unreadable(text, f"the reply has no list under {', '.join(map(repr, list_keys))}"),
            ),
        )
    values: list[T] = []
    rejected: list[Rejected] = []
    for entry in entries[:MAX_ENTRIES]:
        try:
            values.append(read(entry))
        except _Unfit as bad:
            rejected.append(Rejected(reason=bad.reason, detail=bad.detail, raw=_raw(entry)))
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            detail = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
            rejected.append(
                Rejected(reason=RejectReason.INVALID_FIELDS, detail=detail, raw=_raw(entry))
            )
    if len(entries) > MAX_ENTRIES:
        detail = f"{len(entries) - MAX_ENTRIES} entries after the first {MAX_ENTRIES} were not read"
        rejected.append(Rejected(reason=RejectReason.TOO_MANY_OPS, detail=detail))
    status = found.status if not rejected else ParseStatus.PARTIAL if values else ParseStatus.FAILED
    return Parsed(status=status, values=tuple(values), rejected=tuple(rejected))


def _read_op(entry: _Entry, facts: Sequence[Fact], fact_is_text: bool) -> MemoryOp:
    name = next(
        (known for key in _OP_KEYS if (known := _op_name(entry.get(key))) is not None), None
    )
    if name is None:
        raise _Unfit(RejectReason.UNKNOWN_OP, "op must be one of ADD, UPDATE, DELETE, NOOP")
    fact = _fact_of(entry, facts)
    reason = _string(entry, "reason", "why") or ""
    if name == "ADD":
        return _read_add(entry, fact, facts, reason)
    target = next((_plain_id(entry[key]) for key in _ID_KEYS if entry.get(key) is not None), None)
    if name == "NOOP":
        return Noop(id=target or None, fact=fact, reason=reason)
    if not target:
        raise _Unfit(RejectReason.INVALID_FIELDS, f"{name} must name the id of an item")
    sources = _ids(entry, _SOURCE_KEYS) or (fact.source_turn_ids if fact else ())
    version = _index(entry.get("version"))
    if name == "DELETE":
        return Delete(id=target, version=version, source_turn_ids=sources, reason=reason)
    text = _string(entry, *_TEXT_KEYS) or (fact.text if fact and fact_is_text else None)
    text = _checked_text(text, _MAX_UPDATE_CHARS)
    valid = fact.valid if fact else None
    return Update(
        id=target, version=version, text=text, source_turn_ids=sources, valid=valid, reason=reason
    )


def _read_add(entry: _Entry, fact: Fact | None, facts: Sequence[Fact], reason: str) -> Add:
    """An ADD of a shown fact, perhaps reworded, or of words of its own (which may
    repeat a shown fact's).
    """
    text = _string(entry, *_TEXT_KEYS)
    if text is not None and fact is None:
        fact = next((shown for shown in facts if folded(shown.text) == folded(text)), None)
    if fact is None and text is None:
        raise _Unfit(RejectReason.INVALID_FIELDS, "ADD must name a fact or bring a text")
    given: dict[str, object] = (
        fact.model_dump() if fact else {"kind": (_string(entry, "kind") or "fact").lower()}
    )
    if text is not None:
        given["text"] = _checked_text(text, _MAX_FACT_CHARS)
    sources = _ids(entry, _SOURCE_KEYS)
    if sources:
        given["source_turn_ids"] = sources
    for key in ("subject", "speaker"):
        if (value := _string(entry, key)) is not None:
            given[key] = value
    tags, metadata = entry.get("tags"), entry.get("metadata")
    return Add.model_validate(
        {
            "fact": given,
            "reason": reason,
            "tags": [_flat(tag) for tag in tags] if isinstance(tags, list) else (),
            "metadata": metadata if isinstance(metadata, dict) else {},
        }
    )


def _read_fact(entry: JsonValue) -> FactDraft:
    if isinstance(entry, str):
        return FactDraft(text=_checked_text(entry, _MAX_FACT_CHARS))
    if not isinstance(entry, dict):
        raise _Unfit(RejectReason.NOT_AN_OBJECT, "a fact must be a JSON object")
    return FactDraft(
        text=_checked_text(_string(entry, *_FACT_TEXT_KEYS), _MAX_FACT_CHARS),
        subject=_string(entry, "subject"),
        speaker=_string(entry, "speaker"),
        source_turn_ids=_ids(entry, _SOURCE_KEYS),
        when=_string(entry, "when", "time", "date"),
        kind=(_string(entry, "kind", "type") or "fact").lower(),
    )


def _op_name(value: JsonValue) -> str | None:
    return (
        _OP_NAMES.get(re.sub(r"[\s_-]", "", value[:20]).lower()) if isinstance(value, str) else None
    )


def _fact_of(entry: _Entry, facts: Sequence[Fact]) -> Fact | None:
    """The fact that an entry names; the only one when it names none."""
    named = next((entry[key] for key in _INDEX_KEYS if entry.get(key) is not None), None)
    if named is None:
        return facts[0] if len(facts) == 1 else None
    index = _index(named[0] if isinstance(named, list) and len(named) == 1 else named)
    if index is None or not 0 <= index < len(facts):
        raise _Unfit(
            RejectReason.UNRESOLVED, f"no fact {_raw(named)[:40]} among the {len(facts)} shown"
        )
    return facts[index]


def _index(value: JsonValue) -> int | None:
    """A whole number, also written as text (`"2"`, `"fact 2"`, `"v2"`)."""
    if isinstance(value, str):
        match = _INDEX.fullmatch(value.strip())
        return int(match[1]) if match else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return int(value) if abs(value) < 1e6 and float(value).is_integer() else None


def _string(entry: _Entry, *keys: str) -> str | None:
    """The first of the keys that holds text, stripped; None when all are missing or empty."""
    for key in keys:
        value = entry.get(key)
        if isinstance(value, str) and value.strip():
            return value.strip()
    return None


def _checked_text(text: str | None, limit: int) -> str:
    if text is None or not text.strip():
        raise _Unfit(RejectReason.EMPTY_TEXT, "the text is missing or empty")
    if len(text) > limit:
        raise _Unfit(
            RejectReason.TEXT_TOO_LONG, f"{len(text)} characters; at most {limit} are allowed"
        )
    return text


def _plain_id(value: JsonValue) -> str:
    """An id without the brackets that models like to copy; whole numbers read as text."""
    return _flat(value).strip().strip("[]").strip()


def _ids(entry: _Entry, keys: Sequence[str]) -> tuple[str, ...]:
    """Ids under the first key that is there: a list, one id, or several with commas
    between; each once.
    """
    value = next((entry[key] for key in keys if entry.get(key) is not None), None)
    listed = (
        re.split(r"[,;]", value)
        if isinstance(value, str)
        else value
        if isinstance(value, list)
        else [value]
    )
    return tuple(
        dict.fromkeys(plain for part in listed if part is not None and (plain := _plain_id(part)))
    )


def _flat(value: JsonValue) -> str:
    """Any JSON value as text: lists joined by commas, whole floats without a fraction,
    null as nothing.
    """
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, list):
        return ", ".join(
            _flat(part) if not isinstance(part, list) else _raw(part) for part in value
        )
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and abs(value) < 1e15 and value.is_integer():
        return str(int(value))
    return _raw(value)


def _raw(value: JsonValue) -> str:
    """An entry as the model wrote it, shortened."""
    try:
        return json.dumps(value, ensure_ascii=False)[:_RAW_CHARS]
    except (RecursionError, ValueError):
        return "(nested too deeply to show)"


def _unreadable(text: str, detail: str) -> Rejected:
    return Rejected(reason=RejectReason.NOT_AN_OBJECT, detail=detail, raw=text.strip()[:_RAW_CHARS])


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
    abstain = abstain or not text or _NO_ANSWER.fullmatch(text) is not None
    return AnswerDraft(
        text=text, citations=tuple(dict.fromkeys((*citations, *marked))), abstain=abstain
    )
