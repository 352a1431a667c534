"""Whether a memory holds the right facts, judged by the truth behind a generated world.

No question is asked and no format is expected: a memory states a value if its words hold
the value and it cites a turn that told it. So designs that keep turns, clauses or notes
are judged alike.

    now          a value that holds is stated, and nothing active states one it replaced
    overwritten  the same, where it replaced another
    then         a value that ended is stated by an older version or a deleted memory
    removed      a lost member of a set or a cancelled plan was stated, and nothing
                 active states it but memories that rest on its end
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from typing import Final

from environments.worlds.truth import Act, HeldValue, Key, Telling, Truth
from memagent.core.records import MemoryItem
from memagent.core.snapshot import MemorySnapshot

FACTS: Final = ("now", "then", "overwritten", "removed")
"""The figures, in order."""
Counts = dict[str, tuple[int, int]]
"""(right, all) by figure."""
_ENDING: Final = (Act.REMOVE, Act.CANCEL)


def right_facts(
    memory: MemorySnapshot, truth: Truth, *, turns: Collection[str] | None = None
) -> Counts:
    """Return how many facts the memory holds right at the end of the episode.

    With `turns` only those count whose value was told in one of them.
    """
    told: dict[Key, list[Telling]] = defaultdict(list)
    for telling in truth.tellings:
        if telling.true or telling.act is Act.REPEAT:
            told[telling.key].append(telling)
    right, seen = Counter[str](), Counter[str]()
    statements = _Statements(memory)
    for key, values in truth.state(-1).items():
        for held in values:
            if turns is not None and not any(
                telling.value == held.value and telling.turn_id in turns for telling in told[key]
            ):
                continue
            for name, verdict in _judged(held, values, told[key], statements):
                right[name] += verdict
                seen[name] += 1
    return {name: (right[name], seen[name]) for name in FACTS}


class _Statements:
    """The statements of a memory, active and past."""

    def __init__(self, memory: MemorySnapshot) -> None:
        items = list(memory.items.values())
        self.active = [item for item in items if item.active]
        self.past = [item for item in items if not item.active]
        self.past += [item for versions in memory.archive.values() for item in versions]

    @staticmethod
    def of(items: Iterable[MemoryItem], value: str, turns: set[str]) -> list[MemoryItem]:
        """Return those that hold the value's words and cite one of the turns."""
        words = re.compile(rf"(?<!\w){re.escape(value.lower())}(?!\w)")
        return [
            item
            for item in items
            if not turns.isdisjoint(item.source_turn_ids) and words.search(item.text.lower())
        ]


def _judged(
    held: HeldValue, values: tuple[HeldValue, ...], told: list[Telling], memory: _Statements
) -> Iterable[tuple[str, bool]]:
    turns = {telling.turn_id for telling in told if telling.value == held.value}
    stated = memory.of(memory.active, held.value, turns)
    if _ended_by(held, told):
        ends = {t.turn_id for t in told if t.act in _ENDING and t.id in held.tellings}
        known = stated or memory.of(memory.past, held.value, turns)
        yield "removed", bool(known) and all(ends & set(item.source_turn_ids) for item in stated)
        return
    if held.current and held.outcome is None:
        stale = _replaced(held, values, told)
        old = [
            item
            for value in stale
            for item in memory.of(
                memory.active, value, {t.turn_id for t in told if t.value == value}
            )
            if item not in stated
        ]
        yield "now", bool(stated) and not old
        if stale:
            yield "overwritten", bool(stated) and not old
    elif held.end is not None:
        yield "then", bool(memory.of(memory.past, held.value, turns))


def _ended_by(held: HeldValue, told: list[Telling]) -> bool:
    return any(telling.id in held.tellings and telling.act in _ENDING for telling in told)


def _replaced(held: HeldValue, values: tuple[HeldValue, ...], told: list[Telling]) -> set[str]:
    """Return the values that a held one took the place of, by a change or a correction."""
    by_id = {telling.id: telling for telling in told}
    mine = {by_id[name].value for name in held.tellings if name in by_id}
    if held.kind in ("state", "preference", "bond"):
        mine |= {by_id[name].value for other in values for name in other.tellings if name in by_id}
    return {value for value in mine if value != held.value}
