"""Personal data in texts: found by form, and replaced by numbered placeholders.

E-mail addresses, telephone numbers, payment cards (with their check digit), bank accounts
(IBAN) and US social security numbers. Names and places have no form and stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_DOMAIN: Final = re.compile(r"@[\w-]{1,63}(?:\.[\w-]{1,63}){1,4}")
_LOCAL_PART: Final = re.compile(r"[\w.+-]{1,64}\Z")
_LOCAL_CHARS: Final = 64
# It starts at a letter or digit, so that all else is skipped quickly; what must stand
# before is looked up from there, and a sign or bracket before a number is added later.
_NUMBER: Final = re.compile(
    r"[A-Z\d](?<!\w.)(?:"
    r"(?P<IBAN>(?<=[A-Z])[A-Z]\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b)"
    r"|(?<=\d)(?:(?P<SSN>(?<!-\d)\d{2}-\d{2}-\d{4}(?![\d-]))"
    r"|(?P<PLUS>(?<=\+\d)(?<!\w\+\d)[\d ()./-]{6,18}\d(?!\w))"
    r"|(?P<CARD>(?<!\d[ -]\d)(?:[ -]?\d){12,18}(?!\d))"
    r"|(?P<PHONE>(?<![.-]\d)(?:(?<=0)\d{2,4}\)?[ /-]?\d[\d -]{4,10}\d(?![\w-])"
    r"|\d{2}(?:[-. ]|(?<=\(\d{3})\) ?)\d{3}[-. ]\d{4}(?![\w-])))))"
)
_PLACEHOLDER: Final = re.compile(r"PII-[A-Z]{3,5}-\d{1,6}")
_UNFINISHED: Final = re.compile(r"(?:P|PI|PII|PII-[A-Z]{0,5}|PII-[A-Z]{3,5}-\d{0,6})\Z")
_LONGEST: Final = 16


class Mask:
    """The placeholders of one exchange: equal values share one."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}
        self._known: dict[str, str] = {}

    def masked(self, text: str) -> str:
        """Return a text with placeholders for personal data."""
        pieces: list[str] = []
        end = 0
        for start, stop, kind in _personal(text):
            value = text[start:stop]
            if value not in self._known:
                placeholder = f"PII-{kind}-{len(self._known) + 1}"
                self._known[value], self._values[placeholder] = placeholder, value
            pieces += text[end:start], self._known[value]
            end = stop
        return "".join((*pieces, text[end:]))

    def unmasked(self, text: str) -> str:
        """Return a text with the values that its placeholders stand for."""
        if not self._values:
            return text
        return _PLACEHOLDER.sub(lambda match: self._values.get(match[0], match[0]), text)

    def finished(self, text: str) -> int:
        """Return how much of a streamed text ends before a placeholder that may go on."""
        match = _UNFINISHED.search(text, max(0, len(text) - _LONGEST)) if self._values else None
        return len(text) if match is None else match.start()


def _personal(text: str) -> list[tuple[int, int, str]]:
    """Return (start, end, kind) of personal data in order; what overlaps is one piece."""
    spans: list[tuple[int, int, str]] = []
    for start, end, kind in sorted([*_addresses(text), *_numbers(text)]):
        if spans and start < spans[-1][1]:
            start, before, kind = spans.pop()
            end = max(end, before)
        spans.append((start, end, kind))
    return spans


def _addresses(text: str) -> Iterator[tuple[int, int, str]]:
    end = 0
    for domain in _DOMAIN.finditer(text):
        local = _LOCAL_PART.search(text, max(end, domain.start() - _LOCAL_CHARS), domain.start())
        if local is not None:
            end = domain.end()
            yield local.start(), end, "EMAIL"


def _numbers(text: str) -> Iterator[tuple[int, int, str]]:
    for match in _NUMBER.finditer(text):
        first, kind = match.start(), match.lastgroup or ""
        kind = "PHONE" if kind == "PLUS" else kind
        if kind == "CARD" and not _passes_luhn(match[0]):
            continue
        before = text[first - 1 : first] if kind == "PHONE" else ""
        first -= before == "+" or (before == "(" and ")" in match[0])
        yield first, match.end(), kind


def _passes_luhn(number: str) -> bool:
    digits = [int(sign) for sign in reversed(number) if sign.isdecimal()]
    doubled = (digit * 2 - 9 * (digit > 4) for digit in digits[1::2])
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0
