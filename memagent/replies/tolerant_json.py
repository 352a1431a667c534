"""The JSON value in a model's text, found in time linear in the text.

The ways are tried in order and the first that works wins: the whole text as strict JSON; a fenced
block; a balanced object or array inside prose (or several objects one after another,
read as a list); a tolerant reading of the first thing that looks like JSON. The
tolerant reader forgives what models get wrong: missing or trailing commas, other
quotes, bare words, comments, raw line breaks, unescaped quotes inside a string, wrong
or missing closing brackets.

Invariants: never raises; the reading position only moves forward, so no input makes it
slow; equal texts give equal values. The surprise: what is cut off is dropped, never
guessed. A string or number that the text ends in has no known value, so a reply that
ran out of tokens loses its last statement and cannot plant half of one. Repair
libraries were measured for this place and left out: within 4,000 characters, with few
brackets and little nesting, their running time passes two seconds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, TypeAlias, cast

from memagent.core.ops import ParseStatus

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"

MAX_TEXT_CHARS: Final = 200_000
"""Longest text that is searched for JSON."""
MAX_REPAIR_CHARS: Final = 16_384
"""Longest text, from its first bracket on, that is read tolerantly."""
MAX_DEPTH: Final = 32
"""Deepest nesting that is read tolerantly."""

_MAX_SPANS = 128
_FENCE = "```"
_BRACKETS = re.compile(r'["\\{}\[\]]')
_LIKELY_START = re.compile("""\\{\\s*["'\u201c}A-Za-z_/]|\\[\\s*[\\[{"'\u201c\\]/]""")
_BETWEEN_LINES = re.compile(r"[\s,;]*")
_SKIP = re.compile(r"\s+")
_BARE_KEY = re.compile("""[^,:{}\\[\\]"'\u201c\n]+""")
_BARE_VALUE = re.compile(r"""[^,{}\[\]"\n]+""")
_NUMBER = re.compile(r"-?\d{1,300}(\.\d{1,300})?([eE][+-]?\d{1,4})?")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_OPEN = "[\"'\u201c]"
"""Opening quotes: straight, single, and curly as in typeset text."""
_KEY = rf"(?:{_OPEN}[^\"'\u201c\u201d\n]{{0,64}}[\"'\u201d]|[A-Za-z_]\w{{0,63}})\s*:"
_NEXT_KEY = re.compile(rf"\s*{_KEY}")
_NEXT_MEMBER = re.compile(rf"\s*(?:{_KEY}|[,}}\]{{\[]|//|$)")
_NEXT_ELEMENT = re.compile(
    rf"\s*(?:{_OPEN}|[,{{\[\]}}]|-?\d|//|(?:true|false|null|True|False|None)\b|$)"
)
_CLOSER = {
    '"': re.compile(r'[\\"]'),
    "'": re.compile(r"[\\']"),
    "\u201c": re.compile('[\\\\\u201d"]'),
}
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_WORDS: dict[str, JsonValue] = {
    "true": True,
    "false": False,
    "null": None,
    "none": None,
    "nan": None,
    "undefined": None,
}


@dataclass(frozen=True, slots=True)
class Extracted:
    """The object or array found in a text; `value` is None when the status is FAILED or EMPTY."""

    status: ParseStatus
    value: JsonValue = None


def extract_json(text: str, *, wanted: Callable[[JsonValue], bool] | None = None) -> Extracted:
    """Find the JSON object or array in `text`.

    The status is STRICT when it is the whole text and REPAIRED when it had to be found
    or mended. `wanted` says which of several values is meant; without it, or when none fits, the
    first counts. A reasoning block that ends in `</think>` is skipped unless the whole
    text is JSON. Bare numbers, strings and words are FAILED; blank text is EMPTY.
    """
    text = text.strip().removeprefix("\ufeff")
    if not text:
        return Extracted(ParseStatus.EMPTY)
    if len(text) > MAX_TEXT_CHARS:
        return Extracted(ParseStatus.FAILED)
    whole = _strict(text)
    if whole is not None:
        return Extracted(ParseStatus.STRICT, whole)
    text = text.rpartition("</think>")[2]
    values = list(_values_in_prose(text))
    chosen = next((value for value in values if wanted is not None and wanted(value)), None)
    if chosen is None and (not values or wanted is not None):
        mended = _mended(text)
        if mended is not None and (wanted is None or wanted(mended) or not values):
            chosen = mended
    if chosen is None and not values:
        return Extracted(ParseStatus.FAILED)
    return Extracted(ParseStatus.REPAIRED, values[0] if chosen is None else chosen)


def _strict(text: str) -> JsonValue:
    """Parse a text that is one object or array; None when it is neither."""
    text = text.strip()
    if text[:1] not in ("{", "["):
        return None
    try:
        value = cast(JsonValue, json.loads(text, parse_constant=_no_constant))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, (dict, list)) else None


def _no_constant(_: str) -> None:
    """NaN and the infinities are not JSON; they read as null."""


def _values_in_prose(text: str) -> Iterator[JsonValue]:
    """Yield the strict values inside fences, then those in balanced brackets, in order.

    Objects written one after another with nothing between them are one list.
    """
    spans = list(islice(_balanced_spans(text), _MAX_SPANS))
    values = [_strict(text[start:end]) for start, end in spans]
    objects = len(values) > 1 and all(isinstance(value, dict) for value in values)
    if objects and _only_spans(text, spans):
        values = [values]
    fenced = [_strict(block) for block in _fenced(text)]
    yield from (value for value in (*fenced, *values) if value is not None)


def _fenced(text: str) -> list[str]:
    """Return the text between fences, without the language tag of the opening line.

    An unclosed last fence counts.
    """
    blocks = text.split(_FENCE, 2 * _MAX_SPANS)[1::2]
    return [re.sub(r"^[A-Za-z0-9]{0,12}\s", "", block, count=1) for block in blocks]


def _balanced_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield outermost bracketed spans.

    Inside a span, brackets in double-quoted strings do not count.
    """
    depth, start, in_string, skip = 0, 0, False, -1
    for match in _BRACKETS.finditer(text):
        char, at = match[0], match.start()
        if at == skip:
            continue
        if in_string:
            if char == "\\":
                skip = at + 1
            elif char == '"':
                in_string = False
        elif char in "{[":
            start = at if depth == 0 else start
            depth += 1
        elif char in "}]" and depth:
            depth -= 1
            if depth == 0:
                yield start, at + 1
        elif char == '"':
            in_string = depth > 0


def _only_spans(text: str, spans: list[tuple[int, int]]) -> bool:
    """Tell whether only blanks and separators stand outside the spans."""
    at = 0
    for start, end in [*spans, (len(text), len(text))]:
        blank = _BETWEEN_LINES.match(text, at, start)
        if blank is None or blank.end() != start:
            return False
        at = end
    return True


def _mended(text: str) -> JsonValue:
    """Read the first thing that looks like JSON tolerantly, fenced blocks first.

    None when there is none.
    """
    for block in [*_fenced(text), text]:
        start = _LIKELY_START.search(block)
        if start is not None:
            body = block[start.start() :]
            return _Tolerant(body).read() if len(body) <= MAX_REPAIR_CHARS else None
    return None


@dataclass(slots=True)
class _Frame:
    """An open object or array; `key` is an object's key that still waits for its value."""

    value: dict[str, JsonValue] | list[JsonValue]
    key: str | None = None

    def put(self, value: JsonValue) -> None:
        """Take a value; in an object without a waiting key it is dropped."""
        if isinstance(self.value, list):
            self.value.append(value)
        elif self.key is not None:
            self.value[self.key] = value
            self.key = None


@dataclass(slots=True)
class _Tolerant:
    """One forward pass over `text`, which starts with an opening bracket."""

    text: str
    at: int = 0
    stack: list[_Frame] = field(default_factory=list[_Frame])

    def read(self) -> JsonValue:
        """Return the value, or None when it is nested too deeply.

        Containers still open at the end of the text close there.
        """
        root: JsonValue = None
        while self._skip_blank():
            char = self.text[self.at]
            if char in "{[":
                if len(self.stack) >= MAX_DEPTH:
                    return None
                value: dict[str, JsonValue] | list[JsonValue] = {} if char == "{" else []
                if self.stack:
                    self.stack[-1].put(value)
                else:
                    root = value
                self.stack.append(_Frame(value))
                self.at += 1
            elif char in "}]":
                self.at += 1
                self._close(dict if char == "}" else list)
                if not self.stack:
                    break
            elif char in ",:":
                self.at += 1
                if char == ",":
                    self.stack[-1].key = None
            elif char in _CLOSER:
                self._quoted(char)
            else:
                self._bare()
        return root

    def _skip_blank(self) -> bool:
        """Move past blanks and comments; return whether anything is left."""
        while self.at < len(self.text):
            blank = _SKIP.match(self.text, self.at)
            if blank is not None:
                self.at = blank.end()
            elif self.text.startswith("//", self.at):
                self._skip_past("\n")
            elif self.text.startswith("/*", self.at):
                self._skip_past("*/")
            else:
                return True
        return False

    def _skip_past(self, mark: str) -> None:
        end = self.text.find(mark, self.at)
        self.at = len(self.text) if end < 0 else end + len(mark)

    def _close(self, kind: type) -> None:
        """Close the innermost container of that kind and all inside it.

        A bracket that closes nothing is ignored.
        """
        if any(isinstance(frame.value, kind) for frame in self.stack):
            while not isinstance(self.stack.pop().value, kind):
                pass

    def _bare(self) -> None:
        """Read an unquoted key, literal, number or word.

        One that the text ends in may be cut off and is dropped.
        """
        frame = self.stack[-1]
        expects_key = isinstance(frame.value, dict) and frame.key is None
        match = (_BARE_KEY if expects_key else _BARE_VALUE).match(self.text, self.at)
        if match is None:
            self.at += 1
            return
        self.at, word = match.end(), match[0].partition("//")[0].strip()
        if expects_key:
            frame.key = word if self.text.startswith(":", self.at) else None
        elif self.at < len(self.text):
            frame.put(_word_value(word))

    def _quoted(self, quote: str) -> None:
        """Read a quoted key or value.

        A quote closes the string when what follows it can follow a string there.
        """
        frame = self.stack[-1]
        expects_key = isinstance(frame.value, dict) and frame.key is None
        start = mark = self.at + 1
        while True:
            match = _CLOSER[quote].search(self.text, mark)
            if match is None:
                self.at = len(self.text)
                return
            at = match.start()
            if match[0] == "\\":
                mark = at + 2
                continue
            if expects_key or self._closes(at, in_object=isinstance(frame.value, dict)):
                break
            if isinstance(frame.value, dict) and self.text.startswith(":", self._following(at)):
                # A value swallowed the next key: what the value was is unknown, so only
                # the key is kept.
                expects_key, start = True, start if mark == start else mark
                break
            mark = at + 1
        self.at = at + 1
        body = _unescaped(self.text[start:at])
        if expects_key:
            frame.key = body
        else:
            frame.put(body)

    def _following(self, at: int) -> int:
        """Return the position of the first character after `at` that is not blank."""
        blank = _SKIP.match(self.text, at + 1)
        return at + 1 if blank is None else blank.end()

    def _closes(self, at: int, *, in_object: bool) -> bool:
        """Tell whether the quote at `at` ends a value."""
        end = self._following(at)
        following = self.text[end : end + 1]
        if following in ("", "}", "]") or self.text.startswith(("//", "/*"), end):
            return True
        if following == ",":
            member = _NEXT_MEMBER if in_object else _NEXT_ELEMENT
            return member.match(self.text, end + 1) is not None
        if following not in _CLOSER:
            return False
        return _NEXT_KEY.match(self.text, end) is not None if in_object else end > at + 1


def _word_value(word: str) -> JsonValue:
    """Return the literal or number that an unquoted word stands for, else its own text."""
    lowered = word.lower()
    if lowered in _WORDS:
        return _WORDS[lowered]
    if _NUMBER.fullmatch(word) is None:
        return word
    return float(word) if any(mark in word for mark in ".eE") else int(word)


def _unescaped(body: str) -> str:
    """Return the text of a string body; unknown escapes stand for the escaped character."""
    if "\\" not in body:
        return body

    def plain(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code[1:], 16)) if len(code) == 5 else _ESCAPED.get(code, code)

    return _ESCAPE.sub(plain, body).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
