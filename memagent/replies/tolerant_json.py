"""Nearly valid JSON, read in one forward pass.

Forgiven is what models get wrong: missing or trailing commas, other quotes, bare words,
comments, raw line breaks, unescaped quotes inside a string, wrong or missing closing
brackets. Each repair is named, so that a reader can tell a change of spelling from a
guess.

Invariants: never raises; the reading position only moves forward, so no input makes it
slow; equal texts give equal values. The surprise: what is cut off is dropped, never
guessed. A string or number that the text ends in has no known value, so a reply that
ran out of tokens loses its last statement and cannot plant half of one. Repair
libraries were measured for this place and left out: within 4,000 characters, with few
brackets and little nesting, their running time passes two seconds.

`outside_reasoning` returns the part of a reply that is not its reasoning. Models mark
reasoning in several ways: `<think>` and its relatives, `[THINK]`, channels of the
harmony format. A block without an end was cut off and reaches to the end of the reply.
An end without a beginning closes a block that the prompt had opened.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from memagent.core.ops import Repair

_NAMES = "think|thinking|thoughts?|reasoning|reflection|scratchpad|analysis"
_MARK = re.compile(
    rf"(?P<open><(?:{_NAMES})(?:\s[^<>]{{0,64}})?>|\[THINK\]|<\|begin_of_thought\|>|◁think▷"
    r"|<\|channel\|>(?:analysis|commentary)\b)"
    rf"|</(?:{_NAMES})\s{{0,8}}>|\[/THINK\]|<\|end_of_thought\|>|◁/think▷"
    r"|<\|channel\|>final\s{0,8}(?:<\|message\|>)?",
    re.IGNORECASE,
)


class Spoken(NamedTuple):
    """A reply without its reasoning, and how the two stood together."""

    text: str
    """Empty when the reply is only reasoning."""
    late: bool
    """Reasoning follows text that is kept."""
    unfinished: bool
    """The reply ends inside its reasoning."""


def outside_reasoning(text: str) -> Spoken:
    """Leave the reasoning out of a reply."""
    kept: list[str] = []
    at, inside, late = 0, False, False
    for mark in _MARK.finditer(text):
        if mark["open"] is None:
            if not inside:
                kept.clear()
                late = False
            inside, at = False, mark.end()
        elif not inside:
            kept.append(text[at : mark.start()])
            inside, late = True, any(map(str.strip, kept))
    if not inside:
        kept.append(text[at:])
    return Spoken("\n".join(kept).strip(), late, inside)


JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"

MAX_DEPTH: Final = 32
"""Deepest nesting that is read tolerantly."""

_SKIP = re.compile(r"\s+")
_BARE_KEY = re.compile("""[^,:{}\\[\\]"'\u201c\n]+""")
# A value may hold what ends a key: "it's", "5:30".
_BARE_VALUE = re.compile(r"""[^,{}\[\]"\n]+""")
# What "//" begins, unless it stands in a word, as in an address.
_COMMENT = re.compile(r"(?:^|\s)//")
_SIMPLE_WORD = re.compile(r"[\w.:+#-]+")
_NUMBER = re.compile(r"-?\d{1,300}(\.\d{1,300})?([eE][+-]?\d{1,4})?")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
# Opening quotes: straight, single, and curly as in typeset text.
_OPEN = "[\"'\u201c]"
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


class JsonObject(dict[str, JsonValue]):
    """A JSON object that knows whether its text gave one key more than once."""

    __slots__ = ("repeats",)

    def __init__(self, pairs: Iterable[tuple[str, JsonValue]] = (), *, repeats: bool) -> None:
        super().__init__(pairs)
        self.repeats = repeats


def repeats_key(value: JsonValue) -> bool:
    """Tell whether the value is an object whose text gave one key more than once."""
    return isinstance(value, JsonObject) and value.repeats


@dataclass(slots=True)
class _Frame:
    """An open object or array; `key` is an object's key that still waits for its value."""

    value: JsonObject | list[JsonValue]
    key: str | None = None


