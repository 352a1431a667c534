"""Memory rewriting: facts that are overwritten again and again; the question is always
for the newest value.

Every key is told once and then overwritten `overwrites` times, every `gap` sessions;
what lies between is talk. A memory that only adds holds more stale values the longer it
goes on; one that updates does not notice how often it did.
"""

from __future__ import annotations

from typing import Unpack

from environments.tasks.generated import Draw, Generated, Shared, World, asking, at_least, questions
from environments.tasks.script import Script, enough
from environments.worlds.lexicon import Lexicon
from environments.worlds.truth import Act


class Rewrite(Generated):
    """`keys` facts, each overwritten `overwrites` times, `gap` sessions apart."""

    name = "rewrite"

    def __init__(
        self, *, keys: int = 4, overwrites: int = 3, gap: int = 2, **shared: Unpack[Shared]
    ) -> None:
        """Raises `EnvironmentFault` for more keys or values than the language has room for."""
        super().__init__(**shared)
        at_least(1, keys=keys, gap=gap)
        at_least(0, overwrites=overwrites)
        self.keys, self.overwrites, self.gap = keys, overwrites, gap

    def make(self, name: str, draw: Draw, lexicon: Lexicon) -> World:
        """One episode."""
        writes = self.overwrites + 1
        script = Script(name, draw, lexicon, self.knobs(sessions=writes * self.gap))
        found = script.keys("state", "preference", ask="now", least=writes)
        keys = enough(found, self.keys, knob="keys")
        values = {key: script.values(relation, writes) for key, (_, relation) in enumerate(keys)}
        last = {
            key: script.tell(0, speaker, relation, values[key][0])
            for key, (speaker, relation) in enumerate(keys)
        }
        for number in range(1, writes):
            for key in script.rng.sample(range(len(keys)), len(keys)):
                speaker, relation = keys[key]
                last[key] = script.tell(
                    number * self.gap,
                    speaker,
                    relation,
                    values[key][number],
                    act=Act.CHANGE,
                    of=last[key],
                )
        world = script.world(relation for _, relation in keys)
        asked = questions(
            draw("questions"),
            world[1],
            lexicon,
            lambda probe, how: how.ask == "now" and not probe.unanswerable,
        )
        return asking(world, asked)
