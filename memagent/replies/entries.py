"""Entries of a model's reply: the list is found, each entry is read alone.

Pure; never raises. A bad entry becomes a `Rejected` with its reason and the good ones
stay (PARTIAL). FAILED always carries at least one `Rejected`, so an unreadable reply is
never mistaken for "nothing to do". Neither is one that was cut off, that answers twice
or that gives one key twice: each leaves a `Rejected`. Entries that a reader calls
destructive are taken from a clear reply only (`Extracted.clear`). Keys of an entry that
nobody reads are ignored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from memagent.core.ops import CLEAR_REPAIRS, Parsed, ParseStatus, Rejected, RejectReason, Repair
from memagent.replies.json_answer import Extracted, extract_json
from memagent.replies.tolerant_json import JsonValue, repeats_key

MAX_ENTRIES: Final = 256
"""Entries read from one reply."""
MAX_FACT_CHARS: Final = 2_000
"""Longest text of one fact."""
SOURCE_KEYS: Final = ("sources", "source", "source_turn_ids", "turns", "evidence")
"""Keys under which models cite turns."""

_RAW_CHARS: Final = 500
_INDEX = re.compile(r"(?:fact|version|f|v)?[ _#]{0,2}(\d{1,6})[.)]?", re.IGNORECASE)

T = TypeVar("T")
Entry = Mapping[str, JsonValue]
"""One JSON object of a reply."""


class Unfit(Exception):
    """An entry that cannot be read; becomes a `Rejected`."""

    def __init__(self, reason: RejectReason, detail: str) -> None:
        super().__init__(detail)
        self.reason, self.detail = reason, detail


def parse_entries(
    text: str,
    list_keys: Sequence[str],
    read: Callable[[JsonValue], T],
    *,
    is_entry: Callable[[Entry], bool] = lambda _: False,
    destroys: Callable[[T], bool] = lambda _: False,
    limit: int = MAX_ENTRIES,
) -> Parsed[T]:
    """Find the list of entries under one of the keys and read each entry alone.

    A bare list counts, and so does one object that `is_entry` knows. `read` raises
    `Unfit` or pydantic's `ValidationError` for an entry that cannot be used. A value
    that `destroys` is rejected as AMBIGUOUS unless the reply is clear.
    """

    def is_wanted(value: JsonValue) -> bool:
        entries = _entries_of(value, list_keys, is_entry)
        return entries == [] or any(isinstance(entry, dict) for entry in entries or ())

    def is_single(value: JsonValue) -> bool:
        return isinstance(value, dict) and not _lists(value, list_keys) and is_entry(value)

    reply = extract_json(text, wanted=is_wanted, part=is_single)
    if reply.status is ParseStatus.EMPTY:
        return Parsed(status=reply.status)
    entries = _entries_of(reply.value, list_keys, is_entry)
    if entries is None:
        problem = (
            reply.problem
            or f"the reply has no list under {', '.join(map(repr, list_keys))}, or two"
        )
        return unreadable(text, problem, reply=reply)
    values: list[T] = []
    rejected: list[Rejected] = []
    for entry in entries[:limit]:
        try:
            values.append(_read_entry(entry, read, destroys, reply))
        except (Unfit, ValidationError) as error:
            rejected.append(_rejected(entry, error))
    if len(entries) > limit:
        detail = f"{len(entries) - limit} entries after the first {limit} were not read"
        rejected.append(Rejected(reason=RejectReason.TOO_MANY_OPS, detail=detail))
    rejected += _losses(text, reply, empty=not entries)
    status = reply.status if not rejected else ParseStatus.PARTIAL if values else ParseStatus.FAILED
    return Parsed(
        status=status, values=tuple(values), rejected=tuple(rejected), repairs=reply.repairs
    )


def _lists(value: Entry, list_keys: Sequence[str]) -> list[list[JsonValue]]:
    return [listed for key in list_keys if isinstance(listed := value.get(key), list)]


def _entries_of(
    value: JsonValue, list_keys: Sequence[str], is_entry: Callable[[Entry], bool]
) -> list[JsonValue] | None:
    """Return the entries; None when there is no list of them, or more than one."""
    if not isinstance(value, dict):
        return value if isinstance(value, list) else None
    listed = _lists(value, list_keys)
    if listed:
        return listed[0] if all(other == listed[0] for other in listed) else None
    return [value] if is_entry(value) else None


def _read_entry(
    entry: JsonValue,
    read: Callable[[JsonValue], T],
    destroys: Callable[[T], bool],
    reply: Extracted,
) -> T:
    inner = entry.values() if isinstance(entry, dict) else ()
    if repeats_key(entry) or any(map(repeats_key, inner)):
        raise Unfit(RejectReason.AMBIGUOUS, "the entry gives one key twice")
    value = read(entry)
    if destroys(value) and not reply.clear:
        unclear = ", ".join(each for each in reply.repairs if each not in CLEAR_REPAIRS)
        raise Unfit(
            RejectReason.AMBIGUOUS, f"taken only from a reply with one meaning; this one: {unclear}"
        )
    return value


def _losses(text: str, reply: Extracted, *, empty: bool) -> Iterable[Rejected]:
    """Yield what the reply may hold beside the entries that were read."""
    raw = text.strip()[:_RAW_CHARS]
    if Repair.OTHER_ANSWER in reply.repairs:
        detail = "an earlier answer of the reply says something else; the last one counts"
        yield Rejected(reason=RejectReason.AMBIGUOUS, detail=detail, raw=raw)
    if Repair.CUT_OFF in reply.repairs:
        detail = "the reply ends before its list does"
        yield Rejected(reason=RejectReason.CUT_OFF, detail=detail, raw=raw)
    elif empty and not _certainly_empty(reply):
        detail = "the list is empty, and the reply says more than that"
        yield Rejected(reason=RejectReason.AMBIGUOUS, detail=detail, raw=raw)


def _certainly_empty(reply: Extracted) -> bool:
    """Tell whether an empty list is what the reply says; text may stand around an object."""
    prose = {Repair.PROSE} if isinstance(reply.value, dict) else set[Repair]()
    return (CLEAR_REPAIRS | prose).issuperset(reply.repairs)


def _rejected(entry: JsonValue, error: Unfit | ValidationError) -> Rejected:
    if isinstance(error, Unfit):
        return Rejected(reason=error.reason, detail=error.detail, raw=raw_json(entry))
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    detail = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return Rejected(reason=RejectReason.INVALID_FIELDS, detail=detail, raw=raw_json(entry))


def unreadable(
    text: str,
    detail: str,
    *,
    reason: RejectReason = RejectReason.NOT_AN_OBJECT,
    reply: Extracted | None = None,
) -> Parsed[Any]:
    """Return a FAILED result for a reply that cannot be used as a whole."""
    bad = Rejected(reason=reason, detail=detail, raw=text.strip()[:_RAW_CHARS])
    repairs = reply.repairs if reply is not None else ()
    return Parsed(status=ParseStatus.FAILED, rejected=(bad,), repairs=repairs)


# -- values of an entry ----------------------------------------------------------------


def string_at(entry: Entry, *keys: str) -> str | None:
    """Return the first of the keys' values that is a non-blank text, stripped, or None."""
    texts = (value.strip() for key in keys if isinstance(value := entry.get(key), str))
    return next((text for text in texts if text), None)