@dataclass(slots=True)
class TolerantReader:
    """One forward pass over `text`, which starts with an opening bracket."""

    text: str
    at: int = 0
    """Characters read."""
    stack: list[_Frame] = field(default_factory=list[_Frame])
    repairs: set[Repair] = field(default_factory=lambda: {Repair.SPELLING})

    def read(self) -> JsonValue:
        """Return the value, or None when it is nested too deeply.

        Containers still open at the end of the text close there.
        """
        root: JsonValue = None
        while self._skip_blank():
            char = self.text[self.at]
            match char:
                case "{" | "[":
                    if len(self.stack) >= MAX_DEPTH:
                        return None
                    root = self._open(char, root)
                case "}" | "]":
                    self.at += 1
                    self._close(dict if char == "}" else list)
                    if not self.stack:
                        break
                case ",":
                    self.at += 1
                    self._end_member(self.stack[-1])
                case ":":
                    self.at += 1
                case _ if char in _CLOSER:
                    self._quoted(char)
                case _:
                    self._bare()
        if self.stack:
            # Only the outermost object's bracket is missing, or content may be.
            (outer, *inner) = self.stack
            whole = not inner and isinstance(outer.value, dict) and outer.key is None
            self.repairs.add(Repair.BRACKET if whole and outer.value else Repair.CUT_OFF)
        return root

    def _open(self, bracket: str, root: JsonValue) -> JsonValue:
        """Open a container; return the outermost value."""
        value: JsonObject | list[JsonValue] = JsonObject(repeats=False) if bracket == "{" else []
        if self.stack:
            self._put(value)
        self.stack.append(_Frame(value))
        self.at += 1
        return value if root is None else root

    def _put(self, value: JsonValue) -> None:
        """Put a value into the innermost container; an object takes it under a waiting key."""
        frame = self.stack[-1]
        if isinstance(frame.value, list):
            frame.value.append(value)
        elif frame.key is None:
            self.repairs.add(Repair.GUESS)
        else:
            frame.value.repeats |= frame.key in frame.value
            frame.value[frame.key] = value
            frame.key = None

    def _end_member(self, frame: _Frame) -> None:
        """Drop a key that got no value."""
        if frame.key is not None:
            frame.key = None
            self.repairs.add(Repair.GUESS)

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
        if not any(isinstance(frame.value, kind) for frame in self.stack):
            self.repairs.add(Repair.BRACKET)
            return
        while True:
            frame = self.stack.pop()
            self._end_member(frame)
            if isinstance(frame.value, kind):
                return
            self.repairs.add(Repair.BRACKET)

    def _bare(self) -> None:
        """Read an unquoted key, literal, number or word.

        One that the text ends in may be cut off and is dropped.
        """
        frame = self.stack[-1]
        expects_key = isinstance(frame.value, dict) and frame.key is None
        match = (_BARE_KEY if expects_key else _BARE_VALUE).match(self.text, self.at)
        assert match is not None  # `read` comes here only where a word can begin
        self.at, word = match.end(), _COMMENT.split(match[0], maxsplit=1)[0].strip()
        if not _SIMPLE_WORD.fullmatch(word):
            self.repairs.add(Repair.GUESS)
        if self.at == len(self.text):
            self.repairs.add(Repair.CUT_OFF)
        elif not expects_key:
            self._put(_word_value(word))
        elif self.text.startswith(":", self.at):
            frame.key = word
        else:
            self.repairs.add(Repair.GUESS)

    def _quoted(self, quote: str) -> None:
        """Read a quoted key or value.

        A quote closes the string when what follows it can follow a string there.
        """
        frame = self.stack[-1]
        expects_key = isinstance(frame.value, dict) and frame.key is None
        start = mark = last = self.at + 1
        while True:
            match = _CLOSER[quote].search(self.text, mark)
            if match is None:
                self.at = len(self.text)
                self.repairs.add(Repair.CUT_OFF)
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
                self.repairs.add(Repair.GUESS)
                expects_key, start = True, last
                break
            self.repairs.add(Repair.GUESS)
            mark = last = at + 1
        self.at = at + 1
        body = _unescaped(self.text[start:at])
        if expects_key:
            frame.key = body
        else:
            self._put(body)

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
            follower = _NEXT_MEMBER if in_object else _NEXT_ELEMENT
            return follower.match(self.text, end + 1) is not None
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
