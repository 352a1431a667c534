"""The person a statement is about: the speaker, somebody named, or "my sister" by her name.

A statement that introduces somebody ("my sister is called Ovella") gives the role a name.
From then on what the same speaker tells of "my sister" is about Ovella, so that it meets
what was told of her by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from memagent.core.records import MemoryItem
from memagent.designs.parts.learned.reading import Clause, shipped_reader
from memagent.state.fold import folded

_ROLE: Final = re.compile(r"\b(?:my|meine?) ([^\W\d_]+(?: friend)?)", re.IGNORECASE)


class People:
    """The people that were introduced or told of last, by speaker."""

    def __init__(self, items: Iterable[MemoryItem] = ()) -> None:
        """Know those whom memories introduce; they are read when a role first needs them."""
        self._items = tuple(items)
        self._names: dict[tuple[str, str], str] = {}
        self._last: dict[str, str] = {}

    def subject(self, clause: Clause, speaker: str) -> str:
        """Return whom a statement of a speaker is about."""
        if name := _introduced(clause, speaker):
            self._names[_key(speaker, clause.text)] = self._last[speaker] = name
            return speaker
        span = clause.spans.get("subject")
        if clause.subject == "named" and span is not None:
            words = span.text.removesuffix("'s").removesuffix("’s")
            self._last[speaker] = self._named(words, speaker)
            return self._last[speaker]
        if clause.subject == "pronoun":
            return self._last.get(speaker, "") or speaker
        return speaker

    def _named(self, words: str, speaker: str) -> str:
        if _ROLE.match(words) is None:
            return words
        key = _key(speaker, words)
        if key not in self._names:
            self._names[key] = self._remembered(key) or words
        return self._names[key]

    def _remembered(self, key: tuple[str, str]) -> str:
        """Return the latest name that a memory of the speaker gives to a role; "" for none."""
        texts = [
            (item.text, item.speaker or "")
            for item in self._items
            if key[1] in item.text.lower() and _key(item.speaker or "", item.text) == key
        ]
        names = [
            _introduced(clause, text[1])
            for text, clause in zip(texts, shipped_reader().statements(texts), strict=True)
        ]
        return next((name for name in reversed(names) if name), "")


def _key(speaker: str, text: str) -> tuple[str, str]:
    role = _ROLE.search(text)
    return folded(speaker), role.group(1).lower() if role else ""


def _introduced(clause: Clause, speaker: str) -> str:
    """Return the name that a statement gives to a role of the speaker's; "" for none."""
    value = clause.spans.get("value")
    if clause.kind != "bond" or value is None or _ROLE.search(clause.text) is None:
        return ""
    named = value.text[0].isupper() and folded(value.text) != folded(speaker)
    return value.text if named else ""
