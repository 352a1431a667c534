"""Personal data in texts: found by form, and replaced by numbered placeholders.

E-mail addresses, telephone numbers, payment cards (with their check digit), bank accounts
(IBAN) and US social security numbers. Names and places have no form and stay.
"""

from __future__ import annotations

import re
from typing import Final

_FORMS: Final = re.compile(
    r"(?<!\w)(?=[\w.+-]|\(\d)(?:(?P<EMAIL>(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,4})"
    r"|(?P<IBAN>\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b)"
    r"|(?P<SSN>(?<![\d-])\d{3}-\d{2}-\d{4}(?![\d-]))"
    r"|(?P<CARD>(?<!\d)(?<!\d[ -])\d(?:[ -]?\d){12,18}(?!\d))"
    r"|(?P<PHONE>(?<!\w)\+\d[\d ()./-]{6,18}\d(?!\w)"
    r"|(?<![\w.-])\(?0\d{2,4}\)?[ /-]?\d[\d -]{4,10}\d(?![\w-])"
    r"|(?<![\w.-])(?:\(\d{3}\) ?|\d{3}[-. ])\d{3}[-. ]\d{4}(?![\w-])))"
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
        return _FORMS.sub(self._placeholder, text)

    def unmasked(self, text: str) -> str:
        """Return a text with the values that its placeholders stand for."""
        if not self._values:
            return text
        return _PLACEHOLDER.sub(lambda match: self._values.get(match[0], match[0]), text)

    def finished(self, text: str) -> int:
        """Return how much of a streamed text ends before a placeholder that may go on."""
        match = _UNFINISHED.search(text, max(0, len(text) - _LONGEST)) if self._values else None
        return len(text) if match is None else match.start()

    def _placeholder(self, match: re.Match[str]) -> str:
        value, kind = match[0], match.lastgroup or ""
        if kind == "CARD" and not _passes_luhn(value):
            return value
        if value not in self._known:
            placeholder = f"PII-{kind}-{len(self._known) + 1}"
            self._known[value], self._values[placeholder] = placeholder, value
        return self._known[value]


def _passes_luhn(number: str) -> bool:
    digits = [int(sign) for sign in reversed(number) if sign.isdecimal()]
    doubled = (digit * 2 - 9 * (digit > 4) for digit in digits[1::2])
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0
