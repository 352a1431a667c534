"""Memory rewriting: facts that are overwritten again and again.

The question is always for the newest value.

Every key is told once and then overwritten `overwrites` times, every `gap` sessions,
with talk in between. A memory that only adds collects stale values; one that updates
does not.
"""

from __future__ import annotations

from typing import Unpack

from environments.tasks.generated import (
    Draw,
    Generated,
    Shared,
    draw_questions,
    require_at_least,
    with_questions,
)
from environments.tasks.script import Script
from environments.worlds.language.lexicon import Lexicon
from environments.worlds.truth import Act
from environments.worlds.world import World


class Rewrite(Generated):
    """`keys` facts, each overwritten `overwrites` times, `gap` sessions apart."""

    name = "rewrite"

    def __init__(
        self, *, keys: int = 4, overwrites: int = 3, gap: int = 2, **shared: Unpack[Shared]
    ) -> None:
        """Raise `EnvironmentFault` for more keys or values than the language holds."""
        super().__init__(**shared)
        require_at_least(1, keys=keys, gap=gap)
        require_at_least(0, overwrites=overwrites)
        self.keys, self.overwrites, self.gap = keys, overwrites, gap

    def make(self, name: str, draw: Draw, lexicon: Lexicon) -> World:
        """Make one episode."""
        writes = self.overwrites + 1
        script = Script(name, draw, lexicon, self.config(sessions=writes * self.gap))
        keys = script.keys(
            "state", "preference", ask="now", least=writes, count=self.keys, argument="keys"
        )
        values = {key: script.values(relation, writes) for key, (_, relation) in enumerate(keys)}
        last = {number: script.tell(0, key, values[number][0]) for number, key in enumerate(keys)}
        for number in range(1, writes):
            for key in script.rng.sample(range(len(keys)), len(keys)):
                last[key] = script.tell(
                    number * self.gap,
                    keys[key],
                    values[key][number],
                    act=Act.CHANGE,
                    of=last[key],
                )
        world = script.world(relation for _, relation in keys)
        return with_questions(world, draw_questions(draw("questions"), world[1], lexicon, "now"))