def value_at(entry: Entry, keys: Sequence[str]) -> JsonValue:
    """Return the value of the first key that is there and not null, else None."""
    return next((entry[key] for key in keys if entry.get(key) is not None), None)


def index_of(value: JsonValue) -> int | None:
    """Read a whole number, also one written as text (`"2"`, `"fact 2"`, `"v2"`)."""
    if isinstance(value, str):
        match = _INDEX.fullmatch(value.strip())
        return int(match[1]) if match else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return int(value) if abs(value) < 1e6 and float(value).is_integer() else None


def ids_at(entry: Entry, keys: Sequence[str]) -> tuple[str, ...]:
    """Return the ids under the first key that is there, each once.

    The value is a list, one id, or several ids with commas between.
    """
    value = value_at(entry, keys)
    listed = re.split(r"[,;]", value) if isinstance(value, str) else value
    parts = listed if isinstance(listed, list) else [listed]
    return tuple(dict.fromkeys(plain for part in parts if (plain := plain_id(part))))


def plain_id(value: JsonValue) -> str:
    """Return an id without the brackets that models like to copy; "" for null."""
    return flat_text(value).strip().strip("[]").strip()


def checked_text(text: str | None, limit: int) -> str:
    """Return the text. Raises `Unfit` when it is missing, blank or too long."""
    if text is None or not text.strip():
        raise Unfit(RejectReason.EMPTY_TEXT, "the text is missing or empty")
    if len(text) > limit:
        raise Unfit(
            RejectReason.TEXT_TOO_LONG, f"{len(text)} characters; at most {limit} are allowed"
        )
    return text


def flat_text(value: JsonValue) -> str:
    """Return any JSON value as text.

    Lists are joined by commas, whole floats lose their fraction, null is "".
    """
    match value:
        case str():
            return value
        case None:
            return ""
        case list():
            return ", ".join(
                raw_json(part) if isinstance(part, list) else flat_text(part) for part in value
            )
        case bool():
            return "yes" if value else "no"
        case float() if abs(value) < 1e15 and value.is_integer():
            return str(int(value))
        case _:
            return raw_json(value)


def raw_json(value: JsonValue) -> str:
    """Return a value as JSON, shortened."""
    try:
        return json.dumps(value, ensure_ascii=False)[:_RAW_CHARS]
    except (RecursionError, ValueError):
        return "(nested too deeply to show)"
