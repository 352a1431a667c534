"""The part of a model's reply that is not its reasoning. Pure.

Models mark reasoning in several ways: `<think>` and its relatives, `[THINK]`, channels
of the harmony format. A block without an end was cut off and reaches to the end of the
reply. An end without a beginning closes a block that the prompt had opened.
"""

from __future__ import annotations

import re
from typing import NamedTuple

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
    """"" when the reply is only reasoning."""
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
            inside, at = False, mark.end()
        elif not inside:
            kept.append(text[at : mark.start()])
            inside, late = True, any(map(str.strip, kept))
    if not inside:
        kept.append(text[at:])
    return Spoken("\n".join(kept).strip(), late, inside)
