"""Entries of a model's reply: the list is found, each entry is read alone.

Pure; never raises. A bad entry becomes a `Rejected` with its reason and the good ones
stay (PARTIAL). FAILED always carries at least one `Rejected`, so an unreadable reply is
never mistaken for "nothing to do". Neither is one that was cut off, that answers twice
or that gives one key twice: each leaves a `Rejected`. Entries that a reader calls
destructive are taken from a clear reply only (`Extracted.clear`). Keys of an entry that
nobody reads are ignored.

Before that, `extract_json` finds the JSON answer, in time linear in the reply. The whole reply as
strict JSON is the answer. Otherwise reasoning is left out and every outermost object or
array is read, strictly where it can be, tolerantly where not. The last complete one
that fits counts. Each repair is named, and `Extracted.clear` tells whether the reply
has only one meaning: no other text, no second answer, no guess.

An object that gives one key twice is never an answer: readers differ in which value
counts. The surprise: JSON quoted in prose is an answer too when nothing better follows,
so nothing that destroys may rest on a reply that is not clear.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, TypeVar, cast

from pydantic import ValidationError

from memagent.core.ops import CLEAR_REPAIRS, Parsed, ParseStatus, Rejected, RejectReason, Repair
from memagent.replies.tolerant_json import (
    JsonObject,
    JsonValue,
    TolerantReader,
    outside_reasoning,
    repeats_key,
)
from memagent.state.validation import Refused

MAX_TEXT_CHARS: Final = 200_000
"""Longest text that is searched for JSON."""
MAX_REPAIR_CHARS: Final = 16_384
"""Longest stretch, from its first bracket on, that is read tolerantly."""

MAX_ENTRIES: Final = 256
"""Entries read from one reply."""
_MAX_CANDIDATES = MAX_ENTRIES + 1
_FENCE_LINE = re.compile(r"^[ \t]*```[A-Za-z0-9]{0,12}", re.MULTILINE)
# Marks that may stand around an answer without saying anything.
_WRAPPING = re.compile(r"```[A-Za-z0-9]{0,12}|</?answer>|<\|[a-z_]{1,20}\|>|</s>")
_SEPARATORS = re.compile(r"[\s,;]+")
_BRACKETS = re.compile(r'"+|\\+|[{}\[\]]')
_LIKELY_START = re.compile("""\\{\\s*["'\u201c}A-Za-z_/]|\\[\\s*[\\[{"'\u201c\\]/]""")

Fits = Callable[[JsonValue], bool]


@dataclass(frozen=True, slots=True)
class Extracted:
    """The object or array found in a text; `value` is None when the status is FAILED or EMPTY."""

    status: ParseStatus
    value: JsonValue = None
    repairs: tuple[Repair, ...] = ()
    problem: str = ""
    """Why the status is FAILED, where more is known than that nothing was found."""

    @property
    def clear(self) -> bool:
        """Whether the reply has one meaning only."""
        return CLEAR_REPAIRS.issuperset(self.repairs)

    def at(self, key: str) -> JsonValue:
        """Return what an object has under the key; any other value as it is."""
        return self.value.get(key) if isinstance(self.value, dict) else self.value


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A value of the reply, where it stands and what was mended to read it."""

    value: JsonValue
    start: int
    end: int
    repairs: frozenset[Repair] = frozenset()


def extract_json(text: str, *, wanted: Fits | None = None, part: Fits | None = None) -> Extracted:
    """Find the JSON object or array in `text`.

    The status is STRICT when it is the whole text and REPAIRED when it had to be found
    or mended. `wanted` says which of several values is meant; the last complete one that
    fits counts, or the first value when none fits. Objects that are each a `part` of a
    list, with only separators between them, are read as that list. Bare numbers,
    strings and words are FAILED; blank text is EMPTY.
    """
    text = text.strip().removeprefix("\ufeff").strip()
    if not text:
        return Extracted(ParseStatus.EMPTY)
    if len(text) > MAX_TEXT_CHARS:
        problem = f"the reply is over {MAX_TEXT_CHARS} characters long"
        return Extracted(ParseStatus.FAILED, problem=problem)
    whole = _strict(text)
    if whole is not None:
        return _checked(Extracted(ParseStatus.STRICT, whole))
    spoken = outside_reasoning(text)
    body = spoken.text
    repairs = {Repair.REASONING} if body != text else set[Repair]()
    repairs |= {Repair.PROSE} if spoken.late else set()
    repairs |= {Repair.CUT_OFF} if spoken.unfinished else set()
    if not body:
        return Extracted(ParseStatus.FAILED, None, _ordered(repairs), "the reply is only reasoning")
    found = _joined(body, list(islice(_candidates(body), _MAX_CANDIDATES)), part)
    fitting = [each for each in found if wanted is None or wanted(each.value)]
    if not found:
        long = len(body) > MAX_REPAIR_CHARS
        problem = f"what is broken and over {MAX_REPAIR_CHARS} characters is not mended"
        return Extracted(ParseStatus.FAILED, None, _ordered(repairs), problem if long else "")
    complete = [each for each in fitting if Repair.CUT_OFF not in each.repairs]
    chosen = (complete or fitting or found[:1])[-1]
    if any(each.value != chosen.value for each in fitting):
        repairs.add(Repair.OTHER_ANSWER)
    rest = _outside(body, fitting or [chosen])
    repairs |= {Repair.FENCE} if _WRAPPING.search(rest) else set()
    repairs |= {Repair.PROSE} if _WRAPPING.sub("", rest).strip() else set()
    return _checked(
        Extracted(ParseStatus.REPAIRED, chosen.value, _ordered(repairs | chosen.repairs))
    )


def _checked(found: Extracted) -> Extracted:
    if not repeats_key(found.value):
        return found
    return Extracted(ParseStatus.FAILED, None, found.repairs, "the answer gives one key twice")


def _ordered(repairs: set[Repair] | frozenset[Repair]) -> tuple[Repair, ...]:
    return tuple(repair for repair in Repair if repair in repairs)


def _strict(text: str) -> JsonValue:
    """Parse a text that is one object or array; None when it is neither."""
    if text[:1] not in ("{", "["):
        return None
    try:
        # NaN and the infinities are not JSON; they read as null
        value = json.loads(text, parse_constant=lambda _: None, object_pairs_hook=_object)
    except (ValueError, RecursionError):
        return None
    return cast(JsonValue, value) if isinstance(value, (dict, list)) else None


def _object(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    value = dict(pairs)
    return value if len(value) == len(pairs) else JsonObject(pairs, repeats=True)


def _candidates(text: str) -> Iterator[_Candidate]:
    """Yield every outermost value in order.

    A fence at the start of a line ends what stands before it: no JSON string holds a
    raw line break.
    """
    marks = [(mark.start(), mark.end()) for mark in _FENCE_LINE.finditer(text)]
    pieces_at = [0, *(end for _, end in marks)]
    pieces_to = [*(start for start, _ in marks), len(text)]
    for piece_at, piece_to in zip(pieces_at, pieces_to, strict=True):
        piece = text[piece_at:piece_to].rstrip()
        for start, end in _balanced_spans(piece):
            value = _strict(piece[start:end])
            if value is not None:
                yield _Candidate(value, piece_at + start, piece_at + end)
            else:
                yield from _mended(piece[start:end], piece_at + start)


def _balanced_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield outermost bracketed spans; one that is never closed reaches to the end.

    Inside brackets, those in double quotes do not count.
    """
    depth, start, in_string, skip = 0, 0, False, -1
    for match in _BRACKETS.finditer(text):
        signs, at = match[0], match.start()
        escaped = at == skip
        if signs[0] == '"':
            in_string ^= depth > 0 and (len(signs) - escaped) % 2 == 1
        elif signs[0] == "\\":
            skip = match.end() if in_string and len(signs) % 2 else skip
        elif in_string or escaped:
            continue
        elif signs in "{[":
            start = at if depth == 0 else start
            depth += 1
        elif depth:
            depth -= 1
            if depth == 0:
                yield start, at + 1
    if depth:
        yield start, len(text)


def _mended(text: str, offset: int) -> Iterator[_Candidate]:
    """Yield what can be read tolerantly, one value after another; none that is too deep."""
    if len(text) > MAX_REPAIR_CHARS:
        return
    at = 0
    while (found := _LIKELY_START.search(text, at)) is not None:
        begin = found.start()
        reader = TolerantReader(text[begin:])
        value = reader.read()
        if value is None:
            return
        at = begin + reader.at
        yield _Candidate(value, offset + begin, offset + at, frozenset(reader.repairs))


def _joined(text: str, found: list[_Candidate], part: Fits | None) -> list[_Candidate]:
    """Read objects with only separators between them as one list."""
    if part is None or len(found) < 2 or not all(part(each.value) for each in found):
        return found
    read = text[: found[-1].end] if len(found) == _MAX_CANDIDATES else text
    if _SEPARATORS.sub("", _WRAPPING.sub("", _outside(read, found))):
        return found
    repairs = frozenset({Repair.JOINED}).union(*(each.repairs for each in found))
    return [_Candidate([each.value for each in found], found[0].start, found[-1].end, repairs)]


def _outside(text: str, candidates: list[_Candidate]) -> str:
    """Return the text that belongs to no candidate."""
    begins = [0, *(each.end for each in candidates)]
    ends = [*(each.start for each in candidates), len(text)]
    return " ".join(text[begin:end] for begin, end in zip(begins, ends, strict=True))


MAX_FACT_CHARS: Final = 2_000
"""Longest text of one fact."""
SOURCE_KEYS: Final = ("sources", "source", "source_turn_ids", "turns", "evidence")
"""Keys under which models cite turns."""

_RAW_CHARS: Final = 500
_INDEX = re.compile(r"(?:fact|version|f|v)?[ _#]{0,2}(\d{1,6})[.)]?", re.IGNORECASE)

T = TypeVar("T")
Entry = Mapping[str, JsonValue]
"""One JSON object of a reply."""


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
    `Refused` or pydantic's `ValidationError` for an entry that cannot be used. A value
    that `destroys` is rejected as AMBIGUOUS unless the reply is clear.
    """

    def is_wanted(value: JsonValue) -> bool:
        entries = _entries_of(value, list_keys, is_entry)
        if isinstance(value, dict) or not entries:
            return entries is not None
        return any(isinstance(entry, dict) for entry in entries)

    def is_single(value: JsonValue) -> bool:
        return isinstance(value, dict) and not _lists(value, list_keys) and is_entry(value)

    reply = extract_json(text, wanted=is_wanted, part=is_single)
    if reply.status is ParseStatus.EMPTY:
        return Parsed(status=reply.status)
    entries = _entries_of(reply.value, list_keys, is_entry)
    if entries is None:
        problem = (
            reply.problem
            or f"the reply has no list under {', '.join(map(repr, list_keys))}, or several"
        )
        return unreadable(text, problem, reply=reply)
    values: list[T] = []
    rejected: list[Rejected] = []
    for entry in entries[:limit]:
        try:
            values.append(_read_entry(entry, read, destroys, reply))
        except (Refused, ValidationError) as error:
            rejected.append(_rejected(entry, error))
    if len(entries) > limit:
        detail = f"entries after the first {limit} were not read"
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
        raise Refused(RejectReason.AMBIGUOUS, "the entry gives one key twice")
    value = read(entry)
    if destroys(value) and not reply.clear:
        unclear = ", ".join(each for each in reply.repairs if each not in CLEAR_REPAIRS)
        raise Refused(
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
        return
    # An empty list is what an object says even where text stands around it.
    prose = {Repair.PROSE} if isinstance(reply.value, dict) else set[Repair]()
    if empty and not (CLEAR_REPAIRS | prose).issuperset(reply.repairs):
        detail = "the list is empty, and the reply says more than that"
        yield Rejected(reason=RejectReason.AMBIGUOUS, detail=detail, raw=raw)


def _rejected(entry: JsonValue, error: Refused | ValidationError) -> Rejected:
    if isinstance(error, Refused):
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

    The value is a list, one id, or several ids with commas or semicolons between.
    """
    value = value_at(entry, keys)
    listed = re.split(r"[,;]", value) if isinstance(value, str) else value
    parts = listed if isinstance(listed, list) else [listed]
    return tuple(dict.fromkeys(plain for part in parts if (plain := plain_id(part))))


def plain_id(value: JsonValue) -> str:
    """Return an id without the brackets that models like to copy; "" for null."""
    return flat_text(value).strip().strip("[]").strip()


def checked_text(text: str | None, limit: int) -> str:
    """Return the text. Raises `Refused` when it is missing, blank or too long."""
    if text is None or not text.strip():
        raise Refused(RejectReason.EMPTY_TEXT, "the text is missing or empty")
    if len(text) > limit:
        raise Refused(
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
