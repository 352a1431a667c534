"""The JSON answer in a model's reply, found in time linear in the reply.

The whole reply as strict JSON is the answer. Otherwise reasoning is left out and every
outermost object or array is read, strictly where it can be, tolerantly where not. The
last complete one that fits counts. Each repair is named, and `Extracted.clear` tells
whether the reply has only one meaning: no other text, no second answer, no guess.

An object that gives one key twice is never an answer: readers differ in which value
counts. The surprise: JSON quoted in prose is an answer too when nothing better follows,
so nothing that destroys may rest on a reply that is not clear.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, cast

from memagent.core.ops import CLEAR_REPAIRS, ParseStatus, Repair
from memagent.replies.reasoning import outside_reasoning
from memagent.replies.tolerant_json import JsonObject, JsonValue, read_tolerantly, repeats_key

MAX_TEXT_CHARS: Final = 200_000
"""Longest text that is searched for JSON."""
MAX_REPAIR_CHARS: Final = 16_384
"""Longest stretch, from its first bracket on, that is read tolerantly."""

_MAX_CANDIDATES = 128
_FENCE_LINE = re.compile(r"^[ \t]*```[A-Za-z0-9]{0,12}", re.MULTILINE)
_WRAPPING = re.compile(r"```[A-Za-z0-9]{0,12}|</?answer>|<\|[a-z_]{1,20}\|>|</s>")
"""Marks that may stand around an answer without saying anything."""
_SEPARATORS = re.compile(r"[\s,;]+")
_BRACKETS = re.compile(r'"+|\\+|[{}\[\]]')
_LIKELY_START = re.compile("""\\{\\s*["'\u201c}A-Za-z_/]|\\[\\s*[\\[{"'\u201c\\]/]""")
_ORDER = tuple(Repair)

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
        return Extracted(ParseStatus.FAILED, problem=f"the reply is over {MAX_TEXT_CHARS} long")
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
    found = _joined(body, list(_candidates(body)), part)
    fitting = [each for each in found if wanted is None or wanted(each.value)]
    if not found:
        return Extracted(ParseStatus.FAILED, None, _ordered(repairs))
    chosen = _last(fitting) or found[0]
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


def _last(fitting: list[_Candidate]) -> _Candidate | None:
    """Return the last complete answer, else the last that was cut off."""
    complete = [each for each in fitting if Repair.CUT_OFF not in each.repairs]
    return (complete or fitting or [None])[-1]


def _ordered(repairs: set[Repair] | frozenset[Repair]) -> tuple[Repair, ...]:
    return tuple(repair for repair in _ORDER if repair in repairs)


def _strict(text: str) -> JsonValue:
    """Parse a text that is one object or array; None when it is neither."""
    if text[:1] not in ("{", "["):
        return None
    try:
        value = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_object)
    except (ValueError, RecursionError):
        return None
    return cast(JsonValue, value) if isinstance(value, (dict, list)) else None


def _no_constant(_: str) -> None:
    """NaN and the infinities are not JSON; they read as null."""


def _object(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    value = dict(pairs)
    return value if len(value) == len(pairs) else JsonObject(pairs, repeats=True)


def _candidates(text: str) -> Iterator[_Candidate]:
    """Yield every outermost value in order.

    A fence at the start of a line ends what stands before it: no JSON string holds a
    raw line break.
    """
    marks = [(mark.start(), mark.end()) for mark in _FENCE_LINE.finditer(text)]
    starts = [0, *(end for _, end in marks)]
    ends = [*(start for start, _ in marks), len(text)]
    left = _MAX_CANDIDATES
    for start, end in zip(starts, ends, strict=True):
        for candidate in _in_piece(text[start:end].rstrip(), start):
            yield candidate
            left -= 1
            if not left:
                return


def _in_piece(piece: str, offset: int) -> Iterator[_Candidate]:
    for start, end in _balanced_spans(piece):
        value = _strict(piece[start:end])
        if value is not None:
            yield _Candidate(value, offset + start, offset + end)
        else:
            yield from _mended(piece[start:end], offset + start)


def _balanced_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield outermost bracketed spans; one that is never closed reaches to the end."""
    depth, start = 0, 0
    for at in _brackets(text):
        if text[at] in "{[":
            start = at if depth == 0 else start
            depth += 1
        elif depth:
            depth -= 1
            if depth == 0:
                yield start, at + 1
    if depth:
        yield start, len(text)


def _brackets(text: str) -> Iterator[int]:
    """Yield the places of brackets; inside brackets, those in double quotes do not count."""
    depth, in_string, skip = 0, False, -1
    for match in _BRACKETS.finditer(text):
        signs, at = match[0], match.start()
        escaped = at == skip
        if signs[0] == '"':
            in_string ^= depth > 0 and (len(signs) - escaped) % 2 == 1
        elif signs[0] == "\\":
            skip = match.end() if in_string and len(signs) % 2 else skip
        elif not in_string and not escaped:
            depth = max(0, depth + (1 if signs in "{[" else -1))
            yield at


def _mended(text: str, offset: int) -> Iterator[_Candidate]:
    """Yield what can be read tolerantly, one value after another; none that is too deep."""
    if len(text) > MAX_REPAIR_CHARS:
        return
    at = 0
    while (found := _LIKELY_START.search(text, at)) is not None:
        begin = found.start()
        read = read_tolerantly(text[begin:])
        if read.value is None:
            return
        at = begin + read.end
        yield _Candidate(read.value, offset + begin, offset + at, read.repairs)


def _joined(text: str, found: list[_Candidate], part: Fits | None) -> list[_Candidate]:
    """Read objects with only separators between them as one list."""
    if part is None or len(found) < 2 or not all(part(each.value) for each in found):
        return found
    if _SEPARATORS.sub("", _WRAPPING.sub("", _outside(text, found))):
        return found
    repairs = frozenset({Repair.JOINED}).union(*(each.repairs for each in found))
    return [_Candidate([each.value for each in found], found[0].start, found[-1].end, repairs)]


def _outside(text: str, candidates: list[_Candidate]) -> str:
    """Return the text that belongs to no candidate."""
    kept: list[str] = []
    at = 0
    for candidate in candidates:
        kept.append(text[at : candidate.start])
        at = candidate.end
    return " ".join((*kept, text[at:]))
