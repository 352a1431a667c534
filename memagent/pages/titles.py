"""Titles for events whose text is a stretch of dialogue: one line that says what it is about."""

from __future__ import annotations

import re
from textwrap import shorten
from typing import Final

_MOST_CHARS: Final = 90
_FEWEST_WORDS: Final = 4
_SENTENCE: Final = re.compile(r"(?<=[.!?…])\s+")
_SPEAKER: Final = re.compile(r"([^\s:][^:\n]{0,39}): (?=\S)")
_OPENERS: Final = frozenset(
    "absolutely aww bye congrats congratulations glad good great haha hello hey hi hope lol nice "
    "ok okay sorry sure thank thanks that's totally woohoo wow yeah yep yes you're".split()
)
"""First words of sentences that greet, thank or approve."""


def title_of(text: str, *, most: int = _MOST_CHARS) -> str:
    """Return the first sentence that states something, behind its speaker's name.

    A text without such a sentence gives its first line; a line is cut between words.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line in lines:
        speaker = _SPEAKER.match(line)
        said = line[speaker.end() :] if speaker else line
        for sentence in _SENTENCE.split(said):
            if _states(sentence):
                return _cut(f"{speaker[1]}: {sentence}" if speaker else sentence, most)
    return _cut(lines[0], most) if lines else ""


def _states(sentence: str) -> bool:
    words = sentence.split()
    opener = words[0].strip(",.!").casefold() if words else ""
    return (
        len(words) >= _FEWEST_WORDS
        and not sentence.rstrip("\"'”").endswith("?")
        and not (opener in _OPENERS and len(words) <= 2 * _FEWEST_WORDS)
    )


def _cut(line: str, most: int) -> str:
    """Cut a line between words; text without spaces is cut anywhere."""
    short = shorten(line, most, placeholder=" …")
    if not short.endswith(" …"):
        return short if short != "…" else line[: most - 1] + "…"
    return short.removesuffix(" …").rstrip(" ,;:-") + " …"
