"""The grammars of the levels: `rich` is all of everyday life, `standard` the part of it
that most conversations share, `tiny` its own.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Final, Literal

from environments.worlds.spec import Grammar
from environments.worlds.tiny import TINY

_STANDARD: Final = frozenset(
    "lives_in job home_type instrument trip book bought restaurant concert trip_plan dinner_plan appointment bad_turn travel_mishap sister "
    "brother cousin best_friend favourite_dish favourite_colour favourite_drink pet hobbies plants".split()
)
"""Relations of level `standard`."""


@cache
def grammar_of(level: Literal["tiny", "standard", "rich"]) -> Grammar:
    """The grammar of a level.

    The large data modules are loaded when they are first needed.
    """
    if level == "tiny":
        return TINY
    from environments.worlds.everyday import EVERYDAY

    if level == "rich":
        return EVERYDAY
    return replace(
        EVERYDAY, relations=tuple(one for one in EVERYDAY.relations if one.name in _STANDARD)
    )
